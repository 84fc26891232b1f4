//! Whose a process is, and what it may do: what the kernel decides by whether a user may trace it (`__ptrace_may_access` in
//! `kernel/ptrace.c`).

use std::{
    fs::{self, File},
    io,
    os::{
        fd::{AsRawFd as _, FromRawFd as _},
        unix::fs::MetadataExt as _,
    },
};

use profiler_common::admission::{ProcessState, Rights};

use super::stat::Status;

/// Three numbers of users or groups, in the numbering of the initial user namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ids {
    /// Who started the process.
    pub real: u32,
    /// Whose rights it has.
    pub effective: u32,
    /// Whose rights it can take back.
    pub saved: u32,
}

impl Ids {
    /// One of them that is not this one; `None` where all three are.
    #[must_use]
    pub fn other_than(&self, id: u32) -> Option<u32> {
        [self.effective, self.saved, self.real]
            .into_iter()
            .find(|other| *other != id)
    }
}

/// The user namespace of a process, as the daemon sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Namespace {
    /// The daemon's own.
    Own,
    /// One that was made in the daemon's own, by this user.
    MadeBy(u32),
    /// One within such a one.
    Nested,
}

/// What a process is to the kernel that another wants to trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Its users.
    pub users: Ids,
    /// Its groups.
    pub groups: Ids,
    /// Its permitted capabilities, a bit each, in its user namespace.
    pub permitted: u64,
    /// Its owner may read its memory (`PR_SET_DUMPABLE`). Not so where its file cannot be read, or gave it rights, or where it gave up
    /// some.
    pub dumpable: bool,
    /// Its user namespace.
    pub namespace: Namespace,
}

impl Standing {
    /// Of the process of this number, now; its fields may be of different moments.
    ///
    /// # Errors
    /// Where the process is gone.
    pub fn of(pid: u32) -> io::Result<Self> {
        let text = fs::read(format!("/proc/{pid}/status"))?;
        let status = Status::parse(&text).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        let ids = |[real, effective, saved, _]: [u32; 4]| Ids {
            real,
            effective,
            saved,
        };
        // The files of a process whose memory only root may read are root's, but for the folder itself
        // (`task_dump_owner` in `fs/proc/base.c`).
        let owner = fs::metadata(format!("/proc/{pid}/maps"))?;
        let users = ids(status.users);
        let dumpable = owner.uid() == users.effective;
        Ok(Self {
            users,
            groups: ids(status.groups),
            permitted: status.permitted,
            dumpable,
            namespace: namespace(pid)?,
        })
    }
}

impl From<&ProcessState> for Standing {
    fn from(state: &ProcessState) -> Self {
        let rights = &state.rights;
        Self {
            users: Ids {
                real: rights.user,
                effective: rights.effective_user,
                saved: rights.saved_user,
            },
            groups: Ids {
                real: rights.group,
                effective: rights.effective_group,
                saved: rights.saved_group,
            },
            permitted: rights.permitted,
            dumpable: rights.dumpable == Rights::DUMPABLE,
            namespace: match state.namespace_level {
                0 => Namespace::Own,
                1 => Namespace::MadeBy(state.namespace_owner),
                _ => Namespace::Nested,
            },
        }
    }
}

/// The user namespace of a process.
fn namespace(pid: u32) -> io::Result<Namespace> {
    /// `NS_GET_PARENT` of `linux/nsfs.h`.
    const GET_PARENT: libc::Ioctl = 0xb702;
    /// `NS_GET_OWNER_UID`.
    const GET_OWNER: libc::Ioctl = 0xb704;
    let identity = |file: &fs::Metadata| (file.dev(), file.ino());
    let path = format!("/proc/{pid}/ns/user");
    let (of_process, own) = match (fs::metadata(&path), fs::metadata("/proc/self/ns/user")) {
        (Ok(of_process), Ok(own)) => (identity(&of_process), identity(&own)),
        // Kernels without such namespaces.
        (_, Err(_)) => return Ok(Namespace::Own),
        (Err(error), Ok(_)) => return Err(error),
    };
    if of_process == own {
        return Ok(Namespace::Own);
    }
    let file = File::open(path)?;
    // SAFETY: the descriptor is open; the call gives another, which is nobody else's.
    let parent = unsafe {
        match libc::ioctl(file.as_raw_fd(), GET_PARENT) {
            // The namespace it is in is not one of those below the daemon's.
            ..0 => return Ok(Namespace::Nested),
            parent => File::from_raw_fd(parent),
        }
    };
    if identity(&parent.metadata()?) != own {
        return Ok(Namespace::Nested);
    }
    let mut owner: libc::uid_t = 0;
    // SAFETY: the descriptor is open, and the call writes one number.
    if unsafe { libc::ioctl(file.as_raw_fd(), GET_OWNER, &raw mut owner) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Namespace::MadeBy(owner))
}
