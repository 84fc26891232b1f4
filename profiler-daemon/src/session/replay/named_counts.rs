//! What became of records on their way, by name: the counters that this version knows, and losses of reasons that only a newer
//! one does.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use super::super::{
    picture::Losses,
    recorded_calls::CALLS_DROPPED,
    records::{AT_EVENTS_DROPPED, OUTSIDE_DROPPED, WAITS_DROPPED},
    sampling::Sampling,
    span_losses::{OwnLosses, SpanLosses},
    trace::TraceLosses,
};
use crate::recording;

/// Counts of a part of a recording.
#[derive(Default)]
pub struct NamedCounts {
    known: BTreeMap<String, u64>,
    /// Losses of other reasons.
    newer: Losses,
}

impl NamedCounts {
    /// Adds what was counted in a batch.
    pub fn add(&mut self, counters: &BTreeMap<String, u64>) {
        for (name, count) in counters {
            let sum = if KNOWN.contains(&**name) {
                self.known.entry(name.clone()).or_default()
            } else if is_of_all(name) {
                continue;
            } else {
                self.newer.entry(recording::reason(name)).or_default()
            };
            *sum = sum.saturating_add(*count);
        }
    }

    /// What was counted by a name.
    pub fn of(&self, name: &str) -> u64 {
        self.known.get(name).copied().unwrap_or(0)
    }

    /// Losses of reasons that this version does not know. Which views they are missing in is not known either: all show them.
    pub fn newer(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let all = self.newer.iter().map(|(reason, count)| (*reason, *count));
        all.filter(|(_, count)| *count > 0)
    }
}

/// Whether what is counted by this name is no loss: what there was, be it lost or not.
pub fn is_of_all(name: &str) -> bool {
    name.ends_with("_attempted")
}

/// The names that this version counts by.
static KNOWN: LazyLock<BTreeSet<&str>> = LazyLock::new(|| {
    let trace = TraceLosses::default().counters();
    let sampling = Sampling::default().counters();
    let spans = SpanLosses::default().counters();
    let own = OwnLosses::default().counters();
    let counters = sampling.iter().chain(&spans).chain(&own).chain(&trace);
    let by_themselves = [WAITS_DROPPED, CALLS_DROPPED, OUTSIDE_DROPPED, AT_EVENTS_DROPPED];
    counters.map(|(name, _)| *name).chain(by_themselves).collect()
});
