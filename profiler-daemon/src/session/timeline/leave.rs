//! Threads that wait for a target's kernel to let them count: so many of each user.
//!
//! While a process starts another program, the kernel lets nobody begin to count for it. That lasts until the files that the process had
//! open for itself are closed, which a file system of the user's own can draw out. Whoever begins to count therefore does so on a thread of
//! its own, which holds up nothing else.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

use profiler_target::{ROOT, ThreadRights};
use rustix::process::{Resource, geteuid, getrlimit};
use tokio::sync::oneshot;

use crate::{
    kernel::threads,
    session::{
        command::Caller,
        error::{Reason, SessionError},
    },
};

/// Threads of one user: one that begins to count, and one of each stream that counts threads each by itself.
const MAX_THREADS: usize = 64;

/// Descriptors that the counters of one user may take, where as many are allowed; each is an event of the kernel's.
const MAX_DESCRIPTORS: u64 = 8192;

/// The threads of all users, and the descriptors of their counters. Cheap to clone.
#[derive(Clone, Default)]
pub struct Leaves(Arc<Mutex<HashMap<u32, Taken>>>);

/// What one user has.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Taken {
    threads: usize,
    descriptors: u64,
}

/// Leave for so many descriptors, until it is dropped.
pub struct Descriptors {
    of: Leaves,
    uid: u32,
    count: u64,
}

/// Leave for one thread, until it is dropped.
pub struct Leave {
    of: Leaves,
    uid: u32,
}

/// Threads of a process.
pub struct CountedThreads {
    /// Those that may be counted.
    pub tids: Vec<u32>,
    /// How many there are beside them.
    pub left_out: usize,
}

impl Leaves {
    /// Leave for a thread of a caller's.
    ///
    /// # Errors
    /// Where it has as many as it may have.
    pub fn take(&self, caller: Caller) -> Result<Leave, SessionError> {
        let mut all = self.lock();
        let taken = all.entry(caller.uid).or_default();
        if taken.threads >= MAX_THREADS {
            let message = format!(
                "{MAX_THREADS} of your streams count threads already, or wait for processes that start other programs: try again"
            );
            return Err(SessionError::new(Reason::LimitReached, message));
        }
        taken.threads += 1;
        Ok(Leave {
            of: self.clone(),
            uid: caller.uid,
        })
    }

    /// Has work done on a thread of a caller's, with the leave for it.
    ///
    /// # Errors
    /// Those of the work, and where there can be no more threads.
    pub async fn run<T: Send + 'static>(
        &self,
        caller: Caller,
        work: impl FnOnce(Leave) -> Result<T, SessionError> + Send + 'static,
    ) -> Result<T, SessionError> {
        let leave = self.take(caller)?;
        let (done, answer) = oneshot::channel();
        let work = move || {
            // Nobody may be waiting for it any more.
            let _ = done.send(work(leave));
        };
        start("counting", work)?;
        answer
            .await
            .map_err(|_| SessionError::new(Reason::Kernel, "counting for the target failed"))?
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Taken>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give_back(&self, uid: u32, back: Taken) {
        let mut all = self.lock();
        if let Some(taken) = all.get_mut(&uid) {
            taken.threads -= back.threads;
            taken.descriptors -= back.descriptors;
            if *taken == Taken::default() {
                all.remove(&uid);
            }
        }
    }
}

impl Leave {
    /// The threads of a process that may be counted for whoever has this: for root all, for others those with the rights of the first one,
    /// which they were authorised for.
    pub fn threads(&self, pid: u32) -> CountedThreads {
        let all = threads(pid);
        if self.uid == ROOT {
            return CountedThreads {
                tids: all,
                left_out: 0,
            };
        }
        let first = ThreadRights::of_first(pid);
        let found = all.len();
        let has_rights = |tid: &u32| first.is_some() && ThreadRights::of(pid, *tid) == first;
        let tids: Vec<u32> = all.into_iter().filter(has_rights).collect();
        CountedThreads {
            left_out: found - tids.len(),
            tids,
        }
    }

    /// Leave for so many descriptors of counters. A user has a quarter of what this process may open at most, all users but root have
    /// half of it.
    ///
    /// # Errors
    /// Where that is more than there are left.
    pub fn descriptors(&self, count: u64) -> Result<Descriptors, SessionError> {
        // None is set where it is `None`.
        let there_are = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let most = MAX_DESCRIPTORS.min(there_are / 4);
        let mut all = self.of.lock();
        let of_users: u64 = all
            .iter()
            .filter(|(uid, _)| **uid != 0)
            .map(|(_, taken)| taken.descriptors)
            .sum();
        let taken = all.entry(self.uid).or_default();
        let is_too_many = taken.descriptors + count > most || of_users + count > there_are / 2;
        // Who has the daemon for themselves may take all.
        let is_own = self.uid == geteuid().as_raw();
        if self.uid != 0 && !is_own && is_too_many {
            let message = format!(
                "counters of your streams take {} descriptors, and {count} more are too many: {most} are allowed for you, and half of the \
                 daemon's for all users: ask for fewer counters, or leave out counting by thread",
                taken.descriptors
            );
            return Err(SessionError::new(Reason::LimitReached, message));
        }
        taken.descriptors += count;
        Ok(Descriptors {
            of: self.of.clone(),
            uid: self.uid,
            count,
        })
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        let back = Taken {
            threads: 0,
            descriptors: self.count,
        };
        self.of.give_back(self.uid, back);
    }
}

impl Drop for Leave {
    fn drop(&mut self) {
        let back = Taken {
            threads: 1,
            descriptors: 0,
        };
        self.of.give_back(self.uid, back);
    }
}

/// Starts a thread.
pub fn start(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), SessionError> {
    let started = thread::Builder::new().name(name.to_owned()).spawn(work);
    let refused = |error| SessionError::new(Reason::Kernel, format!("starting a thread: {error}"));
    started.map(drop).map_err(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_has_so_many_threads_and_others_have_theirs() {
        let leaves = Leaves::default();
        let caller = |uid| Caller { uid, gid: uid };
        let mut taken: Vec<Leave> = (0..MAX_THREADS)
            .map(|_| leaves.take(caller(1)).unwrap())
            .collect();
        let refused = leaves.take(caller(1)).err().unwrap();
        assert_eq!(refused.reason, Reason::LimitReached);
        drop(leaves.take(caller(2)).unwrap());
        taken.pop();
        taken.push(leaves.take(caller(1)).unwrap());
        drop(taken);
        assert!(leaves.lock().is_empty());
    }

    #[test]
    fn counters_of_a_user_leave_descriptors_to_others() {
        let leaves = Leaves::default();
        let leave = |uid| leaves.take(Caller { uid, gid: uid }).unwrap();
        let (first, second, root) = (leave(1), leave(2), leave(0));
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let most = MAX_DESCRIPTORS.min(limit / 4);
        let taken = first.descriptors(most).unwrap();
        let refused = first.descriptors(1).err().unwrap();
        assert_eq!(refused.reason, Reason::LimitReached);
        drop(second.descriptors(most).unwrap());
        drop(root.descriptors(2 * limit.min(1 << 40)).unwrap());
        drop(taken);
        drop(first.descriptors(most).unwrap());
        drop((first, second, root));
        assert!(leaves.lock().is_empty());
    }

    #[test]
    fn work_that_waits_holds_up_no_other() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let leaves = Leaves::default();
        let caller = Caller { uid: 1, gid: 1 };
        let (end, ends) = std::sync::mpsc::channel::<()>();
        let (begin, begins) = oneshot::channel();
        let waits = leaves.run(caller, move |_leave| {
            let _ = begin.send(());
            // Until it is let go.
            let _ = ends.recv();
            Ok("first")
        });
        runtime.block_on(async {
            let others = async {
                begins.await.unwrap();
                let second = leaves.run(caller, |_leave| Ok("second")).await.unwrap();
                drop(end);
                second
            };
            let (first, second) = tokio::join!(waits, others);
            assert_eq!((first.unwrap(), second), ("first", "second"));
        });
        assert!(leaves.lock().is_empty());
    }
}
