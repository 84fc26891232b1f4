//! The thread that follows processes. It reads files, so the session task does not wait for it.

use std::{
    collections::HashMap,
    io,
    sync::{
        Arc,
        mpsc::{self, Receiver, SyncSender},
    },
};

use super::follower::Follower;
use crate::{cache::Folder, kernel::UnwindMaps};

/// Requests that may wait; what is beyond is asked again later.
const MAX_JOBS: usize = 1024;

/// New code is looked for this often where a sample met some, in ns.
const LOOK_EVERY_NS: u64 = 50_000_000;

/// And this often anyway: a library can come to lie where another lay.
const LOOK_AGAIN_NS: u64 = 1_000_000_000;

enum Job {
    Look(u32),
    Forget(u32),
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
                while let Ok(job) = inbox.recv() {
                    match job {
                        Job::Forget(pid) => follower.forget(pid),
                        Job::Look(pid) => {
                            follower.look(pid);
                            // Nobody may be left to hear of it. As many answers wait as there were requests.
                            let _ = outbox.send(pid);
                            follower.keep();
                        }
                    }
                }
            })?;
        Ok(Self {
            jobs,
            looked,
            processes: HashMap::new(),
        })
    }

    /// Follows these processes and no others. Gives those whose tables are there.
    pub fn follow(&mut self, pids: &[u32], now_ns: u64) -> Vec<u32> {
        let gone: Vec<u32> = self
            .processes
            .keys()
            .copied()
            .filter(|pid| !pids.contains(pid))
            .collect();
        for pid in gone {
            if self.jobs.try_send(Job::Forget(pid)).is_ok() {
                self.processes.remove(&pid);
            }
        }
        for pid in pids {
            if !self.processes.contains_key(pid) {
                self.look(*pid, now_ns);
            }
        }
        let ready = |pid: &u32| self.processes.get(pid).is_some_and(|process| process.ready);
        pids.iter().copied().filter(ready).collect()
    }

    /// Whether a process is followed, and its tables are not there yet.
    pub fn is_awaited(&self, pid: u32) -> bool {
        self.processes.get(&pid).is_some_and(|process| !process.ready)
    }

    /// A sample met code that no table covers.
    pub fn new_code(&mut self, pid: u32, now_ns: u64) {
        let is_due = |process: &Followed| now_ns.saturating_sub(process.looked_ns) >= LOOK_EVERY_NS;
        if self.processes.get(&pid).is_some_and(is_due) {
            self.look(pid, now_ns);
        }
    }

    /// Looks again where that is due. Says whether tables have become ready.
    pub fn tick(&mut self, now_ns: u64) -> bool {
        let mut news = false;
        for pid in self.looked.try_iter() {
            if let Some(process) = self.processes.get_mut(&pid) {
                news |= !process.ready;
                process.ready = true;
            }
        }
        let is_due = |process: &Followed| now_ns.saturating_sub(process.looked_ns) >= LOOK_AGAIN_NS;
        let due: Vec<u32> = self
            .processes
            .iter()
            .filter(|(_, process)| is_due(process))
            .map(|(pid, _)| *pid)
            .collect();
        for pid in due {
            self.look(pid, now_ns);
        }
        news
    }

    fn look(&mut self, pid: u32, now_ns: u64) {
        if self.jobs.try_send(Job::Look(pid)).is_ok() {
            let ready = self.processes.get(&pid).is_some_and(|process| process.ready);
            self.processes.insert(
                pid,
                Followed {
                    looked_ns: now_ns,
                    ready,
                },
            );
        }
    }
}
