//! Where each box lies.

use super::{colour, details};
use crate::{
    render::{escape::terminal, units::ratio},
    state::sides::Sides,
    state::{
        flame::FlameState,
        tree::{Node, Tree, Weight},
    },
};

/// Boxes narrower than this share of the graph are left out: a tenth of a pixel, zoomable to none.
const NARROWEST: f64 = 1e-4;

/// A rectangle of the graph.
#[derive(Clone, Debug)]
pub struct Block {
    /// Left edge, as a share of the graph.
    pub x: f64,
    /// Width, as a share of the graph.
    pub width: f64,
    /// Row, from the top.
    pub depth: usize,
    /// What is written in it.
    pub label: String,
    /// What is shown when it is pointed at, by line; the first is its name.
    pub details: Vec<String>,
    /// Colour; `None`: the style sheet's.
    pub fill: Option<String>,
    /// Classes of the style sheet.
    pub class: &'static str,
}

/// All blocks, each before those below it.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    /// The blocks.
    pub blocks: Vec<Block>,
    /// Nodes that were too narrow to draw, those below them not counted.
    pub narrow: usize,
}

impl Layout {
    /// Lays out one side of a tree, or both.
    #[must_use]
    pub fn of(tree: &Tree<'_>, sides: Sides, state: &FlameState) -> Self {
        let mut layout = Self::default();
        if tree.total.ns(sides) == 0 {
            return layout;
        }
        let scale = Scale {
            total: tree.total,
            sides,
        };
        layout.blocks.push(Block {
            x: 0.0,
            width: 1.0,
            depth: 0,
            label: "all".into(),
            details: details::all(tree, sides),
            fill: None,
            class: "n",
        });
        let (complete, incomplete): (Vec<usize>, Vec<usize>) =
            tree.roots.iter().partition(|&&root| tree.nodes[root].complete);
        let mut x = 0.0;
        for root in complete {
            layout.subtree(tree, root, &scale, x, 1);
            x += scale.share(tree.nodes[root].total);
        }
        let width: f64 = incomplete
            .iter()
            .map(|&root| scale.share(tree.nodes[root].total))
            .sum();
        if width >= NARROWEST {
            layout.blocks.push(Block {
                x,
                width,
                depth: 1,
                label: "[incomplete]".into(),
                details: details::incomplete(&state.summary),
                fill: None,
                class: "n",
            });
            for root in incomplete {
                layout.subtree(tree, root, &scale, x, 2);
                x += scale.share(tree.nodes[root].total);
            }
        }
        layout
    }

    /// Depth first, without recursion: stacks are as deep as the target likes.
    fn subtree(&mut self, tree: &Tree<'_>, root: usize, scale: &Scale, x: f64, depth: usize) {
        let mut pending = vec![(root, x, depth)];
        while let Some((at, x, depth)) = pending.pop() {
            let node = &tree.nodes[at];
            let width = scale.share(node.total);
            if width < NARROWEST {
                self.narrow += usize::from(width > 0.0);
                continue;
            }
            self.blocks.push(draw(tree, node, scale.sides, x, width, depth));
            let mut left = x;
            let first = pending.len();
            for &child in &node.children {
                pending.push((child, left, depth + 1));
                left += scale.share(tree.nodes[child].total);
            }
            // The leftmost child is drawn next.
            pending[first..].reverse();
        }
    }
}

fn draw(tree: &Tree<'_>, node: &Node<'_>, sides: Sides, x: f64, width: f64, depth: usize) -> Block {
    let (fill, class) = match sides {
        Sides::Difference => colour::difference(node.difference),
        Sides::Inside | Sides::Outside => colour::frame(node.frame),
    };
    Block {
        x,
        width,
        depth,
        label: terminal(&tree.label(node.frame)).into_owned(),
        details: details::node(tree, node, sides),
        fill,
        class,
    }
}

/// Turns time into widths.
struct Scale {
    total: Weight,
    sides: Sides,
}

impl Scale {
    /// A node's share of its side. Of both sides: the mean of the shares, so that what only one side
    /// does is as visible as what the other does.
    fn share(&self, weight: Weight) -> f64 {
        let inside = ratio(weight.inside_ns, self.total.inside_ns);
        let outside = ratio(weight.outside_ns, self.total.outside_ns);
        match self.sides {
            Sides::Inside => inside,
            Sides::Outside => outside,
            Sides::Difference if self.total.inside_ns == 0 => outside,
            Sides::Difference if self.total.outside_ns == 0 => inside,
            Sides::Difference => f64::midpoint(inside, outside),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tree::tests::sample;

    #[test]
    fn children_lie_within_their_parents() {
        let state = sample();
        for sides in [Sides::Inside, Sides::Outside, Sides::Difference] {
            let layout = Layout::of(&Tree::of(&state), sides, &state);
            let mut open: Vec<&Block> = Vec::new();
            for block in &layout.blocks {
                open.truncate(block.depth);
                if let Some(parent) = open.last() {
                    assert_eq!(parent.depth + 1, block.depth);
                    assert!(block.x >= parent.x - 1e-9);
                    assert!(
                        block.x + block.width <= parent.x + parent.width + 1e-9,
                        "{block:?}"
                    );
                }
                open.push(block);
            }
        }
    }

    #[test]
    fn a_difference_is_as_wide_as_the_mean_of_the_shares() {
        let state = sample();
        let layout = Layout::of(&Tree::of(&state), Sides::Difference, &state);
        let slow = layout
            .blocks
            .iter()
            .find(|block| block.label == "slow;path")
            .unwrap();
        assert!((slow.width - 0.35).abs() < 1e-9, "{slow:?}");
    }
}
