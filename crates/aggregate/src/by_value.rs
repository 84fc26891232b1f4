//! Calls divided by a value: a histogram for each, of a bounded number, and one for all others.

use std::{collections::HashMap, hash::Hash};

use profiler_common::layout::midpoint_ns;

use super::histogram::Histogram;

/// Values that have a histogram of their own, at most: those that came first. So each has all calls with its value; one
/// that could be turned out by another would not.
pub const MAX_VALUES: usize = 64;

/// The calls with one value.
#[derive(Clone, Debug)]
pub struct Row<V> {
    /// How the value is shown, as the first call had it.
    pub shown: V,
    /// All calls since the start.
    pub calls: Histogram<u64>,
}

impl<V> Row<V> {
    /// The time that the calls took in all, in nanoseconds: each counts as the midpoint of its bucket.
    #[must_use]
    pub fn time_ns(&self) -> u128 {
        let times = self.calls.iter();
        times
            .map(|(bucket, count)| u128::from(midpoint_ns(bucket)) * u128::from(count))
            .sum()
    }
}

/// Calls since the start by a value, told apart by `K` and shown as `V`.
#[derive(Clone, Debug)]
pub struct ByValue<K, V> {
    rows: HashMap<K, Row<V>>,
    other: Histogram<u64>,
}

impl<K, V> Default for ByValue<K, V> {
    fn default() -> Self {
        Self {
            rows: HashMap::new(),
            other: Histogram::new(),
        }
    }
}

impl<K: Eq + Hash + Ord + Clone, V: Clone> ByValue<K, V> {
    /// Counts a call that began with a value. A value that comes for the first time has a histogram of its own where
    /// there is room and `may_grow`; says whether it was given one.
    pub fn record(&mut self, key: K, shown: impl FnOnce() -> V, duration_ns: u64, may_grow: bool) -> bool {
        if let Some(row) = self.rows.get_mut(&key) {
            row.calls.record(duration_ns);
            return false;
        }
        if !may_grow || self.rows.len() >= MAX_VALUES {
            self.other.record(duration_ns);
            return false;
        }
        let mut calls = Histogram::new();
        calls.record(duration_ns);
        self.rows.insert(
            key,
            Row {
                shown: shown(),
                calls,
            },
        );
        true
    }

    /// Adds another's calls: of another process, or of another machine. Percentiles of the sum are those of all calls.
    /// Where the two have more values than may be, those with the most calls keep their histograms, and the rest goes
    /// to the others; a row is then no longer sure to have all calls with its value.
    pub fn merge(&mut self, other: &Self) {
        for (key, row) in &other.rows {
            match self.rows.get_mut(key) {
                Some(known) => known.calls.merge(&row.calls),
                None => {
                    self.rows.insert(key.clone(), row.clone());
                }
            }
        }
        self.other.merge(&other.other);
        while self.rows.len() > MAX_VALUES {
            // Of those with as many calls the last by key, so that the result does not depend on chance.
            let least = self
                .rows
                .iter()
                .min_by(|(a, one), (b, other)| {
                    let calls = one.calls.total().cmp(&other.calls.total());
                    calls.then_with(|| b.cmp(a))
                })
                .map(|(key, _)| key.clone());
            let Some(row) = least.and_then(|key| self.rows.remove(&key)) else {
                break;
            };
            self.other.merge(&row.calls);
        }
    }

    /// The values that have a histogram of their own, what took the most time in all first.
    #[must_use]
    pub fn rows(&self) -> Vec<&Row<V>> {
        let mut rows: Vec<_> = self
            .rows
            .iter()
            .map(|(key, row)| (row.time_ns(), key, row))
            .collect();
        rows.sort_by(|(a, one, _), (b, other, _)| b.cmp(a).then_with(|| one.cmp(other)));
        rows.into_iter().map(|(_, _, row)| row).collect()
    }

    /// Values that have a histogram of their own.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether no call was counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.other.is_empty()
    }

    /// The calls with all other values.
    #[must_use]
    pub fn other(&self) -> &Histogram<u64> {
        &self.other
    }

    /// All calls.
    #[must_use]
    pub fn total(&self) -> u64 {
        let rows: u64 = self.rows.values().map(|row| row.calls.total()).sum();
        rows + self.other.total()
    }
}

/// Why calls have neither value nor duration, by reason; what is left over is `rest`'s. A call may have several reasons:
/// it counts for the first, so that the sum is `calls` less `divided` whatever the counts are.
#[must_use]
pub fn not_divided(
    calls: u64,
    divided: u64,
    reasons: impl IntoIterator<Item = (&'static str, u64)>,
    rest: &'static str,
) -> Vec<(&'static str, u64)> {
    let mut left = calls.saturating_sub(divided);
    let mut found = Vec::new();
    for (reason, count) in reasons.into_iter().chain([(rest, u64::MAX)]) {
        let count = count.min(left);
        left -= count;
        if count > 0 {
            found.push((reason, count));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    type Calls = Vec<(u16, u64)>;

    fn calls(values: u16) -> impl Strategy<Value = Calls> {
        prop::collection::vec((0..values, 0..=10_000_000_000_u64), 0..300)
    }

    fn of(calls: &[(u16, u64)]) -> ByValue<u16, u16> {
        let mut divided = ByValue::default();
        for &(value, ns) in calls {
            divided.record(value, || value, ns, true);
        }
        divided
    }

    fn counts(divided: &ByValue<u16, u16>) -> BTreeMap<u16, Vec<(usize, u64)>> {
        let rows = divided.rows.iter();
        rows.map(|(key, row)| (*key, row.calls.iter().collect()))
            .collect()
    }

    fn alone(calls: &[(u16, u64)]) -> Vec<(usize, u64)> {
        let mut histogram = Histogram::<u64>::new();
        for &(_, ns) in calls {
            histogram.record(ns);
        }
        histogram.iter().collect()
    }

    proptest! {
        #[test]
        fn every_call_is_in_one_row(calls in calls(100)) {
            let divided = of(&calls);
            prop_assert_eq!(divided.total(), calls.len() as u64);
            prop_assert!(divided.len() <= MAX_VALUES);
            let mut all = divided.other().clone();
            for row in divided.rows() {
                let own: Calls = calls.iter().copied().filter(|(value, _)| *value == row.shown).collect();
                prop_assert_eq!(row.calls.iter().collect::<Vec<_>>(), alone(&own));
                all.merge(&row.calls);
            }
            prop_assert_eq!(all.iter().collect::<Vec<_>>(), alone(&calls));
            prop_assert!(divided.rows().is_sorted_by(|a, b| a.time_ns() >= b.time_ns()));
        }

        #[test]
        fn a_merge_is_the_union(a in calls(60), b in calls(60)) {
            let mut merged = of(&a);
            merged.merge(&of(&b));
            let union = of(&[a, b].concat());
            prop_assert_eq!(counts(&merged), counts(&union));
            prop_assert!(merged.other().is_empty());
        }

        #[test]
        fn a_merge_loses_no_call_and_stays_bounded(a in calls(200), b in calls(200)) {
            let (one, other) = (of(&a), of(&b));
            let (mut merged, mut turned) = (one.clone(), other.clone());
            merged.merge(&other);
            turned.merge(&one);
            prop_assert_eq!(merged.total(), (a.len() + b.len()) as u64);
            prop_assert!(merged.len() <= MAX_VALUES);
            prop_assert_eq!(counts(&merged), counts(&turned));
            let mut all = merged.other().clone();
            for row in merged.rows() {
                all.merge(&row.calls);
            }
            prop_assert_eq!(all.iter().collect::<Vec<_>>(), alone(&[a, b].concat()));
        }

        #[test]
        fn reasons_add_up(calls: u64, divided: u64, counts in prop::collection::vec(any::<u64>(), 0..6)) {
            let names = ["a", "b", "c", "d", "e", "f"];
            let reasons = names.into_iter().zip(counts.iter().copied());
            let found = not_divided(calls, divided, reasons, "rest");
            let sum: u128 = found.iter().map(|(_, count)| u128::from(*count)).sum();
            prop_assert_eq!(sum, u128::from(calls.saturating_sub(divided)));
            prop_assert!(found.iter().all(|(_, count)| *count > 0));
        }
    }

    #[test]
    fn counts_new_values_as_others_when_the_table_may_not_grow() {
        let mut divided = ByValue::default();
        assert!(divided.record(1, || "one", 10, true));
        assert!(!divided.record(2, || "two", 10, false));
        assert!(!divided.record(1, || "uno", 10, false));
        let [row] = divided.rows()[..] else { panic!() };
        assert_eq!(
            (row.shown, row.calls.total(), divided.other().total()),
            ("one", 2, 1)
        );
        assert!(!divided.is_empty());
    }

    #[test]
    fn a_call_counts_for_its_first_reason() {
        let reasons = [("abandoned", 3), ("rate_limit", 100)];
        assert_eq!(
            not_divided(50, 40, reasons, "open"),
            [("abandoned", 3), ("rate_limit", 7)]
        );
        assert_eq!(
            not_divided(50, 40, [("abandoned", 3)], "open"),
            [("abandoned", 3), ("open", 7)]
        );
        assert_eq!(not_divided(5, 40, [("abandoned", 3)], "open"), []);
    }
}
