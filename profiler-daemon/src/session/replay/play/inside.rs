//! What waits for the calls around it.

use profiler_common::record::SpanEnd;

use super::super::{
    super::spans::{self, Before},
    hits,
};

/// What waits for the calls around it.
pub(super) enum Inside {
    Call {
        end: SpanEnd,
        /// It is one of those that are looked at.
        counts: bool,
        /// What was gathered of it, where the slowest are asked for.
        before: Option<Before>,
    },
    Hit(hits::Waiting),
}

impl Inside {
    pub(super) fn weight(&self) -> u64 {
        match self {
            Self::Call { counts, .. } => u64::from(*counts),
            Self::Hit(_) => 1,
        }
    }

    /// Memory beside its own, in bytes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Call { before, .. } => {
                let begun = before.as_ref().and_then(|before| before.entry.as_ref());
                begun.map_or(0, spans::Begun::bytes)
            }
            Self::Hit(waiting) => waiting.bytes(),
        }
    }
}
