//! Stacks of other tools as a flame view: one profile, or two that are compared.

use std::collections::HashMap;

use profiler_aggregate::interval::{Estimate, Shares, difference};
use profiler_export::{Profile, Unit};
use profiler_proto::v1;

use super::{
    Malformed,
    flame::{FlameState, MAX_NODES},
};

/// A node of the tree that both profiles make together.
struct Node {
    parent: usize,
    frame: u32,
    /// Its own weight on each side.
    own: [u64; 2],
    own_samples: [u64; 2],
}

#[derive(Default)]
struct Tree {
    frames: Vec<v1::Frame>,
    frame_ids: HashMap<profiler_export::Frame, u32>,
    /// Parents first; ids are positions, counted from 1.
    nodes: Vec<Node>,
    children: HashMap<(usize, u32), usize>,
}

/// Which side a profile is on.
#[derive(Clone, Copy)]
enum Side {
    Inside = 0,
    Outside = 1,
}

/// Makes the view of a profile's last measure; beside one before, of both.
///
/// # Errors
///
/// As [`message`].
pub fn of(profile: &Profile, before: Option<&Profile>) -> Result<FlameState, Malformed> {
    let mut state = FlameState::default();
    state.apply(message(profile, before)?)?;
    Ok(state)
}

/// The message of a flame view that shows a profile's last measure; beside one before, of both.
///
/// # Errors
///
/// Where it has no measure, the two have other ones, or there are more stacks than a flame graph may have.
pub fn message(profile: &Profile, before: Option<&Profile>) -> Result<v1::WatchFlameResponse, Malformed> {
    let measure = profile
        .measures
        .last()
        .ok_or(Malformed("a profile that measures nothing"))?;
    if before.is_some_and(|before| before.measures.last() != Some(measure)) {
        return Err(Malformed("two profiles that do not measure the same"));
    }
    let mut tree = Tree::default();
    tree.add(profile, Side::Inside)?;
    if let Some(before) = before {
        tree.add(before, Side::Outside)?;
    }
    let samples = tree.sum(|node| node.own_samples);
    let differences = before.map_or_else(Vec::new, |_| tree.differences(samples));
    let is_time = measure.unit == Unit::Nanoseconds;
    let unit = match measure.unit {
        Unit::Nanoseconds => "",
        Unit::Bytes => "bytes",
        Unit::Count => measure.name.as_str(),
    };
    let summary = |side: Side| v1::FlameSummary {
        samples: samples[side as usize],
        inside: samples[side as usize],
        ..v1::FlameSummary::default()
    };
    Ok(v1::WatchFlameResponse {
        snapshot: true,
        differences,
        summary: Some(v1::FlameSummary {
            outside: samples[Side::Outside as usize],
            samples: samples.iter().fold(0, |sum: u64, side| sum.saturating_add(*side)),
            ..summary(Side::Inside)
        }),
        by: v1::Grouping::Function.into(),
        times: v1::Times::OnCpu.into(),
        event: if is_time {
            String::new()
        } else {
            measure.name.clone()
        },
        unit: unit.to_owned(),
        before: before.map(|_| summary(Side::Outside)),
        nodes: tree.nodes(),
        weights: tree.weights(),
        frames: tree.frames,
        ..v1::WatchFlameResponse::default()
    })
}

/// Where more are counted than this, they are no samples: somebody has folded nanoseconds.
const MAX_SAMPLES: u64 = 1 << 30;

/// The measure that says of how many samples a profile is; `None` where none does.
fn samples_of(profile: &Profile) -> Option<usize> {
    let mut measures = profile.measures.iter();
    let at = measures.position(|measure| measure.name == "samples")?;
    let counts = profile.stacks.iter().filter_map(|stack| stack.weights.get(at));
    let all = counts.fold(0_u64, |sum, count| sum.saturating_add(*count));
    (all <= MAX_SAMPLES).then_some(at)
}

impl Tree {
    fn add(&mut self, profile: &Profile, side: Side) -> Result<(), Malformed> {
        let samples = samples_of(profile);
        for stack in &profile.stacks {
            let mut at = 0;
            for (_, frame) in profile.frames_of(stack) {
                let frame = self.frame(frame);
                at = self.child(at, frame);
                if at > MAX_NODES {
                    return Err(Malformed("more stacks than a flame graph may have"));
                }
            }
            let Some(node) = at.checked_sub(1).and_then(|at| self.nodes.get_mut(at)) else {
                continue;
            };
            let weight = stack.weights.last().copied().unwrap_or(0);
            let count = samples.and_then(|at| stack.weights.get(at)).copied();
            let side = side as usize;
            node.own[side] = node.own[side].saturating_add(weight);
            node.own_samples[side] = node.own_samples[side].saturating_add(count.unwrap_or(0));
        }
        Ok(())
    }

    fn frame(&mut self, frame: &profiler_export::Frame) -> u32 {
        if let Some(id) = self.frame_ids.get(frame) {
            return *id;
        }
        let id = u32::try_from(self.frames.len() + 1).unwrap_or(u32::MAX);
        let is_kernel = frame.module.starts_with("[kernel");
        self.frames.push(v1::Frame {
            id,
            function: frame.name.clone(),
            file: frame.file.clone(),
            line: frame.declared_line,
            module: if is_kernel {
                "[kernel]".to_owned()
            } else {
                frame.module.clone()
            },
            inlined: frame.inlined,
            kernel: is_kernel,
            ..v1::Frame::default()
        });
        self.frame_ids.insert(frame.clone(), id);
        id
    }

    /// The id of a node's child; of all, that of an outermost one.
    fn child(&mut self, parent: usize, frame: u32) -> usize {
        if let Some(id) = self.children.get(&(parent, frame)) {
            return *id;
        }
        self.nodes.push(Node {
            parent,
            frame,
            own: [0; 2],
            own_samples: [0; 2],
        });
        let id = self.nodes.len();
        self.children.insert((parent, frame), id);
        id
    }

    fn nodes(&self) -> Vec<v1::FlameNode> {
        let id = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        let nodes = (1..).zip(&self.nodes);
        nodes
            .map(|(at, node)| v1::FlameNode {
                id: id(at),
                parent: id(node.parent),
                frame: node.frame,
                complete: true,
            })
            .collect()
    }

    fn weights(&self) -> Vec<v1::NodeWeight> {
        let nodes = (1_u32..).zip(&self.nodes);
        let weighed = nodes.filter(|(_, node)| node.own != [0; 2]);
        weighed
            .map(|(id, node)| v1::NodeWeight {
                node: id,
                inside_ns: node.own[0],
                inside_samples: node.own_samples[0],
                outside_ns: node.own[1],
                outside_samples: node.own_samples[1],
            })
            .collect()
    }

    fn sum(&self, of: impl Fn(&Node) -> [u64; 2]) -> [u64; 2] {
        self.nodes.iter().map(of).fold([0; 2], added)
    }

    /// How shares of the weight differ. Samples are taken to be independent of each other, as nothing says which belong together.
    fn differences(&self, samples: [u64; 2]) -> Vec<v1::NodeDifference> {
        let all = self.sum(|node| node.own);
        let (weights, counts) = (self.totals(|node| node.own), self.totals(|node| node.own_samples));
        let nodes = (1_u32..).zip(weights.into_iter().zip(counts));
        nodes
            .filter_map(|(id, (weights, counts))| {
                let [inside, outside] = [0, 1].map(|side| {
                    let share = weights[side] as f64 / all[side] as f64;
                    estimate(share, counts[side], samples[side])
                });
                let difference = difference(inside?, outside?);
                let [inside_spans, outside_spans] = counts.map(number);
                Some(v1::NodeDifference {
                    node: id,
                    difference: difference.value,
                    low: difference.low,
                    high: difference.high,
                    inside_spans,
                    outside_spans,
                })
            })
            .collect()
    }

    /// What nodes have with all below them.
    fn totals(&self, own: impl Fn(&Node) -> [u64; 2]) -> Vec<[u64; 2]> {
        let mut totals: Vec<[u64; 2]> = self.nodes.iter().map(own).collect();
        for at in (0..self.nodes.len()).rev() {
            if let Some(parent) = self.nodes[at].parent.checked_sub(1) {
                totals[parent] = added(totals[parent], totals[at]);
            }
        }
        totals
    }
}

/// What is known of a share of the weight that was seen in so many of the samples; nothing where there are none.
fn estimate(share: f64, seen: u64, samples: u64) -> Option<Estimate> {
    if !share.is_finite() {
        // Nothing weighs anything on that side.
        return None;
    }
    let (all, node) = (samples as f64, share * samples as f64);
    let shares = Shares {
        spans: number(samples),
        seen: number(seen),
        full: number(seen),
        samples: all,
        node,
        node_node: node,
        node_all: node,
        all,
        all_all: all,
    };
    shares.estimate()
}

fn number(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn added(a: [u64; 2], b: [u64; 2]) -> [u64; 2] {
    [a[0].saturating_add(b[0]), a[1].saturating_add(b[1])]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{render::folded, state::sides::Sides};

    fn folded_stacks(text: &str) -> Profile {
        profiler_export::import::read(text.as_bytes()).unwrap()
    }

    #[test]
    fn what_was_folded_is_folded_again_the_same() {
        let text = "main;f 3\nmain;f;g 4\nother 1\n";
        let state = of(&folded_stacks(text), None).unwrap();
        let mut lines: Vec<String> = folded::render(&state, Sides::Inside)
            .lines()
            .map(str::to_owned)
            .collect();
        lines.sort();
        assert_eq!(lines, ["main;f 3", "main;f;g 4", "other 1"]);
        assert_eq!((state.event.as_str(), state.summary.samples), ("samples", 8));
    }

    #[test]
    fn a_difference_of_many_samples_is_certain_and_one_of_few_is_not() {
        let differences = |after: &str, before: &str| {
            let state = of(&folded_stacks(after), Some(&folded_stacks(before))).unwrap();
            let of_frame = |name: &str| {
                let node = state
                    .nodes
                    .values()
                    .find(|node| state.frames[&node.frame].function == name);
                state.differences[&node.unwrap().id]
            };
            of_frame("f")
        };
        let many = differences("main;f 900\nmain;g 100\n", "main;f 500\nmain;g 500\n");
        assert!((many.difference - 0.4).abs() < 1e-9 && many.low > 0.3, "{many:?}");
        let few = differences("main;f 3\nmain;g 1\n", "main;f 2\nmain;g 2\n");
        assert!(few.low < 0.0 && few.high > 0.0, "{few:?}");
    }

    #[test]
    fn without_a_number_of_samples_nothing_is_certain() {
        let mut heap = folded_stacks("main;f 900\nmain;g 100\n");
        heap.measures[0].name = "inuse_space".to_owned();
        heap.measures[0].unit = Unit::Bytes;
        let state = of(&heap, Some(&heap)).unwrap();
        assert!(state.differences.is_empty());
        assert_eq!((state.summary.samples, state.unit.as_str()), (0, "bytes"));
        let folded_times = folded_stacks("main;f 900000000000\n");
        assert!(
            of(&folded_times, Some(&folded_times))
                .unwrap()
                .differences
                .is_empty()
        );
    }

    #[test]
    fn where_nothing_weighs_anything_nothing_differs() {
        let mut profile = folded_stacks("main;f 900\nmain;g 100\n");
        profile.measures.push(profiler_export::Measure {
            name: "cpu".to_owned(),
            unit: Unit::Nanoseconds,
        });
        for stack in &mut profile.stacks {
            stack.weights.push(0);
        }
        assert!(of(&profile, Some(&profile)).unwrap().differences.is_empty());
    }

    #[test]
    fn profiles_that_measure_other_things_are_not_compared() {
        let mut other = folded_stacks("main 1\n");
        other.measures[0].unit = Unit::Bytes;
        assert!(of(&folded_stacks("main 1\n"), Some(&other)).is_err());
        assert!(of(&Profile::default(), None).is_err());
    }
}
