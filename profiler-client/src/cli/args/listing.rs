//! The flags of verbs that list what there is to look at: `info`, `ps`, `functions`, `source`.

use std::path::PathBuf;

use clap::Args;

use super::{Color, HostArgs, TargetArgs};

/// `profiler info`.
#[derive(Args, Debug)]
pub struct InfoArgs {
    /// Of a recording
    #[arg(long, value_name = "FILE", conflicts_with = "host")]
    pub from: Option<PathBuf>,
    /// As a JSON object
    #[arg(long)]
    pub json: bool,
    /// Where the daemon is.
    #[command(flatten)]
    pub host: HostArgs,
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
