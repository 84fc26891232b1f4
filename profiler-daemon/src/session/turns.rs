//! Turns of requests that read files and their debug information, which takes memory and time that a target's owner chooses:
//! so many are served at once, one of each user, and root does not wait for others.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::AbortHandle,
};

use super::{
    command::Caller,
    error::{Reason, SessionError},
    memory,
};

/// Requests that are served at once: of root, and of all others.
const AT_ONCE: usize = 2;

/// The same of requests that only look a process up, and ask the kernel who may trace it: that takes no memory, and five seconds at most
/// (`trace_access`).
const LOOK_UPS_AT_ONCE: usize = 64;

/// How long a request of a user's may be served before others are served beside it: it may wait for a file system that never answers. So
/// many requests of users at a time.
const OVERDUE: Duration = Duration::from_secs(20);
const MAX_OVERDUE: usize = 14;

/// Requests of one user other than root that may wait.
const MAX_WAITING: usize = 64;

/// Who reads, and who waits for that. Cheap to clone.
#[derive(Clone)]
pub struct Turns(Arc<Inner>);

struct Inner {
    of_root: Arc<Semaphore>,
    of_users: Arc<Semaphore>,
    overdue: Arc<Semaphore>,
    /// By user, while a request of it is there.
    users: Mutex<HashMap<u32, User>>,
}

struct User {
    turn: Arc<Semaphore>,
    /// Requests that wait or are served.
    requests: usize,
}

/// Leave to read, until it is dropped: by what reads, even where nobody waits for that any more.
pub struct Turn {
    /// Root's, or the user's own. Given back before the user's requests are counted anew.
    permit: Option<OwnedSemaphorePermit>,
    /// Holds the one of all users.
    of_users: Option<AbortHandle>,
    _request: Request,
}

/// A request of a user that waits or is served.
struct Request {
    turns: Turns,
    uid: u32,
}

impl Turns {
    /// Nobody reads.
    pub fn new() -> Self {
        Self::at_once(AT_ONCE)
    }

    /// The same, for requests that look processes up.
    pub fn to_look_up() -> Self {
        Self::at_once(LOOK_UPS_AT_ONCE)
    }

    fn at_once(number: usize) -> Self {
        Self(Arc::new(Inner {
            of_root: Arc::new(Semaphore::new(number)),
            of_users: Arc::new(Semaphore::new(number)),
            overdue: Arc::new(Semaphore::new(MAX_OVERDUE)),
            users: Mutex::default(),
        }))
    }

    /// Waits until the caller may read.
    ///
    /// # Errors
    /// Where too many requests of the caller wait already.
    pub async fn take(&self, caller: Caller) -> Result<Turn, SessionError> {
        let (request, own) = self.announce(caller)?;
        let closed = |_| SessionError::new(Reason::Stopping, "the daemon is stopping");
        if caller.is_root() {
            let one = Arc::clone(&self.0.of_root).acquire_owned().await;
            return Ok(Turn {
                permit: Some(one.map_err(closed)?),
                of_users: None,
                _request: request,
            });
        }
        // Before one of all users' turns: what waits for its own user holds up nobody else.
        let own = own.acquire_owned().await.map_err(closed)?;
        let one = Arc::clone(&self.0.of_users).acquire_owned().await;
        let of_users = self.hold(one.map_err(closed)?);
        Ok(Turn {
            permit: Some(own),
            of_users: Some(of_users),
            _request: request,
        })
    }

    /// Holds a turn until the request is over, or it is overdue and there is room for one that is.
    fn hold(&self, turn: OwnedSemaphorePermit) -> AbortHandle {
        let overdue = Arc::clone(&self.0.overdue);
        let holds = tokio::spawn(async move {
            tokio::time::sleep(OVERDUE).await;
            let _beside = overdue.acquire_owned().await;
            drop(turn);
            std::future::pending::<()>().await;
        });
        holds.abort_handle()
    }

    fn announce(&self, caller: Caller) -> Result<(Request, Arc<Semaphore>), SessionError> {
        let mut users = self.0.users.lock().unwrap_or_else(PoisonError::into_inner);
        let user = users.entry(caller.uid).or_insert_with(|| User {
            turn: Arc::new(Semaphore::new(1)),
            requests: 0,
        });
        if !caller.is_root() && user.requests > MAX_WAITING {
            let message = format!("{MAX_WAITING} requests of yours wait to read files already: try again");
            return Err(SessionError::new(Reason::LimitReached, message));
        }
        user.requests += 1;
        let request = Request {
            turns: self.clone(),
            uid: caller.uid,
        };
        Ok((request, Arc::clone(&user.turn)))
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let mut users = self.turns.0.users.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(user) = users.get_mut(&self.uid) {
            user.requests -= 1;
            if user.requests == 0 {
                users.remove(&self.uid);
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(of_users) = self.of_users.take() {
            of_users.abort();
        }
        self.permit = None;
        memory::give_back_soon();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(uid: u32) -> Caller {
        Caller { uid, gid: uid }
    }

    async fn waits(turns: &Turns, uid: u32) -> bool {
        tokio::time::timeout(Duration::from_millis(20), turns.take(caller(uid)))
            .await
            .is_err()
    }

    #[tokio::test]
    async fn a_user_reads_once_at_a_time_and_root_does_not_wait_for_users() {
        let turns = Turns::new();
        let first = turns.take(caller(1)).await.unwrap();
        assert!(waits(&turns, 1).await, "twice at once");
        let second = turns.take(caller(2)).await.unwrap();
        assert!(waits(&turns, 3).await, "more than may be at once");
        let of_root = [
            turns.take(caller(0)).await.unwrap(),
            turns.take(caller(0)).await.unwrap(),
        ];
        assert!(waits(&turns, 0).await);
        drop(first);
        drop(turns.take(caller(3)).await.unwrap());
        drop((second, of_root));
        assert!(turns.0.users.lock().unwrap().is_empty(), "users are forgotten");
    }

    #[tokio::test]
    async fn processes_are_looked_up_for_many_users_at_once_and_for_each_one_by_one() {
        let turns = Turns::to_look_up();
        let mut taken = Vec::new();
        for uid in 1..=32 {
            taken.push(turns.take(caller(uid)).await.unwrap());
            assert!(waits(&turns, uid).await, "twice at once");
        }
        drop(turns.take(caller(0)).await.unwrap());
    }

    #[tokio::test]
    async fn requests_that_wait_are_bounded_and_those_that_gave_up_are_not_counted() {
        let turns = Turns::new();
        let served = turns.take(caller(1)).await.unwrap();
        for _ in 0..2 * MAX_WAITING {
            assert!(waits(&turns, 1).await);
        }
        let waiting: Vec<_> = (0..MAX_WAITING)
            .map(|_| {
                tokio::spawn({
                    let turns = turns.clone();
                    async move { turns.take(caller(1)).await.map(drop) }
                })
            })
            .collect();
        while turns.0.users.lock().unwrap()[&1].requests <= MAX_WAITING {
            tokio::task::yield_now().await;
        }
        let refused = turns.take(caller(1)).await.err().unwrap();
        assert_eq!(refused.reason, Reason::LimitReached);
        drop(turns.take(caller(2)).await.unwrap());
        drop(served);
        for one in waiting {
            one.await.unwrap().unwrap();
        }
    }
}
