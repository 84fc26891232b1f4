//! The only part that talks to the service. Effects go in, reports come out; each session is a task, and so are its hits.

mod aside;
mod costs;
mod counts;
mod hits;
mod imported;
mod lookup;
#[cfg(not(feature = "in-process"))]
mod no_recording;
#[cfg(feature = "in-process")]
mod recording;
mod session;
pub mod source_text;

pub use self::lookup::ranked;
#[cfg(not(feature = "in-process"))]
use self::no_recording::Recording;
#[cfg(feature = "in-process")]
use self::recording::Recording;

use std::time::Duration;

use profiler_proto::v1;
use tokio::{
    sync::mpsc,
    task::{AbortHandle, JoinHandle},
};

use super::{
    data::{AsideOf, ProcessRow},
    lens::{CostOfEdit, Effect, FlameView, Suggestion, Target, Wanted},
    processes::Usage,
};
use crate::{
    attached::{Attached, Owned},
    cli::{request::SessionChoice, validate::recorded_time},
    connect::Connection,
    failure::Failure,
    verb::{imported::Picture, processes},
    view::Change,
};

/// Time between looks at the processes.
const BETWEEN_LOOKS: Duration = Duration::from_secs(2);

/// Functions are asked for once nothing has been typed for so long.
const BETWEEN_KEYS: Duration = Duration::from_millis(120);

/// Reports that wait to be taken. They are taken whatever is drawn.
const REPORTS: usize = 256;

/// Edits that wait for the ones before.
const EDITS: usize = 64;

/// What comes of a stream.
#[derive(Debug)]
pub enum Incoming<M> {
    /// A message.
    Message(M),
    /// It broke, or could not be opened.
    Broken(Failure),
}

/// What has come.
#[derive(Debug)]
pub enum What {
    /// Sessions of the daemon.
    Sessions(Vec<v1::Session>),
    /// Processes, the busiest first.
    Processes(Vec<ProcessRow>),
    /// The session, and the target's name.
    Attached(Box<Attached>, String),
    /// There is none.
    NotAttached(Failure),
    /// The scope was edited.
    Edited(Box<v1::Session>),
    /// It was not, and is still this.
    Refused(Failure, String),
    /// It was not, as it would be costly.
    Costly(Costly),
    /// Of the flame view.
    Flame(Incoming<Box<v1::WatchFlameResponse>>),
    /// The daemon is gone, with what was watched.
    Gone(String),
    /// What became of the connection.
    Connection(Change),
    /// Of the latency view.
    Latency(Incoming<v1::WatchLatencyResponse>),
    /// The scope has no durations to show.
    NoLatency,
    /// Of the hits.
    Hits(Incoming<Box<v1::WatchTraceResponse>>),
    /// Hits of a scope are asked for anew.
    HitsBegin(String),
    /// Their probes are there.
    HitsReady,
    /// Another pane with a stream of its own is shown.
    AsideBegin(AsideOf),
    /// Of who waits for whom.
    Waits(Incoming<v1::WatchWaitsResponse>),
    /// Of system calls.
    Syscalls(Incoming<v1::WatchSyscallsResponse>),
    /// Of counters over time.
    Timeline(Incoming<v1::WatchTimelineResponse>),
    /// Of the slowest calls.
    Spans(Incoming<v1::WatchSpansResponse>),
    /// Of what slow calls do.
    Explained(Incoming<Box<v1::WatchExplainResponse>>),
    /// The source that was asked for, of this place.
    Source(String, Result<Box<v1::SourceFunction>, Failure>),
    /// Suggestions for what was typed.
    Completions(Vec<Suggestion>),
    /// How often steps were reached, by their text.
    Counts(Vec<(String, u64)>),
    /// What is recorded so far, and where.
    #[cfg_attr(
        not(feature = "in-process"),
        expect(dead_code, reason = "none is made without the service")
    )]
    Recording(String),
    /// What was recorded, or why it was not.
    Recorded(String),
}

/// A scope that is set once the user has been asked.
#[derive(Clone, Debug)]
pub struct Costly {
    /// The scope.
    pub wanted: String,
    /// What is costly about it.
    pub cost: CostOfEdit,
    /// The scope as it still is.
    pub scope: String,
}

/// A report, and the attachment that it belongs to: later ones have nothing to do with it.
#[derive(Debug)]
pub struct Report {
    /// `None` of what concerns every attachment.
    attachment: Option<u64>,
    what: What,
}

/// Where reports are sent.
#[derive(Clone, Debug)]
pub struct Reports {
    attachment: u64,
    sender: mpsc::Sender<Report>,
}

impl Reports {
    /// Sends one; whether anybody still wants them.
    async fn send(&self, what: What) -> bool {
        let attachment = Some(self.attachment);
        self.sender.send(Report { attachment, what }).await.is_ok()
    }

    /// Sends what becomes of a connection, from where nobody can wait for that.
    fn tell_connection(&self) -> impl Fn(Change) + use<> {
        let reports = self.clone();
        move |change| {
            let reports = reports.clone();
            tokio::spawn(async move { reports.send(What::Connection(change)).await });
        }
    }

    /// Sends one that concerns whatever is attached by then.
    async fn send_to_all(&self, what: What) {
        let report = Report {
            attachment: None,
            what,
        };
        // Without anybody who wants it, the end has come.
        let _ = self.sender.send(report).await;
    }
}

/// What an effect does to the scope.
#[derive(Debug)]
enum Edit {
    Set(String),
    /// The same, whatever it costs.
    SetCostly(String),
    /// So many edits are taken back.
    Undo(u32),
}

/// What sessions are made with.
#[derive(Clone, Debug)]
pub struct Making {
    /// All but the target and the scope.
    pub template: v1::CreateSessionRequest,
}

/// Several processes, as they are asked for.
fn processes(pids: &[u32]) -> v1::target::Target {
    v1::target::Target::Processes(v1::Processes { pids: pids.to_vec() })
}

impl Making {
    fn of(&self, target: &Target, scope: String) -> SessionChoice {
        let target = match target {
            Target::Session(name) => return SessionChoice::Join(name.clone()),
            Target::Pid(pid) => v1::target::Target::Pid(*pid),
            Target::Pids(pids) => processes(pids),
            Target::Exe(exe) => v1::target::Target::Executable(exe.clone()),
            Target::Recording(recorded) => v1::target::Target::Recording(v1::RecordedTime {
                without_scope: recorded.without_scope && scope.trim().is_empty(),
                ..recorded_time(Some(recorded.time))
            }),
            Target::Profile(_) => v1::target::Target::Recording(v1::RecordedTime::default()),
        };
        SessionChoice::Make(Box::new(v1::CreateSessionRequest {
            target: Some(v1::Target { target: Some(target) }),
            scope,
            ..self.template.clone()
        }))
    }
}

/// The service.
#[derive(Debug)]
pub struct Service {
    connection: Connection,
    owned: Owned,
    making: Making,
    /// What another tool wrote, in the place of a recording.
    imported: Option<Picture>,
    reports: Reports,
    /// What runs for the attachment.
    tasks: Vec<AbortHandle>,
    edits: Option<mpsc::Sender<Edit>>,
    hits: Option<mpsc::Sender<hits::Wanted>>,
    aside: Option<mpsc::Sender<aside::Wanted>>,
    flame: Option<tokio::sync::watch::Sender<FlameView>>,
    looking_up: Option<JoinHandle<()>>,
    /// The place that it asks for.
    looked_up: String,
    completing: Option<JoinHandle<()>>,
    of: Option<Target>,
    recording: Option<Recording>,
    /// Recordings that were told to end.
    ending: Vec<JoinHandle<String>>,
    /// The session that is attached; `None` before there is one.
    pub session: Option<Session>,
}

/// What later requests ask of a session.
#[derive(Clone, Debug)]
#[cfg_attr(
    not(feature = "in-process"),
    expect(dead_code, reason = "recordings are named after it")
)]
pub struct Session {
    /// Its name.
    pub name: String,
    /// What it is a session of, in words.
    pub target: String,
    /// Its first process.
    pub first_pid: Option<u32>,
}

impl Service {
    /// Nothing asked for yet.
    #[must_use]
    pub fn new(
        connection: Connection,
        owned: Owned,
        making: Making,
        imported: Option<Picture>,
    ) -> (Self, Inbox) {
        let (sender, receiver) = mpsc::channel(REPORTS);
        let service = Self {
            connection,
            owned,
            making,
            imported,
            reports: Reports {
                attachment: 0,
                sender,
            },
            tasks: Vec::new(),
            edits: None,
            hits: None,
            aside: None,
            flame: None,
            looking_up: None,
            looked_up: String::new(),
            completing: None,
            of: None,
            recording: None,
            ending: Vec::new(),
            session: None,
        };
        (service, Inbox(receiver))
    }

    /// Looks at sessions and processes until something is attached.
    pub fn list_choices(&mut self) {
        let (connection, reports) = (self.connection.clone(), self.reports.clone());
        self.run(async move {
            let mut usage = Usage::default();
            let mut sessions = connection.sessions();
            loop {
                if let Ok(found) = sessions.list_sessions(v1::ListSessionsRequest {}).await
                    && !reports.send(What::Sessions(found.into_inner().sessions)).await
                {
                    return;
                }
                if let Ok(found) = processes::fetch(&connection, String::new()).await
                    && !reports.send(What::Processes(usage.rows(found))).await
                {
                    return;
                }
                tokio::time::sleep(BETWEEN_LOOKS).await;
            }
        });
    }

    /// Attaches.
    pub fn attach(&mut self, target: Target, scope: String) {
        self.leave();
        let (edits, wanted_edits) = mpsc::channel(EDITS);
        let (hits, wanted_hits) = mpsc::channel(EDITS);
        let (aside, wanted_aside) = mpsc::channel(EDITS);
        self.aside = Some(aside);
        if let Some(picture) = self.imported.clone() {
            self.edits = Some(edits);
            self.of = Some(target);
            let task = imported::Task {
                picture,
                scope,
                reports: self.reports.clone(),
                edits: wanted_edits,
            };
            return self.run(task.run());
        }
        let (flame, wanted_flame) = tokio::sync::watch::channel(FlameView::default());
        (self.edits, self.hits, self.flame) = (Some(edits), Some(hits), Some(flame));
        let session = session::Task {
            connection: self.connection.clone(),
            owned: self.owned.clone(),
            choice: self.making.of(&target, scope),
            reports: self.reports.clone(),
            edits: wanted_edits,
            flame: wanted_flame,
            making: self.making.clone(),
            target: target.clone(),
            hits: wanted_hits,
            aside: wanted_aside,
        };
        self.of = Some(target);
        self.run(session.run());
    }

    /// Leaves what was attached. Reports of it that are on their way are nothing any more.
    pub fn leave(&mut self) {
        let tasks = self.tasks.drain(..);
        let lookups = [self.looking_up.take(), self.completing.take()]
            .into_iter()
            .flatten();
        tasks.for_each(|task| task.abort());
        lookups.for_each(|task| task.abort());
        (self.edits, self.hits, self.flame, self.of) = (None, None, None, None);
        (self.aside, self.session) = (None, None);
        if let Some(recording) = self.recording.take() {
            self.finish(recording);
        }
        self.reports.attachment += 1;
        let left = self.owned.take();
        tokio::spawn(async move { left.end().await });
    }

    /// Does what concerns the service; the rest is the terminal's, and comes back.
    pub fn perform(&mut self, effect: Effect) -> Option<Effect> {
        match effect {
            Effect::Attach { target, scope } => self.attach(target, scope),
            Effect::Detach => {
                self.leave();
                self.list_choices();
            }
            Effect::SetScope(scope) => self.edit(Edit::Set(scope)),
            Effect::SetCostlyScope(scope) => self.edit(Edit::SetCostly(scope)),
            Effect::Undo(edits) => self.edit(Edit::Undo(edits)),
            Effect::Flame(wanted) => {
                if let Some(flame) = &self.flame {
                    flame.send_replace(wanted);
                }
            }
            Effect::Source(place) => self.source(place),
            Effect::Complete(wanted) => self.complete(wanted),
            Effect::Hits { scope, print } => self.watch_hits(hits::Wanted::Hits { scope, print }),
            Effect::NoHits => self.watch_hits(hits::Wanted::Nothing),
            Effect::Aside {
                pane,
                scope,
                is_of_session,
            } => self.look_aside(aside::Wanted {
                pane,
                scope,
                is_of_session,
            }),
            Effect::NoAside => self.look_aside(aside::Wanted::default()),
            Effect::Record(lens) => self.record(*lens),
            Effect::NoBudget => self.making.template.budget = Some(0.0),
            Effect::Copy(_) | Effect::Mouse(_) | Effect::Suspend | Effect::Quit => return Some(effect),
        }
        None
    }

    fn edit(&self, edit: Edit) {
        if let Some(edits) = &self.edits {
            // It is as long as anyone types ahead.
            let _ = edits.try_send(edit);
        }
    }

    fn watch_hits(&self, wanted: hits::Wanted) {
        if let Some(hits) = &self.hits {
            let _ = hits.try_send(wanted);
        }
    }

    fn look_aside(&self, wanted: aside::Wanted) {
        if let Some(aside) = &self.aside {
            let _ = aside.try_send(wanted);
        }
    }

    /// Begins a recording of what is seen through a lens, or ends it.
    fn record(&mut self, lens: v1::Lens) {
        let running = self.recording.take().filter(Recording::is_running);
        match (running, &self.session) {
            (Some(recording), _) => self.finish(recording),
            (None, Some(session)) => {
                let begun = Recording::begin(self.connection.clone(), session, lens, self.reports.clone());
                self.recording = Some(begun);
            }
            (None, None) => {}
        }
    }

    /// Has a recording end; it says itself what came of it.
    fn finish(&mut self, recording: Recording) {
        self.ending.retain(|task| !task.is_finished());
        self.ending.push(tokio::spawn(recording.end()));
    }

    /// Ends the recording, if there is one, and waits for those that are ending: what came of them, which nobody was told.
    pub async fn end_recordings(&mut self) -> Vec<String> {
        if let Some(recording) = self.recording.take().filter(Recording::is_running) {
            self.finish(recording);
        }
        let mut ended = Vec::new();
        for task in self.ending.drain(..).filter(|task| !task.is_finished()) {
            ended.extend(task.await);
        }
        ended
    }

    fn source(&mut self, place: String) {
        let Some(target) = self.target() else { return };
        // One that takes long is not begun again and again.
        let is_under_way = self.looking_up.as_ref().is_some_and(|task| !task.is_finished());
        if is_under_way && self.looked_up == place {
            return;
        }
        self.looked_up.clone_from(&place);
        let (connection, reports) = (self.connection.clone(), self.reports.clone());
        let task = tokio::spawn(async move {
            let found = lookup::source(&connection, target, &place).await;
            reports.send(What::Source(place, found.map(Box::new))).await;
        });
        if let Some(before) = self.looking_up.replace(task) {
            before.abort();
        }
    }

    fn complete(&mut self, wanted: Wanted) {
        let Some(target) = self.target() else { return };
        let (connection, reports) = (self.connection.clone(), self.reports.clone());
        let task = tokio::spawn(async move {
            // Whoever types on wants others: this one ends here then.
            tokio::time::sleep(BETWEEN_KEYS).await;
            let found = lookup::suggestions(&connection, target, wanted).await;
            reports.send(What::Completions(found)).await;
        });
        if let Some(before) = self.completing.replace(task) {
            before.abort();
        }
    }

    /// What functions and sources are asked of.
    fn target(&self) -> Option<v1::Target> {
        let target = match self.of.as_ref()? {
            Target::Pid(pid) => v1::target::Target::Pid(*pid),
            Target::Pids(pids) => processes(pids),
            Target::Exe(exe) => v1::target::Target::Executable(exe.clone()),
            // It has none.
            Target::Recording(_) | Target::Profile(_) => return None,
            // Of a shared session, its first process stands for the others.
            Target::Session(_) => v1::target::Target::Pid(self.session.as_ref()?.first_pid?),
        };
        Some(v1::Target { target: Some(target) })
    }

    /// Whether a report is of what is attached.
    fn is_concerned(&self, report: &Report) -> bool {
        report.attachment.is_none_or(|of| of == self.reports.attachment)
    }

    fn run(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.push(tokio::spawn(task).abort_handle());
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.tasks.drain(..).for_each(|task| task.abort());
    }
}

/// Where reports arrive.
#[derive(Debug)]
pub struct Inbox(mpsc::Receiver<Report>);

impl Inbox {
    /// The next report of the attachment.
    pub async fn next(&mut self, service: &Service) -> Option<What> {
        loop {
            let report = self.0.recv().await?;
            if service.is_concerned(&report) {
                return Some(report.what);
            }
        }
    }

    /// The next report, if it is there already.
    pub fn ready(&mut self, service: &Service) -> Option<What> {
        loop {
            let report = self.0.try_recv().ok()?;
            if service.is_concerned(&report) {
                return Some(report.what);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cli::args::RecordedTime, tui::lens::Recorded};

    #[test]
    fn a_recording_is_looked_at_without_its_scope_where_that_is_asked_for() {
        let making = Making {
            template: v1::CreateSessionRequest::default(),
        };
        let is_without = |without_scope, scope: &str| {
            let recorded = Recorded {
                path: "a.profrec".to_owned(),
                time: RecordedTime::default(),
                without_scope,
            };
            match making.of(&Target::Recording(recorded), scope.to_owned()) {
                SessionChoice::Make(create) => match create.target.and_then(|target| target.target) {
                    Some(v1::target::Target::Recording(time)) => time.without_scope,
                    other => panic!("{other:?}"),
                },
                SessionChoice::Join(name) => panic!("{name}"),
            }
        };
        assert!(is_without(true, "") && is_without(true, " "));
        assert!(!is_without(true, "f") && !is_without(false, ""));
    }
}
