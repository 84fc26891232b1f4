//! The flags of `record`.

use std::path::PathBuf;

use clap::Args;

use super::{
    super::{
        costs::{self, CostList},
        duration::{self, Span},
        events::{self, EventList},
        print_list::{self, PrintList},
        size::{self, Bytes},
    },
    HostArgs, SessionMakingArgs, TargetArgs,
    shared::frequency,
};

/// `profiler record`.
#[derive(Args, Debug)]
pub struct RecordArgs {
    /// Calls to time and to look inside of, e.g. 'handle_request' or 'handle_request[>= 2ms]/parse'; left out:
    /// only samples of time on the CPU, and with --off-cpu of time off it
    pub scope: Option<String>,
    /// What to look at.
    #[command(flatten)]
    pub target: TargetArgs,
    /// Record a running session instead of making one
    #[arg(long, value_name = "NAME",
          conflicts_with_all = ["pid", "exe", "scope", "window", "half_life", "exit", "budget", "frequency", "symbols"])]
    pub session: Option<String>,
    /// File to write: a new one, which only its owner may read
    #[arg(short, long, value_name = "FILE", required = true)]
    pub output: PathBuf,
    /// Replace FILE if it exists
    #[arg(long)]
    pub force: bool,
    /// Keep the file below this size, in bytes or with a unit (2048K, 100M, 2G), at least 1M: its oldest minutes are
    /// dropped as newer ones come, down to the last one
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub max_size: Option<Bytes>,
    /// Keep at least this long, in seconds or with a unit (90s, 10m), and drop older minutes from time to time
    #[arg(long, value_name = "S", value_parser = duration::parse)]
    pub max_age: Option<Span>,
    /// Leave out what could tell whose program it is: folders of files, command lines, names of threads, the host, warnings.
    /// Functions' names and files' own names stay. A scope with a condition on a value is refused
    #[arg(long)]
    pub redact: bool,
    /// Go on until this happens, and for --after behind it: 'f[>= 50ms]', a call of a recorded step; 'window p99 of f >
    /// 20ms for 5s'; or signal, which is SIGUSR1. Repeatable: the first that happens. Without --max-size and --max-age,
    /// two minutes before it are kept
    #[arg(long, value_name = "CONDITION")]
    pub on: Vec<String>,
    /// With --on, how long to go on once it has happened, in seconds or with a unit
    #[arg(long, value_name = "S", value_parser = duration::parse, requires = "on", default_value = "10")]
    pub after: Span,
    /// Keep each call of the last step with the calls around it, so that conditions on the durations of those can be chosen
    /// afterwards, as in a recorded 'handle_request/parse': 'handle_request[>= p99]/parse'. The outer steps get the
    /// condition [>= 0ns]
    #[arg(long)]
    pub calls: bool,
    /// Hits.
    #[command(flatten)]
    pub hits: RecordedHitsArgs,
    /// Counters.
    #[command(flatten)]
    pub over_time: RecordedOverTimeArgs,
    /// Waits, system calls and time off the CPU.
    #[command(flatten)]
    pub more: RecordedMoreArgs,
    /// How long to record, in seconds or with a unit [default: until Ctrl-C]
    #[arg(long, value_name = "S", value_parser = duration::parse)]
    pub duration: Option<Span>,
    /// Samples per second and CPU, in Hz [default: 99]
    #[arg(short = 'F', long, value_name = "HZ", value_parser = frequency())]
    pub frequency: Option<u32>,
    /// How the session is made.
    #[command(flatten)]
    pub making: SessionMakingArgs,
    /// File or folder with symbols or debug information of stripped programs and libraries. Repeatable
    #[arg(long, value_name = "PATH")]
    pub symbols: Vec<PathBuf>,
    /// Where the daemon is.
    #[command(flatten)]
    pub host: HostArgs,
}

/// Which hits are recorded.
#[derive(Args, Debug)]
pub struct RecordedHitsArgs {
    /// Record the hits of the scope's last step as well, for `trace --from`: calls that end, with their times. Of a line or
    /// branch, hits are recorded in any case
    #[arg(long, conflicts_with = "session")]
    pub trace: bool,
    /// Expressions to read at each hit, such as n,req->len; at most 16. Implies --trace. Repeatable
    #[arg(long, value_name = "EXPR,…", value_parser = print_list::parse, conflicts_with_all = ["session", "redact"])]
    pub print: Vec<PrintList>,
    /// Record the stack of the thread with each hit. Implies --trace
    #[arg(long, conflicts_with = "session")]
    pub stack: bool,
    /// Hits recorded per second at each place; the others are only counted
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000),
          conflicts_with = "session")]
    pub limit: u32,
}

/// What is recorded whatever the scope is.
#[derive(Args, Debug)]
pub struct RecordedOverTimeArgs {
    /// Record counters over time as well, for `timeline --from`: those that `timeline` counts by default
    #[arg(long)]
    pub timeline: bool,
    /// Record these counters over time, as of `timeline`, such as task-clock,page-faults,syscalls. Implies --timeline.
    /// Repeatable
    #[arg(short = 'e', long = "event", value_name = "COUNTER,…", value_parser = events::parse)]
    pub events: Vec<EventList>,
    /// Length of their buckets, in seconds or with a unit, from 10ms to 1h [default: 100ms]
    #[arg(long, value_name = "S", value_parser = duration::parse)]
    pub step: Option<Span>,
    /// Count each thread by itself as well. Implies --timeline
    #[arg(long)]
    pub threads: bool,
}

/// What is recorded of the kernel's own, and where other things than time go.
#[derive(Args, Debug)]
pub struct RecordedMoreArgs {
    /// Record waits as well, each with who ended it: for `waits`, `flame --waits`, `spans`, `explain`
    #[arg(long)]
    pub waits: bool,
    /// Count system calls and record who made them as well, for `syscalls --from`
    #[arg(long)]
    pub syscalls: bool,
    /// Record time off the CPU of all threads as well, for `flame --from FILE --off-cpu` without a scope. Without this flag, it
    /// is recorded only in the calls of a scope
    #[arg(long)]
    pub off_cpu: bool,
    /// Record stacks at these events as well, such as page-faults,block-bytes, for `flame --from FILE -e EVENT`: at each event of
    /// the kernel, or, as perf writes it, at every Nth (page-faults/period=N/); of events of the hardware 99 times a second, or so
    /// many (cycles/freq=HZ/). Repeatable
    #[arg(long, value_name = "EVENT,…", value_parser = costs::parse)]
    pub costs: Vec<CostList>,
}
