//! The file systems that are mounted for this process.

use std::{
    collections::HashSet,
    fs::{self, File},
    os::unix::fs::MetadataExt as _,
    sync::{LazyLock, Mutex, PoisonError},
    time::{Duration, Instant},
};

use rustix::fs::makedev;

/// One that was not found is looked for again after this time.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The devices of all, as last read.
#[derive(Default)]
struct Known {
    devices: HashSet<u64>,
    read_at: Option<Instant>,
}

static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);

/// Whether the file system of an open file is among them; as far as is known.
pub(super) fn have(file: &File) -> bool {
    let Ok(device) = file.metadata().map(|metadata| metadata.dev()) else {
        return false;
    };
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if known.devices.contains(&device) {
        return true;
    }
    if known.read_at.is_none_or(|at| at.elapsed() >= LOOK_AGAIN) {
        match fs::read("/proc/self/mountinfo") {
            Ok(text) => known.devices = devices(&text).collect(),
            Err(error) => tracing::debug!(%error, "own mounts are not read"),
        }
        known.read_at = Some(Instant::now());
    }
    known.devices.contains(&device)
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
    use std::io;

    use super::*;

    #[test]
    fn what_is_mounted_for_this_process_is_known() {
        let file = File::open("/proc/self/exe").unwrap();
        assert!(have(&file));
        // A pipe is of a file system that is mounted nowhere.
        let (pipe, _other) = io::pipe().unwrap();
        assert!(!have(&File::from(std::os::fd::OwnedFd::from(pipe))));
        let text = b"36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw\nnothing\n";
        assert_eq!(devices(text).collect::<Vec<_>>(), [makedev(98, 0)]);
    }
}
