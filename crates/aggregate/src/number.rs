//! What is counted: whole calls, or calls that have decayed to a fraction.

use std::{fmt::Debug, ops::AddAssign};

/// A count that histograms and matrices can be made of.
pub trait Number: Copy + Default + PartialOrd + AddAssign + Debug {
    /// A whole number of calls.
    fn from_count(count: u64) -> Self;

    /// `self + other`, not above what it can hold: counts of a recording are whatever somebody wrote there.
    #[must_use]
    fn plus(self, other: Self) -> Self;

    /// `self - other`, not below zero.
    #[must_use]
    fn minus(self, other: Self) -> Self;

    /// As a float; exact up to 2^53.
    fn as_f64(self) -> f64;

    /// The cumulative count at which `quantile` (0 to 1) of `total` is reached.
    fn rank(total: Self, quantile: f64) -> Self;
}

impl Number for u64 {
    fn from_count(count: u64) -> Self {
        count
    }

    fn plus(self, other: Self) -> Self {
        self.saturating_add(other)
    }

    fn minus(self, other: Self) -> Self {
        debug_assert!(self >= other, "{other} taken from {self}");
        self.saturating_sub(other)
    }

    fn as_f64(self) -> f64 {
        self as f64
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "not negative; casts saturate"
    )]
    fn rank(total: Self, quantile: f64) -> Self {
        // `hdrhistogram`'s rule: part-way into the next call counts as that call, and at least one.
        ((quantile.clamp(0.0, 1.0) * total as f64).ceil() as u64).max(1)
    }
}

/// Sums of decayed counts carry rounding errors; a rank this close below is reached.
const ROUNDING: f64 = 1e-12;

impl Number for f64 {
    fn from_count(count: u64) -> Self {
        count as f64
    }

    fn plus(self, other: Self) -> Self {
        self + other
    }

    fn minus(self, other: Self) -> Self {
        (self - other).max(0.0)
    }

    fn as_f64(self) -> f64 {
        self
    }

    fn rank(total: Self, quantile: f64) -> Self {
        (quantile.clamp(0.0, 1.0) * total * (1.0 - ROUNDING)).max(f64::MIN_POSITIVE)
    }
}

/// A decayed sum of nanoseconds or samples as a whole number.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "casts saturate"
)]
#[must_use]
pub fn rounded(value: f64) -> u64 {
    value.round() as u64
}
