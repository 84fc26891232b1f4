//! Frames that have got names after they were counted.

use std::collections::HashMap;

use profiler_proto::v1;

use super::flame::{FlameState, MAX_NODES};

/// Puts other frames in the place of some. `frames_of` gives what a frame stands for, outermost first, or `None` for
/// itself. Nodes that then say the same become one.
pub fn rename(state: &mut FlameState, mut frames_of: impl FnMut(&v1::Frame) -> Option<Vec<v1::Frame>>) {
    let mut frames = Frames::of(&state.frames);
    let renamed = state.frames.values().filter_map(|frame| {
        let instead = frames_of(frame).filter(|instead| !instead.is_empty())?;
        Some((frame.id, instead))
    });
    let renamed: HashMap<u32, Vec<v1::Frame>> = renamed.collect();
    if renamed.is_empty() {
        return;
    }
    let renamed: HashMap<u32, Vec<u32>> = renamed
        .into_iter()
        .map(|(id, instead)| (id, instead.into_iter().map(|frame| frames.id(frame)).collect()))
        .collect();

    let mut new = FlameState {
        frames: HashMap::new(),
        nodes: HashMap::new(),
        order: Vec::new(),
        weights: HashMap::new(),
        differences: HashMap::new(),
        ..state.clone()
    };
    // The innermost node that an old one has become.
    let mut became: HashMap<u32, u32> = HashMap::new();
    let mut known: HashMap<NodeKey, u32> = HashMap::new();
    for old in state.order.iter().filter_map(|id| state.nodes.get(id)) {
        let itself = [old.frame];
        let chain = renamed.get(&old.frame).map_or(&itself[..], Vec::as_slice);
        let mut parent = became.get(&old.parent).copied().unwrap_or(0);
        for &frame in chain {
            let next = u32::try_from(new.order.len() + 1).unwrap_or(u32::MAX);
            let key = NodeKey {
                parent,
                frame,
                complete: old.complete,
            };
            if new.order.len() >= MAX_NODES && !known.contains_key(&key) {
                // The rest of the chain is counted with the outer part.
                break;
            }
            let id = *known.entry(key).or_insert_with(|| {
                new.order.push(next);
                let node = v1::FlameNode {
                    id: next,
                    parent,
                    frame,
                    complete: old.complete,
                };
                new.nodes.insert(next, node);
                next
            });
            if let Some(difference) = state.differences.get(&old.id) {
                add_difference(&mut new.differences, id, difference);
            }
            parent = id;
        }
        became.insert(old.id, parent);
        if let Some(weight) = state.weights.get(&old.id) {
            add_weight(&mut new.weights, parent, weight);
        }
    }
    new.frames = frames.all;
    *state = new;
}

/// What tells nodes apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct NodeKey {
    parent: u32,
    frame: u32,
    complete: bool,
}

/// What tells frames apart.
#[derive(PartialEq, Eq, Hash)]
struct FrameKey {
    function: String,
    file: String,
    line: u32,
    module: String,
    inlined: bool,
}

/// Frames, each once.
struct Frames {
    all: HashMap<u32, v1::Frame>,
    ids: HashMap<FrameKey, u32>,
    last: u32,
}

impl Frames {
    fn of(all: &HashMap<u32, v1::Frame>) -> Self {
        let ids = all.values().filter(|frame| !frame.kernel);
        Self {
            ids: ids.map(|frame| (key(frame), frame.id)).collect(),
            last: all.keys().copied().max().unwrap_or(0),
            all: all.clone(),
        }
    }

    fn id(&mut self, frame: v1::Frame) -> u32 {
        let Self { all, ids, last } = self;
        *ids.entry(key(&frame)).or_insert_with(|| {
            *last = last.saturating_add(1);
            all.insert(*last, v1::Frame { id: *last, ..frame });
            *last
        })
    }
}

fn key(frame: &v1::Frame) -> FrameKey {
    FrameKey {
        function: frame.function.clone(),
        file: frame.file.clone(),
        line: frame.line,
        module: frame.module.clone(),
        inlined: frame.inlined,
    }
}

fn add_weight(weights: &mut HashMap<u32, v1::NodeWeight>, node: u32, more: &v1::NodeWeight) {
    let v1::NodeWeight {
        node: _,
        inside_ns,
        inside_samples,
        outside_ns,
        outside_samples,
    } = *more;
    let sum = weights.entry(node).or_insert_with(|| v1::NodeWeight {
        node,
        ..Default::default()
    });
    sum.inside_ns = sum.inside_ns.saturating_add(inside_ns);
    sum.inside_samples = sum.inside_samples.saturating_add(inside_samples);
    sum.outside_ns = sum.outside_ns.saturating_add(outside_ns);
    sum.outside_samples = sum.outside_samples.saturating_add(outside_samples);
}

/// Shares add up. So do the intervals' ends, which makes an interval that is never too narrow. A span may be seen in
/// several of the nodes: the most that one was seen in are sure.
fn add_difference(differences: &mut HashMap<u32, v1::NodeDifference>, node: u32, more: &v1::NodeDifference) {
    let v1::NodeDifference {
        node: _,
        difference,
        low,
        high,
        inside_spans,
        outside_spans,
    } = *more;
    let sum = differences.entry(node).or_insert_with(|| v1::NodeDifference {
        node,
        ..Default::default()
    });
    sum.difference = (sum.difference + difference).clamp(-1.0, 1.0);
    sum.low = (sum.low + low).clamp(-1.0, 1.0);
    sum.high = (sum.high + high).clamp(-1.0, 1.0);
    sum.inside_spans = sum.inside_spans.max(inside_spans);
    sum.outside_spans = sum.outside_spans.max(outside_spans);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::state::{sides::Sides, tree::Tree};

    fn frame(id: u32, function: &str, build_id: &[u8]) -> v1::Frame {
        v1::Frame {
            id,
            function: function.to_owned(),
            build_id: build_id.to_vec(),
            ..Default::default()
        }
    }

    /// Frames 1 `main`, 2 and 3 not known, 4 `leaf`; each node's weight is a power of two.
    fn state(nodes: &[(u32, u32)]) -> FlameState {
        let mut state = FlameState::default();
        let nodes = (1..).zip(nodes).map(|(id, &(parent, frame))| v1::FlameNode {
            id,
            parent,
            frame,
            complete: true,
        });
        let nodes: Vec<_> = nodes.collect();
        let weights = nodes.iter().map(|node| v1::NodeWeight {
            node: node.id,
            inside_ns: 1 << (node.id % 32),
            inside_samples: 1,
            ..Default::default()
        });
        let message = v1::WatchFlameResponse {
            snapshot: true,
            frames: vec![
                frame(1, "main", b""),
                frame(2, "x+0x1", b"id"),
                frame(3, "x+0x2", b"id"),
                frame(4, "leaf", b""),
            ],
            weights: weights.collect(),
            nodes,
            ..Default::default()
        };
        state.apply(message).unwrap();
        state
    }

    fn named(frame: &v1::Frame) -> Option<Vec<v1::Frame>> {
        let inner = v1::Frame {
            inlined: true,
            ..self::frame(0, "inner", b"")
        };
        match frame.id {
            2 => Some(vec![self::frame(0, "outer", b""), inner]),
            3 => Some(vec![self::frame(0, "outer", b"")]),
            _ => None,
        }
    }

    #[test]
    fn equal_names_are_one_node() {
        // main; main;?2; main;?3; main;?2;leaf; main;?3;leaf
        let mut state = state(&[(0, 1), (1, 2), (1, 3), (2, 4), (3, 4)]);
        rename(&mut state, named);
        let folded = crate::render::folded::render(&state, Sides::Inside);
        let mut lines: Vec<&str> = folded.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines.len(), 5, "{folded}");
        let stacks: Vec<&str> = lines
            .iter()
            .map(|line| line.rsplit_once(' ').unwrap().0)
            .collect();
        assert_eq!(
            stacks,
            [
                "main",
                "main;outer",
                "main;outer;inner",
                "main;outer;inner;leaf",
                "main;outer;leaf"
            ]
        );
        assert_eq!(state.nodes.len(), 5);
    }

    #[test]
    fn differences_add_up() {
        let mut state = state(&[(0, 1), (1, 2), (1, 3)]);
        let difference = |node, difference, inside_spans| v1::NodeDifference {
            node,
            difference,
            low: difference - 0.1,
            high: difference + 0.1,
            inside_spans,
            outside_spans: 0,
        };
        state.differences = [difference(2, 0.25, 3), difference(3, 0.5, 7)]
            .map(|difference| (difference.node, difference))
            .into();
        rename(&mut state, named);
        let of = |function: &str| {
            let frame = state.frames.values().find(|frame| frame.function == function);
            let node = state
                .nodes
                .values()
                .find(|node| node.frame == frame.unwrap().id)
                .unwrap();
            state.differences[&node.id]
        };
        let (outer, inner) = (of("outer"), of("inner"));
        assert!((outer.difference - 0.75).abs() < 1e-9 && (outer.low - 0.55).abs() < 1e-9);
        assert_eq!(outer.inside_spans, 7);
        assert!((inner.difference - 0.25).abs() < 1e-9);
    }

    proptest! {
        /// Nothing is lost, and every node still has its parent before it.
        #[test]
        fn any_tree_keeps_its_weight(parents in prop::collection::vec((any::<prop::sample::Index>(), 1_u32..5), 1..40)) {
            let nodes: Vec<(u32, u32)> = (0_u32..)
                .zip(parents)
                .map(|(at, (parent, frame))| (u32::try_from(parent.index(at as usize + 1)).unwrap(), frame))
                .collect();
            let before = state(&nodes);
            let mut after = before.clone();
            rename(&mut after, named);
            let (before, total) = (Tree::of(&before).total, Tree::of(&after).total);
            prop_assert_eq!(before, total);
            for id in &after.order {
                let node = &after.nodes[id];
                prop_assert!(node.parent < *id);
                prop_assert!(after.frames[&node.frame].build_id.is_empty());
            }
        }
    }
}
