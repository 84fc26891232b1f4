//! The Firefox Profiler's format, by its own tables.

use std::collections::BTreeMap;

use profiler_export::{
    firefox,
    text::is_unseen,
    timeline::{Argument, Category, Instant, Slice, Timeline, Value as Argued, Written},
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
fn names_of_every_kind_come_back_and_show_nothing_unseen() {
    for name in hostile_names() {
        let timeline = all_named(&name);
        let written = firefox::events(&timeline, ANY_SIZE);
        let file = read(&written);
        assert_eq!(markers(&file, 1), all(&timeline), "{name:?}");
        let text = String::from_utf8(written.bytes).unwrap();
        assert!(!text.trim_end().chars().any(is_unseen), "{name:?}");
        let process = if name.is_empty() { "process 0" } else { &name };
        let thread = &file["threads"][0];
        assert_eq!(thread["processName"], *process);
        let label = if name.is_empty() {
            "thread 9".to_owned()
        } else {
            format!("{name} 9")
        };
        assert_eq!(thread["name"], label);
        assert_eq!(file["meta"]["product"], name);
        let fact = &file["meta"]["extra"][0]["entries"][0];
        assert_eq!(
            (&fact["label"], &fact["value"]),
            (&name.clone().into(), &name.clone().into())
        );
        assert_eq!(file["counters"][0]["name"], format!("{name}, {label}"));
        let schema = &file["meta"]["markerSchema"][0]["data"][0];
        assert_eq!(schema["label"], name);
        let value = thread["markers"]["data"][0][schema["key"].as_str().unwrap()]
            .as_str()
            .unwrap();
        let value: Value = serde_json::from_str(value).unwrap();
        assert_eq!(
            value,
            serde_json::json!({ (name.clone()): [-7, true, name, name], "none": [] })
        );
    }
}

#[test]
fn values_are_texts() {
    let mut timeline = Timeline::of("demo");
    let process = timeline.process(7);
    let thread = timeline.thread(process, 7);
    let values = [
        (Argued::Unsigned(u64::MAX), "18446744073709551615"),
        (Argued::Signed(-3), "-3"),
        (Argued::Double(1e300), "1e300"),
        (Argued::Double(f64::NAN), "NaN"),
        (Argued::Bool(true), "true"),
        (Argued::Text("a \"b\"".into()), "a \"b\""),
        (
            Argued::List(vec![Argued::Double(f64::INFINITY), Argued::Unsigned(1 << 60)]),
            "[\"inf\",\"1152921504606846976\"]",
        ),
    ];
    let mut arguments = Vec::new();
    for (number, (value, _)) in values.iter().enumerate() {
        let name = timeline.name(&format!("v{number}"));
        arguments.push(Argument {
            name,
            value: value.clone(),
        });
    }
    timeline.instants.push(Instant {
        at_ns: 1,
        arguments: arguments.into(),
        thread,
        name: 0,
        category: Category::Hit,
        flow: None,
    });
    let file = write(&timeline);
    let data = &file["threads"][0]["markers"]["data"][0];
    for (number, (_, text)) in values.iter().enumerate() {
        assert_eq!(data[format!("value{number}")], *text);
    }
}

#[test]
fn from_the_first_event_on_that_has_no_room_none_is_written() {
    let mut timeline = sample();
    let (first, others) = (timeline.slices[0].clone(), timeline.slices[2].clone());
    timeline.slices = (0..10_000)
        .map(|number| Slice {
            began_ns: first.began_ns + number,
            ..if number % 2 == 0 {
                first.clone()
            } else {
                others.clone()
            }
        })
        .collect();
    timeline.instants.clear();
    let limit = 100_000;
    let written = firefox::events(&timeline, limit);
    let kept = markers(&read(&written), timeline.first_ns().unwrap());
    assert_eq!(
        kept.len() as u64 + written.left_out,
        10_000,
        "and all points of counters"
    );
    assert!(
        kept.len() > 100 && written.bytes.len() <= limit,
        "{} in {}",
        kept.len(),
        written.bytes.len()
    );
    let mut times: Vec<u64> = kept.iter().map(|seen| seen.at_ns - first.began_ns).collect();
    times.sort_unstable();
    let earliest: Vec<u64> = (0..times.len() as u64).collect();
    assert_eq!(times, earliest, "of both threads");
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
