//! Who has how much of the table of mappings.

use std::collections::HashMap;

use profiler_common::limits::{MAX_UNWIND_MAPPINGS, MAX_UNWIND_PROCESSES};
use profiler_unwind::{ROOT, Runs, of_user, of_users, reach};

/// Why a process's mappings were given no place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoPlace {
    /// The share of one user.
    #[error("processes of one user, here of {0}, may have {most} of {MAX_UNWIND_MAPPINGS} mappings with unwind tables", most = of_user(MAX_UNWIND_MAPPINGS))]
    OfUser(u32),
    /// That of all users.
    #[error("processes of all users but root may have {most} of {MAX_UNWIND_MAPPINGS} mappings with unwind tables", most = of_users(MAX_UNWIND_MAPPINGS))]
    OfUsers,
    /// The share of one user.
    #[error("of one user, here of {0}, {most} of {MAX_UNWIND_PROCESSES} processes may have unwind tables", most = of_user(MAX_UNWIND_PROCESSES))]
    ProcessesOfUser(u32),
    /// That of all users.
    #[error("of all users but root, {most} of {MAX_UNWIND_PROCESSES} processes may have unwind tables", most = of_users(MAX_UNWIND_PROCESSES))]
    ProcessesOfUsers,
    /// All.
    #[error("there are {MAX_UNWIND_MAPPINGS} mappings with unwind tables already")]
    Full,
}

/// A process's part of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The first mapping.
    pub first: u32,
    count: u32,
    user: u32,
}

/// What processes have.
#[derive(Clone, Copy, Default, Debug)]
struct Used {
    processes: u32,
    mappings: u32,
}

/// The table of mappings.
pub struct Places {
    free: Runs,
    /// Of each user but root.
    used: HashMap<u32, Used>,
}

impl Places {
    /// All of it free.
    pub fn new() -> Self {
        Self {
            free: Runs::new(MAX_UNWIND_MAPPINGS),
            used: HashMap::new(),
        }
    }

    /// A place for so many mappings of a process of a user; `is_new`: the process has none yet.
    ///
    /// # Errors
    /// Where there is none, or not for this user.
    pub fn take(&mut self, user: u32, count: u32, is_new: bool) -> Result<Place, NoPlace> {
        if user != ROOT {
            self.admit(user, count, is_new)?;
        }
        let bound = reach(user, MAX_UNWIND_MAPPINGS);
        let first = self.free.take_below(count, bound).ok_or(NoPlace::Full)?;
        if user != ROOT {
            let used = self.used.entry(user).or_default();
            used.processes += 1;
            used.mappings += count;
        }
        Ok(Place { first, count, user })
    }

    fn admit(&self, user: u32, count: u32, is_new: bool) -> Result<(), NoPlace> {
        let own = self.used.get(&user).copied().unwrap_or_default();
        let users = self.used.values().fold(Used::default(), |sum, used| Used {
            processes: sum.processes + used.processes,
            mappings: sum.mappings + used.mappings,
        });
        let has_room = |used: u32, more: u32, most: u32| used.saturating_add(more) <= most;
        if !has_room(own.mappings, count, of_user(MAX_UNWIND_MAPPINGS)) {
            Err(NoPlace::OfUser(user))
        } else if !has_room(users.mappings, count, of_users(MAX_UNWIND_MAPPINGS)) {
            Err(NoPlace::OfUsers)
        } else if is_new && !has_room(own.processes, 1, of_user(MAX_UNWIND_PROCESSES)) {
            Err(NoPlace::ProcessesOfUser(user))
        } else if is_new && !has_room(users.processes, 1, of_users(MAX_UNWIND_PROCESSES)) {
            Err(NoPlace::ProcessesOfUsers)
        } else {
            Ok(())
        }
    }

    /// Gives back what was taken.
    pub fn give_back(&mut self, place: Place) {
        self.free.give_back(place.first, place.count);
        if let Some(used) = self.used.get_mut(&place.user) {
            used.processes = used.processes.saturating_sub(1);
            used.mappings = used.mappings.saturating_sub(place.count);
            if used.processes == 0 {
                self.used.remove(&place.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_users_processes_leave_mappings_to_those_of_others() {
        let mut places = Places::new();
        let mut taken = Vec::new();
        for user in 1..=4 {
            while let Ok(place) = places.take(user, 1_000, true) {
                taken.push(place);
            }
        }
        let of = |user| taken.iter().filter(|place| place.user == user).count();
        assert_eq!([1, 2, 3, 4].map(of), [16, 16, 16, 1]);
        assert_eq!(places.take(1, 1_000, true), Err(NoPlace::OfUser(1)));
        assert_eq!(places.take(5, 1_000, true), Err(NoPlace::OfUsers));
        assert_eq!(
            NoPlace::OfUser(1).to_string(),
            "processes of one user, here of 1, may have 16384 of 65536 mappings with unwind tables"
        );
        // Root has the rest, in one piece.
        let of_root = places.take(ROOT, of_user(MAX_UNWIND_MAPPINGS), true).unwrap();
        assert_eq!(of_root.count, 16_384);
        for place in taken.drain(..).chain([of_root]) {
            places.give_back(place);
        }
        assert!(places.take(ROOT, MAX_UNWIND_MAPPINGS, true).is_ok() && places.used.is_empty());
    }

    #[test]
    fn a_users_processes_leave_room_to_the_processes_of_others() {
        let mut places = Places::new();
        for user in 1..=3 {
            // Also of those of which no file has a table.
            while places.take(user, 0, true).is_ok() {}
        }
        assert_eq!(places.take(1, 1, true), Err(NoPlace::ProcessesOfUser(1)));
        assert_eq!(places.take(4, 1, true), Err(NoPlace::ProcessesOfUsers));
        assert!(places.take(1, 2, false).is_ok(), "it has mapped more");
        assert!(places.take(ROOT, 1, true).is_ok());
    }
}
