//! The flags as they are typed, a file a verb; those of several are in `shared`. [`super::request`] turns them into
//! something valid.

#![expect(
    clippy::doc_markdown,
    reason = "doc comments are the help text, where backticks would be shown"
)]

mod diff;
mod explain;
mod flame;
mod latency;
mod listing;
mod own;
mod record;
mod scope;
mod session;
mod shared;
mod spans;
mod syscalls;
mod timeline;
mod top;
mod trace;
mod tui;
mod waits;

use clap::{Parser, Subcommand};

pub use self::{
    diff::DiffArgs,
    explain::ExplainArgs,
    flame::{By, DrawingArgs, FlameArgs, Format, Over, ShapingArgs},
    latency::{BarsOver, LatencyArgs, LatencyFormat},
    listing::{FunctionsArgs, InfoArgs, PsArgs, SourceArgs},
    own::OwnArgs,
    record::RecordArgs,
    scope::{ScopeAppendArgs, ScopeArgs, ScopeCountArgs, ScopeSetArgs, ScopeVerb},
    session::{SessionArgs, SessionEndArgs, SessionListArgs, SessionNewArgs, SessionVerb},
    shared::{
        Color, DryRunArgs, EventFormat, Exit, FromArgs, FromMoreArgs, HostArgs, ProbingArgs, RecordedTime,
        SessionMakingArgs, TargetArgs,
    },
    spans::SpansArgs,
    syscalls::{CallersBy, SyscallsArgs},
    timeline::{TimelineArgs, TimelineFormat},
    top::TopArgs,
    trace::TraceArgs,
    tui::TuiArgs,
    waits::WaitsArgs,
};
use super::help;

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
    /// Look at a process in a terminal, by keys: from all of it to its slow calls, to the line, to the value
    #[command(after_help = help::TUI)]
    Tui(TuiArgs),
    /// List the functions that take the most time, live
    #[command(after_help = help::TOP)]
    Top(TopArgs),
    /// Say which service answers, on which machine, and what it gives you
    #[command(after_help = help::INFO)]
    Info(InfoArgs),
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
    /// Show who threads wait for, and what those do meanwhile: chains of waits, locks, timers, disks
    #[command(after_help = help::WAITS)]
    Waits(WaitsArgs),
    /// Show counters over time: CPUs, switches, faults, system calls, the hardware's; and calls beside them
    #[command(after_help = help::TIMELINE)]
    Timeline(TimelineArgs),
    /// Count system calls: how long they take, which fail, and which functions and libraries make them
    #[command(after_help = help::SYSCALLS)]
    Syscalls(SyscallsArgs),
    /// Say what slow calls of a function do that the others do not: branches, calls, values
    #[command(after_help = help::EXPLAIN)]
    Explain(ExplainArgs),
    /// Record samples and calls into a file, to ask for flame graphs and latency afterwards
    #[command(after_help = help::RECORD)]
    Record(RecordArgs),
    /// Record the daemon itself, by a second one within this command: what the profiler costs, and where
    #[command(name = "self", after_help = help::OWN)]
    Own(OwnArgs),
    /// Draw what differs between two recordings, or two parts of one
    #[command(after_help = help::DIFF)]
    Diff(DiffArgs),
    /// Make, list and end sessions of a daemon, which outlive a single command
    #[command(after_help = help::SESSION)]
    Session(SessionArgs),
    /// Edit the scope of a running session
    #[command(after_help = help::SCOPE)]
    Scope(ScopeArgs),
}
