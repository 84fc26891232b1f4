//! What can go wrong in a task, said so that the reader knows what to do next.

use std::{io, path::PathBuf, process::ExitStatus};

/// A task's result.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a task failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program could not be started at all.
    #[error("could not start `{command}` in {directory}: {source}")]
    Start {
        /// The whole command line.
        command: String,
        /// Where it was to run.
        directory: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A program ran and failed.
    #[error("`{command}` failed in {directory}: {status}{detail}")]
    Exit {
        /// The whole command line.
        command: String,
        /// Where it ran.
        directory: PathBuf,
        /// How it ended.
        status: ExitStatus,
        /// The end of what it wrote to its standard error, where that was captured.
        detail: String,
    },
    /// A file could not be read or written.
    #[error("could not {action} {path}: {source}")]
    File {
        /// The verb: read, write, create…
        action: &'static str,
        /// Which file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// Anything else, told in full by the text.
    #[error("{0}")]
    Told(String),
}

impl Error {
    /// An error told in full by its text.
    pub fn told(text: impl Into<String>) -> Self {
        Self::Told(text.into())
    }

    /// Turns an I/O error into one that names the file: `.map_err(Error::file("read", path))`.
    pub fn file(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { action, path, source }
    }
}
