//! A histogram in numbers.

use profiler_common::layout::{highest_ns, lowest_ns, midpoint_ns};

use super::{histogram::Histogram, number::Number};

/// What is shown of one kind of histogram.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Summary {
    /// Calls; decayed ones of an exponentially weighted histogram.
    pub count: f64,
    /// Calls per second of the time that the histogram covers.
    pub rate_hz: f64,
    /// Durations; `None` where there are no calls.
    pub times: Option<Times>,
}

/// Durations in nanoseconds. Percentiles are midpoints of buckets, the extremes outer ends.
#[derive(Clone, Copy, PartialEq, Debug)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Times {
    pub mean_ns: f64,
    pub min_ns: u64,
    pub max_ns: u64,
    pub p50_ns: u64,
    pub p90_ns: u64,
    pub p95_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
}

impl Summary {
    /// The figures of a histogram whose counts are worth `scale` calls each and that came in
    /// `covered_ns`.
    #[must_use]
    pub fn of<C: Number>(histogram: &Histogram<C>, scale: f64, covered_ns: f64) -> Self {
        let count = histogram.total().as_f64() * scale;
        let rate_hz = if covered_ns > 0.0 {
            count / covered_ns * 1e9
        } else {
            0.0
        };
        Self {
            count,
            rate_hz,
            times: Times::of(histogram),
        }
    }
}

impl Times {
    fn of<C: Number>(histogram: &Histogram<C>) -> Option<Self> {
        // The first and the last quantile are the extremes.
        let [min, p50, p90, p95, p99, p999, max] =
            histogram.quantiles([0.0, 0.5, 0.9, 0.95, 0.99, 0.999, 1.0])?;
        Some(Self {
            mean_ns: histogram.mean_ns()?,
            min_ns: lowest_ns(min),
            max_ns: highest_ns(max),
            p50_ns: midpoint_ns(p50),
            p90_ns: midpoint_ns(p90),
            p95_ns: midpoint_ns(p95),
            p99_ns: midpoint_ns(p99),
            p999_ns: midpoint_ns(p999),
        })
    }
}
