//! `profiler source` on a real target.

use serde_json::{Value, json};

use super::{
    command::{profiler, run},
    daemon::Daemon,
    fixture::Fixture,
    trace,
};

/// The line of the fixture's source with a word.
fn line_with(word: &str) -> u64 {
    let text = include_str!("../../../profiler-daemon/tests/fixtures/engine/slowpath.c");
    text.lines().position(|line| line.contains(word)).unwrap() as u64 + 1
}

fn line(objects: &[Value], number: u64) -> &Value {
    let found = objects
        .iter()
        .find(|object| object["type"] == "line" && object["line"] == number);
    found.unwrap_or_else(|| panic!("no line {number} in {objects:?}"))
}

#[test]
#[ignore = "needs root"]
fn the_source_of_a_function_is_shown() {
    let target = Fixture::start("slowpath", &[]);
    let pid = target.pid().to_string();
    let source = |arguments: &[&str]| run(profiler(&[&["source", "-p", &pid], arguments].concat()));

    let shown = source(&["f"]).status(0).quietly();
    println!("{}", shown.stdout());
    assert!(shown.stdout().contains("slow_path();"), "the text");
    assert!(shown.stdout().contains("→slow_path") && shown.stdout().contains("→fast_path"));

    let objects = source(&["f", "--json"]).status(0).quietly().objects();
    assert_eq!(
        (&objects[0]["type"], &objects[0]["function"]),
        (&"source".into(), &"f".into())
    );
    assert_eq!(objects[0]["has_text"], true);
    let call = line_with("        slow_path();");
    assert_eq!(line(&objects, call)["calls"][0]["callee"], "slow_path");
    assert_eq!(line(&objects, call)["text"], "        slow_path();");
    let branch = line_with("if (is_slow(i))");
    assert!(!line(&objects, branch)["branches"].as_array().unwrap().is_empty());

    // A line belongs to the function that it is in; one that is inlined everywhere is shown as its instances.
    let place = format!("engine/slowpath.c:{call}");
    let objects = source(&[&place, "--json"]).status(0).objects();
    assert_eq!(objects[0]["function"], "f");
    assert_eq!(
        (&objects[0]["marked_line"], &line(&objects, call)["marked"]),
        (&call.into(), &true.into())
    );
    let objects = source(&["is_slow", "--json"]).status(0).objects();
    assert!(objects[0]["address"].is_null());
    assert_eq!(objects[0]["instances"].as_array().unwrap().len(), 2);

    source(&["slow_pat"]).status(3).says("slow_path");
    source(&["slowpath.c:1"])
        .status(3)
        .says("has no code; the nearest lines with code");
    source(&["nosuch.c:1"])
        .status(3)
        .says("no source file is called nosuch.c");
    source(&["f[>= p95]"])
        .status(2)
        .says("conditions are not supported here");
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn what_sessions_count_is_shown_where_it_is() {
    let mut target = Fixture::start("hits_o1", &["300".to_owned(), "tell".to_owned()]);
    let pid = target.pid().to_string();
    let daemon = Daemon::start();
    let place = trace::place();
    let some = format!("{place}[n >= 100]");
    for (name, scope) in [("calls", "serve"), ("line", &place), ("some", &some)] {
        let new = ["session", "new", "-p", &pid, scope, "--name", name, "--trace"];
        daemon.profiler(&new).status(0);
    }
    target.run();
    let objects = daemon
        .profiler(&["source", "-p", &pid, "serve", "--json"])
        .status(0)
        .objects();
    let text = daemon.profiler(&["source", "-p", &pid, "serve"]).status(0);
    let told = target.finish().output;
    let told = told.lines().filter_map(|line| line.strip_prefix("hit "));
    let many = told
        .map(|hit| serde_json::from_str::<Value>(hit).unwrap())
        .filter(|hit| hit["n"].as_i64().unwrap() >= 100)
        .count();
    assert!(many > 0 && many < 300, "{many}");
    let (_, number) = place.split_once(':').unwrap();
    assert_eq!(
        line(&objects, number.parse().unwrap())["counts"],
        json!([
            {"session": "line", "step": place, "count": 300},
            {"session": "some", "step": some, "count": many},
        ])
    );
    let first = objects[0]["line"].as_u64().unwrap();
    assert_eq!(
        line(&objects, first)["counts"],
        json!([{"session": "calls", "step": "serve", "count": 300}])
    );
    println!("{}", text.stdout());
    let notes = format!("#300 #{many}");
    assert!(text.stdout().contains(&notes) && text.stdout().contains("#300 calls"));
    // Nobody counts for another command.
    let alone = Fixture::start("hits_o1", &["0".to_owned()]);
    let pid = alone.pid().to_string();
    let objects = daemon
        .profiler(&["source", "-p", &pid, "serve", "--json"])
        .status(0)
        .objects();
    assert_eq!(line(&objects, first)["counts"], json!([]));
    alone.finish();
    assert_eq!(daemon.stop(), Some(0));
}
