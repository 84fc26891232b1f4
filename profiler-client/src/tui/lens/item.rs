//! What can be selected, by what it is and not by where it stands: rows move as numbers do.

use super::{FrameId, Pane};

/// A line of the source that is shown.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LineId {
    /// Path of its file.
    pub file: String,
    /// Counted from 1.
    pub line: u32,
}

/// What was in a thread at a time: a hit, or the beginning of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MomentId {
    /// When it was, on the kernel's clock.
    pub ts_ns: u64,
    /// The thread that it was in.
    pub tid: u32,
}

/// Durations, as a bar of a histogram has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Band {
    /// The shortest, in nanoseconds.
    pub from_ns: u64,
    /// Those of it are shorter than this, in nanoseconds.
    pub below_ns: u64,
}

impl Band {
    /// That of both, with what lies between them.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            from_ns: self.from_ns.min(other.from_ns),
            below_ns: self.below_ns.max(other.below_ns),
        }
    }

    /// Whether it has a duration.
    #[must_use]
    pub const fn has(self, ns: u64) -> bool {
        self.from_ns <= ns && ns < self.below_ns
    }
}

/// A loss, as a view counts it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LossId {
    /// Why.
    pub reason: String,
    /// Of which view.
    pub view: &'static str,
}

/// What is selected on a screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A session of the daemon, by its name.
    Session(String),
    /// A process, by its number.
    Process(u32),
    /// A function.
    Function(FrameId),
    /// A box of the flame graph: the frames from the root to it. None for all.
    Stack(Vec<FrameId>),
    /// A line.
    Line(LineId),
    /// A hit.
    Hit(MomentId),
    /// A call, by its beginning.
    Call(MomentId),
    /// What slow calls do, in words of a scope.
    Finding(String),
    /// A bar of the histogram.
    Bar(Band),
    /// Threads, by patterns of their names.
    Threads(String),
    /// A counter or ratio of counters over time, as it is called.
    Counter(String),
    /// A function with probes, by its number in the session.
    Probed(u32),
    /// What was lost.
    Loss(LossId),
    /// A node of the tree of waits, by the way to it.
    Wait(String),
    /// A system call, by its name.
    SystemCall(String),
}

/// What can be pointed at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spot {
    /// A pane, by its tab.
    Pane(Pane),
    /// What can be selected.
    Item(Item),
    /// A value of a hit.
    Value {
        /// The hit.
        hit: MomentId,
        /// Its expression.
        expression: String,
    },
}

/// Who has the mouse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mouse {
    /// It selects here.
    #[default]
    Here,
    /// The terminal has it, and selects text.
    OfTerminal,
}
