//! Whose rights decide whether a file is opened. What leads to the files of a module was put there by others: opened
//! with this process's own rights, a link could have root read a file for somebody who may not.

use std::{fs, io, thread};

use profiler_target::Status;
use rustix::{
    process::{Gid, Uid, geteuid},
    thread::{
        CapabilitySet, CapabilitySets, set_capabilities, set_thread_groups, set_thread_res_gid,
        set_thread_res_uid,
    },
};

/// The user and the group of those who have no rights.
const NOBODY: u32 = 65_534;

/// Whose rights decide whether a file is opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reader(Option<User>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct User {
    uid: u32,
    gid: u32,
    supplementary: Vec<u32>,
}

impl User {
    const fn without_groups(uid: u32) -> Self {
        Self {
            uid,
            gid: NOBODY,
            supplementary: Vec::new(),
        }
    }
}

impl Reader {
    /// This process itself.
    pub const OWN: Self = Self(None);

    /// A user, with the rights of none of their groups.
    #[must_use]
    pub fn user(uid: u32) -> Self {
        Self((uid != geteuid().as_raw()).then_some(User::without_groups(uid)))
    }

    /// A process, as it is now: its user and groups. Nobody, where it is gone.
    #[must_use]
    pub fn process(pid: u32) -> Self {
        user_of(pid).map_or(Self::user(NOBODY), Self::other)
    }

    /// Who reads what belongs to a module that a process has mapped: the module's owner, as nobody else answers for where
    /// the module leads; and the process for modules of root's, which lead nowhere that root did not choose.
    ///
    /// So a process that turns into one with more rights while this looks at it adds nothing to what its old modules
    /// lead to.
    #[must_use]
    pub fn of_module(pid: u32, owner: u32) -> Self {
        match user_of(pid) {
            Some(user) if owner == 0 || owner == user.uid => Self::other(user),
            None if owner == 0 => Self::user(NOBODY),
            _ => Self::other(User::without_groups(owner)),
        }
    }

    fn other(user: User) -> Self {
        let own = geteuid().as_raw();
        // Without root's rights there are none to give up.
        Self((own == 0 && user.uid != own).then_some(user))
    }

    /// Runs something with these rights.
    ///
    /// # Errors
    /// Where the system has no thread for it, or does not let it take the rights.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        let Some(user) = &self.0 else {
            return work();
        };
        // Rights are a thread's own; they go with it.
        thread::scope(|scope| {
            let thread = thread::Builder::new().spawn_scoped(scope, || {
                become_user(user)?;
                work()
            })?;
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

/// The user and groups by which a process's access to files is decided.
fn user_of(pid: u32) -> Option<User> {
    let status = Status::parse(&fs::read(format!("/proc/{pid}/status")).ok()?)?;
    let [.., uid] = status.users;
    let [.., gid] = status.groups;
    Some(User {
        uid,
        gid,
        supplementary: status.supplementary,
    })
}

/// Takes from this thread all rights but a user's. The groups first, as it takes rights to change them.
///
/// The thread stays its own user's: whoever is the real or the saved user of one thread may send signals to the whole
/// process. So the rights are given up by what was permitted too, or they could be taken again.
fn become_user(user: &User) -> io::Result<()> {
    let (own, uid, gid) = (geteuid(), Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    let supplementary: Vec<Gid> = user.supplementary.iter().map(|&gid| Gid::from_raw(gid)).collect();
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
    use super::*;

    #[test]
    fn rights_are_a_users_while_something_runs_and_no_longer() {
        if geteuid().as_raw() != 0 {
            return;
        }
        let status = || fs::read_to_string("/proc/thread-self/status");
        let user = User {
            uid: 1_234,
            gid: 1_235,
            supplementary: vec![7, 9],
        };
        let before = status().unwrap();
        let during = Reader::other(user).run(status).unwrap();
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
        let rights = |status: &str| {
            let of = |line: &&str| ["Uid:", "Gid:", "Cap"].iter().any(|name| line.starts_with(name));
            status.lines().filter(of).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(rights(&status().unwrap()), rights(&before));
    }

    #[test]
    fn a_module_is_read_for_by_its_owner_and_roots_by_the_process() {
        if geteuid().as_raw() != 0 {
            return;
        }
        let root = std::process::id();
        assert_eq!(Reader::of_module(root, 0), Reader::OWN);
        assert_eq!(Reader::of_module(root, 1_234), Reader::user(1_234));
        let ended = i32::MAX.cast_unsigned();
        assert_eq!(Reader::of_module(ended, 0), Reader::user(NOBODY));
        assert_eq!(Reader::process(ended), Reader::user(NOBODY));
    }
}
