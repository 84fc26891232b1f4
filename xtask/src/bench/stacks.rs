//! `cargo xtask bench --stacks`: what a sample's stack takes, in the kernel and after it.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;

use super::{Arguments, build_example, finish, fixture::Conversation, statistics::Statistics, table};
use crate::{
    error::{Error, Result},
    fixtures, sh, workspace,
};

/// Acts of the fixture `stacks`, by the depth of their stacks.
pub const ACTS: [&str; 3] = ["in_kernel", "tower", "recursing"];

/// Steps of the fixture's computation: long enough that most samples are in it.
const STEPS: &str = "800000";

/// Files with many functions; those that are here are taken.
const FILES: [&str; 4] = [
    "/usr/lib/x86_64-linux-gnu/libc.so.6",
    "/usr/bin/node",
    "/usr/lib/x86_64-linux-gnu/libLLVM-14.so.1",
    "/usr/lib/llvm-22/lib/libLLVM.so.22.1",
];

/// How long each profiler looks, twice, when the time that it uses is measured.
const LOOKS_S: [&str; 2] = ["10", "40"];
const FREQUENCY_HZ: &str = "999";

/// Measures, and shows the tables.
pub fn main(arguments: &Arguments) -> Result<()> {
    let directory = fixtures::compile()?;
    let sampler = build_example("bench_sample")?;
    let maker = build_example("bench_tables")?;
    sh::run(sh::cargo().args(["build", "--release", "--locked", "-p", "profiler-client"]))?;
    let target = directory.join("stacks");
    let mut text = samples(arguments.rounds, &sampler, &target)?;
    text += &users_time(&workspace::target().join("release/profiler"), &target)?;
    text += &tables(&maker)?;
    finish(arguments, table::STACKS, &text)
}

/// What the kernel says of a sampler, of one run.
pub struct SamplerFigures {
    /// Frames of a sample, at the median.
    pub frames: f64,
    /// A run that takes no sample, in nanoseconds.
    pub empty_ns: f64,
    /// A run that takes one, in nanoseconds.
    pub sample_ns: f64,
}

/// Runs a sampler (the daemon's example `bench_sample`) on one act of the fixture `stacks`, while the kernel measures programs.
pub fn sample(program: &Path, target: &Path, act: &str) -> Result<SamplerFigures> {
    let line = sh::read(Command::new(program).arg("1").arg(target).args([STEPS, act]))?;
    println!("{act}: {}", line.trim());
    let figures: Value = serde_json::from_str(&line)
        .map_err(|_| Error::told(format!("{} printed `{line}`", program.display())))?;
    let figure = |key: &str| figures[key].as_f64().unwrap_or(f64::NAN);
    Ok(SamplerFigures {
        frames: figure("frames"),
        empty_ns: figure("empty_ns"),
        sample_ns: figure("sample_ns"),
    })
}

/// The kernel's measure of the sampler, at three depths.
fn samples(rounds: u32, program: &Path, target: &Path) -> Result<String> {
    let statistics = Statistics::on()?;
    let mut rows: Vec<[Vec<f64>; 3]> = vec![Default::default(); ACTS.len()];
    for round in 1..=rounds {
        for (act, row) in ACTS.iter().zip(&mut rows) {
            println!("round {round}");
            let figures = sample(program, target, act)?;
            for (figure, of_all) in [figures.frames, figures.empty_ns, figures.sample_ns]
                .iter()
                .zip(row)
            {
                of_all.push(*figure);
            }
        }
    }
    drop(statistics);
    let mut text = format!(
        "Nanoseconds that the kernel's own measure says a sample takes ({}): the median, lowest and highest in brackets. \
         The floor is a run of the same program that takes no sample. The first row's samples are mostly in system calls, whose \
         kernel stack the kernel walks.\n\n\
         | frames of the target's | floor | a sample | above the floor |\n|---|---|---|---|\n",
        table::machine()?
    );
    for [frames, empty, sample] in &rows {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| {:.0} | {} | {} | {:.0} |",
            table::median(frames),
            table::with_spread(empty),
            table::with_spread(sample),
            table::median(sample) - table::median(empty)
        );
    }
    Ok(text)
}

/// The CPU time of whole runs, ours and perf's: of a start, and of each sample that a longer run has more.
fn users_time(profiler: &Path, target: &Path) -> Result<String> {
    let directory = workspace::target().join("bench");
    fs::create_dir_all(&directory).map_err(Error::file("create", &directory))?;
    let data = directory.join("perf.data");
    let mut target = Conversation::start(target, &[STEPS, "tower"])?;
    target.hear()?;
    target.say("go")?;
    let pid = target.pid().to_string();
    let mut ours = Vec::new();
    let mut perf = Vec::new();
    for seconds in LOOKS_S {
        ours.push(ours_time(profiler, &pid, seconds)?);
        perf.push(perf_time(&data, &pid, seconds)?);
    }
    target.end()?;
    let [short, long] = LOOKS_S;
    let mut text = format!(
        "\nCPU time that samples of 35 frames take outside of the sampler, at {FREQUENCY_HZ} Hz, names included. A further \
         sample is what the run of {long} s took beyond that of {short} s, by the samples that it had more:\n\n\
         | | samples in {short} s | CPU time, s | samples in {long} s | CPU time, s | a further sample, µs | this / perf |\n\
         |---|---|---|---|---|---|---|\n"
    );
    let further_us = |runs: &[Run]| match runs {
        [short, long] => (long.cpu_s - short.cpu_s) * 1e6 / (long.samples - short.samples),
        _ => f64::NAN,
    };
    let perf_us = further_us(&perf);
    for (name, runs) in [
        ("`profiler flame`", &ours),
        ("`perf record --call-graph dwarf` and `perf script`", &perf),
    ] {
        // Writing to a String cannot fail.
        let _ = write!(text, "| {name} |");
        for run in runs {
            let _ = write!(text, " {:.0} | {:.2} |", run.samples, run.cpu_s);
        }
        let us = further_us(runs);
        let _ = writeln!(text, " {us:.1} | {:.3} |", us / perf_us);
    }
    Ok(text)
}

/// One profiler's look at a target.
struct Run {
    samples: f64,
    cpu_s: f64,
}

fn ours_time(profiler: &Path, pid: &str, seconds: &str) -> Result<Run> {
    let before = children_seconds();
    let picture = sh::read(Command::new(profiler).args([
        "flame",
        "--json",
        "-p",
        pid,
        "-F",
        FREQUENCY_HZ,
        "--duration",
        seconds,
    ]))?;
    let cpu_s = children_seconds() - before;
    let samples = summary_samples(&picture)
        .ok_or_else(|| Error::told("`profiler flame --json` printed no summary with samples"))?;
    Ok(Run { samples, cpu_s })
}

fn perf_time(data: &Path, pid: &str, seconds: &str) -> Result<Run> {
    let before = children_seconds();
    let mut record = Command::new("perf");
    record.args([
        "record",
        "--quiet",
        "-F",
        FREQUENCY_HZ,
        "--call-graph",
        "dwarf",
        "-p",
        pid,
        "-o",
    ]);
    sh::run(record.arg(data).args(["--", "sleep", seconds]))?;
    let script = Command::new("perf")
        .args(["script", "-F", "comm,ip,sym", "-i"])
        .arg(data)
        .stderr(Stdio::null())
        .output()
        .map_err(Error::file("read", data))?;
    let cpu_s = children_seconds() - before;
    fs::remove_file(data).map_err(Error::file("remove", data))?;
    // A sample is a line of its command and lines of its frames, which are indented.
    let samples = String::from_utf8_lossy(&script.stdout)
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with([' ', '\t']))
        .count() as f64;
    Ok(Run { samples, cpu_s })
}

/// User's and system's time of all children that have ended.
fn children_seconds() -> f64 {
    // SAFETY: rusage is plain C data, for which zero is valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is a live, writable rusage. With these arguments the call cannot fail.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) };
    [usage.ru_utime, usage.ru_stime]
        .iter()
        .map(|time| time.tv_sec as f64 + time.tv_usec as f64 / 1e6)
        .sum()
}

fn summary_samples(lines: &str) -> Option<f64> {
    let summary: Value = serde_json::from_str(lines.lines().last()?).ok()?;
    summary["samples"].as_f64().filter(|samples| *samples > 0.0)
}

/// What tables take to make and to keep.
fn tables(program: &Path) -> Result<String> {
    let files: Vec<PathBuf> = FILES
        .iter()
        .map(PathBuf::from)
        .filter(|path| path.exists())
        .collect();
    let lines = sh::read(Command::new(program).args(&files))?;
    let mut text = "\nUnwind tables, made once for each file and shared by all processes:\n\n\
         | file | its size, MiB | rows | table, KiB | made in, ms | rows a second, millions |\n|---|---|---|---|---|---|\n"
        .to_owned();
    for line in lines.lines() {
        let row: Value = serde_json::from_str(line)
            .map_err(|_| Error::told(format!("{} printed `{line}`", program.display())))?;
        let number = |key: &str| row[key].as_f64().unwrap_or(f64::NAN);
        let name = row["file"].as_str().and_then(|path| path.rsplit('/').next());
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| {} | {:.1} | {:.0} | {:.0} | {:.0} | {:.1} |",
            name.unwrap_or("?"),
            number("file_bytes") / f64::from(1 << 20),
            number("rows"),
            number("table_bytes") / 1024.0,
            number("build_ms"),
            number("rows") / number("build_ms") / 1e3
        );
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_is_the_last_line() {
        let lines = "{\"type\":\"stack\"}\n{\"type\":\"summary\",\"samples\":7}\n";
        assert_eq!(summary_samples(lines), Some(7.0));
        assert_eq!(summary_samples("{\"samples\":0}"), None);
        assert_eq!(summary_samples(""), None);
    }
}
