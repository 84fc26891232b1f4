//! `cargo xtask oracle`: what the engine says of random scopes of real servers is held against an independent trace. The tests are
//! the privileged suite's (`oracle::`); here they ask more scopes, and what they compared is a table.

use std::fmt::Write as _;

use serde_json::Value;

use crate::{
    error::Result,
    markdown::{self, Place},
    real_programs::{self, Tests},
    sh, workspace,
};

/// Where the table stands.
const PLACE: Place = Place::named("oracle");
/// The server with debug information, which is the workspace's own.
const DEMO: &str = "demo";
/// How the tests' reports begin.
const REPORT: &str = "oracle: ";

/// What `cargo xtask oracle` can do.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Only these servers, such as redis or nginx; demo is the one of which the branches of its lines are asked too
    #[arg(value_name = "SERVER")]
    servers: Vec<String>,
    /// Scopes of each server that are asked
    #[arg(long, value_name = "NUMBER", default_value_t = 20)]
    scopes: u32,
    /// Runs, each with a seed of its own
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    runs: u32,
    /// Choose functions and scopes as another run did, which printed its seed: the same, as far as the server does the same
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Write the table into docs/internals/testing.md, where all servers were asked and nothing disagreed
    #[arg(long, conflicts_with = "servers")]
    write: bool,
}

/// What was compared of a server.
#[derive(Debug)]
struct Report {
    server: String,
    seed: u64,
    scopes: u64,
    calls: u64,
    /// Of branches.
    hits: u64,
    samples: u64,
    /// Times off the CPU in calls.
    away: u64,
    /// Calls and samples so near to an edge that neither answer is wrong.
    near_an_edge: u64,
    /// What the engine says it has lost.
    lost: u64,
    /// What disagreed.
    wrong: u64,
}

impl Report {
    /// Of a line that a test prints.
    fn parse(line: &str, seed: u64) -> Option<Self> {
        let report: Value = serde_json::from_str(line.strip_prefix(REPORT)?).ok()?;
        let count = |name: &str| report[name].as_u64();
        Some(Self {
            server: report["program"].as_str()?.to_owned(),
            seed,
            scopes: count("scopes")?,
            calls: count("calls")?,
            hits: count("hits")?,
            samples: count("samples")?,
            away: count("away")?,
            near_an_edge: count("near_an_edge")?,
            lost: count("lost")?,
            wrong: count("wrong")?,
        })
    }
}

/// Runs the subcommand.
pub fn main(arguments: &Arguments) -> Result<()> {
    let first = arguments.seed.unwrap_or_else(real_programs::any_seed);
    let tests = Tests::prepare("oracle", &arguments.servers, &[DEMO])?;
    sh::run(sh::cargo().args(["build", "--workspace", "--locked", "--bin", DEMO]))?;
    let mut reports = Vec::new();
    let mut result = Ok(());
    for seed in (first..).take(arguments.runs as usize) {
        let variables = [
            ("PROFILER_ORACLE_SEED", seed),
            ("PROFILER_ORACLE_SCOPES", u64::from(arguments.scopes)),
        ];
        let ended = tests.run(&variables, |line| {
            reports.extend(Report::parse(line, seed));
        });
        result = result.and(ended);
    }
    let table = table(&reports);
    println!("\n{table}");
    if arguments.write && result.is_ok() {
        let path = workspace::root().join("docs/internals/testing.md");
        markdown::write_into(&path, PLACE, &table)?;
    }
    result
}

fn table(reports: &[Report]) -> String {
    let mut text = "| server | seed | scopes | calls | branches | samples | times off the CPU | near an edge | lost | disagree |\n\
                    |---|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n"
        .to_owned();
    for report in reports {
        let Report {
            server,
            seed,
            scopes,
            calls,
            hits,
            samples,
            away,
            near_an_edge,
            lost,
            wrong,
        } = report;
        let _ = writeln!(
            text,
            "| {server} | {seed} | {scopes} | {calls} | {hits} | {samples} | {away} | {near_an_edge} | {lost} | {wrong} |"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_a_row() {
        let report = r#"oracle: {"program": "redis", "scopes": 6, "calls": 2943, "hits": 12, "samples": 549, "away": 81, "near_an_edge": 30, "lost": 0,
            "wrong": 1, "refused": {}}"#;
        let table = table(&[Report::parse(report, 7).unwrap()]);
        assert!(
            table.ends_with("\n| redis | 7 | 6 | 2943 | 12 | 549 | 81 | 30 | 0 | 1 |\n"),
            "{table}"
        );
    }
}
