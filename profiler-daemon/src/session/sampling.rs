//! The fate of samples on their way here: attempted = delivered + the sum of all losses.

use profiler_common::counter::Counter;

use super::{
    picture::{FlameTimes, Losses},
    symbols::Dropped,
};
use crate::kernel::{Activity, Engine, EventCounts};

/// Counters of the way from the programs to the sessions, of all of them together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sampling {
    ticks: Way,
    off_cpu: Way,
    /// Intervals whose threads were more than are kept.
    off_cpu_limit: u64,
    /// Intervals whose end was not seen.
    off_cpu_unseen: u64,
    /// Intervals without a stack.
    off_cpu_stack_skipped: u64,
    off_cpu_stack_ring_full: u64,
    /// Intervals without the kernel's part of it.
    off_cpu_stack_no_kernel: u64,
    /// Allocations that are not known.
    allocation_limit: u64,
    allocation_missed: u64,
    allocation_skipped: u64,
    span_end_ring_full: u64,
    dropped: Dropped,
}

/// What became of the samples that a flame graph is drawn of.
#[derive(Clone, Copy, Default)]
pub struct SampleCounts {
    pub sampling: Sampling,
    /// Of those of an event.
    pub events: EventCounts,
}

impl SampleCounts {
    /// What came since an earlier reading.
    pub fn since(self, before: Self) -> Self {
        Self {
            sampling: self.sampling.since(before.sampling),
            events: self.events.since(before.events),
        }
    }
}

/// Counters of one kind of samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Way {
    attempted: u64,
    ring_full: u64,
    yielded: u64,
}

impl Way {
    fn since(self, before: Self) -> Self {
        Self {
            attempted: self.attempted.saturating_sub(before.attempted),
            ring_full: self.ring_full.saturating_sub(before.ring_full),
            yielded: self.yielded.saturating_sub(before.yielded),
        }
    }
}

impl Sampling {
    /// As it stands.
    pub fn now(engine: &Engine, dropped: Dropped) -> Self {
        let way = |attempted, ring_full, yielded| Way {
            attempted: engine.counter(attempted),
            ring_full: engine.counter(ring_full),
            yielded: engine.counter(yielded),
        };
        Self {
            ticks: way(
                Counter::SampleAttempted,
                Counter::SampleRingFull,
                Counter::SampleYielded,
            ),
            off_cpu: way(
                Counter::OffCpuAttempted,
                Counter::OffCpuRingFull,
                Counter::OffCpuYielded,
            ),
            off_cpu_limit: engine.counter(Counter::OffCpuLimit),
            off_cpu_unseen: engine.counter(Counter::OffCpuUnseen),
            off_cpu_stack_skipped: engine.counter(Counter::OffCpuStackSkipped),
            off_cpu_stack_ring_full: engine.counter(Counter::OffCpuStackRingFull),
            off_cpu_stack_no_kernel: engine.counter(Counter::OffCpuStackNoKernel),
            allocation_limit: engine.counter(Counter::AllocationLimit),
            allocation_missed: engine.counter(Counter::AllocationMissed),
            allocation_skipped: engine.counter(Counter::AllocationSkipped),
            span_end_ring_full: engine.counter(Counter::SpanEndRingFull),
            dropped,
        }
    }

    /// What came since an earlier reading.
    pub fn since(self, before: Self) -> Self {
        Self {
            ticks: self.ticks.since(before.ticks),
            off_cpu: self.off_cpu.since(before.off_cpu),
            off_cpu_limit: self.off_cpu_limit.saturating_sub(before.off_cpu_limit),
            off_cpu_unseen: self.off_cpu_unseen.saturating_sub(before.off_cpu_unseen),
            off_cpu_stack_skipped: self
                .off_cpu_stack_skipped
                .saturating_sub(before.off_cpu_stack_skipped),
            off_cpu_stack_ring_full: self
                .off_cpu_stack_ring_full
                .saturating_sub(before.off_cpu_stack_ring_full),
            off_cpu_stack_no_kernel: self
                .off_cpu_stack_no_kernel
                .saturating_sub(before.off_cpu_stack_no_kernel),
            allocation_limit: self.allocation_limit.saturating_sub(before.allocation_limit),
            allocation_missed: self.allocation_missed.saturating_sub(before.allocation_missed),
            allocation_skipped: self.allocation_skipped.saturating_sub(before.allocation_skipped),
            span_end_ring_full: self.span_end_ring_full.saturating_sub(before.span_end_ring_full),
            dropped: Dropped {
                samples: self.dropped.samples.saturating_sub(before.dropped.samples),
                events: self.dropped.events.saturating_sub(before.dropped.events),
                span_ends: self.dropped.span_ends.saturating_sub(before.dropped.span_ends),
                system_calls: self
                    .dropped
                    .system_calls
                    .saturating_sub(before.dropped.system_calls),
            },
        }
    }

    /// All counters by name, as they are recorded.
    pub fn counters(&self) -> [(&'static str, u64); 17] {
        [
            ("sample_attempted", self.ticks.attempted),
            ("sample_ring_full", self.ticks.ring_full),
            ("sample_yielded", self.ticks.yielded),
            ("off_cpu_attempted", self.off_cpu.attempted),
            ("off_cpu_ring_full", self.off_cpu.ring_full),
            ("off_cpu_yielded", self.off_cpu.yielded),
            ("off_cpu_limit", self.off_cpu_limit),
            ("off_cpu_unseen", self.off_cpu_unseen),
            ("off_cpu_stack_skipped", self.off_cpu_stack_skipped),
            ("off_cpu_stack_ring_full", self.off_cpu_stack_ring_full),
            ("off_cpu_stack_no_kernel", self.off_cpu_stack_no_kernel),
            ("allocation_limit", self.allocation_limit),
            ("allocation_missed", self.allocation_missed),
            ("allocation_skipped", self.allocation_skipped),
            ("sample_symbols_behind", self.dropped.samples),
            ("event_symbols_behind", self.dropped.events),
            ("span_end_symbols_behind", self.dropped.span_ends),
        ]
    }

    /// Counters that were recorded, by name.
    pub fn of_counters(recorded: impl Fn(&str) -> u64) -> Self {
        let way = |attempted, ring_full, yielded| Way {
            attempted: recorded(attempted),
            ring_full: recorded(ring_full),
            yielded: recorded(yielded),
        };
        Self {
            ticks: way("sample_attempted", "sample_ring_full", "sample_yielded"),
            off_cpu: way("off_cpu_attempted", "off_cpu_ring_full", "off_cpu_yielded"),
            off_cpu_limit: recorded("off_cpu_limit"),
            off_cpu_unseen: recorded("off_cpu_unseen"),
            off_cpu_stack_skipped: recorded("off_cpu_stack_skipped"),
            off_cpu_stack_ring_full: recorded("off_cpu_stack_ring_full"),
            off_cpu_stack_no_kernel: recorded("off_cpu_stack_no_kernel"),
            allocation_limit: recorded("allocation_limit"),
            allocation_missed: recorded("allocation_missed"),
            allocation_skipped: recorded("allocation_skipped"),
            span_end_ring_full: recorded("span_end_ring_full"),
            dropped: Dropped {
                samples: recorded("sample_symbols_behind"),
                span_ends: recorded("span_end_symbols_behind"),
                events: recorded("event_symbols_behind"),
                // They are told with the slowest calls alone.
                system_calls: 0,
            },
        }
    }

    /// Whether ends of calls were lost.
    pub fn loses_ends(&self) -> bool {
        self.span_end_ring_full > 0 || self.dropped.span_ends > 0
    }

    /// How many intervals that threads were off the CPU were lost: samples of them, and not of their stacks alone.
    pub fn lost_waits(&self) -> u64 {
        let Way {
            ring_full, yielded, ..
        } = self.off_cpu;
        let lost = [
            ring_full,
            yielded,
            self.off_cpu_limit,
            self.off_cpu_unseen,
            self.dropped.samples,
        ];
        lost.into_iter().fold(0, u64::saturating_add)
    }

    /// Samples of a target's threads, in these times.
    pub fn attempted(&self, times: FlameTimes) -> u64 {
        let of = |way: Way, is_drawn: bool| if is_drawn { way.attempted } else { 0 };
        let (on, off) = (times.contain(Activity::OnCpu), times.contain(Activity::Runnable));
        of(self.ticks, on).saturating_add(of(self.off_cpu, off))
    }

    /// Losses by reason, in these times: those of samples begin with `sample_` and `off_cpu_`, but those of their stacks
    /// alone with `off_cpu_stack_`.
    pub fn losses(&self, times: FlameTimes) -> Losses {
        let Self {
            ticks,
            off_cpu,
            off_cpu_limit,
            off_cpu_unseen,
            off_cpu_stack_skipped,
            off_cpu_stack_ring_full,
            off_cpu_stack_no_kernel,
            allocation_limit,
            allocation_missed,
            allocation_skipped,
            span_end_ring_full,
            dropped:
                Dropped {
                    samples,
                    events,
                    span_ends,
                    system_calls: _,
                },
        } = *self;
        let (on, off) = (times.contain(Activity::OnCpu), times.contain(Activity::Runnable));
        [
            ("sample_ring_full", ticks.ring_full, on),
            ("sample_yielded", ticks.yielded, on),
            ("sample_symbols_behind", samples, on || off),
            ("event_symbols_behind", events, times.event().is_some()),
            ("off_cpu_ring_full", off_cpu.ring_full, off),
            ("off_cpu_yielded", off_cpu.yielded, off),
            ("off_cpu_limit", off_cpu_limit, off),
            ("off_cpu_unseen", off_cpu_unseen, off),
            ("off_cpu_stack_skipped", off_cpu_stack_skipped, off),
            ("off_cpu_stack_no_kernel", off_cpu_stack_no_kernel, off),
            ("off_cpu_stack_ring_full", off_cpu_stack_ring_full, off),
            ("allocation_limit", allocation_limit, off),
            ("allocation_missed", allocation_missed, off),
            ("allocation_skipped", allocation_skipped, off),
            ("span_end_ring_full", span_end_ring_full, true),
            ("span_end_symbols_behind", span_ends, true),
        ]
        .into_iter()
        .filter(|(_, count, is_drawn)| *count > 0 && *is_drawn)
        .map(|(reason, count, _)| (reason, count))
        .collect()
    }
}

/// Losses of an event's samples by reason.
pub fn event_losses(counts: EventCounts) -> Losses {
    let EventCounts {
        attempted: _,
        limited,
        yielded,
        ring_full,
        unseen,
    } = counts;
    [
        ("event_rate_limit", limited),
        ("event_yielded", yielded),
        ("event_ring_full", ring_full),
        ("event_unseen", unseen),
    ]
    .into_iter()
    .filter(|(_, count)| *count > 0)
    .collect()
}
