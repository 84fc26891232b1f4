//! `profiler`: the command line.

use std::process::ExitCode;

use profiler_client::{cli, run};

fn main() -> ExitCode {
    match cli::parse() {
        Ok((host, request)) => run::run(host, request),
        Err(exit) => exit,
    }
}
