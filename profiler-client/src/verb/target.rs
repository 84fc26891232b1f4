//! A target's name for people.

use std::collections::BTreeMap;

use std::{fs::File, path::Path};

use profiler_proto::v1;
use profiler_recording::{Kind, Reader};
use prost::Message as _;

use super::processes;
use crate::{connect::Connection, render::escape::terminal};

/// Names of processes that are shown.
const NAMES: usize = 3;

/// `pid 4211 (server)`, `3 processes of server`, `2 processes of server and worker`. What cannot be found out is left out.
pub async fn label(connection: &Connection, session: &v1::Session) -> String {
    if let Some(path) = &connection.recording {
        return recorded(path);
    }
    let [first, others @ ..] = session.pids.as_slice() else {
        return String::new();
    };
    let processes = processes::fetch(connection, String::new())
        .await
        .unwrap_or_default();
    let names = called(&processes, &session.pids);
    match (names.as_str(), others.len()) {
        ("", 0) => format!("pid {first}"),
        (name, 0) => format!("pid {first} ({name})"),
        ("", more) => format!("{} processes", more + 1),
        (names, more) => format!("{} processes of {names}", more + 1),
    }
}

/// What some of these processes are called, each name once, for people: as many names as a line has room for.
fn called(processes: &[v1::Process], pids: &[u32]) -> String {
    let of_pid = |pid: &u32| processes.iter().find(|process| process.pid == *pid);
    let mut names: Vec<&str> = Vec::new();
    for name in pids.iter().filter_map(of_pid).filter_map(name) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let shown: Vec<_> = names.iter().take(NAMES).map(|name| terminal(name)).collect();
    match shown.as_slice() {
        shown if names.len() > NAMES => format!("{}, …", shown.join(", ")),
        [before @ .., last] if !before.is_empty() => format!("{} and {last}", before.join(", ")),
        shown => shown.concat(),
    }
}

/// The names of processes by their numbers, as far as they can be found out.
pub async fn names(connection: &Connection) -> BTreeMap<u32, String> {
    let processes = processes::fetch(connection, String::new())
        .await
        .unwrap_or_default();
    let named = processes
        .iter()
        .filter_map(|process| Some((process.pid, name(process)?.to_owned())));
    named.collect()
}

/// What a process is called: by the last component of its executable's path, or as it was started by a link to that.
fn name(process: &v1::Process) -> Option<&str> {
    let started_as = process.command.split([' ', ':']).next();
    let started_as = started_as
        .and_then(|path| path.rsplit('/').next())
        .unwrap_or_default();
    if !started_as.is_empty() && started_as == process.name {
        return Some(&process.name);
    }
    process.executable.rsplit('/').next()
}

/// `recording a.profrec of pid 4211 (server) on web1`.
fn recorded(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut label = format!("recording {}", terminal(&name));
    if let Some(about) = about(path) {
        let host = about.machine().name;
        for (word, text) in [("of", about.target), ("on", host)] {
            if !text.is_empty() {
                label.push_str(&format!(" {word} {}", terminal(&text)));
            }
        }
    }
    label
}

/// What a recording begins with; `None` where that cannot be read.
pub fn about(path: &Path) -> Option<v1::RecordingAbout> {
    let mut reader = Reader::open(File::open(path).ok()?).ok()?;
    let number = reader.chunks().position(|chunk| chunk.kind == Kind::About)?;
    v1::RecordingAbout::decode(&*reader.read(number).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, name: &str) -> v1::Process {
        v1::Process {
            pid,
            executable: format!("/usr/bin/{name}"),
            ..v1::Process::default()
        }
    }

    #[test]
    fn processes_of_several_programs_are_called_by_each_name_once() {
        let processes = [(1, "a"), (2, "b"), (3, "a"), (4, "c"), (5, "d")];
        let processes = processes.map(|(pid, name)| process(pid, name));
        assert_eq!(called(&processes, &[9]), "");
        assert_eq!(called(&processes, &[1, 3]), "a");
        assert_eq!(called(&processes, &[2, 1, 3]), "b and a");
        assert_eq!(called(&processes, &[1, 2, 4]), "a, b and c");
        assert_eq!(called(&processes, &[1, 2, 3, 4, 5]), "a, b, c, …");
    }
}
