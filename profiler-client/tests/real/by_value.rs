//! `latency --by` on a real target, held against what the target says of each call itself.

use serde_json::{Value, json};

use super::{
    bpf,
    command::{Ended, Running, profiler, run, through},
    daemon::Daemon,
    fixture::Fixture,
};

const CALLS: u64 = 1400;

/// Runs a target to its end, its calls divided from before the first to after the last.
fn divided(by: &str, arguments: &[&str]) -> (Ended, Vec<Value>) {
    let mut target = Fixture::start("hits_o2", &[CALLS.to_string(), "tell".to_owned()]);
    let daemon = Daemon::start();
    let pid = target.pid().to_string();
    let command = Running::start(through(
        &daemon.socket,
        &[&["latency", "-p", &pid, "serve", "--by", by], arguments].concat(),
    ));
    daemon.until_watched();
    target.run();
    let ended = target.finish();
    assert_eq!(ended.status, Some(0));
    let command = command.end().status(0).says(" ended");
    assert_eq!(daemon.stop(), Some(0));
    let told = ended.output.lines().filter_map(|line| line.strip_prefix("hit "));
    let told = told.map(|text| serde_json::from_str(text).unwrap()).collect();
    (command, told)
}

/// Checks that all calls are accounted for.
#[track_caller]
fn accounted(object: &Value) {
    let count = |value: &Value| value.as_u64().unwrap();
    let rows = object["values"].as_array().unwrap().iter();
    let rows: u64 = rows.map(|row| count(&row["calls"])).sum();
    let not_divided = object["not_divided"].as_object().unwrap().values();
    let not_divided: u64 = not_divided.map(count).sum();
    assert_eq!(
        count(&object["calls"]),
        rows + count(&object["other"]["calls"]) + not_divided,
        "{object}"
    );
}

#[test]
#[ignore = "needs root"]
fn each_value_has_its_calls() {
    let (command, told) = divided("request->name", &["--json", "--interval", "0.05"]);
    let objects = command.objects();
    for object in objects.iter().filter(|object| object["type"] == "latency_by") {
        accounted(object);
    }
    let [latency, by] = &objects[objects.len() - 2..] else {
        panic!("{objects:?}")
    };
    assert_eq!(
        (&latency["type"], &latency["final"]),
        (&json!("latency"), &json!(true))
    );
    assert_eq!((&by["type"], &by["final"]), (&json!("latency_by"), &json!(true)));
    assert_eq!(
        (&by["function"], &by["expression"], &by["type_name"]),
        (&json!("serve"), &json!("request->name"), &json!("const char*"))
    );
    assert_eq!((&by["calls"], &by["not_divided"]), (&json!(CALLS), &json!({})));
    assert_eq!(latency["since_start"]["count"], CALLS);
    let values = by["values"].as_array().unwrap();
    assert_eq!(values.len(), 3);
    for row in values {
        let own = told.iter().filter(|hit| hit["name"] == row["value"]).count();
        assert_eq!(
            (&row["state"], &row["calls"]),
            (&json!("ok"), &json!(own)),
            "{row}"
        );
        assert!(row["p50_ns"].as_u64() <= row["max_ns"].as_u64());
    }
}

#[test]
#[ignore = "needs root"]
fn the_table_ends_with_a_line_for_each_value() {
    let (command, _) = divided("request->kind", &[]);
    let text = command.stdout();
    let (_, table) = text.split_once("by request->kind (int)").unwrap();
    let mut calls: Vec<(u64, u64)> = table
        .lines()
        .skip(1)
        .map(|line| {
            let mut words = line.split_whitespace().map(|word| word.replace(',', ""));
            let mut number = || words.next().unwrap().parse().unwrap();
            (number(), number())
        })
        .collect();
    calls.sort_unstable();
    assert_eq!(
        calls,
        (0..7).map(|kind| (kind, CALLS / 7)).collect::<Vec<_>>(),
        "{text}"
    );
}

#[test]
#[ignore = "needs root"]
fn a_session_divides_calls_while_nobody_looks() {
    let mut target = Fixture::start("hits_o2", &[CALLS.to_string()]);
    let daemon = Daemon::start();
    let pid = target.pid().to_string();
    daemon
        .profiler(&["session", "new", "-p", &pid, "serve", "--by", "n", "--name", "by"])
        .status(0)
        .quietly();
    target.run();
    let seen = loop {
        let looked = daemon
            .profiler(&["latency", "--session", "by", "--json", "--duration", "0.3"])
            .status(0);
        let last = looked.objects().pop().unwrap();
        assert_eq!(last["type"], "latency_by");
        accounted(&last);
        if last["not_divided"] == json!({}) {
            break last;
        }
    };
    assert_eq!(
        (
            &seen["calls"],
            seen["values"].as_array().unwrap().len(),
            &seen["other"]["calls"]
        ),
        (&json!(CALLS), 64, &json!(CALLS - 64))
    );
    daemon
        .profiler(&["trace", "--session", "by"])
        .status(2)
        .says("records no hits");
    daemon.profiler(&["session", "end", "by"]).status(0);
    assert_eq!(daemon.stop(), Some(0));
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn a_run_that_is_ended_accounts_for_every_call() {
    let mut target = Fixture::start("hits_o2", &["2000000000".to_owned()]);
    target.say("go");
    let pid = target.pid().to_string();
    let ended = run(profiler(&[
        "latency",
        "-p",
        &pid,
        "serve",
        "--by",
        "n",
        "--json",
        "--duration",
        "1",
        "--interval",
        "0.1",
    ]))
    .status(0);
    let objects = ended.objects();
    for object in objects.iter().filter(|object| object["type"] == "latency_by") {
        accounted(object);
    }
    let last = objects.last().unwrap();
    println!("{} calls, not divided {}", last["calls"], last["not_divided"]);
    assert!(
        last["not_divided"].get("end_lost").is_none(),
        "{}",
        last["not_divided"]
    );
    bpf::wait_until_unchanged(target.pid());
}

#[test]
#[ignore = "needs root"]
fn what_cannot_be_divided_is_refused_with_a_reason() {
    let target = Fixture::start("hits_o2", &["1".to_owned()]);
    let pid = target.pid().to_string();
    let latency = |scope: &str, by: &str| run(profiler(&["latency", "-p", &pid, scope, "--by", by]));
    latency("serve", "request->")
        .status(2)
        .says("\n  request->\n           ^");
    latency("serve", "n,m").status(2).says("one expression");
    latency("serve", "nosuch")
        .status(1)
        .says("the calls of serve cannot be divided by nosuch: no variable nosuch is visible here");
    latency("hits.c:20", "n")
        .status(2)
        .says("is a line, which has no duration");
    bpf::wait_until_unchanged(target.pid());
    assert_eq!(target.finish().status, Some(0));
}
