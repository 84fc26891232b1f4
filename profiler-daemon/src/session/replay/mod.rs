//! The same pictures, made of a recording: its sessions look at a part of its time, and each view of theirs has one picture,
//! the last.
//!
//! | file | idea |
//! |---|---|
//! | `asked` | which of the recorded steps a scope asks for |
//! | `counts` | what was counted of probes, added up |
//! | `play` | one way through the recording |

mod asked;
mod counts;
mod play;

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

use self::play::{AskedAges, Part, Played};
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
pub use crate::recording::OpenError;
use crate::recording::Recording;

/// Starts the task that serves a recording.
///
/// # Errors
/// Where it is none, cannot be read, or a thread cannot be made.
pub fn replay(path: &Path) -> Result<Handle, OpenError> {
    let recording = Recording::open(path)?;
    let (commands, inbox) = mpsc::sync_channel(MAX_QUEUED);
    let player = Player {
        recording,
        inbox,
        sessions: BTreeMap::new(),
        names_made: 0,
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
    info: SessionInfo,
}

/// The task.
struct Player {
    recording: Recording,
    inbox: Receiver<Command>,
    sessions: BTreeMap<String, Replayed>,
    names_made: u64,
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
                reply,
            } => answer(reply, self.open(name, &terms, &scope, time)),
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
            Command::WatchLatency { name, reply, .. } => answer(reply, self.latency(&name)),
            Command::WatchFlame {
                name, request, reply, ..
            } => answer(reply, self.flame(&name, request)),
            Command::Ability { reply, .. } => answer(reply, Err(not_recorded())),
            Command::SideLoad { reply, .. } | Command::Follow { reply, .. } => {
                answer(reply, Err(not_recorded()));
            }
            Command::HitCosts { reply } => answer(reply, Err(not_recorded())),
            Command::Measure { reply, .. } => answer(reply, Err(not_recorded())),
            Command::Attach { reply, .. } | Command::Replace { reply, .. } => {
                answer(reply, Err(not_recorded()));
            }
            Command::Target { reply, .. } => answer(reply, Err(not_recorded())),
            Command::WatchExplain { reply, .. } => answer(reply, Err(not_recorded())),
            Command::WatchTrace { reply, .. } => answer(reply, Err(not_recorded())),
            Command::WatchSpans { reply, .. } => answer(reply, Err(not_recorded())),
            Command::WatchTimeline { reply, .. } => answer(reply, Err(not_recorded())),
            Command::WatchWaits { reply, .. } => answer(reply, Err(not_recorded())),
            Command::WatchSyscalls { reply, .. } => answer(reply, Err(not_recorded())),
            Command::WatchRecords { reply, .. } => answer(reply, Err(not_recorded())),
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
        let part = Part {
            begin_ns: self.recording.begin_ns().saturating_add(time.begin_ns),
            end_ns: self.recording.begin_ns().saturating_add(time.end_ns),
            ages: AskedAges {
                window_ns: terms.window_ns,
                half_life_ns: terms.half_life_ns,
            },
        };
        let length_ns = self.recording.end_ns().saturating_sub(self.recording.begin_ns());
        if time.begin_ns >= length_ns && length_ns > 0 {
            let message = format!(
                "the recording is {:.3} s long: there is nothing from {:.3} s on",
                seconds(length_ns),
                seconds(time.begin_ns)
            );
            return Err(SessionError::new(Reason::ArgumentInvalid, message));
        }
        self.names_made += 1;
        let name = if name.is_empty() {
            format!("r{}", self.names_made)
        } else {
            name
        };
        let begun = play::begin(&mut self.recording, scope.as_ref(), part)?;
        let mut warnings = begun.warnings;
        let cut_off = self.recording.bytes_cut_off();
        if cut_off > 0 {
            warnings.push(format!(
                "the last {cut_off} bytes of the recording are left out: it was cut off while they were written, or they are damaged"
            ));
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
            recorded_ns: Some(
                part.end_ns
                    .min(self.recording.end_ns())
                    .saturating_sub(begun.begin_ns),
            ),
        };
        let session = Replayed {
            scope,
            part,
            info: info.clone(),
        };
        self.sessions.insert(name, session);
        Ok(info)
    }

    fn latency(&mut self, name: &str) -> Result<watch::Receiver<Option<Arc<LatencyPicture>>>, SessionError> {
        let Replayed { scope, part, .. } = self.session(name)?;
        let (scope, part) = (scope.clone(), *part);
        let played = self.play(scope.as_ref(), part, None)?;
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

    fn flame(
        &mut self,
        name: &str,
        request: FlameRequest,
    ) -> Result<watch::Receiver<Option<Arc<FlamePicture>>>, SessionError> {
        let Replayed { scope, part, .. } = self.session(name)?;
        let (scope, part) = (scope.clone(), *part);
        request.check()?;
        let mut played = self.play(scope.as_ref(), part, Some(request))?;
        played.flame(request)
    }

    fn play(
        &mut self,
        scope: Option<&Scope>,
        part: Part,
        flame: Option<FlameRequest>,
    ) -> Result<Played, SessionError> {
        play::play(&mut self.recording, scope, part, flame)
    }
}

/// Refuses what recordings do not have.
fn not_recorded() -> SessionError {
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
    ) -> Result<SessionInfo, SessionError> {
        self.ask(|reply| Command::Replay {
            name,
            terms,
            scope,
            time,
            reply,
        })
        .await
    }
}
