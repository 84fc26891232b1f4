//! The tree of waits as the client knows it: the last message of the stream, checked.

use std::collections::{BTreeMap, HashMap};

use profiler_proto::v1;

use super::Malformed;

/// What a stream has said last.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WaitsState {
    /// Canonical text of the scope.
    pub scope: String,
    /// Parents first; a node's number is its place here, from 1 on.
    pub nodes: Vec<v1::WaitNode>,
    /// The numbers of the nodes below each, the first of all those that have none above.
    below: Vec<Vec<usize>>,
    /// The frames of their stacks, by id.
    frames: HashMap<u32, v1::Frame>,
    /// Waits that have ended.
    pub waits: u64,
    /// Their time.
    pub waited_ns: u64,
    /// Time that the same threads had no CPU.
    pub runnable_ns: u64,
    /// How long they have been recorded.
    pub watched_ns: u64,
    /// What was left out, by reason.
    pub lost: BTreeMap<String, u64>,
    /// What the daemon costs.
    pub cost: Option<v1::Cost>,
    /// Updates that were missed.
    pub dropped: u64,
    /// A message has arrived.
    pub started: bool,
}

impl WaitsState {
    /// Puts a message in the place of the one before.
    ///
    /// # Errors
    ///
    /// Where it contradicts the protocol.
    pub fn apply(&mut self, message: v1::WatchWaitsResponse) -> Result<(), Malformed> {
        let v1::WatchWaitsResponse {
            info,
            nodes,
            frames,
            waits,
            waited_ns,
            runnable_ns,
            watched_ns,
            lost,
        } = message;
        let v1::StreamInfo {
            dropped, scope, cost, ..
        } = info.unwrap_or_default();
        let frames: HashMap<u32, v1::Frame> = frames.into_iter().map(|frame| (frame.id, frame)).collect();
        let mut stacks = nodes.iter().flat_map(|node| &node.stack);
        if stacks.any(|id| !frames.contains_key(id)) {
            return Err(Malformed("a stack with a frame that it has not named"));
        }
        let mut below = vec![Vec::new(); nodes.len() + 1];
        for (at, node) in nodes.iter().enumerate() {
            let parent = usize::try_from(node.parent).unwrap_or(usize::MAX);
            if parent > at {
                return Err(Malformed("a wait below one that comes after it"));
            }
            below[parent].push(at + 1);
        }
        *self = Self {
            scope,
            nodes,
            below,
            frames,
            waits,
            waited_ns,
            runnable_ns,
            watched_ns,
            lost: lost.into_iter().collect(),
            cost,
            dropped,
            started: true,
        };
        Ok(())
    }

    /// The node of a number.
    #[must_use]
    pub fn node(&self, number: usize) -> Option<&v1::WaitNode> {
        self.nodes.get(number.checked_sub(1)?)
    }

    /// The numbers of the nodes below one, or of those that have none above for 0.
    #[must_use]
    pub fn below(&self, number: usize) -> &[usize] {
        self.below.get(number).map_or(&[], Vec::as_slice)
    }

    /// What tells a node from others, in each message: what is above it, and what it is itself.
    #[must_use]
    pub fn path(&self, number: usize) -> String {
        let mut steps = Vec::new();
        let mut next = self.node(number);
        // Parents come before what is below them, so that this ends.
        while let Some(node) = next {
            let functions: Vec<&str> = self.stack(node).map(|frame| frame.function.as_str()).collect();
            let lock = node.lock.as_ref().map_or(0, |lock| lock.address);
            steps.push(format!(
                "{} {} {} {lock:x} {}",
                node.kind,
                node.waiting,
                node.thread,
                functions.join(";")
            ));
            next = self.node(usize::try_from(node.parent).unwrap_or(0));
        }
        steps.join("\n")
    }

    /// A node's stack, root first.
    #[must_use]
    pub fn stack(&self, node: &v1::WaitNode) -> impl DoubleEndedIterator<Item = &v1::Frame> {
        node.stack.iter().filter_map(|id| self.frames.get(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_contradicts_itself_is_refused() {
        let message = |parent, stack: &[u32]| v1::WatchWaitsResponse {
            nodes: vec![v1::WaitNode {
                parent,
                stack: stack.to_vec(),
                ..Default::default()
            }],
            frames: vec![v1::Frame {
                id: 3,
                ..Default::default()
            }],
            ..Default::default()
        };
        let mut state = WaitsState::default();
        assert!(state.apply(message(1, &[3])).is_err());
        assert!(state.apply(message(0, &[4])).is_err());
        assert!(!state.started);
        state.apply(message(0, &[3])).unwrap();
        assert_eq!(
            (state.below(0), state.below(1), state.started),
            (&[1][..], &[][..], true)
        );
    }
}
