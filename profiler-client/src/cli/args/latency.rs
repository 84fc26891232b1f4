//! The flags of `latency`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{
    super::{
        duration::{self, Span},
        endpoint::{self, OtlpEndpoint},
        print_list,
    },
    Color, DryRunArgs, FromArgs, HostArgs, SessionMakingArgs, TargetArgs,
};

/// `profiler latency`.
#[derive(Args, Debug)]
pub struct LatencyArgs {
    /// Function, glob, or scope (see below); not with --session
    pub scope: Option<String>,
    /// What to look at.
    #[command(flatten)]
    pub target: TargetArgs,
    /// A recording instead.
    #[command(flatten)]
    pub recording: FromArgs,
    /// Show a running session instead of making one
    #[arg(long, value_name = "NAME", conflicts_with_all = ["pid", "exe", "scope", "by", "window", "half_life", "exit", "budget"])]
    pub session: Option<String>,
    /// Divide the calls by the value of this expression at their entry, such as n or req->kind: a histogram for
    /// each value, besides that of all calls. Each call is recorded, which costs the target more
    #[arg(long, value_name = "EXPR", conflicts_with = "from", value_parser = print_list::parse_one)]
    pub by: Option<String>,
    /// How long to run, in seconds or with a unit [default: until Ctrl-C]
    #[arg(long, value_name = "S", value_parser = duration::parse)]
    pub duration: Option<Span>,
    /// Time between updates, in seconds or with a unit
    #[arg(long, value_name = "S", value_parser = duration::parse, default_value = "1")]
    pub interval: Span,
    /// How the session is made.
    #[command(flatten)]
    pub making: SessionMakingArgs,
    /// Histogram that the bars show [default: window]
    #[arg(long, value_enum, value_name = "HISTOGRAM")]
    pub over: Option<BarsOver>,
    /// Write to FILE as well, when the run ends; its name gives the format: .hlog (HdrHistogram's interval log),
    /// .otlp (OpenTelemetry's metrics: exponential histograms)
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Format of FILE, whatever its name; without FILE, of stdout in place of the view
    #[arg(long, value_enum)]
    pub format: Option<LatencyFormat>,
    /// Send OpenTelemetry's metrics to a collector, at each update and at the end: OTLP over gRPC, such as
    /// http://localhost:4317
    #[arg(long, value_name = "URL", value_parser = endpoint::parse)]
    pub otlp: Option<OtlpEndpoint>,
    /// One JSON object a line for each update; times in nanoseconds
    #[arg(long)]
    pub json: bool,
    /// When to colour
    #[arg(long, value_enum, default_value_t, value_name = "WHEN")]
    pub color: Color,
    /// What would be attached.
    #[command(flatten)]
    pub dry_run: DryRunArgs,
    /// Where the daemon is.
    #[command(flatten)]
    pub host: HostArgs,
}

/// `--format` of `latency`.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatencyFormat {
    /// `HdrHistogram`'s interval log: a histogram for each update and function.
    Hlog,
    /// OpenTelemetry's metrics: an exponential histogram for each function.
    Otlp,
}

/// `--over` of `latency`.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarsOver {
    /// The sliding window.
    Window,
    /// The whole run.
    Start,
}
