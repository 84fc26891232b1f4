//! One run of a view: messages until it ends, by time, by the user, or by the target's end.

use std::{future::Future, time::Duration};

use profiler_daemon::session::OVER_BUDGET;
use profiler_proto::v1;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};
use tonic::{Status, Streaming};

use crate::{
    attached::{Attached, Owned},
    cli::exit::Failure,
    output::{first_failure, note},
    render::escape::terminal,
    stop::Stop,
};

/// How long a stream may take to bring its last message after its session was ended.
const LAST_MESSAGE: Duration = Duration::from_secs(5);

/// How long the last look at a session that goes on may take.
const LAST_LOOK: Duration = Duration::from_secs(3);

/// Why a picture of a recording is the last, where there is nothing else to say.
pub const END_OF_RECORDING: &str = "the end of the recording";

/// A message of a view's stream.
pub trait Message {
    /// Whether it is the last one.
    fn is_final(&self) -> bool;
    /// Why it is.
    fn final_reason(&self) -> &str;
    /// The signal that ended the target, which is why; 0 for none.
    fn final_signal(&self) -> u32;
}

impl<M: Message> Message for Box<M> {
    fn is_final(&self) -> bool {
        (**self).is_final()
    }
    fn final_reason(&self) -> &str {
        (**self).final_reason()
    }
    fn final_signal(&self) -> u32 {
        (**self).final_signal()
    }
}

/// Messages that say in fields of the same names which is the last.
macro_rules! messages {
    ($($message:ty),+ $(,)?) => {
        $(
            impl Message for $message {
                fn is_final(&self) -> bool {
                    self.r#final
                }
                fn final_reason(&self) -> &str {
                    &self.final_reason
                }
                fn final_signal(&self) -> u32 {
                    self.final_signal
                }
            }
        )+
    };
}

messages!(
    v1::WatchLatencyResponse,
    v1::WatchTraceResponse,
    v1::WatchExplainResponse,
    v1::WatchSpansResponse,
    v1::WatchWaitsResponse,
    v1::WatchTimelineResponse,
    v1::WatchRecordsResponse,
    v1::WatchSyscallsResponse,
    v1::WatchFlameResponse,
);

/// What is said of a run that nobody ended.
fn ended_by_itself(reason: &str) -> String {
    if reason.is_empty() {
        return "The run ended by itself.".to_owned();
    }
    format!(
        "The run ended by itself: {}.",
        terminal(reason.trim_end_matches('.'))
    )
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The user or the clock ended it.
    Asked,
    /// The session or its target ended; why.
    ByItself(String),
    /// A signal ended the target; in words.
    Killed(String),
    /// The stream broke; what came before it stands.
    Broken(Failure),
}

impl Ended {
    /// The command's result, once what came has been shown; whether `anything` did. Says so of a run that nobody ended.
    ///
    /// # Errors
    ///
    /// Where the stream broke, or brought nothing until it was asked to end.
    pub fn result(self, anything: bool) -> Result<(), Failure> {
        match self {
            Self::Asked if anything => Ok(()),
            Self::Asked => Err(Failure::failed("The daemon sent nothing before the run ended.")),
            Self::ByItself(reason) if reason == END_OF_RECORDING => Ok(()),
            Self::ByItself(reason) if reason.contains(OVER_BUDGET) => Err(Failure::failed(format!(
                "{} `--budget 0` sets no limit.",
                ended_by_itself(&reason)
            ))),
            Self::ByItself(reason) => {
                note(&ended_by_itself(&reason));
                Ok(())
            }
            Self::Killed(reason) => Err(Failure::target_killed(ended_by_itself(&reason))),
            Self::Broken(failure) => Err(failure),
        }
    }

    /// As [`Self::result`] of a run that was also written or sent elsewhere. How it ended comes first; that the other failed is
    /// said then, and is the result else.
    ///
    /// # Errors
    ///
    /// As there, and where that failed.
    pub fn with_export(self, anything: bool, exported: Result<(), Failure>) -> Result<(), Failure> {
        first_failure(self.result(anything), exported)
    }
}

/// What ends a run.
#[derive(Clone, Debug)]
pub struct Run {
    /// When it began.
    pub began: Instant,
    /// When the run is over; `None`: only when asked to stop.
    pub deadline: watch::Receiver<Option<Instant>>,
    /// The user.
    pub stop: Stop,
    /// Sessions to end; what their streams then send last still belongs to the run.
    pub owned: Owned,
    /// Whether the watched session is among them.
    pub own: bool,
}

impl Run {
    /// Begins a run of so long, or until it is asked to stop.
    #[must_use]
    pub fn begin(duration: Option<Duration>, stop: Stop, owned: Owned, attached: &Attached) -> Self {
        let began = Instant::now();
        let (_, deadline) = watch::channel(duration.map(|duration| began + duration));
        Self {
            began,
            deadline,
            stop,
            owned,
            own: attached.own,
        }
    }

    /// Hands every message to `on_message` until the run is over. What has come since the last message then is
    /// asked for by `again`, which opens the stream once more: the session is somebody else's and goes on.
    ///
    /// # Errors
    ///
    /// What `on_message` fails with: it ends the run at once.
    pub async fn watch<M: Message>(
        mut self,
        mut stream: Streaming<M>,
        again: impl AsyncFnOnce() -> Result<Streaming<M>, Status>,
        mut on_message: impl FnMut(M) -> Result<(), Failure>,
    ) -> Result<Ended, Failure> {
        loop {
            let message = tokio::select! {
                biased;
                () = self.stop.requested() => break,
                () = until(&mut self.deadline) => break,
                message = stream.message() => message,
            };
            if let Some(ended) = take(message, &mut on_message)? {
                return Ok(ended);
            }
        }
        if self.own {
            self.drain(stream, on_message).await
        } else {
            // The first stream stays open until then: without any, the daemon forgets what was sampled for it.
            let now = within(LAST_LOOK, async { again().await?.message().await }).await;
            if let Some(now) = now {
                take(now, &mut on_message)?;
            }
            Ok(Ended::Asked)
        }
    }

    /// Ends the session, and takes what is still to come.
    async fn drain<M: Message>(
        &mut self,
        mut stream: Streaming<M>,
        mut on_message: impl FnMut(M) -> Result<(), Failure>,
    ) -> Result<Ended, Failure> {
        let owned = self.owned.clone();
        let end = tokio::spawn(async move { owned.end().await });
        let last = Instant::now() + LAST_MESSAGE;
        while let Ok(message) = tokio::time::timeout_at(last, stream.message()).await {
            if take(message, &mut on_message)?.is_some() {
                break;
            }
        }
        // It has its own deadline, and cannot fail in a way that matters here.
        let _ = end.await;
        Ok(Ended::Asked)
    }
}

fn take<M: Message>(
    message: Result<Option<M>, Status>,
    on_message: &mut impl FnMut(M) -> Result<(), Failure>,
) -> Result<Option<Ended>, Failure> {
    match message {
        Ok(Some(message)) => {
            let ended = message.is_final().then(|| {
                let reason = message.final_reason().to_owned();
                match message.final_signal() {
                    0 => Ended::ByItself(reason),
                    _ => Ended::Killed(reason),
                }
            });
            on_message(message)?;
            Ok(ended)
        }
        Ok(None) => Ok(Some(Ended::ByItself(String::new()))),
        Err(status) => Ok(Some(Ended::Broken(status.into()))),
    }
}

async fn until(deadline: &mut watch::Receiver<Option<Instant>>) {
    loop {
        let at = *deadline.borrow_and_update();
        let over = async {
            match at {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = over => return,
            changed = deadline.changed() => if changed.is_err() {
                break;
            },
        }
    }
    // It stays as it is.
    let at = *deadline.borrow();
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

async fn within<T>(duration: Duration, future: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(duration, future).await.ok()
}
