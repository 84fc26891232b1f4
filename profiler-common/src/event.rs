//! Events that stacks are taken at: page faults, switches, what the hardware counts.

use crate::assert_layout;

/// Events that stacks are taken at at once, of all sessions together; each has a program.
pub const MAX_EVENTS: usize = 8;

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
