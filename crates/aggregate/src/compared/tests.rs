use proptest::prelude::*;

use super::*;
use crate::{join::Sample, latency::AgeConfig, slots::WindowConfig};

const CONFIG: AgeConfig = AgeConfig {
    window: WindowConfig {
        window_ns: 10_000_000_000,
        slots: 10,
    },
    half_life_ns: 1_000_000_000,
};

/// Samples, each 10 ms on the stack of two frames, a second apart for each thread.
fn of(stacks: &[(u32, u32)]) -> ScopeAggregate {
    let mut aggregate = ScopeAggregate::new(None, CONFIG, 0).in_blocks(1_000_000_000);
    for (second, &(outer, inner)) in (1..).zip(stacks) {
        let node = aggregate.intern(&[FrameId(outer), FrameId(inner)], true);
        aggregate.sample(&Sample {
            tgid: 1,
            tid: 1,
            ts_ns: second * 1_000_000_000,
            weight_ns: 10_000_000,
            count: 1,
            node,
            spans: &[],
        });
    }
    aggregate.end_blocks();
    aggregate
}

fn compared(one: &ScopeAggregate, other: &ScopeAggregate) -> Compared {
    one.compared(u64::MAX, other, u64::MAX, Over::Start, |frame| frame)
}

/// The innermost node of these two frames.
fn node(compared: &Compared, outer: u32, inner: u32) -> NodeId {
    compared
        .tree
        .clone()
        .intern(&[FrameId(outer), FrameId(inner)], true)
}

#[test]
fn only_functions_whose_share_grew_or_shrank_are_findings() {
    let part = |slow: usize| -> Vec<(u32, u32)> {
        let inner = |at: usize| match at {
            at if at < slow => 2,
            at if at < 160 => 3,
            _ => 4,
        };
        (0..200).map(|at| (1, inner(at))).collect()
    };
    let (after, before) = (of(&part(120)), of(&part(20)));
    let compared = compared(&after, &before);
    let summary = compared.picture.summary;
    assert_eq!(
        (summary.samples, summary.inside, summary.outside),
        (400, 200, 200)
    );
    let of = |inner| {
        let node = node(&compared, 1, inner);
        let found = compared
            .picture
            .differences
            .iter()
            .find(|found| found.node == node);
        *found.unwrap()
    };
    let (grew, shrank, same) = (of(2), of(3), of(4));
    assert!(
        (grew.difference.value - 0.5).abs() < 1e-9 && grew.difference.low > 0.0,
        "{grew:?}"
    );
    assert!(
        (shrank.difference.value + 0.5).abs() < 1e-9 && shrank.difference.high < 0.0,
        "{shrank:?}"
    );
    assert!(
        !same.is_finding() && same.difference.value.abs() < 1e-9,
        "{same:?}"
    );
    assert_eq!((grew.inside_spans, grew.outside_spans), (120, 20));
}

#[test]
fn maps_frames_of_the_earlier_recording_to_the_later_one() {
    let (after, before) = (of(&[(1, 2), (1, 2)]), of(&[(11, 12), (11, 13)]));
    let here = |frame: FrameId| {
        if frame.0 > 12 {
            frame
        } else {
            FrameId(frame.0 - 10)
        }
    };
    let compared = after.compared(u64::MAX, &before, u64::MAX, Over::Start, here);
    let weights = &compared.picture.weights;
    assert_eq!(weights.len(), 2);
    assert_eq!(weights[0].node, node(&compared, 1, 2));
    assert_eq!((weights[0].inside_samples, weights[0].outside_samples), (2, 1));
    assert_eq!(weights[1].node, node(&compared, 1, 13));
}

proptest! {
    /// Compared with itself, nothing differs, and each weight is on both sides.
    #[test]
    fn nothing_differs_from_itself(stacks in prop::collection::vec((1_u32..4, 1_u32..6), 1..200)) {
        let aggregate = of(&stacks);
        let compared = compared(&aggregate, &aggregate);
        for weight in &compared.picture.weights {
            prop_assert_eq!(weight.inside_ns, weight.outside_ns);
            prop_assert_eq!(weight.inside_samples, weight.outside_samples);
        }
        for difference in &compared.picture.differences {
            prop_assert!(!difference.is_finding() && difference.difference.value == 0.0);
        }
        prop_assert_eq!(compared.tree.len(), aggregate.tree().len());
        prop_assert_eq!(compared.picture.summary.inside, stacks.len() as u64);
    }

    /// Weights are those of the two, whatever the order in which stacks came.
    #[test]
    fn nothing_is_lost(
        after in prop::collection::vec((1_u32..4, 1_u32..6), 0..50),
        before in prop::collection::vec((1_u32..4, 1_u32..6), 0..50),
    ) {
        let compared = compared(&of(&after), &of(&before));
        let sum = |of: fn(&NodeWeight) -> u64| compared.picture.weights.iter().map(of).sum::<u64>();
        prop_assert_eq!(sum(|weight| weight.inside_samples), after.len() as u64);
        prop_assert_eq!(sum(|weight| weight.outside_samples), before.len() as u64);
        for weight in &compared.picture.weights {
            let frames: Vec<u32> = compared.tree.path(weight.node)
                .map(|id| compared.tree.get(id).unwrap().frame.0)
                .collect();
            let stack = (frames[1], frames[0]);
            let times = |stacks: &[(u32, u32)]| stacks.iter().filter(|other| **other == stack).count() as u64;
            prop_assert_eq!(weight.inside_samples, times(&after));
            prop_assert_eq!(weight.outside_samples, times(&before));
        }
    }
}
