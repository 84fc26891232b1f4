//! Why a session, or a recording that is played, came to its end.

use std::{fmt, ops::Deref};

use crate::abi;

/// Why a session ended that somebody asked to end.
pub(super) const ENDED_BY_REQUEST: &str = "the session was ended";

/// Why it ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ending {
    /// In words.
    pub reason: String,
    /// The number of the signal that ended its target, where one did.
    pub signal: Option<u32>,
}

impl Ending {
    /// For another reason than a signal to its target.
    pub fn other(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            signal: None,
        }
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
        Self { reason, signal }
    }

    /// The signal as messages have it: 0 for none.
    #[must_use]
    pub fn signal_number(ending: Option<&Self>) -> u32 {
        ending.and_then(|ending| ending.signal).unwrap_or(0)
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
