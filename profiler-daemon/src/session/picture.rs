//! The contents of a view at one moment. Pictures are whole; the differences between two are made where they are
//! sent.

use profiler_aggregate::calltree::Node;
use std::{collections::BTreeMap, sync::Arc};

use profiler_aggregate::{
    Over,
    explain::Durations,
    latency::Summaries,
    picture::{FlameSummary, Picture},
};
use profiler_symbolize::{FrameTable, Grouping};

use super::by_value::CallsByValue;
use super::{
    ending::Ending,
    error::{Reason, SessionError},
    explain::{Explained, NotLookedAt},
    steps::TakenOff,
};
use crate::kernel::{Activity, Event, OffCpu, Times};

/// Losses by reason.
pub type Losses = BTreeMap<&'static str, u64>;

/// A function, as it is known to clients.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FunctionInfo {
    /// Demangled name.
    pub name: String,
    /// Name as linked.
    pub linkage_name: String,
    /// Source file; empty where unknown.
    pub file: String,
    /// Line of the definition; 0 where unknown.
    pub line: u32,
    /// Path of the ELF file.
    pub module: String,
    /// Virtual address in the ELF file; 0 where it is only inlined.
    pub address: u64,
    /// Bytes of code.
    pub size: u64,
    /// Inlined instances.
    pub inlined: u32,
    /// Other functions that have the same code, whose calls are seen as its own.
    pub same_code: Vec<String>,
    /// An async function: its calls make a future, and do none of its work.
    pub is_async: bool,
    /// The process runs its code from memory that is not the file's, where no probe reaches it.
    pub is_copied: bool,
}

/// How the end of a span is seen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ExitMethod {
    /// A return probe of the kernel.
    Return,
    /// A probe on each return instruction.
    Ret,
    /// The function does not return: its calls are counted where they begin, and have no duration.
    Never,
    /// The kernel's tracepoint of the end of a system call.
    SystemCall,
    /// A probe at the return of a function of the kernel.
    KernelFunction,
}

impl ExitMethod {
    /// Those of calls that are no functions of the kernel.
    pub const OF_TARGETS: [Self; 4] = [Self::Return, Self::Ret, Self::Never, Self::SystemCall];
}

/// A place that a session has probes at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SiteInfo {
    /// The function.
    pub function: Arc<FunctionInfo>,
    /// Bytes from its first instruction to the entry probe.
    pub entry_offset: u32,
    /// The instruction under the entry probe.
    pub entry_instruction: String,
    /// How its end is seen.
    pub exit_method: ExitMethod,
    /// Probes that see the end.
    pub exits: u32,
    /// The kernel single-steps the entry instruction.
    pub entry_single_stepped: bool,
    /// The kernel single-steps the return instructions.
    pub exit_single_stepped: bool,
}

/// A session, as it is known to clients.
#[derive(Clone, PartialEq, Debug)]
pub struct SessionInfo {
    /// Its name.
    pub name: String,
    /// Canonical text of its scope.
    pub scope: String,
    /// Processes that it looks at.
    pub pids: Vec<u32>,
    /// Places that it has probes at.
    pub sites: Vec<SiteInfo>,
    /// Probes are perf events, not multi links.
    pub perf_links: bool,
    /// What the user should know.
    pub warnings: Vec<String>,
    /// Samples per second and CPU.
    pub frequency_hz: u32,
    /// How long it outlives its last use.
    pub lease_ns: u64,
    /// Open streams.
    pub watchers: u32,
    /// Length of the part of a recording that it looks at; `None` where it looks at processes.
    pub recorded_ns: Option<u64>,
    /// The same of the recording that it is compared with.
    pub recorded_before_ns: Option<u64>,
    /// When the recording begins, on the clock of what happened in it; 0 where it looks at processes.
    pub recorded_begin_ns: u64,
}

/// A call past the threshold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlowCall {
    /// `CLOCK_MONOTONIC` at its end.
    pub ts_ns: u64,
    /// Its thread.
    pub tid: u32,
    /// How long it took.
    pub duration_ns: u64,
}

/// What the daemon itself costs.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Cost {
    /// CPU time since the session began, as a share of one core.
    pub cpu_share: f64,
    /// Anonymous resident memory.
    pub rss_anon_bytes: u64,
    /// Time in its programs in the kernel as a share of one core; 0 where the kernel does not measure it.
    pub kernel_share: f64,
    /// What the session's probes take of the target's time; `None` while that is always allowed, or not known.
    pub budget_use: Option<BudgetUse>,
}

/// How near probes are to their budget, over about the last second.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct BudgetUse {
    /// Share of the target's CPU time that they take.
    pub taken: f64,
    /// Share from which on the costliest are taken off.
    pub allowed: f64,
}

/// The latency of one function.
#[derive(Clone, PartialEq, Debug)]
pub struct FunctionLatency {
    /// Number of the function within its session.
    pub id: u32,
    /// The function.
    pub function: Arc<FunctionInfo>,
    /// The three kinds in numbers.
    pub summaries: Summaries,
    /// Calls since the start, by bucket.
    pub since_start: Vec<(u32, u64)>,
    /// Calls in the window, by bucket.
    pub window: Vec<(u32, u64)>,
    /// Spans open now.
    pub open: u64,
    /// Spans that were jumped over.
    pub abandoned: u64,
    /// Losses by reason.
    pub lost: Losses,
    /// The probes' own share of a measured duration.
    pub overhead_ns: u64,
    /// What a call takes longer than without probes, in its measured duration and around it; 0 where that is not known.
    pub cost_ns: u64,
    /// How often its probes were reached beside those calls; `None` where that was not recorded.
    pub other_hits: Option<OtherHits>,
    /// Slowest recent calls past the threshold, slowest first.
    pub slowest: Vec<SlowCall>,
    /// Why its probes were taken off the target; its counts are those until then.
    pub taken_off: Option<TakenOff>,
}

/// How often probes were reached beside the calls that count, each time at about the cost of a call: outside of the step before,
/// where a condition did not hold, and by others' returns.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct OtherHits {
    /// Since the start.
    pub count: u64,
    /// As many a second on average.
    pub rate_hz: f64,
}

/// Latency histograms of a session.
#[derive(Clone, Debug)]
pub struct LatencyPicture {
    /// Canonical text of the scope.
    pub scope: Arc<str>,
    /// Its functions.
    pub functions: Vec<FunctionLatency>,
    /// Their calls by value, where the session divides them.
    pub by: Vec<CallsByValue>,
    /// What the daemon costs.
    pub cost: Cost,
    /// Losses that belong to no single function.
    pub lost: Losses,
    /// Why this is the last one.
    pub ended: Option<Ending>,
}

/// What slow calls of a session do that others do not.
#[derive(Clone, Debug)]
pub struct ExplainPicture {
    /// Canonical text of the scope.
    pub scope: Arc<str>,
    /// Calls from which on are slow, of those that were looked at; `None` where there is no one duration, or not yet.
    pub threshold_ns: Option<u64>,
    /// The same of all calls.
    pub threshold_of_all_ns: Option<u64>,
    /// There are too few calls for the percentile that is asked for.
    pub warming: bool,
    /// Calls that ended.
    pub calls: u64,
    /// Those of them that were looked at.
    pub looked_at: u64,
    /// Slow calls among those that were looked at and are kept.
    pub slow: Durations,
    /// The others.
    pub other: Durations,
    /// Branches, calls and values that are looked at.
    pub features: usize,
    /// Those of which there were enough calls.
    pub judged: usize,
    /// The surest first.
    pub findings: Vec<Explained>,
    /// What is not looked at, and why.
    pub left_out: Vec<NotLookedAt>,
    /// Losses by reason.
    pub lost: Losses,
    /// What the daemon costs.
    pub cost: Cost,
    /// Why this is the last one.
    pub ended: Option<Ending>,
}

/// Which flame graph of a session's scope.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlameVariant {
    /// What is collected for it.
    pub kind: FlameKind,
    /// Histogram that percentiles are taken of and samples drawn from.
    pub over: Over,
    /// Whether the two sides are compared.
    pub difference: bool,
}

/// A flame graph as it is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlameRequest {
    /// What frames stand for.
    pub by: Grouping,
    /// Of which times, or of what else; `None` for both times where there are spans, and on the CPU alone where there are none,
    /// unless waits are asked for.
    pub times: Option<FlameTimes>,
    /// Whether waits are drawn with who was waited for.
    pub waits: bool,
    /// Whether what an event is about counts once.
    pub unique: bool,
    /// Histogram that percentiles are taken of and samples drawn from.
    pub over: Over,
    /// Whether the two sides are compared.
    pub difference: bool,
    /// How often stacks are to be taken at an event.
    pub pace: AskedPace,
}

/// How often stacks are to be taken at an event that is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AskedPace {
    /// As often as the event says.
    Given,
    /// It was left out: as is usual, and of a recording as it was recorded.
    LeftOut,
}

impl FlameRequest {
    /// Of all samples since the start, without waits drawn on and without a comparison.
    #[must_use]
    pub const fn of(by: Grouping, times: Option<FlameTimes>) -> Self {
        Self {
            by,
            times,
            waits: false,
            unique: false,
            over: Over::Start,
            difference: false,
            pace: AskedPace::Given,
        }
    }

    /// Whether it can be drawn.
    ///
    /// # Errors
    ///
    /// `ArgumentInvalid` where what has no keys is to count once; where waits are asked for, and are not among the times, or would have no functions on them.
    pub fn check(self) -> Result<(), SessionError> {
        if let Some(message) = self.check_unique() {
            return Err(SessionError::new(Reason::ArgumentInvalid, message));
        }
        let message = match self {
            Self { waits: false, .. } => return Ok(()),
            Self {
                times: Some(FlameTimes::OnCpu | FlameTimes::Event(_)),
                ..
            } => "waits need time off the CPU: choose OFF_CPU or BOTH",
            Self {
                by: Grouping::Module, ..
            } => "waits cannot be grouped by module: choose another grouping",
            Self { .. } => return Ok(()),
        };
        Err(SessionError::new(Reason::ArgumentInvalid, message))
    }

    /// Why what is touched cannot be counted once, where that is asked for.
    fn check_unique(self) -> Option<&'static str> {
        if !self.unique {
            return None;
        }
        let event = self.times.and_then(FlameTimes::event);
        if !event.is_some_and(Event::has_keys) {
            return Some(
                "--unique counts each page or block once: it needs page-faults, minor-faults, major-faults or block-bytes, without period and frequency (-c, -F)",
            );
        }
        if self.difference {
            return Some(
                "--unique cannot compare calls, as a page or block that counts once belongs to no single call: leave it out",
            );
        }
        (self.over != Over::Start)
            .then_some("--unique counts since the view began, not in a window: leave --over out")
    }

    /// The event that is drawn, if it is not time.
    #[must_use]
    pub fn event(self) -> Option<Event> {
        self.times.and_then(FlameTimes::event)
    }

    /// What is drawn for it.
    #[must_use]
    pub fn variant(self, in_spans: bool) -> FlameVariant {
        let usual = match (in_spans, self.waits) {
            (true, _) => FlameTimes::Both,
            (false, true) => FlameTimes::OffCpu,
            (false, false) => FlameTimes::OnCpu,
        };
        FlameVariant {
            kind: FlameKind {
                by: self.by,
                times: self.times.unwrap_or(usual),
                waits: self.waits,
                unique: self.unique,
            },
            over: self.over,
            difference: self.difference,
        }
    }
}

/// What flame graphs are collected apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FlameKind {
    /// What frames stand for.
    pub by: Grouping,
    /// Of which times.
    pub times: FlameTimes,
    /// Whether waits have on them who was waited for.
    pub waits: bool,
    /// Whether what its event is about counts once.
    pub unique: bool,
}

impl FlameKind {
    /// What is sampled for it: off the CPU, inside spans alone, unless there are none, or what others do is drawn too.
    #[must_use]
    pub fn sampled(self, in_spans: bool) -> Times {
        let times = self.times.sampled(in_spans && !self.waits);
        if self.waits { times.or(Times::WAITS) } else { times }
    }
}

/// Times that a flame graph is drawn of, or what else.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FlameTimes {
    /// On the CPU.
    OnCpu,
    /// Off the CPU.
    OffCpu,
    /// Both.
    Both,
    /// Not time, but these events.
    Event(Event),
}

impl FlameTimes {
    /// Whether this is drawn.
    #[must_use]
    pub fn contain(self, activity: Activity) -> bool {
        match self {
            Self::OnCpu => activity == Activity::OnCpu,
            Self::OffCpu => activity != Activity::OnCpu,
            Self::Both => true,
            Self::Event(_) => false,
        }
    }

    /// The event that is drawn, if it is not time.
    #[must_use]
    pub fn event(self) -> Option<Event> {
        match self {
            Self::Event(event) => Some(event),
            Self::OnCpu | Self::OffCpu | Self::Both => None,
        }
    }

    /// What is sampled for it: off the CPU, inside spans, or everywhere where there are none.
    #[must_use]
    pub fn sampled(self, in_spans: bool) -> Times {
        let off_cpu = if in_spans { OffCpu::InSpans } else { OffCpu::All };
        Times {
            ticks: self.contain(Activity::OnCpu),
            off_cpu: if self.contain(Activity::Runnable) {
                off_cpu
            } else {
                OffCpu::No
            },
            costs: self.event().map_or(0, Event::cost),
            ..Times::default()
        }
    }
}

/// The flame graph of a session's scope.
#[derive(Clone, Debug)]
pub struct FlamePicture {
    /// Canonical text of the scope.
    pub scope: Arc<str>,
    /// What frames stand for.
    pub by: Grouping,
    /// Of which times it is drawn.
    pub times: FlameTimes,
    /// Generation of the tree: nodes of different ones have nothing in common.
    pub generation: u64,
    /// Frames by number; only ever appended to.
    pub frames: FrameTable,
    /// Nodes by number less one, parents first.
    pub nodes: Arc<Vec<Node>>,
    /// Weights and summary.
    pub picture: Picture,
    /// Where two recordings are compared, the summary of the one before by itself.
    pub before: Option<FlameSummary>,
    /// Samples that were attempted since the flame graph began, of all targets that are sampled. Those of
    /// other sessions left aside, the last picture's samples and its losses that begin with `sample_` or `off_cpu_`, those
    /// of stacks alone (`off_cpu_stack_`) apart, add up to it; before, some may be on their way. Of an event it is of the
    /// session's alone, and the losses begin with `event_`.
    pub attempted: u64,
    /// Losses by reason.
    pub lost: Losses,
    /// What the daemon costs.
    pub cost: Cost,
    /// Why this is the last one.
    pub ended: Option<Ending>,
}
