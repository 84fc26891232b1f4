//! One scope's aggregate: samples and calls in, pictures out.

use std::{collections::HashMap, sync::Arc};

use profiler_common::{
    probe::ProbeId,
    record::{SpanEnd, SpanRef},
};

use super::{
    age::{self, Age, Over},
    blocks::Blocks,
    calltree::{CallTree, FrameId, NodeId},
    difference::{differences, divided},
    histogram::Page,
    join::{Awaited, Elsewhere, Ended, Joiner, Level, Reason, Sample},
    latency::AgeConfig,
    matrix::{BucketCell, Cell, Sides},
    path::{Dropped, Path},
    picture::{FlameSummary, NodeWeight, Picture},
    predicate::Predicate,
    reading::Reading,
    reservoir::SampledSpan,
    thread::ThreadId,
    threshold::{Band, Division, Side},
    unique::{Touched, Unique},
};

/// The seed of the selection of spans: any will do, and the same input gives the same picture.
const SEED: u64 = 0x70_726f_6669_6c65;

/// What a scope's samples and calls add up to.
///
/// With a step, samples are joined to the step's spans and divided by its predicates; without one,
/// all samples are inside.
pub struct ScopeAggregate {
    config: AgeConfig,
    tree: CallTree,
    joiner: Option<Joiner>,
    /// As of [`Nesting::by_return`].
    by_return: bool,
    /// What waits for spans around the step that divides.
    path: Path<Ended>,
    predicates: Vec<Predicate>,
    readings: HashMap<ProbeId, Reading>,
    start: Box<dyn Age>,
    window: Option<Box<dyn Age>>,
    ewma: Option<Box<dyn Age>>,
    calls: Vec<(usize, u64)>,
    /// Where what is touched counts once: instead of the matrices.
    unique: Option<Unique>,
    /// Where samples of no span are to be compared: in the place of spans.
    blocks: Option<Blocks>,
    /// Single calls are kept, to be compared.
    observes: bool,
}

/// The steps of a scope, as its samples are looked for in their spans.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Nesting {
    /// From the step that divides (the last one that asks for a duration, or else the last one) to the last one.
    pub levels: Vec<Level>,
    /// The steps with spans before the one that divides, outermost first: their probes, and whether they ask for a
    /// duration; and that one itself, which asks nothing here.
    pub around: Vec<(Vec<ProbeId>, bool)>,
    /// The spans of the step that divides count only if they return what is asked: none does before it has ended.
    pub by_return: bool,
}

impl Nesting {
    /// One step of these probes.
    #[must_use]
    pub fn of<const N: usize>(probes: [ProbeId; N]) -> Self {
        Self {
            levels: vec![Level::from(probes)],
            around: vec![(probes.to_vec(), false)],
            by_return: false,
        }
    }
}

impl ScopeAggregate {
    /// An aggregate of the spans of these steps, or with `None` of all samples.
    /// It begins at `now_ns`, over [`Over::Start`] alone; [`Self::maintain`] adds the others.
    #[must_use]
    pub fn new(nesting: Option<Nesting>, config: AgeConfig, now_ns: u64) -> Self {
        let around = nesting.iter().flat_map(|nesting| nesting.around.iter().cloned());
        Self {
            config,
            tree: CallTree::new(),
            path: Path::new(around, samples_of),
            by_return: nesting.as_ref().is_some_and(|nesting| nesting.by_return),
            joiner: nesting.map(|nesting| Joiner::new(nesting.levels)),
            predicates: Vec::new(),
            readings: HashMap::new(),
            start: age::new(Over::Start, config, now_ns, SEED),
            window: None,
            ewma: None,
            calls: Vec::new(),
            unique: None,
            blocks: None,
            observes: true,
        }
    }

    /// Keeps no single calls, where nobody asks for differences.
    #[must_use]
    pub fn without_observations(mut self) -> Self {
        self.observes = false;
        self
    }

    /// Without a step, keeps pieces of each thread's time, of this length, in the place of spans: what
    /// [`Self::compared`] takes for observations.
    #[must_use]
    pub fn in_blocks(mut self, length_ns: u64) -> Self {
        self.blocks = self.joiner.is_none().then(|| Blocks::new(length_ns));
        self
    }

    /// Counts what samples touched once, whatever the durations of the spans that they lie in. What stacks without a common
    /// function touch stands at this frame.
    #[must_use]
    pub fn counting_unique(mut self, nowhere: FrameId) -> Self {
        self.unique = Some(Unique::new(&mut self.tree, nowhere));
        self
    }

    /// Takes what a sample touched, where such is counted: at once, be it that its span has not ended.
    pub fn touch(&mut self, node: NodeId, spans: &[SpanRef], touched: &Touched) {
        let Some(unique) = &mut self.unique else { return };
        if self.joiner.as_ref().is_some_and(|joiner| !joiner.admits(spans)) {
            unique.pass_by();
        } else {
            unique.touch(&self.tree, node, touched);
        }
    }

    /// Samples that touched what there was no room for.
    #[must_use]
    pub fn beyond_unique(&self) -> u64 {
        self.unique.as_ref().map_or(0, Unique::lost)
    }

    /// Begins to keep what pictures over `over` need, unless it is kept already. Such a picture
    /// shows what came after this.
    pub fn maintain(&mut self, over: Over, now_ns: u64) {
        let slot = match over {
            Over::Start => return,
            Over::Window => &mut self.window,
            Over::Ewma => &mut self.ewma,
        };
        slot.get_or_insert_with(|| age::new(over, self.config, now_ns, SEED));
    }

    /// Replaces the predicates. The next picture is divided by them, from what was collected.
    pub fn set_predicates(&mut self, predicates: Vec<Predicate>) {
        self.predicates = predicates;
    }

    /// What the spans inside are asked for.
    pub(super) fn predicates(&self) -> &[Predicate] {
        &self.predicates
    }

    /// Sets what a step before the one that divides asks of its durations.
    pub fn set_band(&mut self, step: usize, band: Band) {
        self.path.set_band(step, band);
    }

    /// The node of a stack: symbolised frames, root first, and whether it reaches a known root.
    pub fn intern(&mut self, stack: &[FrameId], complete: bool) -> NodeId {
        self.tree.intern(stack, complete)
    }

    /// The node of frames on a node: see [`CallTree::intern_on`].
    pub fn intern_on(&mut self, node: NodeId, frames: &[FrameId]) -> NodeId {
        self.tree.intern_on(node, frames)
    }

    /// All nodes.
    #[must_use]
    pub fn tree(&self) -> &CallTree {
        &self.tree
    }

    /// Takes a sample, in the ring buffer's order.
    pub fn sample(&mut self, sample: &Sample<'_>) {
        // A node of another tree has no place here.
        let node = if self.tree.get(sample.node).is_some() {
            sample.node
        } else {
            CallTree::other(false)
        };
        let sample = &Sample { node, ..*sample };
        if let Some(joiner) = &mut self.joiner {
            joiner.sample(sample);
            self.count_elsewhere(sample.ts_ns);
        } else {
            let cell = Cell {
                weight: sample.weight_ns,
                samples: sample.count,
            };
            self.each_age(|age, tree| age.matrix_mut().add(sample.ts_ns, sample.node, 0, cell, tree));
            let ended = self.blocks.as_mut().map(|blocks| blocks.sample(sample));
            ended.into_iter().flatten().for_each(|block| self.observe(block));
        }
    }

    /// Ends the pieces of time that are open, as no more samples come.
    pub fn end_blocks(&mut self) {
        let ended = self.blocks.as_mut().map(Blocks::end);
        ended.into_iter().flatten().for_each(|block| self.observe(block));
    }

    fn observe(&mut self, span: SampledSpan) {
        let span = Arc::new(span);
        self.each_age(|age, _| age.span(&span));
    }

    /// Takes a span's end, in the ring buffer's order.
    pub fn span_end(&mut self, end: &SpanEnd) {
        let Some(joiner) = &mut self.joiner else { return };
        let mut admitted = self.path.span_end(end);
        if let Some(ended) = joiner.span_end(end) {
            if self.path.is_joined(end.probe) {
                self.path
                    .wait(end.tgid, end.tid, u64::from(end.parent), end.end_ns, ended);
            } else {
                admitted.push(ended);
            }
        }
        self.count_elsewhere(end.end_ns);
        for ended in admitted {
            self.add(ended);
        }
    }

    /// Adds the samples of a span that ended as all around it ask.
    fn add(&mut self, ended: Ended) {
        let Ended {
            end_ns,
            bucket,
            leaves,
        } = ended;
        let span = self.observes.then(|| {
            Arc::new(SampledSpan {
                end_ns,
                bucket,
                samples: leaves.iter().map(|(_, cell)| cell.samples).sum(),
                leaves: leaves.iter().map(|&(node, cell)| (node, cell.weight)).collect(),
            })
        });
        self.each_age(|age, tree| {
            if let Some(span) = &span {
                age.span(span);
            }
            for &(node, cell) in &leaves {
                age.matrix_mut().add(end_ns, node, bucket, cell, tree);
            }
        });
    }

    /// Adds what was summed up elsewhere of samples whose spans ended as all around them ask, in some lists: shown since the
    /// start alone.
    pub fn add_ended(&mut self, node: NodeId, lists: &[&[BucketCell]]) {
        self.start.matrix_mut().add_row(0, node, lists, &self.tree);
    }

    /// Adds samples that were found elsewhere to belong to no span: shown since the start alone.
    pub fn add_elsewhere(&mut self, elsewhere: Elsewhere) {
        for (reason, samples) in elsewhere
            .into_iter()
            .enumerate()
            .filter(|(_, samples)| *samples > 0)
        {
            let cell = Cell { weight: 0, samples };
            self.start
                .matrix_mut()
                .add(0, NodeId::NONE, reason, cell, &self.tree);
        }
    }

    /// Takes what was sampled until `latest_ns` in a span that is open. See [`Joiner::wait`].
    pub fn wait(&mut self, span: Awaited, latest_ns: u64, node: NodeId, cell: Cell<u64>) {
        if let Some(joiner) = &mut self.joiner {
            joiner.wait(span, latest_ns, node, cell);
            self.count_elsewhere(latest_ns);
        }
    }

    /// Sets a probe's counters as they stood when this aggregate began: calls before it are not of
    /// the population that is drawn. Without this they are taken to have been zero.
    pub fn calls_before(&mut self, probe: ProbeId, cumulative: impl IntoIterator<Item = (usize, u64)>) {
        self.readings
            .entry(probe)
            .or_default()
            .advance(cumulative, &mut self.calls);
        self.calls.clear();
    }

    /// Takes a probe's counters as read at `now_ns`, by bucket. To be called at every reading, even
    /// where nothing has changed: buckets that are left out have not.
    pub fn calls(&mut self, now_ns: u64, probe: ProbeId, cumulative: impl IntoIterator<Item = (usize, u64)>) {
        self.readings
            .entry(probe)
            .or_default()
            .advance(cumulative, &mut self.calls);
        self.feed_calls(now_ns);
    }

    /// As [`Self::calls`], for whole pages; unchanged ones are nearly free.
    pub fn calls_pages<'a>(
        &mut self,
        now_ns: u64,
        probe: ProbeId,
        cumulative: impl IntoIterator<Item = (usize, &'a Page<u64>)>,
    ) {
        self.readings
            .entry(probe)
            .or_default()
            .advance_pages(cumulative, &mut self.calls);
        self.feed_calls(now_ns);
    }

    /// Gives up samples whose span is gone without an end. See [`Joiner::expire`].
    pub fn expire(&mut self, now_ns: u64, after_ns: u64, is_gone: impl FnMut(&Awaited) -> bool) {
        if let Some(joiner) = &mut self.joiner {
            joiner.expire(now_ns, after_ns, is_gone);
            self.count_elsewhere(now_ns);
        }
    }

    /// As [`Self::expire`], for spans around those. See [`Path::expire`].
    pub fn expire_around(&mut self, now_ns: u64, after_ns: u64, is_gone: impl FnMut(ThreadId) -> bool) {
        self.path.expire(now_ns, after_ns, is_gone);
        self.count_elsewhere(now_ns);
    }

    /// What divides the sides at `now_ns`; [`Division::slow_from_ns`] is the threshold to be kept
    /// current in the kernel. `None` over what is not maintained.
    #[must_use]
    pub fn division(&self, now_ns: u64, over: Over) -> Option<Division> {
        Some(self.age(over)?.divide(now_ns, &self.predicates))
    }

    /// The scope at `now_ns`; empty over what is not maintained. `difference` asks for the
    /// comparison of the two sides.
    #[must_use]
    pub fn picture(&self, now_ns: u64, over: Over, difference: bool) -> Picture {
        let Some(age) = self.age(over) else {
            return Picture::default();
        };
        let division = age.divide(now_ns, &self.predicates);
        let band = self.band(&division);
        let mut sides = vec![Sides::default(); self.tree.len() + 1];
        age.matrix().sides(now_ns, band, &mut sides);
        let open = self.joiner.as_ref().map_or(0, |joiner| {
            joiner.decided(
                now_ns,
                division.band.filter(|_| !self.by_return),
                |side, node, cell| {
                    let sides: &mut Sides<u64> = &mut sides[node.index()];
                    *(if side == Side::Inside {
                        &mut sides.inside
                    } else {
                        &mut sides.outside
                    }) += cell;
                },
            )
        });
        let open = open + self.path.waiting();
        let differences = if difference {
            differences(&self.tree, &divided(band, &age.spans(now_ns)))
        } else {
            Vec::new()
        };
        let mut elsewhere = age.matrix().elsewhere(now_ns);
        if let Some(unique) = &self.unique {
            for (node, cell) in unique.cells() {
                sides[node.index()].inside += cell;
            }
            elsewhere[Reason::NoSpan as usize] += unique.elsewhere();
        }
        let weights = weights(&sides);
        let summary = self.summary(&weights, open, elsewhere, &division);
        let folded_stacks = age.matrix().folded() + self.tree.folded();
        let summary = FlameSummary {
            folded_stacks,
            coarse_bits: age.matrix().coarse_bits(),
            ..summary
        };
        Picture {
            weights,
            summary,
            differences,
        }
    }

    /// The durations of the spans inside; without a step, all samples are.
    pub(super) fn band(&self, division: &Division) -> Band {
        if self.joiner.is_some() {
            division.inside()
        } else {
            Band::ALL
        }
    }

    fn summary(
        &self,
        weights: &[NodeWeight],
        open: u64,
        elsewhere: Elsewhere,
        division: &Division,
    ) -> FlameSummary {
        let mut summary = FlameSummary {
            open,
            elsewhere: elsewhere.iter().sum(),
            elsewhere_no_span: elsewhere[Reason::NoSpan as usize],
            elsewhere_abandoned: elsewhere[Reason::Abandoned as usize],
            elsewhere_expired: elsewhere[Reason::Expired as usize],
            ..FlameSummary::default()
        };
        for weight in weights {
            summary.inside += weight.inside_samples;
            summary.outside += weight.outside_samples;
            if !self.tree.is_complete(weight.node) {
                summary.incomplete += weight.inside_samples + weight.outside_samples;
            }
        }
        summary.samples = summary.inside + summary.outside + summary.elsewhere + summary.open;
        if self.joiner.is_some() {
            summary.threshold_ns = division.threshold_ns();
            summary.calls = division.calls;
            summary.calls_inside = division.calls_inside;
            summary.warming = division.warming;
            summary.calls_needed = division.calls_needed;
        }
        summary
    }

    pub(super) fn age(&self, over: Over) -> Option<&dyn Age> {
        match over {
            Over::Start => Some(&*self.start),
            Over::Window => self.window.as_deref(),
            Over::Ewma => self.ewma.as_deref(),
        }
    }

    fn each_age(&mut self, mut each: impl FnMut(&mut dyn Age, &CallTree)) {
        let ages = [Some(&mut self.start), self.window.as_mut(), self.ewma.as_mut()];
        ages.into_iter()
            .flatten()
            .for_each(|age| each(&mut **age, &self.tree));
    }

    fn feed_calls(&mut self, now_ns: u64) {
        let calls = std::mem::take(&mut self.calls);
        self.each_age(|age, _| age.calls(now_ns, &calls));
        self.calls = calls;
        self.calls.clear();
    }

    fn count_elsewhere(&mut self, now_ns: u64) {
        let Some(joiner) = &mut self.joiner else { return };
        let mut elsewhere = joiner.take_elsewhere();
        let Dropped {
            outside,
            abandoned,
            expired,
            join_full,
        } = self.path.take_dropped();
        elsewhere[Reason::NoSpan as usize] += outside;
        elsewhere[Reason::Abandoned as usize] += abandoned;
        elsewhere[Reason::Expired as usize] += expired + join_full;
        for (reason, samples) in elsewhere.into_iter().enumerate().filter(|(_, n)| *n > 0) {
            let cell = Cell { weight: 0, samples };
            self.each_age(|age, tree| age.matrix_mut().add(now_ns, NodeId::NONE, reason, cell, tree));
        }
    }
}

fn samples_of(ended: &Ended) -> u64 {
    ended.leaves.iter().map(|(_, cell)| cell.samples).sum()
}

fn weights(sides: &[Sides<u64>]) -> Vec<NodeWeight> {
    let nodes = (0..).map(NodeId).zip(sides).skip(1);
    let weights = nodes.map(|(node, Sides { inside, outside })| NodeWeight {
        node,
        inside_ns: inside.weight,
        inside_samples: inside.samples,
        outside_ns: outside.weight,
        outside_samples: outside.samples,
    });
    weights.filter(|weight| !weight.is_zero()).collect()
}

#[cfg(test)]
mod tests;
