//! The call tree of a flame view, kept as long as the view is the same, and where its boxes lie.

use profiler_proto::v1;

use super::super::lens::FrameId;
use crate::{
    cli::request::Sides,
    state::{
        flame::FlameState,
        tree::{Tree, Weight},
    },
};

/// Boxes narrower than this share are left out: they are less than a quarter of a column of a wide screen.
const NARROWEST: f64 = 1.0 / 1200.0;

/// Share of the time from which on a difference is said in words.
const WORTH_SAYING: f64 = 0.01;

/// Share of the largest difference that a function has to have to stand for it.
const NEARLY_ALL: f64 = 0.9;

/// A node of it.
#[derive(Clone, Debug)]
pub struct GraphNode {
    /// The frame, by its id.
    pub frame: u32,
    /// Index of the caller.
    pub parent: Option<usize>,
    /// Indexes of what it called, by name.
    pub children: Vec<usize>,
    /// Its stacks reach a known root.
    pub complete: bool,
    /// Time while it was the innermost.
    pub own: Weight,
    /// Time in it and all below.
    pub total: Weight,
    /// How it differs between the sides.
    pub difference: Option<v1::NodeDifference>,
}

/// The function with the largest difference: of those that have nearly all of it, the innermost.
#[derive(Clone, Copy, Debug)]
pub struct Largest {
    /// The frame, by its id.
    pub frame: u32,
    /// Time in it and all below, wherever it was called from.
    pub total: Weight,
}

/// The tree.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// Parents first.
    pub nodes: Vec<GraphNode>,
    /// Indexes of the roots.
    pub roots: Vec<usize>,
    /// All time.
    pub total: Weight,
    /// What slow calls surely spend more of their time in than the others do.
    pub largest_difference: Option<Largest>,
}

/// A box: a node, or all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Block {
    /// The node; `None` for all.
    pub node: Option<usize>,
    /// Row, from the top.
    pub depth: usize,
    /// Left edge, as a share of the graph.
    pub x: f64,
    /// Width, as a share of the graph.
    pub width: f64,
}

impl Graph {
    /// That of a view.
    #[must_use]
    pub fn of(tree: &Tree<'_>) -> Self {
        let nodes = tree.nodes.iter().map(|node| GraphNode {
            frame: node.frame.id,
            parent: node.parent,
            children: node.children.clone(),
            complete: node.complete,
            own: node.own,
            total: node.total,
            difference: node.difference.copied(),
        });
        let mut graph = Self {
            nodes: nodes.collect(),
            roots: tree.roots.clone(),
            total: tree.total,
            largest_difference: None,
        };
        graph.largest_difference = graph.find_largest_difference();
        graph
    }

    /// The share that a node has of all; where sides are compared, the mean of its shares of them.
    #[must_use]
    pub fn share(&self, weight: Weight, sides: Sides) -> f64 {
        let ratio = |part: u64, whole: u64| {
            if whole == 0 {
                0.0
            } else {
                part as f64 / whole as f64
            }
        };
        match sides {
            Sides::Inside => ratio(weight.inside_ns, self.total.inside_ns),
            Sides::Outside => ratio(weight.outside_ns, self.total.outside_ns),
            Sides::Difference => {
                let inside = ratio(weight.inside_ns, self.total.inside_ns);
                let outside = ratio(weight.outside_ns, self.total.outside_ns);
                f64::midpoint(inside, outside)
            }
        }
    }

    /// The node that frames lead to from the root, or as far as they do; `None` for all.
    #[must_use]
    pub fn find(&self, state: &FlameState, frames: &[FrameId]) -> Option<usize> {
        let mut found = None;
        for id in frames {
            let below = found.map_or(&self.roots, |at: usize| &self.nodes[at].children);
            let next = below.iter().find(|&&child| {
                let frame = state.frames.get(&self.nodes[child].frame);
                frame.is_some_and(|frame| id.is(frame))
            });
            match next {
                Some(&next) => found = Some(next),
                None => break,
            }
        }
        found
    }

    /// The frames from the root to a node.
    #[must_use]
    pub fn path(&self, state: &FlameState, node: usize) -> Vec<FrameId> {
        let mut frames: Vec<FrameId> = self
            .upwards(node)
            .map(|at| {
                state
                    .frames
                    .get(&self.nodes[at].frame)
                    .map(|frame| FrameId::of_view(frame, state.by))
                    .unwrap_or_default()
            })
            .collect();
        frames.reverse();
        frames
    }

    /// A node and those above it.
    pub fn upwards(&self, node: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(node), |&at| self.nodes[at].parent)
    }

    fn find_largest_difference(&self) -> Option<Largest> {
        let more = |at: usize| {
            let difference = self.nodes[at].difference.as_ref();
            let certain = difference.filter(|difference| difference.low > 0.0)?;
            Some(certain.difference)
        };
        let certain = (0..self.nodes.len()).filter_map(more);
        let largest = certain.fold(0.0, f64::max);
        if largest < WORTH_SAYING {
            return None;
        }
        let has_most = |at: &usize| more(*at).is_some_and(|more| more >= NEARLY_ALL * largest);
        let depth = |at: &usize| self.upwards(*at).count();
        let innermost = (0..self.nodes.len()).filter(has_most).max_by_key(depth)?;
        let frame = self.nodes[innermost].frame;
        let mut total = Weight::default();
        let is_outermost = |at: &usize| {
            let mut above = self.upwards(*at).skip(1);
            self.nodes[*at].frame == frame && !above.any(|at| self.nodes[at].frame == frame)
        };
        for at in (0..self.nodes.len()).filter(is_outermost) {
            total.add(self.nodes[at].total);
        }
        let more = self.share(total, Sides::Inside) - self.share(total, Sides::Outside);
        (more >= WORTH_SAYING).then_some(Largest { frame, total })
    }

    /// Where the boxes lie if a node fills the graph, those above it with it, without those that have less than a share of all.
    /// Rows come in no order.
    #[must_use]
    pub fn layout(&self, sides: Sides, zoom: Option<usize>, least: f64) -> Vec<Block> {
        let whole = Block {
            node: None,
            depth: 0,
            x: 0.0,
            width: 1.0,
        };
        let mut blocks = vec![whole];
        let mut above: Vec<usize> = zoom.map(|zoom| self.upwards(zoom).collect()).unwrap_or_default();
        above.reverse();
        blocks.extend(above.iter().enumerate().map(|(at, &node)| Block {
            node: Some(node),
            depth: at + 1,
            ..whole
        }));
        let scale = zoom.map_or(1.0, |zoom| self.share(self.nodes[zoom].total, sides));
        if scale <= 0.0 {
            return blocks;
        }
        let mut pending = vec![(zoom, 0.0, above.len())];
        while let Some((at, x, depth)) = pending.pop() {
            let children = at.map_or(&self.roots, |at| &self.nodes[at].children);
            let mut left = x;
            for &child in children {
                let width = self.share(self.nodes[child].total, sides) / scale;
                if width >= NARROWEST && width * scale >= least {
                    blocks.push(Block {
                        node: Some(child),
                        depth: depth + 1,
                        x: left,
                        width,
                    });
                    pending.push((Some(child), left, depth + 1));
                }
                left += width;
            }
        }
        blocks
    }
}
