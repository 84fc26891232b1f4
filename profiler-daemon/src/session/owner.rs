//! The session task: the one owner of the engine and of every session.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, HashMap, HashSet},
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::Duration,
};

use profiler_debug_files::SideLoaded;
use profiler_scope::Step;
use profiler_symbolize::Grouping;
use profiler_target::{Process, TargetError};

use super::{
    Config,
    admissions::{Admissions, Changed},
    authorize::authorize_steps,
    calibrate::HitCosts,
    command::{Asked, Caller, Command, Reply},
    cost::monotonic_ns,
    counted::Counted,
    ending::Ending,
    error::{Reason, SessionError},
    measure::{Measured, MeasuredFile, Measuring},
    pace::{Pace, TICK_NS},
    picture::{ExplainPicture, FlamePicture, FlameRequest, FlameTimes, LatencyPicture, SessionInfo},
    prepare::Prepared,
    records::RecordBatch,
    refusal::{kernel_refusal, target_refusal},
    running::{MAX_RECORDS, OPENING_NS, Opening, Running, answer},
    sampled_events::refuse_missing,
    spans::SpansPicture,
    split_off,
    state::{Closed, ProbeCosts, Session, Terms},
    symbols::{Symbols, Wanted},
    system_calls::SyscallsPicture,
    timeline::{TimelineBucket, TimelineRequest},
    trace::TraceBatch,
    waits::WaitsPicture,
};
use crate::{
    cache::Folder,
    follow::Following,
    kernel::{Ability, AttachKind, Engine, OffCpu, Times},
};

/// Why a session ends that cannot go on without return probes.
const BESIDE_RETURNS: &str = "code was mapped beside which return probes are not safe";

/// Time between readings of the histograms: the finest a window or a threshold can move.
const READ_NS: u64 = 250_000_000;

/// From the opening of a stream to its first picture: by then there are calls to show.
const FIRST_NS: u64 = 100_000_000;

/// From the answer what the kernel is able to do until the engine is unloaded, if no session comes of it. A
/// session whose preparation takes longer has it loaded again.
const PREPARE_NS: u64 = 1_000_000_000;

/// The session task.
pub struct Owner {
    config: Config,
    /// Where what is made of large files is kept.
    folder: Option<Arc<Folder>>,
    inbox: Receiver<Command>,
    running: Option<Running>,
    sessions: BTreeMap<String, Session>,
    names_made: u64,
}

impl Owner {
    /// A task with no sessions.
    pub fn new(config: Config, folder: Option<Arc<Folder>>, inbox: Receiver<Command>) -> Self {
        Self {
            config,
            folder,
            inbox,
            running: None,
            sessions: BTreeMap::new(),
            names_made: 0,
        }
    }

    /// Serves commands until told to stop, or until nobody is left to ask.
    pub fn run(mut self) {
        if self.config.keep_loaded
            && let Err(error) = self.load_ahead()
        {
            tracing::warn!(%error, "not loaded ahead: each session will try again");
        }
        loop {
            let command = match &self.running {
                None => self.inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(running) => {
                    let wait = running.next_tick_ns.saturating_sub(monotonic_ns());
                    self.inbox.recv_timeout(Duration::from_nanos(wait))
                }
            };
            match command {
                Ok(Command::Stop { reply }) => {
                    self.end_all("the daemon is stopping");
                    // Nobody may be waiting for the answer.
                    let _ = reply.send(());
                    return;
                }
                Ok(command) => {
                    self.serve(command);
                    if let Some(running) = &mut self.running {
                        running.hurry(monotonic_ns());
                    }
                }
                Err(RecvTimeoutError::Timeout) => self.tick(monotonic_ns()),
                Err(RecvTimeoutError::Disconnected) => {
                    self.end_all("the daemon is stopping");
                    return;
                }
            }
        }
    }

    #[expect(clippy::too_many_lines, reason = "an arm for each command")]
    fn serve(&mut self, command: Command) {
        if let Some(Asked {
            view,
            caller,
            session,
        }) = command.asked()
        {
            let is_allowed = self.session(caller, session).is_ok();
            let done = if is_allowed { "watched" } else { "refused" };
            tracing::info!(target: "audit", uid = caller.uid, session, view, "{done}");
        }
        match command {
            Command::Ability { expected, reply } => {
                answer(reply, self.ability());
                if let Some(running) = &mut self.running {
                    // While the files are read.
                    running.engine.ready(expected);
                }
            }
            Command::SideLoad { files, reply } => answer(reply, self.side_load(files)),
            Command::HitCosts { reply } => answer(reply, self.hit_costs()),
            Command::Measure { caller, files, reply } => self.measure(caller, &files, reply),
            Command::Follow { pids, reply } => self.follow(pids, reply),
            Command::Attach {
                caller,
                terms,
                name,
                prepared,
                reply,
            } => {
                let created = self.attach(caller, name, terms, *prepared);
                let orphan = created.as_ref().ok().map(|session| session.name.clone());
                if let (Err(_), Some(name)) = (reply.send(created), orphan) {
                    // The client left before it learned the session's name.
                    self.end_session(&name, &Ending::other("its client is gone"));
                }
            }
            Command::Replay { reply, .. } => {
                let message = "this service looks at processes, not at a recording: open one by --from FILE";
                answer(reply, Err(SessionError::new(Reason::ArgumentInvalid, message)));
            }
            Command::List { caller, reply } => {
                let sessions = self.sessions.values().filter(|session| session.may_use(caller));
                answer(reply, Ok(sessions.map(Session::info).collect()));
            }
            Command::Counted { caller, pids, reply } => answer(reply, Ok(self.counted(caller, &pids))),
            Command::Target { caller, name, reply } => {
                answer(
                    reply,
                    self.session(caller, &name).map(|session| session.editable()),
                );
            }
            Command::Replace {
                caller,
                name,
                revision,
                edits_undone,
                prepared,
                reply,
            } => answer(
                reply,
                self.replace(caller, &name, revision, edits_undone, *prepared),
            ),
            Command::GiveUpReturns {
                caller,
                name,
                revision,
                prepared,
                reply,
            } => answer(reply, self.give_up_returns(caller, &name, revision, prepared)),
            Command::Renew { caller, name, reply } => {
                let now_ns = monotonic_ns();
                answer(
                    reply,
                    self.session(caller, &name).map(|session| session.renew(now_ns)),
                );
            }
            Command::End { caller, name, reply } => {
                let ended = self.session(caller, &name).map(|_| ());
                if ended.is_ok() {
                    self.end_session(&name, &Ending::other("the session was ended"));
                }
                answer(reply, ended);
            }
            Command::WatchLatency {
                caller,
                name,
                interval_ns,
                reply,
            } => {
                answer(reply, self.watch_latency(caller, &name, interval_ns));
            }
            Command::WatchFlame {
                caller,
                name,
                interval_ns,
                request,
                reply,
            } => {
                self.watch_flame(caller, &name, interval_ns, request, reply);
            }
            Command::WatchExplain {
                caller,
                name,
                interval_ns,
                reply,
            } => {
                answer(reply, self.watch_explain(caller, &name, interval_ns));
            }
            Command::WatchTrace { caller, name, reply } => {
                answer(reply, self.watch_trace(caller, &name));
            }
            Command::WatchTimeline {
                caller,
                name,
                request,
                reply,
            } => {
                answer(reply, self.watch_timeline(caller, &name, request));
            }
            Command::WatchSpans {
                caller,
                name,
                interval_ns,
                wanted,
                reply,
            } => {
                self.watch_spans(caller, &name, interval_ns, wanted, reply);
            }
            Command::WatchWaits {
                caller,
                name,
                interval_ns,
                reply,
            } => self.watch_waits(caller, &name, interval_ns, reply),
            Command::WatchSyscalls {
                caller,
                name,
                interval_ns,
                by,
                reply,
            } => self.watch_syscalls(caller, &name, interval_ns, by, reply),
            Command::WatchRecords { caller, name, reply } => self.watch_records(caller, &name, reply),
            Command::Stop { .. } => unreachable!("`run` takes it"),
        }
    }

    fn counted(&self, caller: Caller, pids: &[u32]) -> Vec<Counted> {
        let Some(running) = &self.running else {
            return Vec::new();
        };
        let sessions = self.sessions.values();
        sessions
            .filter(|session| session.may_use(caller) && pids.iter().any(|pid| session.looks_at(*pid)))
            .flat_map(|session| session.counted(&running.engine))
            .collect()
    }

    fn watch_latency(
        &mut self,
        caller: Caller,
        name: &str,
        interval_ns: u64,
    ) -> Result<tokio::sync::watch::Receiver<Option<Arc<LatencyPicture>>>, SessionError> {
        let now_ns = monotonic_ns();
        let session = self.session(caller, name)?;
        if !session.has_spans() {
            return Err(SessionError::new(
                Reason::ArgumentInvalid,
                "the scope has nothing to time: it has to end with a function or a call, as in f or f@main.cc:1312",
            ));
        }
        session.renew(now_ns);
        Ok(session.latency_watchers.add((), interval_ns, now_ns + FIRST_NS))
    }

    fn watch_flame(
        &mut self,
        caller: Caller,
        name: &str,
        interval_ns: u64,
        request: FlameRequest,
        reply: Reply<tokio::sync::watch::Receiver<Option<Arc<FlamePicture>>>>,
    ) {
        let now_ns = monotonic_ns();
        let watch = self.session(caller, name).and_then(|session| {
            if session.is_of_line() {
                return Err(SessionError::new(
                    Reason::ArgumentInvalid,
                    "the scope is of a line, which no sample lies in: trace it",
                ));
            }
            request.check()?;
            if request.unique {
                refuse_unknown(session.steps().iter().map(|step| &step.step), UNIQUE)?;
            }
            session.renew(now_ns);
            if let Some(event) = request.times.and_then(FlameTimes::event) {
                refuse_missing(event)?;
            }
            let variant = request.variant(session.divides());
            Ok((variant, session.flame_watchers.add(variant, interval_ns, now_ns)))
        });
        if let Ok((variant, _)) = &watch
            && let (Some(running), Some(session)) = (&self.running, self.sessions.get_mut(name))
        {
            session.settle_flame(&running.engine, running.symbols.dropped(), now_ns);
            session.maintain(*variant, now_ns);
        }
        let watch = watch.map(|(_, watch)| watch);
        self.open_sampled(name, now_ns, watch, reply);
    }

    fn watch_records(
        &mut self,
        caller: Caller,
        name: &str,
        reply: Reply<tokio::sync::mpsc::Receiver<RecordBatch>>,
    ) {
        let now_ns = monotonic_ns();
        let checked = self.session(caller, name).and_then(|session| {
            if session.is_of_line() {
                return Err(SessionError::new(
                    Reason::ArgumentInvalid,
                    "a recording needs a function or a call, not a line: use `profiler trace`",
                ));
            }
            session.renew(now_ns);
            Ok(())
        });
        let watch = match (checked, &self.running, self.sessions.get_mut(name)) {
            (Ok(()), Some(running), Some(session)) => {
                let dropped = running.symbols.dropped();
                Ok(session.watch_records(&running.engine, &running.frames, dropped, now_ns))
            }
            (Ok(()), ..) => Err(SessionError::new(Reason::Kernel, "the engine is not loaded")),
            (Err(error), ..) => Err(error),
        };
        self.open_sampled(name, now_ns, watch, reply);
    }

    fn watch_spans(
        &mut self,
        caller: Caller,
        name: &str,
        interval_ns: u64,
        wanted: usize,
        reply: Reply<tokio::sync::watch::Receiver<Option<Arc<SpansPicture>>>>,
    ) {
        let now_ns = monotonic_ns();
        let watch = self.session(caller, name).and_then(|session| {
            if !session.has_calls() {
                return Err(SessionError::new(
                    Reason::ArgumentInvalid,
                    "the scope has no calls: it needs a function or a call, as in f or f@main.cc:1312",
                ));
            }
            session.renew(now_ns);
            // The first is due when there is something to show.
            Ok(session.spans_watchers.add(wanted, interval_ns, now_ns + FIRST_NS))
        });
        if watch.is_ok()
            && let (Some(running), Some(session)) = (&self.running, self.sessions.get_mut(name))
        {
            session.settle_spans(&running.engine, running.symbols.dropped(), now_ns);
            session.read(&running.engine, now_ns);
        }
        self.open_sampled(name, now_ns, watch, reply);
    }

    fn watch_waits(
        &mut self,
        caller: Caller,
        name: &str,
        interval_ns: u64,
        reply: Reply<tokio::sync::watch::Receiver<Option<Arc<WaitsPicture>>>>,
    ) {
        let now_ns = monotonic_ns();
        let watch = self.session(caller, name).and_then(|session| {
            refuse_unknown(session.steps().iter().map(|step| &step.step), WAITS)?;
            session.renew(now_ns);
            Ok(session.waits_watchers.add((), interval_ns, now_ns + FIRST_NS))
        });
        if watch.is_ok()
            && let (Some(running), Some(session)) = (&self.running, self.sessions.get_mut(name))
        {
            session.settle_waits(&running.engine, running.symbols.dropped());
        }
        self.open_sampled(name, now_ns, watch, reply);
    }

    fn watch_syscalls(
        &mut self,
        caller: Caller,
        name: &str,
        interval_ns: u64,
        by: Grouping,
        reply: Reply<tokio::sync::watch::Receiver<Option<Arc<SyscallsPicture>>>>,
    ) {
        let now_ns = monotonic_ns();
        let watch = self.session(caller, name).and_then(|session| {
            refuse_unknown(session.steps().iter().map(|step| &step.step), SYSCALLS)?;
            session.renew(now_ns);
            let is_counted = session.watches_calls();
            let watch = session.syscalls_watchers.add(by, interval_ns, now_ns + FIRST_NS);
            Ok((watch, is_counted))
        });
        let watch = watch.and_then(|(watch, is_counted)| {
            if is_counted {
                self.take_all_calls(now_ns);
            }
            if let (Some(running), Some(session)) = (&mut self.running, self.sessions.get_mut(name)) {
                session
                    .settle_calls(&mut running.engine, now_ns)
                    .map_err(|error| kernel_refusal(&error))?;
                // The first stack may be named when the process has ended already.
                running.symbols.meeting(session.pids(), Box::new(|| ()))();
            }
            Ok(watch)
        });
        self.open_sampled(name, now_ns, watch, reply);
    }

    /// Answers with a stream of a session's samples, once its target is sampled.
    fn open_sampled<W: Send + 'static>(
        &mut self,
        name: &str,
        now_ns: u64,
        watch: Result<W, SessionError>,
        reply: Reply<W>,
    ) {
        let watch = watch.and_then(|watch| self.settle_sampler().map(|()| watch));
        let refused = self.sessions.get_mut(name).and_then(Session::take_refused_event);
        let watch = watch.and_then(|watch| refused.map_or(Ok(watch), Err));
        match (watch, &mut self.running, self.sessions.get(name)) {
            (Ok(watch), Some(running), Some(session)) => {
                let (pids, until_ns) = (session.pids(), now_ns + OPENING_NS);
                let open = move || answer(reply, Ok(watch));
                running.opening.push(Opening::new(pids, until_ns, open));
                running.open(now_ns);
            }
            (watch, ..) => answer(reply, watch),
        }
    }

    fn watch_explain(
        &mut self,
        caller: Caller,
        name: &str,
        interval_ns: u64,
    ) -> Result<tokio::sync::watch::Receiver<Option<Arc<ExplainPicture>>>, SessionError> {
        let now_ns = monotonic_ns();
        let session = self.session(caller, name)?;
        session.renew(now_ns);
        session
            .watch_explain(interval_ns, now_ns + FIRST_NS)
            .ok_or_else(|| {
                let message =
                    format!("session `{name}` explains nothing: `profiler explain` makes one that does");
                SessionError::new(Reason::ArgumentInvalid, message)
            })
    }

    fn watch_trace(
        &mut self,
        caller: Caller,
        name: &str,
    ) -> Result<tokio::sync::mpsc::Receiver<TraceBatch>, SessionError> {
        let now_ns = monotonic_ns();
        let session = self.session(caller, name)?;
        session.renew(now_ns);
        let watch = session.watch_trace().ok_or_else(|| {
            SessionError::new(
                Reason::ArgumentInvalid,
                format!(
                    "session `{name}` records no hits: make one that does, by `profiler session new --trace`"
                ),
            )
        });
        if let (Some(running), Some(session)) = (&self.running, self.sessions.get_mut(name)) {
            session.read(&running.engine, now_ns);
        }
        watch
    }

    fn watch_timeline(
        &mut self,
        caller: Caller,
        name: &str,
        request: TimelineRequest,
    ) -> Result<tokio::sync::mpsc::Receiver<TimelineBucket>, SessionError> {
        let now_ns = monotonic_ns();
        let session = self.session(caller, name)?;
        if session
            .steps()
            .last()
            .is_some_and(|last| last.step.asks_for_return())
        {
            return Err(SessionError::new(
                Reason::ArgumentInvalid,
                "the scope would count calls where they begin by what they return, which is not known then: leave the condition on it out",
            ));
        }
        session.renew(now_ns);
        let (Some(running), Some(session)) = (&mut self.running, self.sessions.get_mut(name)) else {
            return Err(SessionError::new(Reason::Kernel, "the engine is not loaded"));
        };
        let next_ns = now_ns + request.step_ns;
        let watch = session.watch_timeline(&running.engine, request, now_ns)?;
        running.next_tick_ns = running.next_tick_ns.min(next_ns);
        Ok(watch)
    }

    /// The engine, loaded when first needed.
    fn running(&mut self) -> Result<&mut Running, SessionError> {
        if self.running.is_none() {
            let folder = self.folder.clone();
            let mut engine = Engine::load(&self.config.engine).map_err(|error| kernel_refusal(&error))?;
            let no_thread = |error| SessionError::new(Reason::Kernel, format!("starting a thread: {error}"));
            let (symbols, frames) = Symbols::start(engine.allocations(), split_off::finder(folder.as_ref()))
                .map_err(no_thread)?;
            let maps = engine
                .take_unwind_maps()
                .ok_or_else(|| SessionError::new(Reason::Kernel, "the unwind tables are taken"))?;
            let following = Following::start(maps, folder).map_err(no_thread)?;
            let now_ns = monotonic_ns();
            tracing::info!(ability = ?engine.ability(), "engine loaded");
            self.running = Some(Running {
                engine,
                admissions: Admissions::default(),
                folder: self.folder.clone(),
                following,
                symbols,
                frames: Arc::new(frames),
                has_names: false,
                opening: Vec::new(),
                measuring: Vec::new(),
                expected: Vec::new(),
                wanted: Wanted::default(),
                call_costs: HashMap::new(),
                hit_costs: OnceCell::new(),
                keep_until_ns: 0,
                first_records_ns: 0,
                pace: Pace::new(self.config.engine.ring_bytes, now_ns),
                next_tick_ns: now_ns + TICK_NS,
                next_read_ns: now_ns + READ_NS,
            });
        }
        self.running
            .as_mut()
            .ok_or_else(|| SessionError::new(Reason::Kernel, "the engine is not loaded"))
    }

    /// Loads what a first session would wait for.
    fn load_ahead(&mut self) -> Result<(), SessionError> {
        let engine = &mut self.running()?.engine;
        engine.ready_all();
        engine.ready_sampler().map_err(|error| kernel_refusal(&error))?;
        Ok(())
    }

    fn ability(&mut self) -> Result<Ability, SessionError> {
        let running = self.running()?;
        running.keep_until_ns = monotonic_ns() + PREPARE_NS;
        Ok(running.engine.ability())
    }

    fn hit_costs(&mut self) -> Result<Option<HitCosts>, SessionError> {
        let running = self.running()?;
        running.keep_until_ns = monotonic_ns() + PREPARE_NS;
        Ok(running.hit_costs())
    }

    fn measure(&mut self, caller: Caller, files: &[MeasuredFile], reply: Reply<Measured>) {
        let pids: Vec<u32> = files.iter().map(|file| file.pid).collect();
        let admitted = self.admit(caller, &pids).and_then(|()| self.running());
        match admitted {
            Ok(running) => {
                running.keep_until_ns = monotonic_ns() + PREPARE_NS;
                running.measure(caller, files, reply);
                tracing::info!(target: "audit", uid = caller.uid, ?pids, "counted at");
            }
            Err(error) => {
                tracing::info!(target: "audit", uid = caller.uid, ?pids, %error, "refused");
                answer(reply, Err(error));
            }
        }
    }

    fn side_load(&mut self, files: SideLoaded) -> Result<(), SessionError> {
        let running = self.running()?;
        running.keep_until_ns = monotonic_ns() + PREPARE_NS;
        running.has_names = true;
        if running.symbols.side_load(files) {
            return Ok(());
        }
        Err(SessionError::new(
            Reason::LimitReached,
            "too many samples wait to be named: try again",
        ))
    }

    /// Makes the tables to walk these processes' stacks by, for a session that is being made, and looks at their files;
    /// answers when that is done.
    fn follow(&mut self, pids: Vec<u32>, reply: Reply<()>) {
        let now_ns = monotonic_ns();
        let until_ns = now_ns + OPENING_NS;
        let asked = self.running().map(|running| {
            running.keep_until_ns = until_ns + PREPARE_NS;
            let expected = pids.iter().map(|pid| (*pid, until_ns + PREPARE_NS));
            running.expected.extend(expected);
        });
        match (asked.and_then(|()| self.settle_sampler()), &mut self.running) {
            (Ok(()), Some(running)) => {
                let ready = Box::new(move || answer(reply, Ok(())));
                let open = running.symbols.meeting(pids.clone(), ready);
                running.opening.push(Opening::new(pids, until_ns, open));
                running.open(now_ns);
            }
            (settled, _) => answer(reply, settled),
        }
    }

    fn session(&mut self, caller: Caller, name: &str) -> Result<&mut Session, SessionError> {
        // A session of somebody else's is not told from one that does not exist.
        self.sessions
            .get_mut(name)
            .filter(|session| session.may_use(caller))
            .ok_or_else(|| {
                SessionError::new(
                    Reason::SessionNotFound,
                    format!("there is no session `{name}`: it was never made, or its lease ran out"),
                )
            })
    }

    fn attach(
        &mut self,
        caller: Caller,
        name: String,
        terms: Terms,
        mut prepared: Prepared,
    ) -> Result<SessionInfo, SessionError> {
        if self.sessions.contains_key(&name) {
            return Err(SessionError::new(
                Reason::SessionExists,
                format!("a session `{name}` exists already"),
            ));
        }
        let limit = self.config.max_sessions;
        if self.sessions.len() >= limit {
            return Err(SessionError::new(
                Reason::LimitReached,
                format!("there are {limit} sessions already: end one first"),
            ));
        }
        let name = if name.is_empty() { self.make_name() } else { name };
        let running = self.running()?;
        let hit_costs = match prepared.explain {
            Some(_) => running.hit_costs(),
            None => None,
        };
        prepared.leave_out_ended();
        let mut admitted = self.admit_prepared(terms.owner, &prepared);
        while admitted.is_err() && prepared.leave_out_ended() {
            admitted = self.admit_prepared(terms.owner, &prepared);
        }
        prepared.warn_of_ended();
        let pids = prepared.pids();
        if let Err(error) = admitted {
            tracing::info!(target: "audit", uid = caller.uid, ?pids, %error, "refused");
            self.settle_admissions();
            self.unload_if_idle();
            return Err(error);
        }
        let running = self.running()?;
        running.has_names = true;
        // Before there is anything to be seen: it takes a while.
        running.calibrate(prepared.exit_methods());
        let attached = Session::attach(
            &mut running.engine,
            name.clone(),
            terms,
            (prepared, hit_costs),
            monotonic_ns(),
        );
        let mut session = match attached {
            Ok(session) => session,
            Err(error) => {
                self.settle_admissions();
                self.unload_if_idle();
                return Err(kernel_refusal(&error));
            }
        };
        session.set_overhead(|method| running.overhead_ns(method));
        session.note_losses_before(&running.engine, running.symbols.dropped());
        let info = session.info();
        let reads = session.reads();
        tracing::info!(target: "audit", uid = caller.uid, session = name, pids = ?info.pids, scope = info.scope, reads, "attached");
        let takes_stacks = session.takes_stacks() || session.samples();
        if !session.is_of_ticks() {
            running.expect_records(monotonic_ns());
        }
        self.sessions.insert(name, session);
        // The programs may have been loaded anew since the tables were asked for.
        if takes_stacks && let Err(error) = self.settle_sampler() {
            tracing::warn!(%error, "the sampler could not be set");
        }
        Ok(info)
    }

    /// A name that no session has, be it one that a client chose.
    fn make_name(&mut self) -> String {
        loop {
            self.names_made += 1;
            let name = format!("s{}", self.names_made);
            if !self.sessions.contains_key(&name) {
                return name;
            }
        }
    }

    fn replace(
        &mut self,
        caller: Caller,
        name: &str,
        revision: u64,
        edits_undone: usize,
        prepared: Prepared,
    ) -> Result<SessionInfo, SessionError> {
        let session = self.session(caller, name)?;
        if session.revision() != revision {
            let message = "the scope is being changed by others too: try again";
            return Err(SessionError::new(Reason::ScopeChanged, message));
        }
        let owner = session.owner();
        authorize_steps(owner, prepared.steps.iter().map(|step| &step.step))?;
        let pids = session.pids();
        self.admit(owner, &pids)?;
        let (Some(running), Some(session)) = (&mut self.running, self.sessions.get_mut(name)) else {
            return Err(SessionError::new(Reason::Kernel, "the engine is not loaded"));
        };
        if session.explains() {
            let message = "what is explained are the calls of one scope: make another session for another";
            return Err(SessionError::new(Reason::ArgumentInvalid, message));
        }
        if session.watches_waits() {
            refuse_unknown(prepared.steps.iter().map(|step| &step.step), WAITS)?;
        }
        if session.counts_unique() {
            refuse_unknown(prepared.steps.iter().map(|step| &step.step), UNIQUE)?;
        }
        let counts_calls = session.watches_calls();
        if counts_calls {
            refuse_unknown(prepared.steps.iter().map(|step| &step.step), SYSCALLS)?;
        }
        running
            .attach_anew(
                session,
                prepared,
                |session, engine, (dropped, prepared), now_ns| {
                    session.renew(now_ns);
                    session.edit(engine, dropped, prepared, edits_undone, now_ns)
                },
            )
            .map_err(|error| kernel_refusal(&error))?;
        let is_recorded = session.is_recorded();
        let info = session.info();
        tracing::info!(target: "audit", uid = caller.uid, session = name, scope = info.scope, "scope set");
        if counts_calls || is_recorded {
            self.settle_sampler()?;
        }
        Ok(info)
    }

    /// Sees calls end in another way than by return probes, where these are not safe beside the code that there is by now.
    fn give_up_returns(
        &mut self,
        caller: Caller,
        name: &str,
        revision: u64,
        prepared: Result<Box<Prepared>, SessionError>,
    ) -> Result<(), SessionError> {
        let session = self.session(caller, name)?;
        if session.revision() != revision {
            // It is planned anew for what was attached meanwhile.
            return Ok(());
        }
        let explains = session.explains();
        let explains_by_returns =
            |prepared: &Prepared| explains && session.explains_by_returns(&prepared.no_returns_in);
        let prepared = match prepared {
            Ok(prepared) if !explains_by_returns(&prepared) => *prepared,
            Ok(_) => {
                self.end_session(name, &Ending::other(BESIDE_RETURNS));
                return Ok(());
            }
            Err(error) => {
                let reason = format!(
                    "code was mapped beside which return probes may not be safe, and no others are found: {}",
                    error.message
                );
                self.end_session(name, &Ending::other(reason));
                return Ok(());
            }
        };
        let (Some(running), Some(session)) = (&mut self.running, self.sessions.get_mut(name)) else {
            return Ok(());
        };
        let given_up = running.attach_anew(
            session,
            prepared,
            |session, engine, (dropped, prepared), now_ns| {
                session.give_up_returns(engine, dropped, prepared, now_ns)
            },
        );
        match given_up {
            Ok(false) => {}
            Ok(true) if explains => {
                self.end_session(name, &Ending::other(BESIDE_RETURNS));
            }
            Ok(true) => tracing::info!(target: "audit", session = name, "return probes given up"),
            Err(error) => self.end_session(
                name,
                &Ending::other(format!("{BESIDE_RETURNS}, and others are refused: {error}")),
            ),
        }
        Ok(())
    }

    /// Samples the processes whose flame graph somebody looks at, and follows those whose stacks are taken.
    fn settle_sampler(&mut self) -> Result<(), SessionError> {
        let Some(running) = &mut self.running else {
            return Ok(());
        };
        let sampled = || self.sessions.values().filter(|session| session.samples());
        let pids: Vec<u32> = sampled().flat_map(Session::pids).collect();
        let watched = !pids.is_empty();
        let now_ns = monotonic_ns();
        running.expected.retain(|(_, until_ns)| now_ns < *until_ns);
        let taken = self.sessions.values().filter(|session| session.takes_stacks());
        let expected = running.expected.iter().map(|(pid, _)| *pid);
        let followed: Vec<u32> = taken
            .flat_map(Session::pids)
            .chain(pids.iter().copied())
            .chain(expected)
            .collect();
        // Those whose tables are not there yet follow at a tick.
        let mut ready = running.following.follow(&followed, now_ns);
        ready.retain(|pid| pids.contains(pid));
        if watched {
            // While the tables are being made.
            running
                .engine
                .ready_sampler()
                .map_err(|error| kernel_refusal(&error))?;
        }
        let frequency_hz = sampled().map(|session| session.frequency_hz).max().unwrap_or(0);
        let times_of = |pid: &u32| {
            let wanted = sampled().filter(|session| session.looks_at(*pid));
            wanted.map(Session::times).fold(Times::default(), Times::or)
        };
        let targets: Vec<(u32, Times)> = ready.iter().map(|pid| (*pid, times_of(pid))).collect();
        let is_watched = sampled().any(|session| session.times().off_cpu != OffCpu::No);
        let mut sampled = running.engine.sample(&targets, frequency_hz);
        if is_watched && sampled.is_ok() {
            sampled = running.engine.ready_watch();
        }
        let (pids, now_ns) = (if sampled.is_ok() { &*ready } else { &[] }, monotonic_ns());
        for session in self.sessions.values_mut() {
            session.note_sampled(pids, now_ns);
            session.settle_events(&mut running.engine, pids);
        }
        sampled.map_err(|error| kernel_refusal(&error))
    }

    fn tick(&mut self, now_ns: u64) {
        let Some(running) = &mut self.running else { return };
        running.next_tick_ns = running.tick_after(self.sessions.values(), now_ns);
        self.ask_about_counted(now_ns);
        let Some(running) = &mut self.running else { return };
        // First: what a bucket holds is what was counted when it was over.
        for session in self.sessions.values_mut() {
            if let Some(next_ns) = session.end_buckets(&running.engine, now_ns, None) {
                running.next_tick_ns = running.next_tick_ns.min(next_ns);
            }
        }
        running.wanted = self.sessions.values().map(Session::wanted).collect();
        running.drain(now_ns);
        let new_tables = running.following.tick(now_ns);
        while let Some(batch) = running.symbols.take() {
            if !batch.frames.is_empty() {
                Arc::make_mut(&mut running.frames).extend(batch.frames.iter().cloned());
            }
            for session in self.sessions.values_mut() {
                session.take(&batch);
            }
        }
        let dropped = running.symbols.take_dropped_hits();
        if !dropped.is_empty() {
            for session in self.sessions.values_mut() {
                session.miss(&dropped);
            }
        }
        let read = now_ns >= running.next_read_ns;
        self.look_at_changed(&[]);
        if new_tables && let Err(error) = self.settle_sampler() {
            tracing::warn!(%error, "the sampler could not be set");
        }
        self.keep_to_budgets(now_ns);
        let Some(running) = &mut self.running else { return };
        running.open(now_ns);
        running.end_measuring(now_ns);
        if read {
            self.take_calls(now_ns);
            let Some(running) = &mut self.running else { return };
            running.next_read_ns = now_ns + READ_NS;
            self.housekeeping(now_ns);
        }
        let Some(running) = &mut self.running else { return };
        for session in self.sessions.values_mut() {
            session.publish(
                &running.engine,
                &running.frames,
                running.symbols.dropped(),
                now_ns,
                None,
            );
        }
    }

    /// Takes off targets what costs them more than is allowed.
    fn keep_to_budgets(&mut self, now_ns: u64) {
        let Some(running) = &mut self.running else { return };
        let due = |session: &Session| session.is_cost_due(now_ns);
        let matter = |session: &Session| due(session) && session.has_many_hits(&running.engine);
        if running.hit_costs.get().is_none() && self.sessions.values().any(matter) {
            running.hit_costs();
        }
        let costs = ProbeCosts {
            calls: &running.call_costs,
            hits: running.hit_costs.get().copied().flatten(),
        };
        let mut over = Vec::new();
        for (name, session) in self.sessions.iter_mut().filter(|(_, session)| due(session)) {
            if let Some(reason) = session.keep_to_budget(&mut running.engine, costs, now_ns) {
                over.push((name.clone(), reason));
            }
        }
        for (name, reason) in over {
            self.end_session(&name, &Ending::other(reason));
        }
    }

    /// Lets the programs look at no other processes than somebody does.
    fn settle_admissions(&mut self) {
        let Some(running) = &mut self.running else { return };
        let measured = running.measuring.iter().flat_map(Measuring::pids);
        let wanted: HashSet<u32> = self
            .sessions
            .values()
            .flat_map(Session::pids)
            .chain(measured)
            .collect();
        running
            .admissions
            .keep(&mut running.engine, |pid| wanted.contains(&pid));
    }

    /// Lets the programs look at processes for a caller, too.
    ///
    /// Processes that have changed since others began to look at them are taken from those who may look at them no more.
    fn admit(&mut self, caller: Caller, pids: &[u32]) -> Result<(), SessionError> {
        self.look_at_changed(pids);
        let running = self.running()?;
        running.admissions.admit(&mut running.engine, caller, pids)
    }

    /// Lets the programs look at the processes of a session that is to be.
    fn admit_prepared(&mut self, caller: Caller, prepared: &Prepared) -> Result<(), SessionError> {
        self.admit(caller, &prepared.pids())?;
        still_the_same(&prepared.processes)
    }

    /// Looks at processes that became something else under the programs, which have looked at them no more since: they are taken from
    /// the sessions whose owners may look at them no more, and then admitted anew for the others. Those in `asked` are looked at also
    /// where no program has noticed.
    fn look_at_changed(&mut self, asked: &[u32]) {
        let Some(running) = &mut self.running else { return };
        let changed = running.admissions.changed(&mut running.engine, asked);
        let mut changed = changed.unwrap_or_else(|error| {
            tracing::warn!(%error, "processes that changed could not be looked at: nothing is seen of them");
            Vec::new()
        });
        let now_ns = monotonic_ns();
        changed.retain(|change| !running.admissions.doubts(change, now_ns));
        let mut closed = Vec::new();
        for change in &changed {
            let pid = change.pid;
            let looking = self.sessions.iter_mut();
            for (name, session) in looking.filter(|(_, session)| session.looks_at(pid)) {
                match change.reason_to_leave(session.owner()) {
                    Some(reason) => closed.push((name.clone(), Closed { pid, reason })),
                    // How often a program with more rights was met is nobody's to know.
                    None => session.note_not_admitted(change.missed),
                }
            }
            running.refuse_measuring(change);
        }
        self.take_from(closed);
        for change in &changed {
            self.admit_anew(change);
        }
        if !asked.is_empty() {
            self.settle_admissions();
        }
    }

    /// Takes processes from sessions, by their names.
    fn take_from(&mut self, closed: Vec<(String, Closed)>) {
        let is_any = !closed.is_empty();
        let mut over = Vec::new();
        for (name, Closed { pid, reason }) in closed {
            let (Some(running), Some(session)) = (&mut self.running, self.sessions.get_mut(&name)) else {
                continue;
            };
            tracing::info!(target: "audit", session = name, pid, reason, "lost");
            if !session.lose(&mut running.engine, pid, &reason) {
                over.push((name, reason));
            }
        }
        for (name, reason) in &over {
            self.end_session(name, &Ending::other(reason));
        }
        if is_any && let Err(error) = self.settle_sampler() {
            tracing::warn!(%error, "the sampler could not be set");
        }
    }

    /// Admits a process that changed, once nobody looks at it who may not.
    fn admit_anew(&mut self, change: &Changed) {
        let Some(running) = &mut self.running else { return };
        let pid = change.pid;
        let looking = self.sessions.values().filter(|session| session.looks_at(pid));
        let owners: Vec<Caller> = looking
            .map(Session::owner)
            .chain(running.measuring_callers(pid))
            .collect();
        // One that has ended is its sessions' to notice.
        let Some(state) = change.now.filter(|_| !owners.is_empty()) else {
            return;
        };
        let any_rights = owners.iter().all(|owner| owner.is_root());
        if let Err(error) = running.admissions.open(&mut running.engine, state, any_rights) {
            tracing::warn!(%error, pid, "a process that changed could not be admitted anew: nothing is seen of it");
        }
    }

    /// Takes processes from sessions whose counters are about to be read, where their owners may look at them no more: the kernel
    /// counts on whatever becomes of a thread, and asks nobody.
    fn ask_about_counted(&mut self, now_ns: u64) {
        let due = self
            .sessions
            .iter_mut()
            .filter(|(_, session)| session.has_due_bucket(now_ns));
        let closed = due.flat_map(|(name, session)| {
            let closed = session.closed_to_owner();
            closed.into_iter().map(|closed| (name.clone(), closed))
        });
        let closed = closed.collect();
        self.take_from(closed);
    }

    /// Takes what was counted of system calls up to the reading before, which no program adds to any more.
    fn take_calls(&mut self, now_ns: u64) {
        if let Some(running) = &mut self.running
            && self.sessions.values().any(Session::watches_calls)
        {
            running.take_calls(self.sessions.values_mut(), now_ns);
            running.engine.turn_calls(false);
        }
    }

    /// Takes all that was counted of system calls.
    fn take_all_calls(&mut self, now_ns: u64) {
        if let Some(running) = &mut self.running {
            running.end_turn(now_ns);
            running.take_calls(self.sessions.values_mut(), now_ns);
        }
    }

    /// Readings, leases, targets that ended, streams that nobody reads any more.
    fn housekeeping(&mut self, now_ns: u64) {
        let Some(running) = &mut self.running else { return };
        let mut over = Vec::new();
        let mut watchers_left = false;
        for (name, session) in &mut self.sessions {
            session.read(&running.engine, now_ns);
            session.turn(&mut running.engine, now_ns);
            let watched = session.samples();
            session.latency_watchers.sweep();
            session.explain_watchers.sweep();
            session.flame_watchers.sweep();
            session.spans_watchers.sweep();
            session.waits_watchers.sweep();
            session.syscalls_watchers.sweep();
            session.sweep_records();
            session.settle_flame(&running.engine, running.symbols.dropped(), now_ns);
            session.settle_spans(&running.engine, running.symbols.dropped(), now_ns);
            session.settle_waits(&running.engine, running.symbols.dropped());
            if let Err(error) = session.settle_calls(&mut running.engine, now_ns) {
                tracing::warn!(%error, "system calls are not counted");
            }
            watchers_left |= watched && !session.samples();
            if let Some(ending) = session.target_ended(&mut running.engine) {
                over.push((name.clone(), ending));
            } else if session.lease_is_over(now_ns) {
                over.push((name.clone(), Ending::other("its lease ran out")));
            }
        }
        for (name, ending) in over {
            self.end_session(&name, &ending);
        }
        // What was counted at for a moment is over by now.
        self.settle_admissions();
        if watchers_left && let Err(error) = self.settle_sampler() {
            tracing::warn!(%error, "the sampler could not be set");
        }
        if self
            .running
            .as_ref()
            .is_some_and(|running| now_ns >= running.keep_until_ns)
        {
            self.unload_if_idle();
        }
    }

    /// Ends a session: what is on its way still counts, watchers get their last picture.
    fn end_session(&mut self, name: &str, ending: &Ending) {
        let (Some(running), Some(mut session)) = (&mut self.running, self.sessions.remove(name)) else {
            return;
        };
        // In calls it is not known which are open.
        let still_off = if session.times().off_cpu == OffCpu::All && !session.divides() {
            // The iterator finds room for its stacks. Not until nothing is left: more comes in while they are watched.
            running.drain(monotonic_ns());
            running.engine.stop_watch()
        } else {
            Vec::new()
        };
        let still_off_ns = monotonic_ns();
        // The clocks stand still until the last samples are counted; other sessions' go on below.
        if session.samples()
            && let Err(error) = running.engine.pause()
        {
            tracing::warn!(%error, "the sampler could not be stopped");
        }
        session.stop_events();
        // What is counted from here on would be shown nowhere.
        let closing_ns = monotonic_ns();
        session.quiesce(&mut running.engine);
        // A link counts nothing any more when it begins to close; that the kernel then waits is no part of the run. Of many, as perf
        // events are, each counts until its turn to be closed comes.
        let is_one = session.attachments() == 1 && running.engine.ability().attach == AttachKind::Multi;
        let now_ns = if is_one { closing_ns } else { monotonic_ns() };
        session.read(&running.engine, now_ns);
        let sessions = self.sessions.values().chain([&session]);
        running.wanted = sessions.map(Session::wanted).collect();
        let counts_calls = session.watches_calls();
        if counts_calls {
            running.end_turn(now_ns);
        }
        while running.drain(now_ns) == MAX_RECORDS {}
        if counts_calls {
            let others = self.sessions.values_mut();
            running.take_calls(others.chain([&mut session]), now_ns);
        }
        running.send_still_off(&still_off, &session.pids(), still_off_ns);
        // Bounded: the thread names what it has been given and no more.
        while let Some(batch) = running.symbols.take_last() {
            Arc::make_mut(&mut running.frames).extend(batch.frames.iter().cloned());
            session.take_last(&batch);
            for other in self.sessions.values_mut() {
                other.take(&batch);
            }
        }
        let dropped = running.symbols.take_dropped_hits();
        session.miss(&dropped);
        session.miss(&running.symbols.hits_under_way());
        for other in self.sessions.values_mut() {
            other.miss(&dropped);
        }
        session.publish(
            &running.engine,
            &running.frames,
            running.symbols.dropped_at_end(),
            now_ns,
            Some(ending),
        );
        for Closed { pid, .. } in session.closed_to_owner() {
            session.lose_timelines(pid);
        }
        session.end_buckets(&running.engine, monotonic_ns(), Some(ending));
        for pid in session.pids() {
            running.symbols.forget(pid);
        }
        session.detach(&mut running.engine);
        tracing::info!(target: "audit", session = name, reason = %ending, "detached");
        self.settle_admissions();
        if let Err(error) = self.settle_sampler() {
            tracing::warn!(%error, "the sampler could not be set");
        }
        self.unload_if_idle();
    }

    fn unload_if_idle(&mut self) {
        let is_measuring = |running: &Running| !running.measuring.is_empty();
        if !self.sessions.is_empty() || self.running.as_ref().is_some_and(is_measuring) {
            return;
        }
        if self.config.keep_loaded && self.running.as_mut().is_some_and(Running::renew_names) {
            return;
        }
        if let Some(running) = self.running.take() {
            for opening in running.opening {
                // They still get the last picture.
                (opening.open)();
            }
        }
    }

    fn end_all(&mut self, reason: &str) {
        for name in self.sessions.keys().cloned().collect::<Vec<_>>() {
            self.end_session(&name, &Ending::other(reason));
        }
    }
}

/// Checks that processes were alive when they were admitted by their numbers.
fn still_the_same(processes: &[Process]) -> Result<(), SessionError> {
    match processes.iter().find(|process| !process.is_alive()) {
        None => Ok(()),
        Some(process) => Err(target_refusal(&TargetError::Ended(process.pid()))),
    }
}

/// What a scope cannot be asked for: what is known of it when it happens and not later.
#[derive(Clone, Copy)]
struct Unknown {
    /// Of a scope with a condition on a duration.
    by_duration: &'static str,
    /// Of a scope with a condition on what a call returns.
    by_return: &'static str,
    /// Of a line that no call is known to be around.
    at_line: &'static str,
}

const WAITS: Unknown = Unknown {
    by_duration: "would show the waits of calls by their duration, which is not known while they wait: leave the condition on it out",
    by_return: "would show the waits of calls by what they return, which is not known while they wait: leave the condition on it out",
    at_line: "is of a line, in which nothing waits: put its function in front of it, as in f/main.cc:1310",
};

const UNIQUE: Unknown = Unknown {
    by_duration: "would count once what calls touch by their duration, and one page may be touched by fast and by slow ones: leave the condition on it out",
    by_return: "would count once what calls touch by what they return, and one page may be touched by calls of both kinds: leave the condition on it out",
    at_line: "is of a line, which no sample lies in: put its function in front of it, as in f/main.cc:1310",
};

const SYSCALLS: Unknown = Unknown {
    by_duration: "would count the system calls of calls by their duration, which is not known when those are made: leave the condition on it out",
    by_return: "would count the system calls of calls by what these return, which is not known when those are made: leave the condition on it out",
    at_line: "is of a line, in which no system call is made: put its function in front of it, as in f/main.cc:1310",
};

/// Refuses scopes that something cannot be told of: calls by their duration or by what they return, and lines that no call is
/// known to be around.
fn refuse_unknown<'a>(steps: impl Iterator<Item = &'a Step>, unknown: Unknown) -> Result<(), SessionError> {
    let steps: Vec<&Step> = steps.collect();
    let refuse = |why: &str| {
        let message = format!("the scope {why}");
        Err(SessionError::new(Reason::ArgumentInvalid, message))
    };
    if steps.iter().any(|step| !step.predicates.is_empty()) {
        return refuse(unknown.by_duration);
    }
    if steps.iter().any(|step| step.asks_for_return()) {
        return refuse(unknown.by_return);
    }
    if !steps.is_empty() && !steps.iter().any(|step| step.place.has_spans()) {
        return refuse(unknown.at_line);
    }
    Ok(())
}
