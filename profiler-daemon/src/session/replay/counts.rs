//! What was counted of probes, added up from where a part of a recording begins.

use std::collections::HashMap;

use profiler_aggregate::histogram::Histogram;
use profiler_common::probe::ProbeId;

use super::super::readings::{Buckets, Readings};
use crate::{
    kernel::{HitCounts, ProbeCounts},
    recording::Counted,
    session::HitReading,
};

#[derive(Default)]
struct Probe {
    ended: Histogram<u64>,
    counts: ProbeCounts,
}

impl Probe {
    fn open(&self) -> u64 {
        self.counts.open(self.ended.total())
    }

    /// Adds ended calls, but for those beyond what can be counted.
    fn add_ended(&mut self, bucket: usize, count: u64) {
        let room = u64::MAX - self.ended.total();
        self.ended.add_bucket(bucket, count.min(room));
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
            let closed = probe.ended.total().saturating_add(probe.counts.uncounted());
            probe.counts.entries = closed.saturating_add(open);
        }
    }

    /// Adds what was counted in a while of a probe that is known.
    pub fn add(&mut self, counted: &Counted) {
        let Some(probe) = self.probes.get_mut(&counted.probe) else {
            return;
        };
        for (bucket, count) in &counted.ended {
            probe.add_ended(*bucket, *count);
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

/// What was counted so far, of each probe in the buckets alone that its last counts are in: to read the others would change
/// nothing.
pub struct Changed<'a> {
    counts: &'a RecordedCounts,
    buckets: HashMap<ProbeId, Vec<usize>>,
}

impl RecordedCounts {
    /// Itself, as far as these counts, which were added last, have changed it.
    pub fn changed_by(&self, added: &[Counted]) -> Changed<'_> {
        let mut buckets: HashMap<ProbeId, Vec<usize>> = HashMap::new();
        for Counted { probe, ended, .. } in added {
            let ended = ended.iter().map(|(bucket, _)| *bucket);
            buckets.entry(*probe).or_default().extend(ended);
        }
        Changed {
            counts: self,
            buckets,
        }
    }
}

impl Readings for Changed<'_> {
    fn histogram(&self, probe: ProbeId) -> Buckets<'_> {
        self.histogram_of(&[probe])
    }

    fn histogram_of(&self, probes: &[ProbeId]) -> Buckets<'_> {
        let changed = probes.iter().filter_map(|probe| self.buckets.get(probe));
        let mut buckets: Vec<usize> = changed.flatten().copied().collect();
        buckets.sort_unstable();
        buckets.dedup();
        let of_probes = probes.iter().filter_map(|probe| self.counts.probes.get(probe));
        let of_probes: Vec<&Probe> = of_probes.collect();
        let count = move |bucket| {
            let counts = of_probes.iter().map(|probe| probe.ended.count(bucket));
            (bucket, counts.fold(0, u64::saturating_add))
        };
        Box::new(buckets.into_iter().map(count))
    }

    fn probe_counts(&self, probe: ProbeId) -> ProbeCounts {
        self.counts.probe_counts(probe)
    }

    fn hit_counts(&self, probe: ProbeId) -> HitCounts {
        self.counts.hit_counts(probe)
    }

    fn tells_other_hits(&self) -> bool {
        false
    }
}

impl Readings for RecordedCounts {
    fn histogram(&self, probe: ProbeId) -> Buckets<'_> {
        let probe = self.probes.get(&probe).into_iter();
        Box::new(probe.flat_map(|probe| probe.ended.iter()))
    }

    fn probe_counts(&self, probe: ProbeId) -> ProbeCounts {
        self.probes
            .get(&probe)
            .map(|probe| probe.counts)
            .unwrap_or_default()
    }

    fn tells_other_hits(&self) -> bool {
        false
    }

    fn hit_counts(&self, probe: ProbeId) -> HitCounts {
        self.hits.get(&probe).copied().unwrap_or_default()
    }
}
