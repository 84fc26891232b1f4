//! The thread that follows processes. It reads files, so the session task does not wait for it.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    io,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender},
    },
    time::{Duration, Instant},
};

use super::{follower::Follower, rounds::Rounds};
use crate::{cache::Folder, kernel::UnwindMaps};

/// Requests that may wait, each of one process or of all that a session has new; what is beyond is asked again later.
const MAX_JOBS: usize = 1024;

/// New code is looked for this often where a sample met some, in ns.
const LOOK_EVERY_NS: u64 = 50_000_000;

enum Job {
    Look(Vec<u32>),
    Forget(Vec<u32>),
}

/// What the thread does with a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Act {
    /// Brings its tables up to date.
    Look(u32),
    /// Takes them back.
    Forget(u32),
}

/// Does what is asked for, and looks again at those that nobody asks about, until nobody may ask any more. Both by turns: neither waits
/// until there is nothing left of the other.
fn follow(inbox: &Receiver<Job>, answers: &Sender<u32>, mut act: impl FnMut(Act)) {
    let mut rounds = Rounds::default();
    // Each process is among them once, as it is not asked about again before that is answered.
    let mut asked = VecDeque::new();
    let mut is_any_due = false;
    loop {
        let pause = if asked.is_empty() && !is_any_due {
            rounds.pause(Instant::now())
        } else {
            Duration::ZERO
        };
        match inbox.recv_timeout(pause) {
            Ok(Job::Look(pids)) => asked.extend(pids),
            Ok(Job::Forget(pids)) => {
                asked.retain(|pid| !pids.contains(pid));
                for pid in pids {
                    rounds.forget(pid);
                    act(Act::Forget(pid));
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if let Some(pid) = asked.pop_front() {
            act(Act::Look(pid));
            rounds.note(pid, Instant::now());
            // Nobody may be left to hear of it. No more answers wait than processes were asked for.
            let _ = answers.send(pid);
        }
        let due = rounds.take_due(Instant::now());
        is_any_due = due.is_some();
        if let Some(pid) = due {
            act(Act::Look(pid));
            // However long that took: the others are due before it.
            rounds.note(pid, Instant::now());
        }
    }
}

/// Notes how many files of a process there is no room for.
fn note(without: &Without, pid: u32, files: u32) {
    let mut without = without.lock().unwrap_or_else(PoisonError::into_inner);
    if files == 0 {
        without.remove(&pid);
    } else {
        without.insert(pid, files);
    }
}

/// A process that is followed.
#[derive(Clone, Copy)]
struct Followed {
    looked_ns: u64,
    ready: bool,
    /// The thread was asked to look, and has not answered.
    is_asked: bool,
}

/// How many files of a process there is no room for, of the processes that have such.
type Without = Arc<Mutex<HashMap<u32, u32>>>;

/// The way to the thread and back.
pub struct Following {
    jobs: SyncSender<Job>,
    looked: Receiver<u32>,
    processes: HashMap<u32, Followed>,
    /// How many of them have no tables yet.
    awaited: usize,
    without: Without,
}

impl Following {
    /// Starts the thread, which fills the maps, and keeps tables in a folder.
    ///
    /// # Errors
    /// Where there can be no more threads.
    pub fn start(maps: UnwindMaps, folder: Option<Arc<Folder>>) -> io::Result<Self> {
        let (jobs, inbox) = mpsc::sync_channel(MAX_JOBS);
        let (outbox, looked) = mpsc::channel();
        let without = Without::default();
        let said = Arc::clone(&without);
        std::thread::Builder::new()
            .name("unwind tables".to_owned())
            .spawn(move || {
                let mut follower = Follower::new(maps, folder);
                follow(&inbox, &outbox, |act| match act {
                    Act::Look(pid) => {
                        let files = follower.look(pid);
                        note(&said, pid, files);
                        follower.keep();
                    }
                    Act::Forget(pid) => {
                        follower.forget(pid);
                        note(&said, pid, 0);
                    }
                });
            })?;
        Ok(Self {
            jobs,
            looked,
            processes: HashMap::new(),
            awaited: 0,
            without,
        })
    }

    /// Follows these processes and no others. Gives those whose tables are there.
    pub fn follow(&mut self, pids: &BTreeSet<u32>, now_ns: u64) -> Vec<u32> {
        let gone: Vec<u32> = self
            .processes
            .keys()
            .copied()
            .filter(|pid| !pids.contains(pid))
            .collect();
        if !gone.is_empty() && self.jobs.try_send(Job::Forget(gone.clone())).is_ok() {
            for pid in gone {
                let was_ready = self.processes.remove(&pid).is_none_or(|process| process.ready);
                self.awaited -= usize::from(!was_ready);
            }
        }
        let new = pids.iter().filter(|pid| !self.processes.contains_key(pid));
        self.look(new.copied().collect(), now_ns);
        let ready = |pid: &u32| self.processes.get(pid).is_some_and(|process| process.ready);
        pids.iter().copied().filter(ready).collect()
    }

    /// Files of some processes, counted for each, for whose tables there was no room, or none for their user.
    pub fn files_without(&self, pids: impl FnOnce() -> Vec<u32>) -> u64 {
        let without = self.without.lock().unwrap_or_else(PoisonError::into_inner);
        if without.is_empty() {
            return 0;
        }
        let pids = pids();
        let files = pids.iter().filter_map(|pid| without.get(pid));
        files.map(|files| u64::from(*files)).sum()
    }

    /// Whether there are processes that are followed and whose tables are not there yet.
    pub fn awaits_any(&self) -> bool {
        self.awaited > 0
    }

    /// Whether a process is followed, and its tables are not there yet.
    pub fn is_awaited(&self, pid: u32) -> bool {
        self.processes.get(&pid).is_some_and(|process| !process.ready)
    }

    /// A sample met code that no table covers.
    pub fn new_code(&mut self, pid: u32, now_ns: u64) {
        let is_due = |process: &Followed| {
            !process.is_asked && now_ns.saturating_sub(process.looked_ns) >= LOOK_EVERY_NS
        };
        if self.processes.get(&pid).is_some_and(is_due) {
            self.look(vec![pid], now_ns);
        }
    }

    /// Whether tables of processes have become ready since this was last asked.
    pub fn tick(&mut self) -> bool {
        let mut news = false;
        for pid in self.looked.try_iter() {
            if let Some(process) = self.processes.get_mut(&pid) {
                news |= !process.ready;
                self.awaited -= usize::from(!process.ready);
                (process.ready, process.is_asked) = (true, false);
            }
        }
        news
    }

    fn look(&mut self, pids: Vec<u32>, now_ns: u64) {
        if pids.is_empty() || self.jobs.try_send(Job::Look(pids.clone())).is_err() {
            return;
        }
        for pid in pids {
            let before = self.processes.get(&pid);
            self.awaited += usize::from(before.is_none());
            let ready = before.is_some_and(|process| process.ready);
            let followed = Followed {
                looked_ns: now_ns,
                ready,
                is_asked: true,
            };
            self.processes.insert(pid, followed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn who_is_asked_about_and_who_is_not_are_looked_at_by_turns_however_long_looks_take() {
        let (jobs, inbox) = mpsc::sync_channel(MAX_JOBS);
        let (outbox, answers) = mpsc::channel();
        let (done, acts) = mpsc::channel();
        // Two processes take longer than the time after which they are due again.
        let look = Duration::from_millis(600);
        let thread = thread::spawn(move || {
            follow(&inbox, &outbox, |act| {
                done.send(act).unwrap();
                if let Act::Look(1 | 2) = act {
                    thread::sleep(look);
                }
            });
        });
        let until = |wanted: Act| {
            let patience = Duration::from_mins(1);
            while acts.recv_timeout(patience).unwrap() != wanted {}
        };
        jobs.send(Job::Look(vec![1, 2])).unwrap();
        for pid in [1, 2] {
            assert_eq!(answers.recv(), Ok(pid));
        }
        // They are looked at again and again, and a third is looked at all the same.
        until(Act::Look(1));
        jobs.send(Job::Look(vec![3])).unwrap();
        assert_eq!(answers.recv_timeout(Duration::from_mins(1)), Ok(3));
        // Much is asked for, and the others have their turns.
        jobs.send(Job::Look((4..1000).collect())).unwrap();
        for pid in [1, 2, 3] {
            until(Act::Look(pid));
        }
        jobs.send(Job::Forget(vec![1, 2])).unwrap();
        until(Act::Forget(2));
        drop(jobs);
        thread.join().unwrap();
    }
}
