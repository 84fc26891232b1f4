//! Counters over time, read at steps and handed to their watchers.
//!
//! | file | idea |
//! |---|---|
//! | `leave` | threads that wait for a target's kernel, so many of each user |
//! | `meeting` | threads that are counted each by itself, as they come |
//! | `share` | how much time goes into users' timelines |

mod leave;
mod meeting;
mod share;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use profiler_aggregate::{
    ThreadId,
    timeline::{Counted, Series},
};
use profiler_symbolize::name_of_thread;
use tokio::sync::mpsc;

use self::{
    leave::{Descriptors, Leave},
    meeting::{Ask, Meeting, Met},
};
pub use self::{
    leave::{Leaves, start as start_thread},
    share::Shares,
};
use super::{
    ending::Ending,
    error::{Reason, SessionError},
    outlet::Outlet,
    picture::Cost,
};
use crate::kernel::{Counter, CountersError, Counting};

/// Buckets that may wait for a client; it misses those beyond, counted.
const MAX_WAITING: usize = 256;

/// Threads that are counted each by itself; the number of others is said.
const MAX_THREADS: usize = 256;

/// What is counted if nothing is asked for: of any machine, then of those that count in hardware.
const DEFAULT: [&str; 4] = ["task-clock", "context-switches", "cpu-migrations", "page-faults"];
const DEFAULT_OF_HARDWARE: [&str; 2] = ["cycles", "instructions"];

/// Looks at a process's threads until none has come meanwhile.
const MAX_LOOKS: usize = 5;

/// Time after which threads are asked for their names again.
const NAMES_NS: u64 = 1_000_000_000;

/// What is counted, and how.
#[derive(Clone, Debug)]
pub struct TimelineRequest {
    /// Counters, in the order of a bucket's values; none for what any machine has, and what it counts in hardware, or for all
    /// that were recorded.
    pub counters: Vec<Counter>,
    /// Length of a bucket.
    pub step_ns: u64,
    /// Each thread is counted by itself as well.
    pub threads: bool,
}

/// What was counted between two readings.
#[derive(Clone, Debug)]
pub struct TimelineBucket {
    /// Number of the bucket within its stream.
    pub seq: u64,
    /// In the first: what is counted, where that was not said by who asked.
    pub told: Option<Told>,
    /// The scope whose calls these are.
    pub scope: Arc<str>,
    /// When it begins, on `CLOCK_MONOTONIC`.
    pub from_ns: u64,
    /// When it ends.
    pub to_ns: u64,
    /// By counter.
    pub counted: Vec<Counted>,
    /// Calls that began, or hits; `None` without a scope.
    pub calls: Option<u64>,
    /// Threads that are counted by themselves, by number.
    pub threads: Vec<ThreadCounted>,
    /// Threads beyond those.
    pub threads_left_out: u64,
    /// Buckets that the client was too slow for.
    pub slow: u64,
    /// What the daemon costs.
    pub cost: Cost,
    /// Why this is the last one.
    pub ended: Option<Ending>,
}

/// What is counted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Told {
    /// Counters' names, in the order of a bucket's values.
    pub counters: Vec<String>,
    /// Those that would be there by default, and why they are not.
    pub missing: BTreeMap<String, String>,
}

impl Told {
    /// What is counted if nothing is asked for.
    fn by_default() -> (Self, Vec<Counter>) {
        let (mut told, mut counters) = (Self::default(), Vec::new());
        let named = |name: &&str| Counter::parse(name);
        for counter in DEFAULT.iter().filter_map(named) {
            told.counters.push(counter.to_string());
            counters.push(counter);
        }
        for counter in DEFAULT_OF_HARDWARE.iter().filter_map(named) {
            match counter.missing() {
                None => {
                    told.counters.push(counter.to_string());
                    counters.push(counter);
                }
                Some(why) => {
                    told.missing.insert(counter.to_string(), why);
                }
            }
        }
        (told, counters)
    }
}

/// What a thread has counted.
#[derive(Clone, Debug)]
pub struct ThreadCounted {
    /// The thread.
    pub tid: u32,
    /// Its name.
    pub name: Arc<str>,
    /// By counter.
    pub counted: Vec<Counted>,
}

/// What is known of a session when a bucket ends.
pub struct Moment<'a> {
    /// `CLOCK_MONOTONIC`.
    pub now_ns: u64,
    /// The scope.
    pub scope: &'a Arc<str>,
    /// Calls or hits of its last step so far; `None` without one.
    pub calls: Option<u64>,
    /// What the daemon costs.
    pub cost: Cost,
    /// Why the stream ends here.
    pub ended: Option<&'a Ending>,
}

/// Counters that go on from reading to reading.
struct Line {
    counting: Counting,
    series: Vec<Series>,
}

impl Line {
    fn new(counting: Counting, counters: usize) -> Self {
        Self {
            counting,
            series: std::iter::repeat_with(Series::default).take(counters).collect(),
        }
    }

    fn read(&mut self) -> Vec<Counted> {
        let readings = self.counting.read();
        let series = self.series.iter_mut().zip(readings);
        series.map(|(series, readings)| series.take(&readings)).collect()
    }
}

/// A thread that is counted by itself.
struct Thread {
    pid: u32,
    name: Arc<str>,
    line: Line,
    /// As of [`Timeline`].
    _descriptors: Descriptors,
}

/// One that counts, and whose buckets have not begun.
pub struct Started {
    /// It.
    pub timeline: Timeline,
    /// Its buckets.
    pub buckets: mpsc::Receiver<TimelineBucket>,
}

/// One stream of buckets.
pub struct Timeline {
    buckets: Outlet<TimelineBucket>,
    /// For the first bucket.
    told: Option<Told>,
    request: TimelineRequest,
    pids: Vec<u32>,
    all: Line,
    /// Leave for those that it takes, which is given back behind them.
    _descriptors: Descriptors,
    /// Meets threads, where these are counted each by itself.
    meeting: Option<Meeting>,
    threads: BTreeMap<u32, Thread>,
    threads_left_out: u64,
    named_ns: u64,
    seq: u64,
    slow: u64,
    from_ns: u64,
    next_ns: u64,
    calls_before: u64,
}

impl Timeline {
    /// Begins to count for these processes, as long as that takes (see `leave`). Who asks is to be authorized afterwards: before, a
    /// process may become another. Then its buckets [begin](Self::begin).
    ///
    /// # Errors
    /// Where the machine does not have a counter, or refuses to count for these threads.
    pub fn start(
        pids: Vec<u32>,
        mut request: TimelineRequest,
        leave: Leave,
    ) -> Result<Started, SessionError> {
        let mut told = None;
        if request.counters.is_empty() {
            let (by_default, counters) = Told::by_default();
            told = Some(by_default);
            request.counters = counters;
        }
        for counter in &request.counters {
            if let Some(why) = counter.missing() {
                return Err(not_here(counter, &why));
            }
        }
        let (all, descriptors) = start_all(&pids, &request.counters, &leave)?;
        let (buckets, receiver) = Outlet::open(MAX_WAITING);
        let counters = request.counters.len();
        let mut timeline = Self {
            buckets,
            _descriptors: descriptors,
            told,
            pids,
            all: Line::new(all, counters),
            meeting: None,
            threads: BTreeMap::new(),
            threads_left_out: 0,
            named_ns: 0,
            seq: 0,
            slow: 0,
            from_ns: 0,
            next_ns: 0,
            calls_before: 0,
            request,
        };
        if timeline.request.threads {
            let ask = Ask {
                pids: timeline.pids.clone(),
                known: BTreeSet::new(),
                with_names: false,
            };
            timeline.take(Met::by(&timeline.request.counters, &ask, &leave));
            timeline.meeting = Some(Meeting::start(timeline.request.counters.clone(), leave)?);
        }
        Ok(Started {
            timeline,
            buckets: receiver,
        })
    }

    /// Begins the first bucket: what was counted until now is in none.
    pub fn begin(&mut self, calls: Option<u64>, now_ns: u64) {
        self.all.read();
        for thread in self.threads.values_mut() {
            thread.line.read();
        }
        (self.from_ns, self.named_ns) = (now_ns, now_ns);
        self.next_ns = now_ns + self.request.step_ns;
        self.calls_before = calls.unwrap_or(0);
    }

    /// The processes that it counts for.
    pub fn pids(&self) -> &[u32] {
        &self.pids
    }

    /// Counts no more for a process, which has ended or may not be looked at any more. What it has counted since the last bucket is
    /// not told.
    pub fn lose(&mut self, pid: u32) {
        self.let_go(pid);
        self.all.counting.lose(pid);
        self.threads.retain(|_, thread| thread.pid != pid);
    }

    /// Meets no more threads of a process that has ended, whose number may be another's.
    pub fn let_go(&mut self, pid: u32) {
        self.pids.retain(|other| *other != pid);
    }

    /// Whether nobody reads it any more.
    pub fn is_closed(&self) -> bool {
        self.buckets.is_closed()
    }

    /// When the bucket is to end.
    pub fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// Ends the bucket and hands it over, once who reads it has been authorized again to look at the processes.
    pub fn end_bucket(&mut self, moment: &Moment<'_>) {
        let now_ns = moment.now_ns;
        self.take_met();
        let counted = self.all.read();
        let threads = self.threads.iter_mut().map(|(tid, thread)| ThreadCounted {
            tid: *tid,
            name: Arc::clone(&thread.name),
            counted: thread.line.read(),
        });
        let bucket = TimelineBucket {
            seq: self.seq,
            told: self.told.clone(),
            scope: Arc::clone(moment.scope),
            from_ns: self.from_ns,
            to_ns: now_ns,
            counted,
            // An edit of the scope may have taken away what had counted.
            calls: moment.calls.map(|calls| calls.saturating_sub(self.calls_before)),
            threads: threads.collect(),
            threads_left_out: self.threads_left_out,
            slow: self.slow,
            cost: moment.cost,
            ended: moment.ended.cloned(),
        };
        self.from_ns = now_ns;
        self.calls_before = moment.calls.unwrap_or(0);
        // A machine that is behind leaves steps out; it does not make up for them.
        let late_ns = now_ns.saturating_sub(self.next_ns);
        let steps = late_ns / self.request.step_ns.max(1) + 1;
        self.next_ns += steps * self.request.step_ns;
        self.seq += 1;
        if moment.ended.is_some() {
            self.buckets.end(bucket);
        } else if self.buckets.offer(bucket) {
            self.told = None;
        } else {
            self.slow += 1;
        }
        self.meet_threads(now_ns);
    }

    /// Takes over threads that were met, and lets go of those that are gone.
    fn take_met(&mut self) {
        if let Some(met) = self.meeting.as_mut().and_then(Meeting::take) {
            self.take(met);
        }
    }

    fn take(&mut self, met: Met) {
        self.threads.retain(|tid, _| met.running.contains(tid));
        let pids = &self.pids;
        let own = met
            .new
            .into_iter()
            .filter(|(_, thread)| pids.contains(&thread.pid));
        self.threads.extend(own);
        for (tid, name) in met.names {
            if let Some(thread) = self.threads.get_mut(&tid) {
                thread.name = name;
            }
        }
        self.threads_left_out = met.left_out;
    }

    /// Has threads met that are new by now, for the next bucket.
    fn meet_threads(&mut self, now_ns: u64) {
        let Some(meeting) = &mut self.meeting else { return };
        let with_names = now_ns.saturating_sub(self.named_ns) >= NAMES_NS;
        let ask = Ask {
            pids: self.pids.clone(),
            known: self.threads.keys().copied().collect(),
            with_names,
        };
        if meeting.ask(ask) && with_names {
            self.named_ns = now_ns;
        }
    }
}

/// Counts for all threads, and for those that they will begin.
///
/// A thread that begins between the look at which there are and the counting for its parent is not counted; one that begins
/// after it is counted with its parent, and must not be counted again. So it is begun anew until none has come meanwhile.
fn start_all(
    pids: &[u32],
    counters: &[Counter],
    leave: &Leave,
) -> Result<(Counting, Descriptors), SessionError> {
    let threads_of = |pid: &u32| {
        let pid = *pid;
        let tids = leave.threads(pid).tids.into_iter();
        tids.map(move |tid| ThreadId { tgid: pid, tid })
    };
    let look = || -> BTreeSet<ThreadId> { pids.iter().flat_map(threads_of).collect() };
    let mut ids = look();
    let mut looks = 1;
    loop {
        let of_threads: Vec<ThreadId> = ids.iter().copied().collect();
        let descriptors = leave.descriptors((counters.len() * of_threads.len()) as u64)?;
        let mut counting = Counting::start(counters, &of_threads, true).map_err(|error| refused(&error))?;
        let now = look();
        if looks == MAX_LOOKS || now.is_subset(&ids) {
            counting.keep(|id| now.contains(&id));
            return Ok((counting, descriptors));
        }
        (ids, looks) = (now, looks + 1);
    }
}

fn name(ThreadId { tgid, tid }: ThreadId) -> Arc<str> {
    name_of_thread(tgid, tid).unwrap_or_default().into()
}

/// A counter that this machine does not have, with those that there are.
fn not_here(counter: &Counter, why: &str) -> SessionError {
    with_those_here(&format!("there is no counter `{counter}`: {why}"))
}

/// A name that is no counter's.
pub fn unknown(name: &str) -> SessionError {
    with_those_here(&format!(
        "`{name}` is neither a perf counter nor of the form tracepoint:CATEGORY:NAME"
    ))
}

/// An error that names the counters that there are.
fn with_those_here(what: &str) -> SessionError {
    let here: Vec<String> = Counter::here().iter().map(Counter::to_string).collect();
    let message = format!("{what}. There are: {}", here.join(", "));
    SessionError::new(Reason::CounterNotFound, message).with("nearest", here.join(","))
}

fn refused(error: &CountersError) -> SessionError {
    match error {
        CountersError::TooMany { .. } => SessionError::new(Reason::LimitReached, error.to_string()),
        CountersError::Refused { source, .. } => match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => SessionError::new(
                Reason::CapabilityMissing,
                format!("{error}: counting by thread needs CAP_PERFMON"),
            )
            .with("capability", "CAP_PERFMON"),
            Some(libc::EMFILE | libc::ENFILE) => SessionError::new(
                Reason::LimitReached,
                format!("{error}: ask for fewer counters, or raise the limit of open files"),
            ),
            _ => SessionError::new(Reason::Kernel, error.to_string()),
        },
    }
}
