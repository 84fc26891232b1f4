//! Scopes: what to look inside of. This is their value; [`parse`] reads their text.
//!
//! This version knows one step: a function's name and conditions on its calls' durations. The
//! canonical text, which `Display` writes, is the shortest that parses to the same value.

mod error;
mod parse;
mod print;

pub use error::ScopeError;
pub use parse::{MAX_TEXT_BYTES, parse};

/// What to look inside of.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Scope {
    /// The step inside which is looked; `None` (the empty text) for everything.
    pub step: Option<Step>,
}

/// A place, and which of its spans qualify.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Step {
    /// The function.
    pub place: Name,
    /// Conditions that all have to hold; two of them make a band.
    pub predicates: Vec<Predicate>,
}

/// A function's name as the user wrote it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Name {
    /// Matches as a whole or as the last components of a path; `*` and `?` stand for themselves.
    Exact(String),
    /// Contains `*` (any text) or `?` (any character).
    Glob(String),
}

impl Name {
    /// The name's text, without quotes.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Exact(text) | Self::Glob(text) => text,
        }
    }
}

/// A condition on a span's duration.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Predicate {
    /// How the duration compares to the bound.
    pub comparison: Comparison,
    /// What it is compared to.
    pub bound: Bound,
}

/// A comparison operator.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Comparison {
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

/// What a duration is compared to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Bound {
    /// A percentile of the durations themselves, which moves as they do.
    Percentile(Percentile),
    /// A fixed time, in nanoseconds.
    Duration(u64),
}

/// A percentile above 0 and below 100, exact to six decimals.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Percentile(u32);

impl Percentile {
    /// Units of the stored integer per percent.
    const UNITS: u32 = 1_000_000;

    /// A percentile of so many millionths of a percent; `None` unless above 0 and below 100.
    #[must_use]
    pub const fn from_millionths(millionths: u32) -> Option<Self> {
        if millionths == 0 || millionths >= 100 * Self::UNITS {
            None
        } else {
            Some(Self(millionths))
        }
    }

    /// Millionths of a percent: 95,000,000 for p95.
    #[must_use]
    pub const fn millionths(self) -> u32 {
        self.0
    }

    /// The fraction of values below it, above 0 and below 1.
    #[must_use]
    pub fn quantile(self) -> f64 {
        f64::from(self.0) / f64::from(100 * Self::UNITS)
    }
}

#[cfg(test)]
mod tests;
