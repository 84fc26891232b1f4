//! How much of a thread's time each user's processes and files may take, where the thread serves all users and whoever owns a process
//! chooses how long a look at it takes.

use std::collections::HashMap;

/// Users that are kept; more are forgotten together.
const USERS_MAX: usize = 1024;

/// Time that looks have taken of late, by the user whose processes and files were looked at.
#[derive(Debug)]
pub struct TimeShares {
    part: u64,
    users: HashMap<u32, Used>,
}

/// Time that is still to be made up for.
#[derive(Debug, Default)]
struct Used {
    ns: u64,
    at_ns: u64,
}

impl TimeShares {
    /// Where each user may take one part in so many of the time.
    ///
    /// # Panics
    /// Where that is none.
    #[must_use]
    pub fn one_in(part: u64) -> Self {
        assert!(part > 0, "a share of the time");
        Self {
            part,
            users: HashMap::new(),
        }
    }

    /// The time that a user has taken beyond the share, in nanoseconds. `now_ns` is any clock that does not go back.
    pub fn taken_ns(&mut self, user: u32, now_ns: u64) -> u64 {
        let part = self.part;
        let used = self.users.get_mut(&user);
        used.map_or(0, |used| *used.now(part, now_ns))
    }

    /// Counts that a look has taken so long.
    pub fn take(&mut self, user: u32, took_ns: u64, now_ns: u64) {
        if self.users.len() >= USERS_MAX && !self.users.contains_key(&user) {
            self.users.clear();
        }
        let used = self.users.entry(user).or_default().now(self.part, now_ns);
        *used = used.saturating_add(took_ns);
    }
}

impl Used {
    fn now(&mut self, part: u64, now_ns: u64) -> &mut u64 {
        let passed_ns = now_ns.saturating_sub(self.at_ns);
        self.ns = self.ns.saturating_sub(passed_ns / part);
        self.at_ns = self.at_ns.max(now_ns);
        &mut self.ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_user_who_takes_more_than_the_share_has_to_wait_and_others_have_not() {
        let mut shares = TimeShares::one_in(5);
        let mut taken_ns = 0;
        // A look takes 100 ms, and is asked for every 10 ms.
        for at_ns in (0..60_000 * MS).step_by(10_000_000) {
            if shares.taken_ns(1, at_ns) <= 50 * MS {
                shares.take(1, 100 * MS, at_ns);
                taken_ns += 100 * MS;
            }
            assert_eq!(shares.taken_ns(2, at_ns), 0);
        }
        assert!((11_000 * MS..=12_200 * MS).contains(&taken_ns), "{taken_ns}");
    }

    #[test]
    fn a_user_who_takes_less_than_the_share_never_waits() {
        let mut shares = TimeShares::one_in(5);
        for at_ns in (0..10_000 * MS).step_by(10_000_000) {
            assert_eq!(shares.taken_ns(1, at_ns), 0);
            shares.take(1, MS, at_ns);
        }
    }
}
