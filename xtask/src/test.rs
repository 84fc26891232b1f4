//! `cargo xtask test`: everything that CI runs. Every step runs, whatever became of those before it.

mod report;

use std::{path::PathBuf, time::Duration};

use crate::{
    ebpf,
    error::{Error, Result},
    fixtures, fuzz, libtest, setup, sh, vm, workspace,
};
use report::{Outcome, Report};

/// A machine emulates every instruction of the suite; this is several times what it takes.
const VM_LIMIT: Duration = Duration::from_mins(20);

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
            report.step(&format!("vm {kernel}"), || machine(kernel, object.clone()));
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
    let suite = || {
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
            .env("PROFILER_FIXTURES", fixtures::compile()?)
            .env("PROFILER_OBJECT", object);
        Ok(command)
    };
    match suite() {
        Ok(mut command) => tests(&mut command),
        Err(error) => check(Err(error)),
    }
}

fn machine(kernel: &str, object: Option<PathBuf>) -> Outcome {
    let run = || {
        let object = Some(object.ok_or_else(|| Error::told("there is no rebuilt eBPF object to test"))?);
        let suite = vm::Suite {
            program: vm::build_suite()?,
            object,
            ignored: true,
        };
        vm::run(&[kernel.to_owned()], &suite, None, VM_LIMIT)
    };
    match run().map(|mut reports| reports.pop()) {
        Ok(Some(report)) => {
            let result = report
                .failure
                .as_ref()
                .map_or(Ok(()), |failure| Err(Error::told(failure.clone())));
            Outcome::of_tests(report.counts, result)
        }
        Ok(None) => check(Err(Error::told("no machine was booted"))),
        Err(error) => check(Err(error)),
    }
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
