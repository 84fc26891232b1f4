//! What can be asked of the session task, and the handle that asks.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        mpsc::{SyncSender, TrySendError},
    },
};

use tokio::sync::{oneshot, watch};

use super::{
    error::{Reason, SessionError},
    picture::{ExitMethod, FlamePicture, FlameVariant, LatencyPicture, SessionInfo},
};
use super::{
    prepare::{self, Prepared},
    state::Terms,
};
use crate::{kernel::Ability, symbolize::SideLoaded};

/// Requests that may wait for the session task; more are refused.
pub const MAX_QUEUED: usize = 256;

/// Who asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caller {
    /// Effective user id, from the socket.
    pub uid: u32,
}

/// What to look at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TargetSpec {
    /// One process.
    Pid(u32),
    /// These processes.
    Pids(Vec<u32>),
    /// Every process that runs an executable: a path, or a name without slashes.
    Executable(String),
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
    /// Length of the sliding window.
    pub window_ns: u64,
    /// Half-life of the exponentially weighted histogram.
    pub half_life_ns: u64,
    /// How long it outlives its last use.
    pub lease_ns: u64,
    /// How the end of a span is seen; `None` for the safest.
    pub exit_method: Option<ExitMethod>,
}

/// A reply that is on its way.
pub(super) type Reply<T> = oneshot::Sender<Result<T, SessionError>>;

/// A request to the session task.
pub(super) enum Command {
    Ability {
        reply: Reply<Ability>,
    },
    SideLoad {
        files: SideLoaded,
        reply: Reply<()>,
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
    Target {
        caller: Caller,
        name: String,
        reply: Reply<(TargetSpec, Option<ExitMethod>)>,
    },
    Replace {
        caller: Caller,
        name: String,
        prepared: Box<Prepared>,
        reply: Reply<SessionInfo>,
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
    WatchLatency {
        caller: Caller,
        name: String,
        interval_ns: u64,
        reply: Reply<watch::Receiver<Option<Arc<LatencyPicture>>>>,
    },
    WatchFlame {
        caller: Caller,
        name: String,
        interval_ns: u64,
        variant: FlameVariant,
        reply: Reply<watch::Receiver<Option<Arc<FlamePicture>>>>,
    },
    Stop {
        reply: oneshot::Sender<()>,
    },
}

/// Asks the session task. Cheap to clone.
#[derive(Clone)]
pub struct Handle {
    pub(super) commands: SyncSender<Command>,
}

impl Handle {
    async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, SessionError> {
        let (reply, answer) = oneshot::channel();
        self.commands
            .try_send(command(reply))
            .map_err(|error| match error {
                TrySendError::Full(_) => SessionError::new(
                    Reason::LimitReached,
                    format!("{MAX_QUEUED} requests are waiting already: try again"),
                ),
                TrySendError::Disconnected(_) => stopping(),
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
        } = request;
        let terms = Terms {
            owner: caller,
            frequency_hz,
            window_ns,
            half_life_ns,
            lease_ns,
            exit_method,
        };
        // Before anything is loaded: what is wrong with the request itself.
        let files = blocking(move || side_loaded(caller, &symbols)).await?;
        let looked_up = blocking(move || prepare::look_up(caller, &target, &scope)).await?;
        // The programs load while the files are read.
        let (ability, read) = tokio::join!(
            self.ask(|reply| Command::Ability { reply }),
            blocking(move || looked_up.read())
        );
        let (ability, read) = (ability?, read?);
        let prepared = Box::new(blocking(move || read.plan(ability, exit_method)).await?);
        if !files.is_empty() {
            self.ask(|reply| Command::SideLoad { files, reply }).await?;
        }
        self.ask(|reply| Command::Attach {
            caller,
            name,
            terms,
            prepared,
            reply,
        })
        .await
    }

    /// Sessions that the caller may use.
    ///
    /// # Errors
    /// Where the task is stopping or overloaded.
    pub async fn list(&self, caller: Caller) -> Result<Vec<SessionInfo>, SessionError> {
        self.ask(|reply| Command::List { caller, reply }).await
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
        let of = name.clone();
        let (target, exit_method) = self
            .ask(|reply| Command::Target {
                caller,
                name: of,
                reply,
            })
            .await?;
        let ability = self.ask(|reply| Command::Ability { reply }).await?;
        let prepared = blocking(move || {
            prepare::look_up(caller, &target, &scope)?
                .read()?
                .plan(ability, exit_method)
        });
        let prepared = Box::new(prepared.await?);
        self.ask(|reply| Command::Replace {
            caller,
            name,
            prepared,
            reply,
        })
        .await
    }

    /// Extends a session's lease; answers with its length in nanoseconds.
    ///
    /// # Errors
    /// Where there is no such session.
    pub async fn renew(&self, caller: Caller, name: String) -> Result<u64, SessionError> {
        self.ask(|reply| Command::Renew { caller, name, reply }).await
    }

    /// Detaches a session. Its streams get a last picture.
    ///
    /// # Errors
    /// Where there is no such session.
    pub async fn end(&self, caller: Caller, name: String) -> Result<(), SessionError> {
        self.ask(|reply| Command::End { caller, name, reply }).await
    }

    /// Pictures of a session's histograms. The latest one wins; dropping the receiver ends it.
    ///
    /// # Errors
    /// Where there is no such session, or it has no spans to time.
    pub async fn watch_latency(
        &self,
        caller: Caller,
        name: String,
        interval_ns: u64,
    ) -> Result<watch::Receiver<Option<Arc<LatencyPicture>>>, SessionError> {
        self.ask(|reply| Command::WatchLatency {
            caller,
            name,
            interval_ns,
            reply,
        })
        .await
    }

    /// Pictures of a session's flame graph. The sampler runs while one of these is open.
    ///
    /// # Errors
    /// Where there is no such session, or the kernel refuses the sampler.
    pub async fn watch_flame(
        &self,
        caller: Caller,
        name: String,
        interval_ns: u64,
        variant: FlameVariant,
    ) -> Result<watch::Receiver<Option<Arc<FlamePicture>>>, SessionError> {
        self.ask(|reply| Command::WatchFlame {
            caller,
            name,
            interval_ns,
            variant,
            reply,
        })
        .await
    }

    /// Detaches everything and ends the task.
    pub async fn stop(&self) {
        let (reply, answer) = oneshot::channel();
        if self.commands.try_send(Command::Stop { reply }).is_ok() {
            // An error means that the task has ended already, which is what was asked for.
            let _ = answer.await;
        }
    }
}

/// Runs what reads files away from the event loop.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SessionError> + Send + 'static,
) -> Result<T, SessionError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| SessionError::new(Reason::Kernel, format!("planning failed: {error}")))?
}

fn stopping() -> SessionError {
    SessionError::new(Reason::Stopping, "the daemon is stopping")
}

/// Lists the files with symbols that a caller names.
fn side_loaded(caller: Caller, paths: &[PathBuf]) -> Result<SideLoaded, SessionError> {
    // The names in a file are shown to the caller, who might not be allowed to read it.
    if !paths.is_empty() && caller.uid != 0 && caller.uid != rustix::process::geteuid().as_raw() {
        return Err(SessionError::new(
            Reason::PermissionDenied,
            "files with symbols can be named only by root or the daemon's own user: run as root",
        ));
    }
    SideLoaded::scan(paths).map_err(|error| SessionError::new(Reason::ArgumentInvalid, error.to_string()))
}
