//! Where the counts of probes are read from: the programs' maps, or a recording.

use profiler_common::probe::ProbeId;

use crate::kernel::{Engine, HitCounts, ProbeCounts};

/// Calls by the bucket of their duration.
pub type Buckets<'a> = Box<dyn Iterator<Item = (usize, u64)> + 'a>;

/// What was counted of probes.
pub trait Readings {
    /// A probe's calls by the bucket of their duration, since it was attached.
    fn histogram(&self, probe: ProbeId) -> Buckets<'_>;
    /// What else was counted of it.
    fn probe_counts(&self, probe: ProbeId) -> ProbeCounts;
    /// What was counted where it is reached.
    fn hit_counts(&self, probe: ProbeId) -> HitCounts;
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
