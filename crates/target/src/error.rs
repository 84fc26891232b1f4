//! Why a process cannot be a target.

use std::io;

/// A process that cannot be looked at.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// No process or thread has this number.
    #[error("no process {0}: `profiler ps` lists those that can be profiled")]
    NotFound(u32),
    /// It ended: it is gone or only waits for its parent.
    #[error("process {0} has ended")]
    Ended(u32),
    /// A thread of the kernel: it runs no user code.
    #[error("process {pid} ({name}) is a kernel thread: only user processes can be targets")]
    KernelThread {
        /// Its number.
        pid: u32,
        /// Its name.
        name: String,
    },
    /// Its executable is for 32 bits (or uses 32-bit pointers).
    #[error("process {0} runs a 32-bit executable: only 64-bit x86 can be profiled")]
    Is32Bit(u32),
    /// Its executable is not for x86-64.
    #[error(
        "process {pid} runs an executable of ELF machine {machine}: only 64-bit x86 (62) can be profiled"
    )]
    OtherMachine {
        /// Its number.
        pid: u32,
        /// `e_machine` of the ELF header; 0 where the file is no ELF file.
        machine: u16,
    },
    /// The caller may not look at it.
    #[error("not permitted to {what} of process {pid}: run as root or as the process's own user")]
    NotPermitted {
        /// Its number.
        pid: u32,
        /// What was attempted.
        what: &'static str,
    },
    /// Something else went wrong with a system call.
    #[error("cannot {what} of process {pid}: {source}")]
    System {
        /// Its number.
        pid: u32,
        /// What was attempted.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

impl TargetError {
    /// Sorts the error of a system call on a process by what it says about the process.
    pub(super) fn of(pid: u32, what: &'static str, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::ENOENT | libc::ESRCH) => Self::NotFound(pid),
            Some(libc::EACCES | libc::EPERM) => Self::NotPermitted { pid, what },
            _ => Self::System { pid, what, source },
        }
    }
}
