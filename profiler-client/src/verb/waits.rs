//! `profiler waits`.

use std::time::Duration;

use profiler_proto::v1;

use super::{interruptible, target};
use crate::{
    attached::{Attached, Owned},
    cli::request::{Host, Waits},
    connect::connect,
    failure::Failure,
    live::Redrawn,
    output::{self, note, warnings},
    render::{waits, waits_json},
    state::waits::WaitsState,
    stop::Stop,
    view::View,
    watch::Run,
};

/// Runs it.
pub async fn run(host: &Host, request: Waits, mut stop: Stop, owned: Owned) -> Result<(), Failure> {
    let (attached, stream, mut live) = interruptible(&mut stop, async {
        let connection = connect(host).await?;
        let attached = Attached::open(&connection, &request.session, &owned).await?;
        let watch = v1::WatchWaitsRequest {
            session: attached.session.name.clone(),
            interval: None,
        };
        let stream = View::open(&connection, &attached.session, watch).await?;
        let target = target::label(&connection, &attached.session);
        let live = Redrawn::open(request.color, request.json, target).await;
        Ok((attached, stream, live))
    })
    .await?;
    warnings(&attached.session.warnings);

    let run = Run::begin(request.duration, stop, owned, &attached).telling_json(request.json);
    let began = run.began;
    let mut state = WaitsState::default();
    let ended = run
        .watch(stream, |message: v1::WatchWaitsResponse| {
            live.take(&mut state, message, WaitsState::apply, |state, target, size| {
                waits::screen(state, target, began.elapsed(), size)
            })
        })
        .await?;

    if state.started {
        finish(&request, &state, live, attached.elapsed(began))?;
    }
    ended.result(state.started)
}

fn finish(request: &Waits, state: &WaitsState, live: Redrawn, elapsed: Duration) -> Result<(), Failure> {
    if request.json {
        return output::ndjson(waits_json::waits(state));
    }
    let mut lines = waits::waits(state);
    if let Some(width) = live.width() {
        let fitted = |line| waits::fitted(line, width);
        lines = lines.into_iter().map(fitted).collect();
    }
    live.print(&lines)?;
    note(&waits::summary(state, elapsed));
    Ok(())
}
