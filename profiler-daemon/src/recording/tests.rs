//! What was recorded is shown again, as far as it was, and damage costs what is damaged.

use profiler_aggregate::calltree::{Node, NodeId};
use std::{collections::BTreeMap, fs, path::Path, sync::Arc};

use profiler_aggregate::latency::AgeConfig;
use profiler_common::{
    layout::bucket_of,
    probe::ProbeId,
    record::{SPAN_END, SpanEnd, SpanRef},
};
use profiler_proto::v1;
use profiler_recording::{Chunk, Kind, Writer};
use profiler_symbolize::{Frame, FrameId, FrameTable, Frames, Grouping, Nameable, Stacks, Word};
use proptest::prelude::*;
use prost::Message as _;

mod columns;
mod events;
mod explain;
mod more;
mod newer;
mod off_cpu;
mod scopes;
mod spans;
mod summaries;
mod syscalls;
mod too_much;

use super::{ColumnWriter, Recording};
use crate::{
    kernel::{Activity, ProbeCounts},
    rpc::records::Messages,
    session::{
        Caller, Cost, ExitMethod, FlamePicture, FlameRequest, FlameTimes, FunctionInfo, Handle,
        LatencyPicture, NewSession, Numbered, OwnLosses, ProbeReading, RECORDED_GROUPINGS, RecordBatch,
        Recorded, RecordedFunction, RecordedSample, RecordedScope, RecordedStep, RecordedTime, Sampling,
        SpanLosses, SpansRequest, TargetSpec, Task, TimelineRequest, TraceLosses, compare, replay,
    },
};

const ROOT: Caller = Caller { uid: 0, gid: 0 };
const PROBE: ProbeId = ProbeId(3);
const MS: u64 = 1_000_000;
/// When the recording begins.
const BEGIN_NS: u64 = 7_000_000_000;
const BATCH_NS: u64 = 250 * MS;
/// Calls of each batch, of which the last is slow.
const CALLS: u64 = 20;
const FAST_NS: u64 = MS;
const SLOW_NS: u64 = 20 * MS;

/// A target of which batches are made.
struct Target {
    frames: FrameTable,
    fast: Vec<FrameId>,
    slow: Vec<FrameId>,
    task: Task,
    scope: Arc<RecordedScope>,
    calls: u64,
    ended: BTreeMap<usize, u64>,
    batches: u64,
}

impl Target {
    fn new() -> Self {
        let mut frames = Frames::default();
        let mut frame = |function: &str| {
            frames.intern(Frame {
                function: function.into(),
                file: "a.c".into(),
                line: 3,
                module: "a".into(),
                inlined: false,
                kernel: false,
                unresolved: None,
                nameable: None,
            })
        };
        let (main, f) = (frame("main"), frame("f"));
        let (fast, slow) = (vec![main, f, frame("fast")], vec![main, f, frame("slow")]);
        let task = Task {
            thread: frame("worker (41)"),
            process: frame("server --fast"),
        };
        Self {
            frames: frames.table().clone(),
            fast,
            slow,
            task,
            scope: Arc::new(scope("f")),
            calls: 0,
            ended: BTreeMap::new(),
            batches: 0,
        }
    }

    fn batch(&mut self, records: Vec<Recorded>) -> RecordBatch {
        let from_ns = BEGIN_NS + self.batches * BATCH_NS;
        RecordBatch {
            from_ns,
            to_ns: from_ns + BATCH_NS,
            scope: Arc::clone(&self.scope),
            frames: self.frames.clone(),
            records: Arc::new(records),
            readings: Arc::new(vec![ProbeReading {
                probe: PROBE,
                ended: self
                    .ended
                    .iter()
                    .map(|(bucket, count)| (*bucket, *count))
                    .collect(),
                counts: ProbeCounts {
                    // One is always open.
                    entries: self.calls + 1,
                    ..ProbeCounts::default()
                },
            }]),
            sampling: Sampling::of_counters(|name| match name {
                "sample_attempted" => self.calls,
                _ => 0,
            }),
            spans: SpanLosses::default(),
            own: OwnLosses::default(),
            off_cpu: None,
            turns: Vec::new(),
            hits: Arc::default(),
            trace: TraceLosses::default(),
            dropped: 0,
            waits_dropped: 0,
            calls_dropped: 0,
            outside_dropped: 0,
            events: Arc::default(),
            at_events_dropped: 0,
            cost: Cost::default(),
            ended: None,
            room: None,
        }
    }

    /// What a stream begins with.
    fn first(&mut self) -> RecordBatch {
        let batch = self.batch(Vec::new());
        RecordBatch {
            to_ns: batch.from_ns,
            ..batch
        }
    }

    /// The next batch: calls, a sample in each.
    fn next(&mut self) -> RecordBatch {
        let from_ns = BEGIN_NS + self.batches * BATCH_NS;
        let mut records = Vec::new();
        for number in 1..=CALLS {
            self.calls += 1;
            let is_slow = number == CALLS;
            let duration_ns = if is_slow { SLOW_NS } else { FAST_NS };
            let start_ns = from_ns + number * 10 * MS;
            let stack = if is_slow { &self.slow } else { &self.fast };
            records.push(Recorded::Sample(RecordedSample {
                tgid: 40,
                tid: 41,
                ts_ns: start_ns + MS / 2,
                weight_ns: 10 * MS,
                activity: Activity::OnCpu,
                continues: false,
                system_call: None,
                task: Some(self.task),
                stacks: Stacks::make(RECORDED_GROUPINGS.into_iter().collect(), |_| stack.clone()),
                complete: true,
                spans: vec![SpanRef {
                    probe: PROBE,
                    gates: 0,
                    sequence: self.calls,
                    start_ns,
                }],
            }));
            records.push(Recorded::SpanEnd(SpanEnd {
                kind: SPAN_END,
                flags: 0,
                tgid: 40,
                tid: 41,
                probe: PROBE,
                hits: 1,
                sequence: self.calls,
                start_ns,
                end_ns: start_ns + duration_ns,
                parent: 0,
                gates: 0,
                returned: [0; 2],
            }));
            *self.ended.entry(bucket_of(duration_ns)).or_default() += 1;
        }
        let batch = self.batch(records);
        self.batches += 1;
        batch
    }
}

fn scope(text: &str) -> RecordedScope {
    RecordedScope {
        text: text.into(),
        steps: vec![RecordedStep {
            text: text.to_owned(),
            functions: vec![RecordedFunction {
                info: Arc::new(FunctionInfo {
                    name: "f".to_owned(),
                    address: 0x1000,
                    ..FunctionInfo::default()
                }),
                method: ExitMethod::Ret,
                overhead_ns: 5,
                probes: vec![PROBE],
            }],
            gates: 0,
        }],
        pids: vec![40],
        frequency_hz: 99,
        ages: AgeConfig::default(),
        warnings: Vec::new(),
        places: Vec::new(),
        off_cpu: false,
        events: Vec::new(),
    }
}

/// The chunk of a message.
fn of_records(message: &v1::WatchRecordsResponse) -> Chunk {
    Chunk {
        kind: Kind::Records,
        begins_anew: message.begins_anew,
        from_ns: message.from_ns,
        to_ns: message.to_ns,
    }
}

/// Writes batches, each in a chunk of its own.
fn write(path: &Path, batches: &[RecordBatch]) {
    write_all(path, batches.iter().cloned());
}

fn write_all(path: &Path, batches: impl Iterator<Item = RecordBatch>) {
    write_as(path, batches, Messages::default());
}

/// As [`write`], with the waits.
fn write_with_waits(path: &Path, batches: &[RecordBatch]) {
    write_as(path, batches.iter().cloned(), Messages::new(true));
}

fn write_as(path: &Path, batches: impl Iterator<Item = RecordBatch>, mut messages: Messages) {
    let mut writer = Writer::begin(Vec::new()).unwrap();
    let mut columns = ColumnWriter::default();
    for batch in batches {
        let mut message = messages.next(&batch);
        columns.pack(&mut message);
        writer
            .write(of_records(&message), &message.encode_length_delimited_to_vec())
            .unwrap();
    }
    fs::write(path, writer.into_inner()).unwrap();
}

/// A recording of so many batches.
fn recorded(path: &Path, batches: usize) {
    let mut target = Target::new();
    let first = target.first();
    let batches: Vec<RecordBatch> = [first]
        .into_iter()
        .chain((0..batches).map(|_| target.next()))
        .collect();
    write(path, &batches);
}

struct Replay {
    handle: Handle,
    runtime: tokio::runtime::Runtime,
}

impl Replay {
    fn of(path: &Path) -> Self {
        Self {
            handle: replay(path).unwrap(),
            runtime: tokio::runtime::Builder::new_current_thread().build().unwrap(),
        }
    }

    fn session(&self, scope: &str, begin_ns: u64, end_ns: u64) -> Result<String, String> {
        self.session_by(scope, begin_ns, end_ns, 0)
    }

    fn session_by(&self, scope: &str, begin_ns: u64, end_ns: u64, window_ns: u64) -> Result<String, String> {
        let target = TargetSpec::Recording(RecordedTime {
            begin_ns,
            end_ns,
            without_scope: false,
        });
        self.session_of(target, scope, window_ns)
    }

    fn session_of(&self, target: TargetSpec, scope: &str, window_ns: u64) -> Result<String, String> {
        let request = NewSession {
            name: String::new(),
            target,
            scope: scope.to_owned(),
            frequency_hz: 99,
            window_ns,
            half_life_ns: 0,
            lease_ns: 1_000_000_000,
            exit_method: None,
            capture: None,
            explain: false,
            allocations: false,
            budget: None,
        };
        let created = self.runtime.block_on(self.handle.create(ROOT, request));
        created
            .map(|session| session.name)
            .map_err(|error| error.to_string())
    }

    /// The two of these recordings; `before` is a part of the one before.
    fn comparing(path: &Path, before: &Path) -> Self {
        Self {
            handle: compare(path, before).unwrap(),
            ..Self::of(path)
        }
    }

    fn comparison(&self, scope: &str, before: (u64, u64)) -> Result<Numbered<FlamePicture>, String> {
        let request = FlameRequest::of(Grouping::Function, None);
        self.comparison_of(scope, before, request)
    }

    fn comparison_of(
        &self,
        scope: &str,
        before: (u64, u64),
        request: FlameRequest,
    ) -> Result<Numbered<FlamePicture>, String> {
        let time = |begin_ns, end_ns| RecordedTime {
            begin_ns,
            end_ns,
            without_scope: false,
        };
        let target = TargetSpec::Comparison {
            after: time(0, u64::MAX),
            before: time(before.0, before.1),
        };
        self.session_of(target, scope, 0)
            .and_then(|session| self.flame_of(&session, request))
    }

    fn flame(&self, session: &str) -> Result<Numbered<FlamePicture>, String> {
        self.flame_by(session, Grouping::Function)
    }

    fn flame_by(&self, session: &str, by: Grouping) -> Result<Numbered<FlamePicture>, String> {
        self.flame_of(session, FlameRequest::of(by, None))
    }

    fn flame_of(&self, session: &str, request: FlameRequest) -> Result<Numbered<FlamePicture>, String> {
        let watch = self
            .handle
            .watch_flame(ROOT, session.to_owned(), 1_000_000_000, request);
        let pictures = self.runtime.block_on(watch).map_err(|error| error.to_string())?;
        Ok(pictures.borrow().clone().unwrap())
    }

    fn latency(&self, session: &str) -> Numbered<LatencyPicture> {
        let watch = self.handle.watch_latency(ROOT, session.to_owned(), 1_000_000_000);
        let pictures = self.runtime.block_on(watch).unwrap();
        pictures.borrow().clone().unwrap()
    }

    /// Samples of a scope by their innermost function: inside, and outside.
    fn samples(&self, scope: &str, begin_ns: u64, end_ns: u64) -> BTreeMap<String, (u64, u64)> {
        let session = self.session(scope, begin_ns, end_ns).unwrap();
        by_function(&self.flame(&session).unwrap())
    }
}

fn by_function(picture: &FlamePicture) -> BTreeMap<String, (u64, u64)> {
    let weights = picture.picture.weights.iter();
    weights
        .map(|weight| {
            let frame = picture.nodes[weight.node.0 as usize - 1].frame.0;
            let function = picture.frames[frame as usize].function.to_string();
            (function, (weight.inside_samples, weight.outside_samples))
        })
        .collect()
}

fn expected(fast: (u64, u64), slow: (u64, u64)) -> BTreeMap<String, (u64, u64)> {
    [("fast", fast), ("slow", slow)]
        .into_iter()
        .filter(|(_, samples)| *samples != (0, 0))
        .map(|(name, samples)| (name.to_owned(), samples))
        .collect()
}

#[test]
fn percentiles_are_asked_for_afterwards() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    recorded(&path, 8);
    let replay = Replay::of(&path);
    let (fast, slow) = (8 * (CALLS - 1), 8);
    assert_eq!(
        replay.samples("f[>= p97]", 0, u64::MAX),
        expected((0, fast), (slow, 0))
    );
    assert_eq!(
        replay.samples("f[< p97]", 0, u64::MAX),
        expected((fast, 0), (0, slow))
    );
    assert_eq!(
        replay.samples("f[>= 5ms]", 0, u64::MAX),
        expected((0, fast), (slow, 0))
    );
    assert_eq!(replay.samples("", 0, u64::MAX), expected((fast, 0), (slow, 0)));
    let session = replay.session("f[>= p97]", 0, u64::MAX).unwrap();
    let picture = replay.flame(&session).unwrap();
    assert_eq!(picture.ended.as_deref(), Some("the end of the recording"));
    assert_eq!(picture.attempted, 8 * CALLS);
    let latency = replay.latency(&session);
    let [function] = latency.functions.as_slice() else {
        panic!("{:?}", latency.functions)
    };
    let counts: Vec<(u32, u64)> = [(FAST_NS, fast), (SLOW_NS, slow)]
        .map(|(ns, count)| (u32::try_from(bucket_of(ns)).unwrap(), count))
        .to_vec();
    assert_eq!(function.since_start, counts);
    assert_eq!((function.open, function.overhead_ns), (1, 5));
}

#[test]
fn two_recordings_are_held_against_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let (long, short) = (folder.path().join("long"), folder.path().join("short"));
    recorded(&long, 8);
    recorded(&short, 3);
    let replay = Replay::comparing(&long, &short);
    let all = (0, u64::MAX);
    let (fast, slow) = (CALLS - 1, 1);
    let picture = replay.comparison("f", all).unwrap();
    assert_eq!(
        by_function(&picture),
        expected((8 * fast, 3 * fast), (8 * slow, 3 * slow))
    );
    assert_eq!(picture.attempted, 11 * CALLS);
    assert!(!picture.picture.differences.is_empty());
    assert!(picture.picture.differences.iter().all(|node| !node.is_finding()));
    let (summary, before) = (picture.picture.summary, picture.before.unwrap());
    assert_eq!(
        (summary.samples, summary.inside, summary.outside),
        (11 * CALLS, 8 * CALLS, 3 * CALLS)
    );
    let calls = [summary.calls, before.calls].map(|calls| calls.round().to_string());
    assert_eq!(calls, [8 * CALLS, 3 * CALLS].map(|calls| calls.to_string()));
    assert_eq!(before.samples, 3 * CALLS);

    // The slow calls of each, and those of a part of the one before.
    let picture = replay.comparison("f[>= p97]", all).unwrap();
    assert_eq!(by_function(&picture), expected((0, 0), (8, 3)));
    let picture = replay.comparison("f[< p97]", (BATCH_NS, 2 * BATCH_NS)).unwrap();
    assert_eq!(by_function(&picture), expected((8 * fast, fast), (0, 0)));

    let says_builds = |picture: &FlamePicture| picture.ended.as_ref().unwrap().reason.contains("builds");
    assert!(!says_builds(&picture));

    let refused = replay.comparison("g", all).unwrap_err();
    assert!(refused.contains("was not recorded"), "{refused}");
    let refused = replay.comparison("f", (9 * BATCH_NS, u64::MAX)).unwrap_err();
    assert!(refused.contains("it has nothing after"), "{refused}");
    let refused = Replay::of(&long).comparison("f", all).unwrap_err();
    assert!(refused.contains("no other recording"), "{refused}");
}

#[test]
fn builds_of_modules_that_differ_are_said() {
    let folder = tempfile::tempdir().unwrap();
    let recorded_with = |build_id: u8| {
        let path = folder.path().join(build_id.to_string());
        let mut target = Target::new();
        // One that is in stacks, and one of which the daemon has names for others alone.
        for module in ["a", "elsewhere"] {
            let build = Frame {
                function: "".into(),
                module: module.into(),
                nameable: Some(Nameable {
                    build_id: vec![build_id; 20].into(),
                    address: 0,
                }),
                ..target.frames[0].clone()
            };
            target.frames.push(build);
        }
        let batches = [target.first(), target.next(), target.next()];
        write(&path, &batches);
        path
    };
    let (first, second) = (recorded_with(1), recorded_with(2));
    let reason = |after: &Path, before: &Path| {
        let picture = Replay::comparing(after, before)
            .comparison("f", (0, u64::MAX))
            .unwrap();
        picture.ended.as_ref().unwrap().reason.clone()
    };
    let other = reason(&second, &first);
    assert!(other.contains("other builds than before: a"), "{other}");
    assert!(!other.contains("elsewhere"), "{other}");
    let same = reason(&first, &first);
    assert!(!same.contains("builds"), "{same}");
}

#[test]
fn why_the_recorded_session_ended_is_a_warning_of_the_part_with_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let warnings = |reason: Option<&str>, end_ns| {
        let mut target = Target::new();
        let mut batches = [target.first(), target.next(), target.next()];
        batches[2].ended = reason.map(crate::session::Ending::other);
        write(&path, &batches);
        let replay = Replay::of(&path);
        replay.session("f", 0, end_ns).unwrap();
        let listed = replay.runtime.block_on(replay.handle.list(ROOT)).unwrap();
        listed[0].warnings.join("\n")
    };
    let over = "`f` was taken off: it took 9%, over the budget of 3%";
    let said = warnings(Some(over), u64::MAX);
    assert!(
        said.contains(&format!("the recorded session ended by itself: {over}")),
        "{said}"
    );
    for (reason, end_ns) in [
        (Some(over), 250_000_000),
        (Some("the session was ended"), u64::MAX),
        (None, u64::MAX),
    ] {
        let said = warnings(reason, end_ns);
        assert!(!said.contains("ended by itself"), "{said}");
    }
}

#[test]
fn frames_stand_for_what_is_asked_afterwards() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    recorded(&path, 2);
    let replay = Replay::of(&path);
    let session = replay.session("f", 0, u64::MAX).unwrap();
    let stacks = |by| {
        let picture = replay.flame_by(&session, by).unwrap();
        let weights = picture.picture.weights.iter();
        let stack = |node: u32| {
            let mut stack = Vec::new();
            let mut next = node;
            while next != 0 {
                let Node {
                    parent: NodeId(parent),
                    frame: FrameId(frame),
                    ..
                } = picture.nodes[next as usize - 1];
                stack.insert(0, picture.frames[frame as usize].function.to_string());
                next = parent;
            }
            stack.join(";")
        };
        let stacks = weights.map(|weight| (stack(weight.node.0), weight.inside_samples));
        stacks.collect::<BTreeMap<String, u64>>()
    };
    let all = 2 * CALLS;
    assert_eq!(stacks(Grouping::Module), [("a".to_owned(), all)].into());
    for (by, root) in [
        (Grouping::Thread, "worker (41)"),
        (Grouping::Process, "server --fast"),
    ] {
        let expected = [
            (format!("{root};main;f;fast"), all - 2),
            (format!("{root};main;f;slow"), 2),
        ];
        assert_eq!(stacks(by), expected.into());
    }
    assert_eq!(stacks(Grouping::Line), stacks(Grouping::Function));
}

#[test]
fn a_part_of_the_time_is_that_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    recorded(&path, 8);
    let replay = Replay::of(&path);
    let part = |from: u64, to: u64| replay.samples("f[>= 5ms]", from * BATCH_NS, to * BATCH_NS);
    assert_eq!(part(2, 5), expected((0, 3 * (CALLS - 1)), (3, 0)));
    assert_eq!(part(7, 8), expected((0, CALLS - 1), (1, 0)));
    let session = replay.session("f", 2 * BATCH_NS, 5 * BATCH_NS).unwrap();
    let latency = replay.latency(&session);
    let calls: u64 = latency.functions[0]
        .since_start
        .iter()
        .map(|(_, count)| count)
        .sum();
    assert_eq!((calls, latency.functions[0].open), (3 * CALLS, 1));
    let refused = replay.session("f", 8 * BATCH_NS, u64::MAX).unwrap_err();
    assert!(refused.contains("2.000 s long"), "{refused}");
}

#[test]
fn what_was_not_recorded_is_refused_with_what_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    recorded(&path, 2);
    let replay = Replay::of(&path);
    for (scope, words) in [
        ("g", "the recording is of `f`"),
        ("f/g", "`g` was not recorded there"),
        ("f/g", "profiler record -p PID 'f/g' -o FILE"),
        ("f[n == 1]", "with other conditions on values"),
        ("f[", "a comparison is missing"),
    ] {
        let refused = replay.session(scope, 0, u64::MAX).unwrap_err();
        assert!(refused.contains(words), "{scope}: {refused}");
    }
    let request = FlameRequest::of(Grouping::Function, None);
    let session = replay.session("f", 0, u64::MAX).unwrap();
    let waits = FlameRequest {
        waits: true,
        ..request
    };
    let refused = replay.flame_of(&session, waits).unwrap_err();
    assert!(
        refused.contains("record it with `profiler record --waits`"),
        "{refused}"
    );
}

#[test]
fn an_edit_of_the_scope_ends_what_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let mut target = Target::new();
    let mut batches = vec![target.first(), target.next()];
    target.scope = Arc::new(scope("f[n > 1]"));
    batches.push(target.next());
    write(&path, &batches);
    let replay = Replay::of(&path);
    let session = replay.session("f", 0, u64::MAX).unwrap();
    let picture = replay.flame(&session).unwrap();
    assert_eq!(by_function(&picture), expected((CALLS - 1, 0), (1, 0)));
    let ended = picture.ended.clone().unwrap();
    assert!(ended.contains("changed 0.250 s into the recording"), "{ended}");
    let behind = replay.session("f[n > 1]", BATCH_NS, u64::MAX).unwrap();
    let behind = by_function(&replay.flame(&behind).unwrap());
    assert_eq!(behind, expected((CALLS - 1, 0), (1, 0)));
}

#[test]
fn damage_costs_what_is_damaged_and_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    // Numbers begin anew in the second part.
    let mut target = Target::new();
    let mut batches = vec![target.first(), target.next(), target.next()];
    target.scope = Arc::new(scope("f"));
    batches.extend([target.next(), target.next()]);
    write(&path, &batches);
    let whole = fs::read(&path).unwrap();
    let all = Replay::of(&path).samples("f", 0, u64::MAX);
    assert_eq!(all, expected((4 * (CALLS - 1), 0), (4, 0)));
    let chunk = |number: usize| {
        let heads = (0..whole.len()).filter(|at| whole[*at..].starts_with(b"CHNK"));
        heads.into_iter().nth(number).unwrap()
    };
    // The last byte of the second chunk: it and the third are lost, and what begins anew is not.
    let mut damaged = whole.clone();
    damaged[chunk(2) - 1] ^= 1;
    fs::write(&path, &damaged).unwrap();
    let replay = Replay::of(&path);
    let session = replay.session("f", 0, u64::MAX).unwrap();
    let picture = replay.flame(&session).unwrap();
    assert_eq!(by_function(&picture), expected((2 * (CALLS - 1), 0), (2, 0)));
    let ended = picture.ended.clone().unwrap();
    assert!(ended.contains("0.500 s of it are damaged"), "{ended}");
    // Cut off amid the last.
    fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    let replay = Replay::of(&path);
    assert_eq!(
        replay.samples("f", 0, u64::MAX),
        expected((3 * (CALLS - 1), 0), (3, 0))
    );
    let listed = replay.runtime.block_on(replay.handle.list(ROOT)).unwrap();
    let warnings = listed[0].warnings.join("\n");
    assert!(
        warnings.contains("bytes of the recording are left out"),
        "{warnings}"
    );
}

/// Batches of one call each of `a`, of so many milliseconds, around a call of `b` that takes half as long.
fn calls_inside(text: &str, durations_ms: &[u64]) -> Vec<RecordBatch> {
    let (around, within) = (ProbeId(1), ProbeId(2));
    let mut target = Target::new();
    let function = |name: &str, probe| RecordedFunction {
        info: Arc::new(FunctionInfo {
            name: name.to_owned(),
            address: u64::from(probe),
            ..FunctionInfo::default()
        }),
        method: ExitMethod::Ret,
        overhead_ns: 0,
        probes: vec![ProbeId(probe)],
    };
    let steps = text.split('/').zip([("a", around), ("b", within)]);
    target.scope = Arc::new(RecordedScope {
        steps: steps
            .map(|(text, (name, probe))| RecordedStep {
                text: text.to_owned(),
                functions: vec![function(name, probe.0)],
                gates: 0,
            })
            .collect(),
        ..scope(text)
    });
    let readings = |durations_ms: &[u64]| {
        let reading = |probe, parts: u64| {
            let mut ended = BTreeMap::new();
            for duration_ms in durations_ms {
                *ended.entry(bucket_of(duration_ms * MS / parts)).or_default() += 1;
            }
            ProbeReading {
                probe,
                ended: ended.into_iter().collect(),
                counts: ProbeCounts {
                    entries: durations_ms.len() as u64,
                    ..ProbeCounts::default()
                },
            }
        };
        Arc::new(vec![reading(around, 1), reading(within, 2)])
    };
    let mut batches = vec![RecordBatch {
        readings: readings(&[]),
        ..target.first()
    }];
    for (number, duration_ms) in (0..).zip(durations_ms) {
        let begin_ns = BEGIN_NS + number * BATCH_NS + MS;
        let end = |probe, sequence, duration_ms, parent, flags| {
            Recorded::SpanEnd(SpanEnd {
                kind: SPAN_END,
                flags,
                tgid: 40,
                tid: 41,
                probe,
                hits: 0,
                sequence,
                start_ns: begin_ns,
                end_ns: begin_ns + duration_ms,
                parent,
                gates: 0,
                returned: [0; 2],
            })
        };
        let (outer, inner) = (2 * number + 1, 2 * number + 2);
        let parent = u32::try_from(outer).unwrap();
        let duration_ns = duration_ms * MS;
        let records = vec![
            end(within, inner, duration_ns / 2, parent, SpanEnd::JOINED),
            end(around, outer, duration_ns, 0, 1 << SpanEnd::INSIDE_SHIFT),
        ];
        let batch = RecordBatch {
            readings: readings(&durations_ms[..=usize::try_from(number).unwrap()]),
            ..target.batch(records)
        };
        target.batches += 1;
        batches.push(batch);
    }
    batches
}

/// The calls of the last step, by bucket.
fn calls(replay: &Replay, scope: &str, begin: u64) -> (String, BTreeMap<usize, u64>) {
    let session = replay.session(scope, begin * BATCH_NS, u64::MAX).unwrap();
    let picture = replay.latency(&session);
    let function = &picture.functions[0];
    let calls = function.since_start.iter().filter(|(_, count)| *count > 0);
    let calls = calls.map(|(bucket, count)| (*bucket as usize, *count));
    (function.function.name.clone(), calls.collect())
}

/// Calls of `b` inside of calls of `a` whose durations are asked for.
#[test]
fn a_part_of_calls_inside_of_slow_calls_has_all_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    write(&path, &calls_inside("a[>= 5ms]/b", &[10; 4]));
    let replay = Replay::of(&path);
    let counted = |scope: &str, begin: u64| {
        let (name, calls) = calls(&replay, scope, begin);
        (name, calls.values().sum::<u64>())
    };
    for begin in 0..4 {
        assert_eq!(counted("", begin), ("b".to_owned(), 4 - begin), "from {begin}");
    }
    assert_eq!(counted("a[>= 20ms]/b", 0), ("b".to_owned(), 0));
    assert_eq!(counted("a/b", 0), ("b".to_owned(), 4), "without the condition");
    assert_eq!(counted("a", 1), ("a".to_owned(), 3));
}

/// As `record --calls` keeps them: inner latency under any outer percentile is that of the very calls.
#[test]
fn calls_inside_of_any_percentile_are_those_of_all_calls() {
    // They grow, fall, and come in between: the percentile of the calls so far is another each time.
    let durations_ms: Vec<u64> = (1..=60).chain((61..=100).rev()).chain([30, 70, 99]).collect();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    write(&path, &calls_inside("a[>= 0ns]/b", &durations_ms));
    let replay = Replay::of(&path);
    let expected = |begin: usize, asked: &dyn Fn(usize, &[usize]) -> bool| -> BTreeMap<usize, u64> {
        let mut around: Vec<usize> = durations_ms[begin..]
            .iter()
            .map(|ms| bucket_of(ms * MS))
            .collect();
        around.sort_unstable();
        let mut expected = BTreeMap::new();
        for ms in &durations_ms[begin..] {
            if asked(bucket_of(ms * MS), &around) {
                *expected.entry(bucket_of(ms * MS / 2)).or_default() += 1;
            }
        }
        expected
    };
    let at = |around: &[usize], percent: usize| around[(around.len() * percent).div_ceil(100).max(1) - 1];
    for begin in [0, 50] {
        for percent in [50, 90, 95, 99] {
            let slow = expected(begin, &|bucket, around| bucket >= at(around, percent));
            let found = calls(&replay, &format!("a[>= p{percent}]/b"), begin as u64);
            assert_eq!(found, ("b".to_owned(), slow), "p{percent} from {begin}");
        }
        let band = expected(begin, &|bucket, around| {
            bucket >= at(around, 50) && bucket < at(around, 90)
        });
        assert!(!band.is_empty());
        assert_eq!(calls(&replay, "a[>= p50][< p90]/b", begin as u64).1, band);
        assert_eq!(
            calls(&replay, "a/b", begin as u64).1,
            expected(begin, &|_, _| true)
        );
    }
    let session = replay.session("a[>= p90]/b", 0, u64::MAX).unwrap();
    let ended = replay.latency(&session).ended.clone().unwrap();
    assert!(
        ended.reason.contains("of all calls of the time shown"),
        "{}",
        ended.reason
    );

    // What only a session knew is said.
    write(&path, &calls_inside("a[>= p90]/b", &durations_ms));
    let replay = Replay::of(&path);
    let session = replay.session("", 0, u64::MAX).unwrap();
    let sessions = replay.runtime.block_on(replay.handle.list(ROOT)).unwrap();
    let warnings = sessions
        .into_iter()
        .find(|info| info.name == session)
        .unwrap()
        .warnings;
    assert!(
        warnings.iter().any(|warning| warning.contains("until then")),
        "{warnings:?}"
    );
    let all = calls(&replay, "a[>= p90]/b", 0);
    assert_ne!(calls(&replay, "", 0), all);

    write(&path, &calls_inside("a/b", &durations_ms));
    let refused = Replay::of(&path).session("a[>= p90]/b", 0, u64::MAX).unwrap_err();
    assert!(refused.contains("record with --calls"), "{refused}");
}

#[test]
fn what_a_session_remembers_by_is_that_of_the_recording() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let mut target = Target::new();
    let mut scope = scope("f");
    scope.ages.window.window_ns = 1_000_000_000;
    target.scope = Arc::new(scope);
    let mut batches = vec![target.first()];
    batches.extend((0..12).map(|_| target.next()));
    write(&path, &batches);
    let replay = Replay::of(&path);
    let window = |window_ns| {
        let session = replay.session_by("f", 0, u64::MAX, window_ns).unwrap();
        let picture = replay.latency(&session);
        let window = &picture.functions[0].window;
        window.iter().map(|(_, count)| count).sum::<u64>()
    };
    assert_eq!(window(10_000_000_000), 12 * CALLS);
    assert!(window(0) < 6 * CALLS, "{}", window(0));
}

#[test]
fn a_chunk_of_messages_without_end_is_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let mut writer = Writer::begin(Vec::new()).unwrap();
    let chunk = Chunk {
        kind: Kind::Records,
        begins_anew: true,
        from_ns: 0,
        to_ns: 1,
    };
    // An empty message is one byte.
    writer.write(chunk, &vec![0; 8 << 20]).unwrap();
    fs::write(&path, writer.into_inner()).unwrap();
    let refused = Replay::of(&path).session("", 0, u64::MAX).unwrap_err();
    assert!(refused.contains("nothing was recorded"), "{refused}");
}

#[test]
fn what_has_no_records_is_not_opened() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |path: &Path| Recording::open(path).err().unwrap().to_string();
    let path = folder.path().join("a");
    write(&path, &[]);
    assert!(refused(&path).contains("no records"), "{}", refused(&path));
    assert!(refused(folder.path()).contains("not a regular file"));
    assert!(refused(&folder.path().join("none")).contains("cannot open"));

    // Two files behind one another.
    let about = |host: &str| {
        let about = v1::RecordingAbout {
            host: Some(v1::HostInfo {
                name: host.to_owned(),
                ..Default::default()
            }),
            ..Default::default()
        };
        let chunk = Chunk {
            kind: Kind::About,
            begins_anew: false,
            from_ns: 0,
            to_ns: 0,
        };
        let mut writer = Writer::begin(Vec::new()).unwrap();
        writer.write(chunk, &about.encode_to_vec()).unwrap();
        writer.into_inner()
    };
    let (first, second) = (about("ann"), about("bob"));
    fs::write(&path, [first.as_slice(), &second].concat()).unwrap();
    let said = refused(&path);
    let at = format!("begins at byte {},", first.len());
    assert!(
        said.contains("of host ann and of host bob") && said.contains(&at),
        "{said}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Messages that a checksum does not help against: made up by somebody.
    #[test]
    fn hostile_messages_never_panic(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        length in any::<prop::sample::Index>(),
        is_cut in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let mut target = more::target();
        let first = target.first();
        let batches = [
            more::with_more(&target, first),
            more::next(&mut target),
            more::next(&mut target),
        ];
        let mut messages = Messages::new(true);
        let mut writer = Writer::begin(Vec::new()).unwrap();
        for batch in &batches {
            let mut message = messages.next(batch);
            message.counted = Some(more::counted(1, batch));
            let mut content = message.encode_length_delimited_to_vec();
            for (at, byte) in &changes {
                let at = at.index(content.len());
                content[at] = *byte;
            }
            if is_cut {
                content.truncate(length.index(content.len()));
            }
            let chunk = Chunk {
                kind: Kind::Records,
                begins_anew: batch.from_ns == batch.to_ns,
                from_ns: batch.from_ns,
                to_ns: batch.to_ns,
            };
            writer.write(chunk, &content).unwrap();
        }
        fs::write(&path, writer.into_inner()).unwrap();
        let replay = Replay::of(&path);
        for scope in ["f[>= p95]", "f", ""] {
            if let Ok(session) = replay.session(scope, 0, u64::MAX) {
                let _ = replay.flame(&session);
                let _ = replay.flame_of(&session, more::WITH_WAITS);
                let watch = replay.handle.watch_trace(ROOT, session.clone());
                let _ = replay.runtime.block_on(watch);
                let watch = replay.handle.watch_waits(ROOT, session.clone(), 1);
                let _ = replay.runtime.block_on(watch);
                let request = SpansRequest { number: 10, waits: true, system_calls: false };
                let watch = replay.handle.watch_spans(ROOT, session.clone(), 1, request);
                let _ = replay.runtime.block_on(watch);
                let watch = replay.handle.watch_explain(ROOT, session.clone(), 1);
                let _ = replay.runtime.block_on(watch);
                let request = TimelineRequest { counters: Vec::new(), step_ns: MS, threads: false };
                let watch = replay.handle.watch_timeline(ROOT, session.clone(), request);
                let _ = replay.runtime.block_on(watch);
                let watch = replay.handle.watch_syscalls(ROOT, session.clone(), 1, Grouping::Line);
                let _ = replay.runtime.block_on(watch);
                let watch = replay.handle.watch_latency(ROOT, session, 1);
                let _ = replay.runtime.block_on(watch);
            }
        }
    }
}
