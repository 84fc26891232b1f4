//! Which user what is done for a process counts for.

use std::fs;

use super::stat::Status;

/// The user whose processes count for nobody else.
pub const ROOT: u32 = 0;

/// The user who started a process, whatever that may do by now; `None` where it has ended. This waits for nothing of the process, unlike
/// looking at `/proc/PID/ns` does (`proc_ns_get_link` in `fs/proc/namespaces.c`).
///
/// What a user has started in a user namespace of their own is theirs, whatever number it has there: it counts for who is root there. What
/// the daemon's own user has started counts as root's.
#[must_use]
pub fn user_of(pid: u32) -> Option<u32> {
    let status = Status::parse(&fs::read(format!("/proc/{pid}/status")).ok()?)?;
    let map = fs::read_to_string(format!("/proc/{pid}/uid_map")).ok()?;
    let user = match root_there(&map) {
        None | Some(ROOT) => status.users[0],
        Some(maker) => maker,
    };
    let is_own = user == rustix::process::getuid().as_raw();
    Some(if is_own { ROOT } else { user })
}

/// Who is root in a user namespace, of its `uid_map` (`user_namespaces(7)`); `None` where nobody who is known here is.
fn root_there(map: &str) -> Option<u32> {
    let mut extents = map.lines().filter_map(|line| {
        let mut numbers = line.split_whitespace().map(str::parse::<u32>);
        Some([numbers.next()?.ok()?, numbers.next()?.ok()?])
    });
    extents
        .find(|[inside, _]| *inside == ROOT)
        .map(|[_, outside]| outside)
        .filter(|outside| *outside != u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::{
        io::Read as _,
        process::{Command, Stdio},
    };

    use profiler_testkit::{has_program, skipped};

    use super::*;

    /// As another user.
    fn as_other() -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--clear-groups"]);
        command
    }

    fn user_of_other(command: &[&str]) -> Option<u32> {
        let mut child = as_other()
            .args(command)
            .args(["sh", "-c", "echo ready; read end"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = [0; "ready\n".len()];
        child.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
        let user = user_of(child.id());
        drop(child.stdin.take());
        child.wait().unwrap();
        user
    }

    #[test]
    fn a_namespace_is_of_who_is_root_there() {
        assert_eq!(root_there("         0          0 4294967295\n"), Some(ROOT));
        assert_eq!(root_there("1 100000 65536\n0 1000 1\n"), Some(1000));
        assert_eq!(root_there("0 4294967295 1\n"), None);
        assert_eq!(root_there(""), None);
    }

    #[test]
    fn a_process_counts_for_who_started_it() {
        assert_eq!(user_of(std::process::id()), Some(ROOT));
        // No process has so high a number.
        assert_eq!(user_of(5_000_000), None);
        if !rustix::process::geteuid().is_root() || !has_program("setpriv") {
            return skipped("processes of others: needs root, and setpriv");
        }
        assert_eq!(user_of_other(&[]), Some(65534));
        let namespace = ["unshare", "-U", "-r"];
        if as_other()
            .args(namespace)
            .arg("true")
            .status()
            .is_ok_and(|status| status.success())
        {
            assert_eq!(user_of_other(&namespace), Some(65534), "root is who made it");
        } else {
            skipped("user namespaces of others: they may make none");
        }
    }
}
