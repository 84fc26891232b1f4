//! The calls of a sliding window since the window is watched, and those that ended below the recording limit.
//!
//! The limit follows the calls. One that was below it when it ended may be among the slowest later, when those that set
//! the limit have left the window: then all that is known of it is that it was there.

use super::{histogram::Histogram, reading::Reading, slots::WindowConfig, window::Window};
use std::ops::Range;

/// Calls since they are watched.
#[derive(Clone, Debug)]
pub struct Watched {
    reading: Reading,
    since_ns: u64,
    calls: Window,
    /// Those that were below the limit.
    below: Window,
    /// Ends that were recorded all the same, be it that they were asked for by a sample or a value.
    recorded: Window,
    /// Such as are not in the window yet.
    just_recorded: Histogram<u64>,
    /// The bucket of the limit, of which some calls are recorded.
    limit: usize,
}

impl Watched {
    /// Those from now on; `before` are all calls so far, by bucket. No end is recorded before there is a limit.
    #[must_use]
    pub fn new(config: WindowConfig, now_ns: u64, before: impl IntoIterator<Item = (usize, u64)>) -> Self {
        let window = || Window::new(config, now_ns);
        let mut reading = Reading::new();
        reading.advance(before, &mut Vec::new());
        Self {
            reading,
            since_ns: now_ns,
            calls: window(),
            below: window(),
            recorded: window(),
            just_recorded: Histogram::new(),
            limit: usize::MAX,
        }
    }

    /// Takes all calls so far as read at `now_ns`, by bucket.
    pub fn read(&mut self, now_ns: u64, cumulative: impl IntoIterator<Item = (usize, u64)>) {
        let mut calls = Vec::new();
        self.reading.advance(cumulative, &mut calls);
        self.calls.record(now_ns, &calls);
        calls.retain(|(bucket, _)| *bucket < self.limit);
        self.below.record(now_ns, &calls);
        let recorded: Vec<(usize, u64)> = std::mem::take(&mut self.just_recorded).iter().collect();
        self.recorded.record(now_ns, &recorded);
    }

    /// Sets the bucket of the limit, from now on.
    pub fn set_limit(&mut self, bucket: usize) {
        self.limit = bucket;
    }

    /// Takes the end of a call that was below the limit, but is recorded.
    pub fn recorded_below(&mut self, bucket: usize) {
        self.just_recorded.add_bucket(bucket, 1);
    }

    /// How long the calls have been watched.
    #[must_use]
    pub fn watched_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.since_ns)
    }

    /// Since when the calls are watched.
    #[must_use]
    pub fn since_ns(&self) -> u64 {
        self.since_ns
    }

    /// Calls in the window.
    #[must_use]
    pub fn calls(&self, now_ns: u64) -> u64 {
        self.calls.histogram(now_ns).total()
    }

    /// Calls in the window and these buckets whose ends were not recorded, because they were below the limit.
    #[must_use]
    pub fn below_limit(&self, now_ns: u64, buckets: &Range<usize>) -> u64 {
        let recorded = self.recorded.histogram(now_ns);
        let below = self.below.histogram(now_ns);
        let below = below.iter().filter(|(bucket, _)| buckets.contains(bucket));
        below
            .map(|(bucket, count)| count.saturating_sub(recorded.count(bucket)))
            .sum()
    }

    /// The lowest bucket from which on the end of each call in the window was recorded.
    #[must_use]
    pub fn recorded_from(&self, now_ns: u64) -> usize {
        let recorded = self.recorded.histogram(now_ns);
        let below = self.below.histogram(now_ns);
        let missing = below
            .iter()
            .filter(|(bucket, count)| *count > recorded.count(*bucket));
        missing.map(|(bucket, _)| bucket + 1).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: WindowConfig = WindowConfig {
        window_ns: 1000,
        slots: 10,
    };

    #[test]
    fn calls_are_those_since_they_are_watched() {
        let mut watched = Watched::new(CONFIG, 5000, [(10, 900)]);
        assert_eq!((watched.watched_ns(5000), watched.since_ns()), (0, 5000));
        assert_eq!((watched.calls(5000), watched.watched_ns(5300)), (0, 300));
        watched.read(5300, [(10, 903), (20, 1)]);
        assert_eq!(watched.calls(5300), 4);
        watched.read(6700, [(10, 904)]);
        assert_eq!((watched.calls(6700), watched.watched_ns(6700)), (1, 1700));
    }

    #[test]
    fn counts_calls_below_the_limit_that_were_not_recorded() {
        let mut watched = Watched::new(CONFIG, 0, []);
        watched.read(50, [(11, 1)]);
        assert_eq!(watched.below_limit(50, &(11..12)), 1);
        let mut watched = Watched::new(CONFIG, 0, []);
        watched.set_limit(0);
        // Without a limit each is recorded.
        watched.read(100, [(10, 5)]);
        assert_eq!(watched.below_limit(100, &(0..100)), 0);
        watched.set_limit(20);
        watched.recorded_below(15);
        watched.read(200, [(10, 9), (15, 2), (20, 3), (30, 1)]);
        assert_eq!(watched.below_limit(200, &(0..100)), 5);
        assert_eq!(watched.below_limit(200, &(11..100)), 1);
        assert_eq!(watched.recorded_from(200), 16, "one of two in the bucket before");
        // The limit of then counts, and not that of now.
        watched.set_limit(0);
        watched.read(300, [(10, 20)]);
        assert_eq!(watched.below_limit(300, &(0..100)), 5);
        watched.read(2000, []);
        assert_eq!(watched.below_limit(2000, &(0..100)), 0);
    }

    #[test]
    fn more_ends_than_calls_are_no_harm() {
        let mut watched = Watched::new(CONFIG, 0, []);
        watched.set_limit(20);
        watched.recorded_below(10);
        watched.recorded_below(10);
        watched.read(100, [(10, 1)]);
        assert_eq!(watched.below_limit(100, &(0..100)), 0);
    }
}
