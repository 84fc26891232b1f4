//! A recording of a newer version: what was lost in it is shown, whatever it is called.

use std::{fs, path::Path, process::Command};

use profiler_proto::v1;
use profiler_recording::{Chunk, Kind, Writer};
use profiler_testkit::json::objects_of;
use prost::Message as _;

use super::{assert_status, stdout};

/// A reason that no version has so far.
const REASON: &str = "sample_of_the_future";

/// A step whose calls are counted by one probe.
fn step() -> v1::RecordedStep {
    v1::RecordedStep {
        text: "f".to_owned(),
        functions: vec![v1::RecordedFunction {
            function: Some(v1::Function {
                name: "f".to_owned(),
                ..Default::default()
            }),
            probes: vec![v1::RecordedProbe { id: 3, open: 0 }],
            ..Default::default()
        }],
        ..Default::default()
    }
}

/// One sample, and three that were lost; with steps, two calls too.
fn write(path: &Path, steps: Vec<v1::RecordedStep>) {
    let sample = v1::RecordedSample {
        thread: 1,
        after_ns: 1000,
        weight_ns: 10_000_000,
        function_node: 1,
        line_node: 1,
        ..Default::default()
    };
    let message = v1::WatchRecordsResponse {
        from_ns: 1_000_000_000,
        to_ns: 2_000_000_000,
        begins_anew: true,
        scope: Some(v1::RecordedScope {
            text: steps.iter().map(|step| step.text.as_str()).collect(),
            steps,
            pids: vec![7],
            frequency_hz: 99,
            ..Default::default()
        }),
        threads: vec![v1::RecordedThread {
            id: 1,
            pid: 7,
            tid: 7,
            ..Default::default()
        }],
        frames: vec![v1::Frame {
            id: 1,
            function: "main".to_owned(),
            ..Default::default()
        }],
        nodes: vec![v1::RecordedNode {
            id: 1,
            parent: 0,
            frame: 1,
        }],
        records: vec![v1::Record {
            record: Some(v1::record::Record::Sample(sample)),
        }],
        calls: vec![v1::CountedCalls {
            probe: 3,
            begun: 2,
            ended: Some(v1::Histogram {
                bucket_deltas: vec![1000],
                counts: vec![2],
            }),
            ..Default::default()
        }],
        counters: [("sample_attempted".to_owned(), 4), (REASON.to_owned(), 3)].into(),
        ..Default::default()
    };
    let chunk = Chunk {
        kind: Kind::Records,
        begins_anew: true,
        from_ns: message.from_ns,
        to_ns: message.to_ns,
    };
    let mut writer = Writer::begin(Vec::new()).unwrap();
    writer
        .write(chunk, &message.encode_length_delimited_to_vec())
        .unwrap();
    fs::write(path, writer.into_inner()).unwrap();
}

#[test]
fn losses_of_a_newer_version_are_in_text_json_and_exports() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let file = path("a.profrec");
    write(&file, Vec::new());
    let of_calls = path("calls.profrec");
    write(&of_calls, vec![step()]);
    let ask_of = |file: &Path, arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_profiler"));
        let output = command
            .args(arguments)
            .arg("--from")
            .arg(file)
            .current_dir(folder.path());
        let output = output.output().unwrap();
        assert_status(&output, 0);
        output
    };
    let text = ask_of(&of_calls, &["latency"]);
    let said = format!("lost in the whole run: {REASON} 3");
    assert!(stdout(&text).contains(&said), "{}", stdout(&text));
    let ask = |arguments: &[&str]| ask_of(&file, arguments);
    let json = ask(&["flame", "--json"]);
    let summary = objects_of("flame", stdout(&json)).pop().unwrap();
    assert_eq!(summary["lost"], serde_json::json!({REASON: 3}));
    let json = ask(&["top", "--json"]);
    let summary = objects_of("top", stdout(&json)).pop().unwrap();
    assert_eq!(summary["lost"], serde_json::json!({REASON: 3}));
    // Every format that has a place for losses and is not compressed.
    for name in ["a.svg", "a.json", "a.perf", "a.otlp"] {
        ask(&["flame", "-o", name]);
        let bytes = fs::read(path(name)).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.contains(REASON), "{name}: {text}");
    }
}
