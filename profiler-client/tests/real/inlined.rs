//! Inlined instances as steps, on a real target, held against what the target counts of its calls itself.

use std::collections::BTreeMap;

use super::{
    command::{Ended, Running, profiler, run, through},
    daemon::Daemon,
    fixture::{Fixture, Truth, spec},
};

/// Looks at a target from before its first call to after its last one.
fn watched(arguments: &[&str]) -> (Ended, BTreeMap<String, Truth>) {
    let mut target = Fixture::start("inlines_o2", &spec("inlines_o2").args);
    let daemon = Daemon::start();
    let number = target.pid().to_string();
    let (verb, arguments) = arguments.split_first().unwrap();
    let command = Running::start(through(
        &daemon.socket,
        &[&[*verb, "-p", &number], arguments].concat(),
    ));
    daemon.until_watched();
    let truth = target.run();
    let ended = daemon.end(command);
    assert_eq!(target.finish().status, Some(0));
    assert_eq!(daemon.stop(), Some(0));
    (ended, truth)
}

#[test]
#[ignore = "needs root"]
fn latency_counts_each_instance() {
    let (ended, truth) = watched(&["latency", "plain@inlined", "--json"]);
    let last: Vec<_> = ended
        .objects()
        .into_iter()
        .filter(|object| object["final"] == true)
        .collect();
    let count: u64 = last
        .iter()
        .map(|object| object["since_start"]["count"].as_u64().unwrap())
        .sum();
    assert_eq!(count, truth["plain"].returned);
    let named = |name: &str| {
        let function = |object: &&serde_json::Value| object["function"].as_str().unwrap().ends_with(name);
        last.iter().filter(function).count()
    };
    // Its own code, and where it is called.
    assert_eq!(
        ["plain", " in once", " in twice", " in loop"].map(named),
        [1, 1, 2, 1]
    );
    for object in &last {
        assert_eq!(object["scope"], "plain@inlined");
        assert_eq!(object["lost"], serde_json::json!({}), "{object}");
    }
}

#[test]
#[ignore = "needs root"]
fn instances_are_shown_by_trace_spans_and_flame() {
    let (ended, truth) = watched(&[
        "trace",
        "rare@inlined",
        "--print",
        "x",
        "--limit",
        "100000",
        "--json",
    ]);
    let hits = ended.objects();
    let hits: Vec<_> = hits.iter().filter(|object| object["type"] == "hit").collect();
    assert_eq!(hits.len() as u64, truth["rare"].calls);
    for hit in &hits {
        assert!(
            hit["site"].as_str().unwrap().starts_with("rare@inlines.c:"),
            "{hit}"
        );
        assert!(hit["duration_ns"].is_u64(), "{hit}");
    }
    // The slowest of those that spin, with what was inside; the others take less.
    let (ended, _) = watched(&["spans", "timed@inlined", "-n", "3", "--json"]);
    let spans = ended.objects();
    let spans: Vec<_> = spans.iter().filter(|object| object["type"] == "span").collect();
    assert_eq!(spans.len(), 3);
    for span in &spans {
        assert!(span["duration_ns"].as_u64().unwrap() >= 30_000, "{span}");
        assert!(
            span["function"].as_str().unwrap().ends_with(" in waits"),
            "{span}"
        );
    }
    let (ended, _) = watched(&[
        "flame",
        "waits/timed@inlined[> 1us]",
        "--on-cpu",
        "-F",
        "5000",
        "-f",
    ]);
    let stacks = ended.stdout();
    assert!(stacks.contains("waits"), "{stacks}");
    assert!(!stacks.contains("callee"), "{stacks}");
}

#[test]
#[ignore = "needs root"]
fn what_cannot_be_timed_is_said() {
    let target = Fixture::start("inlines_o3", &spec("inlines_o3").args);
    let pid = target.pid().to_string();
    run(profiler(&["latency", "-p", &pid, "unrolled@inlined"]))
        .status(3)
        .says("1 of 1 inlined instances of unrolled cannot be timed: 1 copied by the compiler, as in an unrolled loop");
    run(profiler(&["latency", "-p", &pid, "unrolled"]))
        .status(3)
        .says("or its inlined instances: unrolled@inlined");
    run(profiler(&["latency", "-p", &pid, "plain", "--duration", "0.1"]))
        .status(0)
        .says("plain is also inlined in 4 places, not counted here: see plain@inlined");
    run(profiler(&["latency", "-p", &pid, "nowhere@inlined"]))
        .status(3)
        .says("no function is called nowhere");
    run(profiler(&["explain", "-p", &pid, "plain@inlined[>= p95]"]))
        .status(2)
        .says("only calls of a function can be explained");
    assert_eq!(target.finish().status, Some(0));
}
