//! Where a module is at home: the folder that it was mapped from, and the file systems in which what belongs
//! to it is looked for, the target's first.

use std::{
    fs::File,
    io,
    os::fd::{AsRawFd as _, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};

use crate::target::Mapping;

/// The way to the files that belong to a module.
#[derive(Debug, Default)]
pub(super) struct Home {
    /// The module's path in the target's file system.
    path: PathBuf,
    roots: Vec<OwnedFd>,
}

impl Home {
    /// That of a process's mapping. The target's root is held open, so that it stays what it is when the
    /// process ends.
    pub fn of(pid: u32, mapping: &Mapping) -> Self {
        Self::new(&mapping.path, &[&format!("/proc/{pid}/root"), "/"])
    }

    /// That of a file as it is seen from each of these roots; those that cannot be opened are left out, as
    /// are those that are the same as one before.
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
    pub fn path(&self) -> Option<&Path> {
        Some(&*self.path).filter(|path| path.is_absolute())
    }

    /// The files that this path leads to: in the target's root, then in ours.
    pub fn open<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = File> + 'a {
        self.roots.iter().filter_map(move |root| open(root, path).ok())
    }
}

/// Opens a regular file below a root. What is there is the target's: its links stay within its root, and a
/// pipe or a device is not opened, which could wait or have effects.
fn open(root: &OwnedFd, path: &Path) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let found = File::from(openat2(root, path, flags, Mode::empty(), resolve)?);
    if !found.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    File::open(format!("/proc/self/fd/{}", found.as_raw_fd()))
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
    fn equal_roots_are_looked_at_once() {
        let own = format!("/proc/{}/root", std::process::id());
        let home = Home::new(Path::new("/bin/sh"), &[&own, "/", "/nonexistent"]);
        assert_eq!(home.open(Path::new("/bin/sh")).count(), 1);
    }
}
