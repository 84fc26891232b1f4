//! Medians, spread and ratios, as Markdown in docs/measurements.md.

use std::{fmt::Write as _, fs, process::Command};

use super::CASES;
use crate::{
    error::{Error, Result},
    markdown::Place,
    sh,
};

/// Where the tables of [`markdown`] stand.
pub const HERE: Place = Place::named("bench");
/// Where the table of [`instructions`] stands.
pub const MACHINE: Place = Place::named("bench-vm");
/// Where the tables of `bench --stacks` stand.
pub const STACKS: Place = Place::named("bench-stacks");
/// Where the table of `bench --switches` stands.
pub const SWITCHES: Place = Place::named("bench-switches");

/// Of lines with conditions.
pub const CONDITIONS: Place = Place::named("bench-conditions");

/// Where the table of `bench --budget` stands.
pub const BUDGET: Place = Place::named("bench-budget");

/// The position of the floor and of ours among the cases.
const FLOOR: usize = 1;
const OURS: usize = 2;

/// What a call of one function costs in every case, a figure a round.
#[derive(Debug)]
pub struct CallRow {
    first: String,
    /// By case.
    figures_ns: Vec<Vec<f64>>,
}

impl CallRow {
    /// A function that begins with this instruction, measured in so many cases.
    pub fn new(first: &str, cases: usize) -> Self {
        Self {
            first: first.to_owned(),
            figures_ns: vec![Vec::new(); cases],
        }
    }

    /// Adds a round's figure for a case.
    pub fn add(&mut self, case: usize, ns: f64) {
        self.figures_ns[case].push(ns);
    }

    fn medians(&self) -> Vec<f64> {
        self.figures_ns.iter().map(|figures| median(figures)).collect()
    }
}

/// What attaching to and detaching from some functions takes.
#[derive(Debug)]
pub struct AttachRow {
    functions: u32,
    floor_ms: [Vec<f64>; 2],
    ours_ms: [Vec<f64>; 2],
}

impl AttachRow {
    /// Attaching to so many functions at once.
    pub fn new(functions: u32) -> Self {
        Self {
            functions,
            floor_ms: Default::default(),
            ours_ms: Default::default(),
        }
    }

    /// Adds a round's figures.
    pub fn add(&mut self, kind: &str, attach_ms: f64, detach_ms: f64) {
        let [attach, detach] = if kind == "floor" {
            &mut self.floor_ms
        } else {
            &mut self.ours_ms
        };
        attach.push(attach_ms);
        detach.push(detach_ms);
    }
}

/// The tables.
pub fn markdown(calls: &[CallRow], attach: &[AttachRow], machine: &str) -> String {
    let push_floor = calls.first().map_or(f64::NAN, |row| row.medians()[FLOOR]);
    let mut text = format!(
        "Nanoseconds a call of an otherwise empty function ({machine}): the median of interleaved rounds, lowest and highest \
         in brackets. The floor is an empty program at entry and return.\n\n\
         | first instruction | no probe | floor | this profiler | sampling at 99 Hz | sampling at 999 Hz | bpftrace `hist()` | this / floor \
         | this / floor of `push` | bpftrace / floor |\n|---|---|---|---|---|---|---|---|---|---|\n"
    );
    for row in calls {
        let medians = row.medians();
        // Writing to a String cannot fail.
        let _ = write!(text, "| `{}` |", row.first);
        for figures in &row.figures_ns {
            let _ = write!(text, " {} |", with_spread(figures));
        }
        let _ = writeln!(
            text,
            " {:.2} | {:.2} | {:.2} |",
            medians[OURS] / medians[FLOOR],
            medians[OURS] / push_floor,
            medians[CASES.len() - 1] / medians[FLOOR]
        );
    }
    text.push_str(
        "\nMilliseconds to attach to and detach from functions of a running process:\n\n\
         | functions | attach: empty pairs | attach: this profiler | detach: empty pairs | detach: this profiler |\n\
         |---|---|---|---|---|\n",
    );
    for AttachRow {
        functions,
        floor_ms: [floor_attach, floor_detach],
        ours_ms: [attach, detach],
    } in attach
    {
        let columns = [floor_attach, attach, floor_detach, detach].map(|figures| with_spread(figures));
        let _ = writeln!(text, "| {functions} | {} |", columns.join(" | "));
    }
    text
}

/// What it is worth that the program does the probed instructions: rows of [`super::MACHINE_CASES`].
pub fn instructions(calls: &[CallRow], machine: &str) -> String {
    let push_floor = calls.first().map_or(f64::NAN, |row| row.medians()[FLOOR]);
    let mut text = format!(
        "Where a uprobe program may write its registers, it does the probed instructions itself. Microseconds a call \
         ({machine}, emulated by QEMU: only the ratios mean anything):\n\n\
         | first instruction | return-probe pair, empty | this profiler, single-stepped | this profiler | \
         this / single-stepped | this / pair | this / pair of `push` |\n|---|---|---|---|---|---|---|\n"
    );
    for row in calls {
        let medians = row.medians();
        let [_, floor, stepped, ours] = medians[..] else {
            continue;
        };
        let in_us = |ns: f64| format!("{:.1}", ns / 1e3);
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} | {:.2} | {:.2} | {:.2} |",
            row.first,
            in_us(floor),
            in_us(stepped),
            in_us(ours),
            ours / stepped,
            ours / floor,
            ours / push_floor
        );
    }
    text
}

/// Kernel, processor and bpftrace: what the figures hold for.
pub fn machine() -> Result<String> {
    let kernel = sh::read(Command::new("uname").arg("-r"))?;
    let information = fs::read_to_string("/proc/cpuinfo").map_err(Error::file("read", "/proc/cpuinfo"))?;
    let processor = information
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown processor", |(_, name)| name);
    let bpftrace = sh::read(Command::new("bpftrace").arg("--version"))?;
    let hypervisor = if information.contains(" hypervisor") {
        ", in a virtual machine"
    } else {
        ""
    };
    Ok(format!(
        "Linux {}, {processor}{hypervisor}, {}",
        kernel.trim(),
        bpftrace.trim()
    ))
}

/// The median of figures; NaN of none.
pub fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => sorted[odd / 2],
        even => f64::midpoint(sorted[even / 2 - 1], sorted[even / 2]),
    }
}

/// The median, and the lowest and highest in brackets.
pub fn with_spread(figures: &[f64]) -> String {
    let lowest = figures.iter().copied().fold(f64::INFINITY, f64::min);
    let highest = figures.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let median = median(figures);
    // Three figures are more than the spread is worth.
    let decimals = usize::from(median < 10.0);
    format!("{median:.decimals$} ({lowest:.decimals$}–{highest:.decimals$})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert!(median(&[]).is_nan());
        for (figures, expected) in [(&[3.0, 1.0, 2.0][..], 2.0), (&[4.0, 1.0][..], 2.5)] {
            assert!((median(figures) - expected).abs() < 1e-12);
        }
        assert_eq!(with_spread(&[896.4, 880.0, 1012.0]), "896 (880–1012)");
        assert_eq!(with_spread(&[1.44]), "1.4 (1.4–1.4)");
    }

    #[test]
    fn ratios_are_against_the_floor() {
        let mut row = CallRow::new("push", CASES.len());
        for (case, ns) in [1.0, 800.0, 880.0, 900.0, 950.0, 1200.0].into_iter().enumerate() {
            row.add(case, ns);
        }
        let mut attach = AttachRow::new(100);
        attach.add("floor", 8.0, 30.0);
        attach.add("ours", 9.0, 31.0);
        let text = markdown(&[row], &[attach], "here");
        assert!(
            text.contains("| `push` | 1.0 (1.0–1.0) | 800 (800–800) |"),
            "{text}"
        );
        assert!(text.contains("| 1.10 | 1.10 | 1.50 |"), "{text}");
        assert!(
            text.contains("| 100 | 8.0 (8.0–8.0) | 9.0 (9.0–9.0) | 30 (30–30) | 31 (31–31) |"),
            "{text}"
        );
    }

    #[test]
    fn instructions_are_against_single_steps_and_the_pair() {
        let mut row = CallRow::new("push", 4);
        for (case, ns) in [10.0, 4000.0, 10_000.0, 4800.0].into_iter().enumerate() {
            row.add(case, ns);
        }
        let text = instructions(&[row], "a machine");
        assert!(
            text.contains("| `push` | 4.0 | 10.0 | 4.8 | 0.48 | 1.20 | 1.20 |"),
            "{text}"
        );
    }
}
