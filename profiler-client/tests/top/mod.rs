//! `profiler top` and `profiler tui` from outside.

use profiler_testkit::json::objects_of;
use serde_json::{Value, json};

use super::{
    assert_status,
    fake::{Fake, Script},
    run, stderr, stdout,
};

#[test]
fn the_list_comes_once_at_the_end() {
    let fake = Fake::start(Script::default());
    let output = run(
        &fake,
        &[
            "top",
            "-p",
            "7",
            "handle[>= p95]",
            "--duration",
            "0.3",
            "--sort",
            "total",
        ],
    );
    assert_status(&output, 0);
    let functions: Vec<&str> = stdout(&output)
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().nth(6))
        .collect();
    assert_eq!(functions, ["handle", "main", "slow;path", "read"]);
    assert!(stderr(&output).contains(" samples, "), "{}", stderr(&output));
    assert_eq!(fake.left(), 0);
}

#[test]
fn an_object_a_function_and_a_summary() {
    let fake = Fake::start(Script::default());
    let output = run(
        &fake,
        &["top", "-p", "7", "--duration", "0.3", "-n", "2", "--json"],
    );
    assert_status(&output, 0);
    let objects = objects_of("top", stdout(&output));
    let types: Vec<&Value> = objects.iter().map(|object| &object["type"]).collect();
    assert_eq!(types, ["function_time", "function_time", "summary"]);
    assert_eq!(
        (&objects[0]["function"], &objects[0]["inlined"]),
        (&json!("slow;path"), &json!(false))
    );
    let all = objects[2]["time_ns"].as_u64().unwrap();
    assert!(objects[0]["self_ns"].as_u64().unwrap() <= all);
    assert_eq!(objects[2]["functions"], 4);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let fake = Fake::start(Script::default());
    for (arguments, words) in [
        (&["top"][..], "Say what to look at"),
        (&["top", "-p", "7", "--session", "web"], "cannot be used with"),
        (&["tui", "-p", "7"], "needs a terminal"),
        (&["tui", "-p", "7", "--pane", "nosuch"], "invalid value"),
        (&["tui", "--session", "web", "f"], "cannot be used with"),
    ] {
        let output = run(&fake, arguments);
        assert_status(&output, 2);
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
    }
    assert_eq!(fake.seen.lock().unwrap().created.len(), 0);
}
