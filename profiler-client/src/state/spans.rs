//! The slowest calls as the client knows them: the last message of the stream, checked.

use std::{
    collections::{BTreeMap, HashMap},
    slice,
};

use profiler_proto::v1::{self, wait_end::By};

use super::{Malformed, thread_names::ThreadNames};

/// What a stream has said last.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpansState {
    /// Canonical text of the scope.
    pub scope: String,
    /// Slowest first.
    pub spans: Vec<v1::Span>,
    /// The frames of their stacks, by id.
    frames: HashMap<u32, v1::Frame>,
    /// Names of their threads, and of those that ended their waits.
    pub threads: ThreadNames,
    /// Calls that ended in the window, and while they were watched.
    pub calls: u64,
    /// Length of the window.
    pub window_ns: u64,
    /// They are of a recording, whose part is the window.
    pub is_recorded: bool,
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
            info,
            spans,
            frames,
            calls,
            window_ns,
            threshold_ns,
            lost,
            watched_ns,
            not_sampled,
            thread_names,
        } = message;
        let v1::StreamInfo {
            dropped, scope, cost, ..
        } = info.unwrap_or_default();
        let frames: HashMap<u32, v1::Frame> = frames.into_iter().map(|frame| (frame.id, frame)).collect();
        if spans.iter().any(|span| span.function.is_none()) {
            return Err(Malformed("a call of no function"));
        }
        if spans
            .iter()
            .flat_map(frames_of)
            .any(|id| !frames.contains_key(id))
        {
            return Err(Malformed("a stack with a frame that it has not named"));
        }
        let mut threads = std::mem::take(&mut self.threads);
        threads.take(thread_names);
        *self = Self {
            scope,
            spans,
            frames,
            threads,
            calls,
            window_ns,
            is_recorded: self.is_recorded,
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
        let frames = frames_of(span).filter_map(|id| Some((*id, self.frames.get(id)?.clone())));
        Self {
            scope: self.scope.clone(),
            spans: Vec::new(),
            frames: frames.collect(),
            threads: self.threads.clone(),
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

    /// Who ended a call's longest wait, where that was asked for and seen.
    #[must_use]
    pub fn ended_by(&self, wait: &v1::SpanWait) -> Option<EndedBy<'_>> {
        match wait.end.as_ref()?.by.as_ref()? {
            By::Thread(thread) => Some(EndedBy::Thread {
                pid: thread.pid,
                tid: thread.tid,
                name: self.threads.of(thread.pid, thread.tid),
                stack: self.named(&thread.stack).collect(),
            }),
            By::Interrupt(function) => Some(EndedBy::Interrupt(self.frames.get(function)?)),
        }
    }

    fn named<'a>(&'a self, stack: &[u32]) -> impl DoubleEndedIterator<Item = &'a v1::Frame> {
        stack.iter().filter_map(|id| self.frames.get(id))
    }
}

/// Who made a waiting thread runnable.
#[derive(Clone, Debug, PartialEq)]
pub enum EndedBy<'a> {
    /// A thread.
    Thread {
        /// Its process.
        pid: u32,
        /// Its number.
        tid: u32,
        /// Its name, where that is known.
        name: Option<&'a str>,
        /// What it ran, root first.
        stack: Vec<&'a v1::Frame>,
    },
    /// An interrupt, in this function.
    Interrupt(&'a v1::Frame),
}

/// The frames that a call's stacks are made of, by id.
fn frames_of(span: &v1::Span) -> impl Iterator<Item = &u32> {
    let wait = span.longest_wait.as_ref();
    let waited = wait.map_or(&[][..], |wait| &wait.stack);
    let ended = match wait
        .and_then(|wait| wait.end.as_ref())
        .and_then(|end| end.by.as_ref())
    {
        Some(By::Thread(thread)) => &thread.stack[..],
        Some(By::Interrupt(function)) => slice::from_ref(function),
        None => &[],
    };
    span.stack.iter().chain(waited).chain(ended)
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
