//! What a flame graph is made of, while somebody looks at one.

use std::{collections::HashMap, ops::Range, sync::Arc};

use foldhash::fast::RandomState;
use profiler_aggregate::{
    Over, ScopeAggregate, ThreadId,
    calltree::{CallTree, FrameId, Node, NodeId},
    compared::Compared,
    join::Sample,
    late::{Late, MAX_LATE_NS, Ready},
    latency::AgeConfig,
    matrix::BucketCell,
    predicate::Predicate,
    threshold::Band,
    unique::Touched,
};
use profiler_common::{
    probe::ProbeId,
    record::{SpanEnd, SpanRef, Weight},
};
use profiler_symbolize::{FrameTable, Stacks, Word};
use profiler_target::has_thread;

use super::{
    chains::Chain,
    division::{self, CountedStep},
    ending::Ending,
    picture::{Cost, FlameKind, FlamePicture, FlameVariant, Losses},
    population::{Calls, Population},
    records::{RecordedSample, SummedSamples},
    sampling::{SampleCounts, event_losses},
    symbols::{Dropped, Named},
    watchers::Watchers,
};
use crate::kernel::{Activity, Event, Key};

/// After this long, samples of a thread that is gone no longer wait for their span to end.
pub const EXPIRE_AFTER_NS: u64 = 2_000_000_000;

/// Length of the pieces of a thread's time that stand for calls where there are none.
const COMPARED_BLOCK_NS: u64 = 250_000_000;

/// Stacks whose nodes are kept; then all are looked up anew.
const MAX_PLACED: usize = 1 << 13;

/// Cells and rows of summaries that are kept to be added together; one more summary, and they are.
const MAX_SUMMED: usize = 1 << 20;

/// The flame graph of one scope, of one kind of frame.
pub struct Flame {
    kind: FlameKind,
    aggregate: ScopeAggregate,
    /// The nodes of stacks that come again, by where these are and whether they are complete.
    placed: HashMap<(usize, bool), (NodeId, Stacks), RandomState>,
    overs: Vec<Over>,
    /// Grows with each scope whose functions are others: its nodes have nothing in common with those before.
    generation: u64,
    /// The tree's nodes as they are sent, kept up to date with it.
    nodes: Arc<Vec<Node>>,
    /// When it began: samples that were on their way then are not its own.
    since_ns: u64,
    before: SampleCounts,
    /// Samples whose weight is not known yet, of an event of such.
    late: Option<Late<LateSample>>,
    summed: Summed,
}

/// What summaries have of calls that ended, until it is added: stack by stack, as all of a stack's cells are then near, and those
/// of all stacks are more than the CPU keeps near.
#[derive(Default)]
struct Summed {
    rows: Vec<SummedCells>,
    /// Cells and rows of the summaries that these are of.
    entries: usize,
}

/// Cells of a stack in a summary.
struct SummedCells {
    node: NodeId,
    cells: Arc<[BucketCell]>,
    /// Which of these.
    of_row: Range<usize>,
}

impl SummedCells {
    fn cells(&self) -> &[BucketCell] {
        self.cells.get(self.of_row.clone()).unwrap_or_default()
    }
}

/// A sample that waits for its weight.
struct LateSample {
    tgid: u32,
    tid: u32,
    ts_ns: u64,
    node: NodeId,
    spans: Vec<SpanRef>,
}

/// What all pictures made at one moment have in common.
pub struct Moment<'a> {
    pub now_ns: u64,
    pub scope: &'a Arc<str>,
    pub frames: &'a FrameTable,
    pub cost: Cost,
    pub dropped: Dropped,
    /// Lost before the samples came here, by its reason.
    pub also_lost: Losses,
    /// Why these are the last ones.
    pub ended: Option<&'a Ending>,
}

/// Bytes of a page, and of a block as such are counted once.
const PAGE: u64 = 4096;

/// Bytes of a sector, the kernel's unit on every device.
const SECTOR: u64 = 512;

/// What an event of a process touched, in whole pages or blocks.
fn touched(event: Event, tgid: u32, key: Key, weight: u64) -> Touched {
    if event.of_tracepoint().is_none() {
        let page = key.place / PAGE;
        return Touched {
            space: tgid,
            places: page..=page,
            weight: 1,
        };
    }
    let first = key.place.saturating_mul(SECTOR);
    let last = first.saturating_add(weight.saturating_sub(1));
    Touched {
        // The kernel's numbers of devices have as many bits.
        space: u32::try_from(key.space).unwrap_or(u32::MAX),
        places: first / PAGE..=last / PAGE,
        weight: PAGE,
    }
}

/// Whether a thread has ended.
pub fn is_gone(ThreadId { tgid, tid }: ThreadId) -> bool {
    !has_thread(tgid, tid)
}

impl Flame {
    /// Begins now, without calls or samples, for the steps of a scope; `before` is of those that are not its own.
    pub fn new<S: CountedStep>(
        kind: FlameKind,
        before: SampleCounts,
        steps: &[S],
        calls: Calls<'_>,
        ages: AgeConfig,
        now_ns: u64,
    ) -> Self {
        let mut aggregate = ScopeAggregate::new(division::nesting(steps), ages, now_ns);
        let divider = division::divider(steps);
        if let Some((number, step)) = divider.and_then(|number| Some((number, steps.get(number)?))) {
            let population = division::population(steps, number, calls);
            for probe in step.functions().probes() {
                aggregate.calls_before(probe, population.histogram(probe));
            }
        }
        aggregate.set_predicates(division::dividing(steps));
        if kind.unique {
            aggregate = aggregate.counting_unique(Word::NothingInCommon.frame());
        }
        Self {
            kind,
            aggregate,
            placed: HashMap::default(),
            overs: Vec::new(),
            generation: 0,
            nodes: Arc::default(),
            since_ns: now_ns,
            before,
            late: kind
                .times
                .event()
                .is_some_and(Event::is_weighed_later)
                .then(Late::default),
            summed: Summed::default(),
        }
    }

    /// What is collected.
    pub fn kind(&self) -> FlameKind {
        self.kind
    }

    /// Takes the place of another, whose watchers go on with it.
    pub fn succeeding(mut self, other: &Self, now_ns: u64) -> Self {
        self.generation = other.generation + 1;
        for over in &other.overs {
            self.maintain(*over, now_ns);
        }
        self
    }

    /// Keeps what pictures over this histogram need.
    pub fn maintain(&mut self, over: Over, now_ns: u64) {
        if !self.overs.contains(&over) {
            self.overs.push(over);
        }
        self.aggregate.maintain(over, now_ns);
    }

    /// Divides what was collected anew.
    pub fn set_predicates(&mut self, predicates: Vec<Predicate>) {
        self.aggregate.set_predicates(predicates);
    }

    /// Takes a sample of the target, at this event if it is of one, and what may be drawn on it.
    pub fn sample(&mut self, sample: &Named, at: Option<Event>, chains: &[Chain]) {
        if let Named::Sample {
            event: _,
            tgid,
            tid,
            ts_ns,
            until_ns: _,
            weight,
            key,
            activity,
            count,
            spans,
            stacks,
            complete,
            goes_on: _,
            lock: _,
            system_call: _,
            task: _,
        } = sample
            && self.kind.times.event() == at
            && (at.is_some() || self.kind.times.contain(*activity))
            && *ts_ns >= self.since_ns
            && let Some(node) = self.node(stacks, *complete)
        {
            let (tgid, tid, ts_ns, weight_ns, count) = (*tgid, *tid, *ts_ns, *weight, *count);
            if self.kind.unique {
                if let Some(event) = at {
                    self.aggregate
                        .touch(node, spans, &touched(event, tgid, *key, weight_ns));
                }
                return;
            }
            if let Some(late) = &mut self.late {
                let sample = LateSample {
                    tgid,
                    tid,
                    ts_ns,
                    node,
                    spans: spans.clone(),
                };
                let ready = late.sample(tid, (ts_ns, key.place), sample);
                self.take_ready(ready);
                return;
            }
            let sample = Sample {
                tgid,
                tid,
                ts_ns,
                weight_ns,
                count,
                node,
                spans,
            };
            if !self.kind.waits || chains.is_empty() {
                self.aggregate.sample(&sample);
                return;
            }
            for (number, chain) in chains.iter().enumerate() {
                let node = self.aggregate.intern_on(node, &chain.frames);
                self.aggregate.sample(&Sample {
                    weight_ns: chain.time_ns,
                    count: if number == 0 { count } else { 0 },
                    node,
                    ..sample
                });
            }
        }
    }

    /// Takes the time so far of an interval off the CPU in no call, which is not counted among the samples.
    pub fn goes_on(&mut self, sample: &RecordedSample) {
        let innermost = sample.stacks.of(self.kind.by).and_then(<[FrameId]>::last);
        let is_said = innermost == Some(&Word::GoesOn.frame());
        if self.kind.times.contain(sample.activity)
            && sample.activity != Activity::OnCpu
            && let Some(mut node) = self.node(&sample.stacks, sample.complete)
        {
            if !is_said {
                node = self.aggregate.intern_on(node, &[Word::GoesOn.frame()]);
            }
            self.aggregate.sample(&Sample {
                tgid: sample.tgid,
                tid: sample.tid,
                ts_ns: sample.ts_ns,
                weight_ns: sample.weight_ns,
                count: 0,
                node,
                spans: &[],
            });
        }
    }

    /// Takes samples that are summed up: pictures over all calls since the start show them.
    pub fn summed(&mut self, samples: &SummedSamples) {
        let SummedSamples {
            to_ns,
            rows,
            cells,
            elsewhere,
        } = samples;
        let times = self.kind.times;
        for row in rows.iter().filter(|row| times.contain(row.activity)) {
            let Some(node) = self.node(&row.stacks, row.complete) else {
                continue;
            };
            self.summed.rows.push(SummedCells {
                node,
                cells: Arc::clone(cells),
                of_row: row.cells.clone(),
            });
            for (span, cell) in &row.open {
                self.aggregate.wait(*span, *to_ns, node, *cell);
            }
        }
        for (activity, elsewhere) in [
            (Activity::OnCpu, elsewhere.on_cpu),
            (Activity::Sleeping, elsewhere.off_cpu),
        ] {
            if times.contain(activity) {
                self.aggregate.add_elsewhere(elsewhere);
            }
        }
        self.summed.entries += rows.len() + cells.len();
        if self.summed.entries > MAX_SUMMED {
            self.add_summed();
        }
    }

    /// Adds what summaries have of calls that ended. To be called before the samples are looked at.
    fn add_summed(&mut self) {
        let Summed { mut rows, .. } = std::mem::take(&mut self.summed);
        rows.sort_by_key(|row| row.node);
        for rows in rows.chunk_by(|one, next| one.node == next.node) {
            let lists: Vec<_> = rows.iter().map(SummedCells::cells).collect();
            if let Some(row) = rows.first() {
                self.aggregate.add_ended(row.node, &lists);
            }
        }
    }

    /// The node of a stack.
    fn node(&mut self, stacks: &Stacks, complete: bool) -> Option<NodeId> {
        let key = (stacks.address(), complete);
        if let Some((node, _)) = self.placed.get(&key) {
            return Some(*node);
        }
        let node = self.aggregate.intern(stacks.of(self.kind.by)?, complete);
        // Those that found no room are counted each time.
        if stacks.are_shared() && node != CallTree::other(complete) {
            if self.placed.len() >= MAX_PLACED {
                self.placed.clear();
            }
            self.placed.insert(key, (node, stacks.clone()));
        }
        Some(node)
    }

    /// Takes the weight of a sample before, at this event.
    pub fn weight(&mut self, weight: &Weight, at: Event) {
        if self.kind.times.event() == Some(at)
            && let Some(late) = &mut self.late
        {
            let ready = late.weight(weight.tid, (weight.ts_ns, weight.key), weight.weight);
            self.take_ready(ready);
        }
    }

    /// Takes the end of a span.
    pub fn span_end(&mut self, end: &SpanEnd) {
        match &mut self.late {
            Some(late) => {
                let ready = late.end(end);
                self.take_ready(ready);
            }
            None => self.aggregate.span_end(end),
        }
    }

    /// Takes what has waited for weights, in order.
    fn take_ready(&mut self, ready: Vec<Ready<LateSample>>) {
        for ready in ready {
            match ready {
                Ready::End(end) => self.aggregate.span_end(&end),
                Ready::Sample(sample, weight_ns) => self.aggregate.sample(&Sample {
                    tgid: sample.tgid,
                    tid: sample.tid,
                    ts_ns: sample.ts_ns,
                    weight_ns,
                    count: 1,
                    node: sample.node,
                    spans: &sample.spans,
                }),
            }
        }
    }

    /// Gives up samples that were taken before this and whose weight has not come.
    fn expire_late(&mut self, before_ns: u64) {
        if let Some(late) = &mut self.late {
            let ready = late.expire(before_ns);
            self.take_ready(ready);
        }
    }

    /// Sets what a step before the one that divides asks of its durations.
    pub fn set_band(&mut self, step: usize, band: Band) {
        self.aggregate.set_band(step, band);
    }

    /// Reads the calls that the samples are drawn of; gives up samples of threads that are gone, where that is known.
    pub fn read(
        &mut self,
        population: Population<'_>,
        probes: impl Iterator<Item = ProbeId>,
        is_gone: Option<impl Fn(ThreadId) -> bool>,
        now_ns: u64,
    ) {
        self.expire_late(now_ns.saturating_sub(MAX_LATE_NS));
        for probe in probes {
            self.aggregate.calls(now_ns, probe, population.histogram(probe));
        }
        if let Some(is_gone) = is_gone {
            self.expire(now_ns, EXPIRE_AFTER_NS, is_gone);
        }
    }

    /// Gives up samples that wait for the end of a call, which may have been lost.
    pub fn forget_open(&mut self, now_ns: u64) {
        self.expire(now_ns, 0, |_| true);
    }

    fn expire(&mut self, now_ns: u64, after_ns: u64, is_gone: impl Fn(ThreadId) -> bool) {
        self.aggregate.expire(now_ns, after_ns, |awaited| {
            is_gone(ThreadId {
                tgid: awaited.tgid,
                tid: awaited.tid,
            })
        });
        self.aggregate.expire_around(now_ns, after_ns, is_gone);
    }

    /// To be compared with another: without a step, pieces of threads' time stand in the place of calls.
    pub fn comparable(self) -> Self {
        Self {
            aggregate: self.aggregate.in_blocks(COMPARED_BLOCK_NS),
            ..self
        }
    }

    /// Keeps no single calls: differences have nothing to go by.
    pub fn without_observations(self) -> Self {
        Self {
            aggregate: self.aggregate.without_observations(),
            ..self
        }
    }

    /// Compares it with another, of another time. `frame` gives what stands here for a frame of the other.
    pub fn compared(
        &mut self,
        now_ns: u64,
        other: &mut Self,
        other_now_ns: u64,
        over: Over,
        frame: impl Fn(FrameId) -> FrameId,
    ) -> Compared {
        for flame in [&mut *self, &mut *other] {
            flame.expire_late(u64::MAX);
            flame.aggregate.end_blocks();
            flame.add_summed();
        }
        self.aggregate
            .compared(now_ns, &other.aggregate, other_now_ns, over, frame)
    }

    /// What of its samples it could not draw.
    pub fn given_up(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        let unfinished = self.late.as_ref().map_or(0, Late::given_up);
        let given_up = [
            ("event_unfinished", unfinished),
            ("event_key_limit", self.aggregate.beyond_unique()),
        ];
        given_up.into_iter().filter(|(_, count)| *count > 0)
    }

    /// Gives watchers their pictures.
    pub fn publish(
        &mut self,
        watchers: &mut Watchers<FlamePicture, FlameVariant>,
        counts: SampleCounts,
        moment: &Moment<'_>,
    ) {
        if moment.ended.is_some() {
            self.expire_late(u64::MAX);
        }
        self.add_summed();
        self.extend_nodes();
        let SampleCounts { sampling, events } = counts.since(self.before);
        let mut lost = sampling.losses(self.kind.times);
        lost.extend(event_losses(events));
        lost.extend(self.given_up());
        lost.extend(&moment.also_lost);
        watchers.publish(moment.now_ns, moment.ended.is_some(), |variant| {
            let FlameVariant {
                kind,
                over,
                difference,
            } = variant;
            (kind == self.kind).then(|| FlamePicture {
                scope: Arc::clone(moment.scope),
                by: kind.by,
                times: kind.times,
                generation: self.generation,
                frames: moment.frames.clone(),
                nodes: Arc::clone(&self.nodes),
                picture: self.aggregate.picture(moment.now_ns, over, difference),
                before: None,
                attempted: sampling.attempted(self.kind.times) + events.attempted,
                lost: lost.clone(),
                cost: moment.cost,
                ended: moment.ended.cloned(),
            })
        });
    }

    /// Brings the list of nodes up to date with the tree, which only ever grows.
    fn extend_nodes(&mut self) {
        let known = NodeId(u32::try_from(self.nodes.len()).unwrap_or(u32::MAX));
        let new = self.aggregate.tree().nodes_after(known);
        Arc::make_mut(&mut self.nodes).extend(new.map(|(_, node)| node));
    }
}
