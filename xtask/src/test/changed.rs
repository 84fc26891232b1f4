//! Which steps and tests a change can break.
//!
//! The rules know folders, not the code: what they choose is enough for daily work, and what they leave out is said.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use crate::{error::Result, sh, vm::Tests, workspace};

/// Some of the things that have names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// All of them.
    All,
    /// Those whose names contain one of these.
    Containing(BTreeSet<String>),
}

impl Choice {
    const fn nothing() -> Self {
        Self::Containing(BTreeSet::new())
    }

    /// Whether none is chosen.
    pub fn is_nothing(&self) -> bool {
        matches!(self, Self::Containing(parts) if parts.is_empty())
    }

    /// Whether one is chosen.
    pub fn has(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Containing(parts) => parts.iter().any(|part| name.contains(part)),
        }
    }

    /// As tests of a suite.
    pub fn tests(&self) -> Tests {
        match self {
            Self::All => Tests::containing(Vec::new()),
            Self::Containing(parts) => Tests::containing(parts.iter().cloned().collect()),
        }
    }

    fn add(&mut self, part: &str) {
        if let Self::Containing(parts) = self {
            parts.insert(part.to_owned());
        }
    }

    fn add_all(&mut self, parts: &[String]) {
        for part in parts {
            self.add(part);
        }
    }
}

/// The steps to run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a step, which runs or does not"
)]
pub struct Selection {
    /// What compiles and documents the workspace.
    pub rust: bool,
    /// The eBPF object, compared with its source and tested as it is rebuilt.
    pub object: bool,
    /// Test programs that need no privileges.
    pub units: Choice,
    /// Tests of the privileged suite.
    pub privileged: Choice,
    /// That suite in the virtual machines.
    pub machines: bool,
    /// The readers of damaged files.
    pub fuzz: bool,
    /// What may be built upon.
    pub licences: bool,
}

impl Selection {
    /// What CI runs.
    pub fn everything() -> Self {
        Self {
            rust: true,
            object: true,
            units: Choice::All,
            privileged: Choice::All,
            machines: true,
            fuzz: true,
            licences: true,
        }
    }

    /// All that runs on this kernel.
    pub fn without_machines() -> Self {
        Self {
            machines: false,
            ..Self::everything()
        }
    }

    const fn nothing() -> Self {
        Self {
            rust: false,
            object: false,
            units: Choice::nothing(),
            privileged: Choice::nothing(),
            machines: false,
            fuzz: false,
            licences: false,
        }
    }

    /// What a change of these files, by their paths from the repository's root, can break. The machines take too long for
    /// daily work and are left out.
    pub fn of_changed(paths: &[String]) -> Self {
        let mut selection = Self::nothing();
        for path in paths {
            selection.add(path);
        }
        selection
    }

    fn add(&mut self, path: &str) {
        let parts: Vec<&str> = path.split('/').collect();
        match parts[..] {
            [.., name] if Path::new(name).extension().is_some_and(|ending| ending == "md") => {
                self.units.add("profiler-client cli");
                // The links of all pages, and the list of the book's.
                self.units.add("xtask xtask");
                if name == "SECURITY.md" {
                    // Its tables are held against what the daemon answers.
                    self.privileged.add("matrix::");
                }
            }
            ["docs" | "web", ..] | ["LICENSE-APACHE" | "LICENSE-MIT" | ".gitignore"] => {}
            ["profiler-daemon", "tests", "privileged", name] | ["profiler-client", "tests", "real", name] => {
                self.rust = true;
                match name.strip_suffix(".rs") {
                    Some(module) if has_tests(path) => self.privileged.add(&format!("{module}::")),
                    // What others are made of.
                    _ => self.privileged = Choice::All,
                }
            }
            ["profiler-daemon", "tests", "fixtures", "soak", ..] => {
                self.rust = true;
                self.units.add("xtask ");
                self.privileged.add("soak::");
                self.privileged.add("oracle::");
            }
            ["profiler-daemon", "tests", "fixtures", "engine", ..] | ["crates", "testkit", ..] => {
                self.rust = true;
                self.privileged = Choice::All;
            }
            [
                package @ ("profiler-daemon" | "profiler-client" | "demo"),
                "tests",
                name,
                ..,
            ] => self.add_test(path, package, name),
            ["crates", name, "tests", test, ..] => self.add_test(path, &package(name), test),
            ["crates", _, "src", ..] => {
                self.rust = true;
                self.units = Choice::All;
                self.privileged = Choice::All;
                self.fuzz = true;
            }
            ["xtask", ..] => {
                self.rust = true;
                self.units.add("xtask ");
            }
            ["demo", ..] => {
                self.rust = true;
                self.units.add("demo ");
            }
            ["profiler-client", "src", ..] => {
                self.rust = true;
                self.units.add("profiler-client ");
                // The tests of the client's programs, whose modules are not those of the engine's.
                self.privileged.add_all(&modules("profiler-client/tests/real"));
            }
            ["profiler-daemon", "src", ..] => {
                self.rust = true;
                self.units.add("profiler-daemon ");
                self.units.add("profiler-client ");
                self.privileged = Choice::All;
            }
            ["fuzz", ..] => self.fuzz = true,
            // The programs, what both sides share, the messages, and whatever is not known here.
            _ => *self = Self::without_machines(),
        }
    }

    /// A test program's source, or what it is made of.
    fn add_test(&mut self, path: &str, package: &str, name: &str) {
        self.rust = true;
        match name.strip_suffix(".rs").unwrap_or(name) {
            // Of more than one program, or gone.
            "fixtures" | "support" => self.units.add(&format!("{package} ")),
            _ if !workspace::root().join(path).exists() => self.units.add(&format!("{package} ")),
            target => self.units.add(&format!("{package} {target}")),
        }
    }

    /// Says what runs and what does not.
    pub fn print(&self) {
        if *self == Self::everything() {
            return;
        }
        let steps = [
            (self.rust, "clippy, build, docs"),
            (self.object, "ebpf record and rebuild"),
            (self.fuzz, "fuzz"),
            (self.licences, "licences"),
            (self.machines, "virtual machines (`cargo xtask vm`)"),
        ];
        let mut left_out: Vec<String> = Vec::new();
        for (name, choice) in [
            ("test programs", &self.units),
            ("tests of the privileged suite", &self.privileged),
        ] {
            match choice {
                Choice::All => {}
                Choice::Containing(parts) if parts.is_empty() => left_out.push(format!("all {name}")),
                Choice::Containing(parts) => {
                    let parts: Vec<&str> = parts.iter().map(|part| part.trim_end()).collect();
                    left_out.push(format!("{name} other than {}", parts.join(", ")));
                }
            }
        }
        left_out.extend(
            steps
                .iter()
                .filter(|(runs, _)| !runs)
                .map(|(_, name)| (*name).to_owned()),
        );
        println!("left out: {}", left_out.join("; "));
    }
}

/// The package of a folder in `crates`.
fn package(folder: &str) -> String {
    format!("profiler-{}", folder.replace('_', "-"))
}

/// Whether a source file has tests of its own.
fn has_tests(path: &str) -> bool {
    fs::read_to_string(workspace::root().join(path)).is_ok_and(|text| text.contains("#[test]"))
}

/// The modules of a test program that have tests, as their tests' names begin.
fn modules(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(workspace::root().join(folder)).into_iter().flatten();
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names
        .filter(|name| has_tests(&format!("{folder}/{name}")))
        .filter_map(|name| Some(format!("{}::", name.strip_suffix(".rs")?)))
        .collect()
}

/// The files that differ from a commit, and those that git does not know yet.
pub fn files(commit: &str) -> Result<Vec<String>> {
    let git = |arguments: &[&str]| {
        let output = sh::read(Command::new("git").current_dir(workspace::root()).args(arguments))?;
        Ok(output.lines().map(str::to_owned).collect::<Vec<_>>())
    };
    let mut files = git(&["diff", "--name-only", "--no-renames", commit, "--"])?;
    files.extend(git(&["ls-files", "--others", "--exclude-standard"])?);
    println!("{} files differ from {commit}", files.len());
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(paths: &[&str]) -> Selection {
        let paths: Vec<String> = paths.iter().map(|&path| path.to_owned()).collect();
        Selection::of_changed(&paths)
    }

    fn parts(parts: &[&str]) -> Choice {
        Choice::Containing(parts.iter().map(|&part| part.to_owned()).collect())
    }

    #[test]
    fn a_test_is_run_by_itself() {
        let selection = of(&[
            "profiler-daemon/tests/privileged/waits.rs",
            "profiler-client/tests/real/node.rs",
            "crates/plan/tests/values/compare.rs",
        ]);
        assert_eq!(selection.privileged, parts(&["waits::", "node::"]));
        assert_eq!(selection.units, parts(&["profiler-plan values"]));
        assert!(selection.rust && !selection.fuzz && !selection.machines);
    }

    #[test]
    fn what_tests_share_runs_all_of_them() {
        let selection = of(&["profiler-daemon/tests/privileged/service.rs"]);
        assert_eq!(selection.privileged, Choice::All);
        let selection = of(&["profiler-daemon/tests/privileged/main.rs"]);
        assert_eq!(selection.privileged, Choice::All);
    }

    #[test]
    fn code_runs_what_depends_on_it() {
        let selection = of(&["crates/debug_files/src/lib.rs"]);
        assert_eq!(
            (
                selection.privileged,
                selection.units,
                selection.fuzz,
                selection.object
            ),
            (Choice::All, Choice::All, true, false)
        );
        let selection = of(&["profiler-daemon/src/session/mod.rs"]);
        assert!(selection.units.has("profiler-client cli") && !selection.units.has("profiler-plan values"));
        assert!(selection.privileged == Choice::All && !selection.fuzz);
        let selection = of(&["profiler-client/src/main.rs"]);
        assert!(selection.privileged.has("verbs::flame_graphs_show_waits"));
        assert!(!selection.privileged.has("cycles::a"));
        assert!(selection.units.has("profiler-client cli") && !selection.units.has("profiler-daemon values"));
        assert_eq!(package("debug_files"), "profiler-debug-files");
    }

    #[test]
    fn what_is_not_known_runs_everything_here() {
        for path in [
            "profiler-ebpf/src/main.rs",
            "proto/profiler/v1/profiler.proto",
            "new/thing",
        ] {
            assert_eq!(
                of(&[path, "docs/cli.svg"]),
                Selection::without_machines(),
                "{path}"
            );
        }
    }

    #[test]
    fn pages_run_what_reads_them() {
        let selection = of(&["docs/verbs/flame.md"]);
        assert_eq!(selection.units, parts(&["profiler-client cli", "xtask xtask"]));
        assert!(!selection.rust && selection.privileged.is_nothing());
    }

    #[test]
    fn pictures_run_nothing() {
        assert_eq!(of(&["docs/diff.svg"]), Selection::nothing());
        assert!(of(&[]).units.is_nothing());
    }
}
