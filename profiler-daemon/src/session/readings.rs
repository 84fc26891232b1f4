//! Where the counts of probes are read from: the programs' maps, or a recording.

use std::collections::HashMap;

use profiler_common::probe::ProbeId;

use crate::kernel::{Engine, HitCounts, ProbeCounts};

/// Calls by the bucket of their duration.
pub type Buckets<'a> = Box<dyn Iterator<Item = (usize, u64)> + 'a>;

/// What was counted of probes.
pub trait Readings {
    /// A probe's calls by the bucket of their duration, since it was attached.
    fn histogram(&self, probe: ProbeId) -> Buckets<'_>;
    /// The same of several probes together.
    fn histogram_of(&self, probes: &[ProbeId]) -> Buckets<'_> {
        summed(probes, |probe| self.histogram(probe))
    }
    /// What else was counted of it.
    fn probe_counts(&self, probe: ProbeId) -> ProbeCounts;
    /// What was counted where it is reached.
    fn hit_counts(&self, probe: ProbeId) -> HitCounts;
    /// Whether it is counted how often probes are reached by others than the calls that count: recordings do not have it.
    fn tells_other_hits(&self) -> bool {
        true
    }
}

/// Calls of several probes together.
pub fn summed<'a>(probes: &[ProbeId], histogram: impl Fn(ProbeId) -> Buckets<'a>) -> Buckets<'a> {
    if let [probe] = probes {
        return histogram(*probe);
    }
    let mut sums: HashMap<usize, u64> = HashMap::new();
    for (bucket, count) in probes.iter().flat_map(|probe| histogram(*probe)) {
        let sum = sums.entry(bucket).or_default();
        *sum = sum.saturating_add(count);
    }
    Box::new(sums.into_iter())
}

impl Readings for Engine {
    fn histogram(&self, probe: ProbeId) -> Buckets<'_> {
        Box::new(Engine::histogram(self, probe))
    }

    fn probe_counts(&self, probe: ProbeId) -> ProbeCounts {
        Engine::probe_counts(self, probe)
    }

    fn hit_counts(&self, probe: ProbeId) -> HitCounts {
        Engine::hit_counts(self, probe)
    }
}
