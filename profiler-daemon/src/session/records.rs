//! The stream of records for a recording: samples, ends of calls and hits as they come, and counts of calls.
//!
//! See `docs/internals/recordings.md` for how a recording is made and queried.

use std::{
    collections::{BTreeSet, HashSet},
    ops::Range,
    sync::Arc,
};

use profiler_aggregate::{
    ThreadId,
    join::{Awaited, Elsewhere},
    latency::AgeConfig,
    matrix::Cell,
    waits::Wait,
};
use profiler_common::{
    probe::ProbeId,
    record::{SpanEnd, SpanRef, Weight},
};
use profiler_plan::values::Reading;
use profiler_symbolize::{Frame, Grouping, Stacks};
use tokio::sync::mpsc;

use super::{
    ending::Ending,
    functions::Functions,
    lines::TracedPlace,
    outlet::Outlet,
    picture::{Cost, ExitMethod, FunctionInfo},
    readings::Readings,
    recorded_calls::RecordedTurn,
    sampling::Sampling,
    span_losses::{OwnLosses, SpanLosses},
    steps::RunningStep,
    symbols::{Named, NamedStack, NamedWait, Task},
    trace::TraceLosses,
};
use crate::kernel::{Activity, CallNumber, Event, EventCounts, Hit, HitCounts, Key, ProbeCounts};

/// Events that a recording has stacks of, at most.
pub const MAX_RECORDED_EVENTS: usize = 16;

/// Batches that may wait for one reader; it misses the records of those beyond, counted.
const MAX_WAITING: usize = 32;

/// Records of one batch; those beyond are lost, counted.
const MAX_RECORDS: usize = 16_384;

/// Waits of one batch, beside those records: a flood of one leaves room for the other.
const MAX_WAITS: usize = 16_384;

/// Threads that are told to be off the CPU; more are lost, counted as waits are.
pub const MAX_OFF_CPU: usize = 1 << 16;

/// What waits that were lost are counted by.
pub const WAITS_DROPPED: &str = "recorded_waits_dropped";

/// Samples of events and weights of one batch, beside those records.
const MAX_AT_EVENTS: usize = 16_384;

/// What those that were lost are counted by.
pub const AT_EVENTS_DROPPED: &str = "recorded_events_dropped";

/// Samples off the CPU outside of calls of one batch, beside those records.
const MAX_OUTSIDE: usize = 16_384;

/// What those that were lost are counted by.
pub const OUTSIDE_DROPPED: &str = "recorded_off_cpu_dropped";

/// Time between batches.
const BATCH_NS: u64 = 250_000_000;

/// Time after which it is looked again who is off the CPU.
const OFF_CPU_NS: u64 = 30_000_000_000;

/// What stacks are recorded in.
pub const GROUPINGS: [Grouping; 2] = [Grouping::Function, Grouping::Line];

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
        use super::division::CountedStep as _;
        steps
            .map(|step| RecordedStep {
                text: step.step.to_string(),
                functions: functions(&step.functions),
                gates: step.gate_bits(),
            })
            .collect()
    }
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
    /// A sample that is kept; `None` of what is none.
    fn of(named: &Named) -> Option<Self> {
        let Named::Sample {
            event: _,
            tgid,
            tid,
            ts_ns,
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

/// Samples of one thread at one stack, summed up.
#[derive(Clone, Debug)]
pub struct SummedRow {
    pub activity: Activity,
    pub stacks: Stacks,
    /// Whether the stack reaches a known root.
    pub complete: bool,
    /// Which of the cells are its own.
    pub cells: Range<usize>,
    /// Of calls that had not ended.
    pub open: Vec<(Awaited, Cell<u64>)>,
}

/// Samples of no call of the step, summed up.
#[derive(Clone, Copy, Default, Debug)]
pub struct SummedElsewhere {
    pub on_cpu: Elsewhere,
    pub off_cpu: Elsewhere,
}

/// Samples whose calls ended after a time of one bucket.
#[derive(Clone, Copy, Debug)]
pub struct SummedCell {
    pub bucket: usize,
    pub cell: Cell<u64>,
}

/// Samples, summed up until a time.
#[derive(Clone, Default, Debug)]
pub struct SummedSamples {
    pub to_ns: u64,
    pub rows: Vec<SummedRow>,
    /// Samples of calls that ended, by the bucket of their duration, ascending in each row. Without a step, all samples are in the
    /// first bucket.
    pub cells: Arc<[SummedCell]>,
    pub elsewhere: SummedElsewhere,
}

/// What was read at a hit.
#[derive(Clone, PartialEq, Debug)]
pub struct RecordedLook {
    /// In the order of the place's expressions.
    pub values: Vec<Reading>,
    /// Of the thread, where it was asked for.
    pub stack: Option<Arc<NamedStack>>,
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
    fn of(named: &Named) -> Option<Self> {
        match named {
            Named::SpanEnd(end) => Some(Self::SpanEnd(*end)),
            Named::Sample { event: 0, .. } => RecordedSample::of(named).map(Self::Sample),
            _ => None,
        }
    }
}

/// What was counted of a probe since it was attached.
#[derive(Clone, Debug)]
pub struct ProbeReading {
    pub probe: ProbeId,
    /// Calls that ended, by the bucket of their duration.
    pub ended: Vec<(usize, u64)>,
    pub counts: ProbeCounts,
}

impl ProbeReading {
    /// Calls that had begun and not ended.
    pub fn open(&self) -> u64 {
        self.counts.open(self.ended.iter().map(|(_, count)| count).sum())
    }

    fn now(readings: &dyn Readings, probe: ProbeId) -> Self {
        // Ends before entries: a call in between counts as open.
        let ended = readings
            .histogram(probe)
            .filter(|(_, count)| *count > 0)
            .collect();
        Self {
            probe,
            ended,
            counts: readings.probe_counts(probe),
        }
    }
}

/// What has become of an event's samples since stacks are taken at it.
#[derive(Clone, Copy, Debug)]
pub struct EventReading {
    pub event: Event,
    pub counts: EventCounts,
}

/// What was counted at a place since it was attached.
#[derive(Clone, Copy, Debug)]
pub struct HitReading {
    pub probe: ProbeId,
    pub counts: HitCounts,
}

/// What came since the batch before.
#[derive(Clone, Debug)]
pub struct RecordBatch {
    /// Begin of its time, of `CLOCK_MONOTONIC`.
    pub from_ns: u64,
    /// End of its time.
    pub to_ns: u64,
    /// The same as long as nothing of it changed.
    pub scope: Arc<RecordedScope>,
    /// Frames that are new with this batch, in the order of their numbers.
    pub frames: Arc<[Frame]>,
    /// Samples and ends of calls, as they came.
    pub records: Arc<Vec<Recorded>>,
    /// Each probe's counts.
    pub readings: Arc<Vec<ProbeReading>>,
    /// System calls by when they returned, where these are recorded.
    pub turns: Vec<Arc<RecordedTurn>>,
    /// Who was off the CPU, where waits are recorded; the same as long as it was not looked at again.
    pub off_cpu: Option<Arc<OffAtFirst>>,
    /// Each place's.
    pub hits: Arc<Vec<HitReading>>,
    /// What became of hits on their way, before the first batch too.
    pub trace: TraceLosses,
    /// What became of samples on their way, before the first batch too.
    pub sampling: Sampling,
    /// What became of spans on theirs.
    pub spans: SpanLosses,
    /// What the session does not see.
    pub own: OwnLosses,
    /// Records lost since the first batch: too many of one batch, or of those that waited for this reader.
    pub dropped: u64,
    /// Waits lost since then, for the same reasons. No call waits for one.
    pub waits_dropped: u64,
    /// System calls of turns lost since then, as of those that waited.
    pub calls_dropped: u64,
    /// Samples off the CPU outside of calls lost since then, for the same reasons as waits. No call waits for one.
    pub outside_dropped: u64,
    /// Of each event that anybody records.
    pub events: Arc<Vec<EventReading>>,
    /// Samples of events and weights lost since then, likewise.
    pub at_events_dropped: u64,
    /// What the daemon costs.
    pub cost: Cost,
    /// Why it is the last one.
    pub ended: Option<Ending>,
}

/// What all batches made at one moment have in common.
pub struct Moment<'a> {
    pub now_ns: u64,
    pub frames: &'a Arc<Vec<Frame>>,
    pub readings: &'a dyn Readings,
    pub sampling: Sampling,
    pub spans: SpanLosses,
    pub own: OwnLosses,
    pub trace: TraceLosses,
    pub events: Vec<EventReading>,
    pub cost: Cost,
    pub ended: Option<&'a Ending>,
}

/// One who keeps records.
struct Reader {
    /// What is recorded for it.
    scope: Arc<RecordedScope>,
    /// Waits are recorded for it.
    waits: bool,
    /// System calls are, from then on.
    calls_from_ns: Option<u64>,
    outlet: Outlet<RecordBatch>,
    /// Frames that it was given. Batches do not share the table: who hangs would keep copies of it.
    frames: usize,
    /// What it missed as it did not read.
    dropped: u64,
    /// Waits among that.
    waits_dropped: u64,
    /// System calls of the turns that it missed.
    calls_dropped: u64,
    /// Samples off the CPU outside of calls that it missed.
    outside_dropped: u64,
    /// Samples of events that it missed.
    at_events_dropped: u64,
}

impl Reader {
    /// Goes on with another scope.
    fn set_scope(&mut self, scope: &RecordedScope) {
        self.scope = Arc::new(RecordedScope {
            off_cpu: self.scope.off_cpu,
            events: self.scope.events.clone(),
            ..scope.clone()
        });
    }

    /// Those of these turns that are its own.
    fn turns(&self, turns: &[Arc<RecordedTurn>]) -> Vec<Arc<RecordedTurn>> {
        let Some(from_ns) = self.calls_from_ns else {
            return Vec::new();
        };
        let own = turns.iter().filter(|turn| turn.from_ns >= from_ns);
        own.cloned().collect()
    }
}

/// The records of a session, while they are kept by anybody.
pub struct Recorder {
    /// Without what readers ask for beyond it.
    scope: Arc<RecordedScope>,
    readers: Vec<Reader>,
    records: Vec<Recorded>,
    /// Waits among these.
    waits: usize,
    /// Samples off the CPU outside of calls among them.
    outside: usize,
    /// Samples of events among them.
    at_events: usize,
    /// Lost of all readers' records.
    too_many: u64,
    /// Waits that were lost of them.
    too_many_waits: u64,
    /// Samples off the CPU outside of calls that were.
    too_many_outside: u64,
    /// Samples of events that were.
    too_many_at_events: u64,
    /// System calls by when they returned.
    turns: Vec<Arc<RecordedTurn>>,
    from_ns: u64,
    /// Who was off the CPU when that was looked at last, once waits are told.
    off_cpu: Option<Arc<OffAtFirst>>,
}

impl Recorder {
    /// Begins now.
    pub fn new(scope: RecordedScope, now_ns: u64) -> Self {
        Self {
            scope: Arc::new(scope),
            readers: Vec::new(),
            records: Vec::new(),
            waits: 0,
            outside: 0,
            at_events: 0,
            too_many: 0,
            too_many_waits: 0,
            too_many_outside: 0,
            too_many_at_events: 0,
            turns: Vec::new(),
            from_ns: now_ns,
            off_cpu: None,
        }
    }

    /// Goes on with another scope.
    pub fn set_scope(&mut self, scope: RecordedScope) {
        for reader in &mut self.readers {
            reader.set_scope(&scope);
        }
        self.scope = Arc::new(scope);
    }

    /// Whether a batch is due.
    pub fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.from_ns + BATCH_NS
    }

    /// Opens a stream. Its first batch is of the time from now on.
    pub fn watch(&mut self, more: &MoreRecords, moment: &Moment<'_>) -> mpsc::Receiver<RecordBatch> {
        // What came before belongs to the others.
        self.publish(moment);
        let (outlet, receiver) = Outlet::open(MAX_WAITING);
        let reader = Reader {
            scope: Arc::new(RecordedScope {
                off_cpu: more.off_cpu,
                events: more.events.iter().copied().collect(),
                ..(*self.scope).clone()
            }),
            waits: more.waits,
            calls_from_ns: more.syscalls.then_some(moment.now_ns),
            outlet,
            frames: 0,
            dropped: 0,
            waits_dropped: 0,
            calls_dropped: 0,
            outside_dropped: 0,
            at_events_dropped: 0,
        };
        self.readers.push(reader);
        // What is counted already is the beginning.
        self.publish_from(moment, self.readers.len() - 1);
        receiver
    }

    /// Whether waits are recorded for anybody.
    pub fn has_waits(&self) -> bool {
        self.readers.iter().any(|reader| reader.waits)
    }

    /// Whether time off the CPU is recorded for anybody in calls or not.
    pub fn has_off_cpu(&self) -> bool {
        self.readers.iter().any(|reader| reader.scope.off_cpu)
    }

    /// Whether stacks are taken at an event for anybody that a tracepoint names so.
    pub fn event_of_tracepoint(&self, id: u32) -> Option<Event> {
        let events = self.readers.iter().flat_map(|reader| &reader.scope.events);
        events.copied().find(|event| event.id_of_tracepoint() == Some(id))
    }

    /// Events that stacks are taken at for anybody.
    pub fn events(&self) -> BTreeSet<Event> {
        let events = self.readers.iter().flat_map(|reader| &reader.scope.events);
        events.copied().collect()
    }

    /// Whether system calls are recorded for anybody.
    pub fn has_calls(&self) -> bool {
        self.readers.iter().any(|reader| reader.calls_from_ns.is_some())
    }

    /// Takes system calls of turns behind one another.
    pub fn take_turns(&mut self, turns: Vec<RecordedTurn>) {
        self.turns.extend(turns.into_iter().map(Arc::new));
    }

    /// Whether it is to be looked again who is off the CPU, so that what came long ago is not needed to understand the rest.
    pub fn is_to_look(&self, now_ns: u64) -> bool {
        let is_old = |off: &Arc<OffAtFirst>| now_ns >= off.since_ns.saturating_add(OFF_CPU_NS);
        self.has_waits() && self.off_cpu.as_ref().is_none_or(is_old)
    }

    /// Takes who is off the CPU.
    pub fn set_off_cpu(&mut self, mut off: OffAtFirst) {
        let too_many = off.threads.len().saturating_sub(MAX_OFF_CPU);
        if too_many > 0 {
            off.threads = off.threads.into_iter().take(MAX_OFF_CPU).collect();
            self.too_many_waits += too_many as u64;
        }
        self.off_cpu = Some(Arc::new(off));
    }

    /// Takes a wait.
    pub fn take_wait(&mut self, named: &NamedWait) {
        if !self.has_waits() {
            return;
        }
        if self.waits == MAX_WAITS {
            self.too_many_waits += 1;
            return;
        }
        self.waits += 1;
        self.records.push(Recorded::Wait(Box::new(RecordedWait {
            wait: named.wait.clone(),
            spans: named.spans.clone(),
        })));
    }

    /// Open streams.
    pub fn watchers(&self) -> usize {
        self.readers.len()
    }

    /// Forgets streams that nobody reads any more; whether there are others.
    pub fn sweep(&mut self) -> bool {
        self.readers.retain(|reader| !reader.outlet.is_closed());
        !self.readers.is_empty()
    }

    /// Takes a record of the session's own.
    pub fn take(&mut self, named: &Named) {
        let Some(recorded) = Recorded::of(named) else {
            return;
        };
        let is_outside = matches!(&recorded, Recorded::Sample(sample) if sample.is_outside());
        if !is_outside {
            self.push(recorded);
        } else if self.outside < MAX_OUTSIDE {
            self.outside += 1;
            self.records.push(recorded);
        } else {
            self.too_many_outside += 1;
        }
    }

    /// Takes a sample that was taken at an event.
    pub fn take_at_event(&mut self, event: Event, named: &Named) {
        let mut readers = self.readers.iter();
        if !readers.any(|reader| reader.scope.events.contains(&event)) {
            return;
        }
        let what = match named {
            Named::Sample { key, .. } => {
                RecordedSample::of(named).map(|sample| AtEvent::Sample(sample, *key))
            }
            Named::Weight(weight) => Some(AtEvent::Weight(*weight)),
            _ => None,
        };
        let Some(what) = what else { return };
        if self.at_events == MAX_AT_EVENTS {
            self.too_many_at_events += 1;
            return;
        }
        self.at_events += 1;
        self.records
            .push(Recorded::AtEvent(Box::new(RecordedAtEvent { event, what })));
    }

    /// Takes a line that was reached.
    pub fn take_reached(&mut self, hit: &Hit, look: RecordedLook) {
        let reached = RecordedReached {
            tgid: hit.tgid,
            tid: hit.tid,
            probe: hit.probe,
            ts_ns: hit.ts_ns,
            parent: hit.parent,
            joined: hit.joined,
        };
        self.push(Recorded::Reached(reached, look));
    }

    /// Takes a call that ended, with what was looked at where it began.
    pub fn take_call(&mut self, end: &SpanEnd, look: RecordedLook) {
        self.push(Recorded::Call(*end, look));
    }

    fn push(&mut self, recorded: Recorded) {
        if self.records.len() - self.waits - self.outside - self.at_events < MAX_RECORDS {
            self.records.push(recorded);
        } else {
            self.too_many += 1;
        }
    }

    /// Hands over what came since the batch before.
    pub fn publish(&mut self, moment: &Moment<'_>) {
        self.publish_from(moment, 0);
        self.records.clear();
        self.waits = 0;
        self.outside = 0;
        self.at_events = 0;
        self.turns.clear();
        self.from_ns = moment.now_ns;
    }

    /// The same to the readers from this one on.
    fn publish_from(&mut self, moment: &Moment<'_>, first: usize) {
        if self.readers.len() <= first {
            return;
        }
        let functions = self.scope.steps.iter().flat_map(|step| &step.functions);
        let probes = functions.flat_map(|function| &function.probes);
        let readings = probes.map(|probe| ProbeReading::now(moment.readings, *probe));
        let places = self.scope.places.iter();
        let hits = places.map(|place| HitReading {
            probe: place.probe,
            counts: moment.readings.hit_counts(place.probe),
        });
        let batch = RecordBatch {
            turns: Vec::new(),
            off_cpu: self.off_cpu.clone(),
            hits: Arc::new(hits.collect()),
            trace: moment.trace,
            from_ns: self.from_ns,
            to_ns: moment.now_ns,
            scope: Arc::clone(&self.scope),
            frames: [].into(),
            records: Arc::new(std::mem::take(&mut self.records)),
            readings: Arc::new(readings.collect()),
            sampling: moment.sampling,
            spans: moment.spans,
            own: moment.own,
            dropped: self.too_many,
            waits_dropped: self.too_many_waits,
            calls_dropped: 0,
            outside_dropped: self.too_many_outside,
            events: Arc::new(moment.events.clone()),
            at_events_dropped: self.too_many_at_events,
            cost: moment.cost,
            ended: moment.ended.cloned(),
        };
        let (waits, outside) = (self.waits as u64, self.outside as u64);
        let at_events = self.at_events as u64;
        let records = batch.records.len() as u64 - waits - outside - at_events;
        for reader in self.readers.iter_mut().skip(first) {
            let turns = reader.turns(&self.turns);
            let calls: u64 = turns.iter().map(|turn| turn.total()).sum();
            let batch = RecordBatch {
                turns,
                scope: Arc::clone(&reader.scope),
                calls_dropped: reader.calls_dropped,
                outside_dropped: batch.outside_dropped + reader.outside_dropped,
                at_events_dropped: batch.at_events_dropped + reader.at_events_dropped,
                off_cpu: batch.off_cpu.clone().filter(|_| reader.waits),
                frames: moment.frames.get(reader.frames..).unwrap_or_default().into(),
                dropped: batch.dropped + reader.dropped,
                waits_dropped: if reader.waits {
                    batch.waits_dropped + reader.waits_dropped
                } else {
                    0
                },
                ..batch.clone()
            };
            if moment.ended.is_some() {
                reader.outlet.end(batch);
            } else if reader.outlet.offer(batch) {
                reader.frames = moment.frames.len();
            } else {
                reader.dropped += records;
                reader.waits_dropped += waits;
                reader.calls_dropped += calls;
                reader.outside_dropped += outside;
                reader.at_events_dropped += at_events;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use profiler_aggregate::{
        system_calls::Counted,
        waits::{Place, Waiting, Waker},
    };
    use profiler_common::record::SPAN_END;
    use profiler_symbolize::FrameId;

    use super::*;
    use crate::{
        kernel::CallNumber,
        session::{recorded_calls::RecordedCalls, replay::RecordedCounts},
    };

    const WAITS: MoreRecords = MoreRecords {
        waits: true,
        syscalls: false,
        off_cpu: false,
        events: BTreeSet::new(),
    };

    fn recorder() -> Recorder {
        let scope = RecordedScope {
            text: "".into(),
            steps: Vec::new(),
            pids: Vec::new(),
            frequency_hz: 99,
            ages: AgeConfig::default(),
            warnings: Vec::new(),
            places: Vec::new(),
            off_cpu: false,
            events: Vec::new(),
        };
        Recorder::new(scope, 0)
    }

    fn wait() -> NamedWait {
        let place = Place {
            thread: FrameId::OTHER,
            stack: [].into(),
        };
        let wait = Wait {
            thread: ThreadId { tgid: 1, tid: 2 },
            place,
            waiting: Some(Waiting::Sleeping),
            lock: None,
            times: [0; 3],
            waker: Waker::Unseen,
            still_ns: None,
        };
        NamedWait::of(wait, Vec::new(), &[])
    }

    fn end() -> Named {
        Named::SpanEnd(SpanEnd {
            kind: SPAN_END,
            flags: 0,
            tgid: 1,
            tid: 2,
            probe: ProbeId(3),
            hits: 0,
            sequence: 4,
            start_ns: 5,
            end_ns: 6,
            parent: 0,
            gates: 0,
            returned: [0; 2],
        })
    }

    /// Records and waits that came, and those that did not.
    fn published(recorder: &mut Recorder, stream: &mut mpsc::Receiver<RecordBatch>) -> [u64; 4] {
        let readings = RecordedCounts::default();
        let moment = moment(&readings);
        recorder.publish(&moment);
        let batch = stream.try_recv().unwrap();
        let is_wait = |record: &&Recorded| matches!(record, Recorded::Wait(_));
        let waits = batch.records.iter().filter(is_wait).count() as u64;
        [
            batch.records.len() as u64 - waits,
            waits,
            batch.dropped,
            batch.waits_dropped,
        ]
    }

    fn moment(readings: &dyn Readings) -> Moment<'_> {
        static FRAMES: std::sync::LazyLock<Arc<Vec<Frame>>> = std::sync::LazyLock::new(Arc::default);
        Moment {
            now_ns: 1,
            frames: &FRAMES,
            readings,
            sampling: Sampling::default(),
            spans: SpanLosses::default(),
            own: OwnLosses::default(),
            trace: TraceLosses::default(),
            events: Vec::new(),
            cost: Cost::default(),
            ended: None,
        }
    }

    #[test]
    fn a_flood_of_waits_leaves_room_for_calls_and_the_other_way_round() {
        let mut recorder = recorder();
        let readings = RecordedCounts::default();
        let mut stream = recorder.watch(&WAITS, &moment(&readings));
        stream.try_recv().unwrap();
        let most = MAX_WAITS as u64;
        for _ in 0..MAX_WAITS + 5 {
            recorder.take_wait(&wait());
        }
        recorder.take(&end());
        assert_eq!(published(&mut recorder, &mut stream), [1, most, 0, 5]);
        for _ in 0..MAX_RECORDS + 7 {
            recorder.take(&end());
        }
        recorder.take_wait(&wait());
        let most = MAX_RECORDS as u64;
        assert_eq!(published(&mut recorder, &mut stream), [most, 1, 7, 5]);
    }

    /// An interval off the CPU, in this many calls.
    fn off_cpu(spans: usize) -> Named {
        Named::Sample {
            event: 0,
            tgid: 1,
            tid: 2,
            ts_ns: 6,
            weight: 3,
            key: Key::default(),
            activity: Activity::Sleeping,
            count: 1,
            spans: vec![
                SpanRef {
                    probe: ProbeId(3),
                    gates: 0,
                    sequence: 4,
                    start_ns: 5,
                };
                spans
            ],
            stacks: Stacks::default(),
            complete: true,
            goes_on: false,
            lock: None,
            system_call: None,
            task: None,
        }
    }

    #[test]
    fn a_flood_of_intervals_off_the_cpu_outside_of_calls_leaves_room_for_calls() {
        const OFF_CPU: MoreRecords = MoreRecords {
            waits: false,
            syscalls: false,
            off_cpu: true,
            events: BTreeSet::new(),
        };
        let mut recorder = recorder();
        let readings = RecordedCounts::default();
        let mut stream = recorder.watch(&OFF_CPU, &moment(&readings));
        let mut without = recorder.watch(&WAITS, &moment(&readings));
        for _ in 0..MAX_OUTSIDE + 5 {
            recorder.take(&off_cpu(0));
        }
        recorder.take(&off_cpu(1));
        recorder.take(&end());
        recorder.publish(&moment(&readings));
        let last = |stream: &mut mpsc::Receiver<RecordBatch>| {
            std::iter::from_fn(|| stream.try_recv().ok()).last().unwrap()
        };
        let batch = last(&mut stream);
        assert!(batch.scope.off_cpu);
        assert_eq!(
            (batch.records.len(), batch.dropped, batch.outside_dropped),
            (MAX_OUTSIDE + 2, 0, 5)
        );
        let batch = last(&mut without);
        assert!(
            !batch.scope.has_outside(),
            "each has what it asked for: what was lost of the rest is told to nobody"
        );
    }

    /// System calls of a turn: so many of one kind.
    fn turn(from_ns: u64, calls: u64) -> RecordedTurn {
        RecordedTurn {
            from_ns,
            to_ns: from_ns + 1,
            calls: vec![RecordedCalls {
                call: CallNumber {
                    number: 0,
                    is_32_bit: false,
                },
                error: None,
                stacks: Stacks::default(),
                counted: Counted {
                    calls,
                    ..Counted::default()
                },
            }],
            ..RecordedTurn::default()
        }
    }

    #[test]
    fn system_calls_are_given_to_those_who_asked_from_when_they_did() {
        const CALLS: MoreRecords = MoreRecords {
            waits: false,
            syscalls: true,
            off_cpu: false,
            events: BTreeSet::new(),
        };
        let mut recorder = recorder();
        let readings = RecordedCounts::default();
        let mut others = recorder.watch(&WAITS, &moment(&readings));
        let mut early = recorder.watch(&CALLS, &moment(&readings));
        let later = Moment {
            now_ns: 10,
            ..moment(&readings)
        };
        let mut late = recorder.watch(&CALLS, &later);
        recorder.take_turns(vec![turn(5, 2), turn(10, 3)]);
        recorder.publish(&later);
        let last = |stream: &mut mpsc::Receiver<RecordBatch>| {
            let batches = std::iter::from_fn(|| stream.try_recv().ok());
            let turns = batches.flat_map(|batch| batch.turns);
            turns.map(|turn| turn.total()).collect::<Vec<_>>()
        };
        assert!(last(&mut others).is_empty());
        assert_eq!(last(&mut early), [2, 3]);
        assert_eq!(last(&mut late), [3], "what came before is not of its time");
    }

    #[test]
    fn system_calls_that_a_reader_missed_are_counted() {
        let mut recorder = recorder();
        let readings = RecordedCounts::default();
        let more = MoreRecords {
            waits: false,
            syscalls: true,
            off_cpu: false,
            events: BTreeSet::new(),
        };
        let mut stream = recorder.watch(&more, &moment(&readings));
        let missed = 3;
        for _ in 1..MAX_WAITING + missed {
            recorder.take_turns(vec![turn(1, 2)]);
            recorder.publish(&moment(&readings));
        }
        while stream.try_recv().is_ok() {}
        recorder.publish(&moment(&readings));
        assert_eq!(stream.try_recv().unwrap().calls_dropped, 2 * missed as u64);
    }

    #[test]
    fn threads_off_the_cpu_beyond_those_that_are_told_are_counted() {
        let mut recorder = recorder();
        let readings = RecordedCounts::default();
        let mut stream = recorder.watch(&WAITS, &moment(&readings));
        stream.try_recv().unwrap();
        let threads = (0..).take(MAX_OFF_CPU + 3).map(|tid| ThreadId { tgid: 1, tid });
        recorder.set_off_cpu(OffAtFirst {
            since_ns: 0,
            threads: threads.collect(),
        });
        recorder.publish(&moment(&readings));
        let batch = stream.try_recv().unwrap();
        assert_eq!(batch.off_cpu.unwrap().threads.len(), MAX_OFF_CPU);
        assert_eq!(batch.waits_dropped, 3);
    }
}
