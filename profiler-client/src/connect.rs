//! Finding the service: a named daemon, the local one, or one within this process.

use std::{
    env, io,
    path::{Path, PathBuf},
    time::Duration,
};

use hyper_util::rt::TokioIo;
use profiler_proto::v1::{
    self, info_service_client::InfoServiceClient, session_service_client::SessionServiceClient,
    target_service_client::TargetServiceClient, view_service_client::ViewServiceClient,
};
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};

use crate::{
    failure::{Failure, FailureClass},
    in_process,
    instance::Made,
    render::escape::terminal,
};

/// Where the local daemon listens, unless `PROFILER_SOCKET` says otherwise.
pub const DEFAULT_SOCKET: &str = "/run/profilerd.sock";

/// A daemon that takes longer than this to answer is taken for none.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Messages are refused above this size, so that a broken daemon cannot exhaust the client. A
/// snapshot of a full latency × stack matrix stays well below.
const MAX_MESSAGE_BYTES: usize = 256 << 20;

/// Which daemon to talk to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// The local daemon if one answers, otherwise one within this process.
    Default,
    /// This socket, and nothing else.
    Socket(PathBuf),
    /// A recording in this file.
    Recording(PathBuf),
    /// One within this process, whether a daemon answers or not.
    InProcess,
    /// Two recordings that are held against each other.
    Comparison {
        /// The one that is looked at.
        after: PathBuf,
        /// The one that it is held against.
        before: PathBuf,
    },
}

/// The service, and where it runs.
#[derive(Clone, Debug)]
pub struct Connection {
    /// For the generated clients.
    pub channel: Channel,
    /// A daemon that outlives this command; otherwise sessions end with it.
    pub daemon: bool,
    /// The recording that it serves, if it does.
    pub recording: Option<PathBuf>,
    made: Made,
}

impl Connection {
    /// What the daemon says of itself and of its machine.
    ///
    /// # Errors
    ///
    /// What it says.
    pub async fn info(&self) -> Result<v1::GetInfoResponse, Failure> {
        let mut client = self.about();
        Ok(client.get_info(v1::GetInfoRequest {}).await?.into_inner())
    }

    /// The machine that is looked at.
    ///
    /// # Errors
    ///
    /// What the daemon says.
    pub async fn host(&self) -> Result<v1::HostInfo, Failure> {
        Ok(self.info().await?.host.unwrap_or_default())
    }

    /// The daemon itself.
    #[must_use]
    pub fn about(&self) -> InfoServiceClient<Channel> {
        InfoServiceClient::new(self.channel.clone())
    }

    /// Sessions.
    #[must_use]
    pub fn sessions(&self) -> SessionServiceClient<Channel> {
        SessionServiceClient::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES)
    }

    /// Processes, and what there is in them.
    #[must_use]
    pub fn targets(&self) -> TargetServiceClient<Channel> {
        TargetServiceClient::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES)
    }

    /// The connections that were made, of which this is the last.
    pub(crate) fn made(&self) -> &Made {
        &self.made
    }

    /// To nothing: every call fails.
    #[must_use]
    pub fn to_nothing() -> Self {
        Self {
            made: Made::default(),
            channel: Endpoint::from_static("http://profilerd.invalid").connect_with_connector_lazy(
                tower::service_fn(|_: Uri| async {
                    Err::<TokioIo<UnixStream>, _>(io::Error::other("there is no service"))
                }),
            ),
            daemon: false,
            recording: None,
        }
    }

    /// The views of sessions.
    #[must_use]
    pub fn views(&self) -> ViewServiceClient<Channel> {
        ViewServiceClient::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES)
    }
}

/// Connects.
///
/// # Errors
///
/// Where a named daemon cannot be reached, or none could be started within this process.
pub async fn connect(host: &Host) -> Result<Connection, Failure> {
    match host {
        Host::Socket(path) => socket(path).await.map_err(|error| unreachable(path, &error)),
        Host::InProcess => Ok(within(in_process::start().await?)),
        Host::Recording(path) => Ok(Connection {
            recording: Some(path.clone()),
            ..within(in_process::of_recording(path).await?)
        }),
        Host::Comparison { after, before } => Ok(Connection {
            recording: Some(after.clone()),
            ..within(in_process::of_comparison(after, before).await?)
        }),
        Host::Default => match socket(&local_socket()).await {
            Ok(connection) => Ok(connection),
            Err(_) => Ok(within(in_process::start().await?)),
        },
    }
}

/// To the service within this process.
fn within(channel: Channel) -> Connection {
    Connection {
        channel,
        daemon: false,
        recording: None,
        made: Made::default(),
    }
}

/// The process of a daemon: that of the socket, or the local one.
///
/// # Errors
///
/// Where none answers.
pub async fn daemon_pid(host: &Host) -> Result<u32, Failure> {
    let path = match host {
        Host::Socket(path) => path.clone(),
        _ => local_socket(),
    };
    let stream = stream(&path).await.map_err(|error| unreachable(&path, &error))?;
    let peer = stream.peer_cred().map_err(|error| unreachable(&path, &error))?;
    let pid = peer
        .pid()
        .and_then(|pid| u32::try_from(pid).ok())
        .filter(|pid| *pid > 0);
    pid.ok_or_else(|| {
        Failure::failed(format!(
            "The daemon at {} runs where its process cannot be seen: in another PID namespace.",
            terminal(&path.to_string_lossy())
        ))
    })
}

fn local_socket() -> PathBuf {
    env::var_os("PROFILER_SOCKET").map_or_else(|| PathBuf::from(DEFAULT_SOCKET), PathBuf::from)
}

/// Refuses what makes no sense without a daemon that stays.
///
/// # Errors
///
/// A failure that says how to get one, where there is none.
pub fn require_daemon(connection: &Connection) -> Result<(), Failure> {
    if connection.daemon {
        return Ok(());
    }
    Err(Failure::failed(format!(
        "Sessions live in a daemon, and none answers at {}: start profilerd, or name one with --host.",
        terminal(&local_socket().to_string_lossy())
    )))
}

async fn stream(path: &Path) -> io::Result<UnixStream> {
    tokio::time::timeout(CONNECT_TIMEOUT, UnixStream::connect(path)).await?
}

/// To a daemon.
async fn socket(path: &Path) -> io::Result<Connection> {
    // One connection is made here and now, so that a dead socket is noticed before anything else. Others take its place once it is
    // lost.
    let mut first = Some(stream(path).await?);
    let path = path.to_owned();
    let made = Made::default();
    let noted = made.clone();
    let connector = tower::service_fn(move |_: Uri| {
        noted.note();
        let (first, path) = (first.take(), path.clone());
        async move {
            let stream = match first {
                Some(first) => first,
                None => stream(&path).await?,
            };
            Ok::<_, io::Error>(TokioIo::new(stream))
        }
    });
    // The address is not used, but HTTP/2 requires one.
    let channel = Endpoint::from_static("http://profilerd.invalid")
        .connect_with_connector(connector)
        .await
        .map_err(io::Error::other)?;
    Ok(Connection {
        channel,
        daemon: true,
        recording: None,
        made,
    })
}

fn unreachable(path: &Path, error: &io::Error) -> Failure {
    let class = match error.kind() {
        io::ErrorKind::PermissionDenied => FailureClass::NotPermitted,
        _ => FailureClass::Failed,
    };
    Failure::new(
        class,
        format!(
            "Cannot reach a daemon at {}: {error}.",
            terminal(&path.to_string_lossy())
        ),
    )
}

#[cfg(test)]
mod tests {
    use tokio::{io::AsyncWriteExt as _, net::UnixListener};

    use super::*;

    /// Settings, and that the connection ends as it came too often.
    const REFUSAL: &[u8] = b"\0\0\0\x04\0\0\0\0\0\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\x0b";

    #[tokio::test]
    async fn a_daemon_that_takes_no_more_connections_is_told_from_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        tokio::spawn(async move {
            let mut held = Vec::new();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                stream.write_all(REFUSAL).await.unwrap();
                held.push(stream);
            }
        });
        let connection = connect(&Host::Socket(path)).await.unwrap();
        let failure = connection.info().await.unwrap_err();
        assert!(failure.message.contains("no more connections"), "{failure}");
    }
}
