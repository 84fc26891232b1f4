//! The same pictures, made of a recording: its sessions look at a part of its time, and each view of theirs has one picture,
//! the last.
//!
//! | file | idea |
//! |---|---|
//! | `asked` | which of the recorded steps a scope asks for |
//! | `compare` | two ways through recordings in one picture |
//! | `counts` | what was counted of probes, added up |
//! | `play` | one way through the recording |
//! | `summed` | which questions a minute's sums answer |
//!
//! See `docs/internals/recordings.md` for how a recording is made and queried.

mod asked;
mod compare;
mod counts;
mod play;
mod summed;

use std::{
    collections::BTreeMap,
    io,
    path::Path,
    sync::{
        Arc,
        mpsc::{self, Receiver},
    },
};

use profiler_scope::Scope;
use tokio::sync::watch;

use self::play::{AskedAges, Begun, Part, Played, Question};
use super::{
    Handle, Library, MAX_QUEUED, Turns,
    command::{Command, RecordedTime},
    error::{Reason, SessionError},
    picture::{FlamePicture, FlameRequest, LatencyPicture, SessionInfo},
    refusal::scope_refusal,
    running::answer,
    state::Terms,
    watchers::Watchers,
};
pub use summed::{SummedSteps, of as summed_steps};

pub use crate::recording::OpenError;
use crate::recording::Recording;

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

fn serve(path: &Path, recording: Recording, before: Option<Recording>) -> Result<Handle, OpenError> {
    let (commands, inbox) = mpsc::sync_channel(MAX_QUEUED);
    let player = Player {
        recording,
        before,
        inbox,
        sessions: BTreeMap::new(),
        names_made: 0,
        last: None,
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
        turns: Turns::new(),
    })
}

/// A session of a recording.
struct Replayed {
    /// As it was asked for; `None` for the recorded one.
    scope: Option<Scope>,
    part: Part,
    /// Of the recording before, where it is compared.
    before: Option<Part>,
    info: SessionInfo,
}

/// The task.
pub struct Player {
    recording: Recording,
    /// What it is compared with.
    before: Option<Recording>,
    inbox: Receiver<Command>,
    sessions: BTreeMap<String, Replayed>,
    names_made: u64,
    /// The flame graph that was made last.
    last: Option<LastFlame>,
}

/// A flame graph, which is divided anew where only durations are asked for that are others.
struct LastFlame {
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
            | Command::GiveUpReturns { reply, .. } => {
                answer(reply, Err(not_recorded()));
            }
            Command::HitCosts { reply } => answer(reply, Err(not_recorded())),
            Command::Measure { reply, .. } => answer(reply, Err(not_recorded())),
            Command::Attach { reply, .. } | Command::Replace { reply, .. } => {
                answer(reply, Err(not_recorded()));
            }
            Command::Target { reply, .. } => answer(reply, Err(not_recorded())),
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
        let scope = if scope.trim().is_empty() {
            None
        } else {
            let scope = profiler_scope::parse(scope).map_err(|error| scope_refusal(&error))?;
            Some(scope)
        };
        let ages = AskedAges {
            window_ns: terms.window_ns,
            half_life_ns: terms.half_life_ns,
        };
        let part = part(&self.recording, time, ages)?;
        self.names_made += 1;
        let name = if name.is_empty() {
            format!("r{}", self.names_made)
        } else {
            name
        };
        let (begun, length_ns) = begin(&mut self.recording, scope.as_ref(), part)?;
        let mut warnings = begun.warnings.clone();
        let mut compared = None;
        if let Some(time) = before {
            let Some(before) = &mut self.before else {
                let message = "there is no other recording to compare with";
                return Err(SessionError::new(Reason::ArgumentInvalid, message));
            };
            let part = self::part(before, time, ages)?;
            let (begun_before, length_ns) = begin(before, scope.as_ref(), part)?;
            warnings.extend(compare::warnings(&begun, &begun_before)?);
            compared = Some((part, length_ns));
        }
        let info = SessionInfo {
            name: name.clone(),
            scope: begun.scope,
            pids: begun.pids,
            sites: Vec::new(),
            perf_links: false,
            warnings,
            frequency_hz: begun.frequency_hz,
            lease_ns: terms.lease_ns,
            watchers: 0,
            recorded_ns: Some(length_ns),
            recorded_before_ns: compared.map(|(_, length_ns)| length_ns),
        };
        let session = Replayed {
            scope,
            part,
            before: compared.map(|(part, _)| part),
            info: info.clone(),
        };
        self.sessions.insert(name, session);
        Ok(info)
    }

    /// What was counted of the calls of a session.
    ///
    /// # Errors
    /// Where there is no such session, it compares, or the recording cannot be read.
    pub fn latency(
        &mut self,
        name: &str,
    ) -> Result<watch::Receiver<Option<Arc<LatencyPicture>>>, SessionError> {
        let Replayed {
            scope, part, before, ..
        } = self.session(name)?;
        if before.is_some() {
            let message =
                "two recordings can only be compared as a flame graph: show the latency of each by itself";
            return Err(SessionError::new(Reason::ArgumentInvalid, message));
        }
        let (scope, part) = (scope.clone(), *part);
        let mut played = play::play(&mut self.recording, scope.as_ref(), part, Question::Latency)?;
        if played.has_no_recent_slow_call() {
            played = play::play(&mut self.recording, scope.as_ref(), part, Question::SlowestCalls)?;
        }
        let mut watchers = Watchers::default();
        let receiver = watchers.add((), 0, 0);
        let picture = played.latency()?;
        watchers.publish(0, true, |(), seq| {
            Some(LatencyPicture {
                seq,
                ..picture.clone()
            })
        });
        Ok(receiver)
    }

    /// The flame graph of a session.
    ///
    /// # Errors
    /// Where there is no such session, or the recording cannot be read or asked so.
    pub fn flame(
        &mut self,
        name: &str,
        request: FlameRequest,
    ) -> Result<watch::Receiver<Option<Arc<FlamePicture>>>, SessionError> {
        let Replayed {
            scope, part, before, ..
        } = self.session(name)?;
        let (scope, part, before) = (scope.clone(), *part, *before);
        request.check()?;
        if let (Some(part_before), Some(recording_before)) = (before, &mut self.before) {
            let question = Question::Flame(FlameRequest {
                // What is compared needs observations.
                difference: true,
                ..request
            });
            let played = play::play(&mut self.recording, scope.as_ref(), part, question)?;
            let before = play::play(recording_before, scope.as_ref(), part_before, question)?;
            return compare::picture(played, before, request);
        }
        let key = FlameKey {
            part,
            request,
            is_as_recorded: scope.is_none(),
        };
        let last = self.last.take().filter(|last| last.key == key);
        let last = last.and_then(|mut last| last.played.ask_again(scope.as_ref()).then_some(last.played));
        let mut played = match last {
            Some(played) => played,
            None => play::play(
                &mut self.recording,
                scope.as_ref(),
                part,
                Question::Flame(request),
            )?,
        };
        let pictures = played.flame(request);
        self.last = Some(LastFlame { key, played });
        pictures
    }
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
    let mut begun = play::begin(recording, scope, part)?;
    let cut_off = recording.bytes_cut_off();
    if cut_off > 0 {
        begun.warnings.push(format!(
            "the last {cut_off} bytes of the recording are left out: it was cut off while they were written, or they are damaged"
        ));
    }
    let length_ns = part.end_ns.min(recording.end_ns()).saturating_sub(begun.begin_ns);
    Ok((begun, length_ns))
}

/// Refuses a view that needs the process itself.
pub fn not_recorded() -> SessionError {
    SessionError::new(
        Reason::ArgumentInvalid,
        "a recording has flame graphs and latency: for other views, run the command on the process itself",
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
        self.ask(|reply| Command::Replay {
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
