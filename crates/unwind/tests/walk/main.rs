//! Stacks of real programs, walked all along their instructions.
//!
//! A fixture is single-stepped from its first instruction, in the dynamic linker, to its last. Its calls and returns
//! are followed as they happen: that is the truth. Before every other instruction the stack is walked by the packed
//! tables and the programs' own step, and compared with it. Once the fixture handles signals, they are
//! sent to it at odd places, and at the last step of every arrival where an exception is caught.

#![expect(clippy::unwrap_used, reason = "a test fails by it")]

mod shadow;
mod tables;
mod tracee;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
};

use profiler_common::unwind::Frame;
use profiler_unwind::{End, Walk};

use shadow::{Instruction, Shadow};
use tables::Tables;
use tracee::{Stop, Tracee};

/// Steps between signals sent. Prime, so that they meet every loop anywhere.
const SIGNAL_EVERY: u64 = 2003;

/// Stacks that a guess by frame pointer may lead astray: compilers' start files have no unwind information.
const MAX_GUESSED_WRONG: u64 = 60;

/// Stacks are complete for at least this share of the instructions.
const COMPLETE_SHARE: f64 = 0.995;

/// The same with exceptions, whose registers the unwinding library replaces where they are saved.
const COMPLETE_SHARE_THROWING: f64 = 0.99;

/// Stacks are walked before every so many instructions.
const EVERY: u64 = 2;

/// Stacks from this depth on before every so many.
const DEEP: usize = 50;
const DEEP_EVERY: u64 = 31;

/// The deepest stack of the fixtures has some 310 frames.
const MAX_FRAMES: usize = 512;

#[derive(Default)]
struct Tally {
    instructions: u64,
    stacks: u64,
    complete: u64,
    /// Complete, though a frame pointer had to be guessed by.
    guessed: u64,
    /// Beyond a guess by frame pointer, which says of itself that it is one, not the truth.
    guessed_wrong: BTreeMap<String, u64>,
    frames: u64,
    deepest: usize,
    signals: u64,
    /// Ended early, and right up to there; by place and why.
    incomplete: BTreeMap<String, u64>,
    /// Not the truth; by place.
    wrong: BTreeMap<String, u64>,
}

fn compile(compiler: &str, source: &str, flags: &[&str]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fixture");
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(source);
    let built = Command::new(compiler)
        .args(flags)
        .arg("-o")
        .arg(&path)
        .arg(source)
        .output()
        .unwrap();
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    (folder, path)
}

fn run(compiler: &str, source: &str, flags: &[&str], complete_share: f64) {
    let (_folder, path) = compile(compiler, source, flags);
    let mut tracee = Tracee::start(&path);
    let mut tables = Tables::default();
    let mut shadow = Shadow::default();
    let mut tally = Tally::default();
    let mut handles_signals = false;
    let mut arrival_interrupted = false;
    loop {
        tally.instructions += 1;
        let instruction = shadow.instruction(&tracee);
        let every = if shadow.depth() < DEEP { EVERY } else { DEEP_EVERY };
        if tally.instructions.is_multiple_of(every) {
            check(&tracee, &mut tables, &shadow, &mut tally);
        }
        let mut due = false;
        if handles_signals && !shadow.in_signal() {
            let arriving = matches!(instruction, Instruction::JumpRcx);
            due = tally.instructions.is_multiple_of(SIGNAL_EVERY) || arriving && !arrival_interrupted;
            arrival_interrupted = arriving;
        }
        // Not in a start file's code, or where `longjmp` leaves: all that the handler does would be seen through a guess.
        let send = (due && tables.has_rule(&tracee, tracee.registers.rip)).then_some(
            if tally.instructions.is_multiple_of(2) {
                libc::SIGUSR1
            } else {
                libc::SIGUSR2
            },
        );
        let before = tracee.registers;
        let signal = match send {
            Some(signal) => Some(signal),
            None => match tracee.step(None) {
                Stop::Stepped => None,
                Stop::Signal(signal) => Some(signal),
                Stop::Exited(status) => {
                    assert_eq!(status, Some(0));
                    break;
                }
            },
        };
        let Some(signal) = signal else {
            shadow.stepped(&before, instruction, &tracee.registers);
            continue;
        };
        // The instruction before the signal may have been carried out.
        if send.is_none() {
            shadow.stepped(&before, instruction, &tracee.registers);
        }
        handles_signals = true;
        tally.signals += 1;
        let interrupted = tracee.registers.rip;
        assert!(matches!(tracee.step(Some(signal)), Stop::Stepped));
        shadow.signal(interrupted, &tracee);
    }
    assert_eq!(tracee.output(), "done\n");
    report(&tally, complete_share);
}

fn check(tracee: &Tracee, tables: &mut Tables, shadow: &Shadow, tally: &mut Tally) {
    let registers = &tracee.registers;
    tables.know(tracee, registers.rip);
    let walk = Walk {
        image: &tables.image,
        mappings: &tables.mappings,
    };
    let frame = Frame::interrupted(registers.rip, registers.rsp, registers.rbp, registers.rbx);
    let stack = walk.stack(frame, tracee, MAX_FRAMES);
    let truth = shadow.stack(registers.rip);

    tally.stacks += 1;
    tally.frames += truth.len() as u64;
    tally.deepest = tally.deepest.max(truth.len());

    let place = || tables.place(registers.rip);

    if stack.ips == truth && stack.end == End::Root {
        tally.complete += 1;
        tally.guessed += u64::from(stack.by_frame_pointer > 0);
    } else if truth.starts_with(&stack.ips) {
        let at = tables.place(*stack.ips.last().unwrap());
        *tally
            .incomplete
            .entry(format!("{} at {at}: {:?}", place(), stack.end))
            .or_default() += 1;
    } else if stack.by_frame_pointer > 0 {
        let signals = shadow.in_signal();
        *tally
            .guessed_wrong
            .entry(format!("{}, in a signal handler: {signals}", place()))
            .or_default() += 1;
    } else {
        let frame = stack
            .ips
            .iter()
            .zip(&truth)
            .position(|(ours, true_)| ours != true_)
            .unwrap_or(truth.len());
        let by = tables.place(truth[frame.saturating_sub(1)]);
        *tally
            .wrong
            .entry(format!(
                "{}: frame {frame} by {by}, {} guessed",
                place(),
                stack.by_frame_pointer
            ))
            .or_default() += 1;
    }
}

fn report(tally: &Tally, complete_share: f64) {
    let share = tally.complete as f64 / tally.stacks as f64;
    println!(
        "{} instructions, {} stacks of {} frames, deepest {}, {} signals: {:.4}% complete ({} with a guess), \
         {} incomplete, {} guessed wrong, {} wrong",
        tally.instructions,
        tally.stacks,
        tally.frames,
        tally.deepest,
        tally.signals,
        100.0 * share,
        tally.guessed,
        tally.incomplete.values().sum::<u64>(),
        tally.guessed_wrong.values().sum::<u64>(),
        tally.wrong.values().sum::<u64>(),
    );
    for (what, places) in [
        ("incomplete", &tally.incomplete),
        ("guessed wrong", &tally.guessed_wrong),
        ("wrong", &tally.wrong),
    ] {
        for (place, times) in places.iter().take(12) {
            println!("{what} {times} times: {place}");
        }
    }
    assert!(tally.wrong.is_empty(), "frames that are not the truth");
    assert!(tally.guessed_wrong.values().sum::<u64>() <= MAX_GUESSED_WRONG);
    assert!(share >= complete_share);
}

#[test]
fn c_without_frame_pointers() {
    run(
        "gcc",
        "stacks.c",
        &["-O2", "-fomit-frame-pointer", "-Wl,-z,lazy"],
        COMPLETE_SHARE,
    );
}

#[test]
fn c_by_another_compiler_at_fixed_addresses() {
    run(
        "clang-14",
        "stacks.c",
        &["-O2", "-fomit-frame-pointer", "-no-pie", "-Wl,-z,lazy"],
        COMPLETE_SHARE,
    );
}

#[test]
fn c_with_frame_pointers_bound_at_once() {
    run(
        "gcc",
        "stacks.c",
        &["-O1", "-fno-omit-frame-pointer", "-Wl,-z,now", "-mavx2"],
        COMPLETE_SHARE,
    );
}

#[test]
fn exceptions() {
    run(
        "g++",
        "throws.cc",
        &[
            "-O2",
            "-fomit-frame-pointer",
            "-static-libstdc++",
            "-static-libgcc",
        ],
        COMPLETE_SHARE_THROWING,
    );
}
