//! How much time goes into perf maps. Whoever owns a process chooses how large its map is, and how often another takes its place; the
//! thread that reads it names the stacks of all.

use std::time::Duration;

use profiler_target::TimeShares;

/// A user's perf maps may be read for one part in so many of the time.
const PART: u32 = 5;
/// Time that a user may have used beyond that, in ns.
const AHEAD_NS: u64 = 50_000_000;
/// The same where a process's map is read for the first time, in whole.
const AHEAD_AT_FIRST_NS: u64 = 2_000_000_000;

/// What reading perf maps has taken of late, by the user whose they are.
#[derive(Debug)]
pub(super) struct LookBudget(TimeShares);

impl Default for LookBudget {
    fn default() -> Self {
        Self(TimeShares::one_in(PART))
    }
}

impl LookBudget {
    /// Whether a map of a user's may be read now, be it the first time that it is.
    pub fn allows(&mut self, user: u32, is_first: bool, now_ns: u64) -> bool {
        let most_ns = if is_first { AHEAD_AT_FIRST_NS } else { AHEAD_NS };
        self.0.taken(user, Duration::from_nanos(now_ns)) <= Duration::from_nanos(most_ns)
    }

    /// Counts that reading one has taken so long.
    pub fn use_up(&mut self, user: u32, took_ns: u64, now_ns: u64) {
        let [took, now] = [took_ns, now_ns].map(Duration::from_nanos);
        self.0.take(user, took, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

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
}
