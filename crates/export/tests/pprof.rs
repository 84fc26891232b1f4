//! What Go's own pprof reads of our files.

#![expect(clippy::unwrap_used, reason = "a failure here is the test's")]

use std::{
    collections::BTreeMap,
    io::Read as _,
    path::Path,
    process::{Command, Output},
};

use flate2::read::GzDecoder;
use profiler_export::{
    Frame, Label, Measure, Profile, Stack, Unit,
    pprof::{self, ProfileMessage},
};
use profiler_testkit::has_program;
use prost::Message as _;

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

fn profile() -> Profile {
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

fn read(bytes: &[u8]) -> ProfileMessage {
    let mut message = Vec::new();
    GzDecoder::new(bytes).read_to_end(&mut message).unwrap();
    ProfileMessage::decode(&message[..]).unwrap()
}

/// Values by stack, the outermost function first, and side.
fn stacks(message: &ProfileMessage) -> BTreeMap<(Vec<String>, String), Vec<i64>> {
    let text = |number: i64| message.string_table[usize::try_from(number).unwrap()].clone();
    let mut stacks: BTreeMap<_, Vec<i64>> = BTreeMap::new();
    for sample in &message.sample {
        let mut names = Vec::new();
        for id in sample.location_id.iter().rev() {
            let location = message
                .location
                .iter()
                .find(|location| location.id == *id)
                .unwrap();
            for line in location.line.iter().rev() {
                let function = message
                    .function
                    .iter()
                    .find(|function| function.id == line.function_id);
                names.push(text(function.unwrap().name));
            }
        }
        let side = sample
            .label
            .iter()
            .find(|label| text(label.key) == "side")
            .unwrap();
        let values = stacks.entry((names, text(side.str))).or_default();
        values.resize(sample.value.len(), 0);
        for (sum, value) in values.iter_mut().zip(&sample.value) {
            *sum += value;
        }
    }
    stacks
}

fn of_profile(profile: &Profile) -> BTreeMap<(Vec<String>, String), Vec<i64>> {
    let mut stacks = BTreeMap::new();
    for stack in &profile.stacks {
        let names = profile
            .frames_of(stack)
            .map(|(_, frame)| frame.name.clone())
            .collect();
        let weights = stack.weights.iter().map(|weight| i64::try_from(*weight).unwrap());
        stacks.insert((names, stack.labels[0].value.clone()), weights.collect());
    }
    stacks
}

fn go_pprof(arguments: &[&str], file: &Path) -> Output {
    let output = Command::new("go")
        .args(["tool", "pprof"])
        .args(arguments)
        .arg(file)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    output
}

#[test]
fn the_message_has_every_stack_and_weight() {
    let profile = profile();
    let message = read(&pprof::write(&profile));
    assert_eq!(stacks(&message), of_profile(&profile));
    // What is inlined shares the location of the function that it is in.
    let most = message.location.iter().map(|location| location.line.len()).max();
    assert_eq!(most, Some(2));
    assert_eq!(
        (message.time_nanos, message.duration_nanos),
        (1_700_000_000_000_000_000, 10_000_000_000)
    );
}

#[test]
fn go_reads_every_stack_and_weight() {
    if !has_program("go") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("profile.pb.gz");
    let profile = profile();
    std::fs::write(&file, pprof::write(&profile)).unwrap();

    let again = directory.path().join("again.pb.gz");
    go_pprof(&["-proto", "-output", again.to_str().unwrap()], &file);
    assert_eq!(
        stacks(&read(&std::fs::read(&again).unwrap())),
        of_profile(&profile)
    );

    let all: u64 = profile.stacks.iter().map(|stack| stack.weights[1]).sum();
    let top = |arguments: &[&str]| {
        let arguments = [&["-top", "-unit=ns", "-nodefraction=0"], arguments].concat();
        String::from_utf8_lossy(&go_pprof(&arguments, &file).stdout).into_owned()
    };
    let text = top(&[]);
    assert!(text.contains("Type: cpu\n"), "{text}");
    assert!(text.contains(&format!("{all}ns total")), "{text}");
    let inlined = text
        .lines()
        .find(|line| line.contains("inlined_into_handle"))
        .unwrap();
    assert!(
        inlined.contains("51234567ns") && inlined.ends_with("(inline)"),
        "{inlined}"
    );
    let outside = top(&["-tagfocus=side=outside"]);
    assert!(
        outside.contains("30000000ns") && !outside.contains("inlined_into_handle"),
        "{outside}"
    );
}
