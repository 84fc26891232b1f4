//! What a lens asks for: nothing else reaches the service or the terminal.

use profiler_proto::v1;

use super::{Mouse, Pane, Wanted};
use crate::cli::args::{By, RecordedTime};

/// What to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A process.
    Pid(u32),
    /// Several processes.
    Pids(Vec<u32>),
    /// Every process that runs this executable.
    Exe(String),
    /// A running session of a daemon.
    Session(String),
    /// What was recorded.
    Recording(Recorded),
    /// What another tool wrote: stacks and nothing else, in the file of this path.
    Profile(String),
}

impl Target {
    /// Whether it is of processes that sessions are made of as often as wanted.
    #[must_use]
    pub fn is_of_processes(&self) -> bool {
        matches!(self, Self::Pid(_) | Self::Pids(_) | Self::Exe(_))
    }
}

/// A part of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The file.
    pub path: String,
    /// Which part; all of it by default.
    pub time: RecordedTime,
    /// Without a scope, all that was recorded is looked at, and not the recorded scope.
    pub without_scope: bool,
}

/// What the flame view is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlameView {
    /// The sides are compared.
    pub difference: bool,
    /// What frames stand for.
    pub by: By,
    /// The event that is drawn; empty for time.
    pub event: String,
}

/// Something to be done outside of the model.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// A session of a target.
    Attach {
        /// The target.
        target: Target,
        /// The scope to begin with; of a running session it is what it is.
        scope: String,
    },
    /// The session is left, and processes are listed.
    Detach,
    /// The session's scope becomes another.
    SetScope(String),
    /// The same with a scope of which the user was told that it is costly.
    SetCostlyScope(String),
    /// So many of the session's edits are taken back, the last ones.
    Undo(u32),
    /// Another flame view.
    Flame(FlameView),
    /// The source of a function or line.
    Source(String),
    /// Hits of a scope's last step, with these values; with those that are known there, if there are none.
    Hits {
        /// The scope.
        scope: String,
        /// Expressions.
        print: Vec<String>,
    },
    /// No more hits.
    NoHits,
    /// What a pane shows that has a stream of its own.
    Aside {
        /// The pane.
        pane: Pane,
        /// The scope.
        scope: String,
        /// It is that of the session on the screen.
        is_of_session: bool,
    },
    /// No such pane is shown any more.
    NoAside,
    /// What comes of the session is written into a file that begins with the screen as it is; if it is already, that ends.
    Record(Box<v1::Lens>),
    /// Sessions are made without a limit on what their probes cost.
    NoBudget,
    /// Suggestions for what is typed.
    Complete(Wanted),
    /// Text for the terminal's clipboard.
    Copy(String),
    /// The mouse is asked for, or left to the terminal.
    Mouse(Mouse),
    /// The process stops until it is told to go on.
    Suspend,
    /// The end.
    Quit,
}
