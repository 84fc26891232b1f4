//! `cargo xtask bench --against FOLDER`: what this build costs and another one, by turns.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};

use super::{
    Arguments, FUNCTIONS,
    attacher::Attacher,
    build_example,
    conditions::{self, FUNCTION},
    daemon::Daemon,
    fixture::{Conversation, Fixture},
    stacks::{self, ACTS},
    statistics::Statistics,
    switches::{self, LOOKS},
    table::median,
};
use crate::{
    error::{Error, Result},
    fixtures,
};

/// Of fewer rounds than this the interval would be narrower than it should be.
const ROUNDS_MIN: u32 = 30;

/// How many standard errors lie on each side of a mean within its 95% interval, of many figures.
const STANDARD_ERRORS: f64 = 1.96;

/// Which of the two builds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Build {
    Here,
    Other,
}

/// What each of the two builds has.
struct Both<T> {
    here: T,
    other: T,
}

impl<T> Both<T> {
    fn of(&mut self, build: Build) -> &mut T {
        match build {
            Build::Here => &mut self.here,
            Build::Other => &mut self.other,
        }
    }
}

/// The figures of one thing that is measured, round by round, in nanoseconds.
struct Row {
    what: String,
    ns: Both<Vec<f64>>,
}

/// A ratio of two costs, with its 95% interval.
#[derive(Debug, Clone, Copy)]
struct Ratio {
    mean: f64,
    low: f64,
    high: f64,
}

/// Measures, and prints the table. `folder` has the other build's programs: its `target/release`.
pub fn main(arguments: &Arguments, folder: &Path) -> Result<()> {
    let rounds = arguments.rounds;
    if rounds < ROUNDS_MIN {
        return Err(Error::told(format!(
            "an interval needs more rounds: add `--rounds {ROUNDS_MIN}` or more"
        )));
    }
    let rows = if arguments.stacks {
        samples(rounds, folder)
    } else if arguments.switches {
        switches_of_threads(rounds, folder)
    } else if arguments.conditions {
        rejected_hits(arguments, folder)
    } else {
        calls(arguments, folder)
    };
    println!("\n{}", markdown(&rows?)?);
    Ok(())
}

/// An example of the daemon's, of both builds.
fn examples(folder: &Path, name: &str) -> Result<Both<PathBuf>> {
    Ok(Both {
        here: build_example(name)?,
        other: folder.join("examples").join(name),
    })
}

/// Measures one thing after the other: the two builds are compared over a few seconds each time, in which the machine is the same.
fn one_by_one<T>(
    things: impl IntoIterator<Item = T>,
    measure: impl FnMut(T) -> Result<Vec<Row>>,
) -> Result<Vec<Row>> {
    let rows: Result<Vec<_>> = things.into_iter().map(measure).collect();
    Ok(rows?.into_iter().flatten().collect())
}

/// Measures under the one build and the other by turns.
fn by_turns<'name>(
    rounds: u32,
    whats: impl IntoIterator<Item = &'name str>,
    mut measure: impl FnMut(Build) -> Result<Vec<f64>>,
) -> Result<Vec<Row>> {
    let row = |what: &str| Row {
        what: what.to_owned(),
        ns: Both {
            here: Vec::new(),
            other: Vec::new(),
        },
    };
    let mut rows: Vec<Row> = whats.into_iter().map(row).collect();
    for round in 1..=rounds {
        // Who is first changes, so that a machine that becomes slower disturbs both alike.
        let order = if round % 2 == 0 {
            [Build::Here, Build::Other]
        } else {
            [Build::Other, Build::Here]
        };
        for build in order {
            for (row, ns) in rows.iter_mut().zip(measure(build)?) {
                if !ns.is_finite() || ns <= 0.0 {
                    return Err(Error::told(format!("`{}` was measured as {ns} ns", row.what)));
                }
                row.ns.of(build).push(ns);
            }
        }
        println!("round {round} of {rounds}");
    }
    Ok(rows)
}

/// A call whose beginning and end are probed.
fn calls(arguments: &Arguments, folder: &Path) -> Result<Vec<Row>> {
    let program = fixtures::compile()?.join("calls");
    let Both { here, other } = examples(folder, "bench_attach")?;
    let mut attachers = Both {
        here: Attacher::start(&here)?,
        other: Attacher::start(&other)?,
    };
    let mut target = Fixture::start(&program, &["bench"])?;
    let names = FUNCTIONS.map(|(_, name)| name);
    let rows = by_turns(arguments.rounds, FUNCTIONS.map(|(first, _)| first), |build| {
        let attacher = attachers.of(build);
        attacher.attach("ours", target.pid(), &program, &names)?;
        let figures = names.map(|name| target.call(arguments.calls, name));
        attacher.detach()?;
        figures.into_iter().collect()
    })?;
    target.end()?;
    Ok(rows)
}

/// A sample with its stack, by the kernel's own measure.
fn samples(rounds: u32, folder: &Path) -> Result<Vec<Row>> {
    let target = fixtures::compile()?.join("stacks");
    let mut samplers = examples(folder, "bench_sample")?;
    let _statistics = Statistics::on()?;
    one_by_one(ACTS, |act| {
        by_turns(rounds, [act], |build| {
            let figures = stacks::sample(samplers.of(build), &target, act)?;
            Ok(vec![figures.sample_ns])
        })
    })
}

/// A switch between threads with its wake-up, by the kernel's own measure.
fn switches_of_threads(rounds: u32, folder: &Path) -> Result<Vec<Row>> {
    let Both { here, other } = examples(folder, "bench_switches")?;
    let mut lookers = Both {
        here: Conversation::start(&here, &[])?,
        other: Conversation::start(&other, &[])?,
    };
    for build in [Build::Here, Build::Other] {
        lookers.of(build).hear()?;
    }
    let mut target = Conversation::start(&fixtures::compile()?.join("switches"), &["bench"])?;
    target.hear()?;
    let rows = one_by_one(LOOKS, |looks| {
        by_turns(rounds, [looks.name()], |build| {
            let looker = lookers.of(build);
            looker.ask(&format!("watch {} {}", target.pid(), looks.name()))?;
            let ns = switches::programs_of_a_switch_ns(looker, &mut target)?;
            looker.ask("detach")?;
            Ok(vec![ns])
        })
    })?;
    target.end()?;
    lookers.here.end()?;
    lookers.other.end()?;
    Ok(rows)
}

/// A call of a function at whose first line nothing is as the condition asks.
fn rejected_hits(arguments: &Arguments, folder: &Path) -> Result<Vec<Row>> {
    let program = fixtures::compile()?.join("calls");
    let mut daemons = Both {
        here: Daemon::start()?,
        other: Daemon::of(folder)?,
    };
    let mut target = Fixture::start(&program, &["bench"])?;
    let line = conditions::line_of(&daemons.here, target.pid())?;
    let rows = by_turns(arguments.rounds, ["a condition that rejects"], |build| {
        let daemon = daemons.of(build);
        conditions::attach(daemon, target.pid(), &line, true)?;
        let ns = target.call(arguments.calls, FUNCTION)?;
        daemon.detach()?;
        Ok(vec![ns])
    })?;
    target.end()?;
    Ok(rows)
}

fn markdown(rows: &[Row]) -> Result<String> {
    let mut text =
        "| | the other build, ns | this build, ns | ratio, its 95% interval |\n|---|---|---|---|\n"
            .to_owned();
    for Row { what, ns } in rows {
        let Ratio { mean, low, high } = ratio(&ns.here, &ns.other);
        writeln!(
            text,
            "| `{what}` | {:.0} | {:.0} | {mean:.3} ({low:.3}–{high:.3}) |",
            median(&ns.other),
            median(&ns.here)
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
