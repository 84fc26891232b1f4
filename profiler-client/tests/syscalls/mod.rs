//! `profiler syscalls` from outside.

use profiler_testkit::json::objects_of;
use serde_json::{Value, json};

use super::{
    assert_status,
    fake::{Fake, Script},
    run, stderr, stdout,
};

#[test]
fn the_table_comes_once_at_the_end() {
    let fake = Fake::start(Script::default());
    for (by, from) in [
        ("function", "look\\u{1b}[31m < main"),
        ("module", "libsearch.so < server"),
    ] {
        let output = run(&fake, &["syscalls", "-p", "7", "--by", by, "--duration", "0.3"]);
        assert_status(&output, 0);
        let behind_numbers = |line: &str| line.chars().skip(63).collect::<String>();
        let table: Vec<String> = stdout(&output).lines().skip(1).map(behind_numbers).collect();
        assert_eq!(table, ["openat  ENOENT 20  1 open", &format!("  {from}")]);
        let said = stderr(&output);
        let last = said.lines().last().unwrap();
        assert!(
            last.ends_with(", 20 failed, 1 open, 2 begun before; left out: syscall_limit 5"),
            "{said}"
        );
    }
    assert_eq!(fake.left(), 0);
    let seen = fake.seen.lock().unwrap();
    assert_eq!(seen.created[0].scope, "");
}

#[test]
fn an_object_a_call_and_caller_and_a_summary() {
    let fake = Fake::start(Script::default());
    let output = run(
        &fake,
        &["syscalls", "-p", "7", "handle", "--duration", "0.3", "--json"],
    );
    assert_status(&output, 0);
    let objects = objects_of("syscalls", stdout(&output));
    let types: Vec<&Value> = objects.iter().map(|object| &object["type"]).collect();
    assert_eq!(types, ["syscall", "syscall_caller", "summary"]);
    assert_eq!(objects[0]["errors"], json!({"ENOENT": 20}));
    assert_eq!(objects[1]["frames"][0]["function"], "main");
    assert_eq!(objects[2]["lost"], json!({"syscall_limit": 5}));
    assert_eq!(objects[2]["calls"], objects[0]["calls"]);
    assert_eq!(fake.seen.lock().unwrap().created[0].scope, "handle");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let fake = Fake::start(Script::default());
    for (arguments, status, words) in [
        (&["syscalls"][..], 2, "Say what to look at"),
        (&["syscalls", "-p", "7", "f[>= p195]"], 2, "p195"),
        (&["syscalls", "-p", "7", "--by", "thread"], 2, "thread"),
        (&["syscalls", "-p", "404"], 3, "no process 404"),
        (&["syscalls", "--session", "web", "f"], 2, "cannot be used with"),
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
