//! A hit or an ended call with its values, and a batch of these.

use std::sync::Arc;

use profiler_plan::values::Reading;
use profiler_symbolize::{Frame, FrameId};

use super::super::{
    backlog::Room,
    ending::Ending,
    lines::TracedPlace,
    picture::{Cost, Losses},
    symbols::NamedStack,
};

/// A value at a hit.
#[derive(Clone, PartialEq, Debug)]
pub struct TracedValue {
    /// The expression, as it was understood.
    pub expression: Arc<str>,
    /// The type's name; empty where it is not known.
    pub type_name: Arc<str>,
    /// What came of it.
    pub reading: Reading,
}

/// A line that was reached, or a call that ended.
#[derive(Clone, PartialEq, Debug)]
pub struct TracedHit {
    /// `CLOCK_MONOTONIC`: when the line was reached, or the call began.
    pub ts_ns: u64,
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The place, as an index of all of the trace's.
    pub place: u32,
    /// Of a call.
    pub duration_ns: Option<u64>,
    /// In the order in which they were asked for.
    pub values: Vec<TracedValue>,
    /// Of the thread, where it was asked for: at the line, or where the call began.
    pub stack: Option<Arc<NamedStack>>,
}

impl TracedHit {
    /// Memory of its values and its stack, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        bytes(&self.values, self.stack.as_deref())
    }
}

/// Memory of values and a stack, in bytes.
pub(super) fn bytes(values: &[TracedValue], stack: Option<&NamedStack>) -> usize {
    let of_value = |value: &TracedValue| size_of_val(value) + value.type_name.len() + value.reading.bytes();
    let values: usize = values.iter().map(of_value).sum();
    values + stack.map_or(0, |stack| size_of_val(stack.frames.as_slice()))
}

/// What happened since the batch before.
#[derive(Clone, Debug)]
pub struct TraceBatch {
    /// Number of the batch within its stream.
    pub seq: u64,
    /// Places that are new to the stream.
    pub places: Vec<Arc<TracedPlace>>,
    /// Frames of the hits' stacks that are new to the stream.
    pub frames: Vec<(FrameId, Frame)>,
    /// In the order in which they were seen.
    pub hits: Arc<Vec<TracedHit>>,
    /// Hits at the places since they were attached.
    pub reached: u64,
    /// Those that a condition on values rejected.
    pub rejected: u64,
    /// Those that are not shown, by reason.
    pub lost: Losses,
    /// What the kernel did not show, in whichever process, by reason: no part of `reached`.
    pub unseen: Losses,
    /// What the daemon costs.
    pub cost: Cost,
    /// What threads are called, of a recording; else whoever shows them asks the kernel.
    pub thread_names: Option<Vec<ThreadName>>,
    /// Why this is the last one.
    pub ended: Option<Ending>,
    /// Its room in the backlog until it has left.
    pub room: Option<Arc<Room>>,
}

impl TraceBatch {
    /// Memory of its hits, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let hits = self.hits.iter();
        hits.map(|hit| size_of_val(hit) + hit.bytes()).sum()
    }
}

/// What a thread was called.
#[derive(Clone, Debug)]
pub struct ThreadName {
    /// Its process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The name that it had given itself.
    pub name: String,
}
