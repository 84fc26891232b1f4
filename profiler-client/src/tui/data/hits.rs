//! The hits that came last.

use std::collections::VecDeque;

use profiler_proto::v1;

use super::super::lens::MomentId;
use crate::state::{Malformed, trace::TraceState};

/// Hits that are kept.
const KEPT: usize = 1000;

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
}

/// The last hits of a place, and the counts of all.
#[derive(Clone, Debug, Default)]
pub struct Hits {
    /// The counts.
    pub state: TraceState,
    /// Oldest first.
    pub rows: VecDeque<HitRow>,
    /// Why there are none.
    pub failure: Option<String>,
    /// They were asked for, and their probes are not there yet.
    pub starting: bool,
}

impl Hits {
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
