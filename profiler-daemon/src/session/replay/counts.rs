//! What was counted of probes, added up from where a part of a recording begins.

use std::collections::{BTreeMap, HashMap};

use profiler_common::probe::ProbeId;

use super::super::readings::{Buckets, Readings};
use crate::{
    kernel::{HitCounts, ProbeCounts},
    recording::Counted,
    session::HitReading,
};

#[derive(Default)]
struct Probe {
    ended: BTreeMap<usize, u64>,
    counts: ProbeCounts,
}

impl Probe {
    fn ended(&self) -> u64 {
        self.ended.values().copied().fold(0, u64::saturating_add)
    }

    fn open(&self) -> u64 {
        self.counts.open(self.ended())
    }
}

/// What was counted.
#[derive(Default)]
pub struct RecordedCounts {
    probes: HashMap<ProbeId, Probe>,
    /// By the probe of their place.
    hits: HashMap<ProbeId, HitCounts>,
}

impl RecordedCounts {
    /// Forgets all but the calls that are open.
    pub fn begin(&mut self) {
        self.hits.clear();
        for probe in self.probes.values_mut() {
            let open = probe.open();
            *probe = Probe::default();
            probe.counts.entries = open;
        }
    }

    /// Says how many calls of a probe are open, where nothing is known of it yet, or something is missing since.
    pub fn set_open(&mut self, probe: ProbeId, open: u64, is_missing: bool) {
        let is_new = !self.probes.contains_key(&probe);
        let probe = self.probes.entry(probe).or_default();
        if is_new || is_missing {
            let closed = probe.ended().saturating_add(probe.counts.uncounted());
            probe.counts.entries = closed.saturating_add(open);
        }
    }

    /// Adds what was counted in a while of a probe that is known.
    pub fn add(&mut self, counted: &Counted) {
        let Some(probe) = self.probes.get_mut(&counted.probe) else {
            return;
        };
        for (bucket, count) in &counted.ended {
            let sum = probe.ended.entry(*bucket).or_default();
            *sum = sum.saturating_add(*count);
        }
        probe.counts = probe.counts.plus(counted.counts);
    }

    /// Adds what was counted in a while of one of these places.
    pub fn add_hits(&mut self, counted: &HitReading, is_known: impl Fn(ProbeId) -> bool) {
        if is_known(counted.probe) {
            let sum = self.hits.entry(counted.probe).or_default();
            *sum = sum.plus(counted.counts);
        }
    }
}

impl Readings for RecordedCounts {
    fn histogram(&self, probe: ProbeId) -> Buckets<'_> {
        let ended = self.probes.get(&probe).into_iter().flat_map(|probe| &probe.ended);
        Box::new(ended.map(|(bucket, count)| (*bucket, *count)))
    }

    fn probe_counts(&self, probe: ProbeId) -> ProbeCounts {
        self.probes
            .get(&probe)
            .map(|probe| probe.counts)
            .unwrap_or_default()
    }

    fn hit_counts(&self, probe: ProbeId) -> HitCounts {
        self.hits.get(&probe).copied().unwrap_or_default()
    }
}
