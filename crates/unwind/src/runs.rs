//! Free runs of consecutive numbers, given out first fit.

use std::collections::BTreeMap;

/// The numbers from 0 to a size, each free or taken.
#[derive(Clone, Debug)]
pub struct Runs {
    /// Start and length of the free runs, no two adjacent.
    free: BTreeMap<u32, u32>,
}

impl Runs {
    /// All of them free.
    #[must_use]
    pub fn new(size: u32) -> Self {
        Self {
            free: if size == 0 {
                BTreeMap::new()
            } else {
                BTreeMap::from([(0, size)])
            },
        }
    }

    /// The length of the longest free run.
    #[must_use]
    pub fn longest(&self) -> u32 {
        self.free.values().copied().max().unwrap_or(0)
    }

    /// Takes `length` consecutive numbers, the first that are free. Nothing is taken for a length of 0.
    pub fn take(&mut self, length: u32) -> Option<u32> {
        self.take_below(length, u32::MAX)
    }

    /// The same of the numbers below a bound.
    pub fn take_below(&mut self, length: u32, bound: u32) -> Option<u32> {
        if length == 0 {
            return Some(0);
        }
        let (start, had) = self
            .free
            .iter()
            .map(|(start, had)| (*start, *had))
            .find(|(_, had)| *had >= length)
            .filter(|(start, _)| start.saturating_add(length) <= bound)?;
        self.free.remove(&start);
        if had > length {
            self.free.insert(start + length, had - length);
        }
        Some(start)
    }

    /// Gives back what [`Self::take`] gave.
    pub fn give_back(&mut self, start: u32, length: u32) {
        if length == 0 {
            return;
        }
        let (mut start, mut length) = (start, length);
        if let Some(after) = self.free.remove(&(start + length)) {
            length += after;
        }
        if let Some((before, had)) = self.free.range(..start).next_back().map(|(s, l)| (*s, *l))
            && before + had == start
        {
            start = before;
            length += had;
        }
        self.free.insert(start, length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn taken_runs_are_disjoint_and_can_be_given_back(steps in proptest::collection::vec((any::<bool>(), 0u32..40), 0..200)) {
            let mut runs = Runs::new(200);
            let mut taken: Vec<(u32, u32)> = Vec::new();
            for (give_back, length) in steps {
                if give_back && !taken.is_empty() {
                    let (start, length) = taken.swap_remove(length as usize % taken.len());
                    runs.give_back(start, length);
                } else if length > 0 {
                    let fits = runs.longest() >= length;
                    let start = runs.take(length);
                    prop_assert_eq!(start.is_some(), fits);
                    if let Some(start) = start {
                        prop_assert!(start + length <= 200);
                        prop_assert!(taken.iter().all(|(s, l)| start + length <= *s || s + l <= start));
                        taken.push((start, length));
                    }
                }
            }
            for (start, length) in taken {
                runs.give_back(start, length);
            }
            prop_assert_eq!(runs.longest(), 200);
        }
    }
}
