//! Memory of what waits for slow clients. A user's programs choose how much comes of them, and clients how slowly they read: so it is
//! bounded for each user, over all sessions and streams.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use super::command::Caller;

/// What may wait for the clients of one user's sessions, in bytes.
const MAX_BYTES_OF_USER: usize = 48 << 20;

/// The same of root's.
const MAX_BYTES_OF_ROOT: usize = 4 * MAX_BYTES_OF_USER;

/// What waits for the clients of one user's sessions.
#[derive(Clone, Debug)]
pub struct Backlog(Arc<Waiting>);

#[derive(Debug)]
struct Waiting {
    bytes: AtomicUsize,
    max_bytes: usize,
}

impl Backlog {
    /// That of a user: nothing waits.
    pub fn of(owner: Caller) -> Self {
        Self(Arc::new(Waiting {
            bytes: AtomicUsize::new(0),
            max_bytes: if owner.is_root() {
                MAX_BYTES_OF_ROOT
            } else {
                MAX_BYTES_OF_USER
            },
        }))
    }

    /// Room for something of so many bytes, until it is dropped; `None` where too much waits already. There is always room for one thing.
    pub fn room(&self, bytes: usize) -> Option<Arc<Room>> {
        let Waiting {
            bytes: waiting,
            max_bytes,
        } = &*self.0;
        let has_room = |before: usize| before == 0 || before.saturating_add(bytes) <= *max_bytes;
        waiting
            .fetch_update(Relaxed, Relaxed, |before| {
                has_room(before).then_some(before.saturating_add(bytes))
            })
            .ok()?;
        Some(Arc::new(Room {
            of: self.clone(),
            bytes,
        }))
    }
}

/// Room for something that waits for a client: it goes with it.
#[derive(Debug)]
pub struct Room {
    of: Backlog,
    bytes: usize,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.of.0.bytes.fetch_sub(self.bytes, Relaxed);
    }
}

/// The backlogs of those who have sessions, by user.
#[derive(Default)]
pub struct Backlogs(HashMap<u32, Backlog>);

impl Backlogs {
    /// That of a session's owner.
    pub fn of(&mut self, owner: Caller) -> Backlog {
        // Nobody holds the others any more.
        self.0.retain(|_, backlog| Arc::strong_count(&backlog.0) > 1);
        let known = self.0.entry(owner.uid);
        known.or_insert_with(|| Backlog::of(owner)).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: Caller = Caller { uid: 7, gid: 7 };
    const ROOT: Caller = Caller { uid: 0, gid: 0 };

    #[test]
    fn what_waits_for_all_clients_of_a_user_is_bounded_and_of_others_is_not_counted() {
        let mut backlogs = Backlogs::default();
        let (one, other) = (backlogs.of(USER), backlogs.of(USER));
        let first = one.room(MAX_BYTES_OF_USER - 1).unwrap();
        let _second = other.room(1).unwrap();
        assert!(one.room(1).is_none() && other.room(1).is_none());
        assert!(backlogs.of(ROOT).room(MAX_BYTES_OF_ROOT).is_some());
        drop(first);
        assert!(other.room(MAX_BYTES_OF_USER - 1).is_some());
    }

    #[test]
    fn one_thing_has_room_however_large_it_is() {
        let backlog = Backlog::of(USER);
        let large = backlog.room(usize::MAX).unwrap();
        assert!(backlog.room(1).is_none());
        drop(large);
        assert!(backlog.room(1).is_some());
    }
}
