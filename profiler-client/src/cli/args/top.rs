//! The flags of `top`.

use std::path::PathBuf;

use clap::Args;

use super::{
    super::duration::{self, Span},
    Color, HostArgs, RecordedTime, SessionMakingArgs, TargetArgs,
    shared::frequency,
};
use crate::state::functions::Sort;

/// `profiler top`.
#[derive(Args, Debug)]
pub struct TopArgs {
    /// What to look inside of, e.g. 'handle_request[>= p95]'; left out: everything; not with --session
    pub scope: Option<String>,
    /// What to look at.
    #[command(flatten)]
    pub target: TargetArgs,
    /// Look at a recording made by `profiler record`. SCOPE is by default the recorded one; it may leave out steps
    /// from the end, and have other conditions on durations
    #[arg(long, value_name = "FILE",
          conflicts_with_all = ["pid", "exe", "session", "host", "duration", "exit", "budget", "frequency"])]
    pub from: Option<PathBuf>,
    /// With --from, look at a part of the recording, counted from its beginning: 10s..20s, 5m.., ..30s
    #[arg(long, value_name = "A..B", requires = "from")]
    pub time: Option<RecordedTime>,
    /// Show a running session instead of making one
    #[arg(long, value_name = "NAME", conflicts_with_all = ["pid", "exe", "scope", "window", "half_life", "exit", "budget", "frequency"])]
    pub session: Option<String>,
    /// Functions to show at the end; a terminal shows as many as fit
    #[arg(short = 'n', long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub number: u32,
    /// Order of functions
    #[arg(long, value_enum, default_value = "self", value_name = "BY")]
    pub sort: Sort,
    /// How long to run, in seconds or with a unit [default: until Ctrl-C, which prints the result]
    #[arg(long, value_name = "S", value_parser = duration::parse)]
    pub duration: Option<Span>,
    /// Samples per second and CPU, in Hz [default: 99]
    #[arg(short = 'F', long, value_name = "HZ", value_parser = frequency())]
    pub frequency: Option<u32>,
    /// How the session is made.
    #[command(flatten)]
    pub making: SessionMakingArgs,
    /// One JSON object a line at the end: the functions, then a summary; times in nanoseconds
    #[arg(long)]
    pub json: bool,
    /// When to colour
    #[arg(long, value_enum, default_value_t, value_name = "WHEN")]
    pub color: Color,
    /// Where the daemon is.
    #[command(flatten)]
    pub host: HostArgs,
}
