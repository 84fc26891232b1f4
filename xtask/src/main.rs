//! Tasks of the project: `cargo xtask TASK`.

mod at_once;
mod bench;
mod demo;
#[cfg(test)]
mod dependencies;
mod ebpf;
mod error;
mod fixtures;
mod fuzz;
mod held_up;
mod libtest;
#[cfg(test)]
mod links;
mod markdown;
#[cfg(test)]
mod named_in_docs;
mod oracle;
mod programs;
mod protocol;
mod real_programs;
mod setup;
mod sh;
mod soak;
mod test;
mod vm;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "Builds, tests and measures the project")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Install what is missing for the other tasks
    Setup(setup::Arguments),
    /// Rebuild the eBPF object that is committed beside its source
    Ebpf(ebpf::Arguments),
    /// Profile the demo server: live latency, slow.svg, diff.svg
    Demo(demo::Arguments),
    /// Measure what probes cost, and write it into docs/measurements.md
    Bench(bench::Arguments),
    /// Compile the programs that the privileged suite uses as targets
    Fixtures,
    /// Feed damaged files and texts to the daemon's readers
    Fuzz(fuzz::Arguments),
    /// Hold what is said of random scopes of real servers against bpftrace's trace of the same calls
    Oracle(oracle::Arguments),
    /// Hold the protocol against buf's rules, and against the released one
    Protocol(protocol::Arguments),
    /// Run everything that CI runs
    Test(test::Arguments),
    /// Probe random functions of real programs, whose answers have to stay as they are
    Soak(soak::Arguments),
    /// Run the privileged suite on other kernels, in virtual machines
    Vm(vm::Arguments),
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> error::Result<()> {
    ebpf::wrapper::become_rustc_if_asked()?;
    match Arguments::parse().task {
        Task::Setup(arguments) => setup::main(&arguments),
        Task::Ebpf(arguments) => ebpf::main(&arguments),
        Task::Demo(arguments) => demo::main(&arguments),
        Task::Bench(arguments) => bench::main(&arguments),
        Task::Fixtures => fixtures::compile().map(drop),
        Task::Fuzz(arguments) => fuzz::main(&arguments),
        Task::Oracle(arguments) => oracle::main(&arguments),
        Task::Protocol(arguments) => protocol::main(&arguments),
        Task::Test(arguments) => test::main(&arguments),
        Task::Soak(arguments) => soak::main(&arguments),
        Task::Vm(arguments) => vm::main(&arguments),
    }
}
