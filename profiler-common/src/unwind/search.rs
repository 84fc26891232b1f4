//! Binary search in a number of steps that is known beforehand, which is what the verifier asks for.

use core::hint::black_box;

use super::row::{CHUNK_ROWS, MAX_MAPPINGS};

/// Steps that find a row among a page's.
pub const ROW_STEPS: u32 = CHUNK_ROWS.ilog2();

/// Steps that find a mapping among a process's.
pub const MAPPING_STEPS: u32 = MAX_MAPPINGS.ilog2();

/// Index of the last of `count` ascending values that is not above `target`; all below 2⁶³.
///
/// `count` is at most 2^`STEPS`. `None` where `count` is 0, the first value is above the target, or
/// `value` has none. Only indexes below `count` are asked for.
#[inline(always)]
#[allow(
    clippy::inline_always,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "inlined into eBPF; a mask"
)]
pub fn last_at_or_below<const STEPS: u32>(
    count: u32,
    target: u64,
    value: impl Fn(u32) -> Option<u64>,
) -> Option<u32> {
    if count == 0 {
        return None;
    }
    let mut low = 0u32;
    let mut length = count;
    for _ in 0..STEPS {
        if length <= 1 {
            break;
        }
        let half = length >> 1;
        let middle = low.wrapping_add(half);
        // All ones where the value is not above. No branch: the verifier would follow both ways at each step. The
        // compiler must not see what is done, or it would make one.
        let not_above = value(middle)?.wrapping_sub(target).wrapping_sub(1).cast_signed() >> 63;
        low = low.wrapping_add(half & black_box(not_above) as u32);
        length = length.wrapping_sub(half);
    }
    // Only the first value has not been compared by now, and only if nothing above it qualified.
    if low == 0 && value(0)? > target {
        None
    } else {
        Some(low)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    proptest! {
        #[test]
        fn equals_a_partition_point(values in proptest::collection::btree_set(0u64..500, 0..300), target in 0u64..520) {
            let values: Vec<u64> = BTreeSet::into_iter(values).collect();
            let found = last_at_or_below::<16>(u32::try_from(values.len()).unwrap(), target, |i| values.get(i as usize).copied());
            let expected = values.partition_point(|v| *v <= target).checked_sub(1);
            prop_assert_eq!(found.map(|i| i as usize), expected);
        }
    }

    #[test]
    fn the_most_rows_are_searched_to_the_end() {
        for target in [0, 1, 32_767, 32_768, 65_534, 65_535, 70_000] {
            let found = last_at_or_below::<ROW_STEPS>(CHUNK_ROWS, target, |i| Some(u64::from(i)));
            assert_eq!(found, Some(u32::try_from(target).unwrap().min(65_535)));
        }
        assert_eq!(last_at_or_below::<ROW_STEPS>(3, 9, |_| None), None);
    }
}
