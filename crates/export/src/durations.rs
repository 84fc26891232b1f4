//! What is written: how long calls took.

/// How often there was a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// The value, or any of its bucket, in nanoseconds.
    pub value_ns: u64,
    /// How often.
    pub count: u64,
}

/// The calls of functions in a time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Durations {
    /// What was profiled, for people.
    pub title: String,
    /// Which calls, as a scope; empty where that is not known.
    pub scope: String,
    /// When the time began, in nanoseconds since 1970.
    pub began_ns: u64,
    /// When it ended, in nanoseconds since 1970.
    pub ended_ns: u64,
    /// A function each.
    pub functions: Vec<FunctionDurations>,
}

/// The calls of a function.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FunctionDurations {
    /// What it is called, unlike the others.
    pub name: String,
    /// The file of its code; empty where that is not known.
    pub module: String,
    /// Calls by duration.
    pub counts: Vec<Count>,
    /// What all calls took together, in nanoseconds, each taken to last as long as the middle of its bucket.
    pub sum_ns: f64,
    /// The lower edge of the fastest call's bucket, in nanoseconds; of no call, nothing.
    pub min_ns: u64,
    /// The upper edge of the slowest call's bucket, in nanoseconds; of no call, nothing.
    pub max_ns: u64,
}
