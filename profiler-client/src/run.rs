//! A command from start to end: run it, stop it when asked, leave nothing attached.

use std::{process::ExitCode, time::Duration};

use tokio::{runtime, task::JoinHandle, time::timeout};

use crate::{
    attached::Owned,
    cli::{
        exit::{ExitStatus, report},
        request::{Host, Request},
    },
    failure::Failure,
    stop::Stop,
    tui, verb,
};

/// What an aborted command may still take to end its session.
const ABORT: Duration = Duration::from_secs(1);

/// What the rest of it may take. It is longer only where it is stuck in a write, which nothing can end.
const STUCK: Duration = Duration::from_millis(200);

/// Runs a command and says how it ended.
#[must_use]
pub fn run(host: Host, request: Request) -> ExitCode {
    let runtime = match runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return report(&Failure::failed(format!("Cannot start: {error}."))),
    };
    let result = runtime.block_on(execute(host, request));
    // An aborted command may not have got to it.
    tui::terminal::leave();
    let exit = match &result {
        Ok(()) => ExitStatus::Done.into(),
        Err(failure) => report(failure),
    };
    // A write to a pipe that nobody reads blocks its thread for good.
    runtime.shutdown_timeout(STUCK);
    exit
}

async fn execute(host: Host, request: Request) -> Result<(), Failure> {
    let mut stop =
        Stop::listen().map_err(|error| Failure::failed(format!("Cannot handle signals: {error}.")))?;
    let owned = Owned::default();
    let mut work = tokio::spawn(verb::run(host, request, stop.clone(), owned.clone()));
    tokio::select! {
        result = &mut work => {
            tokio::select! {
                () = owned.end() => {}
                // The lease does it.
                () = stop.insisted() => {}
            }
            result.unwrap_or_else(|_| Err(Failure::failed("An internal error ended the command.")))
        }
        () = stop.insisted() => {
            abort(work, &owned).await;
            Err(Failure::failed("Aborted."))
        }
    }
}

async fn abort(work: JoinHandle<Result<(), Failure>>, owned: &Owned) {
    work.abort();
    // Dropping what it holds removes its temporary file.
    let _ = tokio::join!(timeout(STUCK, work), timeout(ABORT, owned.end()));
}
