//! Draws where slow calls of a function spend their time, and the others, into an SVG:
//!
//!     cargo run --example flame_graph -- SOCKET PID SCOPE SECONDS FILE
//!
//! SOCKET is that of a daemon (`profilerd --socket SOCKET`); a scope with a percentile, as `'handle_request[>= p95]'`, divides its calls.

use std::{env, error::Error, path::PathBuf, time::Duration};

use profiler_client::{
    attached::{Attached, Owned, SessionChoice},
    connect::{Connection, Host, connect},
    render::svg::{self, About},
    state::{flame::FlameState, sides::Sides},
};
use profiler_proto::v1;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [socket, pid, scope, seconds, file] = &arguments[..] else {
        return Err("usage: flame_graph SOCKET PID SCOPE SECONDS FILE".into());
    };
    let connection = connect(&Host::Socket(PathBuf::from(socket))).await?;
    let owned = Owned::default();
    let choice = SessionChoice::of_process(pid.parse()?, scope);
    let attached = Attached::open(&connection, &choice, &owned).await?;
    let state = watch(&connection, &attached, Duration::from_secs(seconds.parse()?)).await;
    owned.end().await;
    let state = state?;
    let picture = svg::render(&state, Sides::Difference, &About::default());
    std::fs::write(file, picture)?;
    println!(
        "{file}: {} samples in slow calls, {} in the others",
        state.summary.inside, state.summary.outside
    );
    Ok(())
}

/// The flame view after a while.
async fn watch(
    connection: &Connection,
    attached: &Attached,
    duration: Duration,
) -> Result<FlameState, Box<dyn Error>> {
    let request = v1::WatchFlameRequest {
        session: attached.session.name.clone(),
        difference: true,
        ..v1::WatchFlameRequest::default()
    };
    let mut messages = connection.views().watch_flame(request).await?.into_inner();
    let mut state = FlameState::default();
    let end = tokio::time::Instant::now() + duration;
    while let Ok(message) = tokio::time::timeout_at(end, messages.message()).await {
        let Some(message) = message? else { break };
        state.apply(message)?;
    }
    Ok(state)
}
