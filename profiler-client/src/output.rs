//! Where results go: stdout, or a file that is there in full or not at all.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File, Metadata, OpenOptions, Permissions},
    io::{self, IsTerminal as _, Write as _},
    os::{
        fd::AsRawFd as _,
        unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown},
    },
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{AtFlags, FileType, Mode, OFlags},
    io::Errno,
};
use tempfile::NamedTempFile;

use crate::{
    failure::Failure,
    live::{line::in_words, screen::Screen},
    render::escape::{self, terminal},
};

/// A device or a pipe that takes nothing for this long fails: nobody reads it.
const PATIENCE: Duration = Duration::from_secs(10);

/// A place for a result, opened before the run so that nothing is lost at its end.
#[derive(Debug)]
pub enum Output {
    /// Standard output.
    Stdout,
    /// A file that takes its place when all of it is written.
    File(Replacement),
    /// A device or a pipe, which cannot be replaced.
    Special {
        /// Its name.
        path: PathBuf,
        /// It, which does not block.
        file: File,
    },
}

/// A file that is to be in a folder under a name, in place of the one that may be there.
#[derive(Debug)]
pub struct Replacement {
    /// As the user named it.
    path: PathBuf,
    /// In the folder, until then; removed if nothing comes of it, while the folder is still pinned.
    temporary: NamedTempFile,
    /// Pins the folder: whatever its name leads to by then.
    folder: File,
    name: OsString,
}

impl Output {
    /// Opens it as [`Self::open`] does, for bytes that a terminal cannot show.
    ///
    /// # Errors
    ///
    /// The same, and where they would go to a terminal.
    pub fn open_binary(path: Option<&Path>) -> Result<Self, Failure> {
        if path.is_none() && io::stdout().is_terminal() {
            return Err(Failure::usage(
                "This format is binary, which a terminal cannot show: write it to a file with -o, or into a pipe.",
            ));
        }
        Self::open(path)
    }

    /// Opens it.
    ///
    /// A link that somebody has planted in a folder that all may write to is not followed, be it the file or its folder: as the kernel
    /// has it (`fs.protected_symlinks`), and also where that is off. Nor is anything written to a file or a pipe that somebody has
    /// planted there.
    ///
    /// # Errors
    ///
    /// Where nothing can be written there.
    pub fn open(path: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = path else { return Ok(Self::Stdout) };
        let failed = |error: io::Error| Failure::writing(&path.to_string_lossy(), &error);
        // A pipe that nobody reads must not hold us up.
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = open_folder(folder_of(path)).and_then(|folder| match path.file_name() {
            Some(name) => open_below(&folder, name, flags),
            None => Err(io::ErrorKind::IsADirectory.into()),
        });
        match opened {
            Ok(file) if !file.metadata().map_err(failed)?.is_file() => {
                refuse_planted(&file, &open_folder(folder_of(path)).map_err(failed)?).map_err(failed)?;
                Ok(Self::Special {
                    path: path.to_owned(),
                    file,
                })
            }
            Ok(file) => Replacement::of(path, &file).map(Self::File).map_err(failed),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Replacement::new(path, path).map(Self::File).map_err(failed)
            }
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                Err(failed(io::ErrorKind::IsADirectory.into()))
            }
            Err(error) if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => {
                Err(failed(io::Error::other("nobody reads it")))
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Writes all of it.
    ///
    /// # Errors
    ///
    /// A full disk and the like; a file that was there before is then unchanged. A reader that has
    /// gone is a failure without a message.
    pub fn write(self, content: impl AsRef<[u8]>) -> Result<(), Failure> {
        self.write_by(|out| out.write_all(content.as_ref()))
    }

    /// Writes what `write` hands on, piece by piece.
    ///
    /// # Errors
    ///
    /// As [`Self::write`].
    pub fn write_by(self, write: impl FnOnce(&mut dyn io::Write) -> io::Result<()>) -> Result<(), Failure> {
        match self {
            Self::Stdout => stdout_by(write),
            Self::Special { path, file } => {
                write(&mut Patient(file)).map_err(|error| Failure::writing(&path.to_string_lossy(), &error))
            }
            Self::File(replacement) => {
                let path = replacement.path.clone();
                replacement
                    .write(write)
                    .map_err(|error| Failure::writing(&path.to_string_lossy(), &error))
            }
        }
    }
}

impl Replacement {
    /// In place of a file that is there, with its mode and, as far as we may, its owner.
    fn of(path: &Path, file: &File) -> io::Result<Self> {
        // By this name too the kernel is to be asked whether its links may be followed.
        open_folder(folder_of(path))?;
        // What a symbolic link points at is replaced, not the link.
        let real = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        let replacement = Self::new(path, &real)?;
        let there = file.metadata()?;
        let named = rustix::fs::statat(&replacement.folder, &replacement.name, AtFlags::SYMLINK_NOFOLLOW)?;
        if (named.st_dev, named.st_ino) != (there.dev(), there.ino()) {
            return Err(io::Error::other("another file has just taken its name"));
        }
        refuse_planted(file, &replacement.folder)?;
        let ours = replacement.temporary.as_file();
        // Only root may give a file away; then it is at least the group's, or nothing is the group's to read.
        let has_group = fchown(ours, Some(there.uid()), Some(there.gid()))
            .or_else(|_| fchown(ours, None, Some(there.gid())))
            .is_ok();
        let kept = if has_group { 0o777 } else { 0o707 };
        ours.set_permissions(Permissions::from_mode(there.mode() & kept))?;
        Ok(replacement)
    }

    fn new(path: &Path, place: &Path) -> io::Result<Self> {
        let name = place.file_name().ok_or(io::ErrorKind::IsADirectory)?.to_owned();
        let folder = open_folder(folder_of(place))?;
        let temporary = tempfile::Builder::new()
            .prefix(".profiler-")
            // Less the umask, as other programs' files.
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(pinned(&folder))
            .map_err(without_path)?;
        Ok(Self {
            path: path.to_owned(),
            temporary,
            folder,
            name,
        })
    }

    fn write(self, write: impl FnOnce(&mut dyn io::Write) -> io::Result<()>) -> io::Result<()> {
        // What is bound last is dropped first: the temporary file is removed while its folder is pinned.
        let Self {
            path: _,
            folder,
            name,
            mut temporary,
        } = self;
        write(temporary.as_file_mut())?;
        temporary.as_file().sync_all()?;
        temporary
            .persist(pinned(&folder).join(name))
            .map_err(|error| without_path(error.error))?;
        Ok(())
    }
}

/// An error without the name that a folder has while it is pinned, which tells the user nothing.
fn without_path(error: io::Error) -> io::Error {
    match error.to_string().split_once(" at path ") {
        Some((words, _)) => io::Error::new(error.kind(), words.to_owned()),
        None => error,
    }
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Pins a folder, which need not be readable.
fn open_folder(folder: &Path) -> io::Result<File> {
    let flags = OFlags::DIRECTORY | OFlags::PATH;
    let pin = |folder: &Path| {
        OpenOptions::new()
            .read(true)
            .custom_flags(flags.bits().cast_signed())
            .open(folder)
    };
    match folder.file_name() {
        Some(name) => open_below(&pin(folder_of(folder))?, name, flags),
        None => pin(folder),
    }
}

/// Opens what is in a folder, unless it is a link that somebody has planted there.
fn open_below(folder: &File, name: &OsStr, flags: OFlags) -> io::Result<File> {
    let there = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
    let link = there
        .ok()
        .filter(|there| FileType::from_raw_mode(there.st_mode).is_symlink());
    if link.is_some_and(|link| {
        folder
            .metadata()
            .is_ok_and(|folder| is_planted(link.st_uid, &folder, WRITABLE_BY_ALL))
    }) {
        return Err(Errno::ACCESS.into());
    }
    // Nor is one that has just been put in the place of what was there.
    let no_follow = if link.is_some() {
        OFlags::empty()
    } else {
        OFlags::NOFOLLOW
    };
    let flags = flags | no_follow | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(folder, name, flags, Mode::empty())?.into())
}

/// Who may put files into a folder.
const WRITABLE_BY_ALL: u32 = 0o002;
const WRITABLE_BY_GROUP: u32 = 0o020;

/// Whether what belongs to a user is neither ours nor the folder's owner's, in a folder in which any of these may put files, and may not
/// remove each other's.
fn is_planted(owner: u32, folder: &Metadata, by: u32) -> bool {
    const STICKY: u32 = 0o1000;
    let is_shared = folder.mode() & STICKY != 0 && folder.mode() & by != 0;
    let us = rustix::process::geteuid().as_raw();
    is_shared && owner != us && owner != folder.uid()
}

/// Refuses what is neither ours nor the folder's owner's where others too may put files, and may not remove each other's:
/// whoever put it there would have the result. The kernel does so where a file is to be created (`fs.protected_regular`,
/// `fs.protected_fifos`).
fn refuse_planted(file: &File, folder: &File) -> io::Result<()> {
    let (file, folder) = (file.metadata()?, folder.metadata()?);
    if is_planted(file.uid(), &folder, WRITABLE_BY_ALL | WRITABLE_BY_GROUP) {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!(
                "it belongs to user {}, in a folder that others may write to",
                file.uid()
            ),
        ));
    }
    Ok(())
}

/// A folder's name that leads to it, whatever happens to its own.
fn pinned(folder: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()))
}

/// What does not block, written to as long as somebody takes it.
struct Patient(File);

impl io::Write for Patient {
    fn write(&mut self, content: &[u8]) -> io::Result<usize> {
        let patience = Timespec::try_from(PATIENCE).map_err(io::Error::other)?;
        loop {
            match self.0.write(content) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let mut waited_for = [PollFd::new(&self.0, PollFlags::OUT)];
                    match poll(&mut waited_for, Some(&patience)) {
                        Ok(0) => {
                            let words = format!("its reader has taken nothing for {} s", PATIENCE.as_secs());
                            return Err(io::Error::new(io::ErrorKind::TimedOut, words));
                        }
                        Ok(_) | Err(Errno::INTR) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                written => return written,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Writes to standard output at once.
///
/// # Errors
///
/// A full disk and the like; a reader that has gone is a failure without a message.
pub fn stdout(content: impl AsRef<[u8]>) -> Result<(), Failure> {
    stdout_by(|out| out.write_all(content.as_ref()))
}

fn stdout_by(write: impl FnOnce(&mut dyn io::Write) -> io::Result<()>) -> Result<(), Failure> {
    // A pipe that nobody reads blocks, and so does a terminal that was stopped with Ctrl-S: the tasks
    // that listen to signals and end the session must not wait behind it.
    tokio::task::block_in_place(|| {
        let mut stdout = io::stdout().lock();
        write(&mut stdout)?;
        stdout.flush()
    })
    .map_err(|error| Failure::writing("to standard output", &error))
}

/// Writes JSON, one object a line, to standard output at once.
///
/// # Errors
///
/// As [`stdout`].
pub fn ndjson(lines: impl AsRef<str>) -> Result<(), Failure> {
    stdout(escape::ndjson(lines.as_ref()).as_bytes())
}

/// Writes a note for the user to standard error, whose loss is no failure. On a terminal, it takes as many lines as it needs.
pub fn note(text: &str) {
    let mut stderr = io::stderr().lock();
    let note = noted(text, stderr.is_terminal().then(columns));
    let _ = writeln!(stderr, "{note}");
}

/// A note as it is written: in lines of so many columns where that is known.
fn noted(text: &str, columns: Option<usize>) -> String {
    let note = format!("profiler: {text}");
    let Some(columns) = columns else { return note };
    let lines = note.split('\n').flat_map(|line| {
        // What is indented is typed or pointed at, and stays as it is.
        if line.starts_with(' ') {
            vec![line.to_owned()]
        } else {
            in_words(line, columns)
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Columns of the terminal.
fn columns() -> usize {
    Screen::size().0
}

/// The failure of two outcomes that is the command's result: the first, and a second one is a note.
///
/// # Errors
///
/// Where one of them is a failure.
pub fn first_failure(first: Result<(), Failure>, second: Result<(), Failure>) -> Result<(), Failure> {
    if let (Err(_), Err(second)) = (&first, &second) {
        note(&second.message);
    }
    first.and(second)
}

/// How often something was written amid what is drawn over and over.
static AMID: AtomicU64 = AtomicU64::new(0);

/// How often something was written amid what is drawn over and over: what was drawn before stays above it.
#[must_use]
pub fn noted_amid() -> u64 {
    AMID.load(Ordering::Relaxed)
}

/// The same while a [`Progress`] or a screen may be shown; it comes back below.
pub fn note_amid_progress(text: &str) {
    let mut stderr = io::stderr().lock();
    let clear = if stderr.is_terminal() {
        AMID.fetch_add(1, Ordering::Relaxed);
        "\r\x1b[K"
    } else {
        ""
    };
    let note = noted(text, stderr.is_terminal().then(columns));
    let _ = writeln!(stderr, "{clear}{note}");
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
        let text: String = text.chars().take(columns().saturating_sub(1)).collect();
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
    use profiler_testkit::skipped;

    use super::*;

    /// A user without rights, by Debian's numbering.
    const NOBODY: u32 = 65_534;

    #[test]
    fn a_note_is_one_line_but_on_a_terminal() {
        let words = "warning: the entry of `handle` is single-stepped, which makes each call of it slower by microseconds";
        assert_eq!(noted(words, None), format!("profiler: {words}"));
        let lines = noted(words, Some(60));
        assert!(lines.lines().all(|line| line.chars().count() <= 60), "{lines}");
        assert_eq!(lines.replace("\n ", ""), format!("profiler: {words}"));
    }

    #[test]
    fn what_is_typed_or_pointed_at_in_a_note_stays_in_its_line() {
        let command = "  install -D -m 644 a b";
        let note = noted(&format!("No debug information.\n{command}"), Some(20));
        assert_eq!(note, format!("profiler: No debug\n  information.\n{command}"));
    }

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
    fn a_link_that_somebody_planted_where_all_may_write_is_not_followed() {
        if !rustix::process::geteuid().is_root() {
            return skipped("needs root");
        }
        let (all, own) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::set_permissions(all.path(), Permissions::from_mode(0o1777)).unwrap();
        let precious = own.path().join("precious");
        fs::write(&precious, "precious").unwrap();
        let link = all.path().join("link");
        // To a file, and to a folder, with such a file and without.
        for (target, path) in [
            (&*precious, link.clone()),
            (own.path(), link.join("new")),
            (own.path(), link.join("precious")),
        ] {
            std::os::unix::fs::symlink(target, &link).unwrap();
            std::os::unix::fs::lchown(&link, Some(NOBODY), Some(NOBODY)).unwrap();
            let failure = Output::open(Some(&path)).unwrap_err();
            assert!(failure.message.contains("Permission denied"), "{failure}");
            fs::remove_file(&link).unwrap();
        }
        assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
        assert_eq!(fs::read_dir(own.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_somebody_planted_where_all_may_write_is_not_written_to() {
        if !rustix::process::geteuid().is_root() {
            return skipped("needs root");
        }
        let all = tempfile::tempdir().unwrap();
        fs::set_permissions(all.path(), Permissions::from_mode(0o1777)).unwrap();
        let path = all.path().join("a.svg");
        fs::write(&path, "").unwrap();
        Output::open(Some(&path)).unwrap().write("ours").unwrap();
        std::os::unix::fs::chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
        let failure = Output::open(Some(&path)).unwrap_err();
        assert!(failure.message.contains("it belongs to user 65534"), "{failure}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "ours");
        assert_eq!(fs::read_dir(all.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_keeps_its_mode_and_its_owner() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let is_root = rustix::process::geteuid().is_root();
        if is_root {
            std::os::unix::fs::chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        Output::open(Some(&path)).unwrap().write("x").unwrap();
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!(metadata.mode() & 0o7777, 0o600);
        assert!(!is_root || (metadata.uid(), metadata.gid()) == (NOBODY, NOBODY));
    }

    #[test]
    fn a_folder_that_is_renamed_meanwhile_has_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let (before, after) = (directory.path().join("before"), directory.path().join("after"));
        fs::create_dir(&before).unwrap();
        let output = Output::open(Some(&before.join("a"))).unwrap();
        fs::rename(&before, &after).unwrap();
        fs::create_dir(&before).unwrap();
        output.write("x").unwrap();
        assert_eq!(fs::read_to_string(after.join("a")).unwrap(), "x");
        assert_eq!(fs::read_dir(&before).unwrap().count(), 0);
    }

    #[test]
    fn a_pipe_that_nobody_reads_is_said_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pipe");
        rustix::fs::mkfifoat(
            rustix::fs::CWD,
            &path,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        )
        .unwrap();
        let failure = Output::open(Some(&path)).unwrap_err();
        assert!(failure.message.contains("nobody reads it"), "{failure}");
        let reader = std::thread::spawn({
            let path = path.clone();
            move || fs::read_to_string(path).unwrap()
        });
        let output = loop {
            // Until the reader is there.
            if let Ok(output) = Output::open(Some(&path)) {
                break output;
            }
            std::thread::yield_now();
        };
        // More than a pipe holds.
        let text = "x".repeat(1 << 20);
        output.write(&text).unwrap();
        assert_eq!(reader.join().unwrap(), text);
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
