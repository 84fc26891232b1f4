//! What streams are told of other users' sessions: nothing, though the daemon has one table of all names.

use std::{
    collections::BTreeSet,
    os::unix::net::UnixStream,
    process::Command,
    time::{Duration, Instant},
};

use profiler_proto::v1;
use tokio::runtime::Runtime;
use tonic::Streaming;

use super::{
    clients::{Clients, of},
    daemon::Daemon,
    fixture,
    users::{OfNobody, Open, connect_as_nobody},
    verbs::{busy, unharmed},
};

/// Longest wait for names.
const PATIENCE: Duration = Duration::from_mins(1);

/// A session on a process at 999 samples a second.
async fn session_on(clients: &mut Clients, pid: u32) -> String {
    let request = v1::CreateSessionRequest {
        target: Some(of(pid)),
        frequency_hz: 999,
        ..v1::CreateSessionRequest::default()
    };
    let created = clients.sessions.create_session(request).await.unwrap();
    created.into_inner().session.unwrap().name
}

/// Modules of the frames that a stream's messages tell, until the one that is waited for is among them.
async fn modules_until<T>(
    mut messages: Streaming<T>,
    frames: impl Fn(T) -> Vec<v1::Frame>,
    module: &str,
) -> BTreeSet<String> {
    let begin = Instant::now();
    let mut modules = BTreeSet::new();
    while !modules.contains(module) {
        assert!(begin.elapsed() < PATIENCE, "{modules:?}");
        let message = messages.message().await.unwrap().unwrap();
        modules.extend(frames(message).into_iter().map(|frame| frame.module));
    }
    modules
}

/// Those that a flame graph tells.
async fn flame_until(clients: &mut Clients, session: &str, module: &str) -> BTreeSet<String> {
    let request = v1::WatchFlameRequest {
        session: session.to_owned(),
        ..v1::WatchFlameRequest::default()
    };
    let messages = clients.views.watch_flame(request).await.unwrap();
    modules_until(messages.into_inner(), |message| message.frames, module).await
}

/// Those that a recording tells.
async fn records_until(clients: &mut Clients, session: &str, module: &str) -> BTreeSet<String> {
    let request = v1::WatchRecordsRequest {
        session: session.to_owned(),
        ..v1::WatchRecordsRequest::default()
    };
    let messages = clients.views.watch_records(request).await.unwrap();
    modules_until(messages.into_inner(), |message| message.frames, module).await
}

#[test]
#[ignore = "needs root"]
fn what_is_named_for_root_is_told_to_nobody_else() {
    const OF_ROOT: &str = "slowpath";
    const OWN: &str = "hot";
    let target = busy();
    let open = Open::new();
    let own = OfNobody::run(Command::new(open.copy(&fixture::directory().join(OWN))));
    let daemon = Daemon::start();
    let socket = daemon.socket.clone();
    // A thread of its own becomes the user. Not before it is needed: connections have to begin soon.
    let connect = || std::thread::spawn(move || connect_as_nobody(&socket, 1)).join();
    Runtime::new().unwrap().block_on(async {
        let root = UnixStream::connect(&daemon.socket).unwrap();
        let mut root = Clients::on(root).await;
        let roots = session_on(&mut root, target.pid()).await;
        let told = flame_until(&mut root, &roots, OF_ROOT).await;
        println!("root was told {told:?}");
        let user = connect().unwrap().remove(0);
        let mut nobody = Clients::on(user).await;
        let session = session_on(&mut nobody, own.0.id()).await;
        let flame = flame_until(&mut nobody, &session, OWN).await;
        let records = records_until(&mut nobody, &session, OWN).await;
        for (view, told) in [("flame graph", flame), ("recording", records)] {
            println!("nobody was told by a {view}: {told:?}");
            assert!(!told.contains(OF_ROOT), "{view}: {told:?}");
        }
    });
    drop(own);
    unharmed(target);
    assert_eq!(daemon.stop(), Some(0));
}
