//! The frames that flame graphs draw on a wait: who ended it, what that thread did meanwhile, and in turn whom it
//! waited for.
//!
//! See `docs/internals/off-cpu.md` for how time off the CPU is seen.

use std::collections::HashSet;

use profiler_aggregate::{
    ThreadId,
    waits::{Kind, Locks, Node, Wait, Waiting, Waits, Waker},
};
use profiler_symbolize::{FrameId, Word};

use super::{
    symbols::NamedWait,
    waits::{Pids, of_target},
};
use crate::kernel::Activity;

/// Of one wait; what is left of it has nothing on it.
const MAX_CHAINS: usize = 64;

/// Frames of a chain. What would be on these is left out.
const MAX_FRAMES: usize = 512;

/// A part of a wait.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chain {
    /// What is drawn on the wait, from there on.
    pub frames: Vec<FrameId>,
    /// How much of the wait it is.
    pub time_ns: u64,
}

/// Waits of a session's threads as they come, and what they were for.
#[derive(Default)]
pub struct Chains {
    waits: Waits,
    pids: Pids,
    /// Of the wait that came last: its samples follow.
    last: Option<Last>,
}

struct Last {
    thread: ThreadId,
    woken_ns: u64,
    chains: Vec<Chain>,
}

impl Chains {
    /// Whether it has begun.
    pub fn has_begun(&self) -> bool {
        !self.pids.is_empty()
    }

    /// Begins, once intervals of these processes are recorded and it is known who was off the CPU; goes on if it has begun.
    pub fn begin(&mut self, pids: &[u32], off_at_first: &HashSet<ThreadId>) {
        if !self.has_begun() {
            self.waits = Waits::new(off_at_first.clone());
            self.pids = pids.iter().copied().collect();
        }
    }

    /// Those of a recording, of these processes; who of them was off the CPU when it was told first.
    pub fn recorded(pids: Pids, off_at_first: HashSet<ThreadId>) -> Self {
        Self {
            waits: Waits::new(off_at_first),
            pids,
            last: None,
        }
    }

    /// Waits until a time are missing: what threads did before is not known.
    pub fn miss_until(&mut self, ns: u64) {
        self.waits.forget_until(ns);
    }

    /// Takes waits of these processes from now on.
    pub fn set_pids(&mut self, pids: &Pids) {
        self.pids.clone_from(pids);
    }

    /// Takes no more waits of a process.
    pub fn lose(&mut self, pid: u32) {
        self.pids.remove(&pid);
    }

    /// Takes a wait, before the samples of it.
    pub fn take(&mut self, named: &NamedWait) {
        self.last = None;
        if !named.goes_on {
            self.take_ended(&named.wait);
        }
    }

    /// The same of a recorded one.
    pub fn take_recorded(&mut self, wait: &Wait) {
        self.last = None;
        if !matches!(wait.waker, Waker::GoesOn(_)) {
            self.take_ended(wait);
        }
    }

    fn take_ended(&mut self, wait: &Wait) {
        if !self.pids.contains(&wait.thread.tgid) {
            return;
        }
        let wait = of_target(wait, &self.pids);
        let nodes = self.waits.take_alone(&wait);
        self.last = Some(Last {
            thread: wait.thread,
            woken_ns: wait.times[1],
            chains: chains(&nodes),
        });
    }

    /// What is on a sample, whose time they have together; none where it is no wait, or nothing is known of it.
    pub fn of_sample(&self, thread: ThreadId, ts_ns: u64, activity: Activity) -> &[Chain] {
        let is_wait = ![Activity::OnCpu, Activity::Runnable].contains(&activity);
        let last = self.last.as_ref().filter(|_| is_wait);
        last.filter(|last| (last.thread, last.woken_ns) == (thread, ts_ns))
            .map_or(&[], |last| &last.chains)
    }
}

/// The parts of a wait, by the tree of it.
fn chains(nodes: &[Node]) -> Vec<Chain> {
    // What nodes below each are drawn on.
    let mut bases: Vec<Vec<FrameId>> = Vec::with_capacity(nodes.len());
    let mut chains = Vec::new();
    for node in nodes {
        let above = node
            .parent
            .and_then(|parent| nodes.get(parent))
            .map(|node| &node.kind);
        let base = node.parent.and_then(|parent| bases.get(parent));
        let drawn = match (base, &node.kind) {
            (Some(base), kind) => drawn(base, above, kind),
            // The wait itself, whose stack it has.
            (None, Kind::Waited(_, _, locks)) => Drawn {
                base: name_of(locks).into_iter().collect(),
                itself: Vec::new(),
            },
            (None, _) => Drawn::default(),
        };
        if node.own_ns > 0 {
            let mut frames = drawn.base.clone();
            frames.extend(drawn.itself);
            frames.truncate(MAX_FRAMES);
            chains.push(Chain {
                frames,
                time_ns: node.own_ns,
            });
        }
        bases.push(drawn.base);
    }
    if chains.len() > MAX_CHAINS {
        chains.sort_by_key(|chain| std::cmp::Reverse(chain.time_ns));
        let rest = chains.split_off(MAX_CHAINS - 1);
        chains.push(Chain {
            frames: Vec::new(),
            time_ns: rest.iter().map(|chain| chain.time_ns).sum(),
        });
    }
    chains
}

/// What a lock is called that is waited for, where it has a name.
fn name_of(locks: &Locks) -> Option<FrameId> {
    match locks {
        Locks::One(lock) => lock.name.or(lock.allocated),
        Locks::None | Locks::Others => None,
    }
}

/// How a node is drawn.
#[derive(Default)]
struct Drawn {
    /// What those below are drawn on.
    base: Vec<FrameId>,
    /// What is on that, of the time that no node below has.
    itself: Vec<FrameId>,
}

fn drawn(base: &[FrameId], above: Option<&Kind>, kind: &Kind) -> Drawn {
    let with =
        |frames: &[FrameId]| [base.get(..base.len().min(MAX_FRAMES)).unwrap_or_default(), frames].concat();
    let only = |base| Drawn {
        base,
        itself: Vec::new(),
    };
    match kind {
        Kind::Waited(place, waiting, locks) => {
            let word = match waiting {
                Waiting::Sleeping => Word::Sleeping,
                Waiting::Uninterruptible => Word::Uninterruptible,
                Waiting::Stopped => Word::Stopped,
            };
            let words: Vec<FrameId> = [word.frame()].into_iter().chain(name_of(locks)).collect();
            only(with(&[&*place.stack, &words].concat()))
        }
        Kind::Woken(place, is_own) => {
            let word = is_own.then_some(Word::NotFollowed.frame());
            Drawn {
                base: with(&[place.thread]),
                itself: place.stack.iter().copied().chain(word).collect(),
            }
        }
        // Where it ran is not known but of its end.
        Kind::Ran => match above {
            Some(Kind::Woken(place, _)) => only(with(&[&*place.stack, &[Word::Ran.frame()]].concat())),
            _ => only(with(&[Word::Ran.frame()])),
        },
        Kind::Runnable => only(with(&[Word::Runnable.frame()])),
        Kind::Interrupt(function) => only(with(&[Word::Interrupt.frame(), *function])),
        Kind::Unseen | Kind::GoesOn(_) => only(base.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use profiler_common::record::SpanRef;

    use super::*;
    use profiler_aggregate::waits::{Lock, Place};

    const MAIN: u32 = 7;

    fn thread_of(tid: u32) -> ThreadId {
        ThreadId { tgid: MAIN, tid }
    }

    fn place(thread: u32, function: u32) -> Place {
        Place {
            thread: FrameId(thread),
            stack: [FrameId(100), FrameId(function)].into(),
        }
    }

    fn wait(tid: u32, function: u32, times: [u64; 3], waker: Waker) -> NamedWait {
        NamedWait {
            wait: Wait {
                still_ns: None,
                thread: thread_of(tid),
                place: place(tid, function),
                waiting: Some(Waiting::Sleeping),
                lock: None,
                times,
                waker,
            },
            spans: Vec::<SpanRef>::new(),
            functions: [None; 2],
            waker_functions: [None; 2],
            goes_on: false,
        }
    }

    fn woken_by(tid: u32, function: u32) -> Waker {
        Waker::Thread {
            thread: thread_of(tid),
            place: place(tid, function),
            is_own: true,
        }
    }

    #[test]
    fn a_wait_is_drawn_with_the_chain_of_its_cause() {
        let mut chains = Chains::default();
        chains.begin(&[MAIN], &HashSet::new());
        // The second thread waits for a disk, then ends the wait of the first.
        chains.take(&wait(2, 20, [10, 40, 45], Waker::Interrupt(FrameId(99))));
        let mut of_lock = wait(1, 10, [0, 50, 60], woken_by(2, 21));
        let name = FrameId(55);
        of_lock.wait.lock = Some(Lock {
            memory: None,
            process: MAIN,
            address: 4096,
            name: Some(name),
            allocated: None,
        });
        chains.take(&of_lock);
        let on = |ts_ns, activity| chains.of_sample(thread_of(1), ts_ns, activity);
        let chain = |frames: &[FrameId], time_ns| Chain {
            frames: frames.to_vec(),
            time_ns,
        };
        let (thread, outer) = (FrameId(2), FrameId(100));
        let mut found = on(50, Activity::Sleeping).to_vec();
        found.sort_by_key(|chain| chain.time_ns);
        assert_eq!(
            found,
            [
                chain(&[name, thread, Word::Runnable.frame()], 5),
                chain(&[name, thread, outer, FrameId(21), Word::Ran.frame()], 15),
                chain(
                    &[
                        name,
                        thread,
                        outer,
                        FrameId(20),
                        Word::Sleeping.frame(),
                        Word::Interrupt.frame(),
                        FrameId(99)
                    ],
                    30
                ),
            ]
        );
        // What came before it had a CPU is its own.
        assert_eq!(on(60, Activity::Runnable), []);
        assert_eq!(chains.of_sample(thread_of(2), 50, Activity::Sleeping), []);
        // Of the next only it is told.
        chains.take(&wait(1, 10, [60, 90, 90], Waker::Unseen));
        let alone = chains.of_sample(thread_of(1), 90, Activity::Sleeping);
        assert_eq!(alone, [chain(&[], 30)]);
    }

    #[test]
    fn the_parts_of_a_long_queue_are_bounded_and_add_up() {
        let mut chains = Chains::default();
        chains.begin(&[MAIN], &HashSet::new());
        for number in 0..200 {
            let times = [number * 10, number * 10 + 5 + number % 5, number * 10 + 10];
            let function = 20 + u32::try_from(number).unwrap();
            chains.take(&wait(2, function, times, Waker::Unseen));
        }
        chains.take(&wait(1, 10, [0, 2000, 2000], woken_by(2, 21)));
        let found = chains.of_sample(thread_of(1), 2000, Activity::Sleeping);
        assert_eq!(found.len(), MAX_CHAINS);
        assert_eq!(found.iter().map(|chain| chain.time_ns).sum::<u64>(), 2000);
    }
}
