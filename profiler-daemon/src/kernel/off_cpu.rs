//! Intervals off the CPU: the scheduler's programs, and what they have to tell.
//!
//! See `docs/internals/off-cpu.md` for how time off the CPU is seen.

use std::{
    collections::{BTreeSet, HashMap},
    num::NonZeroU64,
    sync::Arc,
};

use aya::{Ebpf, maps::MapData};
use profiler_aggregate::ThreadId;
use profiler_common::{
    limits::{TARGET_WORDS, target_bit},
    record::{OFF_CPU, OffCpuHeader, SpanRef, WaitingStack, state},
    thread::{OffCpu, Presence},
};

use super::{
    KernelError,
    ring::Reader,
    shared_stacks::{SharedStack, SharedStacks},
    system_calls::CallNumber,
    tracepoints::{self, Place},
};

/// What a thread does while time passes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Activity {
    /// It runs.
    OnCpu,
    /// It waits for an event, and a signal ends that: for input, a lock, a timer.
    Sleeping,
    /// It waits, and no signal ends that: for a disk mostly, or in the kernel.
    Uninterruptible,
    /// It was stopped, by a signal or a debugger.
    Stopped,
    /// It could run, and waits for a CPU.
    Runnable,
}

impl Activity {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::OnCpu,
        Self::Sleeping,
        Self::Uninterruptible,
        Self::Stopped,
        Self::Runnable,
    ];

    /// Its number in [`Self::ALL`].
    #[must_use]
    pub fn number(self) -> usize {
        self as usize
    }
}

/// An interval that a thread was off the CPU.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interval {
    /// The process, in the initial PID namespace.
    pub tgid: u32,
    /// The thread.
    pub tid: u32,
    /// `CLOCK_MONOTONIC`, when it left the CPU.
    pub start_ns: u64,
    /// When it could run again, in between.
    pub woken_ns: u64,
    /// When it ran again.
    pub end_ns: u64,
    /// What it did until it could run.
    pub waited: Activity,
    /// Who made it runnable, where it is known.
    pub waker: Option<ThreadId>,
    /// What that ran when it did so; `None` where it was not asked for, not taken, or lost.
    pub waker_stack: Option<Arc<SharedStack>>,
    /// Who made it runnable was asked for.
    pub asks_waker: bool,
    /// The address of the futex that it waited for, where it was one: of a lock, a semaphore, a condition variable.
    pub lock: Option<NonZeroU64>,
    /// The system call that it left the CPU in.
    pub system_call: Option<CallNumber>,
    /// How long no thread of its process was on a CPU until it could run; `None` where that was not asked for.
    pub still_ns: Option<u64>,
    /// Spans that were open, outermost first.
    pub spans: Vec<SpanRef>,
    /// Where it left the CPU; `None` where that was not taken, or was lost.
    pub stack: Option<Arc<SharedStack>>,
    /// It has not ended: its end is when it was looked at.
    pub goes_on: bool,
}

impl Interval {
    /// What it did, and for how long; parts that took no time are left out.
    pub fn parts(&self) -> impl Iterator<Item = (Activity, u64)> + use<> {
        let waited_ns = self.woken_ns - self.start_ns;
        let queued_ns = self.end_ns - self.woken_ns;
        [(self.waited, waited_ns), (Activity::Runnable, queued_ns)]
            .into_iter()
            .filter(|(_, time_ns)| *time_ns > 0)
    }
}

impl SharedStacks {
    /// Reads an interval, and gives it its stack; `None` where the bytes are something else.
    pub fn interval(&mut self, bytes: &[u8]) -> Option<Interval> {
        let (interval, [stack, waker_stack]) = parse_interval(bytes)?;
        Some(Interval {
            stack: self.take(stack),
            waker_stack: self.take(waker_stack),
            ..interval
        })
    }
}

/// A thread that was off the CPU when the programs were stopped.
pub struct StillOff {
    tid: u32,
    words: [u64; WORDS],
}

impl StillOff {
    /// All of them, with what their whole stacks are named by: those of [`waiting_stacks`], where it could tell.
    pub(super) fn all(ebpf: &mut Ebpf, stacks: Option<&WaitingStacks>) -> Result<Vec<Self>, KernelError> {
        let threads: Vec<(u32, [u64; WORDS])> = threads(ebpf)?.iter().collect::<Result<_, _>>()?;
        let of = |(tid, mut words): (u32, [u64; WORDS])| {
            if let Some(stacks) = stacks {
                words[STACK] = *stacks.get(&(tid, words[START_NS]))?;
            }
            Some(Self { tid, words })
        };
        Ok(threads.into_iter().filter_map(of).collect())
    }

    /// Keeps those that have not come back since.
    pub(super) fn keep(ebpf: &mut Ebpf, known: &mut Vec<Self>) -> Result<(), KernelError> {
        let threads = threads(ebpf)?;
        known.retain(|known| {
            let now = threads.get(&known.tid, 0);
            now.is_ok_and(|words| words[START_NS] == known.words[START_NS])
        });
        Ok(())
    }

    /// The interval until a time, as the programs keep it.
    pub(super) fn interval(&self, stacks: &mut SharedStacks, now_ns: u64) -> Option<Interval> {
        // In the order of `OffCpu`, whose offsets are asserted.
        let [
            start_ns,
            woken_ns,
            stack,
            waker_stack,
            of_process,
            of_state,
            of_waker,
            asks_waker,
            lock,
            _still_ns,
            _departures,
            system_call,
            _admitted_at,
        ] = self.words;
        let (tgid, _spans) = halves(of_process);
        let (state, waker_tid) = halves(of_state);
        let (waker_tgid, _taking_ns) = halves(of_waker);
        let mut bytes = Vec::with_capacity(size_of::<OffCpuHeader>());
        for word in [OFF_CPU, 0, tgid, self.tid] {
            bytes.extend(word.to_ne_bytes());
        }
        for word in [start_ns, woken_ns, now_ns, stack] {
            bytes.extend(word.to_ne_bytes());
        }
        for word in [state, waker_tid, waker_tgid, halves(asks_waker).0] {
            bytes.extend(word.to_ne_bytes());
        }
        for word in [waker_stack, lock, OffCpuHeader::NOT_KEPT] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(system_call.to_ne_bytes());
        let interval = stacks.interval(&bytes)?;
        Some(Interval {
            goes_on: true,
            // All of it: what goes on to be waited for has not been made up for.
            still_ns: interval.asks_waker.then_some(u64::MAX),
            ..interval
        })
    }
}

/// What the whole stacks of threads that are off the CPU are named by, by thread and [`OffCpu::start_ns`].
pub(super) type WaitingStacks = HashMap<(u32, u64), u64>;

/// The iterator over all threads, and the name of what it goes over.
const ITERATOR: Place = ("off_cpu_waiting", "task");

/// All that is loaded.
pub(super) const PROGRAMS: [Place; 3] = [PLACES[0], PLACES[1], ITERATOR];

/// Takes the kernel's part of the stacks of all threads that are off the CPU, while the scheduler is still watched: of a
/// thread that comes back meanwhile, or has done so unseen, nothing is told.
pub(super) fn waiting_stacks(ebpf: &mut Ebpf) -> Result<WaitingStacks, KernelError> {
    // A row of each thread that is off the CPU: `MAX_OFF_CPU` at most.
    Ok(parse_waiting(&tracepoints::go_over(ebpf, ITERATOR)?))
}

fn parse_waiting(bytes: &[u8]) -> WaitingStacks {
    let mut reader = Reader(bytes);
    // Field by field, in the order of `WaitingStack`, whose offsets are asserted.
    let mut row = || {
        let (tid, _zero) = (reader.u32()?, reader.u32()?);
        Some(((tid, reader.u64()?), reader.u64()?))
    };
    std::iter::from_fn(&mut row).collect()
}

const _: () = assert!(size_of::<WaitingStack>() == 24);

/// The halves of a word, in the order in which this machine has them in memory.
#[expect(clippy::cast_possible_truncation, reason = "each is half of it")]
fn halves(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

/// An interval without its stacks, and what those are named by: where it left, and who made it runnable.
fn parse_interval(bytes: &[u8]) -> Option<(Interval, [u64; 2])> {
    let mut reader = Reader(bytes);
    // Field by field, in the order of `OffCpuHeader`, whose offsets are asserted.
    if reader.u32()? != OFF_CPU {
        return None;
    }
    let (spans, tgid, tid) = (reader.u32()?, reader.u32()?, reader.u32()?);
    let (start_ns, woken_ns, end_ns, stack) = (reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?);
    let (left_in, waker_tid, waker_tgid, asks_waker) =
        (reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?);
    let (waker_stack, lock, still_ns) = (reader.u64()?, reader.u64()?, reader.u64()?);
    let (system_call, _zero) = (reader.u32()?, reader.u32()?);
    let spans = (0..spans).map(|_| reader.span()).collect::<Option<_>>()?;
    // Clocks of two CPUs may differ by a little.
    let end_ns = end_ns.max(start_ns);
    let waited = activity_of(left_in);
    let woken_ns = match (waited, woken_ns) {
        (Activity::Runnable, _) => start_ns,
        (_, 0) => end_ns,
        _ => woken_ns.clamp(start_ns, end_ns),
    };
    let interval = Interval {
        tgid,
        tid,
        start_ns,
        woken_ns,
        end_ns,
        waited,
        waker: (waker_tid != 0).then_some(ThreadId {
            tgid: waker_tgid,
            tid: waker_tid,
        }),
        waker_stack: None,
        asks_waker: asks_waker != 0,
        lock: NonZeroU64::new(lock),
        system_call: CallNumber::of_thread(system_call),
        still_ns: (still_ns != OffCpuHeader::NOT_KEPT).then_some(still_ns),
        spans,
        stack: None,
        goes_on: false,
    };
    Some((interval, [stack, waker_stack]))
}

const _: () = assert!(size_of::<OffCpuHeader>() == 96);

/// What a thread does that left the CPU in this state of the kernel's.
fn activity_of(left_in: u32) -> Activity {
    if left_in & state::PREEMPTED != 0 {
        Activity::Runnable
    } else if left_in & state::STOPPED != 0 {
        Activity::Stopped
    } else if left_in & state::UNINTERRUPTIBLE != 0 {
        Activity::Uninterruptible
    } else {
        Activity::Sleeping
    }
}

/// The scheduler's tracepoints that are watched.
pub(super) const PLACES: [Place; 2] = [
    ("off_cpu_switch", "sched_switch"),
    ("off_cpu_wake", "sched_waking"),
];

/// Bits of the processes that are sampled, as the programs have them.
pub(super) type TargetBits = [u64; TARGET_WORDS as usize];

/// Says whose threads are looked at: see [`target_bit`].
pub(super) fn set_target_bits(
    ebpf: &mut Ebpf,
    known: &mut TargetBits,
    pids: &BTreeSet<u32>,
) -> Result<(), KernelError> {
    const MAP: &str = "TARGET_BITS";
    let map = ebpf.map_mut(MAP).ok_or(KernelError::Missing(MAP))?;
    let mut words: aya::maps::Array<&mut MapData, u64> = map.try_into()?;
    let mut bits: TargetBits = [0; TARGET_WORDS as usize];
    for pid in pids {
        let (word, bit) = target_bit(*pid);
        bits[word as usize] |= bit;
    }
    for ((number, own), known) in (0..TARGET_WORDS).zip(bits).zip(known) {
        if own != *known {
            words.set(number, own, 0)?;
            *known = own;
        }
    }
    Ok(())
}

/// Keeps of these processes whether threads are on CPUs, and of no others; those that it is kept of already go on.
pub(super) fn keep_presences(ebpf: &mut Ebpf, pids: &BTreeSet<u32>) -> Result<(), KernelError> {
    let mut kept = presences(ebpf)?;
    let before: BTreeSet<u32> = kept.keys().collect::<Result<_, _>>()?;
    for gone in before.difference(pids) {
        kept.remove(gone)?;
    }
    for new in pids.difference(&before) {
        kept.insert(new, [0; PRESENCE_WORDS], 0)?;
    }
    Ok(())
}

/// Counts no CPU for any process: programs that were stopped have left some so.
pub(super) fn forget_presences(ebpf: &mut Ebpf) -> Result<(), KernelError> {
    const MAP: &str = "PRESENT";
    let cpus = aya::util::nr_cpus().map_err(|(what, error)| KernelError::system(what.to_owned(), error))?;
    let none = aya::maps::PerCpuValues::try_from(vec![0; cpus])
        .map_err(|error| KernelError::system("counting CPUs".to_owned(), error))?;
    let map = ebpf.map_mut(MAP).ok_or(KernelError::Missing(MAP))?;
    let mut present: aya::maps::PerCpuArray<&mut MapData, u32> = map.try_into()?;
    present.set(0, none, 0)?;
    let mut kept = presences(ebpf)?;
    let pids: Vec<u32> = kept.keys().collect::<Result<_, _>>()?;
    for pid in pids {
        kept.insert(pid, [0; PRESENCE_WORDS], 0)?;
    }
    Ok(())
}

/// Words of a [`Presence`].
const PRESENCE_WORDS: usize = size_of::<Presence>() / 8;

type Presences<'a> = aya::maps::HashMap<&'a mut MapData, u32, [u64; PRESENCE_WORDS]>;

fn presences(ebpf: &mut Ebpf) -> Result<Presences<'_>, KernelError> {
    const MAP: &str = "PRESENCES";
    Ok(ebpf.map_mut(MAP).ok_or(KernelError::Missing(MAP))?.try_into()?)
}

/// Threads that are off the CPU, by their id, as the programs keep them.
type Threads<'a> = aya::maps::HashMap<&'a mut MapData, u32, [u64; WORDS]>;

/// Words of an [`OffCpu`].
const WORDS: usize = size_of::<OffCpu>() / 8;

fn threads(ebpf: &mut Ebpf) -> Result<Threads<'_>, KernelError> {
    const MAP: &str = "OFF_CPU";
    Ok(ebpf.map_mut(MAP).ok_or(KernelError::Missing(MAP))?.try_into()?)
}

/// Forgets who is off the CPU, but for threads of these processes.
pub(super) fn keep_threads(ebpf: &mut Ebpf, pids: &BTreeSet<u32>) -> Result<(), KernelError> {
    let mut threads = threads(ebpf)?;
    let known: Vec<(u32, [u64; WORDS])> = threads.iter().collect::<Result<_, _>>()?;
    for (thread, words) in known {
        let (tgid, _) = halves(words[OFF_CPU_TGID / 8]);
        // It may come back at this very moment.
        if !pids.contains(&tgid) && threads.remove(&thread).is_err() {
            tracing::debug!(thread, "a thread that was off the CPU was gone");
        }
    }
    Ok(())
}

const OFF_CPU_TGID: usize = std::mem::offset_of!(OffCpu, tgid);

/// Words of it, by their place.
const START_NS: usize = std::mem::offset_of!(OffCpu, start_ns) / 8;
const STACK: usize = std::mem::offset_of!(OffCpu, stack) / 8;

const _: () = assert!(OFF_CPU_TGID.is_multiple_of(8), "it is the first half of a word");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_iterator_writes_is_read() {
        let mut bytes = Vec::new();
        for tid in [8_u32, 9] {
            bytes.extend([tid, 0].map(u32::to_ne_bytes).concat());
            bytes.extend([100, u64::from(tid)].map(u64::to_ne_bytes).concat());
        }
        bytes.push(1);
        let stacks = parse_waiting(&bytes);
        assert_eq!(stacks, WaitingStacks::from([((8, 100), 8), ((9, 100), 9)]));
    }

    #[test]
    fn what_goes_on_is_read_as_the_programs_keep_it() {
        let of_state = |woken_ns: u64, state: u32| StillOff {
            tid: u32::MAX,
            words: [100, woken_ns, 0, 0, 7, state.into(), 0, 1, 0x1000, 5, 3, 202, 1],
        };
        let stacks = &mut SharedStacks::default();
        let mut so_far = |woken_ns, state| of_state(woken_ns, state).interval(stacks, 500).unwrap();
        let sleeps = so_far(0, 1);
        let times = (sleeps.start_ns, sleeps.end_ns, sleeps.tgid, sleeps.tid);
        assert_eq!(times, (100, 500, 7, u32::MAX));
        assert!(sleeps.goes_on && sleeps.asks_waker && sleeps.waker.is_none());
        assert_eq!(sleeps.lock, NonZeroU64::new(0x1000));
        assert_eq!(sleeps.system_call.map(|call| call.number), Some(202));
        let parts = |interval: Interval| interval.parts().collect::<Vec<_>>();
        assert_eq!(parts(sleeps), [(Activity::Sleeping, 400)]);
        assert_eq!(parts(so_far(0, state::PREEMPTED)), [(Activity::Runnable, 400)]);
        let woken = parts(so_far(300, 1));
        assert_eq!(woken, [(Activity::Sleeping, 200), (Activity::Runnable, 200)]);
    }
}
