use super::super::{calltree::FrameId, reservoir::Random};
use super::*;

const BAND: Band = Band { from: 100, to: 200 };
const INSIDE: usize = 150;
const OUTSIDE: usize = 50;

fn random_f64(random: &mut Random) -> f64 {
    (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// root → three functions.
fn tree() -> (CallTree, NodeId, [NodeId; 3]) {
    let mut tree = CallTree::new();
    let root = tree.intern(&[FrameId(1)], true);
    let leaves = [2, 3, 4].map(|frame| tree.intern(&[FrameId(1), FrameId(frame)], true));
    (tree, root, leaves)
}

/// A span of which every sample is in one of the leaves: the first two have a probability that is
/// the span's own, uniform up to twice the mean, so that samples of one span are alike.
fn span(
    random: &mut Random,
    bucket: usize,
    leaves: [NodeId; 3],
    share: [f64; 2],
    long_tail: bool,
) -> SampledSpan {
    let mut samples = 1;
    let more = if long_tail { 0.8 } else { 0.3 };
    while samples < 60 && random_f64(random) < more {
        samples += 1;
    }
    let own = share.map(|share| random_f64(random) * 2.0 * share);
    let mut ns = [0u64; 3];
    for _ in 0..samples {
        let at = random_f64(random);
        let leaf = if at < own[0] {
            0
        } else if at < own[0] + own[1] {
            1
        } else {
            2
        };
        ns[leaf] += 10_000_000;
    }
    let leaves = leaves.into_iter().zip(ns).filter(|(_, ns)| *ns > 0).collect();
    SampledSpan {
        end_ns: 0,
        bucket,
        samples,
        leaves,
    }
}

struct Tally {
    covered: u32,
    findings: u32,
    intervals: u32,
}

/// Of many runs: how often the interval holds the true difference, and how often it excludes 0.
fn simulate(inside: [f64; 2], outside: [f64; 2], counts: [usize; 2], long_tail: bool) -> Tally {
    let (tree, root, leaves) = tree();
    let mut random = Random::new(42);
    let mut tally = Tally {
        covered: 0,
        findings: 0,
        intervals: 0,
    };
    for _ in 0..600 {
        let mut spans = Vec::new();
        spans.extend((0..counts[0]).map(|_| span(&mut random, INSIDE, leaves, inside, long_tail)));
        spans.extend((0..counts[1]).map(|_| span(&mut random, OUTSIDE, leaves, outside, long_tail)));
        let spans: Vec<_> = spans.iter().map(|span| (1.0, span)).collect();
        let found = differences(&tree, &divided(BAND, &spans));
        assert!(found.iter().filter(|d| d.node == root).all(|d| !d.is_finding()));
        for (leaf, truth) in leaves
            .into_iter()
            .zip([inside[0] - outside[0], inside[1] - outside[1]])
        {
            // A leaf never seen is not in the answer, and no interval is claimed for it.
            let Some(found) = found.iter().find(|d| d.node == leaf) else {
                continue;
            };
            tally.intervals += 1;
            tally.covered += u32::from(found.difference.low <= truth && truth <= found.difference.high);
            tally.findings += u32::from(found.is_finding());
        }
    }
    tally
}

#[test]
fn intervals_hold_the_truth_often_enough() {
    let cases = [
        ([0.3, 0.1], [0.3, 0.1], [40, 600]),
        ([0.45, 0.02], [0.1, 0.2], [40, 600]),
        ([0.05, 0.4], [0.01, 0.3], [150, 2000]),
        ([0.02, 0.3], [0.02, 0.01], [15, 300]),
    ];
    for (inside, outside, counts) in cases {
        for long_tail in [false, true] {
            let tally = simulate(inside, outside, counts, long_tail);
            let coverage = f64::from(tally.covered) / f64::from(tally.intervals);
            println!(
                "{inside:?} {outside:?} {counts:?} {long_tail}: {coverage:.4} of {}",
                tally.intervals
            );
            assert!(
                coverage >= 0.93,
                "{inside:?} {outside:?} {counts:?} {long_tail}: {coverage}"
            );
        }
    }
}

#[test]
fn without_a_difference_few_nodes_are_findings() {
    for counts in [[10, 200], [40, 600], [150, 2000]] {
        let tally = simulate([0.25, 0.03], [0.25, 0.03], counts, true);
        let flagged = f64::from(tally.findings) / f64::from(tally.intervals);
        println!("{counts:?}: {flagged:.4}");
        assert!(flagged <= 0.06, "{counts:?}: {flagged}");
    }
}

#[test]
fn a_plain_difference_is_a_finding() {
    let tally = simulate([0.45, 0.02], [0.1, 0.02], [100, 2000], true);
    // The first leaf always; the second has none.
    assert!(tally.findings >= 600, "{}", tally.findings);
}

fn plain(bucket: usize, leaves: &[(NodeId, u64)]) -> SampledSpan {
    SampledSpan {
        end_ns: 0,
        bucket,
        samples: leaves.len() as u64,
        leaves: leaves.into(),
    }
}

#[test]
fn a_node_seen_in_two_calls_is_no_finding() {
    let (tree, root, [slow, common, _]) = tree();
    for inside in [2, 3, 20, 200] {
        // Two calls, each with far more time in `slow` than all the others have together.
        let mut spans = vec![plain(INSIDE, &[(slow, 1_000_000)]); 2];
        spans.extend((2..inside).map(|_| plain(INSIDE, &[(common, 10)])));
        spans.extend((0..1000).map(|_| plain(OUTSIDE, &[(common, 10)])));
        let spans: Vec<_> = spans.iter().map(|span| (1.0, span)).collect();
        let found = differences(&tree, &divided(BAND, &spans));
        let of = |node| found.iter().find(|d| d.node == node).unwrap();
        assert_eq!((of(slow).inside_spans, of(slow).outside_spans), (2, 0));
        assert!(!of(slow).is_finding(), "{inside}: {:?}", of(slow));
        assert_eq!((of(root).inside_spans, of(root).outside_spans), (inside, 1000));
        assert!(!of(root).is_finding());
    }
}

#[test]
fn the_two_ways_of_summing_agree() {
    let (mut tree, root, [a, b, _]) = tree();
    let below = tree.intern(&[FrameId(1), FrameId(2), FrameId(9)], true);
    // Ten spans of one stack below `a`, and ten of two stacks below `a`: half below, half in it.
    let mut spans = vec![plain(INSIDE, &[(below, 100)]); 10];
    spans.extend(vec![plain(INSIDE, &[(a, 50), (below, 50)]); 10]);
    spans.extend(vec![plain(INSIDE, &[(b, 100)]); 20]);
    spans.extend(vec![plain(OUTSIDE, &[(b, 100)]); 30]);
    let spans: Vec<_> = spans.iter().map(|span| (1.0, span)).collect();
    let found = differences(&tree, &divided(BAND, &spans));
    let share = |node| {
        found
            .iter()
            .find(|d| d.node == node)
            .map(|d| (d.difference.value, d.inside_spans))
    };
    assert_eq!(share(root), Some((0.0, 40)));
    assert_eq!(share(a), Some((0.5, 20)));
    assert_eq!(share(below), Some((0.375, 20)));
    assert_eq!(share(b), Some((-0.5, 20)));
    assert!(found.is_sorted_by_key(|d| d.node));
}

#[test]
fn one_side_alone_has_no_difference() {
    let (tree, _, [a, ..]) = tree();
    let span = plain(INSIDE, &[(a, 1)]);
    assert_eq!(differences(&tree, &divided(BAND, &[(1.0, &span)])), []);
    assert_eq!(differences(&tree, &[]), []);
}
