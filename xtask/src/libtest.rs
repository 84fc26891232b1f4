//! Reads what Rust's test harness prints.

use std::time::Duration;

/// Lets a test program of a stable compiler say how long each test took: the harness has the flag, and asks for this
/// variable. Set for the program alone; for the compiler it would mean another build.
pub const REPORT_TIME: ReportTime = ReportTime {
    variable: ("RUSTC_BOOTSTRAP", "1"),
    arguments: ["-Zunstable-options", "--report-time"],
};

/// What makes a harness report times.
pub struct ReportTime {
    /// In the program's environment.
    pub variable: (&'static str, &'static str),
    /// Among its arguments.
    pub arguments: [&'static str; 2],
}

/// Tests counted from `test result:` lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Tests that passed.
    pub passed: u64,
    /// Tests that failed.
    pub failed: u64,
    /// Tests that said that they cannot run here.
    pub skipped: u64,
    /// Summaries seen: a run without one ended before its tests did.
    pub summaries: u64,
}

/// A test that said that it cannot run here.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Skipped {
    /// Why; first, so that a sorted list is grouped by it.
    pub reason: String,
    /// The test's name.
    pub test: String,
}

/// How long a test took, by the harness.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timed {
    /// The test's name.
    pub test: String,
    /// From its start to its end.
    pub duration: Duration,
    /// For how long its CPUs were kept from it meanwhile, all together.
    pub held_up: Duration,
}

impl Timed {
    /// Whether its CPUs were kept from it for so long that its clocks may not agree: a twentieth of its time.
    pub fn is_held_up(&self) -> bool {
        self.held_up * 20 >= self.duration
    }
}

/// A panic of a test's own thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Panic {
    /// The test's name.
    pub test: String,
    /// Where in the source: `tests/a.rs:12:5`.
    pub place: String,
    /// The first line of what it says, and the two sides of a comparison.
    pub message: String,
}

/// What runs of test programs printed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Log {
    /// By the harnesses' summaries, which know nothing of tests that were skipped.
    harness: Counts,
    /// Those that failed, by the lists at the ends of all runs.
    pub failed: Vec<String>,
    /// Those that did not run.
    pub skipped: Vec<Skipped>,
    /// What each took, where the harness says so.
    pub times: Vec<Timed>,
    /// Why tests failed, where a panic of the test's own thread says so.
    pub panics: Vec<Panic>,
    /// How many of those skipped are of programs that have ended.
    skipped_before: usize,
    /// For how long the CPUs were kept from the tests: by now, and as the last test ended.
    held_up: Duration,
    held_up_before: Duration,
    /// The test whose result is still to come: what it prints past the harness stands between its name and its result.
    running: Option<String>,
    is_list_of_failed: bool,
    /// The last line began a panic, whose message is still to come.
    is_panic_begun: bool,
    /// Sides of a comparison that may follow the last line.
    sides_to_come: u8,
}

impl Log {
    /// Reads more of an output, from the beginning of a line on.
    pub fn read_all(&mut self, output: &str) {
        for line in output.lines() {
            self.read(line);
        }
    }

    /// Reads one more line as it comes: until then, the CPUs were kept from the tests for so long.
    pub fn read_live(&mut self, line: &str, held_up: Duration) {
        self.held_up = held_up;
        self.read(line);
    }

    /// Reads one more line.
    pub fn read(&mut self, line: &str) {
        if let Some(summary) = summary(line) {
            self.harness.passed += summary.passed;
            self.harness.failed += summary.failed;
            self.harness.summaries += 1;
            self.skipped_before = self.skipped.len();
        }
        if let Some(skipped) = skipped(line) {
            // Of a test that lacks several things, the first is told.
            let since = &self.skipped[self.skipped_before..];
            if since.iter().all(|other| other.test != skipped.test) {
                self.skipped.push(skipped);
            }
        }
        if line.starts_with("running ") {
            self.held_up_before = self.held_up;
        }
        self.read_time(line);
        self.read_panic(line);
        match line.strip_prefix("    ") {
            Some(name) if self.is_list_of_failed && is_name(name) => self.failed.push(name.to_owned()),
            // The details before the list have the same heading, and an empty line behind it.
            _ => self.is_list_of_failed = line == "failures:",
        }
    }

    /// Tests by how they ended: who said that it cannot run has not passed.
    pub fn counts(&self) -> Counts {
        // The harness knows nothing of these: in its summary they have passed, unless they failed after all.
        let is_skipped = |skipped: &&Skipped| !self.failed.contains(&skipped.test);
        let skipped = self.skipped.iter().filter(is_skipped).count() as u64;
        Counts {
            passed: self.harness.passed.saturating_sub(skipped),
            skipped,
            ..self.harness
        }
    }

    /// Reads `thread 'NAME' (1234) panicked at tests/a.rs:12:5:`, the message's first line after it, and the two sides of a
    /// comparison, which come next.
    fn read_panic(&mut self, line: &str) {
        let is_side = match std::mem::take(&mut self.sides_to_come) {
            2 if line.starts_with("  left: ") => true,
            1 => line.starts_with(" right: "),
            _ => false,
        };
        if let Some(panic) = self.panics.last_mut().filter(|_| is_side) {
            self.sides_to_come = u8::from(line.starts_with("  left: "));
            panic.message.push_str("; ");
            panic.message.push_str(line.trim_start());
            return;
        }
        if std::mem::take(&mut self.is_panic_begun)
            && let Some(panic) = self.panics.last_mut()
        {
            line.clone_into(&mut panic.message);
            self.sides_to_come = 2;
            return;
        }
        let begun = line.split_once("thread '").and_then(|(_, rest)| {
            let (test, rest) = rest.split_once('\'')?;
            let (_, place) = rest.split_once(" panicked at ")?;
            is_name(test).then(|| (test, place.trim_end_matches(':')))
        });
        if let Some((test, place)) = begun {
            self.is_panic_begun = true;
            self.panics.push(Panic {
                test: test.to_owned(),
                place: place.to_owned(),
                message: String::new(),
            });
        }
    }

    /// Reads `test NAME ... ok <1.234s>`, which may be parted by what the test itself printed.
    fn read_time(&mut self, line: &str) {
        let begun = line
            .strip_prefix("test ")
            .and_then(|rest| rest.split_once(" ... "))
            .filter(|(name, _)| is_name(name));
        let end = match begun {
            Some((name, rest)) => {
                self.running = Some(name.to_owned());
                rest
            }
            None => line,
        };
        let Some(duration) = ["ok <", "FAILED <"]
            .into_iter()
            .find_map(|word| end.strip_prefix(word)?.strip_suffix("s>")?.parse().ok())
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        else {
            return;
        };
        if let Some(test) = self.running.take() {
            let held_up = self.held_up.saturating_sub(self.held_up_before);
            self.held_up_before = self.held_up;
            self.times.push(Timed {
                test,
                duration,
                held_up,
            });
        }
    }
}

fn is_name(name: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || "_:".contains(c);
    !name.is_empty() && name.chars().all(is_word)
}

/// Reads `skipped NAME: REASON`, as `testkit::skipped` prints it.
fn skipped(line: &str) -> Option<Skipped> {
    // On a machine's console, a kernel message may stand before it.
    let (_, rest) = line.split_once("skipped ")?;
    let (test, reason) = rest.split_once(": ")?;
    (is_name(test) && !reason.is_empty()).then(|| Skipped {
        test: test.to_owned(),
        reason: reason.to_owned(),
    })
}

/// Reads one line such as `test result: ok. 12 passed; 1 failed; 0 ignored; 0 measured; 3 filtered out; …`.
fn summary(line: &str) -> Option<Counts> {
    // A console line can carry what came before on the same line; the marker decides.
    let (_, rest) = line.split_once("test result: ")?;
    let (_verdict, numbers) = rest.split_once(". ")?;
    let number = |word: &str| {
        numbers
            .split(';')
            .find_map(|part| part.trim().strip_suffix(word))
            .and_then(|number| number.trim().parse().ok())
    };
    Some(Counts {
        passed: number(" passed")?,
        failed: number(" failed")?,
        skipped: 0,
        summaries: 1,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(output: &str) -> Log {
        let mut log = Log::default();
        log.read_all(output);
        log
    }

    fn counts(output: &str) -> Counts {
        of(output).counts()
    }

    #[test]
    fn summaries_add_up() {
        let output = "running 2 tests\ntest a ... ok\ntest b ... FAILED\n\n\
             test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s\n\
             test result: ok. 40 passed; 0 failed; 3 ignored; 0 measured; 2 filtered out; finished in 1.20s\n";
        assert_eq!(
            counts(output),
            Counts {
                passed: 41,
                failed: 1,
                skipped: 0,
                summaries: 2
            }
        );
    }

    #[test]
    fn a_line_that_only_looks_alike_counts_nothing() {
        assert_eq!(
            counts("test result: ok.\ntest result: ok. x passed; 1 failed\nskipped \nskipped a b: c\n"),
            Counts::default()
        );
    }

    #[test]
    fn a_panic_is_told_with_its_place_and_the_first_line_of_its_message() {
        let log = of(
            "---- a::b stdout ----\n\nthread 'a::b' (77) panicked at tests/a.rs:3:5:\nleft is 3\n  left: 3\n right: 4\nmore\n\n\
             [    1.5] thread 'a::b' panicked at tests/a.rs:9:5:\nanother\n\
             thread '<unnamed>' (78) panicked at tests/a.rs:1:1:\nof no test\n",
        );
        let first = Panic {
            test: "a::b".to_owned(),
            place: "tests/a.rs:3:5".to_owned(),
            message: "left is 3; left: 3; right: 4".to_owned(),
        };
        let second = Panic {
            place: "tests/a.rs:9:5".to_owned(),
            message: "another".to_owned(),
            ..first.clone()
        };
        assert_eq!(log.panics, [first, second]);
    }

    #[test]
    fn failed_tests_are_those_of_the_lists() {
        let output = "running 3 tests\ntest a::b ... FAILED\ntest c ... ok\n\nfailures:\n\n---- a::b stdout ----\n\n    \
             at ./tests/a.rs:5:1\n    indented\n\n\nfailures:\n    a::b\n    d_2\n\ntest result: FAILED. 1 passed; 2 failed; \
             0 ignored\n    later\nfailures:\n    e\n";
        assert_eq!(of(output).failed, ["a::b", "d_2", "e"]);
        assert_eq!(of("test a ... ok\n").failed, Vec::<String>::new());
    }

    #[test]
    fn a_test_that_was_skipped_has_not_passed() {
        let output = "running 2 tests\ntest a::b ... \nskipped a::b: needs Linux 6.10\nskipped a::b: twice\nok <0.010s>\ntest c ... ok <1.5s>\n\n\
             test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n";
        let log = of(output);
        assert_eq!(
            log.counts(),
            Counts {
                passed: 1,
                failed: 0,
                skipped: 1,
                summaries: 1
            }
        );
        assert_eq!(
            log.skipped,
            [Skipped {
                reason: "needs Linux 6.10".to_owned(),
                test: "a::b".to_owned()
            }]
        );
    }

    #[test]
    fn times_are_those_that_the_harness_says() {
        let timed = |test: &str, ms| Timed {
            test: test.to_owned(),
            duration: Duration::from_millis(ms),
            held_up: Duration::ZERO,
        };
        let output = "test a::b ... \nskipped a::b: why\nok <0.010s>\ntest c ... FAILED <1.500s>\ntest d ... ok\n\
             test e ... ignored\nok <2.000s>\n";
        let log = of(output);
        assert_eq!(log.times[..2], [timed("a::b", 10), timed("c", 1500)]);
    }

    #[test]
    fn a_test_was_held_up_since_the_one_before_ended() {
        let mut log = Log::default();
        let lines = [
            ("running 3 tests", 500),
            ("test a ... ok <1.000s>", 520),
            ("test b ... ", 530),
            ("more", 600),
            ("FAILED <1.000s>", 620),
            ("test c ... ok <1.000s>", 669),
        ];
        for (line, held_up_ms) in lines {
            log.read_live(line, Duration::from_millis(held_up_ms));
        }
        let held_up: Vec<(u128, bool)> = log
            .times
            .iter()
            .map(|timed| (timed.held_up.as_millis(), timed.is_held_up()))
            .collect();
        assert_eq!(held_up, [(20, false), (100, true), (49, false)]);
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in any::<String>()) {
            of(&text).counts();
        }

        #[test]
        fn any_numbers_are_read(passed in 0..u64::from(u32::MAX), failed in 0..u64::from(u32::MAX)) {
            let line = format!("\u{1b}[32mtest result: ok. {passed} passed; {failed} failed; 0 ignored");
            prop_assert_eq!(counts(&line), Counts { passed, failed, skipped: 0, summaries: 1 });
        }
    }
}
