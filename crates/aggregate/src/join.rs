//! Joins samples to the spans that they were taken in.
//!
//! A sample belongs to the outermost open span of the scope's last step on its thread, and with it to the innermost
//! spans of the steps before that lie around it. It waits for the span of the last step that asks for a duration:
//! whether that is slow is known only when it has ended. The ring buffer keeps order: a span's samples come before its
//! end.

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;

use profiler_common::{
    layout::bucket_of,
    probe::ProbeId,
    record::{SpanEnd, SpanRef},
};

use super::{
    calltree::NodeId,
    matrix::Cell,
    tally::Tally,
    threshold::{Band, Side},
};

/// (Span, stack) pairs that may wait for the end of their span. Beyond it the spans that were not
/// sampled for the longest time are given up, as `expired`.
pub const MAX_PENDING: usize = 1 << 17;

/// A sample as the join takes it.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// The process.
    pub tgid: u32,
    /// The thread.
    pub tid: u32,
    /// `CLOCK_MONOTONIC`.
    pub ts_ns: u64,
    /// The time that it stands for; or how many events, where the aggregate is of such.
    pub weight_ns: u64,
    /// Sample count: 1, or 0 for a continuation of the previous sample.
    pub count: u64,
    /// Its stack.
    pub node: NodeId,
    /// The thread's open spans, outermost first.
    pub spans: &'a [SpanRef],
}

/// A step as it is looked for among a thread's open spans.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Level {
    /// Its probes.
    pub probes: HashSet<ProbeId, RandomState>,
    /// Gates of lines that have to have been reached in its span.
    pub gates: u32,
}

impl Level {
    /// Whether a span is one of it.
    #[must_use]
    pub fn holds(&self, span: &SpanRef) -> bool {
        self.probes.contains(&span.probe) && span.gates & self.gates == self.gates
    }
}

impl<const N: usize> From<[ProbeId; N]> for Level {
    fn from(probes: [ProbeId; N]) -> Self {
        Self {
            probes: probes.into_iter().collect(),
            gates: 0,
        }
    }
}

/// Why a sample belongs to no span of the step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Reason {
    /// No span of the step was open, or one around it was not as is asked.
    NoSpan = 0,
    /// Its span was abandoned, and so has no duration.
    Abandoned = 1,
    /// The end of its span never came.
    Expired = 2,
}

/// Samples that belong to no span of the step, by [`Reason`].
pub type Elsewhere = [u64; 3];

/// The samples of a span that has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ended {
    /// When it ended.
    pub end_ns: u64,
    /// The bucket of its duration.
    pub bucket: usize,
    /// What was sampled in it, by stack; each stack once.
    pub leaves: Vec<(NodeId, Cell<u64>)>,
}

/// A span that samples wait for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Awaited {
    /// The process.
    pub tgid: u32,
    /// The thread.
    pub tid: u32,
    /// Its number within the thread.
    pub sequence: u64,
    /// Whose span it is.
    pub probe: ProbeId,
    /// When it began.
    pub start_ns: u64,
}

#[derive(Clone, Debug)]
struct Pending {
    span: Awaited,
    latest_ns: u64,
    gone_since_ns: Option<u64>,
    samples: u64,
    stacks: Tally<Cell<u64>>,
}

/// A span's id on this host: its thread and its number there.
type SpanKey = (u32, u64);

/// Joins samples to the spans of one step.
#[derive(Clone, Debug)]
pub struct Joiner {
    levels: Vec<Level>,
    pending: HashMap<SpanKey, Pending, RandomState>,
    /// Entries of all tallies.
    stacks: usize,
    max_pending: usize,
    elsewhere: Elsewhere,
}

impl Joiner {
    /// Joins to spans of the first of these steps what lies in those of the last.
    #[must_use]
    pub fn new(levels: Vec<Level>) -> Self {
        Self::with_limit(levels, MAX_PENDING)
    }

    /// As [`Self::new`], with another bound than [`MAX_PENDING`].
    #[must_use]
    pub fn with_limit(levels: Vec<Level>, max_pending: usize) -> Self {
        Self {
            levels,
            pending: HashMap::default(),
            stacks: 0,
            max_pending,
            elsewhere: [0; 3],
        }
    }

    /// Takes a sample.
    pub fn sample(&mut self, sample: &Sample<'_>) {
        let Some(outermost) = self.find(sample.spans) else {
            self.elsewhere[Reason::NoSpan as usize] += sample.count;
            return;
        };
        let span = Awaited {
            tgid: sample.tgid,
            tid: sample.tid,
            sequence: outermost.sequence,
            probe: outermost.probe,
            start_ns: outermost.start_ns,
        };
        let cell = Cell {
            weight: sample.weight_ns,
            samples: sample.count,
        };
        self.wait(span, sample.ts_ns, sample.node, cell);
    }

    /// Takes what was sampled of a stack until `latest_ns` in a span that is open.
    pub fn wait(&mut self, span: Awaited, latest_ns: u64, node: NodeId, cell: Cell<u64>) {
        let key = (span.tid, span.sequence);
        // A new thread may have got the number of one whose last span's end was lost.
        if self.pending.get(&key).is_some_and(|known| known.span != span) {
            self.give_up(key);
        }
        let pending = self.pending.entry(key).or_insert_with(|| Pending {
            span,
            latest_ns: 0,
            gone_since_ns: None,
            samples: 0,
            stacks: Tally::default(),
        });
        let before = pending.stacks.len();
        pending.stacks.add(node.0.into(), cell);
        pending.samples = pending.samples.saturating_add(cell.samples);
        pending.latest_ns = pending.latest_ns.max(latest_ns);
        self.stacks = self.stacks - before + pending.stacks.len();
        if self.stacks > self.max_pending {
            self.give_up_oldest();
        }
    }

    /// Whether these open spans are such that a sample in them is of the step.
    #[must_use]
    pub fn admits(&self, spans: &[SpanRef]) -> bool {
        self.find(spans).is_some()
    }

    /// The span that a sample waits for.
    fn find<'s>(&self, spans: &'s [SpanRef]) -> Option<&'s SpanRef> {
        let (last, around) = self.levels.split_last()?;
        let mut at = spans.iter().position(|span| last.holds(span))?;
        for level in around.iter().rev() {
            at = spans.get(..at)?.iter().rposition(|span| level.holds(span))?;
        }
        spans.get(at)
    }

    /// Takes a span's end; returns its samples, if any waited for it and it has a duration.
    pub fn span_end(&mut self, end: &SpanEnd) -> Option<Ended> {
        let key = (end.tid, end.sequence);
        let span = self.pending.get(&key)?.span;
        if (span.tgid, span.probe, span.start_ns) != (end.tgid, end.probe, end.start_ns) {
            return None;
        }
        let pending = self.remove(key)?;
        if end.flags & SpanEnd::ABANDONED != 0 {
            self.elsewhere[Reason::Abandoned as usize] += pending.samples;
            return None;
        }
        if end.flags & SpanEnd::REFUSED != 0 {
            self.elsewhere[Reason::NoSpan as usize] += pending.samples;
            return None;
        }
        let stacks = pending.stacks.into_sums();
        Some(Ended {
            end_ns: end.end_ns,
            bucket: bucket_of(end.end_ns.saturating_sub(end.start_ns)),
            leaves: stacks
                .into_iter()
                .map(|(node, cell)| (node_of_key(node), cell))
                .collect(),
        })
    }

    /// Gives up spans that have been gone for `after_ns` without an end record.
    ///
    /// `is_gone` is asked of every span that samples wait for; it says whether the span is known to
    /// be open no more, say because its thread has exited or its probe was removed. The delay gives
    /// an end record that is still in the ring buffer the time to arrive.
    pub fn expire(&mut self, now_ns: u64, after_ns: u64, mut is_gone: impl FnMut(&Awaited) -> bool) {
        let mut expired = Vec::new();
        for (&key, pending) in &mut self.pending {
            if !is_gone(&pending.span) {
                pending.gone_since_ns = None;
                continue;
            }
            let since_ns = *pending.gone_since_ns.get_or_insert(now_ns);
            if now_ns.saturating_sub(since_ns) >= after_ns {
                expired.push(key);
            }
        }
        for key in expired {
            self.give_up(key);
        }
    }

    /// What has become of samples that belong to no span since this was last called.
    #[must_use]
    pub fn take_elsewhere(&mut self) -> Elsewhere {
        std::mem::take(&mut self.elsewhere)
    }

    /// Samples that wait for the end of their span.
    #[must_use]
    pub fn open(&self) -> u64 {
        self.pending.values().map(|pending| pending.samples).sum()
    }

    /// Pairs of a span and a stack that wait; one may count several times.
    #[must_use]
    pub fn stacks(&self) -> usize {
        self.stacks
    }

    /// The spans that samples wait for.
    pub fn awaited(&self) -> impl Iterator<Item = &Awaited> {
        self.pending.values().map(|pending| &pending.span)
    }

    /// The samples that wait, by span and stack; one pair may come several times, with parts of its sum.
    pub fn waiting(&self) -> impl Iterator<Item = (&Awaited, NodeId, Cell<u64>)> {
        self.pending.values().flat_map(|pending| {
            let stacks = pending.stacks.iter();
            stacks.map(|(node, cell)| (&pending.span, node_of_key(node), cell))
        })
    }

    /// Hands out the samples of open spans whose side is already certain at `now_ns`, and returns
    /// the number of those whose side is not.
    pub fn decided(
        &self,
        now_ns: u64,
        band: Option<Band>,
        mut each: impl FnMut(Side, NodeId, Cell<u64>),
    ) -> u64 {
        let mut open = 0;
        for pending in self.pending.values() {
            let age = bucket_of(now_ns.saturating_sub(pending.span.start_ns));
            match band.map_or(Side::Open, |band| band.side_of_open(age)) {
                Side::Open => open += pending.samples,
                side => pending
                    .stacks
                    .iter()
                    .for_each(|(node, cell)| each(side, node_of_key(node), cell)),
            }
        }
        open
    }

    fn remove(&mut self, key: SpanKey) -> Option<Pending> {
        let pending = self.pending.remove(&key)?;
        self.stacks -= pending.stacks.len();
        Some(pending)
    }

    fn give_up(&mut self, key: SpanKey) {
        if let Some(pending) = self.remove(key) {
            self.elsewhere[Reason::Expired as usize] += pending.samples;
        }
    }

    /// Gives up an eighth at a time, so that the sort is rare.
    fn give_up_oldest(&mut self) {
        let mut by_age: Vec<_> = self
            .pending
            .iter()
            .map(|(&key, pending)| (pending.latest_ns, key))
            .collect();
        by_age.sort_unstable();
        for (_, key) in by_age {
            if self.stacks <= self.max_pending - self.max_pending / 8 {
                break;
            }
            self.give_up(key);
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "keys are nodes")]
fn node_of_key(key: u64) -> NodeId {
    NodeId(key as u32)
}

#[cfg(test)]
mod tests;
