//! What a run writes as events over time.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use profiler_export::timeline::{Clocks, Timeline};
use profiler_proto::v1;
use rustix::time::{ClockId, clock_gettime};

use super::{target, trace::monotonic_ns};
use crate::{
    cli::{args::EventFormat, request::Export},
    connect::Connection,
    failure::Failure,
    output::{Output, note},
    render::{escape::terminal, events::Events, units},
    state::trace::origin_ns,
};

/// A file that is to be written, or standard output.
#[derive(Debug)]
pub struct File {
    path: Option<PathBuf>,
    format: EventFormat,
    output: Output,
}

/// What is asked of a daemon for it.
#[derive(Debug, Default)]
pub struct About {
    /// The target, for people.
    pub title: String,
    /// Canonical text of the scope.
    pub scope: String,
    /// Processes of the target.
    pub pids: Vec<u32>,
    names: BTreeMap<u32, String>,
    /// When the run began, on this process's clock.
    began_ns: u64,
}

impl File {
    /// Opens it.
    ///
    /// # Errors
    ///
    /// Where nothing can be written there, or a terminal would show what is binary.
    pub fn open(export: &Export<EventFormat>) -> Result<Self, Failure> {
        let Export { output, format } = export;
        let open = match format {
            EventFormat::Perfetto => Output::open_binary,
            EventFormat::Chrome | EventFormat::Firefox => Output::open,
        };
        Ok(Self {
            path: output.clone(),
            format: *format,
            output: open(output.as_deref())?,
        })
    }

    /// Whether it takes the place of what would be shown.
    #[must_use]
    pub const fn is_stdout(&self) -> bool {
        self.path.is_none()
    }

    /// Writes events, and says how many there are and how many had no room.
    ///
    /// # Errors
    ///
    /// As [`Output::write`].
    pub fn write(self, mut events: Events, about: &About) -> Result<(), Failure> {
        events.name_processes(&about.names);
        events.timeline.clocks = clocks(&events.timeline, about.began_ns);
        let kept = events.len().saturating_add(events.left_out);
        let written = events.write(self.format);
        self.output.write(&written.bytes)?;
        if let Some(path) = &self.path {
            said(path, kept.saturating_sub(written.left_out));
        }
        if written.left_out > 0 {
            note(&format!(
                "warning: {} events did not fit into the file: run for a shorter time, or with a smaller --limit.",
                units::count(written.left_out)
            ));
        }
        Ok(())
    }
}

impl About {
    /// What there is to say of a session.
    pub async fn of(connection: &Connection, session: &v1::Session) -> Self {
        Self {
            title: target::label(connection, session).await,
            scope: session.scope.clone(),
            pids: session.pids.clone(),
            names: target::names(connection).await,
            began_ns: monotonic_ns(),
        }
    }
}

fn said(path: &Path, events: u64) {
    note(&format!(
        "{} written: {} events",
        terminal(&path.to_string_lossy()),
        units::count(events)
    ));
}

/// What this process's clocks show, if events are of its monotonic one: in a container with a time namespace they are not.
fn clocks(timeline: &Timeline, began_ns: u64) -> Option<Clocks> {
    let monotonic_ns = monotonic_ns();
    if origin_ns(began_ns, monotonic_ns, timeline.last_ns()?) != began_ns {
        return None;
    }
    let read = |clock: ClockId| {
        let now = clock_gettime(clock);
        let seconds = u64::try_from(now.tv_sec).ok()?;
        seconds
            .checked_mul(1_000_000_000)?
            .checked_add(u64::try_from(now.tv_nsec).ok()?)
    };
    Some(Clocks {
        monotonic_ns,
        boottime_ns: read(ClockId::Boottime)?,
        realtime_ns: read(ClockId::Realtime)?,
    })
}
