//! What a flame graph is made of, while somebody looks at one.

use std::{collections::HashMap, sync::Arc};

use foldhash::fast::RandomState;
use profiler_common::{probe::ProbeId, record::SpanEnd};

use super::{
    chains::Chain,
    functions::Functions,
    picture::{Cost, FlameKind, FlamePicture, FlameVariant},
    population::Population,
    sampled_events::SampledEvents,
    sampling::{Sampling, event_losses},
    symbols::{Dropped, Named},
    watchers::Watchers,
};
use crate::{
    aggregate::{
        Nesting, Over, ScopeAggregate,
        calltree::{CallTree, NodeId},
        join::Sample,
        latency::AgeConfig,
        predicate::Predicate,
        threshold::Band,
    },
    kernel::{Engine, Event, EventCounts},
    symbolize::{Frame, Stacks},
};

/// After this long, samples of a thread that is gone no longer wait for their span to end.
pub const EXPIRE_AFTER_NS: u64 = 2_000_000_000;

/// Stacks whose nodes are kept; then all are looked up anew.
const MAX_PLACED: usize = 1 << 13;

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
    nodes: Arc<Vec<(u32, u32, bool)>>,
    /// When it began: samples that were on their way then are not its own.
    since_ns: u64,
    before: Sampling,
    /// Of an event.
    events_before: EventCounts,
}

/// What all pictures made at one moment have in common.
pub struct Moment<'a> {
    pub now_ns: u64,
    pub scope: &'a Arc<str>,
    pub frames: &'a Arc<Vec<Frame>>,
    pub events: &'a SampledEvents,
    pub cost: Cost,
    pub dropped: Dropped,
    /// Why these are the last ones.
    pub ended: Option<&'a str>,
}

/// Whether a thread has ended.
pub fn is_gone(tgid: u32, tid: u32) -> bool {
    !std::path::Path::new(&format!("/proc/{tgid}/task/{tid}")).exists()
}

impl Flame {
    /// Begins now, without calls or samples. `spans` are the steps of the scope, and the functions and calls of the one
    /// that divides; `None` for all of the target's samples.
    pub fn new(
        kind: FlameKind,
        (engine, events): (&Engine, &SampledEvents),
        dropped: Dropped,
        spans: Option<&(Nesting, &Functions, Population<'_>)>,
        predicates: Vec<Predicate>,
        ages: AgeConfig,
        now_ns: u64,
    ) -> Self {
        let nesting = spans.map(|(nesting, ..)| nesting.clone());
        let mut aggregate = ScopeAggregate::new(nesting, ages, now_ns);
        if let Some((_, functions, population)) = spans {
            for probe in functions.probes() {
                aggregate.calls_before(probe, population.histogram(probe));
            }
        }
        aggregate.set_predicates(predicates);
        Self {
            kind,
            aggregate,
            placed: HashMap::default(),
            overs: Vec::new(),
            generation: 0,
            nodes: Arc::default(),
            since_ns: now_ns,
            before: Sampling::now(engine, dropped),
            events_before: events.counts(kind.times, engine),
        }
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
            weight,
            activity,
            count,
            spans,
            stacks,
            complete,
            goes_on: _,
        } = sample
            && self.kind.times.event() == at
            && (at.is_some() || self.kind.times.contain(*activity))
            && *ts_ns >= self.since_ns
            && let Some(node) = self.node(stacks, *complete)
        {
            let (tgid, tid, ts_ns, weight_ns, count) = (*tgid, *tid, *ts_ns, *weight, *count);
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

    /// Takes the end of a span.
    pub fn span_end(&mut self, end: &SpanEnd) {
        self.aggregate.span_end(end);
    }

    /// Sets what a step before the one that divides asks of its durations.
    pub fn set_band(&mut self, step: usize, band: Band) {
        self.aggregate.set_band(step, band);
    }

    /// Reads the calls that the samples are drawn of.
    pub fn read(&mut self, population: Population<'_>, probes: impl Iterator<Item = ProbeId>, now_ns: u64) {
        for probe in probes {
            self.aggregate.calls(now_ns, probe, population.histogram(probe));
        }
        self.aggregate.expire(now_ns, EXPIRE_AFTER_NS, |awaited| {
            is_gone(awaited.tgid, awaited.tid)
        });
        self.aggregate.expire_around(now_ns, EXPIRE_AFTER_NS, is_gone);
    }

    /// Gives watchers their pictures.
    pub fn publish(
        &mut self,
        watchers: &mut Watchers<FlamePicture, FlameVariant>,
        engine: &Engine,
        moment: &Moment<'_>,
    ) {
        self.extend_nodes();
        let sampling = Sampling::now(engine, moment.dropped).since(self.before);
        let events = moment.events.counts(self.kind.times, engine);
        let events = events.since(self.events_before);
        let mut lost = sampling.losses(self.kind.times);
        lost.extend(event_losses(events));
        watchers.publish(moment.now_ns, moment.ended.is_some(), |variant, seq| {
            let FlameVariant {
                kind,
                over,
                difference,
            } = variant;
            (kind == self.kind).then(|| FlamePicture {
                seq,
                scope: Arc::clone(moment.scope),
                by: kind.by,
                times: kind.times,
                generation: self.generation,
                frames: Arc::clone(moment.frames),
                nodes: Arc::clone(&self.nodes),
                picture: self.aggregate.picture(moment.now_ns, over, difference),
                attempted: sampling.attempted(self.kind.times) + events.attempted,
                lost: lost.clone(),
                cost: moment.cost,
                ended: moment.ended.map(str::to_owned),
            })
        });
    }

    /// Brings the list of nodes up to date with the tree, which only ever grows.
    fn extend_nodes(&mut self) {
        let known = NodeId(u32::try_from(self.nodes.len()).unwrap_or(u32::MAX));
        let new = self.aggregate.tree().nodes_after(known);
        Arc::make_mut(&mut self.nodes)
            .extend(new.map(|(_, node)| (node.parent.0, node.frame.0, node.complete)));
    }
}
