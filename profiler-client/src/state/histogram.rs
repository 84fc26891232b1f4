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

    /// All calls.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.values().fold(0, |sum, &count| sum.saturating_add(count))
    }

    /// Log-spaced rows from the fastest call to the slowest, empty ones between them included:
    /// two an octave, or as many fewer as it takes to need at most `most` of them.
    #[must_use]
    pub fn rows(&self, most: usize) -> Vec<Row> {
        let (Some((&first, _)), Some((&last, _))) = (self.0.first_key_value(), self.0.last_key_value())
        else {
            return Vec::new();
        };
        // Half-octaves per row.
        let mut step = 1;
        while half_octave(last) / step - half_octave(first) / step >= most.max(1) {
            step *= 2;
        }
        let base = half_octave(first) / step;
        let mut rows: Vec<Row> = (base..=half_octave(last) / step)
            .map(|row| Row {
                low_ns: edge_ns(row * step),
                high_ns: edge_ns((row + 1) * step),
                count: 0,
            })
            .collect();
        for (&bucket, &count) in &self.0 {
            let row = &mut rows[half_octave(bucket) / step - base].count;
            *row = row.saturating_add(count);
        }
        rows
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

    proptest! {
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
