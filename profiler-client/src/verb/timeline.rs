//! `profiler timeline`.

use std::future::ready;

use profiler_proto::v1::{self, view_service_client::ViewServiceClient};
use tokio::time::Instant;
use tonic::Status;

use super::{interruptible, target};
use crate::{
    attached::{Attached, Owned},
    cli::{
        events,
        exit::Failure,
        request::{Host, Timeline},
    },
    connect::{MAX_MESSAGE_BYTES, connect},
    live::Redrawn,
    output::{self, Output, note, warnings},
    render::{
        svg::About,
        timeline::{self, View},
        timeline_json, timeline_svg,
    },
    state::timeline::TimelineState,
    stop::Stop,
    watch::{Message as _, Run},
};

/// Runs it.
pub async fn run(host: &Host, request: Timeline, mut stop: Stop, owned: Owned) -> Result<(), Failure> {
    let output = request
        .output
        .as_deref()
        .map(|path| Output::open(Some(path)))
        .transpose()?;
    let (attached, stream, target) = interruptible(&mut stop, async {
        let connection = connect(host).await?;
        let attached = Attached::open(&connection, &request.session, &owned).await?;
        let mut client =
            ViewServiceClient::new(connection.channel.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES);
        let watch = v1::WatchTimelineRequest {
            session: attached.session.name.clone(),
            counters: request.counters.clone(),
            step: Some(
                prost_types::Duration::try_from(request.step)
                    .map_err(|error| Failure::usage(format!("--step: {error}")))?,
            ),
            threads: request.threads,
        };
        let stream = client.watch_timeline(watch).await?.into_inner();
        let target = target::label(&connection, &attached.session).await;
        Ok((attached, stream, target))
    })
    .await?;
    warnings(&attached.session.warnings);

    let mut live = Redrawn::open(request.color, request.json, ready(target.clone())).await;
    let began = Instant::now();
    let run = Run {
        deadline: request.duration.map(|duration| began + duration),
        stop,
        owned,
        own: attached.own,
    };
    let mut state = TimelineState::default();
    // Another stream would begin to count anew.
    let again = async || Err(Status::unavailable("the buckets are those that came"));
    let ended = run
        .watch(stream, again, |message: v1::WatchTimelineResponse| {
            let last = message.is_final();
            let bucket = state
                .apply(message)
                .map_err(|error| Failure::failed(error.to_string()))?
                .clone();
            if request.json {
                let rows = events::rows(&request.events, &state.counters);
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
        let about = About {
            target,
            elapsed: began.elapsed(),
        };
        finish(&request, &state, (live, output), &about)?;
    }
    ended.result(started)
}

fn finish(
    request: &Timeline,
    state: &TimelineState,
    (mut live, output): (Redrawn, Option<Output>),
    about: &About,
) -> Result<(), Failure> {
    let view = View::of(request, state);
    if request.json {
        let rows = events::rows(&request.events, &state.counters);
        return output::ndjson(timeline_json::summary(state, &rows));
    }
    let drawn = view.drawn(state);
    if let Some(output) = output {
        live.clear()?;
        let notes = timeline::notes(state);
        output.write(timeline_svg::render(&drawn, &state.scope, &notes, about))?;
    } else {
        let width = live.width();
        live.print(&timeline::table(&drawn, width))?;
    }
    note(&timeline::summary(state));
    Ok(())
}
