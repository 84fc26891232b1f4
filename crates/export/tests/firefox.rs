//! What is written for the Firefox Profiler: by the format's own tables.

#![expect(clippy::unwrap_used, reason = "a failure here is the test's")]

mod support;

use std::collections::BTreeMap;

use profiler_export::firefox;
use serde_json::Value;

use support::{by_stack, profile};

fn number(value: &Value) -> Option<usize> {
    value.as_u64().map(|number| usize::try_from(number).unwrap())
}

/// The weights of a thread by stack, the outermost function first.
fn stacks(thread: &Value) -> BTreeMap<Vec<String>, u64> {
    let (samples, table) = (&thread["samples"], &thread["stackTable"]);
    let is_time = samples["weightType"] == "tracing-ms";
    let mut stacks = BTreeMap::new();
    for at in 0..number(&samples["length"]).unwrap() {
        let mut names = Vec::new();
        let mut node = number(&samples["stack"][at]);
        while let Some(this) = node {
            let frame = number(&table["frame"][this]).unwrap();
            let function = number(&thread["frameTable"]["func"][frame]).unwrap();
            let name = number(&thread["funcTable"]["name"][function]).unwrap();
            names.push(thread["stringArray"][name].as_str().unwrap().to_owned());
            node = number(&table["prefix"][this]);
        }
        names.reverse();
        // Milliseconds have six digits behind the point.
        let weight = &samples["weight"][at];
        let weight = if is_time {
            format!("{:.6}", weight.as_f64().unwrap())
                .replace('.', "")
                .parse()
                .unwrap()
        } else {
            weight.as_u64().unwrap()
        };
        stacks.insert(names, weight);
    }
    stacks
}

#[test]
fn every_measure_and_side_is_a_thread_with_all_stacks() {
    let profile = profile();
    let file: Value = serde_json::from_slice(&firefox::write(&profile)).unwrap();
    let threads = file["threads"].as_array().unwrap();
    let names: Vec<&str> = threads
        .iter()
        .map(|thread| thread["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "cpu, side inside",
            "cpu, side outside",
            "samples, side inside",
            "samples, side outside"
        ]
    );
    for (thread, (measure, side)) in
        threads
            .iter()
            .zip([(1, "inside"), (1, "outside"), (0, "inside"), (0, "outside")])
    {
        let expected: BTreeMap<Vec<String>, u64> = by_stack(&profile)
            .into_iter()
            .filter(|((_, of), _)| of == side)
            .map(|((names, _), weights)| (names, weights[measure]))
            .collect();
        assert_eq!(stacks(thread), expected, "{}", thread["name"]);
    }
}
