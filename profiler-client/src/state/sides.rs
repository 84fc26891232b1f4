//! Which calls a flame graph is of.

/// Which calls a flame graph is drawn of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sides {
    /// Those that meet the scope.
    Inside,
    /// Those that fail its last predicate.
    Outside,
    /// One against the other.
    Difference,
}
