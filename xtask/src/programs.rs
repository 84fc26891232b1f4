//! The workspace's test programs, as cargo builds them.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    error::{Error, Result},
    libtest::REPORT_TIME,
    sh, workspace,
};

/// A program of Rust's test harness.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestProgram {
    /// Its package's directory, from the repository's root; cargo runs its tests there.
    pub package: PathBuf,
    /// The target: a library, a binary, or a file or folder under `tests/`.
    pub target: String,
    /// The executable.
    pub path: PathBuf,
}

impl TestProgram {
    /// As it is called in what is printed: `profiler-daemon privileged`.
    pub fn name(&self) -> String {
        format!("{} {}", self.package.display(), self.target)
    }

    /// Runs it.
    pub fn command(&self, arguments: &[String]) -> Command {
        let mut command = Command::new(&self.path);
        command
            .current_dir(workspace::root().join(&self.package))
            .args(arguments);
        command
    }

    /// Runs it, and has it say what each test takes. Not for programs whose tests run the compiler: it would inherit the
    /// variable, and have unstable defaults.
    pub fn timed_command(&self, arguments: &[String]) -> Command {
        let mut command = self.command(arguments);
        let (name, value) = REPORT_TIME.variable;
        command.env(name, value).args(REPORT_TIME.arguments);
        command
    }
}

/// Builds the test programs of these targets, or of all where none is named, with everything that they start.
///
/// Always of the whole workspace: of one package alone, cargo would choose other features for what it depends on, and
/// compile all of that once more.
pub fn build(targets: &[&str]) -> Result<Vec<TestProgram>> {
    let mut command = sh::cargo();
    command.args([
        "test",
        "--workspace",
        "--locked",
        "--no-run",
        "--message-format=json-render-diagnostics",
    ]);
    for target in targets {
        command.args(["--test", target]);
    }
    let programs = parse(&sh::read_in_sight(&mut command)?, workspace::root());
    for target in targets {
        if !programs.iter().any(|program| program.target == *target) {
            return Err(Error::told(format!(
                "cargo named no program for the test `{target}`"
            )));
        }
    }
    Ok(programs)
}

/// The test programs in cargo's JSON messages.
fn parse(messages: &str, root: &Path) -> Vec<TestProgram> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["profile"]["test"] == true)
        .filter_map(|message| {
            let manifest = Path::new(message["manifest_path"].as_str()?);
            let package = manifest.parent()?.strip_prefix(root).ok()?;
            Some(TestProgram {
                package: package.to_owned(),
                target: message["target"]["name"].as_str()?.to_owned(),
                path: PathBuf::from(message["executable"].as_str()?),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_programs_are_found_among_cargos_messages() {
        let messages = concat!(
            r#"{"manifest_path":"/r/a/Cargo.toml","target":{"name":"privileged"},"profile":{"test":false},"executable":"/no"}"#,
            "\nnot json\n",
            r#"{"manifest_path":"/r/a/Cargo.toml","target":{"name":"privileged"},"profile":{"test":true},"executable":"/t/p-1"}"#,
            "\n",
            r#"{"manifest_path":"/r/b/Cargo.toml","target":{"name":"b"},"profile":{"test":true},"executable":null}"#,
            "\n",
        );
        let programs = parse(messages, Path::new("/r"));
        let expected = TestProgram {
            package: PathBuf::from("a"),
            target: "privileged".to_owned(),
            path: PathBuf::from("/t/p-1"),
        };
        assert_eq!(programs, [expected]);
        assert_eq!(programs[0].name(), "a privileged");
    }
}
