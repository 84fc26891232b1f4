//! The same pictures, made of a recording: its sessions look at a part of its time, and each view of theirs has one picture,
//! the last.
//!
//! | file | idea |
//! |---|---|
//! | `around` | percentiles of the steps around others |
//! | `asked` | which of the recorded steps a scope asks for |
//! | `begun` | what is known of a part when its session is made |
//! | `compare` | two ways through recordings in one picture |
//! | `counters` | counters over time |
//! | `counts` | what was counted of probes, added up |
//! | `explain` | what slow calls do that others do not |
//! | `hits` | which of the recorded hits are shown |
//! | `named` | a recorded sample as one that was just named |
//! | `named_counts` | what became of records on their way, by name |
//! | `part` | a part of a recording's time |
//! | `play` | one way through the recording |
//! | `question` | what a way through the recording is for |
//! | `spans` | the slowest calls |
//! | `syscalls` | system calls, and who makes them |
//! | `taken` | losses, what is missing, and where the part ends, of waits and of slow calls |
//! | `summed` | which questions a minute's sums answer |
//! | `waiting` | what is drawn on waits in flame graphs |
//! | `waits` | who was waited for |
//!
//! See `docs/internals/recordings.md` for how a recording is made and queried.

mod around;
mod asked;
mod begun;
mod compare;
mod counters;
mod counts;
mod explain;
mod hits;
mod named;
mod named_counts;
mod part;
mod play;
mod question;
mod spans;
mod summed;
mod syscalls;
mod taken;
mod waiting;
mod waits;

use std::{collections::BTreeMap, fs::File, io, path::Path, sync::Arc};

use profiler_debug_files::Reader;
use profiler_recording::{Cut, MAX_CHUNKS};
use profiler_scope::Scope;
use profiler_symbolize::Grouping;

pub use self::asked::AskedStep;
#[cfg(test)]
pub use self::counts::RecordedCounts;
use self::{
    begun::Begun,
    part::{AskedAges, Part},
    play::Played,
    question::Question,
};
use super::{
    Handle, Library, Turns,
    command::{Command, Editable, RecordedTime, TargetSpec},
    departures::Departures,
    error::{Reason, SessionError},
    inbox::{Inbox, inbox},
    picture::{ExplainPicture, FlamePicture, FlameRequest, FlameTimes, LatencyPicture, SessionInfo},
    refusal::scope_refusal,
    running::answer,
    spans::{SpansPicture, SpansRequest},
    state::{MAX_HISTORY, Terms},
    system_calls::SyscallsPicture,
    timeline::{Leaves, TimelineBucket, TimelineRequest},
    trace::TraceBatch,
    waits::WaitsPicture,
    watchers::{self, Pictures},
};
pub use summed::{SummedSteps, of as summed_steps};

pub use crate::recording::OpenError;
use crate::{kernel::Event, recording::Recording};

/// Starts the task that serves a recording.
///
/// # Errors
/// Where it is none, cannot be read, or a thread cannot be made.
pub fn replay(path: &Path) -> Result<Handle, OpenError> {
    serve(path, Recording::open(path)?, None)
}

/// Starts the task that serves a recording, and holds it against one before; the two may be the same.
///
/// # Errors
/// As [`replay`], of either.
pub fn compare(path: &Path, before: &Path) -> Result<Handle, OpenError> {
    let before = Recording::open(before)?;
    serve(path, Recording::open(path)?, Some(before))
}

/// Asks a recording in an open file for pictures with each of these scopes, and leaves them: files that nobody wrote must not
/// hold up or end who opens them (`fuzz/`).
///
/// # Errors
/// Where it is no recording, or holds nothing.
pub fn ask_all(file: File, scopes: &[&str]) -> Result<(), OpenError> {
    let mut recording = Recording::of(file, Path::new("a file"))?;
    let part = Part {
        begin_ns: recording.begin_ns(),
        end_ns: u64::MAX,
        ages: AskedAges::default(),
    };
    let event = Event::parse("page-faults", None, 0).map(FlameTimes::Event);
    let flames = [Some(FlameTimes::OnCpu), Some(FlameTimes::OffCpu), event];
    let flames = flames.map(|times| Question::Flame(FlameRequest::of(Grouping::Function, times)));
    for scope in scopes {
        let scope = profiler_scope::parse(scope).ok();
        let spans = SpansRequest {
            number: 10,
            waits: true,
            system_calls: false,
        };
        let with_waits = Question::Flame(FlameRequest {
            waits: true,
            ..FlameRequest::of(Grouping::Function, Some(FlameTimes::Both))
        });
        let others = [
            with_waits,
            Question::Latency,
            Question::Trace,
            Question::Spans(spans),
        ];
        for question in flames.into_iter().chain(others) {
            let Ok(mut played) = play::play(&mut recording, scope.as_ref(), part, question, &|| true) else {
                continue;
            };
            let _ = match question {
                Question::Flame(request) => played.flame(request).map(|_| ()),
                Question::Latency => played.latency().map(|_| ()),
                Question::Trace => played.trace().map(|_| ()),
                Question::Spans(_) => played.slowest().map(|_| ()),
            };
        }
        let request = TimelineRequest {
            counters: Vec::new(),
            step_ns: 1_000_000_000,
            threads: false,
        };
        let _ = counters::timeline(&mut recording, scope.as_ref(), part, &request, &|| true);
        let _ = waits::waits(&mut recording, scope.as_ref(), part, &|| true);
        let _ = syscalls::syscalls(&mut recording, scope.as_ref(), part, Grouping::Function, &|| true);
        let _ = explain::explain(&mut recording, scope.as_ref(), part, &|| true);
    }
    Ok(())
}

fn serve(path: &Path, recording: Recording, before: Option<Recording>) -> Result<Handle, OpenError> {
    let (commands, inbox) = inbox();
    let player = Player {
        recording,
        before,
        inbox,
        sessions: BTreeMap::new(),
        names_made: 0,
        flames: Vec::new(),
    };
    std::thread::Builder::new()
        .name("recording".to_owned())
        .spawn(move || player.run())
        .map_err(|source| OpenError::Open {
            path: path.to_owned(),
            source,
        })?;
    Ok(Handle {
        commands,
        library: Library::new(None),
        quotas: None,
        turns: Turns::new(),
        look_ups: Turns::to_look_up(),
        side_file_reader: Reader::OWN,
        leaves: Leaves::default(),
    })
}

/// Flame graphs that are kept: one with a comparison, and one without.
const MAX_FLAMES: usize = 2;

/// A session of a recording.
struct Replayed {
    target: TargetSpec,
    /// As it was asked for; `None` for the recorded one.
    scope: Option<Scope>,
    parts: Parts,
    info: SessionInfo,
    /// Texts of the scopes before, the latest last.
    history: Vec<Arc<str>>,
    /// Grows with each edit.
    revision: u64,
}

/// The parts of recordings that a session looks at.
#[derive(Clone, Copy)]
struct Parts {
    of: Part,
    /// Of the recording before, where it is compared.
    before: Option<Part>,
}

impl Replayed {
    /// What an edit of its scope begins with.
    fn editable(&self) -> Editable {
        let scope = self.scope.clone();
        Editable {
            target: self.target.clone(),
            exit_method: None,
            capture: None,
            scope: scope
                .or_else(|| profiler_scope::parse(&self.info.scope).ok())
                .unwrap_or_default(),
            history: self.history.clone(),
            budget: None,
            revision: self.revision,
        }
    }
}

/// The task.
pub struct Player {
    recording: Recording,
    /// What it is compared with.
    before: Option<Recording>,
    inbox: Inbox<Command>,
    sessions: BTreeMap<String, Replayed>,
    names_made: u64,
    /// The flame graphs that were asked for last, the latest last.
    flames: Vec<KeptFlame>,
}

/// A flame graph, which is divided anew where only durations are asked for that are others.
struct KeptFlame {
    key: FlameKey,
    played: Played,
}

/// What was asked for, but for the scope.
#[derive(Clone, Copy, PartialEq)]
struct FlameKey {
    part: Part,
    request: FlameRequest,
    /// The scope was the recorded one: an edit of its durations ends what is shown.
    is_as_recorded: bool,
}

impl Player {
    fn run(mut self) {
        while let Ok(command) = self.inbox.recv() {
            if let Command::Stop { reply } = command {
                // Nobody may be waiting for the answer.
                let _ = reply.send(());
                return;
            }
            self.serve(command);
        }
    }

    fn serve(&mut self, command: Command) {
        match command {
            Command::Replay {
                name,
                terms,
                scope,
                time,
                before,
                reply,
            } => answer(reply, self.open(name, &terms, &scope, time, before)),
            Command::List { reply, .. } => {
                let sessions = self.sessions.values().map(|session| session.info.clone());
                answer(reply, Ok(sessions.collect()));
            }
            Command::Counted { reply, .. } => answer(reply, Ok(Vec::new())),
            Command::Departures { reply, .. } => answer(reply, Ok(Departures::default())),
            Command::Renew { name, reply, .. } => {
                answer(reply, self.session(&name).map(|session| session.info.lease_ns));
            }
            Command::End { name, reply, .. } => {
                let ended = self.session(&name).map(|_| ());
                self.sessions.remove(&name);
                answer(reply, ended);
            }
            Command::Watch { name, request, .. } => request.replay(self, &name),
            Command::Ability { reply, .. } => answer(reply, Err(not_recorded())),
            Command::SideLoad { reply, .. }
            | Command::Follow { reply, .. }
            | Command::TakeOffChanged { reply, .. }
            | Command::GiveUpReturns { reply, .. } => {
                answer(reply, Err(not_recorded()));
            }
            Command::CountChildren { reply, .. } => answer(reply, Err(not_recorded())),
            Command::HitCosts { reply } => answer(reply, Err(not_recorded())),
            Command::Measure { reply, .. } => answer(reply, Err(not_recorded())),
            Command::Attach { reply, .. } | Command::Replace { reply, .. } => {
                answer(reply, Err(not_recorded()));
            }
            Command::Target { name, reply, .. } => {
                answer(reply, self.session(&name).map(Replayed::editable));
            }
            Command::ReplaceRecorded {
                name,
                revision,
                edits_undone,
                scope,
                reply,
            } => answer(reply, self.replace(&name, revision, edits_undone, &scope)),
            Command::Stop { .. } => unreachable!("`run` takes it"),
        }
    }

    fn session(&self, name: &str) -> Result<&Replayed, SessionError> {
        self.sessions.get(name).ok_or_else(|| {
            let message = format!("there is no session `{name}` of this recording");
            SessionError::new(Reason::SessionNotFound, message)
        })
    }

    /// Makes a session. Whether its scope was recorded is known when this returns.
    fn open(
        &mut self,
        name: String,
        terms: &Terms,
        scope: &str,
        time: RecordedTime,
        before: Option<RecordedTime>,
    ) -> Result<SessionInfo, SessionError> {
        if self.sessions.contains_key(&name) {
            let message = format!("a session `{name}` exists already");
            return Err(SessionError::new(Reason::SessionExists, message));
        }
        if terms.capture.is_some() {
            return Err(not_recorded());
        }
        let scope = match scope.trim() {
            "" => time.without_scope.then(Scope::default),
            _ => Some(read_scope(scope)?),
        };
        let ages = AskedAges {
            window_ns: terms.window_ns,
            half_life_ns: terms.half_life_ns,
        };
        let of = part(&self.recording, time, ages)?;
        let (target, before) = match before {
            None => (TargetSpec::Recording(time), None),
            Some(before) => {
                let recording = self.before.as_ref().ok_or_else(nothing_to_compare)?;
                let part = part(recording, before, ages)?;
                let after = time;
                (TargetSpec::Comparison { after, before }, Some(part))
            }
        };
        self.names_made += 1;
        let name = if name.is_empty() {
            format!("r{}", self.names_made)
        } else {
            name
        };
        let parts = Parts { of, before };
        let info = self.look(name.clone(), scope.as_ref(), parts, terms.lease_ns)?;
        let session = Replayed {
            target,
            scope,
            parts,
            info: info.clone(),
            history: Vec::new(),
            revision: 0,
        };
        self.sessions.insert(name, session);
        Ok(info)
    }

    /// Gives a session another scope. Its views are over, and are opened anew.
    fn replace(
        &mut self,
        name: &str,
        revision: u64,
        edits_undone: usize,
        scope: &str,
    ) -> Result<SessionInfo, SessionError> {
        let session = self.session(name)?;
        if session.revision != revision {
            let message = "the session's scope was changed meanwhile";
            return Err(SessionError::new(Reason::ScopeChanged, message));
        }
        let (parts, lease_ns) = (session.parts, session.info.lease_ns);
        let scope = if scope.trim().is_empty() {
            Scope::default()
        } else {
            read_scope(scope)?
        };
        let info = self.look(name.to_owned(), Some(&scope), parts, lease_ns)?;
        if let Some(session) = self.sessions.get_mut(name) {
            if edits_undone > 0 {
                let kept = session.history.len().saturating_sub(edits_undone);
                session.history.truncate(kept);
            } else if session.info.scope != info.scope {
                if session.history.len() == MAX_HISTORY {
                    session.history.remove(0);
                }
                session.history.push(session.info.scope.as_str().into());
            }
            session.scope = Some(scope);
            session.info = info.clone();
            session.revision += 1;
        }
        Ok(info)
    }

    /// What a session is that looks at parts of the recordings with this scope.
    fn look(
        &mut self,
        name: String,
        scope: Option<&Scope>,
        parts: Parts,
        lease_ns: u64,
    ) -> Result<SessionInfo, SessionError> {
        let (begun, length_ns) = begin(&mut self.recording, scope, parts.of)?;
        let mut warnings = begun.warnings.clone();
        let mut recorded_before_ns = None;
        if let Some(part) = parts.before {
            let recording = self.before.as_mut().ok_or_else(nothing_to_compare)?;
            let (before, length_ns) = begin(recording, scope, part)?;
            warnings.extend(compare::warnings(&begun, &before)?);
            recorded_before_ns = Some(length_ns);
        }
        Ok(SessionInfo {
            name,
            scope: begun.scope,
            pids: begun.pids,
            sites: Vec::new(),
            perf_links: false,
            warnings,
            frequency_hz: begun.frequency_hz,
            lease_ns,
            watchers: 0,
            recorded_ns: Some(length_ns),
            recorded_before_ns,
            recorded_begin_ns: self.recording.begin_ns(),
        })
    }

    /// What was counted of the calls of a session.
    ///
    /// # Errors
    /// Where there is no such session, it compares, or the recording cannot be read.
    pub fn latency(
        &mut self,
        name: &str,
        is_awaited: &dyn Fn() -> bool,
    ) -> Result<Pictures<LatencyPicture>, SessionError> {
        let (scope, part) = self.part_of(name, "latency")?;
        let scope = scope.as_ref();
        let mut played = play::play(&mut self.recording, scope, part, Question::Latency, is_awaited)?;
        Ok(watchers::single(played.latency()?))
    }

    /// The hits of a session.
    ///
    /// # Errors
    /// Where there is no such session, it compares, or hits were not recorded or cannot be read.
    pub fn trace(
        &mut self,
        name: &str,
        is_awaited: &dyn Fn() -> bool,
    ) -> Result<tokio::sync::mpsc::Receiver<TraceBatch>, SessionError> {
        let (scope, part) = self.part_of(name, "hits")?;
        play::play(
            &mut self.recording,
            scope.as_ref(),
            part,
            Question::Trace,
            is_awaited,
        )?
        .trace()
    }

    /// The counters over time of a session.
    ///
    /// # Errors
    /// Where there is no such session, it compares, or they were not recorded or cannot be read.
    pub fn timeline(
        &mut self,
        name: &str,
        request: &TimelineRequest,
        is_awaited: &dyn Fn() -> bool,
    ) -> Result<tokio::sync::mpsc::Receiver<TimelineBucket>, SessionError> {
        let (scope, part) = self.part_of(name, "timeline")?;
        counters::timeline(&mut self.recording, scope.as_ref(), part, request, is_awaited)
    }

    /// Who the threads of a session waited for.
    ///
    /// # Errors
    /// Where there is no such session, it compares, or that was not recorded or cannot be read.
    pub fn waits(
        &mut self,
        name: &str,
        is_awaited: &dyn Fn() -> bool,
    ) -> Result<Pictures<WaitsPicture>, SessionError> {
        let (scope, part) = self.part_of(name, "waits")?;
        waits::waits(&mut self.recording, scope.as_ref(), part, is_awaited)
    }

    /// The system calls of a session, by who makes them.
    ///
    /// # Errors
    /// Where there is no such session, it compares, or they were not recorded or cannot be read.
    pub fn syscalls(
        &mut self,
        name: &str,
        by: Grouping,
        is_awaited: &dyn Fn() -> bool,
    ) -> Result<Pictures<SyscallsPicture>, SessionError> {
        let (scope, part) = self.part_of(name, "system calls")?;
        syscalls::syscalls(&mut self.recording, scope.as_ref(), part, by, is_awaited)
    }

    /// What slow calls of a session do that others do not.
    ///
    /// # Errors
    /// Where there is no such session, it compares, its scope does not say which calls are slow, or it cannot be read.
    pub fn explain(
        &mut self,
        name: &str,
        is_awaited: &dyn Fn() -> bool,
    ) -> Result<Pictures<ExplainPicture>, SessionError> {
        let (scope, part) = self.part_of(name, "explanation")?;
        explain::explain(&mut self.recording, scope.as_ref(), part, is_awaited)
    }

    /// The slowest calls of a session.
    ///
    /// # Errors
    /// Where there is no such session, it compares, it has no calls, or it cannot be read.
    pub fn spans(
        &mut self,
        name: &str,
        request: SpansRequest,
        is_awaited: &dyn Fn() -> bool,
    ) -> Result<Pictures<SpansPicture>, SessionError> {
        if request.system_calls {
            let message = "recordings have how many system calls were made in a quarter of a second, by all calls together, and not \
                           which call made them: leave --syscalls out; `profiler syscalls --from` shows those of all calls";
            return Err(SessionError::new(Reason::ArgumentInvalid, message));
        }
        let recorded = self.session(name)?.info.scope.clone();
        let (scope, part) = self.part_of(name, "slowest calls")?;
        // The recorded scope is asked as if it was named, unless its outer percentiles would be others than the session's.
        let named = || profiler_scope::parse(&recorded).ok();
        let scope = scope.or_else(|| named().filter(|scope| around::moves(scope).is_none()));
        play::play(
            &mut self.recording,
            scope.as_ref(),
            part,
            Question::Spans(request),
            is_awaited,
        )?
        .slowest()
    }

    /// What a session looks at that shows one recording.
    ///
    /// # Errors
    /// Where there is no such session, or it compares two.
    fn part_of(&self, name: &str, view: &str) -> Result<(Option<Scope>, Part), SessionError> {
        let Replayed { scope, parts, .. } = self.session(name)?;
        if parts.before.is_some() {
            let message = format!(
                "two recordings can only be compared as a flame graph: show the {view} of each by itself"
            );
            return Err(SessionError::new(Reason::ArgumentInvalid, message));
        }
        Ok((scope.clone(), parts.of))
    }

    /// The flame graph of a session.
    ///
    /// # Errors
    /// Where there is no such session, or the recording cannot be read or asked so.
    pub fn flame(
        &mut self,
        name: &str,
        request: FlameRequest,
        is_awaited: &dyn Fn() -> bool,
    ) -> Result<Pictures<FlamePicture>, SessionError> {
        let Replayed { scope, parts, .. } = self.session(name)?;
        let (scope, Parts { of: part, before }) = (scope.clone(), *parts);
        request.check()?;
        if let (Some(part_before), Some(recording_before)) = (before, &mut self.before) {
            let request = FlameRequest {
                // What is compared needs observations.
                difference: true,
                ..request
            };
            request.check()?;
            let question = Question::Flame(request);
            let scope = scope.as_ref();
            let played = play::play(&mut self.recording, scope, part, question, is_awaited)?;
            let before = play::play(recording_before, scope, part_before, question, is_awaited);
            let before = before.map_err(|error| SessionError {
                message: format!("before: {}", error.message),
                ..error
            })?;
            return compare::picture(played, before, request);
        }
        let key = FlameKey {
            part,
            request,
            is_as_recorded: scope.is_none(),
        };
        let known = self.flames.iter().position(|flame| flame.key == key);
        let known = known.map(|at| self.flames.remove(at).played);
        // What counts once is refused of some scopes.
        let known = known.filter(|_| !request.unique);
        let known = known.and_then(|mut played| played.ask_again(scope.as_ref()).then_some(played));
        let mut played = match known {
            Some(played) => played,
            None => play::play(
                &mut self.recording,
                scope.as_ref(),
                part,
                Question::Flame(request),
                is_awaited,
            )?,
        };
        let pictures = played.flame(request);
        if self.flames.len() == MAX_FLAMES {
            self.flames.remove(0);
        }
        self.flames.push(KeptFlame { key, played });
        pictures
    }
}

/// Reads a scope's text.
fn read_scope(text: &str) -> Result<Scope, SessionError> {
    profiler_scope::parse(text).map_err(|error| scope_refusal(&error))
}

/// Refuses a comparison of one recording.
fn nothing_to_compare() -> SessionError {
    let message = "there is no other recording to compare with";
    SessionError::new(Reason::ArgumentInvalid, message)
}

/// A part of a recording's time.
///
/// # Errors
/// Where it begins behind the end.
fn part(recording: &Recording, time: RecordedTime, ages: AskedAges) -> Result<Part, SessionError> {
    let length_ns = recording.end_ns().saturating_sub(recording.begin_ns());
    if time.begin_ns >= length_ns && length_ns > 0 {
        let message = format!(
            "the recording is only {:.3} s long: it has nothing after {:.3} s",
            seconds(length_ns),
            seconds(time.begin_ns)
        );
        return Err(SessionError::new(Reason::ArgumentInvalid, message));
    }
    Ok(Part {
        begin_ns: recording.begin_ns().saturating_add(time.begin_ns),
        end_ns: recording.begin_ns().saturating_add(time.end_ns),
        ages,
    })
}

/// What is known of a part, and how long it is.
fn begin(recording: &mut Recording, scope: Option<&Scope>, part: Part) -> Result<(Begun, u64), SessionError> {
    let mut begun = begun::begin(recording, scope, part)?;
    if let Some(Cut { bytes, too_many, .. }) = recording.cut() {
        let reason = if too_many {
            format!("it is read up to {MAX_CHUNKS} chunks; record a long time in several files")
        } else {
            "it was cut off while they were written, or they are damaged".to_owned()
        };
        begun.warnings.push(format!(
            "the last {bytes} bytes of the recording are left out: {reason}"
        ));
    }
    let length_ns = part.end_ns.min(recording.end_ns()).saturating_sub(begun.begin_ns);
    Ok((begun, length_ns))
}

/// Refuses a view that needs the process itself.
pub fn not_recorded() -> SessionError {
    SessionError::new(
        Reason::ArgumentInvalid,
        "a recording has flame graphs, latency, the slowest calls and why calls were slow, and the hits, counters, waits and system calls that were asked for: for other views, run the command on the process itself",
    )
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// A recording that can be read no further.
fn unreadable(error: &io::Error) -> SessionError {
    SessionError::new(Reason::Kernel, format!("reading the recording: {error}"))
}

impl Handle {
    /// Makes a session of a recording; of a service that serves one.
    pub(super) async fn create_replay(
        &self,
        name: String,
        terms: Terms,
        scope: String,
        time: RecordedTime,
        before: Option<RecordedTime>,
    ) -> Result<SessionInfo, SessionError> {
        self.ask(terms.owner, |reply| Command::Replay {
            name,
            terms,
            scope,
            time,
            before,
            reply,
        })
        .await
    }
}
