//! The Trace Event Format, read by its rules.

use std::collections::BTreeMap;

use profiler_export::{
    chrome,
    timeline::{FIRST_FREE_ID, Slice, Timeline, Written},
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    made::{ANY_SIZE, all_named, arbitrary, hostile_names, sample},
    seen::{Seen, all, nests},
};

/// A trace, read.
struct Read {
    trace: Value,
    events: Vec<Seen>,
    /// Beginnings and ends by process and thread.
    slices: BTreeMap<(u64, u64), Vec<(u64, u64)>>,
}

/// Microseconds as they are written, as nanoseconds: no number that a reader makes of them is as exact.
#[track_caller]
fn nanoseconds(text: &str) -> u64 {
    let (whole, fraction) = text.split_once('.').unwrap();
    assert_eq!(fraction.len(), 3, "{text}");
    whole.parse::<u64>().unwrap() * 1_000 + fraction.parse::<u64>().unwrap()
}

/// What is behind a key of numbers in an event's text.
fn number<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(&format!("\"{key}\":"))?;
    rest.split([',', '}']).next()
}

#[track_caller]
fn read(written: &Written) -> Read {
    let text = std::str::from_utf8(&written.bytes).unwrap();
    let trace: Value = serde_json::from_str(text).unwrap();
    assert_eq!(trace["displayTimeUnit"], "ns");
    let (mut events, mut slices) = (Vec::new(), BTreeMap::<_, Vec<_>>::new());
    let mut tids: BTreeMap<(u64, u64), u64> = BTreeMap::new();
    let list = trace["traceEvents"].as_array().unwrap();
    // Each has a line of its own.
    let lines: Vec<&str> = text.lines().skip(1).collect();
    assert_eq!(lines.len(), list.len());
    for (event, line) in list.iter().zip(lines) {
        let (pid, tid) = (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap_or(0));
        if event["ph"] == "M" {
            // A lane says whose it is.
            let name = event["args"]["name"].as_str().unwrap();
            if let Some((thread, _)) = name.rsplit_once(", lane ") {
                assert!(tid >= FIRST_FREE_ID.into());
                let thread = thread.rsplit(' ').next().unwrap().parse().unwrap();
                tids.insert((pid, tid), thread);
            }
            assert!(event.get("ts").is_none());
            continue;
        }
        let at_ns = nanoseconds(number(line, "ts").unwrap());
        let text = |key: &str| event[key].as_str().unwrap().to_owned();
        let duration_ns = match text("ph").as_str() {
            "X" => Some(nanoseconds(number(line, "dur").unwrap())),
            "i" => {
                assert_eq!(event["s"], "t");
                None
            }
            "C" => continue,
            other => panic!("phase {other}"),
        };
        if let Some(duration_ns) = duration_ns {
            slices
                .entry((pid, tid))
                .or_default()
                .push((at_ns, at_ns + duration_ns));
        }
        events.push(Seen {
            pid: if pid >= FIRST_FREE_ID.into() { 0 } else { pid },
            tid: tids.get(&(pid, tid)).copied().unwrap_or(tid),
            name: text("name"),
            category: text("cat"),
            at_ns,
            duration_ns,
        });
    }
    events.sort();
    Read {
        trace,
        events,
        slices,
    }
}

fn write(timeline: &Timeline) -> Read {
    let written = chrome::write(timeline, ANY_SIZE);
    assert_eq!(written.left_out, 0);
    read(&written)
}

#[test]
fn everything_comes_back() {
    let timeline = sample();
    let read = write(&timeline);
    assert_eq!(read.events, all(&timeline));
    assert_eq!(
        read.trace["otherData"],
        json!({"title": "demo", "scope": "f[>= p95]"})
    );
    let events = read.trace["traceEvents"].as_array().unwrap();
    let of = |phase: &str| {
        events
            .iter()
            .filter(|event| event["ph"] == phase)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        of("M"),
        [
            &json!({"ph": "M", "pid": 7, "tid": 0, "name": "process_name", "args": {"name": "server"}}),
            &json!({"ph": "M", "pid": 8, "tid": 108, "name": "thread_name", "args": {"name": "clerk"}}),
        ]
    );
    let counters = of("C");
    assert_eq!(
        (counters.len(), &counters[0]["args"]),
        (4, &json!({"value": 1.5}))
    );
    assert_eq!(
        (&counters[0]["name"], &counters[2]["name"]),
        (&json!("page-faults (/s)"), &json!("page-faults (/s), clerk 108"))
    );
    // Beyond what a floating-point number holds.
    assert!(
        of("X")
            .iter()
            .all(|event| event["args"] == json!({"n": u64::MAX.to_string()}))
    );
    assert!(of("i").iter().all(|event| event["args"] == json!({"n": 0.5})));
}

#[test]
fn names_of_every_kind_come_back_and_show_nothing_unseen() {
    for name in hostile_names() {
        let timeline = all_named(&name);
        let written = chrome::write(&timeline, ANY_SIZE);
        let unseen = |c: char| c != '\n' && profiler_export::text::is_unseen(c);
        assert!(!std::str::from_utf8(&written.bytes).unwrap().contains(unseen));
        let read = read(&written);
        assert_eq!(read.events, all(&timeline));
        let events = read.trace["traceEvents"].as_array().unwrap();
        let arguments = json!({ &name: { &name: [-7, true, name, name], "none": [] } });
        for event in events
            .iter()
            .filter(|event| event["ph"] == "X" || event["ph"] == "i")
        {
            assert_eq!(event["args"], arguments);
        }
        let process = events.iter().find(|event| event["name"] == "process_name");
        assert_eq!(process.is_none(), name.is_empty());
        assert!(process.is_none_or(|process| process["args"]["name"] == name.as_str()));
    }
}

#[test]
fn counts_events_beyond_the_size_limit_and_writes_a_valid_file() {
    let mut timeline = sample();
    let slice = timeline.slices[0].clone();
    timeline.slices.extend((0..1_000).map(|number| Slice {
        began_ns: slice.began_ns + number * 10,
        ..slice.clone()
    }));
    timeline.counters.clear();
    let events = all(&timeline).len() as u64;
    for most_bytes in [0, 600, 5_000, 50_000] {
        let written = chrome::write(&timeline, most_bytes);
        let seen = read(&written).events.len() as u64;
        assert_eq!(seen + written.left_out, events);
        assert!(most_bytes < 5_000 || seen > 0 && written.bytes.len() <= most_bytes);
    }
}

proptest! {
    #[test]
    fn slices_nest(timeline in arbitrary()) {
        let read = write(&timeline);
        prop_assert_eq!(&read.events, &all(&timeline));
        prop_assert!(nests(&read.slices));
    }
}
