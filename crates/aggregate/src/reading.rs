//! From one reading of a kernel histogram to the next: the calls in between.

use profiler_common::layout::PAGE_BUCKETS;

use super::histogram::{Histogram, Page};

/// The last reading of a probe's counters, which only ever grow.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    latest: Histogram<u64>,
}

impl Reading {
    /// The reading of counters that are all zero.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the counters of single buckets and appends what is new to `calls`, by bucket.
    /// Buckets that are not named have not changed.
    pub fn advance(
        &mut self,
        cumulative: impl IntoIterator<Item = (usize, u64)>,
        calls: &mut Vec<(usize, u64)>,
    ) {
        for (bucket, count) in cumulative {
            let new = count.saturating_sub(self.latest.count(bucket));
            if new > 0 {
                self.latest.add_bucket(bucket, new);
                calls.push((bucket, new));
            }
        }
    }

    /// As [`Self::advance`], for whole pages (page number, counters): one that has not changed
    /// costs a comparison of its memory.
    pub fn advance_pages<'a>(
        &mut self,
        cumulative: impl IntoIterator<Item = (usize, &'a Page<u64>)>,
        calls: &mut Vec<(usize, u64)>,
    ) {
        for (number, page) in cumulative {
            let known = self.latest.page(number).unwrap_or(&[0; PAGE_BUCKETS]);
            if known != page {
                self.advance((number * PAGE_BUCKETS..).zip(page.iter().copied()), calls);
            }
        }
    }

    /// The counters as they were read.
    #[must_use]
    pub fn latest(&self) -> &Histogram<u64> {
        &self.latest
    }
}
