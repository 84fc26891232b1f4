//! `cargo xtask bench`: what a call costs under probes, and what attaching and detaching take.
//!
//! Everything is measured in one run and interleaved, so that what disturbs the machine disturbs all cases
//! alike; what travels to other machines are the ratios.

mod against;
mod attacher;
mod bpftrace;
mod budget;
mod conditions;
mod daemon;
mod fixture;
mod machine;
mod stacks;
mod statistics;
mod switches;
mod table;

use crate::{
    error::{Error, Result},
    fixtures, markdown, sh, workspace,
};
use attacher::Attacher;
use bpftrace::Bpftrace;
use fixture::Fixture;
use table::{AttachRow, CallRow};

/// What `cargo xtask bench` can do.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub struct Arguments {
    /// Rounds over all cases
    #[arg(long, value_name = "N", default_value = "7", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Calls in each of the nine batches that make one figure
    #[arg(long, value_name = "N", default_value = "10000", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    calls: u32,
    /// Print the tables only: leave docs/measurements.md as it is
    #[arg(long)]
    print: bool,
    /// Measure what a sample's stack takes, in the kernel and after it
    #[arg(long, conflicts_with = "vm")]
    stacks: bool,
    /// Measure what a switch between threads takes while time off the CPU is looked at
    #[arg(long, conflicts_with_all = ["vm", "stacks"])]
    switches: bool,
    /// Measure what a line costs whose condition rejects every hit
    #[arg(long, conflicts_with_all = ["vm", "stacks", "switches"])]
    conditions: bool,
    /// Measure what was said beforehand of what probes cost, against what they did cost, and the budget
    #[arg(long, conflicts_with_all = ["vm", "stacks", "switches", "conditions"])]
    budget: bool,
    /// Measure this build and another one by turns: calls under probes, or what `--stacks`, `--switches` or `--conditions` say. The
    /// folder is the other's `target/release`, after `cargo build --release -p profiler-client -p profiler-daemon --bins
    /// --examples`. Prints ratios and leaves the docs as they are
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["vm", "budget"])]
    against: Option<std::path::PathBuf>,
    /// Measure what it is worth to do the probed instructions, in a virtual machine with this kernel
    #[arg(long, value_name = "KERNEL")]
    vm: Option<String>,
    /// In the machine: the programs that attach and that are attached to
    #[arg(long, hide = true, num_args = 2)]
    inside: Option<Vec<std::path::PathBuf>>,
}

/// How the calls are probed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Case {
    None,
    /// An empty program at entry and return: no tool that sees both can cost less.
    Floor,
    Ours,
    /// Ours, with every instruction left to the kernel.
    Stepped,
    /// Ours, with the sampler at so many Hz.
    Sampled(u32),
    Bpftrace,
}

const CASES: [Case; 6] = [
    Case::None,
    Case::Floor,
    Case::Ours,
    Case::Sampled(99),
    Case::Sampled(999),
    Case::Bpftrace,
];

/// What is measured in a virtual machine.
const MACHINE_CASES: [Case; 4] = [Case::None, Case::Floor, Case::Stepped, Case::Ours];

/// The fixture's functions, by the instruction that they begin with.
const FUNCTIONS: [(&str, &str); 4] = [
    ("push", "fn_push"),
    ("endbr64", "fn_endbr"),
    ("mov", "fn_mov"),
    ("sub", "fn_sub"),
];

/// Sets of functions to attach to, of the 10,000 of the fixture `many`.
const SETS: [(u32, &[&str]); 3] = [
    (1, &["many_0000"]),
    (100, &["many_00??"]),
    (2000, &["many_0???", "many_1???"]),
];

/// Runs the subcommand.
pub fn main(arguments: &Arguments) -> Result<()> {
    if !sh::is_root() {
        return Err(Error::told(
            "attaching probes needs root: run `cargo xtask bench` as root",
        ));
    }
    if let Some(programs) = &arguments.inside {
        return machine::inside(arguments, programs);
    }
    if let Some(other) = &arguments.against {
        return against::main(arguments, other);
    }
    if arguments.stacks {
        return stacks::main(arguments);
    }
    if arguments.switches {
        return switches::main(arguments);
    }
    if arguments.conditions {
        return conditions::main(arguments);
    }
    if arguments.budget {
        return budget::main(arguments);
    }
    let directory = fixtures::compile()?;
    let attacher = build_example("bench_attach")?;
    if let Some(kernel) = &arguments.vm {
        return machine::main(arguments, kernel, &attacher, &directory.join("calls"));
    }
    let calls = measure_calls(
        arguments,
        &CASES,
        &mut Attacher::start(&attacher)?,
        &directory.join("calls"),
    )?;
    let attach = measure_attach(
        arguments.rounds,
        &mut Attacher::start(&attacher)?,
        &directory.join("many"),
    )?;
    let text = table::markdown(&calls, &attach, &table::machine()?);
    finish(arguments, table::HERE, &text)
}

/// Shows a table, and puts it in its place.
fn finish(arguments: &Arguments, place: markdown::Place, text: &str) -> Result<()> {
    println!("\n{text}");
    if arguments.print {
        Ok(())
    } else {
        markdown::write_into(&workspace::root().join("docs/measurements.md"), place, text)
    }
}

/// Builds an example of the daemon's.
fn build_example(name: &str) -> Result<std::path::PathBuf> {
    sh::run(sh::cargo().args([
        "build",
        "--release",
        "--locked",
        "-p",
        "profiler-daemon",
        "--example",
        name,
    ]))?;
    Ok(workspace::target().join("release/examples").join(name))
}

fn measure_calls(
    arguments: &Arguments,
    cases: &[Case],
    attacher: &mut Attacher,
    program: &std::path::Path,
) -> Result<Vec<CallRow>> {
    let mut target = Fixture::start(program, &["bench"])?;
    let names: Vec<&str> = FUNCTIONS.iter().map(|(_, name)| *name).collect();
    let mut rows: Vec<_> = FUNCTIONS
        .iter()
        .map(|(first, _)| CallRow::new(first, cases.len()))
        .collect();
    for round in 1..=arguments.rounds {
        for (at, &case) in cases.iter().enumerate() {
            let pid = target.pid();
            let bpftrace = match case {
                Case::None => None,
                Case::Floor => attacher.attach("floor", pid, program, &names).map(|_| None)?,
                Case::Ours => attacher.attach("ours", pid, program, &names).map(|_| None)?,
                Case::Stepped => attacher.attach("stepped", pid, program, &names).map(|_| None)?,
                Case::Sampled(frequency_hz) => {
                    attacher.attach("ours", pid, program, &names)?;
                    attacher.sample(pid, frequency_hz)?;
                    None
                }
                Case::Bpftrace => Some(Bpftrace::attach(pid, program, &names)?),
            };
            for (row, name) in rows.iter_mut().zip(&names) {
                row.add(at, target.call(arguments.calls, name)?);
            }
            match bpftrace {
                Some(bpftrace) => bpftrace.detach()?,
                None if case == Case::None => {}
                None => attacher.detach().map(drop)?,
            }
        }
        println!("calls: round {round} of {}", arguments.rounds);
    }
    target.end()?;
    Ok(rows)
}

fn measure_attach(rounds: u32, attacher: &mut Attacher, program: &std::path::Path) -> Result<Vec<AttachRow>> {
    let target = Fixture::start(program, &["1"])?;
    let mut rows: Vec<_> = SETS.iter().map(|(count, _)| AttachRow::new(*count)).collect();
    for round in 1..=rounds {
        for (row, (count, globs)) in rows.iter_mut().zip(SETS) {
            for kind in ["floor", "ours"] {
                let probed = attacher.attach(kind, target.pid(), program, globs)?;
                if probed.functions != u64::from(count) {
                    return Err(Error::told(format!(
                        "{} functions were probed, not {count}",
                        probed.functions
                    )));
                }
                let detach_ms = attacher.detach()?;
                row.add(kind, probed.attach_ms, detach_ms);
            }
        }
        println!("attach and detach: round {round} of {rounds}");
    }
    target.end()?;
    Ok(rows)
}
