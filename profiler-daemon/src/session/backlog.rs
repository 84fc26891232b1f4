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

/// What may wait for the clients of one user's sessions, in bytes; in one stream half of what the others leave.
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
    /// Room for something of so many bytes, until it is dropped; `None` where this stream has half of what all others leave to it. What
    /// takes no memory has always room, and so has anything where nothing waits.
    pub fn room(&self, bytes: usize) -> Option<Arc<Room>> {
        let Waiting {
            bytes: waiting,
            max_bytes,
        } = &*self.all;
        let own = self.own.load(Relaxed);
        let has_room = |before: usize| {
            let left = max_bytes.saturating_sub(before.saturating_sub(own));
            bytes == 0 || before == 0 || own.saturating_add(bytes) <= left / 2
        };
        waiting
            .fetch_update(Relaxed, Relaxed, |before| {
                has_room(before).then_some(before.saturating_add(bytes))
            })
            .ok()?;
        self.own.fetch_add(bytes, Relaxed);
        Some(Arc::new(Room {
            all: Arc::clone(&self.all),
            own: Arc::clone(&self.own),
            bytes,
        }))
    }
}

/// Room for something that waits for a client: it goes with it until that has left.
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
        let streams: Vec<StreamBacklog> = (0..100).map(|_| backlogs.of(USER).stream()).collect();
        let waits =
            |stream: &StreamBacklog| std::iter::from_fn(|| stream.room(HALF / 1024)).collect::<Vec<_>>();
        let waiting: Vec<_> = streams.iter().map(waits).collect();
        let bytes = waiting.iter().flatten().map(|room| room.bytes).sum::<usize>();
        assert!((HALF..=MAX_BYTES_OF_USER).contains(&bytes), "{bytes}");
        assert!(streams[0].room(1).is_none());
        assert!(streams[0].room(0).is_some());
        assert!(backlogs.of(ROOT).stream().room(HALF).is_some());
        drop(waiting);
        assert!(streams[0].room(HALF).is_some());
    }

    #[test]
    fn what_a_stream_holds_after_its_session_is_counted() {
        let mut backlogs = Backlogs::default();
        let waiting = backlogs.of(USER).stream().room(1);
        assert!(backlogs.of(USER).stream().room(HALF).is_none());
        drop(waiting);
        assert!(backlogs.of(USER).stream().room(HALF).is_some());
    }

    #[test]
    fn streams_that_nobody_reads_leave_room_to_the_others() {
        let backlog = Backlog::of(USER);
        let [stalled, other, read] = [(); 3].map(|()| backlog.stream());
        let _waiting = stalled.room(HALF).unwrap();
        assert!(stalled.room(1).is_none());
        let _waiting = other.room(HALF / 2).unwrap();
        assert!(other.room(1).is_none());
        for _ in 0..100 {
            assert!(read.room(HALF / 4).is_some(), "it was read each time");
        }
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
