//! The hits that came last.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use profiler_proto::v1;

use super::{super::lens::MomentId, is_match};
use crate::{
    render::trace,
    state::{Malformed, end::End, trace::TraceState},
};

/// Hits that are kept.
const KEPT: usize = 1000;

/// How long a hit is waited for before it is said why there may be none.
const PATIENCE: Duration = Duration::from_secs(3);

/// A hit with its place.
#[derive(Clone, Debug, PartialEq)]
pub struct HitRow {
    /// The hit.
    pub hit: v1::Hit,
    /// Where it was.
    pub place: v1::TracedPlace,
}

impl HitRow {
    /// Which one it is.
    #[must_use]
    pub const fn id(&self) -> MomentId {
        MomentId {
            ts_ns: self.hit.ts_ns,
            tid: self.hit.tid,
        }
    }

    /// Whether its place, a value such as `n=12`, or its thread's number has what is searched for.
    #[must_use]
    pub fn has(&self, search: &str) -> bool {
        let mut values = self.hit.values.iter().map(|value| {
            let (Ok(text) | Err(text)) = trace::shown(value);
            format!("{}={text}", value.expression)
        });
        search.is_empty()
            || is_match(&trace::place(&self.place), search)
            || self.hit.tid.to_string() == search
            || values.any(|value| is_match(&value, search))
    }
}

/// The last hits of a place, and the counts of all.
#[derive(Clone, Debug, Default)]
pub struct Hits {
    /// The scope that they are asked for of.
    pub scope: String,
    /// The counts.
    pub state: TraceState,
    /// Oldest first.
    pub rows: VecDeque<HitRow>,
    /// Why there are none.
    pub failure: Option<String>,
    /// Why no more come.
    pub ended: Option<End>,
    /// They were asked for, and their probes are not there yet.
    pub starting: bool,
    /// When their probes were there.
    pub ready_at: Option<Instant>,
    /// The probes have been there for a while, and no hit has come.
    pub is_quiet: bool,
}

impl Hits {
    /// They are asked for of a scope.
    #[must_use]
    pub fn of(scope: String) -> Self {
        Self {
            scope,
            starting: true,
            ..Self::default()
        }
    }

    /// The probes are there.
    pub const fn ready(&mut self, at: Instant) {
        self.starting = false;
        self.ready_at = Some(at);
    }

    /// Notes that it is so late by now.
    pub fn note_time(&mut self, now: Instant) {
        let waited = self.ready_at.map(|at| now.saturating_duration_since(at));
        self.is_quiet = self.rows.is_empty() && waited.is_some_and(|waited| waited >= PATIENCE);
    }

    /// Applies a message.
    ///
    /// # Errors
    ///
    /// Where it contradicts the protocol.
    pub fn apply(&mut self, message: v1::WatchTraceResponse) -> Result<(), Malformed> {
        self.starting = false;
        for hit in self.state.apply(message)? {
            let Some(place) = self.state.place(&hit).cloned() else {
                continue;
            };
            if self.rows.len() == KEPT {
                self.rows.pop_front();
            }
            self.rows.push_back(HitRow { hit, place });
        }
        Ok(())
    }
}
