//! The flags of `spans`.

use std::path::PathBuf;

use clap::Args;

use super::{
    super::{
        duration::{self, Span},
        print_list::{self, PrintList},
    },
    Color, DryRunArgs, EventFormat, FromArgs, HostArgs, ProbingArgs, TargetArgs,
    shared::frequency,
};

/// What is shown of each call.
#[derive(Args, Debug)]
pub struct ShownArgs {
    /// Show with each call's longest wait the thread that ended it, and what that ran
    #[arg(long)]
    pub waits: bool,
    /// Show with each call the system calls that it made, how often, for how long, and which failed; costs a record for
    /// each system call in the calls
    #[arg(long)]
    pub syscalls: bool,
}

/// `profiler spans`.
#[derive(Args, Debug)]
pub struct SpansArgs {
    /// Function, glob, or scope, e.g. 'handle_request[>= p95]/main.cc:1310'; not with --session. With --from by default
    /// the recorded one
    pub scope: Option<String>,
    /// What to look at.
    #[command(flatten)]
    pub target: TargetArgs,
    /// A recording instead.
    #[command(flatten)]
    pub recording: FromArgs,
    /// Show a running session instead of making one
    #[arg(long, value_name = "NAME",
          conflicts_with_all = ["pid", "exe", "scope", "print", "limit", "window", "exit", "budget", "frequency", "symbols", "allocations"])]
    pub session: Option<String>,
    /// How many calls to show
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub number: u32,
    /// What is shown of each call.
    #[command(flatten)]
    pub shown: ShownArgs,
    /// Expressions to read where each call begins, such as n,req->len; at most 16. Commas within brackets or
    /// double quotes do not separate. Repeatable
    #[arg(long, value_name = "EXPR,…", value_parser = print_list::parse)]
    pub print: Vec<PrintList>,
    /// With --print, calls per second whose values are read; the others have none
    #[arg(long, value_name = "N", default_value_t = 10_000, conflicts_with = "from", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub limit: u32,
    /// How long to run, in seconds or with a unit [default: until Ctrl-C, which prints the result]
    #[arg(long, value_name = "S", value_parser = duration::parse)]
    pub duration: Option<Span>,
    /// Length of the sliding window, in seconds or with a unit (90s, 2m), at least 1 [default: 10]
    #[arg(long, value_name = "S", conflicts_with = "from", value_parser = duration::parse)]
    pub window: Option<Span>,
    /// Samples per second and CPU, in Hz [default: 99]
    #[arg(short = 'F', long, value_name = "HZ", conflicts_with = "from", value_parser = frequency())]
    pub frequency: Option<u32>,
    /// How it is probed.
    #[command(flatten)]
    pub probing: ProbingArgs,
    /// Record who allocates memory from now on, so that a lock on the heap shows what it belongs to; costs two
    /// probes and a stack at each call of malloc
    #[arg(long, conflicts_with = "from")]
    pub allocations: bool,
    /// File or folder with symbols or debug information of stripped programs and libraries, matched by
    /// build-id. Repeatable. Read where the service runs; only root or the service's own user may name files, and of
    /// a service for several users, only those that everybody may read
    #[arg(long, value_name = "PATH", conflicts_with = "from")]
    pub symbols: Vec<PathBuf>,
    /// Write to FILE as well, when the run ends; its name gives the format: .pftrace, .perfetto-trace (Perfetto),
    /// .trace.json (Chrome's Trace Event Format) or .firefox.json
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Format of FILE, whatever its name; without FILE, of stdout in place of the view
    #[arg(long, value_enum)]
    pub format: Option<EventFormat>,
    /// One JSON object a line at the end: calls, slowest first, then a summary; times in nanoseconds
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
