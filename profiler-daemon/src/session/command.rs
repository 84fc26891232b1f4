//! What can be asked of the session task, and the handle that asks.

use std::{path::PathBuf, sync::Arc};

use profiler_debug_files::{Reader, Rights, SideLoaded};
use profiler_scope::{Scope, expression::Expression};
use profiler_target::Process;
use tokio::sync::oneshot;

use super::{
    calibrate::HitCosts,
    children_before::ChildrenCount,
    counted::Counted,
    departures::Departures,
    error::{Reason, SessionError},
    inbox::{Refused, Requests},
    picture::{ExitMethod, SessionInfo},
    quotas::{Allowed, Quotas, admit_frequency},
    state::views::Request,
    timeline::Leaves,
    turns::{Turn, Turns},
};
use super::{
    census::CommandLines,
    estimate::{Estimate, Looks},
    late_code::{LookedAfter, PlannedAnew},
    library::Library,
    measure::{Measured, MeasuredFile},
    prepare::{self, How, Prepared, Read},
    probed_code::{ChangedCode, Watched},
    state::Terms,
};
use crate::kernel::{Ability, AttachKind, Expected};

/// Times that an edit is made again because the scope was changed meanwhile.
const MAX_RETRIES: usize = 8;

/// Who asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caller {
    /// Effective user id, from the socket.
    pub uid: u32,
    /// Effective group id, from the socket.
    pub gid: u32,
}

impl Caller {
    /// Whether it may look at every process.
    #[must_use]
    pub fn is_root(self) -> bool {
        self.uid == 0
    }

    /// Whether it may use a session that another has made: root, and its own user, by whatever group.
    #[must_use]
    pub fn may_use_of(self, owner: Self) -> bool {
        self.is_root() || self.uid == owner.uid
    }

    /// The rights with which files are read for it: its user's, with the supplementary groups of others, be they a process's.
    #[must_use]
    pub fn rights(self, groups_of: Rights) -> Rights {
        groups_of.with_user(self.uid, self.gid)
    }

    /// Who reads files for it by no supplementary groups; for root that is the daemon itself.
    #[must_use]
    pub fn reader(self) -> Reader {
        Reader::process(self.rights(Rights::nobody()))
    }
}

/// What to look at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TargetSpec {
    /// One process.
    Pid(u32),
    /// Those of these processes that have not ended.
    Pids(Vec<u32>),
    /// These processes, each of which there has to be.
    Each(Vec<u32>),
    /// Every process that runs an executable: a path, or a name without slashes.
    Executable(String),
    /// What was recorded in a part of its time.
    Recording(RecordedTime),
    /// What was recorded in a part of one recording, held against a part of another.
    Comparison {
        /// Of the one that is looked at.
        after: RecordedTime,
        /// Of the one that it is held against.
        before: RecordedTime,
    },
}

impl TargetSpec {
    /// Whether it is of recordings, and not of processes.
    fn is_recorded(&self) -> bool {
        matches!(self, Self::Recording(_) | Self::Comparison { .. })
    }
}

/// A part of a recording, since its beginning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordedTime {
    /// From when, in nanoseconds.
    pub begin_ns: u64,
    /// Until when; `u64::MAX` for its end.
    pub end_ns: u64,
    /// An empty scope is none, as of a process, and not the recorded one.
    pub without_scope: bool,
}

/// What is recorded of each hit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Capture {
    /// Expressions whose values are read where a line is reached.
    pub print: Vec<Expression>,
    /// Hits recorded in a second at each place, at most.
    pub hits_per_second: u32,
    /// With the thread's stack.
    pub stack: bool,
    /// What becomes of them.
    pub purpose: Purpose,
}

/// What becomes of the hits and calls that are recorded.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Purpose {
    /// They are shown as they happen.
    #[default]
    Shown,
    /// Calls are divided by the first value.
    Divided,
    /// What slow calls do that others do not is looked for.
    Explained,
}

impl Capture {
    /// Whether anything of the thread is read.
    #[must_use]
    pub fn reads(&self) -> bool {
        self.stack || !self.print.is_empty()
    }

    /// The expression by whose value calls are divided, if they are.
    #[must_use]
    pub fn divides_by(&self) -> Option<&Expression> {
        self.print.first().filter(|_| self.purpose == Purpose::Divided)
    }
}

/// A new session.
#[derive(Clone, Debug)]
pub struct NewSession {
    /// Its name; empty for one made up.
    pub name: String,
    /// What to look at.
    pub target: TargetSpec,
    /// Scope text.
    pub scope: String,
    /// Samples per second and CPU.
    pub frequency_hz: u32,
    /// Length of the sliding window; of a recording, 0 for that which it was recorded with.
    pub window_ns: u64,
    /// Half-life of the exponentially weighted histogram; of a recording, 0 as above.
    pub half_life_ns: u64,
    /// How long it outlives its last use.
    pub lease_ns: u64,
    /// How the end of a span is seen; `None` for the safest.
    pub exit_method: Option<ExitMethod>,
    /// What is recorded of each hit; `None` where they are only counted.
    pub capture: Option<Capture>,
    /// What slow calls do that others do not is looked for; the scope then stays as it is.
    pub explain: bool,
    /// Who allocates memory is remembered, to tell what locks on a heap belong to.
    pub allocations: bool,
    /// Share of the target's CPU time that probes may take; `None` where that is not bounded.
    pub budget: Option<f64>,
}

/// A change of a scope.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ScopeEdit {
    /// Another scope in its place.
    Set(String),
    /// Steps behind the last one.
    Append(String),
    /// So many steps less, from the end.
    Drop(usize),
    /// So many edits taken back.
    Undo(usize),
}

/// What is estimated instead of done.
#[derive(Clone, Debug)]
pub enum Estimated {
    /// A new session.
    New(Box<NewSession>),
    /// An edit of a running session's scope.
    Edit {
        /// The session's name.
        name: String,
        /// The edit.
        edit: ScopeEdit,
    },
}

/// What an edit of a session's scope begins with.
#[derive(Clone, Debug)]
pub(super) struct Editable {
    pub target: TargetSpec,
    pub exit_method: Option<ExitMethod>,
    pub capture: Option<Capture>,
    pub scope: Scope,
    /// Texts of the scopes before, the latest last.
    pub history: Vec<Arc<str>>,
    /// Share of the target's CPU time that probes may take; `None` where that is not bounded.
    pub budget: Option<f64>,
    /// Grows with each edit.
    pub revision: u64,
}

impl Editable {
    /// How another scope in its place is planned.
    pub fn how(&self) -> How {
        How {
            exit_method: self.exit_method,
            capture: self.capture.clone(),
            ..How::default()
        }
    }
}

impl ScopeEdit {
    /// The scope's text after it, and the number of edits that it takes back.
    fn apply(&self, editable: &Editable) -> Result<(String, usize), SessionError> {
        let cannot = |message: String| Err(SessionError::new(Reason::ArgumentInvalid, message));
        let steps = editable.scope.steps.len();
        match self {
            Self::Set(text) => Ok((text.clone(), 0)),
            Self::Append(text) if text.trim().is_empty() => cannot("there is no step to append".to_owned()),
            Self::Append(text) if steps == 0 => Ok((text.clone(), 0)),
            Self::Append(text) => {
                let text = text.trim();
                let behind = text.strip_prefix('/').unwrap_or(text);
                Ok((format!("{}/{behind}", editable.scope), 0))
            }
            Self::Drop(count) if *count > steps => cannot(format!(
                "the scope has {steps} steps, not {count}: {}",
                editable.scope
            )),
            Self::Drop(count) => {
                let mut scope = editable.scope.clone();
                scope.steps.truncate(steps - count);
                Ok((scope.to_string(), 0))
            }
            Self::Undo(count) => {
                let edits = editable.history.len();
                match edits.checked_sub(*count).map(|at| &editable.history[at..]) {
                    Some([text, ..]) => Ok((text.to_string(), *count)),
                    Some([]) => Ok((editable.scope.to_string(), 0)),
                    None => cannot(format!(
                        "{edits} edits of this scope can be taken back, not {count}"
                    )),
                }
            }
        }
    }
}

/// A reply that is on its way.
pub(super) type Reply<T> = oneshot::Sender<Result<T, SessionError>>;

/// A request to the session task.
pub(super) enum Command {
    /// What the kernel is able to do; and what is about to be attached.
    Ability {
        expected: Expected,
        reply: Reply<Ability>,
    },
    /// Children of processes are counted from now on; what was counted until now.
    CountChildren {
        caller: Caller,
        pids: Vec<u32>,
        reply: Reply<Vec<ChildrenCount>>,
    },
    SideLoad {
        files: SideLoaded,
        reply: Reply<()>,
    },
    HitCosts {
        reply: Reply<Option<HitCosts>>,
    },
    Measure {
        caller: Caller,
        files: Vec<MeasuredFile>,
        reply: Reply<Measured>,
    },
    Follow {
        pids: Vec<u32>,
        reply: Reply<()>,
    },
    /// A session of a recording.
    Replay {
        name: String,
        terms: Terms,
        scope: String,
        time: RecordedTime,
        /// Of the other recording, where two are compared.
        before: Option<RecordedTime>,
        reply: Reply<SessionInfo>,
    },
    Attach {
        caller: Caller,
        name: String,
        terms: Terms,
        prepared: Box<Prepared>,
        reply: Reply<SessionInfo>,
    },
    List {
        caller: Caller,
        reply: Reply<Vec<SessionInfo>>,
    },
    Counted {
        caller: Caller,
        pids: Vec<u32>,
        reply: Reply<Vec<Counted>>,
    },
    Target {
        caller: Caller,
        name: String,
        reply: Reply<Editable>,
    },
    /// The processes that have left a session, and those that will.
    Departures {
        caller: Caller,
        name: String,
        reply: Reply<Departures>,
    },
    Replace {
        caller: Caller,
        name: String,
        /// The scope that it is prepared in the place of.
        revision: u64,
        edits_undone: usize,
        prepared: Box<Prepared>,
        reply: Reply<SessionInfo>,
    },
    /// Another scope of a session of a recording.
    ReplaceRecorded {
        name: String,
        /// The scope that it is in the place of.
        revision: u64,
        edits_undone: usize,
        scope: String,
        reply: Reply<SessionInfo>,
    },
    /// The same scope was planned for the code that its processes have by now.
    GiveUpReturns {
        caller: Caller,
        name: String,
        /// Of the scope.
        revision: u64,
        anew: PlannedAnew,
        reply: Reply<()>,
    },
    /// The code of some of its probes was changed by the target.
    TakeOffChanged {
        caller: Caller,
        name: String,
        changed: ChangedCode,
        reply: Reply<()>,
    },
    Renew {
        caller: Caller,
        name: String,
        reply: Reply<u64>,
    },
    End {
        caller: Caller,
        name: String,
        reply: Reply<()>,
    },
    /// A view of a session.
    Watch {
        caller: Caller,
        name: String,
        request: Box<dyn Request>,
    },
    Stop {
        reply: oneshot::Sender<()>,
    },
}

impl Command {
    /// What it asks for, for the log.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Ability { .. } => "ability",
            Self::CountChildren { .. } => "count_children",
            Self::SideLoad { .. } => "side_load",
            Self::HitCosts { .. } => "hit_costs",
            Self::Measure { .. } => "measure",
            Self::Follow { .. } => "follow",
            Self::Replay { .. } => "replay",
            Self::Attach { .. } => "attach",
            Self::List { .. } => "list",
            Self::Counted { .. } => "counted",
            Self::Target { .. } => "target",
            Self::Departures { .. } => "departures",
            Self::Replace { .. } => "replace",
            Self::ReplaceRecorded { .. } => "replace_recorded",
            Self::GiveUpReturns { .. } => "give_up_returns",
            Self::TakeOffChanged { .. } => "take_off_changed",
            Self::Renew { .. } => "renew",
            Self::End { .. } => "end",
            Self::Watch { .. } => "watch",
            Self::Stop { .. } => "stop",
        }
    }
}

/// Asks the session task. Cheap to clone.
#[derive(Clone)]
pub struct Handle {
    pub(super) commands: Requests<Command>,
    pub(super) library: Library,
    pub(super) turns: Turns,
    pub(super) look_ups: Turns,
    pub(super) leaves: Leaves,
    /// `None` where there are no probes: of recordings.
    pub(super) quotas: Option<Quotas>,
    /// Who reads the files with symbols that root names.
    pub(super) side_file_reader: Reader,
}

impl Handle {
    /// What a caller may have at once; `None` of recordings.
    #[must_use]
    pub fn allowed(&self, caller: Caller) -> Option<Allowed> {
        Some(self.quotas?.allowed(caller))
    }

    /// The command lines of processes.
    #[must_use]
    pub fn command_lines(&self) -> &CommandLines {
        self.library.command_lines()
    }

    /// Has a caller's request read files, when it is its turn: with what is known of them.
    ///
    /// # Errors
    /// Those of the work, and where too many requests of the caller wait.
    pub async fn read<T: Send + 'static>(
        &self,
        caller: Caller,
        work: impl FnOnce(&Library) -> Result<T, SessionError> + Send + 'static,
    ) -> Result<T, SessionError> {
        let turn = self.turns.take(caller).await?;
        let library = self.library.clone();
        blocking(move || {
            let done = work(&library);
            // Not before the work is done, be it that nobody waits for it any more.
            drop(turn);
            done
        })
        .await
    }

    /// Has the session task serve a caller's command.
    pub(super) async fn ask<T>(
        &self,
        caller: Caller,
        command: impl FnOnce(Reply<T>) -> Command,
    ) -> Result<T, SessionError> {
        let (reply, answer) = oneshot::channel();
        let put = self.commands.put(caller.uid, command(reply));
        put.map_err(|refused| match refused {
            Refused::TooMany(most) => SessionError::new(
                Reason::LimitReached,
                format!("{most} requests are waiting already: try again"),
            ),
            Refused::Closed => stopping(),
        })?;
        answer.await.map_err(|_| stopping())?
    }

    /// Attaches a scope to a target. When it answers, every probe is live.
    ///
    /// # Errors
    /// Where scope, target or kernel refuse; nothing stays attached.
    pub async fn create(&self, caller: Caller, request: NewSession) -> Result<SessionInfo, SessionError> {
        self.create_with_symbols(caller, request, Vec::new()).await
    }

    /// The same with files with symbols, and folders of such, for the target's modules.
    ///
    /// # Errors
    /// As for [`Self::create`], and where a path leads to no such file or the caller may not name any.
    pub async fn create_with_symbols(
        &self,
        caller: Caller,
        request: NewSession,
        symbols: Vec<PathBuf>,
    ) -> Result<SessionInfo, SessionError> {
        let NewSession {
            name,
            target,
            scope,
            frequency_hz,
            window_ns,
            half_life_ns,
            lease_ns,
            exit_method,
            capture,
            explain,
            allocations,
            budget,
        } = request;
        let mut terms = Terms {
            owner: caller,
            frequency_hz,
            window_ns,
            half_life_ns,
            lease_ns,
            exit_method,
            capture: capture.clone(),
            budget,
            returns: Arc::default(),
            codes: Arc::default(),
            leaves: self.leaves.clone(),
        };
        let recorded = match target {
            TargetSpec::Recording(time) => Some((time, None)),
            TargetSpec::Comparison { after, before } => Some((after, Some(before))),
            TargetSpec::Pid(_) | TargetSpec::Pids(_) | TargetSpec::Each(_) | TargetSpec::Executable(_) => {
                None
            }
        };
        if let Some((time, before)) = recorded {
            return self.create_replay(name, terms, scope, time, before).await;
        }
        // Before anything is loaded: what is wrong with the request itself.
        admit_frequency(caller, frequency_hz)?;
        let reader = self.side_file_reader.clone();
        let files = blocking(move || side_loaded(caller, &symbols, &reader)).await?;
        let how = How {
            exit_method,
            capture,
            explain,
            allocations,
        };
        let (mut prepared, ability) = self.prepare(caller, target, scope, how).await?;
        if let Some(explain) = &prepared.explain {
            terms.capture = Some(explain.capture.clone());
        }
        if !files.is_empty() {
            self.ask(caller, |reply| Command::SideLoad { files, reply })
                .await?;
        }
        // The tables to walk stacks by are there when the first is taken.
        if allocations || terms.capture.as_ref().is_some_and(|capture| capture.stack) {
            let pids = prepared.processes.iter().map(Process::pid).collect();
            self.ask(caller, |reply| Command::Follow { pids, reply }).await?;
        }
        self.warn_of_children(caller, &mut prepared).await;
        let prepared = Box::new(prepared);
        let (returns, codes) = (Arc::downgrade(&terms.returns), Arc::downgrade(&terms.codes));
        let attach = self.ask(caller, |reply| Command::Attach {
            caller,
            name,
            terms,
            prepared,
            reply,
        });
        let created = attach.await?;
        tokio::spawn(self.clone().watch_code(Watched {
            caller,
            name: created.name.clone(),
            codes,
        }));
        // Where programs do the returns themselves, there are no return probes but by the user's choice.
        if !ability.write_context && exit_method.is_none() {
            tokio::spawn(self.clone().look_after(LookedAfter {
                caller,
                name: created.name.clone(),
                returns,
            }));
        }
        Ok(created)
    }

    /// Plans a scope, while the programs load.
    pub(super) async fn prepare(
        &self,
        caller: Caller,
        target: TargetSpec,
        scope: String,
        how: How,
    ) -> Result<(Prepared, Ability), SessionError> {
        let (read, ability, turn) = self.read_target(caller, target, scope, &how).await?;
        let prepared = blocking(move || {
            let prepared = read.plan(ability, &how);
            // Not before that is done, be it that nobody waits for it any more.
            drop(turn);
            prepared
        });
        Ok((prepared.await?, ability))
    }

    /// Reads the files that a scope is planned by, while the programs load; with the turn of who asks, to be kept until it is planned.
    pub(super) async fn read_target(
        &self,
        caller: Caller,
        target: TargetSpec,
        scope: String,
        how: &How,
    ) -> Result<(Read, Ability, Arc<Turn>), SessionError> {
        let library = self.library.clone();
        let turn = self.look_ups.take(caller).await?;
        let look_up = move || {
            let looked_up = prepare::look_up(caller, &target, &scope, &library);
            drop(turn);
            looked_up
        };
        let mut looked_up = blocking(look_up).await?;
        if how.capture.is_none() {
            looked_up.time_last();
        }
        let turn = Arc::new(self.turns.take(caller).await?);
        let (library, reading) = (self.library.clone(), Arc::clone(&turn));
        let captures = how.capture.as_ref().map(Capture::reads);
        let expected = looked_up.expected(captures.or(how.explain.then_some(true)));
        let allocations = how.allocations;
        let pids = looked_up.processes.iter().map(Process::pid).collect();
        // The programs load while the files are read, and then count the children that begin meanwhile.
        let (loaded, read) = tokio::join!(
            async {
                let ability = self.ask(caller, |reply| Command::Ability { expected, reply });
                let ability = ability.await?;
                Ok::<_, SessionError>((ability, self.count_children(caller, pids).await))
            },
            blocking(move || {
                let read = looked_up.read(&library, allocations);
                drop(reading);
                read
            })
        );
        let (mut read, (ability, children)) = (read?, loaded?);
        read.children = children;
        Ok((read, ability, turn))
    }

    /// Says what a new session, or an edit of one, would attach and cost, and attaches nothing but probes that only count, for a
    /// moment, where hits are measured.
    ///
    /// # Errors
    /// As for [`Self::create`] and [`Self::edit_scope`], and where hits of so many places cannot be counted for a moment.
    pub async fn estimate(
        &self,
        caller: Caller,
        of: Estimated,
        looks: Looks,
    ) -> Result<Estimate, SessionError> {
        let (target, scope, how, budget) = match of {
            Estimated::New(new) => {
                let NewSession {
                    target,
                    scope,
                    exit_method,
                    capture,
                    explain,
                    allocations,
                    budget,
                    ..
                } = *new;
                let how = How {
                    exit_method,
                    capture,
                    explain,
                    allocations,
                };
                (target, scope, how, budget)
            }
            Estimated::Edit { name, edit } => {
                let editable = self
                    .ask(caller, |reply| Command::Target { caller, name, reply })
                    .await?;
                let (scope, _) = edit.apply(&editable)?;
                let how = editable.how();
                (editable.target, scope, how, editable.budget)
            }
        };
        let (mut prepared, ability) = self.prepare(caller, target, scope, how).await?;
        self.warn_of_children(caller, &mut prepared).await;
        let perf_links = ability.attach == AttachKind::Perf;
        let mut estimate = self.estimate_of(caller, prepared, perf_links, looks).await?;
        estimate.warn_of_costs(budget);
        Ok(estimate)
    }

    /// Sessions that the caller may use.
    ///
    /// # Errors
    /// Where the task is stopping or overloaded.
    pub async fn list(&self, caller: Caller) -> Result<Vec<SessionInfo>, SessionError> {
        self.ask(caller, |reply| Command::List { caller, reply }).await
    }

    /// The processes that have left a session, and those that will while it is looked at.
    ///
    /// # Errors
    /// Where there is no such session.
    pub async fn departures(&self, caller: Caller, name: String) -> Result<Departures, SessionError> {
        self.ask(caller, |reply| Command::Departures { caller, name, reply })
            .await
    }

    /// What sessions that the caller may use have counted at places of some processes.
    ///
    /// # Errors
    /// Where the task is stopping or overloaded.
    pub async fn counted(&self, caller: Caller, pids: Vec<u32>) -> Result<Vec<Counted>, SessionError> {
        self.ask(caller, |reply| Command::Counted { caller, pids, reply })
            .await
    }

    /// Replaces the scope of a running session.
    ///
    /// # Errors
    /// As for [`Self::create`]; the session then goes on as it was.
    pub async fn set_scope(
        &self,
        caller: Caller,
        name: String,
        scope: String,
    ) -> Result<SessionInfo, SessionError> {
        self.edit_scope(caller, name, ScopeEdit::Set(scope)).await
    }

    /// Changes the scope of a running session.
    ///
    /// # Errors
    /// As for [`Self::create`], or where there are not so many steps or edits; the session then goes on as it was.
    pub async fn edit_scope(
        &self,
        caller: Caller,
        name: String,
        edit: ScopeEdit,
    ) -> Result<SessionInfo, SessionError> {
        let mut retries = 0..MAX_RETRIES;
        loop {
            let of = name.clone();
            let editable = self
                .ask(caller, |reply| Command::Target {
                    caller,
                    name: of,
                    reply,
                })
                .await?;
            let (scope, edits_undone) = edit.apply(&editable)?;
            let how = editable.how();
            let Editable { target, revision, .. } = editable;
            let name = name.clone();
            let replaced = if target.is_recorded() {
                self.ask(caller, |reply| Command::ReplaceRecorded {
                    name,
                    revision,
                    edits_undone,
                    scope,
                    reply,
                })
                .await
            } else {
                let (mut prepared, _) = self.prepare(caller, target, scope, how).await?;
                // How many begin is said while it goes on.
                prepared.warn_of_running_children();
                let prepared = Box::new(prepared);
                self.ask(caller, |reply| Command::Replace {
                    caller,
                    name,
                    revision,
                    edits_undone,
                    prepared,
                    reply,
                })
                .await
            };
            match replaced {
                // Somebody else's edit came first: this one is made of what that has left.
                Err(error) if error.reason == Reason::ScopeChanged && retries.next().is_some() => {}
                replaced => return replaced,
            }
        }
    }

    /// Extends a session's lease; answers with its length in nanoseconds.
    ///
    /// # Errors
    /// Where there is no such session.
    pub async fn renew(&self, caller: Caller, name: String) -> Result<u64, SessionError> {
        self.ask(caller, |reply| Command::Renew { caller, name, reply })
            .await
    }

    /// Detaches a session. Its streams get a last picture.
    ///
    /// # Errors
    /// Where there is no such session.
    pub async fn end(&self, caller: Caller, name: String) -> Result<(), SessionError> {
        self.ask(caller, |reply| Command::End { caller, name, reply })
            .await
    }

    /// Detaches everything and ends the task.
    pub async fn stop(&self) {
        let (reply, answer) = oneshot::channel();
        if self.commands.put_own(Command::Stop { reply }).is_ok() {
            // An error means that the task has ended already, which is what was asked for.
            let _ = answer.await;
        }
    }
}

/// Runs what reads files away from the event loop.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SessionError> + Send + 'static,
) -> Result<T, SessionError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| SessionError::new(Reason::Kernel, format!("reading the target failed: {error}")))?
}

fn stopping() -> SessionError {
    SessionError::new(Reason::Stopping, "the daemon is stopping")
}

/// Lists the files with symbols that a caller names.
fn side_loaded(caller: Caller, paths: &[PathBuf], reader: &Reader) -> Result<SideLoaded, SessionError> {
    // The names in a file are shown to the caller, who might not be allowed to read it.
    if !paths.is_empty() && caller.uid != 0 && caller.uid != rustix::process::geteuid().as_raw() {
        return Err(SessionError::new(
            Reason::PermissionDenied,
            "files with symbols can be named only by root or the daemon's own user: run as root",
        ));
    }
    SideLoaded::scan(paths, reader).map_err(|error| {
        let error = error.to_string();
        if *reader == Reader::OWN {
            return SessionError::new(Reason::ArgumentInvalid, error);
        }
        let message = format!(
            "{error} (the daemon names other users' code by such files too, so it reads those alone that everybody may read: let \
             everybody read it and its folders, or leave --host out)"
        );
        SessionError::new(Reason::ArgumentInvalid, message)
    })
}
