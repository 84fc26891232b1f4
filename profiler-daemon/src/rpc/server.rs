//! The service on a Unix socket, or within this process.

use std::{
    io,
    os::unix::fs::{FileTypeExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use futures_util::{StreamExt as _, stream};
use hyper_util::rt::TokioIo;
use profiler_proto::v1::{
    DESCRIPTORS, info_service_server::InfoServiceServer, session_service_server::SessionServiceServer,
    target_service_server::TargetServiceServer, view_service_server::ViewServiceServer,
};
use tokio::net::{UnixListener, UnixStream};
use tonic::{
    Request, Status,
    service::interceptor::InterceptedService,
    transport::{Channel, Endpoint, Server, Uri, server::Router},
};

use super::{
    arguments, connections,
    info::{Info, Served},
    sessions::Sessions,
    targets::Targets,
    views::Views,
    watches::Watches,
};
use crate::session::{self, Handle, Reason, SessionError};

/// Requests that one connection may have under way.
const MAX_CONCURRENT_STREAMS: u32 = 64;

/// Bytes of a request: what it names waits until all of it is there, or while its client does not read.
const MAX_REQUEST_BYTES: usize = 64 << 10;

/// Time between keepalive probes of a connection, and how long an answer may take.
const KEEPALIVE: Duration = Duration::from_secs(20);

/// The service could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The socket cannot be made.
    #[error("listening on {path}: {source}", path = path.display())]
    Listen {
        /// Where.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Another daemon is listening there.
    #[error("another daemon is listening on {0}: stop it, or choose another socket with --socket")]
    InUse(PathBuf),
    /// The transport failed.
    #[error("serving: {0}")]
    Transport(#[from] tonic::transport::Error),
    /// The reflection service refused the protocol's description.
    #[error("reflection: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
    /// A recording cannot be opened.
    #[error(transparent)]
    Recording(#[from] session::RecordingError),
    /// A thread or a connection within the process could not be made.
    #[error("starting: {0}")]
    Start(#[from] io::Error),
}

async fn router(handle: &Handle, watches: Watches, served: Served) -> Result<Router, ServerError> {
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_serving::<SessionServiceServer<Sessions>>().await;
    reporter.set_serving::<ViewServiceServer<Views>>().await;
    reporter.set_serving::<TargetServiceServer<Targets>>().await;
    reporter.set_serving::<InfoServiceServer<Info>>().await;
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()?;
    Ok(Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE))
        .max_concurrent_streams(MAX_CONCURRENT_STREAMS)
        .add_service(health)
        .add_service(InterceptedService::new(reflection, of_root))
        .add_service({
            let info = Info::new(handle.clone(), served);
            InfoServiceServer::new(info).max_decoding_message_size(MAX_REQUEST_BYTES)
        })
        .add_service({
            let sessions = Sessions(handle.clone());
            SessionServiceServer::new(sessions).max_decoding_message_size(MAX_REQUEST_BYTES)
        })
        .add_service({
            let views = Views::new(handle.clone(), watches);
            ViewServiceServer::new(views).max_decoding_message_size(MAX_REQUEST_BYTES)
        })
        .add_service({
            let targets = Targets::new(handle.clone());
            TargetServiceServer::new(targets).max_decoding_message_size(MAX_REQUEST_BYTES)
        }))
}

/// Lets root's requests through. Users' tools have the description from the repository, and no quota counts what answering
/// takes.
fn of_root(request: Request<()>) -> Result<Request<()>, Status> {
    if arguments::caller(&request)?.is_root() {
        return Ok(request);
    }
    let message = "reflection is for root: the service is described in proto/ of the repository";
    Err(SessionError::new(Reason::PermissionDenied, message).into())
}

/// Listens on a Unix socket until `stop` completes; then refuses new requests and lets streams end.
///
/// `listening` is called once clients can connect.
///
/// # Errors
/// Where the socket cannot be made, or another daemon has it.
pub async fn serve(
    handle: &Handle,
    socket: &Path,
    mode: u32,
    listening: impl FnOnce(),
    stop: impl Future<Output = ()>,
) -> Result<(), ServerError> {
    let listener = listen(socket, mode).await?;
    listening();
    let watches = Watches::new(handle.clone());
    let stop = {
        let watches = watches.clone();
        async move {
            stop.await;
            // Those without a view would keep their connections.
            watches.close();
        }
    };
    let served = router(handle, watches, Served::Processes)
        .await?
        .serve_with_incoming_shutdown(connections::incoming(listener), stop)
        .await;
    // A socket that is gone already is what was wanted.
    let _ = std::fs::remove_file(socket);
    Ok(served?)
}

/// Makes the socket. Its mode is set before anyone can connect: it is bound under another name, and
/// renamed when it is ready.
async fn listen(path: &Path, mode: u32) -> Result<UnixListener, ServerError> {
    let fail = |source| ServerError::Listen {
        path: path.to_owned(),
        source,
    };
    if let Ok(metadata) = std::fs::symlink_metadata(path) {
        if !metadata.file_type().is_socket() {
            return Err(fail(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "the path is taken by a file that is not a socket",
            )));
        }
        if UnixStream::connect(path).await.is_ok() {
            return Err(ServerError::InUse(path.to_owned()));
        }
    }
    let mut hidden = path.as_os_str().to_owned();
    hidden.push(format!(".{}", std::process::id()));
    let hidden = PathBuf::from(hidden);
    // A leftover of a daemon that was killed.
    let _ = std::fs::remove_file(&hidden);
    let listener = UnixListener::bind(&hidden).map_err(fail)?;
    std::fs::set_permissions(&hidden, std::fs::Permissions::from_mode(mode)).map_err(fail)?;
    std::fs::rename(&hidden, path).map_err(fail)?;
    Ok(listener)
}

/// The service within this process.
pub struct InProcess {
    channel: Channel,
    handle: Handle,
}

impl InProcess {
    /// What clients connect by.
    #[must_use]
    pub fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// Detaches everything.
    pub async fn stop(self) {
        self.handle.stop().await;
    }
}

/// Runs the service in this process and connects to it: what the command line does where no daemon is.
///
/// # Errors
/// Where the connection within the process cannot be made.
pub async fn in_process(config: session::Config) -> Result<InProcess, ServerError> {
    serve_in_process(session::start(config)?, Served::Processes).await
}

/// The same of a recording: what the command line does where it is given one.
///
/// # Errors
/// Where it is none or cannot be read, and as [`in_process`].
pub async fn in_process_of_recording(path: &Path) -> Result<InProcess, ServerError> {
    let path = path.to_owned();
    // Looking through a long one takes a while.
    let opened = tokio::task::spawn_blocking(move || {
        Ok::<_, ServerError>((session::replay(&path)?, Served::recording(&path)))
    })
    .await;
    let (handle, served) = opened.map_err(io::Error::other)??;
    serve_in_process(handle, served).await
}

/// The same of a recording that is held against one before.
///
/// # Errors
/// As [`in_process_of_recording`], of either.
pub async fn in_process_of_comparison(path: &Path, before: &Path) -> Result<InProcess, ServerError> {
    let (path, before) = (path.to_owned(), before.to_owned());
    let opened = tokio::task::spawn_blocking(move || {
        Ok::<_, ServerError>((session::compare(&path, &before)?, Served::comparison(&path)))
    })
    .await;
    let (handle, served) = opened.map_err(io::Error::other)??;
    serve_in_process(handle, served).await
}

async fn serve_in_process(handle: Handle, served: Served) -> Result<InProcess, ServerError> {
    let (ours, theirs) = UnixStream::pair()?;
    let theirs = connections::Connection::of_own(theirs)?;
    let router = router(&handle, Watches::new(handle.clone()), served).await?;
    tokio::spawn(async move {
        // The stream of connections must not end: the server would end with it.
        let connections = stream::iter([Ok::<_, io::Error>(theirs)]).chain(stream::pending());
        if let Err(error) = router.serve_with_incoming(connections).await {
            tracing::error!(%error, "the service within this process ended");
        }
    });
    let mut ours = Some(ours);
    let channel = Endpoint::from_static("http://in-process")
        .connect_with_connector(tower::service_fn(move |_: Uri| {
            let stream = ours.take();
            async move {
                stream.map(TokioIo::new).ok_or_else(|| {
                    let why = "the service within this process ended";
                    io::Error::new(io::ErrorKind::NotConnected, why)
                })
            }
        }))
        .await?;
    Ok(InProcess { channel, handle })
}
