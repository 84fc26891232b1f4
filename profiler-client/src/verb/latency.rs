//! `profiler latency`.

use std::{
    io::{self, IsTerminal as _},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use profiler_export::{interval_log::NotCountable, otlp};
use profiler_proto::v1;

use super::{interruptible, target};
use crate::{
    attached::{Attached, Owned},
    cli::{
        args::LatencyFormat,
        duration::to_proto,
        exit::Failure,
        request::{Export, Host, Latency},
    },
    connect::connect,
    live,
    output::{self, Output, note, warnings},
    render::{by_value_json, durations, escape::terminal, intervals::Intervals, json, text, units},
    state::latency::LatencyState,
    stop::Stop,
    watch::{Message as _, Run},
};

/// How the view is shown.
enum Show {
    Json,
    Lines,
    Live(Box<live::Latency>),
    /// What is written at the end goes where it would be shown.
    Nothing,
}

/// Runs it.
pub async fn run(host: &Host, request: Latency, mut stop: Stop, owned: Owned) -> Result<(), Failure> {
    let output = request
        .export
        .as_ref()
        .map(|export| match export.format {
            LatencyFormat::Otlp => Output::open_binary(export.output.as_deref()),
            LatencyFormat::Hlog => Output::open(export.output.as_deref()),
        })
        .transpose()?;
    let format = request.export.as_ref().map(|export| export.format);
    let (attached, stream, again, mut show, title) = interruptible(&mut stop, async {
        let connection = connect(host).await?;
        let attached = Attached::open(&connection, &request.session, &owned).await?;
        let mut client = connection.views();
        let watch = v1::WatchLatencyRequest {
            session: attached.session.name.clone(),
            interval: Some(to_proto(request.interval)),
        };
        let stream = client.watch_latency(watch.clone()).await?.into_inner();
        let again = async move || Ok(client.watch_latency(watch).await?.into_inner());
        let title = match format {
            Some(LatencyFormat::Otlp) => target::label(&connection, &attached.session).await,
            Some(LatencyFormat::Hlog) | None => String::new(),
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
            Show::Lines
        };
        Ok((attached, stream, again, show, title))
    })
    .await?;
    warnings(&attached.session.warnings);

    let run = Run::begin(request.duration, stop, owned, &attached);
    let began = run.began;
    let mut state = LatencyState::default();
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut intervals =
        (format == Some(LatencyFormat::Hlog)).then(|| Intervals::new(since_1970, !attached.own));
    let ended = run
        .watch(stream, again, |message: v1::WatchLatencyResponse| {
            let last = message.is_final();
            state
                .apply(message)
                .map_err(|error| Failure::failed(error.to_string()))?;
            if let Some(intervals) = &mut intervals {
                intervals
                    .update(&state, attached.elapsed(began))
                    .map_err(|NotCountable { reason }| {
                        Failure::failed(format!("Cannot put the calls into an interval log: {reason}."))
                    })?;
            }
            if last {
                Ok(())
            } else {
                update(&mut show, &state, attached.elapsed(began))
            }
        })
        .await?;

    finish(&mut show, &state, attached.elapsed(began))?;
    match (&request.export, output, intervals) {
        (Some(export), Some(output), Some(intervals)) => write_log(export, output, intervals)?,
        (Some(export), Some(output), None) => {
            let length = attached.elapsed(began);
            let about = about(&attached, &title, since_1970, length);
            write_metrics(export, output, &state, &about)?;
        }
        _ => {}
    }
    if state.dropped > 0 {
        output::note(&format!(
            "{} updates were skipped: they came faster than they were read.",
            state.dropped
        ));
    }
    // A table without calls is a result as well.
    ended.result(true)
}

/// What is said of a run of a length that began at a time, since 1970.
fn about<'a>(
    attached: &Attached,
    target: &'a str,
    since_1970: Duration,
    length: Duration,
) -> durations::About<'a> {
    // What was recorded is over; how long ago that was, its file alone says.
    let started = if attached.session.recorded.is_some() {
        since_1970.saturating_sub(length)
    } else {
        since_1970
    };
    durations::About {
        target,
        // A session that was joined has counted before.
        began: attached.own.then_some(started),
        ended: started + length,
    }
}

/// Writes the metrics, and says what is in them.
fn write_metrics(
    export: &Export<LatencyFormat>,
    output: Output,
    state: &LatencyState,
    about: &durations::About<'_>,
) -> Result<(), Failure> {
    output.write(otlp::metrics(&durations::of(state, about)))?;
    let functions = units::count(state.functions.len() as u64);
    written(export, &format!("{functions} functions"));
    Ok(())
}

/// Writes the log, and says what is in it.
fn write_log(export: &Export<LatencyFormat>, output: Output, intervals: Intervals) -> Result<(), Failure> {
    let log = intervals.finish();
    let (kept, left_out) = (log.intervals(), log.left_out());
    output.write(log.into_bytes())?;
    written(export, &format!("{} intervals", units::count(kept)));
    if left_out > 0 {
        note(&format!(
            "warning: {} intervals did not fit into the log: choose a longer --interval.",
            units::count(left_out)
        ));
    }
    Ok(())
}

/// Says what is in a file.
fn written(export: &Export<LatencyFormat>, what: &str) {
    if let Some(path) = &export.output {
        note(&format!("{} written: {what}", terminal(&path.to_string_lossy())));
    }
}

/// The objects of an update.
fn objects(state: &LatencyState, is_final: bool) -> String {
    json::latency(state, is_final) + &by_value_json::latency_by(state, is_final)
}

fn update(show: &mut Show, state: &LatencyState, elapsed: Duration) -> Result<(), Failure> {
    match show {
        Show::Json => output::ndjson(objects(state, false)),
        Show::Lines => output::stdout(text::update(state, elapsed)),
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
        Show::Lines => output::stdout(text::result(state, elapsed)),
        Show::Live(screen) => screen.draw(state, elapsed),
        Show::Nothing => Ok(()),
    }
}
