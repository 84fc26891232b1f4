//! Threads that are counted each by itself, met by a thread of its own: it looks which there are, and begins to count for the new ones.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender},
    },
};

use profiler_aggregate::ThreadId;
use profiler_target::has_thread;

use super::{
    Line, MAX_THREADS, Thread,
    leave::{self, Leave},
    name,
};
use crate::{
    kernel::{Counter, Counting},
    session::error::SessionError,
};

/// The way to the thread, which ends with this.
pub struct Meeting {
    asks: Sender<Ask>,
    met: Receiver<Met>,
    /// It was asked, and has not answered.
    is_asked: bool,
}

/// Which threads are looked for.
pub struct Ask {
    /// Those of these processes.
    pub pids: Vec<u32>,
    /// Those that are counted already.
    pub known: BTreeSet<u32>,
    /// Tells the names that these have by now.
    pub with_names: bool,
}

/// Threads that there are.
#[derive(Default)]
pub struct Met {
    /// All, by number.
    pub running: BTreeSet<u32>,
    /// Those that are counted from now on.
    pub(super) new: BTreeMap<u32, Thread>,
    /// How many more there are, which are not counted each by itself.
    pub left_out: u64,
    /// Names of those that were known, where these are asked for.
    pub names: BTreeMap<u32, Arc<str>>,
}

impl Meeting {
    /// Starts the thread, which has leave to be there.
    ///
    /// # Errors
    /// Where there can be no more threads.
    pub fn start(counters: Vec<Counter>, leave: Leave) -> Result<Self, SessionError> {
        let (asks, asked) = mpsc::channel::<Ask>();
        let (tell, met) = mpsc::channel();
        leave::start("threads", move || {
            for ask in asked {
                if tell.send(Met::by(&counters, &ask, &leave)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self {
            asks,
            met,
            is_asked: false,
        })
    }

    /// Asks it, unless it has not answered yet. Whether it was asked.
    pub fn ask(&mut self, ask: Ask) -> bool {
        if self.is_asked {
            return false;
        }
        self.is_asked = self.asks.send(ask).is_ok();
        self.is_asked
    }

    /// Its answer, once it is there. Nobody waits for it.
    pub fn take(&mut self) -> Option<Met> {
        let met = self.met.try_recv().ok()?;
        self.is_asked = false;
        Some(met)
    }
}

impl Met {
    /// Looks for threads, and begins to count for those that are new. Waits as long as the kernel does.
    pub fn by(counters: &[Counter], ask: &Ask, leave: &Leave) -> Self {
        let mut met = Self::default();
        let mut all: Vec<ThreadId> = Vec::new();
        for pid in &ask.pids {
            let of_process = leave.threads(*pid);
            met.left_out += of_process.left_out as u64;
            all.extend(
                of_process
                    .tids
                    .into_iter()
                    .map(|tid| ThreadId { tgid: *pid, tid }),
            );
        }
        // The oldest are counted where there is no room for all.
        all.sort_unstable_by_key(|thread| thread.tid);
        met.running = all.iter().map(|thread| thread.tid).collect();
        let mut room = MAX_THREADS.saturating_sub(met.running.intersection(&ask.known).count());
        for thread in all {
            if ask.known.contains(&thread.tid) {
                if ask.with_names {
                    met.names.insert(thread.tid, name(thread));
                }
            } else if room == 0 {
                met.left_out += 1;
            } else if met.count(counters, thread, leave) {
                room -= 1;
            }
        }
        met
    }

    /// Begins to count for a thread; whether that is possible.
    fn count(&mut self, counters: &[Counter], id: ThreadId, leave: &Leave) -> bool {
        let Ok(descriptors) = leave.descriptors(counters.len() as u64) else {
            self.left_out += 1;
            return false;
        };
        match Counting::start(counters, &[id], false) {
            // It may have ended before, and its number be another process's.
            Ok(_) if !has_thread(id.tgid, id.tid) => false,
            Ok(counting) => {
                let thread = Thread {
                    pid: id.tgid,
                    name: name(id),
                    line: Line::new(counting, counters.len()),
                    _descriptors: descriptors,
                };
                self.new.insert(id.tid, thread);
                true
            }
            Err(error) => {
                tracing::debug!(%error, tid = id.tid, "a thread is not counted by itself");
                self.left_out += 1;
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::leave::Leaves, *};
    use crate::session::command::Caller;

    #[test]
    fn threads_are_met_once_and_nobody_waits_for_that() {
        let caller = Caller { uid: 0, gid: 0 };
        let leave = Leaves::default().take(caller).unwrap();
        let mut meeting = Meeting::start(Vec::new(), leave).unwrap();
        let own = std::process::id();
        let ask = |known: &[u32]| Ask {
            pids: vec![own],
            known: known.iter().copied().collect(),
            with_names: true,
        };
        assert!(meeting.take().is_none(), "it was not asked");
        assert!(meeting.ask(ask(&[])) && !meeting.ask(ask(&[])), "one at a time");
        let answer = |meeting: &mut Meeting| loop {
            if let Some(met) = meeting.take() {
                break met;
            }
            std::thread::yield_now();
        };
        let met = answer(&mut meeting);
        assert!(met.running.contains(&own) && met.names.is_empty());
        assert!(meeting.ask(ask(&[own])));
        let met = answer(&mut meeting);
        assert!(!met.new.contains_key(&own) && met.names.contains_key(&own));
    }
}
