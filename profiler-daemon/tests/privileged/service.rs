//! A session task of the test's own, and sessions on it.

use profiler_aggregate::calltree::{FrameId, Node, NodeId};
use std::{
    collections::BTreeSet,
    ops::Deref,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use profiler_daemon::{
    kernel,
    session::{
        self, Caller, Config, ExitMethod, FlamePicture, FlameRequest, FlameTimes, FunctionLatency, Handle,
        LatencyPicture, NewSession, Numbered, Pictures, SessionError, SessionInfo, SpansPicture,
        SpansRequest, SyscallsPicture, TargetSpec, TimelineBucket, TimelineRequest, WaitsPicture,
    },
};
use profiler_symbolize::Grouping;
use tokio::{runtime::Runtime, sync::mpsc};

use super::bpf;

/// The caller of every test.
pub const ROOT: Caller = Caller { uid: 0, gid: 0 };

/// Longest wait for anything.
pub const PATIENCE: Duration = Duration::from_mins(2);

/// Time between pictures.
const INTERVAL_NS: u64 = 100_000_000;

/// A new session of a scope on a process, as most tests want it.
pub fn session_of(pid: u32, scope: &str) -> NewSession {
    NewSession {
        name: String::new(),
        target: TargetSpec::Pid(pid),
        scope: scope.to_owned(),
        frequency_hz: 99,
        window_ns: 10_000_000_000,
        half_life_ns: 30_000_000_000,
        lease_ns: 900_000_000_000,
        exit_method: None,
        capture: None,
        explain: false,
        allocations: false,
        budget: None,
    }
}

/// The name by which a caller means somebody's session.
pub fn meant_by(caller: Caller, owner: Caller, name: &str) -> String {
    if caller.uid == owner.uid {
        name.to_owned()
    } else {
        format!("{}/{name}", owner.uid)
    }
}

/// A session task and the runtime that talks to it.
pub struct Running {
    pub runtime: Runtime,
    pub handle: Handle,
}

/// The session tasks that tests lend each other, while none has them: loading and verifying all programs takes longer than
/// most tests do. One attaches as the kernel can, one by perf events.
static KEPT: [Mutex<Option<Running>>; 2] = [Mutex::new(None), Mutex::new(None)];

/// Whole or not there, whatever became of a test.
fn kept(by_perf: bool) -> MutexGuard<'static, Option<Running>> {
    KEPT[usize::from(by_perf)]
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

impl Running {
    fn new(engine: kernel::Config, keep_loaded: bool) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let handle = session::start(Config {
            engine,
            keep_loaded,
            ..Config::default()
        })
        .unwrap();
        Self { runtime, handle }
    }

    /// With all programs.
    fn loaded(engine: kernel::Config) -> Self {
        let running = Self::new(engine, true);
        // It is answered once they are.
        let listed = running.runtime.block_on(running.handle.list(ROOT));
        assert!(listed.unwrap().is_empty());
        running
    }

    fn stop(self) {
        self.runtime.block_on(self.handle.stop());
    }
}

/// A session task of a test.
pub struct Service {
    /// There until the end.
    running: Option<Running>,
    /// Where other tests find it afterwards: in which of [`KEPT`].
    lent: Option<bool>,
    /// What this process held in the kernel before.
    others: BTreeSet<bpf::Held>,
}

impl Service {
    /// Without sessions; it may have served other tests, and has all programs loaded.
    pub fn start() -> Self {
        Self::lend(false)
    }

    /// As [`Self::start`], with probes that are attached by perf events, as before Linux 6.10.
    pub fn start_by_perf() -> Self {
        Self::lend(true)
    }

    fn lend(by_perf: bool) -> Self {
        let running = kept(by_perf).take();
        let engine = || kernel::Config {
            force_perf: by_perf,
            ..kernel::Config::default()
        };
        let running = running.unwrap_or_else(|| Running::loaded(engine()));
        Self {
            running: Some(running),
            lent: Some(by_perf),
            others: bpf::held_by(std::process::id()),
        }
    }

    /// What this process has come to hold in the kernel since this began.
    pub fn held(&self) -> BTreeSet<bpf::Held> {
        let held = bpf::held_by(std::process::id());
        held.difference(&self.others).copied().collect()
    }

    /// Of the test's own: it holds something in the kernel only while it has a session.
    pub fn own() -> Self {
        Self::with(kernel::Config::default())
    }

    /// As [`Self::own`], with such an engine.
    pub fn with(engine: kernel::Config) -> Self {
        Self {
            others: bpf::held_by(std::process::id()),
            running: Some(Running::new(engine, false)),
            lent: None,
        }
    }

    /// Attaches a scope to a process.
    pub fn attach(&self, pid: u32, scope: &str) -> Result<SessionInfo, SessionError> {
        self.attach_by(pid, scope, None)
    }

    pub fn attach_by(
        &self,
        pid: u32,
        scope: &str,
        exit_method: Option<ExitMethod>,
    ) -> Result<SessionInfo, SessionError> {
        self.create(pid, scope, exit_method, 999)
    }

    /// As [`Self::attach`], with another sampling frequency.
    pub fn attach_at(&self, pid: u32, scope: &str, frequency_hz: u32) -> Result<SessionInfo, SessionError> {
        self.create(pid, scope, None, frequency_hz)
    }

    fn create(
        &self,
        pid: u32,
        scope: &str,
        exit_method: Option<ExitMethod>,
        frequency_hz: u32,
    ) -> Result<SessionInfo, SessionError> {
        let request = NewSession {
            frequency_hz,
            exit_method,
            ..session_of(pid, scope)
        };
        self.create_for(ROOT, request)
    }

    /// A session of somebody's, by the name that root means it by.
    pub fn create_for(&self, owner: Caller, request: NewSession) -> Result<SessionInfo, SessionError> {
        let created = self.runtime.block_on(self.handle.create(owner, request))?;
        let name = meant_by(ROOT, owner, &created.name);
        Ok(SessionInfo { name, ..created })
    }

    /// Extends the lease of a session that nobody watches.
    pub fn renew(&self, session: &SessionInfo) {
        self.runtime
            .block_on(self.handle.renew(ROOT, session.name.clone()))
            .unwrap();
    }

    pub fn end(&self, session: &SessionInfo) {
        self.runtime
            .block_on(self.handle.end(ROOT, session.name.clone()))
            .unwrap();
    }

    pub fn watch_latency(&self, session: &SessionInfo) -> Pictures<LatencyPicture> {
        self.runtime
            .block_on(self.handle.watch_latency(ROOT, session.name.clone(), INTERVAL_NS))
            .unwrap()
    }

    pub fn watch_syscalls(&self, session: &SessionInfo, by: Grouping) -> Pictures<SyscallsPicture> {
        self.runtime
            .block_on(
                self.handle
                    .watch_syscalls(ROOT, session.name.clone(), INTERVAL_NS, by),
            )
            .unwrap()
    }

    pub fn watch_flame(&self, session: &SessionInfo) -> Pictures<FlamePicture> {
        self.watch_flame_by(session, Grouping::Function)
    }

    pub fn watch_flame_by(&self, session: &SessionInfo, by: Grouping) -> Pictures<FlamePicture> {
        self.watch_flame_of(session, by, FlameTimes::OnCpu)
    }

    pub fn watch_flame_of(
        &self,
        session: &SessionInfo,
        by: Grouping,
        times: FlameTimes,
    ) -> Pictures<FlamePicture> {
        let request = FlameRequest {
            difference: true,
            ..FlameRequest::of(by, Some(times))
        };
        let watch = self
            .handle
            .watch_flame(ROOT, session.name.clone(), INTERVAL_NS, request);
        self.runtime.block_on(watch).unwrap()
    }

    /// With who was waited for drawn on waits.
    pub fn watch_flame_with_waits(
        &self,
        session: &SessionInfo,
        times: FlameTimes,
    ) -> Result<Pictures<FlamePicture>, SessionError> {
        let request = FlameRequest {
            waits: true,
            ..FlameRequest::of(Grouping::Function, Some(times))
        };
        let watch = self
            .handle
            .watch_flame(ROOT, session.name.clone(), INTERVAL_NS, request);
        self.runtime.block_on(watch)
    }

    pub fn watch_spans(&self, session: &SessionInfo, number: usize) -> Pictures<SpansPicture> {
        self.watch_spans_as(session, slowest(number))
    }

    pub fn watch_spans_as(&self, session: &SessionInfo, request: SpansRequest) -> Pictures<SpansPicture> {
        let name = session.name.clone();
        let watching = self.handle.watch_spans(ROOT, name, 100_000_000, request);
        self.runtime.block_on(watching).unwrap()
    }

    pub fn watch_waits(&self, session: &SessionInfo) -> Pictures<WaitsPicture> {
        let watch = self.handle.watch_waits(ROOT, session.name.clone(), INTERVAL_NS);
        self.runtime.block_on(watch).unwrap()
    }

    pub fn watch_timeline(
        &self,
        session: &SessionInfo,
        request: TimelineRequest,
    ) -> Result<mpsc::Receiver<TimelineBucket>, SessionError> {
        let watch = self.handle.watch_timeline(ROOT, session.name.clone(), request);
        self.runtime.block_on(watch)
    }

    /// The first picture from now on that fulfils a condition.
    pub fn until<P: Ends>(
        &self,
        pictures: &mut Pictures<P>,
        mut condition: impl FnMut(&P) -> bool,
    ) -> Numbered<P> {
        self.runtime.block_on(async {
            tokio::time::timeout(PATIENCE, async {
                loop {
                    if pictures.changed().await.is_err() {
                        let last = pictures.borrow().clone();
                        let reason = last.as_deref().and_then(Ends::ended);
                        panic!("no such picture came before the last, which says: {reason:?}");
                    }
                    let picture = pictures.borrow_and_update().clone();
                    if let Some(picture) = picture.filter(|picture| condition(picture)) {
                        return picture;
                    }
                }
            })
            .await
            .expect("no such picture came")
        })
    }

    /// Ends a session and gives its last histograms.
    pub fn last_latency(&self, session: &SessionInfo) -> Numbered<LatencyPicture> {
        let mut pictures = self.watch_latency(session);
        self.end(session);
        self.until(&mut pictures, |picture| picture.ended.is_some())
    }
}

/// A picture that may be its view's last.
pub trait Ends {
    /// Why it is.
    fn ended(&self) -> Option<&str>;
}

impl Ends for LatencyPicture {
    fn ended(&self) -> Option<&str> {
        self.ended.as_deref()
    }
}

impl Ends for WaitsPicture {
    fn ended(&self) -> Option<&str> {
        self.ended.as_deref()
    }
}

impl Ends for SyscallsPicture {
    fn ended(&self) -> Option<&str> {
        self.ended.as_deref()
    }
}

impl Ends for FlamePicture {
    fn ended(&self) -> Option<&str> {
        self.ended.as_deref()
    }
}

/// So many of the slowest calls.
pub fn slowest(number: usize) -> SpansRequest {
    SpansRequest {
        number,
        waits: false,
        system_calls: false,
    }
}

/// A function of a picture by name.
pub fn function<'a>(picture: &'a LatencyPicture, name: &str) -> &'a FunctionLatency {
    picture
        .functions
        .iter()
        .find(|function| function.function.name == name || function.function.linkage_name == name)
        .unwrap_or_else(|| panic!("no function {name} in the picture"))
}

/// Its calls that ended.
pub fn ended(function: &FunctionLatency) -> u64 {
    function.since_start.iter().map(|(_, count)| count).sum()
}

/// A side of a flame graph.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    Inside,
    Outside,
}

/// A side's time under a function, and the whole of it, in nanoseconds.
pub fn time_under(picture: &FlamePicture, side: Side, name: &str) -> (u64, u64) {
    let is_under = |mut node: u32| {
        while let Some(Node {
            parent: NodeId(parent),
            frame: FrameId(frame),
            ..
        }) = node.checked_sub(1).map(|at| picture.nodes[at as usize])
        {
            if *picture.frames[frame as usize].function == *name {
                return true;
            }
            node = parent;
        }
        false
    };
    let (mut under, mut all) = (0, 0);
    for weight in &picture.picture.weights {
        let ns = match side {
            Side::Inside => weight.inside_ns,
            Side::Outside => weight.outside_ns,
        };
        all += ns;
        if ns > 0 && is_under(weight.node.0) {
            under += ns;
        }
    }
    (under, all)
}

impl Deref for Service {
    type Target = Running;

    fn deref(&self) -> &Running {
        self.running.as_ref().unwrap()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // After a test that failed, the next one has another.
        let lent = self.lent.filter(|_| !std::thread::panicking());
        if lent.is_some() {
            for session in self.runtime.block_on(self.handle.list(ROOT)).unwrap() {
                // Its target may have ended since.
                let _ = self.runtime.block_on(self.handle.end(ROOT, session.name));
            }
        }
        let Some(running) = self.running.take() else {
            return;
        };
        match lent {
            Some(by_perf) if kept(by_perf).is_none() => *kept(by_perf) = Some(running),
            _ => running.stop(),
        }
    }
}
