//! Events that stacks are taken at: a perf event for each thread, which runs the sampler's program.
//!
//! Threads rather than CPUs, so that others pay nothing for it and the kernel's count is that of the target alone. The
//! clock's ticks are of CPUs ([`super::sampler`]): of those no thread's first may be missed, which these inherit.
//!
//! See `docs/internals/events.md` for how stacks are taken at events.

use std::{
    collections::BTreeMap,
    fmt, io,
    mem::offset_of,
    os::fd::{AsFd as _, AsRawFd as _, OwnedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
};

use aya::{Ebpf, programs::PerfEvent};
use memmap2::MmapRaw;
use perf_event::Builder;
use profiler_aggregate::pace::Pace;
use profiler_common::{
    event::{BLOCK_BYTES, BLOCK_LATENCY, EVENT_SLOTS, EventSlot, MAX_EVENTS, MEMORY_GROWTH},
    settings::Sampling,
};

use super::{
    Engine, KernelError,
    counters::{Counter, is_absent, tracepoint_number},
    counts::{map, word},
    event_opener::{EventOpener, OpenedEvents},
    tracepoints::Place,
};

/// The programs, by the events' numbers.
const PROGRAMS: [&str; MAX_EVENTS] = [
    "sample_event_0",
    "sample_event_1",
    "sample_event_2",
    "sample_event_3",
    "sample_event_4",
    "sample_event_5",
    "sample_event_6",
    "sample_event_7",
];

/// What is attached for costs that tracepoints tell, by the targets' flags.
pub(super) const COSTS: [(u64, &[Place]); 3] = [
    (Sampling::BLOCK_BYTES, &[("cost_block", "block_bio_queue")]),
    (
        Sampling::MEMORY_GROWTH,
        &[("cost_exit", "sys_exit"), ("cost_enter", "sys_enter")],
    ),
    (
        Sampling::BLOCK_LATENCY,
        &[
            ("cost_request_end", "block_rq_complete"),
            ("cost_block_end", "block_bio_complete"),
            ("cost_block_begin", "block_bio_queue"),
        ],
    ),
];

/// An event that the kernel's tracepoints tell.
struct OfTracepoint {
    name: &'static str,
    number: u32,
    /// The flag of targets that asks for it.
    flag: u64,
    /// What its weights are of.
    unit: &'static str,
    /// Category and name of the tracepoint without which there is none.
    tracepoint: (&'static str, &'static str),
}

/// All of them.
const OF_TRACEPOINTS: [OfTracepoint; 3] = [
    OfTracepoint {
        name: "block-bytes",
        number: BLOCK_BYTES,
        flag: Sampling::BLOCK_BYTES,
        unit: "bytes",
        tracepoint: ("block", "block_bio_queue"),
    },
    OfTracepoint {
        name: "block-latency",
        number: BLOCK_LATENCY,
        flag: Sampling::BLOCK_LATENCY,
        unit: "ns",
        tracepoint: ("block", "block_rq_complete"),
    },
    OfTracepoint {
        name: "memory-growth",
        number: MEMORY_GROWTH,
        flag: Sampling::MEMORY_GROWTH,
        unit: "bytes",
        tracepoint: ("raw_syscalls", "sys_exit"),
    },
];

/// Threads of an event, at most: a descriptor each.
pub(super) const MAX_THREADS: usize = 8192;

/// An event that stacks are taken at, and how often.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Event {
    name: &'static str,
    pace: Pace,
}

impl Event {
    /// An event by perf's name for it; `None` where no stacks can be taken at such. Without a pace, the kernel's events are
    /// taken one by one, and of the hardware's so many a second.
    #[must_use]
    pub fn parse(name: &str, pace: Option<Pace>, usual_hz: u32) -> Option<Self> {
        if let Some(OfTracepoint { name, .. }) = OF_TRACEPOINTS.iter().find(|known| known.name == name) {
            let pace = Pace::Period(1);
            return Some(Self { name, pace });
        }
        let Counter::Named(name) = Counter::parse(name)? else {
            return None;
        };
        let usual = if Counter::Named(name).is_of_hardware() {
            Pace::Frequency(usual_hz)
        } else {
            Pace::Period(1)
        };
        let event = Self {
            name,
            pace: pace.unwrap_or(usual),
        };
        event.counter().unit().map(|_| event)
    }

    /// What its weights are of, in the plural.
    #[must_use]
    pub fn unit(self) -> &'static str {
        if let Some(known) = self.known() {
            return known.unit;
        }
        self.counter().unit().unwrap_or_default()
    }

    /// Those that this machine has, by name.
    #[must_use]
    pub fn here() -> Vec<String> {
        let has_unit = |counter: &Counter| counter.unit().is_some();
        let here = Counter::here().into_iter().filter(has_unit);
        let of_tracepoints = OF_TRACEPOINTS.iter().filter_map(|known| {
            let event = Self::parse(known.name, None, 0)?;
            event.missing().is_none().then(|| event.to_string())
        });
        here.map(|counter| counter.to_string())
            .chain(of_tracepoints)
            .collect()
    }

    /// How often stacks are taken at it.
    #[must_use]
    pub fn pace(self) -> Pace {
        self.pace
    }

    /// Whether it is the same event, be it that stacks are taken more or less often.
    #[must_use]
    pub fn is_of_the_name_of(self, other: Self) -> bool {
        self.name == other.name
    }

    /// Whether each comes with a weight of its own, so that all are recorded: a tracepoint of the kernel tells it.
    #[must_use]
    pub fn has_own_weight(self) -> bool {
        self.known().is_some()
    }

    /// Its number, where a tracepoint of the kernel tells it; such are not thinned out.
    #[must_use]
    pub fn of_tracepoint(self) -> Option<u32> {
        self.known().map(|known| known.number)
    }

    fn known(self) -> Option<&'static OfTracepoint> {
        OF_TRACEPOINTS.iter().find(|known| known.name == self.name)
    }

    /// Whether a sample's weight comes later than the sample, with a record of its own.
    #[must_use]
    pub fn is_weighed_later(self) -> bool {
        self.of_tracepoint() == Some(BLOCK_LATENCY)
    }

    /// Whether what it is about is known, so that it can be counted once: an address, or a place on a disk.
    #[must_use]
    pub fn has_keys(self) -> bool {
        let keyed = ["page-faults", "minor-faults", "major-faults", "block-bytes"];
        keyed.contains(&self.name) && self.is_one_by_one()
    }

    /// The flag of targets that asks for such an event; 0 of others.
    #[must_use]
    pub fn cost(self) -> u64 {
        self.known().map_or(0, |known| known.flag)
    }

    /// What the samples of such an event name it by.
    #[must_use]
    pub fn id_of_tracepoint(self) -> Option<u32> {
        self.of_tracepoint().map(|number| number + 1)
    }

    /// Why this machine does not have it; `None` where it does.
    #[must_use]
    pub fn missing(self) -> Option<String> {
        if let Some(OfTracepoint {
            tracepoint: (category, name),
            ..
        }) = self.known()
        {
            let found = tracepoint_number(category, name);
            let error = found.err()?;
            return Some(format!("it needs the tracepoint {category}:{name}: {error}"));
        }
        let opened = self
            .sampling()
            .and_then(|mut builder| builder.observe_self().build());
        let error = opened.err()?;
        Some(if is_absent(&error) {
            "this machine does not count it".to_owned()
        } else {
            error.to_string()
        })
    }

    /// Whether it is the hardware that counts: only of such the kernel keeps to a frequency.
    #[must_use]
    pub fn is_of_hardware(self) -> bool {
        self.counter().is_of_hardware()
    }

    /// An event of a thread and those that it begins, switched off, at which stacks can be taken.
    pub(super) fn sampling(self) -> io::Result<Builder<'static>> {
        self.counter().sampling(self.pace)
    }

    fn counter(self) -> Counter {
        Counter::Named(self.name)
    }

    /// Whether each is a sample, so that there are as many as the kernel counts.
    fn is_one_by_one(self) -> bool {
        self.pace == Pace::Period(1)
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Who has which of the events' numbers.
type Holders = Mutex<[Option<u32>; MAX_EVENTS]>;

/// Whole, whatever became of who had it before: a holder is set at once.
fn held(holders: &Holders) -> MutexGuard<'_, [Option<u32>; MAX_EVENTS]> {
    holders.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The maps of events, and who has which of their numbers.
pub(super) struct EventMaps {
    slots: MmapRaw,
    holders: Arc<Holders>,
}

impl EventMaps {
    /// Maps them.
    ///
    /// # Errors
    /// Where the map is missing or cannot be mapped.
    pub fn new(ebpf: &Ebpf) -> Result<Self, KernelError> {
        Ok(Self {
            slots: map(ebpf, "EVENTS", EVENT_SLOTS * size_of::<EventSlot>())?,
            holders: Arc::default(),
        })
    }

    /// A number that is free, its counters zero, for a user.
    fn take_number(&self, user: u32) -> Option<Number> {
        // Those behind are of tracepoints.
        let number = {
            let mut holders = held(&self.holders);
            let free = holders.iter().position(Option::is_none)?;
            holders[free] = Some(user);
            Number {
                number: u32::try_from(free).ok()?,
                holders: Arc::clone(&self.holders),
            }
        };
        for offset in (0..size_of::<EventSlot>()).step_by(8) {
            word(&self.slots, number.slot() + offset).store(0, Ordering::Relaxed);
        }
        Some(number)
    }
}

/// The number of an event; free again when dropped.
struct Number {
    number: u32,
    holders: Arc<Holders>,
}

impl Number {
    fn slot(&self) -> usize {
        self.number as usize * size_of::<EventSlot>()
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        held(&self.holders)[self.number as usize] = None;
    }
}

/// An event of some processes, while stacks are taken at it. Dropped, that ends.
pub struct SampledEvent {
    event: Event,
    /// By process, an event for each thread. Before the number: no program runs any more when that is another's.
    threads: BTreeMap<u32, Vec<perf_event::Counter>>,
    program: Arc<OwnedFd>,
    number: Number,
}

/// What has become of an event's samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EventCounts {
    /// Samples that should have become a record.
    pub attempted: u64,
    /// Those beyond the limit.
    pub limited: u64,
    /// Those dropped to leave the ring buffer's last quarter to span ends.
    pub yielded: u64,
    /// Those dropped because the ring buffer was full.
    pub ring_full: u64,
    /// Events that the kernel has counted and has not had looked at; 0 unless they are taken one by one.
    pub unseen: u64,
}

impl EventCounts {
    /// Adds what came meanwhile.
    pub fn add(&mut self, meanwhile: Self) {
        for (sum, count) in [
            (&mut self.attempted, meanwhile.attempted),
            (&mut self.limited, meanwhile.limited),
            (&mut self.yielded, meanwhile.yielded),
            (&mut self.ring_full, meanwhile.ring_full),
            (&mut self.unseen, meanwhile.unseen),
        ] {
            *sum = sum.saturating_add(count);
        }
    }

    /// What came since an earlier reading.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            attempted: self.attempted.saturating_sub(before.attempted),
            limited: self.limited.saturating_sub(before.limited),
            yielded: self.yielded.saturating_sub(before.yielded),
            ring_full: self.ring_full.saturating_sub(before.ring_full),
            unseen: self.unseen.saturating_sub(before.unseen),
        }
    }
}

/// Why no stacks can be taken at an event.
#[derive(Debug, thiserror::Error)]
pub enum EventError {
    /// Too many are taken already.
    #[error("stacks are taken at {MAX_EVENTS} events already: end a flame graph or recording of one first")]
    TooManyEvents,
    /// Too many threads.
    #[error("{0} threads are more than the {MAX_THREADS} that stacks can be taken of at an event")]
    TooManyThreads(usize),
    /// The kernel refused the event of a thread.
    #[error("taking stacks of thread {tid} at {event}: {source}")]
    Refused {
        /// The event.
        event: Event,
        /// The thread.
        tid: u32,
        /// Why.
        source: io::Error,
    },
    /// The kernel refused the program.
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

impl SampledEvent {
    /// Which event it is.
    #[must_use]
    pub fn event(&self) -> Event {
        self.event
    }

    /// What its samples name it by.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.number.number + 1
    }

    /// What opens it for those of these processes that it is not open for; `None` where it is for all.
    #[must_use]
    pub fn opener(&self, pids: &[u32]) -> Option<EventOpener> {
        let new = pids.iter().copied().filter(|pid| !self.threads.contains_key(pid));
        let new: Vec<u32> = new.collect();
        (!new.is_empty()).then(|| EventOpener {
            event: self.event,
            id: self.id(),
            program: Arc::clone(&self.program),
            pids: new.into_iter(),
            opened: self.threads.values().map(Vec::len).sum(),
        })
    }

    /// Whether this was opened for it: another event may have its number by now.
    #[must_use]
    pub fn is_of(&self, opened: &OpenedEvents) -> bool {
        (opened.event, opened.id) == (self.event, self.id())
    }

    /// Takes stacks of a process from now on, by what was opened for it, unless it is known already.
    pub fn take(&mut self, opened: OpenedEvents) {
        let OpenedEvents { pid, mut threads, .. } = opened;
        if self.threads.contains_key(&pid) {
            return;
        }
        for thread in &mut threads {
            // Its thread may have ended.
            let _ = thread.enable();
        }
        self.threads.insert(pid, threads);
    }

    /// Takes no stacks any more; what was counted stays.
    pub fn stop(&mut self) {
        self.threads.values_mut().flatten().for_each(disable);
    }

    /// Takes no stacks of this process any more, be it that it is being opened for it; what was counted stays.
    pub fn lose(&mut self, pid: u32) {
        self.threads.entry(pid).or_default().iter_mut().for_each(disable);
    }

    /// What the kernel has counted for its threads, ended ones too.
    fn counted(&self) -> u64 {
        let count = |thread: &perf_event::Counter| read_count(thread).unwrap_or(0);
        self.threads.values().flatten().map(count).sum()
    }
}

fn disable(event: &mut perf_event::Counter) {
    if let Err(error) = event.disable() {
        tracing::debug!(%error, "an event was gone");
    }
}

/// The count of an event, which is the first word that is read of it.
fn read_count(event: &perf_event::Counter) -> io::Result<u64> {
    let mut words = [0u8; 32];
    // SAFETY: the descriptor is the event's own, which lives, and the buffer has the length that is said.
    let read = unsafe { libc::read(event.as_raw_fd(), words.as_mut_ptr().cast(), words.len()) };
    match words.first_chunk() {
        Some(count) if read >= 8 => Ok(u64::from_ne_bytes(*count)),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Engine {
    /// The user of each event that stacks are taken at.
    #[must_use]
    pub fn event_holders(&self) -> Vec<u32> {
        held(&self.events.holders).iter().flatten().copied().collect()
    }

    /// Takes stacks at an event for a user, of no process yet.
    ///
    /// # Errors
    /// Where the kernel refuses the program, or stacks are taken at too many events already.
    pub fn sample_event(&mut self, event: Event, user: u32) -> Result<SampledEvent, EventError> {
        let number = self.events.take_number(user).ok_or(EventError::TooManyEvents)?;
        let name = PROGRAMS[number.number as usize];
        Ok(SampledEvent {
            event,
            threads: BTreeMap::new(),
            program: Arc::new(program(&mut self.ebpf, name)?),
            number,
        })
    }

    /// What has become of an event's samples so far.
    #[must_use]
    pub fn event_counts(&self, sampled: &SampledEvent) -> EventCounts {
        // First, so that what is counted meanwhile does not look as if it had not been seen.
        let counted = sampled.counted();
        let counts = self.counts_of(sampled.number.number);
        let unseen = if sampled.event.is_one_by_one() {
            counted.saturating_sub(counts.attempted)
        } else {
            0
        };
        EventCounts {
            attempted: counts.attempted + unseen,
            unseen,
            ..counts
        }
    }

    /// What has become of the samples of the event of this number, of all sessions that there are.
    #[must_use]
    pub fn counts_of(&self, number: u32) -> EventCounts {
        let slot = number as usize * size_of::<EventSlot>();
        let at = |offset: usize| word(&self.events.slots, slot + offset).load(Ordering::Relaxed);
        EventCounts {
            attempted: at(offset_of!(EventSlot, attempted)),
            limited: at(offset_of!(EventSlot, limited)),
            yielded: at(offset_of!(EventSlot, yielded)),
            ring_full: at(offset_of!(EventSlot, ring_full)),
            unseen: 0,
        }
    }
}

/// A program, loaded when first needed. It stays loaded as long as the engine.
fn program(ebpf: &mut Ebpf, name: &'static str) -> Result<OwnedFd, KernelError> {
    let program: &mut PerfEvent = ebpf
        .program_mut(name)
        .ok_or(KernelError::Missing(name))?
        .try_into()?;
    if program.fd().is_err() {
        program.load()?;
    }
    let descriptor = program.fd()?.as_fd().try_clone_to_owned();
    descriptor.map_err(|error| KernelError::system("a descriptor of a program", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_have_units_and_paces() {
        let parse = |name| Event::parse(name, None, 99).unwrap();
        assert_eq!(
            (parse("faults").to_string().as_str(), parse("faults").unit()),
            ("page-faults", "faults")
        );
        assert_eq!(parse("cs").unit(), "switches");
        assert_eq!(parse("LLC-load-misses").unit(), "misses");
        assert!(parse("migrations").is_one_by_one());
        assert_eq!(parse("cycles").pace, Pace::Frequency(99));
        let thinned = Event::parse("faults", Some(Pace::Period(16)), 99).unwrap();
        assert!(thinned != parse("faults") && !thinned.is_one_by_one());
        for other in [
            "task-clock",
            "syscalls",
            "tracepoint:sched:sched_switch",
            "nothing",
        ] {
            assert_eq!(Event::parse(other, None, 99), None, "{other}");
        }
    }

    #[test]
    fn all_that_are_here_can_be_asked_for() {
        let here = Event::here();
        assert!(here.contains(&"page-faults".to_owned()));
        for name in here {
            assert!(Event::parse(&name, None, 99).is_some(), "{name}");
        }
    }
}
