//! The session of an attachment: its views stay open, edits of its scope come one after the other.

use std::time::Duration;

use profiler_proto::v1::{self, session_service_client::SessionServiceClient};
use profiler_scope::parse;
use tokio::{
    sync::{mpsc, watch},
    task::AbortHandle,
};
use tonic::{Code, Status, transport::Channel};

use super::{Costly, Edit, Incoming, Making, Reports, What, aside, costs::Costs, counts, hits, processes};
use crate::{
    attached::{self, Attached, Owned},
    cli::{request::SessionChoice, validate::recorded_time},
    connect::Connection,
    failure::Failure,
    tui::lens::{FlameView, Target},
    verb::target,
    view::{View, Viewed},
};

/// All that the session's task has.
pub struct Task {
    pub connection: Connection,
    pub owned: Owned,
    pub choice: SessionChoice,
    pub reports: Reports,
    pub edits: mpsc::Receiver<Edit>,
    pub flame: watch::Receiver<FlameView>,
    pub making: Making,
    pub target: Target,
    pub hits: mpsc::Receiver<hits::Wanted>,
    pub aside: mpsc::Receiver<aside::Wanted>,
}

impl Task {
    /// Runs until nobody wants it any more.
    pub async fn run(self) {
        let attached = match Attached::open(&self.connection, &self.choice, &self.owned).await {
            Ok(attached) => attached,
            Err(failure) => {
                self.reports.send(What::NotAttached(failure)).await;
                return;
            }
        };
        let name = target::label(&self.connection, &attached.session).await;
        let session = attached.session.clone();
        self.reports.send(What::Attached(Box::new(attached), name)).await;

        let views = Views {
            connection: self.connection.clone(),
            session: session.name.clone(),
            lease: attached::lease(&session),
            reports: self.reports.clone(),
            recorded_scope: matches!(self.target, Target::Recording(_)).then(|| session.scope.clone()),
            flame: None,
            parked: Vec::new(),
            latency: None,
        };
        // Of a session that somebody else made it is not known: most have one.
        let is_joined = matches!(self.choice, SessionChoice::Join(_));
        let has_budget = is_joined || self.making.template.budget != Some(0.0);
        let (scope, scopes) = watch::channel(session.scope.clone());
        let edits = Edits {
            client: self.connection.sessions(),
            reports: self.reports.clone(),
            wanted: self.edits,
            name: session.name.clone(),
            scope,
            // What was recorded costs nothing any more.
            costs: (session.recorded.is_none()).then(|| Costs {
                client: self.connection.sessions(),
                session: session.name.clone(),
                are_perf: session.attach_method() == v1::AttachMethod::Perf,
                has_budget,
            }),
        };
        let edits = edits.run(self.flame, views);
        let target = match (&self.target, session.pids.first()) {
            // It has nothing else.
            (Target::Profile(_), _) => return edits.await,
            (Target::Recording(recorded), _) => {
                v1::target::Target::Recording(recorded_time(Some(recorded.time)))
            }
            (Target::Pids(pids), _) => processes(pids),
            (Target::Exe(exe), _) => v1::target::Target::Executable(exe.clone()),
            (Target::Pid(pid), _) => v1::target::Target::Pid(*pid),
            (Target::Session(_), pid) => v1::target::Target::Pid(pid.copied().unwrap_or(0)),
        };
        let target = v1::Target { target: Some(target) };
        let template = v1::CreateSessionRequest {
            target: Some(target.clone()),
            ..self.making.template.clone()
        };
        let is_of_recording = matches!(self.target, Target::Recording(_));
        let aside = aside::Task {
            connection: self.connection.clone(),
            owned: self.owned.clone(),
            session: session.name.clone(),
            lease: attached::lease(&session),
            template: template.clone(),
            is_of_recording,
            reports: self.reports.clone(),
            wanted: self.aside,
        };
        let hits = hits::Task {
            connection: self.connection.clone(),
            owned: self.owned.clone(),
            template,
            is_of_recording,
            reports: self.reports.clone(),
            wanted: self.hits,
        };
        if is_of_recording {
            // Counts of now are a process's.
            tokio::join!(edits, hits.run(), aside.run());
            return;
        }
        let counts = counts::count(
            self.connection.clone(),
            target,
            session.name.clone(),
            scopes,
            self.reports.clone(),
        );
        // They end together, when the attachment is left.
        tokio::join!(edits, hits.run(), aside.run(), counts);
    }
}

/// The edits of its scope.
struct Edits {
    client: SessionServiceClient<Channel>,
    reports: Reports,
    wanted: mpsc::Receiver<Edit>,
    name: String,
    /// The scope as it is.
    scope: watch::Sender<String>,
    /// Of a session that has probes.
    costs: Option<Costs>,
}

impl Edits {
    async fn run(mut self, mut flame: watch::Receiver<FlameView>, mut views: Views) {
        loop {
            let scope = self.scope.borrow().clone();
            let wanted = flame.borrow_and_update().clone();
            views.follow(&scope, &wanted);
            tokio::select! {
                edit = self.wanted.recv() => match edit {
                    Some(edit) => self.edit(edit).await,
                    None => return,
                },
                changed = flame.changed() => if changed.is_err() {
                    return;
                },
            }
        }
    }

    async fn edit(&mut self, edit: Edit) {
        if let Some(costly) = self.costly(&edit).await {
            self.forget_typed_ahead();
            self.reports.send(What::Costly(costly)).await;
            return;
        }
        match self.ask(edit).await {
            Ok(session) => {
                self.scope.send_replace(session.scope.clone());
                self.reports.send(What::Edited(Box::new(session))).await;
            }
            Err(failure) => {
                self.forget_typed_ahead();
                let scope = self.scope.borrow().clone();
                self.reports.send(What::Refused(failure, scope)).await;
            }
        }
    }

    /// What was typed ahead was meant for another scope.
    fn forget_typed_ahead(&mut self) {
        while self.wanted.try_recv().is_ok() {}
    }

    /// What the user is asked before an edit is done; `None` where it can be done.
    async fn costly(&mut self, edit: &Edit) -> Option<Costly> {
        let Edit::Set(wanted) = edit else { return None };
        let scope = self.scope.borrow().clone();
        let cost = self.costs.as_mut()?.of(&scope, wanted).await?;
        Some(Costly {
            wanted: wanted.clone(),
            cost,
            scope,
        })
    }

    async fn ask(&mut self, edit: Edit) -> Result<v1::Session, Failure> {
        let name = self.name.clone();
        let session = match edit {
            Edit::Set(scope) | Edit::SetCostly(scope) => {
                let request = v1::SetScopeRequest { name, scope };
                self.client.set_scope(request).await?.into_inner().session
            }
            Edit::Undo(edits) => {
                let edit = Some(v1::edit_scope_request::Edit::Undo(edits));
                let request = v1::EditScopeRequest { name, edit };
                self.client.edit_scope(request).await?.into_inner().session
            }
        };
        session.ok_or_else(|| {
            Failure::failed("The daemon changed the session's scope, but did not send the new one.")
        })
    }
}

/// The streams of a session, each a task that ends with the session's.
struct Views {
    connection: Connection,
    session: String,
    /// How long it outlives its last stream.
    lease: Duration,
    reports: Reports,
    /// The scope that a recording is looked at with: its views have one message, of that.
    recorded_scope: Option<String>,
    flame: Option<Flame>,
    /// Flame views that were looked at before, the last one at the end. While their streams are open, the daemon keeps their samples.
    parked: Vec<Flame>,
    latency: Option<Opened>,
}

/// Flame views that are kept for who comes back to them.
const MAX_PARKED: usize = 3;

/// A task that is ended when dropped.
pub(super) struct Opened(pub(super) AbortHandle);

impl Opened {
    /// Whether more may come: it was neither refused nor broken off.
    fn is_open(&self) -> bool {
        !self.0.is_finished()
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The flame view, which is another for another kind of scope.
struct Flame {
    view: FlameView,
    in_calls: bool,
    opened: Opened,
    /// Whether its messages are left where they are.
    is_parked: watch::Sender<bool>,
}

/// What is done with the streams of other views, once that of the wanted one is open.
#[derive(Default)]
struct Left {
    to_park: Option<watch::Sender<bool>>,
    to_close: Vec<Flame>,
}

impl Left {
    fn settle(self) {
        if let Some(is_parked) = self.to_park {
            is_parked.send_replace(true);
        }
        drop(self.to_close);
    }
}

impl Views {
    /// Opens what a scope can be seen by, and closes what it cannot.
    fn follow(&mut self, scope: &str, wanted: &FlameView) {
        if let Some(recorded_scope) = &mut self.recorded_scope
            && recorded_scope != scope
        {
            scope.clone_into(recorded_scope);
            (self.flame, self.latency) = (None, None);
        }
        let steps = parse(scope).map(|scope| scope.steps).unwrap_or_default();
        let has_calls = steps.last().is_some_and(|last| last.place.has_spans());
        if !has_calls {
            if self.latency.take().is_some() {
                let reports = self.reports.clone();
                tokio::spawn(async move { reports.send(What::NoLatency).await });
            }
        } else if !(self.latency.as_ref()).is_some_and(|opened| self.is_recorded() || opened.is_open()) {
            self.latency = Some(self.open_latency());
        }
        let in_calls = !steps.is_empty();
        let is_recorded = self.is_recorded();
        let is_open = |flame: &Flame| {
            let is_current = flame.view == *wanted && flame.in_calls == in_calls;
            is_current && (is_recorded || flame.opened.is_open())
        };
        if !self.flame.as_ref().is_some_and(is_open) {
            // Of a recording there is one answer to each question, and nobody waits for the one before.
            let before = self.flame.take().filter(|_| !is_recorded);
            let left = self.leave(before, wanted, in_calls);
            self.flame = Some(self.open_flame(wanted, in_calls, left));
        }
    }

    /// Parks the view that is left for another, and finds what has to be closed. The stream before stays open until the new one is:
    /// without any, the daemon forgets what was sampled.
    fn leave(&mut self, before: Option<Flame>, wanted: &FlameView, in_calls: bool) -> Left {
        self.parked
            .retain(|flame| flame.in_calls == in_calls && flame.opened.is_open());
        let mut left = Left::default();
        let same = self.parked.iter().position(|flame| flame.view == *wanted);
        left.to_close.extend(same.map(|at| self.parked.remove(at)));
        match before {
            Some(before)
                if before.in_calls == in_calls && before.view != *wanted && before.opened.is_open() =>
            {
                if self.parked.len() == MAX_PARKED {
                    left.to_close.push(self.parked.remove(0));
                }
                left.to_park = Some(before.is_parked.clone());
                self.parked.push(before);
            }
            before => left.to_close.extend(before),
        }
        left
    }

    /// Whether each view has one message, its last.
    fn is_recorded(&self) -> bool {
        self.recorded_scope.is_some()
    }

    fn open_latency(&self) -> Opened {
        let (connection, reports, lease) = (self.connection.clone(), self.reports.clone(), self.lease);
        let request = v1::WatchLatencyRequest {
            session: self.session.clone(),
            interval: None,
        };
        Opened(
            tokio::spawn(async move {
                let opened = View::of_screen(&connection, lease, request).await;
                forward(opened, Whose::OnScreen, &reports, What::Latency).await;
            })
            .abort_handle(),
        )
    }

    fn open_flame(&self, wanted: &FlameView, in_calls: bool, left: Left) -> Flame {
        let (is_parked, mut parked) = watch::channel(false);
        let (connection, reports, lease) = (self.connection.clone(), self.reports.clone(), self.lease);
        let request = v1::WatchFlameRequest {
            session: self.session.clone(),
            difference: wanted.difference,
            by: wanted.by.grouping().into(),
            event: wanted.event.clone(),
            ..Default::default()
        };
        let task = async move {
            let opened = View::of_screen(&connection, lease, request).await;
            left.settle();
            let report = |message| {
                What::Flame(match message {
                    Incoming::Message(message) => Incoming::Message(Box::new(message)),
                    Incoming::Broken(failure) => Incoming::Broken(failure),
                })
            };
            let mut stream = match opened {
                Ok(opened) => opened,
                Err(status) => {
                    reports.send(report(Incoming::Broken(status.into()))).await;
                    return;
                }
            };
            let is_parked = async { parked.wait_for(|is_parked| *is_parked).await.is_ok() };
            let is_parked = tokio::select! {
                () = pass_on(&mut stream, Whose::OnScreen, &reports, report) => false,
                is_parked = is_parked => is_parked,
            };
            if is_parked {
                // It stays open, and nobody reads it.
                std::future::pending::<()>().await;
            }
        };
        Flame {
            view: wanted.clone(),
            in_calls,
            opened: Opened(tokio::spawn(task).abort_handle()),
            is_parked,
        }
    }
}

/// Passes messages on until there are none, or nobody wants them.
pub(super) async fn forward<R: Viewed>(
    opened: Result<View<R>, Status>,
    of: Whose,
    reports: &Reports,
    report: impl Fn(Incoming<R::Message>) -> What,
) {
    match opened {
        Ok(mut view) => pass_on(&mut view, of, reports, report).await,
        Err(status) => {
            reports.send(report(Incoming::Broken(status.into()))).await;
        }
    }
}

/// Whose view a stream is of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    /// The one on the screen: without it there is nothing more to see.
    OnScreen,
    /// Another, of a pane.
    OfPane,
}

async fn pass_on<R: Viewed>(
    view: &mut View<R>,
    of: Whose,
    reports: &Reports,
    report: impl Fn(Incoming<R::Message>) -> What,
) {
    loop {
        let what = match view.message(reports.tell_connection()).await {
            Ok(Some(message)) => Incoming::Message(message),
            Ok(None) => return,
            Err(status) => {
                let is_gone = matches!(status.code(), Code::Unavailable | Code::Unknown)
                    || of == Whose::OnScreen && view.lost().is_some();
                let failure = Failure::from(status);
                if is_gone {
                    reports.send(What::Gone(failure.message.clone())).await;
                }
                reports.send(report(Incoming::Broken(failure))).await;
                return;
            }
        };
        if !reports.send(report(what)).await {
            return;
        }
    }
}
