//! The flags of `syscalls`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{
    super::duration::{self, Span},
    Color, FromMoreArgs, HostArgs, ProbingArgs, TargetArgs,
};

/// `profiler syscalls`.
#[derive(Args, Debug)]
pub struct SyscallsArgs {
    /// Function, glob or scope: only system calls made inside its calls, e.g. handle_request; left out: all
    pub scope: Option<String>,
    /// What to look at.
    #[command(flatten)]
    pub target: TargetArgs,
    /// A recording instead.
    #[command(flatten)]
    pub recording: FromMoreArgs,
    /// Show a running session instead of making one
    #[arg(long, value_name = "NAME", conflicts_with_all = ["pid", "exe", "scope", "exit", "budget", "symbols"])]
    pub session: Option<String>,
    /// How long to run, in seconds or with a unit [default: until Ctrl-C, which prints the result]
    #[arg(long, value_name = "S", value_parser = duration::parse)]
    pub duration: Option<Span>,
    /// How callers are shown: functions; functions at the lines that ran; or executables and libraries
    #[arg(long, value_enum, default_value = "function", value_name = "WHAT")]
    pub by: CallersBy,
    /// How it is probed.
    #[command(flatten)]
    pub probing: ProbingArgs,
    /// File or folder with symbols or debug information of stripped programs and libraries, matched by
    /// build-id. Repeatable. Read where the service runs; only root or the service's own user may name files, and of
    /// a service for several users, only those that everybody may read
    #[arg(long, value_name = "PATH")]
    pub symbols: Vec<PathBuf>,
    /// One JSON object a line at the end: each system call, its callers, then a summary; times in nanoseconds
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
