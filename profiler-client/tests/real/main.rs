//! The programs as they are used: `profiler` and `profilerd` as processes, on real targets.
//!
//! Every test is ignored by default because it needs root, the targets compiled by `cargo xtask fixtures` in the
//! directory that `PROFILER_FIXTURES` names, and `profilerd` built beside `profiler`: `cargo xtask test` sees to
//! that.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[expect(dead_code, reason = "the engine's tests look at more of what is held")]
#[path = "../../../profiler-daemon/tests/privileged/bpf.rs"]
mod bpf;
mod by_value;
mod command;
mod costs;
mod covered;
mod daemon;
mod ends;
mod estimate;
mod explain;
mod files;
#[expect(dead_code, reason = "the engine's tests need more of a target")]
#[path = "../../../profiler-daemon/tests/privileged/fixture.rs"]
mod fixture;
mod grouping;
mod inlined;
mod node;
mod places;
mod service;
mod sessions;
mod source;
mod spans;
mod split_off;
mod syscalls;
mod timeline;
mod trace;
mod users;
mod verbs;
mod waits;
