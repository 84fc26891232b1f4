//! One session: its probes, its aggregates, its watchers.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use profiler_common::{counter::Counter, record::SpanEnd};

use super::{
    command::{Caller, TargetSpec},
    cost::Meter,
    flame::{Flame, Moment},
    functions::{Functions, Key, key},
    picture::{
        ExitMethod, FlamePicture, FlameVariant, LatencyPicture, Losses, SessionInfo, SiteInfo, SlowCall,
    },
    prepare::Prepared,
    symbols::{Dropped, Named, NamedBatch},
    watchers::Watchers,
};
use crate::{
    aggregate::{
        histogram::Histogram,
        latency::AgeConfig,
        predicate::{self, Limit},
        slots::WindowConfig,
        threshold::divide,
    },
    kernel::{Attachment, Engine, KernelError},
    plan::scope::{self, Scope},
    symbolize::{Frame, Grouping},
    target::Process,
};

/// Slots of the sliding window.
const WINDOW_SLOTS: u32 = 20;

/// Live probes, and the functions that they are for.
struct Attached {
    attachment: Attachment,
    functions: Vec<Key>,
}

/// One session.
pub struct Session {
    pub name: String,
    owner: Caller,
    scope: Scope,
    scope_text: Arc<str>,
    processes: Vec<Process>,
    attached: Vec<Attached>,
    functions: Functions,
    sites: Vec<SiteInfo>,
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
    pub latency_watchers: Watchers<LatencyPicture, ()>,
    pub flame_watchers: Watchers<FlamePicture, FlameVariant>,
}

/// How a session is set up, beyond its scope and target.
#[derive(Clone, Copy)]
pub struct Terms {
    pub owner: Caller,
    pub frequency_hz: u32,
    pub window_ns: u64,
    pub half_life_ns: u64,
    pub lease_ns: u64,
    /// As asked for; `None` for the safest.
    pub exit_method: Option<ExitMethod>,
}

impl Session {
    /// Attaches what was prepared. When this returns, every probe is live.
    pub fn attach(
        engine: &mut Engine,
        name: String,
        terms: Terms,
        prepared: Prepared,
        now_ns: u64,
    ) -> Result<Self, KernelError> {
        let ages = AgeConfig {
            window: WindowConfig {
                window_ns: terms.window_ns,
                slots: WINDOW_SLOTS,
            },
            half_life_ns: terms.half_life_ns,
        };
        let mut session = Self {
            name,
            owner: terms.owner,
            scope: Scope::default(),
            scope_text: "".into(),
            processes: Vec::new(),
            attached: Vec::new(),
            functions: Functions::default(),
            sites: Vec::new(),
            warnings: Vec::new(),
            perf_links: engine.ability().attach == crate::kernel::AttachKind::Perf,
            frequency_hz: terms.frequency_hz,
            ages,
            lease_ns: terms.lease_ns,
            exit_method: terms.exit_method,
            lease_until_ns: now_ns.saturating_add(terms.lease_ns),
            meter: Meter::new(now_ns),
            flames: BTreeMap::new(),
            latency_watchers: Watchers::default(),
            flame_watchers: Watchers::default(),
        };
        match session.replace(engine, Dropped::default(), prepared, now_ns) {
            Ok(()) => Ok(session),
            Err(error) => {
                session.detach(engine);
                Err(error)
            }
        }
    }

    /// Puts a prepared scope in the place of the present one. Functions that both have keep their
    /// probes and counts; where the set of functions is the same, what was sampled stays too.
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
            files,
            warnings,
        } = prepared;
        let before: HashSet<_> = self.functions.probes().collect();
        let wanted: HashSet<Key> = files
            .iter()
            .flat_map(|file| file.sites.iter().map(|(site, _)| key(&site.function)))
            .collect();
        let mut sites = Vec::new();
        let mut fresh = Vec::new();
        for file in files {
            let (mut functions, mut specs) = (Vec::new(), Vec::new());
            for (site, spec) in file.sites {
                if !self.functions.contains(&key(&site.function)) {
                    functions.push(site.clone());
                    specs.push(spec);
                }
                sites.push(site);
            }
            if specs.is_empty() {
                continue;
            }
            match engine.attach(file.pid, &file.path, &specs) {
                Ok(attachment) => fresh.push((attachment, functions)),
                Err(error) => {
                    // The session goes on as it was.
                    for (attachment, _) in fresh {
                        engine.detach(attachment);
                    }
                    return Err(error);
                }
            }
        }
        for (attachment, functions) in fresh {
            for (probe, site) in attachment.probes().iter().zip(&functions) {
                self.functions
                    .add(&site.function, site.exit_method, *probe, self.ages, now_ns);
            }
            let functions = functions.iter().map(|site| key(&site.function)).collect();
            self.attached.push(Attached {
                attachment,
                functions,
            });
        }
        self.functions.retain(|function| wanted.contains(function));
        let (kept, unused) = std::mem::take(&mut self.attached)
            .into_iter()
            .partition(|attached| {
                attached
                    .functions
                    .iter()
                    .any(|function| wanted.contains(function))
            });
        self.attached = kept;
        for attached in unused {
            engine.detach(attached.attachment);
        }
        if self.processes.is_empty() {
            self.processes = processes;
        }
        self.scope = scope;
        self.scope_text = text.into();
        self.sites = sites;
        self.warnings = warnings;
        let same = before == self.functions.probes().collect();
        for (by, mut flame) in std::mem::take(&mut self.flames) {
            if same {
                flame.set_predicates(predicates(&self.scope));
            } else {
                let fresh = self.new_flame(by, engine, dropped, now_ns);
                flame = fresh.succeeding(&flame, now_ns);
            }
            self.flames.insert(by, flame);
        }
        Ok(())
    }

    /// Detaches everything.
    pub fn detach(&mut self, engine: &mut Engine) {
        for attached in self.attached.drain(..) {
            engine.detach(attached.attachment);
        }
    }

    /// Sets what the probes add to a duration.
    pub fn set_overhead(&mut self, of: impl Fn(ExitMethod) -> u64) {
        self.functions.set_overhead(of);
    }

    /// The methods by which its spans' ends are seen.
    pub fn exit_methods(&self) -> impl Iterator<Item = ExitMethod> + '_ {
        self.functions.iter().map(|function| function.method)
    }

    /// Whether a caller may use it: root, and whoever made it.
    pub fn may_use(&self, caller: Caller) -> bool {
        caller.uid == 0 || caller == self.owner
    }

    /// What clients know of it.
    pub fn info(&self) -> SessionInfo {
        let watchers = self.latency_watchers.len() + self.flame_watchers.len();
        SessionInfo {
            name: self.name.clone(),
            scope: self.scope_text.to_string(),
            pids: self.pids(),
            sites: self.sites.clone(),
            perf_links: self.perf_links,
            warnings: self.warnings.clone(),
            frequency_hz: self.frequency_hz,
            lease_ns: self.lease_ns,
            watchers: u32::try_from(watchers).unwrap_or(u32::MAX),
        }
    }

    /// Its processes.
    pub fn pids(&self) -> Vec<u32> {
        self.processes.iter().map(Process::pid).collect()
    }

    /// What the scope is prepared against when it is replaced.
    pub fn target(&self) -> (TargetSpec, Option<ExitMethod>) {
        (TargetSpec::Pids(self.pids()), self.exit_method)
    }

    /// Whether it has spans to time.
    pub fn has_spans(&self) -> bool {
        self.scope.step.is_some()
    }

    /// Extends its lease.
    pub fn renew(&mut self, now_ns: u64) -> u64 {
        self.lease_until_ns = now_ns.saturating_add(self.lease_ns);
        self.lease_ns
    }

    /// Whether nobody has used it for the length of its lease. An open stream is a use.
    pub fn lease_is_over(&mut self, now_ns: u64) -> bool {
        if !self.latency_watchers.is_empty() || !self.flame_watchers.is_empty() {
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
        !self.flame_watchers.is_empty()
    }

    /// What the frames of its flame graphs stand for.
    pub fn groupings(&self) -> impl Iterator<Item = Grouping> + '_ {
        self.flames.keys().copied()
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
    }

    /// Keeps what such a flame graph needs.
    pub fn maintain(&mut self, variant: FlameVariant, now_ns: u64) {
        if let Some(flame) = self.flames.get_mut(&variant.by) {
            flame.maintain(variant.over, now_ns);
        }
    }

    fn new_flame(&self, by: Grouping, engine: &Engine, dropped: Dropped, now_ns: u64) -> Flame {
        let functions = self.has_spans().then_some(&self.functions);
        Flame::new(
            by,
            engine,
            dropped,
            functions,
            predicates(&self.scope),
            self.ages,
            now_ns,
        )
    }

    /// Takes records whose addresses have names.
    pub fn take(&mut self, batch: &NamedBatch) {
        for record in &batch.records {
            match record {
                Named::SpanEnd(end) => self.span_end(end),
                Named::Sample { tgid, .. } => {
                    if self.processes.iter().any(|process| process.pid() == *tgid) {
                        self.flames.values_mut().for_each(|flame| flame.sample(record));
                    }
                }
            }
        }
    }

    fn span_end(&mut self, end: &SpanEnd) {
        if end.flags & SpanEnd::SLOW != 0 {
            let duration_ns = end.end_ns.saturating_sub(end.start_ns);
            let call = SlowCall {
                ts_ns: end.end_ns,
                tid: end.tid,
                duration_ns,
            };
            self.functions
                .note_slow(end.probe, call, self.ages.window.window_ns);
        }
        self.flames.values_mut().for_each(|flame| flame.span_end(end));
    }

    /// Reads what the programs have counted, and keeps their threshold current.
    pub fn read(&mut self, engine: &Engine, now_ns: u64) {
        self.functions.read(engine, now_ns);
        for flame in self.flames.values_mut() {
            flame.read(engine, self.functions.probes(), now_ns);
        }
        if let Some(threshold_ns) = self.slow_from_ns() {
            for probe in self.functions.probes() {
                engine.set_threshold(probe, threshold_ns);
            }
        }
    }

    /// The duration from which a call is slow; `None` where the scope does not ask for slow calls.
    fn slow_from_ns(&self) -> Option<u64> {
        let predicates = predicates(&self.scope);
        if !predicates
            .iter()
            .any(|predicate| predicate.comparison.keeps_above())
        {
            return None;
        }
        let mut calls = Histogram::<u64>::new();
        for function in self.functions.iter() {
            calls.merge(function.latency().since_start());
        }
        let division = divide(&predicates, &calls, 1.0, 0);
        if division.warming {
            Some(u64::MAX)
        } else {
            division.threshold_ns().or(Some(u64::MAX))
        }
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
        let latency_due = all || self.latency_watchers.any_due(now_ns);
        let flame_due = all || self.flame_watchers.any_due(now_ns);
        if !latency_due && !flame_due {
            return;
        }
        // A picture shows the calls of this moment, not those of the last reading.
        self.read(engine, now_ns);
        let cost = self.meter.read(now_ns);
        if latency_due {
            let functions = self.functions.pictures(engine, now_ns);
            let lost: Losses = span_losses(engine).collect();
            self.latency_watchers.publish(now_ns, all, |(), seq| {
                Some(LatencyPicture {
                    seq,
                    scope: Arc::clone(&self.scope_text),
                    functions: functions.clone(),
                    cost,
                    lost: lost.clone(),
                    ended: ended.map(str::to_owned),
                })
            });
        }
        if flame_due {
            let scope = &self.scope_text;
            let moment = Moment {
                now_ns,
                scope,
                frames,
                cost,
                dropped,
                ended,
            };
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

/// A scope's conditions, as the aggregates take them.
fn predicates(scope: &Scope) -> Vec<predicate::Predicate> {
    let Some(step) = &scope.step else {
        return Vec::new();
    };
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
