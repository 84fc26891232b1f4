//! `cargo xtask bench --against PROGRAM`: what a call costs under the probes of this build and of another one, by turns.

use std::{fmt::Write as _, path::Path};

use super::{Arguments, FUNCTIONS, attacher::Attacher, build_example, fixture::Fixture, table::median};
use crate::{
    error::{Error, Result},
    fixtures,
};

/// Of fewer rounds than this the interval would be narrower than it should be.
const ROUNDS_MIN: u32 = 30;

/// How many standard errors lie on each side of a mean within its 95% interval, of many figures.
const STANDARD_ERRORS: f64 = 1.96;

/// The figures of one function, round by round, in nanoseconds a call.
struct Row {
    first: &'static str,
    other_ns: Vec<f64>,
    here_ns: Vec<f64>,
}

/// A ratio of two costs, with its 95% interval.
#[derive(Debug, Clone, Copy)]
struct Ratio {
    mean: f64,
    low: f64,
    high: f64,
}

/// Measures, and prints the table.
pub fn main(arguments: &Arguments, other: &Path) -> Result<()> {
    if arguments.rounds < ROUNDS_MIN {
        return Err(Error::told(format!(
            "an interval needs more rounds: add `--rounds {ROUNDS_MIN}` or more"
        )));
    }
    let program = fixtures::compile()?.join("calls");
    let mut here = Attacher::start(&build_example("bench_attach")?)?;
    let mut other = Attacher::start(other)?;
    let mut target = Fixture::start(&program, &["bench"])?;
    let names = FUNCTIONS.map(|(_, name)| name);
    let mut rows = FUNCTIONS.map(|(first, _)| Row {
        first,
        other_ns: Vec::new(),
        here_ns: Vec::new(),
    });
    for round in 1..=arguments.rounds {
        // Who is first changes, so that a machine that becomes slower disturbs both alike.
        for turn in 0..2 {
            let is_here = (round + turn) % 2 == 0;
            let attacher = if is_here { &mut here } else { &mut other };
            attacher.attach("ours", target.pid(), &program, &names)?;
            for (row, name) in rows.iter_mut().zip(names) {
                let figures = if is_here {
                    &mut row.here_ns
                } else {
                    &mut row.other_ns
                };
                figures.push(target.call(arguments.calls, name)?);
            }
            attacher.detach()?;
        }
        println!("round {round} of {}", arguments.rounds);
    }
    target.end()?;
    println!("\n{}", markdown(&rows)?);
    Ok(())
}

fn markdown(rows: &[Row]) -> Result<String> {
    let mut text = "| first instruction | the other build, ns | this build, ns | ratio, its 95% interval |\n|---|---|---|---|\n".to_owned();
    for row in rows {
        let Ratio { mean, low, high } = ratio(&row.here_ns, &row.other_ns);
        writeln!(
            text,
            "| `{}` | {:.0} | {:.0} | {mean:.3} ({low:.3}–{high:.3}) |",
            row.first,
            median(&row.other_ns),
            median(&row.here_ns)
        )
        .map_err(|_| Error::told("the table could not be written"))?;
    }
    Ok(text)
}

/// The ratio of costs that were measured by turns: the mean of the logarithms of each pair's ratio, and its 95% interval by its
/// standard error.
fn ratio(here: &[f64], other: &[f64]) -> Ratio {
    let logs: Vec<f64> = (here.iter().zip(other))
        .map(|(here, other)| (here / other).ln())
        .collect();
    #[expect(clippy::cast_precision_loss, reason = "thousands of rounds at most")]
    let count = logs.len() as f64;
    let mean = logs.iter().sum::<f64>() / count;
    let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let reach = STANDARD_ERRORS * (variance / count).sqrt();
    Ratio {
        mean: mean.exp(),
        low: (mean - reach).exp(),
        high: (mean + reach).exp(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_of_pairs_whatever_the_machine_does_between_them() {
        let other: Vec<f64> = (0..40).map(|round| 800.0 + 20.0 * f64::from(round)).collect();
        let here: Vec<f64> = (other.iter().enumerate())
            .map(|(at, other)| other * if at % 2 == 0 { 1.02 } else { 1.04 })
            .collect();
        let ratio = ratio(&here, &other);
        assert!((ratio.mean - 1.03).abs() < 1e-3, "{ratio:?}");
        assert!(ratio.low > 1.02 && ratio.high < 1.04, "{ratio:?}");
    }
}
