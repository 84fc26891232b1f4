//! Several views in one stream, and what a daemon says of itself.

use std::collections::{HashMap, HashSet};

use profiler_proto::v1::{
    self, info_service_client::InfoServiceClient, session_service_client::SessionServiceClient,
    subscription::View, view_service_client::ViewServiceClient, watch_response::Message,
};
use tokio::runtime::Runtime;
use tonic::{Code, Streaming, transport::Channel};

use super::{
    clients,
    daemon::Daemon,
    service::{channel_of, connect},
    users::connect_as_nobody,
    verbs::{busy, unharmed},
};

fn latency(id: u32, session: &str) -> v1::Subscription {
    let view = View::Latency(v1::WatchLatencyRequest {
        session: session.to_owned(),
        interval: Some(prost_types::Duration {
            seconds: 0,
            nanos: 50_000_000,
        }),
    });
    v1::Subscription { id, view: Some(view) }
}

fn flame(id: u32, session: &str) -> v1::Subscription {
    let view = View::Flame(v1::WatchFlameRequest {
        session: session.to_owned(),
        ..Default::default()
    });
    v1::Subscription { id, view: Some(view) }
}

fn syscalls(id: u32, session: &str) -> v1::Subscription {
    let view = View::Syscalls(v1::WatchSyscallsRequest {
        session: session.to_owned(),
        ..Default::default()
    });
    v1::Subscription { id, view: Some(view) }
}

/// A view's word, and why it is its last message, if it is.
fn of_message(message: &Message) -> (&'static str, Option<String>) {
    let (word, info) = match message {
        Message::Latency(message) => ("latency", &message.info),
        Message::Flame(message) => ("flame", &message.info),
        Message::Syscalls(message) => ("syscalls", &message.info),
        Message::Failed(failed) => return ("failed", Some(failed.reason.clone())),
        other => panic!("{other:?}"),
    };
    let end = info.as_ref().unwrap().end.as_ref();
    (word, end.map(|end| end.reason.clone()))
}

/// Reads until each of some subscriptions has told something so often; what each has told, and its end.
async fn until(
    stream: &mut Streaming<v1::WatchResponse>,
    wanted: &[u32],
    times: usize,
) -> HashMap<u32, Vec<(&'static str, Option<String>)>> {
    let mut told: HashMap<u32, Vec<_>> = HashMap::new();
    while !wanted
        .iter()
        .all(|id| told.get(id).is_some_and(|told| told.len() >= times))
    {
        let v1::WatchResponse { id, message } = stream.message().await.unwrap().unwrap();
        told.entry(id).or_default().push(of_message(&message.unwrap()));
    }
    told
}

/// Makes a session of calls of `f`, called `shared`.
async fn share(channel: &Channel, pid: u32) -> SessionServiceClient<Channel> {
    let mut sessions = SessionServiceClient::new(channel.clone());
    let create = v1::CreateSessionRequest {
        name: "shared".to_owned(),
        target: Some(clients::of(pid)),
        scope: "f".to_owned(),
        ..Default::default()
    };
    sessions.create_session(create).await.unwrap();
    sessions
}

async fn begin(
    client: &mut ViewServiceClient<Channel>,
    subscriptions: Vec<v1::Subscription>,
) -> (String, Streaming<v1::WatchResponse>) {
    let mut stream = client
        .watch(v1::WatchRequest { subscriptions })
        .await
        .unwrap()
        .into_inner();
    let first = stream.message().await.unwrap().unwrap();
    let Some(Message::Begun(v1::WatchBegun { watch })) = first.message else {
        panic!("{first:?}");
    };
    (watch, stream)
}

#[test]
#[ignore = "needs root"]
fn several_views_come_in_one_stream_and_are_changed_while_it_goes_on() {
    let target = busy();
    let daemon = Daemon::start();
    Runtime::new().unwrap().block_on(async {
        let channel = connect(daemon.socket.clone()).await;
        let mut sessions = share(&channel, target.pid()).await;
        let mut views = ViewServiceClient::new(channel);
        let subscriptions = vec![latency(1, "shared"), flame(2, "shared"), latency(3, "none")];
        let (watch, mut stream) = begin(&mut views, subscriptions).await;
        let told = until(&mut stream, &[1, 2, 3], 1).await;
        assert_eq!(told[&1][0], ("latency", None));
        assert_eq!(told[&2][0], ("flame", None));
        assert_eq!(told[&3], [("failed", Some("SESSION_NOT_FOUND".to_owned()))]);

        let change = |add, drop| v1::ChangeWatchRequest {
            watch: watch.clone(),
            add,
            drop,
        };
        let twice = views
            .change_watch(change(vec![latency(1, "shared")], vec![]))
            .await;
        assert_eq!(twice.unwrap_err().code(), Code::InvalidArgument);
        // A number that has ended can be used again.
        let added = vec![syscalls(4, "shared"), latency(3, "shared")];
        views.change_watch(change(added, vec![2])).await.unwrap();
        until(&mut stream, &[3, 4], 1).await;
        let told = until(&mut stream, &[1, 3, 4], 2).await;
        let ids: HashSet<u32> = told.keys().copied().collect();
        assert_eq!(ids, HashSet::from([1, 3, 4]), "the dropped one is silent");

        let end = v1::EndSessionRequest {
            name: "shared".to_owned(),
        };
        sessions.end_session(end).await.unwrap();
        let mut ended = HashMap::new();
        while ended.len() < 3 {
            let message = stream.message().await.unwrap().unwrap();
            let (word, end) = of_message(&message.message.unwrap());
            if let Some(end) = end {
                ended.insert(word, end);
            }
            if ended.len() == 2 && ended.contains_key("syscalls") {
                break;
            }
        }
        assert_eq!(ended["latency"], "the session was ended");
        assert_eq!(ended["syscalls"], "the session was ended");
        // The watch goes on without any view.
        views
            .change_watch(change(vec![latency(9, "shared")], vec![]))
            .await
            .unwrap();
        let told = until(&mut stream, &[9], 1).await;
        assert_eq!(told[&9], [("failed", Some("SESSION_NOT_FOUND".to_owned()))]);
        drop(stream);
        // Its end is noticed once the connection has said so.
        loop {
            let gone = views.change_watch(change(vec![], vec![])).await;
            if let Err(status) = gone {
                assert_eq!(status.code(), Code::NotFound, "{status}");
                break;
            }
            tokio::task::yield_now().await;
        }
    });
    assert_eq!(daemon.stop(), Some(0));
    unharmed(target);
}

#[test]
#[ignore = "needs root"]
fn watches_are_their_users_own_and_bounded() {
    let daemon = Daemon::start();
    let socket = daemon.socket.clone();
    let connected = std::thread::spawn(move || connect_as_nobody(&socket, 1));
    let stream = connected.join().unwrap().remove(0);
    Runtime::new().unwrap().block_on(async {
        let mut roots = ViewServiceClient::new(connect(daemon.socket.clone()).await);
        let (of_root, _open) = begin(&mut roots, Vec::new()).await;
        let channel = channel_of(stream).await;
        let mut nobodys = ViewServiceClient::new(channel.clone());
        let change = v1::ChangeWatchRequest {
            watch: of_root,
            ..Default::default()
        };
        let refused = nobodys.change_watch(change.clone()).await.unwrap_err();
        assert_eq!(refused.code(), Code::NotFound, "{refused}");
        roots.change_watch(change).await.unwrap();

        let many = |count: u32| (1..=count).map(|id| latency(id, "none")).collect();
        let watch = |subscriptions| v1::WatchRequest { subscriptions };
        let refused = nobodys.watch(watch(many(65))).await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
        let info = |channel| async {
            let mut client = InfoServiceClient::new(channel);
            client.get_info(v1::GetInfoRequest {}).await.unwrap().into_inner()
        };
        let nobodys = info(channel).await;
        let roots = info(connect(daemon.socket.clone()).await).await;
        let limits = |info: &v1::GetInfoResponse| {
            let limits = info.limits.unwrap();
            (limits.sessions, limits.probes, limits.frequency_hz)
        };
        assert_eq!((roots.is_root, limits(&roots)), (true, (64, 4096, 10_000)));
        assert_eq!((nobodys.is_root, limits(&nobodys)), (false, (16, 2048, 1_000)));
        assert_eq!(nobodys.served(), v1::Served::Processes);
        let host = nobodys.host.unwrap();
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        assert_eq!(host.boot_id, boot_id.trim());
        let before = roots.host.unwrap();
        assert!(before.monotonic_ns > 0 && before.id == host.id && before.kernel == host.kernel);
    });
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
#[ignore = "needs root"]
fn a_command_says_which_service_answers_it() {
    let daemon = Daemon::start();
    let said = daemon.profiler(&["info"]).status(0);
    let said = said.stdout();
    assert!(said.contains("service   profilerd "), "{said}");
    assert!(said.contains("you       root: all processes"), "{said}");
    let info = daemon.profiler(&["info", "--json"]).status(0).objects().remove(0);
    assert_eq!(
        (info["serves"].as_str(), info["daemon"].as_bool()),
        (Some("processes"), Some(true))
    );
    assert_eq!(info["limits"]["sessions"], 64);

    let target = busy();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.profrec");
    let path = path.to_str().unwrap();
    let pid = target.pid().to_string();
    daemon
        .profiler(&["record", "-p", &pid, "-o", path, "--duration", "1"])
        .status(0);
    let recorded = daemon
        .profiler(&["info", "--json", "--from", path])
        .status(0)
        .objects()
        .remove(0);
    assert_eq!(recorded["serves"], "recording");
    for of_the_machine in ["host", "kernel", "host_id", "boot_id", "version"] {
        assert_eq!(recorded[of_the_machine], info[of_the_machine], "{of_the_machine}");
    }
    assert!(recorded["limits"].is_null());
    let path_redacted = folder.path().join("b.profrec");
    let path_redacted = path_redacted.to_str().unwrap();
    let redacted = [
        "record",
        "-p",
        &pid,
        "-o",
        path_redacted,
        "--duration",
        "1",
        "--redact",
    ];
    daemon.profiler(&redacted).status(0);
    let said = daemon.profiler(&["info", "--from", path_redacted]).status(0);
    let said = said.stdout();
    assert!(
        said.contains("host      ?") && said.contains("boot id   ?"),
        "{said}"
    );
    assert_eq!(daemon.stop(), Some(0));
    unharmed(target);
}

#[test]
#[ignore = "needs root"]
fn a_daemon_stops_though_watches_are_open_and_each_view_is_told() {
    let target = busy();
    let daemon = Daemon::start();
    let runtime = Runtime::new().unwrap();
    let (mut with_a_view, mut without) = runtime.block_on(async {
        let channel = connect(daemon.socket.clone()).await;
        share(&channel, target.pid()).await;
        let mut views = ViewServiceClient::new(channel);
        let (_, mut with_a_view) = begin(&mut views, vec![latency(1, "shared")]).await;
        let (_, without) = begin(&mut views, Vec::new()).await;
        until(&mut with_a_view, &[1], 1).await;
        (with_a_view, without)
    });
    assert_eq!(daemon.stop(), Some(0));
    runtime.block_on(async {
        let mut last = None;
        while let Some(v1::WatchResponse { message, .. }) = with_a_view.message().await.unwrap() {
            last = Some(of_message(&message.unwrap()));
        }
        assert_eq!(last, Some(("latency", Some("the daemon is stopping".to_owned()))));
        assert!(without.message().await.unwrap().is_none());
    });
    unharmed(target);
}
