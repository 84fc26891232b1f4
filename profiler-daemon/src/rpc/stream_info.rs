//! What every message of a stream begins with.

use profiler_proto::v1;

use super::convert;
use crate::session::{CHILDREN, Cost, EndCause, Ending, Losses};

/// Where a message stands in its stream.
#[derive(Clone, Copy, Debug, Default)]
pub struct Position {
    /// Number of its picture.
    pub seq: u64,
    /// Pictures before it that the client did not read in time.
    pub dropped: u64,
}

/// A session at the moment that a message shows.
pub struct Shown<'a> {
    /// Canonical text of its scope; empty where the message has it otherwise.
    pub scope: &'a str,
    /// What the daemon costs.
    pub cost: Cost,
    /// Processes that its targets have begun, where that is known.
    pub children: Option<u64>,
    /// Why the message is the last, if it is.
    pub ended: Option<&'a Ending>,
}

/// The beginning of a message.
pub fn info(at: Position, shown: &Shown<'_>) -> v1::StreamInfo {
    v1::StreamInfo {
        seq: at.seq,
        dropped: at.dropped,
        scope: shown.scope.to_owned(),
        cost: Some(convert::cost(shown.cost)),
        children: shown.children,
        end: shown.ended.map(end),
        // These are told as a message leaves.
        departures: Vec::new(),
        replaced_files: Vec::new(),
    }
}

/// The beginning of a message that shows a picture.
pub fn of_picture(
    at: Position,
    scope: &str,
    cost: Cost,
    lost: &Losses,
    ended: Option<&Ending>,
) -> v1::StreamInfo {
    let children = Some(children(lost));
    let shown = Shown {
        scope,
        cost,
        children,
        ended,
    };
    info(at, &shown)
}

/// How many processes the targets have begun, which is told among losses.
pub fn children(lost: &Losses) -> u64 {
    lost.get(CHILDREN).copied().unwrap_or(0)
}

/// How a session has ended.
pub fn end(ending: &Ending) -> v1::StreamEnd {
    let cause = match ending.cause {
        EndCause::Other => v1::EndCause::Other,
        EndCause::Request => v1::EndCause::Request,
        EndCause::Lease => v1::EndCause::Lease,
        EndCause::Target => v1::EndCause::Target,
        EndCause::Budget => v1::EndCause::Budget,
        EndCause::Recording => v1::EndCause::Recording,
    };
    v1::StreamEnd {
        cause: cause.into(),
        reason: ending.reason.clone(),
        signal: ending.signal.unwrap_or(0),
    }
}
