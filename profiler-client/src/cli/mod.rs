//! What the user types: flags, their validation, and how failures become exit statuses.

pub mod args;
pub mod budget;
pub mod costs;
pub mod duration;
pub mod endpoint;
pub mod events;
pub mod exit;
mod help;
#[cfg(test)]
mod json_schema;
pub mod print_list;
#[cfg(test)]
mod reference;
pub mod request;
pub mod size;
pub mod validate;

use std::{ffi::OsString, process::ExitCode};

use clap::{CommandFactory as _, Parser as _};

use self::{
    args::Cli,
    exit::{ExitStatus, report},
    request::{Host, Request},
};
use crate::failure::Failure;
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
    let at = scope_at(&arguments);
    let url = at.and_then(|at| arguments.get(at)?.to_str());
    let (Some(at), Some(url)) = (at, url.filter(|url| url.starts_with(url::PREFIX))) else {
        return Ok(arguments);
    };
    let words = url::words(url)
        .map_err(|why| Failure::usage(format!("`{}` is no URL of a screen: {why}.", terminal(url))))?;
    arguments.splice(at..=at, words.into_iter().map(OsString::from));
    Ok(arguments)
}

/// Where among the arguments of `tui` the one without a flag stands, which is a scope or a URL.
fn scope_at(arguments: &[OsString]) -> Option<usize> {
    let cli = Cli::command();
    let tui = cli.find_subcommand("tui")?;
    let has_value = |flag: &str| {
        tui.get_arguments().any(|argument| {
            let long = argument.get_long().map(|name| format!("--{name}"));
            let short = argument.get_short().map(|name| format!("-{name}"));
            argument.get_action().takes_values() && [long, short].iter().flatten().any(|name| name == flag)
        })
    };
    let mut is_value = false;
    for (at, argument) in arguments.iter().enumerate().skip(2) {
        let flag = argument.to_str().filter(|text| text.starts_with('-'));
        if std::mem::take(&mut is_value) {
            continue;
        }
        match flag {
            Some(flag) => is_value = has_value(flag),
            None => return Some(at),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &[&str]) -> Vec<String> {
        let line = ["profiler"].iter().chain(line).map(OsString::from).collect();
        let words = expanded(line).map_err(|failure| failure.message).unwrap();
        words
            .into_iter()
            .skip(1)
            .map(|word| word.into_string().unwrap())
            .collect()
    }

    #[test]
    fn a_url_of_a_screen_stands_before_or_behind_flags() {
        let url = "profiler:tui?pid=7&scope=f%5B%3E%3D%20p95%5D";
        assert_eq!(words(&["tui", url]), ["tui", "--pid=7", "f[>= p95]"]);
        assert_eq!(
            words(&["tui", "--color", "never", "-F", "99", "--heat", url, "--no-mouse"]),
            [
                "tui",
                "--color",
                "never",
                "-F",
                "99",
                "--heat",
                "--pid=7",
                "f[>= p95]",
                "--no-mouse"
            ]
        );
        // What is searched for is none, nor a scope, nor another verb's.
        for line in [
            &["tui", "--search", url][..],
            &["tui", "--color=never", "f"],
            &["latency", url],
        ] {
            assert_eq!(words(line), line);
        }
    }

    #[test]
    fn a_wrong_url_is_said_wherever_it_stands() {
        for line in [
            &["profiler", "tui", "profiler:tui?a=%4"][..],
            &["profiler", "tui", "--color", "never", "profiler:tui?a=%4"],
        ] {
            let failure = expanded(line.iter().map(OsString::from).collect()).unwrap_err();
            assert!(
                failure.message.contains("is no URL of a screen"),
                "{}",
                failure.message
            );
        }
    }
}
