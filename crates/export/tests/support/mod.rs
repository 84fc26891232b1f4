//! A profile with what may be in one, and its stacks.

#![allow(dead_code, reason = "each test takes a part of it")]

use std::collections::BTreeMap;

use profiler_export::{
    Count, Durations, Frame, FunctionDurations, Label, Measure, Profile, Stack, Unit, perf_script,
};

/// What `perf script` would print of a profile.
pub fn perf_script_of(profile: &Profile) -> Vec<u8> {
    let mut bytes = Vec::new();
    perf_script::write(profile, &mut bytes).unwrap();
    bytes
}

fn frame(name: &str, inlined: bool) -> Frame {
    Frame {
        name: name.to_owned(),
        file: "/src/server.c".to_owned(),
        declared_line: 7,
        module: "/usr/bin/server".to_owned(),
        inlined,
        ..Frame::default()
    }
}

fn stack(frames: &[u32], samples: u64, ns: u64, side: &str) -> Stack {
    Stack {
        frames: frames.to_vec(),
        weights: vec![samples, ns],
        labels: vec![Label {
            key: "side".to_owned(),
            value: side.to_owned(),
        }],
    }
}

/// Names of all kinds that a file may hold.
fn names() -> Vec<String> {
    let mut names: Vec<String> = [
        "main",
        "handle",
        "fast;path",
        "a \"quoted\"\nname",
        "\u{1b}[31mred",
        "\u{202e}bidi",
        "nul\0inside",
    ]
    .map(str::to_owned)
    .to_vec();
    names.push("x".repeat(64 << 10));
    names
}

pub fn profile() -> Profile {
    let mut frames: Vec<Frame> = names().iter().map(|name| frame(name, false)).collect();
    frames.push(frame("inlined_into_handle", true));
    let inlined = u32::try_from(frames.len() - 1).unwrap();
    let mut stacks = vec![
        stack(&[0, 1], 3, 30_000_000, "outside"),
        stack(&[0, 1, inlined], 5, 51_234_567, "inside"),
        stack(&[0, 1, inlined, 2], 1, 10_000_001, "inside"),
    ];
    stacks.extend((2..inlined).map(|name| stack(&[0, name], 1, 1_000 + u64::from(name), "inside")));
    Profile {
        title: "server (7)".to_owned(),
        comments: vec!["scope: handle[>= p95]".to_owned()],
        measures: vec![
            Measure {
                name: "samples".to_owned(),
                unit: Unit::Count,
            },
            Measure {
                name: "cpu".to_owned(),
                unit: Unit::Nanoseconds,
            },
        ],
        frames,
        stacks,
        ended_ns: 1_700_000_010_000_000_000,
        duration_ns: 10_000_000_000,
    }
}

/// Three of its stacks, whose names no format changes.
pub fn plain() -> Profile {
    let mut profile = profile();
    profile.stacks.truncate(3);
    profile
}

/// The weights of each stack, the outermost function first, and side.
pub fn by_stack(profile: &Profile) -> BTreeMap<(Vec<String>, String), Vec<u64>> {
    let mut stacks = BTreeMap::new();
    for stack in &profile.stacks {
        let names = profile
            .frames_of(stack)
            .map(|(_, frame)| frame.name.clone())
            .collect();
        stacks.insert((names, stack.labels[0].value.clone()), stack.weights.clone());
    }
    stacks
}

/// Calls of 10 µs, and some of 30 ms.
pub fn durations() -> Durations {
    let counts = [(0, 3), (10_048, 9_000), (30_015_488, 500)];
    Durations {
        title: "server (7)".to_owned(),
        scope: "handle".to_owned(),
        began_ns: 1_700_000_000_000_000_000,
        ended_ns: 1_700_000_010_000_000_000,
        functions: vec![FunctionDurations {
            name: "handle".to_owned(),
            module: "/usr/bin/server".to_owned(),
            counts: counts.map(|(value_ns, count)| Count { value_ns, count }).to_vec(),
            sum_ns: 15.1e9,
            min_ns: 0,
            max_ns: 30_100_000,
        }],
    }
}
