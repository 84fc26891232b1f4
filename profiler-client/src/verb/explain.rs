//! `profiler explain`.

use std::{
    io::{self, IsTerminal as _},
    time::Duration,
};

use profiler_proto::v1;

use super::{interruptible, source};
use crate::{
    attached::{Attached, Owned, recorded_length},
    cli::request::{Explain, Host},
    connect::{Connection, connect},
    failure::Failure,
    live::screen,
    output::{self, Progress, note, warnings},
    render::{explain, explain_json},
    stop::Stop,
    view::View,
    watch::Run,
};

/// Time between looks at how far it is.
const INTERVAL: Duration = Duration::from_secs(2);

/// How long the source of the function is waited for at the end.
const SOURCE: Duration = Duration::from_secs(2);

/// The source of the function that is explained, where that can be had: what is said of lines has their text beside it.
async fn source_of(connection: Connection, session: v1::Session) -> Option<v1::SourceFunction> {
    let pid = session
        .pids
        .first()
        .filter(|_| recorded_length(&session).is_none())?;
    let scope = profiler_scope::parse(&session.scope).ok()?;
    let target = v1::Target {
        target: Some(v1::target::Target::Pid(*pid)),
    };
    let place = scope.last()?.place.to_string();
    source::sources(&connection, target, &place)
        .await
        .ok()?
        .into_iter()
        .next()
}

/// Runs it.
pub async fn run(host: &Host, request: Explain, mut stop: Stop, owned: Owned) -> Result<(), Failure> {
    let (connection, attached, stream) = interruptible(&mut stop, async {
        let connection = connect(host).await?;
        let attached = Attached::open(&connection, &request.session, &owned).await?;
        let watch = v1::WatchExplainRequest {
            session: attached.session.name.clone(),
            interval: Some(prost_types::Duration {
                seconds: i64::try_from(INTERVAL.as_secs()).unwrap_or(1),
                nanos: 0,
            }),
        };
        let stream = View::open(&connection, &attached.session, watch).await?;
        Ok((connection, attached, stream))
    })
    .await?;
    warnings(&attached.session.warnings);
    // The process may be gone at the end.
    let source = tokio::spawn(source_of(connection, attached.session.clone()));

    let more = match recorded_length(&attached.session) {
        Some(_) => "a longer recording has more",
        None => "--duration makes it longer",
    };
    let run = Run::begin(Some(request.duration), stop, owned, &attached).telling_json(request.json);
    let began = run.began;
    let mut last: Option<v1::WatchExplainResponse> = None;
    let mut progress = Progress::default();
    let ended = run
        .watch(stream, |message: v1::WatchExplainResponse| {
            progress.show(&explain::progress(&message, began.elapsed()));
            last = Some(message);
            Ok(())
        })
        .await?;
    drop(progress);

    if let Some(last) = &last {
        if request.json {
            output::ndjson(explain_json::explained(last, request.number))?;
        } else {
            let colour = screen::is_coloured(request.color, io::stdout().is_terminal());
            let source = tokio::time::timeout(SOURCE, source).await;
            let source = source.ok().and_then(Result::ok).flatten();
            let mut lines = explain::explained(last, source.as_ref(), request.number, more);
            if let Some(width) = screen::width() {
                lines = explain::fitted(lines, width);
            }
            screen::print(&lines, colour)?;
            note(&explain::summary(last, attached.elapsed(began), more));
        }
    }
    ended.result(last.is_some())
}
