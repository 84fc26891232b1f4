//! The verbs of `scope`, and their flags.

use clap::{Args, Subcommand};

use super::{super::help, DryRunArgs, HostArgs};

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
    /// Replace a session's scope; steps that both have keep their counts
    #[command(after_help = help::SCOPE)]
    Set(ScopeSetArgs),
    /// Look further inside: add steps after the last one
    #[command(after_help = help::SCOPE)]
    Append(ScopeAppendArgs),
    /// Remove steps from the end
    #[command(after_help = help::SCOPE)]
    Drop(ScopeCountArgs),
    /// Undo edits, whoever made them
    #[command(after_help = help::SCOPE)]
    Undo(ScopeCountArgs),
}

/// `profiler scope set`.
#[derive(Args, Debug)]
pub struct ScopeSetArgs {
    /// The session
    pub name: String,
    /// Its new scope
    pub scope: String,
    /// What would be attached.
    #[command(flatten)]
    pub dry_run: DryRunArgs,
    /// With --dry-run: one JSON object a line
    #[arg(long, requires = "dry_run")]
    pub json: bool,
    /// Where the daemon is.
    #[command(flatten)]
    pub host: HostArgs,
}

/// `profiler scope append`.
#[derive(Args, Debug)]
pub struct ScopeAppendArgs {
    /// The session
    pub name: String,
    /// Steps, separated by `/`
    pub steps: String,
    /// What would be attached.
    #[command(flatten)]
    pub dry_run: DryRunArgs,
    /// With --dry-run: one JSON object a line
    #[arg(long, requires = "dry_run")]
    pub json: bool,
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
