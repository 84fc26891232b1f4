//! From messages to records. They may have been damaged or made up: what refers to nothing is refused.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use foldhash::fast::RandomState;
use profiler_aggregate::{latency::AgeConfig, slots::WindowConfig};
use profiler_common::{
    layout::BUCKETS,
    limits::MAX_PROBES,
    probe::ProbeId,
    record::{SPAN_END, SpanEnd, SpanRef},
    values::MAX_VALUES,
};
use profiler_proto::v1;
use profiler_scope::MAX_STEPS;
use profiler_symbolize::{Frame, FrameId, Frames, Grouping, Nameable, Reason, Stacks, Word};

use super::{
    Also,
    columns::{ColumnReader, ColumnRecord, Unpacked},
    counters::{self, RecordedCounts},
    events, values,
};
use crate::{
    kernel::{Activity, CallNumber, Event, HitCounts, ProbeCounts},
    session::{
        BudgetUse, Cost, EventReading, ExitMethod, FunctionInfo, HitReading, MAX_RECORDED_EVENTS, NamedStack,
        OffAtFirst, Recorded, RecordedExpression, RecordedFunction, RecordedLook, RecordedPlace,
        RecordedReached, RecordedSample, RecordedScope, RecordedStep, RecordedTurn, RecordedWait, Task,
        TracedPlace,
    },
};

/// Frames on a stack that is followed.
const MAX_DEPTH: usize = 4096;

/// Frames of stacks that are kept; then all are made anew.
const MAX_STACK_FRAMES: usize = 1 << 22;

/// Frames of stacks that are made for one message.
const MAX_STACK_FRAMES_OF_MESSAGE: usize = 1 << 24;

/// What may be told before numbers begin anew: nodes, and threads or frames.
const MAX_NODES: usize = 1 << 22;
const MAX_TOLD: usize = 1 << 20;

/// Hits of a message: more than are told in one; and what is counted by name.
const MAX_HITS: usize = 1 << 18;
const MAX_COUNTERS: usize = 1024;

/// Warnings and processes of a scope.
const MAX_WARNINGS: usize = 1024;
const MAX_PIDS: usize = 1 << 16;

/// Bytes of a build-id: those of SHA-512.
const MAX_BUILD_ID: usize = 64;

/// A count or a weight above this is none.
pub const MAX_COUNT: u64 = 1 << 48;

/// A message that contradicts itself, or those before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Damaged;

/// What came in a short time.
pub struct Batch {
    pub from_ns: u64,
    pub to_ns: u64,
    /// What was looked at, where it is told anew; and calls that were open when the batch began, by probe.
    pub scope: Option<(RecordedScope, HashMap<ProbeId, u64>)>,
    pub records: Vec<Recorded>,
    pub calls: Vec<Counted>,
    /// What was counted of places.
    pub hit_counts: Vec<HitReading>,
    /// What became of events' samples.
    pub event_counts: Vec<EventReading>,
    /// Counters over time, where they are wanted and were recorded.
    pub counted: Option<RecordedCounts>,
    /// Waits, where they are wanted.
    pub waits: Vec<RecordedWait>,
    /// Who was off the CPU, where that is told and waits are wanted.
    pub off_cpu: Option<OffAtFirst>,
    /// System calls by when they returned, where they are wanted.
    pub turns: Vec<RecordedTurn>,
    /// What threads are called that are told with it.
    pub threads: Vec<TaskOf>,
    /// What became of samples and of ends on their way, by counter.
    pub counters: BTreeMap<String, u64>,
    /// Records lost since the batch before.
    pub dropped: u64,
    /// Records of kinds that this version does not know.
    pub unknown: u64,
    pub cost: Cost,
}

/// A thread, and what it is called.
#[derive(Clone, Copy)]
pub struct TaskOf {
    pub tgid: u32,
    pub tid: u32,
    pub task: Task,
}

/// What was counted of a probe in that time.
pub struct Counted {
    pub probe: ProbeId,
    /// Calls that ended, by the bucket of their duration.
    pub ended: Vec<(usize, u64)>,
    pub counts: ProbeCounts,
}

/// A frame, and the node that called it.
struct Node {
    parent: u32,
    frame: FrameId,
}

/// What was told since numbers began anew.
#[derive(Default)]
pub struct Decoder {
    threads: HashMap<u32, Thread, RandomState>,
    frames: HashMap<u32, FrameId, RandomState>,
    /// By number less one.
    nodes: Vec<Node>,
    stacks: HashMap<StackKey, Stacks, RandomState>,
    /// Frames of these.
    stack_frames: usize,
    /// Frames of those that were made for this message.
    made: usize,
    /// What frames of stacks are to stand for; `None` where no stacks are wanted.
    by: Option<Grouping>,
    /// What else is wanted.
    also: Option<Also>,
    columns: ColumnReader,
    /// Events by number; `None` of one that this version does not know.
    pub(super) events: Vec<Option<Event>>,
    /// Records of messages that begin before are not wanted.
    from_ns: u64,
}

/// A frame that is told, by its number.
#[derive(Clone)]
pub(super) struct ToldFrame {
    id: u32,
    pub frame: Frame,
}

impl ToldFrame {
    /// As a message tells it.
    pub fn of(told: v1::Frame) -> Self {
        Self {
            id: told.id,
            frame: frame(told),
        }
    }
}

/// Whether a message alone tells more than any that was written.
pub(super) fn is_too_much(message: &v1::WatchRecordsResponse) -> bool {
    message.nodes.len() > MAX_NODES
        || message.frames.len() > MAX_TOLD
        || message.threads.len() > MAX_TOLD
        || (message.frames.iter()).any(|frame| frame.build_id.len() > MAX_BUILD_ID)
        || message.hits.len() > MAX_HITS
        || message.event_samples.len() > MAX_HITS
        || message.event_counts.len() > MAX_COUNTERS
        || message.calls.len() > MAX_PROBES as usize
        || message.hit_counts.len() > MAX_PROBES as usize
        || message.counters.len() > MAX_COUNTERS
        || message.counters.values().any(|count| *count > MAX_COUNT)
}

/// What tells stacks apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct StackKey {
    /// Nodes of functions and of lines; 0 where those are not wanted.
    nodes: [u32; 2],
    /// What they stand below.
    below: Option<FrameId>,
}

/// A thread that was told.
#[derive(Clone, Copy)]
pub(super) struct Thread {
    pub tgid: u32,
    pub tid: u32,
    pub task: Option<Task>,
}

impl Decoder {
    /// One that knows nothing yet, for stacks of this kind, and what else is wanted.
    pub fn new(by: Option<Grouping>, also: Option<Also>) -> Self {
        Self {
            by,
            also,
            ..Self::default()
        }
    }

    /// For records of messages that begin at this time or later.
    pub fn from(self, from_ns: u64) -> Self {
        Self { from_ns, ..self }
    }

    /// Takes the next message.
    pub fn next(
        &mut self,
        mut message: v1::WatchRecordsResponse,
        frames: &mut Frames,
    ) -> Result<Batch, Damaged> {
        if message.begins_anew {
            *self = Self::new(self.by, self.also).from(self.from_ns);
        }
        let mut columns = std::mem::take(&mut self.columns);
        let unpacked = if message.from_ns < self.from_ns || self.also == Some(Also::Syscalls) {
            message.records.clear();
            // They lie among records.
            message.hits.clear();
            message.event_samples.clear();
            Unpacked::Told
        } else {
            Unpacked::Records
        };
        let mut told = columns.records(&mut message, unpacked)?;
        if self.is_too_much(&message) {
            return Err(Damaged);
        }
        let v1::StreamInfo { dropped, cost, .. } = message.beginning();
        let v1::WatchRecordsResponse {
            from_ns,
            to_ns,
            scope,
            threads,
            frames: new_frames,
            nodes,
            calls,
            counters: named_counters,
            weight_ns,
            hits,
            hit_counts,
            event_samples,
            event_counts,
            counted: over_time,
            waits,
            off_cpu,
            syscalls,
            ..
        } = message;
        self.made = 0;
        self.know(new_frames.into_iter().map(ToldFrame::of), frames);
        let tasks = self.take_threads(threads);
        self.take_nodes(nodes)?;
        let mut last_ns = from_ns;
        let has_hits = self.also.is_some_and(Also::has_hits);
        let hits = if has_hits { hits } else { Vec::new() };
        let has_events = self.also == Some(Also::Events);
        let event_samples = if has_events { event_samples } else { Vec::new() };
        let mut records = Vec::with_capacity(told.len());
        while let Some(record) = told.next() {
            records.push(self.record(record?, (&mut last_ns, weight_ns), frames)?);
        }
        self.columns = columns;
        let unknown = count_unknown(&records, &hits, &event_samples);
        if let Some(scope) = &scope {
            self.events = scope.events.iter().map(events::known).collect();
        }
        let records = if has_events {
            self.with_events(records, event_samples, from_ns, frames)?
        } else {
            self.with_hits(records, hits, from_ns)?
        };
        let has_waits = self.also.is_some_and(Also::has_waits);
        let waits = if has_waits { waits } else { Vec::new() };
        let off_cpu = off_cpu.filter(|_| has_waits);
        Ok(Batch {
            from_ns,
            to_ns,
            scope: scope.map(self::scope).transpose()?,
            records,
            calls: calls.into_iter().map(counted).collect::<Result<_, _>>()?,
            hit_counts: hit_counts
                .into_iter()
                .map(hit_counted)
                .collect::<Result<_, _>>()?,
            event_counts: self.event_counts(&event_counts)?,
            threads: tasks,
            waits: self.waits(waits, from_ns)?,
            off_cpu: off_cpu.map(|told| self.off_cpu(&told)).transpose()?,
            turns: match self.also {
                Some(Also::Syscalls) => self.turns(syscalls, frames)?,
                _ => Vec::new(),
            },
            counted: (over_time.filter(|_| self.also == Some(Also::Counters)))
                .map(counters::read)
                .transpose()?,
            counters: named_counters.into_iter().collect(),
            dropped,
            unknown,
            cost: self::cost(&cost.unwrap_or_default()),
        })
    }

    /// Takes frames that are told.
    pub(super) fn know(&mut self, told: impl Iterator<Item = ToldFrame>, frames: &mut Frames) {
        for ToldFrame { id, frame } in told {
            self.frames.insert(id, frames.intern(frame));
        }
    }

    /// Whether a message tells more than any that was written, with those before it.
    fn is_too_much(&self, message: &v1::WatchRecordsResponse) -> bool {
        self.nodes.len() + message.nodes.len() > MAX_NODES
            || self.frames.len() + message.frames.len() > MAX_TOLD
            || self.threads.len() + message.threads.len() > MAX_TOLD
            || is_too_much(message)
    }

    fn take_nodes(&mut self, nodes: Vec<v1::RecordedNode>) -> Result<(), Damaged> {
        for v1::RecordedNode { id, parent, frame } in nodes {
            let is_next = usize::try_from(id) == Ok(self.nodes.len() + 1);
            if !is_next || parent >= id {
                return Err(Damaged);
            }
            let frame = *self.frames.get(&frame).ok_or(Damaged)?;
            self.nodes.push(Node { parent, frame });
        }
        Ok(())
    }

    /// Takes threads that are told; gives those of which it is known what they are called.
    fn take_threads(&mut self, threads: Vec<v1::RecordedThread>) -> Vec<TaskOf> {
        let mut tasks = Vec::new();
        for told in threads {
            let frame = |id| self.frames.get(&id).copied();
            let task = frame(told.thread_frame).zip(frame(told.process_frame));
            let thread = Thread {
                tgid: told.pid,
                tid: told.tid,
                task: task.map(|(thread, process)| Task { thread, process }),
            };
            self.threads.insert(told.id, thread);
            let Thread { tgid, tid, task } = thread;
            tasks.extend(task.map(|task| TaskOf { tgid, tid, task }));
        }
        tasks
    }

    /// The thread of a number.
    pub(super) fn thread(&self, id: u32) -> Result<Thread, Damaged> {
        self.threads.get(&id).copied().ok_or(Damaged)
    }

    /// Takes a record, by the time of the one before and the weight that most samples have; `None` of a kind that a newer version
    /// writes.
    fn record(
        &mut self,
        record: ColumnRecord<'_>,
        (last_ns, usual_ns): (&mut u64, u64),
        frames: &mut Frames,
    ) -> Result<Option<Recorded>, Damaged> {
        Ok(match record {
            ColumnRecord::Sample(sample, spans) => Some(Recorded::Sample(self.sample(
                &sample,
                spans.iter(),
                (last_ns, usual_ns),
                frames,
            )?)),
            ColumnRecord::Record(Some(v1::record::Record::Sample(sample))) => {
                let spans = sample.spans.iter().copied();
                Some(Recorded::Sample(self.sample(
                    &sample,
                    spans,
                    (last_ns, usual_ns),
                    frames,
                )?))
            }
            ColumnRecord::Record(Some(v1::record::Record::SpanEnd(end))) => {
                let Thread { tgid, tid, .. } = self.thread(end.thread)?;
                let end_ns = last_ns.saturating_add_signed(end.after_ns);
                *last_ns = end_ns;
                Some(Recorded::SpanEnd(span_end(&end, (tgid, tid), end_ns)))
            }
            ColumnRecord::Record(None) => None,
        })
    }

    /// Takes a sample in these spans, by the time of the one before and the weight of those that tell none.
    pub(super) fn sample(
        &mut self,
        sample: &v1::RecordedSample,
        spans: impl Iterator<Item = v1::RecordedSpan>,
        (last_ns, usual_ns): (&mut u64, u64),
        frames: &mut Frames,
    ) -> Result<RecordedSample, Damaged> {
        let Thread { tgid, tid, task } = self.thread(sample.thread)?;
        let stacks = self.stacks((sample.function_node, sample.line_node), task, frames)?;
        let activity = activity(sample.activity());
        if sample.weight_ns > MAX_COUNT || usual_ns > MAX_COUNT {
            return Err(Damaged);
        }
        let ts_ns = last_ns.saturating_add_signed(sample.after_ns);
        *last_ns = ts_ns;
        Ok(RecordedSample {
            tgid,
            tid,
            ts_ns,
            weight_ns: match sample.weight_ns {
                0 => usual_ns,
                weight_ns => weight_ns,
            },
            activity,
            continues: sample.continues,
            stacks,
            system_call: CallNumber::of_recorded(sample.system_call),
            task,
            complete: !sample.incomplete,
            spans: spans.map(|open| span(&open, ts_ns)).collect(),
        })
    }

    /// Records with the hits among them, in the order in which both came.
    fn with_hits(
        &mut self,
        records: Vec<Option<Recorded>>,
        hits: Vec<v1::RecordedHit>,
        from_ns: u64,
    ) -> Result<Vec<Recorded>, Damaged> {
        if hits.is_empty() {
            return Ok(records.into_iter().flatten().collect());
        }
        let mut all = Vec::with_capacity(records.len() + hits.len());
        let mut records = records.into_iter();
        let mut last_ns = from_ns;
        for hit in hits {
            let before = hit.records_before as usize;
            if before > records.len() {
                return Err(Damaged);
            }
            all.extend(records.by_ref().take(before).flatten());
            all.extend(self.hit(hit, &mut last_ns)?);
        }
        all.extend(records.flatten());
        Ok(all)
    }

    /// Takes a hit, by the time of the one before; `None` of a kind that a newer version writes.
    fn hit(&mut self, hit: v1::RecordedHit, last_ns: &mut u64) -> Result<Option<Recorded>, Damaged> {
        if hit.values.len() > MAX_VALUES {
            return Err(Damaged);
        }
        let look = RecordedLook {
            values: values::readings(hit.values)?,
            stack: hit.stack.map(|stack| self.hit_stack(stack)).transpose()?,
        };
        Ok(Some(match hit.what {
            None => return Ok(None),
            Some(v1::recorded_hit::What::Reached(reached)) => {
                let Thread { tgid, tid, .. } = self.thread(reached.thread)?;
                let ts_ns = last_ns.saturating_add_signed(reached.after_ns);
                *last_ns = ts_ns;
                let reached = RecordedReached {
                    tgid,
                    tid,
                    probe: ProbeId(reached.probe),
                    ts_ns,
                    parent: reached.parent,
                    joined: reached.joined,
                };
                Recorded::Reached(reached, look)
            }
            Some(v1::recorded_hit::What::Call(end)) => {
                let Thread { tgid, tid, .. } = self.thread(end.thread)?;
                let end_ns = last_ns.saturating_add_signed(end.after_ns);
                *last_ns = end_ns;
                Recorded::Call(span_end(&end, (tgid, tid), end_ns), look)
            }
        }))
    }

    /// The frames that lead to a node, which are made anew; a message has only so many.
    pub(super) fn counted_stack(&mut self, node: u32) -> Result<Vec<FrameId>, Damaged> {
        let frames = self.stack(node)?;
        self.made += frames.len();
        if self.made > MAX_STACK_FRAMES_OF_MESSAGE {
            return Err(Damaged);
        }
        Ok(frames)
    }

    /// The frame of a number.
    pub(super) fn told_frame(&self, id: u32) -> Result<FrameId, Damaged> {
        self.frames.get(&id).copied().ok_or(Damaged)
    }

    /// The stack of a hit.
    fn hit_stack(&mut self, stack: v1::RecordedStack) -> Result<Arc<NamedStack>, Damaged> {
        let frames = self.counted_stack(stack.node)?;
        let complete = !stack.incomplete;
        Ok(Arc::new(NamedStack { frames, complete }))
    }

    /// The stack of a sample as it is wanted, the same as long as it is kept; by its nodes, of functions and of lines.
    pub(super) fn stacks(
        &mut self,
        (function_node, line_node): (u32, u32),
        task: Option<Task>,
        frames: &mut Frames,
    ) -> Result<Stacks, Damaged> {
        let Some(by) = self.by else {
            return match self.also {
                Some(Also::InCalls) => self.stacks_in_calls([function_node, line_node]),
                _ => Ok(Stacks::default()),
            };
        };
        let node = match by {
            Grouping::Line => line_node,
            _ => function_node,
        };
        let below = match by {
            Grouping::Thread => Some(task.map_or(FrameId::OTHER, |task| task.thread)),
            Grouping::Process => Some(task.map_or(FrameId::OTHER, |task| task.process)),
            _ => None,
        };
        let key = StackKey {
            nodes: [node, 0],
            below,
        };
        if let Some(known) = self.stacks.get(&key) {
            return Ok(known.clone());
        }
        let mut stack = self.stack(node)?;
        if by == Grouping::Module {
            let innermost = stack
                .iter()
                .rev()
                .take_while(|frame| Word::is_of_activity(**frame));
            let words = stack.split_off(stack.len() - innermost.count());
            stack = frames.fold_by_module(&stack);
            stack.extend(words);
        }
        if let Some(below) = below {
            stack.insert(0, below);
        }
        let stacks = Stacks::make([by].into_iter().collect(), |_| stack.clone());
        self.keep_stacks(key, &stacks, stack.len())?;
        Ok(stacks)
    }

    /// The stack of a sample in functions and in lines, the same as long as it is kept.
    fn stacks_in_calls(&mut self, nodes: [u32; 2]) -> Result<Stacks, Damaged> {
        let key = StackKey { nodes, below: None };
        if let Some(known) = self.stacks.get(&key) {
            return Ok(known.clone());
        }
        let [functions, lines] = nodes;
        let (functions, lines) = (self.stack(functions)?, self.stack(lines)?);
        let stacks = Stacks::make(
            [Grouping::Function, Grouping::Line].into_iter().collect(),
            |grouping| match grouping {
                Grouping::Line => lines.clone(),
                _ => functions.clone(),
            },
        );
        self.keep_stacks(key, &stacks, functions.len() + lines.len())?;
        Ok(stacks)
    }

    /// Keeps stacks of so many frames; a message makes only so many.
    fn keep_stacks(&mut self, key: StackKey, stacks: &Stacks, frames: usize) -> Result<(), Damaged> {
        self.made += frames;
        if self.made > MAX_STACK_FRAMES_OF_MESSAGE {
            return Err(Damaged);
        }
        if self.stack_frames + frames > MAX_STACK_FRAMES {
            self.stacks.clear();
            self.stack_frames = 0;
        }
        self.stack_frames += frames;
        self.stacks.insert(key, stacks.clone());
        Ok(())
    }

    /// The frames that lead to a node, root first.
    fn stack(&self, mut node: u32) -> Result<Vec<FrameId>, Damaged> {
        let mut stack = Vec::new();
        while node != 0 {
            let Node { parent, frame } = self.nodes.get(node as usize - 1).ok_or(Damaged)?;
            if stack.len() == MAX_DEPTH {
                return Err(Damaged);
            }
            stack.push(*frame);
            node = *parent;
        }
        stack.reverse();
        Ok(stack)
    }
}

/// What the daemon cost.
fn cost(cost: &v1::Cost) -> Cost {
    Cost {
        cpu_share: cost.cpu_share,
        rss_anon_bytes: cost.rss_anon_bytes,
        kernel_share: cost.kernel_share,
        budget_use: cost.budget_use.map(|budget| BudgetUse {
            taken: budget.taken,
            allowed: budget.allowed,
        }),
    }
}

/// The spans that were open when a sample was taken.
pub(super) fn spans(sample: &v1::RecordedSample, ts_ns: u64) -> Vec<SpanRef> {
    sample.spans.iter().map(|open| span(open, ts_ns)).collect()
}

/// A span that was open at a time.
pub(super) fn span(open: &v1::RecordedSpan, ts_ns: u64) -> SpanRef {
    SpanRef {
        probe: ProbeId(open.probe),
        gates: open.gates,
        sequence: open.sequence,
        start_ns: ts_ns.saturating_sub_signed(open.before_ns),
    }
}

/// The end of a span of a process's thread.
pub(super) fn span_end(end: &v1::RecordedSpanEnd, (tgid, tid): (u32, u32), end_ns: u64) -> SpanEnd {
    SpanEnd {
        kind: SPAN_END,
        flags: end.flags,
        tgid,
        tid,
        probe: ProbeId(end.probe),
        hits: end.hits,
        sequence: end.sequence,
        start_ns: end_ns.saturating_sub(end.duration_ns),
        end_ns,
        parent: end.parent,
        gates: end.gates,
        returned: [0; 2],
    }
}

fn frame(frame: v1::Frame) -> Frame {
    let unresolved = Reason::of_text(&frame.unresolved);
    let nameable = (!frame.build_id.is_empty()).then(|| Nameable {
        build_id: frame.build_id.into(),
        address: frame.address,
    });
    Frame {
        function: frame.function.into(),
        file: frame.file.into(),
        line: frame.line,
        module: frame.module.into(),
        inlined: frame.inlined,
        kernel: frame.kernel,
        unresolved,
        nameable,
    }
}

/// Records, hits and samples of events of kinds that a newer version writes, which are passed over.
fn count_unknown(
    records: &[Option<Recorded>],
    hits: &[v1::RecordedHit],
    event_samples: &[v1::RecordedEventSample],
) -> u64 {
    let records = records.iter().filter(|record| record.is_none());
    let hits = hits.iter().filter(|hit| hit.what.is_none());
    let event_samples = event_samples.iter().filter(|sample| sample.what.is_none());
    (records.count() + hits.count() + event_samples.count()) as u64
}

/// How long calls are remembered.
pub(super) fn ages(scope: &v1::RecordedScope) -> AgeConfig {
    let ns = |duration: Option<prost_types::Duration>| {
        let duration = duration.unwrap_or_default();
        let seconds = u64::try_from(duration.seconds).unwrap_or(0);
        let nanos = u64::try_from(duration.nanos).unwrap_or(0);
        seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
    };
    AgeConfig {
        window: WindowConfig {
            window_ns: ns(scope.window),
            slots: crate::session::WINDOW_SLOTS,
        },
        half_life_ns: ns(scope.half_life),
    }
}

pub(super) fn scope(scope: v1::RecordedScope) -> Result<(RecordedScope, HashMap<ProbeId, u64>), Damaged> {
    let functions = scope.steps.iter().map(|step| step.functions.len().max(1));
    let probes = scope.steps.iter().flat_map(|step| &step.functions);
    let probes = probes.map(|function| function.probes.len());
    let most = MAX_PROBES as usize;
    let is_too_much = scope.steps.len() > MAX_STEPS
        || functions.sum::<usize>() > most
        || probes.sum::<usize>() > most
        || scope.places.len() > most
        || scope.events.len() > MAX_RECORDED_EVENTS
        || scope.warnings.len() > MAX_WARNINGS
        || scope.pids.len() > MAX_PIDS
        || (scope.places.iter()).any(|place| place.expressions.len() > MAX_VALUES);
    if is_too_much {
        return Err(Damaged);
    }
    let mut open = HashMap::new();
    let ages = ages(&scope);
    let mut function = |function: v1::RecordedFunction| {
        open.extend((function.probes.iter()).map(|probe| (ProbeId(probe.id), probe.open)));
        let method = match function.exit_method() {
            v1::ExitMethod::Return => ExitMethod::Return,
            v1::ExitMethod::Never => ExitMethod::Never,
            v1::ExitMethod::SystemCall => ExitMethod::SystemCall,
            v1::ExitMethod::KernelFunction => ExitMethod::KernelFunction,
            v1::ExitMethod::Ret | v1::ExitMethod::Auto | v1::ExitMethod::Unspecified => ExitMethod::Ret,
        };
        let info = function.function.unwrap_or_default();
        RecordedFunction {
            info: Arc::new(FunctionInfo {
                name: info.name,
                linkage_name: info.linkage_name,
                file: info.file,
                line: info.line,
                module: info.module,
                address: info.address,
                size: info.size,
                inlined: info.inlined,
                same_code: info.same_code,
                is_async: info.is_async,
                is_copied: info.is_copied,
            }),
            method,
            overhead_ns: function.overhead_ns,
            probes: function.probes.iter().map(|probe| ProbeId(probe.id)).collect(),
        }
    };
    let steps = (scope.steps.into_iter())
        .map(|step| RecordedStep {
            text: step.text,
            functions: step.functions.into_iter().map(&mut function).collect(),
            gates: step.gates,
        })
        .collect();
    let recorded = RecordedScope {
        text: scope.text.into(),
        steps,
        pids: scope.pids,
        frequency_hz: scope.frequency_hz,
        ages,
        warnings: scope.warnings,
        places: scope.places.into_iter().map(place).collect(),
        off_cpu: scope.off_cpu,
        events: scope.events.iter().filter_map(events::known).collect(),
    };
    Ok((recorded, open))
}

fn place(recorded: v1::RecordedPlace) -> RecordedPlace {
    let expressions = recorded.expressions.into_iter();
    let v1::TracedPlace {
        function,
        file,
        line,
        module,
        address,
        site,
    } = recorded.place.unwrap_or_default();
    RecordedPlace {
        probe: ProbeId(recorded.probe),
        place: Arc::new(TracedPlace {
            site,
            function,
            file,
            line,
            module,
            address,
        }),
        is_call: recorded.is_call,
        shown_per_second: recorded.shown_per_second,
        expressions: expressions
            .map(|told| RecordedExpression {
                expression: told.expression.into(),
                type_name: told.r#type.into(),
            })
            .collect(),
    }
}

/// What was counted at a place.
fn hit_counted(hits: v1::CountedHits) -> Result<HitReading, Damaged> {
    let v1::CountedHits {
        probe,
        reached,
        rejected,
        rate_limit,
        no_thread_state,
        ring_full,
        disturbed,
    } = hits;
    let all = [
        reached,
        rejected,
        rate_limit,
        no_thread_state,
        ring_full,
        disturbed,
    ];
    if all.iter().any(|count| *count > MAX_COUNT) {
        return Err(Damaged);
    }
    Ok(HitReading {
        probe: ProbeId(probe),
        counts: HitCounts {
            reached,
            rejected,
            limited: rate_limit,
            no_state: no_thread_state,
            ring_full,
            disturbed,
        },
    })
}

/// What was counted of a probe.
pub(super) fn counted(calls: v1::CountedCalls) -> Result<Counted, Damaged> {
    let histogram = calls.ended.unwrap_or_default();
    let buckets = buckets(&histogram.bucket_deltas)?;
    if buckets.len() != histogram.counts.len() || histogram.counts.iter().any(|count| *count > MAX_COUNT) {
        return Err(Damaged);
    }
    let ended = buckets.into_iter().zip(histogram.counts).collect();
    let others = [
        calls.begun,
        calls.abandoned,
        calls.too_deep,
        calls.open_at_attach,
        calls.no_thread_state,
        calls.no_histogram_page,
        calls.join_limit,
        calls.refused,
        calls.undecided,
    ];
    if others.iter().any(|count| *count > MAX_COUNT) {
        return Err(Damaged);
    }
    Ok(Counted {
        probe: ProbeId(calls.probe),
        ended,
        counts: ProbeCounts {
            entries: calls.begun,
            abandoned: calls.abandoned,
            too_deep: calls.too_deep,
            unmatched: calls.open_at_attach,
            no_state: calls.no_thread_state,
            no_page: calls.no_histogram_page,
            outside: 0,
            join_limit: calls.join_limit,
            refused: calls.refused,
            undecided: calls.undecided,
            passed_by: 0,
        },
    })
}

/// Buckets, each told by its distance from the one before.
pub(super) fn buckets(deltas: &[u32]) -> Result<Vec<usize>, Damaged> {
    let mut bucket = 0_usize;
    let buckets = deltas.iter().map(|delta| {
        bucket = bucket.saturating_add(*delta as usize);
        (bucket < BUCKETS).then_some(bucket).ok_or(Damaged)
    });
    buckets.collect()
}

pub(super) fn activity(activity: v1::Activity) -> Activity {
    match activity {
        v1::Activity::Unspecified | v1::Activity::OnCpu => Activity::OnCpu,
        v1::Activity::Sleeping => Activity::Sleeping,
        v1::Activity::Uninterruptible => Activity::Uninterruptible,
        v1::Activity::Stopped => Activity::Stopped,
        v1::Activity::Runnable => Activity::Runnable,
    }
}
