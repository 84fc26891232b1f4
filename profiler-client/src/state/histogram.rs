//! Counts per bucket as the client keeps and groups them.

use std::collections::BTreeMap;

use profiler_common::layout;
use profiler_proto::v1;

use super::Malformed;

/// Counts by bucket of [`profiler_common::layout`]; absent buckets are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts(BTreeMap<usize, u64>);

/// A run of neighbouring buckets, drawn as one bar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// Its lower edge, in nanoseconds.
    pub low_ns: f64,
    /// Its upper edge, which belongs to the next row.
    pub high_ns: f64,
    /// Calls in it.
    pub count: u64,
    /// Which calls it has.
    pub part: Part,
}

/// Which calls a row has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// Those between its edges, which are as far apart as those of its neighbours.
    #[default]
    Even,
    /// The few that are faster than all other rows.
    Faster,
    /// The few that are slower.
    Slower,
}

impl Counts {
    /// Reads what the protocol carries.
    ///
    /// # Errors
    ///
    /// Where the lists differ in length or leave the layout.
    pub fn read(wire: &v1::Histogram) -> Result<Self, Malformed> {
        if wire.bucket_deltas.len() != wire.counts.len() {
            return Err(Malformed("a histogram with unequal lists"));
        }
        let mut counts = BTreeMap::new();
        let mut bucket = 0_usize;
        for (&delta, &count) in wire.bucket_deltas.iter().zip(&wire.counts) {
            bucket = usize::try_from(delta)
                .ok()
                .and_then(|delta| bucket.checked_add(delta))
                .filter(|&bucket| bucket < layout::BUCKETS)
                .ok_or(Malformed("a histogram bucket outside of the layout"))?;
            let sum: &mut u64 = counts.entry(bucket).or_default();
            *sum = sum.saturating_add(count);
        }
        counts.retain(|_, count| *count > 0);
        Ok(Self(counts))
    }

    /// Adds another's counts.
    pub fn add(&mut self, other: &Self) {
        for (&bucket, &count) in &other.0 {
            let sum = self.0.entry(bucket).or_default();
            *sum = sum.saturating_add(count);
        }
    }

    /// What has been counted since `before`; all of it where that was another count, as a bucket has less now.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let now = |bucket: &usize| self.0.get(bucket).copied().unwrap_or(0);
        if before.0.iter().any(|(bucket, count)| now(bucket) < *count) {
            return self.clone();
        }
        let more = |bucket: &usize, count: &u64| count - before.0.get(bucket).copied().unwrap_or(0);
        let counts = self
            .0
            .iter()
            .map(|(bucket, count)| (*bucket, more(bucket, count)));
        Self(counts.filter(|(_, count)| *count > 0).collect())
    }

    /// The buckets that are not empty, in order, with their counts.
    pub fn buckets(&self) -> impl Iterator<Item = (usize, u64)> {
        self.0.iter().map(|(bucket, count)| (*bucket, *count))
    }

    /// The shortest duration that a call in a row may have had, in nanoseconds: the lower edge of the first bucket that has one; `None`
    /// of an empty row.
    #[must_use]
    pub fn first_in(&self, row: &Row) -> Option<u64> {
        let mut edges = self.0.keys().map(|bucket| layout::lowest_ns(*bucket));
        let is_in = |ns: &u64| (*ns as f64) < row.high_ns && *ns as f64 >= row.low_ns;
        edges.find(is_in)
    }

    /// All calls.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.values().fold(0, |sum, &count| sum.saturating_add(count))
    }

    /// Log-spaced rows from the fastest call to the slowest, empty ones between them included: two an octave, or as many fewer as it
    /// takes to need at most `most` of them. Where a few calls far from the others would make them wider, those have a row of
    /// their own at either end.
    #[must_use]
    pub fn rows(&self, most: usize) -> Vec<Row> {
        let Some(all) = self.range(0) else {
            return Vec::new();
        };
        let width = all.width(most);
        let most_for_body = most.saturating_sub(2);
        let body = self.range(self.few()).filter(|_| most_for_body > 0);
        match body.map(|body| (body, body.width(most_for_body))) {
            Some((body, narrower)) if narrower < width => self.rows_of(all, body, narrower),
            _ => self.rows_of(all, all, width),
        }
    }

    /// The same with rows that are all of one width.
    #[must_use]
    pub fn even_rows(&self, most: usize) -> Vec<Row> {
        let all = self.range(0);
        all.map_or_else(Vec::new, |all| self.rows_of(all, all, all.width(most)))
    }

    /// How many calls at each end are few: a thousandth, and at least one of a hundred or more.
    fn few(&self) -> u64 {
        const ENOUGH: u64 = 100;
        let total = self.total();
        if total < ENOUGH { 0 } else { total.div_ceil(1000) }
    }

    /// From the fastest call to the slowest, without so many at each end.
    fn range(&self, without: u64) -> Option<Range> {
        fn beyond<'a>(counts: impl Iterator<Item = (&'a usize, &'a u64)>, without: u64) -> Option<usize> {
            let mut seen = 0_u64;
            let mut buckets = counts.skip_while(|(_, count)| {
                seen = seen.saturating_add(**count);
                seen <= without
            });
            buckets.next().map(|(bucket, _)| half_octave(*bucket))
        }
        Some(Range {
            first: beyond(self.0.iter(), without)?,
            last: beyond(self.0.iter().rev(), without)?,
        })
    }

    /// Rows of so many half-octaves over a part of all, and one for what lies beyond it on each side.
    fn rows_of(&self, all: Range, body: Range, width: usize) -> Vec<Row> {
        let (first, last) = (body.first / width, body.last / width);
        let row = |low: usize, high: usize, part| Row {
            low_ns: edge_ns(low),
            high_ns: edge_ns(high),
            count: 0,
            part,
        };
        let (begin, end) = (first * width, (last + 1) * width);
        let faster = (all.first < begin).then(|| row(all.first, begin, Part::Faster));
        let slower = (all.last >= end).then(|| row(end, all.last + 1, Part::Slower));
        let before = usize::from(faster.is_some());
        let even = (first..=last).map(|at| row(at * width, (at + 1) * width, Part::Even));
        let mut rows: Vec<Row> = faster.into_iter().chain(even).chain(slower).collect();
        for (&bucket, &count) in &self.0 {
            let at = half_octave(bucket);
            let place = if at < begin {
                0
            } else {
                before + (at / width - first).min(last - first + 1)
            };
            if let Some(row) = rows.get_mut(place) {
                row.count = row.count.saturating_add(count);
            }
        }
        rows
    }
}

/// Durations, by the half-octaves of the fastest and of the slowest call.
#[derive(Clone, Copy)]
struct Range {
    first: usize,
    last: usize,
}

impl Range {
    /// The half-octaves that each of at most so many rows has.
    fn width(self, most: usize) -> usize {
        let mut width = 1;
        while self.last / width - self.first / width >= most.max(1) {
            width *= 2;
        }
        width
    }
}

/// The half-octave that a bucket's lowest value lies in. Edges between octaves fall on bucket
/// edges; those within one are off by less than a bucket (0.8%).
fn half_octave(bucket: usize) -> usize {
    let ns = layout::lowest_ns(bucket).max(1);
    let octave = ns.ilog2();
    let upper = ns as f64 >= edge_ns(2 * octave as usize + 1);
    2 * octave as usize + usize::from(upper)
}

/// Lower edge of a half-octave: 2^(n/2) ns.
fn edge_ns(half_octave: usize) -> f64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        reason = "at most 86"
    )]
    let octave = (half_octave / 2) as i32;
    let base = 2_f64.powi(octave);
    if half_octave.is_multiple_of(2) {
        base
    } else {
        base * std::f64::consts::SQRT_2
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(durations: &[u64]) -> Counts {
        let mut counts = BTreeMap::new();
        for &ns in durations {
            *counts.entry(layout::bucket_of(ns)).or_default() += 1;
        }
        Counts(counts)
    }

    #[test]
    fn buckets_come_as_differences() {
        let wire = v1::Histogram {
            bucket_deltas: vec![10, 5, 1],
            counts: vec![1, 2, 3],
        };
        assert_eq!(
            Counts::read(&wire).unwrap(),
            Counts([(10, 1), (15, 2), (16, 3)].into())
        );
    }

    #[test]
    fn what_came_since_is_the_difference_and_all_of_another_count() {
        let (before, now) = (of(&[5, 5, 900]), of(&[5, 5, 5, 900, 70_000]));
        assert_eq!(now.since(&before), of(&[5, 70_000]));
        assert_eq!(now.since(&now), Counts::default());
        assert_eq!(before.since(&now), before, "it began anew");
    }

    #[test]
    fn nonsense_is_refused() {
        for (bucket_deltas, counts) in [
            (vec![1], vec![]),
            (vec![4608], vec![1]),
            (vec![u32::MAX, u32::MAX], vec![1, 1]),
        ] {
            Counts::read(&v1::Histogram {
                bucket_deltas,
                counts,
            })
            .unwrap_err();
        }
    }

    #[test]
    fn rows_are_half_octaves() {
        let rows = of(&[1024, 1100, 1500, 4096]).rows(100);
        let counts: Vec<_> = rows.iter().map(|row| row.count).collect();
        assert_eq!(counts, [2, 1, 0, 0, 1]);
        assert!((rows[0].low_ns - 1024.0).abs() < 1e-9 && (rows[1].low_ns - 1448.15).abs() < 0.1);
        assert!(Counts::default().rows(10).is_empty());
    }

    #[test]
    fn a_few_calls_far_from_the_others_have_rows_of_their_own() {
        // Between 4 us and 60 us, and four that took longer, up to 268 ms.
        let body = (0..4_000).map(|at| 4_096 + at * 14);
        let all: Vec<u64> = body
            .chain([3_300_000, 3_400_000, 40_000_000, 268_000_000])
            .collect();
        let rows = of(&all).rows(10);
        let (last, body) = rows.split_last().unwrap();
        assert_eq!((last.part, last.count), (Part::Slower, 4));
        assert!(
            body.len() >= 8 && body.iter().all(|row| row.part == Part::Even),
            "{rows:?}"
        );
        assert!(
            body.windows(2)
                .all(|pair| pair[0].high_ns.to_bits() == pair[1].low_ns.to_bits())
        );
        assert!(last.high_ns > 268e6 && last.low_ns.to_bits() == body.last().unwrap().high_ns.to_bits());
        // Where they are not few, they are as wide as the others.
        let many: Vec<u64> = all.iter().copied().chain([200_000_000; 50]).collect();
        assert!(of(&many).rows(10).iter().all(|row| row.part == Part::Even));
        assert!(of(&all).even_rows(10).iter().all(|row| row.part == Part::Even));
    }

    proptest! {
        #[test]
        fn rows_are_next_to_each_other_and_have_what_is_between_their_edges(
            often in 0..=layout::MAX_NS, count in 1_usize..3_000,
            durations in proptest::collection::vec(0..=layout::MAX_NS, 1..5), most in 1_usize..40,
        ) {
            let all: Vec<u64> = durations.into_iter().chain(std::iter::repeat_n(often, count)).collect();
            let counts = of(&all);
            let rows = counts.rows(most);
            prop_assert!(rows.len() <= most);
            prop_assert_eq!(rows.iter().map(|row| row.count).sum::<u64>(), counts.total());
            prop_assert!(rows.windows(2).all(|pair| (pair[0].high_ns - pair[1].low_ns).abs() < 1e-6));
        }

        #[test]
        fn rows_keep_every_call_and_stay_few(
            durations in proptest::collection::vec(0..=layout::MAX_NS, 1..50), most in 1_usize..40,
        ) {
            let counts = of(&durations);
            let rows = counts.rows(most);
            prop_assert!(rows.len() <= most);
            prop_assert_eq!(rows.iter().map(|row| row.count).sum::<u64>(), durations.len() as u64);
            prop_assert_eq!(counts.total(), durations.len() as u64);
            prop_assert!(rows.first().unwrap().count > 0 && rows.last().unwrap().count > 0);
        }
    }
}
