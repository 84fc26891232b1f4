//! How a command ends: its exit status, and what it says where it failed.

use std::process::ExitCode;

use crate::failure::{Failure, FailureClass};

/// The exit statuses that scripts may rely on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum ExitStatus {
    /// Done.
    Done = 0,
    /// It failed for another reason.
    Failed = 1,
    /// The command line or the scope is wrong.
    Usage = 2,
    /// No such target, function, line or session.
    NotFound = 3,
    /// Not permitted.
    NotPermitted = 4,
    /// A signal ended the target while it was looked at; what came before that is shown.
    TargetKilled = 5,
}

impl From<ExitStatus> for ExitCode {
    fn from(status: ExitStatus) -> Self {
        Self::from(status as u8)
    }
}

impl From<FailureClass> for ExitStatus {
    fn from(class: FailureClass) -> Self {
        match class {
            // As `head` expects of its feeders.
            FailureClass::ClosedPipe => Self::Done,
            FailureClass::Failed => Self::Failed,
            FailureClass::Usage => Self::Usage,
            FailureClass::NotFound => Self::NotFound,
            FailureClass::NotPermitted => Self::NotPermitted,
            FailureClass::TargetKilled => Self::TargetKilled,
        }
    }
}

/// Says what went wrong on standard error.
#[must_use]
pub fn report(failure: &Failure) -> ExitCode {
    if !failure.message.is_empty() {
        crate::output::note(&failure.message);
    }
    ExitStatus::from(failure.class).into()
}
