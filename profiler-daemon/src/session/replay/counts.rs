//! What was counted of probes, added up from where a part of a recording begins.

use std::collections::{BTreeMap, HashMap};

use profiler_common::probe::ProbeId;

use super::super::readings::{Buckets, Readings};
use crate::{kernel::ProbeCounts, recording::Counted};

#[derive(Default)]
struct Probe {
    ended: BTreeMap<usize, u64>,
    counts: ProbeCounts,
}

impl Probe {
    fn open(&self) -> u64 {
        let ended: u64 = self.ended.values().sum();
        self.counts
            .entries
            .saturating_sub(ended + self.counts.uncounted())
    }
}

/// What was counted.
#[derive(Default)]
pub struct RecordedCounts(HashMap<ProbeId, Probe>);

impl RecordedCounts {
    /// Forgets all but the calls that are open.
    pub fn begin(&mut self) {
        for probe in self.0.values_mut() {
            let open = probe.open();
            *probe = Probe::default();
            probe.counts.entries = open;
        }
    }

    /// Says how many calls of a probe are open, where nothing is known of it yet.
    pub fn set_open(&mut self, probe: ProbeId, open: u64) {
        self.0.entry(probe).or_insert_with(|| {
            let mut probe = Probe::default();
            probe.counts.entries = open;
            probe
        });
    }

    /// Adds what was counted in a while.
    pub fn add(&mut self, counted: &Counted) {
        let probe = self.0.entry(counted.probe).or_default();
        for (bucket, count) in &counted.ended {
            let sum = probe.ended.entry(*bucket).or_default();
            *sum = sum.saturating_add(*count);
        }
        probe.counts = probe.counts.plus(counted.counts);
    }
}

impl Readings for RecordedCounts {
    fn histogram(&self, probe: ProbeId) -> Buckets<'_> {
        let ended = self.0.get(&probe).into_iter().flat_map(|probe| &probe.ended);
        Box::new(ended.map(|(bucket, count)| (*bucket, *count)))
    }

    fn probe_counts(&self, probe: ProbeId) -> ProbeCounts {
        self.0.get(&probe).map(|probe| probe.counts).unwrap_or_default()
    }
}
