//! Who may look at a process: the one place that decides it.

use std::{fs, io};

use profiler_scope::{Place, Step};
use profiler_target::{Namespace, Process, Standing, TargetError};

use super::{
    command::Caller,
    error::{Reason, SessionError},
    refusal::target_refusal,
    trace_access::{Answer, TraceAccess},
};

/// Yama's setting, in kernels that have this security module (`Documentation/admin-guide/LSM/Yama.rst`).
const PTRACE_SCOPE: &str = "/proc/sys/kernel/yama/ptrace_scope";

/// From this value of it on, a user may trace nothing.
const FOR_ROOT_ALONE: u32 = 2;

/// Checks that a caller may look at a process by the kernel's own rule: root may, and others where the kernel would let them
/// trace it (`ptrace(2)`, "Ptrace access mode checking"). What security modules forbid beyond that, [`authorize_asking`] asks.
///
/// # Errors
/// Says why it may not, and who may.
pub fn authorize(caller: Caller, pid: u32, standing: &Standing) -> Result<(), SessionError> {
    if caller.is_root() {
        return Ok(());
    }
    let refuse = |why: String, role: &'static str| {
        let message = format!("process {pid} {why}");
        Err(SessionError::new(Reason::PermissionDenied, message).with("role", role))
    };
    let Caller { uid, gid } = caller;
    if let Some(other) = standing.users.other_than(uid) {
        let owner = standing.users.real;
        if owner != uid {
            let why = format!("belongs to user {owner}, you are user {uid}: ask its owner or root");
            return refuse(why, "owner");
        }
        let why = format!("was started by you, but runs as user {other} or can switch to it: ask root");
        return refuse(why, "root");
    }
    if let Some(other) = standing.groups.other_than(gid) {
        let why = format!("has the rights of group {other}, you are in group {gid}: ask root");
        return refuse(why, "root");
    }
    // To processes of another user namespace the owner of that has all capabilities, and nobody else of this one any.
    match standing.namespace {
        Namespace::Own => {}
        Namespace::MadeBy(owner) if owner == uid => {}
        Namespace::MadeBy(owner) => {
            let why = format!("is in a user namespace of user {owner}, you are user {uid}: ask root");
            return refuse(why, "root");
        }
        Namespace::Nested => {
            let why = "is in a nested user namespace, whose owner is not known: ask root";
            return refuse(why.to_owned(), "root");
        }
    }
    if standing.permitted != 0 && standing.namespace == Namespace::Own {
        return refuse(
            "has capabilities that you do not have: ask root".to_owned(),
            "root",
        );
    }
    if !standing.dumpable {
        let why = "does not let its memory be read (PR_SET_DUMPABLE in prctl(2)): its file is setuid, has capabilities or cannot be read, or it gave up privileges: ask root";
        return refuse(why.to_owned(), "root");
    }
    Ok(())
}

/// Checks that a caller may look at a process as it is now: by the kernel's own rule, which says why not, and then by what its
/// security modules say. It may wait for seconds.
///
/// # Errors
/// Says why it may not, and who may; or that the process is gone.
pub fn authorize_asking(caller: Caller, process: &Process, access: &TraceAccess) -> Result<(), SessionError> {
    let pid = process.pid();
    let by_rule = || {
        let standing = process.standing_now().map_err(|error| target_refusal(&error))?;
        authorize(caller, pid, &standing)
    };
    by_rule()?;
    if caller.is_root() {
        return Ok(());
    }
    // Who is refused whatever it is need not be looked at.
    let scope = ptrace_scope();
    if scope.is_some_and(|scope| scope >= FOR_ROOT_ALONE) {
        return Err(forbidden_by_module(pid, scope));
    }
    match access.ask(caller, pid) {
        // What was said is of this process if it still lives.
        _ if !process.is_alive() => Err(target_refusal(&TargetError::Ended(pid))),
        Answer::Allowed => Ok(()),
        Answer::Gone => Err(target_refusal(&TargetError::Ended(pid))),
        Answer::Forbidden => {
            // It may have become another program meanwhile.
            by_rule()?;
            Err(forbidden_by_module(pid, scope))
        }
        Answer::NoneYet => {
            let message = format!(
                "the kernel does not say whether you may trace process {pid} while it, or other processes of yours, start other \
                 programs (execve): try again"
            );
            Err(SessionError::new(Reason::LimitReached, message))
        }
        Answer::TooMany => {
            let message = format!(
                "the kernel is not asked whether you may trace process {pid}: too many other users' processes keep it from answering \
                 while they start programs (execve): try again later, or ask root"
            );
            Err(SessionError::new(Reason::LimitReached, message))
        }
        Answer::Failed(error) => {
            let needs = if error.kind() == io::ErrorKind::PermissionDenied {
                ", which takes CAP_SETUID and CAP_SETGID"
            } else {
                ""
            };
            let message = format!(
                "asking the kernel with your rights whether you may trace process {pid}{needs}: {error}: try again, or ask root"
            );
            Err(SessionError::new(Reason::Kernel, message).with("role", "root"))
        }
    }
}

/// Yama's setting; `None` where the kernel has no Yama.
fn ptrace_scope() -> Option<u32> {
    fs::read_to_string(PTRACE_SCOPE).ok()?.trim().parse().ok()
}

/// That a security module forbids what the kernel's own rule allows.
fn forbidden_by_module(pid: u32, ptrace_scope: Option<u32>) -> SessionError {
    let message = match ptrace_scope {
        None | Some(0) => {
            format!(
                "a security module of the kernel forbids you to trace process {pid}, which is yours: ask root"
            )
        }
        Some(scope) => {
            let who = if scope == 1 {
                "a program trace none but those that it has started"
            } else {
                "nobody but root trace any process"
            };
            // What forbids everything can be set back by nobody.
            let or_else = if scope < 3 {
                format!("ask root, or set {PTRACE_SCOPE} to 0")
            } else {
                "ask root".to_owned()
            };
            format!(
                "process {pid} is yours, but the kernel's ptrace_scope is {scope}, which lets {who}: {or_else}"
            )
        }
    };
    SessionError::new(Reason::PermissionDenied, message).with("role", "root")
}

/// Whether a caller may look at the process of this number as it is now, by the kernel's own rule: what security modules forbid
/// is said where it is looked at, and not hidden from lists.
#[must_use]
pub fn may_look(caller: Caller, pid: u32) -> bool {
    caller.is_root() || Standing::of(pid).is_ok_and(|standing| authorize(caller, pid, &standing).is_ok())
}

/// Checks that a caller may be shown what these steps show, whatever process reaches them.
///
/// # Errors
/// Says which may not, and who may.
pub fn authorize_steps<'a>(
    caller: Caller,
    steps: impl IntoIterator<Item = &'a Step>,
) -> Result<(), SessionError> {
    let shows_others =
        |step: &&Step| matches!(step.place, Place::Tracepoint { .. } | Place::KernelFunction(_));
    if caller.is_root() {
        return Ok(());
    }
    let Some(step) = steps.into_iter().find(shows_others) else {
        return Ok(());
    };
    let what = match step.place {
        Place::Tracepoint { .. } => "tracepoint records",
        _ => "parameters of kernel functions",
    };
    let message = format!(
        "{}: {what} can expose kernel and other users' data: only root may trace it",
        step.place
    );
    Err(SessionError::new(Reason::PermissionDenied, message).with("role", "root"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use profiler_target::Ids;

    const CALLER: Caller = Caller { uid: 1000, gid: 100 };

    fn same(id: u32) -> Ids {
        Ids {
            real: id,
            effective: id,
            saved: id,
        }
    }

    fn own() -> Standing {
        Standing {
            users: same(1000),
            groups: same(100),
            permitted: 0,
            dumpable: true,
            namespace: Namespace::Own,
        }
    }

    fn refusal(standing: &Standing) -> String {
        authorize(CALLER, 7, standing).unwrap_err().to_string()
    }

    #[test]
    fn a_user_may_look_at_own_processes_and_root_at_all() {
        authorize(CALLER, 7, &own()).unwrap();
        let in_own_namespace = Standing {
            permitted: u64::MAX,
            namespace: Namespace::MadeBy(1000),
            ..own()
        };
        authorize(CALLER, 7, &in_own_namespace).unwrap();
        let root = Caller { uid: 0, gid: 0 };
        let closed = Standing {
            dumpable: false,
            users: same(5),
            ..own()
        };
        authorize(root, 7, &closed).unwrap();
    }

    #[test]
    fn which_security_module_forbids_it_is_said() {
        for (scope, says) in [
            (
                None,
                "a security module of the kernel forbids you to trace process 7, which is yours: ask root",
            ),
            (Some(0), "a security module of the kernel forbids"),
            (
                Some(1),
                "process 7 is yours, but the kernel's ptrace_scope is 1, which lets a program trace none but those that it has \
                 started: ask root, or set /proc/sys/kernel/yama/ptrace_scope to 0",
            ),
            (
                Some(2),
                "lets nobody but root trace any process: ask root, or set",
            ),
            (
                Some(3),
                "ptrace_scope is 3, which lets nobody but root trace any process: ask root",
            ),
        ] {
            let error = forbidden_by_module(7, scope);
            assert_eq!(error.reason, Reason::PermissionDenied);
            assert!(error.message.contains(says), "{error}");
            assert_eq!(error.message.contains("set /proc"), matches!(scope, Some(1 | 2)));
        }
    }

    #[test]
    fn any_right_beyond_the_callers_own_is_refused_and_named() {
        let with_user = |real, effective, saved| Standing {
            users: Ids {
                real,
                effective,
                saved,
            },
            ..own()
        };
        for (standing, says) in [
            (with_user(0, 0, 0), "belongs to user 0"),
            (with_user(1001, 1000, 1000), "belongs to user 1001"),
            (with_user(1000, 0, 0), "runs as user 0"),
            (with_user(1000, 1000, 0), "runs as user 0"),
            (
                Standing {
                    groups: Ids {
                        effective: 42,
                        ..same(100)
                    },
                    ..own()
                },
                "rights of group 42, you are in group 100",
            ),
            (
                Standing {
                    groups: same(7),
                    ..own()
                },
                "rights of group 7",
            ),
            (
                Standing {
                    permitted: 1,
                    ..own()
                },
                "has capabilities",
            ),
            (
                Standing {
                    namespace: Namespace::MadeBy(1001),
                    ..own()
                },
                "is in a user namespace of user 1001",
            ),
            (
                Standing {
                    namespace: Namespace::Nested,
                    ..own()
                },
                "is in a nested user namespace",
            ),
            (
                Standing {
                    dumpable: false,
                    ..own()
                },
                "does not let its memory be read",
            ),
        ] {
            let message = refusal(&standing);
            assert!(message.contains(says) && message.contains("ask"), "{message}");
        }
    }
}
