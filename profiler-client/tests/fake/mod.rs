//! A daemon that plays a script: enough of the service to test the client against.

#![expect(clippy::unwrap_used, reason = "a test's part, which clippy does not see")]

mod source;
mod spans;
mod syscalls;
mod timeline;
mod trace;
mod views;
mod waits;

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    pin::Pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::Stream;
use profiler_proto::v1::{
    self,
    info_service_server::{InfoService, InfoServiceServer},
    session_service_server as session, target_service_server as target, view_service_server as view,
};
use tokio::{
    net::UnixListener,
    runtime::Runtime,
    sync::{mpsc, watch},
};
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};
use tonic::{Code, Request, Response, Status, transport::Server};
use tonic_types::{ErrorDetails, StatusExt as _};

use self::{
    source::source,
    spans::spans,
    trace::trace,
    views::{flame, function, latency},
};

/// Sent between the updates of a stream.
const UPDATE: Duration = Duration::from_millis(50);

/// What it does besides answering.
#[derive(Clone, Default)]
pub struct Script {
    /// The target exits after this many updates.
    pub target_exits_after: Option<usize>,
    /// The stream breaks after this many updates.
    pub breaks_after: Option<usize>,
    /// After this many updates of all streams none brings anything any more.
    pub silent_after: Option<usize>,
    /// The build-id of a module, and an address in it that the daemon has no name for.
    pub nameless: Option<(Vec<u8>, u64)>,
    /// Which start of the daemon it is.
    pub instance: String,
}

/// What was asked of it.
#[derive(Default)]
pub struct Seen {
    pub created: Vec<v1::CreateSessionRequest>,
    pub ended: Vec<String>,
    pub flames: Vec<v1::WatchFlameRequest>,
    pub scopes: Vec<v1::SetScopeRequest>,
    /// Edits of scopes.
    pub edits: Vec<v1::EditScopeRequest>,
    pub estimates: Vec<v1::EstimateScopeRequest>,
    /// How often it was asked about itself.
    pub infos: u32,
}

/// The daemon, until dropped.
pub struct Fake {
    pub socket: PathBuf,
    pub seen: Arc<Mutex<Seen>>,
    streams: watch::Receiver<usize>,
    runtime: Runtime,
    directory: tempfile::TempDir,
}

impl Fake {
    pub fn start(script: Script) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), script)
    }

    /// Ends with all its connections, and starts another one at the same socket.
    pub fn start_anew(self, script: Script) -> Self {
        let Self {
            socket,
            runtime,
            directory,
            ..
        } = self;
        runtime.shutdown_timeout(Duration::from_secs(20));
        std::fs::remove_file(socket).unwrap();
        Self::start_in(directory, script)
    }

    fn start_in(directory: tempfile::TempDir, script: Script) -> Self {
        let socket = directory.path().join("profilerd.sock");
        let runtime = Runtime::new().unwrap();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let (updates, streams) = watch::channel(0);
        let service = Service {
            script,
            seen: Arc::clone(&seen),
            ends: Arc::default(),
            updates: Arc::new(updates),
        };
        let listener = {
            let _guard = runtime.enter();
            UnixListener::bind(&socket).unwrap()
        };
        runtime.spawn(
            Server::builder()
                .add_service(InfoServiceServer::new(service.clone()))
                .add_service(target::TargetServiceServer::new(service.clone()))
                .add_service(session::SessionServiceServer::new(service.clone()))
                .add_service(view::ViewServiceServer::new(service))
                .serve_with_incoming(UnixListenerStream::new(listener)),
        );
        Self {
            socket,
            seen,
            streams,
            runtime,
            directory,
        }
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Waits until that many updates have been sent.
    pub fn await_updates(&self, count: usize) {
        let mut streams = self.streams.clone();
        self.runtime.block_on(async move {
            tokio::time::timeout(Duration::from_secs(20), streams.wait_for(|&sent| sent >= count))
                .await
                .expect("the client watches")
                .unwrap();
        });
    }

    /// Names of sessions that were made and not ended.
    pub fn left(&self) -> usize {
        let seen = self.seen.lock().unwrap();
        seen.created.len() - seen.ended.len()
    }
}

#[derive(Clone)]
struct Service {
    script: Script,
    seen: Arc<Mutex<Seen>>,
    /// By session: tells its streams that it has ended.
    ends: Arc<Mutex<HashMap<String, watch::Sender<bool>>>>,
    updates: Arc<watch::Sender<usize>>,
}

pub fn refuse(code: Code, reason: &str, message: &str, metadata: &[(&str, &str)]) -> Status {
    let metadata: HashMap<String, String> = metadata
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect();
    Status::with_error_details(
        code,
        message,
        ErrorDetails::with_error_info(reason, "profiler.v1", metadata),
    )
}

/// The scopes and processes that the tests provoke errors with.
fn check(target: Option<&v1::Target>, scope: &str) -> Result<(), Status> {
    let pid = match target.and_then(|target| target.target.as_ref()) {
        Some(v1::target::Target::Pid(pid)) => *pid,
        _ => 7,
    };
    match (pid, scope) {
        (404, _) => Err(refuse(
            Code::NotFound,
            "TARGET_NOT_FOUND",
            "There is no process 404.",
            &[],
        )),
        (403, _) => Err(refuse(
            Code::PermissionDenied,
            "CAPABILITY_MISSING",
            "Attaching needs CAP_BPF: run as root.",
            &[("capability", "CAP_BPF")],
        )),
        (_, "f[>= p195]") => Err(refuse(
            Code::InvalidArgument,
            "SCOPE_INVALID",
            "A percentile is below 100.",
            &[("scope", "f[>= p195]"), ("offset", "5")],
        )),
        (_, "handel") => Err(refuse(
            Code::NotFound,
            "FUNCTION_NOT_FOUND",
            "No function matches `handel`.",
            &[("nearest", "handle,candle")],
        )),
        (_, "server.cc:1") => Err(refuse(
            Code::NotFound,
            "LINE_NOT_FOUND",
            "line 1 of /src/server.cc has no code; the nearest lines with code: 12, 13",
            &[("nearest", "12,13")],
        )),
        (_, "*") => Err(refuse(
            Code::ResourceExhausted,
            "TOO_MANY_FUNCTIONS",
            "`*` matches 10,000 functions; the limit is 2,048.",
            &[],
        )),
        _ => Ok(()),
    }
}

/// The expressions that the tests provoke errors with.
fn readable(capture: Option<&v1::Capture>) -> Result<(), Status> {
    match capture.and_then(|capture| capture.print.iter().find(|text| text.ends_with("->"))) {
        Some(text) => Err(refuse(
            Code::InvalidArgument,
            "EXPRESSION_INVALID",
            "a name is expected after `->`",
            &[("expression", text), ("offset", &text.len().to_string())],
        )),
        None => Ok(()),
    }
}

type Streamed<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl target::TargetService for Service {
    async fn list_processes(
        &self,
        request: Request<v1::ListProcessesRequest>,
    ) -> Result<Response<v1::ListProcessesResponse>, Status> {
        let pattern = request.into_inner().pattern;
        let process = v1::Process {
            pid: 7,
            uid: 1000,
            threads: 4,
            executable: "/usr/bin/server".into(),
            command: "server --listen \x1b[31m".into(),
            symbols: "separate".into(),
            debug_info: "lines".into(),
            container: "docker \x1b1".into(),
            ..v1::Process::default()
        };
        let processes = if process.command.contains(&pattern) {
            vec![process]
        } else {
            Vec::new()
        };
        Ok(Response::new(v1::ListProcessesResponse { processes }))
    }

    type ListFunctionsStream = Streamed<v1::ListFunctionsResponse>;

    async fn list_functions(
        &self,
        request: Request<v1::ListFunctionsRequest>,
    ) -> Result<Response<Self::ListFunctionsStream>, Status> {
        let request = request.into_inner();
        check(request.target.as_ref(), &request.pattern)?;
        let functions = vec![
            function("handle", 12),
            v1::Function {
                inlined: 3,
                ..function("parse<int>", 40)
            },
        ];
        let message = v1::ListFunctionsResponse {
            functions,
            unnamed: Vec::new(),
        };
        Ok(Response::new(Box::pin(tokio_stream::iter([Ok(message)]))))
    }

    type SourceStream = Streamed<v1::SourceResponse>;

    async fn source(
        &self,
        request: Request<v1::SourceRequest>,
    ) -> Result<Response<Self::SourceStream>, Status> {
        let request = request.into_inner();
        check(request.target.as_ref(), &request.place)?;
        if request.place == "server.cc:1" {
            return Err(refuse(
                Code::NotFound,
                "LINE_NOT_FOUND",
                "line 1 of /src/server.cc has no code; the nearest lines with code: 12",
                &[("nearest", "12")],
            ));
        }
        if request.place == "mod.rs:1" {
            return Err(refuse(
                Code::NotFound,
                "FILE_AMBIGUOUS",
                "mod.rs could be a/mod.rs or b/mod.rs: write more of the path",
                &[("nearest", "a/mod.rs,b/mod.rs")],
            ));
        }
        let message = v1::SourceResponse {
            function: Some(source()),
            left_out: 2,
        };
        Ok(Response::new(Box::pin(tokio_stream::iter([Ok(message)]))))
    }
}

#[tonic::async_trait]
impl session::SessionService for Service {
    async fn create_session(
        &self,
        request: Request<v1::CreateSessionRequest>,
    ) -> Result<Response<v1::CreateSessionResponse>, Status> {
        let request = request.into_inner();
        check(request.target.as_ref(), &request.scope)?;
        readable(request.capture.as_ref())?;
        let name = if request.name.is_empty() {
            "s1".to_owned()
        } else {
            request.name.clone()
        };
        self.ends
            .lock()
            .unwrap()
            .insert(name.clone(), watch::channel(false).0);
        let session = v1::Session {
            name,
            scope: request.scope.clone(),
            pids: vec![7],
            warnings: vec!["`handle` begins with an instruction that the kernel single-steps.".into()],
            ..Default::default()
        };
        self.seen.lock().unwrap().created.push(request);
        Ok(Response::new(v1::CreateSessionResponse {
            session: Some(session),
        }))
    }

    async fn list_sessions(
        &self,
        _: Request<v1::ListSessionsRequest>,
    ) -> Result<Response<v1::ListSessionsResponse>, Status> {
        let web = v1::Session {
            name: "web".into(),
            scope: "handle[>= p95]".into(),
            pids: vec![7],
            ..Default::default()
        };
        let plain = v1::Session {
            name: "plain".into(),
            scope: "handle".into(),
            pids: vec![7],
            ..Default::default()
        };
        Ok(Response::new(v1::ListSessionsResponse {
            sessions: vec![web, plain],
        }))
    }

    async fn set_scope(
        &self,
        request: Request<v1::SetScopeRequest>,
    ) -> Result<Response<v1::SetScopeResponse>, Status> {
        let request = request.into_inner();
        check(None, &request.scope)?;
        let session = v1::Session {
            name: request.name.clone(),
            scope: request.scope.clone(),
            ..Default::default()
        };
        self.seen.lock().unwrap().scopes.push(request);
        Ok(Response::new(v1::SetScopeResponse {
            session: Some(session),
        }))
    }

    async fn edit_scope(
        &self,
        request: Request<v1::EditScopeRequest>,
    ) -> Result<Response<v1::EditScopeResponse>, Status> {
        let request = request.into_inner();
        let session = v1::Session {
            name: request.name.clone(),
            scope: "handle".to_owned(),
            ..Default::default()
        };
        self.seen.lock().unwrap().edits.push(request);
        Ok(Response::new(v1::EditScopeResponse {
            session: Some(session),
        }))
    }

    async fn estimate_scope(
        &self,
        request: Request<v1::EstimateScopeRequest>,
    ) -> Result<Response<v1::EstimateScopeResponse>, Status> {
        let request = request.into_inner();
        let place = v1::EstimatedPlace {
            pid: 7,
            site: "handle".to_owned(),
            function: "handle".to_owned(),
            module: "/usr/bin/shop".to_owned(),
            address: 0x1180,
            instruction: "mov".to_owned(),
            single_stepped: true,
            exit_method: v1::ExitMethod::Ret.into(),
            exits: 2,
            samples_inside: Some(25),
            hits: request.measure.then_some(500),
            hit_cost_ns: Some(2_000),
            ..Default::default()
        };
        let line = v1::EstimatedPlace {
            pid: 7,
            site: "shop.c:12".to_owned(),
            function: "handle".to_owned(),
            file: "shop.c".to_owned(),
            line: 12,
            module: "/usr/bin/shop".to_owned(),
            address: 0x1190,
            samples_inside: Some(25),
            hits: request.measure.then_some(100),
            ..Default::default()
        };
        let step = |step: &str, place| v1::EstimatedStep {
            step: step.to_owned(),
            places: vec![place],
        };
        let duration = |nanos| prost_types::Duration { seconds: 0, nanos };
        let estimated = v1::EstimateScopeResponse {
            over_budget: String::new(),
            scope: "handle/shop.c:12".to_owned(),
            pids: vec![7],
            attach_method: v1::AttachMethod::Multi.into(),
            steps: vec![step("handle", place), step("shop.c:12", line)],
            features: 0,
            warnings: vec!["the entry of handle (mov) is single-stepped by the kernel".to_owned()],
            samples: Some(v1::EstimateSamples {
                samples: 100,
                cpu: Some(duration(200_000_000)),
                sampled: Some(duration(400_000_000)),
            }),
            counted: request.measure.then(|| duration(50_000_000)),
        };
        self.seen.lock().unwrap().estimates.push(request);
        Ok(Response::new(estimated))
    }

    async fn renew_session(
        &self,
        _: Request<v1::RenewSessionRequest>,
    ) -> Result<Response<v1::RenewSessionResponse>, Status> {
        Ok(Response::new(v1::RenewSessionResponse { lease: None }))
    }

    async fn end_session(
        &self,
        request: Request<v1::EndSessionRequest>,
    ) -> Result<Response<v1::EndSessionResponse>, Status> {
        let name = request.into_inner().name;
        if name == "nosuch" {
            return Err(refuse(
                Code::NotFound,
                "SESSION_NOT_FOUND",
                "There is no session `nosuch`.",
                &[],
            ));
        }
        self.seen.lock().unwrap().ended.push(name.clone());
        if let Some(end) = self.ends.lock().unwrap().get(&name) {
            let _ = end.send(true);
        }
        Ok(Response::new(v1::EndSessionResponse {}))
    }
}

#[tonic::async_trait]
impl InfoService for Service {
    async fn get_info(
        &self,
        _: Request<v1::GetInfoRequest>,
    ) -> Result<Response<v1::GetInfoResponse>, Status> {
        self.seen.lock().unwrap().infos += 1;
        Ok(Response::new(v1::GetInfoResponse {
            instance: self.script.instance.clone(),
            ..v1::GetInfoResponse::default()
        }))
    }
}

#[tonic::async_trait]
impl view::ViewService for Service {
    type WatchStream = Streamed<v1::WatchResponse>;

    async fn watch(&self, _: Request<v1::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        Err(Status::unimplemented("not in this service"))
    }

    async fn change_watch(
        &self,
        _: Request<v1::ChangeWatchRequest>,
    ) -> Result<Response<v1::ChangeWatchResponse>, Status> {
        Err(Status::unimplemented("not in this service"))
    }

    type WatchLatencyStream = Streamed<v1::WatchLatencyResponse>;

    async fn watch_latency(
        &self,
        request: Request<v1::WatchLatencyRequest>,
    ) -> Result<Response<Self::WatchLatencyStream>, Status> {
        Ok(Response::new(self.play(&request.into_inner().session, latency)))
    }

    type WatchFlameStream = Streamed<v1::WatchFlameResponse>;

    async fn watch_flame(
        &self,
        request: Request<v1::WatchFlameRequest>,
    ) -> Result<Response<Self::WatchFlameStream>, Status> {
        let request = request.into_inner();
        self.seen.lock().unwrap().flames.push(request.clone());
        let nameless = self.script.nameless.clone();
        let event = request.event.clone();
        let view = move |update, why: Option<&str>| {
            let mut view = flame(update, why);
            if !event.is_empty() {
                (view.event, view.unit) = ("page-faults".to_owned(), "faults".to_owned());
                let lost = [("event_rate_limit".to_owned(), 7)];
                view.summary.get_or_insert_default().lost = lost.into();
            }
            let frame = view.frames.iter_mut().find(|frame| frame.id == 3);
            if let (Some(frame), Some((build_id, address))) = (frame, nameless.clone()) {
                frame.function = format!("server+{address:#x} (no symbols)");
                "no symbols".clone_into(&mut frame.unresolved);
                (frame.build_id, frame.address) = (build_id, address);
            }
            view
        };
        Ok(Response::new(self.play(&request.session, view)))
    }

    type WatchExplainStream = Streamed<v1::WatchExplainResponse>;

    async fn watch_explain(
        &self,
        request: Request<v1::WatchExplainRequest>,
    ) -> Result<Response<Self::WatchExplainStream>, Status> {
        Ok(Response::new(self.play(&request.into_inner().session, explained)))
    }

    type WatchSpansStream = Streamed<v1::WatchSpansResponse>;

    async fn watch_spans(
        &self,
        request: Request<v1::WatchSpansRequest>,
    ) -> Result<Response<Self::WatchSpansStream>, Status> {
        let request = request.into_inner();
        let view = move |update, why: Option<&str>| spans(request.spans, update, why);
        Ok(Response::new(self.play(&request.session, view)))
    }

    type WatchWaitsStream = Streamed<v1::WatchWaitsResponse>;

    async fn watch_waits(
        &self,
        request: Request<v1::WatchWaitsRequest>,
    ) -> Result<Response<Self::WatchWaitsStream>, Status> {
        Ok(Response::new(
            self.play(&request.into_inner().session, waits::waits),
        ))
    }

    type WatchSyscallsStream = Streamed<v1::WatchSyscallsResponse>;

    async fn watch_syscalls(
        &self,
        request: Request<v1::WatchSyscallsRequest>,
    ) -> Result<Response<Self::WatchSyscallsStream>, Status> {
        let request = request.into_inner();
        let by = request.by();
        let view = move |update, why: Option<&str>| syscalls::syscalls(by, update, why);
        Ok(Response::new(self.play(&request.session, view)))
    }

    type WatchRecordsStream = Streamed<v1::WatchRecordsResponse>;

    async fn watch_records(
        &self,
        _: Request<v1::WatchRecordsRequest>,
    ) -> Result<Response<Self::WatchRecordsStream>, Status> {
        Err(Status::unimplemented("it records nothing"))
    }

    type WatchTimelineStream = Streamed<v1::WatchTimelineResponse>;

    async fn watch_timeline(
        &self,
        request: Request<v1::WatchTimelineRequest>,
    ) -> Result<Response<Self::WatchTimelineStream>, Status> {
        let request = request.into_inner();
        let session = request.session.clone();
        let view = move |update, why: Option<&str>| timeline::bucket(&request, update, why);
        Ok(Response::new(self.play(&session, view)))
    }

    type WatchTraceStream = Streamed<v1::WatchTraceResponse>;

    async fn watch_trace(
        &self,
        request: Request<v1::WatchTraceRequest>,
    ) -> Result<Response<Self::WatchTraceStream>, Status> {
        let session = request.into_inner().session;
        let created = {
            let seen = self.seen.lock().unwrap();
            seen.created.last().cloned().unwrap_or_default()
        };
        let with_stack = created.capture.is_some_and(|capture| capture.stack);
        let view = move |update, why: Option<&str>| trace(&created.scope, with_stack, update, why);
        Ok(Response::new(self.play(&session, view)))
    }
}

impl Service {
    /// Sends updates until the session ends or the script says so, then the last one.
    fn play<T: Send + 'static>(
        &self,
        session: &str,
        make: impl Fn(usize, Option<&str>) -> T + Send + 'static,
    ) -> Streamed<T> {
        let (sender, receiver) = mpsc::channel(1);
        let mut end = self
            .ends
            .lock()
            .unwrap()
            .entry(session.to_owned())
            .or_insert_with(|| watch::channel(false).0)
            .subscribe();
        let (script, updates) = (self.script.clone(), Arc::clone(&self.updates));
        tokio::spawn(async move {
            for update in 0.. {
                if script.silent_after.is_some_and(|most| *updates.borrow() >= most) {
                    sender.closed().await;
                    return;
                }
                if script.breaks_after == Some(update) {
                    let _ = sender.send(Err(Status::unavailable("transport error"))).await;
                    return;
                }
                let gone = script.target_exits_after == Some(update);
                let why = if gone {
                    Some("The target exited.")
                } else if *end.borrow() {
                    Some("The session was ended.")
                } else {
                    None
                };
                if sender.send(Ok(make(update, why))).await.is_err() || why.is_some() {
                    return;
                }
                updates.send_modify(|sent| *sent += 1);
                tokio::select! {
                    () = tokio::time::sleep(UPDATE) => {}
                    _ = end.wait_for(|&end| end) => {}
                }
            }
        });
        Box::pin(ReceiverStream::new(receiver))
    }
}

/// What slow calls do: one branch.
fn explained(update: usize, why: Option<&str>) -> v1::WatchExplainResponse {
    let share = |have, of| Some(v1::CallShare { have, of });
    let side = |calls, mean_ns| Some(v1::CallsOfSide { calls, mean_ns });
    v1::WatchExplainResponse {
        info: Some(info(update as u64, "handle[>= p95]", why)),
        threshold_ns: 4_710_000,
        calls: 900,
        looked_at: 842,
        slow: side(42, 12_100_000.0),
        other: side(800, 1_300_000.0),
        features: 2,
        findings: vec![v1::Finding {
            kind: v1::finding::Kind::Branch.into(),
            text: "main.cc:1310!taken".to_owned(),
            slow: share(42, 42),
            other: share(4, 800),
            difference: Some(v1::Interval {
                value: 0.995,
                low: 0.85,
                high: 1.0,
            }),
            next: "handle[>= p95]/main.cc:1310!taken".to_owned(),
            next_hits_per_s: Some(1234.0),
            next_cpu_share: Some(0.0042),
            ..v1::Finding::default()
        }],
        ..v1::WatchExplainResponse::default()
    }
}

/// What a message begins with; `why` it is the last, if it is.
fn info(seq: u64, scope: &str, why: Option<&str>) -> v1::StreamInfo {
    v1::StreamInfo {
        seq,
        scope: scope.to_owned(),
        end: why.map(|why| v1::StreamEnd {
            cause: v1::EndCause::Other.into(),
            reason: why.to_owned(),
            signal: 0,
        }),
        ..Default::default()
    }
}
