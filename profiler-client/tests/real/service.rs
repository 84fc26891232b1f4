//! `profilerd` as a service: start, stop, its socket, health and reflection.

use std::{
    fs,
    path::{Path, PathBuf},
};

use hyper_util::rt::TokioIo;
use tokio::{net::UnixStream, runtime::Runtime};
use tonic::{
    Code, Response, Status, Streaming,
    transport::{Channel, Endpoint, Uri},
};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, ServerReflectionResponse, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
};

use super::{
    bpf,
    command::{Running, Watchdog, through},
    daemon::{Daemon, profilerd},
    users::connect_as_nobody,
    verbs::{busy, unharmed},
};

#[test]
#[ignore = "needs root"]
fn a_stop_gives_everybody_their_result() {
    let target = busy();
    let daemon = Daemon::start();
    assert!(
        bpf::held_by(daemon.child.id()).is_empty(),
        "nothing is loaded before it is needed"
    );
    let pid = target.pid().to_string();
    let mut latency = Running::start(through(&daemon.socket, &["latency", "-p", &pid, "f"]));
    latency.line();
    let flame = Running::start(through(&daemon.socket, &["flame", "-p", &pid, "-f", "-F", "999"]));
    let is_watched = |session: &serde_json::Value| session["watchers"] == 1;
    while daemon
        .sessions()
        .iter()
        .filter(|session| is_watched(session))
        .count()
        < 2
    {}
    assert_eq!(daemon.stop(), Some(0));
    let ended = latency
        .end()
        .status(0)
        .says("The run ended by itself: the daemon is stopping.");
    assert!(ended.stdout().contains("p99.9"), "{}", ended.stdout());
    flame.end().status(0);
    unharmed(target);
}

#[test]
#[ignore = "needs root"]
fn programs_are_kept_loaded_where_that_is_asked_for() {
    let target = busy();
    let pid = target.pid().to_string();
    let daemon = Daemon::with(&["--keep-loaded"]);
    // Answered behind the loading.
    assert!(daemon.sessions().is_empty());
    let loaded = bpf::held_by(daemon.child.id());
    assert!(!loaded.is_empty());
    for _ in 0..2 {
        let flame = daemon
            .profiler(&["flame", "-p", &pid, "-F", "999", "--duration", "1"])
            .status(0);
        // Names are learned anew.
        assert!(flame.stdout().contains("main"), "{}", flame.stdout());
        assert!(daemon.sessions().is_empty());
        let held = bpf::held_by(daemon.child.id());
        assert!(
            loaded.iter().all(|program| held.contains(program)),
            "{held:?} of {loaded:?}"
        );
    }
    assert_eq!(
        daemon.log().matches("engine loaded").count(),
        1,
        "{}",
        daemon.log()
    );
    assert_eq!(daemon.stop(), Some(0));
    unharmed(target);
}

/// Runs a daemon that cannot start; gives what it says.
fn refused(socket: &Path, status: i32) -> String {
    let directory = tempfile::tempdir().unwrap();
    let mut child = profilerd(socket, &directory, &[]).spawn().unwrap();
    let _watchdog = Watchdog::of(&child);
    assert_eq!(child.wait().unwrap().code(), Some(status));
    let log = fs::read_to_string(directory.path().join("log")).unwrap();
    println!("{}", log.trim_end());
    log
}

#[test]
#[ignore = "needs root"]
fn a_socket_that_is_in_use_is_refused_and_a_stale_one_replaced() {
    let daemon = Daemon::start();
    let socket = daemon.socket.display().to_string();
    let log = refused(&daemon.socket, 1);
    let words = format!("another daemon is listening on {socket}: stop it, or choose another socket");
    assert!(log.contains(&words), "{log}");
    // The first one goes on; killed, it leaves its socket behind.
    assert_eq!(daemon.sessions().len(), 0);
    let directory = daemon.kill();
    assert!(Path::new(&socket).exists(), "its socket is gone");
    let daemon = Daemon::in_directory(directory, &[]);
    assert_eq!(daemon.sessions().len(), 0);
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
#[ignore = "needs root"]
fn a_file_in_the_sockets_place_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("precious");
    fs::write(&path, "precious").unwrap();
    let log = refused(&path, 1);
    assert!(
        log.contains("the path is taken by a file that is not a socket"),
        "{log}"
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    let log = refused(Path::new("/nonexistent/profilerd.sock"), 1);
    assert!(
        log.contains("/nonexistent/profilerd.sock: No such file or directory"),
        "{log}"
    );
}

#[test]
#[ignore = "needs root"]
fn health_and_reflection_answer() {
    let daemon = Daemon::start();
    let socket = daemon.socket.clone();
    Runtime::new().unwrap().block_on(async {
        let channel = connect(socket).await;
        let mut health = HealthClient::new(channel.clone());
        for service in [
            "",
            "profiler.v1.SessionService",
            "profiler.v1.TargetService",
            "profiler.v1.ViewService",
        ] {
            let request = HealthCheckRequest {
                service: service.to_owned(),
            };
            let answer = health.check(request).await.unwrap().into_inner();
            assert_eq!(answer.status(), ServingStatus::Serving, "{service}");
        }
        let mut answers = services(channel).await.unwrap().into_inner();
        let answer = answers.message().await.unwrap().unwrap().message_response;
        let Some(MessageResponse::ListServicesResponse(listed)) = answer else {
            panic!("{answer:?}")
        };
        let names: Vec<String> = listed.service.into_iter().map(|service| service.name).collect();
        println!("{}", names.join(", "));
        for service in ["SessionService", "TargetService", "ViewService"] {
            assert!(names.contains(&format!("profiler.v1.{service}")), "{names:?}");
        }
    });
    assert_eq!(daemon.stop(), Some(0));
}

/// Asks for the names of the services.
async fn services(channel: Channel) -> Result<Response<Streaming<ServerReflectionResponse>>, Status> {
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut reflection = ServerReflectionClient::new(channel);
    reflection
        .server_reflection_info(tokio_stream::once(request))
        .await
}

#[test]
#[ignore = "needs root"]
fn reflection_is_for_root() {
    let daemon = Daemon::start();
    let socket = daemon.socket.clone();
    let connected = std::thread::spawn(move || connect_as_nobody(&socket, 1));
    let stream = connected.join().unwrap().remove(0);
    Runtime::new().unwrap().block_on(async {
        let channel = channel_of(stream).await;
        let refused = services(channel).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    });
    assert_eq!(daemon.stop(), Some(0));
}

/// A channel over a connection that has been made already, and over no other.
pub async fn channel_of(stream: std::os::unix::net::UnixStream) -> Channel {
    stream.set_nonblocking(true).unwrap();
    let mut stream = Some(TokioIo::new(UnixStream::from_std(stream).unwrap()));
    Endpoint::from_static("http://profilerd.invalid")
        .connect_with_connector(tower::service_fn(move |_: Uri| {
            let once = stream.take().ok_or_else(|| std::io::Error::other("once"));
            std::future::ready(once)
        }))
        .await
        .unwrap()
}

pub async fn connect(socket: PathBuf) -> Channel {
    Endpoint::from_static("http://profilerd.invalid")
        .connect_with_connector(tower::service_fn(move |_: Uri| {
            let socket = socket.clone();
            async move { UnixStream::connect(socket).await.map(TokioIo::new) }
        }))
        .await
        .unwrap()
}
