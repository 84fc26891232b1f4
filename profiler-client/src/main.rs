//! `profiler`: the command line.

use std::process::ExitCode;

use profiler_client::{cli, run};
use profiler_target::environment;

fn main() -> ExitCode {
    environment::distrust();
    match cli::parse() {
        Ok((host, request)) => run::run(host, request),
        Err(exit) => exit,
    }
}
