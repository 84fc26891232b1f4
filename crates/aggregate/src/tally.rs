//! Sums by key, cheap to add to: entries are appended, and equal keys folded now and then.

use std::ops::AddAssign;

/// Entries that are appended before the first fold.
const FIRST_FOLD: usize = 64;

/// Sums by key. Takes at most twice the room of its distinct keys (or a small constant).
#[derive(Clone, Debug)]
pub struct Tally<V> {
    entries: Vec<(u64, V)>,
    fold_at: usize,
}

impl<V> Default for Tally<V> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            fold_at: FIRST_FOLD,
        }
    }
}

impl<V: Copy + AddAssign> Tally<V> {
    /// Adds `value` to what `key` has.
    pub fn add(&mut self, key: u64, value: V) {
        if let Some((_, sum)) = self.entries.last_mut().filter(|(last, _)| *last == key) {
            *sum += value;
            return;
        }
        self.entries.push((key, value));
        if self.entries.len() >= self.fold_at {
            self.fold();
        }
    }

    /// Entries held, of which several may have the same key.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// What was added; a key may come several times, with parts of its sum.
    pub fn iter(&self) -> impl Iterator<Item = (u64, V)> {
        self.entries.iter().copied()
    }

    /// Every key once, ascending.
    #[must_use]
    pub fn into_sums(mut self) -> Vec<(u64, V)> {
        self.fold();
        self.entries
    }

    /// Changes keys; what then has the same key adds up.
    pub fn rename(&mut self, mut to: impl FnMut(u64) -> u64) {
        self.entries.iter_mut().for_each(|(key, _)| *key = to(*key));
        self.fold();
    }

    fn fold(&mut self) {
        self.entries.sort_unstable_by_key(|(key, _)| *key);
        self.entries.dedup_by(|(key, value), (kept, sum)| {
            let same = key == kept;
            if same {
                *sum += *value;
            }
            same
        });
        self.fold_at = (2 * self.entries.len()).max(FIRST_FOLD);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn equals_a_map_and_stays_small(added in prop::collection::vec((0u64..90, 0u64..1000), 0..2000)) {
            let mut tally = Tally::default();
            let mut map = BTreeMap::new();
            for (key, value) in added {
                tally.add(key, value);
                *map.entry(key).or_insert(0) += value;
                prop_assert!(tally.len() <= (2 * map.len()).max(FIRST_FOLD));
            }
            prop_assert_eq!(tally.into_sums(), map.into_iter().collect::<Vec<_>>());
        }
    }
}
