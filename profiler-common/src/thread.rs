//! A thread's stack of open spans, kept in task storage.

use crate::{assert_layout, limits::MAX_DEPTH, probe::ProbeId};

/// One open span of a thread.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct OpenSpan {
    /// Whose span it is.
    pub probe: ProbeId,
    /// Samples that hit it; its end emits a record only where this is not 0.
    pub hits: u16,
    /// The entry's [`crate::probe::Cookie`] flags.
    pub flags: u16,
    /// `CLOCK_MONOTONIC` at entry.
    pub start_ns: u64,
    /// Stack pointer at entry, where the return address lies.
    pub stack_pointer: u64,
    /// Number of the span within its thread; with the thread id, the span's id.
    pub sequence: u64,
    /// The return address, where [`crate::probe::Cookie::STACKS_SWITCH`] asks for it; else 0.
    pub return_address: u64,
    /// Time that the samples which hit it took of the thread; its duration is less by this.
    pub sampling_ns: u64,
}

assert_layout!(OpenSpan, size 48,
    probe at 0, hits at 4, flags at 6, start_ns at 8, stack_pointer at 16, sequence at 24,
    return_address at 32, sampling_ns at 40);

/// A thread's open spans, outermost first.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ThreadState {
    /// Open spans. Written after the span it admits is complete: the sampler may interrupt.
    pub depth: u32,
    /// How many of them end by a return probe; the kernel keeps a bounded number pending.
    pub pending_returns: u32,
    /// Spans begun by the thread so far.
    pub sequence: u64,
    /// The spans.
    pub spans: [OpenSpan; MAX_DEPTH],
}

assert_layout!(ThreadState, size 16 + 48 * MAX_DEPTH,
    depth at 0, pending_returns at 4, sequence at 8, spans at 16);
