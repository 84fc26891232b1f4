//! Hits with values. They need a session of their own: what a session records of hits is said when it is made.

use std::{future::pending, time::Duration};

use profiler_proto::v1;
use tokio::sync::mpsc;
use tonic::Status;

use super::{Incoming, Reports, What, lookup};
use crate::{
    attached::{self, Owned},
    connect::Connection,
    failure::Failure,
    view::View,
};

/// Hits recorded in a second at each place: more than anyone reads, less than a target notices.
const HITS_PER_SECOND: u32 = 200;

/// Values that are shown of a place, unless others are asked for.
const SHOWN: usize = 8;

/// What is wanted.
#[derive(Debug)]
pub enum Wanted {
    /// Hits of a scope's last step, with values.
    Hits {
        /// The scope.
        scope: String,
        /// Expressions; none for what is known there.
        print: Vec<String>,
    },
    /// None.
    Nothing,
}

/// All that the task has.
pub struct Task {
    pub connection: Connection,
    pub owned: Owned,
    pub template: v1::CreateSessionRequest,
    /// Its hits are recorded already, with their values.
    pub is_of_recording: bool,
    pub reports: Reports,
    pub wanted: mpsc::Receiver<Wanted>,
}

/// The session that records hits.
struct Recording {
    name: String,
    /// How long it outlives its last stream.
    lease: Duration,
    print: Vec<String>,
    view: View<v1::WatchTraceRequest>,
}

impl Task {
    /// Runs until nobody wants it any more.
    pub async fn run(mut self) {
        let mut recording: Option<Recording> = None;
        loop {
            tokio::select! {
                wanted = self.wanted.recv() => {
                    let Some(wanted) = wanted else { return };
                    let wanted = self.newest(wanted);
                    recording = self.turn_to(wanted, recording).await;
                }
                message = next(&mut recording, &self.reports) => {
                    let incoming = match message {
                        Ok(Some(message)) => Incoming::Message(Box::new(message)),
                        Ok(None) => {
                            self.end(recording.take()).await;
                            continue;
                        }
                        Err(status) => {
                            self.end(recording.take()).await;
                            Incoming::Broken(status.into())
                        }
                    };
                    self.reports.send(What::Hits(incoming)).await;
                }
            }
        }
    }

    /// What is wanted last of what waits.
    fn newest(&mut self, mut wanted: Wanted) -> Wanted {
        while let Ok(newer) = self.wanted.try_recv() {
            wanted = newer;
        }
        wanted
    }

    async fn turn_to(&self, wanted: Wanted, recording: Option<Recording>) -> Option<Recording> {
        let Wanted::Hits { scope, print } = wanted else {
            self.end(recording).await;
            return None;
        };
        self.reports.send(What::HitsBegin(scope.clone())).await;
        let print = if self.is_of_recording {
            Vec::new()
        } else if print.is_empty() {
            self.known(&scope).await
        } else {
            print
        };
        match self.record(scope, print, recording).await {
            Ok(recording) => {
                self.reports.send(What::HitsReady).await;
                Some(recording)
            }
            Err(failure) => {
                self.reports.send(What::Hits(Incoming::Broken(failure))).await;
                None
            }
        }
    }

    async fn record(
        &self,
        scope: String,
        print: Vec<String>,
        recording: Option<Recording>,
    ) -> Result<Recording, Failure> {
        let mut sessions = self.connection.sessions();
        let (name, lease) = match recording {
            Some(recording) if recording.print == print && !self.is_of_recording => {
                let Recording { name, lease, .. } = recording;
                let request = v1::SetScopeRequest {
                    name: name.clone(),
                    scope,
                };
                let set = sessions.set_scope(request).await;
                self.or_end(&name, set).await?;
                (name, lease)
            }
            other => {
                self.end(other).await;
                let create = v1::CreateSessionRequest {
                    scope,
                    capture: (!self.is_of_recording).then(|| v1::Capture {
                        print: print.clone(),
                        hits_per_second: HITS_PER_SECOND,
                        stack: false,
                    }),
                    ..self.template.clone()
                };
                let session = attached::create(&mut sessions, &create).await?;
                self.owned.add(sessions, session.name.clone());
                let lease = attached::lease(&session);
                (session.name, lease)
            }
        };
        let request = v1::WatchTraceRequest {
            session: name.clone(),
            interval: Some(prost_types::Duration {
                seconds: 0,
                nanos: 250_000_000,
            }),
        };
        let opened = View::of_screen(&self.connection, lease, request).await;
        let view = self.or_end(&name, opened).await?;
        Ok(Recording {
            name,
            lease,
            print,
            view,
        })
    }

    /// An answer; where it is a refusal, nothing is recorded any more.
    async fn or_end<T>(&self, session: &str, answer: Result<T, Status>) -> Result<T, Failure> {
        match answer {
            Ok(answer) => Ok(answer),
            Err(status) => {
                self.owned.end_one(session).await;
                Err(status.into())
            }
        }
    }

    async fn end(&self, recording: Option<Recording>) {
        if let Some(Recording { name, view, .. }) = recording {
            drop(view);
            self.owned.end_one(&name).await;
        }
    }

    /// The variables that can be read at the last step of a scope.
    async fn known(&self, scope: &str) -> Vec<String> {
        match self.template.target.clone() {
            Some(target) => lookup::known(&self.connection, target, scope, SHOWN).await,
            None => Vec::new(),
        }
    }
}

/// The next hits. Where the connection is lost, the stream is opened again as long as its session is there.
async fn next(
    recording: &mut Option<Recording>,
    reports: &Reports,
) -> Result<Option<v1::WatchTraceResponse>, Status> {
    match recording {
        Some(recording) => recording.view.message(reports.tell_connection()).await,
        None => pending().await,
    }
}
