//! The flags of `trace`.

use std::path::PathBuf;

use clap::Args;

use super::{
    super::{
        duration::{self, Span},
        print_list::{self, PrintList},
    },
    Color, DryRunArgs, EventFormat, FromArgs, HostArgs, ProbingArgs, TargetArgs,
};

/// `profiler trace`.
#[derive(Args, Debug)]
pub struct TraceArgs {
    /// Line (FILE:LINE, the file by the last components of its path), address (libfoo.so+0x1a2b),
    /// function, glob, or scope
    pub scope: Option<String>,
    /// What to look at.
    #[command(flatten)]
    pub target: TargetArgs,
    /// A recording instead.
    #[command(flatten)]
    pub recording: FromArgs,
    /// Show a running session that records hits (`session new --trace`) instead of making one
    #[arg(long, value_name = "NAME", conflicts_with_all = ["pid", "exe", "scope", "print", "limit", "stack", "exit", "budget"])]
    pub session: Option<String>,
    /// Expressions to read at each hit, such as n,req->len; at most 16. Commas within brackets or double
    /// quotes do not separate. Repeatable
    #[arg(long, value_name = "EXPR,…", value_parser = print_list::parse)]
    pub print: Vec<PrintList>,
    /// Hits shown per second at each place; the others are only counted
    #[arg(long, value_name = "N", default_value_t = 1000, conflicts_with = "from", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub limit: u32,
    /// Show the stack of the thread with each hit: at the line, or where the call begins
    #[arg(long)]
    pub stack: bool,
    /// How long to run, in seconds or with a unit [default: until Ctrl-C]
    #[arg(long, value_name = "S", value_parser = duration::parse)]
    pub duration: Option<Span>,
    /// How it is probed.
    #[command(flatten)]
    pub probing: ProbingArgs,
    /// Write hits to FILE when the run ends, in place of lines; its name gives the format: .pftrace,
    /// .perfetto-trace (Perfetto), .trace.json (Chrome's Trace Event Format) or .firefox.json
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Format of FILE, whatever its name; without FILE, of stdout in place of lines
    #[arg(long, value_enum)]
    pub format: Option<EventFormat>,
    /// One JSON object a line: hits, then a summary; times in nanoseconds
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
