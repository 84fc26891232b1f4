//! The file systems that are mounted for this process.

use std::{
    fs::{self, File},
    os::unix::fs::MetadataExt as _,
};

use rustix::fs::makedev;

/// Whether the file system of an open file is among them. They are read for each that is asked about: while a file of it is open, a file
/// system's number is no other's.
pub(super) fn have(file: &File) -> bool {
    let Ok(device) = file.metadata().map(|metadata| metadata.dev()) else {
        return false;
    };
    fs::read("/proc/self/mountinfo").is_ok_and(|text| devices(&text).any(|mounted| mounted == device))
}

/// The third field of each line (`proc_pid_mountinfo(5)`).
fn devices(text: &[u8]) -> impl Iterator<Item = u64> {
    text.split(|byte| *byte == b'\n').filter_map(|line| {
        let device = line.split(|byte| *byte == b' ').nth(2)?;
        let (major, minor) = str::from_utf8(device).ok()?.split_once(':')?;
        Some(makedev(major.parse().ok()?, minor.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use std::{io, os::fd::OwnedFd};

    use super::*;

    #[test]
    fn what_is_mounted_for_this_process_is_known() {
        let file = File::open("/proc/self/exe").unwrap();
        assert!(have(&file));
        // A pipe is of a file system that is mounted nowhere.
        let (pipe, _other) = io::pipe().unwrap();
        assert!(!have(&File::from(OwnedFd::from(pipe))));
        let text = b"36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw\nnothing\n";
        assert_eq!(devices(text).collect::<Vec<_>>(), [makedev(98, 0)]);
    }
}
