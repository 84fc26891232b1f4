//! What is shown of the slowest calls at one moment.

use std::sync::Arc;

use profiler_aggregate::{
    calltree::FrameId,
    waits::{Lock, Waker},
};
use profiler_symbolize::FrameTable;

use super::{
    super::{
        ending::Ending,
        flame::Moment,
        picture::{Cost, FunctionInfo, Losses},
        trace::{ThreadName, TracedValue},
    },
    SampledFrom,
};
use crate::kernel::{Activity, CallNumber};

/// A call or hit inside a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SpanChild {
    /// The step as it was asked for; of a glob the function.
    pub place: Arc<str>,
    /// From the beginning of the call that it is inside of.
    pub offset_ns: u64,
    /// `None` of a hit.
    pub duration_ns: Option<u64>,
}

/// What threads did, by [`Activity::ALL`], in nanoseconds.
pub type Times = [u64; Activity::ALL.len()];

/// A part of a call that its thread was off the CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpanPeriod {
    /// What the thread did.
    pub activity: Activity,
    /// From the beginning of the call.
    pub offset_ns: u64,
    /// How long it took.
    pub time_ns: u64,
    /// The system call that the thread was in.
    pub system_call: Option<CallNumber>,
}

/// System calls of one kind and result in a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpanSystemCall {
    /// Which.
    pub call: CallNumber,
    /// The error that they returned; 0 for none.
    pub error: u32,
    /// How many.
    pub count: u64,
    /// How long they took together.
    pub time_ns: u64,
    /// The longest of them.
    pub longest_ns: u64,
}

/// The system calls that returned in a call.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct SpanSystemCalls {
    /// Those that took the most time first.
    pub calls: Vec<SpanSystemCall>,
    /// System calls of further kinds.
    pub left_out: u64,
}

/// When a call's thread was off the CPU.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct SpanPeriods {
    /// The longest parts, in the order of time.
    pub periods: Vec<SpanPeriod>,
    /// Parts beyond those.
    pub left_out: u64,
    /// Their time.
    pub left_out_ns: u64,
}

/// Something that a thread did off the CPU in a call, without a break.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SpanWait {
    /// What it did.
    pub activity: Activity,
    /// From the beginning of the call.
    pub offset_ns: u64,
    /// How long it took.
    pub time_ns: u64,
    /// Where it was, root first, with the lines that ran.
    pub stack: Box<[FrameId]>,
    /// What it waited for in memory, where it was that.
    pub lock: Option<Lock>,
    /// Who ended it; `None` where that was not asked for.
    pub ended_by: Option<Waker>,
}

/// One of the slowest calls.
#[derive(Clone, PartialEq, Debug)]
pub struct SlowSpan {
    /// `CLOCK_MONOTONIC` at its beginning.
    pub start_ns: u64,
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// Whose call it was.
    pub function: Arc<FunctionInfo>,
    /// How long it took.
    pub duration_ns: u64,
    /// What was read where it began; `None` where values were asked for and none were read of this call.
    pub values: Option<Vec<TracedValue>>,
    /// What happened inside, in the order in which it began.
    pub children: Vec<SpanChild>,
    /// What happened inside beyond that.
    pub children_left_out: u64,
    /// The target was sampled when it began.
    pub sampled: bool,
    /// Samples that were taken in it.
    pub samples: u64,
    /// The stack that most of them have, root first, with the lines that ran; empty without samples.
    pub stack: Box<[FrameId]>,
    /// Samples with that stack.
    pub stack_samples: u64,
    /// What the thread did in it: together its duration. `None` where it began before that was recorded.
    pub times: Option<Times>,
    /// How often the thread left the CPU in it.
    pub waits: u64,
    /// The longest that the thread did one thing off the CPU.
    pub longest_wait: Option<SpanWait>,
    /// When the thread was off the CPU in it.
    pub off_cpu: SpanPeriods,
    /// The system calls that returned in it; `None` where it began before they were recorded.
    pub system_calls: Option<SpanSystemCalls>,
}

impl SlowSpan {
    /// Who ended its longest wait, where that was asked for.
    #[must_use]
    pub fn waker(&self) -> Option<&Waker> {
        self.longest_wait.as_ref()?.ended_by.as_ref()
    }
}

/// What a client asks for of the slowest calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpansRequest {
    /// How many are shown.
    pub number: usize,
    /// With who ended waits.
    pub waits: bool,
    /// With the system calls of each call.
    pub system_calls: bool,
}

/// The slowest calls of a session.
#[derive(Clone, Debug)]
pub struct SpansPicture {
    /// Canonical text of the scope.
    pub scope: Arc<str>,
    /// Slowest first.
    pub spans: Vec<Arc<SlowSpan>>,
    /// Frames by number; only ever appended to.
    pub frames: FrameTable,
    /// Calls that ended in the window, and while they were watched.
    pub calls: u64,
    /// Length of the window.
    pub window_ns: u64,
    /// How long they have been watched: since the first stream was opened, or the scope was edited to show other calls.
    pub watched_ns: u64,
    /// The target is sampled for them.
    pub sampled: bool,
    /// Ends of calls that take at least this long are recorded.
    pub threshold_ns: u64,
    /// What was left out, by reason.
    pub lost: Losses,
    /// What the daemon costs.
    pub cost: Cost,
    /// What threads were called when it was recorded; `None` where they can be asked now.
    pub thread_names: Option<Vec<ThreadName>>,
    /// Why this is the last one.
    pub ended: Option<Ending>,
}

impl SpansPicture {
    /// One of a scope without calls.
    pub(in crate::session) fn without(
        window_ns: u64,
        sampled_from: SampledFrom,
        moment: &Moment<'_>,
    ) -> Self {
        Self {
            scope: Arc::clone(moment.scope),
            spans: Vec::new(),
            frames: moment.frames.clone(),
            calls: 0,
            window_ns,
            watched_ns: 0,
            sampled: sampled_from.is_sampled(),
            threshold_ns: 0,
            lost: Losses::new(),
            cost: moment.cost,
            thread_names: None,
            ended: moment.ended.cloned(),
        }
    }

    /// It as one of a stream, which has asked for this.
    pub(in crate::session) fn of_stream(&self, request: SpansRequest) -> Self {
        let spans = self.spans.iter().take(request.number).cloned().collect();
        Self {
            spans,
            ..self.clone()
        }
    }
}
