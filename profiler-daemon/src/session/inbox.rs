//! Requests that wait for the session task: root's come first, and those of users by turns. Who asks for much at once waits behind
//! himself.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        mpsc::{RecvError, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

/// Requests of root that may wait, and of all others; more are refused.
pub const MAX_QUEUED: usize = 256;

/// Requests of one user other than root that may wait.
const MAX_OF_USER: usize = 64;

/// After so many requests of root one of a user is served: root, too, can ask without end.
const MAX_IN_ROW: usize = 16;

/// Why a request cannot wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// So many wait already.
    TooMany(usize),
    /// Nobody takes requests any more.
    Closed,
}

/// An inbox, and what puts requests into it.
pub fn inbox<C>() -> (Requests<C>, Inbox<C>) {
    let shared = Arc::new(Shared {
        waiting: Mutex::new(Waiting {
            of_root: VecDeque::new(),
            of_users: BTreeMap::new(),
            last: 0,
            in_row: 0,
            askers: 1,
            is_closed: false,
        }),
        changed: Condvar::new(),
    });
    (Requests(Arc::clone(&shared)), Inbox(shared))
}

struct Shared<C> {
    waiting: Mutex<Waiting<C>>,
    changed: Condvar,
}

impl<C> Shared<C> {
    fn lock(&self) -> MutexGuard<'_, Waiting<C>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Waiting<C> {
    of_root: VecDeque<C>,
    /// By user; nobody's queue is empty.
    of_users: BTreeMap<u32, VecDeque<C>>,
    /// Whose was taken last.
    last: u32,
    /// Requests of root that were taken since.
    in_row: usize,
    /// How many can ask.
    askers: usize,
    is_closed: bool,
}

impl<C> Waiting<C> {
    /// The queue for a user's request.
    fn queue(&mut self, uid: u32) -> Result<&mut VecDeque<C>, Refused> {
        if self.is_closed {
            return Err(Refused::Closed);
        }
        if uid == 0 {
            return if self.of_root.len() < MAX_QUEUED {
                Ok(&mut self.of_root)
            } else {
                Err(Refused::TooMany(MAX_QUEUED))
            };
        }
        if self.of_users.values().map(VecDeque::len).sum::<usize>() >= MAX_QUEUED {
            return Err(Refused::TooMany(MAX_QUEUED));
        }
        if self
            .of_users
            .get(&uid)
            .is_some_and(|own| own.len() >= MAX_OF_USER)
        {
            return Err(Refused::TooMany(MAX_OF_USER));
        }
        Ok(self.of_users.entry(uid).or_default())
    }

    fn take(&mut self) -> Option<C> {
        let of_user = (self.in_row >= MAX_IN_ROW).then(|| self.take_of_users());
        let request = of_user.flatten().or_else(|| self.take_of_root());
        request.or_else(|| self.take_of_users())
    }

    fn take_of_root(&mut self) -> Option<C> {
        let request = self.of_root.pop_front()?;
        self.in_row = self.in_row.saturating_add(1);
        Some(request)
    }

    fn take_of_users(&mut self) -> Option<C> {
        let mut behind = self
            .of_users
            .range((Bound::Excluded(self.last), Bound::Unbounded));
        let next = behind.next().or_else(|| self.of_users.first_key_value());
        let uid = *next?.0;
        let queue = self.of_users.get_mut(&uid)?;
        let request = queue.pop_front();
        if queue.is_empty() {
            self.of_users.remove(&uid);
        }
        self.last = uid;
        self.in_row = 0;
        request
    }
}

/// Puts requests into an inbox.
pub struct Requests<C>(Arc<Shared<C>>);

impl<C> Requests<C> {
    /// Has a user's request wait.
    ///
    /// # Errors
    /// Where too many wait, and where nobody takes them any more.
    pub fn put(&self, uid: u32, request: C) -> Result<(), Refused> {
        // A request that is refused is dropped behind the lock.
        self.0.lock().queue(uid)?.push_back(request);
        self.0.changed.notify_one();
        Ok(())
    }

    /// Has a request of the daemon's own wait behind those of root, however many these are.
    ///
    /// # Errors
    /// Where nobody takes requests any more.
    pub fn put_own(&self, request: C) -> Result<(), Refused> {
        let mut waiting = self.0.lock();
        if waiting.is_closed {
            return Err(Refused::Closed);
        }
        waiting.of_root.push_back(request);
        self.0.changed.notify_one();
        Ok(())
    }
}

impl<C> Clone for Requests<C> {
    fn clone(&self) -> Self {
        self.0.lock().askers += 1;
        Self(Arc::clone(&self.0))
    }
}

impl<C> Drop for Requests<C> {
    fn drop(&mut self) {
        self.0.lock().askers -= 1;
        self.0.changed.notify_one();
    }
}

/// Requests that wait.
pub struct Inbox<C>(Arc<Shared<C>>);

impl<C> Inbox<C> {
    /// The next request, once there is one.
    ///
    /// # Errors
    /// Where none waits, and nobody can ask any more.
    pub fn recv(&self) -> Result<C, RecvError> {
        let mut waiting = self.0.lock();
        loop {
            if let Some(request) = waiting.take() {
                return Ok(request);
            }
            if waiting.askers == 0 {
                return Err(RecvError);
            }
            waiting = (self.0.changed.wait(waiting)).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The same, where one comes within a time.
    ///
    /// # Errors
    /// Where none does, and as [`Self::recv`].
    pub fn recv_timeout(&self, timeout: Duration) -> Result<C, RecvTimeoutError> {
        let begin = Instant::now();
        let mut waiting = self.0.lock();
        loop {
            if let Some(request) = waiting.take() {
                return Ok(request);
            }
            if waiting.askers == 0 {
                return Err(RecvTimeoutError::Disconnected);
            }
            let Some(left) = timeout
                .checked_sub(begin.elapsed())
                .filter(|left| !left.is_zero())
            else {
                return Err(RecvTimeoutError::Timeout);
            };
            let waited = self.0.changed.wait_timeout(waiting, left);
            waiting = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl<C> Drop for Inbox<C> {
    fn drop(&mut self) {
        let mut waiting = self.0.lock();
        waiting.is_closed = true;
        let left = (
            std::mem::take(&mut waiting.of_root),
            std::mem::take(&mut waiting.of_users),
        );
        drop(waiting);
        // Whoever waits for an answer is told that there is none.
        drop(left);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const NO_TIME: Duration = Duration::ZERO;

    #[test]
    fn roots_requests_come_first_and_users_take_turns() {
        let (requests, inbox) = inbox();
        for request in ["a1", "a2", "a3"] {
            requests.put(1000, request).unwrap();
        }
        requests.put(1001, "b1").unwrap();
        requests.put(0, "root1").unwrap();
        requests.put(0, "root2").unwrap();
        requests.put(1002, "c1").unwrap();
        requests.put_own("stop").unwrap();
        let all: Vec<_> = std::iter::from_fn(|| inbox.recv_timeout(NO_TIME).ok()).collect();
        assert_eq!(all, ["root1", "root2", "stop", "a1", "b1", "c1", "a2", "a3"]);
    }

    #[test]
    fn a_user_with_too_many_requests_takes_nobody_elses_room() {
        let (requests, inbox) = inbox();
        let put = |uid| (0..).map_while(|_| requests.put(uid, uid).ok()).count();
        assert_eq!(put(1000), MAX_OF_USER);
        assert_eq!(requests.put(1000, 1000), Err(Refused::TooMany(MAX_OF_USER)));
        assert_eq!(requests.put(1001, 1001), Ok(()));
        let others: usize = (1001..2000).map(put).sum();
        assert_eq!(others + 1 + MAX_OF_USER, MAX_QUEUED);
        assert_eq!(requests.put(2000, 2000), Err(Refused::TooMany(MAX_QUEUED)));
        assert_eq!(put(0), MAX_QUEUED);
        assert_eq!(requests.put_own(0), Ok(()));
        assert_eq!(inbox.recv(), Ok(0));
    }

    #[test]
    fn users_are_served_also_while_root_asks_without_end() {
        let (requests, inbox) = inbox();
        requests.put(1000, "user").unwrap();
        let served = (0..1000).position(|_| {
            requests.put(0, "root").unwrap();
            inbox.recv() == Ok("user")
        });
        assert_eq!(served, Some(MAX_IN_ROW));
    }

    #[test]
    fn who_waits_is_woken_by_each_request_and_by_the_last_asker() {
        const PATIENCE: Duration = Duration::from_mins(1);
        for timeout in [None, Some(PATIENCE)] {
            let (requests, inbox) = inbox();
            let (told, tell) = std::sync::mpsc::channel();
            let waiting = thread::spawn(move || {
                let next = || match timeout {
                    None => inbox.recv().ok(),
                    Some(timeout) => inbox.recv_timeout(timeout).ok(),
                };
                while let Some(request) = next() {
                    told.send(request).unwrap();
                }
            });
            // Each is put when the one before has been told, which is just before the next is waited for.
            for number in 0..1000 {
                if number % 2 == 0 {
                    requests.put(number, number).unwrap();
                } else {
                    requests.put_own(number).unwrap();
                }
                assert_eq!(tell.recv_timeout(PATIENCE), Ok(number));
            }
            drop(requests);
            assert_eq!(
                tell.recv_timeout(PATIENCE),
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected)
            );
            waiting.join().unwrap();
        }
    }

    #[test]
    fn an_inbox_ends_with_those_who_can_ask_and_they_with_it() {
        let (requests, inbox) = inbox();
        let other = requests.clone();
        let asking = thread::spawn(move || other.put(7, 7));
        assert_eq!(inbox.recv(), Ok(7));
        asking.join().unwrap().unwrap();
        assert_eq!(inbox.recv_timeout(NO_TIME), Err(RecvTimeoutError::Timeout));
        drop(requests);
        assert_eq!(inbox.recv(), Err(RecvError));
        assert_eq!(inbox.recv_timeout(NO_TIME), Err(RecvTimeoutError::Disconnected));

        let (requests, inbox) = super::inbox();
        let request = Arc::new(());
        requests.put(0, Arc::clone(&request)).unwrap();
        drop(inbox);
        assert_eq!(Arc::strong_count(&request), 1);
        assert_eq!(requests.put(0, request), Err(Refused::Closed));
    }
}
