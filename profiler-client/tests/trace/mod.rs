//! `profiler trace` from outside.

use std::io::{BufRead as _, BufReader};

use profiler_proto::v1;
use profiler_testkit::json::objects_of;
use serde_json::{Value, json};

use super::{
    assert_status,
    fake::{Fake, Script},
    interrupt, profiler, run, stderr, stdout,
};

const LINE: [&str; 4] = ["trace", "-p", "7", "server.cc:13"];

/// The number before some words of the last line that was said.
fn number_before(text: &str, words: &str) -> u64 {
    let before = text.split(words).next().unwrap();
    let number = before.rsplit([' ', '(']).next().unwrap();
    number.replace(',', "").parse().unwrap()
}

#[test]
fn a_hit_is_a_line_with_its_values() {
    let fake = Fake::start(Script::default());
    let arguments = [
        "--print",
        "n,req->path",
        "--print",
        "a[1,2]",
        "--limit",
        "50",
        "--duration",
        "0.3",
    ];
    let output = run(&fake, &[&LINE[..], &arguments].concat());
    assert_status(&output, 0);
    let lines: Vec<&str> = stdout(&output).lines().collect();
    assert!(lines.len() >= 4, "{}", stdout(&output));
    for line in &lines {
        let (time, rest) = line.trim_start().split_once(" s ").unwrap();
        let (seconds, digits) = time.split_once('.').unwrap();
        assert!(seconds.parse::<i64>().is_ok() && digits.len() == 6, "{line}");
        assert_eq!(
            rest,
            "      77  handle<\\u{1b}[31m> server.cc:13  n=7 req->path=\"/\\u{1b}[2J\\u{202e}\" n=8 \
             m=<optimized out> p=<unreadable: because \\u{1b}[2J> q=<unsupported: because \\u{1b}[2J>"
        );
    }
    let said = stderr(&output);
    assert!(said.contains("profiler: warning: `handle` begins with"), "{said}");
    assert!(
        !said.contains("hits not shown:"),
        "no notes but in a terminal: {said}"
    );
    let last = said.lines().last().unwrap();
    let shown = lines.len() as u64;
    assert_eq!(number_before(last, " hits shown of "), shown, "{last}");
    assert_eq!(number_before(last, " rejected)"), shown / 2, "{last}");
    assert!(last.contains("; not shown: rate_limit "), "{last}");
    assert_eq!(fake.left(), 0);
    let seen = fake.seen.lock().unwrap();
    let create = &seen.created[0];
    assert_eq!(
        (create.scope.as_str(), create.lease.unwrap().seconds),
        ("server.cc:13", 10)
    );
    assert_eq!(
        create.capture,
        Some(v1::Capture {
            print: vec!["n".into(), "req->path".into(), "a[1,2]".into()],
            hits_per_second: 50,
            stack: false,
        })
    );
}

#[test]
fn a_call_has_a_duration_and_no_line() {
    let fake = Fake::start(Script {
        target_exits_after: Some(1),
        ..Script::default()
    });
    let output = run(&fake, &["trace", "-p", "7", "handle"]);
    assert_status(&output, 0);
    let first = stdout(&output).lines().next().unwrap();
    assert!(first.contains("  handle<\\u{1b}[31m>    165 µs  n=7 "), "{first}");
    assert!(
        stderr(&output).contains("The run ended by itself: The target exited."),
        "{}",
        stderr(&output)
    );
    let coloured = run(&fake, &["trace", "-p", "7", "handle", "--color", "always"]);
    assert!(stdout(&coloured).contains("\x1b[1mhandle<\\u{1b}[31m>"));
    assert!(!stdout(&coloured).contains("\x1b[2J"));
}

#[test]
fn hits_as_json_and_a_summary() {
    let fake = Fake::start(Script::default());
    let output = run(&fake, &[&LINE[..], &["--json", "--duration", "0.3"]].concat());
    assert_status(&output, 0);
    let all = objects_of("trace", stdout(&output));
    let (summary, hits) = all.split_last().unwrap();
    assert!(hits.len() >= 4);
    assert_eq!(
        hits[0],
        json!({"type": "hit", "schema": 1, "ts_ns": 1_000_000_000, "tid": 77, "thread": null, "pid": 7,
        "site": "/src/server.cc:13", "function": "handle<\x1b[31m>", "file": "/src/server.cc", "line": 13,
        "module": "/usr/bin/server", "address": 4108,
        "values": {
            "n": {"state": "ok", "value": 7, "type": "int"},
            "req->path": {"state": "ok", "value": "/\x1b[2J", "type": "int"},
            "n#2": {"state": "ok", "value": "not JSON", "type": "int"},
            "m": {"state": "optimized_out", "reason": "because \x1b[2J"},
            "p": {"state": "unreadable", "reason": "because \x1b[2J"},
            "q": {"state": "unsupported", "reason": "because \x1b[2J"},
        }})
    );
    let messages = hits.len() as u64 / 2;
    assert_eq!(
        *summary,
        json!({"type": "summary", "schema": 1, "hits": hits.len(), "reached": 503 * messages,
            "rejected": messages, "lost": {"rate_limit": 500 * messages}, "unseen": {"place_missed": messages}})
    );
    let calls = run(
        &fake,
        &["trace", "-p", "7", "handle", "--json", "--duration", "0.1"],
    );
    let hit = &objects_of("trace", stdout(&calls))[0];
    assert_eq!(
        (&hit["site"], &hit["file"], &hit["duration_ns"]),
        (&json!("handle<\x1b[31m>"), &Value::Null, &json!(165_000))
    );
}

#[test]
fn a_stack_is_below_its_hit() {
    let fake = Fake::start(Script::default());
    let stack = ["--stack", "--duration", "0.1"];
    let output = run(&fake, &[&LINE[..], &stack].concat());
    assert_status(&output, 0);
    let lines: Vec<&str> = stdout(&output).lines().take(5).collect();
    assert!(
        lines[0].contains("  handle<\\u{1b}[31m> server.cc:13  n=7 "),
        "{lines:?}"
    );
    assert_eq!(
        lines[1..4],
        [
            "        handle  server.cc:13",
            "        main\\u{1b}[2J  server.cc:40",
            "        … incomplete"
        ]
    );
    assert!(
        lines[4].contains("  handle<\\u{1b}[31m> server.cc:13  n=7 "),
        "{lines:?}"
    );
    let calls = [&["trace", "-p", "7", "handle", "--json"][..], &stack].concat();
    let output = run(&fake, &calls);
    assert_status(&output, 0);
    let all = objects_of("trace", stdout(&output));
    let frame = |function: &str, line: u32, inlined: bool| {
        json!({"function": function, "file": "/src/server.cc",
        "line": line, "module": "/usr/bin/server", "inlined": inlined})
    };
    for hit in &all[..all.len() - 1] {
        assert_eq!(
            hit["stack"],
            json!([frame("main\x1b[2J", 40, false), frame("handle", 13, true)])
        );
        assert_eq!(hit["complete"], true);
    }
    let seen = fake.seen.lock().unwrap();
    assert!(
        seen.created
            .iter()
            .all(|create| create.capture.as_ref().unwrap().stack)
    );
}

#[test]
fn ctrl_c_ends_a_trace_with_its_summary() {
    let fake = Fake::start(Script::default());
    let child = profiler(&fake, &LINE).spawn().unwrap();
    fake.await_updates(2);
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    assert_status(&output, 0);
    assert!(stderr(&output).contains(" hits shown of "), "{}", stderr(&output));
    assert_eq!(fake.left(), 0);
}

#[test]
fn a_broken_stream_leaves_what_was_shown() {
    let fake = Fake::start(Script {
        breaks_after: Some(2),
        ..Script::default()
    });
    let output = run(&fake, &[&LINE[..], &["--json"]].concat());
    assert_status(&output, 1);
    assert_eq!(objects_of("trace", stdout(&output)).last().unwrap()["hits"], 4);
    assert!(
        stderr(&output).contains("profiler: The daemon is gone"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_reader_that_leaves_ends_a_trace_quietly() {
    let fake = Fake::start(Script::default());
    for arguments in [&LINE[..], &[&LINE[..], &["--json"]].concat()] {
        let mut child = profiler(&fake, arguments).spawn().unwrap();
        let mut reader = BufReader::new(child.stdout.take().unwrap());
        reader.read_line(&mut String::new()).unwrap();
        drop(reader);
        let output = child.wait_with_output().unwrap();
        assert_status(&output, 0);
        let said = stderr(&output);
        assert!(!said.contains("pipe") && !said.contains("shown of"), "{said}");
    }
    assert_eq!(fake.left(), 0);
}

#[test]
fn a_trace_that_cannot_be_has_its_exit_status() {
    let fake = Fake::start(Script::default());
    for (arguments, status, words) in [
        (
            &["trace", "-p", "7", "server.cc:13", "--print", "n,req->"][..],
            2,
            "a name is expected after `->`\n  req->\n       ^",
        ),
        (
            &["trace", "-p", "7", "server.cc:1"],
            3,
            "has no code; the nearest lines with code: 12, 13",
        ),
        (&["trace", "-p", "404", "f"], 3, "no process 404"),
        (&["trace", "-p", "403", "f"], 4, "CAP_BPF"),
        (&["trace", "-p", "7"], 2, "Say what to trace"),
        (&["trace", "f"], 2, "Say what to look at"),
        (
            &["trace", "-p", "7", "f", "--print", "n,"],
            2,
            "no expression after the last comma",
        ),
        (
            &[
                "trace",
                "-p",
                "7",
                "f",
                "--print",
                "a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q",
            ],
            2,
            "17 expressions; at most 16",
        ),
        (&["trace", "-p", "7", "f", "--limit", "0"], 2, "0 is not in"),
        (
            &["trace", "--session", "web", "-p", "7"],
            2,
            "cannot be used with",
        ),
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

/// Runs a trace to its end with a file of this name beside it; the file, and what was printed.
fn written(scope: &str, name: &str, arguments: &[&str]) -> (Vec<u8>, std::process::Output) {
    let fake = Fake::start(Script::default());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    let file = ["--duration", "0.3", "-o", path.to_str().unwrap()];
    let output = run(
        &fake,
        &[&["trace", "-p", "7", scope], &file[..], arguments].concat(),
    );
    assert_status(&output, 0);
    assert_eq!(fake.left(), 0);
    (std::fs::read(path).unwrap(), output)
}

#[test]
fn calls_are_written_for_perfetto_in_place_of_lines() {
    use profiler_export::perfetto::TraceMessage;
    use prost::Message as _;

    let (bytes, output) = written("handle", "calls.pftrace", &["--stack"]);
    assert_eq!(stdout(&output), "");
    let trace = TraceMessage::decode(&bytes[..]).unwrap();
    let events = trace
        .packet
        .iter()
        .filter_map(|packet| packet.track_event.as_ref());
    let of = |kind: i32| events.clone().filter(|event| event.r#type == kind).count() as u64;
    let (begun, ended) = (of(1), of(2));
    let said = stderr(&output);
    assert_eq!((begun, begun), (ended, number_before(said, " hits shown of ")));
    assert!(
        said.contains(&format!("calls.pftrace written: {begun} events")),
        "{said}"
    );
}

#[test]
fn hits_of_lines_are_written_as_instants_beside_json() {
    let (bytes, output) = written("server.cc:13", "hits.trace.json", &["--json"]);
    let mut hits = objects_of("trace", stdout(&output));
    hits.retain(|object| object["type"] == "hit");
    let trace: Value = serde_json::from_slice(&bytes).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let instants: Vec<&Value> = events.iter().filter(|event| event["ph"] == "i").collect();
    assert!(!hits.is_empty() && instants.len() == hits.len());
    for (instant, hit) in instants.iter().zip(&hits) {
        assert_eq!(
            (&instant["name"], &instant["tid"], &instant["pid"]),
            (&hit["site"], &hit["tid"], &hit["pid"])
        );
        assert_eq!(instant["args"]["n"], hit["values"]["n"]["value"]);
        assert_eq!(instant["args"]["[function]"], hit["function"]);
    }
    let scope = &trace["otherData"]["scope"];
    assert_eq!(scope, "server.cc:13");
}

#[test]
fn events_on_standard_output_are_alone_there() {
    let fake = Fake::start(Script::default());
    let output = run(
        &fake,
        &[&LINE[..], &["--duration", "0.3", "--format", "chrome"]].concat(),
    );
    assert_status(&output, 0);
    let trace: Value = serde_json::from_str(stdout(&output)).unwrap();
    assert!(!trace["traceEvents"].as_array().unwrap().is_empty());
    assert!(!stderr(&output).contains(" written:"), "{}", stderr(&output));
}
