//! Hits and calls that are not shown, and those that were lost before they could be recorded.

use super::Trace;

/// Hits and calls that are not shown, as far as the daemon decides that: the programs count their own.
#[derive(Clone, Copy, Default)]
pub(super) struct LeftOut {
    /// There were too many in one batch.
    pub(super) batch_full: u64,
    /// Calls whose duration is not as asked, or what they return.
    pub(super) outside: u64,
    /// Hits and calls beyond the limit, where it is known only when a call ends whether they are shown.
    pub(super) limited: u64,
    /// Calls that were jumped over.
    pub(super) abandoned: u64,
    /// Calls whose end never came.
    pub(super) end_lost: u64,
    /// Calls that were open when there was no more room for them.
    pub(super) too_many_open: u64,
    /// Calls of which it is not known what they return, where a condition asks for it.
    pub(super) return_unknown: u64,
}

/// Hits and calls that were lost before they could be shown or recorded; in a running session its own counts have some of them too.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TraceLosses {
    /// They came faster than they were named.
    pub symbols_behind: u64,
    /// Calls that were jumped over.
    pub abandoned: u64,
    /// Calls whose end never came.
    pub end_lost: u64,
    /// Calls for which there was no room while they were open.
    pub too_many_open: u64,
}

impl TraceLosses {
    /// What came since an earlier reading. An edit of the scope may have begun anew.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            symbols_behind: self.symbols_behind.saturating_sub(before.symbols_behind),
            abandoned: self.abandoned.saturating_sub(before.abandoned),
            end_lost: self.end_lost.saturating_sub(before.end_lost),
            too_many_open: self.too_many_open.saturating_sub(before.too_many_open),
        }
    }

    /// All by name, as they are recorded.
    #[must_use]
    pub fn counters(self) -> [(&'static str, u64); 4] {
        [
            ("hit_symbols_behind", self.symbols_behind),
            ("hit_abandoned", self.abandoned),
            ("hit_end_lost", self.end_lost),
            ("hit_too_many_open", self.too_many_open),
        ]
    }

    /// Those that were recorded, by name.
    #[must_use]
    pub fn of_counters(recorded: impl Fn(&str) -> u64) -> Self {
        Self {
            symbols_behind: recorded("hit_symbols_behind"),
            abandoned: recorded("hit_abandoned"),
            end_lost: recorded("hit_end_lost"),
            too_many_open: recorded("hit_too_many_open"),
        }
    }
}

impl Trace {
    /// What was lost before it can be recorded.
    pub fn losses(&self) -> TraceLosses {
        TraceLosses {
            symbols_behind: self.missed.values().sum(),
            abandoned: self.left_out.abandoned,
            end_lost: self.left_out.end_lost,
            too_many_open: self.left_out.too_many_open,
        }
    }

    /// Says what was lost before it was recorded.
    pub fn set_losses(&mut self, before: TraceLosses) {
        self.before = before;
    }
}
