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

fn first<'a>(text: &'a str, otherwise: &'a str) -> &'a str {
    if text.is_empty() { otherwise } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

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
