//! Calls of a real target as events over time, held against what is printed of the same run and against the target.

use std::{collections::BTreeMap, fs, path::Path};

use profiler_export::perfetto::TraceMessage;
use prost::Message as _;
use serde_json::Value;

use super::{
    command::{Ended, Running, through},
    daemon::Daemon,
    fixture::{Fixture, Truth, spec},
};

/// A call.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Call {
    name: String,
    tid: u64,
    began_ns: u64,
    duration_ns: u64,
    /// The value of an argument.
    n: Option<u64>,
}

/// Runs a target from before its first call to after its last one, looked at with objects printed and a file written.
fn looked_at(
    fixture: &str,
    given: &str,
    arguments: &[&str],
    file: &Path,
) -> (Ended, BTreeMap<String, Truth>) {
    let mut target = Fixture::start(fixture, &[given.to_owned()]);
    let daemon = Daemon::start();
    let pid = target.pid().to_string();
    let more = ["-p", &pid, "--json", "-o", file.to_str().unwrap()];
    let command = Running::start(through(&daemon.socket, &[arguments, &more[..]].concat()));
    daemon.until_watched();
    let truth = target.run();
    let ended = daemon.end(command);
    assert_eq!(target.finish().status, Some(0));
    assert_eq!(daemon.stop(), Some(0));
    (ended, truth)
}

/// The calls among objects of a kind.
fn printed(ended: &Ended, kind: &str, value: &str) -> Vec<Call> {
    let number = |of: &Value| of.as_u64().unwrap();
    let objects = ended.objects().into_iter();
    let mut calls: Vec<Call> = objects
        .filter(|object| object["type"] == kind)
        .map(|object| Call {
            name: object["function"].as_str().unwrap().to_owned(),
            tid: number(&object["tid"]),
            began_ns: number(&object["ts_ns"]),
            duration_ns: number(&object["duration_ns"]),
            n: object["values"][value]["value"].as_u64(),
        })
        .collect();
    calls.sort();
    calls
}

/// The calls of a file for Perfetto, and how many were open at once on a track.
fn of_perfetto(file: &Path, value: &str) -> (Vec<Call>, usize) {
    let trace = TraceMessage::decode(&fs::read(file).unwrap()[..]).unwrap();
    let (mut names, mut keys, mut tids) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let mut open: BTreeMap<u64, Vec<Call>> = BTreeMap::new();
    let (mut calls, mut deepest) = (Vec::new(), 0);
    for packet in trace.packet {
        let interned = packet.interned_data.unwrap_or_default();
        names.extend(interned.event_names.into_iter().map(|name| (name.iid, name.name)));
        let arguments = interned.debug_annotation_names.into_iter();
        keys.extend(arguments.map(|name| (name.iid, name.name)));
        if let Some(track) = packet.track_descriptor
            && let Some(thread) = track.thread
        {
            tids.insert(track.uuid, u64::try_from(thread.tid).unwrap());
        }
        let Some(event) = packet.track_event else { continue };
        let at_ns = packet.timestamp.unwrap();
        let open = open.entry(event.track_uuid).or_default();
        match event.r#type {
            1 => {
                let argument = event
                    .debug_annotations
                    .iter()
                    .find(|argument| keys[&argument.name_iid.unwrap()] == value);
                open.push(Call {
                    name: names[&event.name_iid.unwrap()].clone(),
                    tid: tids[&event.track_uuid],
                    began_ns: at_ns,
                    duration_ns: 0,
                    n: argument.and_then(|argument| argument.uint_value),
                });
                deepest = deepest.max(open.len());
            }
            2 => {
                let mut call = open.pop().unwrap();
                call.duration_ns = at_ns - call.began_ns;
                calls.push(call);
            }
            _ => {}
        }
    }
    assert!(open.values().all(Vec::is_empty));
    calls.sort();
    (calls, deepest)
}

#[test]
#[ignore = "needs root"]
fn every_traced_call_is_a_slice_within_that_which_it_was_made_in() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("calls.pftrace");
    let arguments = ["trace", "n*", "--print", "x", "--limit", "100000"];
    let (ended, truth) = looked_at("recursion", "20", &arguments, &file);
    let expected: u64 = truth
        .iter()
        .filter_map(|(name, truth)| name.starts_with('n').then_some(truth.calls))
        .sum();
    let (calls, deepest) = of_perfetto(&file, "x");
    assert_eq!(calls, printed(&ended, "hit", "x"));
    assert_eq!((calls.len() as u64, expected, deepest), (expected, 32 * 20, 32));
    assert!(
        ended.stderr().contains("calls.pftrace written: 640 events"),
        "{}",
        ended.stderr()
    );
    let outer = calls.iter().filter(|call| call.name == "n00");
    let given: Vec<u64> = outer.filter_map(|call| call.n).collect();
    assert_eq!(given, (0..20).collect::<Vec<u64>>());
    println!("{} calls, {deepest} in each other", calls.len());
}

#[test]
#[ignore = "needs root"]
fn the_slowest_calls_are_slices_with_what_was_inside() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("slow.trace.json");
    let arguments = [
        "spans",
        "f[> 15ms]/slow_inner",
        "--print",
        "i",
        "-n",
        "50",
        "--window",
        "60",
    ];
    let (ended, truth) = looked_at("slowpath", "200", &arguments, &file);
    let trace: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    // Microseconds with three digits: within half a nanosecond as floating-point numbers for a hundred days.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "times are not negative"
    )]
    let ns = |of: &Value| (of.as_f64().unwrap() * 1e3).round() as u64;
    let of = |category: &str| {
        let events = events
            .iter()
            .filter(|event| event["cat"] == category && event["ph"] == "X");
        let mut calls: Vec<Call> = events
            .map(|event| Call {
                name: event["name"].as_str().unwrap().to_owned(),
                tid: event["tid"].as_u64().unwrap(),
                began_ns: ns(&event["ts"]),
                duration_ns: ns(&event["dur"]),
                n: event["args"]["i"].as_u64(),
            })
            .collect();
        calls.sort();
        calls
    };
    let calls = of("call");
    assert_eq!(calls, printed(&ended, "span", "i"));
    // Each that went the slow way has the call of it inside.
    let (inside, slow) = (of("inside"), truth["slow_inner"].calls);
    assert_eq!((inside.len() as u64, calls.len() as u64 >= slow), (slow, true));
    for child in &inside {
        let is_around = |call: &&Call| {
            let (end, child_end) = (
                call.began_ns + call.duration_ns,
                child.began_ns + child.duration_ns,
            );
            call.tid == child.tid && call.began_ns <= child.began_ns && child_end <= end
        };
        assert_eq!(
            (calls.iter().filter(is_around).count(), child.name.as_str()),
            (1, "slow_inner")
        );
    }
    println!("{} calls, {} of slow_inner inside", calls.len(), inside.len());
}

#[test]
#[ignore = "needs root"]
fn a_flow_leads_from_the_thread_that_ended_a_wait_to_the_slow_call() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("waits.pftrace");
    let spec = spec("chain_of_waits");
    let arguments = ["spans", "ask", "--waits", "-n", "20"];
    let (ended, _) = looked_at("chain_of_waits", &spec.args[0], &arguments, &file);
    let objects = ended.objects();
    let spans = objects.iter().filter(|object| object["type"] == "span");
    let woken = spans
        .filter(|span| {
            assert_eq!(span["thread"], "asker");
            let by = &span["longest_wait"]["ended_by"];
            by["thread"] == "relayer" && by["stack"].as_array().is_some_and(|stack| !stack.is_empty())
        })
        .count();
    let trace = TraceMessage::decode(&fs::read(file).unwrap()[..]).unwrap();
    let (mut threads, mut begun, mut over) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for packet in trace.packet {
        if let Some(track) = packet.track_descriptor
            && let Some(thread) = track.thread
        {
            threads.insert(track.uuid, thread.thread_name.unwrap_or_default());
        }
        let Some(event) = packet.track_event else { continue };
        let thread = || threads[&event.track_uuid].clone();
        begun.extend(event.flow_ids.iter().map(|flow| (*flow, thread())));
        over.extend(event.terminating_flow_ids.iter().map(|flow| (*flow, thread())));
    }
    let flows = begun
        .iter()
        .filter(|(flow, from)| *from == "relayer" && over[flow] == "asker");
    assert_eq!((flows.count(), begun.len()), (woken, over.len()));
    assert!(woken > 0);
    println!(
        "{woken} calls were woken by the relayer, {} by threads",
        begun.len()
    );
}
