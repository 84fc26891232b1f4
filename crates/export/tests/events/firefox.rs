//! The Firefox Profiler's format, by its own tables.

use std::collections::BTreeMap;

use profiler_export::{
    firefox,
    timeline::{Timeline, Written},
};
use proptest::prelude::*;
use serde_json::Value;

use super::{
    made::{ANY_SIZE, all_named, arbitrary, hostile_names, sample},
    seen::{Seen, all},
};

fn number(value: &Value) -> usize {
    usize::try_from(value.as_u64().unwrap()).unwrap()
}

/// Milliseconds as nanoseconds; `None` of null.
fn nanoseconds(value: &Value) -> Option<u64> {
    let ms = value.as_f64()?;
    Some(format!("{ms:.6}").replace('.', "").parse().unwrap())
}

/// All markers, from `first_ns` on.
fn markers(file: &Value, first_ns: u64) -> Vec<Seen> {
    let mut seen = Vec::new();
    for thread in file["threads"].as_array().unwrap() {
        let markers = &thread["markers"];
        for at in 0..number(&markers["length"]) {
            let name = number(&markers["name"][at]);
            let (began, ended) = (&markers["startTime"][at], nanoseconds(&markers["endTime"][at]));
            let began_ns = nanoseconds(began).unwrap();
            assert_eq!(markers["phase"][at], u64::from(ended.is_some()));
            seen.push(Seen {
                pid: thread["pid"].as_str().unwrap().parse().unwrap(),
                tid: thread["tid"].as_u64().unwrap(),
                name: thread["stringArray"][name].as_str().unwrap().to_owned(),
                category: markers["data"][at]["type"].as_str().unwrap().to_owned(),
                at_ns: first_ns + began_ns,
                duration_ns: ended.map(|ended| ended - began_ns),
            });
        }
    }
    seen.sort();
    seen
}

fn read(Written { bytes, .. }: &Written) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

fn write(timeline: &Timeline) -> Value {
    let written = firefox::events(timeline, ANY_SIZE);
    assert_eq!(written.left_out, 0);
    read(&written)
}

#[test]
fn everything_comes_back() {
    let timeline = sample();
    let file = write(&timeline);
    assert_eq!(markers(&file, timeline.first_ns().unwrap()), all(&timeline));
    // As the clocks were set beside each other, the first event was at this moment.
    let began_ms = file["meta"]["startTime"].as_f64().unwrap();
    let clocks = timeline.clocks.unwrap();
    let began_ns = clocks.realtime_ns - (clocks.monotonic_ns - timeline.first_ns().unwrap());
    assert!((began_ms - began_ns as f64 / 1e6).abs() < 0.001, "{began_ms}");
    let data = &file["threads"][0]["markers"]["data"];
    let schema = &file["meta"]["markerSchema"];
    assert_eq!(schema[0]["name"], "call");
    let key = schema[0]["data"][0]["key"].as_str().unwrap();
    assert_eq!(schema[0]["data"][0]["label"], "n");
    assert_eq!(data[0][key], "18446744073709551615");
    // 1.5 per second, for a hundred seconds.
    let counters = file["counters"].as_array().unwrap();
    assert_eq!(counters.len(), 2);
    assert_eq!(counters[0]["samples"]["count"], serde_json::json!([0.0, 150.0]));
    assert_eq!(counters[1]["name"], "page-faults, clerk 108");
    assert_eq!(counters[1]["mainThreadIndex"], 1);
}

#[test]
fn counters_of_a_process_have_a_thread_to_belong_to() {
    let mut timeline = sample();
    timeline.slices.clear();
    timeline.instants.clear();
    timeline.threads.clear();
    timeline.counters[1].thread = None;
    let file = write(&timeline);
    let threads = file["threads"].as_array().unwrap();
    assert_eq!(threads.len(), 2);
    for (counter, pid) in file["counters"].as_array().unwrap().iter().zip(["7", "8"]) {
        assert_eq!(threads[number(&counter["mainThreadIndex"])]["pid"], pid);
    }
}

#[test]
fn names_of_every_kind_come_back() {
    for name in hostile_names() {
        let timeline = all_named(&name);
        let file = write(&timeline);
        assert_eq!(markers(&file, 1), all(&timeline), "{name:?}");
    }
}

#[test]
fn counts_events_beyond_the_size_limit_and_writes_a_valid_file() {
    let mut timeline = sample();
    let slices = timeline.slices.clone();
    timeline.slices = slices.iter().cycle().take(10_000).cloned().collect();
    let events = (timeline.slices.len() + timeline.instants.len() + 4) as u64;
    let limit = 100_000;
    let written = firefox::events(&timeline, limit);
    let file = read(&written);
    let kept = markers(&file, timeline.first_ns().unwrap()).len();
    let points = file["counters"].as_array().unwrap().iter();
    let points: usize = points.map(|counter| number(&counter["samples"]["length"])).sum();
    assert_eq!(kept as u64 + points as u64 + written.left_out, events);
    assert!(
        kept > 100 && written.bytes.len() < limit + 10_000,
        "{kept} in {}",
        written.bytes.len()
    );
}

proptest! {
    #[test]
    fn all_events_are_there_in_the_order_of_their_thread(timeline in arbitrary()) {
        let file = write(&timeline);
        let first_ns = timeline.first_ns().unwrap_or(0);
        prop_assert_eq!(markers(&file, first_ns), all(&timeline));
        let mut last: BTreeMap<usize, f64> = BTreeMap::new();
        for (number, thread) in file["threads"].as_array().unwrap().iter().enumerate() {
            for began in thread["markers"]["startTime"].as_array().unwrap() {
                let began = began.as_f64().unwrap();
                prop_assert!(last.insert(number, began).is_none_or(|before| before <= began));
            }
        }
    }
}
