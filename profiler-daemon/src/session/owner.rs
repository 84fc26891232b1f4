//! The session task: the one owner of the engine and of every session.
//!
//! | file | idea |
//! |---|---|
//! | `admit` | which processes the programs may look at, and for whom |
//! | `counted` | buckets of counters that are over |
//! | `earlier` | tables of names that streams still hold |
//! | `life` | how sessions begin and change their scope |
//! | `over` | how they end |
//! | `tick` | what is done again and again |
//! | `views` | views that are opened |

mod admit;
mod counted;
mod earlier;
mod life;
mod over;
mod tick;
mod views;

use self::{
    earlier::EarlierTables,
    life::Edited,
    over::{Detaching, Over},
};
use std::{
    cell::OnceCell,
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, mpsc::RecvTimeoutError},
    time::Duration,
};

use profiler_debug_files::SideLoaded;

use super::{
    Config,
    admissions::Admissions,
    attendance::Attendance,
    backlog::Backlogs,
    calibrate::HitCosts,
    command::{Caller, Command, Reply},
    cost::monotonic_ns,
    counted::Counted,
    ending::{ENDED_BY_REQUEST, EndCause, Ending},
    error::{Reason, SessionError},
    inbox::Inbox,
    measure::{Measured, MeasuredFile},
    memory,
    name::SessionName,
    pace::{Pace, TICK_NS},
    picture::{ExitMethod, SessionInfo},
    refusal::kernel_refusal,
    running::{CallTurns, ExpectedProcess, OPENING_NS, Opening, Running, answer},
    split_off,
    state::Session,
    symbols::{Symbols, Wanted},
    timeline::Shares,
};
use crate::{
    cache::Folder,
    follow::Following,
    kernel::{Ability, Engine, Expected},
};

/// Time between readings of the histograms: the finest a window or a threshold can move.
const READ_NS: u64 = 250_000_000;

/// How long the engine stays loaded after a capability query if no session follows. A session whose preparation takes longer has it
/// loaded again.
const PREPARE_NS: u64 = 1_000_000_000;

/// Time between looks at what waits for links to be closed, or for names.
const LOOK_NS: u64 = 2_000_000;

/// A step of the task that takes longer is logged: others wait meanwhile.
const LONG_NS: u64 = 50_000_000;

/// The session task.
pub struct Owner {
    config: Config,
    /// Where what is made of large files is kept.
    folder: Option<Arc<Folder>>,
    inbox: Inbox<Command>,
    running: Option<Running>,
    sessions: BTreeMap<SessionName, Session>,
    /// Those that have ended, and whose probes are being taken off their targets.
    detaching: Vec<Detaching>,
    /// Those whose probes are off, and whose last pictures are still to be made.
    over: Vec<Over>,
    /// The last that have ended, the oldest first.
    ended: VecDeque<Ended>,
    /// Sessions of which the pictures of the last tick are still to be given out.
    to_show: VecDeque<SessionName>,
    /// When that was.
    shown_ns: u64,
    /// Time that pictures have for themselves before the next tick: as long as the last one took.
    to_show_for_ns: u64,
    /// More has been named than sessions were given.
    has_named: bool,
    /// Edits whose probes are not all attached yet.
    edited: Vec<Edited>,
    /// How many names were made up for a user's sessions.
    names_made: HashMap<u32, u64>,
    /// What waits for clients, by whose sessions it is of. It outlives these.
    backlogs: Backlogs,
    /// Names of before that streams still hold.
    earlier: EarlierTables,
}

/// A session that has ended.
struct Ended {
    name: SessionName,
    owner: Caller,
    ending: Ending,
}

/// Sessions whose end is remembered.
const MAX_ENDED: usize = 64;

/// Logs steps that hold up others.
struct Steps {
    begin_ns: u64,
}

impl Steps {
    /// From now on.
    fn begin() -> Self {
        Self {
            begin_ns: monotonic_ns(),
        }
    }

    /// A step has ended, and the next begins.
    fn end(&mut self, step: &str) {
        let now_ns = monotonic_ns();
        let took_ns = now_ns.saturating_sub(self.begin_ns);
        if took_ns > LONG_NS {
            tracing::debug!(target: "held_up", step, took_ms = took_ns / 1_000_000, "others waited");
        }
        self.begin_ns = now_ns;
    }
}

impl Owner {
    /// A task with no sessions.
    pub fn new(config: Config, folder: Option<Arc<Folder>>, inbox: Inbox<Command>) -> Self {
        Self {
            config,
            folder,
            inbox,
            running: None,
            sessions: BTreeMap::new(),
            detaching: Vec::new(),
            over: Vec::new(),
            ended: VecDeque::new(),
            to_show: VecDeque::new(),
            shown_ns: 0,
            to_show_for_ns: 0,
            has_named: false,
            edited: Vec::new(),
            names_made: HashMap::new(),
            backlogs: Backlogs::default(),
            earlier: EarlierTables::default(),
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
                    let mut wait_ns = running.next_tick_ns.saturating_sub(monotonic_ns());
                    if self.has_more() || self.can_go_on() {
                        wait_ns = 0;
                    } else if self.is_awaiting() {
                        wait_ns = wait_ns.min(LOOK_NS);
                    }
                    self.inbox.recv_timeout(Duration::from_nanos(wait_ns))
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
                    let (step, mut steps) = (command.name(), Steps::begin());
                    self.serve(command);
                    steps.end(step);
                    let now_ns = monotonic_ns();
                    if let Some(running) = &mut self.running {
                        running.hurry(now_ns);
                    }
                    // Whoever asks all the time does not hold up what others are shown.
                    let late_ns = now_ns.saturating_sub(TICK_NS);
                    self.do_next(late_ns);
                }
                Err(RecvTimeoutError::Timeout) => self.do_next(monotonic_ns()),
                Err(RecvTimeoutError::Disconnected) => {
                    self.end_all("the daemon is stopping");
                    return;
                }
            }
        }
    }

    /// Whether something was begun that is done in parts, between which others ask.
    fn has_more(&self) -> bool {
        !self.to_show.is_empty() || self.has_named
    }

    /// Does what comes next: a part of what was begun, or a tick where one was due at a time, or what waits for others.
    fn do_next(&mut self, due_ns: u64) {
        let is_due = |running: &Running| due_ns >= running.next_tick_ns;
        let has_time = self.to_show.is_empty() || self.to_show_for_ns == 0;
        if has_time && self.running.as_ref().is_some_and(is_due) {
            self.tick(monotonic_ns());
        } else if !self.to_show.is_empty() {
            self.show_some();
        } else if self.has_named {
            self.take_named();
        } else {
            self.go_on();
        }
    }

    fn serve(&mut self, command: Command) {
        match &command {
            // What is still to be shown of the session is of before.
            Command::Replace { caller, name, .. }
            | Command::GiveUpReturns { caller, name, .. }
            | Command::TakeOffChanged { caller, name, .. }
            | Command::Watch { caller, name, .. } => self.show_before(*caller, name),
            _ => {}
        }
        match command {
            Command::Ability { expected, reply } => self.tell_ability(expected, reply),
            Command::CountChildren { caller, pids, reply } => {
                answer(reply, self.count_children(caller, &pids));
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
                let orphan = created
                    .as_ref()
                    .ok()
                    .map(|session| SessionName::meant_by(caller, &session.name));
                if let (Err(_), Some(name)) = (reply.send(created), orphan) {
                    // The client left before it learned the session's name.
                    self.end_session(&name, &Ending::other("its client is gone"));
                }
            }
            Command::Replay { reply, .. } | Command::ReplaceRecorded { reply, .. } => {
                let message = "this service looks at processes, not at a recording: open one by --from FILE";
                answer(reply, Err(SessionError::new(Reason::ArgumentInvalid, message)));
            }
            Command::List { caller, reply } => {
                answer(reply, Ok(self.list(caller)));
            }
            Command::Counted { caller, pids, reply } => answer(reply, Ok(self.counted(caller, &pids))),
            Command::Departures { caller, name, reply } => {
                answer(
                    reply,
                    self.session(caller, &name).map(|session| session.departures()),
                );
            }
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
            } => {
                let replaced = self.replace(caller, &name, revision, edits_undone, *prepared);
                self.answer_attached(caller, &name, replaced, reply);
            }
            Command::GiveUpReturns {
                caller,
                name,
                revision,
                anew,
                reply,
            } => answer(reply, self.give_up_returns(caller, &name, revision, anew)),
            Command::TakeOffChanged {
                caller,
                name,
                changed,
                reply,
            } => answer(reply, self.take_off_changed(caller, &name, &changed)),
            Command::Renew { caller, name, reply } => {
                let now_ns = monotonic_ns();
                answer(
                    reply,
                    self.session(caller, &name).map(|session| session.renew(now_ns)),
                );
            }
            Command::End { caller, name, reply } => {
                let ending = Ending::of(EndCause::Request, ENDED_BY_REQUEST);
                match self.session(caller, &name).map(|session| session.name.clone()) {
                    Ok(name) => self.end_session_and_answer(&name, &ending, Some(reply)),
                    Err(error) => answer(reply, Err(error)),
                }
            }
            Command::Watch {
                caller,
                name,
                request,
            } => request.open(self, caller, &name),
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
            .flat_map(|session| session.counted(caller, &running.engine))
            .collect()
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
            let attendance = Attendance::start().map_err(no_thread)?;
            let now_ns = monotonic_ns();
            tracing::info!(ability = ?engine.ability(), "engine loaded");
            self.running = Some(Running {
                engine,
                admissions: Admissions::default(),
                folder: self.folder.clone(),
                following,
                has_new_tables: false,
                sampler_set_ns: now_ns,
                attendance,
                symbols,
                frames,
                has_names: false,
                opening: Vec::new(),
                measuring: Vec::new(),
                leavers: Vec::new(),
                expected: Vec::new(),
                wanted: Wanted::default(),
                call_costs: HashMap::new(),
                hit_costs: OnceCell::new(),
                keep_until_ns: 0,
                preparations: 0,
                first_records_ns: 0,
                ring_bytes: self.config.engine.ring_bytes,
                pace: Pace::new(self.config.engine.ring_bytes, now_ns),
                turns: CallTurns::default(),
                shares: Shares::default(),
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
        let running = self.running()?;
        running.engine.ready_all();
        running.calibrate(ExitMethod::OF_TARGETS);
        running.hit_costs();
        let sampler = running.engine.ready_sampler();
        sampler.map_err(|error| kernel_refusal(&error))?;
        Ok(())
    }

    fn tell_ability(&mut self, expected: Expected, reply: Reply<Ability>) {
        answer(reply, self.ability());
        if let Some(running) = &mut self.running {
            // While the files are read.
            running.engine.ready(expected);
        }
    }

    fn ability(&mut self) -> Result<Ability, SessionError> {
        let running = self.running()?;
        running.keep(monotonic_ns() + PREPARE_NS);
        Ok(running.engine.ability())
    }

    fn hit_costs(&mut self) -> Result<Option<HitCosts>, SessionError> {
        let running = self.running()?;
        running.keep(monotonic_ns() + PREPARE_NS);
        Ok(running.hit_costs())
    }

    /// The sessions of a caller; of root, all.
    fn list(&self, caller: Caller) -> Vec<SessionInfo> {
        let sessions = self.sessions.values().filter(|session| session.may_use(caller));
        let info = |session: &Session| {
            let mut info = session.info(caller);
            // Who has not been answered yet looks at nothing.
            let unopened = self
                .running
                .as_ref()
                .map_or(0, |running| running.unopened(&session.name));
            info.watchers = info
                .watchers
                .saturating_sub(u32::try_from(unopened).unwrap_or(u32::MAX));
            info
        };
        sessions.map(info).collect()
    }

    fn measure(&mut self, caller: Caller, files: &[MeasuredFile], reply: Reply<Measured>) {
        let pids: Vec<u32> = files.iter().map(|file| file.pid).collect();
        let admitted = self.admit(caller, &pids).and_then(|()| self.running());
        match admitted {
            Ok(running) => {
                running.keep(monotonic_ns() + PREPARE_NS);
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
        running.keep(monotonic_ns() + PREPARE_NS);
        running.has_names = true;
        if running.symbols.side_load(files) {
            return Ok(());
        }
        Err(SessionError::new(
            Reason::LimitReached,
            "too many samples are waiting for their function names: try again",
        ))
    }

    /// Makes the tables to walk these processes' stacks by, for a session that is being made, and looks at their files;
    /// answers when that is done.
    fn follow(&mut self, pids: Vec<u32>, reply: Reply<()>) {
        let now_ns = monotonic_ns();
        let until_ns = now_ns + OPENING_NS;
        let asked = self.running().map(|running| {
            running.keep(until_ns + PREPARE_NS);
            let expected = pids.iter().map(|pid| ExpectedProcess {
                pid: *pid,
                until_ns: until_ns + PREPARE_NS,
            });
            running.expected.extend(expected);
        });
        match (asked.and_then(|()| self.settle_sampler()), &mut self.running) {
            (Ok(()), Some(running)) => {
                let ready = Box::new(move || answer(reply, Ok(())));
                let open = running.symbols.meeting(pids.clone(), ready);
                running
                    .opening
                    .push(Opening::new(pids, until_ns, move |_| open()));
                running.open(&mut self.sessions, now_ns);
            }
            (settled, _) => answer(reply, settled),
        }
    }

    fn session(&mut self, caller: Caller, name: &str) -> Result<&mut Session, SessionError> {
        // A session of somebody else's is not told from one that does not exist.
        let meant = SessionName::meant_by(caller, name);
        let ended = self.ended.iter().rev().find(|ended| ended.name == meant);
        let session = self.sessions.get_mut(&meant);
        session.filter(|session| session.may_use(caller)).ok_or_else(|| {
            let others = if caller.is_root() {
                "; another user's is UID/NAME, as `profiler session list` shows it"
            } else {
                ""
            };
            match ended.filter(|ended| caller.may_use_of(ended.owner)) {
                Some(Ended { ending, .. }) => {
                    let message = format!("session `{name}` has ended: {ending}");
                    let reason = match ending.cause {
                        EndCause::Budget => Reason::SessionOverBudget,
                        _ => Reason::SessionNotFound,
                    };
                    SessionError {
                        ended: Some(ending.clone()),
                        ..SessionError::new(reason, message)
                    }
                }
                None => SessionError::new(
                    Reason::SessionNotFound,
                    format!("there is no session `{name}`: it was never made, or its lease ran out{others}"),
                ),
            }
        })
    }

    /// Notes that a session has ended: whoever comes too late is told why.
    fn note_ended(ended: &mut VecDeque<Ended>, name: &SessionName, session: &Session, ending: &Ending) {
        if ended.len() == MAX_ENDED {
            ended.pop_front();
        }
        ended.push_back(Ended {
            name: name.clone(),
            owner: session.owner(),
            ending: ending.clone(),
        });
    }

    fn unload_if_idle(&mut self) {
        let is_measuring = |running: &Running| !running.measuring.is_empty();
        let is_watched = !self.sessions.is_empty() || self.is_ending();
        if is_watched || self.running.as_ref().is_some_and(is_measuring) {
            return;
        }
        if let Some(running) = self.running.as_ref().filter(|running| running.has_names) {
            if self.earlier.are_all_held() {
                return;
            }
            self.earlier.leave(&running.frames);
        }
        if self.config.keep_loaded && self.running.as_mut().is_some_and(Running::renew_names) {
            return;
        }
        if let Some(running) = self.running.take() {
            for opening in running.opening {
                // They still get the last picture.
                (opening.open)(None);
            }
            memory::give_back_soon();
        }
    }
}
