//! One session: its probes, its aggregates, its watchers.
//!
//! | file | idea |
//! |---|---|
//! | `edit` | its scope put in the place of the one before |
//! | `division` | what its steps ask of durations, and what that comes to |
//! | `take` | what is taken from records |
//! | `processes` | the processes that it looks at |
//! | `children` | processes that its own begin, which have its probes' breakpoints |
//! | `read` | what the programs have counted, and what was lost |
//! | `views` | what can be watched of it, each view in a file |
//! | `governed` | what its probes cost the target, and which of them go |

mod children;
mod division;
mod edit;
mod governed;
mod processes;
pub(super) mod read;
mod take;
pub(super) mod views;

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use profiler_common::probe::ProbeId;

use self::children::Children;
use self::processes::Processes;
use self::take::Inside;
use self::views::{OpenStreams, Tick};
pub use self::{
    edit::MAX_HISTORY,
    governed::{CpuTime, OVER_BUDGET, ProbeCosts, percent, spans_reached},
    views::Closed,
};
use super::{
    WINDOW_SLOTS,
    attendance::Attendance,
    budget::Budget,
    by_value::ByValues,
    calibrate::HitCosts,
    chains::Chains,
    command::{Caller, Capture},
    cost::Meter,
    departures::{Departed, DepartureCause, Departures, Leaving},
    ending::{EndCause, Ending},
    explain::Explain,
    flame::Flame,
    late_code::ReturnProbes,
    name::SessionName,
    off_at_first::OffLook,
    picture::{Cost, ExitMethod, FlameKind, SessionInfo},
    population::JoinedCalls,
    prepare::{Prepared, PreparedAllocator},
    probed_code::ProbedCodes,
    quotas::Held,
    records::Recorder,
    sampled_events::SampledEvents,
    sampling::Sampling,
    span_losses::SpanLosses,
    spans::{SampledFrom, Spans},
    steps::Steps,
    symbols::Dropped,
    system_calls::WatchedCalls,
    timeline::{Leaves, Timeline},
    trace::Trace,
    waits::WatchedWaits,
};
use crate::kernel::{AllocationWatch, Attachment, Detached, Engine, KernelError};
use profiler_aggregate::{
    latency::AgeConfig,
    path::{self, Path},
    slots::WindowConfig,
    threshold::Band,
};
use profiler_scope::{Scope, Step};
use profiler_symbolize::FrameTable;
use profiler_target::Process;

/// One session.
pub struct Session {
    pub name: SessionName,
    owner: Caller,
    scope: Scope,
    scope_text: Arc<str>,
    /// Texts of the scopes before, the latest last.
    history: Vec<Arc<str>>,
    /// Grows with each edit.
    revision: u64,
    /// Somebody has edited its scope, and may take that back.
    is_edited: bool,
    processes: Processes,
    steps: Steps,
    /// What waits for the durations that steps ask for.
    path: Path<Inside>,
    joined_calls: JoinedCalls,
    dropped: path::Dropped,
    /// What all sessions had lost before it began.
    lost_before: SpanLosses,
    /// What programs were at while a process of it was not admitted.
    not_admitted: u64,
    /// The most files of its processes that had no unwind table at once, as there was no room for it.
    no_unwind_table: u64,
    /// What its processes began, which has their breakpoints and is not looked at.
    children: Children,
    capture: Option<Capture>,
    trace: Trace,
    timelines: Vec<Timeline>,
    /// The calls by value, where they are divided.
    by: Option<ByValues>,
    /// Durations of calls that are traced.
    traced: Band,
    /// The duration from which on a call of the last step is slow.
    slow_from_ns: u64,
    /// The slowest calls, while they are watched.
    spans: Option<Spans>,
    sampled_from: SampledFrom,
    /// Those of the plan of its scope.
    planned_warnings: Vec<String>,
    /// Why it looks no more at processes that it did look at.
    left: Vec<String>,
    /// Which of its processes have left it.
    departed: Departed,
    perf_links: bool,
    pub frequency_hz: u32,
    ages: AgeConfig,
    lease_ns: u64,
    exit_method: Option<ExitMethod>,
    /// Told of its return probes, which are looked after.
    returns: Arc<ReturnProbes>,
    /// Told of the code of its probes, which is watched.
    codes: Arc<ProbedCodes>,
    lease_until_ns: u64,
    meter: Meter,
    /// What its probes may cost the target; `None` where that is not bounded.
    budget: Option<Budget>,
    cpu_time: CpuTime,
    /// One for each kind of frame that is watched: a few, each of bounded size.
    flames: BTreeMap<FlameKind, Flame>,
    /// What stacks are taken at for those that are not of time.
    events: SampledEvents,
    explain: Option<Explain>,
    /// What had been lost before it began.
    before_explain: Sampling,
    /// What its edits have detached.
    detached: Option<Detached>,
    /// How often sessions had begun to be prepared when it was made.
    pub preparation: u64,
    /// When it ended.
    samples_until_ns: u64,
    /// Who watches it.
    streams: OpenStreams,
    /// Who is off the CPU, while that is looked at.
    off_look: OffLook,
    /// What is drawn on waits, while there are flame graphs with that.
    chains: Option<Chains>,
    /// Who its threads wait for, while that is watched.
    waits: Option<WatchedWaits>,
    /// Its threads' system calls, while these are watched.
    calls: Option<WatchedCalls>,
    /// Who allocates memory, where that is remembered.
    allocations: Vec<AllocationWatch>,
    /// Why it is not looked any more who allocates memory.
    allocations_off: Option<String>,
    /// Its records, while somebody keeps them.
    records: Option<Recorder>,
}

/// How a session is set up, beyond its scope and target.
#[derive(Clone)]
pub struct Terms {
    pub owner: Caller,
    pub frequency_hz: u32,
    pub window_ns: u64,
    pub half_life_ns: u64,
    pub lease_ns: u64,
    /// As asked for; `None` for the safest.
    pub exit_method: Option<ExitMethod>,
    /// What is recorded of each hit.
    pub capture: Option<Capture>,
    /// Share of the target's CPU time that probes may take; `None` where that is not bounded.
    pub budget: Option<f64>,
    /// Told of its return probes.
    pub returns: Arc<ReturnProbes>,
    /// Told of the code of its probes.
    pub codes: Arc<ProbedCodes>,
    /// Leave for threads that wait for its target's kernel.
    pub leaves: Leaves,
}

impl Session {
    /// Attaches what was prepared. When this returns, every probe is live. What a hit costs is of interest where slow
    /// calls are explained.
    pub fn attach(
        engine: &mut Engine,
        name: SessionName,
        terms: Terms,
        (mut prepared, hit_costs): (Prepared, Option<HitCosts>),
        now_ns: u64,
    ) -> Result<Self, KernelError> {
        let (explain, code) = (prepared.explain.take(), prepared.code.clone());
        let ages = AgeConfig {
            window: WindowConfig {
                window_ns: terms.window_ns,
                slots: WINDOW_SLOTS,
            },
            half_life_ns: terms.half_life_ns,
        };
        let by = terms.capture.as_ref().and_then(Capture::divides_by);
        let by = by.map(ByValues::new);
        let mut session = Self {
            name,
            owner: terms.owner,
            scope: Scope::default(),
            scope_text: "".into(),
            history: Vec::new(),
            // Another session of the same name is not edited by what was made for this one.
            revision: now_ns,
            is_edited: false,
            processes: Processes::default(),
            steps: Steps::default(),
            path: Path::new([], Inside::weight),
            joined_calls: JoinedCalls::default(),
            dropped: path::Dropped::default(),
            capture: terms.capture,
            trace: Trace::default(),
            timelines: Vec::new(),
            by,
            traced: Band::ALL,
            slow_from_ns: u64::MAX,
            spans: None,
            sampled_from: SampledFrom::default(),
            planned_warnings: Vec::new(),
            left: Vec::new(),
            departed: Departed::of(prepared.processes.len()),
            perf_links: engine.ability().attach == crate::kernel::AttachKind::Perf,
            frequency_hz: terms.frequency_hz,
            ages,
            lease_ns: terms.lease_ns,
            exit_method: terms.exit_method,
            returns: terms.returns,
            codes: terms.codes,
            lease_until_ns: now_ns.saturating_add(terms.lease_ns),
            meter: Meter::new(now_ns),
            budget: terms.budget.map(Budget::new),
            cpu_time: CpuTime::default(),
            flames: BTreeMap::new(),
            events: SampledEvents::new(terms.leaves.clone(), terms.owner),
            off_look: OffLook::new(terms.leaves, terms.owner),
            lost_before: SpanLosses::now(engine),
            not_admitted: 0,
            no_unwind_table: 0,
            children: Children::default(),
            before_explain: Sampling::default(),
            explain: None,
            detached: None,
            preparation: 0,
            samples_until_ns: u64::MAX,
            streams: OpenStreams::default(),
            chains: None,
            waits: None,
            calls: None,
            allocations: Vec::new(),
            allocations_off: None,
            records: None,
        };
        let allocators = std::mem::take(&mut prepared.allocators);
        let attached = session
            .watch_allocations(engine, &allocators)
            .and_then(|()| session.replace(engine, Dropped::default(), prepared, now_ns))
            .and_then(|()| session.begin_explain(engine, explain, hit_costs));
        match attached {
            Ok(()) => {
                session.returns.set(&session.return_probed(), code);
                // Those that begin from now on have the probes.
                session.read_children(engine);
                Ok(session)
            }
            Err(error) => {
                session.detach(engine);
                Err(error)
            }
        }
    }

    /// Takes its probes off the target; what they have counted stays, for the last pictures.
    pub fn quiesce(&mut self, engine: &mut Engine) {
        self.codes.set(std::iter::empty(), &[]);
        self.read_children(engine);
        self.steps.quiesce(engine, None);
        if let Some(explain) = &mut self.explain {
            explain.quiesce(engine);
        }
    }

    /// Whether its probes that were taken off are off the target, or it is not known when they will be.
    pub fn is_settled(&self) -> bool {
        self.quiesced().all(Attachment::is_settled)
    }

    /// Waits until it is settled.
    pub fn wait_until_settled(&self) {
        self.quiesced().for_each(Attachment::wait_until_settled);
    }

    /// Whether a program may still run that was taken off a process.
    pub fn may_run_on(&self, pid: u32) -> bool {
        let mut quiesced = self.quiesced();
        quiesced.any(|attachment| attachment.pid() == pid && attachment.may_run_on())
    }

    /// How long its probes counted after they were taken off, in nanoseconds.
    pub fn delay_ns(&self) -> u64 {
        let longest = self.quiesced().map(Attachment::delay).max().unwrap_or_default();
        u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX)
    }

    fn quiesced(&self) -> impl Iterator<Item = &Attachment> {
        let explained = self.explain.iter().flat_map(Explain::attachments);
        self.steps.all_attached().chain(explained)
    }

    /// Takes no samples any more that are taken after this time: it has ended then.
    pub fn end_samples(&mut self, ns: u64) {
        self.samples_until_ns = ns;
    }

    /// What it holds of what all sessions share.
    pub fn held(&self) -> Held {
        Held {
            sessions: 1,
            probes: self.steps.probes_held(),
            gates: self.steps.gates_held(),
            values: self.steps.values_held(),
        }
    }

    /// How many times something is attached for it: each file of each process, in each step.
    pub fn attachments(&self) -> usize {
        self.steps.attachments()
    }

    /// What may still be on the target once its links are closed: what was detached while it ran. `None` where more stays there until
    /// [`Self::detach`].
    pub fn detached(&self, engine: &Engine) -> Option<Detached> {
        let is_all = self.is_settled() && self.allocations.is_empty() && self.calls.is_none();
        is_all.then(|| self.detached_before(engine))
    }

    fn detached_before(&self, engine: &Engine) -> Detached {
        let of_explain = self.explain.as_ref().and_then(Explain::detached);
        let both = [of_explain, self.detached.as_ref()];
        let still_there = both
            .into_iter()
            .flatten()
            .filter(|before| !engine.has_left(before));
        still_there.fold(Detached::default(), |all, before| all.and(Some(before)))
    }

    /// Detaches everything; gives all of it that may still be on the target.
    pub fn detach(&mut self, engine: &mut Engine) -> Detached {
        let before = self.detached_before(engine);
        let detached = engine.detached_by(|engine| {
            if let Some(mut explain) = self.explain.take() {
                explain.end(engine);
            }
            self.end_calls(engine);
            self.steps.detach(engine);
            self.forget_allocations(engine);
        });
        detached.and(Some(&before))
    }

    /// Looks no more who allocates memory.
    fn forget_allocations(&mut self, engine: &mut Engine) {
        for watch in self.allocations.drain(..) {
            engine.end_allocations(watch);
        }
    }

    /// What it has detached may still be on the target when it ends.
    fn note_detached(&mut self, engine: &Engine, detached: Detached) {
        // What left long ago is waited for no more.
        let earlier = self.detached.take().filter(|earlier| !engine.has_left(earlier));
        self.detached = Some(detached.and(earlier.as_ref()));
    }

    /// Remembers from now on who allocates memory.
    fn watch_allocations(
        &mut self,
        engine: &mut Engine,
        allocators: &[PreparedAllocator],
    ) -> Result<(), KernelError> {
        for PreparedAllocator { pid, files } in allocators {
            let files = files.iter().map(|(file, functions)| (&**file, &**functions));
            self.allocations.push(engine.watch_allocations(*pid, files)?);
        }
        Ok(())
    }

    /// The probes of all spans.
    fn probes(&self) -> impl Iterator<Item = ProbeId> + '_ {
        self.steps.iter().flat_map(|step| step.functions.probes())
    }

    /// The steps as they were asked for.
    fn asked_steps(&self) -> Vec<&Step> {
        self.steps.iter().map(|step| &step.step).collect()
    }

    /// Whether calls of the last step are asked for by what they return.
    fn last_asks_for_return(&self) -> bool {
        self.steps.last().is_some_and(|last| last.step.asks_for_return())
    }

    /// What the daemon and the session's probes cost so far.
    fn cost(&self, now_ns: u64) -> Cost {
        self.meter
            .read(now_ns, self.budget.as_ref().and_then(Budget::used))
    }

    /// A moment at which something is given out.
    fn tick<'a>(
        &self,
        engine: &'a Engine,
        frames: &'a FrameTable,
        dropped: Dropped,
        now_ns: u64,
    ) -> Tick<'a> {
        Tick {
            engine,
            frames,
            dropped,
            cost: self.cost(now_ns),
            now_ns,
            ended: None,
        }
    }

    /// Whether a caller may use it: root, and the user who made it, by whatever group.
    pub fn may_use(&self, caller: Caller) -> bool {
        caller.may_use_of(self.owner)
    }

    /// What a client knows of it.
    pub fn info(&self, caller: Caller) -> SessionInfo {
        SessionInfo {
            name: self.name.shown_to(caller),
            scope: self.scope_text.to_string(),
            pids: self.pids(),
            sites: self
                .steps
                .iter()
                .flat_map(|step| step.sites.iter().cloned())
                .collect(),
            perf_links: self.perf_links,
            warnings: self.warnings(),
            frequency_hz: self.frequency_hz,
            lease_ns: self.lease_ns,
            watchers: u32::try_from(self.watchers()).unwrap_or(u32::MAX),
            recorded_ns: None,
            recorded_before_ns: None,
            recorded_begin_ns: 0,
        }
    }

    /// The steps of its scope.
    pub fn steps(&self) -> &Steps {
        &self.steps
    }

    /// Its processes.
    pub fn pids(&self) -> Vec<u32> {
        self.processes.iter().map(|process| process.pid()).collect()
    }

    /// Whether a process is one of its own.
    pub fn looks_at(&self, pid: u32) -> bool {
        self.processes.has(pid)
    }

    /// Whether what is looked at has a duration.
    pub fn has_spans(&self) -> bool {
        self.scope.last().is_some_and(|step| step.place.has_spans())
    }

    /// Whether its scope is a line that no span is known to lie around.
    pub fn is_of_line(&self) -> bool {
        !self.scope.steps.is_empty() && self.spans().next().is_none()
    }

    /// What its users should know: of what became of its processes and probes, and of its plan.
    fn warnings(&self) -> Vec<String> {
        let became = self.left.iter().cloned().chain(self.steps.warnings());
        let became = became.chain(self.allocations_off.clone());
        became.chain(self.planned_warnings.iter().cloned()).collect()
    }

    /// For whom it looks at its processes.
    pub fn owner(&self) -> Caller {
        self.owner
    }

    /// Looks no more at a process, for a reason that is shown; `false` where then nothing is left to look at, or what is left cannot
    /// be told from it.
    pub fn lose(&mut self, engine: &mut Engine, pid: u32, why: &Leaving) -> bool {
        // In any case: the last picture is not of what it has become either.
        self.lose_timelines(pid);
        self.events.lose(pid);
        if !self.processes.has_others(pid) || self.explains() || !self.allocations.is_empty() {
            return false;
        }
        self.read_children(engine);
        // An edit that is under way is of what it was.
        self.revision += 1;
        self.steps.quiesce(engine, Some(pid));
        let lost = self.processes.iter().find(|process| process.pid() == pid);
        let name = lost.map_or_else(String::new, |process| process.name().to_owned());
        self.departed.note(pid, &name, why.clone());
        self.processes.lose(pid);
        if let Some(chains) = &mut self.chains {
            chains.lose(pid);
        }
        if let Some(waits) = &mut self.waits {
            waits.lose(pid);
        }
        if let Some(calls) = &mut self.calls {
            calls.lose(pid);
        }
        self.left.push(why.reason.clone());
        self.tell_code();
        self.renew_records();
        true
    }

    /// So many files of its processes have no unwind table now, as there is no room for it.
    pub fn note_no_unwind_table(&mut self, files: u64) {
        self.no_unwind_table = self.no_unwind_table.max(files);
    }

    /// Counts what programs were at and did not look at, as a process of it was not admitted for a while.
    pub fn note_not_admitted(&mut self, missed: u64) {
        self.not_admitted += missed;
    }

    /// The expressions whose values it reads, in words.
    pub fn reads(&self) -> String {
        let read = self.capture.iter().flat_map(|capture| &capture.print);
        read.map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }

    /// Extends its lease.
    pub fn renew(&mut self, now_ns: u64) -> u64 {
        self.lease_until_ns = now_ns.saturating_add(self.lease_ns);
        self.lease_ns
    }

    /// Whether nobody has used it for the length of its lease. An open stream is a use.
    pub fn lease_is_over(&mut self, now_ns: u64) -> bool {
        if self.watchers() > 0 {
            self.renew(now_ns);
        }
        now_ns >= self.lease_until_ns
    }

    /// Has it seen from now on which of its processes are still there.
    pub fn attend(&mut self, attendance: &Attendance) {
        self.processes.attend(attendance);
    }

    /// Notes which of its processes have ended or run another program, as far as that is seen. Where none stays, that is the session's
    /// end.
    pub fn note_departed(&mut self, engine: &mut Engine) -> Option<Ending> {
        let left = self.processes.take_left();
        if self.processes.have_left() {
            return self.target_ended(engine);
        }
        for process in left {
            let why = leaving(engine, &process);
            self.departed.note(process.pid(), process.name(), why);
        }
        None
    }

    fn target_ended(&self, engine: &mut Engine) -> Option<Ending> {
        // Of those that left before, that has been said.
        let stayed = |process: &&Arc<Process>| !self.departed.has(process.pid());
        let process = self.processes.iter().find(stayed).or(self.processes.first())?;
        let Leaving { reason, signal, .. } = leaving(engine, process);
        Some(Ending {
            signal,
            ..Ending::of(EndCause::Target, reason)
        })
    }

    /// The processes that have left it, and those that will.
    pub fn departures(&self) -> Departures {
        self.departed.told()
    }

    /// Whether its samples are drawn inside spans.
    pub fn divides(&self) -> bool {
        self.divider().is_some()
    }

    /// Says which processes are sampled from now on.
    pub fn note_sampled(&mut self, sampled: &HashSet<u32>, now_ns: u64) {
        let mut missing = self
            .processes
            .iter()
            .filter(|process| !sampled.contains(&process.pid()) && process.is_alive());
        let is_sampled = self.samples() && missing.next().is_none();
        self.sampled_from.set(is_sampled, now_ns);
        self.begin_waits();
        if let Some(explain) = &mut self.explain {
            explain.note_recorded(self.sampled_from.since_ns());
        }
        self.note_calls();
    }

    /// Whether stacks are taken of its hits, or of who allocates memory.
    pub fn takes_stacks(&self) -> bool {
        !self.allocations.is_empty() || self.capture.as_ref().is_some_and(|capture| capture.stack)
    }
}

/// Why there is nothing to look at in a process any more.
fn leaving(engine: &mut Engine, process: &Process) -> Leaving {
    let (name, pid) = (process.name(), process.pid());
    if process.is_alive() {
        let reason = format!("process {pid} ({name}) runs another program now");
        return Leaving::of(DepartureCause::AnotherProgram, reason);
    }
    let signal = engine.ended_by(pid).unwrap_or_else(|error| {
        tracing::warn!(pid, %error, "it is not known whether a signal ended the process");
        None
    });
    let Ending { reason, signal, .. } = Ending::of_process(pid, name, signal);
    Leaving {
        signal,
        ..Leaving::of(DepartureCause::Ended, reason)
    }
}
