//! The flags of `tui`.

use std::path::PathBuf;

use clap::Args;

use super::{
    super::print_list, Color, HostArgs, RecordedTime, SessionMakingArgs, TargetArgs, shared::recorded_time,
};
use crate::{state::functions::Sort, tui::lens::Pane};

/// `profiler tui`.
#[derive(Args, Debug)]
pub struct TuiArgs {
    /// What to look inside of first, e.g. 'handle_request[>= p95]'; left out: everything; not with --session
    pub scope: Option<String>,
    /// What to look at.
    #[command(flatten)]
    pub target: TargetArgs,
    /// Look at a running session instead of making one; edits of its scope are seen by all who watch it
    #[arg(long, value_name = "NAME", conflicts_with_all = ["pid", "exe", "scope", "window", "half_life", "exit", "budget", "frequency"])]
    pub session: Option<String>,
    /// Look at a recording made by `profiler record`. SCOPE is by default the recorded one; it may leave out steps
    /// from the end, and have other conditions on durations
    #[arg(long, value_name = "FILE", conflicts_with_all = ["pid", "exe", "session", "host", "exit", "budget", "frequency"])]
    pub from: Option<PathBuf>,
    /// With --from, look at a part of the recording, counted from its beginning: 10s..20s, 5m.., ..30s
    #[arg(long, value_name = "A..B", requires = "from", value_parser = recorded_time)]
    pub time: Option<RecordedTime>,
    /// Pane to begin with
    #[arg(long, value_enum, default_value = "top", value_name = "PANE")]
    pub pane: Pane,
    /// Order of functions
    #[arg(long, value_enum, default_value = "self", value_name = "BY")]
    pub sort: Sort,
    /// Show durations over time in the latency pane instead of bars
    #[arg(long)]
    pub heat: bool,
    /// Search for this
    #[arg(long, value_name = "TEXT")]
    pub search: Option<String>,
    /// Values to show with hits, such as n or req->len [default: the variables that are known there]
    #[arg(long, value_name = "EXPR,…", value_parser = print_list::parse)]
    pub print: Vec<print_list::PrintList>,
    /// Zoom the flame graph: functions from the root to the box, separated by semicolons
    #[arg(long, value_name = "FRAMES")]
    pub zoom: Option<String>,
    /// Function or FILE:LINE whose source is shown
    #[arg(long, value_name = "PLACE")]
    pub source: Option<String>,
    /// Samples per second and CPU, in Hz [default: 99]
    #[arg(short = 'F', long, value_name = "HZ", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub frequency: Option<u32>,
    /// How sessions are made.
    #[command(flatten)]
    pub making: SessionMakingArgs,
    /// When to colour
    #[arg(long, value_enum, default_value_t, value_name = "WHEN")]
    pub color: Color,
    /// Where the daemon is.
    #[command(flatten)]
    pub host: HostArgs,
}
