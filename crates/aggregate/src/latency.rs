//! A function's latency, kept three ways.

use super::{
    ewma::Ewma,
    histogram::{Histogram, Page},
    reading::Reading,
    slots::WindowConfig,
    summary::Summary,
    window::Window,
};
use std::borrow::Cow;

/// How the kinds that age do so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AgeConfig {
    /// The sliding window.
    pub window: WindowConfig,
    /// Half-life of the exponentially weighted kind.
    pub half_life_ns: u64,
}

impl Default for AgeConfig {
    /// 10 s in 20 slots; a half-life of 30 s.
    fn default() -> Self {
        Self {
            window: WindowConfig::default(),
            half_life_ns: 30_000_000_000,
        }
    }
}

/// The three kinds in numbers.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Summaries {
    /// All calls.
    pub since_start: Summary,
    /// Those of the sliding window.
    pub window: Summary,
    /// All, each with the weight that its age has left it.
    pub ewma: Summary,
}

/// Latency since the start, over a sliding window and exponentially weighted, from the successive
/// readings of one probe's histogram in the kernel.
#[derive(Clone, Debug)]
pub struct Latency {
    start_ns: u64,
    latest_ns: u64,
    reading: Reading,
    window: Window,
    ewma: Ewma,
    calls: Vec<(usize, u64)>,
}

impl Latency {
    /// Begins at `start_ns` with counters of zero.
    #[must_use]
    pub fn new(config: AgeConfig, start_ns: u64) -> Self {
        Self {
            start_ns,
            latest_ns: start_ns,
            reading: Reading::new(),
            window: Window::new(config.window, start_ns),
            ewma: Ewma::new(config.half_life_ns, start_ns),
            calls: Vec::new(),
        }
    }

    /// Takes the probe's counters as read at `now_ns`: bucket and calls since the probe began.
    /// Buckets that are left out have not changed. Returns whether there were new calls.
    pub fn update(&mut self, now_ns: u64, cumulative: impl IntoIterator<Item = (usize, u64)>) -> bool {
        self.reading.advance(cumulative, &mut self.calls);
        self.feed(now_ns)
    }

    /// As [`Self::update`], for whole pages; unchanged ones are nearly free.
    pub fn update_pages<'a>(
        &mut self,
        now_ns: u64,
        cumulative: impl IntoIterator<Item = (usize, &'a Page<u64>)>,
    ) -> bool {
        self.reading.advance_pages(cumulative, &mut self.calls);
        self.feed(now_ns)
    }

    /// As [`Self::update`], where these calls will have left the window before it is looked at: it does not have them.
    pub fn update_behind_window(&mut self, now_ns: u64, cumulative: impl IntoIterator<Item = (usize, u64)>) {
        self.reading.advance(cumulative, &mut self.calls);
        self.feed_others(now_ns);
    }

    fn feed(&mut self, now_ns: u64) -> bool {
        self.window.record(now_ns, &self.calls);
        self.feed_others(now_ns)
    }

    /// Feeds all but the window.
    fn feed_others(&mut self, now_ns: u64) -> bool {
        self.latest_ns = self.latest_ns.max(now_ns);
        self.ewma.record(now_ns, &self.calls);
        let any = !self.calls.is_empty();
        self.calls.clear();
        any
    }

    /// The three kinds at `now_ns`, in numbers.
    #[must_use]
    pub fn summaries(&self, now_ns: u64) -> Summaries {
        let covered_ns = self.covered_ns() as f64;
        Summaries {
            since_start: Summary::of(self.since_start(), 1.0, covered_ns),
            window: self.window.summary(now_ns),
            ewma: self.ewma.summary(now_ns),
        }
    }

    /// How long calls were counted, in nanoseconds.
    #[must_use]
    pub fn covered_ns(&self) -> u64 {
        self.latest_ns - self.start_ns
    }

    /// All calls since the start.
    #[must_use]
    pub fn since_start(&self) -> &Histogram<u64> {
        self.reading.latest()
    }

    /// The calls of the window at `now_ns`.
    #[must_use]
    pub fn window(&self, now_ns: u64) -> Cow<'_, Histogram<u64>> {
        self.window.histogram(now_ns)
    }

    /// The exponentially weighted kind.
    #[must_use]
    pub fn ewma(&self) -> &Ewma {
        &self.ewma
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use profiler_common::layout::{BUCKETS, PAGE_BUCKETS, PAGES};
    use proptest::prelude::*;

    const CONFIG: AgeConfig = AgeConfig {
        window: WindowConfig {
            window_ns: 1000,
            slots: 10,
        },
        half_life_ns: 500,
    };

    proptest! {
        #[test]
        fn kinds_equal_those_fed_with_the_calls_themselves(
            rounds in prop::collection::vec(prop::collection::vec(0usize..BUCKETS, 0..20), 1..40),
        ) {
            let mut counters = vec![0u64; BUCKETS];
            let (mut by_bucket, mut by_page) = (Latency::new(CONFIG, 0), Latency::new(CONFIG, 0));
            let (mut window, mut ewma) = (Window::new(CONFIG.window, 0), Ewma::new(500, 0));
            let mut now = 0;
            for round in rounds {
                now += 130;
                let calls: Vec<_> = round.iter().map(|&bucket| (bucket, 1)).collect();
                for &bucket in &round {
                    counters[bucket] += 1;
                }
                window.record(now, &calls);
                ewma.record(now, &calls);
                let any = by_bucket.update(now, counters.iter().copied().enumerate());
                prop_assert_eq!(any, !round.is_empty());
                let pages = (0..PAGES).map(|page| {
                    let page_counters = &counters[page * PAGE_BUCKETS..][..PAGE_BUCKETS];
                    (page, page_counters.try_into().unwrap())
                });
                prop_assert_eq!(by_page.update_pages(now, pages), any);
            }
            let summaries = by_bucket.summaries(now);
            prop_assert!(by_bucket.since_start().iter().eq(by_page.since_start().iter()));
            prop_assert_eq!(by_bucket.since_start().total(), counters.iter().sum::<u64>());
            prop_assert_eq!(summaries.window, window.summary(now));
            prop_assert_eq!(by_page.summaries(now).window, window.summary(now));
            let (ours, theirs) = (summaries.ewma.count, ewma.summary(now).count);
            prop_assert!((ours - theirs).abs() <= 1e-9 * theirs);
        }
    }

    #[test]
    fn calls_that_have_left_the_window_are_not_missed_in_it() {
        let (mut all, mut recent) = (Latency::new(CONFIG, 0), Latency::new(CONFIG, 0));
        all.update(500, [(7, 3)]);
        recent.update_behind_window(500, [(7, 3)]);
        assert_ne!(recent.summaries(500), all.summaries(500));
        for latency in [&mut all, &mut recent] {
            latency.update(1500, [(7, 4)]);
            latency.update(2600, [(7, 5)]);
        }
        assert_eq!(recent.summaries(2600), all.summaries(2600));
        assert_eq!(recent.summaries(2600).window.count.to_string(), "1");
    }

    #[test]
    fn an_idle_function_is_all_zero() {
        let mut latency = Latency::new(CONFIG, 7);
        assert!(!latency.update(700, []));
        assert_eq!(latency.summaries(800), Summaries::default());
    }
}
