//! Why a request to a session failed, in a form that survives the wire.

use super::ending::Ending;

/// What kind of failure it is. Clients decide by it; the message is for people.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The scope's text is not a scope. Metadata: `scope`, `offset`.
    ScopeInvalid,
    /// An argument is out of its range.
    ArgumentInvalid,
    /// There is no such process.
    TargetNotFound,
    /// The process ended meanwhile.
    TargetGone,
    /// The process is a kernel thread.
    TargetIsKernelThread,
    /// The process runs 32-bit code.
    TargetIs32Bit,
    /// The process's files have no function names.
    TargetStripped,
    /// No function of that name. Metadata: `nearest`.
    FunctionNotFound,
    /// No such source file or line, or the line has no code. Metadata: `nearest`.
    LineNotFound,
    /// The kernel has no such place, or the place no such field. Metadata: `nearest`.
    PlaceNotFound,
    /// Several source files have such a path. Metadata: `nearest`.
    FileAmbiguous,
    /// No counter of that name, or none that this machine has. Metadata: `nearest`.
    CounterNotFound,
    /// An expression is none. Metadata: `expression`, `offset`.
    ExpressionInvalid,
    /// A condition on a value cannot be decided.
    ConditionRefused,
    /// An expression can be read nowhere that it is asked for.
    ExpressionRefused,
    /// The function has no code of its own: it is inlined everywhere.
    FunctionOnlyInlined,
    /// The function is an indirect one, chosen when the program is linked.
    FunctionIsIfunc,
    /// The function's code cannot be probed safely.
    FunctionNotProbeable,
    /// A glob matched more functions than may be probed at once. Metadata: `matched`, `limit`.
    TooManyFunctions,
    /// The caller may not look at this process or session.
    PermissionDenied,
    /// The daemon lacks a privilege. Metadata: `capability`.
    CapabilityMissing,
    /// A session of that name exists.
    SessionExists,
    /// There is no session of that name. Metadata of [one that has ended](SessionError::ended): `end_cause`, `end_reason`, `end_signal`.
    SessionNotFound,
    /// There is none any more: it has ended, as its probes took more of the target's CPU time than they may.
    /// Metadata: as before.
    SessionOverBudget,
    /// There is no watch of that name.
    WatchNotFound,
    /// The scope was changed by somebody else at the same time.
    ScopeChanged,
    /// A bound of the daemon is reached.
    LimitReached,
    /// The daemon is stopping.
    Stopping,
    /// The kernel refused something that it should not have.
    Kernel,
}

/// A request that failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct SessionError {
    /// What kind of failure it is.
    pub reason: Reason,
    /// A sentence for people: what was wrong, where, what to do.
    pub message: String,
    /// Details for programs, by name.
    pub metadata: Vec<(&'static str, String)>,
    /// How the session has ended that was asked for, where that is the reason.
    pub ended: Option<Ending>,
}

impl SessionError {
    /// A failure without details.
    #[must_use]
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            metadata: Vec::new(),
            ended: None,
        }
    }

    /// Adds a detail.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.metadata.push((name, value.into()));
        self
    }
}
