//! The privileged suite: the engine and the sessions on the running kernel, with real processes as targets
//! and their own counts and clocks as truth.
//!
//! Every test is ignored by default because it needs root: `cargo xtask test` runs them. Programs come
//! compiled from the directory in `PROFILER_FIXTURES`; with `PROFILER_SCALE=vm` the work is smaller.
//!
//! See `docs/internals/testing.md` for how the code is tested.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod admission;
mod bad_input;
mod bpftrace;
mod budget;
mod by_value;
mod costs;
mod counts;
mod cycles;
mod disk;
mod endings;
mod estimate;
mod explain;
mod flame_waits;
mod flips;
mod gate;
mod gone;
mod goroutines;
mod harm;
mod held_up;
mod hit_stacks;
mod hits;
mod inlined;
mod kernel_functions;
mod killed;
mod losses;
mod many;
mod matrix;
mod memory;
mod off_cpu;
mod oracle;
mod outcomes;
mod paged;
mod paths;
mod percentiles;
mod places;
mod programs;
mod service;
mod shares;
mod soak;
mod spans;
mod stacks;
mod stacks_churn;
mod stacks_compiled;
mod stacks_languages;
mod stacks_late;
mod stacks_target;
mod stacks_truth;
mod starting;
mod system_calls;
mod timeline;
mod unanswered;
mod unique;
mod waits;

use profiler_testkit::{bpf, fixture, skipped};
