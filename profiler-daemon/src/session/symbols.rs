//! The thread that names addresses. All records pass through it, so that a span's end stays behind its
//! samples, and a slow look into debug information never holds up the session task.

mod allocated;
mod lock;
mod wakers;

use std::{
    collections::{HashMap, VecDeque},
    io,
    ops::Add,
    sync::{
        Arc,
        mpsc::{self, Receiver, SyncSender, TrySendError},
    },
    time::Duration,
};

use profiler_common::{
    probe::ProbeId,
    record::{SampleHeader, SpanEnd, SpanRef, Weight},
};

pub use self::wakers::{NamedWait, waiting};
use self::{allocated::AllocationSites, wakers::RememberedWakers};
use super::{cost::monotonic_ns, remembered::Remembered, system_calls::UnnamedStacks};
use crate::kernel::{
    Activity, Allocations, CallNumber, Hit, Interval, Key, Record, ReturnedCall, SharedStack, UserStack,
};
use profiler_aggregate::{ThreadId, waits::Lock};
use profiler_debug_files::{Finder, SideLoaded};
use profiler_symbolize::{Frame, FrameId, Grouping, Groupings, Stacks, Symbolizer, Word};

/// Batches that may wait to be named; records beyond are dropped, counted.
const MAX_BATCHES: usize = 256;

/// Batches that may wait to be taken; the thread waits where there are more.
const MAX_NAMED: usize = 256;

/// What is wanted of records.
#[derive(Clone, Copy, Default)]
pub struct Wanted {
    /// What frames stand for.
    pub groupings: Groupings,
    /// Samples of intervals off the CPU, and not only who ended these.
    pub samples: bool,
    /// What threads wait for in memory with these.
    pub locks: bool,
    /// What threads and processes are called, with each sample.
    pub tasks: bool,
}

impl Wanted {
    /// Whether threads or processes are shown by their names.
    pub fn names_tasks(self) -> bool {
        let mut by_task = [Grouping::Thread, Grouping::Process].into_iter();
        self.tasks || by_task.any(|by| self.groupings.contain(by))
    }
}

impl FromIterator<Self> for Wanted {
    fn from_iter<I: IntoIterator<Item = Self>>(all: I) -> Self {
        all.into_iter().fold(Self::default(), |mut wanted, more| {
            wanted.groupings.extend(more.groupings.iter());
            wanted.samples |= more.samples;
            wanted.locks |= more.locks;
            wanted.tasks |= more.tasks;
            wanted
        })
    }
}

/// A record whose addresses have names.
pub enum Named {
    /// A sample.
    Sample {
        /// The event that it was taken at, by [`crate::kernel::SampledEvent::id`]; 0 of time.
        event: u32,
        tgid: u32,
        tid: u32,
        /// When it was taken; of time off the CPU its end.
        ts_ns: u64,
        /// Nanoseconds, or a number of events.
        weight: u64,
        /// What it was about.
        key: Key,
        /// What the thread did in that time.
        activity: Activity,
        /// Sample count: 1, or 0 for a continuation of the previous sample.
        count: u64,
        spans: Vec<SpanRef>,
        stacks: Stacks,
        /// Whether it reaches a known root.
        complete: bool,
        /// It is of time that had not ended, and known to the session that ends then alone.
        goes_on: bool,
        /// What the thread waited for in memory, where that is wanted.
        lock: Option<Lock>,
        /// The system call that it left the CPU in.
        system_call: Option<CallNumber>,
        /// What it is called, where that is wanted.
        task: Option<Task>,
    },
    /// What a sample before stands for.
    Weight(Weight),
    /// The end of a span.
    SpanEnd(SpanEnd),
    /// A system call that has returned in open spans.
    SystemCall(ReturnedCall),
    /// A line was reached.
    Hit(NamedHit),
    /// An interval off the CPU, and who ended it; its samples follow.
    Wait(Box<NamedWait>),
    /// The stack that system calls were made from.
    Caller { id: u64, stacks: Stacks },
}

/// What a thread is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Task {
    pub thread: FrameId,
    /// Its process's command line.
    pub process: FrameId,
}

impl Task {
    fn of(symbolizer: &mut Symbolizer, ThreadId { tgid, tid }: ThreadId, now_ns: u64) -> Self {
        Self {
            thread: symbolizer.thread(tgid, tid, now_ns),
            process: symbolizer.process(tgid, now_ns),
        }
    }
}

/// A line that was reached, and the stack of the thread there, where that was asked for.
#[derive(Clone)]
pub struct NamedHit {
    pub hit: Hit,
    pub stack: Option<Arc<NamedStack>>,
}

/// A stack at the lines that ran.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamedStack {
    /// Root first.
    pub frames: Vec<FrameId>,
    /// Whether it reaches a known root.
    pub complete: bool,
}

/// Records that came together.
pub struct NamedBatch {
    pub records: Vec<Named>,
    /// Frames that are new with this batch, in the order of their numbers.
    pub frames: Vec<Frame>,
}

/// Records dropped because the thread fell behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Dropped {
    pub samples: u64,
    pub events: u64,
    pub span_ends: u64,
    pub system_calls: u64,
}

impl Dropped {
    /// Hits are told apart: see [`DroppedHits`].
    fn all(records: &[Record]) -> Self {
        let mut dropped = Self::default();
        for record in records {
            match record {
                Record::Sample { event: 0, .. } | Record::OffCpu(_) => dropped.samples += 1,
                Record::Sample { .. } => dropped.events += 1,
                Record::SpanEnd(_) => dropped.span_ends += 1,
                Record::SystemCall(_) => dropped.system_calls += 1,
                // A sample whose weight does not come is told where it waits.
                Record::Hit(_) | Record::Weight(_) => {}
            }
        }
        dropped
    }
}

impl Add for Dropped {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            samples: self.samples + other.samples,
            events: self.events + other.events,
            span_ends: self.span_ends + other.span_ends,
            system_calls: self.system_calls + other.system_calls,
        }
    }
}

/// What is in a batch.
#[derive(Default)]
struct Content {
    counts: Dropped,
    hits: DroppedHits,
}

impl Content {
    fn of(records: &[Record]) -> Self {
        let mut hits = DroppedHits::new();
        for record in records {
            // The others are parts of a hit, which is shown without them.
            if let Record::Hit(hit) = record
                && !hit.is_end
            {
                *hits.entry(hit.probe).or_default() += 1;
            }
        }
        Self {
            counts: Dropped::all(records),
            hits,
        }
    }
}

/// Hits and beginnings of calls that were dropped, by their probes.
pub type DroppedHits = HashMap<ProbeId, u64>;

/// Adds the hits of another batch.
fn add_hits(hits: &mut DroppedHits, more: &DroppedHits) {
    for (probe, count) in more {
        *hits.entry(*probe).or_default() += count;
    }
}

enum Job {
    Name {
        records: Vec<Record>,
        wanted: Wanted,
        now_ns: u64,
    },
    NameCallers {
        stacks: UnnamedStacks,
        groupings: Groupings,
        now_ns: u64,
    },
    Forget(u32),
    Meet {
        pids: Vec<u32>,
        now_ns: u64,
        then: Box<dyn FnOnce() + Send>,
    },
    MeetTasks {
        pids: Vec<u32>,
        now_ns: u64,
    },
    SideLoad(SideLoaded),
}

/// The way to the thread and back.
pub struct Symbols {
    jobs: SyncSender<Job>,
    named: Receiver<NamedBatch>,
    dropped: Dropped,
    /// Since they were last asked for.
    dropped_hits: DroppedHits,
    /// What is in the batches that were handed over and not taken back, oldest first.
    under_way: VecDeque<Content>,
}

impl Symbols {
    /// Starts the thread. Also gives the frames that exist from the beginning.
    pub fn start(allocations: Allocations, finder: Finder) -> io::Result<(Self, Vec<Frame>)> {
        let symbolizer = Symbolizer::with(finder);
        let frames = symbolizer.frames().to_vec();
        let (jobs, inbox) = mpsc::sync_channel(MAX_BATCHES);
        let (outbox, named) = mpsc::sync_channel(MAX_NAMED);
        std::thread::Builder::new()
            .name("symbols".to_owned())
            .spawn(move || run(symbolizer, allocations, &inbox, &outbox))?;
        let symbols = Self {
            jobs,
            named,
            dropped: Dropped::default(),
            dropped_hits: DroppedHits::new(),
            under_way: VecDeque::new(),
        };
        Ok((symbols, frames))
    }

    /// Hands over records, to be named as they are wanted. Where too many wait already, these are dropped.
    pub fn send(&mut self, records: Vec<Record>, wanted: Wanted, now_ns: u64) {
        let content = Content::of(&records);
        let job = Job::Name {
            records,
            wanted,
            now_ns,
        };
        match self.jobs.try_send(job) {
            Ok(()) => self.under_way.push_back(content),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.dropped = self.dropped + content.counts;
                add_hits(&mut self.dropped_hits, &content.hits);
            }
        }
    }

    /// Hands over stacks that system calls were made from, to be named in these groupings; whether there was room for them.
    pub fn name_callers(&mut self, stacks: UnnamedStacks, groupings: Groupings, now_ns: u64) -> bool {
        let job = Job::NameCallers {
            stacks,
            groupings,
            now_ns,
        };
        let is_sent = self.jobs.try_send(job).is_ok();
        if is_sent {
            self.under_way.push_back(Content::default());
        }
        is_sent
    }

    /// Forgets what is known of a process: it ended, or runs another program.
    pub fn forget(&self, pid: u32) {
        // Where the queue is full the cache lives on until it is evicted; nothing depends on this.
        let _ = self.jobs.try_send(Job::Forget(pid));
    }

    /// What has processes met, whose stacks will be named, and goes on then; at once where the thread is too busy.
    pub fn meeting(&self, pids: Vec<u32>, then: Box<dyn FnOnce() + Send>) -> impl FnOnce() + Send + use<> {
        let jobs = self.jobs.clone();
        move || {
            let now_ns = monotonic_ns();
            let refused = jobs.try_send(Job::Meet { pids, now_ns, then });
            if let Err(
                TrySendError::Full(Job::Meet { then, .. })
                | TrySendError::Disconnected(Job::Meet { then, .. }),
            ) = refused
            {
                then();
            }
        }
    }

    /// Has the threads of processes asked for their names, which may end before their first stack is named.
    pub fn meet_tasks(&self, pids: Vec<u32>, now_ns: u64) {
        // Where the thread is too busy, they are asked with their first records.
        let _ = self.jobs.try_send(Job::MeetTasks { pids, now_ns });
    }

    /// Hands over files with symbols; whether there was room for them.
    pub fn side_load(&self, files: SideLoaded) -> bool {
        self.jobs.try_send(Job::SideLoad(files)).is_ok()
    }

    /// A batch that is ready.
    pub fn take(&mut self) -> Option<NamedBatch> {
        let batch = self.named.try_recv().ok()?;
        self.under_way.pop_front();
        Some(batch)
    }

    /// A batch, waiting for it if one is under way; `None` when all are taken, or it takes too long.
    pub fn take_until(&mut self, until_ns: u64) -> Option<NamedBatch> {
        if self.under_way.is_empty() {
            return None;
        }
        let patience = Duration::from_nanos(until_ns.saturating_sub(monotonic_ns()));
        let batch = self.named.recv_timeout(patience).ok()?;
        self.under_way.pop_front();
        Some(batch)
    }

    /// Batches that are being named.
    pub fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// Records dropped because the thread fell behind.
    pub fn dropped(&self) -> Dropped {
        self.dropped
    }

    /// The same for a session that ends: what is under way comes too late for it.
    pub fn dropped_at_end(&self) -> Dropped {
        let under_way = self.under_way.iter().map(|content| content.counts);
        under_way.fold(self.dropped, Add::add)
    }

    /// Hits dropped because the thread fell behind, since they were last asked for.
    pub fn take_dropped_hits(&mut self) -> DroppedHits {
        std::mem::take(&mut self.dropped_hits)
    }

    /// Hits that are under way.
    pub fn hits_under_way(&self) -> DroppedHits {
        let mut hits = DroppedHits::new();
        for content in &self.under_way {
            add_hits(&mut hits, &content.hits);
        }
        hits
    }
}

fn run(
    mut symbolizer: Symbolizer,
    allocations: Allocations,
    inbox: &Receiver<Job>,
    outbox: &SyncSender<NamedBatch>,
) {
    let mut frames_sent = symbolizer.frames().len();
    let mut remembered = RememberedStacks {
        of_samples: Remembered::default(),
        of_hits: Remembered::default(),
        wakers: RememberedWakers::default(),
        sites: AllocationSites::new(allocations),
    };
    while let Ok(job) = inbox.recv() {
        match job {
            Job::Forget(pid) => symbolizer.forget(pid),
            Job::Meet { pids, now_ns, then } => {
                for pid in pids {
                    symbolizer.meet(pid, now_ns);
                }
                then();
            }
            Job::MeetTasks { pids, now_ns } => {
                for pid in pids {
                    symbolizer.meet_tasks(pid, now_ns);
                }
            }
            Job::SideLoad(files) => symbolizer.side_load(files),
            Job::Name {
                records,
                wanted,
                now_ns,
            } => {
                meet_tasks(&mut symbolizer, &records, wanted, now_ns);
                let mut named = Vec::with_capacity(records.len());
                for record in records {
                    name(
                        &mut symbolizer,
                        &mut remembered,
                        record,
                        wanted,
                        now_ns,
                        &mut named,
                    );
                }
                if outbox.send(batch(&symbolizer, named, &mut frames_sent)).is_err() {
                    return;
                }
            }
            Job::NameCallers {
                stacks,
                groupings,
                now_ns,
            } => {
                let named = stacks
                    .iter()
                    .map(|(tgid, stack)| name_caller(&mut symbolizer, *tgid, stack, groupings, now_ns))
                    .collect();
                if outbox.send(batch(&symbolizer, named, &mut frames_sent)).is_err() {
                    return;
                }
            }
        }
    }
}

/// Looks what the threads of samples are called, where that is wanted, before their stacks are named: that may take long, and threads end
/// meanwhile.
fn meet_tasks(symbolizer: &mut Symbolizer, records: &[Record], wanted: Wanted, now_ns: u64) {
    if !wanted.names_tasks() {
        return;
    }
    let mut last = None;
    for record in records {
        let (tgid, tid) = match record {
            Record::Sample { tgid, tid, .. } => (*tgid, *tid),
            Record::OffCpu(interval) => (interval.tgid, interval.tid),
            _ => continue,
        };
        if last != Some((tgid, tid)) {
            symbolizer.meet_tasks(tgid, now_ns);
            symbolizer.thread(tgid, tid, now_ns);
            last = Some((tgid, tid));
        }
    }
}

/// A batch of records with the frames that are new since the one before.
fn batch(symbolizer: &Symbolizer, records: Vec<Named>, frames_sent: &mut usize) -> NamedBatch {
    let all = symbolizer.frames();
    let frames = all.get(*frames_sent..).unwrap_or_default().to_vec();
    *frames_sent = all.len();
    NamedBatch { records, frames }
}

/// Names a stack that system calls were made from.
fn name_caller(
    symbolizer: &mut Symbolizer,
    tgid: u32,
    stack: &SharedStack,
    groupings: Groupings,
    now_ns: u64,
) -> Named {
    let frames = name_stack(
        symbolizer,
        tgid,
        &stack.kernel,
        stack.user.clone(),
        groupings,
        now_ns,
    );
    let stacks = frames.group(
        symbolizer,
        groupings,
        ThreadId { tgid, tid: tgid },
        (Activity::OnCpu, false),
        now_ns,
    );
    Named::Caller { id: stack.id, stacks }
}

/// A stack as far as it has been named, innermost first.
#[derive(Default)]
struct Walked {
    functions: Vec<FrameId>,
    /// The same with the lines that ran, where they are asked for.
    lines: Option<Vec<FrameId>>,
    /// The address that was named last, of user space.
    outermost: Option<u64>,
}

impl Walked {
    /// Names an address; says whether anything is mapped there.
    fn add(&mut self, symbolizer: &mut Symbolizer, tgid: u32, address: u64, now_ns: u64) -> bool {
        let known = self.functions.len();
        symbolizer.resolve_user(tgid, address, now_ns, &mut self.functions);
        if let Some(lines) = &mut self.lines {
            symbolizer.resolve_user_lines(tgid, address, now_ns, lines);
        }
        self.outermost = Some(address);
        !self.functions[known..]
            .iter()
            .any(|frame| symbolizer.is_unmapped(*frame))
    }

    /// Names the addresses of a stack that was walked by tables; the stack's flags, less what turns out not to be so.
    fn add_all(&mut self, symbolizer: &mut Symbolizer, tgid: u32, stack: &UserStack, now_ns: u64) -> u16 {
        for (depth, address) in stack.addresses.iter().enumerate() {
            let returns = u64::from(address & SampleHeader::INTERRUPTED == 0);
            let address = (address & SampleHeader::ADDRESS).saturating_sub(returns);
            let (before, outermost) = (self.len(), self.outermost);
            // Nothing calls from where nothing is mapped: a guess by frame pointer, or by a table of what was here before,
            // has gone astray.
            if !self.add(symbolizer, tgid, address, now_ns) && depth > 0 {
                self.truncate(before);
                self.outermost = outermost;
                return stack.flags & !SampleHeader::USER_COMPLETE;
            }
        }
        stack.flags
    }

    /// Whether it reaches a known root, or the one call of a thread's first function.
    fn is_complete(&self, symbolizer: &mut Symbolizer, tgid: u32, flags: u16, now_ns: u64) -> bool {
        let cut = flags & (SampleHeader::USER_TRUNCATED | SampleHeader::USER_MISSING) != 0;
        if cut || flags & SampleHeader::USER_COMPLETE != 0 {
            return !cut;
        }
        let is_root = self
            .functions
            .last()
            .is_some_and(|outermost| symbolizer.is_root(*outermost));
        is_root
            || self
                .outermost
                .is_some_and(|address| symbolizer.ends_behind(tgid, address, now_ns))
    }

    fn len(&self) -> (usize, usize) {
        (self.functions.len(), self.lines.as_ref().map_or(0, Vec::len))
    }

    fn truncate(&mut self, (functions, lines): (usize, usize)) {
        self.functions.truncate(functions);
        if let Some(known) = &mut self.lines {
            known.truncate(lines);
        }
    }
}

/// What was named before: stacks of samples in the groupings that are looked at, those of hits by lines, and where memory was
/// allocated.
struct RememberedStacks {
    of_samples: Remembered,
    of_hits: Remembered,
    wakers: RememberedWakers,
    sites: AllocationSites,
}

/// Names a record: one or more come of it.
fn name(
    symbolizer: &mut Symbolizer,
    remembered: &mut RememberedStacks,
    record: Record,
    wanted: Wanted,
    now_ns: u64,
    named: &mut Vec<Named>,
) {
    let groupings = wanted.groupings;
    match record {
        Record::SpanEnd(end) => named.push(Named::SpanEnd(end)),
        Record::SystemCall(call) => named.push(Named::SystemCall(call)),
        Record::Weight(weight) => named.push(Named::Weight(weight)),
        Record::Hit(hit) => named.push(Named::Hit(name_hit(
            symbolizer,
            &mut remembered.of_hits,
            hit,
            now_ns,
        ))),
        Record::Sample {
            event,
            tgid,
            tid,
            ts_ns,
            weight,
            key,
            spans,
            kernel,
            user: addresses,
            flags,
        } => {
            let thread = ThreadId { tgid, tid };
            let stack = Taken {
                thread,
                kernel: &kernel,
                user: &UserStack { addresses, flags },
                activity: Activity::OnCpu,
            };
            let (stacks, complete) =
                name_taken(symbolizer, &mut remembered.of_samples, &stack, groupings, now_ns);
            let task = wanted.tasks.then(|| Task::of(symbolizer, thread, now_ns));
            named.push(Named::Sample {
                event,
                tgid,
                tid,
                ts_ns,
                weight,
                key,
                activity: Activity::OnCpu,
                count: 1,
                spans,
                stacks,
                complete,
                goes_on: false,
                lock: None,
                system_call: None,
                task,
            });
        }
        Record::OffCpu(interval) => {
            name_interval(symbolizer, remembered, &interval, wanted, now_ns, named);
        }
    }
}

/// Names the stack of an interval off the CPU: a sample for each thing that the thread did.
fn name_interval(
    symbolizer: &mut Symbolizer,
    remembered: &mut RememberedStacks,
    interval: &Interval,
    wanted: Wanted,
    now_ns: u64,
    named: &mut Vec<Named>,
) {
    let groupings = wanted.groupings;
    let Interval { tgid, tid, .. } = *interval;
    let thread = ThreadId { tgid, tid };
    let mut stacks_of = |activity| {
        if let Some(SharedStack { kernel, user, .. }) = interval.stack.as_deref() {
            let stack = Taken {
                thread,
                kernel,
                user,
                activity,
            };
            if !interval.goes_on {
                let remembered = &mut remembered.of_samples;
                return name_taken(symbolizer, remembered, &stack, groupings, now_ns);
            }
            let kernel = outside_scheduler(symbolizer, kernel);
            let frames = name_stack(symbolizer, tgid, kernel, user.clone(), groupings, now_ns);
            let did = (activity, true);
            let stacks = frames.group(symbolizer, groupings, thread, did, now_ns);
            (stacks, frames.complete)
        } else {
            let frames = NamedFrames::not_taken(groupings);
            let did = (activity, interval.goes_on);
            let stacks = frames.group(symbolizer, groupings, thread, did, now_ns);
            (stacks, frames.complete)
        }
    };
    // Whoever asks for wakers has functions named; innermost is what the thread did.
    let waited = interval.asks_waker.then(|| stacks_of(interval.waited).0);
    let parts: Vec<_> = interval
        .parts()
        .filter(|_| wanted.samples)
        .map(|(activity, weight_ns)| (activity, weight_ns, stacks_of(activity)))
        .collect();
    if let Some(stacks) = waited {
        let functions = stacks.of(Grouping::Function).unwrap_or_default();
        let words = 1 + usize::from(interval.goes_on);
        let functions = functions
            .get(..functions.len().saturating_sub(words))
            .unwrap_or_default();
        let lock = lock::of(symbolizer, &mut remembered.sites, interval, now_ns);
        let known = &mut remembered.wakers;
        let wait = wakers::name_wait(symbolizer, known, interval, (functions, lock), now_ns);
        named.push(Named::Wait(Box::new(wait)));
    }
    let lock = if wanted.locks {
        lock::of(symbolizer, &mut remembered.sites, interval, now_ns)
    } else {
        None
    };
    let task = wanted.tasks.then(|| Task::of(symbolizer, thread, now_ns));
    let mut ts_ns = interval.start_ns;
    for (number, (activity, weight_ns, (stacks, complete))) in parts.into_iter().enumerate() {
        ts_ns += weight_ns;
        named.push(Named::Sample {
            event: 0,
            tgid,
            tid,
            ts_ns,
            weight: weight_ns,
            key: Key::default(),
            activity,
            // The programs have not counted one that goes on.
            count: u64::from(number == 0 && !interval.goes_on),
            spans: interval.spans.clone(),
            stacks,
            complete,
            goes_on: interval.goes_on,
            lock: lock.filter(|_| activity != Activity::Runnable),
            system_call: interval.system_call,
            task,
        });
    }
}

/// A stack as it was taken.
struct Taken<'a> {
    thread: ThreadId,
    kernel: &'a [u64],
    user: &'a UserStack,
    /// What the thread did there.
    activity: Activity,
}

/// Names a stack, unless it was named before; says whether it is complete.
fn name_taken(
    symbolizer: &mut Symbolizer,
    remembered: &mut Remembered,
    stack: &Taken<'_>,
    groupings: Groupings,
    now_ns: u64,
) -> (Stacks, bool) {
    let Taken {
        thread,
        kernel,
        user,
        activity,
    } = *stack;
    let tgid = thread.tgid;
    remembered.turn_to(groupings, (tgid, activity), user.flags, kernel, &user.addresses);
    let (generation, fleeting) = (symbolizer.generation(tgid, now_ns), symbolizer.fleeting());
    if let Some(known) = remembered.get(generation) {
        return known;
    }
    let kernel = match activity {
        Activity::OnCpu => kernel,
        _ => outside_scheduler(symbolizer, kernel),
    };
    let frames = name_stack(symbolizer, tgid, kernel, user.clone(), groupings, now_ns);
    let stacks = frames.group(symbolizer, groupings, thread, (activity, false), now_ns);
    // Threads and processes can be given other names.
    let is_lasting = fleeting == symbolizer.fleeting()
        && generation == symbolizer.generation(tgid, now_ns)
        && ![Grouping::Thread, Grouping::Process]
            .into_iter()
            .any(|grouping| groupings.contain(grouping));
    if is_lasting {
        remembered.keep(generation, &stacks, frames.complete);
    }
    (stacks, frames.complete)
}

/// A kernel's stack without what the scheduler does once it has been asked for another thread, our own programs among it.
fn outside_scheduler<'a>(symbolizer: &mut Symbolizer, kernel: &'a [u64]) -> &'a [u64] {
    let mut frames = Vec::new();
    for (depth, address) in kernel.iter().take(MAX_IN_SCHEDULER).enumerate() {
        frames.clear();
        symbolizer.resolve_kernel(call_site(*address, depth), &mut frames);
        let function = frames
            .last()
            .and_then(|frame| symbolizer.frames().get(frame.0 as usize));
        if function.is_some_and(|frame| &*frame.function == "__schedule") {
            return kernel.get(depth + 1..).unwrap_or_default();
        }
    }
    kernel
}

/// Frames between the scheduler's own function and the innermost, at most.
const MAX_IN_SCHEDULER: usize = 8;

/// A stack whose addresses have names, root first.
struct NamedFrames {
    functions: Vec<FrameId>,
    /// The same with the lines that ran, where they are asked for.
    lines: Vec<FrameId>,
    /// Whether it reaches a known root.
    complete: bool,
}

impl NamedFrames {
    /// In the place of one that was not taken.
    fn not_taken(groupings: Groupings) -> Self {
        let functions = vec![Word::StackNotTaken.frame()];
        Self {
            lines: if groupings.contain(Grouping::Line) {
                functions.clone()
            } else {
                Vec::new()
            },
            functions,
            complete: false,
        }
    }

    /// In each grouping, with what the thread did innermost, unless it ran; and whether it still does.
    fn group(
        &self,
        symbolizer: &mut Symbolizer,
        groupings: Groupings,
        ThreadId { tgid, tid }: ThreadId,
        (activity, goes_on): (Activity, bool),
        now_ns: u64,
    ) -> Stacks {
        let words = [off_cpu_word(activity), goes_on.then_some(Word::GoesOn)];
        let innermost: Vec<FrameId> = words.into_iter().flatten().map(Word::frame).collect();
        Stacks::make(groupings, |grouping| {
            let mut frames = match grouping {
                Grouping::Function => self.functions.clone(),
                Grouping::Line => self.lines.clone(),
                Grouping::Module => symbolizer.fold_by_module(&self.functions),
                Grouping::Thread => [&[symbolizer.thread(tgid, tid, now_ns)], &*self.functions].concat(),
                Grouping::Process => [&[symbolizer.process(tgid, now_ns)], &*self.functions].concat(),
            };
            frames.extend(&innermost);
            frames
        })
    }
}

/// What a thread does that does not run, in a word.
fn off_cpu_word(activity: Activity) -> Option<Word> {
    match activity {
        Activity::OnCpu => None,
        Activity::Sleeping => Some(Word::Sleeping),
        Activity::Uninterruptible => Some(Word::Uninterruptible),
        Activity::Stopped => Some(Word::Stopped),
        Activity::Runnable => Some(Word::Runnable),
    }
}

/// Names the addresses of a sample.
fn name_stack(
    symbolizer: &mut Symbolizer,
    tgid: u32,
    kernel: &[u64],
    mut user: UserStack,
    groupings: Groupings,
    now_ns: u64,
) -> NamedFrames {
    let mut walked = Walked::default();
    for (depth, address) in kernel.iter().enumerate() {
        symbolizer.resolve_kernel(call_site(*address, depth), &mut walked.functions);
    }
    // The kernel's lines are not known.
    walked.lines = groupings
        .contain(Grouping::Line)
        .then(|| walked.functions.clone());
    if user.flags & SampleHeader::USER_BY_KERNEL == 0 {
        user.flags = walked.add_all(symbolizer, tgid, &user, now_ns);
    } else {
        let functions = walked
            .functions
            .iter()
            .filter_map(|frame| symbolizer.frames().get(frame.0 as usize));
        let in_breakpoint = is_behind_breakpoint(functions.map(|frame| &*frame.function));
        for (depth, address) in user.addresses.iter().enumerate() {
            let depth = depth + usize::from(in_breakpoint);
            walked.add(symbolizer, tgid, call_site(*address, depth), now_ns);
        }
    }
    let complete = walked.is_complete(symbolizer, tgid, user.flags, now_ns);
    let Walked {
        mut functions, lines, ..
    } = walked;
    let mut lines = lines.unwrap_or_default();
    functions.reverse();
    lines.reverse();
    NamedFrames {
        functions,
        lines,
        complete,
    }
}

/// Names the stack of a hit, if it has one.
fn name_hit(symbolizer: &mut Symbolizer, remembered: &mut Remembered, mut hit: Hit, now_ns: u64) -> NamedHit {
    let stack = hit.stack.take().map(|user| {
        let stack = Taken {
            thread: ThreadId {
                tgid: hit.tgid,
                tid: hit.tid,
            },
            kernel: &[],
            user: &user,
            activity: Activity::OnCpu,
        };
        let lines = std::iter::once(Grouping::Line).collect();
        let (stacks, complete) = name_taken(symbolizer, remembered, &stack, lines, now_ns);
        let frames = stacks.of(Grouping::Line).unwrap_or_default().to_vec();
        Arc::new(NamedStack { frames, complete })
    });
    NamedHit { hit, stack }
}

/// Whether the thread's address is that behind a probe's breakpoint, which may be in another function: so it is
/// until the kernel has found out whose breakpoint it is and set the address back, before it runs the programs.
/// The kernel's functions are given from the innermost one.
fn is_behind_breakpoint<'a>(kernel: impl Iterator<Item = &'a str>) -> bool {
    let mut entry = None;
    for function in kernel {
        if SET_BACK.contains(&function) {
            return false;
        }
        entry = Some(function);
    }
    entry == Some("asm_exc_int3")
}

/// What the kernel calls once it has set the address back; which of them are inlined differs between kernels.
const SET_BACK: [&str; 6] = [
    "handler_chain",
    "uprobe_dispatcher",
    "uprobe_multi_link_handler",
    "prepare_uretprobe",
    "arch_uretprobe_hijack_return_addr",
    "arch_uprobe_skip_sstep",
];

/// Frames outside the innermost are return addresses: the call is the instruction before.
fn call_site(address: u64, depth: usize) -> u64 {
    if depth == 0 {
        address
    } else {
        address.saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hit(probe: u32, is_end: bool) -> Record {
        Record::Hit(Hit {
            tgid: 1,
            tid: 1,
            probe: ProbeId(probe),
            ts_ns: 0,
            parent: 0,
            joined: false,
            is_entry: false,
            is_end,
            values: Vec::new(),
            stack: None,
        })
    }

    #[test]
    fn counts_dropped_records_by_kind_and_probe() {
        let (jobs, inbox) = mpsc::sync_channel(1);
        let (_outbox, named) = mpsc::sync_channel(1);
        let mut symbols = Symbols {
            jobs,
            named,
            dropped: Dropped::default(),
            dropped_hits: DroppedHits::new(),
            under_way: VecDeque::new(),
        };
        let send = |symbols: &mut Symbols, records| symbols.send(records, Wanted::default(), 0);
        send(&mut symbols, vec![hit(5, false)]);
        assert!(symbols.take_dropped_hits().is_empty());
        assert_eq!(symbols.hits_under_way(), DroppedHits::from([(ProbeId(5), 1)]));
        // Nobody takes the first batch.
        send(&mut symbols, vec![hit(5, false), hit(6, false), hit(6, true)]);
        send(&mut symbols, vec![hit(6, false)]);
        let expected = DroppedHits::from([(ProbeId(5), 1), (ProbeId(6), 2)]);
        assert_eq!(symbols.take_dropped_hits(), expected);
        assert!(symbols.take_dropped_hits().is_empty(), "each once");
        assert_eq!(symbols.dropped(), Dropped::default());
        drop(inbox);
    }

    #[test]
    fn the_address_is_behind_a_breakpoint_until_it_is_set_back() {
        let behind = |kernel: &[&str]| is_behind_breakpoint(kernel.iter().copied());
        let begun = [
            "find_active_uprobe_rcu",
            "uprobe_notify_resume",
            "irqentry_exit_to_user_mode",
            "asm_exc_int3",
        ];
        assert!(behind(&begun));
        let runs = [
            "bpf_prog_run",
            "handler_chain",
            "uprobe_notify_resume",
            "irqentry_exit_to_user_mode",
            "asm_exc_int3",
        ];
        assert!(!behind(&runs));
        assert!(!behind(&["__schedule", "asm_sysvec_apic_timer_interrupt"]));
        assert!(!behind(&[]));
    }
}
