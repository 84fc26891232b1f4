//! Processes that left a session, and files that its processes replaced: the next message of each of its streams tells them.

use futures_util::StreamExt as _;
use profiler_proto::{stream::Message as _, v1};
use tonic::Status;

use super::{
    arguments,
    streams::{Messages, Watched},
};
use crate::session::{Caller, Departure, DepartureCause, Departures, Handle, Reason, ReplacedFile};

/// Opens a view for a caller. Its messages tell which processes have left the session: the first those that had left by then.
pub async fn open<R: Watched>(
    asked: R,
    caller: Caller,
    handle: &Handle,
) -> Result<Messages<R::Message>, Status> {
    let session = asked.session().to_owned();
    let messages = asked.open(caller, handle).await?;
    let departures = of_session(session, caller, handle).await?;
    let (mut told_left, mut told_replaced) = (0, 0);
    Ok(Box::pin(messages.map(move |message| {
        let mut message = message?;
        if let Some(info) = message.info_mut() {
            let left = departures.left.behind(told_left);
            told_left += left.len();
            info.departures = left.iter().map(departure).collect();
            let replaced = departures.replaced.behind(told_replaced);
            told_replaced += replaced.len();
            info.replaced_files = replaced.iter().map(replaced_file).collect();
        }
        Ok(message)
    })))
}

async fn of_session(session: String, caller: Caller, handle: &Handle) -> Result<Departures, Status> {
    match handle.departures(caller, arguments::name(session)?).await {
        // It ended once the view was open: its last message says that.
        Err(error) if error.reason == Reason::SessionNotFound => Ok(Departures::default()),
        departures => Ok(departures?),
    }
}

fn replaced_file(file: &ReplacedFile) -> v1::ReplacedFile {
    v1::ReplacedFile {
        pid: file.pid,
        name: file.name.clone(),
        path: file.path.display().to_string(),
        reason: file.reason(),
    }
}

fn departure(departure: &Departure) -> v1::Departure {
    let cause = match departure.why.cause {
        DepartureCause::Ended => v1::DepartureCause::Ended,
        DepartureCause::AnotherProgram => v1::DepartureCause::AnotherProgram,
        DepartureCause::NotAllowed => v1::DepartureCause::NotAllowed,
    };
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    v1::Departure {
        pid: departure.pid,
        name: departure.name.clone(),
        cause: cause.into(),
        reason: departure.why.reason.clone(),
        signal: departure.why.signal.unwrap_or(0),
        left: number(departure.left),
        of: number(departure.of),
    }
}
