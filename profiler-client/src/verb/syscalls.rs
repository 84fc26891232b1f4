//! `profiler syscalls`.

use std::io::{self, IsTerminal as _};

use profiler_proto::v1::{self, view_service_client::ViewServiceClient};
use tokio::time::Instant;

use super::{interruptible, target};
use crate::{
    attached::{Attached, Owned},
    cli::{
        exit::Failure,
        request::{Host, Syscalls},
    },
    connect::{MAX_MESSAGE_BYTES, connect},
    live::screen::{self, Screen},
    output::{self, note, warnings},
    render::{syscalls, syscalls_json},
    state::syscalls::SyscallsState,
    stop::Stop,
    watch::{Message as _, Run},
};

/// What is drawn while the run goes on.
struct Live {
    screen: Screen,
    target: String,
}

/// Runs it.
pub async fn run(host: &Host, request: Syscalls, mut stop: Stop, owned: Owned) -> Result<(), Failure> {
    let is_terminal = io::stdout().is_terminal();
    let colour = screen::is_coloured(request.color, is_terminal);
    let (attached, stream, again, mut live) = interruptible(&mut stop, async {
        let connection = connect(host).await?;
        let attached = Attached::open(&connection, &request.session, &owned).await?;
        let mut client =
            ViewServiceClient::new(connection.channel.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES);
        let watch = v1::WatchSyscallsRequest {
            session: attached.session.name.clone(),
            interval: None,
            by: request.by.into(),
        };
        let stream = client.watch_syscalls(watch.clone()).await?.into_inner();
        let again = async move || Ok(client.watch_syscalls(watch).await?.into_inner());
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
        Ok((attached, stream, again, live))
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
    let mut state = SyscallsState::default();
    let ended = run
        .watch(stream, again, |message: v1::WatchSyscallsResponse| {
            let last = message.is_final();
            state
                .apply(message)
                .map_err(|error| Failure::failed(error.to_string()))?;
            match &mut live {
                Some(Live { screen, target }) if !last => {
                    let (_, rows) = Screen::size();
                    screen.draw(syscalls::screen(
                        &state,
                        request.by,
                        target,
                        began.elapsed(),
                        rows,
                    ))
                }
                _ => Ok(()),
            }
        })
        .await?;

    if state.started {
        finish(&request, &state, live, began, colour)?;
    }
    ended.result(state.started)
}

fn finish(
    request: &Syscalls,
    state: &SyscallsState,
    live: Option<Live>,
    began: Instant,
    colour: bool,
) -> Result<(), Failure> {
    if request.json {
        return output::stdout(syscalls_json::syscalls(state));
    }
    if let Some(Live { mut screen, .. }) = live {
        // What was drawn last gives way to all that there is.
        screen.draw(Vec::new())?;
    }
    screen::print(&syscalls::syscalls(state, request.by), colour)?;
    note(&syscalls::summary(state, began.elapsed()));
    Ok(())
}
