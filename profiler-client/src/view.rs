//! A view of a session: its stream of messages, which outlives its connection. Where that breaks, the view is opened again, as long as
//! its session may be there.

use std::{error::Error as _, io, time::Duration};

use profiler_proto::v1::{self, view_service_client::ViewServiceClient};
use tokio::time::{Instant, sleep};
use tonic::{Status, Streaming, transport::Channel};

use crate::{attached, connect::Connection, watch::Message};

/// How long the first try to connect waits, once one has failed; each waits twice as long as the one before.
const FIRST_WAIT: Duration = Duration::from_millis(50);

/// How long any does, at most.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// How long is tried where nobody listens: a daemon that is gone has no sessions any more.
const NOBODY_LISTENS: Duration = Duration::from_secs(1);

/// A request for a view.
pub trait Viewed: Clone + Send + Sync + 'static {
    /// What answers it.
    type Message: Message + Send + 'static;

    /// Why no second stream can go on where the first has ended; `None` where one can.
    const OF_ONE_STREAM: Option<&'static str> = None;

    /// Asks for it.
    fn watch(
        self,
        client: ViewServiceClient<Channel>,
    ) -> impl Future<Output = Result<Streaming<Self::Message>, Status>> + Send;
}

macro_rules! viewed {
    ($($request:ident, $message:ident, $method:ident $(, $of_one_stream:literal)?;)+) => {
        $(
            impl Viewed for v1::$request {
                type Message = v1::$message;
                $(const OF_ONE_STREAM: Option<&'static str> = Some($of_one_stream);)?

                async fn watch(
                    self,
                    mut client: ViewServiceClient<Channel>,
                ) -> Result<Streaming<Self::Message>, Status> {
                    Ok(client.$method(self).await?.into_inner())
                }
            }
        )+
    };
}

viewed! {
    WatchLatencyRequest, WatchLatencyResponse, watch_latency;
    WatchFlameRequest, WatchFlameResponse, watch_flame;
    WatchTraceRequest, WatchTraceResponse, watch_trace;
    WatchExplainRequest, WatchExplainResponse, watch_explain;
    WatchSpansRequest, WatchSpansResponse, watch_spans;
    WatchWaitsRequest, WatchWaitsResponse, watch_waits;
    WatchSyscallsRequest, WatchSyscallsResponse, watch_syscalls;
    WatchTimelineRequest, WatchTimelineResponse, watch_timeline, "the buckets are those that came before";
    WatchRecordsRequest, WatchRecordsResponse, watch_records, "what came before is in the file";
}

/// What became of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is lost, and is tried to be made again, for so long.
    Lost(Duration),
    /// It was made again, after so long, and the view is open.
    Back(Duration),
}

/// An open view.
#[derive(Debug)]
pub struct View<R: Viewed> {
    client: ViewServiceClient<Channel>,
    request: R,
    stream: Streaming<R::Message>,
    /// How long its session outlives its last stream.
    lease: Duration,
    lost: Option<Lost>,
}

#[derive(Debug)]
struct Lost {
    since: Instant,
    why: Status,
}

impl<R: Viewed> View<R> {
    /// Opens it.
    ///
    /// # Errors
    ///
    /// What the daemon says.
    pub async fn open(connection: &Connection, session: &v1::Session, request: R) -> Result<Self, Status> {
        Self::of(connection.views(), attached::lease(session), request).await
    }

    /// Opens it at a session that outlives its last stream by so long.
    ///
    /// # Errors
    ///
    /// What the daemon says.
    pub async fn of(client: ViewServiceClient<Channel>, lease: Duration, request: R) -> Result<Self, Status> {
        Ok(Self {
            stream: request.clone().watch(client.clone()).await?,
            client,
            request,
            lease,
            lost: None,
        })
    }

    /// The next message; `None` behind the last. Where the view was opened again, the first message is whole. `told` is told of the
    /// connection. Nothing is lost where this is dropped before it is done.
    ///
    /// # Errors
    ///
    /// What the daemon says, and where the connection was lost and could not be made again.
    pub async fn message(&mut self, mut told: impl FnMut(Change)) -> Result<Option<R::Message>, Status> {
        loop {
            if self.lost.is_some() {
                self.reopen(&mut told).await?;
            }
            match self.stream.message().await {
                Err(status) if is_lost(&status) => {
                    if let Some(of_one_stream) = R::OF_ONE_STREAM {
                        let message = format!("the connection to the daemon was lost: {of_one_stream}");
                        return Err(Status::unavailable(message));
                    }
                    told(Change::Lost(self.lease));
                    self.lost = Some(Lost {
                        since: Instant::now(),
                        why: status,
                    });
                }
                message => return message,
            }
        }
    }

    /// Opens it once more, beside the first stream, for one message.
    ///
    /// # Errors
    ///
    /// What the daemon says.
    pub async fn look_again(&self) -> Result<Option<R::Message>, Status> {
        if R::OF_ONE_STREAM.is_some() {
            return Ok(None);
        }
        let mut stream = self.request.clone().watch(self.client.clone()).await?;
        stream.message().await
    }

    async fn reopen(&mut self, told: &mut impl FnMut(Change)) -> Result<(), Status> {
        let mut wait = FIRST_WAIT;
        while let Some(Lost { since, why }) = &self.lost {
            let since = *since;
            match self.request.clone().watch(self.client.clone()).await {
                Ok(stream) => {
                    self.stream = stream;
                    self.lost = None;
                    told(Change::Back(since.elapsed()));
                }
                Err(status) if is_lost(&status) => {
                    let patience = patience(&status, self.lease);
                    if since.elapsed() >= patience {
                        return Err(why.clone());
                    }
                    sleep(wait.min(patience.saturating_sub(since.elapsed()))).await;
                    wait = MAX_WAIT.min(wait * 2);
                }
                Err(status) => return Err(status),
            }
        }
        Ok(())
    }
}

/// Whether this is the connection's end rather than the daemon's word.
fn is_lost(status: &Status) -> bool {
    status.source().is_some()
}

/// For how long it is tried after such a failure to connect.
fn patience(status: &Status, lease: Duration) -> Duration {
    match refusal(status) {
        // The service within this process.
        Some(io::ErrorKind::NotConnected) => Duration::ZERO,
        Some(io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) => NOBODY_LISTENS,
        _ => lease,
    }
}

/// Why the system could not connect.
fn refusal(status: &Status) -> Option<io::ErrorKind> {
    let mut error = status.source();
    while let Some(cause) = error {
        if let Some(error) = cause.downcast_ref::<io::Error>() {
            return Some(error.kind());
        }
        error = cause.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_mins(1);

    fn failed(kind: io::ErrorKind) -> Status {
        Status::from_error(Box::new(io::Error::from(kind)))
    }

    #[test]
    fn a_connection_is_made_again_for_as_long_as_the_session_may_be_there() {
        assert!(!is_lost(&Status::not_found("no session")));
        for (kind, tried) in [
            (io::ErrorKind::ConnectionReset, LEASE),
            (io::ErrorKind::BrokenPipe, LEASE),
            (io::ErrorKind::ConnectionRefused, NOBODY_LISTENS),
            (io::ErrorKind::NotFound, NOBODY_LISTENS),
            (io::ErrorKind::NotConnected, Duration::ZERO),
        ] {
            let status = failed(kind);
            assert!(is_lost(&status), "{kind}");
            assert_eq!(patience(&status, LEASE), tried, "{kind}");
        }
    }
}
