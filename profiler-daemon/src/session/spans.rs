//! The slowest calls of the window, while somebody watches them.
//!
//! They are of the step that divides the samples too: the last one that asks for a duration, or else the last one with
//! spans. What the steps behind it see is inside. The programs record a call's end where it took long enough to come
//! among the slowest, and this keeps their limit current by the histogram of all calls; so a call is not recorded, but
//! counted, unless it is one of them.

mod layout;
mod picture;

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use profiler_common::{
    layout::{bucket_of, lowest_ns},
    probe::ProbeId,
    record::SpanEnd,
};

use self::layout::Shown;
pub use self::{
    layout::{Layout, program_losses},
    picture::{SlowSpan, SpanChild, SpansPicture},
};
use super::{flame::Moment, picture::Losses, symbols::Named, trace};
use crate::{
    aggregate::{
        histogram::Histogram,
        slowest::{RECORDED_PER_SHOWN, Rank, Slowest, record_from_ns},
        slowest_open::{Child, Gathered, LeftOut, OpenSpans},
        threshold::Band,
    },
    kernel::Hit,
    symbolize::Grouping,
};

/// What the share of calls in which all lines were reached is remembered by, from one reading to the next.
const REMEMBERED: f64 = 0.95;

/// What was gathered of a span before its end.
pub type Before = Box<Gathered<Hit>>;

/// Since when a target is sampled, which begins when the tables to walk its stacks by are there.
#[derive(Clone)]
pub struct SampledFrom(Arc<AtomicU64>);

impl Default for SampledFrom {
    fn default() -> Self {
        Self(Arc::new(AtomicU64::new(u64::MAX)))
    }
}

impl SampledFrom {
    /// It is sampled by now.
    pub fn set(&self, now_ns: u64) {
        self.0.fetch_min(now_ns, Ordering::Relaxed);
    }
}

/// The slowest calls of a session, while somebody watches them.
pub struct Spans {
    layout: Layout,
    open: OpenSpans<Hit>,
    slowest: Slowest<Arc<SlowSpan>>,
    window_ns: u64,
    /// What is asked of durations.
    band: Band,
    threshold_ns: u64,
    /// Calls whose end came, and those of them in which all lines were reached; a decayed number.
    ended: f64,
    reached: f64,
    /// What had been lost before it began.
    lost_before: Losses,
    sampled_from: SampledFrom,
}

impl Spans {
    /// None yet.
    pub fn new(layout: Layout, wanted: usize, window_ns: u64, lost_before: Losses) -> Self {
        Self {
            layout,
            open: OpenSpans::default(),
            slowest: Slowest::new(wanted, window_ns),
            window_ns,
            band: Band::ALL,
            threshold_ns: 0,
            ended: 0.0,
            reached: 0.0,
            lost_before,
            sampled_from: SampledFrom::default(),
        }
    }

    /// Takes over since when its target is sampled.
    pub fn is_sampled_as(&mut self, other: &Self) {
        self.sampled_from = other.sampled_from();
    }

    /// Since when its target is sampled; others may say so.
    pub fn sampled_from(&self) -> SampledFrom {
        self.sampled_from.clone()
    }

    /// The frames that its stacks are made of: functions tell stacks apart, lines are shown.
    pub const GROUPINGS: [Grouping; 2] = [Grouping::Function, Grouping::Line];

    /// Whose calls are shown.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Goes on with the scope as it has become, if the same calls are shown; whether it does.
    pub fn goes_on(&mut self, layout: Layout) -> bool {
        let same = self.layout.is_same(&layout);
        if same {
            self.layout = layout;
        }
        same
    }

    /// Changes how many are wanted.
    pub fn want(&mut self, wanted: usize) {
        if self.slowest.wanted() != wanted {
            self.slowest.want(wanted);
        }
    }

    /// Takes a sample.
    pub fn sample(&mut self, sample: &Named) {
        let Named::Sample {
            tgid,
            tid,
            ts_ns,
            spans,
            stacks,
            ..
        } = sample
        else {
            return;
        };
        let [Some(functions), Some(lines)] = Self::GROUPINGS.map(|grouping| stacks.of(grouping)) else {
            return;
        };
        for span in spans {
            if self.layout.shown.contains_key(&span.probe) {
                self.open
                    .sample((*tgid, *tid), span.sequence, *ts_ns, functions, lines);
            }
        }
    }

    /// Takes a hit, or what was read where a call began.
    pub fn hit(&mut self, hit: &Hit) {
        let thread = (hit.tgid, hit.tid);
        if hit.is_entry {
            if self.layout.shown.contains_key(&hit.probe) {
                self.open.entry(thread, hit.parent, hit.ts_ns, hit.clone());
            }
        } else if self.layout.behind.contains_key(&hit.probe) {
            let child = Child {
                probe: hit.probe,
                start_ns: hit.ts_ns,
                duration_ns: None,
            };
            self.open.child(thread, hit.parent, child);
        }
    }

    /// Takes the end of a span; gives what was gathered of it, if it is one of those that are shown.
    pub fn span_end(&mut self, end: &SpanEnd) -> Option<Before> {
        let thread = (end.tgid, end.tid);
        if self.layout.shown.contains_key(&end.probe) {
            return self.open.end(thread, end.sequence).map(Box::new);
        }
        if self.layout.behind.contains_key(&end.probe) {
            if end.flags & SpanEnd::JOINED != 0 && end.flags & SpanEnd::ABANDONED == 0 {
                let call = Child {
                    probe: end.probe,
                    start_ns: end.start_ns,
                    duration_ns: Some(end.end_ns.saturating_sub(end.start_ns)),
                };
                self.open.call(thread, end.sequence, u64::from(end.parent), call);
            } else {
                self.open.end(thread, end.sequence);
            }
        }
        None
    }

    /// Takes a call that ended and counts, be it that this was found out only now.
    pub fn call(&mut self, end: &SpanEnd, before: Option<Before>) {
        let Some(shown) = self.layout.shown.get(&end.probe) else {
            return;
        };
        let duration_ns = end.end_ns.saturating_sub(end.start_ns);
        if end.flags & SpanEnd::ABANDONED != 0 || !self.band.contains(bucket_of(duration_ns)) {
            return;
        }
        self.ended += 1.0;
        if end.gates & self.layout.gates != self.layout.gates {
            return;
        }
        self.reached += 1.0;
        let rank = Rank {
            duration_ns,
            end_ns: end.end_ns,
            tid: end.tid,
            sequence: end.sequence,
        };
        let behind = &self.layout.behind;
        let sampled = end.start_ns >= self.sampled_from.0.load(Ordering::Relaxed);
        self.slowest.take(rank, || {
            let before = *before.unwrap_or_default();
            let sampled = sampled || before.samples > 0;
            Arc::new(SlowSpan {
                sampled,
                ..slow_span(end, shown, behind, &before)
            })
        });
    }

    /// Sets what is asked of durations.
    pub fn set_band(&mut self, band: Band) {
        self.band = band;
    }

    /// The duration from which on the ends of calls are to be recorded, by all calls of the window.
    pub fn threshold_ns(&mut self, calls: &Histogram<u64>, now_ns: u64) -> u64 {
        self.slowest.expire(now_ns);
        let share = (self.reached + 1.0) / (self.ended + 1.0);
        self.ended *= REMEMBERED;
        self.reached *= REMEMBERED;
        let wanted = self.slowest.wanted();
        let recorded = (wanted * RECORDED_PER_SHOWN) as f64 / share;
        let threshold_ns = record_from_ns(calls, self.band, recorded);
        self.threshold_ns = if self.slowest.top(now_ns).count() < wanted && threshold_ns < u64::MAX {
            // Calls that take nearly the same need not lie evenly in their bucket.
            lowest_ns(bucket_of(threshold_ns))
        } else {
            threshold_ns
        };
        self.threshold_ns
    }

    /// The slowest at one moment. `lost` is what the session has lost.
    pub fn picture(&self, calls: u64, moment: &Moment<'_>, lost: Losses) -> SpansPicture {
        let LeftOut {
            open_full,
            stacks_full,
        } = self.open.left_out();
        let mut lost = since(lost, &self.lost_before);
        for (reason, count) in [
            ("open_full", open_full),
            ("stacks_full", stacks_full),
            ("kept_full", self.slowest.left_out()),
        ] {
            if count > 0 {
                lost.insert(reason, count);
            }
        }
        let spans = self.slowest.top(moment.now_ns);
        SpansPicture {
            spans: spans.map(|(_, span)| Arc::clone(span)).collect(),
            calls,
            threshold_ns: self.threshold_ns,
            lost,
            ..SpansPicture::without(self.window_ns, moment)
        }
    }
}

fn since(mut lost: Losses, before: &Losses) -> Losses {
    for (reason, count) in &mut lost {
        *count = count.saturating_sub(before.get(reason).copied().unwrap_or(0));
    }
    lost.retain(|_, count| *count > 0);
    lost
}

fn slow_span(
    end: &SpanEnd,
    shown: &Shown,
    behind: &HashMap<ProbeId, Arc<str>>,
    before: &Gathered<Hit>,
) -> SlowSpan {
    let (stack, stack_samples) = before.most_sampled().unwrap_or_default();
    let stack = stack.into();
    let values = match &before.entry {
        Some(hit) => {
            let mut values = trace::read(&shown.printed, hit);
            trace::returned(&shown.printed, end, &mut values);
            Some(values)
        }
        None => shown.printed.is_empty().then(Vec::new),
    };
    let mut children: Vec<SpanChild> = before
        .children
        .iter()
        // Of a span whose end was lost, and that had the same number.
        .filter(|child| child.start_ns >= end.start_ns)
        .filter_map(|child| {
            Some(SpanChild {
                place: Arc::clone(behind.get(&child.probe)?),
                offset_ns: child.start_ns - end.start_ns,
                duration_ns: child.duration_ns,
            })
        })
        .collect();
    children.sort_by_key(|child| child.offset_ns);
    SlowSpan {
        start_ns: end.start_ns,
        pid: end.tgid,
        tid: end.tid,
        function: Arc::clone(&shown.function),
        duration_ns: end.end_ns.saturating_sub(end.start_ns),
        values,
        children,
        children_left_out: before.children_left_out,
        sampled: true,
        samples: before.samples,
        stack,
        stack_samples,
    }
}
