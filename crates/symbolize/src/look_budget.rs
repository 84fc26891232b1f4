//! How much time goes into perf maps. Whoever owns a process chooses how large its map is, and how often another takes its place; the
//! thread that reads it names the stacks of all.

use std::collections::HashMap;

/// A user's perf maps may be read for one part in so many of the time.
const PART: u64 = 5;
/// Time that a user may have used beyond that, in ns.
const AHEAD_NS: u64 = 50_000_000;
/// The same where a process's map is read for the first time, in whole.
const AHEAD_AT_FIRST_NS: u64 = 2_000_000_000;
/// Users that are kept; more are forgotten together.
const USERS_MAX: usize = 1024;

/// What reading perf maps has taken of late, by the user whose they are.
#[derive(Debug, Default)]
pub(super) struct LookBudget(HashMap<u32, Used>);

/// Time that is still to be made up for.
#[derive(Debug, Default)]
struct Used {
    ns: u64,
    at_ns: u64,
}

impl Used {
    fn now(&mut self, now_ns: u64) -> &mut u64 {
        let passed_ns = now_ns.saturating_sub(self.at_ns);
        self.ns = self.ns.saturating_sub(passed_ns / PART);
        self.at_ns = self.at_ns.max(now_ns);
        &mut self.ns
    }
}

impl LookBudget {
    /// Whether a map of a user's may be read now, be it the first time that it is.
    pub fn allows(&mut self, user: u32, is_first: bool, now_ns: u64) -> bool {
        let most_ns = if is_first { AHEAD_AT_FIRST_NS } else { AHEAD_NS };
        let used = self.0.get_mut(&user);
        used.is_none_or(|used| *used.now(now_ns) <= most_ns)
    }

    /// Counts that reading one has taken so long.
    pub fn use_up(&mut self, user: u32, took_ns: u64, now_ns: u64) {
        if self.0.len() >= USERS_MAX && !self.0.contains_key(&user) {
            self.0.clear();
        }
        let used = self.0.entry(user).or_default().now(now_ns);
        *used = used.saturating_add(took_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_user_whose_maps_take_long_is_waited_for_less_and_others_are_not() {
        let mut budget = LookBudget::default();
        let mut taken_ns = 0;
        // A map that takes 100 ms is replaced all the time, and looked for every 10 ms.
        for at_ns in (0..60_000 * MS).step_by(10_000_000) {
            if budget.allows(1, false, at_ns) {
                budget.use_up(1, 100 * MS, at_ns);
                taken_ns += 100 * MS;
            }
            assert!(budget.allows(2, false, at_ns));
        }
        assert!((11_000 * MS..=12_200 * MS).contains(&taken_ns), "{taken_ns}");
    }

    #[test]
    fn maps_that_are_read_for_the_first_time_have_more() {
        let mut budget = LookBudget::default();
        let first = (0..100).take_while(|_| {
            let may_be_read = budget.allows(1, true, 0);
            budget.use_up(1, 300 * MS, 0);
            may_be_read
        });
        assert_eq!(first.count(), 7);
        assert!(!budget.allows(1, false, 0));
    }

    #[test]
    fn maps_that_take_little_are_read_whenever_they_are_asked_for() {
        let mut budget = LookBudget::default();
        for at_ns in (0..10_000 * MS).step_by(10_000_000) {
            assert!(budget.allows(1, false, at_ns));
            budget.use_up(1, MS, at_ns);
        }
    }
}
