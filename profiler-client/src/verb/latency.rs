//! `profiler latency`.

mod exports;

use std::{
    io::{self, IsTerminal as _},
    time::Duration,
};

use profiler_proto::v1;

use self::exports::{Exports, Opened};

use super::{interruptible, target};
use crate::{
    attached::{Attached, Owned},
    cli::{
        duration::to_proto,
        request::{Host, Latency},
    },
    connect::connect,
    failure::Failure,
    live,
    output::{self, warnings},
    render::{by_value_json, json, text},
    state::latency::LatencyState,
    stop::Stop,
    view::View,
    watch::{Message as _, Run},
};

/// How the view is shown.
enum Show {
    Json,
    Lines(text::Updates),
    Live(Box<live::Latency>),
    /// What is written at the end goes where it would be shown.
    Nothing,
}

/// Runs it.
pub async fn run(host: &Host, request: Latency, mut stop: Stop, owned: Owned) -> Result<(), Failure> {
    let (opened, attached, stream, mut show, title) = interruptible(&mut stop, async {
        let opened = Opened::new(&request).await?;
        let connection = connect(host).await?;
        let attached = Attached::open(&connection, &request.session, &owned).await?;
        let watch = v1::WatchLatencyRequest {
            session: attached.session.name.clone(),
            interval: Some(to_proto(request.interval)),
        };
        let stream = View::open(&connection, &attached.session, watch).await?;
        let title = if opened.has_metrics(&request) {
            target::label(&connection, &attached.session).await
        } else {
            String::new()
        };
        let show = if request.json {
            Show::Json
        } else if request
            .export
            .as_ref()
            .is_some_and(|export| export.output.is_none())
        {
            Show::Nothing
        } else if io::stdout().is_terminal() {
            let target = target::label(&connection, &attached.session).await;
            Show::Live(Box::new(live::Latency::new(
                &attached.session,
                target,
                request.bars,
                request.color,
            )))
        } else {
            Show::Lines(text::Updates::default())
        };
        Ok((opened, attached, stream, show, title))
    })
    .await?;
    warnings(&attached.session.warnings);

    let run = Run::begin(request.duration, stop, owned, &attached).telling_json(matches!(show, Show::Json));
    let began = run.began;
    let mut state = LatencyState::default();
    let mut exports = Exports::begin(opened, &request, &attached, title);
    let ended = run
        .watch(stream, |message: v1::WatchLatencyResponse| {
            let last = message.is_final();
            state
                .apply(message)
                .map_err(|error| Failure::failed(error.to_string()))?;
            exports.update(&state, attached.elapsed(began), last)?;
            if last {
                Ok(())
            } else {
                update(&mut show, &state, attached.elapsed(began))
            }
        })
        .await?;

    let shown = finish(&mut show, &state, attached.elapsed(began));
    if state.dropped > 0 {
        output::note(&format!(
            "{} updates were skipped: they came faster than they were read.",
            state.dropped
        ));
    }
    let exported = exports.finish(&state, attached.elapsed(began)).await;
    shown?;
    // A table without calls is a result as well.
    ended.with_export(true, exported)
}

/// The objects of an update.
fn objects(state: &LatencyState, is_final: bool) -> String {
    json::latency(state, is_final) + &by_value_json::latency_by(state, is_final)
}

fn update(show: &mut Show, state: &LatencyState, elapsed: Duration) -> Result<(), Failure> {
    match show {
        Show::Json => output::ndjson(objects(state, false)),
        Show::Lines(updates) => output::stdout(updates.next(state, elapsed)),
        Show::Live(screen) => screen.draw(state, elapsed),
        Show::Nothing => Ok(()),
    }
}

fn finish(show: &mut Show, state: &LatencyState, elapsed: Duration) -> Result<(), Failure> {
    if !state.started {
        return Ok(());
    }
    match show {
        Show::Json => output::ndjson(objects(state, true)),
        Show::Lines(_) => output::stdout(text::result(state, elapsed)),
        Show::Live(screen) => screen.draw(state, elapsed),
        Show::Nothing => Ok(()),
    }
}
