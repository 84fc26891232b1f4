//! Variables of real programs, read by plans and by gdb.
//!
//! Programs of C, C++ and Rust are compiled at each level of optimization, and stopped by gdb at their statements.
//! While one stands, gdb reads what it sees there, and our plans are lowered for the same address and run over the
//! same registers and memory. What both read must be equal.

#![expect(clippy::unwrap_used, reason = "a test fails by it")]

mod build;
mod compare;
mod damaged;
mod entry;
mod session;
mod shadowed;
mod stopped;

use build::Program;
use compare::Tally;
use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// Statements of one program that it is stopped at.
const MAX_STOPS: usize = 24;
/// Programs at once. gdb and this process wait for each other, so one more than the two CPUs there may be.
const AT_ONCE: usize = 3;
/// Stops of all programs together.
const MIN_STOPS: u64 = 300;
/// Of what gdb reads, at least this share is read by plans.
const MIN_READ_SHARE: f64 = 0.95;

#[test]
fn values_agree_with_gdb() {
    let only = std::env::var("VALUES_ONLY").unwrap_or_default();
    let mut programs = build::matrix();
    programs.retain(|program| program.name().contains(&only));
    // Those that take longest to compile begin first.
    programs.sort_by_key(|program| std::cmp::Reverse(program.weight()));
    let next = AtomicUsize::new(0);
    let tallies: Mutex<Vec<(String, Tally)>> = Mutex::default();
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(program) = programs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let tally = one(program);
                    tallies.lock().unwrap().push((program.name(), tally));
                }
            });
        }
    });
    let mut tallies = tallies.into_inner().unwrap();
    tallies.sort_by(|a, b| a.0.cmp(&b.0));
    let mut all = Tally::default();
    for (name, tally) in &tallies {
        println!("{name:<36} {tally}");
        all.add(tally);
    }
    println!("{:<36} {all}", "all");
    all.explain();
    if only.is_empty() {
        assert!(all.stops >= MIN_STOPS, "{} stops", all.stops);
    }
    assert_eq!(all.differ.len(), 0, "values that gdb reads differently");
    assert!(
        all.read_share() >= MIN_READ_SHARE,
        "{:.4} is read",
        all.read_share()
    );
}

fn one(program: &Program) -> Tally {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("fixture");
    program.compile(&path);
    session::run(program, &path, MAX_STOPS)
}
