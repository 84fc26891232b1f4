//! The call tree that the renderers draw: totals summed up, children in a fixed order.

use std::{borrow::Cow, cmp::Ordering};

use profiler_proto::v1;

use super::flame::{FlameState, SideNames};
use crate::state::sides::Sides;

/// Time and samples of both sides; of an event, how many there were in the place of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weight {
    /// Time inside, in nanoseconds.
    pub inside_ns: u64,
    /// Samples inside.
    pub inside_samples: u64,
    /// Time outside, in nanoseconds.
    pub outside_ns: u64,
    /// Samples outside.
    pub outside_samples: u64,
}

impl Weight {
    /// Adds another one, as much as there is room for.
    pub fn add(&mut self, other: Self) {
        self.inside_ns = self.inside_ns.saturating_add(other.inside_ns);
        self.inside_samples = self.inside_samples.saturating_add(other.inside_samples);
        self.outside_ns = self.outside_ns.saturating_add(other.outside_ns);
        self.outside_samples = self.outside_samples.saturating_add(other.outside_samples);
    }

    /// The time of one side; of both where they are compared.
    #[must_use]
    pub fn ns(&self, sides: Sides) -> u64 {
        match sides {
            Sides::Inside => self.inside_ns,
            Sides::Outside => self.outside_ns,
            Sides::Difference => self.inside_ns.saturating_add(self.outside_ns),
        }
    }

    /// The samples of one side; of both where they are compared.
    #[must_use]
    pub fn samples(&self, sides: Sides) -> u64 {
        match sides {
            Sides::Inside => self.inside_samples,
            Sides::Outside => self.outside_samples,
            Sides::Difference => self.inside_samples.saturating_add(self.outside_samples),
        }
    }
}

/// A node: a function where it was called from.
#[derive(Clone, Debug)]
pub struct Node<'a> {
    /// The function.
    pub frame: &'a v1::Frame,
    /// Index of the caller; `None` for a root.
    pub parent: Option<usize>,
    /// Indexes of what it called, by name.
    pub children: Vec<usize>,
    /// Whether its stacks reach a known root.
    pub complete: bool,
    /// Time while it was the innermost frame.
    pub own: Weight,
    /// Time in it and all that it called.
    pub total: Weight,
    /// How it differs between the sides, where that was estimated.
    pub difference: Option<&'a v1::NodeDifference>,
}

/// A call tree. Nodes come after their parents.
#[derive(Clone, Debug, Default)]
pub struct Tree<'a> {
    /// What frames stand for.
    pub by: v1::Grouping,
    /// What weights are numbers of; empty of time.
    pub unit: &'a str,
    /// What a difference is an observation of.
    pub observed: &'static str,
    /// What the two sides are called.
    pub names: SideNames,
    /// All nodes.
    pub nodes: Vec<Node<'a>>,
    /// Indexes of the roots: complete stacks first, then by name.
    pub roots: Vec<usize>,
    /// All time.
    pub total: Weight,
    /// The time of stacks that reach a known root.
    pub complete: Weight,
}

impl<'a> Tree<'a> {
    /// Builds the tree of a view.
    #[must_use]
    pub fn of(state: &'a FlameState) -> Self {
        let mut index = std::collections::HashMap::with_capacity(state.order.len());
        let mut tree = Self {
            by: state.by,
            unit: &state.unit,
            // Of a scope, calls; else samples, or all those of a while.
            observed: if state.scope.is_empty() {
                "observations"
            } else {
                "sampled calls"
            },
            names: state.names(),
            ..Self::default()
        };
        for id in &state.order {
            // The state holds only nodes whose frame and parent it knows.
            let Some((node, frame)) = state
                .nodes
                .get(id)
                .and_then(|node| Some((node, state.frames.get(&node.frame)?)))
            else {
                continue;
            };
            let own = state
                .weights
                .get(id)
                .map_or_else(Weight::default, |weight| Weight {
                    inside_ns: weight.inside_ns,
                    inside_samples: weight.inside_samples,
                    outside_ns: weight.outside_ns,
                    outside_samples: weight.outside_samples,
                });
            index.insert(*id, tree.nodes.len());
            tree.nodes.push(Node {
                frame,
                parent: index.get(&node.parent).copied(),
                children: Vec::new(),
                complete: node.complete,
                own,
                total: own,
                difference: state.differences.get(id),
            });
        }
        tree.sum_up();
        tree
    }

    fn sum_up(&mut self) {
        for at in (0..self.nodes.len()).rev() {
            let (parent, total) = (self.nodes[at].parent, self.nodes[at].total);
            if let Some(parent) = parent {
                self.nodes[parent].total.add(total);
                self.nodes[parent].children.push(at);
            } else {
                self.roots.push(at);
                self.total.add(total);
                if self.nodes[at].complete {
                    self.complete.add(total);
                }
            }
        }
        for at in 0..self.nodes.len() {
            let mut children = std::mem::take(&mut self.nodes[at].children);
            children.sort_by(|&a, &b| self.compare(a, b));
            self.nodes[at].children = children;
        }
        let mut roots = std::mem::take(&mut self.roots);
        roots.sort_by(|&a, &b| self.compare(a, b));
        self.roots = roots;
    }

    fn compare(&self, a: usize, b: usize) -> Ordering {
        let key = |at: usize| {
            let Node { frame, complete, .. } = &self.nodes[at];
            (
                !complete,
                &frame.function,
                &frame.module,
                &frame.file,
                frame.line,
                frame.inlined,
            )
        };
        key(a).cmp(&key(b)).then(a.cmp(&b))
    }

    /// What a frame is called where there is room for a few words: its function, and the line where that tells frames
    /// apart.
    #[must_use]
    pub fn label(&self, frame: &'a v1::Frame) -> Cow<'a, str> {
        let name = name(frame);
        let file = frame.file.rsplit('/').next().unwrap_or_default();
        if self.by == v1::Grouping::Line && frame.line > 0 && !file.is_empty() {
            Cow::Owned(format!("{name} {file}:{}", frame.line))
        } else {
            Cow::Borrowed(name)
        }
    }

    /// The frames from the root to a node.
    #[must_use]
    pub fn stack(&self, node: usize) -> Vec<&'a v1::Frame> {
        let mut frames = Vec::new();
        let mut at = Some(node);
        while let Some(index) = at {
            frames.push(self.nodes[index].frame);
            at = self.nodes[index].parent;
        }
        frames.reverse();
        frames
    }
}

/// What a frame is called, whatever is known of it.
#[must_use]
pub fn name(frame: &v1::Frame) -> &str {
    if frame.function.is_empty() {
        "[unknown]"
    } else {
        &frame.function
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A view of a small server: half of the time in a slow path, a tenth of it incomplete.
    pub(crate) fn sample() -> FlameState {
        let frame = |id, function: &str, kernel, inlined| v1::Frame {
            id,
            function: function.into(),
            file: if kernel {
                String::new()
            } else {
                "src/server.rs".into()
            },
            line: 10 * id,
            module: if kernel {
                "[kernel]".into()
            } else {
                "/usr/bin/server".into()
            },
            inlined,
            kernel,
            ..Default::default()
        };
        let weight = |node, inside_ns, outside_ns| v1::NodeWeight {
            node,
            inside_ns,
            inside_samples: inside_ns / 10,
            outside_ns,
            outside_samples: outside_ns / 10,
        };
        let node = |id, parent, frame, complete| v1::FlameNode {
            id,
            parent,
            frame,
            complete,
        };
        let difference = |node, difference, low, high| v1::NodeDifference {
            node,
            difference,
            low,
            high,
            inside_spans: 40,
            outside_spans: 90,
        };
        let mut state = FlameState::default();
        state
            .apply(v1::WatchFlameResponse {
                info: Some(v1::StreamInfo {
                    scope: "handle[>= p95]".into(),
                    ..v1::StreamInfo::default()
                }),
                snapshot: true,
                frames: vec![
                    frame(1, "main", false, false),
                    frame(2, "handle", false, false),
                    frame(3, "slow;path", false, true),
                    frame(4, "fast_path", false, false),
                    frame(5, "do_syscall_64", true, false),
                ],
                nodes: vec![
                    node(1, 0, 1, true),
                    node(2, 1, 2, true),
                    node(3, 2, 3, true),
                    node(4, 2, 4, true),
                    node(5, 3, 5, true),
                    node(6, 0, 4, false),
                ],
                weights: vec![
                    weight(2, 100, 100),
                    weight(3, 200, 0),
                    weight(4, 100, 800),
                    weight(5, 500, 0),
                    weight(6, 100, 100),
                ],
                differences: vec![
                    difference(3, 0.7, 0.6, 0.8),
                    difference(4, -0.7, -0.8, -0.6),
                    difference(2, 0.0, -0.1, 0.1),
                    difference(5, 0.5, 0.4, 0.6),
                ],
                summary: Some(v1::FlameSummary {
                    samples: 250,
                    inside: 100,
                    outside: 100,
                    elsewhere: 40,
                    open: 10,
                    incomplete: 20,
                    threshold_ns: 12_300_000,
                    calls: 10_234.0,
                    calls_inside: 512.0,
                    lost: [("sample_ring_full".to_owned(), 3)].into(),
                    ..Default::default()
                }),
                ..Default::default()
            })
            .unwrap();
        state
    }

    #[test]
    fn totals_are_sums_over_the_subtree() {
        let state = sample();
        let tree = Tree::of(&state);
        assert_eq!(tree.total.inside_ns, 1000);
        assert_eq!(tree.complete.inside_ns, 900);
        assert_eq!(tree.nodes[tree.roots[0]].frame.function, "main");
        assert_eq!(tree.nodes[tree.roots[0]].total.inside_ns, 900);
        assert!(!tree.nodes[tree.roots[1]].complete, "incomplete stacks come last");
        let names: Vec<_> = tree
            .stack(4)
            .iter()
            .map(|frame| frame.function.as_str())
            .collect();
        assert_eq!(names, ["main", "handle", "slow;path", "do_syscall_64"]);
        let children: Vec<_> = tree.nodes[1]
            .children
            .iter()
            .map(|&child| tree.nodes[child].frame.function.as_str())
            .collect();
        assert_eq!(children, ["fast_path", "slow;path"], "by name");
    }

    #[test]
    fn lines_are_told_where_they_tell_frames_apart() {
        let mut state = sample();
        let label = |state: &FlameState, id| Tree::of(state).label(&state.frames[&id]).into_owned();
        assert_eq!(label(&state, 2), "handle");
        state.by = v1::Grouping::Line;
        assert_eq!(label(&state, 2), "handle server.rs:20");
        assert_eq!(label(&state, 5), "do_syscall_64", "no file");
        state.frames.get_mut(&2).unwrap().line = 0;
        assert_eq!(label(&state, 2), "handle", "no line");
    }

    proptest! {
        #[test]
        fn any_tree_adds_up(parents in proptest::collection::vec(any::<u32>(), 1..60), weights in proptest::collection::vec(0_u64..1000, 60)) {
            let mut message = v1::WatchFlameResponse { snapshot: true, ..Default::default() };
            message.frames.push(v1::Frame { id: 1, ..Default::default() });
            for (at, parent) in parents.iter().enumerate() {
                let id = u32::try_from(at).unwrap() + 1;
                message.nodes.push(v1::FlameNode { id, parent: parent % id, frame: 1, complete: true });
                message.weights.push(v1::NodeWeight { node: id, inside_ns: weights[at], ..Default::default() });
            }
            let mut state = FlameState::default();
            state.apply(message).unwrap();
            let tree = Tree::of(&state);
            let sum: u64 = weights[..parents.len()].iter().sum();
            prop_assert_eq!(tree.total.inside_ns, sum);
            for node in &tree.nodes {
                let below: u64 = node.children.iter().map(|&child| tree.nodes[child].total.inside_ns).sum();
                prop_assert_eq!(node.total.inside_ns, node.own.inside_ns + below);
            }
        }
    }
}
