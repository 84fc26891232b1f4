//! Sets of addresses.

use std::ops::Range;

/// Ranges of addresses, in order and apart.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Ranges(Vec<Range<u64>>);

impl Ranges {
    /// All that any of these ranges holds.
    pub fn new(ranges: impl IntoIterator<Item = Range<u64>>) -> Self {
        let mut sorted: Vec<Range<u64>> = ranges
            .into_iter()
            .filter(|range| range.start < range.end)
            .collect();
        sorted.sort_unstable_by_key(|range| range.start);
        let mut apart: Vec<Range<u64>> = Vec::with_capacity(sorted.len());
        for range in sorted {
            match apart.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => apart.push(range),
            }
        }
        Self(apart)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Range<u64>> {
        self.0.iter()
    }

    pub fn contains(&self, address: u64) -> bool {
        let after = self.0.partition_point(|range| range.start <= address);
        after > 0 && self.0[after - 1].end > address
    }

    /// What both of them hold.
    pub fn within(&self, other: &Self) -> Self {
        let (mut own, mut others) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut both = Vec::new();
        while let (Some(a), Some(b)) = (own.peek(), others.peek()) {
            let (start, end) = (a.start.max(b.start), a.end.min(b.end));
            if start < end {
                both.push(start..end);
            }
            // What ends first holds nothing of what is behind.
            if a.end < b.end {
                own.next();
            } else {
                others.next();
            }
        }
        Self(both)
    }

    pub fn into_vec(self) -> Vec<Range<u64>> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_ranges() -> impl Strategy<Value = Vec<Range<u64>>> {
        prop::collection::vec(
            (0..40u64, 0..12u64).prop_map(|(start, length)| start..start + length),
            0..8,
        )
    }

    proptest! {
        #[test]
        fn sets_are_what_their_ranges_hold(a in any_ranges(), probe in 0..60u64) {
            let set = Ranges::new(a.clone());
            let holds = |ranges: &[Range<u64>], at: u64| ranges.iter().any(|range| range.contains(&at));
            prop_assert_eq!(set.contains(probe), holds(&a, probe));
        }

        #[test]
        fn the_intersection_is_in_both(a in any_ranges(), b in any_ranges(), probe in 0..60u64) {
            let (a, b) = (Ranges::new(a), Ranges::new(b));
            let both = a.within(&b);
            prop_assert_eq!(both.contains(probe), a.contains(probe) && b.contains(probe));
            prop_assert!(both.0.is_sorted_by(|before, after| before.end < after.start));
        }
    }
}
