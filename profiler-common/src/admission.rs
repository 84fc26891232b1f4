//! Which state of a process may be looked at.
//!
//! Programs are attached to a process, and it may become another one under them: by an exec of a program with more rights, by a
//! call that changes its users, by its end and the reuse of its number. So each program compares the thread that it runs for
//! with what the process was when somebody was allowed to look at it, before it reads anything.

use crate::assert_layout;

/// One program in one process: its number, this, and nothing else of the machine is the same.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Image {
    /// When the process began (`start_boottime` of its first thread), in nanoseconds since boot.
    pub start_ns: u64,
    /// How often it has exec'd (`self_exec_id`), counting from some number.
    pub execs: u64,
    /// Address of its memory's description (`mm_struct`). An exec changes this first, and the users behind it.
    pub memory: u64,
}

assert_layout!(Image, size 24, start_ns at 0, execs at 8, memory at 16);

/// What the kernel tells by whether a user may trace a process (`__ptrace_may_access` in `kernel/ptrace.c`).
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Rights {
    /// Address of the user namespace that it has capabilities in.
    pub user_namespace: u64,
    /// Permitted capabilities, a bit each.
    pub permitted: u64,
    /// Real user, in the initial user namespace, as all of these.
    pub user: u32,
    /// Effective user.
    pub effective_user: u32,
    /// Saved user.
    pub saved_user: u32,
    /// Real group.
    pub group: u32,
    /// Effective group.
    pub effective_group: u32,
    /// Saved group.
    pub saved_group: u32,
    /// Whether others than root may read its memory: [`Rights::DUMPABLE`] and others.
    pub dumpable: u32,
    /// 0.
    pub zero: u32,
}

impl Rights {
    /// The bits that say it, in a word of the kernel's (`MMF_DUMPABLE_MASK` in `include/linux/sched/coredump.h`; since Linux 7.2
    /// a number of its own, with the same values).
    pub const DUMPABLE_MASK: u32 = 3;
    /// Its owner may (`SUID_DUMP_USER`).
    pub const DUMPABLE: u32 = 1;
}

assert_layout!(Rights, size 48,
    user_namespace at 0, permitted at 8, user at 16, effective_user at 20, saved_user at 24, group at 28,
    effective_group at 32, saved_group at 36, dumpable at 40, zero at 44);

/// A process that may be looked at, while it is as it was.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Admission {
    /// The program.
    pub image: Image,
    /// Its rights.
    pub rights: Rights,
    /// [`Admission::OPEN`] and others.
    pub flags: u64,
    /// Times that a program was at a thread of the process which was not as it was.
    pub refused: u64,
    /// The signal that has ended the process; 0 while it runs, and of one that exits.
    pub ended_by: u64,
    /// Processes that it has begun with a copy of its memory, and so of the breakpoints in its code.
    pub children: u64,
}

impl Admission {
    /// It may be looked at. Without this, the process is one that is asked about.
    pub const OPEN: u64 = 1;
    /// Whatever program it runs by now, and with whatever rights: those who look at it may look at every process, so that nothing
    /// has to be left out where it execs.
    pub const ANY_RIGHTS: u64 = 2;
}

assert_layout!(Admission, size 104, image at 0, rights at 24, flags at 72, refused at 80,
    ended_by at 88, children at 96);

/// What a process is now: what the iterator over threads writes of each that is asked about.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ProcessState {
    /// Its number in the initial PID namespace.
    pub tgid: u32,
    /// User that owns its user namespace, in the initial one.
    pub namespace_owner: u32,
    /// How deep that namespace is: 0 for the initial one.
    pub namespace_level: u32,
    /// 0.
    pub zero: u32,
    /// Address of its first thread's description (`task_struct`). Where another thread execs, that takes the first one's place and
    /// number; links that are of the process are of the thread that is gone.
    pub first_thread: u64,
    /// The program.
    pub image: Image,
    /// Its rights.
    pub rights: Rights,
}

assert_layout!(ProcessState, size 96,
    tgid at 0, namespace_owner at 4, namespace_level at 8, zero at 12, first_thread at 16, image at 24, rights at 48);
