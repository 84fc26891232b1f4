//! `cargo xtask test`: everything that CI runs. Every step runs, whatever became of those before it.

mod changed;
mod report;
mod suites;
mod unsteady;

use std::path::PathBuf;

use crate::{
    ebpf,
    error::{Error, Result},
    fuzz, setup, sh, vm, workspace,
};
use changed::Selection;
use report::{Outcome, Report};

/// What `cargo xtask test` can do.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Leave out the virtual machines
    #[arg(long)]
    fast: bool,
    /// Run what a change can break, without the virtual machines, and say what is left out: of what differs from this
    /// commit, or of what is not committed yet
    #[arg(long, value_name = "COMMIT", num_args = 0..=1, default_missing_value = "HEAD", conflicts_with = "fast")]
    changed: Option<String>,
}

/// Runs the subcommand.
pub fn main(arguments: &Arguments) -> Result<()> {
    let selection = match &arguments.changed {
        Some(commit) => Selection::of_changed(&changed::files(commit)?),
        None if arguments.fast => Selection::without_machines(),
        None => Selection::everything(),
    };
    selection.print();
    let mut report = Report::new();
    run(&selection, &mut report);
    println!("\n{}", report.text());
    if report.is_good() {
        Ok(())
    } else {
        Err(Error::told("not everything passed: see the table above"))
    }
}

fn run(selection: &Selection, report: &mut Report) {
    report.step("setup", || {
        Outcome::of_check(setup::install(setup::Programs::LeftOut))
    });
    report.step("fmt", || Outcome::of_check(fmt()));
    if selection.rust {
        report.step("clippy", || {
            Outcome::of_check(cargo(&CLIPPY).and_then(|()| cargo(&LIGHT_CLIENT)))
        });
        report.step("build", || Outcome::of_check(cargo(&BUILD)));
    }
    let mut object = None;
    if selection.object {
        report.step("ebpf record", || {
            Outcome::of_check(ebpf::check(workspace::root()))
        });
        report.step("ebpf rebuild", || Outcome::of_check(rebuild(&mut object)));
    }
    if !selection.units.is_nothing() {
        report.step("unit and property tests", || suites::units(&selection.units));
    }
    // The next tests wait for most of their time.
    let targets = selection.fuzz.then(fuzz::Building::begin);
    if !selection.privileged.is_nothing() {
        let object = object.as_deref().filter(|_| selection.object);
        let mut privileged = None;
        report.step("privileged build", || {
            let prepared = suites::Privileged::prepare(object);
            Outcome::of_check(prepared.map(|prepared| privileged = Some(prepared)))
        });
        if let Some(privileged) = &privileged {
            report.steps_at_once(
                &suites::PRIVILEGED,
                |program| format!("suite {program}"),
                |program| suites::privileged(program, &selection.privileged, privileged),
                |program, first| suites::privileged_again(program, &selection.privileged, privileged, first),
            );
        }
    }
    if selection.machines {
        let machines = suites::machines(object.as_deref());
        report.steps_at_once(
            &vm::DEFAULT,
            |kernel| format!("vm {kernel}"),
            |kernel| suites::machine(kernel, &machines),
            |kernel, first| suites::machine_again(kernel, &machines, first),
        );
    }
    if let Some(targets) = targets {
        report.step("fuzz", || Outcome::of_check(targets.and_then(fuzz::short)));
    }
    if selection.rust {
        report.step("docs", || {
            Outcome::of_check(sh::run(sh::cargo().args(DOC).env("RUSTDOCFLAGS", "-D warnings")))
        });
    }
    if selection.licences {
        report.step("licences", || Outcome::of_check(licences()));
    }
}

const CLIPPY: [&str; 7] = [
    "clippy",
    "--workspace",
    "--all-targets",
    "--locked",
    "--",
    "-D",
    "warnings",
];
/// The client without the service: it links no part of a daemon.
const LIGHT_CLIENT: [&str; 8] = [
    "clippy",
    "--package=profiler-client",
    "--no-default-features",
    "--lib",
    "--bins",
    "--locked",
    "--",
    "-Dwarnings",
];
const BUILD: [&str; 4] = ["build", "--workspace", "--all-targets", "--locked"];
const DOC: [&str; 4] = ["doc", "--workspace", "--no-deps", "--locked"];

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
