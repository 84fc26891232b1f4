//! Reads what Rust's test harness prints.

use std::ops::AddAssign;

/// Tests counted from `test result:` lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Tests that passed.
    pub passed: u64,
    /// Tests that failed.
    pub failed: u64,
    /// Summaries seen: a run without one ended before its tests did.
    pub summaries: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        let Self {
            passed,
            failed,
            summaries,
        } = other;
        self.passed += passed;
        self.failed += failed;
        self.summaries += summaries;
    }
}

/// Adds up all summaries in a run's output.
pub fn count(output: &str) -> Counts {
    let mut counts = Counts::default();
    for one in output.lines().filter_map(summary) {
        counts += one;
    }
    counts
}

/// The names of the tests that failed, by the lists at the ends of all runs in an output.
pub fn failed(output: &str) -> Vec<String> {
    let is_name = |name: &str| {
        let is_word = |c: char| c.is_ascii_alphanumeric() || "_:".contains(c);
        !name.is_empty() && name.chars().all(is_word)
    };
    let mut names = Vec::new();
    let mut is_list = false;
    for line in output.lines() {
        match line.strip_prefix("    ") {
            Some(name) if is_list && is_name(name) => names.push(name.to_owned()),
            // The details before the list have the same heading, and an empty line behind it.
            _ => is_list = line == "failures:",
        }
    }
    names
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
        summaries: 1,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn summaries_add_up() {
        let output = "running 2 tests\ntest a ... ok\ntest b ... FAILED\n\n\
             test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s\n\
             test result: ok. 40 passed; 0 failed; 3 ignored; 0 measured; 2 filtered out; finished in 1.20s\n";
        assert_eq!(
            count(output),
            Counts {
                passed: 41,
                failed: 1,
                summaries: 2
            }
        );
    }

    #[test]
    fn a_line_that_only_looks_alike_counts_nothing() {
        assert_eq!(
            count("test result: ok.\ntest result: ok. x passed; 1 failed\n"),
            Counts::default()
        );
    }

    #[test]
    fn failed_tests_are_those_of_the_lists() {
        let output = "running 3 tests\ntest a::b ... FAILED\ntest c ... ok\n\nfailures:\n\n---- a::b stdout ----\n\n    \
             at ./tests/a.rs:5:1\n    indented\n\n\nfailures:\n    a::b\n    d_2\n\ntest result: FAILED. 1 passed; 2 failed; \
             0 ignored\n    later\nfailures:\n    e\n";
        assert_eq!(failed(output), ["a::b", "d_2", "e"]);
        assert_eq!(failed("test a ... ok\n"), Vec::<String>::new());
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in any::<String>()) {
            count(&text);
            failed(&text);
        }

        #[test]
        fn any_numbers_are_read(passed in 0..u64::from(u32::MAX), failed in 0..u64::from(u32::MAX)) {
            let line = format!("\u{1b}[32mtest result: ok. {passed} passed; {failed} failed; 0 ignored");
            prop_assert_eq!(count(&line), Counts { passed, failed, summaries: 1 });
        }
    }
}
