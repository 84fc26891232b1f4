//! What can go wrong, named so that the user knows what to change.

use std::{io, path::PathBuf};

/// Every failure of the demo.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A value on the command line cannot be used.
    #[error("{0}")]
    Usage(String),
    /// The listening socket could not be made.
    #[error("cannot listen on {address}: {source}")]
    Listen { address: String, source: io::Error },
    /// The server could not be reached.
    #[error("cannot connect to {address}: {source}; is the server running there?")]
    Connect { address: String, source: io::Error },
    /// A reply was not the echo of its request.
    #[error("the reply to request {id} is not its echo")]
    NotTheEcho { id: u64 },
    /// A reply was cut short or did not come.
    #[error("no whole reply to request {id}: {source}")]
    Reply { id: u64, source: io::Error },
    /// The kernel refused something that the demo cannot do without.
    #[error("{call}: {source}")]
    System { call: &'static str, source: io::Error },
    /// The load generator that `--load` started ended with a failure.
    #[error("the load generator ended with {0}")]
    Generator(std::process::ExitStatus),
    /// A worker thread ended by a panic.
    #[error("a {0} thread panicked")]
    Panicked(&'static str),
    /// The journal could not be made, written or removed.
    #[error("the journal {}: {source}", .path.display())]
    Journal { path: PathBuf, source: io::Error },
    /// Standard output could not be written.
    #[error("cannot write to standard output: {0}")]
    Output(#[source] io::Error),
}

impl Error {
    /// The failure of the system call that has just set `errno`.
    pub fn last_os(call: &'static str) -> Self {
        Self::System {
            call,
            source: io::Error::last_os_error(),
        }
    }

    /// Whether the command line is what was wrong.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Usage(_))
    }
}
