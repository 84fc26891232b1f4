//! The flags of `tui`.

use std::path::PathBuf;

use clap::Args;

use super::{
    super::print_list, By, Color, HostArgs, RecordedTime, SessionMakingArgs, ShapingArgs, TargetArgs,
    shared::frequency,
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
    /// from the end, '' all of them, and have other conditions on durations
    #[arg(long, value_name = "FILE", conflicts_with_all = ["pid", "exe", "session", "host", "exit", "budget", "frequency"])]
    pub from: Option<PathBuf>,
    /// With --from, look at a part of the recording, counted from its beginning: 10s..20s, 5m.., ..30s
    #[arg(long, value_name = "A..B", requires = "from")]
    pub time: Option<RecordedTime>,
    /// Pane to begin with [default: top; of a recording that the key r made, the one that it was begun on]
    #[arg(long, value_enum, value_name = "PANE")]
    pub pane: Option<Pane>,
    /// Order of functions [default: self]
    #[arg(long, value_enum, value_name = "BY")]
    pub sort: Option<Sort>,
    /// Show durations over time in the latency pane instead of bars
    #[arg(long)]
    pub heat: bool,
    /// Search for this
    #[arg(long, value_name = "TEXT")]
    pub search: Option<String>,
    /// Values to show with hits, such as n or req->len [default: the variables that are known there]
    #[arg(long, value_name = "EXPR,…", value_parser = print_list::parse)]
    pub print: Vec<print_list::PrintList>,
    /// What a frame is: a function; a function at the line that ran; an executable or library; or functions below a
    /// frame for each thread, or for each command line [default: function]
    #[arg(long, value_enum, value_name = "WHAT")]
    pub by: Option<By>,
    /// Draw an event instead of time, by perf's name, e.g. page-faults: the stacks where it happens
    #[arg(short, long, value_name = "EVENT")]
    pub event: Option<String>,
    /// Only threads of these names, with | between them; * stands for any text: 'clerk-*|main'
    #[arg(long, value_name = "NAMES")]
    pub thread: Option<String>,
    /// What is left out of stacks, or put together in them.
    #[command(flatten)]
    pub shaping: ShapingArgs,
    /// Leave out boxes and functions with less than this share of all, in percent
    #[arg(long, value_name = "PERCENT", value_parser = tenths_of_percent)]
    pub at_least: Option<u16>,
    /// Zoom the flame graph: functions from the root to the box, separated by semicolons
    #[arg(long, value_name = "FRAMES")]
    pub zoom: Option<String>,
    /// Function or FILE:LINE whose source is shown
    #[arg(long, value_name = "PLACE")]
    pub source: Option<String>,
    /// Leave the mouse to the terminal, which selects text by it, as the key M does
    #[arg(long)]
    pub no_mouse: bool,
    /// Samples per second and CPU, in Hz [default: 99]
    #[arg(short = 'F', long, value_name = "HZ", value_parser = frequency())]
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

/// A percentage, in tenths.
fn tenths_of_percent(text: &str) -> Result<u16, String> {
    let percent: f64 = text
        .parse()
        .map_err(|_| "a number is missing, such as 0.5".to_owned())?;
    if !(0.0..=100.0).contains(&percent) {
        return Err("a share is from 0 to 100 percent".to_owned());
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "0 to 1000"
    )]
    let tenths = (percent * 10.0).round() as u16;
    Ok(tenths)
}
