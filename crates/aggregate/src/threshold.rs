//! From predicates and a population to the buckets that are inside.
//!
//! Every predicate divides the buckets at one edge, so that together they leave one band, and the
//! calls inside and outside are always all calls.
//!
//! - A percentile divides at the bucket that holds it: `>= pN` is inside from that bucket on,
//!   `> pN` from the next; `< pN` and `<= pN` are their complements.
//! - A time divides at the edge of a bucket that is nearest to it (within 0.4%); below 256 ns,
//!   where a bucket is a nanosecond wide, that is exact.

use profiler_common::layout::{BUCKETS, bucket_of, lowest_ns};

use super::{
    histogram::Histogram,
    number::Number,
    predicate::{Comparison, Limit, Predicate},
};

/// Calls that a percentile needs beyond it until the view is no longer warming.
const CALLS_BEYOND: f64 = 20.0;

/// The side that a span is on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// It fulfils all predicates.
    Inside,
    /// It fails one.
    Outside,
    /// It has not ended, and which side it is on depends on when it will.
    Open,
}

/// The buckets `from..to`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Band {
    /// The first bucket inside.
    pub from: usize,
    /// The first bucket beyond.
    pub to: usize,
}

impl Band {
    /// Every bucket.
    pub const ALL: Self = Self { from: 0, to: BUCKETS };

    /// Whether a bucket is inside.
    #[must_use]
    pub fn contains(self, bucket: usize) -> bool {
        self.from <= bucket && bucket < self.to
    }

    /// The side of a span that has not ended, by the bucket of its age: what it will be whenever it
    /// ends. Past its threshold a slow span counts already; without a threshold every span does.
    #[must_use]
    pub fn side_of_open(self, age: usize) -> Side {
        if self.contains(age) && self.to >= BUCKETS {
            Side::Inside
        } else if self.from.max(age) >= self.to {
            Side::Outside
        } else {
            Side::Open
        }
    }

    fn intersect(self, other: Self) -> Self {
        Self {
            from: self.from.max(other.from),
            to: self.to.min(other.to),
        }
    }
}

/// What predicates come to, for one population.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Division {
    /// The buckets inside; `None` while a percentile is asked of no calls at all.
    pub band: Option<Band>,
    /// Calls of the population.
    pub calls: f64,
    /// Those of them inside.
    pub calls_inside: f64,
    /// Fewer calls than the highest percentile needs.
    pub warming: bool,
    /// The number of calls that it needs; 0 without a percentile.
    pub calls_needed: u64,
}

impl Division {
    /// The band, empty where there is none.
    #[must_use]
    pub fn inside(&self) -> Band {
        self.band.unwrap_or(Band { from: BUCKETS, to: 0 })
    }

    /// The duration from which on spans are shown themselves because they are slow: the lower edge
    /// of the band. `None` where the predicates ask for no slow ones, or nothing is known.
    #[must_use]
    pub fn slow_from_ns(&self) -> Option<u64> {
        self.band
            .filter(|band| band.from > 0)
            .map(|band| lowest_ns(band.from))
    }

    /// The duration that divides the sides, at a bucket's edge: the lower one where there are two.
    /// `None` where everything is inside, or nothing known.
    #[must_use]
    pub fn threshold_ns(&self) -> Option<u64> {
        let band = self.band?;
        let edge = if band.from > 0 { band.from } else { band.to };
        (band.from > 0 || band.to < BUCKETS).then(|| lowest_ns(edge))
    }
}

/// Divides a population by predicates that must all be fulfilled; without any, all is inside.
///
/// `scale` is what a count of the population is worth in calls. `coarse_bits` says how far the
/// matrix has coarsened its bins (each 2^`coarse_bits` buckets); edges keep to its bins.
#[must_use]
pub fn divide<C: Number>(
    predicates: &[Predicate],
    population: &Histogram<C>,
    scale: f64,
    coarse_bits: u32,
) -> Division {
    let band = predicates.iter().try_fold(Band::ALL, |band, predicate| {
        let edge = match predicate.limit {
            Limit::Quantile(quantile) => {
                quantile_edge(population.quantile(quantile)?, predicate.comparison, coarse_bits)
            }
            Limit::DurationNs(ns) => duration_edge(ns, predicate.comparison, coarse_bits),
        };
        let above = predicate.comparison.keeps_above();
        Some(band.intersect(if above {
            Band {
                from: edge,
                to: BUCKETS,
            }
        } else {
            Band { from: 0, to: edge }
        }))
    });
    let calls = population.total().as_f64() * scale;
    let inside = population
        .iter()
        .filter(|&(bucket, _)| band.is_some_and(|band| band.contains(bucket)));
    let calls_inside = inside.map(|(_, count)| count.as_f64()).sum::<f64>() * scale;
    let calls_needed = predicates.iter().map(calls_needed).max().unwrap_or(0);
    Division {
        band,
        calls,
        calls_inside,
        warming: calls < calls_needed as f64,
        calls_needed,
    }
}

fn quantile_edge(bucket: usize, comparison: Comparison, coarse_bits: u32) -> usize {
    let bin = bucket >> coarse_bits;
    (if comparison.limit_is_above() { bin } else { bin + 1 }) << coarse_bits
}

fn duration_edge(ns: u64, comparison: Comparison, coarse_bits: u32) -> usize {
    let first_above_ns = if comparison.limit_is_above() {
        ns
    } else {
        ns.saturating_add(1)
    };
    let below = bucket_of(first_above_ns) >> coarse_bits << coarse_bits;
    let above = below + (1 << coarse_bits);
    let to_below = first_above_ns - lowest_ns(below);
    let to_above = lowest_ns(above).saturating_sub(first_above_ns);
    if to_below <= to_above { below } else { above }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "not negative; casts saturate"
)]
fn calls_needed(predicate: &Predicate) -> u64 {
    match predicate.limit {
        // Without the margin, 20 / (1 − 0.9) would round up to 201.
        Limit::Quantile(quantile) => {
            (CALLS_BEYOND / (1.0 - quantile.clamp(0.0, 1.0)) * (1.0 - 1e-9)).ceil() as u64
        }
        Limit::DurationNs(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use profiler_common::layout::{MAX_NS, width_ns};
    use proptest::prelude::*;

    const COMPARISONS: [Comparison; 4] = [
        Comparison::AtLeast,
        Comparison::Above,
        Comparison::AtMost,
        Comparison::Below,
    ];

    fn predicate() -> impl Strategy<Value = Predicate> {
        let limit = prop_oneof![
            (0.0..=1.0).prop_map(Limit::Quantile),
            any::<u64>().prop_map(Limit::DurationNs),
            (0..MAX_NS >> 10).prop_map(Limit::DurationNs),
        ];
        (prop::sample::select(&COMPARISONS), limit)
            .prop_map(|(comparison, limit)| Predicate { comparison, limit })
    }

    fn complement(comparison: Comparison) -> Comparison {
        match comparison {
            Comparison::AtLeast => Comparison::Below,
            Comparison::Below => Comparison::AtLeast,
            Comparison::Above => Comparison::AtMost,
            Comparison::AtMost => Comparison::Above,
        }
    }

    fn histogram(durations: &[u64]) -> Histogram<u64> {
        let mut histogram = Histogram::new();
        for &ns in durations {
            histogram.record(ns);
        }
        histogram
    }

    fn durations() -> impl Strategy<Value = Vec<u64>> {
        prop::collection::vec(prop_oneof![0u64..400, 0..MAX_NS >> 10, 0..MAX_NS], 1..200)
    }

    proptest! {
        #[test]
        fn a_predicate_and_its_complement_are_all(
            durations in durations(), predicate in predicate(), coarse_bits in 0u32..=6,
        ) {
            let population = histogram(&durations);
            let other = Predicate { comparison: complement(predicate.comparison), ..predicate };
            let here = divide(&[predicate], &population, 1.0, coarse_bits);
            let there = divide(&[other], &population, 1.0, coarse_bits);
            prop_assert!((here.calls_inside + there.calls_inside - here.calls).abs() < 1e-9);
            for bucket in 0..BUCKETS {
                prop_assert!(here.inside().contains(bucket) != there.inside().contains(bucket));
                let bin = bucket >> coarse_bits << coarse_bits;
                prop_assert_eq!(here.inside().contains(bucket), here.inside().contains(bin));
            }
        }

        #[test]
        fn several_are_the_intersection(durations in durations(), a in predicate(), b in predicate()) {
            let population = histogram(&durations);
            let both = divide(&[a, b], &population, 1.0, 0).inside();
            let [a, b] = [a, b].map(|one| divide(&[one], &population, 1.0, 0).inside());
            for bucket in 0..BUCKETS {
                prop_assert_eq!(both.contains(bucket), a.contains(bucket) && b.contains(bucket));
            }
        }

        #[test]
        fn a_time_is_rounded_to_the_nearest_edge(ns in 1..MAX_NS / 2, comparison in prop::sample::select(&COMPARISONS)) {
            let predicate = Predicate { comparison, limit: Limit::DurationNs(ns) };
            let threshold = divide(&[predicate], &Histogram::<u64>::new(), 1.0, 0).threshold_ns();
            let first_above = ns + u64::from(!comparison.limit_is_above());
            let distance = threshold.unwrap().abs_diff(first_above);
            prop_assert!(distance <= width_ns(bucket_of(ns)) / 2);
        }

        #[test]
        fn an_open_span_is_where_every_end_would_put_it(predicates in prop::collection::vec(predicate(), 0..3), durations in durations(), age in 0..BUCKETS) {
            let band = divide(&predicates, &histogram(&durations), 1.0, 0).inside();
            let ends: Vec<_> = (age..BUCKETS).map(|bucket| band.contains(bucket)).collect();
            let expected = match (ends.contains(&true), ends.contains(&false)) {
                (true, false) => Side::Inside,
                (false, _) => Side::Outside,
                (true, true) => Side::Open,
            };
            prop_assert_eq!(band.side_of_open(age), expected);
        }
    }

    #[test]
    fn inside_begins_with_the_bucket_that_holds_the_percentile() {
        // Of 100 calls the 95th is the first of the slow ones.
        let durations: Vec<u64> = (0..100)
            .map(|call| if call < 94 { 1_000 } else { 5_000_000 })
            .collect();
        let p95 = Predicate {
            comparison: Comparison::AtLeast,
            limit: Limit::Quantile(0.95),
        };
        let division = divide(&[p95], &histogram(&durations), 1.0, 0);
        assert!((division.calls_inside - 6.0).abs() < 1e-9);
        assert_eq!(division.threshold_ns(), Some(lowest_ns(bucket_of(5_000_000))));
        assert_eq!(division.slow_from_ns(), division.threshold_ns());
        assert_eq!((division.calls_needed, division.warming), (400, true));
        let fast = Predicate {
            comparison: Comparison::Below,
            ..p95
        };
        let fast = divide(&[fast], &histogram(&durations), 1.0, 0);
        assert_eq!(
            (fast.threshold_ns(), fast.slow_from_ns()),
            (division.threshold_ns(), None)
        );
        assert!(!divide(&[p95], &histogram(&durations), 4.0, 0).warming);
        let p90 = Predicate {
            limit: Limit::Quantile(0.9),
            ..p95
        };
        assert_eq!(divide(&[p90], &histogram(&durations), 1.0, 0).calls_needed, 200);
        let p100 = Predicate {
            limit: Limit::Quantile(1.0),
            ..p95
        };
        assert_eq!(
            divide(&[p100], &histogram(&durations), 1.0, 0).calls_needed,
            u64::MAX
        );
    }

    #[test]
    fn without_calls_a_percentile_divides_nothing() {
        let p95 = Predicate {
            comparison: Comparison::Below,
            limit: Limit::Quantile(0.95),
        };
        let division = divide(&[p95], &Histogram::<u64>::new(), 1.0, 0);
        assert_eq!(
            (division.band, division.threshold_ns(), division.warming),
            (None, None, true)
        );
        let all = divide(&[], &Histogram::<u64>::new(), 1.0, 0);
        assert_eq!(
            (all.band, all.threshold_ns(), all.warming),
            (Some(Band::ALL), None, false)
        );
    }
}
