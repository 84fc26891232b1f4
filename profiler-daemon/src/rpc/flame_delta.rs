//! A stream of flame pictures: the first whole, then what changed.

use profiler_aggregate::calltree::Node;
use std::collections::{BTreeSet, HashMap, HashSet};

use profiler_aggregate::{
    difference::NodeDifference,
    interval::Estimate,
    picture::{FlameSummary, NodeWeight},
};
use profiler_proto::v1;
use profiler_symbolize::{Frame, FrameTable, Grouping};

use super::{
    convert, records,
    stream_info::{self, Position},
};
use crate::{
    kernel::Event,
    session::{FlamePicture, FlameTimes},
};

/// What a client of one stream knows.
#[derive(Default)]
pub struct FlameDelta {
    /// `None` before the first picture.
    generation: Option<u64>,
    /// Numbers of frames.
    frames: HashSet<u32>,
    nodes: usize,
    weights: HashMap<u32, NodeWeight>,
}

impl FlameDelta {
    /// The next message of the stream.
    pub fn next(&mut self, picture: &FlamePicture, at: Position) -> v1::WatchFlameResponse {
        let snapshot = self.generation != Some(picture.generation);
        if snapshot {
            *self = Self {
                generation: Some(picture.generation),
                ..Self::default()
            };
        }
        let new = picture.nodes.get(self.nodes..).unwrap_or_default();
        // Those of its own nodes alone: the table has the frames of all sessions, whoever's they are.
        let new_frames = new.iter().map(|node| node.frame.0);
        let new_frames = new_frames.filter(|id| self.frames.insert(*id));
        let frames = new_frames.filter_map(|id| {
            let at = id as usize;
            Some(frame((at, picture.frames.get(at)?)))
        });
        let frames = frames.collect();
        let nodes = picture
            .nodes
            .iter()
            .enumerate()
            .skip(self.nodes)
            .map(node)
            .collect();
        self.nodes = picture.nodes.len();
        let event = picture.times.event();
        let told = event.map(records::event).unwrap_or_default();
        v1::WatchFlameResponse {
            info: Some(stream_info::of_picture(
                at,
                &picture.scope,
                picture.cost,
                &picture.lost,
                picture.ended.as_ref(),
            )),
            snapshot,
            frames,
            nodes,
            weights: self.changed(&picture.picture.weights),
            differences: picture.picture.differences.iter().map(difference).collect(),
            summary: Some(whole_summary(picture)),
            before: picture.before.as_ref().map(summary),
            by: grouping(picture.by).into(),
            times: times(picture.times).into(),
            event: told.name,
            unit: event.map(Event::unit).unwrap_or_default().to_owned(),
            period: told.period,
            frequency_hz: told.frequency_hz,
        }
    }

    /// Weights that changed; a node that lost all of its weight is sent as zero once.
    fn changed(&mut self, weights: &[NodeWeight]) -> Vec<v1::NodeWeight> {
        let mut gone = std::mem::take(&mut self.weights);
        let mut messages = Vec::new();
        for weight in weights {
            let id = weight.node.0;
            if gone.remove(&id).as_ref() != Some(weight) {
                messages.push(v1::NodeWeight {
                    node: id,
                    inside_ns: weight.inside_ns,
                    inside_samples: weight.inside_samples,
                    outside_ns: weight.outside_ns,
                    outside_samples: weight.outside_samples,
                });
            }
            self.weights.insert(id, *weight);
        }
        messages.extend(gone.into_keys().map(|node| v1::NodeWeight {
            node,
            ..Default::default()
        }));
        messages
    }
}

fn times(times: FlameTimes) -> v1::Times {
    match times {
        FlameTimes::OnCpu => v1::Times::OnCpu,
        FlameTimes::OffCpu => v1::Times::OffCpu,
        FlameTimes::Both => v1::Times::Both,
        FlameTimes::Event(_) => v1::Times::Unspecified,
    }
}

fn grouping(by: Grouping) -> v1::Grouping {
    match by {
        Grouping::Function => v1::Grouping::Function,
        Grouping::Line => v1::Grouping::Line,
        Grouping::Module => v1::Grouping::Module,
        Grouping::Thread => v1::Grouping::Thread,
        Grouping::Process => v1::Grouping::Process,
    }
}

/// The frames of these numbers.
pub fn frames(numbers: &BTreeSet<u32>, table: &FrameTable) -> Vec<v1::Frame> {
    let frame = |number: &u32| {
        let at = *number as usize;
        Some(frame((at, table.get(at)?)))
    };
    numbers.iter().filter_map(frame).collect()
}

/// A frame by its number.
pub fn frame((id, frame): (usize, &Frame)) -> v1::Frame {
    let Frame {
        function,
        file,
        line,
        module,
        inlined,
        kernel,
        unresolved,
        nameable,
    } = frame;
    v1::Frame {
        id: u32::try_from(id).unwrap_or(u32::MAX),
        function: function.to_string(),
        file: file.to_string(),
        line: *line,
        module: module.to_string(),
        inlined: *inlined,
        kernel: *kernel,
        unresolved: unresolved
            .map(|reason| reason.text().to_owned())
            .unwrap_or_default(),
        build_id: nameable
            .as_ref()
            .map(|nameable| nameable.build_id.to_vec())
            .unwrap_or_default(),
        address: nameable.as_ref().map_or(0, |nameable| nameable.address),
    }
}

fn node((index, node): (usize, &Node)) -> v1::FlameNode {
    let id = u32::try_from(index + 1).unwrap_or(u32::MAX);
    v1::FlameNode {
        id,
        parent: node.parent.0,
        frame: node.frame.0,
        complete: node.complete,
    }
}

fn difference(difference: &NodeDifference) -> v1::NodeDifference {
    let NodeDifference {
        node,
        difference: Estimate { value, low, high },
        inside_spans,
        outside_spans,
    } = *difference;
    v1::NodeDifference {
        node: node.0,
        difference: value,
        low,
        high,
        inside_spans,
        outside_spans,
    }
}

/// The summary of what is drawn, with what was lost.
fn whole_summary(picture: &FlamePicture) -> v1::FlameSummary {
    let mut summary = summary(&picture.picture.summary);
    summary.attempted = picture.attempted;
    summary.lost.extend(convert::losses(&picture.lost));
    summary
}

fn summary(summary: &FlameSummary) -> v1::FlameSummary {
    let lost = [
        ("abandoned", summary.elsewhere_abandoned),
        ("expired", summary.elsewhere_expired),
    ];
    let lost = lost.into_iter().filter(|(_, count)| *count > 0);
    let lost = lost.map(|(reason, count)| (reason.to_owned(), count)).collect();
    v1::FlameSummary {
        samples: summary.samples,
        inside: summary.inside,
        outside: summary.outside,
        elsewhere: summary.elsewhere,
        open: summary.open,
        incomplete: summary.incomplete,
        lost,
        threshold_ns: summary.threshold_ns.unwrap_or(0),
        calls: summary.calls,
        calls_inside: summary.calls_inside,
        warming: summary.warming,
        calls_needed: summary.calls_needed,
        folded_stacks: summary.folded_stacks,
        attempted: 0,
    }
}
