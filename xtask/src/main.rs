//! Tasks of the project: `cargo xtask TASK`.

mod ebpf;
mod error;
mod sh;
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
    /// Rebuild the eBPF object that is committed beside its source
    Ebpf(ebpf::Arguments),
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
        Task::Ebpf(arguments) => ebpf::main(&arguments),
    }
}
