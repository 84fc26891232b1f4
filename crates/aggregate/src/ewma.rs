//! The exponentially weighted histogram.

use super::{
    decay::{Decay, FORGOTTEN},
    histogram::Histogram,
    summary::Summary,
};

/// A histogram in which a call's weight halves with every half-life of its age.
#[derive(Clone, Debug)]
pub struct Ewma {
    decay: Decay,
    stored: Histogram<f64>,
}

impl Ewma {
    /// An empty histogram that begins at `start_ns`.
    #[must_use]
    pub fn new(half_life_ns: u64, start_ns: u64) -> Self {
        Self {
            decay: Decay::new(half_life_ns, start_ns),
            stored: Histogram::new(),
        }
    }

    /// Adds calls that ended now, as bucket and count. Costs the same whatever is held, but for
    /// one pass every 32 half-lives.
    pub fn record(&mut self, now_ns: u64, calls: &[(usize, u64)]) {
        if calls.is_empty() {
            return;
        }
        if let Some(factor) = self.decay.advance(now_ns) {
            self.stored.scale(factor, FORGOTTEN);
        }
        let weight = self.decay.weight(now_ns);
        for &(bucket, count) in calls {
            self.stored.add_bucket(bucket, count as f64 * weight);
        }
    }

    /// The histogram up to a common factor, which quantiles and means do not depend on.
    #[must_use]
    pub fn stored(&self) -> &Histogram<f64> {
        &self.stored
    }

    /// The common factor: what a stored count of 1 is worth in calls at `now_ns`.
    #[must_use]
    pub fn worth(&self, now_ns: u64) -> f64 {
        self.decay.worth(now_ns)
    }

    /// The histogram at `now_ns` in numbers. The rate is the decayed count over the decayed time.
    #[must_use]
    pub fn summary(&self, now_ns: u64) -> Summary {
        Summary::of(&self.stored, self.worth(now_ns), self.decay.covered_ns(now_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use profiler_common::layout::midpoint_ns;
    use proptest::prelude::*;

    const HALF_LIFE: u64 = 1000;

    proptest! {
        #[test]
        fn equals_the_direct_formula(
            start in 0u64..1_000_000,
            fed in prop::collection::vec((0u64..4000, 0usize..4000, 1u64..1000), 1..150),
            later in 0u64..60_000,
        ) {
            let mut ewma = Ewma::new(HALF_LIFE, start);
            let mut now = start;
            let mut all = Vec::new();
            for (step, bucket, count) in fed {
                now += step;
                ewma.record(now, &[(bucket, count)]);
                all.push((now, bucket, count as f64));
            }
            now += later;
            let weight = |at: u64| (-((now - at) as f64) / HALF_LIFE as f64).exp2();
            let direct: f64 = all.iter().map(|&(at, _, count)| count * weight(at)).sum();
            let summary = ewma.summary(now);
            prop_assert!((summary.count - direct).abs() <= 1e-9 * direct);
            for &(_, bucket, _) in &all {
                let direct: f64 =
                    all.iter().filter(|c| c.1 == bucket).map(|&(at, _, count)| count * weight(at)).sum();
                let held = ewma.stored().count(bucket) * ewma.worth(now);
                // Forgetting is the one difference; it never takes more than this much of a call.
                prop_assert!((held - direct).abs() <= 1e-9 * direct + FORGOTTEN, "{} {}", held, direct);
            }
            let weighted: f64 =
                all.iter().map(|&(at, bucket, count)| midpoint_ns(bucket) as f64 * count * weight(at)).sum();
            let mean = summary.times.unwrap().mean_ns;
            prop_assert!((mean - weighted / direct).abs() <= 1e-9 * mean);
        }

        #[test]
        fn a_steady_rate_is_that_rate(start in 0u64..1_000_000, updates in 1u64..20_000) {
            let mut ewma = Ewma::new(HALF_LIFE, start);
            for update in 1..=updates {
                ewma.record(start + update * 2, &[(300, 3)]);
            }
            let rate = ewma.summary(start + updates * 2).rate_hz;
            // The calls of a step count as if they all came at its end: half a step of decay.
            prop_assert!((rate / 1.5e9 - 1.0).abs() < 1e-3, "{}", rate);
        }
    }

    #[test]
    fn survives_centuries_and_forgets() {
        let mut ewma = Ewma::new(HALF_LIFE, 0);
        ewma.record(1, &[(4000, u64::MAX)]);
        ewma.record(u64::MAX, &[(1, 1)]);
        let summary = ewma.summary(u64::MAX);
        assert!((summary.count - 1.0).abs() < 1e-9);
        assert_eq!(summary.times.unwrap().max_ns, 1);
    }
}
