//! Whose rights the threads of a process have: to the kernel, `setresuid` is of one thread.

use std::fs;

use super::stat::Status;

/// By what the kernel decides who may trace a thread (`__ptrace_may_access` in `kernel/ptrace.c`), but for what is the whole process's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadRights {
    /// Real, effective and saved user.
    users: [u32; 3],
    /// Real, effective and saved group.
    groups: [u32; 3],
    /// Permitted capabilities, a bit each.
    permitted: u64,
}

impl ThreadRights {
    /// Those of a thread at present; `None` where it has ended.
    #[must_use]
    pub fn of(pid: u32, tid: u32) -> Option<Self> {
        let status = Status::parse(&fs::read(format!("/proc/{pid}/task/{tid}/status")).ok()?)?;
        let [users, groups] =
            [status.users, status.groups].map(|[real, effective, saved, _]| [real, effective, saved]);
        Some(Self {
            users,
            groups,
            permitted: status.permitted,
        })
    }

    /// Those of the first thread of a process, which stand for the process where others ask for it.
    #[must_use]
    pub fn of_first(pid: u32) -> Option<Self> {
        Self::of(pid, pid)
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use super::*;

    #[test]
    fn threads_with_another_user_than_the_first_are_told_apart() {
        const USER: u32 = 65_534;
        let pid = std::process::id();
        let first = ThreadRights::of_first(pid).unwrap();
        if !rustix::process::geteuid().is_root() {
            profiler_testkit::skipped("only root takes other users' rights");
            return;
        }
        let (tell, told) = mpsc::channel();
        let (done, wait) = mpsc::channel::<()>();
        let other = thread::spawn(move || {
            let own = || u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            tell.send(ThreadRights::of(pid, own())).unwrap();
            // SAFETY: the call takes three numbers, and is of this thread alone.
            assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, USER, USER, USER) }, 0);
            tell.send(ThreadRights::of(pid, own())).unwrap();
            let _ = wait.recv();
        });
        assert_eq!(told.recv().unwrap(), Some(first.clone()));
        assert_ne!(told.recv().unwrap(), Some(first));
        drop(done);
        other.join().unwrap();
    }
}
