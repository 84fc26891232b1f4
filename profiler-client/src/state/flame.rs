//! The flame view as the client knows it.

use std::collections::{BTreeMap, HashMap};

use profiler_aggregate::pace::Pace;
use profiler_proto::v1;

use super::Malformed;

/// Nodes that are kept at most. The daemon caps its matrix well below; this guards against others.
pub const MAX_NODES: usize = 1 << 21;

/// A flame view: snapshot and deltas applied.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlameState {
    /// Canonical text of the scope.
    pub scope: String,
    /// What frames stand for.
    pub by: v1::Grouping,
    /// Times that it is drawn of.
    pub times: v1::Times,
    /// The event that is drawn instead; empty of time.
    pub event: String,
    /// What weights are numbers of; empty of time, where they are nanoseconds.
    pub unit: String,
    /// How often stacks were taken at the event; `None` of time, and where it is not known.
    pub pace: Option<Pace>,
    /// By the daemon's id for them.
    pub frames: HashMap<u32, v1::Frame>,
    /// By id. Parents have been there before their children; [`Self::order`] tells the order.
    pub nodes: HashMap<u32, v1::FlameNode>,
    /// Node ids in the order of arrival, parents first.
    pub order: Vec<u32>,
    /// By node; absent ones are zero.
    pub weights: HashMap<u32, v1::NodeWeight>,
    /// By node.
    pub differences: HashMap<u32, v1::NodeDifference>,
    /// Counts of samples and calls.
    pub summary: v1::FlameSummary,
    /// Where two recordings are compared, the counts of the one before.
    pub before: Option<v1::FlameSummary>,
    /// What the daemon costs.
    pub cost: Option<v1::Cost>,
    /// Updates that were skipped because this client did not keep up.
    pub dropped: u64,
    /// A snapshot has arrived.
    pub started: bool,
}

/// How often stacks are taken at an event, as a message says it; `None` of time, and where it is not known.
const fn pace_of_message(period: u64, frequency_hz: u32) -> Option<Pace> {
    match (period, frequency_hz) {
        (0, 0) => None,
        (0, frequency_hz) => Some(Pace::Frequency(frequency_hz)),
        (period, _) => Some(Pace::Period(period)),
    }
}

/// What the two sides of a flame graph are called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SideNames {
    /// Calls that the scope asks for; of the later of two recordings.
    pub inside: &'static str,
    /// The others; those of the recording before.
    pub outside: &'static str,
}

impl FlameState {
    /// Applies one message of the stream.
    ///
    /// # Errors
    ///
    /// Where the message contradicts the protocol; the state is then as before, or partly newer.
    pub fn apply(&mut self, message: v1::WatchFlameResponse) -> Result<(), Malformed> {
        let v1::WatchFlameResponse {
            info,
            snapshot,
            frames,
            nodes,
            weights,
            differences,
            summary,
            by,
            times,
            event,
            unit,
            period,
            frequency_hz,
            before,
        } = message;
        let v1::StreamInfo {
            dropped, scope, cost, ..
        } = info.unwrap_or_default();
        if snapshot {
            *self = Self {
                started: true,
                dropped: self.dropped,
                cost: self.cost,
                ..Self::default()
            };
        } else if !(self.started || frames.is_empty() && nodes.is_empty() && weights.is_empty()) {
            return Err(Malformed("a change before any snapshot"));
        }
        self.frames
            .extend(frames.into_iter().map(|frame| (frame.id, frame)));
        for node in nodes {
            self.add_node(node)?;
        }
        for weight in weights {
            self.require(weight.node)?;
            self.weights.insert(weight.node, weight);
        }
        if !differences.is_empty() {
            self.differences.clear();
        }
        for difference in differences {
            self.require(difference.node)?;
            self.differences.insert(difference.node, difference);
        }
        if let Some(summary) = summary {
            self.summary = summary;
        }
        if before.is_some() {
            self.before = before;
        }
        if !scope.is_empty() || snapshot {
            self.scope = scope;
        }
        // One that is not known yet has frames all the same.
        self.by = v1::Grouping::try_from(by).unwrap_or_default();
        self.times = v1::Times::try_from(times).unwrap_or_default();
        (self.event, self.unit) = (event, unit);
        self.pace = pace_of_message(period, frequency_hz);
        if cost.is_some() {
            self.cost = cost;
        }
        self.dropped = self.dropped.saturating_add(dropped);
        Ok(())
    }

    fn add_node(&mut self, node: v1::FlameNode) -> Result<(), Malformed> {
        if node.id == 0 || !self.frames.contains_key(&node.frame) {
            return Err(Malformed("a stack node without a frame"));
        }
        // With parents first and no node redefined, no cycle can arise.
        if node.parent != 0 {
            self.require(node.parent)?;
        }
        match self.nodes.get(&node.id) {
            Some(known) if *known == node => Ok(()),
            Some(_) => Err(Malformed("a stack node twice")),
            None if self.nodes.len() >= MAX_NODES => Err(Malformed("too many stack nodes")),
            None => {
                self.order.push(node.id);
                self.nodes.insert(node.id, node);
                Ok(())
            }
        }
    }

    fn require(&self, node: u32) -> Result<(), Malformed> {
        if self.nodes.contains_key(&node) {
            Ok(())
        } else {
            Err(Malformed("an unknown stack node"))
        }
    }

    /// All time inside, or what else weights are.
    #[must_use]
    pub fn inside(&self) -> u64 {
        let weights = self.weights.values();
        weights.fold(0, |sum: u64, weight| sum.saturating_add(weight.inside_ns))
    }

    /// What frames stand for: functions, where nothing else is said.
    #[must_use]
    pub const fn grouping(&self) -> v1::Grouping {
        match self.by {
            v1::Grouping::Unspecified => v1::Grouping::Function,
            by => by,
        }
    }

    /// What the two sides are called.
    #[must_use]
    pub fn names(&self) -> SideNames {
        if self.before.is_some() {
            SideNames {
                inside: "after",
                outside: "before",
            }
        } else {
            SideNames {
                inside: "inside",
                outside: "outside",
            }
        }
    }

    /// Losses by reason, in order, those that happened.
    #[must_use]
    pub fn lost(&self) -> BTreeMap<&str, u64> {
        self.summary
            .lost
            .iter()
            .filter(|(_, n)| **n > 0)
            .map(|(reason, n)| (reason.as_str(), *n))
            .collect()
    }
}

/// A node of complete stacks, for tests.
#[cfg(test)]
#[must_use]
pub const fn node(id: u32, parent: u32, frame: u32) -> v1::FlameNode {
    v1::FlameNode {
        id,
        parent,
        frame,
        complete: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(id: u32, function: &str) -> v1::Frame {
        v1::Frame {
            id,
            function: function.into(),
            ..Default::default()
        }
    }

    fn node(id: u32, parent: u32, frame: u32) -> v1::FlameNode {
        v1::FlameNode {
            id,
            parent,
            frame,
            complete: true,
        }
    }

    fn weight(node: u32, inside_ns: u64) -> v1::NodeWeight {
        v1::NodeWeight {
            node,
            inside_ns,
            inside_samples: 1,
            ..Default::default()
        }
    }

    fn snapshot() -> v1::WatchFlameResponse {
        v1::WatchFlameResponse {
            info: Some(v1::StreamInfo {
                scope: "f".into(),
                ..v1::StreamInfo::default()
            }),
            snapshot: true,
            frames: vec![frame(1, "main"), frame(2, "f")],
            nodes: vec![node(1, 0, 1), node(2, 1, 2)],
            weights: vec![weight(2, 10)],
            ..Default::default()
        }
    }

    #[test]
    fn deltas_bring_new_nodes_and_absolute_weights() {
        let mut state = FlameState::default();
        state.apply(snapshot()).unwrap();
        state
            .apply(v1::WatchFlameResponse {
                nodes: vec![node(3, 2, 1)],
                weights: vec![weight(2, 15), weight(3, 4)],
                ..Default::default()
            })
            .unwrap();
        assert_eq!(state.order, [1, 2, 3]);
        assert_eq!(
            (state.weights[&2].inside_ns, state.weights[&3].inside_ns),
            (15, 4)
        );
        assert_eq!(state.scope, "f");
    }

    #[test]
    fn a_snapshot_after_a_gap_replaces_everything() {
        let mut state = FlameState::default();
        state.apply(snapshot()).unwrap();
        let again = v1::WatchFlameResponse {
            info: Some(v1::StreamInfo {
                dropped: 3,
                ..v1::StreamInfo::default()
            }),
            nodes: vec![node(7, 0, 2)],
            weights: vec![],
            ..snapshot()
        };
        state.apply(again).unwrap();
        assert_eq!(state.order, [7]);
        assert!(state.weights.is_empty());
        assert_eq!(state.dropped, 3);
    }

    #[test]
    fn a_tree_that_is_none_is_refused() {
        let with = |nodes: Vec<v1::FlameNode>, weights: Vec<v1::NodeWeight>| {
            FlameState::default().apply(v1::WatchFlameResponse {
                nodes,
                weights,
                ..snapshot()
            })
        };
        with(vec![node(1, 2, 1), node(2, 1, 1)], vec![]).unwrap_err();
        with(vec![node(1, 1, 1)], vec![]).unwrap_err();
        with(vec![node(0, 0, 1)], vec![]).unwrap_err();
        with(vec![node(1, 0, 9)], vec![]).unwrap_err();
        with(vec![node(1, 0, 1), node(1, 0, 2)], vec![]).unwrap_err();
        with(vec![node(1, 0, 1)], vec![weight(9, 1)]).unwrap_err();
        FlameState::default()
            .apply(v1::WatchFlameResponse {
                snapshot: false,
                ..snapshot()
            })
            .unwrap_err();
    }
}
