//! Where a file is, as the kernel knows it: a file system that may not answer is not asked.

use std::{io, os::fd::AsFd, path::Path};

use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};

/// Where a file, a folder or a namespace is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Place {
    /// The number of the mount, which is no other mount namespace's; 0 where the kernel does not tell it.
    pub mount: u64,
    /// What a mount shows may be of several devices: subvolumes of btrfs are.
    device: u64,
    inode: u64,
}

impl Place {
    /// That of an open file.
    ///
    /// # Errors
    /// Where the kernel does not tell it.
    pub fn of(open: impl AsFd) -> io::Result<Self> {
        Self::below(open, Path::new(""))
    }

    /// Where a path leads this process. Folders on the way may be on file systems that do not answer.
    ///
    /// # Errors
    /// Where it leads nowhere.
    pub fn at(path: &Path) -> io::Result<Self> {
        Self::below(CWD, path)
    }

    fn below(folder: impl AsFd, path: &Path) -> io::Result<Self> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let found = statx(folder, path, flags, StatxFlags::INO | StatxFlags::MNT_ID)?;
        Ok(Self {
            mount: found.stx_mnt_id,
            device: makedev(found.stx_dev_major, found.stx_dev_minor),
            inode: found.stx_ino,
        })
    }
}
