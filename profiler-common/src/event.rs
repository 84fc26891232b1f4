//! Events that stacks are taken at: page faults, switches, what the hardware counts.

use crate::assert_layout;

/// Events that stacks are taken at at once, of all sessions together; each has a program.
pub const MAX_EVENTS: usize = 8;

/// Numbers of the events that the kernel's tracepoints tell, behind those: of all sessions that look at them.
pub const BLOCK_BYTES: u32 = 8;
/// The other one.
pub const MEMORY_GROWTH: u32 = 9;

/// Numbers of events.
pub const EVENT_SLOTS: usize = 10;

const _: () = assert!(MAX_EVENTS == BLOCK_BYTES as usize && EVENT_SLOTS == MEMORY_GROWTH as usize + 1);

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
