use std::collections::BTreeSet;

use profiler_aggregate::{
    ThreadId,
    latency::AgeConfig,
    system_calls::Counted,
    waits::{Place, Wait, Waiting, Waker},
};
use profiler_common::{
    probe::ProbeId,
    record::{SPAN_END, SpanEnd, SpanRef},
};
use profiler_symbolize::{FrameId, FrameTable, Grouping, Stacks};

use super::{
    gathered::{MAX_OUTSIDE, MAX_RECORDS, MAX_WAITS},
    reader::MAX_WAITING,
    scope::GROUPINGS,
    *,
};
use crate::{
    kernel::{Activity, CallNumber, Key},
    session::{
        backlog::Backlog,
        picture::Cost,
        readings::Readings,
        recorded_calls::RecordedCalls,
        replay::RecordedCounts,
        sampling::Sampling,
        span_losses::{OwnLosses, SpanLosses},
        trace::TraceLosses,
    },
};

const WAITS: MoreRecords = MoreRecords {
    waits: true,
    syscalls: false,
    off_cpu: false,
    events: BTreeSet::new(),
};

fn recorder() -> Recorder {
    recorder_from(0)
}

/// One that begins then.
fn recorder_from(now_ns: u64) -> Recorder {
    recorder_with(Backlog::with_limit(1 << 30), now_ns)
}

fn recorder_with(backlog: Backlog, now_ns: u64) -> Recorder {
    let scope = RecordedScope {
        text: "".into(),
        steps: Vec::new(),
        pids: Vec::new(),
        frequency_hz: 99,
        ages: AgeConfig::default(),
        warnings: Vec::new(),
        places: Vec::new(),
        off_cpu: false,
        events: Vec::new(),
    };
    Recorder::new(scope, backlog, now_ns)
}

fn wait() -> NamedWait {
    let place = Place {
        thread: FrameId::OTHER,
        stack: [].into(),
    };
    let wait = Wait {
        thread: ThreadId { tgid: 1, tid: 2 },
        place,
        waiting: Some(Waiting::Sleeping),
        lock: None,
        times: [0; 3],
        waker: Waker::Unseen,
        still_ns: None,
    };
    NamedWait::of(wait, Vec::new(), &FrameTable::default())
}

fn end() -> Named {
    Named::SpanEnd(SpanEnd {
        kind: SPAN_END,
        flags: 0,
        tgid: 1,
        tid: 2,
        probe: ProbeId(3),
        hits: 0,
        sequence: 4,
        start_ns: 5,
        end_ns: 6,
        parent: 0,
        gates: 0,
        returned: [0; 2],
    })
}

/// Records and waits that came, and those that did not.
fn published(recorder: &mut Recorder, stream: &mut mpsc::Receiver<RecordBatch>) -> [u64; 4] {
    let readings = RecordedCounts::default();
    let moment = moment(&readings);
    recorder.publish(&moment);
    let batch = stream.try_recv().unwrap();
    let is_wait = |record: &&Recorded| matches!(record, Recorded::Wait(_));
    let waits = batch.records.iter().filter(is_wait).count() as u64;
    [
        batch.records.len() as u64 - waits,
        waits,
        batch.dropped,
        batch.waits_dropped,
    ]
}

fn moment(readings: &dyn Readings) -> Moment<'_> {
    static FRAMES: std::sync::LazyLock<FrameTable> = std::sync::LazyLock::new(FrameTable::default);
    Moment {
        now_ns: 1,
        frames: &FRAMES,
        readings,
        sampling: Sampling::default(),
        spans: SpanLosses::default(),
        own: OwnLosses::default(),
        trace: TraceLosses::default(),
        events: Vec::new(),
        cost: Cost::default(),
        ended: None,
    }
}

#[test]
fn a_flood_of_waits_leaves_room_for_calls_and_the_other_way_round() {
    let mut recorder = recorder();
    let readings = RecordedCounts::default();
    let mut stream = recorder.watch(&WAITS, &moment(&readings));
    stream.try_recv().unwrap();
    let most = MAX_WAITS as u64;
    for _ in 0..MAX_WAITS + 5 {
        recorder.take_wait(&wait());
    }
    recorder.take(&end());
    assert_eq!(published(&mut recorder, &mut stream), [1, most, 0, 5]);
    for _ in 0..MAX_RECORDS + 7 {
        recorder.take(&end());
    }
    recorder.take_wait(&wait());
    let most = MAX_RECORDS as u64;
    assert_eq!(published(&mut recorder, &mut stream), [most, 1, 7, 5]);
}

/// An interval off the CPU, in this many calls, named as recordings want it.
fn off_cpu(spans: usize) -> Named {
    off_cpu_by(spans, &GROUPINGS)
}

/// The same, with its stack named in these groupings.
fn off_cpu_by(spans: usize, groupings: &[Grouping]) -> Named {
    Named::Sample {
        event: 0,
        tgid: 1,
        tid: 2,
        ts_ns: 6,
        until_ns: 6,
        weight: 3,
        key: Key::default(),
        activity: Activity::Sleeping,
        count: 1,
        spans: vec![
            SpanRef {
                probe: ProbeId(3),
                gates: 0,
                sequence: 4,
                start_ns: 5,
            };
            spans
        ],
        stacks: Stacks::make(groupings.iter().copied().collect(), |_| vec![FrameId::OTHER]),
        complete: true,
        goes_on: false,
        lock: None,
        system_call: None,
        task: None,
    }
}

#[test]
fn a_flood_of_intervals_off_the_cpu_outside_of_calls_leaves_room_for_calls() {
    const OFF_CPU: MoreRecords = MoreRecords {
        waits: false,
        syscalls: false,
        off_cpu: true,
        events: BTreeSet::new(),
    };
    let mut recorder = recorder();
    let readings = RecordedCounts::default();
    let mut stream = recorder.watch(&OFF_CPU, &moment(&readings));
    let mut without = recorder.watch(&WAITS, &moment(&readings));
    for _ in 0..MAX_OUTSIDE + 5 {
        recorder.take(&off_cpu(0));
    }
    recorder.take(&off_cpu(1));
    recorder.take(&end());
    recorder.publish(&moment(&readings));
    let last = |stream: &mut mpsc::Receiver<RecordBatch>| {
        std::iter::from_fn(|| stream.try_recv().ok()).last().unwrap()
    };
    let batch = last(&mut stream);
    assert!(batch.scope.off_cpu);
    assert_eq!(
        (batch.records.len(), batch.dropped, batch.outside_dropped),
        (MAX_OUTSIDE + 2, 0, 5)
    );
    let batch = last(&mut without);
    assert!(
        !batch.scope.has_outside(),
        "each has what it asked for: what was lost of the rest is told to nobody"
    );
}

#[test]
fn what_was_before_a_recording_is_not_in_it() {
    // Samples and ends of calls are at 6 ns, waits end at 0.
    for (from_ns, expected) in [(0, [2, 1, 0, 0]), (6, [2, 0, 0, 0]), (7, [0; 4])] {
        let mut recorder = recorder_from(from_ns);
        let readings = RecordedCounts::default();
        let mut stream = recorder.watch(&WAITS, &moment(&readings));
        stream.try_recv().unwrap();
        recorder.take(&off_cpu(1));
        recorder.take(&end());
        recorder.take_wait(&wait());
        assert_eq!(
            published(&mut recorder, &mut stream),
            expected,
            "from {from_ns} ns"
        );
    }
}

#[test]
fn what_takes_too_much_memory_is_counted_until_something_was_read() {
    let mut recorder = recorder_with(Backlog::with_limit(2 * size_of::<Recorded>()), 0);
    let readings = RecordedCounts::default();
    let mut stream = recorder.watch(&WAITS, &moment(&readings));
    assert!(stream.try_recv().is_ok(), "the first one takes nothing");
    for _ in 0..3 {
        recorder.take(&end());
        recorder.publish(&moment(&readings));
    }
    let batch = stream.try_recv().unwrap();
    assert_eq!((batch.records.len(), batch.dropped), (1, 0));
    assert!(stream.try_recv().is_err(), "there was no room for the others");
    drop(batch);
    recorder.take(&end());
    recorder.publish(&moment(&readings));
    let batch = stream.try_recv().unwrap();
    assert_eq!((batch.records.len(), batch.dropped), (1, 2));
}

#[test]
fn samples_that_were_named_for_others_alone_are_not_recorded() {
    let mut recorder = recorder();
    let readings = RecordedCounts::default();
    let mut stream = recorder.watch(&WAITS, &moment(&readings));
    stream.try_recv().unwrap();
    for groupings in [&[][..], &[Grouping::Module], &[Grouping::Function]] {
        recorder.take(&off_cpu_by(1, groupings));
    }
    assert_eq!(published(&mut recorder, &mut stream), [0, 0, 0, 0]);
    recorder.take(&off_cpu_by(
        1,
        &[Grouping::Module, Grouping::Line, Grouping::Function],
    ));
    assert_eq!(published(&mut recorder, &mut stream), [1, 0, 0, 0]);
}

/// System calls of a turn: so many of one kind.
fn turn(from_ns: u64, calls: u64) -> RecordedTurn {
    RecordedTurn {
        from_ns,
        to_ns: from_ns + 1,
        calls: vec![RecordedCalls {
            call: CallNumber {
                number: 0,
                is_32_bit: false,
            },
            error: None,
            stacks: Stacks::default(),
            counted: Counted {
                calls,
                ..Counted::default()
            },
        }],
        ..RecordedTurn::default()
    }
}

#[test]
fn system_calls_are_given_to_those_who_asked_from_when_they_did() {
    const CALLS: MoreRecords = MoreRecords {
        waits: false,
        syscalls: true,
        off_cpu: false,
        events: BTreeSet::new(),
    };
    let mut recorder = recorder();
    let readings = RecordedCounts::default();
    let mut others = recorder.watch(&WAITS, &moment(&readings));
    let mut early = recorder.watch(&CALLS, &moment(&readings));
    let later = Moment {
        now_ns: 10,
        ..moment(&readings)
    };
    let mut late = recorder.watch(&CALLS, &later);
    recorder.take_turns(vec![turn(5, 2), turn(10, 3)]);
    recorder.publish(&later);
    let last = |stream: &mut mpsc::Receiver<RecordBatch>| {
        let batches = std::iter::from_fn(|| stream.try_recv().ok());
        let turns = batches.flat_map(|batch| batch.turns);
        turns.map(|turn| turn.total()).collect::<Vec<_>>()
    };
    assert!(last(&mut others).is_empty());
    assert_eq!(last(&mut early), [2, 3]);
    assert_eq!(last(&mut late), [3], "what came before is not of its time");
}

#[test]
fn system_calls_that_a_reader_missed_are_counted() {
    let mut recorder = recorder();
    let readings = RecordedCounts::default();
    let more = MoreRecords {
        waits: false,
        syscalls: true,
        off_cpu: false,
        events: BTreeSet::new(),
    };
    let mut stream = recorder.watch(&more, &moment(&readings));
    let missed = 3;
    for _ in 1..MAX_WAITING + missed {
        recorder.take_turns(vec![turn(1, 2)]);
        recorder.publish(&moment(&readings));
    }
    while stream.try_recv().is_ok() {}
    recorder.publish(&moment(&readings));
    assert_eq!(stream.try_recv().unwrap().calls_dropped, 2 * missed as u64);
}

#[test]
fn threads_off_the_cpu_beyond_those_that_are_told_are_counted() {
    let mut recorder = recorder();
    let readings = RecordedCounts::default();
    let mut stream = recorder.watch(&WAITS, &moment(&readings));
    stream.try_recv().unwrap();
    let threads = (0..).take(MAX_OFF_CPU + 3).map(|tid| ThreadId { tgid: 1, tid });
    recorder.set_off_cpu(OffAtFirst {
        since_ns: 0,
        threads: threads.collect(),
    });
    recorder.publish(&moment(&readings));
    let batch = stream.try_recv().unwrap();
    assert_eq!(batch.off_cpu.unwrap().threads.len(), MAX_OFF_CPU);
    assert_eq!(batch.waits_dropped, 3);
}
