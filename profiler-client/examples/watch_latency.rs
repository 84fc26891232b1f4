//! Watches how long the calls of a function take, in a program that runs:
//!
//!     cargo run --example watch_latency -- SOCKET PID SCOPE
//!
//! SOCKET is that of a daemon (`profilerd --socket SOCKET`). A line a second, until the session ends or Ctrl-C does.

use std::{env, error::Error, path::PathBuf};

use profiler_client::{
    attached::{Attached, Owned, SessionChoice},
    connect::{Connection, Host, connect},
    state::latency::LatencyState,
};
use profiler_proto::v1;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [socket, pid, scope] = &arguments[..] else {
        return Err("usage: watch_latency SOCKET PID SCOPE".into());
    };
    let connection = connect(&Host::Socket(PathBuf::from(socket))).await?;
    let owned = Owned::default();
    let choice = SessionChoice::of_process(pid.parse()?, scope);
    let attached = Attached::open(&connection, &choice, &owned).await?;
    let watched = tokio::select! {
        watched = watch(&connection, &attached) => watched,
        _ = tokio::signal::ctrl_c() => Ok(()),
    };
    // The probes are gone when this returns; a session that nobody ends is ended by its lease.
    owned.end().await;
    watched
}

async fn watch(connection: &Connection, attached: &Attached) -> Result<(), Box<dyn Error>> {
    let request = v1::WatchLatencyRequest {
        session: attached.session.name.clone(),
        ..v1::WatchLatencyRequest::default()
    };
    let mut messages = connection.views().watch_latency(request).await?.into_inner();
    let mut state = LatencyState::default();
    while let Some(message) = messages.message().await? {
        // The first is a snapshot, later ones say what has changed.
        state.apply(message)?;
        for function in state.functions.values() {
            println!(
                "{}: {:.0} calls in the last ten seconds, p50 {} ns, p95 {} ns",
                function.function.name, function.window.count, function.window.p50_ns, function.window.p95_ns,
            );
        }
    }
    Ok(())
}
