//! The verbs of `session`, and their flags.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{
    super::{
        duration::{self, Span},
        help,
        print_list::{self, PrintList},
    },
    DryRunArgs, HostArgs, SessionMakingArgs, TargetArgs,
    shared::frequency,
};

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
    New(Box<SessionNewArgs>),
    /// List the daemon's sessions
    #[command(after_help = help::SESSION)]
    List(SessionListArgs),
    /// Detach a session; whoever watches it gets its last numbers
    #[command(after_help = help::SESSION)]
    End(SessionEndArgs),
}

/// `profiler session new`.
#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "a flag each, validated afterwards")]
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
    #[arg(short = 'F', long, value_name = "HZ", value_parser = frequency())]
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
    /// Hits recorded per second at each place; the others are only counted
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub limit: u32,
    /// Record the stack of the thread with each hit; implies --trace
    #[arg(long)]
    pub stack: bool,
    /// Divide the calls of the scope's last step by the value of this expression at their entry, for `latency
    /// --session`
    #[arg(long, value_name = "EXPR", conflicts_with_all = ["trace", "print", "limit", "stack"], value_parser = print_list::parse_one)]
    pub by: Option<String>,
    /// Record who allocates memory from now on, so that a lock on the heap shows what it belongs to; costs two
    /// probes and a stack at each call of malloc
    #[arg(long)]
    pub allocations: bool,
    /// File or folder with symbols or debug information of stripped programs and libraries, matched by
    /// build-id. Repeatable. Read where the service runs; only root or the service's own user may name files, and of
    /// a service for several users, only those that everybody may read
    #[arg(long, value_name = "PATH")]
    pub symbols: Vec<PathBuf>,
    /// How long the session stays while nobody watches it, in seconds or with a unit
    #[arg(long, value_name = "S", value_parser = duration::parse, default_value = "10m")]
    pub lease: Span,
    /// One JSON object a line
    #[arg(long)]
    pub json: bool,
    /// What would be attached.
    #[command(flatten)]
    pub dry_run: DryRunArgs,
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
