//! A socket echo server to profile: one thread a connection (`blocking`) or tokio tasks (`async`), a few percent
//! of requests on a slow path through functions of their own, and the load generator that goes with them.
//!
//! Both variants call the same plain function `handle_request` once a request and make the same reads and
//! writes, so that what a profiler says of one can be held against the other, and against the figures that the
//! server prints of itself.

mod address;
mod args;
mod asynchronous;
mod blocking;
mod calls;
mod cpus;
mod error;
mod generator;
mod handler;
mod journal;
mod load;
mod pace;
mod rebuild;
mod report;
mod request;
mod served;
mod stop;
mod switches;

use std::process::ExitCode;

use args::{Command, Validated};
use clap::Parser as _;
use error::Error;

fn main() -> ExitCode {
    let result = args::Arguments::parse().validate().and_then(run);
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever reads the figures has gone: there is nobody to tell.
        Err(Error::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("demo: {error}");
            if error.is_usage() {
                ExitCode::from(2)
            } else {
                ExitCode::FAILURE
            }
        }
    }
}

/// Runs one command until its time is up, a signal asks for its end, or it fails.
///
/// Signals are blocked before the first thread starts, so that every thread inherits the mask and only the main
/// thread, in [`stop::Signals::wait`], ever sees one.
fn run(arguments: Validated) -> Result<(), Error> {
    let signals = stop::Signals::block()?;
    if let Some(cpus) = &arguments.cpus {
        cpus.apply()?;
    }
    let output = report::Output { json: arguments.json };
    match arguments.command {
        Command::Blocking(server) => {
            generator::serve::<blocking::Server>(server, arguments.duration, &signals, output)
        }
        Command::Async(server) => {
            generator::serve::<asynchronous::Server>(server, arguments.duration, &signals, output)
        }
        Command::Load(load) => load::run(&load, arguments.duration, &signals, output),
        Command::Calls(calls) => calls::run(calls, arguments.duration, &signals, output),
    }
}
