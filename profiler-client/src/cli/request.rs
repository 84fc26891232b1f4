//! What a command line asks for, once it makes sense.

use std::{path::PathBuf, time::Duration};

use profiler_proto::v1;

use super::{
    args::{BarsOver, Color, EventFormat, LatencyFormat, TimelineFormat},
    endpoint::OtlpEndpoint,
    events::Event,
};
pub use crate::{attached::SessionChoice, connect::Host, state::sides::Sides};
use crate::{
    state::{functions::Sort, shape::Shape},
    tui::lens::Lens,
};

/// A validated command.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// `info`.
    Info {
        /// As JSON.
        json: bool,
    },
    /// `ps`.
    Ps {
        /// Substring, empty for all.
        pattern: String,
        /// NDJSON.
        json: bool,
    },
    /// `functions`.
    Functions {
        /// What to look at.
        target: v1::Target,
        /// Name or glob, empty for all.
        pattern: String,
        /// NDJSON.
        json: bool,
    },
    /// `source`.
    Source {
        /// What to look at.
        target: v1::Target,
        /// Function, glob or `FILE:LINE`.
        place: String,
        /// NDJSON.
        json: bool,
        /// When to colour.
        color: Color,
    },
    /// `tui`.
    Tui(Box<Tui>),
    /// `top`.
    Top(Top),
    /// `latency`.
    Latency(Latency),
    /// `trace`.
    Trace(Trace),
    /// `spans`.
    Spans(Spans),
    /// `flame`.
    Flame(Flame),
    /// `waits`.
    Waits(Waits),
    /// `timeline`.
    Timeline(Timeline),
    /// `syscalls`.
    Syscalls(Syscalls),
    /// `explain`.
    Explain(Explain),
    /// `record`.
    Record(Record),
    /// `self`: the target is the daemon.
    RecordOwn(Record),
    /// `session new`.
    SessionNew {
        /// What to create.
        create: Box<v1::CreateSessionRequest>,
        /// NDJSON.
        json: bool,
    },
    /// `--dry-run`.
    Estimate(Estimate),
    /// `session list`.
    SessionList {
        /// NDJSON.
        json: bool,
    },
    /// `session end`.
    SessionEnd {
        /// Its name.
        name: String,
    },
    /// `scope set`, `append`, `drop`, `undo`.
    ScopeEdit {
        /// The session's name.
        name: String,
        /// The change.
        edit: ScopeEdit,
    },
}

/// A validated `--dry-run`.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    /// What would be done.
    pub of: Box<v1::estimate_scope_request::Request>,
    /// Hits are counted for a moment.
    pub measures: bool,
    /// NDJSON.
    pub json: bool,
}

/// A change of a session's scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScopeEdit {
    /// Another scope in its place.
    Set(String),
    /// Steps behind the last one.
    Append(String),
    /// So many steps less, from the end.
    Drop(u32),
    /// So many edits taken back.
    Undo(u32),
}

/// A validated `tui`.
#[derive(Clone, Debug, PartialEq)]
pub struct Tui {
    /// What is looked at first.
    pub lens: Lens,
    /// The command line says what is shown of it; a recording begins on the screen that it was begun on otherwise.
    pub says_what_is_shown: bool,
    /// How sessions are made: all but their target and scope.
    pub template: v1::CreateSessionRequest,
    /// When to colour.
    pub color: Color,
}

/// A validated `top`.
#[derive(Clone, Debug, PartialEq)]
pub struct Top {
    /// Where the session comes from.
    pub session: SessionChoice,
    /// Functions that are shown at the end.
    pub number: usize,
    /// Their order.
    pub sort: Sort,
    /// `None`: until stopped.
    pub duration: Option<Duration>,
    /// NDJSON.
    pub json: bool,
    /// When to colour.
    pub color: Color,
}

/// A validated `latency`.
#[derive(Clone, Debug, PartialEq)]
pub struct Latency {
    /// Where the session comes from.
    pub session: SessionChoice,
    /// `None`: until stopped.
    pub duration: Option<Duration>,
    /// Time between updates.
    pub interval: Duration,
    /// Histogram that the bars show.
    pub bars: BarsOver,
    /// What is written when the run ends; `None`: the view alone is shown.
    pub export: Option<Export<LatencyFormat>>,
    /// Who is sent metrics while it runs.
    pub otlp: Option<OtlpEndpoint>,
    /// NDJSON.
    pub json: bool,
    /// When to colour.
    pub color: Color,
}

/// What a run writes when it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export<F> {
    /// `None`: stdout, in place of the view.
    pub output: Option<PathBuf>,
    /// How it is written.
    pub format: F,
}

/// A validated `trace`.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// Where the session comes from.
    pub session: SessionChoice,
    /// `None`: until stopped.
    pub duration: Option<Duration>,
    /// What is written when the run ends, in place of lines; `None`: they are shown.
    pub export: Option<Export<EventFormat>>,
    /// NDJSON.
    pub json: bool,
    /// When to colour.
    pub color: Color,
}

/// A validated `explain`.
#[derive(Clone, Debug, PartialEq)]
pub struct Explain {
    /// Made for this command.
    pub session: SessionChoice,
    /// How long to look.
    pub duration: Duration,
    /// Findings to show.
    pub number: usize,
    /// NDJSON.
    pub json: bool,
    /// When to colour.
    pub color: Color,
}

/// A validated `spans`.
#[derive(Clone, Debug, PartialEq)]
pub struct Spans {
    /// Where the session comes from.
    pub session: SessionChoice,
    /// How many calls are shown.
    pub number: u32,
    /// With who ended waits.
    pub waits: bool,
    /// With the system calls of each call.
    pub system_calls: bool,
    /// `None`: until stopped.
    pub duration: Option<Duration>,
    /// What is written when the run ends; `None`: the view alone is shown.
    pub export: Option<Export<EventFormat>>,
    /// NDJSON.
    pub json: bool,
    /// When to colour.
    pub color: Color,
}

/// A validated `waits`.
#[derive(Clone, Debug, PartialEq)]
pub struct Waits {
    /// Where the session comes from.
    pub session: SessionChoice,
    /// `None`: until stopped.
    pub duration: Option<Duration>,
    /// NDJSON.
    pub json: bool,
    /// When to colour.
    pub color: Color,
}

/// A validated `timeline`.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    /// Where the session comes from.
    pub session: SessionChoice,
    /// What is shown; empty for what the daemon counts if nothing is asked for.
    pub events: Vec<Event>,
    /// What is counted for it.
    pub counters: Vec<String>,
    /// Length of a bucket.
    pub step: Duration,
    /// Means are shown of so much time; a bucket's own if it is shorter.
    pub rolling: Duration,
    /// How much is drawn.
    pub range: Duration,
    /// Each thread by itself.
    pub threads: bool,
    /// `None`: until stopped.
    pub duration: Option<Duration>,
    /// What is written when the run ends, in place of the table.
    pub export: Option<Export<TimelineFormat>>,
    /// NDJSON.
    pub json: bool,
    /// When to colour.
    pub color: Color,
}

/// A validated `syscalls`.
#[derive(Clone, Debug, PartialEq)]
pub struct Syscalls {
    /// Where the session comes from.
    pub session: SessionChoice,
    /// `None`: until stopped.
    pub duration: Option<Duration>,
    /// What is shown of who makes them.
    pub by: v1::Grouping,
    /// NDJSON.
    pub json: bool,
    /// When to colour.
    pub color: Color,
}

/// What a flame graph is written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlameFormat {
    /// A call tree for reading.
    Text,
    /// Folded stacks.
    Folded,
    /// Interactive.
    Svg,
    /// NDJSON.
    Json,
    /// What Go's pprof reads.
    Pprof,
    /// What speedscope reads.
    Speedscope,
    /// What the Firefox Profiler reads.
    Firefox,
    /// What `perf script` prints.
    PerfScript,
    /// What OpenTelemetry's collectors take.
    Otlp,
}

impl FlameFormat {
    /// Whether it is nothing that a terminal could show.
    #[must_use]
    pub const fn is_binary(self) -> bool {
        matches!(self, Self::Pprof | Self::Otlp)
    }
}

/// An event that stacks are taken at, and how often.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlameEvent {
    /// Perf's name for it.
    pub name: String,
    /// At each so many; 0 for what is usual.
    pub period: u64,
    /// So many a second; 0 for what is usual.
    pub frequency_hz: u32,
}

/// A validated `record`.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Where the session comes from.
    pub session: SessionChoice,
    /// `None`: until stopped.
    pub duration: Option<Duration>,
    /// The file.
    pub output: PathBuf,
    /// Whether a file that is there is replaced.
    pub force: bool,
    /// How much of it is kept.
    pub keep: Keep,
    /// Whether what could tell whose it is is left out.
    pub redact: bool,
    /// What ends it, the first that happens; none: nothing of these.
    pub on: Vec<On>,
    /// What is recorded beyond samples, calls and hits; of which session is known once there is one.
    pub more: v1::WatchRecordsRequest,
    /// How long it goes on once that has happened.
    pub after: Duration,
}

/// Something that a recording waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum On {
    /// SIGUSR1.
    Signal,
    /// A call or a percentile that is such, as `--on` of `record` has it.
    Condition(String),
}

/// How much of a recording is kept. Minutes are dropped as a whole, and the last one never is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Keep {
    /// Bytes of the file, at most.
    pub max_bytes: Option<u64>,
    /// What is older may go.
    pub max_age: Option<Duration>,
}

/// A validated `flame`.
#[derive(Clone, Debug, PartialEq)]
pub struct Flame {
    /// Where the session comes from.
    pub session: SessionChoice,
    /// Which calls.
    pub sides: Sides,
    /// `None`: until stopped.
    pub duration: Option<Duration>,
    /// Histogram that percentiles are taken of.
    pub over: v1::Over,
    /// What a frame stands for.
    pub by: v1::Grouping,
    /// Times that are drawn; unspecified for what is usual.
    pub times: v1::Times,
    /// Whether waits are drawn with who was waited for.
    pub waits: bool,
    /// Whether what the event is about counts once.
    pub unique: bool,
    /// What is drawn instead of time.
    pub event: Option<FlameEvent>,
    /// What of its stacks is drawn.
    pub shape: Shape,
    /// `None`: stdout.
    pub output: Option<PathBuf>,
    /// Who is sent it too.
    pub otlp: Option<OtlpEndpoint>,
    /// How it is written.
    pub format: FlameFormat,
    /// When to colour.
    pub color: Color,
}
