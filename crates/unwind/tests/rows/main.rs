//! Every row of the distribution's own files against gimli's evaluation of the same unwind information.
//!
//! `cargo test -p profiler-daemon --test unwind_rows -- --nocapture` takes a few hundred files of limited size;
//! with `--ignored`, all there are: some minutes.

#![expect(clippy::unwrap_used, reason = "a test fails by it")]

mod compare;
mod files;
mod reference;

use compare::{Tally, compare};
use std::{fs, path::PathBuf, time::Instant};

/// Rows that may be unsupported: 1 in 2,000. Hand-written assembly has some.
const UNSUPPORTED_SHARE: f64 = 0.0005;

fn check(paths: &[PathBuf]) -> Tally {
    let begun = Instant::now();
    let mut tally = Tally::default();
    for path in paths {
        let bytes = fs::read(path).unwrap();
        compare(path, &bytes, &mut tally);
    }
    println!("{tally}\n{:.1} s", begun.elapsed().as_secs_f64());
    for wrong in &tally.wrong {
        println!("{wrong}");
    }
    assert_eq!(tally.wrong.len(), 0, "rows that differ from gimli's evaluation");
    assert!(
        (tally.unsupported as f64) <= tally.rows as f64 * UNSUPPORTED_SHARE,
        "too many unsupported rows"
    );
    tally
}

#[test]
fn rows_of_hundreds_of_files_agree_with_gimli() {
    let tally = check(&files::some());
    assert!(
        tally.files >= 300,
        "{} files have unwind information; 300 are wanted",
        tally.files
    );
}

#[test]
#[ignore = "takes minutes"]
fn rows_of_all_files_agree_with_gimli() {
    check(&files::all());
}
