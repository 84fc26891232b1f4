//! A view of a session: its stream of messages, which outlives its connection. Where that breaks, the view is opened again, as long as
//! its session may be there.

use std::time::Duration;

use profiler_proto::v1::{self, view_service_client::ViewServiceClient};
use tokio::time::Instant;
use tonic::{Status, Streaming, transport::Channel};

use crate::{
    attached,
    connect::Connection,
    instance,
    tries::{NOBODY_LISTENS, Pace, Tried, Tries, is_lost},
    watch::Message,
};

/// How a view is opened again.
const PACE: Pace = Pace {
    first_wait: Duration::from_millis(50),
    max_wait: Duration::from_secs(2),
    least: NOBODY_LISTENS,
};

/// What becomes of a view whose stream was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterLoss {
    /// The session counts on while nobody watches: a second stream has what the first would have had.
    GoesOn,
    /// The session forgets it: a second stream begins with nothing.
    BeginsAnew,
    /// A second stream cannot take the place of the first.
    Ends,
}

/// A request for a view.
pub trait Viewed: Clone + Send + Sync + 'static {
    /// What answers it.
    type Message: Message + Send + 'static;

    /// What becomes of it where its connection is lost.
    const AFTER_LOSS: AfterLoss;

    /// Asks for it.
    fn watch(
        self,
        client: ViewServiceClient<Channel>,
    ) -> impl Future<Output = Result<Streaming<Self::Message>, Status>> + Send;
}

macro_rules! viewed {
    ($($request:ident, $message:ident, $method:ident, $after_loss:ident;)+) => {
        $(
            impl Viewed for v1::$request {
                type Message = v1::$message;
                const AFTER_LOSS: AfterLoss = AfterLoss::$after_loss;

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
    WatchLatencyRequest, WatchLatencyResponse, watch_latency, GoesOn;
    WatchTraceRequest, WatchTraceResponse, watch_trace, GoesOn;
    WatchExplainRequest, WatchExplainResponse, watch_explain, GoesOn;
    WatchFlameRequest, WatchFlameResponse, watch_flame, BeginsAnew;
    WatchSpansRequest, WatchSpansResponse, watch_spans, BeginsAnew;
    WatchWaitsRequest, WatchWaitsResponse, watch_waits, BeginsAnew;
    WatchSyscallsRequest, WatchSyscallsResponse, watch_syscalls, BeginsAnew;
    WatchTimelineRequest, WatchTimelineResponse, watch_timeline, Ends;
    WatchRecordsRequest, WatchRecordsResponse, watch_records, Ends;
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
    connection: Connection,
    request: R,
    /// `None` before the first, where that is lost.
    stream: Option<Streaming<R::Message>>,
    /// The daemon's start at which it was opened.
    instance: Option<String>,
    /// How long its session outlives its last stream.
    lease: Duration,
    /// It is opened again, too, where it then begins anew.
    may_begin_anew: bool,
    lost: Option<Lost>,
}

#[derive(Debug)]
struct Lost {
    since: Instant,
    why: Status,
}

impl<R: Viewed> View<R> {
    /// Opens it, to be shown from now on as a whole: where its connection is lost, it goes on, or ends.
    ///
    /// # Errors
    ///
    /// What the daemon says.
    pub async fn open(connection: &Connection, session: &v1::Session, request: R) -> Result<Self, Status> {
        let mut view = Self::new(connection, attached::lease(session), request);
        view.stream = Some(view.try_to_open().await?);
        Ok(view)
    }

    /// Opens it, for a screen that shows what there is: where its connection is lost, be it at the beginning, it goes on or begins anew.
    ///
    /// # Errors
    ///
    /// What the daemon says.
    pub async fn of_screen(connection: &Connection, lease: Duration, request: R) -> Result<Self, Status> {
        let mut view = Self::new(connection, lease, request);
        view.may_begin_anew = true;
        match view.try_to_open().await {
            Ok(stream) => view.stream = Some(stream),
            Err(status) if is_lost(&status) => view.lose(status),
            Err(status) => return Err(status),
        }
        Ok(view)
    }

    fn new(connection: &Connection, lease: Duration, request: R) -> Self {
        Self {
            connection: connection.clone(),
            request,
            stream: None,
            instance: None,
            lease,
            may_begin_anew: false,
            lost: None,
        }
    }

    /// Why there is no connection, where that is lost.
    #[must_use]
    pub fn lost(&self) -> Option<&Status> {
        self.lost.as_ref().map(|lost| &lost.why)
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
            let Some(stream) = &mut self.stream else {
                return Ok(None);
            };
            match stream.message().await {
                Err(status) if is_lost(&status) => {
                    self.is_to_be_opened_again()?;
                    told(Change::Lost(self.lease));
                    self.lose(status);
                }
                message => return message,
            }
        }
    }

    fn is_to_be_opened_again(&self) -> Result<(), Status> {
        match R::AFTER_LOSS {
            AfterLoss::GoesOn => Ok(()),
            AfterLoss::BeginsAnew if self.may_begin_anew => Ok(()),
            AfterLoss::BeginsAnew | AfterLoss::Ends => Err(Status::aborted(
                "the connection to the daemon was lost: the result is of what came before",
            )),
        }
    }

    fn lose(&mut self, why: Status) {
        self.lost = Some(Lost {
            since: Instant::now(),
            why,
        });
    }

    /// Opens it once more, beside the first stream, for one message.
    ///
    /// # Errors
    ///
    /// What the daemon says.
    pub async fn look_again(&self) -> Result<Option<R::Message>, Status> {
        if R::AFTER_LOSS == AfterLoss::Ends {
            return Ok(None);
        }
        let mut stream = self.request.clone().watch(self.connection.views()).await?;
        stream.message().await
    }

    async fn reopen(&mut self, told: &mut impl FnMut(Change)) -> Result<(), Status> {
        let Some(Lost { since, why }) = &self.lost else {
            return Ok(());
        };
        let (since, why) = (*since, why.clone());
        let mut tries = Tries::since(since, self.lease, PACE);
        loop {
            match tries.make(self.try_to_open()).await {
                Tried::Done(stream) => {
                    self.stream = Some(stream);
                    self.lost = None;
                    told(Change::Back(since.elapsed()));
                    return Ok(());
                }
                Tried::Again => {}
                Tried::GivenUp => return Err(why),
                Tried::Refused(status) => return Err(status),
            }
        }
    }

    async fn try_to_open(&mut self) -> Result<Streaming<R::Message>, Status> {
        let count = self.connection.made().count();
        let instance = instance::of(&self.connection).await?;
        if self.instance.as_ref().is_some_and(|before| *before != instance) {
            return Err(started_anew());
        }
        let stream = self.request.clone().watch(self.connection.views()).await?;
        // Where the connection was made anew meanwhile, another daemon may have answered.
        if self.connection.made().count() != count && instance::of(&self.connection).await? != instance {
            return Err(started_anew());
        }
        self.instance = Some(instance);
        Ok(stream)
    }
}

/// Another session may have the name by now.
fn started_anew() -> Status {
    Status::not_found("the daemon was started anew: the session ended with the one before")
}
