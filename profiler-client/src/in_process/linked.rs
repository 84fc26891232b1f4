//! The daemon within this process, where none runs: the same service over a connection in memory.

use std::path::Path;

use profiler_daemon::{rpc, session};
use tonic::transport::Channel;

use crate::{failure::Failure, render::escape::terminal};

/// Starts it. It lives as long as the process; what is attached goes with its session.
///
/// # Errors
///
/// Where it cannot run.
pub async fn start() -> Result<Channel, Failure> {
    let config = session::Config {
        cache: session::default_cache(),
        ..session::Config::default()
    };
    let service = rpc::in_process(config).await.map_err(|error| {
        Failure::failed(format!("Cannot start the service within this process: {error}."))
    })?;
    Ok(service.channel())
}

/// Starts one that serves a recording.
///
/// # Errors
///
/// Where it is none or cannot be read.
pub async fn of_recording(path: &Path) -> Result<Channel, Failure> {
    let service = rpc::in_process_of_recording(path).await.map_err(unreadable)?;
    Ok(service.channel())
}

/// Starts one that serves a recording and holds it against another.
///
/// # Errors
///
/// As [`of_recording`], of either.
pub async fn of_comparison(after: &Path, before: &Path) -> Result<Channel, Failure> {
    let service = rpc::in_process_of_comparison(after, before).await;
    Ok(service.map_err(unreadable)?.channel())
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` gives it")]
fn unreadable(error: rpc::ServerError) -> Failure {
    Failure::failed(format!("Recording: {}.", terminal(&error.to_string())))
}
