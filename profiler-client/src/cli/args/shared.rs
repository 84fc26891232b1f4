//! Flags of several verbs.

use std::{fmt, path::PathBuf, str::FromStr, time::Duration};

use clap::{Args, ValueEnum, builder::RangedI64ValueParser};
use profiler_proto::limits::MAX_FREQUENCY_HZ;

use super::super::{
    budget::{self, Budget},
    duration::{self, Span},
};

/// What a frequency of samples may be, in Hz.
pub(super) fn frequency() -> RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=i64::from(MAX_FREQUENCY_HZ))
}

/// Where the daemon is.
#[derive(Args, Clone, Debug, Default)]
pub struct HostArgs {
    /// Daemon to use: the path of its socket, or unix:PATH. Left out: the local daemon's socket
    /// ($PROFILER_SOCKET or /run/profilerd.sock) if one answers there, otherwise none is needed
    #[arg(long, value_name = "ENDPOINT")]
    pub host: Option<String>,
}

/// What to look at.
#[derive(Args, Debug, Default)]
pub struct TargetArgs {
    /// Process to look at: all its threads, not its children. Several are looked at together: -p 7 -p 8, or -p 7,8
    #[arg(short, long, value_name = "PID", conflicts_with = "exe", value_parser = pid, value_delimiter = ',')]
    pub pid: Vec<u32>,
    /// Look at every process that runs this executable: a path, or a name without slashes
    #[arg(long, value_name = "EXE")]
    pub exe: Option<String>,
}

/// A recording in place of a process.
#[derive(Args, Debug, Default)]
pub struct FromArgs {
    /// Look at a recording made by `profiler record` instead of a process. SCOPE is by default the recorded
    /// one; it may leave out steps from the end, and have other conditions on durations. Of flame, FILE may be a
    /// profile of pprof, of `perf script`, or folded stacks
    #[arg(long, value_name = "FILE",
          conflicts_with_all = ["pid", "exe", "session", "host", "duration", "exit", "budget", "dry_run"])]
    pub from: Option<PathBuf>,
    /// With --from, look at a part of the recording, counted from its beginning: 10s..20s, 5m.., ..30s
    #[arg(long, value_name = "A..B", requires = "from")]
    pub time: Option<RecordedTime>,
}

/// A recording in place of a process, of what was recorded beyond samples and calls.
#[derive(Args, Debug, Default)]
pub struct FromMoreArgs {
    /// Look at a recording made by `profiler record` instead of a process; it has this only if `record` was asked for it. SCOPE is by
    /// default the recorded one
    #[arg(long, value_name = "FILE",
          conflicts_with_all = ["pid", "exe", "session", "host", "duration", "exit", "budget", "symbols"])]
    pub from: Option<PathBuf>,
    /// With --from, look at a part of the recording, counted from its beginning: 10s..20s, 5m.., ..30s
    #[arg(long, value_name = "A..B", requires = "from")]
    pub time: Option<RecordedTime>,
}

/// A part of a recording, since its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordedTime {
    /// From when; `None` for its beginning.
    pub begin: Option<Duration>,
    /// Until when; `None` for its end.
    pub end: Option<Duration>,
}

impl fmt::Display for RecordedTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = |at: Option<Duration>| at.map(duration::text).unwrap_or_default();
        write!(f, "{}..{}", at(self.begin), at(self.end))
    }
}

impl FromStr for RecordedTime {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (begin, end) = text
            .split_once("..")
            .ok_or("a time range is expected: 10s..20s, 5m.. or ..30s")?;
        let at = |text: &str| match text.trim() {
            "" => Ok(None),
            "0" | "0s" => Ok(Some(Duration::ZERO)),
            text => duration::parse(text).map(|span| Some(span.0)),
        };
        let time = Self {
            begin: at(begin)?,
            end: at(end)?,
        };
        match time.end {
            Some(end) if end <= time.begin.unwrap_or_default() => Err("it ends before it begins".to_owned()),
            _ => Ok(time),
        }
    }
}

/// Reads a process's number.
fn pid(text: &str) -> Result<u32, String> {
    // The kernel's own limit (`PID_MAX_LIMIT`).
    const LAST: u32 = 4_194_304;
    match text.parse() {
        Ok(pid) if (1..=LAST).contains(&pid) => Ok(pid),
        Ok(pid) => Err(format!("{pid} is not in 1..={LAST}")),
        Err(_) => Err(format!(
            "a process ID is expected: `profiler ps {text}` lists the processes of that name, --exe takes a name"
        )),
    }
}

/// How a session is made.
#[derive(Args, Debug, Default)]
pub struct SessionMakingArgs {
    /// Length of the sliding window, in seconds or with a unit (90s, 2m), at least 1 [default: 10]
    #[arg(long, value_name = "S", value_parser = duration::parse)]
    pub window: Option<Span>,
    /// Half-life of the exponentially weighted histogram (EWMA), in seconds or with a unit [default: 30]
    #[arg(long, value_name = "S", value_parser = duration::parse)]
    pub half_life: Option<Span>,
    /// How it is probed.
    #[command(flatten)]
    pub probing: ProbingArgs,
}

/// How a target is probed.
#[derive(Args, Debug, Default, Clone, Copy)]
pub struct ProbingArgs {
    /// How the end of a call is detected: auto = the safest way that target and kernel allow, chosen per
    /// function; return = return probes (they can kill targets that throw, panic or switch stacks); ret = a
    /// probe on each return instruction
    #[arg(long, value_name = "METHOD", value_enum, default_value_t)]
    pub exit: Exit,
    /// Share of the target's CPU time that probes may take, in percent. Above it, probes are taken off, the
    /// costliest first; the run ends when none is left. 0: no limit [default: $PROFILER_BUDGET or 3]
    #[arg(long, value_name = "PERCENT", value_parser = budget::parse)]
    pub budget: Option<Budget>,
}

/// What is said before anything is attached.
#[derive(Args, Debug, Default, Clone, Copy)]
pub struct DryRunArgs {
    /// Attach nothing: show where probes would be, how the ends of calls are detected, which instructions the
    /// kernel would single-step, and from a second of samples how much of the target's time is inside
    #[arg(long)]
    pub dry_run: bool,
    /// With --dry-run: count how often the places are reached, by probes that only count, for a tenth of a
    /// second or 10,000 hits, and show what that costs
    #[arg(long, requires = "dry_run")]
    pub measure: bool,
}

/// `--exit`.
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exit {
    /// Chosen by the daemon.
    #[default]
    Auto,
    /// Return probes.
    Return,
    /// Probes on each `ret`.
    Ret,
}

/// `--color`.
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Color {
    /// In a terminal, unless `NO_COLOR` is set.
    #[default]
    Auto,
    /// Everywhere.
    Always,
    /// Nowhere.
    Never,
}

/// `--format` of what happens at a time.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventFormat {
    /// For <https://ui.perfetto.dev> and `trace_processor`: protobuf.
    Perfetto,
    /// For readers of Chrome's Trace Event Format: JSON.
    Chrome,
    /// For <https://profiler.firefox.com>: JSON.
    Firefox,
}
