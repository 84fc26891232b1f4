//! The flags of `explain`.

use std::path::PathBuf;

use clap::Args;

use super::{
    super::duration::{self, Span},
    Color, DryRunArgs, HostArgs, ProbingArgs, RecordedTime, TargetArgs,
};

/// `profiler explain`.
#[derive(Args, Debug)]
pub struct ExplainArgs {
    /// Scope whose last step is a function with a condition on its duration, e.g. 'handle_request[>= p95]'. With --from
    /// by default the recorded one
    pub scope: Option<String>,
    /// What to look at.
    #[command(flatten)]
    pub target: TargetArgs,
    /// Look at a recording made by `profiler record` instead of a process: at what was recorded of its calls
    #[arg(long, value_name = "FILE", conflicts_with_all = ["pid", "exe", "host", "duration", "exit", "budget", "dry_run"])]
    pub from: Option<PathBuf>,
    /// With --from, look at a part of the recording, counted from its beginning: 10s..20s, 5m.., ..30s
    #[arg(long, value_name = "A..B", requires = "from")]
    pub time: Option<RecordedTime>,
    /// How long to look, in seconds or with a unit; Ctrl-C ends it earlier
    #[arg(long, value_name = "S", value_parser = duration::parse, default_value = "10")]
    pub duration: Span,
    /// Findings to show, the most certain first
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub number: u32,
    /// How it is probed.
    #[command(flatten)]
    pub probing: ProbingArgs,
    /// One JSON object at the end; times in nanoseconds
    #[arg(long)]
    pub json: bool,
    /// When to colour
    #[arg(long, value_enum, default_value_t, value_name = "WHEN")]
    pub color: Color,
    /// What would be attached.
    #[command(flatten)]
    pub dry_run: DryRunArgs,
    /// Where the daemon is.
    #[command(flatten)]
    pub host: HostArgs,
}
