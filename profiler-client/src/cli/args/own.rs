//! The flags of `self`.

use std::path::PathBuf;

use clap::Args;

use super::{
    super::duration::{self, Span},
    HostArgs,
    shared::frequency,
};

/// `profiler self`.
#[derive(Args, Debug)]
pub struct OwnArgs {
    /// Calls of the daemon to time and to look inside of; left out: only samples of time on the CPU
    pub scope: Option<String>,
    /// File to write: a new one, which only its owner may read
    #[arg(short, long, value_name = "FILE", required = true)]
    pub output: PathBuf,
    /// Replace FILE if it exists
    #[arg(long)]
    pub force: bool,
    /// As `record --redact`: leave out folders of files, command lines, names of threads and the host
    #[arg(long)]
    pub redact: bool,
    /// As `record --calls`: keep each call of the last step with the calls around it
    #[arg(long)]
    pub calls: bool,
    /// How long to record, in seconds or with a unit [default: until Ctrl-C]
    #[arg(long, value_name = "S", value_parser = duration::parse)]
    pub duration: Option<Span>,
    /// Samples per second and CPU, in Hz [default: 99]
    #[arg(short = 'F', long, value_name = "HZ", value_parser = frequency())]
    pub frequency: Option<u32>,
    /// The daemon that is recorded.
    #[command(flatten)]
    pub host: HostArgs,
}
