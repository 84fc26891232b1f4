//! Samples of a minute, summed up.

use std::{ops::Range, sync::Arc};

use profiler_aggregate::{
    join::{Awaited, Elsewhere},
    matrix::{BucketCell, Cell},
};
use profiler_symbolize::Stacks;

use crate::kernel::Activity;

/// Samples, summed up until a time.
#[derive(Clone, Default, Debug)]
pub struct SummedSamples {
    pub to_ns: u64,
    pub rows: Vec<SummedRow>,
    /// Samples of calls that ended, by the bucket of their duration, ascending in each row. Without a step, all samples are in the
    /// first bucket.
    pub cells: Arc<[BucketCell]>,
    pub elsewhere: SummedElsewhere,
}

/// Samples of one thread at one stack, summed up.
#[derive(Clone, Debug)]
pub struct SummedRow {
    pub activity: Activity,
    pub stacks: Stacks,
    /// Whether the stack reaches a known root.
    pub complete: bool,
    /// Which of the cells are its own.
    pub cells: Range<usize>,
    /// Of calls that had not ended.
    pub open: Vec<(Awaited, Cell<u64>)>,
}

/// Samples of no call of the step, summed up.
#[derive(Clone, Copy, Default, Debug)]
pub struct SummedElsewhere {
    pub on_cpu: Elsewhere,
    pub off_cpu: Elsewhere,
}
