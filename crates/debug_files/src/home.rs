//! Where to look for a module's files: the folder that it was mapped from, and the file systems to search, the
//! target's first.

use std::{
    cell::Cell,
    fs::{File, Metadata},
    io,
    os::{
        fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
        unix::fs::MetadataExt as _,
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use profiler_target::{
    OpenFile, Place, ROOT, file_systems, has_unanswered, read_file, read_of_user, user_of,
};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, fstatfs, openat, openat2};

use super::reader::{Reader, Rights};

/// The bit of a file's mode by which everybody may read it.
pub(super) const ALL_MAY_READ: u32 = 0o004;

/// Whose processes may be shown what is found beside a module.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SharedWith {
    /// Everybody's: the process has mapped the file that this path leads this process to, by the same mount.
    All,
    /// This user's, whose process sees other file systems, or saw them when it mapped the file: the user chooses what is found there, or
    /// that nothing is.
    ProcessesOf(u32),
}

/// A folder below which files are looked for.
#[derive(Debug)]
struct Root {
    folder: OwnedFd,
    place: Place,
}

impl Root {
    fn open(path: &str) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(CWD, path, flags, Mode::empty())?;
        let place = Place::of(&folder)?;
        Ok(Self { folder, place })
    }
}

/// The way to the files that belong to a module.
#[derive(Debug, Default)]
pub struct Home {
    /// The module's path in the target's file system.
    path: PathBuf,
    roots: Vec<Root>,
    reader: Reader,
    /// Only what everybody may read is opened.
    only_public: bool,
    /// Who answers for what is found: the user of the process that has mapped the module.
    user: u32,
    /// When a file system first gave no answer in time.
    silent_at: Cell<Option<Instant>>,
}

impl Home {
    /// That of a module at a path that a process of these rights has mapped. The target's root is held open, so that it stays what it is
    /// when the process ends.
    ///
    /// What is found is opened by [`Reader::of_module`]. It is kept for whoever looks at the module later: of one that
    /// everybody may read, nothing is read that not everybody may.
    #[must_use]
    pub fn of(pid: u32, rights: &Rights, path: &Path, module: &Metadata) -> Self {
        Self {
            only_public: module.mode() & ALL_MAY_READ != 0,
            user: user_of(pid).unwrap_or(module.uid()),
            ..Self::new(path, &[&format!("/proc/{pid}/root"), "/"])
        }
        .read_by(Reader::of_module(rights, module.uid()))
    }

    /// The same, with files opened by somebody's rights.
    #[must_use]
    pub fn read_by(self, reader: Reader) -> Self {
        Self { reader, ..self }
    }

    /// That of a file as it is seen from each of these roots; those that cannot be opened are left out, as
    /// are those that are the same as one before.
    #[must_use]
    pub fn new(path: &Path, roots: &[&str]) -> Self {
        let mut opened: Vec<Root> = Vec::new();
        for root in roots.iter().filter_map(|root| Root::open(root).ok()) {
            if opened.iter().all(|other| other.place != root.place) {
                opened.push(root);
            }
        }
        let path = path.to_path_buf();
        Self {
            path,
            roots: opened,
            ..Self::default()
        }
    }

    /// The module's path, where it has one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        Some(&*self.path).filter(|path| path.is_absolute())
    }

    /// The files that this path leads to: in the target's root, then in ours.
    pub fn open<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = OpenFile> + 'a {
        let mut before = None;
        self.roots
            .iter()
            .filter_map(move |root| self.noting(self.open_below(&root.folder, path)).ok())
            // Two roots may lead to one file.
            .filter(move |open| before.replace(open.key) != Some(open.key))
    }

    /// Reads a file that was found here.
    ///
    /// # Errors
    /// As for [`read_file`].
    pub fn read<T: Send + 'static>(
        &self,
        file: OpenFile,
        read: impl FnOnce(OpenFile) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        self.noting(read_file(file, read))
    }

    /// Since when it is known that what is missing may be there: a file system gave no answer in time. `None` where all have answered.
    #[must_use]
    pub fn silent_for(&self) -> Option<Duration> {
        self.silent_at.get().map(|at| at.elapsed())
    }

    /// Whether something that was asked of its user's files has no answer yet.
    #[must_use]
    pub fn is_still_silent(&self) -> bool {
        has_unanswered(self.user())
    }

    fn noting<T>(&self, found: io::Result<T>) -> io::Result<T> {
        // A file system may answer that it has waited in vain.
        let is_silent =
            |error: &io::Error| error.kind() == io::ErrorKind::TimedOut && error.raw_os_error().is_none();
        if found.as_ref().is_err_and(is_silent) {
            self.silent_at
                .set(self.silent_at.get().or_else(|| Some(Instant::now())));
        }
        found
    }

    /// Whose processes may be shown what is found here, of the module that is open. Its path may lead through file systems that do not
    /// answer.
    #[must_use]
    pub fn shared_with(&self, module: &File) -> SharedWith {
        let is_where_this_process_finds_it = || {
            // The process's root is this one's.
            let [_] = &self.roots[..] else { return false };
            let found = self.path().and_then(|path| Place::at(path).ok());
            found.is_some() && found == Place::of(module).ok()
        };
        if is_where_this_process_finds_it() {
            SharedWith::All
        } else {
            SharedWith::ProcessesOf(self.user)
        }
    }

    fn open_below(&self, root: &OwnedFd, path: &Path) -> io::Result<OpenFile> {
        let open = open_file(root.as_fd(), path, Links::Followed, &self.reader, self.user())?;
        if self.only_public && open.metadata.mode() & ALL_MAY_READ == 0 {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(open)
    }

    /// Who answers for what is found.
    #[must_use]
    pub fn user(&self) -> u32 {
        if self.user == ROOT {
            self.reader.user_id().unwrap_or(ROOT)
        } else {
            self.user
        }
    }
}

/// What becomes of a path whose last part is a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Links {
    /// It is followed, as far as it stays below the root.
    Followed,
    /// It is not opened.
    Refused,
}

/// Opens a regular file below a root, with this process's own rights. What is there is the target's: its links stay within its root, and
/// a pipe or a device is not opened, which could wait or have effects, nor is what only looks like a file.
///
/// # Errors
/// Where there is no such file, or this process may not read it.
pub fn open_regular(root: BorrowedFd<'_>, path: &Path, links: Links) -> io::Result<File> {
    let mut flags = OFlags::PATH | OFlags::CLOEXEC;
    // The link itself is found then, which is no regular file.
    flags.set(OFlags::NOFOLLOW, links == Links::Refused);
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let found = File::from(openat2(root, path, flags, Mode::empty(), resolve)?);
    if !found.metadata()?.is_file() {
        let text = format!("{}: not a regular file", path.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    if !file_systems::is_read(fstatfs(&found)?.f_type) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    // Of a file that somebody holds a lease of, opening would wait for them.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let own = format!("/proc/self/fd/{}", found.as_raw_fd());
    Ok(openat(CWD, own, flags, Mode::empty())?.into())
}

/// As [`open_regular`], by somebody's rights, and for a user who answers for the file: a folder of the path may be of a file system of
/// theirs, which does not answer.
///
/// # Errors
/// As for [`open_regular`], and [`io::ErrorKind::TimedOut`] where a file system does not answer.
pub fn open_file(
    root: BorrowedFd<'_>,
    path: &Path,
    links: Links,
    reader: &Reader,
    user: u32,
) -> io::Result<OpenFile> {
    let (root, path, reader) = (root.try_clone_to_owned()?, path.to_path_buf(), reader.clone());
    read_of_user(user, move || {
        reader.run(|| OpenFile::of(open_regular(root.as_fd(), &path, links)?, user))
    })
}

#[cfg(test)]
mod tests {
    use std::{
        io::Read as _,
        process::{Child, Command, Stdio},
    };

    use profiler_testkit::skipped;

    use super::*;

    #[test]
    fn links_stay_in_the_root_and_pipes_are_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("etc")).unwrap();
        std::fs::write(at("etc/passwd"), "inside").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", at("absolute")).unwrap();
        std::os::unix::fs::symlink("../../../etc/passwd", at("up")).unwrap();
        std::os::unix::fs::symlink("/proc/self/exe", at("out")).unwrap();
        let pipe = std::process::Command::new("mkfifo").arg(at("pipe")).status();
        assert!(pipe.unwrap().success());
        let home = Home::new(Path::new("/x"), &[folder.path().to_str().unwrap()]);
        let read = |path: &str| {
            home.open(Path::new(path))
                .next()
                .map(|open| io::read_to_string(&*open.file).unwrap())
        };
        for path in ["absolute", "/absolute", "up", "etc/passwd"] {
            assert_eq!(read(path).as_deref(), Some("inside"), "{path}");
        }
        for path in ["out", "pipe", "etc", "missing"] {
            assert_eq!(read(path), None, "{path}");
        }
    }

    #[test]
    fn does_not_open_files_of_proc_and_sys() {
        let home = Home::new(Path::new("/x"), &["/"]);
        let opens = |path: &str| home.open(Path::new(path)).next().is_some();
        assert!(opens("/bin/sh"));
        for path in [
            "/proc/self/maps",
            "/proc/self/smaps",
            "/proc/thread-self/stat",
            "/proc/../proc/self/task/../maps",
            "/sys/kernel/uevent_seqnum",
        ] {
            assert!(Path::new(path).exists() || path.starts_with("/sys"), "{path}");
            assert!(!opens(path), "{path}");
        }
    }

    #[test]
    fn a_lease_is_not_waited_for() {
        use rustix::io::Errno;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("leased");
        std::fs::write(&path, "text").unwrap();
        let held = File::options().write(true).open(&path).unwrap();
        // SAFETY: it takes a descriptor that is open and a number.
        let leased = unsafe { libc::fcntl(held.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) };
        assert_eq!(leased, 0, "{}", io::Error::last_os_error());
        let root = openat(CWD, folder.path(), OFlags::PATH, Mode::empty()).unwrap();
        // It would wait 45 seconds, and end this process by the signal that asks for the lease.
        // SAFETY: the default action is replaced by none.
        unsafe { libc::signal(libc::SIGIO, libc::SIG_IGN) };
        let error = open_regular(root.as_fd(), Path::new("leased"), Links::Followed).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::WOULDBLOCK.raw_os_error()));
    }

    #[test]
    fn only_what_the_reader_may_read_is_opened() {
        use std::os::unix::fs::{PermissionsExt as _, chown};
        if !rustix::process::geteuid().is_root() {
            return skipped("only root can take others' rights");
        }
        let (user, group) = (1_234, 1_235);
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let set_mode = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        let write = |name: &str, owner, mode| {
            std::fs::write(at(name), "text").unwrap();
            chown(at(name), Some(owner), Some(group)).unwrap();
            set_mode(&at(name), mode);
        };
        set_mode(folder.path(), 0o755);
        std::fs::create_dir(at("closed")).unwrap();
        set_mode(&at("closed"), 0o700);
        write("public", 0, 0o644);
        write("secret", 0, 0o600);
        write("closed/public", 0, 0o644);
        write("groups", 0, 0o640);
        write("own", user, 0o600);
        std::os::unix::fs::symlink("secret", at("link")).unwrap();
        let opened = |home: Home| {
            let names = ["public", "secret", "closed/public", "groups", "own", "link"];
            let opens = |name: &&str| home.open(Path::new(name)).next().is_some();
            names.into_iter().filter(opens).collect::<Vec<_>>()
        };
        let home = || Home::new(Path::new("/x"), &[folder.path().to_str().unwrap()]);
        assert_eq!(opened(home().read_by(Reader::user(user))), ["public", "own"]);
        assert_eq!(opened(home()).len(), 6);
        let public = Home {
            only_public: true,
            ..home()
        };
        assert_eq!(opened(public), ["public", "closed/public"]);
    }

    /// A process with mounts of its own, until it is dropped.
    struct Apart(Child);

    impl Drop for Apart {
        fn drop(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    #[test]
    fn what_another_mount_namespace_leads_to_is_its_users_alone() {
        let path = Path::new("/bin/sh");
        let of = |pid: u32, module: &str| {
            let module = File::open(module).unwrap();
            let rights = Rights::of_process(pid);
            let home = Home::of(pid, &rights, path, &module.metadata().unwrap());
            home.shared_with(&module)
        };
        let own = std::process::id();
        assert_eq!(of(own, "/bin/sh"), SharedWith::All);
        // Mapped by this path, but elsewhere.
        let user = SharedWith::ProcessesOf(user_of(own).unwrap());
        assert_eq!(of(own, "/proc/self/exe"), user);
        if !rustix::process::geteuid().is_root() {
            return skipped("only root makes mount namespaces");
        }
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", "echo; exec sleep 600"]);
        let mut apart = Apart(command.stdout(Stdio::piped()).spawn().unwrap());
        let mut line = [0];
        apart.0.stdout.take().unwrap().read_exact(&mut line).unwrap();
        let pid = apart.0.id();
        let there = format!("/proc/{pid}/root/bin/sh");
        assert_eq!(of(pid, &there), user);
        // One that has left that namespace, and has what it mapped there.
        assert_eq!(of(own, &there), user);
        assert_eq!(of(own, "/bin/sh"), SharedWith::All);
    }

    #[test]
    fn equal_roots_are_looked_at_once() {
        let own = format!("/proc/{}/root", std::process::id());
        let home = Home::new(Path::new("/bin/sh"), &[&own, "/", "/nonexistent"]);
        assert_eq!(home.open(Path::new("/bin/sh")).count(), 1);
    }
}
