//! The flags of `timeline`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{
    super::{
        duration::{self, Span},
        events::{self, EventList},
    },
    Color, FromMoreArgs, HostArgs, ProbingArgs, TargetArgs,
};

/// `profiler timeline`.
#[derive(Args, Debug)]
pub struct TimelineArgs {
    /// Function, glob or scope whose calls are counted as well, e.g. handle_request; left out: none
    pub scope: Option<String>,
    /// What to look at.
    #[command(flatten)]
    pub target: TargetArgs,
    /// A recording instead.
    #[command(flatten)]
    pub recording: FromMoreArgs,
    /// Count for the target of a running session instead of making one
    #[arg(long, value_name = "NAME", conflicts_with_all = ["pid", "exe", "scope", "exit", "budget", "symbols"])]
    pub session: Option<String>,
    /// Counters as perf names them, such as task-clock,page-faults,syscalls, tracepoint:CATEGORY:NAME,
    /// or ratios A/B and ipc. Repeatable [default: task-clock, context-switches, cpu-migrations,
    /// page-faults, and ipc if the machine counts it]
    #[arg(short = 'e', long = "event", value_name = "COUNTER,…", value_parser = events::parse)]
    pub events: Vec<EventList>,
    /// Length of a bucket, in seconds or with a unit, from 10ms to 1h [default: 100ms]
    #[arg(long, value_name = "S", value_parser = duration::parse)]
    pub step: Option<Span>,
    /// Show at each point the mean of this much time before it, in seconds or with a unit [default: one bucket]
    #[arg(long, value_name = "S", value_parser = duration::parse)]
    pub rolling: Option<Span>,
    /// Length of time to draw, in seconds or with a unit [default: 60s; in a file, all that is kept]
    #[arg(long, value_name = "S", value_parser = duration::parse)]
    pub range: Option<Span>,
    /// Count each thread by itself as well
    #[arg(long)]
    pub threads: bool,
    /// How long to run, in seconds or with a unit [default: until Ctrl-C, which prints the result]
    #[arg(long, value_name = "S", value_parser = duration::parse)]
    pub duration: Option<Span>,
    /// How it is probed.
    #[command(flatten)]
    pub probing: ProbingArgs,
    /// File or folder with symbols or debug information of stripped programs and libraries, matched by
    /// build-id. Repeatable. Read where the service runs; only root or the service's own user may name files, and of
    /// a service for several users, only those that everybody may read
    #[arg(long, value_name = "PATH")]
    pub symbols: Vec<PathBuf>,
    /// Write to FILE in place of the table; it is replaced at the end of the run, in full or not at all. Its
    /// name gives the format: .svg (a picture), .pftrace, .perfetto-trace (Perfetto), .trace.json (Chrome's
    /// Trace Event Format) or .firefox.json
    #[arg(short = 'o', long, value_name = "FILE", conflicts_with = "json")]
    pub output: Option<PathBuf>,
    /// Format of FILE, whatever its name; without FILE, of stdout
    #[arg(long, value_enum, conflicts_with = "json")]
    pub format: Option<TimelineFormat>,
    /// One JSON object a line, for each bucket as it ends, then a summary; times in nanoseconds
    #[arg(long)]
    pub json: bool,
    /// When to colour
    #[arg(long, value_enum, default_value_t, value_name = "WHEN")]
    pub color: Color,
    /// Where the daemon is.
    #[command(flatten)]
    pub host: HostArgs,
}

/// `--format` of `timeline`.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimelineFormat {
    /// A picture.
    Svg,
    /// For <https://ui.perfetto.dev> and `trace_processor`: protobuf.
    Perfetto,
    /// For readers of Chrome's Trace Event Format: JSON.
    Chrome,
    /// For <https://profiler.firefox.com>: JSON.
    Firefox,
}
