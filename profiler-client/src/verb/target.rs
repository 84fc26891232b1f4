//! A target's name for people.

use profiler_proto::v1;

use super::processes;
use crate::{connect::Connection, render::escape::terminal};

/// `pid 4211 (server)`, `3 processes of server`. What cannot be found out is left out.
pub async fn label(connection: &Connection, session: &v1::Session) -> String {
    if let Some(path) = &connection.recording {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        return format!("recording {}", terminal(&name));
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
        .and_then(|process| process.executable.rsplit('/').next())
        .map(|name| terminal(name).into_owned());
    match (name, others.len()) {
        (Some(name), 0) => format!("pid {first} ({name})"),
        (None, 0) => format!("pid {first}"),
        (Some(name), more) => format!("{} processes of {name}", more + 1),
        (None, more) => format!("{} processes", more + 1),
    }
}
