//! `profiler spans`.

use std::time::Duration;

use profiler_proto::v1;

use super::{
    events::{About, File},
    interruptible, target,
    trace::monotonic_ns,
};
use crate::{
    attached::{Attached, Owned, recorded_length},
    cli::request::{Host, Spans},
    connect::connect,
    failure::Failure,
    live::Redrawn,
    output::{self, note, warnings},
    render::{events, spans, spans_json},
    state::{spans::SpansState, trace::origin_ns},
    stop::Stop,
    view::View,
    watch::{Message as _, Run},
};

/// Runs it.
pub async fn run(host: &Host, request: Spans, mut stop: Stop, owned: Owned) -> Result<(), Failure> {
    let file = request.export.as_ref().map(File::open).transpose()?;
    let (attached, stream, mut live, began_ns, about) = interruptible(&mut stop, async {
        let connection = connect(host).await?;
        let attached = Attached::open(&connection, &request.session, &owned).await?;
        let watch = v1::WatchSpansRequest {
            session: attached.session.name.clone(),
            interval: None,
            spans: request.number,
            waits: request.waits,
            system_calls: request.system_calls,
        };
        let began_ns = monotonic_ns();
        let stream = View::open(&connection, &attached.session, watch).await?;
        let target = target::label(&connection, &attached.session);
        let is_hidden = request.json || file.as_ref().is_some_and(File::is_stdout);
        let live = Redrawn::open(request.color, is_hidden, target).await;
        let about = match &file {
            Some(_) => About::of(&connection, &attached.session).await,
            None => About::default(),
        };
        Ok((attached, stream, live, began_ns, about))
    })
    .await?;
    warnings(&attached.session.warnings);

    let run = Run::begin(request.duration, stop, owned, &attached).telling_json(request.json);
    let began = run.began;
    let is_recorded = recorded_length(&attached.session).is_some();
    let mut state = SpansState::default();
    state.is_recorded = is_recorded;
    let mut origin = is_recorded.then_some(attached.session.recorded_begin_ns);
    let ended = run
        .watch(stream, |message: v1::WatchSpansResponse| {
            let last = message.is_final();
            state
                .apply(message)
                .map_err(|error| Failure::failed(error.to_string()))?;
            if let Some(earliest) = state.spans.iter().map(|span| span.ts_ns).max() {
                origin.get_or_insert_with(|| origin_ns(began_ns, monotonic_ns(), earliest));
            }
            if last {
                return Ok(());
            }
            let origin_ns = origin.unwrap_or(began_ns);
            live.draw(|target, (_, rows)| spans::screen(&state, target, origin_ns, began.elapsed(), rows))
        })
        .await?;

    if state.started {
        if file.as_ref().is_none_or(|file| !file.is_stdout()) {
            let elapsed = attached.elapsed(began);
            finish(&request, &state, live, origin.unwrap_or(began_ns), elapsed)?;
        }
        if let Some(file) = file {
            file.write(events::spans::of(&state, &about.title), &about)?;
        }
    }
    ended.result(state.started)
}

fn finish(
    request: &Spans,
    state: &SpansState,
    live: Redrawn,
    origin_ns: u64,
    elapsed: Duration,
) -> Result<(), Failure> {
    if request.json {
        return output::ndjson(spans_json::spans(state));
    }
    live.print(&spans::spans(state, origin_ns, spans::Detail::FULL))?;
    note(&spans::summary(state, elapsed));
    Ok(())
}
