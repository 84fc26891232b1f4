//! Turns refusals of planning, target and kernel into errors for a client.

use profiler_plan::{ModuleIndex, PlanError, only_inlined};
use profiler_scope::{Name, ScopeError};
use profiler_target::{Process, TargetError, is_running};

use super::{
    error::{Reason, SessionError},
    files::TargetFile,
};
use crate::kernel::KernelError;

/// Why a process cannot be a target.
pub fn target_refusal(error: &TargetError) -> SessionError {
    let reason = match error {
        TargetError::NotFound(_) => Reason::TargetNotFound,
        TargetError::Ended(_) => Reason::TargetGone,
        TargetError::KernelThread { .. } => Reason::TargetIsKernelThread,
        TargetError::Is32Bit(_) | TargetError::OtherMachine { .. } => Reason::TargetIs32Bit,
        TargetError::NotPermitted { .. } => Reason::PermissionDenied,
        TargetError::System { .. } => Reason::Kernel,
    };
    SessionError::new(reason, error.to_string())
}

/// Why a text is no scope, and where in it.
pub fn scope_refusal(error: &ScopeError) -> SessionError {
    SessionError::new(Reason::ScopeInvalid, error.message.clone())
        .with("scope", error.text.clone())
        .with("offset", error.offset.to_string())
}

/// Why a process's files cannot be read: it is gone, or they may not be.
pub fn gone_or(process: &Process, what: &str, error: &std::io::Error) -> SessionError {
    if process.is_alive() {
        SessionError::new(
            Reason::PermissionDenied,
            format!("process {}: {what}: {error}", process.pid()),
        )
    } else {
        SessionError::new(Reason::TargetGone, format!("process {} has ended", process.pid()))
    }
}

/// Why probes were not attached to processes: one of them has ended, has unmapped what was to be probed, or the kernel refuses.
pub fn attach_refusal(error: &KernelError, pids: &[u32]) -> SessionError {
    // Where one has ended meanwhile, the kernel says that a file is missing.
    if let Some(pid) = pids.iter().find(|pid| !is_running(**pid)) {
        return target_refusal(&TargetError::Ended(*pid));
    }
    let refused = kernel_refusal(error);
    if !error.is_gone() {
        return refused;
    }
    let message = format!(
        "a process has changed what it has mapped since its files were read, as by dlclose or execve, and none of them has ended: try \
         again ({})",
        refused.message
    );
    SessionError::new(refused.reason, message)
}

/// Why there is nothing to probe. Only where no function has the name, debug information is read: it may
/// know the name of one that exists only inlined.
pub fn plan_refusal(process: &Process, files: &[TargetFile], name: &Name, error: PlanError) -> SessionError {
    let error = match error {
        PlanError::NoSuchFunction { .. } => {
            let modules: Vec<&ModuleIndex> = files.iter().map(|file| &file.known.index).collect();
            only_inlined(name, &modules).unwrap_or(error)
        }
        error => error,
    };
    let message = error.to_string();
    match error {
        PlanError::NoSuchFunction {
            nearest, stripped, ..
        } => {
            let is_nameless = |file: &TargetFile| file.known.index.is_empty() && nearest.is_empty();
            let lacks_names = |file: &&TargetFile| stripped || is_nameless(file);
            let Some(executable) = files.first().filter(lacks_names) else {
                let refused = SessionError::new(Reason::FunctionNotFound, message);
                return refused.with("nearest", nearest.join(","));
            };
            let (name_of_file, remedy) = (executable.shown.rsplit('/').next(), executable.remedy());
            let instead = format!(
                "{remedy}; without it, a function can be named by its address: `profiler functions -p {} '{}+0x*'` lists them",
                process.pid(),
                name_of_file.unwrap_or_default()
            );
            let refused = if is_nameless(executable) {
                SessionError::new(
                    Reason::TargetStripped,
                    format!(
                        "no function is called {name}: the executable of process {} is stripped and has no function names; \
                         {instead}",
                        process.pid()
                    ),
                )
            } else {
                let refused = SessionError::new(Reason::FunctionNotFound, format!("{message}; {instead}"));
                refused.with("nearest", nearest.join(","))
            };
            remedy.with_details(refused)
        }
        PlanError::NoFunctionAt { .. } => SessionError::new(Reason::FunctionNotFound, message),
        PlanError::OnlyInlined { .. } => SessionError::new(Reason::FunctionOnlyInlined, message),
        PlanError::Indirect(_) => SessionError::new(Reason::FunctionIsIfunc, message),
        PlanError::TooMany { found, limit, .. } => SessionError::new(Reason::TooManyFunctions, message)
            .with("matched", found.to_string())
            .with("limit", limit.to_string()),
        PlanError::Unusable(_) => SessionError::new(Reason::FunctionNotProbeable, message),
    }
}

/// What the kernel refused, said to a client.
pub fn kernel_refusal(error: &KernelError) -> SessionError {
    let reason = match error {
        KernelError::TooManyProbes(_)
        | KernelError::TooManySites(_)
        | KernelError::TooManyValues(_)
        | KernelError::TooManyReads { .. }
        | KernelError::TooManyGates(_) => Reason::LimitReached,
        error if error.is_permission() => Reason::CapabilityMissing,
        KernelError::KernelFunction { .. } => Reason::FunctionNotProbeable,
        error if error.is_gone() => Reason::TargetGone,
        _ => Reason::Kernel,
    };
    SessionError::new(reason, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_a_living_process_has_unmapped_is_no_end_of_it() {
        let own = std::process::id();
        let unmapped = || KernelError::system("attaching", std::io::ErrorKind::NotFound.into());
        let refused = attach_refusal(&unmapped(), &[own]);
        assert_eq!(refused.reason, Reason::TargetGone);
        assert!(refused.message.contains("try again (attaching: "), "{refused}");
        assert!(!refused.message.contains("process has ended"), "{refused}");
        // No process has so high a number.
        let refused = attach_refusal(&unmapped(), &[own, 1 << 30]);
        assert_eq!(
            refused.message,
            target_refusal(&TargetError::Ended(1 << 30)).message
        );
        let other = attach_refusal(&KernelError::TooManyProbes(3), &[own]);
        assert_eq!(other.reason, Reason::LimitReached);
    }
}
