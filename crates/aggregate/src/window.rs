//! The histogram of a sliding window.

use super::{
    histogram::Histogram,
    slots::{Slots, WindowConfig},
    summary::Summary,
};
use std::borrow::Cow;

/// The calls of the last seconds, exact to one slot.
#[derive(Clone, Debug)]
pub struct Window {
    slots: Slots<u64>,
    sum: Histogram<u64>,
}

impl Window {
    /// An empty window that begins at `start_ns`.
    #[must_use]
    pub fn new(config: WindowConfig, start_ns: u64) -> Self {
        Self {
            slots: Slots::new(config, start_ns),
            sum: Histogram::new(),
        }
    }

    /// Adds calls that ended since the time before, as bucket and count. To be called even where
    /// there are none: it is what says that the time was looked at.
    pub fn record(&mut self, now_ns: u64, calls: &[(usize, u64)]) {
        let Self { slots, sum } = self;
        slots.advance(now_ns, |bucket, count| {
            sum.subtract_bucket(bucket_of_key(bucket), count);
        });
        for &(bucket, count) in calls {
            slots.add(bucket as u64, count);
            sum.add_bucket(bucket, count);
        }
    }

    /// The calls within the window at `now_ns`.
    #[must_use]
    pub fn histogram(&self, now_ns: u64) -> Cow<'_, Histogram<u64>> {
        let mut histogram = Cow::Borrowed(&self.sum);
        for (bucket, count) in self.slots.expired(now_ns) {
            histogram.to_mut().subtract_bucket(bucket_of_key(bucket), count);
        }
        histogram
    }

    /// The window at `now_ns` in numbers; the rate is that of the time really covered.
    #[must_use]
    pub fn summary(&self, now_ns: u64) -> Summary {
        Summary::of(&self.histogram(now_ns), 1.0, self.slots.covered_ns(now_ns) as f64)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "keys are buckets")]
fn bucket_of_key(key: u64) -> usize {
    key as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CONFIG: WindowConfig = WindowConfig {
        window_ns: 1000,
        slots: 10,
    };

    proptest! {
        #[test]
        fn holds_the_sum_of_its_slots(
            start in 0u64..10_000,
            fed in prop::collection::vec((0u64..700, 0usize..500, 0u64..9), 0..60),
            later in 0u64..2500,
        ) {
            let mut window = Window::new(CONFIG, start);
            let mut now = start;
            let mut all = Vec::new();
            for (step, bucket, count) in fed {
                now += step;
                window.record(now, &[(bucket, count)]);
                all.push((now, bucket, count));
                for now in [now, now + later] {
                    let mut naive = Histogram::<u64>::new();
                    for &(at, bucket, count) in &all {
                        if at / 100 + 10 > now / 100 {
                            naive.add_bucket(bucket, count);
                        }
                    }
                    let held = window.histogram(now);
                    prop_assert!(held.iter().eq(naive.iter()));
                    prop_assert_eq!(held.total(), naive.total());
                }
            }
        }

        #[test]
        fn a_steady_rate_is_that_rate(
            start in 0u64..10_000, every in 1u64..400, updates in 1u64..200, per_update in 1u64..50,
        ) {
            let mut window = Window::new(CONFIG, start);
            for update in 1..=updates {
                window.record(start + update * every, &[(300, per_update)]);
            }
            let expected = per_update as f64 / every as f64 * 1e9;
            let rate = window.summary(start + updates * every).rate_hz;
            prop_assert!((rate - expected).abs() < 1e-6 * expected, "{} {}", rate, expected);
        }
    }

    #[test]
    fn empties_without_updates() {
        let mut window = Window::new(CONFIG, 0);
        window.record(50, &[(7, 3)]);
        assert_eq!(window.histogram(999).total(), 3);
        assert_eq!(window.summary(1000), Summary::default());
    }
}
