//! Whose rights decide whether a file is opened. What leads to the files of a module was put there by others: opened
//! with this process's own rights, a link could have root read a file for somebody who may not.

use std::{
    fs::{self, File},
    io,
    os::{fd::AsRawFd as _, unix::fs::MetadataExt as _},
    path::PathBuf,
    sync::mpsc,
    thread,
};

use profiler_target::{Status, open_at_once};
use rustix::{
    process::{Gid, Uid, geteuid},
    thread::{
        CapabilitySet, CapabilitySets, set_capabilities, set_thread_groups, set_thread_res_gid,
        set_thread_res_uid,
    },
};

use super::home::ALL_MAY_READ;

/// The user and the group of those who have no rights.
const NOBODY: u32 = 65_534;

/// The user and groups by which the kernel decides what files somebody may read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    uid: u32,
    gid: u32,
    supplementary: Vec<u32>,
}

impl Rights {
    /// Those of a process, as it is now; nobody's where it is gone. To be asked for before what it has mapped is read: it may turn into
    /// a process with more rights at any time, which must not be those that its old files are opened with.
    #[must_use]
    pub fn of_process(pid: u32) -> Self {
        let status = fs::read(format!("/proc/{pid}/status"));
        let status = status.ok().and_then(|status| Status::parse(&status));
        status.map_or(Self::nobody(), |status| Self::of(&status))
    }

    /// Those of somebody who has none but everybody's.
    #[must_use]
    pub const fn nobody() -> Self {
        Self::without_groups(NOBODY)
    }

    /// Those of a user, by one group alone.
    #[must_use]
    pub const fn of_user(uid: u32, gid: u32) -> Self {
        Self {
            uid,
            gid,
            supplementary: Vec::new(),
        }
    }

    /// Those that a process's status tells.
    #[must_use]
    pub fn of(status: &Status) -> Self {
        let [.., uid] = status.users;
        let [.., gid] = status.groups;
        Self {
            uid,
            gid,
            supplementary: status.supplementary.clone(),
        }
    }

    /// The same supplementary groups, which no exec changes, with another user and another group.
    #[must_use]
    pub fn with_user(self, uid: u32, gid: u32) -> Self {
        Self { uid, gid, ..self }
    }

    const fn without_groups(uid: u32) -> Self {
        Self::of_user(uid, NOBODY)
    }
}

/// Whose rights decide whether a file is opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reader(Option<Rights>);

impl Reader {
    /// This process itself.
    pub const OWN: Self = Self(None);

    /// A user, with the rights of none of their groups.
    #[must_use]
    pub fn user(uid: u32) -> Self {
        // Root may read what any daemon may.
        let is_other = uid != 0 && uid != geteuid().as_raw();
        Self(is_other.then_some(Rights::without_groups(uid)))
    }

    /// A process of these rights.
    #[must_use]
    pub fn process(rights: Rights) -> Self {
        // Without root's rights there are none to give up.
        let is_other = geteuid().is_root() && rights.uid != 0;
        Self(is_other.then_some(rights))
    }

    /// Who reads what belongs to a module that a process of these rights has mapped: the module's owner, as nobody else answers
    /// for where the module leads; and the process for modules of root's, which lead nowhere that root did not choose.
    #[must_use]
    pub fn of_module(rights: &Rights, owner: u32) -> Self {
        if owner == 0 || owner == rights.uid {
            Self::process(rights.clone())
        } else {
            Self::process(Rights::without_groups(owner))
        }
    }

    /// Whether a file that is open, by whatever rights, may be read with these.
    #[must_use]
    pub fn may_read(&self, file: &File) -> bool {
        let own = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        self.0.is_none()
            || file
                .metadata()
                .is_ok_and(|metadata| metadata.mode() & ALL_MAY_READ != 0)
            || self.run(|| open_at_once(&own)).is_ok()
    }

    /// The user whose rights these are, where they are not this process's own.
    pub(super) fn user_id(&self) -> Option<u32> {
        self.0.as_ref().map(|rights| rights.uid)
    }

    /// Runs something with these rights.
    ///
    /// # Errors
    /// Where the system has no thread for it, or does not let it take the rights.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        let Some(rights) = &self.0 else {
            return work();
        };
        // Rights are a thread's own; they go with it.
        thread::scope(|scope| {
            let thread = thread::Builder::new().spawn_scoped(scope, || {
                take_rights(rights)?;
                work()
            })?;
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Begins something with these rights that may never end, on a thread of its own: what comes of it is received.
    ///
    /// # Errors
    /// Where the system has no thread for it. That it does not let it take the rights is received.
    pub fn begin<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<mpsc::Receiver<io::Result<T>>> {
        let (sender, done) = mpsc::channel();
        let rights = self.0.clone();
        thread::Builder::new().spawn(move || {
            let taken = rights.as_ref().map_or(Ok(()), take_rights);
            // Nobody may be waiting any more.
            let _ = sender.send(taken.map(|()| work()));
        })?;
        Ok(done)
    }
}

/// Leaves this thread these rights alone. The groups first, as it takes rights to change them.
///
/// The thread stays its own user's: whoever is the real or the saved user of one thread may send signals to the whole
/// process. So the rights are given up by what was permitted too, or they could be taken again.
fn take_rights(rights: &Rights) -> io::Result<()> {
    let (own, uid, gid) = (geteuid(), Uid::from_raw(rights.uid), Gid::from_raw(rights.gid));
    let supplementary: Vec<Gid> = rights
        .supplementary
        .iter()
        .map(|&gid| Gid::from_raw(gid))
        .collect();
    set_thread_groups(&supplementary)?;
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(own, uid, own)?;
    let none = CapabilitySet::empty();
    set_capabilities(
        None,
        CapabilitySets {
            effective: none,
            permitted: none,
            inheritable: none,
        },
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use profiler_testkit::skipped;

    use super::*;

    #[test]
    fn rights_are_a_users_while_something_runs_and_no_longer() {
        if !geteuid().is_root() {
            return skipped("only root can take others' rights");
        }
        let status = || fs::read_to_string("/proc/thread-self/status");
        let rights = Rights {
            uid: 1_234,
            gid: 1_235,
            supplementary: vec![7, 9],
        };
        let before = status().unwrap();
        let during = Reader::process(rights).run(status).unwrap();
        let line = |name: &str| during.lines().find(|line| line.starts_with(name)).unwrap();
        assert_eq!(line("Uid:"), "Uid:\t0\t1234\t0\t1234");
        assert_eq!(line("Gid:"), "Gid:\t1235\t1235\t1235\t1235");
        assert_eq!(line("Groups:").trim_end(), "Groups:\t7 9");
        for rights in ["CapPrm:", "CapEff:", "CapInh:"] {
            assert_eq!(
                line(rights).split('\t').nth(1),
                Some("0000000000000000"),
                "{during}"
            );
        }
        let told = |status: &str| {
            let of = |line: &&str| ["Uid:", "Gid:", "Cap"].iter().any(|name| line.starts_with(name));
            status.lines().filter(of).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(told(&status().unwrap()), told(&before));
    }

    #[test]
    fn who_may_read_a_file_that_is_open_is_decided_by_its_mode() {
        use std::os::unix::fs::{PermissionsExt as _, chown};
        if !geteuid().is_root() {
            return skipped("only root can take others' rights");
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        fs::write(&path, "text").unwrap();
        chown(&path, Some(0), Some(9)).unwrap();
        let file = File::open(&path).unwrap();
        let user = Rights::of_user(1_234, 1_235);
        let of_group = Rights {
            supplementary: vec![9],
            ..user.clone()
        };
        let readers = [Reader::OWN, Reader::process(user), Reader::process(of_group)];
        for (mode, expected) in [
            (0o711, [true, false, false]),
            (0o750, [true, false, true]),
            (0o755, [true; 3]),
        ] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let may = readers.each_ref().map(|reader| reader.may_read(&file));
            assert_eq!(may, expected, "{mode:o}");
        }
    }

    #[test]
    fn what_may_never_end_has_the_rights_too() {
        if !geteuid().is_root() {
            return skipped("only root can take others' rights");
        }
        let status = || fs::read_to_string("/proc/thread-self/status").unwrap();
        let begun = Reader::process(Rights::of_user(1_234, 1_235))
            .begin(status)
            .unwrap();
        let during = begun.recv().unwrap().unwrap();
        let line = |name: &str| during.lines().find(|line| line.starts_with(name)).unwrap();
        assert_eq!(line("Uid:"), "Uid:\t0\t1234\t0\t1234");
        assert_eq!(line("Gid:"), "Gid:\t1235\t1235\t1235\t1235");
        assert_eq!(line("Groups:").trim_end(), "Groups:");
        assert_eq!(line("CapEff:"), "CapEff:\t0000000000000000");
    }

    #[test]
    fn a_module_is_read_for_by_its_owner_and_roots_by_the_process() {
        if !geteuid().is_root() {
            return skipped("only root can take others' rights");
        }
        let root = Rights::of_process(std::process::id());
        assert_eq!(Reader::of_module(&root, 0), Reader::OWN);
        assert_eq!(Reader::of_module(&root, 1_234), Reader::user(1_234));
        let ended = Rights::of_process(i32::MAX.cast_unsigned());
        assert_eq!(Reader::of_module(&ended, 0), Reader::user(NOBODY));
        let of_group = Rights {
            gid: 7,
            ..Rights::without_groups(1_234)
        };
        assert_eq!(
            Reader::of_module(&of_group, 1_234),
            Reader(Some(of_group.clone()))
        );
        assert_eq!(Reader::of_module(&of_group, 1_235), Reader::user(1_235));
    }
}
