//! The bytes of an ELF file that a target has mapped.
//!
//! A mapping of a file that is cut short raises SIGBUS past the file's new end. A running executable cannot be written
//! to, but a library can: so a file is mapped only where nobody but root and our own user may write to it or has mounted it, and copied
//! otherwise: a small one into memory, a large one into a file that has no name, so that what somebody maps takes no
//! memory of ours. Holes stay holes.

use std::{
    fs::{File, Metadata},
    io::{self, Read as _, Seek as _, SeekFrom},
    os::unix::fs::{FileExt as _, MetadataExt as _},
    time::{Duration, SystemTime},
};

use memmap2::Mmap;
use rustix::fs::{StatVfsMountFlags, fstatfs, fstatvfs};

use super::{file_systems::OVERLAY, on_disk::OnDisk, own_mounts};

/// Largest file that is copied, in bytes.
pub const COPY_MAX: u64 = 1 << 30;
/// Largest file that is copied into memory.
const MEMORY_MAX: u64 = 4 << 20;
/// The same where there is no room on a disk.
const WITHOUT_DISK_MAX: u64 = 64 << 20;
/// How a file begins.
const MAGIC: [u8; 4] = *b"\x7fELF";
/// Permission of others than the owner to write.
const OTHERS_WRITE: u32 = 0o022;

/// In the place of the owner of a file that says it is root's where that is not believed: nobody else's.
pub const UNKNOWN_OWNER: u32 = u32::MAX;

/// What tells one state of a file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileKey {
    device: u64,
    inode: u64,
    /// Its size in bytes.
    pub length: u64,
    /// When it was last written to: seconds, and nanoseconds beyond.
    pub modified: (i64, i64),
    changed: (i64, i64),
    /// Whose the file is: a build-id is believed only among files of one owner, and not at all among those of [`UNKNOWN_OWNER`].
    pub owner: u32,
}

impl FileKey {
    /// Whether they are files of one file system: of two there that had one path, the first was replaced.
    #[must_use]
    pub const fn shares_device(&self, other: &Self) -> bool {
        self.device == other.device
    }

    /// Which file it is, and when that was last changed in any way: no owner of a file can choose these.
    #[must_use]
    pub const fn identity(&self) -> [u64; 4] {
        let (seconds, nanoseconds) = self.changed;
        [
            self.device,
            self.inode,
            seconds.cast_unsigned(),
            nanoseconds.cast_unsigned(),
        ]
    }

    /// Whether it was last changed so long ago, by the system's clock.
    #[must_use]
    pub fn is_older_than(&self, age: Duration) -> bool {
        let (Ok(seconds), Ok(nanoseconds)) = (u64::try_from(self.changed.0), u32::try_from(self.changed.1))
        else {
            return true;
        };
        // One that is later than there can be is not old.
        let changed = SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, nanoseconds));
        let elapsed = changed.and_then(|changed| changed.elapsed().ok());
        elapsed.is_some_and(|elapsed| elapsed >= age)
    }

    /// Of a file that is open. Whoever makes a file system says whose its files are: root's are believed to be root's where a program
    /// could take root's rights.
    #[must_use]
    pub fn of_open(file: &File, metadata: &Metadata) -> Self {
        let mut key = Self::of(metadata);
        if key.owner == 0 && !is_of_this_machine(file) {
            key.owner = UNKNOWN_OWNER;
        }
        key
    }

    /// Of a file as it is now, whose owner is believed.
    #[must_use]
    pub fn of(file: &Metadata) -> Self {
        Self {
            device: file.dev(),
            inode: file.ino(),
            length: file.size(),
            modified: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
            owner: file.uid(),
        }
    }
}

/// An ELF file's bytes.
pub enum Contents {
    /// Mapped.
    Mapped(Mmap),
    /// As they were when they were copied.
    Copied(Vec<u8>),
    /// The same, on disk.
    OnDisk(OnDisk),
}

impl Contents {
    /// Of a file.
    ///
    /// # Errors
    /// Where it cannot be read, is no ELF file, or would have to be copied and is larger than [`COPY_MAX`]
    /// ([`io::ErrorKind::FileTooLarge`]).
    pub fn of(file: &File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        let copied = may_be_cut_short(file, &metadata);
        check(file, metadata.size(), copied)?;
        if copied && metadata.size() > MEMORY_MAX {
            match OnDisk::of(file, metadata.size()) {
                Err(error)
                    if error.kind() != io::ErrorKind::FileTooLarge && metadata.size() <= WITHOUT_DISK_MAX =>
                {
                    tracing::debug!(%error, "copied into memory");
                }
                copy => return copy.map(Self::OnDisk),
            }
        }
        if copied {
            let mut bytes = Vec::with_capacity(usize::try_from(metadata.size()).unwrap_or(0));
            // It may have been read before. One that grows is read to where it ended.
            (&*file).seek(SeekFrom::Start(0))?;
            file.take(metadata.size()).read_to_end(&mut bytes)?;
            return Ok(Self::Copied(bytes));
        }
        // SAFETY: the bytes are only read, through a private mapping that lives as long as the value. Two things rest on
        // others. A file that is written to while it is mapped changes under the slices: nothing relies on bytes read
        // twice being equal for memory safety, as every access goes through checked slices of plain bytes (`str` is
        // made only by copying with a check). A file that is cut short raises SIGBUS: only root and our own user can
        // do that, who replace the libraries of running programs by renaming, as the programs would break too.
        Ok(Self::Mapped(unsafe { Mmap::map(file)? }))
    }
}

impl AsRef<[u8]> for Contents {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Copied(bytes) => bytes,
            Self::OnDisk(copy) => copy.as_ref(),
        }
    }
}

/// Whether a file that is open can be cut short by others than root and our own user, be it with its file system.
#[must_use]
pub fn may_be_cut_short(file: &File, metadata: &Metadata) -> bool {
    // Whoever owns the file or its file system harms nobody else where the daemon is theirs.
    others_may_write(metadata) || metadata.uid() == 0 && !is_of_this_machine(file)
}

/// Whether a file lies where programs can take their owner's rights. A file system that a user has mounted, from an image, a removable
/// disk or a program of their own, is mounted without (`nosuid` of mount(8)).
///
/// In a user namespace they may mount an overlay of theirs with it: that is believed where it is mounted for this process, too.
fn is_of_this_machine(file: &File) -> bool {
    let is_known = || match fstatfs(file) {
        Ok(system) if system.f_type == OVERLAY => own_mounts::have(file),
        system => system.is_ok(),
    };
    fstatvfs(file).is_ok_and(|mount| !mount.f_flag.contains(StatVfsMountFlags::NOSUID)) && is_known()
}

/// Whether a file can be cut short by others than root and our own user.
#[must_use]
pub fn others_may_write(file: &Metadata) -> bool {
    let trusted = file.uid() == 0 || file.uid() == rustix::process::geteuid().as_raw();
    !trusted || file.mode() & OTHERS_WRITE != 0
}

/// Refuses what is no ELF file, or too large to be copied.
///
/// # Errors
/// As for [`Contents::of`].
pub fn check(file: &File, length: u64, to_copy: bool) -> io::Result<()> {
    let mut magic = [0; MAGIC.len()];
    file.read_exact_at(&mut magic, 0)?;
    if magic != MAGIC {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "no ELF file"));
    }
    if to_copy && length > COPY_MAX {
        let text =
            format!("others may write to it, or to its file system, and it has more than {COPY_MAX} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        io::Write as _,
        os::unix::fs::{PermissionsExt as _, chown},
        path::Path,
        process::{Command, Stdio},
    };

    use profiler_testkit::skipped;

    use super::*;

    fn contents(path: &Path) -> io::Result<Contents> {
        Contents::of(&File::open(path).unwrap())
    }

    fn cut(path: &Path, length: u64) {
        let file = File::options().write(true).open(path).unwrap();
        file.set_len(length).unwrap();
    }

    #[test]
    fn copies_files_that_other_users_can_truncate() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("copy");
        let whole = fs::read("/bin/true").unwrap();
        for mode in [0o755, 0o775, 0o757] {
            fs::write(&path, &whole).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let contents = contents(&path).unwrap();
            let copied = matches!(contents, Contents::Copied(_));
            assert_eq!(copied, mode != 0o755, "{mode:o}");
            if copied {
                cut(&path, 0);
                // Of a mapping, this would end the process.
                assert_eq!(contents.as_ref(), whole);
            }
        }
        fs::write(&path, &whole).unwrap();
        cut(&path, COPY_MAX + 1);
        let refused = contents(&path).err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn another_users_file_is_copied() {
        if !rustix::process::geteuid().is_root() {
            return skipped("only root can give files away");
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("copy");
        fs::copy("/bin/true", &path).unwrap();
        chown(&path, Some(65534), None).unwrap();
        let file = File::open(&path).unwrap();
        for _ in 0..2 {
            let contents = Contents::of(&file).unwrap();
            assert!(matches!(contents, Contents::Copied(_)));
            assert_eq!(contents.as_ref(), fs::read("/bin/true").unwrap());
        }
    }

    #[test]
    fn what_says_that_it_is_roots_is_not_believed_where_others_mount() {
        if !rustix::process::geteuid().is_root() {
            return skipped("only root can mount");
        }
        let folder = tempfile::tempdir().unwrap();
        let script =
            "mount -t tmpfs -o nosuid tmpfs \"$0\" && cp /bin/cat \"$0\" && echo ready && exec \"$0\"/cat";
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", script]).arg(folder.path());
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // What it says twice comes from its own `cat`.
        child.stdin.as_mut().unwrap().write_all(b"again\n").unwrap();
        let mut said = [0; "ready\nagain\n".len()];
        child.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
        let file = File::open(format!("/proc/{}/exe", child.id())).unwrap();
        assert!(matches!(Contents::of(&file).unwrap(), Contents::Copied(_)));
        let metadata = file.metadata().unwrap();
        assert_eq!(metadata.uid(), 0);
        assert_eq!(FileKey::of_open(&file, &metadata).owner, UNKNOWN_OWNER);
        let own = File::open("/bin/true").unwrap();
        assert_eq!(FileKey::of_open(&own, &own.metadata().unwrap()).owner, 0);
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
    }

    #[test]
    fn refuses_files_that_are_not_elf() {
        let refused = contents(Path::new("/etc/passwd")).err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
    }
}
