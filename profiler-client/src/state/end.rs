//! Why a stream, or the session that it shows, has come to its end.

use profiler_proto::v1;

/// An end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// What brought it about.
    pub cause: v1::EndCause,
    /// In words, as a clause; empty where nothing is said.
    pub reason: String,
}

impl End {
    /// One that only words tell of.
    #[must_use]
    pub fn other(reason: impl Into<String>) -> Self {
        Self {
            cause: v1::EndCause::Other,
            reason: reason.into(),
        }
    }

    /// The same, with these words where it has none.
    #[must_use]
    pub fn or_said(self, words: &str) -> Self {
        if self.reason.is_empty() {
            return Self {
                reason: words.to_owned(),
                ..self
            };
        }
        self
    }

    /// Probes took more of the target's CPU time than they may.
    #[must_use]
    pub fn is_over_budget(&self) -> bool {
        self.cause == v1::EndCause::Budget
    }

    /// All of a recording's part was shown, and nothing is to be said of it.
    #[must_use]
    pub fn is_of_recording(&self) -> bool {
        self.cause == v1::EndCause::Recording
    }
}

impl From<&v1::StreamEnd> for End {
    fn from(end: &v1::StreamEnd) -> Self {
        Self {
            cause: end.cause(),
            reason: end.reason.trim_end_matches('.').to_owned(),
        }
    }
}
