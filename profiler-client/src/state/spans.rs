//! The slowest calls as the client knows them: the last message of the stream, checked.

use std::collections::{BTreeMap, HashMap};

use profiler_proto::v1;

use super::Malformed;

/// What a stream has said last.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpansState {
    /// Canonical text of the scope.
    pub scope: String,
    /// Slowest first.
    pub spans: Vec<v1::Span>,
    /// The frames of their stacks, by id.
    frames: HashMap<u32, v1::Frame>,
    /// Calls that ended in the window, and while they were watched.
    pub calls: u64,
    /// Length of the window.
    pub window_ns: u64,
    /// How long they have been watched.
    pub watched_ns: u64,
    /// The target is not sampled.
    pub not_sampled: bool,
    /// Ends of calls that take at least this long are recorded.
    pub threshold_ns: u64,
    /// What was left out, by reason.
    pub lost: BTreeMap<String, u64>,
    /// What the daemon costs.
    pub cost: Option<v1::Cost>,
    /// Updates that were missed.
    pub dropped: u64,
    /// A message has arrived.
    pub started: bool,
}

impl SpansState {
    /// Puts a message in the place of the one before.
    ///
    /// # Errors
    ///
    /// Where it contradicts the protocol.
    pub fn apply(&mut self, message: v1::WatchSpansResponse) -> Result<(), Malformed> {
        let v1::WatchSpansResponse {
            seq: _,
            dropped,
            r#final: _,
            final_reason: _,
            final_signal: _,
            scope,
            spans,
            frames,
            calls,
            window_ns,
            threshold_ns,
            lost,
            cost,
            watched_ns,
            not_sampled,
        } = message;
        let frames: HashMap<u32, v1::Frame> = frames.into_iter().map(|frame| (frame.id, frame)).collect();
        if spans.iter().any(|span| span.function.is_none()) {
            return Err(Malformed("a call of no function"));
        }
        let waited = |span: &'_ v1::Span| span.longest_wait.clone().map_or_else(Vec::new, |wait| wait.stack);
        let mut stacks = spans.iter().flat_map(|span| {
            let own = span.stack.iter().copied();
            own.chain(waited(span)).collect::<Vec<_>>()
        });
        if stacks.any(|id| !frames.contains_key(&id)) {
            return Err(Malformed("a stack with a frame that it has not named"));
        }
        *self = Self {
            scope,
            spans,
            frames,
            calls,
            window_ns,
            watched_ns,
            not_sampled,
            threshold_ns,
            lost: lost.into_iter().collect(),
            cost,
            dropped,
            started: true,
        };
        Ok(())
    }

    /// What belongs to one of its calls: nothing of the others.
    #[must_use]
    pub fn of(&self, span: &v1::Span) -> Self {
        let wait = span.longest_wait.iter().flat_map(|wait| &wait.stack);
        let ids = span.stack.iter().chain(wait);
        let frames = ids.filter_map(|id| Some((*id, self.frames.get(id)?.clone())));
        Self {
            scope: self.scope.clone(),
            spans: Vec::new(),
            frames: frames.collect(),
            lost: BTreeMap::new(),
            cost: None,
            ..*self
        }
    }

    /// A call's stack, root first.
    #[must_use]
    pub fn stack<'a>(&'a self, span: &'a v1::Span) -> impl DoubleEndedIterator<Item = &'a v1::Frame> {
        self.named(&span.stack)
    }

    /// Where a call waited, root first.
    #[must_use]
    pub fn waited<'a>(&'a self, wait: &'a v1::SpanWait) -> impl DoubleEndedIterator<Item = &'a v1::Frame> {
        self.named(&wait.stack)
    }

    fn named<'a>(&'a self, stack: &'a [u32]) -> impl DoubleEndedIterator<Item = &'a v1::Frame> {
        stack.iter().filter_map(|id| self.frames.get(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(stack: &[u32], function: Option<v1::Function>) -> v1::WatchSpansResponse {
        v1::WatchSpansResponse {
            spans: vec![v1::Span {
                function,
                stack: stack.to_vec(),
                ..Default::default()
            }],
            frames: [3, 5]
                .map(|id| v1::Frame {
                    id,
                    ..Default::default()
                })
                .into(),
            calls: 9,
            ..Default::default()
        }
    }

    #[test]
    fn a_message_replaces_the_one_before() {
        let mut state = SpansState::default();
        state
            .apply(message(&[5, 3, 5], Some(v1::Function::default())))
            .unwrap();
        let ids: Vec<u32> = state.stack(&state.spans[0]).map(|frame| frame.id).collect();
        assert_eq!((ids, state.calls, state.started), (vec![5, 3, 5], 9, true));
        state.apply(v1::WatchSpansResponse::default()).unwrap();
        assert!(state.spans.is_empty());
    }

    #[test]
    fn what_is_not_named_is_refused() {
        let mut state = SpansState::default();
        assert!(state.apply(message(&[4], Some(v1::Function::default()))).is_err());
        assert!(state.apply(message(&[3], None)).is_err());
        assert!(!state.started);
    }
}
