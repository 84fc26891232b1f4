//! The flags as they are typed. [`super::request`] turns them into something valid.

#![expect(
    clippy::doc_markdown,
    reason = "doc comments are the help text, where backticks would be shown"
)]

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use super::{
    duration::{self, Span},
    help,
    print_list::{self, PrintList},
};

/// Look inside a running program: sample all of it, or only its slow calls, while it runs.
#[derive(Parser, Debug)]
#[command(name = "profiler", version, after_help = help::ROOT, max_term_width = 110)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// The verbs.
#[derive(Subcommand, Debug)]
pub enum Verb {
    /// List processes that can be looked at
    #[command(after_help = help::PS)]
    Ps(PsArgs),
    /// List the functions of a process: name, file:line, size in bytes, inlined instances
    #[command(after_help = help::FUNCTIONS)]
    Functions(FunctionsArgs),
    /// Show a function's source and what can be probed in it: lines, branches, calls, variables
    #[command(after_help = help::SOURCE)]
    Source(SourceArgs),
    /// Show the live latency of calls: since the start, in a sliding window, and as a moving average
    #[command(after_help = help::LATENCY)]
    Latency(LatencyArgs),
    /// Show each hit of a line, or each call of a function, as it happens, with values of variables
    #[command(after_help = help::TRACE)]
    Trace(TraceArgs),
    /// Show the slowest calls of the last seconds: values, what was inside, and the stack most often seen
    #[command(after_help = help::SPANS)]
    Spans(SpansArgs),
    /// Draw where the time goes, in all of the process or only inside (slow) calls of a function
    #[command(after_help = help::FLAME)]
    Flame(FlameArgs),
    /// Say what slow calls of a function do that the others do not: branches, calls, values
    #[command(after_help = help::EXPLAIN)]
    Explain(ExplainArgs),
    /// Make, list and end sessions of a daemon, which outlive a single command
    #[command(after_help = help::SESSION)]
    Session(SessionArgs),
    /// Edit the scope of a running session
    #[command(after_help = help::SCOPE)]
    Scope(ScopeArgs),
}

/// Where the daemon is.
#[derive(Args, Debug, Default)]
pub struct HostArgs {
    /// Daemon to use: the path of its socket, or unix:PATH. Left out: the local daemon's socket
    /// ($PROFILER_SOCKET or /run/profilerd.sock) if one answers there, otherwise none is needed
    #[arg(long, value_name = "ENDPOINT")]
    pub host: Option<String>,
}

/// What to look at.
#[derive(Args, Debug, Default)]
pub struct TargetArgs {
    /// Process to look at: all its threads, not its children
    #[arg(short, long, value_name = "PID", conflicts_with = "exe", value_parser = pid)]
    pub pid: Option<u32>,
    /// Look at every process that runs this executable: a path, or a name without slashes
    #[arg(long, value_name = "EXE")]
    pub exe: Option<String>,
}

/// Reads a process's number.
fn pid(text: &str) -> Result<u32, String> {
    // The kernel's own limit (`PID_MAX_LIMIT`).
    const LAST: u32 = 4_194_304;
    match text.parse() {
        Ok(pid) if (1..=LAST).contains(&pid) => Ok(pid),
        Ok(pid) => Err(format!("{pid} is not in 1..={LAST}")),
        Err(_) => Err(format!(
            "a process's number is wanted; `profiler ps {text}` shows those of that name, --exe takes a name"
        )),
    }
}

/// How a session is made.
#[derive(Args, Debug, Default)]
pub struct SessionMakingArgs {
    /// Length of the sliding window, in seconds or with a unit (90s, 2m), at least 1 [default: 10]
    #[arg(long, value_name = "S", value_parser = duration::parse)]
    pub window: Option<Span>,
    /// Half-life of the exponentially weighted histogram (EWMA), in seconds or with a unit [default: 30]
    #[arg(long, value_name = "S", value_parser = duration::parse)]
    pub half_life: Option<Span>,
    /// How the end of a call is seen: auto = the safest that target and kernel allow, chosen per
    /// function; return = return probes (they can kill targets that throw, panic or switch stacks);
    /// ret = a probe on each return instruction
    #[arg(long, value_name = "METHOD", value_enum, default_value_t)]
    pub exit: Exit,
}

/// `--exit`.
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exit {
    /// Chosen by the daemon.
    #[default]
    Auto,
    /// Return probes.
    Return,
    /// Probes on each `ret`.
    Ret,
}

/// `--color`.
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Color {
    /// In a terminal, unless `NO_COLOR` is set.
    #[default]
    Auto,
    /// Everywhere.
    Always,
    /// Nowhere.
    Never,
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
    /// One line a stack, weights in nanoseconds.
    Folded,
    /// An interactive page.
    Svg,
    /// One JSON object a line.
    Json,
}

/// `profiler ps`.
#[derive(Args, Debug)]
pub struct PsArgs {
    /// Only processes whose command line or executable contains this
    pub pattern: Option<String>,
    /// One JSON object a line
    #[arg(long)]
    pub json: bool,
    /// Where the daemon is.
    #[command(flatten)]
    pub host: HostArgs,
}

/// `profiler functions`.
#[derive(Args, Debug)]
pub struct FunctionsArgs {
    /// Name or glob (* and ?); left out: all functions
    pub glob: Option<String>,
    /// What to look at.
    #[command(flatten)]
    pub target: TargetArgs,
    /// One JSON object a line
    #[arg(long)]
    pub json: bool,
    /// Where the daemon is.
    #[command(flatten)]
    pub host: HostArgs,
}

/// `profiler source`.
#[derive(Args, Debug)]
pub struct SourceArgs {
    /// Function, glob (* and ?), or FILE:LINE, the file by the last components of its path
    #[arg(value_name = "FUNCTION|FILE:LINE")]
    pub place: String,
    /// What to look at.
    #[command(flatten)]
    pub target: TargetArgs,
    /// One JSON object a line: a function, then its lines
    #[arg(long)]
    pub json: bool,
    /// When to colour
    #[arg(long, value_enum, default_value_t, value_name = "WHEN")]
    pub color: Color,
    /// Where the daemon is.
    #[command(flatten)]
    pub host: HostArgs,
}

/// `profiler latency`.
#[derive(Args, Debug)]
pub struct LatencyArgs {
    /// Function, glob, or scope (see below); not with --session
    pub scope: Option<String>,
    /// What to look at.
    #[command(flatten)]
    pub target: TargetArgs,
    /// Show a running session instead of making one
    #[arg(long, value_name = "NAME", conflicts_with_all = ["pid", "exe", "scope", "by", "window", "half_life", "exit"])]
    pub session: Option<String>,
    /// Divide the calls by the value that this expression has where they begin, such as n or req->kind:
    /// a histogram for each value, besides that of all. Each call is recorded, which costs the target more
    #[arg(long, value_name = "EXPR", value_parser = print_list::parse_one)]
    pub by: Option<String>,
    /// How long to run, in seconds or with a unit [default: until Ctrl-C]
    #[arg(long, value_name = "S", value_parser = duration::parse)]
    pub duration: Option<Span>,
    /// Time between updates, in seconds or with a unit
    #[arg(long, value_name = "S", value_parser = duration::parse, default_value = "1")]
    pub interval: Span,
    /// How the session is made.
    #[command(flatten)]
    pub making: SessionMakingArgs,
    /// Histogram that the bars show [default: window]
    #[arg(long, value_enum, value_name = "HISTOGRAM")]
    pub over: Option<BarsOver>,
    /// One JSON object a line, an update each; times in nanoseconds
    #[arg(long)]
    pub json: bool,
    /// When to colour
    #[arg(long, value_enum, default_value_t, value_name = "WHEN")]
    pub color: Color,
    /// Where the daemon is.
    #[command(flatten)]
    pub host: HostArgs,
}

/// `--over` of `latency`.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarsOver {
    /// The sliding window.
    Window,
    /// The whole run.
    Start,
}

/// `profiler trace`.
#[derive(Args, Debug)]
pub struct TraceArgs {
    /// Line (FILE:LINE, the file by the last components of its path), function, glob, or scope
    pub scope: Option<String>,
    /// What to look at.
    #[command(flatten)]
    pub target: TargetArgs,
    /// Show a running session that records hits (`session new --trace`) instead of making one
    #[arg(long, value_name = "NAME", conflicts_with_all = ["pid", "exe", "scope", "print", "limit", "stack", "exit"])]
    pub session: Option<String>,
    /// Expressions to read at each hit, such as n,req->len; at most 16. Commas within brackets or double
    /// quotes do not separate. Repeatable
    #[arg(long, value_name = "EXPR,…", value_parser = print_list::parse)]
    pub print: Vec<PrintList>,
    /// Hits shown in a second at each place; the rest is counted
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub limit: u32,
    /// Show the stack of the thread with each hit: at the line, or where the call begins
    #[arg(long)]
    pub stack: bool,
    /// How long to run, in seconds or with a unit [default: until Ctrl-C]
    #[arg(long, value_name = "S", value_parser = duration::parse)]
    pub duration: Option<Span>,
    /// How the end of a call is seen: auto = the safest that target and kernel allow, chosen per
    /// function; return = return probes (they can kill targets that throw, panic or switch stacks);
    /// ret = a probe on each return instruction
    #[arg(long, value_name = "METHOD", value_enum, default_value_t)]
    pub exit: Exit,
    /// One JSON object a line: hits, then a summary; times in nanoseconds
    #[arg(long)]
    pub json: bool,
    /// When to colour
    #[arg(long, value_enum, default_value_t, value_name = "WHEN")]
    pub color: Color,
    /// Where the daemon is.
    #[command(flatten)]
    pub host: HostArgs,
}

/// `profiler explain`.
#[derive(Args, Debug)]
pub struct ExplainArgs {
    /// Scope whose last step is a function that is asked for a duration, e.g. 'handle_request[>= p95]'
    pub scope: Option<String>,
    /// What to look at.
    #[command(flatten)]
    pub target: TargetArgs,
    /// How long to look, in seconds or with a unit; Ctrl-C ends it before
    #[arg(long, value_name = "S", value_parser = duration::parse, default_value = "10")]
    pub duration: Span,
    /// Findings to show, the surest first
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub number: u32,
    /// How the end of a call is seen: auto = the safest that target and kernel allow, chosen per
    /// function; return = return probes (they can kill targets that throw, panic or switch stacks);
    /// ret = a probe on each return instruction
    #[arg(long, value_name = "METHOD", value_enum, default_value_t)]
    pub exit: Exit,
    /// One JSON object at the end; times in nanoseconds
    #[arg(long)]
    pub json: bool,
    /// When to colour
    #[arg(long, value_enum, default_value_t, value_name = "WHEN")]
    pub color: Color,
    /// Where the daemon is.
    #[command(flatten)]
    pub host: HostArgs,
}

/// `profiler spans`.
#[derive(Args, Debug)]
pub struct SpansArgs {
    /// Function, glob, or scope, e.g. 'handle_request[>= p95]/main.cc:1310'; not with --session
    pub scope: Option<String>,
    /// What to look at.
    #[command(flatten)]
    pub target: TargetArgs,
    /// Show a running session instead of making one
    #[arg(long, value_name = "NAME",
          conflicts_with_all = ["pid", "exe", "scope", "print", "limit", "window", "exit", "frequency", "symbols"])]
    pub session: Option<String>,
    /// How many calls to show
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub number: u32,
    /// Expressions to read where each call begins, such as n,req->len; at most 16. Commas within brackets or
    /// double quotes do not separate. Repeatable
    #[arg(long, value_name = "EXPR,…", value_parser = print_list::parse)]
    pub print: Vec<PrintList>,
    /// Calls in a second whose values are read, with --print; others have none
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub limit: u32,
    /// How long to run, in seconds or with a unit [default: until Ctrl-C, which prints the result]
    #[arg(long, value_name = "S", value_parser = duration::parse)]
    pub duration: Option<Span>,
    /// Length of the sliding window, in seconds or with a unit (90s, 2m), at least 1 [default: 10]
    #[arg(long, value_name = "S", value_parser = duration::parse)]
    pub window: Option<Span>,
    /// Samples per second and CPU, in Hz [default: 99]
    #[arg(short = 'F', long, value_name = "HZ", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub frequency: Option<u32>,
    /// How the end of a call is seen: auto = the safest that target and kernel allow, chosen per
    /// function; return = return probes (they can kill targets that throw, panic or switch stacks);
    /// ret = a probe on each return instruction
    #[arg(long, value_name = "METHOD", value_enum, default_value_t)]
    pub exit: Exit,
    /// File with symbols or debug information, or folder of such, for programs and libraries that were
    /// stripped; which belongs to which is told by build-id. Repeatable. The service reads them where it
    /// runs, as root or its own user
    #[arg(long, value_name = "PATH")]
    pub symbols: Vec<PathBuf>,
    /// One JSON object a line at the end: calls, slowest first, then a summary; times in nanoseconds
    #[arg(long)]
    pub json: bool,
    /// When to colour
    #[arg(long, value_enum, default_value_t, value_name = "WHEN")]
    pub color: Color,
    /// Where the daemon is.
    #[command(flatten)]
    pub host: HostArgs,
}

/// `profiler flame`.
#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "a flag each, validated afterwards")]
pub struct FlameArgs {
    /// What to look inside of, e.g. 'handle_request[>= p95]'; left out: everything; not with --session
    pub scope: Option<String>,
    /// What to look at.
    #[command(flatten)]
    pub target: TargetArgs,
    /// Show a running session instead of making one
    #[arg(long, value_name = "NAME",
          conflicts_with_all = ["pid", "exe", "scope", "window", "half_life", "exit", "frequency", "symbols"])]
    pub session: Option<String>,
    /// Draw the calls that fail the scope's predicate instead of those that meet it
    #[arg(long, conflicts_with = "diff")]
    pub outside: bool,
    /// Compare the calls that meet the predicate with those that do not
    #[arg(long)]
    pub diff: bool,
    /// How long to run, in seconds or with a unit [default: until Ctrl-C, which writes the result]
    #[arg(long, value_name = "S", value_parser = duration::parse)]
    pub duration: Option<Span>,
    /// Samples per second and CPU, in Hz [default: 99]
    #[arg(short = 'F', long, value_name = "HZ", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub frequency: Option<u32>,
    /// How the session is made.
    #[command(flatten)]
    pub making: SessionMakingArgs,
    /// File with symbols or debug information, or folder of such, for programs and libraries that were
    /// stripped; which belongs to which is told by build-id. Repeatable. The service reads them where it
    /// runs, as root or its own user
    #[arg(long, value_name = "PATH")]
    pub symbols: Vec<PathBuf>,
    /// Histogram that percentiles are taken of and samples drawn from
    #[arg(long, value_enum, default_value = "start", value_name = "HISTOGRAM")]
    pub over: Over,
    /// What a frame stands for: a function; a function at the line that ran; an executable or library;
    /// or functions below a frame for each thread, or for each command line
    #[arg(long, value_enum, default_value = "function", value_name = "WHAT")]
    pub by: By,
    /// Write to FILE; its ending says the format: .svg .folded .json
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
    /// Where the daemon is.
    #[command(flatten)]
    pub host: HostArgs,
}

/// `profiler session`.
#[derive(Args, Debug)]
pub struct SessionArgs {
    /// What to do with sessions.
    #[command(subcommand)]
    pub verb: SessionVerb,
}

/// The verbs of `profiler session`.
#[derive(Subcommand, Debug)]
pub enum SessionVerb {
    /// Attach a scope to a target and leave it running; prints the session's name
    #[command(after_help = help::SESSION)]
    New(SessionNewArgs),
    /// List the daemon's sessions
    #[command(after_help = help::SESSION)]
    List(SessionListArgs),
    /// Detach a session; whoever watches it gets its last numbers
    #[command(after_help = help::SESSION)]
    End(SessionEndArgs),
}

/// `profiler session new`.
#[derive(Args, Debug)]
pub struct SessionNewArgs {
    /// Scope, e.g. 'handle_request[>= p95]'; left out: everything
    pub scope: Option<String>,
    /// Name of the session [default: made up by the daemon]
    #[arg(long, visible_alias = "session", value_name = "NAME")]
    pub name: Option<String>,
    /// What to look at.
    #[command(flatten)]
    pub target: TargetArgs,
    /// Samples per second and CPU while a flame graph is watched, in Hz [default: 99]
    #[arg(short = 'F', long, value_name = "HZ", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub frequency: Option<u32>,
    /// How the session is made.
    #[command(flatten)]
    pub making: SessionMakingArgs,
    /// Record hits and calls of the scope's last step, for `trace --session`
    #[arg(long)]
    pub trace: bool,
    /// Expressions to read at each hit, such as n,req->len; at most 16. Commas within brackets or double
    /// quotes do not separate. Repeatable; implies --trace
    #[arg(long, value_name = "EXPR,…", value_parser = print_list::parse)]
    pub print: Vec<PrintList>,
    /// Hits recorded in a second at each place; the rest is counted
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub limit: u32,
    /// Record the stack of the thread with each hit; implies --trace
    #[arg(long)]
    pub stack: bool,
    /// Divide the calls of the scope's last step by the value that this expression has where they begin,
    /// for `latency --session`
    #[arg(long, value_name = "EXPR", conflicts_with_all = ["trace", "print", "limit", "stack"], value_parser = print_list::parse_one)]
    pub by: Option<String>,
    /// File with symbols or debug information, or folder of such, for programs and libraries that were
    /// stripped; which belongs to which is told by build-id. Repeatable. The service reads them where it
    /// runs, as root or its own user
    #[arg(long, value_name = "PATH")]
    pub symbols: Vec<PathBuf>,
    /// How long the session stays when nobody watches it, in seconds or with a unit
    #[arg(long, value_name = "S", value_parser = duration::parse, default_value = "10m")]
    pub lease: Span,
    /// One JSON object a line
    #[arg(long)]
    pub json: bool,
    /// Where the daemon is.
    #[command(flatten)]
    pub host: HostArgs,
}

/// `profiler session list`.
#[derive(Args, Debug)]
pub struct SessionListArgs {
    /// One JSON object a line
    #[arg(long)]
    pub json: bool,
    /// Where the daemon is.
    #[command(flatten)]
    pub host: HostArgs,
}

/// `profiler session end`.
#[derive(Args, Debug)]
pub struct SessionEndArgs {
    /// The session
    pub name: String,
    /// Where the daemon is.
    #[command(flatten)]
    pub host: HostArgs,
}

/// `profiler scope`.
#[derive(Args, Debug)]
pub struct ScopeArgs {
    /// What to do with the scope.
    #[command(subcommand)]
    pub verb: ScopeVerb,
}

/// The verbs of `profiler scope`.
#[derive(Subcommand, Debug)]
pub enum ScopeVerb {
    /// Replace a session's scope; what old and new share keeps its counts
    #[command(after_help = help::SCOPE)]
    Set(ScopeSetArgs),
    /// Look further inside: put steps behind the last one
    #[command(after_help = help::SCOPE)]
    Append(ScopeAppendArgs),
    /// Take steps away from the end
    #[command(after_help = help::SCOPE)]
    Drop(ScopeCountArgs),
    /// Take edits back, whoever made them
    #[command(after_help = help::SCOPE)]
    Undo(ScopeCountArgs),
}

/// `profiler scope append`.
#[derive(Args, Debug)]
pub struct ScopeAppendArgs {
    /// The session
    pub name: String,
    /// Steps, separated by `/`
    pub steps: String,
    /// Where the daemon is.
    #[command(flatten)]
    pub host: HostArgs,
}

/// `profiler scope drop` and `profiler scope undo`.
#[derive(Args, Debug)]
pub struct ScopeCountArgs {
    /// The session
    pub name: String,
    /// How many
    #[arg(default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub count: u32,
    /// Where the daemon is.
    #[command(flatten)]
    pub host: HostArgs,
}

/// `profiler scope set`.
#[derive(Args, Debug)]
pub struct ScopeSetArgs {
    /// The session
    pub name: String,
    /// Its new scope
    pub scope: String,
    /// Where the daemon is.
    #[command(flatten)]
    pub host: HostArgs,
}
