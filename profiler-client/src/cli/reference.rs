//! The page of the book that names every flag is made from the command line itself.

use std::{fmt::Write as _, path::Path};

use clap::{Arg, Command, CommandFactory as _, builder::StyledStr};

use super::args::Cli;

/// Where the page is.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/flags.md");

const HEAD: &str = "# Flags

All that the command line takes, by verb. This page is made from it: `UPDATE_REFERENCE=1 cargo test -p profiler-client --lib
reference`. What flags are for is on the pages of the [verbs](command-line.md).
";

fn page() -> String {
    let mut cli = Cli::command();
    cli.build();
    let mut page = HEAD.to_owned();
    verbs(&mut page, &cli, cli.get_name());
    page
}

fn verbs(page: &mut String, of: &Command, words: &str) {
    for verb in of
        .get_subcommands()
        .filter(|verb| !verb.is_hide_set() && verb.get_name() != "help")
    {
        let words = format!("{words} {}", verb.get_name());
        if verb.has_subcommands() {
            verbs(page, verb, &words);
        } else {
            table(page, &words, verb.get_arguments());
        }
    }
}

fn table<'a>(page: &mut String, title: &str, arguments: impl Iterator<Item = &'a Arg>) {
    let _ = writeln!(page, "\n## `{title}`\n| argument | meaning |\n|---|---|");
    let is_shown = |argument: &&Arg| {
        !argument.is_hide_set() && !["help", "version"].contains(&argument.get_id().as_str())
    };
    for argument in arguments.filter(is_shown) {
        let _ = writeln!(page, "| {} | {} |", typed(argument), meaning(argument));
    }
}

/// How an argument is typed.
fn typed(argument: &Arg) -> String {
    let long = argument.get_long().map(|name| format!("--{name}"));
    let short = argument.get_short().map(|name| format!("-{name}"));
    let names: Vec<String> = short.into_iter().chain(long).collect();
    let values = argument
        .get_action()
        .takes_values()
        .then(|| argument.get_value_names().unwrap_or_default());
    let values: Vec<String> = values
        .into_iter()
        .flatten()
        .map(|name| format!("<{name}>"))
        .collect();
    let words = [names.join(", "), values.join(" ")];
    let words: Vec<String> = words.into_iter().filter(|words| !words.is_empty()).collect();
    format!("`{}`", words.join(" "))
}

fn meaning(argument: &Arg) -> String {
    let help = argument.get_help().map(StyledStr::to_string).unwrap_or_default();
    let values = argument.get_possible_values();
    let values = values
        .iter()
        .filter(|value| !value.is_hide_set() && argument.get_action().takes_values());
    let values: Vec<String> = values.map(|value| format!("`{}`", value.get_name())).collect();
    let help = help.replace('|', "\\|").replace('\n', " ").replace('<', "&lt;");
    if values.is_empty() {
        help
    } else {
        format!("{help}: {}", values.join(", "))
    }
}

#[test]
fn the_page_of_flags_is_what_the_command_line_takes() {
    let page = page();
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::write(PAGE, &page).unwrap();
    }
    let written = std::fs::read_to_string(Path::new(PAGE)).unwrap_or_default();
    assert!(
        written == page,
        "docs/flags.md is not of this command line: see its first lines"
    );
}
