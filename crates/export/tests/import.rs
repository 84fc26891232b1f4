//! What other tools have written, read; and what we write for them, read back.

#![expect(clippy::unwrap_used, reason = "a failure here is the test's")]

mod support;

use std::{collections::BTreeMap, process::Command};

use profiler_export::{Profile, import, pprof};
use profiler_testkit::has_program;
use proptest::prelude::*;

use support::{perf_script_of, profile};

/// The weights of the last measure by names, the outermost first; whatever the labels are.
fn by_names(profile: &Profile) -> BTreeMap<Vec<String>, u64> {
    let mut stacks = BTreeMap::new();
    for stack in &profile.stacks {
        let names = profile.frames_of(stack);
        let names = names.map(|(_, frame)| frame.name.clone()).collect();
        *stacks.entry(names).or_default() += stack.weights.last().unwrap();
    }
    stacks
}

#[test]
fn a_pprof_profile_is_read_as_it_was_written() {
    let profile = profile();
    let read = import::read(&pprof::write(&profile)).unwrap();
    assert_eq!(by_names(&read), by_names(&profile));
    assert_eq!(read.measures, profile.measures);
    assert_eq!(
        (read.ended_ns, read.duration_ns),
        (profile.ended_ns, profile.duration_ns)
    );
    let inlined = read.frames.iter().filter(|frame| frame.inlined);
    assert_eq!(inlined.count(), 1);
}

#[test]
fn of_perfs_own_file_the_reader_is_told_how_to_make_text() {
    let mut file = b"PERFILE2".to_vec();
    file.extend([0x68, 0, 0, 0, 0, 0, 0, 0]);
    let refused = import::read(&file).unwrap_err().to_string();
    assert!(refused.contains("perf script -i FILE"), "{refused}");
}

#[test]
fn what_go_has_written_is_read() {
    if !has_program("go") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let [ours, theirs] = ["ours.pb.gz", "theirs.pb.gz"].map(|name| directory.path().join(name));
    let profile = profile();
    std::fs::write(&ours, pprof::write(&profile)).unwrap();
    let written = Command::new("go")
        .args(["tool", "pprof", "-proto", "-output"])
        .args([&theirs, &ours])
        .output()
        .unwrap();
    assert!(written.status.success(), "{written:?}");
    let read = import::read(&std::fs::read(&theirs).unwrap()).unwrap();
    assert_eq!(by_names(&read), by_names(&profile));
}

#[test]
fn the_text_of_perf_script_is_read_as_it_was_written() {
    let mut profile = profile();
    // Names that its lines can hold as they are.
    profile.stacks.truncate(3);
    profile.stacks.retain(|stack| {
        stack
            .frames
            .iter()
            .all(|frame| profile.frames[*frame as usize].name != "fast;path")
    });
    let read = import::read(&perf_script_of(&profile)).unwrap();
    assert_eq!(by_names(&read), by_names(&profile));
}

#[test]
fn what_is_no_profile_is_refused() {
    for bytes in [
        &b""[..],
        b"\n",
        b"hello",
        b"\x7fELF\x02\x01\x01\0",
        b"\x1f\x8b",
        b"main;f\n",
    ] {
        let refused = import::read(bytes).unwrap_err();
        assert!(!refused.reason.is_empty(), "{bytes:?}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..300), text in "[a-c0-9;:. \t\n()+x\\[\\]]{0,200}") {
        let _ = (import::read(&bytes), import::read(text.as_bytes()));
        // Damage in what was a profile.
        let mut written = pprof::write(&profile());
        for (at, byte) in bytes.iter().enumerate() {
            let len = written.len();
            written[(at * 7919 + usize::from(*byte)) % len] ^= byte;
        }
        let _ = import::read(&written);
    }
}
