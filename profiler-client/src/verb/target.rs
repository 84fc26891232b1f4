//! A target's name for people.

use std::collections::BTreeMap;

use std::{fs::File, path::Path};

use profiler_proto::v1;
use profiler_recording::{Kind, Reader};
use prost::Message as _;

use super::processes;
use crate::{connect::Connection, render::escape::terminal};

/// `pid 4211 (server)`, `3 processes of server`. What cannot be found out is left out.
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
    let name = processes
        .iter()
        .find(|process| process.pid == *first)
        .and_then(name)
        .map(|name| terminal(name).into_owned());
    match (name, others.len()) {
        (Some(name), 0) => format!("pid {first} ({name})"),
        (None, 0) => format!("pid {first}"),
        (Some(name), more) => format!("{} processes of {name}", more + 1),
        (None, more) => format!("{} processes", more + 1),
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
