//! The flags of `flame`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{
    super::duration::{self, Span},
    Color, DryRunArgs, FromArgs, HostArgs, SessionMakingArgs, TargetArgs,
};

/// `profiler flame`.
#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "a flag each, validated afterwards")]
pub struct FlameArgs {
    /// What to look inside of, e.g. 'handle_request[>= p95]'; left out: everything; not with --session
    pub scope: Option<String>,
    /// What to look at.
    #[command(flatten)]
    pub target: TargetArgs,
    /// A recording instead.
    #[command(flatten)]
    pub recording: FromArgs,
    /// Show a running session instead of making one
    #[arg(long, value_name = "NAME",
          conflicts_with_all = ["pid", "exe", "scope", "window", "half_life", "exit", "budget", "frequency", "symbols", "allocations"])]
    pub session: Option<String>,
    /// Draw the calls that fail the scope's predicate instead of those that meet it
    #[arg(long, conflicts_with = "diff")]
    pub outside: bool,
    /// Compare the calls that meet the predicate with those that do not
    #[arg(long)]
    pub diff: bool,
    /// Draw time on the CPU; inside of calls the default is both, else this
    #[arg(long)]
    pub on_cpu: bool,
    /// Draw time off the CPU, each stack with what the thread did there: sleeping, uninterruptible, stopped, or
    /// runnable while it waited for a CPU; with --on-cpu both
    #[arg(long)]
    pub off_cpu: bool,
    /// Draw on each wait who ended it and what that thread did meanwhile, with its name and stack; with a scope that
    /// asks for durations too
    #[arg(long)]
    pub waits: bool,
    /// Draw another cost than time, by perf's name, e.g. page-faults or context-switches: stacks where it happens
    #[arg(short, long, value_name = "EVENT", value_parser = one_event, conflicts_with_all = ["on_cpu", "off_cpu", "waits"])]
    pub event: Option<String>,
    /// With -e, a stack for each Nth event of a thread [default: 1; of events of the hardware see -F]
    #[arg(short, long, value_name = "N", requires = "event", conflicts_with = "frequency",
          value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub count: Option<u64>,
    /// With -e page-faults, minor-faults, major-faults or block-bytes, count each page or block once, at the innermost function that
    /// all stacks which touched it have in common: a function weighs what would not be touched without it
    #[arg(long, requires = "event", conflicts_with_all = ["count", "frequency", "outside", "diff"])]
    pub unique: bool,
    /// How long to run, in seconds or with a unit [default: until Ctrl-C, which writes the result]
    #[arg(long, value_name = "S", value_parser = duration::parse)]
    pub duration: Option<Span>,
    /// Samples per second and CPU, in Hz; with -e, for events of the hardware, per thread [default: 99]
    #[arg(short = 'F', long, value_name = "HZ", conflicts_with = "from",
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub frequency: Option<u32>,
    /// How the session is made.
    #[command(flatten)]
    pub making: SessionMakingArgs,
    /// Remember who allocates memory from now on, so that locks on a heap say what they belong to; costs two probes and a stack
    /// at each call of malloc
    #[arg(long, requires = "waits", conflicts_with = "from")]
    pub allocations: bool,
    /// File with symbols or debug information, or folder of such, for programs and libraries that were
    /// stripped; which belongs to which is told by build-id. Repeatable. The service reads them where it
    /// runs, as root or its own user
    #[arg(long, value_name = "PATH", conflicts_with = "from")]
    pub symbols: Vec<PathBuf>,
    /// What is drawn of it, and where.
    #[command(flatten)]
    pub drawing: DrawingArgs,
    /// What would be attached.
    #[command(flatten)]
    pub dry_run: DryRunArgs,
    /// Where the daemon is.
    #[command(flatten)]
    pub host: HostArgs,
}

/// How a flame graph is drawn, and where it goes.
#[derive(Args, Debug)]
pub struct DrawingArgs {
    /// Histogram that percentiles are taken of and samples drawn from
    #[arg(long, value_enum, default_value = "start", value_name = "HISTOGRAM")]
    pub over: Over,
    /// What a frame stands for: a function; a function at the line that ran; an executable or library;
    /// or functions below a frame for each thread, or for each command line
    #[arg(long, value_enum, default_value = "function", value_name = "WHAT")]
    pub by: By,
    /// Write to FILE; its ending says the format: .svg .folded .json .pb.gz (pprof)
    /// .speedscope.json .firefox.json .perf (perf script)
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Format, on stdout or of FILE whatever its ending
    #[arg(long, value_enum, conflicts_with_all = ["folded", "json"])]
    pub format: Option<Format>,
    /// Folded stacks on stdout: --format folded
    #[arg(short = 'f', long, conflicts_with_all = ["json", "output"])]
    pub folded: bool,
    /// One JSON object a line on stdout: --format json
    #[arg(long, conflicts_with = "output")]
    pub json: bool,
    /// When to colour
    #[arg(long, value_enum, default_value_t, value_name = "WHEN")]
    pub color: Color,
}

/// The one event of a flame graph; what there are, the daemon knows.
fn one_event(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("an event is missing".to_owned()),
        name if name.contains(',') => {
            Err("a flame graph shows one event: run the command again for another".to_owned())
        }
        name => Ok(name.to_owned()),
    }
}

/// `--over`.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// The sliding window.
    Window,
    /// The whole run.
    Start,
    /// The exponentially weighted histogram.
    Ewma,
}

/// `--by`.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Functions.
    Function,
    /// Functions at the lines that ran.
    Line,
    /// Executables and libraries.
    Module,
    /// Functions, below a frame for each thread.
    Thread,
    /// Functions, below a frame for each command line.
    Process,
}

/// `--format`.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One line a stack, weights in nanoseconds, or with -e in events.
    Folded,
    /// An interactive page.
    Svg,
    /// One JSON object a line.
    Json,
    /// For `go tool pprof` and what reads its files.
    Pprof,
    /// For <https://www.speedscope.app>.
    Speedscope,
    /// For <https://profiler.firefox.com>.
    Firefox,
    /// As `perf script` prints it, for what reads that.
    PerfScript,
}
