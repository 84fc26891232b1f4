//! `profiler waits` from outside.

use profiler_testkit::json::objects_of;
use serde_json::{Value, json};

use super::{
    assert_status,
    fake::{Fake, Script},
    run, stderr, stdout,
};

#[test]
fn the_tree_comes_once_at_the_end() {
    let fake = Fake::start(Script::default());
    let output = run(&fake, &["waits", "-p", "7", "--duration", "0.3"]);
    assert_status(&output, 0);
    let tree: Vec<&str> = stdout(&output).lines().skip(1).map(|line| &line[30..]).collect();
    assert_eq!(
        tree,
        [
            "clerk-* (20 threads) [sleeping] [lock till] enter",
            "  for keeper\\u{1b}[31m: woken at leave",
            "    [ran]",
        ]
    );
    let said = stderr(&output);
    assert!(
        said.lines()
            .last()
            .unwrap()
            .ends_with("left out: off_cpu_yielded 5"),
        "{said}"
    );
    assert_eq!(fake.left(), 0);
    let seen = fake.seen.lock().unwrap();
    assert_eq!(seen.created[0].scope, "");
}

#[test]
fn an_object_a_node_and_a_summary() {
    let fake = Fake::start(Script::default());
    let output = run(
        &fake,
        &["waits", "-p", "7", "handle", "--duration", "0.3", "--json"],
    );
    assert_status(&output, 0);
    let objects = objects_of("waits", stdout(&output));
    let types: Vec<&Value> = objects.iter().map(|object| &object["type"]).collect();
    assert_eq!(types, ["wait", "wait", "wait", "summary"]);
    assert_eq!(objects[1]["frames"][0]["function"], "leave");
    assert_eq!(
        objects[0]["lock"],
        json!({"address": "0x1000", "symbol": "till", "memory": null, "allocated": null})
    );
    assert_eq!(objects[3]["lost"], json!({"off_cpu_yielded": 5}));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let fake = Fake::start(Script::default());
    for (arguments, status, words) in [
        (&["waits"][..], 2, "Say what to look at"),
        (&["waits", "-p", "7", "f[>= p195]"], 2, "p195"),
        (&["waits", "-p", "404"], 3, "no process 404"),
        (&["waits", "--session", "web", "f"], 2, "cannot be used with"),
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
