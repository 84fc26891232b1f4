//! What one connection did, kept by the connection alone and added up after its end: no lock, nothing to wait for.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::{handler::Handled, switches::Switches};

/// Longest duration told apart, in nanoseconds: one minute. Longer ones count as this.
const DURATION_MAX_NS: u64 = 60_000_000_000;
/// Relative error of a recorded duration: below 0.1%.
const SIGNIFICANT_DIGITS: u8 = 3;

/// An empty histogram of durations in nanoseconds.
pub fn durations() -> Histogram<u64> {
    match Histogram::new_with_bounds(1, DURATION_MAX_NS, SIGNIFICANT_DIGITS) {
        Ok(histogram) => histogram,
        // The bounds are constants, and a unit test makes one.
        Err(error) => unreachable!("constant histogram bounds: {error}"),
    }
}

/// Records one duration.
pub fn record(histogram: &mut Histogram<u64>, duration: Duration) {
    histogram.saturating_record(
        u64::try_from(duration.as_nanos())
            .unwrap_or(DURATION_MAX_NS)
            .max(1),
    );
}

/// The requests served, on one connection or on many.
#[derive(Debug)]
pub struct Served {
    /// Calls of `handle_request`.
    pub requests: u64,
    /// Those that took the slow path.
    pub slow: u64,
    /// Durations of `handle_request`, in nanoseconds.
    pub latency: Histogram<u64>,
    /// Switches of the serving thread between asking for bytes and having written the reply (blocking), or while a
    /// connection's task was being polled (async).
    pub serving: Switches,
}

impl Served {
    pub fn new() -> Self {
        Self {
            requests: 0,
            slow: 0,
            latency: durations(),
            serving: Switches::default(),
        }
    }

    /// Counts one request.
    pub fn count(&mut self, handled: &Handled) {
        self.requests += 1;
        self.slow += u64::from(handled.slow);
        record(&mut self.latency, handled.elapsed);
    }

    /// Adds another connection's figures.
    pub fn merge(&mut self, other: &Self) {
        let Self {
            requests,
            slow,
            latency,
            serving,
        } = other;
        self.requests += requests;
        self.slow += slow;
        self.serving += *serving;
        // Both have the bounds of `durations`, so that every value of one fits the other.
        if let Err(error) = self.latency.add(latency) {
            unreachable!("histograms of equal bounds: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_off_the_scale_are_counted_at_its_ends() {
        let mut histogram = durations();
        record(&mut histogram, Duration::ZERO);
        record(&mut histogram, Duration::from_hours(1));
        assert_eq!((histogram.len(), histogram.min()), (2, 1));
    }

    #[test]
    fn merging_adds() {
        let (mut sum, mut one) = (Served::new(), Served::new());
        one.count(&Handled {
            reply: [0; 72],
            elapsed: Duration::from_micros(5),
            slow: true,
        });
        sum.merge(&one);
        sum.merge(&one);
        assert_eq!((sum.requests, sum.slow, sum.latency.len()), (2, 2, 2));
    }
}
