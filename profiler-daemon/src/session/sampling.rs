//! What became of the samples on their way here: attempted = delivered + the sum of what was dropped.

use profiler_common::counter::Counter;

use super::{picture::Losses, symbols::Dropped};
use crate::kernel::Engine;

/// Counters of the way from the sampler to the sessions, of all of them together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sampling {
    /// Samples of a target's thread.
    pub attempted: u64,
    sample_ring_full: u64,
    sample_yielded: u64,
    span_end_ring_full: u64,
    dropped: Dropped,
}

impl Sampling {
    /// As it stands.
    pub fn now(engine: &Engine, dropped: Dropped) -> Self {
        Self {
            attempted: engine.counter(Counter::SampleAttempted),
            sample_ring_full: engine.counter(Counter::SampleRingFull),
            sample_yielded: engine.counter(Counter::SampleYielded),
            span_end_ring_full: engine.counter(Counter::SpanEndRingFull),
            dropped,
        }
    }

    /// What came since an earlier reading.
    pub fn since(self, before: Self) -> Self {
        Self {
            attempted: self.attempted.saturating_sub(before.attempted),
            sample_ring_full: self.sample_ring_full.saturating_sub(before.sample_ring_full),
            sample_yielded: self.sample_yielded.saturating_sub(before.sample_yielded),
            span_end_ring_full: self.span_end_ring_full.saturating_sub(before.span_end_ring_full),
            dropped: Dropped {
                samples: self.dropped.samples.saturating_sub(before.dropped.samples),
                span_ends: self.dropped.span_ends.saturating_sub(before.dropped.span_ends),
            },
        }
    }

    /// Losses by reason: those of samples begin with `sample_`.
    pub fn losses(&self) -> Losses {
        let Self {
            attempted: _,
            sample_ring_full,
            sample_yielded,
            span_end_ring_full,
            dropped: Dropped { samples, span_ends },
        } = *self;
        [
            ("sample_ring_full", sample_ring_full),
            ("sample_yielded", sample_yielded),
            ("sample_symbols_behind", samples),
            ("span_end_ring_full", span_end_ring_full),
            ("span_end_symbols_behind", span_ends),
        ]
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .collect()
    }
}
