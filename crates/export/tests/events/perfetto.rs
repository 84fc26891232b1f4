//! Perfetto's protobuf, decoded and read as `trace_processor` does: stacks of slices on tracks, names by number.

use std::collections::BTreeMap;

use profiler_export::{
    perfetto::{self, DebugAnnotation, TraceMessage, TrackDescriptor, TrackEvent},
    timeline::{Timeline, Written},
};
use proptest::prelude::*;
use prost::Message as _;

use super::{
    made::{ANY_SIZE, all_named, arbitrary, hostile_names, sample},
    seen::{Seen, all, nests},
};

const MONOTONIC: u32 = 3;

/// A trace, read.
#[derive(Default)]
struct Read {
    tracks: BTreeMap<u64, TrackDescriptor>,
    events: Vec<Seen>,
    /// Arguments of all events but that of what the trace is about.
    annotations: Vec<(String, DebugAnnotation)>,
    about: Option<TrackEvent>,
    counters: BTreeMap<u64, Vec<(u64, f64)>>,
    /// Beginnings and ends by track.
    slices: BTreeMap<u64, Vec<(u64, u64)>>,
}

impl Read {
    /// The process and thread that a track is of.
    fn owner(&self, uuid: u64) -> (u64, u64) {
        let track = &self.tracks[&uuid];
        match (&track.thread, track.parent_uuid) {
            (Some(thread), _) => (
                u64::try_from(thread.pid).unwrap(),
                u64::try_from(thread.tid).unwrap(),
            ),
            (None, Some(parent)) => self.owner(parent),
            (None, None) => (0, 9),
        }
    }
}

/// Puts texts in the place of their numbers.
fn resolve(annotation: &mut DebugAnnotation, texts: &BTreeMap<u64, String>) {
    if let Some(iid) = annotation.string_value_iid.take() {
        annotation.string_value = Some(texts[&iid].clone());
    }
    let inner = annotation.dict_entries.iter_mut();
    for annotation in inner.chain(&mut annotation.array_values) {
        resolve(annotation, texts);
    }
}

#[track_caller]
fn read(written: &Written) -> Read {
    let trace = TraceMessage::decode(&written.bytes[..]).unwrap();
    let mut read = Read::default();
    let (mut names, mut keys, mut texts) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let mut open: BTreeMap<u64, Vec<(u64, String, String)>> = BTreeMap::new();
    let mut last_ns: BTreeMap<u64, u64> = BTreeMap::new();
    let mut is_cleared = false;
    for packet in trace.packet {
        is_cleared |= packet.sequence_flags == Some(1);
        assert!(is_cleared && packet.sequence != 0);
        if let Some(interned) = packet.interned_data {
            for name in interned.event_names {
                assert_eq!(names.insert(name.iid, name.name), None, "once each");
            }
            for name in interned.debug_annotation_string_values {
                assert_eq!(texts.insert(name.iid, name.name), None, "once each");
            }
            for name in interned.debug_annotation_names {
                assert_eq!(keys.insert(name.iid, name.name), None, "once each");
            }
        }
        if let Some(track) = packet.track_descriptor {
            assert!(
                track.uuid != 0
                    && track
                        .parent_uuid
                        .is_none_or(|parent| read.tracks.contains_key(&parent))
            );
            assert!(read.tracks.insert(track.uuid, track).is_none());
        }
        let Some(event) = packet.track_event else { continue };
        let (track, at_ns) = (event.track_uuid, packet.timestamp.unwrap());
        assert!(
            read.tracks.contains_key(&track),
            "a track is described before it is used"
        );
        assert_eq!(packet.timestamp_clock_id, Some(MONOTONIC));
        let last_ns = last_ns.entry(track).or_default();
        assert!(*last_ns <= at_ns, "time goes back on a track");
        *last_ns = at_ns;
        if event.name.is_some() {
            read.about = Some(event);
            continue;
        }
        let name = event.name_iid.map(|iid| names[&iid].clone());
        if let Some(value) = event.double_counter_value {
            read.counters.entry(track).or_default().push((at_ns, value));
        }
        for mut annotation in event.debug_annotations {
            resolve(&mut annotation, &texts);
            let key = keys[&annotation.name_iid.unwrap()].clone();
            read.annotations.push((key, annotation));
        }
        let (pid, tid) = read.owner(track);
        let seen = |name, category, at_ns, duration_ns| Seen {
            pid,
            tid,
            name,
            category,
            at_ns,
            duration_ns,
        };
        let category = event.categories.concat();
        match event.r#type {
            1 => open
                .entry(track)
                .or_default()
                .push((at_ns, name.unwrap(), category)),
            2 => {
                let (began_ns, name, category) = open.get_mut(&track).unwrap().pop().unwrap();
                read.events
                    .push(seen(name, category, began_ns, Some(at_ns - began_ns)));
                read.slices.entry(track).or_default().push((began_ns, at_ns));
            }
            3 => read.events.push(seen(name.unwrap(), category, at_ns, None)),
            4 => {}
            other => panic!("type {other}"),
        }
    }
    assert!(open.values().all(Vec::is_empty), "every slice ends");
    read.events.sort();
    read
}

fn write(timeline: &Timeline) -> Read {
    let written = perfetto::write(timeline, ANY_SIZE);
    assert_eq!(written.left_out, 0);
    read(&written)
}

#[test]
fn everything_comes_back() {
    let timeline = sample();
    let trace = write(&timeline);
    assert_eq!(trace.events, all(&timeline));
    let about = trace.about.unwrap();
    assert_eq!(about.name.as_deref(), Some("demo"));
    let fact = &about.debug_annotations[0];
    assert_eq!(
        (fact.name.as_deref(), fact.string_value.as_deref()),
        (Some("scope"), Some("f[>= p95]"))
    );
    let values: Vec<_> = trace
        .annotations
        .iter()
        .map(|(key, annotation)| (key.as_str(), annotation.uint_value, annotation.double_value))
        .collect();
    assert_eq!(
        values
            .iter()
            .filter(|value| **value == ("n", Some(u64::MAX), None))
            .count(),
        4
    );
    assert_eq!(
        values
            .iter()
            .filter(|value| **value == ("n", None, Some(0.5)))
            .count(),
        2
    );
    let tracks = || trace.tracks.values();
    let process = tracks().find_map(|track| track.process.as_ref()).unwrap();
    assert_eq!(
        (process.pid, process.process_name.as_deref()),
        (7, Some("server"))
    );
    let names: Vec<_> = tracks()
        .filter_map(|track| track.thread.as_ref())
        .map(|thread| (thread.pid, thread.tid, thread.thread_name.as_deref()))
        .collect();
    assert_eq!(names, [(7, 107, None), (8, 108, Some("clerk"))]);
    // One counter is below its process, the other below its thread.
    let parents: Vec<&TrackDescriptor> = trace
        .counters
        .iter()
        .map(|(uuid, points)| {
            assert_eq!(
                points,
                &[(9_000_000_000_000_001, 1.5), (9_000_100_000_000_001, 0.0)]
            );
            let track = &trace.tracks[uuid];
            assert_eq!(track.name.as_deref(), Some("page-faults (/s)"));
            assert_eq!(track.counter.as_ref().unwrap().unit_name.as_deref(), Some("/s"));
            &trace.tracks[&track.parent_uuid.unwrap()]
        })
        .collect();
    assert!(parents[0].process.is_some() && parents[1].thread.is_some());
}

#[test]
fn the_clock_is_the_monotonic_one_and_others_are_known_beside_it() {
    let mut timeline = sample();
    let clocks = |timeline: &Timeline| {
        let trace = TraceMessage::decode(&perfetto::write(timeline, ANY_SIZE).bytes[..]).unwrap();
        let snapshot = trace.packet[0].clock_snapshot.clone().unwrap();
        assert_eq!(snapshot.primary_trace_clock, 3);
        let clocks = snapshot.clocks.iter();
        clocks
            .map(|clock| (clock.clock_id, clock.timestamp))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        clocks(&timeline),
        [
            (3, 9_000_000_000_000_123),
            (6, 9_500_000_000_000_123),
            (1, 1_700_000_000_000_000_123)
        ]
    );
    timeline.clocks = None;
    assert_eq!(clocks(&timeline), [(3, 9_000_000_000_000_001)]);
}

#[test]
fn names_of_every_kind_come_back() {
    for name in hostile_names() {
        let timeline = all_named(&name);
        let trace = write(&timeline);
        assert_eq!(trace.events, all(&timeline));
        assert_eq!(trace.about.unwrap().name, Some(name.clone()));
        for (key, annotation) in &trace.annotations {
            assert_eq!(*key, name);
            let [member, none] = &annotation.dict_entries[..] else {
                panic!("two members")
            };
            assert_eq!(member.name.as_ref(), Some(&name));
            assert_eq!(
                (
                    member.array_values[0].int_value,
                    member.array_values[1].bool_value,
                    member.array_values[2].string_value.as_ref(),
                    member.array_values[3].string_value.as_ref()
                ),
                (Some(-7), Some(true), Some(&name), Some(&name))
            );
            assert_eq!(none.string_value.as_deref(), Some("[]"));
        }
        assert_eq!(trace.annotations.len(), 2);
    }
}

#[test]
fn counts_events_beyond_the_size_limit_and_writes_a_valid_file() {
    let mut timeline = sample();
    let slice = timeline.slices[0].clone();
    timeline
        .slices
        .extend((0..1_000).map(|number| profiler_export::timeline::Slice {
            began_ns: slice.began_ns + number * 10,
            ..slice.clone()
        }));
    timeline.counters.clear();
    let events = all(&timeline).len() as u64;
    for most_bytes in [0, 600, 5_000, 20_000] {
        let written = perfetto::write(&timeline, most_bytes);
        let seen = read(&written).events.len() as u64;
        assert_eq!(seen + written.left_out, events);
        assert!(most_bytes < 5_000 || seen > 0 && written.bytes.len() <= most_bytes);
    }
}

proptest! {
    #[test]
    fn slices_balance_and_nest_and_time_never_goes_back(timeline in arbitrary()) {
        let trace = write(&timeline);
        prop_assert_eq!(&trace.events, &all(&timeline));
        prop_assert!(nests(&trace.slices));
    }
}
