//! The steps that run test programs: here, and in virtual machines.

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use super::{
    changed::Choice,
    report::{Cause, Outcome, PassedAgain},
    unsteady::{self, Place, Unsteady},
};
use crate::{
    at_once,
    error::{Error, Result},
    fixtures, held_up,
    libtest::{Log, Timed},
    programs::{self, TestProgram},
    sh,
    vm::{self, Machines, Tests},
};

/// Tests that are run again where no more of a step failed.
const AGAIN_MAX: usize = 5;
/// How often they are, while they fail and the CPUs are kept from them.
const RUNS_AGAIN: usize = 3;

/// The programs of the privileged suite: the engine within the test, and the product's programs as processes.
pub const PRIVILEGED: [&str; 2] = ["privileged", "real"];

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
            held_up: Duration::ZERO,
        });
        run.result = run.result.and(result);
    }
    Outcome::of_tests(run.log, run.result)
}

/// Programs of the privileged suite, built, with what they start.
pub struct Privileged<'a> {
    programs: Vec<TestProgram>,
    fixtures: PathBuf,
    /// In place of the eBPF object that is embedded.
    object: Option<&'a Path>,
    /// Tests of all programs that have run.
    ran: AtomicU64,
}

impl<'a> Privileged<'a> {
    /// Builds them.
    pub fn prepare(object: Option<&'a Path>) -> Result<Self> {
        if !sh::is_root() {
            return Err(Error::told(
                "loading eBPF programs needs root: run `cargo xtask test` as root",
            ));
        }
        Ok(Self {
            programs: programs::build(&PRIVILEGED)?,
            fixtures: fixtures::compile()?,
            object,
            ran: AtomicU64::new(0),
        })
    }

    /// Runs tests of one program on the running kernel; what it prints stands behind this prefix.
    fn run(&self, program: &str, tests: &Tests, prefix: &str) -> Result<Run> {
        let program = self.programs.iter().find(|built| built.target == program);
        let program = program.ok_or_else(|| Error::told("the test program was not built"))?;
        let arguments = [
            &["--ignored", "--test-threads=1"].map(str::to_owned),
            &tests.arguments()[..],
        ];
        let mut command = program.timed_command(&arguments.concat());
        command.env("PROFILER_FIXTURES", &self.fixtures);
        if let Some(object) = self.object {
            command.env("PROFILER_OBJECT", object);
        }
        let mut run = Run::default();
        run.result = sh::tee(&mut command, prefix, |line| {
            run.log.read_live(line, held_up::stolen());
        });
        self.ran.fetch_add(run.tests(), Ordering::Relaxed);
        if run.log.counts().summaries == 0 {
            // Tests that pass when they are run again say nothing of a program that ended before its tests did.
            run.log.failed.clear();
        }
        Ok(run)
    }
}

/// Runs one of the programs of the privileged suite. Most of its tests wait for most of their time, so the other program runs
/// beside it.
pub fn privileged(program: &str, choice: &Choice, privileged: &Privileged<'_>) -> Result<Run> {
    let prefix = format!("[{program}] ");
    privileged.run(program, &choice.tests(), &prefix)
}

/// Runs what failed of it once more, with nothing beside it.
pub fn privileged_again(
    program: &str,
    choice: &Choice,
    privileged: &Privileged<'_>,
    first: Result<Run>,
) -> Outcome {
    let others_ran = privileged.ran.load(Ordering::Relaxed) > 0;
    if first.as_ref().is_ok_and(Run::has_no_test) && others_ran && *choice != Choice::All {
        // What was chosen is in the other program.
        return Outcome::default();
    }
    again(Place::Here, first, |tests| privileged.run(program, &tests, ""))
}

/// What was prepared for several steps, or why it could not be.
fn told<T>(prepared: &Result<T>) -> Result<&T> {
    prepared.as_ref().map_err(|error| Error::told(error.to_string()))
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
pub fn machine(kernel: &str, machines: &Result<Machines>) -> Result<Run> {
    in_machine(kernel, machines, &vm::part(kernel))
}

/// Runs what failed of it once more, in a machine that has the CPUs for itself.
pub fn machine_again(kernel: &str, machines: &Result<Machines>, first: Result<Run>) -> Outcome {
    let mut booted_again = match &first {
        Ok(run) => run.booted_again.clone(),
        Err(_) => Vec::new(),
    };
    let outcome = again(Place::Machines, first, |tests| {
        let run = in_machine(kernel, machines, &tests)?;
        booted_again.extend(run.booted_again.iter().cloned());
        Ok(run)
    });
    outcome.with_remarks(booted_again)
}

fn in_machine(kernel: &str, machines: &Result<Machines>, tests: &Tests) -> Result<Run> {
    let report = told(machines)?.run(kernel, tests, vm::LIMIT)?;
    let complains = report.complains();
    let mut log = report.log;
    if complains {
        // Tests that pass when they are run again say nothing of what the kernel complained of.
        log.failed.clear();
    }
    Ok(Run {
        log,
        result: report.failure.map_or(Ok(()), |failure| Err(Error::told(failure))),
        booted_again: report.booted_again,
    })
}

/// A run of tests: what it printed, and what came of it.
#[derive(Debug)]
pub struct Run {
    log: Log,
    result: Result<()>,
    /// Why its machine was booted again, each time.
    booted_again: Vec<String>,
}

impl Default for Run {
    fn default() -> Self {
        Self {
            log: Log::default(),
            result: Ok(()),
            booted_again: Vec::new(),
        }
    }
}

impl Run {
    /// How many tests ran, or said that they cannot.
    fn tests(&self) -> u64 {
        let counts = self.log.counts();
        counts.passed + counts.failed + counts.skipped
    }

    /// Whether it ended well, and none of its tests was asked for.
    fn has_no_test(&self) -> bool {
        self.result.is_ok() && self.log.counts().summaries > 0 && self.tests() == 0
    }

    /// How long a test took that failed, where its CPUs were kept from it.
    fn held_up(&self, test: &str) -> Option<&Timed> {
        let times = self.log.times.iter();
        times.rev().find(|timed| timed.test == test && timed.is_held_up())
    }
}

/// If few tests of a run failed, runs those once more by themselves, to tell what is unsteady from what is broken.
fn again(place: Place, first: Result<Run>, run: impl FnMut(Tests) -> Result<Run>) -> Outcome {
    let outcome = first.and_then(|first| Ok((first, unsteady::list(place)?)));
    match outcome {
        Ok((first, listed)) => again_with(first, &listed, run),
        Err(error) => Outcome::of_check(Err(error)),
    }
}

fn again_with(first: Run, listed: &[Unsteady], mut run: impl FnMut(Tests) -> Result<Run>) -> Outcome {
    let names = first.log.failed.clone();
    if names.is_empty() || names.len() > AGAIN_MAX || names.len() as u64 != first.log.counts().failed {
        return Outcome::of_tests(first.log, first.result);
    }
    let mut left: Vec<PassedAgain> = names.iter().map(|name| cause(name, &first, listed)).collect();
    let mut passed = Vec::new();
    for _ in 0..RUNS_AGAIN {
        let names: Vec<String> = left.iter().map(|again| again.test.clone()).collect();
        println!("\n== again, by themselves: {}", names.join(", "));
        let Ok(next) = run(Tests::Named(names)) else { break };
        let counts = next.log.counts();
        if counts.passed + next.log.failed.len() as u64 != left.len() as u64 {
            break;
        }
        let has_failed = |again: &PassedAgain| next.log.failed.contains(&again.test);
        let (failed, passed_now): (Vec<_>, Vec<_>) = left.drain(..).partition(has_failed);
        passed.extend(passed_now);
        left = failed;
        if left.is_empty() {
            return Outcome::of_passed_again(first.log, passed);
        }
        // A failure says nothing while the CPUs are kept from the test.
        if left.iter().any(|again| next.held_up(&again.test).is_none()) {
            break;
        }
    }
    Outcome::of_tests(first.log, first.result)
}

/// What may have made a test fail, should it pass when it is run again.
fn cause(test: &str, run: &Run, listed: &[Unsteady]) -> PassedAgain {
    let known = listed.iter().find(|known| known.is_of(test));
    let cause = match (run.held_up(test), known) {
        (Some(timed), _) => Cause::HeldUp(timed.clone()),
        (None, Some(known)) => Cause::Listed(known.clone()),
        (None, None) => Cause::Unknown,
    };
    PassedAgain {
        test: test.to_owned(),
        cause,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(passed: u64, failed: &[&str]) -> Run {
        run_held_up(passed, failed, Duration::ZERO)
    }

    /// A run each of whose tests took a second, and was held up for so long in it.
    fn run_held_up(passed: u64, failed: &[&str], held_up: Duration) -> Run {
        let mut log = Log::default();
        for (name, number) in failed.iter().zip(1..) {
            log.read_live(&format!("test {name} ... FAILED <1.000s>"), held_up * number);
        }
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
            booted_again: Vec::new(),
        }
    }

    fn outcome(runs: Vec<Run>) -> (Outcome, Vec<Vec<String>>) {
        let mut asked = Vec::new();
        let mut runs = runs.into_iter();
        let outcome = again_with(runs.next().unwrap(), &[], |tests| {
            asked.push(tests.arguments());
            Ok(runs.next().unwrap())
        });
        assert!(runs.next().is_none());
        (outcome, asked)
    }

    fn broken(run: Run) -> Outcome {
        Outcome::of_tests(run.log, Err(Error::told("exit status 101")))
    }

    #[test]
    fn a_few_that_failed_are_run_again_by_themselves() {
        let (unsteady, asked) = outcome(vec![run(9, &["a::b"]), run(1, &[])]);
        assert_eq!(asked, [["--exact", "a::b"]]);
        let again = |cause| {
            vec![PassedAgain {
                test: "a::b".to_owned(),
                cause,
            }]
        };
        let expected = Outcome::of_passed_again(run(9, &["a::b"]).log, again(Cause::Unknown));
        assert_eq!(unsteady, expected);
        let (bad, _) = outcome(vec![run(9, &["a::b"]), run(0, &["a::b"])]);
        assert_eq!(bad, broken(run(9, &["a::b"])));
        // Nor is it good that a program ends before its tests do.
        let (bad, _) = outcome(vec![run(9, &["a::b"]), run(0, &[])]);
        assert_eq!(bad, broken(run(9, &["a::b"])));
    }

    #[test]
    fn a_failure_counts_only_while_the_cpus_are_there() {
        let some = Duration::from_millis(60);
        let held_up = |passed, failed: &[&str]| run_held_up(passed, failed, some);
        let (good, asked) = outcome(vec![held_up(9, &["a", "b"]), held_up(1, &["b"]), run(1, &[])]);
        assert_eq!(asked, [vec!["--exact", "a", "b"], vec!["--exact", "b"]]);
        let again = |test: &str| PassedAgain {
            test: test.to_owned(),
            cause: Cause::HeldUp(Timed {
                test: test.to_owned(),
                duration: Duration::from_secs(1),
                held_up: some,
            }),
        };
        let expected = Outcome::of_passed_again(held_up(9, &["a", "b"]).log, vec![again("a"), again("b")]);
        assert_eq!(good, expected);
        let (bad, _) = outcome(vec![held_up(9, &["a"]), run(0, &["a"])]);
        assert_eq!(bad, broken(held_up(9, &["a"])));
        let (bad, asked) = outcome((0..=RUNS_AGAIN).map(|_| held_up(0, &["a"])).collect());
        assert_eq!(asked.len(), RUNS_AGAIN);
        assert_eq!(bad, broken(held_up(0, &["a"])));
    }

    #[test]
    fn of_two_programs_one_may_have_none_of_the_chosen_tests() {
        let mut privileged = Privileged {
            programs: Vec::new(),
            fixtures: PathBuf::new(),
            object: None,
            ran: AtomicU64::new(1),
        };
        let outcome = |privileged: &Privileged<'_>, choice: &Choice, first| {
            privileged_again("real", choice, privileged, Ok(first))
        };
        let chosen = Choice::Containing(["cycles::".to_owned()].into());
        assert_eq!(outcome(&privileged, &chosen, run(0, &[])), Outcome::default());
        let none = Outcome::of_tests(Log::default(), Ok(()));
        assert_eq!(outcome(&privileged, &Choice::All, run(0, &[])), none);
        assert_eq!(
            outcome(&privileged, &chosen, run(1, &[])),
            Outcome::of_tests(run(1, &[]).log, Ok(()))
        );
        // A program that ended before its tests did, and a choice that is in neither.
        assert_eq!(outcome(&privileged, &chosen, Run::default()), none);
        privileged.ran = AtomicU64::new(0);
        assert_eq!(outcome(&privileged, &chosen, run(0, &[])), none);
    }

    #[test]
    fn many_that_failed_are_not() {
        let many = ["a", "b", "c", "d", "e", "f"];
        let (bad, asked) = outcome(vec![run(9, &many)]);
        assert_eq!(asked, Vec::<Vec<String>>::new());
        assert_eq!(bad, broken(run(9, &many)));
    }
}
