//! Which threads are off the CPU when waits begin to be recorded, and when they end, as a thread of its own reads it.
//!
//! While the kernel says what a thread does, it holds the memory of its process (`do_task_stat`). Where the process ends meanwhile, whoever
//! asked is the last to let go of that memory, and waits for what the process had under way with files (`exit_aio`): a file system of its
//! user's own can draw that out.

use std::{
    collections::HashSet,
    fs,
    sync::mpsc::{self, Receiver, TryRecvError},
};

use profiler_aggregate::ThreadId;

use super::{
    command::Caller,
    cost::monotonic_ns,
    records::OffAtFirst,
    timeline::{Leaves, start_thread},
};

/// What it is looked for.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Needs {
    /// The tree of waits.
    pub waits: bool,
    /// What is drawn on waits in flame graphs.
    pub chains: bool,
    /// Who records waits.
    pub records: bool,
}

impl Needs {
    /// Whether it is all of another, too.
    fn covers(self, other: Self) -> bool {
        let Self {
            waits,
            chains,
            records,
        } = other;
        (self.waits || !waits) && (self.chains || !chains) && (self.records || !records)
    }
}

/// The look at who is off the CPU, of one session: one at a time counts.
pub struct OffLook {
    /// Leave for its thread.
    leaves: Leaves,
    owner: Caller,
    /// What the thread finds, while it looks.
    looking: Option<Receiver<OffAtFirst>>,
    /// What for.
    needs: Needs,
}

impl OffLook {
    /// None yet, of a session of this owner's.
    pub fn new(leaves: Leaves, owner: Caller) -> Self {
        Self {
            leaves,
            owner,
            looking: None,
            needs: Needs::default(),
        }
    }

    /// Another, which has not begun.
    pub fn another(&self) -> Self {
        Self::new(self.leaves.clone(), self.owner)
    }

    /// Looks at the threads of these processes, as they are from now on, unless it looks for all of that already. What an earlier look finds
    /// counts no more: not all waits since may have been recorded.
    pub fn begin(&mut self, pids: Vec<u32>, needs: Needs) {
        if needs == Needs::default() || self.is_looking() && self.needs.covers(needs) {
            return;
        }
        self.stop();
        self.needs = needs;
        let (tell, found) = mpsc::channel();
        let begun = self.leaves.take(self.owner).and_then(|leave| {
            start_thread("off_cpu", move || {
                let threads = pids.into_iter().flat_map(off_the_cpu).collect();
                let since_ns = monotonic_ns();
                // Nobody may want it any more.
                let _ = tell.send(OffAtFirst { since_ns, threads });
                drop(leave);
            })
        });
        match begun {
            Ok(()) => self.looking = Some(found),
            Err(error) => tracing::warn!(%error, "it is not known who is off the CPU: no waits are told"),
        }
    }

    /// Wants no more what a look finds.
    pub fn stop(&mut self) {
        self.looking = None;
    }

    /// Whether there is a look that is not over.
    pub fn is_looking(&self) -> bool {
        self.looking.is_some()
    }

    /// What it has found, once it is over. Nobody waits for it.
    pub fn take(&mut self) -> Option<OffAtFirst> {
        let found = self.looking.as_ref()?.try_recv();
        if !matches!(found, Err(TryRecvError::Empty)) {
            self.stop();
        }
        found.ok()
    }
}

/// Threads of a process that do not run, nor could.
fn off_the_cpu(pid: u32) -> HashSet<ThreadId> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return HashSet::new();
    };
    let thread = |entry: fs::DirEntry| {
        let tid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        // The name before it may hold anything.
        let (_, behind) = stat.rsplit_once(") ")?;
        (!behind.starts_with('R')).then_some(ThreadId { tgid: pid, tid })
    };
    threads.flatten().filter_map(thread).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Needs = Needs {
        waits: true,
        chains: true,
        records: true,
    };

    #[test]
    fn who_waits_is_off_the_cpu_and_nobody_waits_for_the_look() {
        let own = std::process::id();
        let (tell, told) = mpsc::channel();
        let (go_on, held) = mpsc::channel::<()>();
        let waiting = std::thread::spawn(move || {
            tell.send(rustix::thread::gettid()).unwrap();
            // Until it is let go.
            let _ = held.recv();
        });
        let tid = told.recv().unwrap().as_raw_nonzero().get().cast_unsigned();
        let mut look = OffLook::new(Leaves::default(), Caller { uid: 0, gid: 0 });
        assert!(look.take().is_none() && !look.is_looking(), "there is none");
        let off = loop {
            // It may not wait yet.
            look.begin(vec![own, u32::MAX], ALL);
            let off = loop {
                if let Some(off) = look.take() {
                    break off;
                }
                assert!(look.is_looking());
                std::thread::yield_now();
            };
            assert!(!look.is_looking());
            if off.threads.contains(&ThreadId { tgid: own, tid }) {
                break off;
            }
        };
        assert!(off.since_ns <= monotonic_ns());
        assert!(off.threads.iter().all(|thread| thread.tgid == own));
        drop(go_on);
        waiting.join().unwrap();
    }

    #[test]
    fn a_look_that_is_not_wanted_any_more_tells_nothing() {
        let mut look = OffLook::new(Leaves::default(), Caller { uid: 0, gid: 0 });
        look.begin(vec![std::process::id()], ALL);
        look.stop();
        assert!(look.take().is_none() && !look.is_looking());
        look.begin(vec![std::process::id()], Needs::default());
        assert!(!look.is_looking(), "for nothing");
    }

    #[test]
    fn a_look_is_begun_anew_only_for_what_it_was_not_begun_for() {
        let waits = Needs {
            waits: true,
            ..Needs::default()
        };
        assert!(ALL.covers(waits) && ALL.covers(ALL) && !waits.covers(ALL));
        let mut look = OffLook::new(Leaves::default(), Caller { uid: 0, gid: 0 });
        // One that is never over.
        let (_tell, found) = mpsc::channel();
        (look.looking, look.needs) = (Some(found), waits);
        look.begin(vec![std::process::id()], waits);
        assert!(look.take().is_none(), "it goes on");
        look.begin(vec![std::process::id()], ALL);
        while look.take().is_none() {
            assert!(look.is_looking());
            std::thread::yield_now();
        }
    }
}
