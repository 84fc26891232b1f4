//! `profiler spans`.

use std::io::{self, IsTerminal as _};

use profiler_proto::v1::{self, view_service_client::ViewServiceClient};
use tokio::time::Instant;

use super::{interruptible, target, trace::monotonic_ns};
use crate::{
    attached::{Attached, Owned},
    cli::{
        exit::Failure,
        request::{Host, Spans},
    },
    connect::{MAX_MESSAGE_BYTES, connect},
    live::screen::{self, Screen},
    output::{self, note, warnings},
    render::{spans, spans_json},
    state::{spans::SpansState, trace::origin_ns},
    stop::Stop,
    watch::{Message as _, Run},
};

/// What is drawn while the run goes on.
struct Live {
    screen: Screen,
    target: String,
}

/// Runs it.
pub async fn run(host: &Host, request: Spans, mut stop: Stop, owned: Owned) -> Result<(), Failure> {
    let is_terminal = io::stdout().is_terminal();
    let colour = screen::is_coloured(request.color, is_terminal);
    let (attached, stream, again, mut live, began_ns) = interruptible(&mut stop, async {
        let connection = connect(host).await?;
        let attached = Attached::open(&connection, &request.session, &owned).await?;
        let mut client =
            ViewServiceClient::new(connection.channel.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES);
        let watch = v1::WatchSpansRequest {
            session: attached.session.name.clone(),
            interval: None,
            spans: request.number,
        };
        let began_ns = monotonic_ns();
        let stream = client.watch_spans(watch.clone()).await?.into_inner();
        let again = async move || Ok(client.watch_spans(watch).await?.into_inner());
        let live = if is_terminal && !request.json {
            // The decision was made; crossterm would look at NO_COLOR again.
            crossterm::style::force_color_output(colour);
            Some(Live {
                screen: Screen::new(colour),
                target: target::label(&connection, &attached.session).await,
            })
        } else {
            None
        };
        Ok((attached, stream, again, live, began_ns))
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
    let mut state = SpansState::default();
    let mut origin = None;
    let ended = run
        .watch(stream, again, |message: v1::WatchSpansResponse| {
            let last = message.is_final();
            state
                .apply(message)
                .map_err(|error| Failure::failed(error.to_string()))?;
            if let Some(earliest) = state.spans.iter().map(|span| span.ts_ns).max() {
                origin.get_or_insert_with(|| origin_ns(began_ns, monotonic_ns(), earliest));
            }
            match &mut live {
                Some(Live { screen, target }) if !last => {
                    let (_, rows) = Screen::size();
                    let origin_ns = origin.unwrap_or(began_ns);
                    screen.draw(spans::screen(&state, target, origin_ns, began.elapsed(), rows))
                }
                _ => Ok(()),
            }
        })
        .await?;

    if state.started {
        finish(&request, &state, live, origin.unwrap_or(began_ns), began, colour)?;
    }
    ended.result(state.started)
}

fn finish(
    request: &Spans,
    state: &SpansState,
    live: Option<Live>,
    origin_ns: u64,
    began: Instant,
    colour: bool,
) -> Result<(), Failure> {
    if request.json {
        return output::stdout(spans_json::spans(state));
    }
    if let Some(Live { mut screen, .. }) = live {
        // What was drawn last gives way to all that there is.
        screen.draw(Vec::new())?;
    }
    let lines = spans::spans(state, origin_ns, spans::Detail::FULL);
    screen::print(&lines, colour)?;
    note(&spans::summary(state, began.elapsed()));
    Ok(())
}
