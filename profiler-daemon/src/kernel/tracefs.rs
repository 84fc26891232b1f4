//! What tracepoints the kernel has, and what their records hold: its `tracefs`, mounted or not.

use std::{
    collections::HashSet,
    io,
    os::fd::{AsRawFd as _, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use super::KernelError;

/// Where it is mounted, if it is.
const MOUNTED: [&str; 2] = ["/sys/kernel/tracing/events", "/sys/kernel/debug/tracing/events"];

/// The kernel's tracepoints.
pub struct Tracefs {
    events: PathBuf,
    /// Of a mount that nobody else sees.
    _mount: Option<OwnedFd>,
}

impl Tracefs {
    /// Finds it where it is mounted, or else mounts it where nobody else sees it.
    ///
    /// # Errors
    /// Where it is neither mounted nor can be, for want of a privilege mostly.
    pub fn open() -> Result<Self, KernelError> {
        let mounted = MOUNTED.into_iter().map(Path::new).find(|path| path.is_dir());
        if let Some(path) = mounted {
            return Ok(Self {
                events: path.to_owned(),
                _mount: None,
            });
        }
        let mount = || {
            let system = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
            fsconfig_create(&system)?;
            fsmount(&system, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
        };
        let mount = mount().map_err(|error| {
            let what = "mounting tracefs, which says what tracepoints there are (or mount it at /sys/kernel/tracing)";
            KernelError::system(what, error.into())
        })?;
        Ok(Self {
            events: format!("/proc/self/fd/{}/events", mount.as_raw_fd()).into(),
            _mount: Some(mount),
        })
    }

    /// Number and record of a tracepoint, as the kernel describes them; `None` where there is no such.
    ///
    /// # Errors
    /// Where it cannot be read.
    pub fn format(&self, category: &str, name: &str) -> Result<Option<String>, KernelError> {
        if [category, name]
            .iter()
            .any(|part| part.contains('/') || part.starts_with('.'))
        {
            return Ok(None);
        }
        let path = self.events.join(category).join(name).join("format");
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text)),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                Ok(None)
            }
            Err(error) => Err(KernelError::system(
                format!("reading the format of tracepoint {category}:{name}"),
                error,
            )),
        }
    }

    /// The number that the kernel knows a tracepoint by.
    ///
    /// # Errors
    /// `NotFound` where there is no such.
    pub fn number(&self, category: &str, name: &str) -> io::Result<u64> {
        let text = std::fs::read_to_string(self.events.join(category).join(name).join("id"))?;
        text.trim().parse().map_err(io::Error::other)
    }

    /// The functions that the kernel can trace; `None` where it does not say.
    #[must_use]
    pub fn traceable(&self) -> Option<HashSet<String>> {
        let path = self.events.parent()?.join("available_filter_functions");
        let text = std::fs::read_to_string(path).ok()?;
        let names = text
            .lines()
            .filter_map(|line| line.split_ascii_whitespace().next());
        Some(names.map(str::to_owned).collect())
    }

    /// The categories of tracepoints.
    #[must_use]
    pub fn categories(&self) -> Vec<String> {
        folders(&self.events)
    }

    /// The tracepoints of a category.
    #[must_use]
    pub fn names(&self, category: &str) -> Vec<String> {
        folders(&self.events.join(category))
    }
}

/// The names of a folder's folders; none where it cannot be read.
fn folders(path: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(path) else {
        return Vec::new();
    };
    let folders = entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}
