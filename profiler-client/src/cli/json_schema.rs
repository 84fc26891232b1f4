//! `docs/json.schema.json` has an entry for each verb that prints JSON, and `docs/json.md` says what its keys mean.
//!
//! That what is printed is as the schema has it, all tests see to that read it: `profiler_testkit::json`.

use std::collections::BTreeSet;

use clap::{Command, CommandFactory as _};
use profiler_testkit::json::{OF_VERB, are_as_described, are_of_verb, schema, verb_of};
use serde_json::{Map, Value, json};

use super::args::Cli;

const PAGE: &str = include_str!("../../../docs/json.md");

fn entries() -> &'static Map<String, Value> {
    schema()["$defs"].as_object().unwrap()
}

fn prints_json(verb: &Command) -> bool {
    let prints = verb
        .get_arguments()
        .any(|argument| argument.get_long() == Some("json"));
    prints || verb.get_subcommands().any(prints_json)
}

#[test]
fn each_verb_that_prints_json_has_an_entry() {
    let mut cli = Cli::command();
    cli.build();
    let print = cli.get_subcommands().filter(|verb| prints_json(verb));
    let print: BTreeSet<&str> = print.map(Command::get_name).collect();
    let described: BTreeSet<&str> = entries()
        .keys()
        .filter_map(|name| name.strip_prefix(OF_VERB))
        .collect();
    assert_eq!(print, described);
}

#[test]
fn the_page_has_the_types_and_the_keys_of_the_schema() {
    let of_entries = entries()
        .values()
        .filter_map(|entry| entry["properties"]["type"]["const"].as_str());
    let types: BTreeSet<&str> = of_entries.collect();
    let mut on_page: BTreeSet<&str> = BTreeSet::new();
    for after in PAGE.split("{\"type\":\"").skip(1) {
        on_page.extend(after.split('"').next());
    }
    assert_eq!(types, on_page);
    let mut keys = BTreeSet::new();
    entries()
        .values()
        .for_each(|entry| collect_keys(entry, &mut keys));
    let missing: Vec<&str> = keys
        .into_iter()
        .filter(|key| !PAGE.contains(&format!("\"{key}\"")) && !PAGE.contains(&format!("`{key}`")))
        .collect();
    assert!(missing.is_empty(), "docs/json.md does not have {missing:?}");
}

fn collect_keys<'a>(schema: &'a Value, keys: &mut BTreeSet<&'a str>) {
    match schema {
        Value::Object(members) => {
            let properties = members.get("properties").and_then(Value::as_object);
            keys.extend(properties.into_iter().flat_map(Map::keys).map(String::as_str));
            members.values().for_each(|member| collect_keys(member, keys));
        }
        Value::Array(items) => items.iter().for_each(|item| collect_keys(item, keys)),
        _ => {}
    }
}

/// An object of `info`, but for one key.
fn info_with(key: &str, value: Value) -> Value {
    let mut object = json!({
        "type": "info", "schema": 1, "serves": "processes", "daemon": true, "version": null, "host": "h", "kernel": "6.18",
        "host_id": null, "boot_id": null, "monotonic_ns": 1, "since_1970_ns": "9007199254740993", "uid": 0, "root": true,
        "limits": {"sessions": 1, "probes": 2, "frequency_hz": 3},
    });
    object[key] = value;
    object
}

#[test]
fn what_the_schema_does_not_have_is_seen() {
    assert_eq!(are_as_described(&[info_with("uid", 7.into())]), Ok(()));
    for (key, value, words) in [
        ("more", json!(1), "the key more is not there"),
        ("uid", json!("root"), "uid: \"root\" is no \"integer\""),
        ("uid", json!(-1), "uid: -1 is below 0"),
        ("serves", json!("files"), "serves: \"files\" is none of"),
        ("monotonic_ns", json!("1 s"), "monotonic_ns: \"1 s\" is no number"),
        ("limits", json!({"sessions": 1}), "limits: no key \"probes\""),
        ("schema", json!(2), "schema: 2 is not 1"),
    ] {
        let misfit = are_as_described(&[info_with(key, value)]).unwrap_err();
        assert!(misfit.contains(words), "{misfit}");
    }
    let process = json!({"type": "process_left", "schema": 1, "pid": 7, "name": "f", "cause": "ended", "reason": "exit",
        "signal": null, "left": 1, "of": 2});
    assert_eq!(are_as_described(std::slice::from_ref(&process)), Ok(()));
    let of_two_verbs = are_as_described(&[process, info_with("uid", 0.into())]);
    assert!(of_two_verbs.unwrap_err().starts_with("line 2, "));
}

#[test]
fn lines_of_another_verb_are_seen() {
    let info = [info_with("uid", 7.into())];
    assert_eq!(are_of_verb("info", &info), Ok(()));
    let misfit = are_of_verb("top", &info).unwrap_err();
    assert!(misfit.starts_with("line 1, no such object"), "{misfit}");
    let cases: [(&[&str], _); 5] = [
        (&["top", "-p", "7", "--json"], Some("top")),
        (&["--from", "a.profrec", "flame"], Some("flame")),
        (&["scope", "append", "web", "f"], Some("scope")),
        (&["latency", "f", "--dry-run"], Some("scope")),
        (&["record", "a.profrec"], None),
    ];
    for (arguments, verb) in cases {
        assert_eq!(verb_of(arguments).as_deref(), verb, "{arguments:?}");
    }
}
