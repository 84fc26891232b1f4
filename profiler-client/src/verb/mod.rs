//! The verbs.

mod estimate;
mod events;
mod explain;
mod flame;
mod functions;
pub mod imported;
mod info;
mod latency;
#[cfg(feature = "in-process")]
mod own;
pub(crate) mod processes;
#[cfg(feature = "in-process")]
pub(crate) mod record;
mod sessions;
pub(crate) mod source;
mod spans;
mod syscalls;
pub(crate) mod target;
mod timeline;
mod top;
mod trace;
mod waits;

use std::future::Future;

use crate::{
    attached::Owned,
    cli::request::{Host, Request},
    failure::Failure,
    stop::Stop,
    tui,
};

/// Runs a validated command.
///
/// # Errors
///
/// Whatever kept it from doing what was asked.
pub async fn run(host: Host, request: Request, mut stop: Stop, owned: Owned) -> Result<(), Failure> {
    let stop = &mut stop;
    match request {
        // These end by themselves when asked to stop, with a result.
        Request::Tui(request) => tui::run(&host, *request, stop.clone(), owned).await,
        Request::Top(request) => top::run(&host, request, stop.clone(), owned).await,
        Request::Latency(request) => latency::run(&host, request, stop.clone(), owned).await,
        Request::Trace(request) => trace::run(&host, request, stop.clone(), owned).await,
        Request::Explain(request) => explain::run(&host, request, stop.clone(), owned).await,
        Request::Spans(request) => spans::run(&host, request, stop.clone(), owned).await,
        Request::Waits(request) => waits::run(&host, request, stop.clone(), owned).await,
        Request::Timeline(request) => timeline::run(&host, request, stop.clone(), owned).await,
        Request::Syscalls(request) => syscalls::run(&host, request, stop.clone(), owned).await,
        Request::Flame(request) => flame::run(&host, request, stop.clone(), owned).await,
        #[cfg(feature = "in-process")]
        Request::Record(request) => record::run(&host, request, stop.clone(), owned).await,
        #[cfg(feature = "in-process")]
        Request::RecordOwn(request) => own::run(&host, request, stop.clone(), owned).await,
        #[cfg(not(feature = "in-process"))]
        Request::Record(_) | Request::RecordOwn(_) => Err(crate::in_process::left_out()),
        Request::Info { json } => interruptible(stop, info::show(&host, json)).await,
        Request::Ps { pattern, json } => interruptible(stop, processes::list(&host, pattern, json)).await,
        Request::Functions {
            target,
            pattern,
            json,
        } => interruptible(stop, functions::list(&host, target, pattern, json)).await,
        Request::Source {
            target,
            place,
            json,
            color,
        } => interruptible(stop, source::show(&host, target, place, json, color)).await,
        Request::SessionNew { create, json } => {
            interruptible(stop, sessions::new(&host, &create, json)).await
        }
        Request::Estimate(request) => interruptible(stop, estimate::run(&host, request)).await,
        Request::SessionList { json } => interruptible(stop, sessions::list(&host, json)).await,
        Request::SessionEnd { name } => interruptible(stop, sessions::end(&host, name)).await,
        Request::ScopeEdit { name, edit } => {
            interruptible(stop, sessions::edit_scope(&host, name, edit)).await
        }
    }
}

/// Lets the user stop what has no result to show yet.
async fn interruptible<T>(
    stop: &mut Stop,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    tokio::select! {
        result = work => result,
        () = stop.requested() => Err(Failure::failed("Stopped before there was anything to show.")),
    }
}
