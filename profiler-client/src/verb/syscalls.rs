//! `profiler syscalls`.

use std::time::Duration;

use profiler_proto::v1;

use super::{interruptible, target};
use crate::{
    attached::{Attached, Owned},
    cli::request::{Host, Syscalls},
    connect::connect,
    failure::Failure,
    live::Redrawn,
    output::{self, note, warnings},
    render::{syscalls, syscalls_json},
    state::syscalls::SyscallsState,
    stop::Stop,
    view::View,
    watch::Run,
};

/// Runs it.
pub async fn run(host: &Host, request: Syscalls, mut stop: Stop, owned: Owned) -> Result<(), Failure> {
    let (attached, stream, mut live) = interruptible(&mut stop, async {
        let connection = connect(host).await?;
        let attached = Attached::open(&connection, &request.session, &owned).await?;
        let watch = v1::WatchSyscallsRequest {
            session: attached.session.name.clone(),
            interval: None,
            by: request.by.into(),
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
    let mut state = SyscallsState::default();
    let ended = run
        .watch(stream, |message: v1::WatchSyscallsResponse| {
            live.take(
                &mut state,
                message,
                SyscallsState::apply,
                |state, target, size| syscalls::screen(state, request.by, target, began.elapsed(), size),
            )
        })
        .await?;

    if state.started {
        finish(&request, &state, live, attached.elapsed(began))?;
    }
    ended.result(state.started)
}

fn finish(
    request: &Syscalls,
    state: &SyscallsState,
    live: Redrawn,
    elapsed: Duration,
) -> Result<(), Failure> {
    if request.json {
        return output::ndjson(syscalls_json::syscalls(state));
    }
    let lines = syscalls::syscalls(state, request.by, live.width());
    live.print(&lines)?;
    note(&syscalls::summary(state, elapsed));
    Ok(())
}
