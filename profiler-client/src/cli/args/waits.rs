//! The flags of `waits`.

use std::path::PathBuf;

use clap::Args;

use super::{
    super::duration::{self, Span},
    Color, FromMoreArgs, HostArgs, ProbingArgs, TargetArgs,
};

/// `profiler waits`.
#[derive(Args, Debug)]
pub struct WaitsArgs {
    /// Function, glob or scope: only waits inside its calls, e.g. handle_request; left out: all
    pub scope: Option<String>,
    /// What to look at.
    #[command(flatten)]
    pub target: TargetArgs,
    /// A recording instead.
    #[command(flatten)]
    pub recording: FromMoreArgs,
    /// Show a running session instead of making one
    #[arg(long, value_name = "NAME", conflicts_with_all = ["pid", "exe", "scope", "exit", "budget", "symbols", "allocations"])]
    pub session: Option<String>,
    /// How long to run, in seconds or with a unit [default: until Ctrl-C, which prints the result]
    #[arg(long, value_name = "S", value_parser = duration::parse)]
    pub duration: Option<Span>,
    /// How it is probed.
    #[command(flatten)]
    pub probing: ProbingArgs,
    /// Record who allocates memory from now on, so that a lock on the heap shows what it belongs to; costs two
    /// probes and a stack at each call of malloc
    #[arg(long)]
    pub allocations: bool,
    /// File or folder with symbols or debug information of stripped programs and libraries, matched by
    /// build-id. Repeatable. Read where the service runs; only root or the service's own user may name files, and of
    /// a service for several users, only those that everybody may read
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
