//! Where a module is at home: the folder that it was mapped from, and the file systems in which what belongs
//! to it is looked for, the target's first.

use std::{
    fs::File,
    io,
    os::fd::{AsRawFd as _, OwnedFd},
    path::{Path, PathBuf},
};

use profiler_target::Mapping;
use rustix::fs::{CWD, FsWord, Mode, OFlags, ResolveFlags, fstatfs, openat, openat2};

/// File systems that hold no files of programs, by their numbers in `statfs(2)`. What they give depends on who asks: this
/// process may read its own `/proc/self/maps` with whatever rights; or it waits for another process, or has effects.
const NO_FILES: [FsWord; 20] = [
    0x9fa0,      // proc
    0x6265_6572, // sysfs
    0x7472_6163, // tracefs
    0x6462_6720, // debugfs
    0x7363_6673, // securityfs
    0x6265_6570, // configfs
    0xf97c_ff8c, // selinuxfs
    0x4341_5d53, // smackfs
    0x5a3c_69f0, // apparmorfs
    0xcafe_4a11, // bpf
    0x0027_e0eb, // cgroup
    0x6367_7270, // cgroup2
    0x0765_5821, // resctrl
    0x6e73_6673, // nsfs
    0x4249_4e4d, // binfmt_misc
    0xde5e_81e4, // efivarfs
    0x6165_676c, // pstore
    0x1980_0202, // mqueue
    0x6573_5543, // fusectl
    0x6573_5546, // fuse: any process may answer, or never answer
];

/// The way to the files that belong to a module.
#[derive(Debug, Default)]
pub struct Home {
    /// The module's path in the target's file system.
    path: PathBuf,
    roots: Vec<OwnedFd>,
}

impl Home {
    /// That of a process's mapping. The target's root is held open, so that it stays what it is when the
    /// process ends.
    #[must_use]
    pub fn of(pid: u32, mapping: &Mapping) -> Self {
        Self::new(&mapping.path, &[&format!("/proc/{pid}/root"), "/"])
    }

    /// That of a file as it is seen from each of these roots; those that cannot be opened are left out, as
    /// are those that are the same as one before.
    #[must_use]
    pub fn new(path: &Path, roots: &[&str]) -> Self {
        let mut opened: Vec<OwnedFd> = Vec::new();
        let mut seen = Vec::new();
        for root in roots {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let Ok(root) = openat(CWD, *root, flags, Mode::empty()) else {
                continue;
            };
            let Ok(stat) = rustix::fs::fstat(&root) else {
                continue;
            };
            if !seen.contains(&(stat.st_dev, stat.st_ino)) {
                seen.push((stat.st_dev, stat.st_ino));
                opened.push(root);
            }
        }
        let path = path.to_path_buf();
        Self { path, roots: opened }
    }

    /// The module's path, where it has one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        Some(&*self.path).filter(|path| path.is_absolute())
    }

    /// The files that this path leads to: in the target's root, then in ours.
    pub fn open<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = File> + 'a {
        self.roots.iter().filter_map(move |root| open(root, path).ok())
    }
}

/// Opens a regular file below a root. What is there is the target's: its links stay within its root, and a
/// pipe or a device is not opened, which could wait or have effects, nor is what only looks like a file.
fn open(root: &OwnedFd, path: &Path) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let found = File::from(openat2(root, path, flags, Mode::empty(), resolve)?);
    if !found.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    if NO_FILES.contains(&fstatfs(&found)?.f_type) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    // Of a file that somebody holds a lease of, opening would wait for them.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let own = format!("/proc/self/fd/{}", found.as_raw_fd());
    Ok(openat(CWD, own, flags, Mode::empty())?.into())
}

#[cfg(test)]
mod tests {
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
                .map(|file| io::read_to_string(file).unwrap())
        };
        for path in ["absolute", "/absolute", "up", "etc/passwd"] {
            assert_eq!(read(path).as_deref(), Some("inside"), "{path}");
        }
        for path in ["out", "pipe", "etc", "missing"] {
            assert_eq!(read(path), None, "{path}");
        }
    }

    #[test]
    fn what_only_looks_like_a_file_is_not_opened() {
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
        let error = open(&root, Path::new("leased")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::WOULDBLOCK.raw_os_error()));
    }

    #[test]
    fn equal_roots_are_looked_at_once() {
        let own = format!("/proc/{}/root", std::process::id());
        let home = Home::new(Path::new("/bin/sh"), &[&own, "/", "/nonexistent"]);
        assert_eq!(home.open(Path::new("/bin/sh")).count(), 1);
    }
}
