//! `profiler spans` from outside.

use profiler_testkit::json::objects_of;
use serde_json::{Value, json};

use super::{
    assert_status,
    fake::{Fake, Script},
    interrupt, profiler, run, stderr, stdout,
};

const HANDLE: [&str; 4] = ["spans", "-p", "7", "handle"];

#[test]
fn the_table_comes_once_at_the_end() {
    let fake = Fake::start(Script::default());
    let output = run(
        &fake,
        &[&HANDLE[..], &["--print", "n", "--duration", "0.3"]].concat(),
    );
    assert_status(&output, 0);
    let lines: Vec<&str> = stdout(&output).lines().collect();
    assert!(
        lines[0].starts_with("#1  31.0 ms  handle<\\u{1b}[31m>  at ")
            && lines[0].ends_with(" s  thread 77  n=7"),
        "{lines:?}"
    );
    assert_eq!(
        lines[1..5],
        [
            "    inside:   +12.0 µs  server.cc:13",
            "    stack:  9 of 12 samples",
            "        compress  server.cc:9",
            "        main  server.cc:4",
        ]
    );
    assert!(
        lines[5].ends_with("thread 77  <no values were read>"),
        "{lines:?}"
    );
    assert_eq!(lines[6..], ["    stack:  no sample hit it"]);
    let said = stderr(&output);
    assert!(said.contains("profiler: warning: `handle` begins with"), "{said}");
    let last = said.lines().last().unwrap();
    assert!(
        last.contains(" s, the 2 slowest of ")
            && last.ends_with("in the last 10 s; left out: slow_end_yielded 5"),
        "{last}"
    );
    assert_eq!(fake.left(), 0);
    let seen = fake.seen.lock().unwrap();
    let create = &seen.created[0];
    assert_eq!(
        (create.scope.as_str(), create.lease.unwrap().seconds),
        ("handle", 10)
    );
    assert_eq!(create.capture.as_ref().unwrap().hits_per_second, 10_000);
}

#[test]
fn an_object_a_call_and_a_summary() {
    let fake = Fake::start(Script::default());
    let output = run(
        &fake,
        &[&HANDLE[..], &["--json", "-n", "1", "--duration", "0.2"]].concat(),
    );
    assert_status(&output, 0);
    let objects = objects_of("spans", stdout(&output));
    let [span, summary] = objects.as_slice() else {
        panic!("{objects:?}")
    };
    assert_eq!(
        (&span["type"], &span["function"], &span["values"]["n"]["value"]),
        (&json!("span"), &json!("handle<\x1b[31m>"), &json!(7))
    );
    assert_eq!(
        span["children"],
        json!([{"place": "server.cc:13", "offset_ns": 12_000, "duration_ns": null}])
    );
    assert_eq!(
        (&span["stack"][1]["function"], &span["stack"][1]["line"]),
        (&json!("compress"), &json!(9))
    );
    assert_eq!(
        (&summary["type"], &summary["spans"], &summary["lost"]),
        (&json!("summary"), &json!(1), &json!({"slow_end_yielded": 5}))
    );
}

#[test]
fn ctrl_c_ends_it_with_its_table() {
    let fake = Fake::start(Script::default());
    let child = profiler(&fake, &HANDLE).spawn().unwrap();
    fake.await_updates(2);
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    assert_status(&output, 0);
    assert!(stdout(&output).contains("#2 "), "{}", stdout(&output));
    assert_eq!(fake.left(), 0);
}

#[test]
fn a_target_that_exits_ends_it_with_a_note_and_a_broken_stream_with_status_1() {
    let fake = Fake::start(Script {
        target_exits_after: Some(1),
        ..Script::default()
    });
    let output = run(&fake, &HANDLE);
    assert_status(&output, 0);
    assert!(stdout(&output).contains("#1 "));
    assert!(stderr(&output).contains("The run ended by itself: The target exited."));
    let fake = Fake::start(Script {
        breaks_after: Some(2),
        ..Script::default()
    });
    let output = run(&fake, &HANDLE);
    assert_status(&output, 1);
    assert!(stdout(&output).contains("#1 "));
}

#[test]
fn what_cannot_be_has_its_exit_status() {
    let fake = Fake::start(Script::default());
    for (arguments, status, words) in [
        (&["spans", "-p", "7"][..], 2, "whose slowest calls"),
        (&["spans", "handle"], 2, "Say what to look at"),
        (&["spans", "-p", "7", "handle", "-n", "101"], 2, "101 is not in"),
        (
            &["spans", "-p", "7", "handle", "--print", "n,req->"],
            2,
            "a name is expected after `->`",
        ),
        (
            &["spans", "-p", "7", "f[>= p195]"],
            2,
            "A percentile is below 100",
        ),
        (&["spans", "-p", "7", "handel"], 3, "candle"),
        (&["spans", "-p", "404", "f"], 3, "no process 404"),
        (&["spans", "-p", "403", "f"], 4, "CAP_BPF"),
        (&["spans", "--session", "web", "handle"], 2, "cannot be used with"),
    ] {
        let output = run(&fake, arguments);
        assert!(
            stderr(&output).contains(words),
            "{arguments:?}: {}",
            stderr(&output)
        );
        assert_status(&output, status);
        assert_eq!(stdout(&output), "", "{arguments:?}");
    }
    assert_eq!(fake.left(), 0);
}

#[test]
fn calls_are_written_beside_the_table() {
    let fake = Fake::start(Script::default());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("slow.trace.json");
    let file = ["--duration", "0.3", "-o", path.to_str().unwrap()];
    let output = run(&fake, &[&HANDLE[..], &file].concat());
    assert_status(&output, 0);
    assert!(stdout(&output).starts_with("#1 "), "{}", stdout(&output));
    let trace: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let calls: Vec<&Value> = events.iter().filter(|event| event["cat"] == "call").collect();
    assert_eq!(calls.len(), 2);
    assert!(
        calls
            .iter()
            .all(|call| call["name"] == "handle<\x1b[31m>" && call["ph"] == "X")
    );
    let slowest = calls
        .iter()
        .find(|call| call["args"].get("[inside]").is_some())
        .unwrap();
    assert_eq!(
        slowest["args"]["[stack]"],
        json!(["compress (/src/server.cc:9)", "main (/src/server.cc:4)"])
    );
    let inside = events.iter().find(|event| event["cat"] == "inside").unwrap();
    assert_eq!(
        (&inside["name"], &inside["ph"]),
        (&json!("server.cc:13"), &json!("i"))
    );
    let delay = inside["ts"].as_f64().unwrap() - slowest["ts"].as_f64().unwrap();
    assert!((delay - 12.0).abs() < 0.01, "{delay}");
}
