//! The flags of `flame`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use profiler_proto::{limits::MAX_PERIOD, v1};

use super::{
    super::{
        duration::{self, Span},
        endpoint::{self, OtlpEndpoint},
    },
    Color, DryRunArgs, FromArgs, HostArgs, SessionMakingArgs, TargetArgs,
    shared::frequency,
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
    /// Draw the calls that do not meet the scope's condition on a duration instead of those that do
    #[arg(long, conflicts_with = "diff")]
    pub outside: bool,
    /// Compare the calls that meet the condition with those that do not
    #[arg(long, conflicts_with_all = ["hide", "fold", "collapse", "callees", "callers"])]
    pub diff: bool,
    /// Draw time on the CPU [default: inside of calls on and off the CPU, else on the CPU]
    #[arg(long)]
    pub on_cpu: bool,
    /// Draw time off the CPU, each stack with the thread's state: sleeping, uninterruptible, stopped, or
    /// runnable (waiting for a CPU); with --on-cpu, both
    #[arg(long)]
    pub off_cpu: bool,
    /// Draw on top of each wait the thread that ended it, with its name and stack, and what it did meanwhile;
    /// works with conditions on durations too
    #[arg(long)]
    pub waits: bool,
    /// Draw an event instead of time, by perf's name, e.g. page-faults or context-switches: the stacks where it happens
    #[arg(short, long, value_name = "EVENT", value_parser = one_event, conflicts_with_all = ["on_cpu", "off_cpu", "waits"])]
    pub event: Option<String>,
    /// With -e, sample every Nth event of a thread [default: 1; for hardware events see -F]
    #[arg(short, long, value_name = "N", requires = "event", conflicts_with = "frequency",
          value_parser = clap::value_parser!(u64).range(1..=MAX_PERIOD))]
    pub count: Option<u64>,
    /// With -e page-faults, minor-faults, major-faults or block-bytes, count each page or block once, at the
    /// innermost function common to all stacks that touched it: a function's weight is what would not be
    /// touched without it
    #[arg(long, requires = "event", conflicts_with_all = ["count", "frequency", "outside", "diff"])]
    pub unique: bool,
    /// Only threads of these names, with | between them; * stands for any text: 'clerk-*|main'
    #[arg(long, value_name = "NAMES", conflicts_with = "diff")]
    pub thread: Option<String>,
    /// What is left out of stacks, or put together in them.
    #[command(flatten)]
    pub shaping: ShapingArgs,
    /// How long to run, in seconds or with a unit [default: until Ctrl-C, which writes the result]
    #[arg(long, value_name = "S", value_parser = duration::parse)]
    pub duration: Option<Span>,
    /// Samples per second and CPU, in Hz; with -e and a hardware event, per thread [default: 99]
    #[arg(short = 'F', long, value_name = "HZ", conflicts_with = "from",
          value_parser = frequency())]
    pub frequency: Option<u32>,
    /// How the session is made.
    #[command(flatten)]
    pub making: SessionMakingArgs,
    /// Record who allocates memory from now on, so that a lock on the heap shows what it belongs to; costs two
    /// probes and a stack at each call of malloc
    #[arg(long, requires = "waits", conflicts_with = "from")]
    pub allocations: bool,
    /// File or folder with symbols or debug information of stripped programs and libraries, matched by
    /// build-id. Repeatable. Read where the service runs; only root or the service's own user may name files, and of
    /// a service for several users, only those that everybody may read
    #[arg(long, value_name = "PATH", conflicts_with = "from")]
    pub symbols: Vec<PathBuf>,
    /// What is drawn of it, and where.
    #[command(flatten)]
    pub drawing: DrawingArgs,
    /// Send the result to a collector of OpenTelemetry as well, when the run ends: OTLP over gRPC, such as
    /// http://localhost:4317; profiles are experimental there
    #[arg(long, value_name = "URL", value_parser = endpoint::parse)]
    pub otlp: Option<OtlpEndpoint>,
    /// What would be attached.
    #[command(flatten)]
    pub dry_run: DryRunArgs,
    /// Where the daemon is.
    #[command(flatten)]
    pub host: HostArgs,
}

/// What is left out of stacks, or put together in them, and from where they are seen.
#[derive(Args, Debug, Default)]
pub struct ShapingArgs {
    /// Leave out these functions and what they call: names or globs with | between them, 'malloc|free|std::*'
    #[arg(long, value_name = "NAMES")]
    pub hide: Option<String>,
    /// Take these functions as part of who calls them; what they call is called by those
    #[arg(long, value_name = "NAMES")]
    pub fold: Option<String>,
    /// Take a function that calls itself directly as one call
    #[arg(long)]
    pub collapse: bool,
    /// Show what these functions call, wherever they are called from, with | between them; * stands for any text, and
    /// :: before a name says that it is all of it: 'parse|std::*|::read'
    #[arg(long, value_name = "NAMES", conflicts_with = "callers")]
    pub callees: Option<String>,
    /// Show who calls these functions
    #[arg(long, value_name = "NAMES")]
    pub callers: Option<String>,
}

/// How a flame graph is drawn, and where it goes.
#[derive(Args, Debug)]
pub struct DrawingArgs {
    /// Histogram that percentiles are taken of and samples drawn from
    #[arg(long, value_enum, default_value = "start", value_name = "HISTOGRAM")]
    pub over: Over,
    /// What a frame is: a function; a function at the line that ran; an executable or library;
    /// or functions below a frame for each thread, or for each command line
    #[arg(long, value_enum, default_value = "function", value_name = "WHAT")]
    pub by: By,
    /// Write to FILE; its name gives the format: .svg .folded .json .pb.gz (pprof)
    /// .speedscope.json .firefox.json .perf (perf script) .otlp
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Format of FILE, whatever its name; without FILE, of stdout
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
pub(super) fn one_event(text: &str) -> Result<String, String> {
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
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// Functions.
    #[default]
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

impl By {
    /// As the service takes it.
    #[must_use]
    pub const fn grouping(self) -> v1::Grouping {
        match self {
            Self::Function => v1::Grouping::Function,
            Self::Line => v1::Grouping::Line,
            Self::Module => v1::Grouping::Module,
            Self::Thread => v1::Grouping::Thread,
            Self::Process => v1::Grouping::Process,
        }
    }

    /// That of a grouping; functions for one that is not known.
    #[must_use]
    pub const fn of_grouping(grouping: v1::Grouping) -> Self {
        match grouping {
            v1::Grouping::Unspecified | v1::Grouping::Function => Self::Function,
            v1::Grouping::Line => Self::Line,
            v1::Grouping::Module => Self::Module,
            v1::Grouping::Thread => Self::Thread,
            v1::Grouping::Process => Self::Process,
        }
    }

    /// What it is called as `--by`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Function => "function",
            Self::Line => "line",
            Self::Module => "module",
            Self::Thread => "thread",
            Self::Process => "process",
        }
    }
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
    /// For `go tool pprof` and other readers of its format.
    Pprof,
    /// For <https://www.speedscope.app>.
    Speedscope,
    /// For <https://profiler.firefox.com>.
    Firefox,
    /// The output format of `perf script`.
    PerfScript,
    /// OpenTelemetry's profiles, which are still in development: experimental.
    Otlp,
}
