//! What is recorded where a line is reached.

use crate::{
    assert_layout,
    probe::ProbeId,
    values::{MAX_BYTES, MAX_VALUES, Test},
};

/// What is done at the sites of one probe of a line, by the probe's index, and what came of it; counters are
/// incremented atomically.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HitSlot {
    /// The probe's current id; what is not of it is of an earlier use.
    pub id: ProbeId,
    /// The first of the probe's read plans: those that a hit has to pass, then those whose values are recorded, then
    /// those whose values are where the span returns, then those that it has to pass there.
    pub first_plan: u32,
    /// Plans that a hit has to pass: each requires something of a value.
    pub required: u32,
    /// Plans whose values are recorded.
    pub values: u32,
    /// Time between two hits that are recorded, on average; 0 for no limit.
    pub interval_ns: u64,
    /// When the next hit would come if they came at their limit.
    pub next_ns: u64,
    /// Hits that a required value has rejected.
    pub rejected: u64,
    /// Hits beyond the limit.
    pub limited: u64,
    /// Hits whose thread's working memory could not be had.
    pub no_state: u64,
    /// Hits that gave way to the ends of spans, or found the ring buffer full.
    pub ring_full: u64,
    /// Hits at which another program had done the instruction already, so that the registers were no longer the line's.
    pub disturbed: u64,
    /// Place of the instruction within its page.
    pub page_offset: u32,
    /// [`HitSlot::RECORD`] and [`HitSlot::STACK`].
    pub flags: u32,
    /// The way that a conditional jump at the site has to go for a hit: 0 for any, else 1 + the number of the condition
    /// that has to hold.
    pub branch: u32,
    /// Gates that a span opens whose beginning is recorded, beside those of its step.
    pub opens: u32,
    /// Plans whose values are recorded where the span returns.
    pub followed: u32,
    /// The process whose threads count, where the kernel runs the program for all: at its own places.
    pub tgid: u32,
    /// Plans that a span has to pass where it returns, to count.
    pub decided: u32,
    /// Always 0.
    pub zero: u32,
    /// What has to hold first; [`Test::NONE`] where that is for the plans to say.
    pub test: Test,
    /// Hits of a line that it has rejected, which are counted nowhere else: one atomic addition is half of what they cost.
    pub refused: u64,
}

impl HitSlot {
    /// Hits are recorded, and not only counted.
    pub const RECORD: u32 = 1;
    /// With the thread's stack.
    pub const STACK: u32 = 2;
}

assert_layout!(HitSlot, size 136,
    id at 0, first_plan at 4, required at 8, values at 12, interval_ns at 16, next_ns at 24, rejected at 32,
    limited at 40, no_state at 48, ring_full at 56, disturbed at 64, page_offset at 72, flags at 76,
    branch at 80, opens at 84, followed at 88, tgid at 92, decided at 96, zero at 100,
    test at 104, refused at 128);

/// How far hits may run ahead of their limit: as many as it allows in a second are recorded at once.
pub const BURST_NS: u64 = 1_000_000_000;

/// Read plans of all probes together.
pub const MAX_READ_PLANS: u32 = 4096;

/// Probes of one system call of one process.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Watched {
    /// How many there are.
    pub count: u64,
    /// A [`crate::probe::Cookie`] each.
    pub cookies: [u64; Self::MAX],
}

impl Watched {
    /// Probes of one at most; one less than a power of two.
    pub const MAX: usize = 7;

    /// The key that they are found by.
    #[must_use]
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "inlined into eBPF")]
    pub const fn key(tgid: u32, number: u32) -> u64 {
        (tgid as u64) << 32 | number as u64
    }
}

assert_layout!(Watched, size 64, count at 0, cookies at 8);

/// System calls that are watched at once.
pub const MAX_WATCHED: u32 = 1024;

/// A hit: this header, then `values` × ([`ValueHeader`], its bytes, zeros up to a multiple of 8).
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HitHeader {
    /// [`crate::record::HIT`].
    pub kind: u32,
    /// Values that follow.
    pub values: u32,
    /// The process (thread group), in the initial PID namespace.
    pub tgid: u32,
    /// The thread, in the initial PID namespace.
    pub tid: u32,
    /// Whose site it is.
    pub probe: ProbeId,
    /// [`HitHeader::JOINED`] and others.
    pub flags: u32,
    /// `CLOCK_MONOTONIC`.
    pub ts_ns: u64,
    /// Number of the span that its step is observed inside of; 0 where there is none.
    pub parent: u64,
}

impl HitHeader {
    /// It counts if its parent's duration is as asked.
    pub const JOINED: u32 = 1;
    /// A span begins with it, whose number `parent` is.
    pub const ENTRY: u32 = 2;
    /// The thread's stack is in the record before, of the same thread and time.
    pub const STACK: u32 = 4;
    /// A span is about to end, whose number `parent` is: its record follows.
    pub const END: u32 = 8;
}

assert_layout!(HitHeader, size 40,
    kind at 0, values at 4, tgid at 8, tid at 12, probe at 16, flags at 20, ts_ns at 24, parent at 32);

/// What came of a value.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ValueHeader {
    /// A [`crate::values::Outcome`] as a number.
    pub outcome: u32,
    /// Bytes that follow; 0 unless it could be read.
    pub length: u32,
    /// The address that could not be read.
    pub fault: u64,
}

assert_layout!(ValueHeader, size 16, outcome at 0, length at 4, fault at 8);

/// The longest record of a hit.
pub const MAX_HIT_BYTES: usize = size_of::<HitHeader>() + MAX_VALUES * (size_of::<ValueHeader>() + MAX_BYTES);
