//! `--otlp`: what a collector of OpenTelemetry is sent, by the services of its own crate.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use opentelemetry_proto::tonic::{
    collector::{
        metrics::v1::{
            ExportMetricsPartialSuccess, ExportMetricsServiceRequest, ExportMetricsServiceResponse,
            metrics_service_server::{MetricsService, MetricsServiceServer},
        },
        profiles::v1development::{
            ExportProfilesServiceRequest, ExportProfilesServiceResponse,
            profiles_service_server::{ProfilesService, ProfilesServiceServer},
        },
    },
    metrics::v1::{ExponentialHistogramDataPoint, metric::Data},
};
use rustix::net::{AddressFamily, SocketType};
use tokio::{net::TcpListener, runtime::Runtime};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status, transport::Server};

use super::{Fake, Script, assert_status, imported, run, stderr};

/// What it was sent, and why it takes no more of it.
#[derive(Default)]
struct Taken {
    metrics: Vec<ExportMetricsServiceRequest>,
    profiles: Vec<ExportProfilesServiceRequest>,
    refuses: bool,
}

#[derive(Clone)]
struct Services(Arc<Mutex<Taken>>);

#[tonic::async_trait]
impl MetricsService for Services {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        let mut taken = self.0.lock().unwrap();
        let request = request.into_inner();
        // The first has no contents: it only asks whether anybody is there.
        let refuses = taken.refuses && !request.resource_metrics.is_empty();
        taken.metrics.push(request);
        let partial_success = refuses.then(|| ExportMetricsPartialSuccess {
            rejected_data_points: 1,
            error_message: "too old".to_owned(),
        });
        Ok(Response::new(ExportMetricsServiceResponse { partial_success }))
    }
}

#[tonic::async_trait]
impl ProfilesService for Services {
    async fn export(
        &self,
        request: Request<ExportProfilesServiceRequest>,
    ) -> Result<Response<ExportProfilesServiceResponse>, Status> {
        let mut taken = self.0.lock().unwrap();
        let request = request.into_inner();
        if taken.refuses && !request.resource_profiles.is_empty() {
            return Err(Status::unimplemented("no profiles\u{1b}[31m here"));
        }
        taken.profiles.push(request);
        Ok(Response::new(ExportProfilesServiceResponse::default()))
    }
}

/// A collector on this machine, until dropped.
struct Collector {
    url: String,
    taken: Arc<Mutex<Taken>>,
    _runtime: Runtime,
}

impl Collector {
    fn start(refuses: bool) -> Self {
        let runtime = Runtime::new().unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = runtime.block_on(TcpListener::bind(address)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let taken = Arc::new(Mutex::new(Taken {
            refuses,
            ..Taken::default()
        }));
        let services = Services(Arc::clone(&taken));
        runtime.spawn(
            Server::builder()
                .add_service(MetricsServiceServer::new(services.clone()))
                .add_service(ProfilesServiceServer::new(services))
                .serve_with_incoming(TcpListenerStream::new(listener)),
        );
        Self {
            url: format!("http://127.0.0.1:{port}"),
            taken,
            _runtime: runtime,
        }
    }
}

fn points(request: &ExportMetricsServiceRequest) -> &[ExponentialHistogramDataPoint] {
    let metric = &request.resource_metrics[0].scope_metrics[0].metrics[0];
    match &metric.data {
        Some(Data::ExponentialHistogram(histogram)) => &histogram.data_points,
        other => panic!("{other:?}"),
    }
}

#[test]
fn metrics_are_sent_while_a_run_goes_on_and_at_its_end() {
    let fake = Fake::start(Script {
        target_exits_after: Some(20),
        ..Script::default()
    });
    let collector = Collector::start(false);
    let output = run(&fake, &["latency", "-p", "7", "handle", "--otlp", &collector.url]);
    assert_status(&output, 0);
    let said = stderr(&output);
    let taken = collector.taken.lock().unwrap();
    let metrics = &taken.metrics[1..];
    let times = metrics.len();
    let expected = format!("profiler: {}: metrics sent {times} times\n", collector.url);
    assert!(said.contains(&expected), "{said}");
    assert!(times >= 2, "{said}");
    let sums = metrics.iter().map(|request| {
        let [point] = points(request) else {
            panic!("{request:?}")
        };
        (point.start_time_unix_nano, point.time_unix_nano, point.count)
    });
    let sums: Vec<(u64, u64, u64)> = sums.collect();
    assert!(
        sums.windows(2).all(|two| {
            let [(began, before, fewer), (began_too, then, more)] = two else {
                return false;
            };
            began == began_too && before <= then && fewer <= more
        }),
        "{sums:?}"
    );
    let (began, ended, calls) = sums[times - 1];
    assert!(0 < began && began < ended && calls > 0, "{sums:?}");
}

#[test]
fn a_profile_is_sent_with_its_weights() {
    let collector = Collector::start(false);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.folded");
    std::fs::write(&file, "main;f 30\nmain;g 45\n").unwrap();
    let output = imported::profiler(&[
        "flame",
        "--otlp",
        &collector.url,
        "--from",
        file.to_str().unwrap(),
    ]);
    assert_status(&output, 0);
    assert!(stderr(&output).contains("2 stacks sent"), "{}", stderr(&output));
    let taken = collector.taken.lock().unwrap();
    let profile = &taken.profiles[1].resource_profiles[0].scope_profiles[0].profiles[0];
    let sum: i64 = profile.samples.iter().flat_map(|sample| &sample.values).sum();
    assert_eq!(sum, 75);
}

#[test]
fn a_collector_that_takes_nothing_is_an_error_with_its_reason() {
    let collector = Collector::start(true);
    let fake = Fake::start(Script {
        target_exits_after: Some(2),
        ..Script::default()
    });
    let output = run(&fake, &["latency", "-p", "7", "handle", "--otlp", &collector.url]);
    assert_status(&output, 1);
    let said = stderr(&output);
    let expected = format!(
        "The collector at {} did not take the metrics: too old.\n",
        collector.url
    );
    assert!(said.contains(&expected), "{said}");

    let output = run(
        &fake,
        &["flame", "-p", "7", "--duration", "0.2", "--otlp", &collector.url],
    );
    assert_status(&output, 1);
    let said = stderr(&output);
    assert!(
        said.contains(
            "did not take the profiles: it has no receiver of them at this port: no profiles\\u{1b}[31m here."
        ),
        "{said}"
    );
}

#[test]
fn nothing_is_attached_where_no_collector_answers() {
    let fake = Fake::start(Script::default());
    // Whose port is taken, and nobody listens there.
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address: SocketAddr = rustix::net::getsockname(&socket).unwrap().try_into().unwrap();
    let url = format!("http://{address}");
    for verb in ["latency", "flame"] {
        let output = run(&fake, &[verb, "-p", "7", "handle", "--otlp", &url]);
        assert_status(&output, 1);
        let said = stderr(&output);
        assert!(
            said.contains(&format!("Cannot reach a collector at {url}: ")),
            "{said}"
        );
    }
    assert!(fake.seen.lock().unwrap().created.is_empty());
    let output = run(&fake, &["latency", "-p", "7", "handle", "--otlp", "https://x"]);
    assert_status(&output, 2);
}

#[test]
fn nothing_is_attached_where_a_listener_says_nothing() {
    let fake = Fake::start(Script::default());
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let output = run(&fake, &["latency", "-p", "7", "handle", "--otlp", &url]);
    assert_status(&output, 1);
    let said = stderr(&output);
    assert!(
        said.contains(&format!("Who listens at {url} does not answer")),
        "{said}"
    );
    assert!(fake.seen.lock().unwrap().created.is_empty());
}
