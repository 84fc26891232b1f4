//! Whose processes are, whose names are made.

use std::collections::HashMap;

use profiler_target::{ROOT, user_of};

/// Most processes that are known; then all are asked about anew.
const PROCESSES_MAX: usize = 1 << 16;
/// What is known for longer is asked again, in ns.
const AGE_MAX_NS: u64 = 1_000_000_000;
/// Whose a process is that was gone before it was asked about: no user has this number.
const NOBODY: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Known {
    user: Option<u32>,
    asked_at_ns: u64,
}

/// Users, by the numbers of their processes.
#[derive(Default)]
pub(super) struct Owners(HashMap<u32, Known>);

impl Owners {
    /// The user whose process this is; `None` where that is root, or who runs this and has it for themselves.
    pub fn of(&mut self, pid: u32, now_ns: u64) -> Option<u32> {
        let known = self.0.get(&pid).copied();
        if let Some(known) = known.filter(|known| now_ns.saturating_sub(known.asked_at_ns) < AGE_MAX_NS) {
            return known.user;
        }
        let before = known.map_or(Some(NOBODY), |known| known.user);
        let user = user_of(pid).map_or(before, |user| Some(user).filter(|user| *user != ROOT));
        if self.0.len() >= PROCESSES_MAX {
            self.0.clear();
        }
        let asked_at_ns = now_ns;
        self.0.insert(pid, Known { user, asked_at_ns });
        user
    }

    /// Forgets a process.
    pub fn forget(&mut self, pid: u32) {
        self.0.remove(&pid);
    }
}

#[cfg(test)]
mod tests {
    use std::{os::unix::process::CommandExt as _, process::Command};

    use super::*;

    #[test]
    fn who_runs_this_and_root_have_no_share() {
        let mut owners = Owners::default();
        assert_eq!(owners.of(std::process::id(), 0), None);
        assert_eq!(owners.of(1, 0), None, "root's");
    }

    #[test]
    fn a_process_is_its_users_also_once_it_has_ended() {
        const USER: u32 = 65_534;
        let mut owners = Owners::default();
        // No process has this number.
        assert_eq!(owners.of(1 << 30, 0), Some(NOBODY));
        if !rustix::process::geteuid().is_root() {
            profiler_testkit::skipped("only root begins processes of others");
            return;
        }
        let mut child = Command::new("sleep").arg("1000").uid(USER).spawn().unwrap();
        let pid = child.id();
        assert_eq!(owners.of(pid, 0), Some(USER));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(owners.of(pid, 2 * AGE_MAX_NS), Some(USER));
        owners.forget(pid);
        assert_eq!(owners.of(pid, 2 * AGE_MAX_NS), Some(NOBODY));
    }
}
