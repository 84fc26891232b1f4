//! Which call something was in, where a record names it by the number that its thread gave it.

use profiler_common::record::{SpanEnd, SpanRef};

/// A call of a thread, as long as it has not ended: a thread's numbers come again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct OpenCall {
    /// The thread.
    pub tid: u32,
    /// Its number, of which frames have 32 bits.
    pub number: u32,
}

impl OpenCall {
    /// The call of a thread that a record refers to.
    #[must_use]
    pub fn referred(tid: u32, span: &SpanRef) -> Self {
        Self::new(tid, span.sequence)
    }

    /// The call that ends.
    #[must_use]
    pub fn ending(end: &SpanEnd) -> Self {
        Self::new(end.tid, end.sequence)
    }

    /// The call that one is in which ends, as the record of its end has it.
    #[must_use]
    pub fn around(end: &SpanEnd) -> Self {
        Self {
            tid: end.tid,
            number: end.parent,
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "numbers of spans have 32 bits in frames"
    )]
    fn new(tid: u32, sequence: u64) -> Self {
        Self {
            tid,
            number: sequence as u32,
        }
    }
}
