//! Records whose addresses have names, and what of them is wanted.

use std::sync::Arc;

use profiler_aggregate::{ThreadId, waits::Lock};
use profiler_common::record::{SpanEnd, SpanRef, Weight};
use profiler_symbolize::{FrameId, FrameTable, Grouping, Groupings, Stacks, Symbolizer};

use super::{dropped::Content, wakers::NamedWait};
use crate::kernel::{Activity, CallNumber, Hit, Key, ReturnedCall};

/// What is wanted of records.
#[derive(Clone, Copy, Default)]
pub struct Wanted {
    /// What frames stand for.
    pub groupings: Groupings,
    /// Samples of intervals off the CPU, and not only who ended these.
    pub samples: bool,
    /// What threads wait for in memory with these.
    pub locks: bool,
    /// What threads and processes are called, with each sample.
    pub tasks: bool,
}

impl Wanted {
    /// Whether threads or processes are shown by their names.
    pub fn names_tasks(self) -> bool {
        self.names_threads() || self.groupings.contain(Grouping::Process)
    }

    /// Whether threads are, and not processes alone.
    pub(super) fn names_threads(self) -> bool {
        self.tasks || self.groupings.contain(Grouping::Thread)
    }
}

impl FromIterator<Self> for Wanted {
    fn from_iter<I: IntoIterator<Item = Self>>(all: I) -> Self {
        all.into_iter().fold(Self::default(), |mut wanted, more| {
            wanted.groupings.extend(more.groupings.iter());
            wanted.samples |= more.samples;
            wanted.locks |= more.locks;
            wanted.tasks |= more.tasks;
            wanted
        })
    }
}

/// A record whose addresses have names.
pub enum Named {
    /// A sample.
    Sample {
        /// The event that it was taken at, by [`crate::kernel::SampledEvent::id`]; 0 of time.
        event: u32,
        tgid: u32,
        tid: u32,
        /// When it was taken; of time off the CPU its end.
        ts_ns: u64,
        /// When the interval ended that it is a part of; when it was taken, where it is of none.
        until_ns: u64,
        /// Nanoseconds, or a number of events.
        weight: u64,
        /// What it was about.
        key: Key,
        /// What the thread did in that time.
        activity: Activity,
        /// Sample count: 1, or 0 for a continuation of the previous sample.
        count: u64,
        spans: Vec<SpanRef>,
        stacks: Stacks,
        /// Whether it reaches a known root.
        complete: bool,
        /// It is of time that had not ended, and known to the session that ends then alone.
        goes_on: bool,
        /// What the thread waited for in memory, where that is wanted.
        lock: Option<Lock>,
        /// The system call that it left the CPU in.
        system_call: Option<CallNumber>,
        /// What it is called, where that is wanted.
        task: Option<Task>,
    },
    /// What a sample before stands for.
    Weight(Weight),
    /// The end of a span.
    SpanEnd(SpanEnd),
    /// A system call that has returned in open spans.
    SystemCall(ReturnedCall),
    /// A line was reached.
    Hit(NamedHit),
    /// An interval off the CPU, and who ended it; its samples follow.
    Wait(Box<NamedWait>),
    /// The stack that system calls were made from.
    Caller {
        id: u64,
        stacks: Stacks,
        /// When names may be missing, as a process or a file system did not answer or the process has ended: `CLOCK_MONOTONIC`.
        unanswered_ns: Option<u64>,
    },
}

/// What a thread is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Task {
    pub thread: FrameId,
    /// Its process's command line.
    pub process: FrameId,
}

impl Task {
    pub(super) fn of(symbolizer: &mut Symbolizer, ThreadId { tgid, tid }: ThreadId, now_ns: u64) -> Self {
        Self {
            thread: symbolizer.thread(tgid, tid, now_ns),
            process: symbolizer.process(tgid, now_ns),
        }
    }
}

/// A line that was reached, and the stack of the thread there, where that was asked for.
#[derive(Clone)]
pub struct NamedHit {
    pub hit: Hit,
    pub stack: Option<Arc<NamedStack>>,
}

/// A stack at the lines that ran.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamedStack {
    /// Root first.
    pub frames: Vec<FrameId>,
    /// Whether it reaches a known root.
    pub complete: bool,
}

/// Records that came together.
pub struct NamedBatch {
    pub records: Vec<Named>,
    /// Records that it could not name.
    pub(super) lost: Content,
    /// All frames by then.
    pub frames: FrameTable,
}
