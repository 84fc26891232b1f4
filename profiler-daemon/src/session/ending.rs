//! Why a session, or a recording that is played, came to its end.

use std::{fmt, ops::Deref};

use crate::abi;

/// Why a session ended that somebody asked to end.
pub(super) const ENDED_BY_REQUEST: &str = "the session was ended";

/// Why the last picture of a recording is the last.
pub(super) const END_OF_RECORDING: &str = "the end of the recording";

/// What brings a session, or a recording that is played, to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EndCause {
    /// Something else, which the reason says.
    Other,
    /// Somebody ended it.
    Request,
    /// Its lease ran out.
    Lease,
    /// Its processes ended, or run another program.
    Target,
    /// Its probes took more of the target's CPU time than they may.
    Budget,
    /// All of the part of the recording was shown, and nothing is to be said of it.
    Recording,
}

/// Why it ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ending {
    /// What brought it about.
    pub cause: EndCause,
    /// In words.
    pub reason: String,
    /// The number of the signal that ended its target, where one did.
    pub signal: Option<u32>,
}

impl Ending {
    /// For another reason than a signal to its target.
    pub fn of(cause: EndCause, reason: impl Into<String>) -> Self {
        Self {
            cause,
            reason: reason.into(),
            signal: None,
        }
    }

    /// For a reason that has only words.
    pub fn other(reason: impl Into<String>) -> Self {
        Self::of(EndCause::Other, reason)
    }

    /// Of a recording, of which this is to be said.
    pub fn of_recording(reason: impl Into<String>) -> Self {
        let reason = reason.into();
        let cause = if reason == END_OF_RECORDING {
            EndCause::Recording
        } else {
            EndCause::Other
        };
        Self::of(cause, reason)
    }

    /// A process has ended, by a signal where that is known.
    #[must_use]
    pub fn of_process(pid: u32, name: &str, signal: Option<u32>) -> Self {
        let reason = match signal.map(|number| (number, abi::signal(number))) {
            None => format!("process {pid} ({name}) ended"),
            Some((number, None)) => format!("process {pid} ({name}) was ended by signal {number}"),
            Some((number, Some(signal))) => {
                format!("process {pid} ({name}) was ended by signal {number} ({signal})")
            }
        };
        Self {
            cause: EndCause::Target,
            reason,
            signal,
        }
    }
}

/// Its reason in words.
impl Deref for Ending {
    type Target = str;

    fn deref(&self) -> &str {
        &self.reason
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_said_by_number_and_name() {
        let reason = |signal| Ending::of_process(4211, "server", signal).reason;
        assert_eq!(reason(None), "process 4211 (server) ended");
        assert_eq!(
            reason(Some(11)),
            "process 4211 (server) was ended by signal 11 (SIGSEGV)"
        );
        assert_eq!(reason(Some(40)), "process 4211 (server) was ended by signal 40");
    }
}
