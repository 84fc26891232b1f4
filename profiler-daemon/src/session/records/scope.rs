//! What is recorded: the scope, with what beyond it a reader asks for.

use std::{collections::BTreeSet, sync::Arc};

use profiler_aggregate::latency::AgeConfig;
use profiler_common::probe::ProbeId;
use profiler_symbolize::Grouping;

use super::super::{
    functions::Functions,
    lines::TracedPlace,
    picture::{ExitMethod, FunctionInfo},
    steps::RunningStep,
};
use crate::kernel::Event;

/// Events that a recording has stacks of, at most.
pub const MAX_RECORDED_EVENTS: usize = 16;

/// What stacks are recorded in.
pub const GROUPINGS: [Grouping; 2] = [Grouping::Function, Grouping::Line];

/// What is looked at.
#[derive(Clone, Debug)]
pub struct RecordedScope {
    /// Canonical text.
    pub text: Arc<str>,
    /// From the outermost on.
    pub steps: Vec<RecordedStep>,
    /// Processes that are looked at.
    pub pids: Vec<u32>,
    /// Samples per second and CPU.
    pub frequency_hz: u32,
    /// How the session's histograms age.
    pub ages: AgeConfig,
    /// What the user should know.
    pub warnings: Vec<String>,
    /// Where hits are recorded.
    pub places: Vec<RecordedPlace>,
    /// Time off the CPU is recorded of all threads, in calls or not, and not in calls alone.
    pub off_cpu: bool,
    /// Events that stacks are taken at.
    pub events: Vec<Event>,
}

impl RecordedScope {
    /// Whether intervals off the CPU are recorded that lie in no call: where they are asked for, or come with those in calls.
    #[must_use]
    pub fn has_outside(&self) -> bool {
        self.off_cpu || self.steps.iter().any(|step| !step.functions.is_empty())
    }

    /// The steps of a running scope.
    pub fn steps<'a>(steps: impl Iterator<Item = &'a RunningStep>) -> Vec<RecordedStep> {
        use crate::session::division::CountedStep as _;
        steps
            .map(|step| RecordedStep {
                text: step.step.to_string(),
                functions: functions(&step.functions),
                gates: step.gate_bits(),
            })
            .collect()
    }
}

/// A step that is recorded.
#[derive(Clone, Debug)]
pub struct RecordedStep {
    /// Its canonical text.
    pub text: String,
    /// Functions whose calls it is of.
    pub functions: Vec<RecordedFunction>,
    /// The bits of the gate that it opens.
    pub gates: u32,
}

fn functions(functions: &Functions) -> Vec<RecordedFunction> {
    functions
        .iter()
        .map(|function| RecordedFunction {
            info: Arc::clone(&function.info),
            method: function.method,
            overhead_ns: function.overhead_ns(),
            probes: function.probes().collect(),
        })
        .collect()
}

/// A function of a step that is recorded.
#[derive(Clone, Debug)]
pub struct RecordedFunction {
    /// Which function.
    pub info: Arc<FunctionInfo>,
    /// How the end of its calls is seen.
    pub method: ExitMethod,
    /// The probes' own share of a duration.
    pub overhead_ns: u64,
    /// One for each process.
    pub probes: Vec<ProbeId>,
}

/// A place whose hits are recorded.
#[derive(Clone, Debug)]
pub struct RecordedPlace {
    /// Its probe.
    pub probe: ProbeId,
    /// Where.
    pub place: Arc<TracedPlace>,
    /// Its hits are calls.
    pub is_call: bool,
    /// How many are shown of a second, where it is known only at the end of a call which of them are; 0 for all.
    pub shown_per_second: u64,
    /// The values of its hits, in their order.
    pub expressions: Vec<RecordedExpression>,
}

/// An expression that is read at each hit of a place.
#[derive(Clone, Debug)]
pub struct RecordedExpression {
    /// As it was understood.
    pub expression: Arc<str>,
    /// Empty where it is not known.
    pub type_name: Arc<str>,
}

/// What is recorded beyond samples, calls and hits.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct MoreRecords {
    /// Waits.
    pub waits: bool,
    /// System calls.
    pub syscalls: bool,
    /// Time off the CPU of all threads, in calls or not.
    pub off_cpu: bool,
    /// Stacks at these events.
    pub events: BTreeSet<Event>,
}
