#![expect(clippy::float_cmp, reason = "counts are whole numbers")]

use std::collections::BTreeMap;

use profiler_common::{
    layout::{bucket_of, lowest_ns},
    record::{SPAN_END, SpanRef},
};
use proptest::prelude::*;

use super::super::predicate::{Comparison, Limit};
use super::*;

const PROBES: [ProbeId; 2] = [ProbeId(1), ProbeId(2)];
const STRANGER: ProbeId = ProbeId(3);
const MS: u64 = 1_000_000;
const GONE_AFTER_NS: u64 = 5 * MS;

fn predicate(comparison: Comparison, limit: Limit) -> Predicate {
    Predicate { comparison, limit }
}

fn at_least(limit: Limit) -> Vec<Predicate> {
    vec![predicate(Comparison::AtLeast, limit)]
}

/// A thread and the number of one of its spans.
type SpanKey = (u32, u64);

/// Time and samples by node and side (0 inside, 1 outside).
type Weights = BTreeMap<(NodeId, usize), (u64, u64)>;

/// What happens to a thread, and whether the record of it arrives.
#[derive(Clone, Copy, Debug)]
enum Event {
    Enter(ProbeId),
    Sample {
        stack: u32,
        complete: bool,
        delivered: bool,
    },
    Leave {
        abandoned: bool,
        delivered: bool,
    },
    /// The thread ends without leaving its spans.
    Exit,
    /// The daemon looks which spans are gone.
    Look,
}

fn events() -> impl Strategy<Value = Vec<(u32, u64, Event)>> {
    let probe = prop::sample::select(vec![PROBES[0], PROBES[1], STRANGER]);
    let usually = || prop::bool::weighted(0.85);
    let event = prop_oneof![
        4 => probe.prop_map(Event::Enter),
        6 => (1u32..6, usually(), usually())
            .prop_map(|(stack, complete, delivered)| Event::Sample { stack, complete, delivered }),
        4 => (prop::bool::weighted(0.15), usually())
            .prop_map(|(abandoned, delivered)| Event::Leave { abandoned, delivered }),
        1 => Just(Event::Exit),
        1 => Just(Event::Look),
    ];
    prop::collection::vec((0u32..4, 1..3 * MS, event), 1..300)
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Fate {
    Open,
    /// The duration.
    Ended(u64),
    Abandoned,
    /// It ended unseen; when that was noticed.
    Gone(Option<u64>),
    Expired,
}

/// All that really happened, kept in full.
#[derive(Default)]
struct Model {
    now_ns: u64,
    threads: BTreeMap<u32, Vec<SpanRef>>,
    sequences: BTreeMap<u32, u64>,
    fates: BTreeMap<SpanKey, (u64, Fate)>,
    /// Outermost span of the step, node, weight.
    samples: Vec<(Option<SpanKey>, NodeId, u64)>,
    calls: Vec<u64>,
}

impl Model {
    fn apply(&mut self, aggregate: &mut ScopeAggregate, tid: u32, step_ns: u64, event: Event) {
        self.now_ns += step_ns;
        let now_ns = self.now_ns;
        let spans = self.threads.entry(tid).or_default();
        match event {
            Event::Enter(probe) => {
                let sequence = self.sequences.entry(tid).or_default();
                *sequence += 1;
                spans.push(SpanRef {
                    probe,
                    gates: 0,
                    sequence: *sequence,
                    start_ns: now_ns,
                });
                self.fates.insert((tid, *sequence), (now_ns, Fate::Open));
            }
            Event::Sample {
                stack,
                complete,
                delivered: true,
            } => {
                let frames: Vec<_> = (1..=stack).map(FrameId).collect();
                let node = aggregate.intern(&frames, complete);
                let weight_ns = step_ns;
                aggregate.sample(&Sample {
                    tgid: 9,
                    tid,
                    ts_ns: now_ns,
                    weight_ns,
                    count: 1,
                    node,
                    spans,
                });
                let outermost = spans.iter().find(|span| PROBES.contains(&span.probe));
                self.samples
                    .push((outermost.map(|span| (tid, span.sequence)), node, weight_ns));
            }
            Event::Leave { abandoned, delivered } => {
                let Some(span) = spans.pop() else { return };
                let fate = &mut self.fates.get_mut(&(tid, span.sequence)).unwrap().1;
                let duration_ns = now_ns - span.start_ns;
                *fate = match (abandoned, delivered) {
                    (_, false) => Fate::Gone(None),
                    (true, true) => Fate::Abandoned,
                    (false, true) => Fate::Ended(duration_ns),
                };
                if !abandoned && PROBES.contains(&span.probe) {
                    self.calls.push(duration_ns);
                }
                if delivered {
                    aggregate.span_end(&SpanEnd {
                        kind: SPAN_END,
                        flags: if abandoned { SpanEnd::ABANDONED } else { 0 },
                        tgid: 9,
                        tid,
                        probe: span.probe,
                        hits: 1,
                        sequence: span.sequence,
                        start_ns: span.start_ns,
                        end_ns: now_ns,
                        parent: 0,
                        gates: 0,
                        returned: [0; 2],
                    });
                }
            }
            Event::Exit => {
                for span in spans.drain(..) {
                    self.fates.get_mut(&(tid, span.sequence)).unwrap().1 = Fate::Gone(None);
                }
            }
            Event::Look => {
                let fates = &self.fates;
                aggregate.expire(now_ns, GONE_AFTER_NS, |span| {
                    fates[&(span.tid, span.sequence)].1 != Fate::Open
                });
                for (_, fate) in self.fates.values_mut() {
                    if let Fate::Gone(since) = fate {
                        let since = *since.get_or_insert(now_ns);
                        if now_ns - since >= GONE_AFTER_NS {
                            *fate = Fate::Expired;
                        }
                    }
                }
            }
            Event::Sample { delivered: false, .. } => {}
        }
    }

    /// [inside, outside, elsewhere, open] in samples, and the weights.
    fn expected(&self, from_ns: u64, to_ns: u64) -> ([u64; 4], Weights) {
        let mut counts = [0; 4];
        let mut weights = Weights::new();
        // An edge is a bucket's lowest duration, so comparing durations is comparing buckets.
        let inside = |ns: u64| from_ns <= ns && ns < to_ns;
        for (span, node, weight_ns) in &self.samples {
            let side = match span.map(|key| self.fates[&key]) {
                None | Some((_, Fate::Abandoned | Fate::Expired)) => 2,
                Some((_, Fate::Ended(ns))) => usize::from(!inside(ns)),
                Some((start_ns, Fate::Open | Fate::Gone(_))) => {
                    let age_ns = self.now_ns - start_ns;
                    if age_ns >= to_ns {
                        1
                    } else if age_ns >= from_ns && to_ns == u64::MAX {
                        0
                    } else {
                        3
                    }
                }
            };
            counts[side] += 1;
            if side < 2 {
                let sum = weights.entry((*node, side)).or_default();
                *sum = (sum.0 + weight_ns, sum.1 + 1);
            }
        }
        (counts, weights)
    }
}

fn aggregate() -> ScopeAggregate {
    ScopeAggregate::new(Some(Nesting::of(PROBES)), AgeConfig::default(), 0)
}

fn check(picture: &Picture, model: &Model, from_ns: u64, to_ns: u64) {
    let (counts, weights) = model.expected(from_ns, to_ns);
    let summary = picture.summary;
    assert_eq!(
        [summary.inside, summary.outside, summary.elsewhere, summary.open],
        counts
    );
    assert_eq!(summary.samples, model.samples.len() as u64);
    let mut drawn = BTreeMap::new();
    for weight in &picture.weights {
        if weight.inside_samples > 0 {
            drawn.insert((weight.node, 0), (weight.inside_ns, weight.inside_samples));
        }
        if weight.outside_samples > 0 {
            drawn.insert((weight.node, 1), (weight.outside_ns, weight.outside_samples));
        }
    }
    assert_eq!(drawn, weights);
}

proptest! {
    #[test]
    fn every_sample_is_somewhere_and_as_the_model_says(events in events(), threshold_ns in 1..20 * MS) {
        let (mut aggregate, mut model) = (aggregate(), Model::default());
        for (number, (tid, step_ns, event)) in events.into_iter().enumerate() {
            model.apply(&mut aggregate, tid, step_ns, event);
            if number % 16 > 0 {
                continue;
            }
            // Moving the threshold back and forth redraws from what was collected.
            aggregate.set_predicates(at_least(Limit::DurationNs(threshold_ns)));
            let picture = aggregate.picture(model.now_ns, Over::Start, true);
            let edge_ns = picture.summary.threshold_ns.unwrap();
            check(&picture, &model, edge_ns, u64::MAX);
            aggregate.set_predicates(vec![predicate(Comparison::Below, Limit::DurationNs(threshold_ns))]);
            check(&aggregate.picture(model.now_ns, Over::Start, false), &model, 0, edge_ns);
            aggregate.set_predicates(Vec::new());
            check(&aggregate.picture(model.now_ns, Over::Start, false), &model, 0, u64::MAX);
        }
    }

    #[test]
    fn a_percentile_is_that_of_the_calls(events in events(), quantile in 0.01..0.99) {
        let (mut aggregate, mut model) = (aggregate(), Model::default());
        for (tid, step_ns, event) in events {
            model.apply(&mut aggregate, tid, step_ns, event);
        }
        let mut buckets: Vec<_> = model.calls.iter().map(|&ns| bucket_of(ns)).collect();
        buckets.sort_unstable();
        let mut counters = BTreeMap::new();
        for &bucket in &buckets {
            *counters.entry(bucket).or_insert(0) += 1;
        }
        aggregate.calls(model.now_ns, PROBES[0], counters);
        aggregate.set_predicates(at_least(Limit::Quantile(quantile)));
        let picture = aggregate.picture(model.now_ns, Over::Start, false);
        prop_assert_eq!(picture.summary.calls, buckets.len() as f64);
        let Some(first) = picture.summary.threshold_ns else {
            prop_assert!(buckets.first().is_none_or(|&fastest| fastest == 0));
            return Ok(());
        };
        // The lowest call whose rank reaches the quantile is the first inside.
        let reached = |&rank: &usize| rank as f64 >= quantile * buckets.len() as f64;
        let rank = (1..=buckets.len()).find(reached).unwrap();
        prop_assert_eq!(first, lowest_ns(buckets[rank - 1]));
        check(&picture, &model, first, u64::MAX);
        let inside = buckets.iter().filter(|&&bucket| lowest_ns(bucket) >= first).count();
        prop_assert_eq!(picture.summary.calls_inside, inside as f64);
    }
}

/// One call of 10 ms or, every tenth, 100 ms, each sampled once in its own function.
fn serve(aggregate: &mut ScopeAggregate, calls: std::ops::Range<u64>, start_ns: u64) {
    for call in calls {
        let slow = call % 10 == 0;
        let node = aggregate.intern(&[FrameId(1), FrameId(2 + u32::from(slow))], true);
        let duration_ns = if slow { 100 * MS } else { 10 * MS };
        let span = SpanRef {
            probe: PROBES[0],
            gates: 0,
            sequence: call,
            start_ns: start_ns + call * 100 * MS,
        };
        let end_ns = span.start_ns + duration_ns;
        let (ts_ns, weight_ns) = (end_ns - 1, duration_ns);
        aggregate.sample(&Sample {
            tgid: 9,
            tid: 1,
            ts_ns,
            weight_ns,
            count: 1,
            node,
            spans: &[span],
        });
        aggregate.span_end(&SpanEnd {
            kind: SPAN_END,
            flags: 0,
            tgid: 9,
            tid: 1,
            probe: span.probe,
            hits: 1,
            sequence: call,
            start_ns: span.start_ns,
            end_ns,
            parent: 0,
            gates: 0,
            returned: [0; 2],
        });
        let slow_calls = call / 10 + 1;
        let counters = [
            (bucket_of(10 * MS), call + 1 - slow_calls),
            (bucket_of(100 * MS), slow_calls),
        ];
        aggregate.calls(end_ns, PROBES[0], counters);
    }
}

#[test]
fn pictures_age_with_their_calls() {
    let config = AgeConfig::default();
    let mut aggregate = ScopeAggregate::new(Some(Nesting::of(PROBES)), config, 0);
    assert_eq!(aggregate.picture(0, Over::Window, true), Picture::default());
    aggregate.maintain(Over::Window, 0);
    aggregate.maintain(Over::Ewma, 0);
    serve(&mut aggregate, 0..600, 0);
    aggregate.set_predicates(at_least(Limit::Quantile(0.95)));
    let now_ns = 60_000 * MS;
    let [start, window, ewma] =
        [Over::Start, Over::Window, Over::Ewma].map(|over| aggregate.picture(now_ns, over, true));

    let slow = aggregate.intern(&[FrameId(1), FrameId(3)], true);
    for picture in [&start, &window, &ewma] {
        assert_eq!(picture.summary.threshold_ns, Some(lowest_ns(bucket_of(100 * MS))));
        for weight in &picture.weights {
            let sides = (weight.inside_samples > 0, weight.outside_samples > 0);
            assert_eq!(sides, (weight.node == slow, weight.node != slow), "{weight:?}");
        }
        let found = picture.differences.iter().find(|d| d.node == slow).unwrap();
        assert!(found.is_finding() && found.difference.value == 1.0);
    }
    assert_eq!((start.summary.samples, start.summary.inside), (600, 60));
    assert_eq!((start.summary.calls, start.summary.calls_inside), (600.0, 60.0));
    assert_eq!((start.summary.calls_needed, start.summary.warming), (400, false));
    // Every call was sampled once, so a picture's samples are its calls.
    let windowed = window.summary;
    assert!(
        (90..=100).contains(&windowed.samples) && windowed.samples as f64 == windowed.calls,
        "{windowed:?}"
    );
    assert_eq!(windowed.inside as f64, windowed.calls_inside);
    assert!(windowed.warming);
    let decayed = ewma.summary;
    assert!(
        (decayed.samples as f64 - decayed.calls).abs() <= 2.0 && decayed.calls < 350.0,
        "{decayed:?}"
    );

    let later = aggregate.picture(now_ns + 20_000 * MS, Over::Window, true);
    assert_eq!(
        (later.weights.len(), later.summary.samples, later.summary.calls),
        (0, 0, 0.0)
    );
    assert_eq!(later.summary.threshold_ns, None);
}

#[test]
fn calls_before_the_beginning_are_not_of_the_population() {
    let mut aggregate = aggregate();
    aggregate.calls_before(PROBES[0], [(100, 1000)]);
    aggregate.calls(MS, PROBES[0], [(100, 1003), (4000, 1)]);
    aggregate.calls(MS, PROBES[1], [(100, 2)]);
    let division = aggregate.division(MS, Over::Start).unwrap();
    assert_eq!((division.calls, division.calls_inside), (6.0, 6.0));
    assert_eq!(aggregate.division(MS, Over::Ewma), None);
}

#[test]
fn without_a_step_all_is_inside() {
    let mut aggregate = ScopeAggregate::new(None, AgeConfig::default(), 0);
    aggregate.maintain(Over::Window, 0);
    let complete = aggregate.intern(&[FrameId(1)], true);
    let incomplete = aggregate.intern(&[FrameId(1)], false);
    for (second, node) in [(1, complete), (2, incomplete), (15, complete), (15, NodeId(99))] {
        let ts_ns = second * 1000 * MS;
        aggregate.sample(&Sample {
            tgid: 1,
            tid: 1,
            ts_ns,
            weight_ns: MS,
            count: 1,
            node,
            spans: &[],
        });
    }
    let now_ns = 15_000 * MS;
    let start = aggregate.picture(now_ns, Over::Start, false).summary;
    assert_eq!((start.samples, start.inside, start.incomplete), (4, 4, 2));
    assert_eq!((start.threshold_ns, start.warming), (None, false));
    let window = aggregate.picture(now_ns, Over::Window, false);
    let other = CallTree::other(false);
    assert_eq!(
        window
            .weights
            .iter()
            .map(|w| (w.node, w.inside_ns))
            .collect::<Vec<_>>(),
        [(other, MS), (complete, MS)]
    );
}

#[test]
fn elsewhere_ages_too() {
    let mut aggregate = aggregate();
    aggregate.maintain(Over::Window, 0);
    let node = aggregate.intern(&[FrameId(1)], true);
    let spans = &[SpanRef {
        probe: STRANGER,
        gates: 0,
        sequence: 1,
        start_ns: 0,
    }];
    for second in 1..=30 {
        let ts_ns = second * 1000 * MS;
        aggregate.sample(&Sample {
            tgid: 1,
            tid: 1,
            ts_ns,
            weight_ns: MS,
            count: 1,
            node,
            spans,
        });
    }
    let at = |now_ns, over| aggregate.picture(now_ns, over, false).summary.elsewhere_no_span;
    assert_eq!(at(30_000 * MS, Over::Start), 30);
    assert_eq!(at(30_000 * MS, Over::Window), 10);
    assert_eq!(at(35_000 * MS, Over::Window), 5);
}
