//! `r`: what comes of the session, written into a file while it is looked at.

use std::path::{Path, PathBuf};

use profiler_proto::v1;
use tokio::{sync::oneshot, task::JoinHandle};
use tonic::Code;

use super::{Reports, Session, What};
use crate::{
    cli::request::Keep,
    connect::Connection,
    failure::Failure,
    render::units,
    verb::record::{
        file::NewFile,
        recorder::{Heading, Recorder},
    },
};

/// Names of files that are tried.
const MAX_NAMES: u32 = 1000;

/// A recording that goes on until it is told to end, or the session ends.
#[derive(Debug)]
pub struct Recording {
    end: oneshot::Sender<()>,
    task: JoinHandle<String>,
}

impl Recording {
    /// Begins one, in a new file of the working directory.
    pub fn begin(connection: Connection, session: &Session, lens: v1::Lens, reports: Reports) -> Self {
        let (end, ended) = oneshot::channel();
        let session = session.clone();
        let task = async move {
            let recorded = record(&connection, &session, lens, &reports, ended).await;
            let words = recorded.unwrap_or_else(|failure| failure.message);
            reports.send_to_all(What::Recorded(words.clone())).await;
            words
        };
        Self {
            end,
            task: tokio::spawn(task),
        }
    }

    /// Whether more may come.
    pub fn is_running(&self) -> bool {
        !self.task.is_finished()
    }

    /// Ends it: what came of it, in words.
    pub async fn end(self) -> String {
        // It may have ended already.
        let _ = self.end.send(());
        let ended = self.task.await;
        ended.unwrap_or_else(|error| format!("The recording ended early: {error}."))
    }
}

async fn record(
    connection: &Connection,
    session: &Session,
    lens: v1::Lens,
    reports: &Reports,
    mut ended: oneshot::Receiver<()>,
) -> Result<String, Failure> {
    let path = new_path(&session.target);
    let name = path.to_string_lossy().into_owned();
    let failed = |error: &std::io::Error| Failure::writing(&name, error);
    let file = NewFile::open(&path, false)?;
    let request = v1::WatchRecordsRequest {
        session: session.name.clone(),
        ..Default::default()
    };
    let machine = connection.host().await?;
    let mut stream = connection.views().watch_records(request).await?.into_inner();
    let file = file.take_place().map_err(|error| failed(&error))?;
    let heading = Heading {
        target: Some(&session.target),
        lens: Some(lens),
        host: machine,
    };
    let mut recorder = Recorder::begin(file, heading, Keep::default()).map_err(|error| failed(&error))?;
    let watched = loop {
        let message = tokio::select! {
            _ = &mut ended => break Ok(()),
            message = stream.message() => message,
        };
        match message {
            Ok(Some(message)) => {
                // It may wait for the disk.
                let taken = tokio::task::block_in_place(|| recorder.take(message));
                if let Err(error) = taken {
                    break Err(failed(&error));
                }
                let words = format!("{name}: {}", recorder.describe_taken());
                reports.send(What::Recording(words)).await;
            }
            Ok(None) => break Ok(()),
            // The session was ended.
            Err(status) if matches!(status.code(), Code::Cancelled | Code::NotFound) => break Ok(()),
            Err(status) => break Err(status.into()),
        }
    };
    // Whatever ended it, what has come is kept.
    let written = tokio::task::block_in_place(|| recorder.finish()).map_err(|error| failed(&error));
    let dropped = match recorder.dropped() {
        0 => String::new(),
        dropped => format!(
            " {} samples, ends of calls and other records came faster than they could be written.",
            units::count(dropped)
        ),
    };
    let words = format!(
        "{name} written: {}.{dropped} To look at it: profiler tui --from {name}",
        recorder.describe_written()
    );
    match watched.and(written) {
        Ok(()) => Ok(words),
        Err(failure) => Err(Failure {
            message: format!("{} {words}", failure.message),
            ..failure
        }),
    }
}

/// A file that is not there yet, named after the target.
fn new_path(target: &str) -> PathBuf {
    let stem = stem(target);
    let numbered = (2..=MAX_NAMES).map(|number| format!("{stem}-{number}.profrec"));
    let mut names = std::iter::once(format!("{stem}.profrec")).chain(numbered);
    let free = names.find(|name| Path::new(name).symlink_metadata().is_err());
    // Where there is none, opening it says so.
    PathBuf::from(free.unwrap_or_else(|| format!("{stem}.profrec")))
}

/// A target's name without what file names and shells take as more than a letter.
fn stem(target: &str) -> String {
    let words: Vec<&str> = target
        .split(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '_' | '.' | '-'))
        .map(|word| word.trim_matches(['-', '.']))
        .filter(|word| !word.is_empty())
        .collect();
    let mut stem = words.join("-");
    stem.truncate(80);
    if stem.is_empty() {
        "profiler".clone_into(&mut stem);
    }
    stem
}

#[cfg(test)]
mod tests {
    use super::stem;

    #[test]
    fn files_of_recordings_are_named_after_the_target() {
        for (target, expected) in [
            ("pid 4711 (demo)", "pid-4711-demo"),
            ("../../etc/passwd", "etc-passwd"),
            ("a b;rm -rf *", "a-b-rm-rf"),
            ("日本", "profiler"),
            ("", "profiler"),
        ] {
            assert_eq!(stem(target), expected, "{target}");
        }
        assert_eq!(stem(&"x".repeat(500)).len(), 80);
    }
}
