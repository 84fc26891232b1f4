//! How the two sides differ, node by node.
//!
//! The samples of one call are not independent, so calls are what is counted: a function seen in
//! two of them is not a finding, however many samples those had.

use super::{
    calltree::{CallTree, NodeId},
    interval::{Estimate, Shares, difference},
    reservoir::SampledSpan,
    threshold::Band,
};

/// How much a node, with all below it, differs between the two sides.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct NodeDifference {
    /// The node.
    pub node: NodeId,
    /// Share of the inside's time minus share of the outside's, with its 95% interval. Where that
    /// does not hold 0, it is a finding.
    pub difference: Estimate,
    /// Selected spans inside that the node was seen in.
    pub inside_spans: u32,
    /// Selected spans outside that it was seen in.
    pub outside_spans: u32,
}

impl NodeDifference {
    /// Whether the interval excludes 0.
    #[must_use]
    pub fn is_finding(&self) -> bool {
        self.difference.low > 0.0 || self.difference.high < 0.0
    }
}

/// A span of a selection, on one of the sides.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Observed<'a> {
    /// Whether it is on the inside.
    pub is_inside: bool,
    /// The number of spans that it stands for.
    pub stands_for: f64,
    /// The span.
    pub span: &'a SampledSpan,
}

impl Observed<'_> {
    /// The side, as an index.
    fn side(&self) -> usize {
        usize::from(!self.is_inside)
    }

    /// All its sampled time, and that of the spans that it stands for.
    fn weight_ns(&self) -> f64 {
        self.span.weight_ns() as f64 * self.stands_for
    }
}

/// Spans, each with the number that it stands for, on the two sides of a band.
#[must_use]
pub fn divided<'a>(band: Band, spans: &[(f64, &'a SampledSpan)]) -> Vec<Observed<'a>> {
    let spans = spans.iter().map(|&(stands_for, span)| Observed {
        is_inside: band.contains(span.bucket),
        stands_for,
        span,
    });
    spans.collect()
}

/// The differences of all nodes seen, in the order of their ids; none where a side is empty.
#[must_use]
pub fn differences(tree: &CallTree, spans: &[Observed<'_>]) -> Vec<NodeDifference> {
    let mut nodes = vec![[Shares::default(); 2]; tree.len() + 1];
    let mut sides = [Shares::default(); 2];

    // Most spans have one stack only: those are summed at their innermost node and rolled up at once.
    for observed in spans {
        let span = observed.span;
        let all = observed.weight_ns();
        let side = &mut sides[observed.side()];
        side.spans += 1;
        side.samples += span.samples as f64;
        side.all += all;
        side.all_all += all * all;
        if let [(leaf, _)] = *span.leaves {
            nodes[leaf.index()][observed.side()].add_span(all, all);
        }
    }
    for index in (1..nodes.len()).rev() {
        let Some(node) = u32::try_from(index).ok().and_then(|id| tree.get(NodeId(id))) else {
            continue;
        };
        let from_below = nodes[index];
        for (sum, below) in nodes[node.parent.index()].iter_mut().zip(from_below) {
            sum.add_all(&below);
        }
    }

    let mut time_ns = vec![0u64; nodes.len()];
    let mut touched = Vec::new();
    for observed in spans.iter().filter(|observed| observed.span.leaves.len() > 1) {
        for &(leaf, leaf_ns) in observed.span.leaves.iter().filter(|(_, ns)| *ns > 0) {
            for node in tree.path(leaf) {
                if time_ns[node.index()] == 0 {
                    touched.push(node);
                }
                time_ns[node.index()] += leaf_ns;
            }
        }
        let all = observed.weight_ns();
        for node in touched.drain(..) {
            let ns = std::mem::take(&mut time_ns[node.index()]);
            nodes[node.index()][observed.side()].add_span(ns as f64 * observed.stands_for, all);
        }
    }

    let seen = (0..)
        .map(NodeId)
        .zip(&nodes)
        .skip(1)
        .filter(|(_, [a, b])| a.seen + b.seen > 0);
    seen.filter_map(|(node, shares)| {
        let [inside, outside] = [0, 1].map(|side| shares[side].of_side(&sides[side]).estimate());
        Some(NodeDifference {
            node,
            difference: difference(inside?, outside?),
            inside_spans: shares[0].seen,
            outside_spans: shares[1].seen,
        })
    })
    .collect()
}

impl Shares {
    #[expect(clippy::float_cmp, reason = "the same product of the same numbers")]
    fn add_span(&mut self, node: f64, all: f64) {
        self.seen += 1;
        self.full += u32::from(node == all);
        self.node += node;
        self.node_node += node * node;
        self.node_all += node * all;
    }

    fn add_all(&mut self, below: &Self) {
        self.seen += below.seen;
        self.full += below.full;
        self.node += below.node;
        self.node_node += below.node_node;
        self.node_all += below.node_all;
    }

    fn of_side(&self, side: &Self) -> Self {
        let &Self {
            spans,
            samples,
            all,
            all_all,
            seen: _,
            full: _,
            node: _,
            node_node: _,
            node_all: _,
        } = side;
        Self {
            spans,
            samples,
            all,
            all_all,
            ..*self
        }
    }
}

#[cfg(test)]
mod tests;
