//! `profiler latency`.

use std::io::{self, IsTerminal as _};

use profiler_proto::v1::{self, view_service_client::ViewServiceClient};
use tokio::time::Instant;

use super::{interruptible, target};
use crate::{
    attached::{Attached, Owned},
    cli::{
        duration::to_proto,
        exit::Failure,
        request::{Host, Latency},
    },
    connect::{MAX_MESSAGE_BYTES, connect},
    live,
    output::{self, warnings},
    render::{by_value_json, json, text},
    state::latency::LatencyState,
    stop::Stop,
    watch::{Message as _, Run},
};

/// How the view is shown.
enum Show {
    Json,
    Lines,
    Live(Box<live::Latency>),
}

/// Runs it.
pub async fn run(host: &Host, request: Latency, mut stop: Stop, owned: Owned) -> Result<(), Failure> {
    let (attached, stream, again, mut show) = interruptible(&mut stop, async {
        let connection = connect(host).await?;
        let attached = Attached::open(&connection, &request.session, &owned).await?;
        let mut client =
            ViewServiceClient::new(connection.channel.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES);
        let watch = v1::WatchLatencyRequest {
            session: attached.session.name.clone(),
            interval: Some(to_proto(request.interval)),
        };
        let stream = client.watch_latency(watch.clone()).await?.into_inner();
        let again = async move || Ok(client.watch_latency(watch).await?.into_inner());
        let show = if request.json {
            Show::Json
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
        Ok((attached, stream, again, show))
    })
    .await?;
    warnings(&attached.session.warnings);

    let began = Instant::now();
    let run = Run {
        deadline: request.duration.map(|duration| began + duration),
        stop,
        owned,
        own: attached.own,
    };
    let mut state = LatencyState::default();
    let ended = run
        .watch(stream, again, |message: v1::WatchLatencyResponse| {
            let last = message.is_final();
            state
                .apply(message)
                .map_err(|error| Failure::failed(error.to_string()))?;
            if last {
                Ok(())
            } else {
                update(&mut show, &state, began)
            }
        })
        .await?;

    finish(&mut show, &state, began)?;
    if state.dropped > 0 {
        output::note(&format!(
            "{} updates were skipped: they came faster than they were read.",
            state.dropped
        ));
    }
    // A table without calls is a result as well.
    ended.result(true)
}

/// The objects of an update.
fn objects(state: &LatencyState, is_final: bool) -> String {
    json::latency(state, is_final) + &by_value_json::latency_by(state, is_final)
}

fn update(show: &mut Show, state: &LatencyState, began: Instant) -> Result<(), Failure> {
    match show {
        Show::Json => output::ndjson(objects(state, false)),
        Show::Lines => output::stdout(text::update(state, began.elapsed())),
        Show::Live(screen) => screen.draw(state, began.elapsed()),
    }
}

fn finish(show: &mut Show, state: &LatencyState, began: Instant) -> Result<(), Failure> {
    if !state.started {
        return Ok(());
    }
    match show {
        Show::Json => output::ndjson(objects(state, true)),
        Show::Lines => output::stdout(text::result(state, began.elapsed())),
        Show::Live(screen) => screen.draw(state, began.elapsed()),
    }
}
