//! What can go wrong between the daemon and the kernel.

use std::io;

/// An operation on the kernel that failed.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// The object could not be parsed or its maps not made.
    #[error("loading the eBPF object: {0}")]
    Load(#[from] aya::EbpfError),
    /// A program was refused.
    #[error("loading the eBPF program {program}: {source}\n{log}")]
    Program {
        /// Its name in the object.
        program: &'static str,
        /// What the system call said.
        source: io::Error,
        /// The end of the verifier's log.
        log: String,
    },
    /// A program uses so much stack that the kernel would share it between threads.
    #[error(
        "the eBPF program {program} has a function that uses {bytes} bytes of stack: this kernel would share it between threads"
    )]
    SharedStack {
        /// Its name in the object.
        program: &'static str,
        /// What its deepest function uses.
        bytes: u32,
    },
    /// A program or map of the object is missing.
    #[error("the eBPF object has no {0}: it is of another version")]
    Missing(&'static str),
    /// A program was refused by the loading library.
    #[error(transparent)]
    AyaProgram(#[from] aya::programs::ProgramError),
    /// A map operation failed.
    #[error(transparent)]
    Map(#[from] aya::maps::MapError),
    /// The object could not be parsed a second time.
    #[error("parsing the eBPF object: {0}")]
    Parse(String),
    /// The kernel's type information could not be read.
    #[error("reading the kernel's BTF: {0}. The kernel must be built with CONFIG_DEBUG_INFO_BTF")]
    Btf(String),
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        /// What was attempted.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
    /// A function of the kernel cannot be probed.
    #[error(
        "the kernel does not let its function {function} be probed: {source}. It may be one that probes themselves go through, see /sys/kernel/debug/kprobes/blacklist, or the kernel be locked down, see /sys/kernel/security/lockdown"
    )]
    KernelFunction {
        /// Its name.
        function: String,
        /// Why.
        source: io::Error,
    },
    /// All probe slots are in use.
    #[error("all {0} probe slots are in use: end another session first")]
    TooManyProbes(usize),
    /// More values are to be read at one place than can be.
    #[error("at most {0} values can be read at one place: print fewer")]
    TooManyValues(usize),
    /// No more values can be read at all places together.
    #[error(
        "all sessions together can read {of} values at their places, each of a place of a process by itself, and there is no room for {wanted} more: print fewer, narrow the scope, or end another session first"
    )]
    TooManyReads {
        /// How many all can read.
        of: usize,
        /// How many are to be read at a place.
        wanted: usize,
    },
    /// All gates are in use.
    #[error("all {0} gates between steps are in use: shorten a scope, or end another session first")]
    TooManyGates(usize),
    /// All action slots are in use.
    #[error("all {0} site slots are in use: end another session first")]
    TooManySites(usize),
}

impl KernelError {
    /// Whether there is no room for more of what all sessions share.
    #[must_use]
    pub fn is_of_room(&self) -> bool {
        matches!(
            self,
            Self::TooManyProbes(_)
                | Self::TooManyValues(_)
                | Self::TooManyReads { .. }
                | Self::TooManyGates(_)
                | Self::TooManySites(_)
        )
    }

    /// Wraps a system call's error.
    pub fn system(what: impl Into<String>, source: io::Error) -> Self {
        Self::System {
            what: what.into(),
            source,
        }
    }

    /// Whether the kernel refused for want of a privilege.
    #[must_use]
    pub fn is_permission(&self) -> bool {
        let code = match self {
            Self::System { source, .. }
            | Self::Program { source, .. }
            | Self::KernelFunction { source, .. } => source.raw_os_error(),
            Self::Load(error) => os_error(error),
            Self::AyaProgram(error) => os_error(error),
            Self::Map(error) => os_error(error),
            _ => None,
        };
        match code {
            Some(libc::EPERM) => true,
            // Of a program, that is the verifier's word for a bad access.
            Some(libc::EACCES) => !matches!(
                self,
                Self::Program { .. } | Self::AyaProgram(aya::programs::ProgramError::LoadError { .. })
            ),
            _ => false,
        }
    }

    /// Whether the process that was meant is gone, or has unmapped the file that was.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::System { source, .. } if source.kind() == io::ErrorKind::NotFound)
            || os_error(self) == Some(libc::ESRCH)
    }
}

/// The system's error number at the root of an error's causes.
fn os_error(error: &(dyn std::error::Error + 'static)) -> Option<i32> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            return io.raw_os_error();
        }
        cause = error.source();
    }
    None
}
