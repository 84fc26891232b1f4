//! Tests of the privileged suite on real programs under load, with other figures than the suite's own.

use std::{path::PathBuf, time::SystemTime};

use serde_json::Value;

use crate::{
    error::{Error, Result},
    fixtures,
    programs::{self, TestProgram},
    setup, sh,
};

/// The programs, as the tests know them.
const PROGRAMS: &str = include_str!("../../profiler-daemon/tests/fixtures/soak/programs.json");

/// A program that is probed.
#[derive(Debug)]
struct Program {
    name: String,
    /// Debian's package of it; none where setup does not install it.
    package: Option<String>,
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

/// What random choices begin with where nobody says it.
pub fn any_seed() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |now| u64::from(now.subsec_nanos()))
}

/// Tests of a module, ready to run.
pub struct Tests {
    programs: Vec<TestProgram>,
    fixtures: PathBuf,
    /// Arguments of the test programs.
    words: Vec<String>,
}

impl Tests {
    /// Those of a module, of these programs or, where none is named, of all: installs and builds what they need, but for those of
    /// the workspace's own programs, which are `own`.
    pub fn prepare(module: &str, names: &[String], own: &[&str]) -> Result<Self> {
        let listed = listed()?;
        for name in names {
            let mut known = listed
                .iter()
                .map(|program| &*program.name)
                .chain(own.iter().copied());
            if !known.any(|known| known == name) {
                let names: Vec<&str> = listed
                    .iter()
                    .map(|program| &*program.name)
                    .chain(own.iter().copied())
                    .collect();
                return Err(Error::told(format!(
                    "no program `{name}` is probed: there are {}",
                    names.join(", ")
                )));
            }
        }
        if !sh::is_root() {
            return Err(Error::told(format!(
                "attaching to processes needs root: run `cargo xtask {module}` as root"
            )));
        }
        setup::install(setup::Programs::Installed)?;
        let mut words: Vec<String> = ["--ignored", "--test-threads=1", "--nocapture"]
            .map(str::to_owned)
            .into();
        if names.is_empty() {
            words.push(format!("{module}::"));
        } else {
            words.push("--exact".to_owned());
            words.extend(names.iter().map(|name| format!("{module}::{name}")));
        }
        Ok(Self {
            programs: programs::build(&["privileged"])?,
            fixtures: fixtures::compile()?,
            words,
        })
    }

    /// Runs them, with numbers in their environment. Each line that they print is told.
    pub fn run(&self, variables: &[(&str, u64)], mut told: impl FnMut(&str)) -> Result<()> {
        let mut result = Ok(());
        for program in &self.programs {
            let mut command = program.command(&self.words);
            command.env("PROFILER_FIXTURES", &self.fixtures);
            for (name, number) in variables {
                command.env(name, number.to_string());
            }
            result = result.and(sh::tee(&mut command, "", &mut told));
        }
        result
    }
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
}
