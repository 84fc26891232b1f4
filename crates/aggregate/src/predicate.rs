//! What a scope's brackets say about a span's duration.

/// How a duration is compared with the limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Comparison {
    /// `>=`
    AtLeast,
    /// `>`
    Above,
    /// `<=`
    AtMost,
    /// `<`
    Below,
}

impl Comparison {
    /// Whether the limit itself belongs to the upper side of the division.
    #[must_use]
    pub fn limit_is_above(self) -> bool {
        matches!(self, Self::AtLeast | Self::Below)
    }

    /// Whether the upper side is the one that fulfils it.
    #[must_use]
    pub fn keeps_above(self) -> bool {
        matches!(self, Self::AtLeast | Self::Above)
    }
}

/// What it is compared with.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Limit {
    /// A quantile of the population that is drawn: 0.95 for `p95`.
    Quantile(f64),
    /// A time in nanoseconds.
    DurationNs(u64),
}

/// One duration predicate. Several of one step must all be fulfilled.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Predicate {
    /// How.
    pub comparison: Comparison,
    /// With what.
    pub limit: Limit,
}
