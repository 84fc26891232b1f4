//! `profiler top`.

use profiler_proto::v1;

use super::{interruptible, target};
use crate::{
    attached::{Attached, Owned},
    cli::request::{Host, Top},
    connect::connect,
    failure::Failure,
    live::Redrawn,
    output::{self, note, warnings},
    render::top,
    state::{flame::FlameState, functions::FunctionTimes},
    stop::Stop,
    view::View,
    watch::Run,
};

/// Runs it.
pub async fn run(host: &Host, request: Top, mut stop: Stop, owned: Owned) -> Result<(), Failure> {
    let (attached, stream, mut live) = interruptible(&mut stop, async {
        let connection = connect(host).await?;
        let attached = Attached::open(&connection, &request.session, &owned).await?;
        let watch = v1::WatchFlameRequest {
            session: attached.session.name.clone(),
            ..Default::default()
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
    let mut state = FlameState::default();
    let ended = run
        .watch(stream, |message: v1::WatchFlameResponse| {
            live.take(
                &mut state,
                message,
                FlameState::apply,
                |state, target, (columns, rows)| {
                    let times = FunctionTimes::of(state, request.sort);
                    top::screen(&times, state, target, attached.elapsed(began), (columns, rows))
                },
            )
        })
        .await?;

    if state.started {
        let times = FunctionTimes::of(&state, request.sort);
        if request.json {
            output::ndjson(top::json(&times, &state, request.number))?;
        } else {
            live.print(&top::lines(&times, &state, request.number, None))?;
            note(&top::summary(&state, attached.elapsed(began)));
        }
    }
    ended.result(state.started)
}
