//! How much of a thread's time each user's processes and files may take, where the thread serves all users and whoever owns a process
//! chooses how long a look at it takes.

use std::{collections::HashMap, time::Duration};

/// Users that are kept; more are forgotten together.
const USERS_MAX: usize = 1024;

/// Time that looks have taken of late, and that is still to be made up for: they may take one part in so many of the time. Each `now` is of
/// any clock that does not go back.
#[derive(Debug)]
pub struct TimeShare {
    part: u32,
    taken: Duration,
    at: Duration,
}

impl TimeShare {
    /// Nothing was taken yet.
    ///
    /// # Panics
    /// Where that part is none.
    #[must_use]
    pub const fn one_in(part: u32) -> Self {
        assert!(part > 0, "a share of the time");
        Self {
            part,
            taken: Duration::ZERO,
            at: Duration::ZERO,
        }
    }

    /// The time that was taken beyond the share.
    pub fn taken(&mut self, now: Duration) -> Duration {
        let passed = now.saturating_sub(self.at);
        self.taken = self.taken.saturating_sub(passed / self.part);
        self.at = self.at.max(now);
        self.taken
    }

    /// Counts that a look has taken so long.
    pub fn take(&mut self, took: Duration, now: Duration) {
        self.taken = self.taken(now).saturating_add(took);
    }
}

/// The same by the user whose processes and files were looked at, each with a share.
#[derive(Debug)]
pub struct TimeShares {
    part: u32,
    users: HashMap<u32, TimeShare>,
}

impl TimeShares {
    /// As [`TimeShare::one_in`].
    ///
    /// # Panics
    /// Where that part is none.
    #[must_use]
    pub fn one_in(part: u32) -> Self {
        assert!(part > 0, "a share of the time");
        Self {
            part,
            users: HashMap::new(),
        }
    }

    /// The time that a user has taken beyond the share.
    pub fn taken(&mut self, user: u32, now: Duration) -> Duration {
        let share = self.users.get_mut(&user);
        share.map_or(Duration::ZERO, |share| share.taken(now))
    }

    /// Counts that a look has taken so long.
    pub fn take(&mut self, user: u32, took: Duration, now: Duration) {
        if self.users.len() >= USERS_MAX && !self.users.contains_key(&user) {
            self.users.clear();
        }
        let part = self.part;
        let share = self.users.entry(user);
        share.or_insert_with(|| TimeShare::one_in(part)).take(took, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_user_who_takes_more_than_the_share_has_to_wait_and_others_have_not() {
        let mut shares = TimeShares::one_in(5);
        let mut taken = Duration::ZERO;
        // A look takes 100 ms, and is asked for every 10 ms.
        for at in (0..60_000).step_by(10).map(Duration::from_millis) {
            if shares.taken(1, at) <= 50 * MS {
                shares.take(1, 100 * MS, at);
                taken += 100 * MS;
            }
            assert_eq!(shares.taken(2, at), Duration::ZERO);
        }
        assert!((11_000 * MS..=12_200 * MS).contains(&taken), "{taken:?}");
    }

    #[test]
    fn a_user_who_takes_less_than_the_share_never_waits() {
        let mut shares = TimeShares::one_in(5);
        for at in (0..10_000).step_by(10).map(Duration::from_millis) {
            assert_eq!(shares.taken(1, at), Duration::ZERO);
            shares.take(1, MS, at);
        }
    }
}
