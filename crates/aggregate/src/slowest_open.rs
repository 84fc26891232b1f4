//! Data gathered of open spans: the stacks of their samples, the values read at their entry, and the hits and
//! calls inside. Whether a span is slow is known only when it ends; until then all of it has to be kept.

use std::collections::HashMap;

use profiler_common::probe::ProbeId;

use super::{
    calltree::FrameId,
    gone::GoneThreads,
    thread::ThreadId,
    waits::{Lock, Waker},
};

/// Open spans of one thread that something is gathered of, at most; those that were first noted go, counted.
pub const MAX_OPEN_OF_THREAD: usize = 64;

/// Open spans of all threads, at most; beyond it those of the threads that were not seen for longest go, counted.
pub const MAX_OPEN: usize = 65_536;

/// Different stacks of one span; samples of further ones are only counted.
pub const MAX_STACKS: usize = 64;

/// Calls and hits inside one span that are kept; further ones are only counted.
pub const MAX_CHILDREN: usize = 64;

/// Parts of one span that its thread was off the CPU: the longest are kept, the others are summed up.
pub const MAX_PERIODS: usize = 256;

/// Such parts of all open spans; beyond it a span gets no more room, and keeps its longest.
pub const MAX_OPEN_PERIODS: usize = 1 << 20;

/// A call or hit inside a span.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Child {
    /// Whose it is.
    pub probe: ProbeId,
    /// `CLOCK_MONOTONIC` at its beginning.
    pub start_ns: u64,
    /// How long it took; `None` of a hit.
    pub duration_ns: Option<u64>,
}

/// A stack that samples of one span have.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Stack {
    /// Root first, functions alone: what makes two stacks the same.
    functions: Box<[FrameId]>,
    /// The same with the lines that ran.
    lines: Box<[FrameId]>,
    samples: u64,
}

/// What a thread may do, at most as many things: the caller numbers them.
pub const ACTIVITIES: usize = 5;

/// What system calls of one span are told apart by, at most so many; others are only counted.
pub const MAX_SYSTEM_CALLS: usize = 64;

/// What system calls are told apart by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SystemCallKind {
    /// Which; the caller numbers them.
    pub number: u32,
    /// The error that they returned; 0 for none.
    pub error: u32,
}

/// System calls of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SystemCallSum {
    /// How many.
    pub count: u64,
    /// How long they took together.
    pub time_ns: u64,
    /// The longest of them.
    pub longest_ns: u64,
}

/// The system calls of a span.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct SystemCalls {
    kinds: Vec<(SystemCallKind, SystemCallSum)>,
    left_out: u64,
}

impl SystemCalls {
    /// Takes one.
    fn add(&mut self, kind: SystemCallKind, time_ns: u64) {
        let at = self.kinds.iter().position(|(known, _)| *known == kind);
        let at = match at {
            Some(at) => at,
            None if self.kinds.len() < MAX_SYSTEM_CALLS => {
                self.kinds.push((kind, SystemCallSum::default()));
                self.kinds.len() - 1
            }
            None => {
                self.left_out += 1;
                return;
            }
        };
        let (_, sum) = &mut self.kinds[at];
        sum.count += 1;
        sum.time_ns = sum.time_ns.saturating_add(time_ns);
        sum.longest_ns = sum.longest_ns.max(time_ns);
    }

    /// All kinds, in the order in which they were first seen.
    pub fn iter(&self) -> impl Iterator<Item = (&SystemCallKind, &SystemCallSum)> {
        self.kinds.iter().map(|(kind, sum)| (kind, sum))
    }

    /// System calls of kinds beyond [`MAX_SYSTEM_CALLS`].
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.left_out
    }
}

/// A part of a span that its thread was off the CPU, doing one thing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Period {
    /// What it did.
    pub activity: usize,
    /// The system call that it was in; the caller numbers them.
    pub system_call: Option<u32>,
    /// When that began.
    pub start_ns: u64,
    /// How long it took.
    pub time_ns: u64,
}

/// Something that a thread did off the CPU, without a break.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wait {
    /// What it did.
    pub activity: usize,
    /// When that began.
    pub start_ns: u64,
    /// How long it took.
    pub time_ns: u64,
    /// Where it was, root first, with the lines that ran.
    pub lines: Box<[FrameId]>,
    /// What it waited for in memory.
    pub lock: Option<Lock>,
    /// Who ended it, where that is known.
    pub ended_by: Option<Waker>,
}

/// Where a wait was, and what is known of it.
#[derive(Clone, Copy, Debug)]
pub struct WaitedAt<'a> {
    /// The stack, root first, with the lines that ran.
    pub lines: &'a [FrameId],
    /// What was waited for in memory.
    pub lock: Option<Lock>,
    /// Who ended it, where that is known.
    pub ended_by: Option<&'a Waker>,
}

/// The time that a span was off the CPU.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct OffCpu {
    /// By what the thread did.
    pub times_ns: [u64; ACTIVITIES],
    /// How often it left the CPU.
    pub count: u64,
    /// The longest that it did one thing; of equals the first.
    pub longest: Option<Wait>,
    /// The longest parts of it, in no order.
    pub periods: Vec<Period>,
    /// Parts beyond those.
    pub left_out: u64,
    /// Their time.
    pub left_out_ns: u64,
}

impl OffCpu {
    /// All of it.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        self.times_ns.iter().copied().fold(0, u64::saturating_add)
    }

    /// Keeps a part, if it is among the longest; whether it needed room of its own.
    fn keep(&mut self, period: Period, has_room: bool) -> bool {
        if has_room && self.periods.len() < MAX_PERIODS {
            self.periods.push(period);
            return true;
        }
        let shortest = self.periods.iter_mut().min_by_key(|known| known.time_ns);
        let gone = match shortest {
            Some(shortest) if shortest.time_ns < period.time_ns => std::mem::replace(shortest, period),
            _ => period,
        };
        self.left_out += 1;
        self.left_out_ns = self.left_out_ns.saturating_add(gone.time_ns);
        false
    }
}

/// What is known of one span beyond its end. `E` is what was read where it began.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gathered<E> {
    /// What was read where it began.
    pub entry: Option<E>,
    /// Calls and hits inside.
    pub children: Vec<Child>,
    /// Those beyond [`MAX_CHILDREN`].
    pub children_left_out: u64,
    /// Samples taken in it, on the CPU.
    pub samples: u64,
    /// What of it was off the CPU.
    pub off_cpu: OffCpu,
    /// The system calls that returned in it.
    pub system_calls: SystemCalls,
    stacks: Vec<Stack>,
}

impl<E> Default for Gathered<E> {
    fn default() -> Self {
        Self {
            entry: None,
            children: Vec::new(),
            children_left_out: 0,
            samples: 0,
            off_cpu: OffCpu::default(),
            system_calls: SystemCalls::default(),
            stacks: Vec::new(),
        }
    }
}

impl<E> Gathered<E> {
    /// The stack of functions that most samples have, with the lines that ran in most of these, root first, and the
    /// number of its samples; of equals the first seen. `None` without samples.
    #[must_use]
    pub fn most_sampled(&self) -> Option<(&[FrameId], u64)> {
        let samples_of = |functions: &[FrameId]| -> u64 {
            let same = self.stacks.iter().filter(|stack| *stack.functions == *functions);
            same.map(|stack| stack.samples).sum()
        };
        let mut most: Option<(&Stack, u64)> = None;
        for stack in &self.stacks {
            let samples = samples_of(&stack.functions);
            let (known, known_samples) = most.map_or((0, 0), |(known, samples)| (known.samples, samples));
            let same = most.is_some_and(|(known, _)| known.functions == stack.functions);
            if samples > known_samples || same && stack.samples > known {
                most = Some((stack, samples));
            }
        }
        most.map(|(stack, samples)| (&*stack.lines, samples))
    }

    fn add_child(&mut self, child: Child) {
        if self.children.len() < MAX_CHILDREN {
            self.children.push(child);
        } else {
            self.children_left_out += 1;
        }
    }

    /// Whether its end is recorded in any case: a sample, a recorded beginning, and what waits inside ask for it.
    fn asks_for_end(&self) -> bool {
        self.samples > 0 || self.off_cpu.count > 0 || self.entry.is_some()
    }
}

/// What became of what is not gathered.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LeftOut {
    /// Open spans that were too many.
    pub open_full: u64,
    /// Open spans whose end never came, and whose threads are gone.
    pub open_expired: u64,
    /// Samples whose stack was one too many of its span.
    pub stacks_full: u64,
}

#[derive(Clone, Debug)]
struct Thread<E> {
    latest_ns: u64,
    /// By their number, in the order in which they were noted.
    spans: Vec<(u64, Gathered<E>)>,
}

/// What is gathered of all open spans.
#[derive(Clone, Debug)]
pub struct OpenSpans<E> {
    threads: HashMap<ThreadId, Thread<E>>,
    count: usize,
    max_open: usize,
    /// Parts off the CPU that are kept of all of them.
    periods: usize,
    left_out: LeftOut,
    gone: GoneThreads,
}

impl<E> Default for OpenSpans<E> {
    fn default() -> Self {
        Self::with_limit(MAX_OPEN)
    }
}

impl<E> OpenSpans<E> {
    /// None, with another bound than [`MAX_OPEN`].
    #[must_use]
    pub fn with_limit(max_open: usize) -> Self {
        Self {
            threads: HashMap::new(),
            count: 0,
            max_open,
            periods: 0,
            left_out: LeftOut::default(),
            gone: GoneThreads::default(),
        }
    }

    /// Takes a sample of a span of a thread.
    pub fn sample(
        &mut self,
        thread: ThreadId,
        sequence: u64,
        ts_ns: u64,
        functions: &[FrameId],
        lines: &[FrameId],
    ) {
        let gathered = self.of(thread, sequence, ts_ns);
        gathered.samples += 1;
        let known = gathered.stacks.iter_mut();
        let same = |stack: &&mut Stack| *stack.lines == *lines && *stack.functions == *functions;
        if let Some(stack) = known.into_iter().find(same) {
            stack.samples += 1;
        } else if gathered.stacks.len() < MAX_STACKS {
            gathered.stacks.push(Stack {
                functions: functions.into(),
                lines: lines.into(),
                samples: 1,
            });
        } else {
            self.left_out.stacks_full += 1;
        }
    }

    /// Takes what the thread did in a span off the CPU. `count` is 0 of what it went on to do before it was back.
    pub fn wait(&mut self, thread: ThreadId, sequence: u64, period: Period, count: u64, at: WaitedAt<'_>) {
        let Period {
            activity,
            start_ns,
            time_ns,
            ..
        } = period;
        let has_room = self.periods < MAX_OPEN_PERIODS;
        let off_cpu = &mut self
            .of(thread, sequence, start_ns.saturating_add(time_ns))
            .off_cpu;
        off_cpu.count += count;
        let needs_room = off_cpu.keep(period, has_room);
        if let Some(sum_ns) = off_cpu.times_ns.get_mut(activity) {
            *sum_ns = sum_ns.saturating_add(time_ns);
        }
        let longest = off_cpu.longest.as_ref();
        if longest.is_none_or(|longest| longest.time_ns < time_ns) {
            off_cpu.longest = Some(Wait {
                activity,
                start_ns,
                time_ns,
                lines: at.lines.into(),
                lock: at.lock,
                ended_by: at.ended_by.cloned(),
            });
        }
        self.periods += usize::from(needs_room);
    }

    /// Takes a system call that returned in a span.
    pub fn system_call(
        &mut self,
        thread: ThreadId,
        sequence: u64,
        kind: SystemCallKind,
        (start_ns, end_ns): (u64, u64),
    ) {
        let time_ns = end_ns.saturating_sub(start_ns);
        self.of(thread, sequence, end_ns).system_calls.add(kind, time_ns);
    }

    /// Takes what was read where a span began.
    pub fn entry(&mut self, thread: ThreadId, sequence: u64, ts_ns: u64, entry: E) {
        self.of(thread, sequence, ts_ns).entry = Some(entry);
    }

    /// What was read where a span began, if it is open.
    pub fn entry_of(&mut self, thread: ThreadId, sequence: u64) -> Option<&mut E> {
        let spans = &mut self.threads.get_mut(&thread)?.spans;
        let (_, gathered) = spans.iter_mut().rfind(|(number, _)| *number == sequence)?;
        gathered.entry.as_mut()
    }

    /// Takes what happened inside a span.
    pub fn child(&mut self, thread: ThreadId, sequence: u64, child: Child) {
        self.of(thread, sequence, child.start_ns).add_child(child);
    }

    /// Takes a call that ended inside a span, and what happened inside of the call.
    pub fn call(&mut self, thread: ThreadId, sequence: u64, parent: u64, call: Child) {
        let inside = self.end(thread, sequence);
        let gathered = self.of(thread, parent, call.start_ns);
        gathered.add_child(call);
        if let Some(inside) = inside {
            gathered.children_left_out += inside.children_left_out;
            inside
                .children
                .into_iter()
                .for_each(|child| gathered.add_child(child));
        }
    }

    /// What was gathered of a span that has ended.
    pub fn end(&mut self, thread: ThreadId, sequence: u64) -> Option<Gathered<E>> {
        let known = self.threads.get_mut(&thread)?;
        let at = known.spans.iter().rposition(|(number, _)| *number == sequence)?;
        let (_, gathered) = known.spans.remove(at);
        self.count -= 1;
        self.periods -= gathered.off_cpu.periods.len();
        if known.spans.is_empty() {
            self.threads.remove(&thread);
        }
        Some(gathered)
    }

    /// Gives up the open spans of threads that nothing has come of for `after_ns`, and that have been gone for as long.
    pub fn expire(&mut self, now_ns: u64, after_ns: u64, is_gone: impl FnMut(ThreadId) -> bool) {
        let threads = self.threads.iter();
        let silent = threads.filter(|(_, known)| now_ns.saturating_sub(known.latest_ns) >= after_ns);
        let silent = silent.map(|(thread, _)| *thread);
        for thread in self.gone.look(silent, now_ns, after_ns, is_gone) {
            self.left_out.open_expired += self.give_up(thread);
        }
    }

    /// What was not gathered so far.
    #[must_use]
    pub fn left_out(&self) -> LeftOut {
        self.left_out
    }

    fn of(&mut self, thread: ThreadId, sequence: u64, ts_ns: u64) -> &mut Gathered<E> {
        if self.count >= self.max_open {
            self.give_up_oldest(thread);
        }
        let known = self.threads.entry(thread).or_insert_with(|| Thread {
            latest_ns: 0,
            spans: Vec::new(),
        });
        known.latest_ns = known.latest_ns.max(ts_ns);
        let at = known.spans.iter().rposition(|(number, _)| *number == sequence);
        let at = at.unwrap_or_else(|| {
            if known.spans.len() >= MAX_OPEN_OF_THREAD {
                let (_, oldest) = known.spans.remove(0);
                // Others may have ended long ago, too fast to be recorded.
                self.left_out.open_full += u64::from(oldest.asks_for_end());
                self.periods -= oldest.off_cpu.periods.len();
                self.count -= 1;
            }
            self.count += 1;
            known.spans.push((sequence, Gathered::default()));
            known.spans.len() - 1
        });
        &mut known.spans[at].1
    }

    /// Gives up an eighth at a time, so that the sort is rare.
    fn give_up_oldest(&mut self, but: ThreadId) {
        let mut by_age: Vec<_> = self
            .threads
            .iter()
            .map(|(&thread, known)| (known.latest_ns, thread))
            .filter(|(_, thread)| *thread != but)
            .collect();
        by_age.sort_unstable();
        for (_, thread) in by_age {
            if self.count < self.max_open - self.max_open / 8 {
                break;
            }
            self.left_out.open_full += self.give_up(thread);
        }
    }

    /// Gives up a thread's; says how many of them have ends that would have come.
    fn give_up(&mut self, thread: ThreadId) -> u64 {
        let Some(known) = self.threads.remove(&thread) else {
            return 0;
        };
        self.count -= known.spans.len();
        let periods = known.spans.iter().map(|(_, span)| span.off_cpu.periods.len());
        self.periods -= periods.sum::<usize>();
        let lost = known.spans.iter().filter(|(_, span)| span.asks_for_end());
        lost.count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const THREAD: ThreadId = ThreadId { tgid: 7, tid: 8 };

    fn ids(ids: &[u32]) -> Vec<FrameId> {
        ids.iter().copied().map(FrameId).collect()
    }

    fn child(start_ns: u64) -> Child {
        Child {
            probe: ProbeId(1),
            start_ns,
            duration_ns: None,
        }
    }

    #[test]
    fn the_function_that_most_samples_hit_is_shown_at_its_line() {
        let mut open = OpenSpans::<()>::default();
        let mut sample = |function: u32, line: u32| {
            open.sample(THREAD, 3, 1, &ids(&[1, function]), &ids(&[11, line]));
        };
        // Three of one line, but four of another function.
        let samples = [(2, 20), (2, 20), (2, 20), (3, 30), (3, 31), (3, 31), (3, 32)];
        for (function, line) in samples {
            sample(function, line);
        }
        assert_eq!(open.end(THREAD, 4), None);
        let gathered = open.end(THREAD, 3).unwrap();
        assert_eq!(gathered.most_sampled(), Some((&*ids(&[11, 31]), 4)));
        assert_eq!(gathered.samples, 7);
        assert_eq!(Gathered::<()>::default().most_sampled(), None);
        assert_eq!(open.count, 0);
    }

    #[test]
    fn the_longest_wait_is_kept_and_all_are_summed() {
        let mut open = OpenSpans::<()>::default();
        // A wait of 10, for a CPU then; and two more.
        for (activity, count, start_ns, end_ns, line) in [
            (1, 1, 0, 10, 20),
            (4, 0, 10, 15, 20),
            (1, 1, 20, 30, 21),
            (2, 1, 40, 51, 22),
        ] {
            let period = Period {
                activity,
                system_call: Some(7),
                start_ns,
                time_ns: end_ns - start_ns,
            };
            open.wait(
                THREAD,
                3,
                period,
                count,
                WaitedAt {
                    lines: &ids(&[line]),
                    lock: None,
                    ended_by: (activity == 2).then_some(&Waker::Unseen),
                },
            );
        }
        let gathered = open.end(THREAD, 3).unwrap();
        let OffCpu {
            times_ns,
            count,
            longest,
            periods,
            left_out,
            ..
        } = gathered.off_cpu;
        assert_eq!((times_ns, count), ([0, 20, 11, 0, 5], 3));
        let expected = Wait {
            activity: 2,
            start_ns: 40,
            time_ns: 11,
            lines: ids(&[22]).into(),
            lock: None,
            ended_by: Some(Waker::Unseen),
        };
        assert_eq!((longest, gathered.samples), (Some(expected), 0));
        let parts: Vec<_> = periods.iter().map(|part| (part.start_ns, part.time_ns)).collect();
        assert_eq!((parts, left_out), (vec![(0, 10), (10, 5), (20, 10), (40, 11)], 0));
        assert_eq!(open.periods, 0, "what has ended needs no room");
    }

    #[test]
    fn system_calls_are_summed_up_by_what_they_are_and_return() {
        let mut open = OpenSpans::<()>::default();
        let mut call = |number, error, times| {
            open.system_call(THREAD, 3, SystemCallKind { number, error }, times);
        };
        for (number, error, times) in [(0, 0, (0, 10)), (3, 9, (20, 21)), (0, 0, (30, 33))] {
            call(number, error, times);
        }
        (100..200).for_each(|number| call(number, 0, (0, 1)));
        let calls = open.end(THREAD, 3).unwrap().system_calls;
        let sum = |count, time_ns, longest_ns| SystemCallSum {
            count,
            time_ns,
            longest_ns,
        };
        let first: Vec<_> = calls.iter().take(2).map(|(_, sum)| *sum).collect();
        assert_eq!(first, [sum(2, 13, 10), sum(1, 1, 1)]);
        let kept = MAX_SYSTEM_CALLS as u64;
        assert_eq!(
            (calls.iter().count() as u64, calls.left_out()),
            (kept, 102 - kept)
        );
    }

    #[test]
    fn the_longest_parts_are_kept_and_the_others_summed_up() {
        let mut open = OpenSpans::<()>::default();
        let at = WaitedAt {
            lines: &[],
            lock: None,
            ended_by: None,
        };
        for number in 0..1000 {
            let period = Period {
                activity: 1,
                system_call: None,
                start_ns: number * 1000,
                time_ns: number,
            };
            open.wait(THREAD, 3, period, 1, at);
        }
        assert_eq!(open.periods, MAX_PERIODS);
        let off_cpu = open.end(THREAD, 3).unwrap().off_cpu;
        let kept_ns: Vec<u64> = off_cpu.periods.iter().map(|part| part.time_ns).collect();
        let left_out = 1000 - MAX_PERIODS as u64;
        assert_eq!(kept_ns.iter().min(), Some(&left_out));
        assert_eq!(
            (off_cpu.left_out, off_cpu.left_out_ns),
            (left_out, (0..left_out).sum())
        );
        assert_eq!(
            off_cpu.times_ns[1],
            kept_ns.iter().sum::<u64>() + off_cpu.left_out_ns
        );
        assert_eq!(open.periods, 0);
    }

    #[test]
    fn a_call_hands_its_children_to_the_call_around_it() {
        let mut open = OpenSpans::<u32>::default();
        open.entry(THREAD, 1, 1, 99);
        open.child(THREAD, 2, child(5));
        open.call(
            THREAD,
            2,
            1,
            Child {
                duration_ns: Some(9),
                ..child(4)
            },
        );
        let gathered = open.end(THREAD, 1).unwrap();
        let starts: Vec<u64> = gathered.children.iter().map(|child| child.start_ns).collect();
        assert_eq!((gathered.entry, starts), (Some(99), vec![4, 5]));
        assert!(open.threads.is_empty());
    }

    #[test]
    fn a_thousand_children_are_counted() {
        let mut open = OpenSpans::<()>::default();
        (0..1000).for_each(|n| open.child(THREAD, 2, child(n)));
        open.call(THREAD, 2, 1, child(0));
        let gathered = open.end(THREAD, 1).unwrap();
        assert_eq!(gathered.children.len(), MAX_CHILDREN);
        assert_eq!(gathered.children_left_out, 1001 - MAX_CHILDREN as u64);
    }

    #[test]
    fn only_spans_whose_end_would_have_come_are_counted_as_lost() {
        let mut open = OpenSpans::<()>::default();
        (0..1000).for_each(|n| open.child(THREAD, n, child(n)));
        assert_eq!(
            (open.count, open.left_out()),
            (MAX_OPEN_OF_THREAD, LeftOut::default())
        );
        (1000..2000).for_each(|n| open.entry(THREAD, n, n, ()));
        assert_eq!(open.left_out().open_full, 1000 - MAX_OPEN_OF_THREAD as u64);
    }

    #[test]
    fn spans_of_a_thread_that_is_gone_are_given_up() {
        let mut open = OpenSpans::<()>::default();
        open.entry(THREAD, 1, 100, ());
        open.child(THREAD, 2, child(100));
        let other = ThreadId { tid: 9, ..THREAD };
        open.entry(other, 1, 100, ());
        let is_gone = |thread| thread == THREAD;
        for now_ns in [150, 200, 299] {
            open.expire(now_ns, 100, is_gone);
            assert_eq!((open.count, open.left_out()), (3, LeftOut::default()));
        }
        open.expire(300, 100, is_gone);
        assert_eq!((open.count, open.left_out().open_expired), (1, 1));
        assert!(open.end(other, 1).is_some());
    }

    proptest! {
        #[test]
        fn it_stays_within_its_bounds(
            events in prop::collection::vec((0u32..40, 0u64..100, 0u32..100, any::<bool>()), 0..2000),
        ) {
            let mut open = OpenSpans::<()>::with_limit(200);
            for (now_ns, (thread, sequence, frame, ends)) in (0u64..).zip(events) {
                let thread = ThreadId { tgid: 1, tid: thread };
                if ends {
                    open.end(thread, sequence);
                } else {
                    open.sample(thread, sequence, now_ns, &ids(&[frame]), &ids(&[frame]));
                }
                let count = open.threads.values().map(|thread| thread.spans.len()).sum::<usize>();
                prop_assert_eq!(count, open.count);
                prop_assert!(count <= 200 + 1);
                let longest = open.threads.values().map(|thread| thread.spans.len()).max();
                prop_assert!(longest.unwrap_or(0) <= MAX_OPEN_OF_THREAD);
            }
        }
    }
}
