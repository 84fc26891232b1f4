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

use std::{ffi::OsString, process::ExitCode};

use clap::Parser as _;

use self::{
    args::Cli,
    exit::{ExitStatus, Failure, report},
    request::{Host, Request},
};
use crate::{render::escape::terminal, tui::lens::url};

/// Reads the process's arguments.
///
/// # Errors
///
/// The exit status, where there is nothing to run: help was asked for, or the usage is wrong. What
/// there was to say has been said.
pub fn parse() -> Result<(Host, Request), ExitCode> {
    let arguments = expanded(std::env::args_os().collect()).map_err(|failure| report(&failure))?;
    let cli = Cli::try_parse_from(arguments).map_err(|error| {
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

/// Arguments with the flags of a screen's URL in its place: `profiler tui 'profiler:tui?…'`.
fn expanded(mut arguments: Vec<OsString>) -> Result<Vec<OsString>, Failure> {
    if arguments.get(1).is_none_or(|verb| verb != "tui") {
        return Ok(arguments);
    }
    let url = arguments.get(2).and_then(|argument| argument.to_str());
    let Some(url) = url.filter(|url| url.starts_with(url::PREFIX)) else {
        return Ok(arguments);
    };
    let words = url::words(url).map_err(|why| Failure {
        status: ExitStatus::Usage,
        message: format!("`{}` is no URL of a screen: {why}.", terminal(url)),
    })?;
    arguments.splice(2..3, words.into_iter().map(OsString::from));
    Ok(arguments)
}
