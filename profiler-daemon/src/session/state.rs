//! One session: its probes, its aggregates, its watchers.

mod slowest;

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use profiler_common::{counter::Counter, layout::bucket_of, probe::ProbeId, record::SpanEnd};

use super::{
    by_value::{ByValues, CallsByValue, Counted},
    command::{Caller, Capture, Editable, Purpose, TargetSpec},
    cost::{Meter, monotonic_ns},
    explain::{Explain, PreparedExplain},
    flame::{EXPIRE_AFTER_NS, Flame, Moment, is_gone},
    lines::{TracedPlace, interval_ns},
    picture::{
        Cost, ExitMethod, ExplainPicture, FlamePicture, FlameVariant, LatencyPicture, Losses, SessionInfo,
        SlowCall,
    },
    population::{JoinedCalls, Population},
    prepare::Prepared,
    spans::{self, SampledFrom, Spans, SpansPicture},
    steps::{RunningStep, Steps},
    symbols::{Dropped, Named, NamedBatch, NamedHit},
    trace::{Around, Entry, Trace, TraceBatch},
    watchers::Watchers,
};
use crate::{
    aggregate::{
        Nesting,
        histogram::Histogram,
        join::Level,
        latency::AgeConfig,
        path::{self, Path},
        predicate::{self, Limit},
        slots::WindowConfig,
        threshold::{Band, Division, divide},
    },
    kernel::{Engine, KernelError},
    plan::{
        scope::{self, Scope, Step},
        values::expression::Root,
    },
    symbolize::{Frame, Grouping},
    target::Process,
};

/// Slots of the sliding window.
const WINDOW_SLOTS: u32 = 20;

/// Time between two pictures of what slow calls do: it is worked out anew for each.
const MIN_EXPLAIN_NS: u64 = 1_000_000_000;

/// Edits of a scope that can be taken back.
const MAX_HISTORY: usize = 64;

/// What waits for the spans around it.
enum Inside {
    /// A call that ended.
    Call {
        end: SpanEnd,
        /// What was recorded where it began, if anything was.
        entry: Option<Entry>,
        /// It is one of those that are looked at.
        counts: bool,
        /// What was gathered of it, where the slowest are watched.
        before: Option<spans::Before>,
    },
    /// A line that was reached.
    Hit(NamedHit),
}

impl Inside {
    /// What is looked at are the spans or hits of the last step.
    fn weight(&self) -> u64 {
        match self {
            Self::Call { counts, .. } => u64::from(*counts),
            Self::Hit(_) => 1,
        }
    }
}

/// One session.
pub struct Session {
    pub name: String,
    owner: Caller,
    scope: Scope,
    scope_text: Arc<str>,
    /// Texts of the scopes before, the latest last.
    history: Vec<Arc<str>>,
    /// Grows with each edit.
    revision: u64,
    processes: Vec<Process>,
    steps: Steps,
    /// What waits for the durations that steps ask for.
    path: Path<Inside>,
    joined_calls: JoinedCalls,
    dropped: path::Dropped,
    capture: Option<Capture>,
    trace: Trace,
    /// The calls by value, where they are divided.
    by: Option<ByValues>,
    /// Durations of calls that are traced.
    traced: Band,
    /// The duration from which on a call of the last step is slow.
    slow_from_ns: u64,
    /// The slowest calls, while they are watched.
    spans: Option<Spans>,
    sampled_from: SampledFrom,
    warnings: Vec<String>,
    perf_links: bool,
    pub frequency_hz: u32,
    ages: AgeConfig,
    lease_ns: u64,
    exit_method: Option<ExitMethod>,
    lease_until_ns: u64,
    meter: Meter,
    /// One for each kind of frame that is watched: a few, each of bounded size.
    flames: BTreeMap<Grouping, Flame>,
    explain: Option<Explain>,
    pub explain_watchers: Watchers<ExplainPicture, ()>,
    pub latency_watchers: Watchers<LatencyPicture, ()>,
    pub flame_watchers: Watchers<FlamePicture, FlameVariant>,
    pub spans_watchers: Watchers<SpansPicture, usize>,
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
}

impl Session {
    /// Attaches what was prepared. When this returns, every probe is live.
    pub fn attach(
        engine: &mut Engine,
        name: String,
        terms: Terms,
        mut prepared: Prepared,
        now_ns: u64,
    ) -> Result<Self, KernelError> {
        let explain = prepared.explain.take();
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
            processes: Vec::new(),
            steps: Steps::default(),
            path: Path::new([], Inside::weight),
            joined_calls: JoinedCalls::default(),
            dropped: path::Dropped::default(),
            capture: terms.capture,
            trace: Trace::default(),
            by,
            traced: Band::ALL,
            slow_from_ns: u64::MAX,
            spans: None,
            sampled_from: SampledFrom::default(),
            warnings: Vec::new(),
            perf_links: engine.ability().attach == crate::kernel::AttachKind::Perf,
            frequency_hz: terms.frequency_hz,
            ages,
            lease_ns: terms.lease_ns,
            exit_method: terms.exit_method,
            lease_until_ns: now_ns.saturating_add(terms.lease_ns),
            meter: Meter::new(now_ns),
            flames: BTreeMap::new(),
            explain: None,
            explain_watchers: Watchers::default(),
            latency_watchers: Watchers::default(),
            flame_watchers: Watchers::default(),
            spans_watchers: Watchers::default(),
        };
        let attached = session
            .replace(engine, Dropped::default(), prepared, now_ns)
            .and_then(|()| session.begin_explain(engine, explain));
        match attached {
            Ok(()) => Ok(session),
            Err(error) => {
                session.detach(engine);
                Err(error)
            }
        }
    }

    /// As [`Self::replace`], by an edit that can be taken back; `undone` is the number of edits that it takes back itself.
    pub fn edit(
        &mut self,
        engine: &mut Engine,
        dropped: Dropped,
        prepared: Prepared,
        undone: usize,
        now_ns: u64,
    ) -> Result<(), KernelError> {
        let before = Arc::clone(&self.scope_text);
        self.replace(engine, dropped, prepared, now_ns)?;
        self.revision += 1;
        if undone > 0 {
            self.history.truncate(self.history.len().saturating_sub(undone));
        } else if before != self.scope_text {
            if self.history.len() == MAX_HISTORY {
                self.history.remove(0);
            }
            self.history.push(before);
        }
        Ok(())
    }

    /// Puts a prepared scope in the place of the present one. What both have keeps its probes and counts; where the
    /// probes are the same, what was sampled stays too.
    pub fn replace(
        &mut self,
        engine: &mut Engine,
        dropped: Dropped,
        prepared: Prepared,
        now_ns: u64,
    ) -> Result<(), KernelError> {
        let Prepared {
            scope,
            text,
            processes,
            steps,
            warnings,
            explain: _,
        } = prepared;
        let (nesting, asks) = (self.nesting(), self.asked());
        let before: HashSet<_> = self.probes().collect();
        self.steps
            .replace(engine, steps, self.capture.is_some(), self.ages, now_ns)?;
        if self.processes.is_empty() {
            self.processes = processes;
        }
        self.scope = scope;
        self.scope_text = text.into();
        self.warnings = warnings;
        if asks != self.asked() {
            let path = Path::new(self.asked(), Inside::weight);
            let mut before = std::mem::replace(&mut self.path, path);
            let waiting = before.waiting();
            self.drop_joined(before.take_dropped());
            self.dropped.expired += waiting;
        }
        let live: HashSet<_> = self.probes().collect();
        self.joined_calls.retain(|probe| live.contains(&probe));
        self.settle_trace();
        let is_joined = self.steps.is_joined(self.steps.iter().len().saturating_sub(1));
        if let Some(by) = &mut self.by {
            let counted = Counted {
                engine,
                joined: &self.joined_calls,
            };
            by.settle(
                counted,
                (self.steps.last(), is_joined),
                |probe| before.contains(&probe),
                |probe| live.contains(&probe),
                // Not when the edit was asked for: by now all that begins is recorded.
                monotonic_ns(),
            );
        }
        let same = nesting == self.nesting();
        for (by, mut flame) in std::mem::take(&mut self.flames) {
            if same {
                flame.set_predicates(self.dividing());
            } else {
                let fresh = self.new_flame(by, engine, dropped, now_ns);
                flame = fresh.succeeding(&flame, now_ns);
            }
            self.flames.insert(by, flame);
        }
        self.set_bands();
        self.renew_spans(engine, dropped, now_ns);
        Ok(())
    }

    /// Takes its probes off the target; what they have counted stays, for the last pictures.
    pub fn quiesce(&mut self, engine: &mut Engine) {
        self.steps.quiesce(engine);
    }

    /// Begins to look for what slow calls do that others do not.
    fn begin_explain(
        &mut self,
        engine: &mut Engine,
        prepared: Option<PreparedExplain>,
    ) -> Result<(), KernelError> {
        if let (Some(prepared), Some(last)) = (prepared, self.steps.last()) {
            let functions = last.functions.iter().flat_map(|function| {
                let key = (function.info.module.clone(), function.info.address);
                function.probes().map(move |probe| (probe, key.clone()))
            });
            self.explain = Some(Explain::begin(engine, prepared, functions.collect())?);
        }
        Ok(())
    }

    /// Whether what slow calls do is looked for.
    pub fn explains(&self) -> bool {
        self.explain.is_some()
    }

    /// Looks at other places if it is time.
    pub fn turn(&mut self, engine: &mut Engine, now_ns: u64) {
        if let (Some(explain), Some(last)) = (&mut self.explain, self.steps.last()) {
            let slow_ns = divided(last).and_then(|division| division.slow_from_ns());
            explain.turn(engine, now_ns, slow_ns);
        }
    }

    /// Opens a stream of what slow calls do; `None` where that is not looked for.
    pub fn watch_explain(
        &mut self,
        interval_ns: u64,
        first_ns: u64,
    ) -> Option<tokio::sync::watch::Receiver<Option<Arc<ExplainPicture>>>> {
        self.explains().then(|| {
            self.explain_watchers
                .add((), interval_ns.max(MIN_EXPLAIN_NS), first_ns)
        })
    }

    /// Detaches everything.
    pub fn detach(&mut self, engine: &mut Engine) {
        if let Some(mut explain) = self.explain.take() {
            explain.end(engine);
        }
        self.steps.detach(engine);
    }

    /// Says which probes are traced by now: those of the last step.
    fn settle_trace(&mut self) {
        let Some(interval_ns) = self.capture.as_ref().map(interval_ns) else {
            return;
        };
        let Some(last) = self.steps.last() else {
            self.trace.retain(|_| false);
            self.dropped = path::Dropped::default();
            return;
        };
        for (probe, place, printed) in last.lines() {
            self.trace.add_line(probe, place, Arc::clone(printed));
        }
        for function in last.functions.iter() {
            let info = &function.info;
            let place = Arc::new(TracedPlace {
                site: info.name.clone(),
                function: info.name.clone(),
                file: String::new(),
                line: 0,
                module: info.module.clone(),
                address: info.address,
            });
            for probe in function.probes() {
                self.trace.add_call(probe, &place, last.shown(probe), interval_ns);
            }
        }
        let live: HashSet<_> = last
            .lines()
            .map(|(probe, ..)| probe)
            .chain(last.functions.probes())
            .collect();
        if self.trace.retain(|probe| live.contains(&probe)) {
            // What is counted from here on is of other probes.
            self.dropped = path::Dropped::default();
        }
    }

    /// The probes of all spans.
    fn probes(&self) -> impl Iterator<Item = ProbeId> + '_ {
        self.steps.iter().flat_map(|step| step.functions.probes())
    }

    /// The steps with spans, each with its number.
    fn spans(&self) -> impl DoubleEndedIterator<Item = (usize, &RunningStep)> {
        let steps = self.steps.iter().enumerate();
        steps.filter(|(_, step)| step.step.place.has_spans())
    }

    /// The probes of the steps with spans, and whether they ask for a duration.
    fn asked(&self) -> Vec<(Vec<ProbeId>, bool)> {
        self.spans()
            .map(|(_, step)| (step.functions.probes().collect(), step.asks()))
            .collect()
    }

    /// The number of the step that divides: the last one that asks for a duration, or else the last one with spans.
    fn divider(&self) -> Option<usize> {
        let asking = self.spans().rev().find(|(_, step)| step.asks());
        let (number, _) = asking.or_else(|| self.spans().next_back())?;
        Some(number)
    }

    /// What divides the samples.
    fn dividing(&self) -> Vec<predicate::Predicate> {
        let divider = self.divider().and_then(|number| self.steps.get(number));
        divider.map_or_else(Vec::new, |step| predicates(&step.step))
    }

    /// How samples are looked for in the spans of the scope; `None` where all are inside.
    fn nesting(&self) -> Option<Nesting> {
        let divider = self.divider()?;
        let mut nesting = Nesting::default();
        for (number, step) in self.steps.iter().enumerate() {
            if !step.step.place.has_spans() {
                if let Some(level) = nesting.levels.last_mut() {
                    level.gates |= step.gate_bits();
                }
                continue;
            }
            let probes: Vec<_> = step.functions.probes().collect();
            if number >= divider {
                nesting.levels.push(Level {
                    probes: probes.iter().copied().collect(),
                    gates: 0,
                });
            }
            if number <= divider {
                nesting.around.push((probes, number < divider && step.asks()));
            }
        }
        Some(nesting)
    }

    /// Where the calls of a step are counted.
    fn population<'a>(&'a self, engine: &'a Engine, number: usize) -> Population<'a> {
        if self.steps.is_joined(number) {
            Population::Joined(&self.joined_calls)
        } else {
            Population::Counted(engine)
        }
    }

    /// Opens a stream of what happens; `None` where nothing is recorded.
    pub fn watch_trace(&mut self) -> Option<tokio::sync::mpsc::Receiver<TraceBatch>> {
        let shown = self
            .capture
            .as_ref()
            .is_some_and(|capture| capture.purpose == Purpose::Shown);
        shown.then(|| self.trace.watch())
    }

    /// What is shown of the calls by value; `ended` where nothing more is to come.
    fn calls_by_value(&self, engine: &Engine, ended: bool) -> Vec<CallsByValue> {
        let (Some(by), Some(last)) = (&self.by, self.steps.last()) else {
            return Vec::new();
        };
        let counted = Counted {
            engine,
            joined: &self.joined_calls,
        };
        let functions = last.functions.iter();
        functions
            .map(|function| by.picture(counted, function, ended))
            .collect()
    }

    /// Sets what the probes add to a duration.
    pub fn set_overhead(&mut self, of: impl Fn(ExitMethod) -> u64) {
        for step in self.steps.iter_mut() {
            step.functions.set_overhead(&of);
        }
    }

    /// The methods by which its spans' ends are seen.
    pub fn exit_methods(&self) -> impl Iterator<Item = ExitMethod> + '_ {
        let functions = self.steps.iter().flat_map(|step| step.functions.iter());
        functions.map(|function| function.method)
    }

    /// Whether a caller may use it: root, and whoever made it.
    pub fn may_use(&self, caller: Caller) -> bool {
        caller.uid == 0 || caller == self.owner
    }

    /// What clients know of it.
    pub fn info(&self) -> SessionInfo {
        let watchers = self.latency_watchers.len()
            + self.flame_watchers.len()
            + self.spans_watchers.len()
            + self.explain_watchers.len()
            + self.trace.watchers();
        SessionInfo {
            name: self.name.clone(),
            scope: self.scope_text.to_string(),
            pids: self.pids(),
            sites: self
                .steps
                .iter()
                .flat_map(|step| step.sites.iter().cloned())
                .collect(),
            perf_links: self.perf_links,
            warnings: self.warnings.clone(),
            frequency_hz: self.frequency_hz,
            lease_ns: self.lease_ns,
            watchers: u32::try_from(watchers).unwrap_or(u32::MAX),
        }
    }

    /// The steps of its scope.
    pub fn steps(&self) -> &Steps {
        &self.steps
    }

    /// Its processes.
    pub fn pids(&self) -> Vec<u32> {
        self.processes.iter().map(Process::pid).collect()
    }

    /// What an edit of the scope begins with.
    pub fn editable(&self) -> Editable {
        Editable {
            target: TargetSpec::Pids(self.pids()),
            exit_method: self.exit_method,
            capture: self.capture.clone(),
            scope: self.scope.clone(),
            history: self.history.clone(),
            revision: self.revision,
        }
    }

    /// Grows with each edit of the scope.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Whether calls are shown by what they return, which nothing but a trace tells.
    pub fn asks_for_returns(&self) -> bool {
        self.scope.last().is_some_and(|step| {
            let mut conditions = step.conditions.iter();
            step.place.has_spans() && conditions.any(|condition| condition.expression.root == Root::Return)
        })
    }

    /// Whether what is looked at has a duration.
    pub fn has_spans(&self) -> bool {
        self.scope.last().is_some_and(|step| step.place.has_spans())
    }

    /// Whether its scope is a line that no span is known to lie around.
    pub fn is_of_line(&self) -> bool {
        !self.scope.steps.is_empty() && self.spans().next().is_none()
    }

    /// Extends its lease.
    pub fn renew(&mut self, now_ns: u64) -> u64 {
        self.lease_until_ns = now_ns.saturating_add(self.lease_ns);
        self.lease_ns
    }

    /// Whether nobody has used it for the length of its lease. An open stream is a use.
    pub fn lease_is_over(&mut self, now_ns: u64) -> bool {
        self.trace.sweep();
        let watched =
            !self.latency_watchers.is_empty() || !self.explain_watchers.is_empty() || self.samples();
        if watched || self.trace.watchers() > 0 {
            self.renew(now_ns);
        }
        now_ns >= self.lease_until_ns
    }

    /// Why there is nothing left to look at, if so.
    pub fn target_ended(&self) -> Option<String> {
        let ended = |process: &Process| !process.is_alive() || runs_another(process);
        if !self.processes.iter().all(ended) {
            return None;
        }
        let process = self.processes.first()?;
        let (name, pid) = (process.name(), process.pid());
        Some(if process.is_alive() {
            format!("process {pid} ({name}) runs another program now")
        } else {
            format!("process {pid} ({name}) ended")
        })
    }

    /// Whether samples are wanted.
    pub fn samples(&self) -> bool {
        !self.flame_watchers.is_empty() || !self.spans_watchers.is_empty()
    }

    /// Whether the stacks of its hits are taken.
    pub fn takes_stacks(&self) -> bool {
        self.capture.as_ref().is_some_and(|capture| capture.stack)
    }

    /// What the frames of its flame graphs and stacks stand for.
    pub fn groupings(&self) -> impl Iterator<Item = Grouping> + '_ {
        let of_spans = self.spans.iter().flat_map(|_| Spans::GROUPINGS);
        self.flames.keys().copied().chain(of_spans)
    }

    /// Begins and ends flame graphs with their watchers.
    pub fn settle_flame(&mut self, engine: &Engine, dropped: Dropped, now_ns: u64) {
        let watched: HashSet<Grouping> = self.flame_watchers.variants().map(|variant| variant.by).collect();
        self.flames.retain(|by, _| watched.contains(by));
        for by in watched {
            if !self.flames.contains_key(&by) {
                let flame = self.new_flame(by, engine, dropped, now_ns);
                self.flames.insert(by, flame);
            }
        }
        self.set_bands();
    }

    /// Keeps what such a flame graph needs.
    pub fn maintain(&mut self, variant: FlameVariant, now_ns: u64) {
        if let Some(flame) = self.flames.get_mut(&variant.by) {
            flame.maintain(variant.over, now_ns);
        }
    }

    fn new_flame(&self, by: Grouping, engine: &Engine, dropped: Dropped, now_ns: u64) -> Flame {
        let spans = self.divider().and_then(|number| {
            let step = self.steps.get(number)?;
            Some((self.nesting()?, &step.functions, self.population(engine, number)))
        });
        Flame::new(
            by,
            engine,
            dropped,
            spans.as_ref(),
            self.dividing(),
            self.ages,
            now_ns,
        )
    }

    /// Takes records whose addresses have names.
    pub fn take(&mut self, batch: &NamedBatch) {
        for record in &batch.records {
            match record {
                Named::SpanEnd(end) => self.span_end(end),
                Named::Hit(hit) => self.hit(hit),
                Named::Sample { tgid, .. } => {
                    if self.processes.iter().any(|process| process.pid() == *tgid) {
                        self.flames.values_mut().for_each(|flame| flame.sample(record));
                        if let Some(spans) = &mut self.spans {
                            spans.sample(record);
                        }
                    }
                }
            }
        }
    }

    fn hit(&mut self, named: &NamedHit) {
        let hit = &named.hit;
        if let Some(spans) = &mut self.spans {
            spans.hit(hit);
        }
        if hit.is_entry {
            self.trace.take_entry(named);
        } else if !self.trace.has_line(hit.probe) {
            // Of another session.
        } else if hit.joined {
            let inside = Inside::Hit(named.clone());
            self.path.wait(hit.tgid, hit.tid, hit.parent, hit.ts_ns, inside);
        } else {
            self.trace.take_hit(named);
        }
    }

    fn span_end(&mut self, end: &SpanEnd) {
        if let Some(explain) = &mut self.explain
            && explain.take_inside(end)
        {
            return;
        }
        for inside in self.path.span_end(end) {
            match inside {
                Inside::Call {
                    end, entry, before, ..
                } => {
                    self.joined_calls.add(&end);
                    self.call(&end, entry, before);
                }
                Inside::Hit(hit) => self.trace.take_hit(&hit),
            }
        }
        let mut entry = self.trace.leave(end);
        if let Some(explain) = &mut self.explain {
            explain.take_call(end, entry.take().map(|entry| entry.values).as_deref());
        }
        let before = self.spans.as_mut().and_then(|spans| spans.span_end(end));
        if !self.path.is_joined(end.probe) {
            self.call(end, entry, before);
        } else if end.flags & SpanEnd::JOINED != 0 && end.flags & SpanEnd::ABANDONED == 0 {
            let last = self.steps.last();
            let is_last = last.is_some_and(|last| last.functions.has(end.probe));
            let inside = Inside::Call {
                end: *end,
                counts: is_last && (self.capture.is_none() || self.by.is_some() || entry.is_some()),
                entry,
                before,
            };
            self.path
                .wait(end.tgid, end.tid, u64::from(end.parent), end.end_ns, inside);
        }
        self.flames.values_mut().for_each(|flame| flame.span_end(end));
    }

    /// Takes the end of a call, be it that it ended long ago and was found to count only now.
    fn call(&mut self, end: &SpanEnd, entry: Option<Entry>, before: Option<spans::Before>) {
        let duration_ns = end.end_ns.saturating_sub(end.start_ns);
        // Where the slowest are watched, ends of faster calls come too.
        let is_slow = end.flags & SpanEnd::SLOW != 0 && duration_ns >= self.slow_from_ns;
        if is_slow && let Some(last) = self.steps.last_mut() {
            let call = SlowCall {
                ts_ns: end.end_ns,
                tid: end.tid,
                duration_ns,
            };
            last.functions
                .note_slow(end.probe, call, self.ages.window.window_ns);
        }
        if let Some(spans) = &mut self.spans {
            spans.call(end, before, self.sampled_from);
        }
        let traced = self.traced;
        // Nobody would fetch what is recorded for the slowest calls alone.
        let is_traced = self.spans.is_none() || self.by.is_some() || self.trace.watchers() > 0;
        let Some(entry) = entry.filter(|_| is_traced) else {
            if let Some(by) = &mut self.by {
                by.take_unread(end);
            }
            return;
        };
        if let Some(by) = &mut self.by {
            by.take(end.probe, end.end_ns.saturating_sub(end.start_ns), entry.values);
        } else {
            let is_inside = |duration_ns| traced.contains(bucket_of(duration_ns));
            self.trace.take_call(end, entry, is_inside);
        }
    }

    /// Says what steps ask of durations, by their calls so far.
    fn set_bands(&mut self) {
        let bands: Vec<Band> = self
            .spans()
            .map(|(_, step)| divided(step).map_or(Band::ALL, |division| division.inside()))
            .collect();
        for (number, band) in bands.iter().enumerate() {
            self.path.set_band(number, *band);
            for flame in self.flames.values_mut() {
                flame.set_band(number, *band);
            }
        }
        if let Some(spans) = &mut self.spans {
            let step = self.steps.get(spans.layout().step());
            spans.set_band(
                step.and_then(divided)
                    .map_or(Band::ALL, |division| division.inside()),
            );
        }
    }

    /// Reads what the programs have counted, and keeps their threshold current.
    pub fn read(&mut self, engine: &Engine, now_ns: u64) {
        let mut is_joined = false;
        for step in self.steps.iter_mut() {
            let population = if is_joined {
                Population::Joined(&self.joined_calls)
            } else {
                Population::Counted(engine)
            };
            step.functions.read(population, now_ns);
            is_joined |= step.asks();
        }
        self.set_bands();
        if let Some(divider) = self.divider()
            && let Some(step) = self.steps.get(divider)
        {
            let population = if self.steps.is_joined(divider) {
                Population::Joined(&self.joined_calls)
            } else {
                Population::Counted(engine)
            };
            for flame in self.flames.values_mut() {
                flame.read(population, step.functions.probes(), now_ns);
            }
        }
        self.path.expire(now_ns, EXPIRE_AFTER_NS, is_gone);
        self.trace.expire(now_ns, EXPIRE_AFTER_NS, is_gone);
        if let Some(spans) = &mut self.spans {
            spans.expire(now_ns, EXPIRE_AFTER_NS, is_gone);
        }
        let dropped = self.path.take_dropped();
        self.drop_joined(dropped);
        let Some(last) = self.steps.last() else { return };
        self.traced = divided(last).map_or(Band::ALL, |division| division.inside());
        let slow_from_ns = slow_from_ns(last);
        self.slow_from_ns = slow_from_ns.unwrap_or(u64::MAX);
        self.set_thresholds(engine, slow_from_ns, now_ns);
    }

    /// What slow calls do that others do not, by the calls so far.
    fn explained(&self, engine: &Engine, cost: Cost, ended: Option<&str>) -> Option<ExplainPicture> {
        let explain = self.explain.as_ref()?;
        let last = self.steps.last()?;
        let division = divided(last)?;
        let inside = division.inside();
        let is_slow = |duration_ns| inside.contains(bucket_of(duration_ns));
        let [slow, other] = explain.durations(is_slow);
        let mut lost: Losses = span_losses(engine).collect();
        lost.extend(explain.unknown().into_iter().filter(|(_, count)| *count > 0));
        for probe in last.functions.probes() {
            let hits = engine.hit_counts(probe);
            for (reason, count) in [("ring_full", hits.ring_full), ("disturbed", hits.disturbed)] {
                if count > 0 {
                    *lost.entry(reason).or_default() += count;
                }
            }
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a count, which is a float where calls have ages"
        )]
        let calls = division.calls as u64;
        let (findings, judged) = explain.findings(engine, &self.scope, is_slow);
        Some(ExplainPicture {
            seq: 0,
            scope: Arc::clone(&self.scope_text),
            threshold_ns: division.slow_from_ns().filter(|_| !division.warming),
            warming: division.warming,
            calls,
            looked_at: explain.calls(),
            slow,
            other,
            features: explain.features(),
            judged,
            findings,
            left_out: explain.left_out().to_vec(),
            lost,
            cost,
            ended: ended.map(str::to_owned),
        })
    }

    fn drop_joined(&mut self, dropped: path::Dropped) {
        let path::Dropped {
            outside,
            abandoned,
            expired,
            join_full,
        } = dropped;
        self.dropped.outside += outside;
        self.dropped.abandoned += abandoned;
        self.dropped.expired += expired;
        self.dropped.join_full += join_full;
    }

    /// Gives watchers their pictures; the last ones where `ended` says why.
    pub fn publish(
        &mut self,
        engine: &Engine,
        frames: &Arc<Vec<Frame>>,
        dropped: Dropped,
        now_ns: u64,
        ended: Option<&str>,
    ) {
        let all = ended.is_some();
        if all {
            self.read(engine, now_ns);
        }
        if self.trace.watchers() > 0 {
            let cost = self.meter.read(now_ns);
            let around = Around {
                dropped: self.dropped,
                waiting: self.path.waiting(),
            };
            self.trace.publish(engine, frames, around, cost, ended);
        }
        let latency_due = all || self.latency_watchers.any_due(now_ns);
        let flame_due = all || self.flame_watchers.any_due(now_ns);
        let explain_due = self.explain.is_some() && (all || self.explain_watchers.any_due(now_ns));
        let spans_due = all || self.spans_watchers.any_due(now_ns);
        if !latency_due && !flame_due && !explain_due && !spans_due {
            return;
        }
        // A picture shows the calls of this moment, not those of the last reading.
        self.read(engine, now_ns);
        let cost = self.meter.read(now_ns);
        if explain_due && let Some(picture) = self.explained(engine, cost, ended) {
            self.explain_watchers.publish(now_ns, all, |(), seq| {
                Some(ExplainPicture {
                    seq,
                    ..picture.clone()
                })
            });
        }
        if latency_due {
            let functions = self
                .steps
                .last()
                .map_or_else(Vec::new, |last| last.functions.pictures(engine, now_ns));
            let by = self.calls_by_value(engine, all);
            let lost: Losses = span_losses(engine).chain(join_losses(self.dropped)).collect();
            self.latency_watchers.publish(now_ns, all, |(), seq| {
                Some(LatencyPicture {
                    seq,
                    scope: Arc::clone(&self.scope_text),
                    functions: functions.clone(),
                    by: by.clone(),
                    cost,
                    lost: lost.clone(),
                    ended: ended.map(str::to_owned),
                })
            });
        }
        let scope = &self.scope_text;
        let moment = Moment {
            now_ns,
            scope,
            frames,
            cost,
            dropped,
            ended,
        };
        if spans_due {
            let picture = self.spans_picture(engine, &moment);
            self.spans_watchers
                .publish(now_ns, all, |wanted, seq| Some(picture.of_stream(wanted, seq)));
        }
        if flame_due {
            for flame in self.flames.values_mut() {
                flame.publish(&mut self.flame_watchers, engine, &moment);
            }
        }
    }
}

/// Whether a process runs another file than it did. One that ran the same file again goes on: probes are
/// placed in files, and the kernel puts them into every new mapping.
fn runs_another(process: &Process) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata(format!("/proc/{}/exe", process.pid()))
        .is_ok_and(|file| (file.dev(), file.ino()) != process.executable_file())
}

/// Records of slow spans that were lost on the way, by reason.
fn span_losses(engine: &Engine) -> impl Iterator<Item = (&'static str, u64)> {
    [
        ("span_end_ring_full", engine.counter(Counter::SpanEndRingFull)),
        ("slow_end_yielded", engine.counter(Counter::SlowEndYielded)),
    ]
    .into_iter()
    .filter(|(_, count)| *count > 0)
}

/// What waited for a span around it in vain, by reason.
fn join_losses(dropped: path::Dropped) -> impl Iterator<Item = (&'static str, u64)> {
    [
        ("join_abandoned", dropped.abandoned),
        ("join_expired", dropped.expired),
        ("join_full", dropped.join_full),
    ]
    .into_iter()
    .filter(|(_, count)| *count > 0)
}

/// What a step's conditions come to for its calls so far; `None` where it asks for no duration.
fn divided(step: &RunningStep) -> Option<Division> {
    let predicates = predicates(&step.step);
    if predicates.is_empty() {
        return None;
    }
    let mut calls = Histogram::<u64>::new();
    for function in step.functions.iter() {
        calls.merge(function.latency().since_start());
    }
    Some(divide(&predicates, &calls, 1.0, 0))
}

/// The duration from which a call of a step is slow; `None` where it does not ask for slow calls.
fn slow_from_ns(step: &RunningStep) -> Option<u64> {
    let asks_for_slow = predicates(&step.step)
        .iter()
        .any(|predicate| predicate.comparison.keeps_above());
    let division = divided(step).filter(|_| asks_for_slow)?;
    if division.warming {
        return Some(u64::MAX);
    }
    division.threshold_ns().or(Some(u64::MAX))
}

/// A step's conditions, as the aggregates take them.
fn predicates(step: &Step) -> Vec<predicate::Predicate> {
    step.predicates
        .iter()
        .map(|condition| predicate::Predicate {
            comparison: match condition.comparison {
                scope::Comparison::Less => predicate::Comparison::Below,
                scope::Comparison::LessOrEqual => predicate::Comparison::AtMost,
                scope::Comparison::Greater => predicate::Comparison::Above,
                scope::Comparison::GreaterOrEqual => predicate::Comparison::AtLeast,
            },
            limit: match condition.bound {
                scope::Bound::Percentile(percentile) => Limit::Quantile(percentile.quantile()),
                scope::Bound::Duration(ns) => Limit::DurationNs(ns),
            },
        })
        .collect()
}
