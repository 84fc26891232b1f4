//! The flags of `waits`.

use std::path::PathBuf;

use clap::Args;

use super::{
    super::duration::{self, Span},
    Color, HostArgs, ProbingArgs, TargetArgs,
};

/// `profiler waits`.
#[derive(Args, Debug)]
pub struct WaitsArgs {
    /// Function, glob or scope in whose calls threads wait, e.g. handle_request; all waits if left out
    pub scope: Option<String>,
    /// What to look at.
    #[command(flatten)]
    pub target: TargetArgs,
    /// Show a running session instead of making one
    #[arg(long, value_name = "NAME", conflicts_with_all = ["pid", "exe", "scope", "exit", "budget", "symbols", "allocations"])]
    pub session: Option<String>,
    /// How long to run, in seconds or with a unit [default: until Ctrl-C, which prints the result]
    #[arg(long, value_name = "S", value_parser = duration::parse)]
    pub duration: Option<Span>,
    /// How it is probed.
    #[command(flatten)]
    pub probing: ProbingArgs,
    /// Remember who allocates memory from now on, so that locks on a heap say what they belong to; costs two probes and a stack
    /// at each call of malloc
    #[arg(long)]
    pub allocations: bool,
    /// File with symbols or debug information, or folder of such, for programs and libraries that were
    /// stripped; which belongs to which is told by build-id. Repeatable. The service reads them where it
    /// runs, as root or its own user
    #[arg(long, value_name = "PATH")]
    pub symbols: Vec<PathBuf>,
    /// One JSON object a line at the end: the tree's nodes, parents first, then a summary; times in nanoseconds
    #[arg(long)]
    pub json: bool,
    /// When to colour
    #[arg(long, value_enum, default_value_t, value_name = "WHEN")]
    pub color: Color,
    /// Where the daemon is.
    #[command(flatten)]
    pub host: HostArgs,
}
