//! Which user the tables of a process count for.

use std::{fs, os::unix::fs::MetadataExt as _};

use profiler_target::{Namespace, Standing};
use profiler_unwind::ROOT;

/// The user who started a process; `None` where it has ended. What a user has started in a user namespace of their own is theirs,
/// whatever number it has there. What the daemon's own user has started counts as root's.
pub fn user_of(pid: u32) -> Option<u32> {
    let user = match Standing::of(pid) {
        Ok(Standing {
            namespace: Namespace::MadeBy(maker),
            ..
        }) if maker != ROOT => maker,
        Ok(standing) => standing.users.real,
        // The daemon may not be allowed to know all of that.
        Err(_) => fs::metadata(format!("/proc/{pid}")).ok()?.uid(),
    };
    let is_own = user == rustix::process::getuid().as_raw();
    Some(if is_own { ROOT } else { user })
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_counts_for_who_started_it() {
        assert_eq!(user_of(std::process::id()), Some(ROOT));
        // No process has so high a number.
        assert_eq!(user_of(5_000_000), None);
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root can start processes of others");
            return;
        }
        let of_user = |command: &[&str]| {
            let mut child = Command::new("setpriv")
                .args(["--reuid=65534", "--clear-groups"])
                .args(command)
                .args(["sh", "-c", "echo ready; read end"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut said = [0; 6];
            std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut said).unwrap();
            let user = user_of(child.id());
            drop(child.stdin.take());
            child.wait().unwrap();
            user
        };
        assert_eq!(of_user(&[]), Some(65534));
        let may_unshare = Command::new("setpriv")
            .args(["--reuid=65534", "--clear-groups", "unshare", "-U", "-r", "true"])
            .status();
        if may_unshare.is_ok_and(|status| status.success()) {
            assert_eq!(of_user(&["unshare", "-U", "-r"]), Some(65534), "root there");
        } else {
            println!("skipped: users may not make user namespaces here");
        }
    }
}
