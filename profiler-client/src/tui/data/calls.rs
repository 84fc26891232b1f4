//! The slowest calls that were seen.

use profiler_proto::v1;

use super::super::lens::MomentId;
use crate::state::{Malformed, spans::SpansState};

/// Calls that are kept.
const KEPT: usize = 100;

/// A call. It stays when it is no longer among the last.
#[derive(Clone, Debug, PartialEq)]
pub struct CallRow {
    /// The call.
    pub span: v1::Span,
    /// What was said with it, without other calls: the frames of its stacks.
    pub said: SpansState,
}

impl CallRow {
    /// Which one it is.
    #[must_use]
    pub const fn id(&self) -> MomentId {
        MomentId {
            ts_ns: self.span.ts_ns,
            tid: self.span.tid,
        }
    }
}

/// The slowest calls since they are looked at.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    /// What was said last.
    pub state: SpansState,
    /// Slowest first.
    pub rows: Vec<CallRow>,
    /// When the first of them began, on the kernel's clock.
    pub origin_ns: u64,
}

impl Calls {
    /// Applies a message.
    ///
    /// # Errors
    ///
    /// Where it contradicts the protocol.
    pub fn apply(&mut self, message: v1::WatchSpansResponse) -> Result<(), Malformed> {
        self.state.apply(message)?;
        for span in &self.state.spans {
            let row = CallRow {
                span: span.clone(),
                said: self.state.of(span),
            };
            match self.rows.iter_mut().find(|known| known.id() == row.id()) {
                // Samples of it may have come late.
                Some(known) => *known = row,
                None => self.rows.push(row),
            }
        }
        self.rows
            .sort_by_key(|row| std::cmp::Reverse(row.span.duration_ns));
        self.rows.truncate(KEPT);
        if self.origin_ns == 0 {
            let first = self.rows.iter().map(|row| row.span.ts_ns).min();
            self.origin_ns = first.unwrap_or(0);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(spans: &[(u64, u64, u64)]) -> v1::WatchSpansResponse {
        let span = |&(ts_ns, duration_ns, samples)| v1::Span {
            ts_ns,
            tid: 7,
            duration_ns,
            samples,
            function: Some(v1::Function::default()),
            stack: vec![3],
            ..v1::Span::default()
        };
        v1::WatchSpansResponse {
            spans: spans.iter().map(span).collect(),
            frames: vec![v1::Frame {
                id: 3,
                function: "f".to_owned(),
                ..v1::Frame::default()
            }],
            ..v1::WatchSpansResponse::default()
        }
    }

    #[test]
    fn the_slowest_stay_when_others_come() {
        let mut calls = Calls::default();
        calls.apply(message(&[(100, 9, 0), (90, 5, 0)])).unwrap();
        calls.apply(message(&[(200, 7, 1), (100, 9, 2)])).unwrap();
        let shown: Vec<_> = calls
            .rows
            .iter()
            .map(|row| (row.span.duration_ns, row.span.samples))
            .collect();
        assert_eq!((shown, calls.origin_ns), (vec![(9, 2), (7, 1), (5, 0)], 90));
        let row = &calls.rows[2];
        assert_eq!(row.said.stack(&row.span).next().unwrap().function, "f");

        for at in 0..200 {
            calls.apply(message(&[(1000 + at, 10 + at, 0)])).unwrap();
        }
        assert_eq!((calls.rows.len(), calls.rows[0].span.duration_ns), (KEPT, 209));
    }
}
