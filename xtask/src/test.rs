//! `cargo xtask test`: everything that CI runs. Every step runs, whatever became of those before it.

mod report;

use std::{path::PathBuf, time::Duration};

use crate::{
    ebpf,
    error::{Error, Result},
    fixtures, fuzz,
    libtest::{self, Counts},
    setup, sh,
    vm::{self, Tests},
    workspace,
};
use report::{Outcome, Report};

/// A machine emulates every instruction of the suite; this is several times what it takes.
const VM_LIMIT: Duration = Duration::from_mins(20);

/// Tests that are run again where no more of a step failed: most ask for what a machine does while it has other work too.
const AGAIN_MAX: usize = 3;

/// Where programs of several threads, or of one thread and an interrupt, come in between each other: what `preempt=full`
/// can change. These tests run on that kernel with it, and all others without.
const BESIDE_EACH_OTHER: [&str; 14] = [
    "by_value::",
    "counts::",
    "cycles::",
    "gate::",
    "gone::",
    "harm::",
    "hits::",
    "losses::",
    "many::",
    "off_cpu::",
    "spans::",
    "stacks::",
    "system_calls::",
    "waits::",
];

/// What `cargo xtask test` can do.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Leave out the virtual machines
    #[arg(long)]
    fast: bool,
}

/// Runs the subcommand.
pub fn main(arguments: &Arguments) -> Result<()> {
    let mut report = Report::default();
    report.step("setup", || check(setup::main()));
    report.step("fmt", || check(fmt()));
    report.step("clippy", || {
        check(cargo(&[
            "clippy",
            "--workspace",
            "--all-targets",
            "--locked",
            "--",
            "-D",
            "warnings",
        ]))
    });
    report.step("build", || {
        check(cargo(&["build", "--workspace", "--all-targets", "--locked"]))
    });
    report.step("ebpf record", || check(ebpf::check(workspace::root())));
    let mut object = None;
    report.step("ebpf rebuild", || check(rebuild(&mut object)));
    report.step("unit and property tests", || {
        tests(sh::cargo().args(["test", "--workspace", "--locked", "--no-fail-fast"]))
    });
    report.step("privileged suite", || privileged(object.as_ref()));
    if !arguments.fast {
        for kernel in vm::DEFAULT {
            report.step(&format!("vm {kernel}"), || machine(kernel, object.as_ref()));
        }
    }
    report.step("fuzz", || check(fuzz::short()));
    report.step("docs", || {
        check(sh::run(sh::cargo().args(DOC).env("RUSTDOCFLAGS", "-D warnings")))
    });
    report.step("licences", || check(licences()));
    println!("\n{}", report.table());
    if report.is_good() {
        Ok(())
    } else {
        Err(Error::told("not everything passed: see the table above"))
    }
}

const DOC: [&str; 4] = ["doc", "--workspace", "--no-deps", "--locked"];

/// The outcome of a step that is one check in itself.
fn check(result: Result<()>) -> Outcome {
    Outcome::of_check(result)
}

/// Runs a test command and counts what its harnesses report.
fn tests(command: &mut std::process::Command) -> Outcome {
    let (output, result) = sh::tee(command);
    Outcome::of_tests(libtest::count(&output), result)
}

/// A run of tests: what came of it, and the names of those that failed.
struct Run {
    counts: Counts,
    failed: Vec<String>,
    result: Result<()>,
}

/// Runs tests; if few fail, those once more by themselves.
fn twice(all: Tests, mut run: impl FnMut(Tests) -> Result<Run>) -> Outcome {
    let first = match run(all) {
        Ok(first) => first,
        Err(error) => return Outcome::of_check(Err(error)),
    };
    let names = first.failed;
    if names.is_empty() || names.len() > AGAIN_MAX || names.len() as u64 != first.counts.failed {
        return Outcome::of_tests(first.counts, first.result);
    }
    println!("\n== again, by themselves: {}", names.join(", "));
    match run(Tests::Named(names.clone())) {
        Ok(second) if second.result.is_ok() && second.counts.passed == names.len() as u64 => {
            Outcome::of_unsteady(first.counts, names)
        }
        _ => Outcome::of_tests(first.counts, first.result),
    }
}

fn cargo(arguments: &[&str]) -> Result<()> {
    sh::run(sh::cargo().args(arguments))
}

fn fmt() -> Result<()> {
    cargo(&["fmt", "--all", "--check"])?;
    cargo(&["fmt", "--manifest-path", "profiler-ebpf/Cargo.toml", "--check"])?;
    cargo(&["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"])
}

/// Rebuilds the eBPF object from source; the rebuilt one is what the suites test.
fn rebuild(object: &mut Option<PathBuf>) -> Result<()> {
    let rebuilt = ebpf::verify(workspace::root(), ebpf::Toolchain::Debian)?;
    println!("{}: {}", rebuilt.path.display(), rebuilt.comparison);
    *object = Some(rebuilt.path);
    Ok(())
}

fn privileged(object: Option<&PathBuf>) -> Outcome {
    twice(Tests::Containing(Vec::new()), |tests| {
        if !sh::is_root() {
            return Err(Error::told(
                "loading eBPF programs needs root: run `cargo xtask test` as root",
            ));
        }
        let object = object.ok_or_else(|| Error::told("there is no rebuilt eBPF object to test"))?;
        let mut command = sh::cargo();
        command
            .args(["test", "--locked", "--no-fail-fast"])
            .args(["-p", "profiler-daemon", "--test", "privileged"])
            .args(["-p", "profiler-client", "--test", "real"])
            .args(["--", "--ignored", "--test-threads=1"])
            .args(tests.arguments())
            .env("PROFILER_FIXTURES", fixtures::compile()?)
            .env("PROFILER_OBJECT", object);
        let (output, result) = sh::tee(&mut command);
        Ok(Run {
            counts: libtest::count(&output),
            failed: libtest::failed(&output),
            result,
        })
    })
}

fn machine(kernel: &str, object: Option<&PathBuf>) -> Outcome {
    let parts = BESIDE_EACH_OTHER.map(str::to_owned).to_vec();
    let with_preemption = |name: &str| vm::DEFAULT.contains(&format!("{name}-preempt").as_str());
    let all = if kernel.ends_with("-preempt") {
        Tests::Containing(parts)
    } else if with_preemption(kernel) {
        Tests::Without(parts)
    } else {
        Tests::Containing(Vec::new())
    };
    twice(all, |tests| {
        let object = object.ok_or_else(|| Error::told("there is no rebuilt eBPF object to test"))?;
        let suite = vm::Suite {
            program: vm::build_suite()?,
            object: Some(object.clone()),
            ignored: true,
            tests,
            beside: Vec::new(),
        };
        let mut reports = vm::run(&[kernel.to_owned()], &suite, VM_LIMIT)?;
        let report = reports
            .pop()
            .ok_or_else(|| Error::told("no machine was booted"))?;
        Ok(Run {
            counts: report.counts,
            // Tests that pass when they are run again say nothing of what the kernel complained of.
            failed: if report.complains() {
                Vec::new()
            } else {
                libtest::failed(&report.console.join("\n"))
            },
            result: report.failure.map_or(Ok(()), |failure| Err(Error::told(failure))),
        })
    })
}

fn licences() -> Result<()> {
    let deny = setup::cargo_deny()?;
    for manifest in ["Cargo.toml", "profiler-ebpf/Cargo.toml"] {
        let mut command = std::process::Command::new(&deny);
        command
            .current_dir(workspace::root())
            .args(["--manifest-path", manifest, "--locked", "check"])
            .args(["licenses", "bans", "sources"]);
        sh::run(&mut command)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(passed: u64, failed: &[&str]) -> Run {
        Run {
            counts: Counts {
                passed,
                failed: failed.len() as u64,
                summaries: 1,
            },
            failed: failed.iter().map(|&name| name.to_owned()).collect(),
            result: if failed.is_empty() {
                Ok(())
            } else {
                Err(Error::told("exit status 101"))
            },
        }
    }

    fn outcome(runs: Vec<Run>) -> (Outcome, Vec<Vec<String>>) {
        let mut asked = Vec::new();
        let mut runs = runs.into_iter();
        let outcome = twice(Tests::Containing(Vec::new()), |tests| {
            asked.push(tests.arguments());
            Ok(runs.next().unwrap())
        });
        (outcome, asked)
    }

    #[test]
    fn a_few_that_failed_are_run_again_by_themselves() {
        let (good, asked) = outcome(vec![run(9, &["a::b"]), run(1, &[])]);
        assert_eq!(asked, [vec![], vec!["--exact".to_owned(), "a::b".to_owned()]]);
        assert_eq!(
            good,
            Outcome::of_unsteady(run(9, &["a::b"]).counts, vec!["a::b".to_owned()])
        );
        let (bad, _) = outcome(vec![run(9, &["a::b"]), run(0, &["a::b"])]);
        assert_eq!(
            bad,
            Outcome::of_tests(run(9, &["a::b"]).counts, Err(Error::told("exit status 101")))
        );
    }

    #[test]
    fn many_that_failed_are_not() {
        let (bad, asked) = outcome(vec![run(9, &["a", "b", "c", "d"])]);
        assert_eq!(asked.len(), 1);
        assert_eq!(
            bad,
            Outcome::of_tests(
                run(9, &["a", "b", "c", "d"]).counts,
                Err(Error::told("exit status 101"))
            )
        );
    }
}
