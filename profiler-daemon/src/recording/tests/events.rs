//! Samples of events: where other things than time go.

use super::*;
use crate::{
    kernel::{Event, EventCounts, Key, Pace},
    session::{AskedPace, AtEvent, EventReading, Numbered, RecordedAtEvent},
};

fn event(name: &str) -> Event {
    Event::parse(name, None, 99).unwrap()
}

/// Calls of `f` for so many batches. In each, two pages are touched, the first of them always the same; each slow call gives the disk
/// something that takes 7 ms, which is known a batch later.
fn with_events(batches: usize) -> Vec<RecordBatch> {
    with_faults(batches, Pace::Period(1))
}

/// The same; of the faults, stacks are taken so often, and each stands for so many.
fn with_faults(batches: usize, pace: Pace) -> Vec<RecordBatch> {
    let faults = Event::parse("page-faults", Some(pace), 99).unwrap();
    let faults_of_sample = match pace {
        Pace::Period(period) => period,
        Pace::Frequency(_) => unreachable!("events of the kernel have none"),
    };
    let latency = event("block-latency");
    let mut target = Target::new();
    target.scope = Arc::new(RecordedScope {
        events: vec![faults, latency],
        ..scope("f")
    });
    let mut all = vec![target.first()];
    let (mut counted, mut under_way) = (EventCounts::default(), None);
    for _ in 0..batches {
        let batch = target.next();
        let mut records: Vec<Recorded> = Vec::new();
        records.extend(under_way.take());
        let mut at_event = |sample: &RecordedSample, event: Event, weight_ns: u64, page: u64| {
            let sample = RecordedSample {
                weight_ns,
                ..sample.clone()
            };
            let key = Key {
                space: 0,
                place: page << 12,
            };
            let what = AtEvent::Sample(sample, key);
            records.push(Recorded::AtEvent(Box::new(RecordedAtEvent { event, what })));
        };
        let samples = batch.records.iter().filter_map(|record| match record {
            Recorded::Sample(sample) => Some(sample),
            _ => None,
        });
        let samples: Vec<&RecordedSample> = samples.collect();
        for (sample, page) in samples[..2].iter().zip([1, 100 + target.batches]) {
            at_event(sample, faults, faults_of_sample, page);
        }
        let slow = samples[samples.len() - 1];
        at_event(slow, latency, 0, target.batches);
        under_way = Some(Recorded::AtEvent(Box::new(RecordedAtEvent {
            event: latency,
            what: AtEvent::Weight(profiler_common::record::Weight {
                kind: profiler_common::record::WEIGHT,
                event: 0,
                tgid: slow.tgid,
                tid: slow.tid,
                ts_ns: slow.ts_ns,
                key: target.batches << 12,
                weight: 7 * MS,
            }),
        })));
        counted.attempted += 2;
        counted.limited += 1;
        // Before the ends of their calls.
        records.extend(batch.records.iter().cloned());
        all.push(RecordBatch {
            records: Arc::new(records),
            events: Arc::new(vec![EventReading {
                event: faults,
                counts: counted,
            }]),
            ..batch
        });
    }
    all
}

fn drawn(replay: &Replay, scope: &str, request: FlameRequest) -> Result<Numbered<FlamePicture>, String> {
    let session = replay.session(scope, 0, u64::MAX)?;
    replay.flame_of(&session, request)
}

fn of(name: &str) -> FlameRequest {
    FlameRequest::of(Grouping::Function, Some(FlameTimes::Event(event(name))))
}

/// The weight of each innermost function: inside, and outside.
fn weights(picture: &FlamePicture) -> BTreeMap<String, (u64, u64)> {
    let weights = picture.picture.weights.iter().map(|weight| {
        let frame = picture.nodes[weight.node.0 as usize - 1].frame.0;
        let function = picture.frames[frame as usize].function.to_string();
        (function, (weight.inside_ns, weight.outside_ns))
    });
    weights.collect()
}

#[test]
fn events_are_drawn_by_what_calls_took_and_once_where_that_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    super::summaries::write_summed(&path, with_events(6).into_iter());
    let replay = Replay::of(&path);
    let fast = |inside: u64, outside: u64| BTreeMap::from([("fast".to_owned(), (inside, outside))]);
    let picture = drawn(&replay, "f", of("page-faults")).unwrap();
    assert_eq!(weights(&picture), fast(12, 0));
    assert_eq!((picture.attempted, picture.lost["event_rate_limit"]), (12, 6));
    let picture = drawn(&replay, "f[>= 5ms]", of("page-faults")).unwrap();
    assert_eq!(weights(&picture), fast(0, 12));
    let once = FlameRequest {
        unique: true,
        ..of("page-faults")
    };
    let picture = drawn(&replay, "f", once).unwrap();
    assert_eq!(
        weights(&picture),
        fast(7, 0),
        "a page that is touched again is the same"
    );
    let refused = drawn(&replay, "f[>= 5ms]", once).unwrap_err();
    assert!(
        refused.contains("cannot be filtered by call duration"),
        "{refused}"
    );

    // What is told after the call belongs to it; the last has not come.
    let picture = drawn(&replay, "f[>= 5ms]", of("block-latency")).unwrap();
    assert_eq!(weights(&picture), [("slow".to_owned(), (5 * 7 * MS, 0))].into());
    assert_eq!(picture.lost["event_unfinished"], 1);

    // Time is what it is without them.
    let time = FlameRequest::of(Grouping::Function, None);
    let plain = folder.path().join("plain");
    recorded(&plain, 6);
    let expected = drawn(&Replay::of(&plain), "f[>= 5ms]", time).unwrap();
    assert_eq!(
        weights(&drawn(&replay, "f[>= 5ms]", time).unwrap()),
        weights(&expected)
    );
}

/// Of this event, as often as it was recorded.
fn as_recorded(name: &str) -> FlameRequest {
    FlameRequest {
        pace: AskedPace::LeftOut,
        ..of(name)
    }
}

#[test]
fn an_event_is_drawn_as_often_as_it_was_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    write(&path, &with_faults(6, Pace::Period(16)));
    let replay = Replay::of(&path);
    let picture = drawn(&replay, "f", as_recorded("page-faults")).unwrap();
    assert_eq!(weights(&picture), [("fast".to_owned(), (16 * 12, 0))].into());
    assert_eq!(
        picture.times.event().map(Event::pace),
        Some(Pace::Period(16)),
        "it says so"
    );
    // Another is not there.
    let refused = drawn(&replay, "f", of("page-faults")).unwrap_err();
    assert!(
        refused.contains("recorded with a stack at one of 16 events of each thread (-c 16)"),
        "{refused}"
    );
    let once = FlameRequest {
        unique: true,
        ..as_recorded("page-faults")
    };
    let refused = drawn(&replay, "f", once).unwrap_err();
    assert!(refused.contains("--unique needs each one"), "{refused}");
}

#[test]
fn recordings_are_compared_by_an_event() {
    let folder = tempfile::tempdir().unwrap();
    let [each, some, none] = ["each", "some", "none"].map(|name| folder.path().join(name));
    write(&each, &with_events(6));
    write(&some, &with_faults(4, Pace::Period(16)));
    recorded(&none, 6);
    let all = (0, u64::MAX);
    let compared = |after: &Path, before: &Path, scope: &str, request| {
        Replay::comparing(after, before).comparison_of(scope, all, request)
    };

    // One does not differ from itself, whatever the scope is.
    for (scope, name) in [
        ("f", "page-faults"),
        ("", "page-faults"),
        ("f[>= 5ms]", "block-latency"),
    ] {
        let picture = compared(&each, &each, scope, as_recorded(name)).unwrap();
        let weights = weights(&picture);
        assert!(!weights.is_empty(), "{scope} {name}");
        assert!(weights.values().all(|(after, before)| after == before));
        let differences = &picture.picture.differences;
        assert!(!differences.is_empty(), "{scope} {name}");
        for differs in differences {
            let (low, high) = (differs.difference.low, differs.difference.high);
            assert!(low <= 0.0 && 0.0 <= high, "{scope} {name}: {differs:?}");
        }
    }

    // What either lost is said, and that stacks were taken more often in one.
    let picture = compared(&each, &some, "f", as_recorded("page-faults")).unwrap();
    assert_eq!(weights(&picture), [("fast".to_owned(), (12, 16 * 8))].into());
    assert_eq!((picture.attempted, picture.lost["event_rate_limit"]), (20, 10));
    let ended = picture.ended.clone().unwrap().reason;
    assert!(
        ended.contains("a stack at each event, and before with a stack at one of 16 events"),
        "{ended}"
    );
    let picture = compared(&each, &some, "f[>= 5ms]", as_recorded("block-latency")).unwrap();
    assert_eq!(
        weights(&picture),
        [("slow".to_owned(), (5 * 7 * MS, 3 * 7 * MS))].into()
    );
    assert_eq!(picture.lost["event_unfinished"], 2);

    // What one of them does not have is refused with the flag that records it.
    for (after, before) in [(&each, &none), (&none, &each)] {
        let refused = compared(after, before, "f", as_recorded("page-faults")).unwrap_err();
        assert!(
            refused.contains("record them with --costs page-faults"),
            "{refused}"
        );
    }
    let once = FlameRequest {
        unique: true,
        ..as_recorded("page-faults")
    };
    let refused = compared(&each, &each, "f", once).unwrap_err();
    assert!(refused.contains("--unique cannot compare"), "{refused}");
}

#[test]
fn events_that_were_not_recorded_are_refused_with_those_that_were() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    write(&path, &with_events(1));
    let refused = drawn(&Replay::of(&path), "f", of("context-switches")).unwrap_err();
    assert!(
        refused.contains("There are: page-faults, block-latency"),
        "{refused}"
    );
    recorded(&path, 1);
    let refused = drawn(&Replay::of(&path), "f", of("page-faults")).unwrap_err();
    assert!(
        refused.contains("record them with --costs page-faults"),
        "{refused}"
    );
}

#[test]
fn samples_of_unknown_kinds_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let mut messages = Messages::new(false);
    let mut writer = Writer::begin(Vec::new()).unwrap();
    let mut unknown = 0;
    for batch in with_events(4) {
        let mut message = messages.next(&batch);
        if let Some(sample) = message.event_samples.first().cloned() {
            unknown += 1;
            message.event_samples.push(v1::RecordedEventSample {
                records_before: 0,
                what: None,
                ..sample
            });
        }
        let bytes = message.encode_length_delimited_to_vec();
        writer.write(of_records(&message), &bytes).unwrap();
    }
    fs::write(&path, writer.into_inner()).unwrap();
    let picture = drawn(&Replay::of(&path), "f", of("page-faults")).unwrap();
    assert_eq!(unknown, 4);
    assert_eq!(picture.lost["newer_format"], unknown);
}
