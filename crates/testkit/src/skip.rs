//! Tests that cannot run where they are.

use std::{
    fmt::Display,
    io::{Write as _, stdout},
    process::{Command, Stdio},
};

/// Says that the calling test, or a part of it, cannot run here, and why; the test then returns.
///
/// Rust's harness has no word for it and takes the test for passed. So this line goes past what the harness captures,
/// and `cargo xtask test` counts it: `skipped NAME: REASON`.
pub fn skipped(reason: impl Display) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("?");
    // In one piece, and on a line of its own: the harness may have written the test's name without an end of line.
    let line = format!("\nskipped {name}: {reason}\n");
    // Nobody may be reading; then nobody counts.
    let _ = stdout().lock().write_all(line.as_bytes());
}

/// Whether a program is installed. Where it is not, the calling test is skipped, or the part of it that needs the program.
pub fn has_program(name: &str) -> bool {
    // It is enough that it starts: not all of them know the flag.
    let status = Command::new(name)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let is_there = status.is_ok();
    if !is_there {
        skipped(format_args!("{name} is not installed"));
    }
    is_there
}
