//! Functions that samples were taken in, inside of calls: whether slow calls have more of their samples there than others.

use std::collections::HashMap;

use super::{About, Call, FEW_CALLS, Finding, SamplesAt, Share, Statement};
use crate::{
    calltree::{CallTree, FrameId, NodeId},
    interval::{Shares, difference},
};

/// The stacks that samples were taken at.
pub struct Tree<'a> {
    /// All of them.
    pub stacks: &'a CallTree,
    /// Whether a frame is that of the function whose calls are compared: what is inside lies behind it.
    pub is_own: &'a dyn Fn(FrameId) -> bool,
    /// Whether a frame is where the kernel sees to a probe: what is inside is ours, and more of it the more a call is looked at.
    pub is_probe: &'a dyn Fn(FrameId) -> bool,
}

/// What is known of one frame, of slow calls and of others.
#[derive(Clone, Copy, Default)]
pub(super) struct SampledFrame {
    frame: Option<FrameId>,
    sides: [Shares; 2],
    /// Who calls it, on all stacks.
    caller: Caller,
}

/// What lies in front of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Caller {
    #[default]
    Unknown,
    One(FrameId),
    Several,
}

impl Caller {
    fn and(self, other: FrameId) -> Self {
        match self {
            Self::Unknown => Self::One(other),
            Self::One(known) if known == other => self,
            Self::One(_) | Self::Several => Self::Several,
        }
    }
}

/// A frame on a stack, with the one in front of it.
#[derive(Clone, Copy)]
struct Called {
    frame: FrameId,
    caller: FrameId,
}

impl Tree<'_> {
    /// The frames inside of calls that may be judged. Of those that are always seen together, each called by the one before
    /// alone, that is the outermost.
    pub(super) fn frames(&self, calls: &[Call], is_slow: impl Fn(u64) -> bool) -> Vec<SampledFrame> {
        let mut all = [Shares::default(); 2];
        let mut frames: HashMap<FrameId, SampledFrame> = HashMap::new();
        let mut inside: HashMap<NodeId, Option<Vec<Called>>> = HashMap::new();
        for call in calls {
            let side = usize::from(!is_slow(call.duration_ns));
            let mut samples = 0;
            let mut seen: HashMap<FrameId, u32> = HashMap::new();
            for &SamplesAt { stack, count } in &call.samples {
                let path = inside.entry(stack).or_insert_with(|| self.inside(stack));
                let Some(path) = path else { continue };
                samples += count;
                for &Called { frame, caller } in path.iter() {
                    *seen.entry(frame).or_default() += count;
                    let known = frames.entry(frame).or_default();
                    known.frame = Some(frame);
                    known.caller = known.caller.and(caller);
                }
            }
            if samples == 0 {
                continue;
            }
            let weight = f64::from(samples);
            all[side].spans += 1;
            all[side].samples += weight;
            all[side].all += weight;
            all[side].all_all += weight * weight;
            for (frame, count) in seen {
                let of = f64::from(count);
                let Some(known) = frames.get_mut(&frame) else {
                    continue;
                };
                let shares = &mut known.sides[side];
                shares.seen += 1;
                shares.full += u32::from(count == samples);
                shares.node += of;
                shares.node_node += of * of;
                shares.node_all += of * weight;
            }
        }
        if all.iter().any(|side| u64::from(side.spans) < FEW_CALLS) {
            return Vec::new();
        }
        for frame in frames.values_mut() {
            for (shares, all) in frame.sides.iter_mut().zip(all) {
                shares.spans = all.spans;
                shares.samples = all.samples;
                shares.all = all.all;
                shares.all_all = all.all_all;
            }
        }
        let is_judged = |frame: &&SampledFrame| {
            let often = (frame.sides.iter()).any(|side| u64::from(side.seen) >= FEW_CALLS);
            let everywhere = frame.sides.iter().all(|side| side.full == side.spans);
            let in_caller = match frame.caller {
                Caller::One(caller) => frames
                    .get(&caller)
                    .is_some_and(|caller| caller.sides == frame.sides),
                Caller::Unknown | Caller::Several => false,
            };
            often && !everywhere && !in_caller
        };
        let mut judged: Vec<SampledFrame> = frames.values().filter(is_judged).copied().collect();
        judged.sort_by_key(|frame| frame.frame);
        judged
    }

    /// The frames of a stack behind the outermost of the function's own, each once, with who calls it; `None` of a sample that
    /// was taken where the kernel sees to a probe.
    fn inside(&self, node: NodeId) -> Option<Vec<Called>> {
        let path = self.stacks.path(node);
        let mut frames: Vec<FrameId> = path
            .filter_map(|node| Some(self.stacks.get(node)?.frame))
            .collect();
        frames.reverse();
        if frames.iter().any(|frame| (self.is_probe)(*frame)) {
            return None;
        }
        let Some(own) = frames.iter().position(|frame| (self.is_own)(*frame)) else {
            return Some(Vec::new());
        };
        let mut inside: Vec<Called> = Vec::new();
        for pair in frames[own..].windows(2) {
            let [caller, frame] = *pair else { continue };
            let is_new = inside.iter().all(|known| known.frame != frame);
            if is_new && !(self.is_own)(frame) {
                inside.push(Called { frame, caller });
            }
        }
        Some(inside)
    }
}

impl SampledFrame {
    /// What may be said of it, with intervals of this quantile.
    pub(super) fn finding(self, z: f64) -> Option<Finding> {
        let [slow, other] = self.sides;
        Some(Finding {
            about: About::Frame(self.frame?),
            statement: Statement::Happened,
            slow: share(slow),
            other: share(other),
            difference: difference(slow.estimate_at(z)?, other.estimate_at(z)?),
            means: None,
        })
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "numbers of samples"
)]
fn share(shares: Shares) -> Share {
    Share {
        have: shares.node as u64,
        of: shares.all as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: FrameId = FrameId(2);
    const PROBE: FrameId = FrameId(90);

    fn tree_of(stacks: &[&[u32]]) -> (CallTree, Vec<NodeId>) {
        let mut tree = CallTree::new();
        let nodes = stacks
            .iter()
            .map(|stack| {
                let frames: Vec<FrameId> = stack.iter().copied().map(FrameId).collect();
                tree.intern(&frames, true)
            })
            .collect();
        (tree, nodes)
    }

    fn call(slow: bool, samples: &[(NodeId, u32)]) -> Call {
        Call {
            duration_ns: u64::from(slow),
            round: 0,
            happened: 0,
            known: 0,
            amounts: [].into(),
            waits: None,
            many: None,
            samples: (samples.iter())
                .map(|&(stack, count)| SamplesAt { stack, count })
                .collect(),
        }
    }

    fn found(tree: &CallTree, calls: &[Call]) -> Vec<(u32, Finding)> {
        let tree = Tree {
            stacks: tree,
            is_own: &|frame| frame == OWN,
            is_probe: &|frame| frame == PROBE,
        };
        let frames = tree.frames(calls, |duration_ns| duration_ns > 0);
        let findings = frames.into_iter().map(|frame| {
            let of = frame.frame.unwrap().0;
            (of, frame.finding(3.0).unwrap())
        });
        findings.collect()
    }

    #[test]
    fn kernel_code_that_handles_probes_is_not_a_finding() {
        let (tree, nodes) = tree_of(&[&[1, 2, 3], &[1, 2, 4], &[1, 2, 90, 91]]);
        let [usual, slow, probe] = nodes[..] else {
            unreachable!()
        };
        let calls: Vec<Call> = (0..100)
            .map(|number| match number % 3 {
                0 => call(true, &[(slow, 4), (probe, 30)]),
                1 => call(false, &[(usual, 4), (probe, 3)]),
                // One of which nothing else is known.
                _ => call(false, &[(probe, 3)]),
            })
            .collect();
        let found = found(&tree, &calls);
        let shares: Vec<_> = found
            .iter()
            .map(|(frame, finding)| (*frame, finding.slow.have, finding.slow.of, finding.other.of))
            .collect();
        assert_eq!(shares, [(3, 0, 136, 132), (4, 136, 136, 132)]);
    }

    #[test]
    fn a_function_of_slow_calls_alone_is_found_and_its_callers_are_not() {
        // main, the function, what it calls always, the cause, and what that calls.
        let (tree, nodes) = tree_of(&[&[1, 2, 3], &[1, 2, 3, 4, 5]]);
        let (usual, cause) = (nodes[0], nodes[1]);
        let mut calls: Vec<Call> = (0..40).map(|_| call(false, &[(usual, 1)])).collect();
        calls.extend((0..40).map(|_| call(true, &[(usual, 1), (cause, 3)])));
        let found = found(&tree, &calls);
        let [(4, finding)] = &found[..] else {
            panic!("{found:?}");
        };
        assert_eq!(finding.about, About::Frame(FrameId(4)));
        assert_eq!(finding.slow, Share { have: 120, of: 160 });
        assert_eq!(finding.other, Share { have: 0, of: 40 });
        assert!(finding.difference.low > 0.5, "{finding:?}");
    }

    #[test]
    fn many_samples_of_few_calls_prove_nothing() {
        let (tree, nodes) = tree_of(&[&[1, 2, 3], &[1, 2, 4]]);
        let mut calls: Vec<Call> = (0..40).map(|_| call(false, &[(nodes[0], 1)])).collect();
        calls.extend((0..20).map(|n| {
            call(
                true,
                &[(nodes[usize::from(n == 0)], if n == 0 { 500 } else { 1 })],
            )
        }));
        let found = found(&tree, &calls);
        assert!(
            found.iter().all(|(_, finding)| finding.certain() == 0.0),
            "{found:?}"
        );
        let few: Vec<Call> = calls.into_iter().rev().take(23).collect();
        assert!(super::tests::found(&tree, &few).is_empty(), "three others");
    }

    #[test]
    fn recursion_and_shared_callees_count_once() {
        let (tree, nodes) = tree_of(&[&[1, 2, 3, 2, 3, 4], &[1, 2, 5, 4]]);
        let calls: Vec<Call> = (0..40).map(|n| call(n % 2 == 0, &[(nodes[n % 2], 2)])).collect();
        let found = found(&tree, &calls);
        let frames: Vec<u32> = found.iter().map(|(frame, _)| *frame).collect();
        // The one that is on every stack separates nothing.
        assert_eq!(frames, [3, 5]);
        assert_eq!(found[0].1.slow, Share { have: 40, of: 40 });
    }
}
