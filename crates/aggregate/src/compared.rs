//! Compares one scope at two times: a recording with an earlier one, or two parts of one recording. The later time
//! is shown as inside and the earlier one as outside; samples outside of either scope are left out.

use super::{
    age::Over,
    calltree::{CallTree, FrameId, NodeId},
    difference::{Observed, differences},
    picture::{FlameSummary, NodeWeight, Picture},
    reservoir::SampledSpan,
    view::ScopeAggregate,
};

/// Two scopes in one picture.
#[derive(Clone, Debug)]
pub struct Compared {
    /// The stacks of both.
    pub tree: CallTree,
    /// With weights and counts of the one inside, of the other outside; the summary's calls and threshold are of the one.
    pub picture: Picture,
    /// The other's own counts.
    pub other: FlameSummary,
}

/// What is inside a scope.
struct Inside<'a> {
    summary: FlameSummary,
    weights: Vec<NodeWeight>,
    spans: Vec<(f64, &'a SampledSpan)>,
}

impl ScopeAggregate {
    /// Compares it at `now_ns` with another at a time of its own. `frame` gives what stands here for a frame of the other.
    #[must_use]
    pub fn compared(
        &self,
        now_ns: u64,
        other: &Self,
        other_now_ns: u64,
        over: Over,
        frame: impl Fn(FrameId) -> FrameId,
    ) -> Compared {
        let (one, other_inside) = (self.inside(now_ns, over), other.inside(other_now_ns, over));
        let mut tree = self.tree().clone();
        let nodes = joined(&mut tree, other.tree(), frame);
        let node = |node: NodeId| nodes.get(node.index()).copied().unwrap_or(CallTree::other(false));

        let mut weights = vec![NodeWeight::default(); tree.len() + 1];
        for weight in &one.weights {
            let sum = &mut weights[weight.node.index()];
            sum.inside_ns += weight.inside_ns;
            sum.inside_samples += weight.inside_samples;
        }
        for weight in &other_inside.weights {
            let sum = &mut weights[node(weight.node).index()];
            sum.outside_ns += weight.inside_ns;
            sum.outside_samples += weight.inside_samples;
        }
        let weights = (0..).map(NodeId).zip(weights);
        let weights: Vec<NodeWeight> = weights
            .map(|(node, weight)| NodeWeight { node, ..weight })
            .filter(|weight| !weight.is_zero())
            .collect();

        let others: Vec<(f64, SampledSpan)> = (other_inside.spans.iter())
            .map(|&(stands_for, span)| {
                let leaves = span.leaves.iter().map(|&(leaf, ns)| (node(leaf), ns));
                let leaves = leaves.collect();
                (
                    stands_for,
                    SampledSpan {
                        leaves,
                        ..span.clone()
                    },
                )
            })
            .collect();
        let observed = |is_inside: bool, stands_for: f64, span| Observed {
            is_inside,
            stands_for,
            span,
        };
        let spans = one
            .spans
            .iter()
            .map(|&(stands_for, span)| observed(true, stands_for, span));
        let others = others
            .iter()
            .map(|(stands_for, span)| observed(false, *stands_for, span));
        let spans: Vec<Observed<'_>> = spans.chain(others).collect();
        let differences = differences(&tree, &spans);

        let summary = summary(&one.summary, &other_inside.summary, &weights, &tree);
        Compared {
            tree,
            picture: Picture {
                weights,
                summary,
                differences,
            },
            other: other_inside.summary,
        }
    }

    /// What is inside it; empty over what is not maintained.
    fn inside(&self, now_ns: u64, over: Over) -> Inside<'_> {
        let picture = self.picture(now_ns, over, false);
        let spans = self.age(over).map(|age| {
            let band = self.band(&age.divide(now_ns, self.predicates()));
            let mut spans = age.spans(now_ns);
            spans.retain(|(_, span)| band.contains(span.bucket));
            spans
        });
        Inside {
            summary: picture.summary,
            weights: picture.weights,
            spans: spans.unwrap_or_default(),
        }
    }
}

/// Adds another tree's nodes; gives what became of each, by its number.
fn joined(tree: &mut CallTree, other: &CallTree, frame: impl Fn(FrameId) -> FrameId) -> Vec<NodeId> {
    let mut nodes = Vec::with_capacity(other.len() + 1);
    nodes.push(NodeId::NONE);
    for (_, node) in other.nodes_after(NodeId::NONE) {
        let parent = nodes.get(node.parent.index()).copied();
        nodes.push(match parent {
            _ if node.frame == FrameId::OTHER => CallTree::other(node.complete),
            None | Some(NodeId::NONE) => tree.intern(&[frame(node.frame)], node.complete),
            Some(parent) => tree.intern_on(parent, &[frame(node.frame)]),
        });
    }
    nodes
}

/// The counts of the picture: inside are those inside the one, outside those inside the other.
fn summary(
    one: &FlameSummary,
    other: &FlameSummary,
    weights: &[NodeWeight],
    tree: &CallTree,
) -> FlameSummary {
    let samples = one.samples + other.samples;
    let incomplete = weights.iter().filter(|weight| !tree.is_complete(weight.node));
    FlameSummary {
        samples,
        inside: one.inside,
        outside: other.inside,
        elsewhere: samples - one.inside - other.inside,
        open: 0,
        incomplete: incomplete
            .map(|weight| weight.inside_samples + weight.outside_samples)
            .sum(),
        folded_stacks: one.folded_stacks + other.folded_stacks + tree.folded(),
        coarse_bits: one.coarse_bits.max(other.coarse_bits),
        elsewhere_no_span: 0,
        elsewhere_abandoned: 0,
        elsewhere_expired: 0,
        ..*one
    }
}

#[cfg(test)]
mod tests;
