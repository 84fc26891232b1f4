//! `profiler record`.
//!
//! | file | idea |
//! |---|---|
//! | `file` | the file: a new one at its path, and one without its oldest minutes |
//! | `recorder` | messages on their way into it |
//! | `redacted` | what is left out of messages that are not to tell whose they are |
//! | `awaited` | the conditions that it waits for |

mod awaited;
pub mod file;
pub mod recorder;
mod redacted;

use std::io;

use profiler_proto::v1;

use self::{
    awaited::Awaited,
    file::NewFile,
    recorder::{Heading, Recorder},
};
use super::{interruptible, target};
use crate::{
    attached::{Attached, Owned},
    cli::request::{Host, Record},
    connect::connect,
    failure::Failure,
    output::{Progress, note, warnings},
    render::{escape::terminal, units},
    stop::Stop,
    tui::lens::quoted,
    view::View,
    watch::Run,
};

/// Runs it.
pub async fn run(host: &Host, request: Record, mut stop: Stop, owned: Owned) -> Result<(), Failure> {
    let failed = |error: &io::Error| Failure::writing(&request.output.to_string_lossy(), error);
    let mut awaited = Awaited::listen(&request.on, request.after)?;
    let file = NewFile::open(&request.output, request.force)?;
    let (attached, target, machine, stream) = interruptible(&mut stop, async {
        let connection = connect(host).await?;
        let attached = Attached::open(&connection, &request.session, &owned).await?;
        let watch = v1::WatchRecordsRequest {
            session: attached.session.name.clone(),
            ..request.more.clone()
        };
        let machine = connection.host().await?;
        let stream = View::open(&connection, &attached.session, watch).await?;
        let target = target::label(&connection, &attached.session).await;
        Ok((attached, target, machine, stream))
    })
    .await?;
    warnings(&attached.session.warnings);
    awaited.check(&attached.session.scope)?;
    if request.redact {
        let checked = redacted::check(&attached.session.scope);
        checked.map_err(|error| Failure::usage(format!("{}.", terminal(&error.to_string()))))?;
    }

    // From here on there is something in it.
    let file = file.take_place().map_err(|error| failed(&error))?;
    let heading = Heading {
        target: (!request.redact).then_some(target.as_str()),
        lens: None,
        host: machine,
    };
    let mut recorder = Recorder::begin(file, heading, request.keep).map_err(|error| failed(&error))?;
    let mut progress = Progress::default();
    let mut run = Run::begin(request.duration, stop, owned, &attached);
    awaited.is_to_end(&mut run);
    let watched = run
        .watch(stream, |mut message: v1::WatchRecordsResponse| {
            // Conditions have the places of the scope, of which a redacted message has but parts.
            if let Some(happened) = awaited.take(&message) {
                drop(std::mem::take(&mut progress));
                note(&happened);
                recorder.keep_before(message.to_ns);
            }
            if request.redact {
                let redacted = redacted::redact(&mut message);
                redacted.map_err(|error| Failure::failed(format!("{}.", terminal(&error.to_string()))))?;
            }
            // It may wait for the disk.
            tokio::task::block_in_place(|| recorder.take(message)).map_err(|error| failed(&error))?;
            progress.show(&recorder.describe_taken());
            Ok(())
        })
        .await;
    // Whatever ended it, what has come is kept.
    let written = tokio::task::block_in_place(|| recorder.finish()).map_err(|error| failed(&error));
    drop(progress);
    note(&format!(
        "{} written: {}",
        terminal(&request.output.to_string_lossy()),
        recorder.describe_written()
    ));
    if written.is_ok() {
        let file = request.output.to_string_lossy().into_owned();
        note(&format!("look at it: profiler tui --from {}", quoted(&[file])));
    }
    if recorder.dropped() > 0 {
        note(&format!(
            "warning: {} samples, ends of calls, hits, waits, intervals off the CPU, events, system calls and counters came faster than they could be \
             written, and are not in the file.",
            units::count(recorder.dropped())
        ));
    }
    if awaited.has_not_happened() {
        note("no condition of --on has held.");
    }
    let ended = watched?;
    written?;
    ended.result(true)
}
