//! The steps that run test programs: here, and in virtual machines.

use std::{path::Path, time::Instant};

use super::{
    changed::Choice,
    report::Outcome,
    unsteady::{self, Place, Unsteady},
};
use crate::{
    at_once,
    error::{Error, Result},
    fixtures,
    libtest::{Log, Timed},
    programs, sh,
    vm::{self, Machines, Tests},
};

/// Tests that are run again where no more of a step failed.
const AGAIN_MAX: usize = 3;

/// The programs of the privileged suite: the engine within the test, and the product's programs as processes.
const PRIVILEGED: [&str; 2] = ["privileged", "real"];

/// Runs what needs no privileges, several programs at once: most of them wait for compilers, or have one test that takes
/// longest.
pub fn units(choice: &Choice) -> Outcome {
    let mut programs = match programs::build(&[]) {
        Ok(programs) => programs,
        Err(error) => return Outcome::of_check(Err(error)),
    };
    programs.retain(|program| choice.has(&program.name()));
    let outputs = at_once::map(&programs, |program| {
        let start = Instant::now();
        let (output, result) = sh::gather(&mut program.command(&[]));
        println!("\n-- {}\n{}", program.name(), output.trim());
        (output, result, start.elapsed())
    });
    let mut run = Run::default();
    for (program, (output, result, duration)) in programs.iter().zip(outputs) {
        run.log.read_all(&output);
        run.log.times.push(Timed {
            test: program.name(),
            duration,
        });
        run.result = run.result.and(result);
    }
    Outcome::of_tests(run.log, run.result)
}

/// Runs the privileged suite on the running kernel; with this eBPF object, if any, in place of the embedded one.
pub fn privileged(choice: &Choice, object: Option<&Path>) -> Outcome {
    let prepare = || {
        if !sh::is_root() {
            return Err(Error::told(
                "loading eBPF programs needs root: run `cargo xtask test` as root",
            ));
        }
        Ok((programs::build(&PRIVILEGED)?, fixtures::compile()?))
    };
    let (programs, fixtures) = match prepare() {
        Ok(prepared) => prepared,
        Err(error) => return Outcome::of_check(Err(error)),
    };
    twice(Place::Here, choice.tests(), |tests| {
        let mut run = Run::default();
        let mut is_whole = true;
        for program in &programs {
            let arguments = [
                &["--ignored", "--test-threads=1"].map(str::to_owned),
                &tests.arguments()[..],
            ];
            let mut command = program.timed_command(&arguments.concat());
            command.env("PROFILER_FIXTURES", &fixtures);
            if let Some(object) = object {
                command.env("PROFILER_OBJECT", object);
            }
            let (output, result) = sh::tee(&mut command);
            let summaries = run.log.counts().summaries;
            run.log.read_all(&output);
            is_whole &= run.log.counts().summaries > summaries;
            run.result = run.result.and(result);
        }
        if !is_whole {
            // Tests that pass when they are run again say nothing of a program that ended before its tests did.
            run.log.failed.clear();
        }
        Ok(run)
    })
}

/// Builds what the machines run; with this eBPF object in place of the embedded one.
pub fn machines(object: Option<&Path>) -> Result<Machines> {
    let object = object.ok_or_else(|| Error::told("there is no rebuilt eBPF object to test"))?;
    Machines::prepare(&vm::Suite {
        program: vm::build_suite()?,
        object: Some(object.to_owned()),
        ignored: true,
        beside: Vec::new(),
    })
}

/// Runs the kernel's part of the privileged suite in a machine.
pub fn machine(kernel: &str, machines: &Result<Machines>) -> Outcome {
    let machines = match machines {
        Ok(machines) => machines,
        Err(error) => return Outcome::of_check(Err(Error::told(error.to_string()))),
    };
    twice(Place::Machines, vm::part(kernel), |tests| {
        let report = machines.run(kernel, &tests, vm::LIMIT)?;
        let complains = report.complains();
        let mut log = report.log;
        if complains {
            // Tests that pass when they are run again say nothing of what the kernel complained of.
            log.failed.clear();
        }
        Ok(Run {
            log,
            result: report.failure.map_or(Ok(()), |failure| Err(Error::told(failure))),
        })
    })
}

/// A run of tests: what it printed, and what came of it.
struct Run {
    log: Log,
    result: Result<()>,
}

impl Default for Run {
    fn default() -> Self {
        Self {
            log: Log::default(),
            result: Ok(()),
        }
    }
}

/// Runs tests; if few fail, those once more by themselves, to tell what is unsteady from what is broken.
fn twice(place: Place, all: Tests, run: impl FnMut(Tests) -> Result<Run>) -> Outcome {
    match unsteady::list(place) {
        Ok(listed) => twice_with(all, &listed, run),
        Err(error) => Outcome::of_check(Err(error)),
    }
}

fn twice_with(all: Tests, listed: &[Unsteady], mut run: impl FnMut(Tests) -> Result<Run>) -> Outcome {
    let first = match run(all) {
        Ok(first) => first,
        Err(error) => return Outcome::of_check(Err(error)),
    };
    let names = first.log.failed.clone();
    if names.is_empty() || names.len() > AGAIN_MAX || names.len() as u64 != first.log.counts().failed {
        return Outcome::of_tests(first.log, first.result);
    }
    println!("\n== again, by themselves: {}", names.join(", "));
    match run(Tests::Named(names.clone())) {
        Ok(second) if second.result.is_ok() && second.log.counts().passed == names.len() as u64 => {
            Outcome::of_unsteady(first.log, &names, listed)
        }
        _ => Outcome::of_tests(first.log, first.result),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(passed: u64, failed: &[&str]) -> Run {
        let mut log = Log::default();
        log.read("failures:");
        for name in failed {
            log.read(&format!("    {name}"));
        }
        log.read(&format!(
            "test result: ok. {passed} passed; {} failed; 0 ignored",
            failed.len()
        ));
        Run {
            log,
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
        let outcome = twice_with(Tests::Containing(Vec::new()), &[], |tests| {
            asked.push(tests.arguments());
            Ok(runs.next().unwrap())
        });
        (outcome, asked)
    }

    fn broken(run: Run) -> Outcome {
        Outcome::of_tests(run.log, Err(Error::told("exit status 101")))
    }

    #[test]
    fn a_few_that_failed_are_run_again_by_themselves() {
        let (unsteady, asked) = outcome(vec![run(9, &["a::b"]), run(1, &[])]);
        assert_eq!(asked, [vec![], vec!["--exact".to_owned(), "a::b".to_owned()]]);
        let expected = Outcome::of_unsteady(run(9, &["a::b"]).log, &["a::b".to_owned()], &[]);
        assert_eq!(unsteady, expected);
        let (bad, _) = outcome(vec![run(9, &["a::b"]), run(0, &["a::b"])]);
        assert_eq!(bad, broken(run(9, &["a::b"])));
    }

    #[test]
    fn many_that_failed_are_not() {
        let (bad, asked) = outcome(vec![run(9, &["a", "b", "c", "d"])]);
        assert_eq!(asked.len(), 1);
        assert_eq!(bad, broken(run(9, &["a", "b", "c", "d"])));
    }
}
