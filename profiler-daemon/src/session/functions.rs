//! The functions of a session, each with its probes and its latency.

use std::{collections::HashMap, sync::Arc};

use profiler_aggregate::latency::{AgeConfig, Latency};
use profiler_common::probe::ProbeId;

use super::{
    calibrate::CallCost,
    picture::{ExitMethod, FunctionInfo, FunctionLatency, Losses, OtherHits, SlowCall},
    population::Population,
    readings::Readings,
    steps::TakenOff,
};

/// Slowest recent calls that are shown of a function.
const SLOWEST: usize = 8;

/// Slow calls that are kept of a function, so that there are others when the slowest grow old.
const SLOW_KEPT: usize = 256;

/// What tells functions apart, across processes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key {
    /// The file, as it is shown.
    pub module: String,
    /// The address within it.
    pub address: u64,
}

/// One function: a probe for each process that it is looked at in.
pub struct Function {
    pub id: u32,
    pub info: Arc<FunctionInfo>,
    pub method: ExitMethod,
    probes: Vec<ProbeId>,
    /// Those of them that were given up for others, and see nothing any more.
    given_up: Vec<ProbeId>,
    latency: Latency,
    slowest: Vec<SlowCall>,
    cost: CallCost,
    /// Why its probes were taken off the target, if they were.
    taken_off: Option<TakenOff>,
}

/// All of a session's functions.
#[derive(Default)]
pub struct Functions {
    list: Vec<Function>,
    by_key: HashMap<Key, usize>,
    by_probe: HashMap<ProbeId, usize>,
    next_id: u32,
}

impl Functions {
    /// Adds a probe of a function, which may be there already through another process.
    pub fn add(
        &mut self,
        info: &Arc<FunctionInfo>,
        method: ExitMethod,
        probe: ProbeId,
        ages: AgeConfig,
        now_ns: u64,
    ) {
        let next = self.list.len();
        let at = *self.by_key.entry(key(info)).or_insert(next);
        if at == next {
            self.list.push(Function {
                id: self.next_id,
                info: Arc::clone(info),
                method,
                probes: Vec::new(),
                given_up: Vec::new(),
                latency: Latency::new(ages, now_ns),
                slowest: Vec::new(),
                cost: CallCost::default(),
                taken_off: None,
            });
            self.next_id += 1;
        }
        self.list[at].method = method;
        self.list[at].probes.push(probe);
        self.by_probe.insert(probe, at);
    }

    /// Keeps the functions that are still wanted.
    pub fn retain(&mut self, wanted: impl Fn(&Key) -> bool) {
        self.list.retain(|function| wanted(&key(&function.info)));
        let keys = self.list.iter().enumerate();
        self.by_key = keys.map(|(at, function)| (key(&function.info), at)).collect();
        self.by_probe = self
            .list
            .iter()
            .enumerate()
            .flat_map(|(at, function)| function.probes.iter().map(move |probe| (*probe, at)))
            .collect();
    }

    pub fn iter(&self) -> impl Iterator<Item = &Function> {
        self.list.iter()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Function> {
        self.list.iter_mut()
    }

    /// All probes of all functions.
    pub fn probes(&self) -> impl Iterator<Item = ProbeId> + '_ {
        self.list
            .iter()
            .flat_map(|function| function.probes.iter().copied())
    }

    /// Whether a probe is one of theirs.
    pub fn has(&self, probe: ProbeId) -> bool {
        self.by_probe.contains_key(&probe)
    }

    /// Notes that a probe was given up for another.
    pub fn give_up(&mut self, probe: ProbeId) {
        if let Some(function) = self.by_probe.get(&probe).and_then(|at| self.list.get_mut(*at)) {
            function.given_up.push(probe);
        }
    }

    /// Sets what the probes of each function cost.
    pub fn set_costs(&mut self, of: &impl Fn(&Function) -> CallCost) {
        for function in &mut self.list {
            function.cost = of(function);
        }
    }

    /// Reads the calls that count.
    pub fn read(&mut self, population: Population<'_>, now_ns: u64) {
        for function in &mut self.list {
            function
                .latency
                .update(now_ns, population.histogram_of(&function.probes));
        }
    }

    /// As [`Self::read`], of calls that will have left the window before that is looked at.
    pub fn read_behind_window(&mut self, population: Population<'_>, now_ns: u64) {
        for function in &mut self.list {
            let calls = population.histogram_of(&function.probes);
            function.latency.update_behind_window(now_ns, calls);
        }
    }

    /// Notes a call past the threshold.
    pub fn note_slow(&mut self, probe: ProbeId, call: SlowCall, window_ns: u64) {
        let Some(function) = self.by_probe.get(&probe).and_then(|at| self.list.get_mut(*at)) else {
            return;
        };
        let oldest = call.ts_ns.saturating_sub(window_ns);
        function.slowest.retain(|known| known.ts_ns >= oldest);
        let at = function
            .slowest
            .partition_point(|known| known.duration_ns >= call.duration_ns);
        function.slowest.insert(at, call);
        function.slowest.truncate(SLOW_KEPT);
    }

    /// What is shown of each function.
    pub fn pictures(&self, readings: &dyn Readings, now_ns: u64) -> Vec<FunctionLatency> {
        self.list
            .iter()
            .map(|function| function.picture(readings, now_ns))
            .collect()
    }
}

impl Function {
    /// Its probes.
    pub fn probes(&self) -> impl Iterator<Item = ProbeId> + '_ {
        self.probes.iter().copied()
    }

    /// The probes' own share of a duration.
    pub fn overhead_ns(&self) -> u64 {
        self.cost.overhead_ns
    }

    /// Whether its probes were taken off the target.
    pub fn is_taken_off(&self) -> bool {
        self.taken_off.is_some()
    }

    /// Why its probes were taken off the target, if they were.
    pub fn taken_off(&self) -> Option<&TakenOff> {
        self.taken_off.as_ref()
    }

    /// Notes that its probes are taken off the target, and why.
    pub fn take_off(&mut self, why: TakenOff) {
        self.taken_off = Some(why);
    }

    /// The latency.
    pub fn latency(&self) -> &Latency {
        &self.latency
    }

    fn picture(&self, readings: &dyn Readings, now_ns: u64) -> FunctionLatency {
        // Nobody sees calls end that were open when their probe was taken off.
        let (mut open, mut given_up) = (0, 0);
        let (mut abandoned, mut other_hits) = (0, 0_u64);
        let mut lost = Losses::new();
        for probe in &self.probes {
            let counts = readings.probe_counts(*probe);
            // Ends are read before entries would have been: a call in between counts as open.
            let ended: u64 = readings.histogram(*probe).map(|(_, count)| count).sum();
            if self.given_up.contains(probe) {
                given_up += counts.open(ended);
            } else {
                open += counts.open(ended);
            }
            abandoned += counts.abandoned;
            let hits = readings.hit_counts(*probe);
            other_hits = [
                counts.outside,
                counts.passed_by,
                counts.refused,
                counts.undecided,
                hits.rejected,
                hits.disturbed,
            ]
            .into_iter()
            .fold(other_hits, u64::saturating_add);
            for (reason, count) in [
                ("too_deep", counts.too_deep),
                ("open_at_attach", counts.unmatched),
                ("no_thread_state", counts.no_state),
                ("no_histogram_page", counts.no_page),
                ("join_limit", counts.join_limit),
                ("return_unknown", counts.undecided),
            ] {
                if count > 0 {
                    *lost.entry(reason).or_default() += count;
                }
            }
        }
        let taken_off = match self.taken_off {
            Some(_) => std::mem::take(&mut open),
            None => 0,
        };
        for (reason, count) in [("taken_off", taken_off), ("given_up", given_up)] {
            if count > 0 {
                lost.insert(reason, count);
            }
        }
        FunctionLatency {
            id: self.id,
            function: Arc::clone(&self.info),
            summaries: self.latency.summaries(now_ns),
            since_start: buckets(self.latency.since_start().iter()),
            window: buckets(self.latency.window(now_ns).iter()),
            open,
            abandoned,
            lost,
            overhead_ns: self.cost.overhead_ns,
            cost_ns: self.cost.cost_ns,
            other_hits: readings.tells_other_hits().then(|| OtherHits {
                count: other_hits,
                rate_hz: match self.latency.covered_ns() {
                    0 => 0.0,
                    covered_ns => other_hits as f64 * 1e9 / covered_ns as f64,
                },
            }),
            slowest: self.slowest.iter().take(SLOWEST).copied().collect(),
            taken_off: self.taken_off.clone(),
        }
    }
}

/// What tells this function from others.
pub fn key(info: &FunctionInfo) -> Key {
    Key {
        module: info.module.clone(),
        address: info.address,
    }
}

fn buckets(counts: impl Iterator<Item = (usize, u64)>) -> Vec<(u32, u64)> {
    counts
        .map(|(bucket, count)| (u32::try_from(bucket).unwrap_or(u32::MAX), count))
        .collect()
}
