//! `cargo xtask bench --budget`: what probes were said to cost beforehand, what they did cost, and what became of those that cost
//! more than the budget.

use std::{fmt::Write as _, thread, time::Duration};

use serde_json::Value;

use super::{
    Arguments,
    daemon::{Daemon, SESSION},
    finish,
    fixture::Conversation,
    table,
};
use crate::{
    error::{Error, Result},
    fixtures,
};

/// Functions of the fixture `ladder`, each with twice the work of the one before.
const RUNGS: u32 = 20;

/// How long calls are counted for one figure, and how often.
const COUNTED: Duration = Duration::from_millis(300);
const PAIRS: usize = 5;

/// Within this time the slowdown is to be under the budget.
const SETTLED: Duration = Duration::from_secs(2);

/// A difference is told from chance where it is this many times what figures of the same kind differ by.
const TOLD_APART: f64 = 3.0;

/// One function.
struct Row {
    /// Without probes.
    calls_per_s: f64,
    /// What was said before: of a call, and of a core.
    said_ns: f64,
    said_share: f64,
    /// What a call took longer with probes; what that differs by.
    measured_ns: f64,
    spread_ns: f64,
    /// Rate two seconds after the beginning under the budget, to that without probes.
    settled: f64,
    often_taken_off: bool,
    rarely_taken_off: bool,
}

/// Measures, and shows the table.
pub fn main(arguments: &Arguments) -> Result<()> {
    let directory = fixtures::compile()?;
    let daemon = Daemon::start()?;
    let mut target = Conversation::start(&directory.join("ladder"), &[])?;
    target.hear()?;
    let mut rows = Vec::new();
    for rung in 0..RUNGS {
        target.ask(&format!("call {rung}"))?;
        let row = measure(&daemon, &mut target, rung)?;
        println!(
            "rung {rung}: {:.0} calls/s, said {:.0} ns a call, measured {:.0} (differs by {:.0}); under the budget at {:.3} of its rate, \
             taken off: {}, the other one: {}",
            row.calls_per_s,
            row.said_ns,
            row.measured_ns,
            row.spread_ns,
            row.settled,
            row.often_taken_off,
            row.rarely_taken_off
        );
        rows.push(row);
    }
    target.end()?;
    finish(arguments, table::BUDGET, &markdown(&rows)?)
}

fn measure(daemon: &Daemon, target: &mut Conversation, rung: u32) -> Result<Row> {
    let pid = target.pid().to_string();
    let (often, both) = (format!("rung_{rung}_often"), format!("rung_{rung}_*"));
    let said = daemon.profiler(&["latency", "-p", &pid, &often, "--dry-run", "--measure", "--json"])?;
    let said = objects(&said)
        .into_iter()
        .find(|object| object["type"] == "place")
        .ok_or_else(|| Error::told(format!("nothing is said of {often}")))?;
    let (mut without, mut with) = (Vec::new(), Vec::new());
    let mut calls_per_s = Vec::new();
    for _ in 0..PAIRS {
        let rate = count(target, COUNTED)?;
        without.push(rate.call_ns);
        calls_per_s.push(rate.calls_per_s);
        daemon.profiler(&["session", "new", "-p", &pid, &often, "--name", SESSION])?;
        with.push(count(target, COUNTED)?.call_ns);
        daemon.detach()?;
    }
    let differences: Vec<f64> = with
        .iter()
        .zip(&without)
        .map(|(with, without)| with - without)
        .collect();
    let calls_per_s = table::median(&calls_per_s);
    daemon.profiler(&[
        "session", "new", "-p", &pid, &both, "--name", SESSION, "--budget", "3",
    ])?;
    thread::sleep(SETTLED);
    let settled = count(target, COUNTED)?.calls_per_s / calls_per_s;
    let text = daemon.profiler(&["latency", "--session", SESSION, "--duration", "0.1", "--json"])?;
    let taken_off = |function: &str| {
        let last = objects(&text)
            .into_iter()
            .rfind(|object| object["function"] == function);
        last.is_some_and(|last| !last["taken_off"].is_null())
    };
    let row = Row {
        calls_per_s,
        said_ns: said["hit_cost_ns"].as_f64().unwrap_or(f64::NAN),
        said_share: said["cpu_share"].as_f64().unwrap_or(f64::NAN),
        measured_ns: table::median(&differences),
        spread_ns: spread(&without),
        settled,
        often_taken_off: taken_off(&often),
        rarely_taken_off: taken_off(&format!("rung_{rung}_rarely")),
    };
    daemon.detach()?;
    Ok(row)
}

struct Rate {
    calls_per_s: f64,
    call_ns: f64,
}

/// Counts the target's calls for a while, by its own count and clock.
fn count(target: &mut Conversation, time: Duration) -> Result<Rate> {
    let read = |target: &mut Conversation| {
        let answer = target.ask("read")?;
        match (answer["calls"].as_f64(), answer["cpu_ns"].as_f64()) {
            (Some(calls), Some(cpu_ns)) => Ok((calls, cpu_ns)),
            _ => Err(Error::told(format!("the fixture answered {answer}"))),
        }
    };
    let (calls_before, cpu_before) = read(target)?;
    thread::sleep(time);
    let (calls, cpu_ns) = read(target)?;
    let (calls, cpu_ns) = (calls - calls_before, cpu_ns - cpu_before);
    Ok(Rate {
        calls_per_s: calls * 1e9 / cpu_ns,
        call_ns: cpu_ns / calls,
    })
}

/// The objects of a command's output, one a line.
fn objects(text: &str) -> Vec<Value> {
    let lines = text.lines();
    lines.filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn spread(figures: &[f64]) -> f64 {
    let most = figures.iter().copied().fold(f64::MIN, f64::max);
    let least = figures.iter().copied().fold(f64::MAX, f64::min);
    most - least
}

fn markdown(rows: &[Row]) -> Result<String> {
    let mut text = format!(
        "A program that calls one function again and again, from one that does next to nothing to one of some milliseconds ({}). *Said* is what \
         `latency --dry-run --measure` says before anything is attached, *took* what a call took longer by the thread's own clock, the median of \
         {PAIRS} pairs; left out where calls without probes differ by a third as much. *Rate* is that two seconds after attaching with the budget of 3%, \
         to that without probes. A function that is called each five milliseconds was attached with each: taken off it was {}.\n\n\
         | calls/s | said, a call | of a core | took, a call | said / took | taken off | rate |\n|--:|--:|--:|--:|--:|---|--:|\n",
        table::machine()?,
        match rows.iter().filter(|row| row.rarely_taken_off).count() {
            0 => "never".to_owned(),
            some => format!("{some} times"),
        }
    );
    for row in rows {
        let is_told = row.measured_ns > TOLD_APART * row.spread_ns;
        let (took, ratio) = if is_told {
            (
                format!("{:.0} ns", row.measured_ns),
                format!("{:.2}", row.said_ns / row.measured_ns),
            )
        } else {
            (String::new(), String::new())
        };
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| {:.0} | {:.0} ns | {:.2}% | {took} | {ratio} | {} | {:.3} |",
            row.calls_per_s,
            row.said_ns,
            row.said_share * 100.0,
            if row.often_taken_off { "yes" } else { "no" },
            row.settled
        );
    }
    Ok(text)
}
