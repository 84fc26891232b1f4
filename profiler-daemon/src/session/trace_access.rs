//! Whether the kernel lets a user trace a process. What it does by its own rule is known (`authorize`); what its security modules
//! forbid beyond that, it alone knows. So it is asked: a thread with the user's rights and no capabilities opens the process's
//! memory, of which the kernel decides as of a debugger that attaches (`PTRACE_MODE_ATTACH_FSCREDS` of `ptrace(2)`;
//! `proc_mem_open` in `fs/proc/base.c`).
//!
//! Neither that rule nor Yama looks at further groups of the user's: the thread has none.
//!
//! The kernel does not answer while the process is amid an exec, until the files that this closes are closed (`mm_access` in
//! `kernel/fork.c`). On a file system of the user's own, that may be never: the thread is left to itself after a while.

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc::RecvTimeoutError},
    time::Duration,
};

use super::command::Caller;

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// Questions that may be without an answer: of one user, and of all.
const MAX_OF_USER: usize = 16;
const MAX_OF_ALL: usize = 128;

/// What the kernel says.
#[derive(Debug)]
pub enum Answer {
    /// The user may trace the process.
    Allowed,
    /// The user may not.
    Forbidden,
    /// There is no such process.
    Gone,
    /// Nothing so far: the process keeps it from answering, or so many of the user's processes do that it is not asked.
    NoneYet,
    /// It is not asked: too many processes of all users keep it from answering.
    TooMany,
    /// It could not be asked.
    Failed(io::Error),
}

/// Opens a process's memory.
type Open = dyn Fn(u32) -> io::Result<()> + Send + Sync;

/// Asks the kernel who may trace a process. Cheap to clone.
#[derive(Clone)]
pub struct TraceAccess {
    /// Questions without an answer, by user.
    asked: Arc<Asked>,
    patience: Duration,
    open: Arc<Open>,
}

#[derive(Default)]
struct Asked(Mutex<BTreeMap<u32, usize>>);

/// A question, until it is answered.
struct Question {
    asked: Arc<Asked>,
    uid: u32,
}

impl Asked {
    fn by_user(&self) -> MutexGuard<'_, BTreeMap<u32, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Question {
    /// Says why not where too many are without an answer.
    fn new(asked: &Arc<Asked>, uid: u32) -> Result<Self, Answer> {
        let mut by_user = asked.by_user();
        let of_user = by_user.get(&uid).copied().unwrap_or(0);
        if of_user >= MAX_OF_USER {
            return Err(Answer::NoneYet);
        }
        if by_user.values().sum::<usize>() >= MAX_OF_ALL {
            return Err(Answer::TooMany);
        }
        by_user.insert(uid, of_user + 1);
        Ok(Self {
            asked: Arc::clone(asked),
            uid,
        })
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        let mut by_user = self.asked.by_user();
        if let Some(of_user) = by_user.get_mut(&self.uid) {
            *of_user -= 1;
            if *of_user == 0 {
                by_user.remove(&self.uid);
            }
        }
    }
}

impl Default for TraceAccess {
    fn default() -> Self {
        let open = |pid: u32| File::open(format!("/proc/{pid}/mem")).map(drop);
        Self::by(PATIENCE, open)
    }
}

impl TraceAccess {
    fn by(patience: Duration, open: impl Fn(u32) -> io::Result<()> + Send + Sync + 'static) -> Self {
        Self {
            asked: Arc::default(),
            patience,
            open: Arc::new(open),
        }
    }

    /// Whether a user may trace the process that has this number meanwhile. It may wait for seconds.
    ///
    /// A service that is not root's cannot take anybody's rights, and asks with its own.
    pub fn ask(&self, caller: Caller, pid: u32) -> Answer {
        let question = match Question::new(&self.asked, caller.uid) {
            Ok(question) => question,
            Err(why_not) => return why_not,
        };
        let open = Arc::clone(&self.open);
        let begun = caller.reader().begin(move || {
            let opened = open(pid);
            drop(question);
            opened
        });
        let answer = match begun {
            Ok(answer) => answer,
            Err(error) => return Answer::Failed(error),
        };
        match answer.recv_timeout(self.patience) {
            Ok(Ok(opened)) => opened.map_or_else(refusal, |()| Answer::Allowed),
            Ok(Err(error)) => Answer::Failed(error),
            Err(RecvTimeoutError::Timeout) => Answer::NoneYet,
            Err(RecvTimeoutError::Disconnected) => Answer::Failed(io::Error::other("it was not answered")),
        }
    }
}

/// What it means that a process's memory cannot be opened.
fn refusal(error: io::Error) -> Answer {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => Answer::Forbidden,
        Some(libc::ENOENT | libc::ESRCH) => Answer::Gone,
        _ => Answer::Failed(error),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::process::CommandExt as _,
        process::{Child, Command, Stdio},
        sync::mpsc,
    };

    use profiler_testkit::skipped;

    use super::*;

    const USER: Caller = Caller {
        uid: 61_236,
        gid: 61_237,
    };

    /// A process of a user's, until it is dropped.
    struct Sleeping(Child);

    impl Sleeping {
        fn of(caller: Caller) -> Self {
            let mut command = Command::new("sleep");
            command.arg("600").stdin(Stdio::null()).current_dir("/");
            Self(command.uid(caller.uid).gid(caller.gid).spawn().unwrap())
        }
    }

    impl Drop for Sleeping {
        fn drop(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    /// Only root can take other users' rights.
    fn is_root() -> bool {
        rustix::process::geteuid().is_root()
    }

    #[test]
    fn the_kernel_lets_users_trace_their_own_processes_and_no_others() {
        if !is_root() {
            return skipped("only root can take others' rights");
        }
        let access = TraceAccess::default();
        let own = Sleeping::of(USER);
        assert!(matches!(access.ask(USER, own.0.id()), Answer::Allowed));
        for other in [
            Caller {
                uid: USER.uid + 1,
                ..USER
            },
            Caller {
                gid: USER.gid + 1,
                ..USER
            },
        ] {
            assert!(matches!(access.ask(other, own.0.id()), Answer::Forbidden));
        }
        let of_root = Sleeping::of(Caller { uid: 0, gid: 0 });
        assert!(matches!(access.ask(USER, of_root.0.id()), Answer::Forbidden));
        let gone = own.0.id();
        drop(own);
        assert!(matches!(access.ask(USER, gone), Answer::Gone));
        assert!(access.asked.by_user().is_empty());
    }

    /// Has the calling thread look at no process that is not as confined as it is: Landlock, a security module, forbids that from
    /// then on. `false` where the kernel has it not.
    fn confine_this_thread() -> bool {
        const MAKE_BLOCK: u64 = 1 << 11;
        rustix::thread::set_no_new_privs(true).unwrap();
        let handled = MAKE_BLOCK;
        // SAFETY: the attributes live through the call, and are as long as it is told; the other takes no pointers.
        unsafe {
            let rules = libc::syscall(
                libc::SYS_landlock_create_ruleset,
                &raw const handled,
                size_of_val(&handled),
                0,
            );
            rules >= 0 && libc::syscall(libc::SYS_landlock_restrict_self, rules, 0) == 0
        }
    }

    #[test]
    fn what_a_security_module_forbids_is_forbidden() {
        if !is_root() {
            return skipped("only root can take others' rights");
        }
        let (sender, has_module) = mpsc::channel();
        let confined = TraceAccess::by(PATIENCE, move |pid| {
            sender.send(confine_this_thread()).unwrap();
            File::open(format!("/proc/{pid}/mem")).map(drop)
        });
        let own = Sleeping::of(USER);
        let answer = confined.ask(USER, own.0.id());
        if has_module.recv().unwrap() {
            assert!(matches!(answer, Answer::Forbidden), "{answer:?}");
        } else {
            skipped("this kernel has no Landlock");
        }
        // It was that thread's alone.
        let answer = TraceAccess::default().ask(USER, own.0.id());
        assert!(matches!(answer, Answer::Allowed), "{answer:?}");
    }

    #[test]
    fn a_kernel_that_does_not_answer_is_waited_for_so_long_and_not_asked_too_often() {
        let (go_on, held) = mpsc::channel::<()>();
        let held = Mutex::new(held);
        let access = TraceAccess::by(Duration::from_millis(1), move |_| {
            // Until the test is over.
            let _ = held.lock().unwrap().recv();
            Ok(())
        });
        // Without rights of others, as this is about waiting.
        let own = Caller {
            uid: rustix::process::geteuid().as_raw(),
            gid: 0,
        };
        for _ in 0..MAX_OF_USER {
            assert!(matches!(access.ask(own, 1), Answer::NoneYet));
        }
        let of_user = || access.asked.by_user().values().sum::<usize>();
        assert_eq!(of_user(), MAX_OF_USER);
        assert!(matches!(access.ask(own, 1), Answer::NoneYet));
        assert_eq!(of_user(), MAX_OF_USER, "one more has been asked");
        drop(go_on);
        while of_user() > 0 {
            std::thread::yield_now();
        }
    }
}
