//! What became of spans and hits on their way from the kernel, of all sessions together.
//!
//! See `docs/internals/losses.md` for every reason of a loss.

use profiler_common::counter::Counter;
use profiler_scope::{Place, Scope};

use crate::kernel::{Engine, Missed};

/// What one session does not see, whatever its probes record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OwnLosses {
    /// Times that programs were at something in a process between an exec and when the session's owner was asked about anew.
    pub not_admitted: u64,
    /// Functions and lines whose probes were taken off the target, as they cost too much: they are not seen since.
    pub over_budget: u64,
    /// Functions and lines whose probes were taken off the target, as their code was changed there: they are not seen since.
    pub code_changed: u64,
    /// Processes that those of the session began with a copy of their memory: they stop at the probes in it, and are not looked at.
    pub children: u64,
    /// Files of its processes, of each process by itself, that have no unwind table, as there was no room for it, or none for their user:
    /// their part of stacks is walked along frame pointers.
    pub no_unwind_table: u64,
}

/// Their name among the losses.
pub const CHILDREN: &str = "children_not_counted";

impl OwnLosses {
    /// What came since an earlier reading.
    pub fn since(self, before: Self) -> Self {
        Self {
            not_admitted: self.not_admitted.saturating_sub(before.not_admitted),
            over_budget: self.over_budget.saturating_sub(before.over_budget),
            code_changed: self.code_changed.saturating_sub(before.code_changed),
            children: self.children.saturating_sub(before.children),
            no_unwind_table: self.no_unwind_table.saturating_sub(before.no_unwind_table),
        }
    }

    /// All by reason.
    pub fn counters(self) -> [(&'static str, u64); 5] {
        [
            ("not_admitted", self.not_admitted),
            ("over_budget", self.over_budget),
            ("code_changed", self.code_changed),
            (CHILDREN, self.children),
            ("no_unwind_table", self.no_unwind_table),
        ]
    }

    /// Those that were recorded, by reason.
    pub fn of_counters(recorded: impl Fn(&str) -> u64) -> Self {
        Self {
            not_admitted: recorded("not_admitted"),
            over_budget: recorded("over_budget"),
            code_changed: recorded("code_changed"),
            children: recorded(CHILDREN),
            no_unwind_table: recorded("no_unwind_table"),
        }
    }

    /// Those that there are, by reason.
    pub fn by_reason(self) -> impl Iterator<Item = (&'static str, u64)> {
        positive(self.counters())
    }
}

/// Counters, as they stand or since an earlier reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SpanLosses {
    ring_full: u64,
    yielded: u64,
    missed: Missed,
}

impl SpanLosses {
    /// As they stand.
    pub fn now(engine: &Engine) -> Self {
        Self {
            ring_full: engine.counter(Counter::SpanEndRingFull),
            yielded: engine.counter(Counter::SlowEndYielded),
            missed: engine.missed(),
        }
    }

    /// What came since an earlier reading.
    pub fn since(self, before: Self) -> Self {
        Self {
            ring_full: self.ring_full.saturating_sub(before.ring_full),
            yielded: self.yielded.saturating_sub(before.yielded),
            missed: self.missed.since(before.missed),
        }
    }

    /// All counters by name, as they are recorded.
    pub fn counters(self) -> [(&'static str, u64); 4] {
        [
            ("span_end_ring_full", self.ring_full),
            ("slow_end_yielded", self.yielded),
            ("syscall_missed", self.missed.call_spans),
            ("place_missed", self.missed.places),
        ]
    }

    /// Counters that were recorded, by name.
    pub fn of_counters(recorded: impl Fn(&str) -> u64) -> Self {
        Self {
            ring_full: recorded("span_end_ring_full"),
            yielded: recorded("slow_end_yielded"),
            missed: Missed {
                call_spans: recorded("syscall_missed"),
                places: recorded("place_missed"),
            },
        }
    }

    /// Records of slow spans that were lost, by reason.
    pub fn of_records(self) -> impl Iterator<Item = (&'static str, u64)> {
        positive([
            ("span_end_ring_full", self.ring_full),
            ("slow_end_yielded", self.yielded),
        ])
    }

    /// What was not seen at a scope's places of the kernel, of all processes, by reason.
    pub fn unseen(self, scope: &Scope) -> impl Iterator<Item = (&'static str, u64)> {
        let has = |is: fn(&Place) -> bool| scope.steps.iter().any(|step| is(&step.place));
        let of = |count: u64, is_asked: bool| if is_asked { count } else { 0 };
        let calls = has(|place| matches!(place, Place::SystemCall(_)));
        let places = has(|place| matches!(place, Place::Tracepoint { .. } | Place::KernelFunction(_)));
        positive([
            ("syscall_missed", of(self.missed.call_spans, calls)),
            ("place_missed", of(self.missed.places, places)),
        ])
    }
}

fn positive<const N: usize>(counts: [(&'static str, u64); N]) -> impl Iterator<Item = (&'static str, u64)> {
    counts.into_iter().filter(|(_, count)| *count > 0)
}
