//! What libFuzzer says of a run.

use std::fmt;

/// The numbers that tell how much was tried. 0 where the output does not say.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    runs: u64,
    runs_per_s: u64,
    edges: u64,
    inputs: u64,
    peak_mib: u64,
}

impl Statistics {
    /// Reads the output of a run with `-print_final_stats=1`.
    pub fn read(text: &str) -> Self {
        let last = |word: &str| {
            let after = text.rsplit_once(word)?.1.trim_start();
            let digits = after.split(|c: char| !c.is_ascii_digit()).next()?;
            digits.parse().ok()
        };
        let number = |word: &str| last(word).unwrap_or(0);
        Self {
            runs: number("stat::number_of_executed_units:"),
            runs_per_s: number("stat::average_exec_per_sec:"),
            edges: number(" cov: "),
            inputs: number(" corp: "),
            peak_mib: number("stat::peak_rss_mb:"),
        }
    }
}

impl fmt::Display for Statistics {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            runs,
            runs_per_s,
            edges,
            inputs,
            peak_mib,
        } = self;
        write!(
            out,
            "{runs} runs ({runs_per_s}/s), {edges} edges reached by {inputs} inputs, at most {peak_mib} MiB"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_read() {
        let text = "#2\tINITED cov: 7 ft: 8 corp: 1/1b exec/s: 0 rss: 40Mb\n\
            #1024\tDONE   cov: 94 ft: 130 corp: 12/200b lim: 4096 exec/s: 512 rss: 41Mb\n\
            Done 1024 runs in 2 second(s)\n\
            stat::number_of_executed_units: 1024\n\
            stat::average_exec_per_sec:     512\n\
            stat::peak_rss_mb:              41\n";
        let expected = Statistics {
            runs: 1024,
            runs_per_s: 512,
            edges: 94,
            inputs: 12,
            peak_mib: 41,
        };
        assert_eq!(Statistics::read(text), expected);
        assert_eq!(Statistics::read(""), Statistics::default());
    }
}
