//! The one log-linear bucket layout of every latency histogram, in the kernel and in user space.
//!
//! It is the layout of an `hdrhistogram` with two significant digits: values below 256 ns have a
//! bucket each; above, every power of two is cut into 128 buckets of equal width. A bucket is
//! therefore at most 1/128 of its values wide, and its midpoint within 0.4% of any of them.
//!
//! Buckets are grouped into pages of [`PAGE_BUCKETS`], allocated when first hit, because most
//! functions touch a few powers of two only.

/// log2 of the buckets per power of two.
const SUB_BITS: u32 = 7;

/// Durations are recorded up to this many nanoseconds (73 minutes); longer ones count as this.
pub const MAX_NS: u64 = (1 << 42) - 1;

/// Number of buckets: 256 of one nanosecond, then 128 for each of the powers 2^8 to 2^41.
pub const BUCKETS: usize = 4608;

/// Buckets per page.
pub const PAGE_BUCKETS: usize = 64;

/// Pages that cover all buckets.
pub const PAGES: usize = BUCKETS / PAGE_BUCKETS;

const _: () = assert!(bucket_of(MAX_NS) == BUCKETS - 1);
const _: () = assert!(BUCKETS.is_multiple_of(PAGE_BUCKETS));

/// The bucket that holds a duration.
#[inline(always)]
#[must_use]
#[allow(
    clippy::cast_possible_truncation,
    clippy::inline_always,
    reason = "clamped to 42 bits; inlined into eBPF"
)]
pub const fn bucket_of(duration_ns: u64) -> usize {
    let value = if duration_ns > MAX_NS { MAX_NS } else { duration_ns };
    // Values below 256 share shift 0; each further bit of magnitude widens the buckets twofold.
    let shift = (u64::BITS - SUB_BITS - 1) - (value | 0xff).leading_zeros();
    ((shift as usize) << SUB_BITS) + (value >> shift) as usize
}

/// The lowest duration of a bucket, in nanoseconds. `bucket` must be below [`BUCKETS`].
#[must_use]
pub const fn lowest_ns(bucket: usize) -> u64 {
    let shift = shift_of(bucket);
    ((bucket - (shift << SUB_BITS)) as u64) << shift
}

/// The highest duration of a bucket, in nanoseconds.
#[must_use]
pub const fn highest_ns(bucket: usize) -> u64 {
    lowest_ns(bucket) + width_ns(bucket) - 1
}

/// The midpoint of a bucket, in nanoseconds: what a percentile is reported as.
///
/// It is `hdrhistogram`'s `median_equivalent`.
#[must_use]
pub const fn midpoint_ns(bucket: usize) -> u64 {
    lowest_ns(bucket) + width_ns(bucket) / 2
}

/// The number of nanoseconds that a bucket spans.
#[must_use]
pub const fn width_ns(bucket: usize) -> u64 {
    1 << shift_of(bucket)
}

const fn shift_of(bucket: usize) -> usize {
    if bucket < 256 { 0 } else { (bucket >> SUB_BITS) - 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hdrhistogram::Histogram;
    use proptest::prelude::*;

    #[test]
    fn buckets_tile_the_range() {
        assert_eq!(lowest_ns(0), 0);
        for bucket in 1..BUCKETS {
            assert_eq!(lowest_ns(bucket), highest_ns(bucket - 1) + 1, "bucket {bucket}");
        }
        assert_eq!(highest_ns(BUCKETS - 1), MAX_NS);
    }

    proptest! {
        #[test]
        fn a_bucket_holds_its_values(ns in 0..=MAX_NS) {
            let bucket = bucket_of(ns);
            prop_assert!(lowest_ns(bucket) <= ns && ns <= highest_ns(bucket));
        }

        #[test]
        fn equals_hdrhistogram(bits in 0u32..42, low in any::<u64>()) {
            let ns = (1u64 << bits) | (low & ((1 << bits) - 1));
            let reference = Histogram::<u64>::new_with_bounds(1, MAX_NS, 2).unwrap();
            let bucket = bucket_of(ns);
            prop_assert_eq!(reference.lowest_equivalent(ns), lowest_ns(bucket));
            prop_assert_eq!(reference.highest_equivalent(ns), highest_ns(bucket));
            prop_assert_eq!(reference.median_equivalent(ns), midpoint_ns(bucket));
        }
    }
}
