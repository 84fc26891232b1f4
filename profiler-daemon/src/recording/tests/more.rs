//! Hits, counters and waits of a recording that was made up.

use std::{collections::HashSet, sync::Arc};

use profiler_aggregate::{
    ThreadId,
    waits::{Place, Wait, Waiting, Waker},
};
use profiler_plan::values::{Reading, Value};

use super::*;
use crate::{
    kernel::HitCounts,
    session::{
        HitReading, NamedStack, OffAtFirst, RecordedExpression, RecordedLook, RecordedPlace, RecordedWait,
        TimelineRequest, TraceBatch, TracedPlace,
    },
};

const TGID: u32 = 40;
const TID: u32 = 41;
const MAIN: ThreadId = ThreadId { tgid: TGID, tid: TID };
pub const WITH_WAITS: FlameRequest = FlameRequest {
    waits: true,
    ..FlameRequest::of(Grouping::Function, Some(FlameTimes::OffCpu))
};

/// A target whose calls are looked at where they begin, which waits once in each batch.
pub fn target() -> Target {
    let mut target = Target::new();
    let place = RecordedPlace {
        probe: PROBE,
        place: Arc::new(TracedPlace {
            site: "f".to_owned(),
            function: "f".to_owned(),
            file: String::new(),
            line: 0,
            module: "a".to_owned(),
            address: 0x1000,
        }),
        is_call: true,
        shown_per_second: 0,
        expressions: vec![RecordedExpression {
            expression: "n".into(),
            type_name: "int".into(),
        }],
    };
    target.scope = Arc::new(RecordedScope {
        places: vec![place],
        pids: vec![TGID],
        ..scope("f")
    });
    target
}

/// The next batch, with what was read in each call, its number, and a wait behind them.
pub fn next(target: &mut Target) -> RecordBatch {
    let batch = target.next();
    let mut records = Vec::new();
    let mut number = target.calls - CALLS;
    for record in batch.records.iter() {
        records.push(record.clone());
        if let Recorded::SpanEnd(end) = record {
            number += 1;
            let look = RecordedLook {
                values: vec![Reading::Ok(Value::Signed(i128::from(number)))],
                stack: Some(Arc::new(NamedStack {
                    frames: target.fast.clone(),
                    complete: true,
                })),
            };
            records.push(Recorded::Call(*end, look));
        }
    }
    let place = Place {
        thread: target.task.thread,
        stack: target.slow.clone().into(),
    };
    let wait = Wait {
        thread: MAIN,
        place: place.clone(),
        waiting: Some(Waiting::Sleeping),
        lock: None,
        times: [batch.from_ns + MS, batch.from_ns + 3 * MS, batch.from_ns + 4 * MS],
        waker: Waker::Thread {
            thread: ThreadId { tid: TID + 1, ..MAIN },
            place,
            is_own: true,
        },
        still_ns: Some(u64::MAX),
    };
    let spans = vec![SpanRef {
        probe: PROBE,
        gates: 0,
        sequence: 1,
        start_ns: batch.from_ns,
    }];
    records.push(Recorded::Wait(Box::new(RecordedWait { wait, spans })));
    with_more(
        target,
        RecordBatch {
            records: Arc::new(records),
            ..batch
        },
    )
}

pub fn with_more(target: &Target, batch: RecordBatch) -> RecordBatch {
    RecordBatch {
        turns: vec![Arc::new(syscalls::turn(target, batch.from_ns, batch.to_ns))],
        off_cpu: Some(Arc::new(OffAtFirst {
            since_ns: BEGIN_NS,
            threads: HashSet::from([MAIN]),
        })),
        hits: Arc::new(vec![HitReading {
            probe: PROBE,
            counts: HitCounts {
                reached: target.calls,
                ..HitCounts::default()
            },
        }]),
        ..batch
    }
}

/// A bucket of counters of a batch, of which each counts its number.
pub fn counted(number: u64, batch: &RecordBatch) -> v1::RecordedCounters {
    v1::RecordedCounters {
        counters: vec!["cs".to_owned()],
        buckets: vec![v1::WatchTimelineResponse {
            from_ns: batch.from_ns,
            to_ns: batch.to_ns,
            counts: vec![v1::Count {
                unknown: false,
                count: number,
                share: 1.0,
            }],
            calls: Some(CALLS),
            ..Default::default()
        }],
        ..Default::default()
    }
}

/// A recording of four batches.
fn recorded(path: &Path) {
    let mut target = target();
    let first = target.first();
    let mut batches = vec![with_more(&target, first)];
    batches.extend((0..4).map(|_| next(&mut target)));
    let mut messages = Messages::new(true);
    let mut writer = Writer::begin(Vec::new()).unwrap();
    for (number, batch) in (0..).zip(&batches) {
        let mut message = messages.next(batch);
        message.counted = (number > 0).then(|| counted(number, batch));
        writer
            .write(of_records(&message), &message.encode_length_delimited_to_vec())
            .unwrap();
    }
    fs::write(path, writer.into_inner()).unwrap();
}

impl Replay {
    pub fn trace(&self, session: &str) -> Vec<TraceBatch> {
        let watch = self.handle.watch_trace(ROOT, session.to_owned());
        let mut stream = self.runtime.block_on(watch).unwrap();
        std::iter::from_fn(|| stream.try_recv().ok()).collect()
    }
}

#[test]
fn hits_are_those_that_are_asked_for_of_the_part() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    recorded(&path);
    let replay = Replay::of(&path);
    let shown = |scope: &str, batches: std::ops::Range<u64>| {
        let session = replay
            .session(scope, batches.start * BATCH_NS, batches.end * BATCH_NS)
            .unwrap();
        let [batch] = &replay.trace(&session)[..] else {
            panic!("one batch has room for all")
        };
        assert!(batch.ended.is_some() && batch.lost.is_empty(), "{batch:?}");
        let values = batch.hits.iter().map(|hit| {
            let stack = hit.stack.as_deref().unwrap();
            assert_eq!((stack.frames.len(), &*hit.values[0].type_name), (3, "int"));
            hit.values[0].reading.clone()
        });
        (values.collect::<Vec<_>>(), batch.reached, batch.rejected)
    };
    let numbers = |numbers: &[u64]| -> Vec<Reading> {
        let number = |number: &u64| Reading::Ok(Value::Signed(i128::from(*number)));
        numbers.iter().map(number).collect()
    };
    let all: Vec<u64> = (1..=4 * CALLS).collect();
    assert_eq!(shown("", 0..4), (numbers(&all), 4 * CALLS, 0));
    // The last of each batch is slow.
    let slow = numbers(&[2 * CALLS, 3 * CALLS]);
    assert_eq!(shown("f[>= 10ms]", 1..3), (slow, 2 * CALLS, 2 * CALLS - 2));
    assert_eq!(shown("f[>= p99]", 0..1), (numbers(&[CALLS]), CALLS, CALLS - 1));
}

#[test]
fn buckets_of_counters_are_added_up_to_those_that_are_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    recorded(&path);
    let replay = Replay::of(&path);
    let buckets = |begin: u64, step_ns| {
        let session = replay.session("", begin * BATCH_NS, u64::MAX).unwrap();
        let request = TimelineRequest {
            counters: Vec::new(),
            step_ns,
            threads: false,
        };
        let watch = replay.handle.watch_timeline(ROOT, session, request);
        let mut stream = replay.runtime.block_on(watch).unwrap();
        let buckets = std::iter::from_fn(|| stream.try_recv().ok());
        let counts = buckets.map(|bucket| (bucket.counted[0].count.unwrap(), bucket.calls.unwrap()));
        counts.collect::<Vec<_>>()
    };
    assert_eq!(buckets(0, MS), [(1, CALLS), (2, CALLS), (3, CALLS), (4, CALLS)]);
    assert_eq!(buckets(1, MS), [(2, CALLS), (3, CALLS), (4, CALLS)]);
    assert_eq!(buckets(0, 2 * BATCH_NS), [(3, 2 * CALLS), (7, 2 * CALLS)]);
}

#[test]
fn waits_are_those_of_the_part() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    recorded(&path);
    let replay = Replay::of(&path);
    let total = |begin: u64, end: u64| {
        let session = replay.session("", begin * BATCH_NS, end * BATCH_NS).unwrap();
        let watch = replay.handle.watch_waits(ROOT, session, 1);
        let pictures = replay.runtime.block_on(watch).unwrap();
        let picture = pictures.borrow().clone().unwrap();
        assert_eq!(picture.nodes.len() > 1, picture.total.waits > 0);
        (
            picture.total.waits,
            picture.total.waited_ns,
            picture.total.runnable_ns,
        )
    };
    assert_eq!(total(0, 4), (4, 8 * MS, 4 * MS));
    assert_eq!(total(1, 3), (2, 4 * MS, 2 * MS));
}

#[test]
fn waits_end_with_another_scope_and_not_with_a_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let waits_with = |change: &dyn Fn(&mut RecordedScope)| {
        let mut target = target();
        let first = target.first();
        let mut batches = vec![with_more(&target, first)];
        for number in 0..4 {
            if number == 2 {
                let mut scope = (*target.scope).clone();
                change(&mut scope);
                target.scope = Arc::new(scope);
            }
            batches.push(next(&mut target));
        }
        write_with_waits(&path, &batches);
        let replay = Replay::of(&path);
        let session = replay.session("f", 0, u64::MAX).unwrap();
        let watch = replay.handle.watch_waits(ROOT, session, 1);
        let pictures = replay.runtime.block_on(watch).unwrap();
        let picture = pictures.borrow().clone().unwrap();
        (
            picture.total.waits,
            picture.ended.as_deref().unwrap_or_default().to_owned(),
        )
    };
    let (waits, ended) = waits_with(&|scope| scope.pids.push(TGID + 1));
    assert_eq!((waits, ended.as_str()), (4, "the end of the recording"));
    let (waits, ended) = waits_with(&|scope| scope.steps[0].functions = Vec::new());
    assert_eq!(waits, 2);
    assert!(ended.contains("the scope was changed"), "{ended}");
}

#[test]
fn what_was_not_recorded_is_refused_with_the_flag_that_records_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    super::recorded(&path, 2);
    let replay = Replay::of(&path);
    let session = replay.session("", 0, u64::MAX).unwrap();
    let request = TimelineRequest {
        counters: Vec::new(),
        step_ns: MS,
        threads: false,
    };
    let trace = replay.handle.watch_trace(ROOT, session.clone());
    let trace = replay.runtime.block_on(trace).unwrap_err().to_string();
    let timeline = replay.handle.watch_timeline(ROOT, session.clone(), request);
    let timeline = replay.runtime.block_on(timeline).unwrap_err().to_string();
    let waits = replay.handle.watch_waits(ROOT, session.clone(), 1);
    let waits = replay.runtime.block_on(waits).unwrap_err().to_string();
    let syscalls = replay.syscalls(&session, Grouping::Function).unwrap_err();
    let flame = replay.flame_of(&session, WITH_WAITS).unwrap_err();
    for (said, flag) in [
        (flame, "--waits"),
        (trace, "--trace"),
        (timeline, "--timeline"),
        (waits, "--waits"),
        (syscalls, "--syscalls"),
    ] {
        assert!(said.contains(flag), "{said}");
    }
}

/// What a flame graph draws on the waits of `f`, and how long.
fn drawn(picture: &FlamePicture) -> BTreeMap<String, u64> {
    let weights = picture.picture.weights.iter();
    let stacks = weights.map(|weight| {
        let mut functions = Vec::new();
        let mut node = weight.node.0;
        while let Some(at) = (node as usize).checked_sub(1) {
            let Node {
                parent: NodeId(parent),
                frame: FrameId(frame),
                ..
            } = picture.nodes[at];
            functions.push(picture.frames[frame as usize].function.to_string());
            node = parent;
        }
        functions.reverse();
        (functions.join(";"), weight.inside_ns)
    });
    stacks.filter(|(_, ns)| *ns > 0).collect()
}

/// A wait of a thread in its call, and the samples of it: what it waited and what it was runnable after.
fn wait_in_call(
    target: &Target,
    (tid, sequence): (u32, u64),
    times: [u64; 3],
    waker: Waker,
) -> Vec<Recorded> {
    let thread = ThreadId { tgid: TGID, tid };
    let is_main = tid == TID;
    let place = Place {
        thread: if is_main {
            target.task.thread
        } else {
            target.task.process
        },
        stack: if is_main {
            target.fast.clone()
        } else {
            target.slow.clone()
        }
        .into(),
    };
    let spans = vec![SpanRef {
        probe: PROBE,
        gates: 0,
        sequence,
        start_ns: times[0],
    }];
    let wait = Wait {
        thread,
        place,
        waiting: Some(Waiting::Sleeping),
        lock: None,
        times,
        waker,
        still_ns: None,
    };
    let sample = |ts_ns, weight_ns, activity, continues| {
        Recorded::Sample(RecordedSample {
            tgid: TGID,
            tid,
            ts_ns,
            weight_ns,
            activity,
            continues,
            system_call: None,
            task: Some(target.task),
            stacks: Stacks::make(RECORDED_GROUPINGS.into_iter().collect(), |_| target.fast.clone()),
            complete: true,
            spans: spans.clone(),
        })
    };
    let mut records = vec![
        Recorded::Wait(Box::new(RecordedWait {
            wait,
            spans: spans.clone(),
        })),
        sample(times[1], times[1] - times[0], Activity::Sleeping, false),
    ];
    if times[2] > times[1] {
        records.push(sample(times[2], times[2] - times[1], Activity::Runnable, true));
    }
    records.push(Recorded::SpanEnd(SpanEnd {
        kind: SPAN_END,
        flags: 0,
        tgid: TGID,
        tid,
        probe: PROBE,
        hits: 1,
        sequence,
        start_ns: times[0],
        end_ns: times[2],
        parent: 0,
        gates: 0,
        returned: [0; 2],
    }));
    records
}

#[test]
fn waits_are_drawn_with_what_who_ended_them_did_before_the_part_too() {
    const OTHER: u32 = TID + 1;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let mut target = target();
    let first = target.first();
    let mut batches = vec![with_more(&target, first)];
    let stack = target.slow.clone();
    let woken = Waker::Thread {
        thread: ThreadId {
            tgid: TGID,
            tid: OTHER,
        },
        place: Place {
            thread: target.task.process,
            stack: stack.into(),
        },
        is_own: false,
    };
    // In the first second, the other thread begins to wait for an interrupt; in the second it ends the wait of the first.
    let interrupted = Waker::Interrupt(target.fast[2]);
    let begin_ns = BEGIN_NS;
    let of_other = wait_in_call(
        &target,
        (OTHER, 1),
        [begin_ns + 10 * MS, begin_ns + 200 * MS, begin_ns + 200 * MS],
        interrupted,
    );
    let of_main = wait_in_call(
        &target,
        (TID, 2),
        [begin_ns + 100 * MS, begin_ns + 300 * MS, begin_ns + 310 * MS],
        woken,
    );
    for records in [of_other, of_main] {
        let from_ns = begin_ns + target.batches * BATCH_NS;
        let batch = target.batch(records);
        target.batches += 1;
        assert_eq!(batch.from_ns, from_ns);
        batches.push(with_more(&target, batch));
    }
    write_with_waits(&path, &batches);
    let replay = Replay::of(&path);
    let ask = |scope: &str, begin_ns| {
        let session = replay.session(scope, begin_ns, u64::MAX).unwrap();
        drawn(&replay.flame_of(&session, WITH_WAITS).unwrap())
    };
    let wait = "main;f;fast";
    let other = "server --fast;main;f;slow";
    let of_main = BTreeMap::from([
        (format!("{wait};{other};[sleeping];[interrupt];fast"), 100 * MS),
        (format!("{wait};{other};[ran]"), 100 * MS),
        (wait.to_owned(), 10 * MS),
    ]);
    let mut all = of_main.clone();
    all.insert(format!("{wait};[interrupt];fast"), 190 * MS);
    assert_eq!(ask("", 0), all);
    // What the other did before the part is known; none of its waits are in it.
    assert_eq!(ask("", BATCH_NS), of_main);
    // Conditions on durations divide what is drawn.
    assert_eq!(ask("f[>= 200ms]", 0), of_main);

    // A damaged place behind costs what is there, and not what is known of the waits before.
    for _ in 0..2 {
        batches.push(next(&mut target));
    }
    write_with_waits(&path, &batches);
    let mut damaged = fs::read(&path).unwrap();
    let last = (0..damaged.len()).rfind(|at| damaged[*at..].starts_with(b"CHNK"));
    damaged[last.unwrap() - 1] ^= 1;
    fs::write(&path, &damaged).unwrap();
    let replay = Replay::of(&path);
    let session = replay.session("f[>= 200ms]", 0, u64::MAX).unwrap();
    assert_eq!(drawn(&replay.flame_of(&session, WITH_WAITS).unwrap()), of_main);
}
