//! All that one user can ask of a daemon at once, for some seconds, or for a minute with `PROFILER_SCALE=long`: as many sessions as
//! there may be, views that nobody reads, hits beyond every limit, libraries of gigabytes, thousands of connections, and files that
//! never answer. Root is answered meanwhile, and the daemon takes and keeps little memory.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs::File,
    os::{fd::AsRawFd as _, unix::fs::chown},
    path::PathBuf,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use profiler_proto::v1;
use rustix::{
    mount::{MountFlags, UnmountFlags, mount, unmount},
    process::{Resource, getrlimit, setrlimit},
};
use tokio::{runtime::Runtime, task::JoinSet};
use tonic::{Status, Streaming};

use super::{
    clients::{Clients, of},
    daemon::Daemon,
    fixture::{self, Fixture, long_scale},
    skipped, split_off,
    users::{NOBODY, OfNobody, Open, connect_as_nobody, memory_of, sparse_library},
    verbs::{busy, unharmed},
};

/// Longest wait for an answer to root.
const PATIENCE: Duration = Duration::from_mins(1);
/// What the daemon may take at any time, in KiB.
const PEAK_KIB: u64 = 512 << 10;
/// What it may keep once nobody asks any more, in KiB.
const LEFT_KIB: u64 = 32 << 10;
/// How long a session stays that nobody watches.
const LEASE: Option<prost_types::Duration> = Some(prost_types::Duration { seconds: 1, nanos: 0 });
/// Connections that the user makes in a minute.
const CONNECTIONS: u32 = 10_000;
/// Those that are made at once.
const CONNECTIONS_AT_ONCE: u32 = 200;

/// Reads a stream to its end.
async fn drain<T>(mut stream: Streaming<T>) -> Result<u64, Status> {
    let mut messages = 0;
    while stream.message().await?.is_some() {
        messages += 1;
    }
    Ok(messages)
}

/// A folder of which every file waits for somebody who never answers: a file system (FUSE) whose program reads no request, as a user can
/// mount it.
struct Silent {
    at: PathBuf,
    /// Until it is closed.
    program: Option<File>,
}

impl Silent {
    /// `None` where there is no FUSE.
    fn at(folder: PathBuf) -> Option<Self> {
        let program = File::options().read(true).write(true).open("/dev/fuse").ok()?;
        std::fs::create_dir(&folder).unwrap();
        let options = format!(
            "fd={},rootmode=40755,user_id={NOBODY},group_id={NOBODY}\0",
            program.as_raw_fd()
        );
        let options = std::ffi::CStr::from_bytes_with_nul(options.as_bytes()).unwrap();
        mount("silent", &folder, "fuse", MountFlags::empty(), Some(options)).unwrap();
        Some(Self {
            at: folder,
            program: Some(program),
        })
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        // Then all that waits fails.
        drop(self.program.take());
        let _ = unmount(&self.at, UnmountFlags::DETACH);
    }
}

/// What the user does, until it is over.
#[derive(Default)]
struct Flood {
    over: AtomicBool,
    sessions: AtomicU64,
    answered: AtomicU64,
    refused: AtomicU64,
    connections: AtomicU64,
}

impl Flood {
    fn count<T>(&self, answer: Result<T, Status>) -> Option<T> {
        let counter = if answer.is_ok() {
            &self.answered
        } else {
            &self.refused
        };
        counter.fetch_add(1, Relaxed);
        answer.ok()
    }

    fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }

    /// As many sessions as there may be, each with views that are not read; then the same again. The views have a connection of their
    /// own: what is not read there fills its window (RFC 9113, 5.2), and answers to others would wait behind it.
    async fn sessions(self: Arc<Self>, mut user: Clients, mut viewer: Clients, pid: u32) {
        while !self.is_over() {
            let (mut names, mut unread) = (Vec::new(), Vec::new());
            loop {
                let request = v1::CreateSessionRequest {
                    target: Some(of(pid)),
                    scope: "step_*".to_owned(),
                    frequency_hz: 1_000,
                    capture: Some(v1::Capture {
                        print: vec!["$rdi".to_owned()],
                        hits_per_second: 100_000,
                        stack: true,
                    }),
                    budget: Some(0.0),
                    lease: LEASE,
                    ..v1::CreateSessionRequest::default()
                };
                let created = user.sessions.create_session(request).await;
                let Some(created) = self.count(created) else { break };
                self.sessions.fetch_add(1, Relaxed);
                let session = created.into_inner().session.unwrap().name;
                unread.push(self.watch(&mut viewer, &session).await);
                names.push(session);
                if self.is_over() {
                    break;
                }
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
            for name in names {
                let ended = user.sessions.end_session(v1::EndSessionRequest { name }).await;
                self.count(ended);
            }
        }
    }

    /// Opens views, and reads none.
    async fn watch(&self, user: &mut Clients, name: &str) -> [Box<dyn Send>; 4] {
        let session = || name.to_owned();
        let trace = v1::WatchTraceRequest {
            session: session(),
            ..v1::WatchTraceRequest::default()
        };
        let flame = v1::WatchFlameRequest {
            session: session(),
            interval: Some(prost_types::Duration {
                seconds: 0,
                nanos: 100_000_000,
            }),
            waits: true,
            ..v1::WatchFlameRequest::default()
        };
        let records = v1::WatchRecordsRequest {
            session: session(),
            ..v1::WatchRecordsRequest::default()
        };
        let calls = v1::WatchSyscallsRequest {
            session: session(),
            ..v1::WatchSyscallsRequest::default()
        };
        [
            Box::new(self.count(user.views.watch_trace(trace).await)),
            Box::new(self.count(user.views.watch_flame(flame).await)),
            Box::new(self.count(user.views.watch_records(records).await)),
            Box::new(self.count(user.views.watch_syscalls(calls).await)),
        ]
    }

    /// Has all functions of a process listed, over and over.
    async fn functions(self: Arc<Self>, mut user: Clients, pid: u32) {
        while !self.is_over() {
            let request = v1::ListFunctionsRequest {
                target: Some(of(pid)),
                pattern: "f*".to_owned(),
            };
            if let Some(listed) = self.count(user.targets.list_functions(request).await) {
                let _ = drain(listed.into_inner()).await;
            }
        }
    }

    /// Has processes listed, and costs of scopes estimated.
    async fn lists(self: Arc<Self>, mut user: Clients, pid: u32) {
        while !self.is_over() {
            let listed = user
                .targets
                .list_processes(v1::ListProcessesRequest::default())
                .await;
            self.count(listed);
            let create = v1::CreateSessionRequest {
                target: Some(of(pid)),
                scope: "step_*".to_owned(),
                ..v1::CreateSessionRequest::default()
            };
            let request = v1::EstimateScopeRequest {
                request: Some(v1::estimate_scope_request::Request::Create(Box::new(create))),
                measure: true,
                sampled: Some(prost_types::Duration::default()),
            };
            self.count(user.sessions.estimate_scope(request).await);
        }
    }

    /// After a while, looks at a process whose files never answer: by its functions, and by stacks whose names are to be found.
    async fn silent(self: Arc<Self>, mut user: Clients, pid: u32, after: Duration) {
        tokio::time::sleep(after).await;
        let request = v1::CreateSessionRequest {
            target: Some(of(pid)),
            lease: LEASE,
            ..v1::CreateSessionRequest::default()
        };
        let created = self.count(user.sessions.create_session(request).await);
        let mut flame = None;
        if let Some(created) = created {
            let request = v1::WatchFlameRequest {
                session: created.into_inner().session.unwrap().name,
                ..v1::WatchFlameRequest::default()
            };
            flame = self.count(user.views.watch_flame(request).await);
        }
        self.functions(user, pid).await;
        drop(flame);
    }

    /// Makes connections that say nothing.
    fn connect(&self, socket: &std::path::Path) {
        while !self.is_over() {
            let socket = socket.to_owned();
            let made = std::thread::spawn(move || connect_as_nobody(&socket, CONNECTIONS_AT_ONCE as usize));
            let made = made.join().unwrap();
            self.connections.fetch_add(made.len() as u64, Relaxed);
            // Ten thousand a minute.
            std::thread::sleep(Duration::from_mins(1) / (CONNECTIONS / CONNECTIONS_AT_ONCE));
        }
    }
}

/// Root, who asks for everything in turn; with the times that each request took, in their order.
struct Root {
    clients: Clients,
    pid: u32,
    took: BTreeMap<&'static str, Vec<Duration>>,
}

impl Root {
    async fn of(daemon: &Daemon, targets: &Targets) -> Self {
        let root = std::os::unix::net::UnixStream::connect(&daemon.socket).unwrap();
        Self {
            clients: Clients::on(root).await,
            pid: targets.of_root.pid(),
            took: BTreeMap::new(),
        }
    }

    async fn timed<T>(&mut self, what: &'static str, answer: impl Future<Output = Result<T, Status>>) -> T {
        let begin = Instant::now();
        let answer = tokio::time::timeout(PATIENCE, answer).await;
        let answer = answer.unwrap_or_else(|_| panic!("{what} has no answer"));
        let answer = answer.unwrap_or_else(|status| panic!("{what}: {status}"));
        self.took.entry(what).or_default().push(begin.elapsed());
        answer
    }

    /// Asks once for everything.
    async fn ask(&mut self) {
        let Clients {
            mut sessions,
            mut targets,
            mut views,
        } = self.clients.clone();
        self.timed(
            "list of sessions",
            sessions.list_sessions(v1::ListSessionsRequest {}),
        )
        .await;
        self.timed("ps", targets.list_processes(v1::ListProcessesRequest::default()))
            .await;
        let pid = self.pid;
        let functions = async {
            let request = v1::ListFunctionsRequest {
                target: Some(of(pid)),
                pattern: "f*".to_owned(),
            };
            drain(targets.list_functions(request).await?.into_inner()).await
        };
        self.timed("functions", functions).await;
        let create = v1::CreateSessionRequest {
            target: Some(of(pid)),
            scope: "f".to_owned(),
            frequency_hz: 999,
            ..v1::CreateSessionRequest::default()
        };
        let created = self.timed("attach", sessions.create_session(create)).await;
        let name = created.into_inner().session.unwrap().name;
        let request = v1::WatchLatencyRequest {
            session: name.clone(),
            ..v1::WatchLatencyRequest::default()
        };
        let picture = async { views.watch_latency(request).await?.into_inner().message().await };
        let picture = self.timed("latency", picture).await;
        assert!(picture.is_some());
        let interval = Some(prost_types::Duration {
            seconds: 0,
            nanos: 50_000_000,
        });
        let request = v1::WatchFlameRequest {
            session: name.clone(),
            interval,
            ..v1::WatchFlameRequest::default()
        };
        // Until samples have names.
        let named = async {
            let mut pictures = views.watch_flame(request).await?.into_inner();
            loop {
                let message = pictures.message().await?;
                let message = message.ok_or_else(|| Status::internal("it ended"))?;
                if !message.frames.is_empty() {
                    return Ok(());
                }
            }
        };
        self.timed("flame, until there are names", named).await;
        self.timed("end", sessions.end_session(v1::EndSessionRequest { name }))
            .await;
    }

    /// The first time that each request took (the engine may be loaded then), the median and the longest.
    fn said(&self) -> String {
        let requests: usize = self.took.values().map(Vec::len).sum();
        let mut said = format!("root's {requests} requests took, first/median/at most");
        for (what, took) in &self.took {
            let mut sorted = took.clone();
            sorted.sort_unstable();
            let [first, median, longest] =
                [took[0], sorted[sorted.len() / 2], sorted[sorted.len() - 1]].map(|took| took.as_millis());
            write!(said, "; {what} {first}/{median}/{longest} ms").unwrap();
        }
        said
    }
}

/// What the user looks at, and what root does.
struct Targets {
    hot: OfNobody,
    /// With libraries that are nearly all holes.
    sparse: OfNobody,
    /// With files beside it that never answer.
    silent: OfNobody,
    of_root: Fixture,
}

impl Targets {
    fn start(open: &Open) -> Self {
        let libraries: Vec<String> = (0..8).map(|number| sparse_library(open, number)).collect();
        let (program, debug) = split_off::stripped(&open.0, "latencies");
        chown(&program, Some(NOBODY), Some(NOBODY)).unwrap();
        // Its debug information is looked for in a folder beside it, too.
        std::fs::remove_file(open.0.path().join(debug)).unwrap();
        let mut silent = Command::new(&program);
        silent.args(["1000000", "1", "spin"]);
        Self {
            hot: OfNobody::run(Command::new(open.copy(&fixture::directory().join("hot")))),
            sparse: OfNobody::start_with(open, &libraries.join(" ")),
            silent: OfNobody::run(silent),
            of_root: busy(),
        }
    }
}

/// What the user asks for.
#[derive(Clone, Copy)]
enum Asked {
    /// Sessions, views, lists and estimates.
    Sessions,
    /// That, and files that take long to read, of which a user's requests read one at a time; after such a time also those that never
    /// answer, if there are any.
    Files { silent_after: Option<Duration> },
}

impl Flood {
    /// What the user does on these connections.
    fn begin(self: &Arc<Self>, users: &[Clients], targets: &Targets, asked: Asked) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        let mut own = users.iter().cycle().cloned();
        let mut next = || own.next().unwrap();
        let flood = || Arc::clone(self);
        tasks.spawn(flood().sessions(next(), next(), targets.hot.0.id()));
        for _ in 0..4 {
            tasks.spawn(flood().lists(next(), targets.hot.0.id()));
        }
        if let Asked::Files { silent_after } = asked {
            for _ in 0..12 {
                tasks.spawn(flood().functions(next(), targets.sparse.0.id()));
            }
            if let Some(after) = silent_after {
                tasks.spawn(flood().silent(next(), targets.silent.0.id(), after));
            }
        }
        tasks
    }

    /// Lets the user do all that for so long, while root asks; says how long root's requests took.
    fn run(daemon: &Daemon, runtime: &Runtime, targets: &Targets, length: Duration, asked: Asked) {
        let flood = Arc::new(Self::default());
        let socket = daemon.socket.clone();
        let streams = std::thread::spawn(move || connect_as_nobody(&socket, 8))
            .join()
            .unwrap();
        let connecting = std::thread::spawn({
            let (flood, socket) = (Arc::clone(&flood), daemon.socket.clone());
            move || flood.connect(&socket)
        });
        let root = runtime.block_on(async {
            let mut users = Vec::new();
            for stream in streams {
                users.push(Clients::on(stream).await);
            }
            let mut tasks = flood.begin(&users, targets, asked);
            let mut root = Root::of(daemon, targets).await;
            let begin = Instant::now();
            while begin.elapsed() < length {
                root.ask().await;
            }
            flood.over.store(true, Relaxed);
            // Those that wait for what never answers go with their connections.
            drop(users);
            tasks.shutdown().await;
            root
        });
        connecting.join().unwrap();
        println!(
            "the user: {} sessions, {} requests answered, {} refused, {} connections",
            flood.sessions.load(Relaxed),
            flood.answered.load(Relaxed),
            flood.refused.load(Relaxed),
            flood.connections.load(Relaxed)
        );
        println!("{}", root.said());
        // It is a flood: much is answered, and in a minute sessions beyond a user's share are refused.
        assert!(flood.answered.load(Relaxed) > 0);
        if matches!(asked, Asked::Sessions) {
            assert!(flood.sessions.load(Relaxed) > 0);
            assert!(!long_scale() || flood.refused.load(Relaxed) > 0);
        }
        assert!(flood.connections.load(Relaxed) >= CONNECTIONS_AT_ONCE.into());
    }
}

#[test]
#[ignore = "needs root"]
fn one_user_who_asks_for_everything_at_once_holds_up_nobody_else() {
    let length = Duration::from_secs(if long_scale() { 60 } else { 5 });
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    let open = Open::new();
    let targets = Targets::start(&open);
    let silent_folder = Silent::at(open.0.path().join(".debug"));
    if silent_folder.is_none() {
        skipped("no files that never answer: there is no FUSE here");
    }
    // As the service is set up: otherwise all wait while one user's first session loads the programs.
    let daemon = Daemon::with(&["--keep-loaded"]);
    let runtime = Runtime::new().unwrap();
    let alone = runtime.block_on(async {
        let mut root = Root::of(&daemon, &targets).await;
        for _ in 0..2 {
            root.ask().await;
        }
        root.said()
    });
    println!("alone, {alone}");
    Flood::run(&daemon, &runtime, &targets, length, Asked::Sessions);
    let silent_after = silent_folder.as_ref().map(|_| length * 2 / 3);
    Flood::run(&daemon, &runtime, &targets, length, Asked::Files { silent_after });
    let peak = memory_of(daemon.pid(), "VmHWM");
    drop(silent_folder);
    let begin = Instant::now();
    while !daemon.sessions().is_empty() {
        assert!(begin.elapsed() < PATIENCE, "{:?}", daemon.sessions());
        std::thread::sleep(Duration::from_millis(100));
    }
    let memory = || memory_of(daemon.pid(), "RssAnon");
    let begin = Instant::now();
    while memory() > LEFT_KIB && begin.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(100));
    }
    let left = memory();
    println!("memory: {peak} KiB at most, {left} left");
    println!(
        "longest steps of the session task, in milliseconds: {:?}",
        daemon.held_up()
    );
    assert!(peak <= PEAK_KIB, "{peak} KiB");
    assert!(left <= LEFT_KIB, "{left} KiB");
    unharmed(targets.of_root);
    assert_eq!(daemon.stop(), Some(0));
}
