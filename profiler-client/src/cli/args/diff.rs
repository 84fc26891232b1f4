//! The flags of `diff`.

use std::path::PathBuf;

use clap::Args;

use super::{DrawingArgs, RecordedTime, flame::one_event};

/// `profiler diff`.
#[derive(Args, Debug)]
pub struct DiffArgs {
    /// The recording to compare with, made by `profiler record`; or a profile of pprof, of `perf script`, or folded
    /// stacks, and AFTER one too
    #[arg(value_name = "BEFORE")]
    pub before: PathBuf,
    /// The recording to look at; name BEFORE again to compare two parts of one
    #[arg(value_name = "AFTER")]
    pub after: PathBuf,
    /// What to compare, e.g. 'handle_request[>= p95]': the slow calls of the one with the slow calls of the
    /// other; left out:
    /// what was recorded
    pub scope: Option<String>,
    /// Look at a part of BEFORE, counted from its beginning: 10s..20s, 5m.., ..30s
    #[arg(long = "before", value_name = "A..B")]
    pub before_time: Option<RecordedTime>,
    /// Look at a part of AFTER
    #[arg(long = "after", value_name = "A..B")]
    pub after_time: Option<RecordedTime>,
    /// Compare an event that both recordings have instead of time, by perf's name, e.g. page-faults
    #[arg(short, long, value_name = "EVENT", value_parser = one_event, conflicts_with_all = ["on_cpu", "off_cpu", "waits"])]
    pub event: Option<String>,
    /// Compare on each wait the thread that ended it, too, with its name and stack, and what it did meanwhile
    #[arg(long)]
    pub waits: bool,
    /// Compare time on the CPU [default: inside of calls on and off the CPU, else on the CPU]
    #[arg(long)]
    pub on_cpu: bool,
    /// Compare time off the CPU; with --on-cpu, both
    #[arg(long)]
    pub off_cpu: bool,
    /// What is drawn of it, and where.
    #[command(flatten)]
    pub drawing: DrawingArgs,
}
