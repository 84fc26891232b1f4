//! `cargo xtask soak`: random functions of real programs are probed under load. The tests are the privileged suite's
//! (`soak::`); here they probe more functions, and what became of them is a table.

use std::{collections::BTreeMap, fmt::Write as _};

use serde_json::Value;

use crate::{
    error::Result,
    markdown::{self, Place},
    real_programs::{self, Tests},
    workspace,
};

/// Where the table stands.
const PLACE: Place = Place::named("soak");
/// How the tests' reports begin.
const REPORT: &str = "soak: ";

/// What `cargo xtask soak` can do.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Only these programs, such as redis or haskell
    #[arg(value_name = "PROGRAM")]
    programs: Vec<String>,
    /// Functions of each program that are probed
    #[arg(long, value_name = "NUMBER", default_value_t = 200)]
    functions: u32,
    /// Choose functions as another run did, which printed its seed: the same, as far as the same are seen in samples
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Write the table into docs/safety.md, where all programs were probed and none was harmed
    #[arg(long, conflicts_with = "programs")]
    write: bool,
}

/// What became of a program's functions.
#[derive(Debug)]
struct Report {
    program: String,
    /// Functions of all its files.
    functions: u64,
    /// Those that were to be probed.
    chosen: u64,
    /// Probed functions, by how their end is seen.
    probed: BTreeMap<String, u64>,
    /// Those that were called.
    called: u64,
    calls: u64,
    /// Functions whose probes were taken off over the budget.
    taken_off: u64,
    /// Functions that are left alone, by the reason.
    refused: BTreeMap<String, u64>,
}

impl Report {
    /// Of a line that a test prints.
    fn parse(line: &str) -> Option<Self> {
        let report: Value = serde_json::from_str(line.strip_prefix(REPORT)?).ok()?;
        let count = |name: &str| report[name].as_u64();
        let counts = |name: &str| {
            let counts = report[name].as_object()?.iter();
            counts
                .map(|(name, count)| Some((name.clone(), count.as_u64()?)))
                .collect::<Option<BTreeMap<String, u64>>>()
        };
        Some(Self {
            program: report["program"].as_str()?.to_owned(),
            functions: count("functions")?,
            chosen: count("chosen")?,
            probed: counts("probed")?,
            called: count("called")?,
            calls: count("calls")?,
            taken_off: count("taken_off")?,
            refused: counts("refused")?,
        })
    }
}

/// Runs the subcommand.
pub fn main(arguments: &Arguments) -> Result<()> {
    let seed = arguments.seed.unwrap_or_else(real_programs::any_seed);
    let variables = [
        ("PROFILER_SOAK_SEED", seed),
        ("PROFILER_SOAK_FUNCTIONS", u64::from(arguments.functions)),
    ];
    let mut reports = Vec::new();
    let tests = Tests::prepare("soak", &arguments.programs, &[])?;
    let result = tests.run(&variables, |line| {
        reports.extend(Report::parse(line));
    });
    let table = table(&reports, seed);
    println!("\n{table}");
    if arguments.write && result.is_ok() {
        markdown::write_into(&workspace::root().join("docs/safety.md"), PLACE, &table)?;
    }
    result
}

fn table(reports: &[Report], seed: u64) -> String {
    let methods = ["ret", "ret, single-stepped", "return probe", "counted"];
    let mut text = format!(
        "Seed {seed}. Functions: of all files of the process, those that were chosen, those of them whose calls are timed by \
         each method or only counted, and those that were refused; one name can be several functions.\n\n\
         | program | functions | chosen | {} | refused | called | calls | taken off |\n|---|{}\n",
        methods.join(" | "),
        "--:|".repeat(methods.len() + 6)
    );
    for report in reports {
        let Report {
            program,
            functions,
            chosen,
            probed,
            called,
            calls,
            taken_off,
            refused,
        } = report;
        let timed = methods.map(|method| probed.get(method).copied().unwrap_or(0).to_string());
        let refused: u64 = refused.values().sum();
        let _ = writeln!(
            text,
            "| {program} | {functions} | {chosen} | {} | {refused} | {called} | {calls} | {taken_off} |",
            timed.join(" | ")
        );
    }
    let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
    for (reason, count) in reports.iter().flat_map(|report| &report.refused) {
        *reasons.entry(reason).or_default() += count;
    }
    let reasons: Vec<String> = reasons
        .iter()
        .map(|(reason, count)| format!("{reason} {count}"))
        .collect();
    let _ = writeln!(
        text,
        "\nRefused: {}.",
        if reasons.is_empty() {
            "none".to_owned()
        } else {
            reasons.join(", ")
        }
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_a_row() {
        let report = r#"soak: {"program": "c", "functions": 9, "chosen": 4, "probed": {"ret": 2, "counted": 1}, "called": 1,
            "calls": 70, "taken_off": 0, "refused": {"FunctionNotProbeable": 1}}"#;
        let table = table(&[Report::parse(report).unwrap()], 7);
        assert!(
            table.contains("\n| c | 9 | 4 | 2 | 0 | 0 | 1 | 1 | 1 | 70 | 0 |\n"),
            "{table}"
        );
        assert!(table.contains("Refused: FunctionNotProbeable 1."), "{table}");
        assert!(table.starts_with("Seed 7."), "{table}");
    }
}
