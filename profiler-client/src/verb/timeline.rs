//! `profiler timeline`.

use std::future::ready;

use profiler_proto::v1;
use tokio::time::Instant;

use super::{
    events::{self, File},
    interruptible,
};
use crate::{
    attached::{Attached, Owned},
    cli::{
        args::{EventFormat, TimelineFormat},
        events::rows,
        request::{Export, Host, Timeline},
    },
    connect::connect,
    failure::Failure,
    live::Redrawn,
    output::{self, Output, note, warnings},
    render::{
        events::counters,
        svg::About,
        timeline::{self, View},
        timeline_json, timeline_svg,
    },
    state::timeline::TimelineState,
    stop::Stop,
    view,
    watch::{Message as _, Run},
};

/// What is written at the end.
enum Written {
    Picture(Output),
    Events(File),
}

impl Written {
    fn open(export: &Export<TimelineFormat>) -> Result<Self, Failure> {
        let Export { output, format } = export;
        let format = match format {
            TimelineFormat::Svg => return Output::open(output.as_deref()).map(Self::Picture),
            TimelineFormat::Perfetto => EventFormat::Perfetto,
            TimelineFormat::Chrome => EventFormat::Chrome,
            TimelineFormat::Firefox => EventFormat::Firefox,
        };
        let output = output.clone();
        File::open(&Export { output, format }).map(Self::Events)
    }
}

/// Runs it.
pub async fn run(host: &Host, request: Timeline, mut stop: Stop, owned: Owned) -> Result<(), Failure> {
    let written = request.export.as_ref().map(Written::open).transpose()?;
    let (attached, stream, about) = interruptible(&mut stop, async {
        let connection = connect(host).await?;
        let attached = Attached::open(&connection, &request.session, &owned).await?;
        let watch = v1::WatchTimelineRequest {
            session: attached.session.name.clone(),
            counters: request.counters.clone(),
            step: Some(
                prost_types::Duration::try_from(request.step)
                    .map_err(|error| Failure::usage(format!("--step: {error}")))?,
            ),
            threads: request.threads,
        };
        let stream = view::View::open(&connection, &attached.session, watch).await?;
        let about = events::About::of(&connection, &attached.session).await;
        Ok((attached, stream, about))
    })
    .await?;
    warnings(&attached.session.warnings);

    // What is written to standard output has it for itself.
    let is_taken = |export: &Export<_>| export.output.is_none();
    let is_hidden = request.json || request.export.as_ref().is_some_and(is_taken);
    let mut live = Redrawn::open(request.color, is_hidden, ready(about.title.clone())).await;
    let run = Run::begin(request.duration, stop, owned, &attached).telling_json(request.json);
    let began = run.began;
    let mut state = TimelineState::default();
    // Another stream would begin to count anew.
    let ended = run
        .watch(stream, |message: v1::WatchTimelineResponse| {
            let last = message.is_final();
            let bucket = state
                .apply(message)
                .map_err(|error| Failure::failed(error.to_string()))?
                .clone();
            if request.json {
                let rows = rows(&request.events, &state.counters);
                return output::ndjson(timeline_json::bucket(&state, &rows, &bucket));
            }
            if last {
                return Ok(());
            }
            live.draw(|target, size| {
                let view = View::of(&request, &state);
                timeline::screen(&state, &view, target, began.elapsed(), size)
            })
        })
        .await?;

    let started = state.received > 0;
    if started {
        finish(&request, &state, (live, written), (&about, began))?;
    }
    ended.result(started)
}

fn finish(
    request: &Timeline,
    state: &TimelineState,
    (mut live, written): (Redrawn, Option<Written>),
    (about, began): (&events::About, Instant),
) -> Result<(), Failure> {
    let view = View::of(request, state);
    if request.json {
        let rows = rows(&request.events, &state.counters);
        return output::ndjson(timeline_json::summary(state, &rows));
    }
    let drawn = view.drawn(state);
    match written {
        Some(Written::Picture(output)) => {
            live.clear()?;
            let notes = timeline::notes(state);
            let about = About {
                target: about.title.clone(),
                elapsed: began.elapsed(),
            };
            output.write(timeline_svg::render(&drawn, &state.scope, &notes, &about))?;
        }
        Some(Written::Events(file)) => {
            live.clear()?;
            file.write(counters::of(state, &drawn, &about.title, &about.pids), about)?;
        }
        None => {
            let width = live.width();
            live.print(&timeline::table(&drawn, width))?;
        }
    }
    note(&timeline::summary(state));
    Ok(())
}
