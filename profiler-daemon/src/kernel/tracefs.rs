//! What the kernel's trace file system says of tracepoints.

use std::{fs, io, io::Read as _, path::Path};

use rustix::{
    fs::{Mode, OFlags},
    mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen},
};

/// Where it is mounted, if it is.
const MOUNTED: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Bytes of a tracepoint's number.
const MAX_NUMBER_BYTES: u64 = 32;

/// The number that the kernel knows a tracepoint by.
///
/// # Errors
/// `NotFound` where there is none of that name, or no trace file system.
pub fn tracepoint_number(category: &str, name: &str) -> io::Result<u64> {
    let path = format!("events/{category}/{name}/id");
    let mounted = MOUNTED
        .map(Path::new)
        .into_iter()
        .find(|at| at.join("events").is_dir());
    let text = match mounted {
        Some(at) => fs::read_to_string(at.join(path))?,
        None => read_unmounted(&path)?,
    };
    text.trim().parse().map_err(io::Error::other)
}

/// Reads a file of it from a mount of our own that is nowhere to be seen, and gone with its descriptor.
fn read_unmounted(path: &str) -> io::Result<String> {
    let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    let root = fsmount(
        &context,
        FsMountFlags::FSMOUNT_CLOEXEC,
        MountAttrFlags::MOUNT_ATTR_RDONLY,
    )?;
    let file = rustix::fs::openat(&root, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut text = String::new();
    fs::File::from(file)
        .take(MAX_NUMBER_BYTES)
        .read_to_string(&mut text)?;
    Ok(text)
}
