//! What a flame graph is drawn of.

use super::{calltree::NodeId, difference::NodeDifference};

/// Time and samples whose innermost frame is this node; of an event, how many there were in the place of time.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[expect(missing_docs, reason = "the names say it")]
pub struct NodeWeight {
    pub node: NodeId,
    pub inside_ns: u64,
    pub inside_samples: u64,
    pub outside_ns: u64,
    pub outside_samples: u64,
}

impl NodeWeight {
    /// Whether nothing was sampled there.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.inside_ns + self.outside_ns + self.inside_samples + self.outside_samples == 0
    }
}

/// What became of the samples, and what divides the sides.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct FlameSummary {
    /// All samples: the sum of the next four.
    pub samples: u64,
    /// Of spans that fulfil the predicates; without a step, all.
    pub inside: u64,
    /// Of spans that ended and fail them.
    pub outside: u64,
    /// Of no span: sum of the next three.
    pub elsewhere: u64,
    /// No span of the step was open.
    pub elsewhere_no_span: u64,
    /// Their span was abandoned.
    pub elsewhere_abandoned: u64,
    /// The end of their span never came.
    pub elsewhere_expired: u64,
    /// Of spans that have not ended and may yet be on either side.
    pub open: u64,
    /// Samples on either side whose stack does not reach a known root.
    pub incomplete: u64,
    /// The duration that divides the sides, at a bucket's edge; `None` where nothing does.
    pub threshold_ns: Option<u64>,
    /// Ended calls of the population, decayed ones over [`super::Over::Ewma`].
    pub calls: f64,
    /// Those of them inside.
    pub calls_inside: f64,
    /// Fewer calls than the percentile needs.
    pub warming: bool,
    /// The number of calls that it needs.
    pub calls_needed: u64,
    /// Stacks folded into `other` because the matrix or the tree was full.
    pub folded_stacks: u64,
    /// The matrix was so full that 2^this many buckets became one.
    pub coarse_bits: u32,
}

/// A scope at one moment.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Picture {
    /// Nodes that are not zero, in the order of their ids.
    pub weights: Vec<NodeWeight>,
    /// In numbers.
    pub summary: FlameSummary,
    /// Where asked for: the two sides compared, with all below each node.
    pub differences: Vec<NodeDifference>,
}
