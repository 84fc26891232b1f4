//! One record: a sample, the end of a call, a hit, a wait.

use std::{collections::HashSet, sync::Arc};

use profiler_aggregate::{ThreadId, waits::Wait};
use profiler_common::{
    probe::ProbeId,
    record::{SpanEnd, SpanRef, Weight},
};
use profiler_plan::values::Reading;
use profiler_symbolize::Stacks;

use super::{
    super::symbols::{Named, NamedStack, Task},
    scope::GROUPINGS,
};
use crate::kernel::{Activity, CallNumber, Event, Key};

/// A record.
#[derive(Clone, Debug)]
pub enum Recorded {
    /// A sample.
    Sample(RecordedSample),
    /// The end of a call.
    SpanEnd(SpanEnd),
    /// A line was reached.
    Reached(RecordedReached, RecordedLook),
    /// A thread was off the CPU.
    Wait(Box<RecordedWait>),
    /// An event happened.
    AtEvent(Box<RecordedAtEvent>),
    /// A call ended that was looked at where it began. That it ended is a record of its own, before this one.
    Call(SpanEnd, RecordedLook),
}

impl Recorded {
    /// A record that is kept; `None` of one that flame graphs and latency are not made of.
    pub(super) fn of(named: &Named) -> Option<Self> {
        match named {
            Named::SpanEnd(end) => Some(Self::SpanEnd(*end)),
            Named::Sample { event: 0, .. } => RecordedSample::of(named).map(Self::Sample),
            _ => None,
        }
    }

    /// How much memory they take; equal stacks once.
    pub(super) fn bytes_of(records: &[Self]) -> usize {
        let mut seen = HashSet::new();
        let stacks = records
            .iter()
            .filter_map(Self::sample)
            .map(|sample| &sample.stacks);
        let stacks = stacks.filter(|stacks| seen.insert(stacks.address()));
        let stacks: usize = stacks.map(Stacks::bytes).sum();
        stacks + records.iter().map(Self::bytes).sum::<usize>()
    }

    /// The sample that it is, of time or at an event.
    fn sample(&self) -> Option<&RecordedSample> {
        match self {
            Self::Sample(sample) => Some(sample),
            Self::AtEvent(at) => match &at.what {
                AtEvent::Sample(sample, _) => Some(sample),
                AtEvent::Weight(_) => None,
            },
            _ => None,
        }
    }

    /// How much memory it takes, but for the stack of a sample.
    fn bytes(&self) -> usize {
        let more = match self {
            Self::Sample(sample) => size_of_val(sample.spans.as_slice()),
            Self::SpanEnd(_) => 0,
            Self::Reached(_, look) | Self::Call(_, look) => look.bytes(),
            Self::Wait(wait) => size_of_val(&**wait) + size_of_val(wait.spans.as_slice()),
            Self::AtEvent(at) => {
                let spans = self
                    .sample()
                    .map_or(0, |sample| size_of_val(sample.spans.as_slice()));
                size_of_val(&**at) + spans
            }
        };
        size_of_val(self) + more
    }
}

/// A sample of time.
#[derive(Clone, Debug)]
pub struct RecordedSample {
    /// Its process.
    pub tgid: u32,
    /// Its thread.
    pub tid: u32,
    /// When it was taken; of time off the CPU its end.
    pub ts_ns: u64,
    /// Time that it stands for.
    pub weight_ns: u64,
    /// What the thread did.
    pub activity: Activity,
    /// It is a part of the one before, and counts no more.
    pub continues: bool,
    /// Where, in each of the recorded groupings.
    pub stacks: Stacks,
    /// The system call that it left the CPU in.
    pub system_call: Option<CallNumber>,
    /// What its thread is called, where that is known.
    pub task: Option<Task>,
    /// Whether its stack reaches a known root.
    pub complete: bool,
    /// Calls that were open, outermost first.
    pub spans: Vec<SpanRef>,
}

impl RecordedSample {
    /// A sample that is kept; `None` of what is none, and of one whose stack was named for other views alone, as the recording had
    /// hardly begun.
    pub(super) fn of(named: &Named) -> Option<Self> {
        let Named::Sample {
            event: _,
            tgid,
            tid,
            ts_ns,
            until_ns: _,
            weight,
            key: _,
            activity,
            count,
            spans,
            stacks,
            complete,
            goes_on: _,
            lock: _,
            system_call,
            task,
        } = named
        else {
            return None;
        };
        if GROUPINGS.iter().any(|grouping| stacks.of(*grouping).is_none()) {
            return None;
        }
        Some(Self {
            tgid: *tgid,
            tid: *tid,
            ts_ns: *ts_ns,
            weight_ns: *weight,
            activity: *activity,
            continues: *count == 0,
            stacks: stacks.clone(),
            system_call: *system_call,
            task: *task,
            complete: *complete,
            spans: spans.clone(),
        })
    }

    /// When the time that it stands for began.
    #[must_use]
    pub fn begin_ns(&self) -> u64 {
        self.ts_ns.saturating_sub(self.weight_ns)
    }

    /// What of it lies behind a time, where it is an interval off the CPU.
    #[must_use]
    pub fn since(mut self, since_ns: u64) -> Self {
        if self.activity != Activity::OnCpu {
            self.weight_ns = self.weight_ns.min(self.ts_ns.saturating_sub(since_ns));
        }
        self
    }

    /// It is an interval off the CPU in no call.
    #[must_use]
    pub fn is_outside(&self) -> bool {
        self.activity != Activity::OnCpu && self.spans.is_empty()
    }
}

/// What was read at a hit.
#[derive(Clone, PartialEq, Debug)]
pub struct RecordedLook {
    /// In the order of the place's expressions.
    pub values: Vec<Reading>,
    /// Of the thread, where it was asked for.
    pub stack: Option<Arc<NamedStack>>,
}

impl RecordedLook {
    fn bytes(&self) -> usize {
        let values: usize = self.values.iter().map(Reading::bytes).sum();
        let stack = self.stack.as_ref();
        values + stack.map_or(0, |stack| size_of_val(stack.frames.as_slice()))
    }
}

/// A line that was reached, whatever the calls around it took.
#[derive(Clone, PartialEq, Debug)]
pub struct RecordedReached {
    /// Its process.
    pub tgid: u32,
    /// Its thread.
    pub tid: u32,
    /// The line's.
    pub probe: ProbeId,
    /// When.
    pub ts_ns: u64,
    /// Number of the span that it is in, within its thread; 0 for none.
    pub parent: u64,
    /// It counts by the duration of that span.
    pub joined: bool,
}

/// An interval that a thread was off the CPU.
#[derive(Clone, Debug)]
pub struct RecordedWait {
    /// What it was, and who ended it.
    pub wait: Wait,
    /// Spans that were open, outermost first.
    pub spans: Vec<SpanRef>,
}

/// Threads that were off the CPU at a time from which on all waits are told.
#[derive(Clone, Debug)]
pub struct OffAtFirst {
    /// From when on.
    pub since_ns: u64,
    /// By process and number.
    pub threads: HashSet<ThreadId>,
}

/// What came of an event that stacks are taken at.
#[derive(Clone, Debug)]
pub struct RecordedAtEvent {
    /// Which event.
    pub event: Event,
    /// What came.
    pub what: AtEvent,
}

/// A sample that was taken at an event, or the weight of one.
#[derive(Clone, Debug)]
pub enum AtEvent {
    /// A sample, and what it was about.
    Sample(RecordedSample, Key),
    /// The weight of a sample before.
    Weight(Weight),
}
