//! The thread that follows processes. It reads files, so the session task does not wait for it.

use std::{
    collections::{BTreeSet, HashMap},
    io,
    sync::{
        Arc,
        mpsc::{self, Receiver, RecvTimeoutError, SyncSender},
    },
    time::Instant,
};

use super::{follower::Follower, rounds::Rounds};
use crate::{cache::Folder, kernel::UnwindMaps};

/// Requests that may wait; what is beyond is asked again later.
const MAX_JOBS: usize = 1024;

/// New code is looked for this often where a sample met some, in ns.
const LOOK_EVERY_NS: u64 = 50_000_000;

enum Job {
    Look(Vec<u32>),
    Forget(Vec<u32>),
}

/// A process that is followed.
#[derive(Clone, Copy)]
struct Followed {
    looked_ns: u64,
    ready: bool,
}

/// The way to the thread and back.
pub struct Following {
    jobs: SyncSender<Job>,
    looked: Receiver<u32>,
    processes: HashMap<u32, Followed>,
    /// How many of them have no tables yet.
    awaited: usize,
}

impl Following {
    /// Starts the thread, which fills the maps, and keeps tables in a folder.
    ///
    /// # Errors
    /// Where there can be no more threads.
    pub fn start(maps: UnwindMaps, folder: Option<Arc<Folder>>) -> io::Result<Self> {
        let (jobs, inbox) = mpsc::sync_channel(MAX_JOBS);
        let (outbox, looked) = mpsc::channel();
        std::thread::Builder::new()
            .name("unwind tables".to_owned())
            .spawn(move || {
                let mut follower = Follower::new(maps, folder);
                let mut rounds = Rounds::default();
                loop {
                    let now = Instant::now();
                    match inbox.recv_timeout(rounds.pause(now)) {
                        Ok(Job::Forget(pids)) => {
                            for pid in pids {
                                rounds.forget(pid);
                                follower.forget(pid);
                            }
                        }
                        Ok(Job::Look(pids)) => {
                            for pid in pids {
                                follower.look(pid);
                                rounds.note(pid, Instant::now());
                                // Nobody may be left to hear of it. As many answers wait as were asked for.
                                let _ = outbox.send(pid);
                                follower.keep();
                            }
                        }
                        Err(RecvTimeoutError::Timeout) => {
                            while let Some(pid) = rounds.next(Instant::now()) {
                                follower.look(pid);
                            }
                            follower.keep();
                        }
                        Err(RecvTimeoutError::Disconnected) => return,
                    }
                }
            })?;
        Ok(Self {
            jobs,
            looked,
            processes: HashMap::new(),
            awaited: 0,
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
        let is_due = |process: &Followed| now_ns.saturating_sub(process.looked_ns) >= LOOK_EVERY_NS;
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
                process.ready = true;
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
            let looked_ns = now_ns;
            self.processes.insert(pid, Followed { looked_ns, ready });
        }
    }
}
