//! `--dry-run` from outside.

use profiler_proto::v1::{self, estimate_scope_request::Request as Of};
use profiler_testkit::json::objects_of;
use serde_json::{Value, json};

use super::{
    assert_status,
    fake::{Fake, Script},
    run, stderr, stdout,
};

#[test]
fn nothing_is_made_and_the_places_are_shown() {
    let fake = Fake::start(Script::default());
    let output = run(&fake, &["latency", "-p", "7", "handle/shop.c:12", "--dry-run"]);
    assert_status(&output, 0);
    assert_eq!(
        stdout(&output),
        "nothing is attached; 2 places would be probed in process 7\n\n\
         STEP       PLACE   AT           INSTRUCTION    END      TIME INSIDE  HITS/S    A HIT  OF A CORE\n\
         handle     handle  shop+0x1180  mov (stepped)  2 × ret        25.0%       -  2.00 µs          -\n\
         shop.c:12  handle  shop+0x1190  -              -              25.0%       -        -          -\n\n\
         sampled for 400 ms: 100 samples, 0.50 cores busy\n\
         how often the places are reached is not known from samples: --measure counts it\n"
    );
    let said = stderr(&output);
    assert!(said.contains("warning: the entry of handle (mov)"), "{said}");
    let seen = fake.seen.lock().unwrap();
    assert!(seen.created.is_empty() && seen.ended.is_empty());
    assert!(!seen.estimates[0].measure);
}

#[test]
fn what_is_counted_has_a_rate_and_a_cost() {
    let fake = Fake::start(Script::default());
    let line = ["flame", "-p", "7", "handle", "--dry-run", "--measure"];
    let output = run(&fake, &line);
    let lines: Vec<&str> = stdout(&output).lines().collect();
    assert!(
        lines[3].ends_with("25.0%  10,000  2.00 µs       2.0%"),
        "{lines:?}"
    );
    assert!(
        lines[4].ends_with("25.0%   2,000        -          -"),
        "{lines:?}"
    );
    assert_eq!(lines[7], "counted for 50.0 ms: 12,000 hits/s");

    let output = run(&fake, &[&line[..], &["--json"]].concat());
    let objects = objects_of("scope", stdout(&output));
    assert_eq!(
        objects[0],
        json!({"type": "place", "schema": 1, "number": 0, "step": "handle", "pid": 7, "site": "handle",
            "function": "handle", "file": null, "line": null, "module": "/usr/bin/shop", "address": 4480,
            "instruction": "mov", "single_stepped": true, "end": "ret", "exits": 2,
            "exit_single_stepped": false, "samples": 25, "time_inside": 0.25, "hits": 500,
            "hits_per_s": 10_000.0, "hit_cost_ns": 2000, "cpu_share": 0.02})
    );
    assert_eq!(
        (&objects[1]["file"], &objects[1]["end"], &objects[1]["cpu_share"]),
        (&json!("shop.c"), &Value::Null, &Value::Null)
    );
    assert_eq!(
        objects[2],
        json!({"type": "summary", "schema": 1, "scope": "handle/shop.c:12", "pids": [7], "links": "multi",
            "places": 2, "features": 0, "samples": 100, "sampled_ns": 400_000_000, "cpu_ns": 200_000_000,
            "counted_ns": 50_000_000, "hits_per_s": 12_000.0, "cpu_share": null,
            "warnings": ["the entry of handle (mov) is single-stepped by the kernel"]})
    );
}

#[test]
fn every_verb_that_attaches_can_say_what_it_would() {
    let fake = Fake::start(Script::default());
    for verb in [
        &["latency"][..],
        &["flame"],
        &["trace"],
        &["spans"],
        &["session", "new"],
    ] {
        let output = run(&fake, &[verb, &["-p", "7", "handle", "--dry-run"]].concat());
        assert_status(&output, 0);
        let made = fake.seen.lock().unwrap().estimates.pop().unwrap();
        let Some(Of::Create(create)) = made.request else {
            panic!("{verb:?}: {made:?}");
        };
        assert_eq!(
            (create.scope.as_str(), create.capture.is_some()),
            ("handle", verb == ["trace"])
        );
    }
    let output = run(&fake, &["explain", "-p", "7", "handle[> 1ms]", "--dry-run"]);
    assert_status(&output, 0);
    let made = fake.seen.lock().unwrap().estimates.pop().unwrap();
    assert!(matches!(made.request, Some(Of::Create(create)) if create.explain));
    for (line, of) in [
        (
            ["scope", "set", "web", "handle"],
            Of::Set(v1::SetScopeRequest {
                name: "web".to_owned(),
                scope: "handle".to_owned(),
            }),
        ),
        (
            ["scope", "append", "web", "handle"],
            Of::Edit(v1::EditScopeRequest {
                name: "web".to_owned(),
                edit: Some(v1::edit_scope_request::Edit::Append("handle".to_owned())),
            }),
        ),
    ] {
        let output = run(
            &fake,
            &[&line[..], &["--dry-run", "--measure", "--json"]].concat(),
        );
        assert_status(&output, 0);
        let asked = fake.seen.lock().unwrap().estimates.pop().unwrap();
        assert_eq!((asked.request, asked.measure), (Some(of), true));
    }
    let seen = fake.seen.lock().unwrap();
    assert!(seen.created.is_empty() && seen.scopes.is_empty() && seen.edits.is_empty());
}

#[test]
fn flags_that_do_not_go_together_are_refused() {
    let fake = Fake::start(Script::default());
    let output = run(&fake, &["latency", "--session", "web", "--dry-run"]);
    assert_status(&output, 2);
    assert!(stderr(&output).contains("`web` is attached already"));
    assert_status(&run(&fake, &["latency", "-p", "7", "handle", "--measure"]), 2);
    assert_status(&run(&fake, &["scope", "set", "web", "handle", "--json"]), 2);
}
