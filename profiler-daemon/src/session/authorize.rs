//! Who may look at a process: the one place that decides it.

use profiler_scope::{Place, Step};
use profiler_target::{Namespace, Standing, TargetError};

use super::{
    command::Caller,
    error::{Reason, SessionError},
    refusal::target_refusal,
};

/// Checks that a caller may look at a process: root may, and others where the kernel would let them trace it
/// (`ptrace(2)`, "Ptrace access mode checking"). What security modules forbid beyond that is not asked.
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

/// Checks that a caller may look at the process of this number as it is now.
///
/// # Errors
/// Says why it may not, or that the process is gone.
pub fn authorize_now(caller: Caller, pid: u32) -> Result<(), SessionError> {
    if caller.is_root() {
        return Ok(());
    }
    let standing = Standing::of(pid).map_err(|_| target_refusal(&TargetError::Ended(pid)))?;
    authorize(caller, pid, &standing)
}

/// Whether a caller may look at the process of this number as it is now.
#[must_use]
pub fn may_look(caller: Caller, pid: u32) -> bool {
    authorize_now(caller, pid).is_ok()
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
