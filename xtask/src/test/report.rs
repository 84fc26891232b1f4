//! The steps' outcomes, and the table at the end.

use std::{
    fmt::Write as _,
    time::{Duration, Instant},
};

use crate::{
    error::{Error, Result},
    libtest::Counts,
};

/// How a step ended.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    passed: u64,
    failed: u64,
    failure: Option<String>,
    /// Tests that failed, and passed when they were run again.
    unsteady: Vec<String>,
}

impl Outcome {
    /// A step that is one check in itself counts as one test.
    pub fn of_check(result: Result<()>) -> Self {
        match result {
            Ok(()) => Self {
                passed: 1,
                failed: 0,
                failure: None,
                unsteady: Vec::new(),
            },
            Err(error) => Self {
                passed: 0,
                failed: 1,
                failure: Some(error.to_string()),
                unsteady: Vec::new(),
            },
        }
    }

    /// A step that ran tests counts them; one that failed without a failed test, or that ran none at all,
    /// counts as one failed test.
    pub fn of_tests(counts: Counts, result: Result<()>) -> Self {
        let result = match result {
            Ok(()) if counts.passed + counts.failed == 0 => Err(Error::told("no test ran")),
            result => result,
        };
        let failure = result.err().map(|error| error.to_string());
        let failed = counts.failed.max(u64::from(failure.is_some()));
        Self {
            passed: counts.passed,
            failed,
            failure,
            unsteady: Vec::new(),
        }
    }

    /// Tests of which a few failed, and passed when they were run again by themselves. Each has a fault, or its subject
    /// has: they are in the table, by name.
    pub fn of_unsteady(mut counts: Counts, names: Vec<String>) -> Self {
        counts.passed += counts.failed;
        counts.failed = 0;
        Self {
            unsteady: names,
            ..Self::of_tests(counts, Ok(()))
        }
    }
}

/// All steps so far.
#[derive(Debug, Default)]
pub struct Report {
    steps: Vec<(String, Duration, Outcome)>,
}

impl Report {
    /// Runs a step, timed.
    pub fn step(&mut self, name: &str, run: impl FnOnce() -> Outcome) {
        println!("\n== {name}");
        let start = Instant::now();
        let outcome = run();
        if let Some(failure) = &outcome.failure {
            println!("== {name} FAILED: {failure}");
        }
        self.steps.push((name.to_owned(), start.elapsed(), outcome));
    }

    /// Whether nothing failed.
    pub fn is_good(&self) -> bool {
        self.steps.iter().all(|(_, _, outcome)| outcome.failed == 0)
    }

    /// A line a step, the failures in words, and the sum.
    pub fn table(&self) -> String {
        let width = self
            .steps
            .iter()
            .map(|(name, ..)| name.len())
            .max()
            .unwrap_or(0)
            .max("step".len());
        let mut text = format!(
            "{:width$}  {:>8}  {:>7}  {:>7}\n",
            "step", "seconds", "passed", "failed"
        );
        let (mut passed, mut failed, mut total) = (0, 0, Duration::ZERO);
        for (name, time, outcome) in &self.steps {
            let verdict = if outcome.failed == 0 { "" } else { "  FAILED" };
            let seconds = time.as_secs_f64();
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "{name:width$}  {seconds:8.1}  {:7}  {:7}{verdict}",
                outcome.passed, outcome.failed
            );
            passed += outcome.passed;
            failed += outcome.failed;
            total += *time;
        }
        let _ = writeln!(text, "{:width$}  {:8.1}", "all", total.as_secs_f64());
        for (name, _, outcome) in &self.steps {
            if let Some(failure) = &outcome.failure {
                let _ = writeln!(text, "{name}: {failure}");
            }
        }
        let mut unsteady = 0;
        for (name, _, outcome) in &self.steps {
            for test in &outcome.unsteady {
                let _ = writeln!(
                    text,
                    "{name}: UNSTEADY: {test} failed, and passed when it was run again"
                );
                unsteady += 1;
            }
        }
        let _ = write!(text, "{passed} passed, {failed} failed");
        if unsteady > 0 {
            let _ = write!(text, ", {unsteady} of those that passed only the second time");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(passed: u64, failed: u64) -> Counts {
        Counts {
            passed,
            failed,
            summaries: 1,
        }
    }

    #[test]
    fn tests_are_counted_one_by_one() {
        assert_eq!(
            Outcome::of_tests(counts(5, 0), Ok(())),
            Outcome {
                passed: 5,
                failed: 0,
                failure: None,
                unsteady: Vec::new()
            }
        );
        let failed = Outcome::of_tests(counts(5, 2), Err(Error::told("x")));
        assert_eq!((failed.passed, failed.failed), (5, 2));
    }

    #[test]
    fn a_failure_without_a_failed_test_counts() {
        assert_eq!(
            Outcome::of_tests(counts(5, 0), Err(Error::told("does not compile"))).failed,
            1
        );
        assert_eq!(Outcome::of_tests(Counts::default(), Ok(())).failed, 1);
        assert_eq!(Outcome::of_check(Err(Error::told("x"))).failed, 1);
    }

    #[test]
    fn the_last_line_is_the_sum() {
        let mut report = Report::default();
        report.step("fmt", || Outcome::of_check(Ok(())));
        report.step("unit tests", || Outcome::of_tests(counts(40, 0), Ok(())));
        assert!(report.is_good());
        assert_eq!(report.table().lines().last().unwrap(), "41 passed, 0 failed");
        report.step("vm 6.1", || {
            Outcome::of_tests(counts(9, 1), Err(Error::told("exit status 101")))
        });
        assert!(!report.is_good());
        let table = report.table();
        assert!(table.contains("vm 6.1: exit status 101\n"), "{table}");
        assert_eq!(table.lines().last().unwrap(), "50 passed, 1 failed");
    }

    #[test]
    fn what_passed_only_the_second_time_is_named() {
        let mut report = Report::default();
        report.step("unit tests", || {
            Outcome::of_unsteady(counts(38, 2), vec!["a::b".to_owned(), "c".to_owned()])
        });
        assert!(report.is_good());
        let table = report.table();
        assert!(
            table.contains("unit tests: UNSTEADY: a::b failed, and passed when it was run again\n"),
            "{table}"
        );
        assert_eq!(
            table.lines().last().unwrap(),
            "40 passed, 0 failed, 2 of those that passed only the second time"
        );
    }
}
