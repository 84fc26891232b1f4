//! Histograms and counters as the programs keep them, read through shared memory: no system call per
//! reading, however many probes there are.

use std::{
    os::fd::{AsFd as _, AsRawFd as _},
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

use aya::{
    Ebpf,
    maps::{Map, Queue},
};
use memmap2::{MmapOptions, MmapRaw};
use profiler_common::{
    counter::{COUNTERS, Counter},
    layout::{PAGE_BUCKETS, PAGES},
    limits::{MAX_HISTOGRAM_PAGES, MAX_PROBES},
    probe::{ProbeId, ProbeSlot},
};

use super::{
    KernelError,
    gates::{Gate, Gates},
};

/// The counters of one probe.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct ProbeCounts {
    /// Calls seen to begin.
    pub entries: u64,
    /// Spans that were jumped over.
    pub abandoned: u64,
    /// Calls beyond the depth that is kept.
    pub too_deep: u64,
    /// Ends of calls that had begun before the probe was attached.
    pub unmatched: u64,
    /// Calls whose thread state could not be had.
    pub no_state: u64,
    /// Spans whose duration found no histogram page.
    pub no_page: u64,
    /// Calls or hits while the gate of the step before was closed.
    pub outside: u64,
    /// Spans and hits that were too many in one span to wait for its duration.
    pub join_limit: u64,
    /// Spans that did not return what is asked.
    pub refused: u64,
    /// Spans of which it is not known what they returned, where that is asked.
    pub undecided: u64,
    /// Returns of functions that it ends in jumps to, in calls that others have made.
    pub passed_by: u64,
}

impl ProbeCounts {
    /// The sum of what was counted in two times.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            entries: self.entries.saturating_add(other.entries),
            abandoned: self.abandoned.saturating_add(other.abandoned),
            too_deep: self.too_deep.saturating_add(other.too_deep),
            unmatched: self.unmatched.saturating_add(other.unmatched),
            no_state: self.no_state.saturating_add(other.no_state),
            no_page: self.no_page.saturating_add(other.no_page),
            outside: self.outside.saturating_add(other.outside),
            join_limit: self.join_limit.saturating_add(other.join_limit),
            refused: self.refused.saturating_add(other.refused),
            undecided: self.undecided.saturating_add(other.undecided),
            passed_by: self.passed_by.saturating_add(other.passed_by),
        }
    }

    /// Spans that have begun and are not over, where so many are in the histogram.
    #[must_use]
    pub fn open(&self, ended: u64) -> u64 {
        self.entries
            .saturating_sub(ended.saturating_add(self.uncounted()))
    }

    /// Spans that are open no more, and not in the histogram.
    #[must_use]
    pub fn uncounted(&self) -> u64 {
        [
            self.no_page,
            self.abandoned,
            self.too_deep,
            self.no_state,
            self.refused,
            self.undecided,
        ]
        .into_iter()
        .fold(0, u64::saturating_add)
    }
}

/// The maps that the programs count in.
pub struct Counts {
    probes: MmapRaw,
    pages: MmapRaw,
    counters: MmapRaw,
}

impl Counts {
    /// Maps the counting maps of a loaded object.
    ///
    /// # Errors
    /// Where a map is missing or cannot be mapped.
    pub fn new(ebpf: &Ebpf) -> Result<Self, KernelError> {
        Ok(Self {
            probes: map(ebpf, "PROBES", MAX_PROBES as usize * size_of::<ProbeSlot>())?,
            pages: map(ebpf, "PAGES", MAX_HISTOGRAM_PAGES as usize * PAGE_BUCKETS * 8)?,
            counters: map(ebpf, "COUNTERS", COUNTERS * 8)?,
        })
    }

    /// A counter of the programs as a whole.
    pub fn counter(&self, counter: Counter) -> u64 {
        word(&self.counters, counter as usize * 8).load(Ordering::Relaxed)
    }

    /// Sets the number of ends without a beginning. Exits are attached first and detached last: without entries, every
    /// call ends so.
    pub fn set_unmatched(&self, id: ProbeId, count: u64) {
        word(
            &self.probes,
            slot(id) + std::mem::offset_of!(ProbeSlot, unmatched),
        )
        .store(count, Ordering::Relaxed);
    }

    /// Makes a slot a probe's: its counters zero, its id live.
    pub fn open_slot(&self, id: ProbeId) {
        let base = slot(id);
        for offset in (0..std::mem::offset_of!(ProbeSlot, threshold_ns)).step_by(8) {
            word(&self.probes, base + offset).store(0, Ordering::Relaxed);
        }
        for offset in [
            std::mem::offset_of!(ProbeSlot, outside),
            std::mem::offset_of!(ProbeSlot, join_limit),
            std::mem::offset_of!(ProbeSlot, refused),
            std::mem::offset_of!(ProbeSlot, undecided),
        ] {
            word(&self.probes, base + offset).store(0, Ordering::Relaxed);
        }
        half(&self.probes, base + std::mem::offset_of!(ProbeSlot, flags)).store(0, Ordering::Relaxed);
        self.set_gates(id, Gates::default());
        self.set_threshold(id, u64::MAX);
        half(&self.probes, base + std::mem::offset_of!(ProbeSlot, id)).store(id.0, Ordering::Release);
    }

    /// Nothing is counted of the probe any more, whatever still runs.
    pub fn silence(&self, id: ProbeId) {
        let at = slot(id) + std::mem::offset_of!(ProbeSlot, id);
        half(&self.probes, at).store(u32::MAX, Ordering::Release);
    }

    /// Takes a slot back: no program touches it any more, and its pages return to the pool.
    ///
    /// # Errors
    /// Where the pool's map cannot be written.
    pub fn close_slot(
        &self,
        id: ProbeId,
        free: &mut Queue<&mut aya::maps::MapData, u32>,
    ) -> Result<(), KernelError> {
        self.silence(id);
        let base = slot(id);
        for index in 0..PAGES {
            let number = half(&self.probes, directory(base, index)).swap(0, Ordering::AcqRel);
            if let Some(page) = number.checked_sub(1) {
                for bucket in 0..PAGE_BUCKETS {
                    word(&self.pages, (page as usize * PAGE_BUCKETS + bucket) * 8)
                        .store(0, Ordering::Relaxed);
                }
                free.push(page, 0)?;
            }
        }
        Ok(())
    }

    /// Spans at least this long emit a record of their own; `u64::MAX` for none.
    pub fn set_threshold(&self, id: ProbeId, threshold_ns: u64) {
        word(
            &self.probes,
            slot(id) + std::mem::offset_of!(ProbeSlot, threshold_ns),
        )
        .store(threshold_ns, Ordering::Relaxed);
    }

    /// Says what the probe has to do with the steps before and after its own.
    pub fn set_gates(&self, id: ProbeId, gates: Gates) {
        let base = slot(id);
        let Gates {
            requires,
            opens,
            joined,
        } = gates;
        let since_ns = requires.map_or(0, Gate::since_ns);
        let bits = |gate: Option<Gate>| gate.map_or(0, Gate::bits);
        word(
            &self.probes,
            base + std::mem::offset_of!(ProbeSlot, gate_since_ns),
        )
        .store(since_ns, Ordering::Relaxed);
        let flags = half(&self.probes, base + std::mem::offset_of!(ProbeSlot, flags));
        let kept =
            flags.load(Ordering::Relaxed) & (ProbeSlot::LOOKS | ProbeSlot::FOLLOWS | ProbeSlot::DECIDES);
        flags.store(
            kept | if joined { ProbeSlot::JOINED } else { 0 },
            Ordering::Relaxed,
        );
        for (offset, value) in [
            (std::mem::offset_of!(ProbeSlot, requires), bits(requires)),
            (std::mem::offset_of!(ProbeSlot, opens), bits(opens)),
        ] {
            half(&self.probes, base + offset).store(value, Ordering::Relaxed);
        }
    }

    /// Says that values are looked at where the probe's spans begin.
    pub fn set_looks(&self, id: ProbeId) {
        half(&self.probes, slot(id) + std::mem::offset_of!(ProbeSlot, flags))
            .fetch_or(ProbeSlot::LOOKS, Ordering::Relaxed);
    }

    /// Has what a probe's spans return followed where they do.
    pub fn set_follows(&self, id: ProbeId) {
        half(&self.probes, slot(id) + std::mem::offset_of!(ProbeSlot, flags))
            .fetch_or(ProbeSlot::FOLLOWS, Ordering::Relaxed);
    }

    /// Has a probe's spans count only if they return what is asked.
    pub fn set_decides(&self, id: ProbeId) {
        half(&self.probes, slot(id) + std::mem::offset_of!(ProbeSlot, flags))
            .fetch_or(ProbeSlot::DECIDES, Ordering::Relaxed);
    }

    /// The probe's counters.
    pub fn probe(&self, id: ProbeId) -> ProbeCounts {
        let base = slot(id);
        let at = |offset: usize| word(&self.probes, base + offset).load(Ordering::Relaxed);
        ProbeCounts {
            entries: at(std::mem::offset_of!(ProbeSlot, entries)),
            abandoned: at(std::mem::offset_of!(ProbeSlot, abandoned)),
            too_deep: at(std::mem::offset_of!(ProbeSlot, too_deep)),
            unmatched: at(std::mem::offset_of!(ProbeSlot, unmatched)),
            no_state: at(std::mem::offset_of!(ProbeSlot, no_state)),
            no_page: at(std::mem::offset_of!(ProbeSlot, no_page)),
            outside: at(std::mem::offset_of!(ProbeSlot, outside)),
            join_limit: at(std::mem::offset_of!(ProbeSlot, join_limit)),
            refused: at(std::mem::offset_of!(ProbeSlot, refused)),
            undecided: at(std::mem::offset_of!(ProbeSlot, undecided)),
            passed_by: at(std::mem::offset_of!(ProbeSlot, passed_by)),
        }
    }

    /// The probe's histogram: every bucket that was ever hit, with its count since the start.
    pub fn histogram(&self, id: ProbeId) -> impl Iterator<Item = (usize, u64)> + '_ {
        let base = slot(id);
        (0..PAGES).flat_map(move |index| {
            let number = half(&self.probes, directory(base, index)).load(Ordering::Acquire);
            let page = number.checked_sub(1).filter(|page| *page < MAX_HISTOGRAM_PAGES);
            (0..PAGE_BUCKETS).filter_map(move |bucket| {
                let at = (page? as usize * PAGE_BUCKETS + bucket) * 8;
                let count = word(&self.pages, at).load(Ordering::Relaxed);
                (count > 0).then_some((index * PAGE_BUCKETS + bucket, count))
            })
        })
    }
}

fn slot(id: ProbeId) -> usize {
    id.index() as usize * size_of::<ProbeSlot>()
}

fn directory(base: usize, index: usize) -> usize {
    base + std::mem::offset_of!(ProbeSlot, pages) + index * 4
}

/// A 64-bit word of mapped memory.
pub(super) fn word(memory: &MmapRaw, offset: usize) -> &AtomicU64 {
    assert!(offset.is_multiple_of(8) && offset + 8 <= memory.len());
    // SAFETY: the offset is within the mapping and aligned (a mapping begins at a page); the mapping
    // lives as long as the reference, and both sides access it atomically.
    unsafe { &*memory.as_ptr().add(offset).cast() }
}

/// A 32-bit word of mapped memory.
pub(super) fn half(memory: &MmapRaw, offset: usize) -> &AtomicU32 {
    assert!(offset.is_multiple_of(4) && offset + 4 <= memory.len());
    // SAFETY: as in `word`.
    unsafe { &*memory.as_ptr().add(offset).cast() }
}

pub(super) fn map(ebpf: &Ebpf, name: &'static str, bytes: usize) -> Result<MmapRaw, KernelError> {
    let Some(Map::Array(data)) = ebpf.map(name) else {
        return Err(KernelError::Missing(name));
    };
    let length = bytes.next_multiple_of(rustix::param::page_size());
    MmapOptions::new()
        .len(length)
        .map_raw(data.fd().as_fd().as_raw_fd())
        .map_err(|error| KernelError::system(format!("mapping {name}"), error))
}
