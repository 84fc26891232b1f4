//! `profiler spans --from`: what was recorded of the slowest calls is what was shown of them.

use std::time::{Duration, Instant};

use profiler_testkit::fixture::Fixture;
use serde_json::{Value, json};

use super::{
    command::{profiler, run},
    daemon::Daemon,
};

/// How long others may take to begin.
const PATIENCE: Duration = Duration::from_mins(1);

/// The calls of a process, and the summary. Another process that has ended a wait, and its threads, may have ended before they are asked
/// what they are called: they go by their numbers.
fn calls(mut objects: Vec<Value>, pid: u32) -> (Vec<Value>, Value) {
    let summary = objects.pop().unwrap();
    assert_eq!(summary["type"], "summary");
    for span in &mut objects {
        forget_names_of_others(span, pid);
    }
    (objects, summary)
}

fn forget_names_of_others(value: &mut Value, pid: u32) {
    match value {
        Value::Object(fields) => {
            if fields.get("pid").is_some_and(|of| *of != json!(pid)) {
                fields.remove("thread");
            }
            for field in fields.values_mut() {
                forget_names_of_others(field, pid);
            }
        }
        Value::Array(values) => {
            for value in values {
                forget_names_of_others(value, pid);
            }
        }
        _ => {}
    }
}

#[test]
#[ignore = "needs root"]
fn the_slowest_calls_of_a_recording_are_those_that_were_watched() {
    let daemon = Daemon::start();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.profrec");
    let file = path.to_str().unwrap();
    let mut target = Fixture::start("slowpath", &["1000".to_owned()]);
    let pid = target.pid();
    let of_pid = pid.to_string();
    let scope = "f[> 15ms]/slow_inner";
    daemon
        .profiler(&[
            "session", "new", "-p", &of_pid, "--name", "s", "--window", "60", scope,
        ])
        .status(0);
    let recorder = daemon.on("s", &["record", "--waits", "-o", file]);
    let live = daemon.on("s", &["spans", "--waits", "-n", "20", "--json"]);
    let is_watched = || {
        let sessions = daemon.sessions();
        sessions.iter().any(|session| session["watchers"] == json!(2))
    };
    let begin = Instant::now();
    while !is_watched() {
        assert!(begin.elapsed() < PATIENCE, "{:?}", daemon.sessions());
    }
    target.run();
    assert_eq!(target.finish().status, Some(0));
    println!("{}", recorder.end().status(0).stderr().trim_end());
    let (live, of_live) = calls(live.end().status(0).objects(), pid);
    let asked = |more: &[&str]| {
        let words = ["spans", "--from", file, "--json", "-n", "20"];
        run(profiler(&[&words, more].concat()))
    };
    let ended = asked(&["--waits"]).status(0);
    println!("{}", ended.stderr().trim_end());
    let (recorded, of_recorded) = calls(ended.objects(), pid);
    println!("{of_recorded}\n{}", recorded[0]);
    assert_eq!(recorded, live);
    assert_eq!(
        (&of_recorded["calls"], &of_recorded["spans"], &of_recorded["lost"]),
        (&of_live["calls"], &of_live["spans"], &of_live["lost"])
    );
    let is_with_child = |span: &&Value| {
        span["children"]
            .as_array()
            .is_some_and(|inside| !inside.is_empty())
    };
    assert!(recorded.iter().filter(is_with_child).count() > 10);
    let is_sampled = |span: &&Value| span["samples"].as_u64() > Some(0) && !span["times_ns"].is_null();
    assert!(recorded.iter().filter(is_sampled).count() > 10);

    // A part has its own, which need not be among the slowest of all: that around the slowest, whenever it was.
    let slowest = run(profiler(&["spans", "--from", file, "-n", "1"])).status(0);
    let at_s: f64 = slowest
        .stdout()
        .split(" at ")
        .nth(1)
        .unwrap()
        .split(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    // Batches of a quarter of a second that lie in it whole are of the part.
    let part = format!("{:.3}..{:.3}", (at_s - 0.75).max(0.001), at_s + 0.75);
    let (in_part, of_part) = calls(asked(&["--time", &part, "f"]).status(0).objects(), pid);
    assert!(of_part["calls"].as_u64() < of_live["calls"].as_u64());
    assert!((1..=20).contains(&in_part.len()), "{of_part}");
    let durations: Vec<u64> = (in_part.iter())
        .map(|span| span["duration_ns"].as_u64().unwrap())
        .collect();
    assert!(durations.is_sorted_by(|one, other| one >= other), "{durations:?}");
    let text = run(profiler(&["spans", "--from", file, "-n", "1"])).status(0);
    assert!(text.stdout().starts_with("#1"), "{}", text.stdout());
    text.says("the 1 slowest of ");
    asked(&["--print", "i"]).status(2).says("leave --print out");
    asked(&["--window", "5"]).status(2).says("--from");
    assert_eq!(daemon.stop(), Some(0));
}
