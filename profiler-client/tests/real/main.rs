//! The programs as they are used: `profiler` and `profilerd` as processes, on real targets.
//!
//! Every test is ignored by default because it needs root, the targets compiled by `cargo xtask fixtures` in the
//! directory that `PROFILER_FIXTURES` names, and `profilerd` built beside `profiler`: `cargo xtask test` sees to
//! that.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod arguments;
mod budget;
mod by_value;
mod clients;
mod command;
mod costs;
mod covered;
mod daemon;
mod ends;
mod entries;
mod estimate;
mod events;
mod explain;
mod explain_recorded;
mod files;
mod floods;
mod grouping;
mod inlined;
mod known;
mod lost;
mod meant;
mod musl;
mod node;
mod packages;
mod places;
mod record;
mod recorded_minute;
mod runtimes;
mod service;
mod sessions;
mod several;
mod source;
mod spans;
mod spans_recorded;
mod split_off;
mod syscalls;
mod timeline;
mod told;
mod top;
mod trace;
mod tui;
mod unnamed;
mod untold;
mod users;
mod verbs;
mod waits;
mod watch;

use profiler_testkit::{bpf, fixture, skipped};
