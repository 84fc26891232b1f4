//! The session that a command looks through, and its end.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use profiler_proto::v1::{self, session_service_client::SessionServiceClient};
use tokio::time::Instant;
use tonic::{Request, Status, transport::Channel};

use crate::{
    connect::Connection,
    failure::Failure,
    render::escape::terminal,
    tries::{Pace, Tried, Tries},
};

/// Attaching thousands of probes to a large program takes seconds; a daemon that needs longer hangs.
const CREATE_DEADLINE: Duration = Duration::from_mins(2);

/// Ends are awaited this long; beyond it the lease does it.
const END_DEADLINE: Duration = Duration::from_secs(5);

/// How they are asked for while there is no connection.
const PACE: Pace = Pace {
    first_wait: Duration::from_millis(100),
    max_wait: Duration::from_millis(100),
    least: Duration::from_millis(100),
};

/// Sessions that were made for this command and have not been ended yet.
#[derive(Clone, Debug, Default)]
pub struct Owned(Arc<Mutex<Vec<Made>>>);

/// A session by its name, and who can end it.
type Made = (SessionServiceClient<Channel>, String);

impl Owned {
    /// Ends them all; each is ended once, however often this is called.
    pub async fn end(&self) {
        let began = Instant::now();
        let sessions = std::mem::take(&mut *self.lock());
        for (mut client, name) in sessions {
            let mut tries = Tries::since(began, END_DEADLINE, PACE);
            // The next try is on a new connection. Nothing is left to do about a failure: the lease ends the session.
            while let Tried::Again = tries.make(end(&mut client, &name)).await {}
        }
    }

    /// Those that there are now, which are no longer among these.
    #[must_use]
    pub fn take(&self) -> Self {
        Self(Arc::new(Mutex::new(std::mem::take(&mut *self.lock()))))
    }

    /// Ends one of them.
    pub async fn end_one(&self, name: &str) {
        let one = {
            let mut sessions = self.lock();
            let at = sessions.iter().position(|(_, session)| session == name);
            at.map(|at| sessions.swap_remove(at))
        };
        if let Some(one) = one {
            Self(Arc::new(Mutex::new(vec![one]))).end().await;
        }
    }

    /// Adds one that was made.
    pub fn add(&self, client: SessionServiceClient<Channel>, name: String) {
        self.lock().push((client, name));
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Made>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn end(client: &mut SessionServiceClient<Channel>, name: &str) -> Result<(), Status> {
    let mut request = Request::new(v1::EndSessionRequest {
        name: name.to_owned(),
    });
    request.set_timeout(END_DEADLINE);
    client.end_session(request).await.map(|_| ())
}

/// Where a view's session comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum SessionChoice {
    /// Made for this command, and ended with it.
    Make(Box<v1::CreateSessionRequest>),
    /// A running one of this name.
    Join(String),
}

impl SessionChoice {
    /// A session of a process, with all else as it is where nothing is asked for.
    #[must_use]
    pub fn of_process(pid: u32, scope: &str) -> Self {
        Self::Make(Box::new(v1::CreateSessionRequest {
            target: Some(v1::Target {
                target: Some(v1::target::Target::Pid(pid)),
            }),
            scope: scope.to_owned(),
            ..v1::CreateSessionRequest::default()
        }))
    }
}

/// A session to watch.
#[derive(Clone, Debug)]
pub struct Attached {
    /// What the daemon says of it.
    pub session: v1::Session,
    /// Whether it was made for this command, and so ends with it.
    pub own: bool,
}

impl Attached {
    /// For how long is looked at what it shows: since then, or the length of a recording's part.
    #[must_use]
    pub fn elapsed(&self, began: Instant) -> Duration {
        recorded_length(&self.session).unwrap_or_else(|| began.elapsed())
    }

    /// Makes the session, or finds the running one.
    ///
    /// # Errors
    ///
    /// What the daemon says; 3 where no session of that name runs.
    pub async fn open(
        connection: &Connection,
        choice: &SessionChoice,
        owned: &Owned,
    ) -> Result<Self, Failure> {
        let mut client = connection.sessions();
        match choice {
            SessionChoice::Make(create) => {
                let session = self::create(&mut client, create).await?;
                owned.add(client, session.name.clone());
                Ok(Self { session, own: true })
            }
            SessionChoice::Join(name) => {
                crate::connect::require_daemon(connection)?;
                let sessions = client
                    .list_sessions(v1::ListSessionsRequest {})
                    .await?
                    .into_inner()
                    .sessions;
                find(sessions, name)
            }
        }
    }
}

/// How long the part of a recording is that a session looks at; `None` of a process.
#[must_use]
pub fn recorded_length(session: &v1::Session) -> Option<Duration> {
    session
        .recorded
        .and_then(|length| Duration::try_from(length).ok())
}

/// How long a session outlives its last stream.
#[must_use]
pub fn lease(session: &v1::Session) -> Duration {
    let told = session.lease.and_then(|lease| Duration::try_from(lease).ok());
    told.unwrap_or(Duration::ZERO)
}

/// Makes a session.
///
/// # Errors
///
/// What the daemon says.
pub async fn create(
    client: &mut SessionServiceClient<Channel>,
    create: &v1::CreateSessionRequest,
) -> Result<v1::Session, Failure> {
    let mut request = Request::new(create.clone());
    request.set_timeout(CREATE_DEADLINE);
    let response = client.create_session(request).await?.into_inner();
    response
        .session
        .ok_or_else(|| Failure::failed("The daemon made a session and did not describe it."))
}

fn find(sessions: Vec<v1::Session>, name: &str) -> Result<Attached, Failure> {
    let names: Vec<String> = sessions
        .iter()
        .map(|session| terminal(&session.name).into_owned())
        .collect();
    match sessions.into_iter().find(|session| session.name == name) {
        Some(session) => Ok(Attached { session, own: false }),
        None => Err(Failure::not_found(if names.is_empty() {
            format!("No session `{}`: the daemon has none.", terminal(name))
        } else {
            format!(
                "No session `{}`; there are: {}.",
                terminal(name),
                names.join(", ")
            )
        })),
    }
}
