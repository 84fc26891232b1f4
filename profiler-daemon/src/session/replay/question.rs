//! What a way through a recording is for, and what is read for it.

use profiler_aggregate::Over;

use super::super::{picture::FlameRequest, spans::SpansRequest};
use crate::recording::Also;

/// What a way through a recording is for.
#[derive(Clone, Copy, PartialEq)]
pub enum Question {
    /// A flame graph.
    Flame(FlameRequest),
    /// Latency.
    Latency,
    /// Hits.
    Trace,
    /// The slowest calls.
    Spans(SpansRequest),
}

impl Question {
    /// Whether summaries may answer it: observations, times within a minute, and waits one by one are not summed up.
    pub(super) fn can_be_summed(self) -> bool {
        match self {
            Self::Flame(request) => {
                let is_of_time = !request.waits && request.event().is_none();
                request.over == Over::Start && !request.difference && is_of_time
            }
            Self::Latency => true,
            Self::Trace | Self::Spans(_) => false,
        }
    }

    /// Whether only what comes of all of it is asked for, and not of when it was.
    pub(super) fn asks_for_sums(self) -> bool {
        matches!(self, Self::Flame(_)) && self.can_be_summed()
    }

    /// Whether a flame graph is asked for with who was waited for.
    pub(super) fn draws_waits(self) -> bool {
        self.flame().is_some_and(|request| request.waits)
    }

    /// The flame graph that is asked for, if one is.
    pub(super) fn flame(self) -> Option<FlameRequest> {
        match self {
            Self::Flame(request) => Some(request),
            Self::Latency | Self::Trace | Self::Spans(_) => None,
        }
    }

    /// What is read beyond samples and calls.
    pub(super) fn also(self) -> Option<Also> {
        match self {
            Self::Flame(request) if request.event().is_some() => Some(Also::Events),
            Self::Flame(request) => request.waits.then_some(Also::Waits),
            Self::Latency => None,
            Self::Trace => Some(Also::Hits),
            Self::Spans(_) => Some(Also::InCalls),
        }
    }
}
