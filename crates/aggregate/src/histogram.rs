//! A latency histogram on the shared bucket layout, allocated by pages.

use profiler_common::layout::{BUCKETS, PAGE_BUCKETS, PAGES, bucket_of, highest_ns, lowest_ns, midpoint_ns};

use super::number::Number;

/// One page of counts.
pub type Page<C> = [C; PAGE_BUCKETS];

/// In the directory: no such page.
const NO_PAGE: u8 = u8::MAX;

const _: () = assert!(PAGES < NO_PAGE as usize);

/// Counts of durations. For the same recorded values every figure is the one that an
/// `hdrhistogram` of two significant digits gives, percentiles as its `median_equivalent`.
#[derive(Clone, Debug)]
pub struct Histogram<C> {
    directory: [u8; PAGES],
    pages: Vec<Box<Page<C>>>,
    total: C,
}

impl<C: Number> Default for Histogram<C> {
    fn default() -> Self {
        Self {
            directory: [NO_PAGE; PAGES],
            pages: Vec::new(),
            total: C::default(),
        }
    }
}

impl<C: Number> Histogram<C> {
    /// An empty histogram.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts one call of this duration.
    pub fn record(&mut self, duration_ns: u64) {
        self.add_bucket(bucket_of(duration_ns), C::from_count(1));
    }

    /// Adds to a bucket. Buckets beyond the layout count as its last.
    pub fn add_bucket(&mut self, bucket: usize, count: C) {
        let bucket = bucket.min(BUCKETS - 1);
        let page = self.page_mut(bucket / PAGE_BUCKETS);
        page[bucket % PAGE_BUCKETS] += count;
        self.total += count;
    }

    /// Takes from a bucket what was added to it before.
    pub fn subtract_bucket(&mut self, bucket: usize, count: C) {
        let bucket = bucket.min(BUCKETS - 1);
        let page = self.page_mut(bucket / PAGE_BUCKETS);
        page[bucket % PAGE_BUCKETS] = page[bucket % PAGE_BUCKETS].minus(count);
        self.total = self.total.minus(count);
    }

    /// Adds another histogram: the percentiles of the sum are those of all its calls.
    pub fn merge(&mut self, other: &Self) {
        for (bucket, count) in other.iter() {
            self.add_bucket(bucket, count);
        }
    }

    /// Takes away a histogram that was merged before.
    pub fn subtract(&mut self, other: &Self) {
        for (bucket, count) in other.iter() {
            self.subtract_bucket(bucket, count);
        }
    }

    /// All calls.
    #[must_use]
    pub fn total(&self) -> C {
        self.total
    }

    /// Whether no call was counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.total <= C::default()
    }

    /// The count of one bucket.
    #[must_use]
    pub fn count(&self, bucket: usize) -> C {
        let bucket = bucket.min(BUCKETS - 1);
        self.page(bucket / PAGE_BUCKETS)
            .map_or_else(C::default, |page| page[bucket % PAGE_BUCKETS])
    }

    /// A page of counts, where one was ever touched.
    #[must_use]
    pub fn page(&self, page: usize) -> Option<&Page<C>> {
        self.pages
            .get(usize::from(*self.directory.get(page)?))
            .map(Box::as_ref)
    }

    /// Buckets that are not zero, with their counts, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = (usize, C)> {
        (0..PAGES)
            .filter_map(|page| Some((page, self.page(page)?)))
            .flat_map(|(page, counts)| {
                let buckets = page * PAGE_BUCKETS..;
                buckets
                    .zip(counts.iter().copied())
                    .filter(|&(_, count)| count > C::default())
            })
    }

    /// The buckets that hold these quantiles (0 to 1, ascending); `None` where it is empty.
    #[must_use]
    pub fn quantiles<const N: usize>(&self, quantiles: [f64; N]) -> Option<[usize; N]> {
        let ranks = quantiles.map(|quantile| C::rank(self.total, quantile));
        let mut found = [None; N];
        let mut next = 0;
        let mut cumulative = C::default();
        let mut last = None;
        for (bucket, count) in self.iter() {
            cumulative += count;
            while next < N && cumulative >= ranks[next] {
                found[next] = Some(bucket);
                next += 1;
            }
            if next == N {
                break;
            }
            last = Some(bucket);
        }
        // Rounding may leave the sum of decayed counts short of their total.
        let last = found.iter().flatten().last().copied().max(last)?;
        Some(found.map(|bucket| bucket.unwrap_or(last)))
    }

    /// The bucket that holds a quantile (0 to 1).
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Option<usize> {
        self.quantiles([quantile]).map(|[bucket]| bucket)
    }

    /// A quantile (0 to 1) as the midpoint of its bucket, in nanoseconds.
    #[must_use]
    pub fn value_at_quantile(&self, quantile: f64) -> Option<u64> {
        self.quantile(quantile).map(midpoint_ns)
    }

    /// The mean of the buckets' midpoints, in nanoseconds.
    #[must_use]
    pub fn mean_ns(&self) -> Option<f64> {
        let mut sum = 0.0;
        let mut count = 0.0;
        for (bucket, n) in self.iter() {
            sum += midpoint_ns(bucket) as f64 * n.as_f64();
            count += n.as_f64();
        }
        (count > 0.0).then(|| sum / count)
    }

    /// The lower end of the lowest bucket that is not empty, in nanoseconds.
    #[must_use]
    pub fn min_ns(&self) -> Option<u64> {
        self.iter().next().map(|(bucket, _)| lowest_ns(bucket))
    }

    /// The upper end of the highest bucket that is not empty, in nanoseconds.
    #[must_use]
    pub fn max_ns(&self) -> Option<u64> {
        self.iter().last().map(|(bucket, _)| highest_ns(bucket))
    }

    fn page_mut(&mut self, page: usize) -> &mut Page<C> {
        if self.directory[page] == NO_PAGE {
            // At most PAGES of them, which the assertion above fits into a byte.
            self.directory[page] = u8::try_from(self.pages.len()).unwrap_or(NO_PAGE);
            self.pages.push(Box::new([C::default(); PAGE_BUCKETS]));
        }
        &mut self.pages[usize::from(self.directory[page])]
    }
}

impl Histogram<f64> {
    /// Multiplies all counts by `factor`, forgets those that are then below `floor`, and gives back
    /// the pages that hold none any more.
    pub fn scale(&mut self, factor: f64, floor: f64) {
        let mut scaled = Self::new();
        for (bucket, count) in self.iter() {
            if count * factor >= floor {
                scaled.add_bucket(bucket, count * factor);
            }
        }
        *self = scaled;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use profiler_common::layout::MAX_NS;
    use proptest::prelude::*;

    fn durations() -> impl Strategy<Value = Vec<u64>> {
        let duration = (0u32..42, any::<u64>()).prop_map(|(bits, low)| low & ((1 << bits) - 1));
        prop::collection::vec(duration, 0..400)
    }

    fn of(durations: &[u64]) -> Histogram<u64> {
        let mut histogram = Histogram::new();
        for &ns in durations {
            histogram.record(ns);
        }
        histogram
    }

    fn reference(durations: &[u64]) -> hdrhistogram::Histogram<u64> {
        let mut histogram = hdrhistogram::Histogram::new_with_bounds(1, MAX_NS, 2).unwrap();
        for &ns in durations {
            histogram.record(ns).unwrap();
        }
        histogram
    }

    fn assert_equals(ours: &Histogram<u64>, theirs: &hdrhistogram::Histogram<u64>) {
        assert_eq!(ours.total(), theirs.len());
        if theirs.is_empty() {
            assert!(ours.is_empty());
            assert_eq!(
                (ours.quantile(0.5), ours.mean_ns(), ours.min_ns()),
                (None, None, None)
            );
            return;
        }
        for q in [0.0, 0.001, 0.25, 0.5, 0.9, 0.95, 0.99, 0.999, 1.0] {
            let theirs = theirs.median_equivalent(theirs.value_at_quantile(q));
            assert_eq!(ours.value_at_quantile(q), Some(theirs), "quantile {q}");
        }
        let mean = ours.mean_ns().unwrap();
        assert!(
            (mean - theirs.mean()).abs() <= 1e-12 * theirs.mean(),
            "{mean} {}",
            theirs.mean()
        );
        assert_eq!(ours.min_ns(), Some(theirs.min()));
        assert_eq!(ours.max_ns(), Some(theirs.max()));
    }

    proptest! {
        #[test]
        fn equals_hdrhistogram(durations in durations()) {
            assert_equals(&of(&durations), &reference(&durations));
        }

        #[test]
        fn merges_and_subtracts_like_the_values_themselves(a in durations(), b in durations()) {
            let mut both = of(&a);
            both.merge(&of(&b));
            assert_equals(&both, &reference(&[a.clone(), b.clone()].concat()));
            both.subtract(&of(&b));
            assert_equals(&both, &reference(&a));
        }

        #[test]
        fn decayed_counts_have_the_same_quantiles(durations in durations(), factor in 1e-9..1e9) {
            let whole = of(&durations);
            let mut decayed = Histogram::<f64>::new();
            for &ns in &durations {
                decayed.add_bucket(bucket_of(ns), factor);
            }
            for q in [0.0, 0.5, 0.9, 0.95, 0.99, 1.0] {
                prop_assert_eq!(whole.quantile(q), decayed.quantile(q));
            }
        }

        #[test]
        fn all_quantiles_at_once_equal_each_alone(durations in durations()) {
            let histogram = of(&durations);
            let together = histogram.quantiles([0.1, 0.5, 0.5, 0.99]);
            let alone = [0.1, 0.5, 0.5, 0.99].map(|q| histogram.quantile(q));
            prop_assert_eq!(together.map(|found| found.map(Some)), (!durations.is_empty()).then_some(alone));
        }
    }

    #[test]
    fn longer_than_the_layout_counts_as_its_longest() {
        assert_eq!(of(&[u64::MAX]).max_ns(), Some(MAX_NS));
    }
}
