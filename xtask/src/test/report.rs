//! The steps' outcomes, and the table at the end.

use std::{
    fmt::Write as _,
    time::{Duration, Instant},
};

use super::unsteady::{self, Unsteady};
use crate::{
    at_once,
    error::{Error, Result},
    libtest::{Counts, Log, Panic, Skipped, Timed},
};

/// Tests of a step that are named with what they took.
const SLOWEST: usize = 20;

/// Characters of a failed test's message that the report repeats.
const MESSAGE_MAX: usize = 400;

/// How a step ended.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    passed: u64,
    failed: u64,
    skipped: Vec<Skipped>,
    times: Vec<Timed>,
    failure: Option<String>,
    /// Why tests failed.
    panics: Vec<Panic>,
    /// Tests that failed, and passed when they were run again.
    passed_again: Vec<PassedAgain>,
    /// What else is to be known of it.
    remarks: Vec<String>,
}

/// A test that failed, and passed when it was run again by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassedAgain {
    /// Its name.
    pub test: String,
    /// What may have made it fail.
    pub cause: Cause,
}

/// What may have made a test fail that passed when it was run again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// Its CPUs were kept from it, each time that it failed; as it was the first time.
    HeldUp(Timed),
    /// It is known to fail now and then.
    Listed(Unsteady),
    /// A fault of its own or of its subject.
    Unknown,
}

impl PassedAgain {
    fn line(&self) -> String {
        let Self { test, cause } = self;
        match cause {
            Cause::HeldUp(Timed {
                duration, held_up, ..
            }) => format!(
                "HELD UP: {test} failed while its CPUs were kept from it for {:.2} s of {:.2} s, and passed when it was run again",
                held_up.as_secs_f64(),
                duration.as_secs_f64()
            ),
            Cause::Listed(known) => format!(
                "UNSTEADY: {test} failed, and passed when it was run again (known since {}: {})",
                known.since, known.reason
            ),
            Cause::Unknown => {
                format!("UNSTEADY: {test} failed, and passed when it was run again (not known)")
            }
        }
    }
}

impl Outcome {
    /// A step that is one check in itself counts as one test.
    pub fn of_check(result: Result<()>) -> Self {
        match result {
            Ok(()) => Self {
                passed: 1,
                ..Self::default()
            },
            Err(error) => Self {
                failed: 1,
                failure: Some(error.to_string()),
                ..Self::default()
            },
        }
    }

    /// A step that ran tests counts them; one that failed without a failed test, or that ran none at all,
    /// counts as one failed test.
    pub fn of_tests(log: Log, result: Result<()>) -> Self {
        let Counts {
            passed,
            failed,
            skipped,
            summaries: _,
        } = log.counts();
        let result = match result {
            Ok(()) if passed + failed + skipped == 0 => Err(Error::told("no test ran")),
            result => result,
        };
        let failure = result.err().map(|error| error.to_string());
        Self {
            passed,
            failed: failed.max(u64::from(failure.is_some())),
            skipped: log.skipped,
            times: log.times,
            panics: log.panics,
            failure,
            passed_again: Vec::new(),
            remarks: Vec::new(),
        }
    }

    /// The same, with what else is to be known of it: that fails nothing.
    pub fn with_remarks(self, remarks: Vec<String>) -> Self {
        Self { remarks, ..self }
    }

    /// Tests of which a few failed, and passed when they were run again by themselves. Where the cause is not known, the
    /// test has a fault, or its subject has: it fails the step.
    pub fn of_passed_again(log: Log, passed_again: Vec<PassedAgain>) -> Self {
        let is_unknown = |again: &&PassedAgain| again.cause == Cause::Unknown;
        let unknown = passed_again.iter().filter(is_unknown).count() as u64;
        let all = Self::of_tests(log, Ok(()));
        Self {
            passed: all.passed + all.failed - unknown,
            failed: unknown,
            failure: (unknown > 0).then(|| {
                format!(
                    "{unknown} failed, and passed when run again: mend them; or list them in {} with what is known",
                    unsteady::LIST
                )
            }),
            passed_again,
            ..all
        }
    }
}

/// A step that has ended.
#[derive(Debug)]
struct Step {
    name: String,
    duration: Duration,
    outcome: Outcome,
}

impl Step {
    fn run(name: String, run: impl FnOnce() -> Outcome) -> Self {
        println!("\n== {name}");
        let start = Instant::now();
        let outcome = run();
        Self::end(name, start.elapsed(), outcome)
    }

    fn end(name: String, duration: Duration, outcome: Outcome) -> Self {
        if let Some(failure) = &outcome.failure {
            println!("== {name} FAILED: {failure}");
        }
        Self {
            name,
            duration,
            outcome,
        }
    }
}

/// All steps so far.
#[derive(Debug)]
pub struct Report {
    start: Instant,
    steps: Vec<Step>,
}

impl Report {
    /// Without a step.
    pub fn new() -> Self {
        Self {
            start: Instant::now(),
            steps: Vec::new(),
        }
    }

    /// Runs a step, timed.
    pub fn step(&mut self, name: &str, run: impl FnOnce() -> Outcome) {
        self.steps.push(Step::run(name.to_owned(), run));
    }

    /// Runs a step for each of these: its first part beside those of others, what is left of it by itself once those
    /// have ended.
    pub fn steps_at_once<T: Sync, First: Send>(
        &mut self,
        items: &[T],
        name: impl Fn(&T) -> String + Sync,
        first: impl Fn(&T) -> First + Sync,
        last: impl Fn(&T, First) -> Outcome,
    ) {
        let begun = at_once::map(items, |item| {
            println!("\n== {}", name(item));
            let start = Instant::now();
            let first = first(item);
            (first, start.elapsed())
        });
        for (item, (first, duration)) in items.iter().zip(begun) {
            let start = Instant::now();
            let outcome = last(item, first);
            let step = Step::end(name(item), duration + start.elapsed(), outcome);
            self.steps.push(step);
        }
    }

    /// Whether nothing failed.
    pub fn is_good(&self) -> bool {
        self.steps.iter().all(|step| step.outcome.failed == 0)
    }

    /// The slowest tests of each step, those that were skipped by reason, a line a step, the failures in words, and
    /// the sum.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for step in &self.steps {
            write_slowest(&mut text, step);
        }
        for step in &self.steps {
            write_skipped(&mut text, step);
        }
        self.write_table(&mut text);
        for Step { name, outcome, .. } in &self.steps {
            if let Some(failure) = &outcome.failure {
                say(&mut text, format_args!("{name}: {failure}"));
            }
        }
        for Step { name, outcome, .. } in &self.steps {
            for Panic { test, place, message } in &outcome.panics {
                let message = shortened(message, MESSAGE_MAX);
                say(&mut text, format_args!("{name}: {test} at {place}: {message}"));
            }
            for again in &outcome.passed_again {
                say(&mut text, format_args!("{name}: {}", again.line()));
            }
            for remark in &outcome.remarks {
                say(&mut text, format_args!("{name}: {remark}"));
            }
        }
        let sum =
            |count: fn(&Outcome) -> u64| self.steps.iter().map(|step| count(&step.outcome)).sum::<u64>();
        let _ = write!(
            text,
            "{} passed, {} failed, {} skipped",
            sum(|outcome| outcome.passed),
            sum(|outcome| outcome.failed),
            sum(|outcome| outcome.skipped.len() as u64),
        );
        text
    }

    fn write_table(&self, text: &mut String) {
        let names = self.steps.iter().map(|step| step.name.len());
        let width = names.max().unwrap_or(0).max("step".len());
        say(
            text,
            format_args!(
                "{:width$}  {:>8}  {:>7}  {:>7}  {:>7}",
                "step", "seconds", "passed", "failed", "skipped"
            ),
        );
        for Step {
            name,
            duration,
            outcome,
        } in &self.steps
        {
            let verdict = if outcome.failed == 0 { "" } else { "  FAILED" };
            let (seconds, skipped) = (duration.as_secs_f64(), outcome.skipped.len());
            let Outcome { passed, failed, .. } = outcome;
            say(
                text,
                format_args!("{name:width$}  {seconds:8.1}  {passed:7}  {failed:7}  {skipped:7}{verdict}"),
            );
        }
        let all = self.start.elapsed().as_secs_f64();
        say(text, format_args!("{:width$}  {all:8.1}", "all"));
    }
}

/// The beginning of a text.
fn shortened(text: &str, characters: usize) -> &str {
    text.char_indices()
        .nth(characters)
        .map_or(text, |(at, _)| &text[..at])
}

/// Writes the tests of a step that took longest.
fn write_slowest(text: &mut String, step: &Step) {
    let mut times: Vec<&Timed> = step.outcome.times.iter().collect();
    if times.is_empty() {
        return;
    }
    times.sort_by_key(|timed| std::cmp::Reverse(timed.duration));
    let all: Duration = times.iter().map(|timed| timed.duration).sum();
    let held_up: Duration = times.iter().map(|timed| timed.held_up).sum();
    times.truncate(SLOWEST);
    say(
        text,
        format_args!(
            "{}: the slowest {} of {}, which take {:.1} s in all, and wait for a CPU for {:.1} s of it; in seconds",
            step.name,
            times.len(),
            step.outcome.times.len(),
            all.as_secs_f64(),
            held_up.as_secs_f64()
        ),
    );
    for Timed { test, duration, .. } in times {
        say(text, format_args!("{:8.1}  {test}", duration.as_secs_f64()));
    }
    text.push('\n');
}

/// Writes the tests of a step that were skipped, by the reason.
fn write_skipped(text: &mut String, step: &Step) {
    let mut skipped: Vec<&Skipped> = step.outcome.skipped.iter().collect();
    skipped.sort();
    for same in skipped.chunk_by(|one, other| one.reason == other.reason) {
        let names: Vec<&str> = same.iter().map(|skipped| &*skipped.test).collect();
        say(
            text,
            format_args!("{}: skipped: {}: {}", step.name, same[0].reason, names.join(", ")),
        );
    }
}

/// Writes a line.
fn say(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(output: &str) -> Log {
        let mut log = Log::default();
        log.read_all(output);
        log
    }

    /// What a harness prints of so many tests.
    fn log(passed: u64, failed: u64) -> Log {
        of(&format!(
            "test result: ok. {passed} passed; {failed} failed; 0 ignored\n"
        ))
    }

    fn last_line(report: &Report) -> String {
        report.text().lines().last().unwrap().to_owned()
    }

    #[test]
    fn tests_are_counted_one_by_one() {
        let good = Outcome::of_tests(log(5, 0), Ok(()));
        assert_eq!((good.passed, good.failed, good.failure), (5, 0, None));
        let failed = Outcome::of_tests(log(5, 2), Err(Error::told("x")));
        assert_eq!((failed.passed, failed.failed), (5, 2));
    }

    #[test]
    fn a_failure_without_a_failed_test_counts() {
        assert_eq!(
            Outcome::of_tests(log(5, 0), Err(Error::told("does not compile"))).failed,
            1
        );
        assert_eq!(Outcome::of_tests(Log::default(), Ok(())).failed, 1);
        assert_eq!(Outcome::of_check(Err(Error::told("x"))).failed, 1);
    }

    #[test]
    fn the_last_line_is_the_sum() {
        let mut report = Report::new();
        report.step("fmt", || Outcome::of_check(Ok(())));
        report.step("unit tests", || Outcome::of_tests(log(40, 0), Ok(())));
        assert!(report.is_good());
        assert_eq!(last_line(&report), "41 passed, 0 failed, 0 skipped");
        report.step("vm 6.1", || {
            Outcome::of_tests(log(9, 1), Err(Error::told("exit status 101")))
        });
        assert!(!report.is_good());
        let text = report.text();
        assert!(text.contains("vm 6.1: exit status 101\n"), "{text}");
        assert_eq!(last_line(&report), "50 passed, 1 failed, 0 skipped");
    }

    #[test]
    fn the_slowest_tests_of_a_step_are_named_and_those_skipped_by_reason() {
        let mut report = Report::new();
        report.step("vm 6.1", || {
            let output = "test quick ... ok <0.100s>\nskipped b: needs Linux 6.10\nskipped a: needs Linux 6.10\n\
                 test slow ... ok <2.500s>\ntest result: ok. 4 passed; 0 failed; 0 ignored\n";
            Outcome::of_tests(of(output), Ok(()))
        });
        let text = report.text();
        assert!(text.contains("     2.5  slow\n     0.1  quick\n"), "{text}");
        assert!(
            text.contains("vm 6.1: skipped: needs Linux 6.10: a, b\n"),
            "{text}"
        );
        assert_eq!(last_line(&report), "2 passed, 0 failed, 2 skipped");
    }

    #[test]
    fn only_what_is_listed_or_was_held_up_may_pass_the_second_time() {
        let again = |test: &str, cause| PassedAgain {
            test: test.to_owned(),
            cause,
        };
        let known = || {
            Cause::Listed(Unsteady {
                test: "c".to_owned(),
                place: unsteady::Place::Machines,
                reason: "a timer".to_owned(),
                since: "2026-11-24".to_owned(),
            })
        };
        let held_up = Cause::HeldUp(Timed {
            test: "d".to_owned(),
            duration: Duration::from_secs(2),
            held_up: Duration::from_millis(620),
        });
        let mut report = Report::new();
        report.step("vm 6.1", || {
            Outcome::of_passed_again(log(38, 2), vec![again("c", known()), again("d", held_up)])
        });
        assert!(report.is_good());
        let text = report.text();
        for line in [
            "UNSTEADY: c failed, and passed when it was run again (known since 2026-11-24: a timer)\n",
            "HELD UP: d failed while its CPUs were kept from it for 0.62 s of 2.00 s, and passed when it was run again\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
        assert_eq!(last_line(&report), "40 passed, 0 failed, 0 skipped");
        report.step("vm 6.12", || {
            let passed_again = vec![again("a::b", Cause::Unknown), again("c", known())];
            Outcome::of_passed_again(log(38, 2), passed_again)
        });
        assert!(!report.is_good());
        assert_eq!(last_line(&report), "79 passed, 1 failed, 0 skipped");
    }
}
