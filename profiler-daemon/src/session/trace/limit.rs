//! How many hits and calls of a second are shown.

use std::collections::BTreeMap;

/// How many are shown of what is known only when a call ends to be shown: so many of each second of their own time, as they
/// come in the order in which calls end.
#[derive(Default)]
pub(super) struct Limit {
    /// 0 where all are that were recorded.
    pub(super) per_second: u64,
    /// Those that are shown, by the second.
    shown: BTreeMap<u64, u64>,
}

/// Seconds that a limit knows of; calls that took longer may show more.
const MAX_SECONDS: usize = 1024;

impl Limit {
    pub(super) fn of(interval_ns: u64) -> Self {
        Self {
            per_second: 1_000_000_000_u64.checked_div(interval_ns).unwrap_or(0),
            shown: BTreeMap::new(),
        }
    }

    /// Whether one of this time may be shown, which then counts against the limit.
    pub(super) fn lets(&mut self, ts_ns: u64) -> bool {
        if self.per_second == 0 {
            return true;
        }
        let shown = self.shown.entry(ts_ns / 1_000_000_000).or_default();
        let is_shown = *shown < self.per_second;
        *shown += u64::from(is_shown);
        if self.shown.len() > MAX_SECONDS {
            self.shown.pop_first();
        }
        is_shown
    }
}
