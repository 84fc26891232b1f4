//! What the user types: flags, their validation, and how failures become exit statuses.

pub mod args;
pub mod budget;
pub mod duration;
pub mod endpoint;
pub mod events;
pub mod exit;
mod help;
pub mod print_list;
pub mod request;
pub mod size;
pub mod validate;

use std::process::ExitCode;

use clap::Parser as _;

use self::{
    args::Cli,
    exit::{ExitStatus, report},
    request::{Host, Request},
};

/// Reads the process's arguments.
///
/// # Errors
///
/// The exit status, where there is nothing to run: help was asked for, or the usage is wrong. What
/// there was to say has been said.
pub fn parse() -> Result<(Host, Request), ExitCode> {
    let cli = Cli::try_parse().map_err(|error| {
        // Help to a closed pipe is no failure.
        let _ = error.print();
        ExitCode::from(if error.use_stderr() {
            ExitStatus::Usage
        } else {
            ExitStatus::Done
        })
    })?;
    validate::validate(cli).map_err(|failure| report(&failure))
}
