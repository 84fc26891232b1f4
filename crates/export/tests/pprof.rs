//! What Go's own pprof reads of our files.

#![expect(clippy::unwrap_used, reason = "a failure here is the test's")]

mod support;

use std::{
    collections::BTreeMap,
    io::Read as _,
    path::Path,
    process::{Command, Output},
};

use flate2::read::GzDecoder;
use profiler_export::pprof::{self, ProfileMessage};
use profiler_testkit::has_program;
use prost::Message as _;

use support::{by_stack, profile};

fn read(bytes: &[u8]) -> ProfileMessage {
    let mut message = Vec::new();
    GzDecoder::new(bytes).read_to_end(&mut message).unwrap();
    ProfileMessage::decode(&message[..]).unwrap()
}

/// Values by stack, the outermost function first, and side.
fn stacks(message: &ProfileMessage) -> BTreeMap<(Vec<String>, String), Vec<u64>> {
    let text = |number: i64| message.string_table[usize::try_from(number).unwrap()].clone();
    let mut stacks: BTreeMap<_, Vec<u64>> = BTreeMap::new();
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
            *sum += u64::try_from(*value).unwrap();
        }
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
    assert_eq!(stacks(&message), by_stack(&profile));
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
    assert_eq!(stacks(&read(&std::fs::read(&again).unwrap())), by_stack(&profile));

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
