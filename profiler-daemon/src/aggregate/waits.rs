//! Who was waited for: a tree of waits, of those who ended them, and of what these did meanwhile.
//!
//! A thread waits from when it left the CPU until another, or an interrupt, made it runnable. What that other did in this
//! time is what was waited for: its own waits, each followed in the same way, the time that it could run and had no CPU,
//! and the rest, in which it ran. The time of a node is that of its children and [its own](Node::own_ns), exactly.
//!
//! Waits at one place behind each other are one queue: of twenty threads behind a lock each is woken by the one before,
//! which waited for that lock too. What a thread waited while the one before it was still in the queue is laid at the
//! door of whoever woke that one.

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    ops::Range,
    sync::Arc,
};

use super::calltree::FrameId;

/// Nodes of the tree.
pub const MAX_NODES: usize = 4096;

/// Threads whose waits are remembered; then the half that was last seen longest ago is forgotten.
pub const MAX_THREADS: usize = 4096;

/// Threads of which it is known that nothing is.
const MAX_FORGOTTEN: usize = 65_536;

/// Waits that are remembered of a thread.
pub const MAX_REMEMBERED: usize = 256;

/// Waits that wait for one another.
pub const MAX_DEPTH: usize = 48;

/// Waits that are looked at to tell what one was for.
const MAX_STEPS: usize = 1024;

/// Stacks that are told apart.
const MAX_STACKS: usize = 16_384;

/// Threads that are counted at a node.
pub const MAX_COUNTED: usize = 256;

/// A process and a thread of it.
pub type Thread = (u32, u32);

/// How a thread waits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Waiting {
    /// A signal ends it.
    Sleeping,
    /// No signal ends it.
    Uninterruptible,
    /// It was stopped.
    Stopped,
}

/// What a thread is called, and a stack of it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Place {
    /// Threads of one name are one.
    pub thread: FrameId,
    /// Functions, root first.
    pub stack: Arc<[FrameId]>,
}

/// Who ended a wait.
#[derive(Clone, Debug)]
pub enum Waker {
    /// It was not seen.
    Unseen,
    /// An interrupt, in this function.
    Interrupt(FrameId),
    /// A thread, and what it ran when it did so.
    Thread {
        /// Its number.
        thread: Thread,
        /// Where it was.
        place: Place,
        /// It is one of the target's.
        is_own: bool,
    },
}

/// An interval that a thread was off the CPU.
#[derive(Clone, Debug)]
pub struct Wait {
    /// The thread.
    pub thread: Thread,
    /// Where it left the CPU.
    pub place: Place,
    /// What it did until it could run; `None` where it could run all the time.
    pub waiting: Option<Waiting>,
    /// When it left the CPU, could run again, and did.
    pub times: [u64; 3],
    /// Who made it runnable.
    pub waker: Waker,
}

/// What a node stands for.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// Threads waited there.
    Waited(Place, Waiting),
    /// The wait above was ended by a thread that ran this; whether it is one of the target's.
    Woken(Place, bool),
    /// It was ended by an interrupt, in this function.
    Interrupt(FrameId),
    /// Nobody was seen to end it.
    Unseen,
    /// The thread above ran.
    Ran,
    /// It could run, and waited for a CPU.
    Runnable,
}

/// A node of the tree.
#[derive(Clone, Debug)]
pub struct Node {
    /// Number of the node above; `None` of a wait that was asked for.
    pub parent: Option<usize>,
    /// What it stands for.
    pub kind: Kind,
    /// Its time.
    pub time_ns: u64,
    /// What of it no child has: it was not followed further.
    pub own_ns: u64,
    /// Intervals that it is made of.
    pub count: u64,
    /// The longest of them.
    pub longest_ns: u64,
    /// Threads that waited or ran there, up to [`MAX_COUNTED`].
    threads: BTreeSet<Thread>,
}

impl Node {
    /// Threads that waited, woke or ran there, up to [`MAX_COUNTED`].
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads.len()
    }
}

/// What all waits that were asked for come to.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Total {
    /// Their number.
    pub waits: u64,
    /// Their time, be it that the tree had no room for them.
    pub waited_ns: u64,
    /// The time that the same threads could run and had no CPU.
    pub runnable_ns: u64,
}

/// The tree, and what it is made from.
#[derive(Default)]
pub struct Waits {
    stacks: HashSet<Arc<[FrameId]>>,
    threads: HashMap<Thread, Past>,
    /// Threads that were off the CPU when the recording began, and since when is not known.
    off_at_first: HashSet<Thread>,
    nodes: Vec<Node>,
    by_kind: HashMap<(Option<usize>, Kind), usize>,
    total: Total,
}

/// What a thread did.
#[derive(Default)]
struct Past {
    /// Before this it is not known.
    known_from_ns: u64,
    /// Oldest first.
    waits: VecDeque<Wait>,
}

/// What a thread did in some time.
struct Deeds {
    waits: Vec<(Range<u64>, Wait)>,
    runnable_ns: u64,
    ran_ns: u64,
}

/// A wait, or a part of one, that is being followed.
struct Followed<'a> {
    /// The node of the wait.
    node: usize,
    place: &'a Place,
    waiting: Waiting,
    time: Range<u64>,
    waker: &'a Waker,
    /// Whose it is.
    thread: Thread,
}

impl Waits {
    /// Nothing yet. Of threads that were off the CPU at first it is not known what they did until they are first seen to
    /// leave it; others ran.
    #[must_use]
    pub fn new(off_at_first: HashSet<Thread>) -> Self {
        Self {
            off_at_first,
            ..Self::default()
        }
    }

    /// Takes an interval; the tree has it if it is `asked` for. Those of one thread come in their order, and those of
    /// whoever ended it come before it.
    pub fn take(&mut self, mut wait: Wait, asked: bool) {
        self.share(&mut wait.place.stack);
        if let Waker::Thread { place, .. } = &mut wait.waker {
            self.share(&mut place.stack);
        }
        if asked {
            self.show(&wait);
        }
        self.remember(wait);
    }

    /// The tree: parents first.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// What it comes to.
    #[must_use]
    pub fn total(&self) -> Total {
        self.total
    }

    fn show(&mut self, wait: &Wait) {
        let [start_ns, woken_ns, end_ns] = wait.times;
        self.total.runnable_ns += end_ns - woken_ns;
        let (Some(waiting), true) = (wait.waiting, woken_ns > start_ns) else {
            return;
        };
        self.total.waits += 1;
        self.total.waited_ns += woken_ns - start_ns;
        let kind = Kind::Waited(wait.place.clone(), waiting);
        if let Some(node) = self.add(None, kind, woken_ns - start_ns, wait.thread) {
            let followed = Followed {
                node,
                place: &wait.place,
                waiting,
                time: start_ns..woken_ns,
                waker: &wait.waker,
                thread: wait.thread,
            };
            self.follow(&followed, 0, &mut MAX_STEPS.clone());
        }
    }

    /// Lays the time of a wait at the doors of those who ended it.
    fn follow(&mut self, wait: &Followed<'_>, depth: usize, steps: &mut usize) {
        let length_ns = wait.time.end - wait.time.start;
        let (thread, place, is_own) = match wait.waker {
            Waker::Unseen => {
                self.add(Some(wait.node), Kind::Unseen, length_ns, wait.thread);
                return;
            }
            Waker::Interrupt(function) => {
                self.add(
                    Some(wait.node),
                    Kind::Interrupt(*function),
                    length_ns,
                    wait.thread,
                );
                return;
            }
            Waker::Thread {
                thread,
                place,
                is_own,
            } => (*thread, place, *is_own),
        };
        let deeds = self.deeds(thread, is_own, &wait.time, steps);
        let (queued, waited): (Vec<_>, Vec<_>) = deeds
            .waits
            .into_iter()
            .partition(|(_, own)| own.waiting == Some(wait.waiting) && own.place == *wait.place);
        let queued_ns: u64 = queued.iter().map(|(time, _)| time.end - time.start).sum();
        let woken = if length_ns > queued_ns {
            let kind = Kind::Woken(place.clone(), is_own);
            self.add(Some(wait.node), kind, length_ns - queued_ns, thread)
        } else {
            None
        };
        let inside = depth < MAX_DEPTH;
        for (time, own) in queued.iter().filter(|_| inside) {
            let part = Followed {
                time: time.clone(),
                waker: &own.waker,
                thread,
                ..*wait
            };
            self.follow(&part, depth + 1, steps);
        }
        let Some(woken) = woken else { return };
        for (kind, time_ns) in [(Kind::Ran, deeds.ran_ns), (Kind::Runnable, deeds.runnable_ns)] {
            if time_ns > 0 {
                self.add(Some(woken), kind, time_ns, thread);
            }
        }
        for (time, own) in waited.iter().filter(|_| inside) {
            let Some(waiting) = own.waiting else { continue };
            let kind = Kind::Waited(own.place.clone(), waiting);
            if let Some(node) = self.add(Some(woken), kind, time.end - time.start, thread) {
                let part = Followed {
                    node,
                    place: &own.place,
                    waiting,
                    time: time.clone(),
                    waker: &own.waker,
                    thread,
                };
                self.follow(&part, depth + 1, steps);
            }
        }
    }

    /// What a thread did in some time, as far as it is remembered.
    fn deeds(&self, thread: Thread, is_own: bool, time: &Range<u64>, steps: &mut usize) -> Deeds {
        let mut deeds = Deeds {
            waits: Vec::new(),
            runnable_ns: 0,
            ran_ns: 0,
        };
        if !is_own {
            return deeds;
        }
        let nothing = Past::default();
        let past = match self.threads.get(&thread) {
            Some(past) => past,
            None if self.off_at_first.contains(&thread) => return deeds,
            None => &nothing,
        };
        let mut from_ns = time.start.max(past.known_from_ns);
        // Latest first: those nearest to the end are known where it is not followed to its beginning.
        let mut until_ns = time.end;
        let first = past.waits.partition_point(|wait| wait.times[2] <= time.start);
        for wait in past.waits.iter().skip(first).rev() {
            let [start_ns, woken_ns, end_ns] = wait
                .times
                .map(|at_ns| at_ns.clamp(from_ns, until_ns.max(from_ns)));
            if end_ns == start_ns {
                continue;
            }
            let Some(left) = steps.checked_sub(1) else {
                from_ns = end_ns;
                break;
            };
            *steps = left;
            deeds.ran_ns += until_ns - end_ns;
            deeds.runnable_ns += end_ns - woken_ns;
            if woken_ns > start_ns {
                deeds.waits.push((start_ns..woken_ns, wait.clone()));
            }
            until_ns = start_ns;
        }
        deeds.ran_ns += until_ns.saturating_sub(from_ns);
        deeds
    }

    /// Adds time to a node, which is made where there is room for it.
    fn add(&mut self, parent: Option<usize>, kind: Kind, time_ns: u64, thread: Thread) -> Option<usize> {
        let key = (parent, kind);
        let at = match self.by_kind.get(&key) {
            Some(at) => *at,
            None if self.nodes.len() >= MAX_NODES => return None,
            None => {
                let at = self.nodes.len();
                self.nodes.push(Node {
                    parent,
                    kind: key.1.clone(),
                    time_ns: 0,
                    own_ns: 0,
                    count: 0,
                    longest_ns: 0,
                    threads: BTreeSet::new(),
                });
                self.by_kind.insert(key, at);
                at
            }
        };
        let node = self.nodes.get_mut(at)?;
        node.time_ns += time_ns;
        node.own_ns += time_ns;
        node.count += 1;
        node.longest_ns = node.longest_ns.max(time_ns);
        if node.threads.len() < MAX_COUNTED {
            node.threads.insert(thread);
        }
        if let Some(parent) = parent.and_then(|parent| self.nodes.get_mut(parent)) {
            parent.own_ns -= time_ns;
        }
        Some(at)
    }

    fn remember(&mut self, wait: Wait) {
        let [start_ns, _, end_ns] = wait.times;
        if self.threads.len() >= MAX_THREADS && !self.threads.contains_key(&wait.thread) {
            self.forget_half();
        }
        // One that was forgotten, or off the CPU at first, is known from here on.
        let known_from_ns = if self.off_at_first.remove(&wait.thread) {
            start_ns
        } else {
            0
        };
        let past = self.threads.entry(wait.thread).or_insert_with(|| Past {
            known_from_ns,
            waits: VecDeque::new(),
        });
        // Records of one thread are in order; what is not would be counted twice.
        if past.waits.back().is_some_and(|last| start_ns < last.times[2]) || end_ns <= start_ns {
            return;
        }
        if past.waits.len() >= MAX_REMEMBERED
            && let Some(oldest) = past.waits.pop_front()
        {
            past.known_from_ns = oldest.times[2];
        }
        past.waits.push_back(wait);
    }

    /// Forgets the threads that were last seen longest ago.
    fn forget_half(&mut self) {
        let last = |past: &Past| past.waits.back().map_or(0, |wait| wait.times[2]);
        let mut seen: Vec<u64> = self.threads.values().map(last).collect();
        let half = seen.len() / 2;
        let (_, median, _) = seen.select_nth_unstable(half);
        let median = *median;
        let mut gone = Vec::new();
        self.threads.retain(|thread, past| {
            let stays = last(past) > median;
            if !stays {
                gone.push(*thread);
            }
            stays
        });
        // What they did meanwhile is not known any more.
        let room = MAX_FORGOTTEN.saturating_sub(self.off_at_first.len());
        self.off_at_first.extend(gone.into_iter().take(room));
    }

    /// Has equal stacks kept once.
    fn share(&mut self, stack: &mut Arc<[FrameId]>) {
        match self.stacks.get(stack) {
            Some(known) => *stack = Arc::clone(known),
            None if self.stacks.len() < MAX_STACKS => {
                self.stacks.insert(Arc::clone(stack));
            }
            None => *stack = Arc::new([FrameId::OTHER]),
        }
    }
}

#[cfg(test)]
mod tests;
