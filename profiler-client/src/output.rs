//! Where results go: stdout, or a file that is there in full or not at all.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, IsTerminal as _, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use tempfile::NamedTempFile;

use crate::{cli::exit::Failure, render::escape::terminal};

/// A place for a result, opened before the run so that nothing is lost at its end.
#[derive(Debug)]
pub enum Output {
    /// Standard output.
    Stdout,
    /// A file that takes the place of `path` when all of it is written.
    File {
        /// Where the file will be.
        path: PathBuf,
        /// Beside it, until then; removed if nothing comes of it.
        temporary: NamedTempFile,
    },
    /// A device or a pipe, which cannot be replaced.
    Special {
        /// Its name.
        path: PathBuf,
        /// It.
        file: File,
    },
}

impl Output {
    /// Opens it.
    ///
    /// # Errors
    ///
    /// Where nothing can be written there.
    pub fn open(path: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = path else { return Ok(Self::Stdout) };
        let failed = |error: io::Error| Failure::writing(&path.to_string_lossy(), &error);
        // What a symbolic link points at is replaced, not the link.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        match fs::metadata(&path) {
            Ok(metadata) if metadata.is_dir() => return Err(failed(io::ErrorKind::IsADirectory.into())),
            Ok(metadata) if !metadata.is_file() => {
                let file = OpenOptions::new().write(true).open(&path).map_err(failed)?;
                return Ok(Self::Special { path, file });
            }
            Ok(_) => {
                OpenOptions::new().write(true).open(&path).map_err(failed)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let temporary = tempfile::Builder::new()
            .prefix(".profiler-")
            // Less the umask, as other programs' files.
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(directory)
            .map_err(failed)?;
        Ok(Self::File { path, temporary })
    }

    /// Writes all of it.
    ///
    /// # Errors
    ///
    /// A full disk and the like; a file that was there before is then unchanged. A reader that has
    /// gone is a failure without a message.
    pub fn write(self, content: &str) -> Result<(), Failure> {
        match self {
            Self::Stdout => stdout(content),
            Self::Special { path, mut file } => file
                .write_all(content.as_bytes())
                .map_err(|error| Failure::writing(&path.to_string_lossy(), &error)),
            Self::File { path, mut temporary } => {
                let failed = |error: io::Error| Failure::writing(&path.to_string_lossy(), &error);
                temporary.write_all(content.as_bytes()).map_err(failed)?;
                temporary.as_file().sync_all().map_err(failed)?;
                temporary.persist(&path).map_err(|error| failed(error.error))?;
                Ok(())
            }
        }
    }
}

/// Writes to standard output at once.
///
/// # Errors
///
/// A full disk and the like; a reader that has gone is a failure without a message.
pub fn stdout(content: impl AsRef<[u8]>) -> Result<(), Failure> {
    // A pipe that nobody reads blocks, and so does a terminal that was stopped with Ctrl-S: the tasks
    // that listen to signals and end the session must not wait behind it.
    tokio::task::block_in_place(|| {
        let mut stdout = io::stdout().lock();
        stdout.write_all(content.as_ref())?;
        stdout.flush()
    })
    .map_err(|error| Failure::writing("to standard output", &error))
}

/// Writes a note for the user to standard error, whose loss is no failure.
pub fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "profiler: {text}");
}

/// The same while a [`Progress`] may be shown, in its place; it comes back below.
pub fn note_amid_progress(text: &str) {
    let mut stderr = io::stderr().lock();
    let clear = if stderr.is_terminal() { "\r\x1b[K" } else { "" };
    let _ = writeln!(stderr, "{clear}profiler: {text}");
}

/// Writes the daemon's warnings to standard error.
pub fn warnings(warnings: &[String]) {
    for warning in warnings {
        note(&format!("warning: {}", terminal(warning)));
    }
}

/// A line on standard error that is written over again and again; none where that is no terminal.
#[derive(Debug)]
pub struct Progress {
    shown: bool,
    terminal: bool,
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            shown: false,
            terminal: io::stderr().is_terminal(),
        }
    }
}

impl Progress {
    /// Replaces the line.
    pub fn show(&mut self, text: &str) {
        if !self.terminal {
            return;
        }
        let width = crossterm::terminal::size().map_or(80, |(columns, _)| usize::from(columns));
        let text: String = text.chars().take(width.saturating_sub(1)).collect();
        let _ = write!(io::stderr().lock(), "\r\x1b[K{text}");
        let _ = io::stderr().flush();
        self.shown = true;
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            let _ = write!(io::stderr().lock(), "\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_there_in_full_or_as_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.svg");
        fs::write(&path, "before").unwrap();
        let output = Output::open(Some(&path)).unwrap();
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            "before",
            "nothing changes until it is written"
        );
        drop(output);
        assert_eq!(
            fs::read_dir(directory.path()).unwrap().count(),
            1,
            "nothing is left behind"
        );
        Output::open(Some(&path)).unwrap().write("after").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "after");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_link_stays_a_link() {
        let directory = tempfile::tempdir().unwrap();
        let (path, link) = (directory.path().join("a"), directory.path().join("b"));
        fs::write(&path, "").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        Output::open(Some(&link)).unwrap().write("x").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&path).unwrap(), "x");
    }

    #[test]
    fn what_cannot_be_written_is_said_at_once() {
        for (path, words) in [("/nonexistent/a.svg", "No such file"), ("/tmp", "directory")] {
            let failure = Output::open(Some(Path::new(path))).unwrap_err();
            assert!(
                failure.message.contains(words) && failure.message.contains(path),
                "{failure}"
            );
        }
    }

    #[test]
    fn a_full_disk_is_a_failure() {
        let failure = Output::open(Some(Path::new("/dev/full")))
            .unwrap()
            .write("x")
            .unwrap_err();
        assert_eq!(
            failure.message,
            "Cannot write /dev/full: No space left on device (os error 28)."
        );
    }
}
