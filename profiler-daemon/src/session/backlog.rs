//! Memory of what waits for slow clients. A user's programs choose how much comes of them, and clients how slowly they read: so it is
//! bounded for each user, over all sessions and streams; and for each stream, so that one that nobody reads leaves room to the others.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use super::command::Caller;

/// What may wait for the clients of one user's sessions, in bytes; half of it in one stream.
const MAX_BYTES_OF_USER: usize = 64 << 20;

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
        Self::with_limit(if owner.is_root() {
            MAX_BYTES_OF_ROOT
        } else {
            MAX_BYTES_OF_USER
        })
    }

    /// One in which so many bytes may wait.
    pub fn with_limit(max_bytes: usize) -> Self {
        Self(Arc::new(Waiting {
            bytes: AtomicUsize::new(0),
            max_bytes,
        }))
    }

    /// A stream's part of it.
    pub fn stream(&self) -> StreamBacklog {
        StreamBacklog {
            all: Arc::clone(&self.0),
            own: Arc::default(),
        }
    }
}

/// What waits in one stream.
pub struct StreamBacklog {
    all: Arc<Waiting>,
    own: Arc<AtomicUsize>,
}

impl StreamBacklog {
    /// Room for something of so many bytes, until it is dropped; `None` where too much waits already, in this stream or in all of the
    /// user's. What takes none has always room, and anything has where nothing waits.
    pub fn room(&self, bytes: usize) -> Option<Arc<Room>> {
        let Waiting {
            bytes: waiting,
            max_bytes,
        } = &*self.all;
        // It is added to by this thread alone.
        let own = self.own.load(Relaxed).saturating_add(bytes);
        let has_room = |before: usize| {
            let is_within = before.saturating_add(bytes) <= *max_bytes && own <= max_bytes / 2;
            bytes == 0 || before == 0 || is_within
        };
        waiting
            .fetch_update(Relaxed, Relaxed, |before| {
                has_room(before).then_some(before.saturating_add(bytes))
            })
            .ok()?;
        self.own.store(own, Relaxed);
        Some(Arc::new(Room {
            all: Arc::clone(&self.all),
            own: Arc::clone(&self.own),
            bytes,
        }))
    }
}

/// Room for something that waits for a client: it goes with it.
#[derive(Debug)]
pub struct Room {
    all: Arc<Waiting>,
    own: Arc<AtomicUsize>,
    bytes: usize,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.all.bytes.fetch_sub(self.bytes, Relaxed);
        self.own.fetch_sub(self.bytes, Relaxed);
    }
}

/// The backlogs of those who have sessions, or streams of sessions that ended, by user.
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
    const HALF: usize = MAX_BYTES_OF_USER / 2;

    #[test]
    fn what_waits_for_all_clients_of_a_user_is_bounded_and_of_others_is_not_counted() {
        let mut backlogs = Backlogs::default();
        let [one, two, three] = [(); 3].map(|()| backlogs.of(USER).stream());
        let first = one.room(HALF).unwrap();
        let _second = two.room(HALF).unwrap();
        assert!(three.room(1).is_none());
        assert!(three.room(0).is_some());
        assert!(backlogs.of(ROOT).stream().room(HALF).is_some());
        drop(first);
        assert!(three.room(HALF).is_some());
    }

    #[test]
    fn what_a_stream_holds_after_its_session_is_counted() {
        let mut backlogs = Backlogs::default();
        let waiting = backlogs.of(USER).stream().room(HALF);
        assert!(backlogs.of(USER).stream().room(HALF + 1).is_none());
        drop(waiting);
        assert!(backlogs.of(USER).stream().room(HALF + 1).is_some());
    }

    #[test]
    fn a_stream_that_nobody_reads_leaves_room_to_the_others() {
        let backlog = Backlog::of(USER);
        let (stalled, read) = (backlog.stream(), backlog.stream());
        let _waiting = stalled.room(HALF).unwrap();
        assert!(stalled.room(1).is_none());
        assert!(read.room(HALF).is_some());
    }

    #[test]
    fn one_thing_has_room_however_large_it_is() {
        let stream = Backlog::of(USER).stream();
        let large = stream.room(usize::MAX).unwrap();
        assert!(stream.room(1).is_none());
        drop(large);
        assert!(stream.room(1).is_some());
    }
}
