//! What stands for a process where there is room for a line.

use profiler_proto::v1;

/// Where it runs: its container, or else its service; empty where neither is known.
#[must_use]
pub fn place(process: &v1::Process) -> &str {
    first(&process.container, &process.unit)
}

/// Its command line, or else its executable: a thread of the kernel and a process that has ended have no command line.
#[must_use]
pub fn command(process: &v1::Process) -> &str {
    first(&process.command, &process.executable)
}

/// [`command`] without the folders of its program: from the program's name on.
#[must_use]
pub fn command_by_name(process: &v1::Process) -> &str {
    let command = command(process);
    // The executable may have spaces in its path; a program may be called by another path than that.
    let behind = command.strip_prefix(process.executable.as_str());
    let is_executable = behind.is_some_and(|behind| behind.is_empty() || behind.starts_with(' '));
    let path = if is_executable && !process.executable.is_empty() {
        &process.executable
    } else {
        command.split(' ').next().unwrap_or_default()
    };
    match path.rfind('/').and_then(|slash| command.get(slash + 1..)) {
        Some(from_name) if !path.ends_with('/') => from_name,
        _ => command,
    }
}

fn first<'a>(text: &'a str, otherwise: &'a str) -> &'a str {
    if text.is_empty() { otherwise } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_without_folders_begins_with_its_program() {
        let by_name = |executable: &str, command: &str| {
            let process = v1::Process {
                executable: executable.to_owned(),
                command: command.to_owned(),
                ..v1::Process::default()
            };
            command_by_name(&process).to_owned()
        };
        for (executable, command, expected) in [
            ("/usr/sbin/sshd", "/usr/sbin/sshd -D", "sshd -D"),
            (
                "/opt/My Tool/bin/tool",
                "/opt/My Tool/bin/tool --a /b/c",
                "tool --a /b/c",
            ),
            (
                "/usr/bin/python3.13",
                "/usr/bin/python3 /srv/a.py",
                "python3 /srv/a.py",
            ),
            ("/home/a/target/server", "target/server 1", "server 1"),
            // No paths: they wrote these themselves, or a shell did.
            (
                "/usr/sbin/nginx",
                "nginx: master process /usr/sbin/nginx",
                "nginx: master process /usr/sbin/nginx",
            ),
            ("/usr/bin/bash", "-bash", "-bash"),
            // It has ended, or says nothing of itself.
            ("/usr/bin/a (deleted)", "", "a (deleted)"),
            ("", "/usr/bin/äb", "äb"),
            ("/a/b", "/a/bc d", "bc d"),
            ("", "/usr/bin/ x", "/usr/bin/ x"),
            ("", "", ""),
        ] {
            assert_eq!(by_name(executable, command), expected, "{command}");
        }
    }

    #[test]
    fn a_container_is_said_rather_than_the_service_that_runs_it() {
        let mut process = v1::Process {
            unit: "docker.service".to_owned(),
            executable: "/bin/a".to_owned(),
            ..v1::Process::default()
        };
        assert_eq!((place(&process), command(&process)), ("docker.service", "/bin/a"));
        process.container = "docker 01".to_owned();
        process.command = "a -b".to_owned();
        assert_eq!((place(&process), command(&process)), ("docker 01", "a -b"));
    }
}
