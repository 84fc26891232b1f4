//! Panes with a stream of their own: it is open as long as they are shown, and costs nothing otherwise.

use std::time::Duration;

use profiler_proto::v1;
use tokio::sync::mpsc;

use super::{
    BETWEEN_LOOKS, Incoming, Reports, What,
    session::{Opened, Whose, forward},
};
use crate::{
    attached::{self, Owned},
    connect::Connection,
    failure::Failure,
    tui::{data::AsideOf, lens::Pane},
    view::{View, Viewed},
};

/// Calls in a message: as many as the service gives.
const SPANS: u32 = 100;

/// Time between points of counters, in nanoseconds.
const STEP_NS: i32 = 250_000_000;

/// The pane that is shown, and its scope. One without such a stream wants nothing.
#[derive(Debug, Default)]
pub struct Wanted {
    pub pane: Pane,
    pub scope: String,
    /// The scope is that of the session on the screen.
    pub is_of_session: bool,
}

/// All that the task has.
pub struct Task {
    pub connection: Connection,
    pub owned: Owned,
    /// The session whose waits and system calls are shown.
    pub session: String,
    /// How long it outlives its last stream.
    pub lease: Duration,
    /// What a session for a scope of its own is made with.
    pub template: v1::CreateSessionRequest,
    pub is_of_recording: bool,
    pub reports: Reports,
    pub wanted: mpsc::Receiver<Wanted>,
}

impl Task {
    /// Runs until nobody wants it any more.
    pub async fn run(mut self) {
        let mut opened: Option<Opened> = None;
        // A scope that is not the session's has one of its own.
        let mut beside: Option<String> = None;
        while let Some(mut wanted) = self.wanted.recv().await {
            while let Ok(newer) = self.wanted.try_recv() {
                wanted = newer;
            }
            drop(opened.take());
            if let Some(name) = beside.take() {
                self.owned.end_one(&name).await;
            }
            if wanted.pane.is_aside() {
                let of = AsideOf {
                    pane: wanted.pane,
                    scope: wanted.scope.clone(),
                };
                self.reports.send(What::AsideBegin(of)).await;
            }
            opened = match wanted.pane {
                Pane::Waits | Pane::Syscalls => match self.of_all_calls(&wanted).await {
                    Ok(session) => {
                        beside.clone_from(&session);
                        let session = session.unwrap_or_else(|| self.session.clone());
                        Some(if wanted.pane == Pane::Waits {
                            self.waits(session)
                        } else {
                            self.syscalls(session)
                        })
                    }
                    Err(failure) => {
                        self.reports.send(What::Waits(Incoming::Broken(failure))).await;
                        None
                    }
                },
                Pane::Spans => Some(self.spans()),
                Pane::Timeline => Some(self.timeline()),
                Pane::Sessions => Some(self.sessions()),
                Pane::Explain => match self.make(wanted.scope, true).await {
                    Ok(name) => {
                        beside = Some(name.clone());
                        Some(self.explained(name))
                    }
                    Err(failure) => {
                        self.reports
                            .send(What::Explained(Incoming::Broken(failure)))
                            .await;
                        None
                    }
                },
                _ => None,
            };
        }
    }

    /// Makes a session of a scope without the durations that the one on the screen asks for; `None` where that asks for none.
    async fn of_all_calls(&self, wanted: &Wanted) -> Result<Option<String>, Failure> {
        if wanted.is_of_session {
            return Ok(None);
        }
        self.make(wanted.scope.clone(), false).await.map(Some)
    }

    fn waits(&self, session: String) -> Opened {
        let request = v1::WatchWaitsRequest {
            session,
            interval: None,
        };
        self.stream(request, What::Waits)
    }

    fn syscalls(&self, session: String) -> Opened {
        let request = v1::WatchSyscallsRequest {
            session,
            ..Default::default()
        };
        self.stream(request, What::Syscalls)
    }

    fn spans(&self) -> Opened {
        let request = v1::WatchSpansRequest {
            session: self.session.clone(),
            interval: None,
            spans: SPANS,
            waits: true,
            // Recordings have no system calls of each call, and say so where these are asked for.
            system_calls: !self.is_of_recording,
        };
        self.stream(request, What::Spans)
    }

    fn timeline(&self) -> Opened {
        let request = v1::WatchTimelineRequest {
            session: self.session.clone(),
            step: Some(prost_types::Duration {
                seconds: 0,
                nanos: STEP_NS,
            }),
            ..Default::default()
        };
        self.stream(request, What::Timeline)
    }

    /// Looks at the daemon's sessions as long as they are shown.
    fn sessions(&self) -> Opened {
        let (mut sessions, reports) = (self.connection.sessions(), self.reports.clone());
        let task = async move {
            loop {
                // What cannot be asked now may be later.
                if let Ok(found) = sessions.list_sessions(v1::ListSessionsRequest {}).await
                    && !reports.send(What::Sessions(found.into_inner().sessions)).await
                {
                    return;
                }
                tokio::time::sleep(BETWEEN_LOOKS).await;
            }
        };
        Opened(tokio::spawn(task).abort_handle())
    }

    async fn make(&self, scope: String, explain: bool) -> Result<String, Failure> {
        let mut sessions = self.connection.sessions();
        let create = v1::CreateSessionRequest {
            scope,
            explain,
            ..self.template.clone()
        };
        let session = attached::create(&mut sessions, &create).await?;
        self.owned.add(sessions, session.name.clone());
        Ok(session.name)
    }

    fn explained(&self, session: String) -> Opened {
        let request = v1::WatchExplainRequest {
            session,
            interval: None,
        };
        let report = |incoming| {
            What::Explained(match incoming {
                Incoming::Message(message) => Incoming::Message(Box::new(message)),
                Incoming::Broken(failure) => Incoming::Broken(failure),
            })
        };
        self.stream(request, report)
    }

    /// Opens a view, and passes on what comes of it.
    fn stream<R: Viewed>(
        &self,
        request: R,
        report: impl Fn(Incoming<R::Message>) -> What + Send + 'static,
    ) -> Opened {
        let (connection, reports, lease) = (self.connection.clone(), self.reports.clone(), self.lease);
        let task = async move {
            let opened = View::of_screen(&connection, lease, request).await;
            forward(opened, Whose::OfPane, &reports, report).await;
        };
        Opened(tokio::spawn(task).abort_handle())
    }
}
