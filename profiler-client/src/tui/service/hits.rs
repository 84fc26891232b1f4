//! Hits with values. They need a session of their own: what a session records of hits is said when it is made.

use std::future::pending;

use profiler_proto::v1;
use profiler_scope::{Place, parse};
use tokio::sync::mpsc;
use tonic::{Status, Streaming};

use super::{
    Incoming, Reports, What,
    lookup::{self, source},
};
use crate::{
    attached::{self, Owned},
    cli::exit::Failure,
    connect::Connection,
    tui::{
        data::source::{expressions, lines},
        lens::path,
    },
};

/// Hits recorded in a second at each place: more than anyone reads, less than a target notices.
const HITS_PER_SECOND: u32 = 200;

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
    pub reports: Reports,
    pub wanted: mpsc::Receiver<Wanted>,
}

/// The session that records hits.
struct Recording {
    name: String,
    print: Vec<String>,
    stream: Streaming<v1::WatchTraceResponse>,
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
                message = next(&mut recording) => {
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
        self.reports.send(What::HitsBegin).await;
        let print = if print.is_empty() {
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
        let mut views = self.connection.views();
        let name = match recording {
            Some(recording) if recording.print == print => {
                let name = recording.name;
                let request = v1::SetScopeRequest {
                    name: name.clone(),
                    scope,
                };
                let set = sessions.set_scope(request).await;
                self.or_end(&name, set).await?;
                name
            }
            other => {
                self.end(other).await;
                let create = v1::CreateSessionRequest {
                    scope,
                    capture: Some(v1::Capture {
                        print: print.clone(),
                        hits_per_second: HITS_PER_SECOND,
                        stack: false,
                    }),
                    ..self.template.clone()
                };
                let session = attached::create(&mut sessions, &create).await?;
                self.owned.add(sessions, session.name.clone());
                session.name
            }
        };
        let request = v1::WatchTraceRequest {
            session: name.clone(),
            interval: Some(prost_types::Duration {
                seconds: 0,
                nanos: 250_000_000,
            }),
        };
        let watched = views.watch_trace(request).await;
        let stream = self.or_end(&name, watched).await?.into_inner();
        Ok(Recording { name, print, stream })
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
        if let Some(Recording { name, stream, .. }) = recording {
            drop(stream);
            self.owned.end_one(&name).await;
        }
    }

    /// The variables that can be read at the last step of a scope.
    async fn known(&self, scope: &str) -> Vec<String> {
        let Some(target) = self.template.target.clone() else {
            return Vec::new();
        };
        let steps = parse(scope).map(|scope| scope.steps).unwrap_or_default();
        let (place, at_line) = match steps.last().map(|step| &step.place) {
            Some(Place::Function(name)) => (path::quoted(name.text()), None),
            Some(
                Place::Line { file, line }
                | Place::Branch { file, line, .. }
                | Place::Call { file, line, .. },
            ) => {
                let place = Place::Line {
                    file: file.clone(),
                    line: *line,
                };
                (place.to_string(), Some(*line))
            }
            _ => return Vec::new(),
        };
        let found = match steps.iter().rev().nth(1).map(|step| &step.place) {
            // A line may be inlined in many functions: the one that it is looked at in has its own variables.
            Some(Place::Function(name)) if at_line.is_some() => {
                let outer = source(&self.connection, target.clone(), &path::quoted(name.text())).await;
                let has_line =
                    |source: &v1::SourceFunction| lines(source).any(|line| Some(line.line) == at_line);
                outer.ok().filter(has_line)
            }
            _ => None,
        };
        let found = match found {
            Some(found) => Some(found),
            None => lookup::source(&self.connection, target, &place).await.ok(),
        };
        found.map_or_else(Vec::new, |source| {
            let line = at_line.and_then(|number| lines(&source).find(|line| line.line == number));
            expressions(&source, line)
        })
    }
}

async fn next(recording: &mut Option<Recording>) -> Result<Option<v1::WatchTraceResponse>, Status> {
    match recording {
        Some(recording) => recording.stream.message().await,
        None => pending().await,
    }
}
