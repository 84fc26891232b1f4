//! `profiler timeline` from outside.

use std::fs;

use profiler_testkit::json::objects_of;
use serde_json::{Value, json};

use super::{
    assert_status,
    fake::{Fake, Script},
    run, stderr, stdout,
};

const ASKED: [&str; 7] = [
    "timeline",
    "-p",
    "7",
    "handle",
    "-e",
    "cs,faults/cs",
    "--duration",
];

#[test]
fn the_table_comes_once_at_the_end() {
    let fake = Fake::start(Script::default());
    let output = run(&fake, &[&ASKED[..], &["0.3", "--threads"]].concat());
    assert_status(&output, 0);
    let behind_numbers = |line: &str| line.split_whitespace().skip(3).collect::<Vec<_>>().join(" ");
    let rows: Vec<String> = stdout(&output).lines().map(behind_numbers).collect();
    assert!(rows[0].starts_with("counter"), "{rows:?}");
    for (row, label) in rows[1..].iter().zip([
        "cs (/s) █",
        "faults/cs █",
        "calls of handle (/s) █",
        "clerk\\u{1b}[31m 7: cs (/s) █",
        "clerk\\u{1b}[31m 7: faults/cs █",
    ]) {
        assert!(row.starts_with(label), "{row} is not {label}");
    }
    assert!(stderr(&output).contains(" steps"), "{}", stderr(&output));
    assert_eq!(fake.left(), 0);
}

#[test]
fn an_object_a_bucket_and_a_summary() {
    let fake = Fake::start(Script::default());
    let output = run(&fake, &[&ASKED[..], &["0.3", "--json"]].concat());
    assert_status(&output, 0);
    let objects = objects_of("timeline", stdout(&output));
    let (summary, buckets) = objects.split_last().unwrap();
    assert!(!buckets.is_empty());
    for bucket in buckets {
        assert_eq!(bucket["type"], "bucket");
        assert_eq!(bucket["counters"], json!({"cs": 1_000_000, "faults": 2_000_000}));
        assert_eq!(bucket["ratios"], json!({"faults/cs": 2.0}));
        assert_eq!((&bucket["calls"], bucket.get("threads")), (&json!(3), None));
    }
    assert_eq!(
        (&summary["type"], &summary["buckets"]),
        (&json!("summary"), &json!(buckets.len()))
    );
}

#[test]
fn a_picture_is_written_to_a_file() {
    let fake = Fake::start(Script::default());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("day.svg");
    let output = run(
        &fake,
        &[&ASKED[..], &["0.3", "-o", path.to_str().unwrap()]].concat(),
    );
    assert_status(&output, 0);
    assert_eq!(stdout(&output), "");
    let page = fs::read_to_string(path).unwrap();
    assert!(page.contains("calls of handle") && page.ends_with("</svg>\n"));
}

#[test]
fn counters_are_written_as_events() {
    let fake = Fake::start(Script::default());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("day.trace.json");
    let output = run(
        &fake,
        &[&ASKED[..], &["0.3", "--threads", "-o", path.to_str().unwrap()]].concat(),
    );
    assert_status(&output, 0);
    assert_eq!(stdout(&output), "");
    let trace: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let counters = events.iter().filter(|event| event["ph"] == "C");
    let mut names: Vec<&str> = counters.map(|event| event["name"].as_str().unwrap()).collect();
    let points = names.len();
    names.dedup();
    assert_eq!(
        names,
        [
            "cs (/s)",
            "faults/cs",
            "calls of handle (/s)",
            "cs (/s), clerk\u{1b}[31m 7",
            "faults/cs, clerk\u{1b}[31m 7"
        ]
    );
    let said = stderr(&output);
    assert!(
        said.contains(&format!("day.trace.json written: {points} events")),
        "{said}"
    );
}

#[test]
fn what_makes_no_sense_is_refused() {
    let fake = Fake::start(Script::default());
    for (arguments, status, words) in [
        (&["timeline"][..], 2, "Say what to look at"),
        (&["timeline", "-p", "7", "-e", "cs/"], 2, "A/B"),
        (&["timeline", "-p", "7", "-e", "a,,b"], 2, "missing"),
        (&["timeline", "-p", "7", "--step", "1ms"], 2, "10 ms"),
        (&["timeline", "-p", "7", "-o", "a.png"], 2, ".svg"),
        (
            &["timeline", "-p", "7", "-o", "a.svg", "--json"],
            2,
            "cannot be used with",
        ),
        (&["timeline", "-p", "404"], 3, "no process 404"),
    ] {
        let output = run(&fake, arguments);
        assert_status(&output, status);
        assert!(
            stderr(&output).contains(words),
            "{arguments:?}: {}",
            stderr(&output)
        );
    }
}
