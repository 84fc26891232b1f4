//! The flags of `syscalls`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{
    super::duration::{self, Span},
    Color, HostArgs, ProbingArgs, TargetArgs,
};

/// `profiler syscalls`.
#[derive(Args, Debug)]
pub struct SyscallsArgs {
    /// Function, glob or scope in whose calls they are made, e.g. handle_request; all of them if left out
    pub scope: Option<String>,
    /// What to look at.
    #[command(flatten)]
    pub target: TargetArgs,
    /// Show a running session instead of making one
    #[arg(long, value_name = "NAME", conflicts_with_all = ["pid", "exe", "scope", "exit", "budget", "symbols"])]
    pub session: Option<String>,
    /// How long to run, in seconds or with a unit [default: until Ctrl-C, which prints the result]
    #[arg(long, value_name = "S", value_parser = duration::parse)]
    pub duration: Option<Span>,
    /// What is shown of who makes them: functions; functions at the lines that ran; or executables and
    /// libraries
    #[arg(long, value_enum, default_value = "function", value_name = "WHAT")]
    pub by: CallersBy,
    /// How it is probed.
    #[command(flatten)]
    pub probing: ProbingArgs,
    /// File with symbols or debug information, or folder of such, for programs and libraries that were
    /// stripped; which belongs to which is told by build-id. Repeatable. The service reads them where it
    /// runs, as root or its own user
    #[arg(long, value_name = "PATH")]
    pub symbols: Vec<PathBuf>,
    /// One JSON object a line at the end: each system call, those who make it, then a summary; times in
    /// nanoseconds
    #[arg(long)]
    pub json: bool,
    /// When to colour
    #[arg(long, value_enum, default_value_t, value_name = "WHEN")]
    pub color: Color,
    /// Where the daemon is.
    #[command(flatten)]
    pub host: HostArgs,
}

/// `--by`.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallersBy {
    /// Functions.
    Function,
    /// Functions at the lines that ran.
    Line,
    /// Executables and libraries.
    Module,
}
