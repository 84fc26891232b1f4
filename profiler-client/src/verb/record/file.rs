//! The file of a recording: a new one at its path, and one without its oldest minutes.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown},
    path::{Path, PathBuf},
};

use tempfile::NamedTempFile;

use crate::{failure::Failure, render::escape::terminal};

/// A file that takes its place when there is something to write; until then, the one that may be there stays.
pub struct NewFile {
    path: PathBuf,
    /// Its owner alone may read it: what is recorded of a process is its user's.
    temporary: NamedTempFile,
    force: bool,
}

impl NewFile {
    /// Makes it beside its place.
    ///
    /// # Errors
    /// Where it cannot be written, or another is in its place that may not be replaced.
    pub fn open(path: &Path, force: bool) -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::writing(&path.to_string_lossy(), &error);
        if path == Path::new("-") {
            return Err(Failure::usage(
                "A recording cannot be written to standard output: it needs a regular file (./- for one of this name).",
            ));
        }
        match fs::symlink_metadata(path) {
            Ok(there) if there.is_file() && force => {}
            Ok(there) if there.is_file() => {
                return Err(Failure::usage(format!(
                    "{} exists already: name another file, or replace it with --force.",
                    terminal(&path.to_string_lossy())
                )));
            }
            Ok(_) => {
                return Err(Failure::usage(format!(
                    "{} is not a regular file, which a recording needs: name a new one.",
                    terminal(&path.to_string_lossy())
                )));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        Ok(Self {
            temporary: temporary(path).map_err(failed)?,
            path: path.to_owned(),
            force,
        })
    }

    /// Puts it in its place.
    ///
    /// # Errors
    /// Where that cannot be written, or another has come there.
    pub fn take_place(self) -> io::Result<Placed> {
        let persisted = if self.force {
            self.temporary.persist(&self.path)
        } else {
            self.temporary.persist_noclobber(&self.path)
        };
        Ok(Placed {
            file: persisted.map_err(|error| error.error)?,
            path: self.path,
        })
    }
}

/// A file in its place.
#[derive(Debug)]
pub struct Placed {
    /// Open for writing.
    pub file: File,
    path: PathBuf,
}

impl Placed {
    /// An empty one that is to take its place.
    ///
    /// # Errors
    /// Where it cannot be made, or what is in its place is no longer this file.
    pub fn successor(&self) -> io::Result<Successor<'_>> {
        self.check_place()?;
        let temporary = temporary(&self.path)?;
        // It stays its owner's, where we may give it away.
        let own = self.file.metadata()?;
        let _ = fchown(temporary.as_file(), Some(own.uid()), Some(own.gid()));
        temporary.as_file().set_permissions(own.permissions())?;
        Ok(Successor { of: self, temporary })
    }

    /// Whether anybody can still find it. One that was moved can be found.
    ///
    /// # Errors
    /// Where it was removed.
    pub fn check_is_left(&self) -> io::Result<()> {
        if self.file.metadata()?.nlink() > 0 {
            return Ok(());
        }
        self.check_place()
    }

    /// Whether it is still in its place.
    fn check_place(&self) -> io::Result<()> {
        let there = match fs::symlink_metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let message = "it was moved or removed while it was recorded to";
                return Err(io::Error::new(io::ErrorKind::NotFound, message));
            }
            there => there?,
        };
        let own = self.file.metadata()?;
        if (own.dev(), own.ino()) != (there.dev(), there.ino()) {
            let message = "another file has taken its place";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
        }
        Ok(())
    }
}

/// A file that takes the place of one that is written to.
pub struct Successor<'a> {
    of: &'a Placed,
    temporary: NamedTempFile,
}

impl Successor<'_> {
    /// To write to.
    pub fn file(&mut self) -> &mut File {
        self.temporary.as_file_mut()
    }

    /// Puts it in the place of the other.
    ///
    /// # Errors
    /// Where that cannot be written, or the other is not there any more.
    pub fn take_place(self) -> io::Result<Placed> {
        // The machine may fall over: what was kept is on the disk before it is all that there is.
        self.temporary.as_file().sync_data()?;
        self.of.check_place()?;
        let path = self.of.path.clone();
        Ok(Placed {
            file: self.temporary.persist(&path).map_err(|error| error.error)?,
            path,
        })
    }
}

/// A file beside a path, with a name that no other has.
fn temporary(path: &Path) -> io::Result<NamedTempFile> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let open = |path: &Path| {
        let mut options = File::options();
        options
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
    };
    // Opened by ourselves, its errors are the system's, without a name that nobody has given.
    tempfile::Builder::new()
        .prefix(".profiler-")
        .make_in(folder, open)
}
