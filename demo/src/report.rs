//! What the demo says on standard output: a `ready` line, and figures at the end.

use std::{
    fmt::Write as _,
    io::{self, Write as _},
    time::Duration,
};

use hdrhistogram::Histogram;
use serde_json::{Value, json};

use crate::{error::Error, served::Served, switches::Switches};

/// How to print.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    /// One JSON object a line instead of text.
    pub json: bool,
}

/// A server's figures.
#[derive(Debug)]
pub struct ServerReport {
    pub variant: &'static str,
    pub elapsed: Duration,
    pub connections: u64,
    pub refused: u64,
    pub served: Served,
    pub process: Switches,
}

/// A load generator's figures.
#[derive(Debug)]
pub struct LoadReport {
    pub elapsed: Duration,
    pub requests: u64,
    /// From before the write of a request to after the read of its reply.
    pub round_trips: Histogram<u64>,
}

/// The figures of `calls`.
#[derive(Debug)]
pub struct CallsReport {
    pub elapsed: Duration,
    pub calls: u64,
    pub process: Switches,
}

impl Output {
    /// Says that the target can be attached to; `facts` are its keys and values beside its PID.
    pub fn ready(self, facts: &[(&str, &str)]) -> Result<(), Error> {
        let pid = std::process::id();
        if self.json {
            let mut object = json!({"type": "ready", "schema": 1, "pid": pid});
            for (key, value) in facts {
                object[*key] = Value::from(*value);
            }
            return print(&object.to_string());
        }
        let mut line = format!("ready pid={pid}");
        for (key, value) in facts {
            // Writing into a String does not fail.
            let _ = write!(line, " {key}={value}");
        }
        print(&line)
    }

    /// Prints a server's figures.
    pub fn server(self, report: &ServerReport) -> Result<(), Error> {
        let ServerReport {
            variant,
            elapsed,
            connections,
            refused,
            served,
            process,
        } = report;
        let Served {
            requests,
            slow,
            latency,
            serving,
        } = served;
        if self.json {
            return print(
                &json!({
                    "type": "server", "schema": 1, "variant": variant, "pid": std::process::id(),
                    "elapsed_s": elapsed.as_secs_f64(), "connections": connections, "refused": refused,
                    "requests": requests, "slow": slow, "handle_request": summary(latency),
                    "switches": {"process": switches(*process), "serving": switches(*serving)},
                })
                .to_string(),
            );
        }
        print(&format!(
            "{variant} server: {requests} requests in {:.1} s ({slow} slow) on {connections} connections ({refused} refused)\n\
             handle_request     {}\n\
             context switches   voluntary {} (while serving {}), involuntary {} (while serving {})",
            elapsed.as_secs_f64(),
            percentiles(latency),
            process.voluntary,
            serving.voluntary,
            process.involuntary,
            serving.involuntary,
        ))
    }

    /// Prints a load generator's figures.
    pub fn load(self, report: &LoadReport) -> Result<(), Error> {
        let LoadReport {
            elapsed,
            requests,
            round_trips,
        } = report;
        let rate_hz = rate_hz(*requests, *elapsed);
        if self.json {
            return print(
                &json!({
                    "type": "load", "schema": 1, "pid": std::process::id(), "elapsed_s": elapsed.as_secs_f64(),
                    "requests": requests, "rate_hz": rate_hz, "round_trip": summary(round_trips),
                })
                .to_string(),
            );
        }
        print(&format!(
            "load: {requests} requests in {:.1} s ({rate_hz:.0}/s), every reply the echo of its request\n\
             round trip         {}",
            elapsed.as_secs_f64(),
            percentiles(round_trips),
        ))
    }

    /// Prints the figures of `calls`.
    pub fn calls(self, report: &CallsReport) -> Result<(), Error> {
        let CallsReport {
            elapsed,
            calls,
            process,
        } = report;
        let rate_hz = rate_hz(*calls, *elapsed);
        if self.json {
            return print(
                &json!({
                    "type": "calls", "schema": 1, "pid": std::process::id(), "elapsed_s": elapsed.as_secs_f64(),
                    "function": "tick", "calls": calls, "rate_hz": rate_hz,
                    "switches": {"process": switches(*process)},
                })
                .to_string(),
            );
        }
        print(&format!(
            "tick: {calls} calls in {:.1} s ({rate_hz:.0}/s)\n\
             context switches   voluntary {}, involuntary {}",
            elapsed.as_secs_f64(),
            process.voluntary,
            process.involuntary,
        ))
    }
}

fn print(lines: &str) -> Result<(), Error> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{lines}")
        .and_then(|()| stdout.flush())
        .map_err(Error::Output)
}

/// Events a second; 0 where no time has passed.
fn rate_hz(events: u64, elapsed: Duration) -> f64 {
    if elapsed.is_zero() {
        0.0
    } else {
        events as f64 / elapsed.as_secs_f64()
    }
}

fn switches(switches: Switches) -> Value {
    json!({"voluntary": switches.voluntary, "involuntary": switches.involuntary})
}

/// The object that the profiler's own JSON uses for a histogram; an empty one has count 0 and nulls.
fn summary(histogram: &Histogram<u64>) -> Value {
    let value = |value: u64| {
        if histogram.is_empty() {
            Value::Null
        } else {
            Value::from(value)
        }
    };
    let quantile = |quantile| value(histogram.value_at_quantile(quantile));
    json!({
        "count": histogram.len(),
        "mean_ns": if histogram.is_empty() { Value::Null } else { Value::from(histogram.mean()) },
        "min_ns": value(histogram.min()), "max_ns": value(histogram.max()),
        "p50_ns": quantile(0.5), "p90_ns": quantile(0.9), "p95_ns": quantile(0.95),
        "p99_ns": quantile(0.99), "p999_ns": quantile(0.999),
    })
}

fn percentiles(histogram: &Histogram<u64>) -> String {
    if histogram.is_empty() {
        return "no calls".to_owned();
    }
    let at = |quantile| time(histogram.value_at_quantile(quantile));
    format!(
        "p50 {}  p90 {}  p95 {}  p99 {}  max {}",
        at(0.5),
        at(0.9),
        at(0.95),
        at(0.99),
        time(histogram.max())
    )
}

/// Three or four digits and a unit.
fn time(ns: u64) -> String {
    let ns = ns as f64;
    match ns {
        ns if ns < 1e3 => format!("{ns} ns"),
        ns if ns < 1e6 => format!("{:.1} µs", ns / 1e3),
        ns if ns < 1e9 => format!("{:.2} ms", ns / 1e6),
        ns => format!("{:.2} s", ns / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::served::{durations, record};

    #[test]
    fn an_empty_histogram_has_count_0_and_nulls() {
        let summary = summary(&durations());
        assert_eq!(summary["count"], 0);
        assert!(
            ["mean_ns", "min_ns", "p50_ns", "p999_ns"]
                .iter()
                .all(|key| summary[key].is_null())
        );
    }

    #[test]
    fn percentiles_are_within_the_layouts_error() {
        let mut histogram = durations();
        for us in 1..=1000 {
            record(&mut histogram, Duration::from_micros(us));
        }
        let p95_ns = summary(&histogram)["p95_ns"].as_f64().unwrap();
        assert!((p95_ns - 950_000.0).abs() / 950_000.0 < 0.001, "{p95_ns}");
    }

    #[test]
    fn times_take_the_unit_that_reads_best() {
        assert_eq!(
            [7, 1_500, 2_340_000, 3_000_000_000].map(time),
            ["7 ns", "1.5 µs", "2.34 ms", "3.00 s"]
        );
    }
}
