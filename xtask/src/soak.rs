//! `cargo xtask soak`: random functions of real programs are probed under load. The tests are the privileged suite's
//! (`soak::`); here they probe more functions, and what became of them is a table.

use std::{collections::BTreeMap, fmt::Write as _, time::SystemTime};

use serde_json::Value;

use crate::{
    error::{Error, Result},
    fixtures,
    markdown::{self, Place},
    programs, setup, sh, workspace,
};

/// The programs, as the tests know them.
const PROGRAMS: &str = include_str!("../../profiler-daemon/tests/fixtures/soak/programs.json");
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

/// A program that is probed.
#[derive(Debug)]
struct Program {
    name: String,
    /// Debian's package of it; none where setup does not install it.
    package: Option<String>,
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

fn listed() -> Result<Vec<Program>> {
    let invalid = |why: &str| {
        Error::told(format!(
            "profiler-daemon/tests/fixtures/soak/programs.json: {why}"
        ))
    };
    let listed: Vec<Value> = serde_json::from_str(PROGRAMS).map_err(|error| invalid(&error.to_string()))?;
    let program = |entry: &Value| {
        Some(Program {
            name: entry["name"].as_str()?.to_owned(),
            package: entry["package"].as_str().map(str::to_owned),
        })
    };
    listed
        .iter()
        .map(|entry| program(entry).ok_or_else(|| invalid("a program without a name")))
        .collect()
}

/// Debian's packages of the programs.
pub fn packages() -> Result<Vec<String>> {
    Ok(listed()?
        .into_iter()
        .filter_map(|program| program.package)
        .collect())
}

/// Runs the subcommand.
pub fn main(arguments: &Arguments) -> Result<()> {
    let listed = listed()?;
    for name in &arguments.programs {
        if !listed.iter().any(|program| program.name == *name) {
            let names: Vec<&str> = listed.iter().map(|program| &*program.name).collect();
            return Err(Error::told(format!(
                "no program `{name}` is probed: there are {}",
                names.join(", ")
            )));
        }
    }
    if !sh::is_root() {
        return Err(Error::told(
            "attaching to processes needs root: run `cargo xtask soak` as root",
        ));
    }
    setup::install(setup::Programs::Installed)?;
    let seed = arguments.seed.unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        now.map_or(0, |now| u64::from(now.subsec_nanos()))
    });
    let tests = programs::build(&["privileged"])?;
    let fixtures = fixtures::compile()?;
    let mut reports = Vec::new();
    let mut result = Ok(());
    for test in &tests {
        let mut words = vec!["--ignored", "--test-threads=1", "--nocapture"];
        let names: Vec<String> = arguments
            .programs
            .iter()
            .map(|name| format!("soak::{name}"))
            .collect();
        if names.is_empty() {
            words.push("soak::");
        } else {
            words.push("--exact");
            words.extend(names.iter().map(String::as_str));
        }
        let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
        let mut command = test.command(&words);
        command
            .env("PROFILER_FIXTURES", &fixtures)
            .env("PROFILER_SOAK_SEED", seed.to_string())
            .env("PROFILER_SOAK_FUNCTIONS", arguments.functions.to_string());
        let ended = sh::tee(&mut command, "", |line| {
            reports.extend(Report::parse(line));
        });
        result = result.and(ended);
    }
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
    fn every_program_is_listed_once() {
        let mut names: Vec<String> = listed()
            .unwrap()
            .into_iter()
            .map(|program| program.name)
            .collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }

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
