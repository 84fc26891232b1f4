//! Attempted = delivered + the sum of what was dropped, with a ring buffer of one page and clients that do not
//! read.

use std::time::Duration;

use hyper_util::rt::TokioIo;
use profiler_daemon::{
    kernel, rpc,
    session::{FlameRequest, FlameTimes, Losses},
};
use profiler_proto::v1::{
    CreateSessionRequest, EndSessionRequest, Target, WatchFlameRequest, WatchLatencyRequest,
    session_service_client::SessionServiceClient, target::Target as OneTarget,
    view_service_client::ViewServiceClient,
};
use profiler_symbolize::Grouping;
use tokio::{net::UnixStream, sync::oneshot};
use tonic::transport::{Channel, Endpoint, Uri};

use super::{
    fixture::{Fixture, small_scale},
    places::Traced,
    service::{ROOT, Service},
};

/// The smallest ring buffer that there is.
fn one_page() -> kernel::Config {
    kernel::Config {
        ring_bytes: 4096,
        ..kernel::Config::default()
    }
}

fn of_samples(lost: &Losses) -> u64 {
    lost.iter()
        .filter(|(reason, _)| reason.starts_with("sample_"))
        .map(|(_, count)| count)
        .sum()
}

fn accounted(scope: &str) {
    let service = Service::with(one_page());
    let calls = if small_scale() { "100" } else { "1000" };
    let mut target = Fixture::start("slowpath", &[calls.to_owned()]);
    let session = service.attach_at(target.pid(), scope, 10_000).unwrap();
    // Never read before the end.
    let mut pictures = service.watch_flame(&session);
    target.run();
    service.end(&session);
    let last = service.until(&mut pictures, |picture| picture.ended.is_some());
    let delivered = last.picture.summary.samples;
    println!(
        "`{scope}`: {} attempted, {delivered} delivered, {:?}",
        last.attempted, last.lost
    );
    assert!(
        delivered > 0 && of_samples(&last.lost) > 0,
        "nothing was lost, or everything"
    );
    assert_eq!(last.attempted, delivered + of_samples(&last.lost));
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn every_sample_of_a_target_is_delivered_or_counted() {
    accounted("");
}

#[test]
#[ignore = "needs root"]
fn every_sample_beside_spans_is_delivered_or_counted() {
    accounted("f[>= p95]");
}

#[test]
#[ignore = "needs root"]
fn calls_are_counted_however_much_is_lost() {
    let service = Service::with(one_page());
    let calls = if small_scale() { 5_000 } else { 200_000 };
    let args = ["run", "2", &calls.to_string(), "fn_push"].map(str::to_owned);
    let mut target = Fixture::start("calls", &args);
    // Nearly every call is slow, and tries to send a record of its end.
    let session = service.attach_at(target.pid(), "fn_push[> 1ns]", 10_000).unwrap();
    let _flame = service.watch_flame(&session);
    target.run();
    let picture = service.last_latency(&session);
    let seen = super::service::function(&picture, "fn_push");
    println!("{:?} {:?}", seen.lost, picture.lost);
    assert_eq!(super::service::ended(seen), 2 * calls);
    assert!(!picture.lost.is_empty(), "nothing was lost");
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn who_reads_a_trace_late_misses_neither_hits_nor_the_end() {
    let service = Service::start();
    let mut target = Fixture::start("calls", &["run", "1", "1000", "fn_push"].map(str::to_owned));
    let late = Traced::start(&service, &target, "fn_push", &[]);
    // The ring buffer is looked at more often than usual while sessions begin.
    for _ in 0..8 {
        let other = service.attach(target.pid(), "fn_push").unwrap();
        let mut pictures = service.watch_latency(&other);
        service.until(&mut pictures, |_| true);
        service.end(&other);
    }
    target.run();
    let (hits, last) = late.end(&service);
    assert_eq!((hits.len(), last.reached), (1000, 1000));
    assert_eq!(target.finish().status, Some(0));
}

/// A client whose connection holds little more than a message.
async fn connect(path: std::path::PathBuf) -> Channel {
    Endpoint::from_static("http://daemon.invalid")
        .initial_stream_window_size(1024)
        .initial_connection_window_size(65_535)
        .connect_with_connector(tower::service_fn(move |_: Uri| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        }))
        .await
        .unwrap()
}

/// Updates that a stream brings once it is read again: the number of the last, and how many came.
macro_rules! rest_of {
    ($stream:expr) => {{
        let (mut delivered, mut last) = (0, None);
        while let Some(message) = $stream.message().await.unwrap() {
            delivered += 1;
            let info = message.info.clone().unwrap();
            assert_eq!(
                info.seq + 1,
                delivered + info.dropped,
                "an update is unaccounted for"
            );
            let is_last = info.end.is_some();
            last = Some((message, info));
            if is_last {
                break;
            }
        }
        let (last, info) = last.unwrap();
        assert!(info.end.is_some(), "the stream ended without saying so");
        println!(
            "{} updates made, {delivered} delivered, {} dropped",
            info.seq + 1,
            info.dropped
        );
        assert!(info.dropped > 0, "a client that did not read has missed nothing");
        last
    }};
}

#[test]
#[ignore = "needs root"]
fn updates_that_a_stalled_client_missed_are_counted() {
    let service = Service::with(one_page());
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket");
    let mut target = Fixture::start("slowpath", &[]);
    let request = CreateSessionRequest {
        name: "stalled".to_owned(),
        target: Some(Target {
            target: Some(OneTarget::Pid(target.pid())),
        }),
        scope: "f[>= p95]".to_owned(),
        frequency_hz: 10_000,
        // What a function that is called that often costs is not the point.
        budget: Some(0.0),
        ..CreateSessionRequest::default()
    };
    let interval = Some(prost_types::Duration {
        seconds: 0,
        nanos: 50_000_000,
    });
    let (listening, is_listening) = oneshot::channel();
    let (stop, stopped) = oneshot::channel::<()>();
    let served = {
        let (handle, socket) = (service.handle.clone(), socket.clone());
        service.runtime.spawn(async move {
            let listening = || listening.send(()).unwrap();
            let stopped = async { drop(stopped.await) };
            rpc::serve(&handle, &socket, 0o600, listening, stopped).await
        })
    };
    target.say("go");
    service.runtime.block_on(async {
        is_listening.await.unwrap();
        let channel = connect(socket).await;
        let mut sessions = SessionServiceClient::new(channel.clone());
        sessions.create_session(request).await.unwrap();
        let mut views = ViewServiceClient::new(channel);
        let mut flame = views
            .watch_flame(WatchFlameRequest {
                session: "stalled".to_owned(),
                interval,
                difference: true,
                ..WatchFlameRequest::default()
            })
            .await
            .unwrap()
            .into_inner();
        let mut latency = views
            .watch_latency(WatchLatencyRequest {
                session: "stalled".to_owned(),
                interval,
            })
            .await
            .unwrap()
            .into_inner();
        // What is awaited is that a client who reads has got far more than fits the stalled one's window.
        let request = FlameRequest::of(Grouping::Function, Some(FlameTimes::OnCpu));
        let reading = service
            .handle
            .watch_flame(ROOT, "stalled".to_owned(), 50_000_000, request);
        let mut reading = reading.await.unwrap();
        let far = reading.wait_for(|picture| picture.as_ref().is_some_and(|picture| picture.seq >= 60));
        drop(
            tokio::time::timeout(Duration::from_mins(2), far)
                .await
                .unwrap()
                .unwrap(),
        );
        drop(reading);
        sessions
            .end_session(EndSessionRequest {
                name: "stalled".to_owned(),
            })
            .await
            .unwrap();
        let last = rest_of!(flame);
        let summary = last.summary.unwrap();
        let lost = |(_, count): (&String, &u64)| *count;
        let lost: u64 = summary
            .lost
            .iter()
            .filter(|(reason, _)| {
                let of_stack = reason.starts_with("off_cpu_stack_");
                !of_stack && (reason.starts_with("sample_") || reason.starts_with("off_cpu_"))
            })
            .map(lost)
            .sum();
        assert_eq!(summary.attempted, summary.samples + lost, "{summary:?}");
        rest_of!(latency);
        stop.send(()).unwrap();
        served.await.unwrap().unwrap();
    });
    assert_eq!(target.finish().status, Some(0));
}
