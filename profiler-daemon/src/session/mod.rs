//! Sessions: probes and views of a scope on a target, shared by name, under a lease.
//!
//! One thread owns the engine and every session; requests come as commands, records and readings at
//! ticks. What may take long happens elsewhere: planning before a command is sent, symbols in a thread
//! of their own.
//!
//! | file | idea |
//! |---|---|
//! | `command` | what can be asked, and the handle that asks |
//! | `files` | the files that a target has mapped |
//! | `split_off` | what was split off from them: symbols, debug information |
//! | `debug_package` | what brings the debug information that a file lacks |
//! | `list` | the functions of a process |
//! | `census` | what is known of each process before anything is attached |
//! | `looks` | looks at processes that may not answer |
//! | `lines` | from a line and expressions to what is attached at it |
//! | `kernel_places` | from the kernel's own places to what is attached there |
//! | `source` | the source of functions, and what can be probed in it |
//! | `refusal` | what planning, target or kernel refuse |
//! | `prepare` | scope text and target become sites, before anything is attached |
//! | `inbox` | requests that wait for the thread: root's first, users' by turns |
//! | `children_before` | how many processes a target begins before it is probed |
//! | `late_code` | code that a target maps while it is looked at |
//! | `probed_code` | code under probes that a target changes |
//! | `estimate` | what attaching a scope would do and cost |
//! | `measure` | how often places are reached, counted for a moment |
//! | `owner` | the thread: commands, ticks |
//! | `pace` | how often the ring buffer is looked at |
//! | `running` | what is loaded while there are sessions |
//! | `state` | one session: its probes, aggregates, watchers |
//! | `steps` | the steps of a running scope, and how one is replaced by another |
//! | `ending` | why a session ended |
//! | `departures` | which of its processes have left it |
//! | `attendance` | the thread that sees which processes are still there |
//! | `division` | what the steps of a scope ask of durations |
//! | `records` | what flame graphs and latency are made of, for those who keep it |
//! | `recorded_calls` | system calls on their way there |
//! | `replay` | the same pictures, made of a recording |
//! | `readings` | where what was counted is read |
//! | `counted` | how often the places of running sessions were reached |
//! | `population` | the calls of a step that count |
//! | `functions` | the functions of a session and their latency |
//! | `flame` | what a flame graph is made of |
//! | `explain` | what slow calls do that others do not |
//! | `by_value` | calls by the value of an expression where they begin |
//! | `trace` | hits and ended calls on their way to those who watch them |
//! | `authorize` | who may look at a process |
//! | `trace_access` | whether the kernel, which is asked, lets a user trace one |
//! | `admissions` | which processes the programs may look at, for whom |
//! | `turns` | whose request reads files now |
//! | `span_losses` | what became of spans and hits on their way |
//! | `spans` | the slowest calls of the window |
//! | `waits` | who threads wait for |
//! | `timeline` | counters over time |
//! | `system_calls` | system calls, and who makes them |
//! | `watchers` | who gets pictures, and when |
//! | `symbols` | the thread that names addresses |
//! | `remembered` | stacks that were named before |
//! | `budget` | how much of a target's CPU time probes may take |
//! | `calibrate` | the probes' own share of a duration |
//! | `sampling` | what became of the samples on their way |
//! | `sampled_events` | events that stacks are taken at |
//! | `off_at_first` | who is off the CPU when waits begin to be recorded |
//! | `picture` | what a view shows |
//! | `cost` | what the daemon costs |

mod admissions;
mod attendance;
mod authorize;
mod backlog;
mod budget;
mod by_value;
mod calibrate;
mod census;
mod chains;
mod children_before;
mod command;
mod cost;
mod counted;
mod debug_package;
mod departures;
mod division;
mod ending;
mod error;
mod estimate;
mod explain;
mod files;
mod flame;
mod functions;
mod inbox;
mod kernel_functions;
mod kernel_places;
mod late_code;
mod library;
mod lines;
mod list;
mod looks;
mod measure;
mod memory;
mod name;
mod off_at_first;
mod outlet;
mod outlines;
mod owner;
mod pace;
mod picture;
mod population;
mod prepare;
mod probe_order;
mod probed_code;
mod quotas;
mod readings;
mod recorded_calls;
mod records;
mod refusal;
mod remembered;
mod replay;
mod running;
mod sampled_events;
mod sampling;
mod source;
mod span_losses;
mod spans;
mod split_off;
mod state;
mod steps;
mod symbols;
mod system_calls;
mod thread_tables;
mod timeline;
mod trace;
mod trace_access;
mod turns;
mod waits;
mod watchers;

use std::{io, path::PathBuf, sync::Arc};

use profiler_debug_files::{Reader, Rights};

pub(crate) use self::turns::Turns;
use crate::cache::Folder;

pub use authorize::may_look;
pub use backlog::{Backlogs, Room};
#[cfg(test)]
pub(crate) use budget::ALWAYS_ALLOWED;
pub use budget::DEFAULT_BUDGET;
pub use by_value::{CallsByValue, ValueCalls};
pub use census::{Census, CommandLines, Known};
pub(crate) use command::blocking;
pub use command::{
    Caller, Capture, Estimated, Handle, NewSession, Purpose, RecordedTime, ScopeEdit, TargetSpec,
};
pub use counted::{CountKind, Counted};
pub(crate) use departures::{Departure, DepartureCause, Departures, ReplacedFile};
pub(crate) use division::predicates;
pub use ending::{EndCause, Ending};
pub use error::{Reason, SessionError};
pub use estimate::{Estimate, EstimatedEnd, EstimatedPlace, EstimatedStep, Looks, Sampled};
pub use explain::{Explained, NotLookedAt, StepCost, WaitPlace, What};
pub use library::Library;
pub use lines::TracedPlace;
pub use list::{Listed, UnnamedFunctions, list_functions};
pub(crate) use name::SessionName;
pub use picture::{
    AskedPace, BudgetUse, Cost, ExitMethod, ExplainPicture, FlameKind, FlamePicture, FlameRequest,
    FlameTimes, FlameVariant, FunctionInfo, FunctionLatency, LatencyPicture, Losses, OtherHits, SessionInfo,
    SiteInfo, SlowCall,
};
use quotas::Quotas;
pub use quotas::{Allowed, Held};

pub(crate) use recorded_calls::UNNAMED;
pub use recorded_calls::{CALLS_DROPPED, RecordedCalls, RecordedTurn};
#[cfg(test)]
pub(crate) use records::GROUPINGS as RECORDED_GROUPINGS;
pub use records::{AT_EVENTS_DROPPED, OUTSIDE_DROPPED, WAITS_DROPPED};
pub use records::{
    AtEvent, MoreRecords, OffAtFirst, RecordBatch, Recorded, RecordedAtEvent, RecordedExpression,
    RecordedFunction, RecordedLook, RecordedPlace, RecordedReached, RecordedSample, RecordedScope,
    RecordedStep, RecordedWait,
};
pub(crate) use records::{EventReading, HitReading, MAX_OFF_CPU, MAX_RECORDED_EVENTS, ProbeReading};
pub(crate) use records::{SummedElsewhere, SummedRow, SummedSamples};
pub use replay::{OpenError as RecordingError, ask_all, compare, replay};
pub(crate) use replay::{SummedSteps, summed_steps};
pub(crate) use sampled_events::unknown as unknown_event;
pub(crate) use sampling::Sampling;
pub use source::{MarkedLine, SourceView, Sources, sources};
pub use span_losses::CHILDREN;
pub(crate) use span_losses::{OwnLosses, SpanLosses};
pub use spans::{
    SlowSpan, SpanChild, SpanPeriod, SpanPeriods, SpanSystemCall, SpanSystemCalls, SpanWait, SpansPicture,
    SpansRequest, Times,
};
pub use steps::{OffCause, TakenOff};
pub use symbols::NamedStack;
pub(crate) use symbols::Task;
pub use system_calls::SyscallsPicture;
pub(crate) use system_calls::{CALL_LOSSES, STACKS_FULL};
pub(crate) use timeline::unknown as unknown_counter;
pub use timeline::{ThreadCounted, TimelineBucket, TimelineRequest, Told};
pub use trace::{ThreadName, TraceBatch, TraceLosses, TracedHit, TracedValue};
pub use waits::WaitsPicture;
pub use watchers::{Numbered, Pictures};

/// Slots of the sliding window.
pub(crate) const WINDOW_SLOTS: u32 = 20;

/// How the session task is set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// The engine.
    pub engine: crate::kernel::Config,
    /// Sessions that may exist at once.
    pub max_sessions: usize,
    /// Whether the programs are loaded from the start, and while there is no session.
    pub keep_loaded: bool,
    /// Whether other users than its own are served.
    pub serves_others: bool,
    /// Where what is made of large files is kept, if it is: [`default_cache`].
    pub cache: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            engine: crate::kernel::Config::default(),
            max_sessions: 64,
            keep_loaded: false,
            serves_others: false,
            cache: None,
        }
    }
}

/// The folder in which our own user keeps what can be made anew.
#[must_use]
pub fn default_cache() -> Option<PathBuf> {
    Folder::default_path()
}

/// Starts the session task.
///
/// # Errors
/// Where a thread cannot be made.
pub fn start(config: Config) -> io::Result<Handle> {
    let (commands, inbox) = inbox::inbox();
    memory::bound_kept();
    crate::kernel::prepare();
    let folder = config.cache.clone().map(|path| Arc::new(Folder::new(path)));
    let library = Library::new(folder.clone());
    let quotas = Some(Quotas::of(config.max_sessions));
    let side_file_reader = if config.serves_others {
        Reader::process(Rights::nobody())
    } else {
        Reader::OWN
    };
    std::thread::Builder::new()
        .name("sessions".to_owned())
        .spawn(move || owner::Owner::new(config, folder, inbox).run())?;
    Ok(Handle {
        commands,
        library,
        turns: Turns::new(),
        look_ups: Turns::to_look_up(),
        leaves: timeline::Leaves::default(),
        quotas,
        side_file_reader,
    })
}
