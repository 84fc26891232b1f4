//! Events that stacks are taken at: page faults, switches, what the hardware counts.

use crate::assert_layout;

/// Events that stacks are taken at at once, of all sessions together; each has a program.
pub const MAX_EVENTS: usize = 8;

/// Numbers of the events that the kernel's tracepoints tell, behind those: of all sessions that look at them.
pub const BLOCK_BYTES: u32 = 8;
/// What processes' memory grows by.
pub const MEMORY_GROWTH: u32 = 9;
/// Requests to block devices, whose weight comes with their end: see [`crate::record::Weight`].
pub const BLOCK_LATENCY: u32 = 10;

/// Numbers of events.
pub const EVENT_SLOTS: usize = 11;

const _: () = assert!(MAX_EVENTS == BLOCK_BYTES as usize && EVENT_SLOTS == BLOCK_LATENCY as usize + 1);

/// Requests to block devices that may be on their way at once; those beyond are counted as [`EventSlot::limited`].
pub const MAX_OPEN_REQUESTS: usize = 8192;

/// Parts of one request of a device, at most, that are looked at where it ends: what threads handed over and was put together.
pub const MAX_MERGED: u32 = 1024;

/// A request to a block device that is on its way, of a thread that is looked at.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenRequest {
    /// `CLOCK_MONOTONIC`, when it was handed over: [`crate::record::SampleHeader::ts_ns`].
    pub ts_ns: u64,
    /// When its stack had been taken: what that took is not the request's.
    pub begin_ns: u64,
    /// The process that did so.
    pub tgid: u32,
    /// The thread.
    pub tid: u32,
}

assert_layout!(OpenRequest, size 24, ts_ns at 0, begin_ns at 8, tgid at 16, tid at 20);

/// Threads that may be moving the end of their heaps at once.
pub const MAX_OPEN_BREAKS: usize = 1024;

/// What became of the samples of one event; counters are incremented atomically.
///
/// Those attempted are those sent, and those that each other counter has.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EventSlot {
    /// Samples that should have become a record.
    pub attempted: u64,
    /// Samples beyond the limit.
    pub limited: u64,
    /// Samples dropped to leave the ring buffer's last quarter to span ends.
    pub yielded: u64,
    /// Samples dropped because the ring buffer was full.
    pub ring_full: u64,
    /// When the next sample would come if they came at their limit.
    pub next_ns: u64,
    /// Always 0.
    pub zero: [u64; 3],
}

assert_layout!(EventSlot, size 64,
    attempted at 0, limited at 8, yielded at 16, ring_full at 24, next_ns at 32, zero at 40);

/// Samples of an event in a second, on average; those beyond are counted as `event_rate_limit`.
pub const MAX_PER_SECOND: u64 = 20_000;

/// Time between two samples at that limit.
pub const INTERVAL_NS: u64 = 1_000_000_000 / MAX_PER_SECOND;

/// How far samples may run ahead of their limit: as many as come at it in a second are taken at once.
pub const BURST_NS: u64 = 1_000_000_000;
