//! Whose a process is, and what it may do: what the kernel decides by whether a user may trace it (`__ptrace_may_access` in
//! `kernel/ptrace.c`).

use std::{
    fs::{self, File},
    io,
    os::{fd::AsRawFd as _, unix::fs::MetadataExt as _},
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
    /// Who owns its user namespace; `None` for that of the daemon.
    pub namespace_owner: Option<u32>,
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
            namespace_owner: namespace_owner(pid)?,
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
            namespace_owner: (state.namespace_level > 0).then_some(state.namespace_owner),
        }
    }
}

/// Who owns the user namespace of a process, if that is not the daemon's own.
fn namespace_owner(pid: u32) -> io::Result<Option<u32>> {
    /// `NS_GET_OWNER_UID` of `linux/nsfs.h`.
    const GET_OWNER: libc::Ioctl = 0xb704;
    let path = format!("/proc/{pid}/ns/user");
    let (of_process, own) = match (fs::metadata(&path), fs::metadata("/proc/self/ns/user")) {
        (Ok(of_process), Ok(own)) => (of_process, own),
        // Kernels without such namespaces.
        (_, Err(_)) => return Ok(None),
        (Err(error), Ok(_)) => return Err(error),
    };
    if (of_process.dev(), of_process.ino()) == (own.dev(), own.ino()) {
        return Ok(None);
    }
    let namespace = File::open(path)?;
    let mut owner: libc::uid_t = 0;
    // SAFETY: the descriptor is open, and the call writes one number.
    if unsafe { libc::ioctl(namespace.as_raw_fd(), GET_OWNER, &raw mut owner) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Some(owner))
}
