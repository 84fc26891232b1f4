//! Who was waited for: a tree of waits, of the threads that ended them, and of what those threads did meanwhile.
//!
//! A thread waits from when it left the CPU until another, or an interrupt, made it runnable. What that other did in this
//! time is what was waited for: its own waits, each followed in the same way, the time that it could run and had no CPU,
//! and the rest, in which it ran. The time of a node is that of its children and [its own](Node::own_ns), exactly.
//!
//! Waits at one place behind each other are one queue: of twenty threads behind a lock each is woken by the one before,
//! which waited for that lock too. What a thread waited while the one before it was still in the queue is laid at the
//! door of whoever woke that one. Behind one lock are those who wait for it, wherever they do; what else is waited for is
//! told apart by the places.
//!
//! See `docs/internals/off-cpu.md` for how time off the CPU is seen.

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    hash::{Hash, Hasher},
    sync::Arc,
};

use super::{calltree::FrameId, thread::ThreadId};

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
const MAX_STEPS: u64 = 1024;

/// Those that are looked at in a second, to tell what all were for.
const STEPS_PER_S: u64 = 1_000_000;

/// Those of them that may come at once.
const STEPS_AT_ONCE: u64 = STEPS_PER_S / 4;

/// Stacks that are told apart.
const MAX_STACKS: usize = 16_384;

/// Threads that are counted at a node, and locks that it stands for.
pub const MAX_COUNTED: usize = 256;

/// Locks that have a node each, of one place where they are waited for: at the top, and below.
pub const MAX_LOCKS: [usize; 2] = [64, 8];

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

/// What is waited for in memory: a lock, a semaphore, a condition variable.
#[derive(Clone, Copy, Debug)]
pub struct Lock {
    /// Whose memory it is in.
    pub process: u32,
    /// Where.
    pub address: u64,
    /// What lies there, where it has a name.
    pub name: Option<FrameId>,
    /// Who allocated the memory that it lies in, where it has no name and that is known. It does not tell locks apart.
    pub allocated: Option<FrameId>,
    /// The memory that it lies in, where it has no name and that is known: whose stack, which heap. It does not tell locks
    /// apart.
    pub memory: Option<FrameId>,
}

impl PartialEq for Lock {
    fn eq(&self, other: &Self) -> bool {
        self.is(*other) && self.name == other.name
    }
}

impl Eq for Lock {}

impl Hash for Lock {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.process, self.address, self.name).hash(state);
    }
}

impl Lock {
    fn is(self, other: Self) -> bool {
        (self.process, self.address) == (other.process, other.address)
    }
}

/// What of memory a node is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Locks {
    /// Nothing, or it is not known.
    None,
    /// One.
    One(Lock),
    /// Those that have no node of their own.
    Others,
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
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Waker {
    /// It was not seen.
    Unseen,
    /// Nobody yet; who holds the lock, where it is known.
    GoesOn(Option<FrameId>),
    /// An interrupt, in this function.
    Interrupt(FrameId),
    /// A thread, and what it ran when it did so.
    Thread {
        /// Its number.
        thread: ThreadId,
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
    pub thread: ThreadId,
    /// Where it left the CPU.
    pub place: Place,
    /// What it did until it could run; `None` where it could run all the time.
    pub waiting: Option<Waiting>,
    /// What for, in memory.
    pub lock: Option<Lock>,
    /// When it left the CPU, could run again, and did.
    pub times: [u64; 3],
    /// Who made it runnable.
    pub waker: Waker,
    /// How long no thread of its process was on a CPU meanwhile; `None` where that is not asked.
    pub still_ns: Option<u64>,
}

/// What a node stands for.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// Threads waited there, for these locks.
    Waited(Place, Waiting, Locks),
    /// The wait above was ended by a thread that ran this; whether it is one of the target's.
    Woken(Place, bool),
    /// It was ended by an interrupt, in this function.
    Interrupt(FrameId),
    /// Nobody was seen to end it.
    Unseen,
    /// It had not ended when it was looked at; who held the lock, where it is known.
    GoesOn(Option<FrameId>),
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
    /// Of uninterruptible waits that were asked for: what of their time no thread of the process was on a CPU.
    pub held_up_ns: Option<u64>,
    /// Threads that waited, woke or ran there, up to [`MAX_COUNTED`].
    pub threads: usize,
    /// Locks that it stands for, where they are [others](Locks::Others), up to [`MAX_COUNTED`].
    pub other_locks: usize,
}

/// A [`Place`] whose stack has a number.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Spot {
    thread: FrameId,
    stack: usize,
}

/// A [`Kind`] whose stack has a number.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Waited(Spot, Waiting, Locks),
    Woken(Spot, bool),
    Interrupt(FrameId),
    Unseen,
    GoesOn(Option<FrameId>),
    Ran,
    Runnable,
}

/// A node as it is kept.
struct Kept {
    parent: Option<usize>,
    key: Key,
    time_ns: u64,
    own_ns: u64,
    count: u64,
    longest_ns: u64,
    held_up_ns: Option<u64>,
    threads: BTreeSet<ThreadId>,
    /// Of [others](Locks::Others), by process and address.
    other_locks: BTreeSet<(u32, u64)>,
}

/// Who ended a wait that is remembered.
#[derive(Clone, Copy)]
enum By {
    Unseen,
    GoesOn(Option<FrameId>),
    Interrupt(FrameId),
    Thread {
        thread: ThreadId,
        spot: Spot,
        is_own: bool,
    },
}

/// A wait that is remembered.
#[derive(Clone, Copy)]
struct Remembered {
    times: [u64; 3],
    spot: Spot,
    waiting: Option<Waiting>,
    lock: Option<Lock>,
    by: By,
    still_ns: Option<u64>,
}

/// Stacks by number.
struct Stacks {
    numbers: HashMap<Arc<[FrameId]>, usize>,
    /// The first stands for those that there was no room for.
    stacks: Vec<Arc<[FrameId]>>,
}

impl Default for Stacks {
    fn default() -> Self {
        Self {
            numbers: HashMap::new(),
            stacks: vec![Arc::new([FrameId::OTHER])],
        }
    }
}

impl Stacks {
    fn spot(&mut self, place: &Place) -> Spot {
        let stack = match self.numbers.get(&place.stack) {
            Some(number) => *number,
            None if self.stacks.len() >= MAX_STACKS => 0,
            None => {
                let number = self.stacks.len();
                self.stacks.push(Arc::clone(&place.stack));
                self.numbers.insert(Arc::clone(&place.stack), number);
                number
            }
        };
        Spot {
            thread: place.thread,
            stack,
        }
    }

    fn place(&self, spot: Spot) -> Place {
        Place {
            thread: spot.thread,
            stack: self
                .stacks
                .get(spot.stack)
                .map_or_else(|| Arc::new([]), Arc::clone),
        }
    }

    fn kind(&self, key: Key) -> Kind {
        match key {
            Key::Waited(spot, waiting, locks) => Kind::Waited(self.place(spot), waiting, locks),
            Key::Woken(spot, is_own) => Kind::Woken(self.place(spot), is_own),
            Key::Interrupt(function) => Kind::Interrupt(function),
            Key::Unseen => Kind::Unseen,
            Key::GoesOn(held_by) => Kind::GoesOn(held_by),
            Key::Ran => Kind::Ran,
            Key::Runnable => Kind::Runnable,
        }
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

/// How many waits may still be looked at.
struct Steps {
    left: u64,
    /// When that was so.
    at_ns: u64,
}

impl Default for Steps {
    fn default() -> Self {
        Self {
            left: STEPS_AT_ONCE,
            at_ns: 0,
        }
    }
}

impl Steps {
    /// More are allowed as time passes.
    fn pass(&mut self, now_ns: u64) {
        let passed_ns = now_ns.saturating_sub(self.at_ns).min(1_000_000_000);
        let more = passed_ns * STEPS_PER_S / 1_000_000_000;
        if more > 0 {
            self.left = (self.left + more).min(STEPS_AT_ONCE);
            self.at_ns = now_ns;
        }
    }
}

/// The tree, and what it is made from.
#[derive(Default)]
pub struct Waits {
    stacks: Stacks,
    threads: HashMap<ThreadId, Past>,
    /// Threads that were off the CPU when the recording began, and since when is not known.
    off_at_first: HashSet<ThreadId>,
    /// Of no thread it is known what it did before.
    known_from_ns: u64,
    nodes: Vec<Kept>,
    by_key: HashMap<(Option<usize>, Key), usize>,
    /// Locks that have a node each, of a place below a node.
    locks: HashMap<(Option<usize>, Spot, Waiting), usize>,
    steps: Steps,
    total: Total,
}

/// What a thread did.
#[derive(Default)]
struct Past {
    /// Before this it is not known.
    known_from_ns: u64,
    /// Oldest first.
    waits: VecDeque<Remembered>,
}

/// What a thread did in some time.
#[derive(Default)]
struct Deeds {
    waits: Vec<Part>,
    runnable_ns: u64,
    ran_ns: u64,
}

/// A wait, or as much of it as lies in another.
#[derive(Clone, Copy)]
struct Part {
    from_ns: u64,
    to_ns: u64,
    spot: Spot,
    waiting: Waiting,
    lock: Option<Lock>,
    by: By,
    /// Whose it is.
    thread: ThreadId,
}

impl Part {
    fn length_ns(&self) -> u64 {
        self.to_ns - self.from_ns
    }

    /// Whether it is for the same as another.
    fn is_in_queue_of(&self, other: &Self) -> bool {
        let same = match (self.lock, other.lock) {
            (Some(lock), Some(other)) => lock.is(other),
            (None, None) => self.spot == other.spot,
            _ => false,
        };
        same && self.waiting == other.waiting
    }
}

impl Waits {
    /// Nothing yet. Of threads that were off the CPU at first it is not known what they did until they are first seen to
    /// leave it; others ran.
    #[must_use]
    pub fn new(off_at_first: HashSet<ThreadId>) -> Self {
        Self {
            off_at_first,
            ..Self::default()
        }
    }

    /// Forgets what threads did until a time, as intervals that ended before it may be missing: it would be taken for time in which they
    /// ran. The tree stays.
    pub fn forget_until(&mut self, ns: u64) {
        self.known_from_ns = self.known_from_ns.max(ns);
    }

    /// Takes an interval; the tree has it if it is `asked` for. Those of one thread come in their order, and those of
    /// whoever ended it come before it.
    pub fn take(&mut self, wait: &Wait, asked: bool) {
        let by = match &wait.waker {
            Waker::Unseen => By::Unseen,
            Waker::GoesOn(held_by) => By::GoesOn(*held_by),
            Waker::Interrupt(function) => By::Interrupt(*function),
            Waker::Thread {
                thread,
                place,
                is_own,
            } => By::Thread {
                thread: *thread,
                spot: self.stacks.spot(place),
                is_own: *is_own,
            },
        };
        let remembered = Remembered {
            times: wait.times,
            spot: self.stacks.spot(&wait.place),
            waiting: wait.waiting,
            lock: wait.lock,
            by,
            still_ns: wait.still_ns,
        };
        self.steps.pass(wait.times[2]);
        if asked {
            self.show(wait.thread, &remembered);
        }
        self.remember(wait.thread, remembered);
    }

    /// Takes an interval, and gives a tree of it alone: its first node is the wait, and none are given of an interval that
    /// is none.
    pub fn take_alone(&mut self, wait: &Wait) -> Vec<Node> {
        self.take(wait, true);
        let nodes = self.nodes();
        self.nodes.clear();
        self.by_key.clear();
        nodes
    }

    /// The tree: parents first.
    #[must_use]
    pub fn nodes(&self) -> Vec<Node> {
        let node = |kept: &Kept| Node {
            parent: kept.parent,
            kind: self.stacks.kind(kept.key),
            time_ns: kept.time_ns,
            own_ns: kept.own_ns,
            count: kept.count,
            longest_ns: kept.longest_ns,
            held_up_ns: kept.held_up_ns,
            threads: kept.threads.len(),
            other_locks: kept.other_locks.len(),
        };
        self.nodes.iter().map(node).collect()
    }

    /// What it comes to.
    #[must_use]
    pub fn total(&self) -> Total {
        self.total
    }

    fn show(&mut self, thread: ThreadId, wait: &Remembered) {
        let [from_ns, to_ns, end_ns] = wait.times;
        self.total.runnable_ns += end_ns - to_ns;
        let (Some(waiting), true) = (wait.waiting, to_ns > from_ns) else {
            return;
        };
        let part = Part {
            from_ns,
            to_ns,
            spot: wait.spot,
            waiting,
            lock: wait.lock,
            by: wait.by,
            thread,
        };
        self.total.waits += 1;
        self.total.waited_ns += part.length_ns();
        let mut steps = MAX_STEPS.min(self.steps.left);
        let before = steps;
        let node = self.add_wait(None, part, 0, &mut steps);
        if let (Waiting::Uninterruptible, Some(still_ns)) = (waiting, wait.still_ns)
            && let Some(kept) = node.and_then(|node| self.nodes.get_mut(node))
        {
            *kept.held_up_ns.get_or_insert_default() += still_ns.min(part.length_ns());
        }
        self.steps.left -= before - steps;
    }

    /// Adds a wait, and what it was for; its node, where there is room for one.
    fn add_wait(
        &mut self,
        parent: Option<usize>,
        part: Part,
        depth: usize,
        steps: &mut u64,
    ) -> Option<usize> {
        let locks = self.locks(parent, &part);
        let key = Key::Waited(part.spot, part.waiting, locks);
        let node = self.add(parent, key, part.length_ns(), part.thread);
        if let Some(node) = node {
            if let (Locks::Others, Some(lock), Some(kept)) = (locks, part.lock, self.nodes.get_mut(node))
                && kept.other_locks.len() < MAX_COUNTED
            {
                kept.other_locks.insert((lock.process, lock.address));
            }
            self.follow(node, part, depth, steps);
        }
        node
    }

    /// Whether the lock of a wait has a node of its own, or is one of the others.
    fn locks(&mut self, parent: Option<usize>, part: &Part) -> Locks {
        let Some(lock) = part.lock else { return Locks::None };
        let (one, (spot, waiting)) = (Locks::One(lock), (part.spot, part.waiting));
        if self
            .by_key
            .contains_key(&(parent, Key::Waited(spot, waiting, one)))
        {
            return one;
        }
        let known = self.locks.entry((parent, spot, waiting)).or_default();
        if *known >= MAX_LOCKS[usize::from(parent.is_some())] {
            return Locks::Others;
        }
        *known += 1;
        one
    }

    /// Lays the time of a wait, which a node has, at the doors of those who ended it.
    fn follow(&mut self, node: usize, wait: Part, depth: usize, steps: &mut u64) {
        let (thread, spot, is_own) = match wait.by {
            By::Unseen => {
                self.add(Some(node), Key::Unseen, wait.length_ns(), wait.thread);
                return;
            }
            By::GoesOn(held_by) => {
                self.add(Some(node), Key::GoesOn(held_by), wait.length_ns(), wait.thread);
                return;
            }
            By::Interrupt(function) => {
                self.add(
                    Some(node),
                    Key::Interrupt(function),
                    wait.length_ns(),
                    wait.thread,
                );
                return;
            }
            By::Thread { thread, spot, is_own } => (thread, spot, is_own),
        };
        let deeds = if is_own {
            self.deeds(thread, wait.from_ns, wait.to_ns, steps)
        } else {
            Deeds::default()
        };
        let in_queue = |own: &Part| own.is_in_queue_of(&wait);
        let queued_ns: u64 = deeds
            .waits
            .iter()
            .filter(|own| in_queue(own))
            .map(Part::length_ns)
            .sum();
        let own_ns = wait.length_ns() - queued_ns;
        let woken = (own_ns > 0)
            .then(|| self.add(Some(node), Key::Woken(spot, is_own), own_ns, thread))
            .flatten();
        if let Some(woken) = woken {
            for (key, time_ns) in [(Key::Ran, deeds.ran_ns), (Key::Runnable, deeds.runnable_ns)] {
                if time_ns > 0 {
                    self.add(Some(woken), key, time_ns, thread);
                }
            }
        }
        if depth >= MAX_DEPTH {
            return;
        }
        for own in deeds.waits {
            if in_queue(&own) {
                self.follow(node, own, depth + 1, steps);
            } else if let Some(woken) = woken {
                self.add_wait(Some(woken), own, depth + 1, steps);
            }
        }
    }

    /// What a thread of the target did in some time, as far as it is remembered.
    fn deeds(&self, thread: ThreadId, from_ns: u64, to_ns: u64, steps: &mut u64) -> Deeds {
        let mut deeds = Deeds::default();
        let nothing = Past::default();
        let past = match self.threads.get(&thread) {
            Some(past) => past,
            None if self.off_at_first.contains(&thread) => return deeds,
            None => &nothing,
        };
        let mut known_ns = from_ns.max(past.known_from_ns).max(self.known_from_ns);
        // Latest first: where there are too many, those nearest to the end are known.
        let mut until_ns = to_ns;
        let first = past.waits.partition_point(|wait| wait.times[2] <= known_ns);
        for wait in past.waits.iter().skip(first).rev() {
            let [start_ns, woken_ns, end_ns] = wait
                .times
                .map(|at_ns| at_ns.clamp(known_ns, until_ns.max(known_ns)));
            if end_ns == start_ns {
                continue;
            }
            let Some(left) = steps.checked_sub(1) else {
                known_ns = end_ns;
                break;
            };
            *steps = left;
            deeds.ran_ns += until_ns - end_ns;
            deeds.runnable_ns += end_ns - woken_ns;
            if let Some(waiting) = wait.waiting
                && woken_ns > start_ns
            {
                deeds.waits.push(Part {
                    from_ns: start_ns,
                    to_ns: woken_ns,
                    spot: wait.spot,
                    waiting,
                    lock: wait.lock,
                    by: wait.by,
                    thread,
                });
            }
            until_ns = start_ns;
        }
        deeds.ran_ns += until_ns.saturating_sub(known_ns);
        deeds
    }

    /// Adds time to a node, which is made where there is room for it.
    fn add(&mut self, parent: Option<usize>, key: Key, time_ns: u64, thread: ThreadId) -> Option<usize> {
        let at = match self.by_key.get(&(parent, key)) {
            Some(at) => *at,
            None if self.nodes.len() >= MAX_NODES => return None,
            None => {
                let at = self.nodes.len();
                self.nodes.push(Kept {
                    parent,
                    key,
                    time_ns: 0,
                    own_ns: 0,
                    count: 0,
                    longest_ns: 0,
                    held_up_ns: None,
                    threads: BTreeSet::new(),
                    other_locks: BTreeSet::new(),
                });
                self.by_key.insert((parent, key), at);
                at
            }
        };
        let node = self.nodes.get_mut(at)?;
        if let (Key::Waited(.., Locks::One(known)), Key::Waited(.., Locks::One(lock))) = (&mut node.key, key)
        {
            known.memory = lock.memory.or(known.memory);
        }
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

    fn remember(&mut self, thread: ThreadId, wait: Remembered) {
        let [start_ns, _, end_ns] = wait.times;
        if self.threads.len() >= MAX_THREADS && !self.threads.contains_key(&thread) {
            self.forget_half();
        }
        // One that was forgotten, or off the CPU at first, is known from here on.
        let known_from_ns = if self.off_at_first.remove(&thread) {
            start_ns
        } else {
            0
        };
        let past = self.threads.entry(thread).or_insert_with(|| Past {
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
}

#[cfg(test)]
mod tests;
