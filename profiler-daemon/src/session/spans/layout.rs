//! The part of a scope that matters to its slowest calls: the step whose calls are shown, and the steps inside.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use profiler_common::probe::ProbeId;

use super::super::{
    division::CountedStep,
    lines::Printed,
    picture::{FunctionInfo, Losses},
    readings::Readings,
    records::RecordedPlace,
    replay::AskedStep,
    steps::{RunningStep, Steps},
};
use crate::kernel::{Engine, HitCounts};

/// Whose calls are shown, and how.
pub struct Shown {
    pub function: Arc<FunctionInfo>,
    pub printed: Arc<[Printed]>,
    /// Values are read of its calls.
    pub has_values: bool,
}

/// The part of a scope that matters here.
pub struct Layout {
    /// Number of the step whose calls are shown.
    pub(super) step: usize,
    pub(super) shown: HashMap<ProbeId, Shown>,
    /// The probes of the steps behind, each with its place.
    pub(super) behind: HashMap<ProbeId, Arc<str>>,
    /// Those of them that are lines.
    pub(super) lines: Vec<ProbeId>,
    /// Gates that the lines behind open, up to the next step with spans.
    pub(super) gates: u32,
}

impl Layout {
    /// That of a scope whose step of a number is shown.
    pub fn of(steps: &Steps, number: usize) -> Option<Self> {
        let steps: Vec<&RunningStep> = steps.iter().collect();
        let lines = |step: &RunningStep| step.lines().map(|(probe, ..)| probe).collect();
        let mut layout = Self::of_steps(&steps, number, lines)?;
        let step = steps.get(number)?;
        for (probe, shown) in &mut layout.shown {
            shown.printed = step.shown(*probe).printed;
            shown.has_values = !shown.printed.is_empty();
        }
        Some(layout)
    }

    /// That of a recorded scope, of whose places some hits were recorded.
    pub fn of_recorded(steps: &[AskedStep], number: usize, places: &[RecordedPlace]) -> Option<Self> {
        let steps: Vec<&AskedStep> = steps.iter().collect();
        let last = steps.last()?.step().place.to_string();
        let lines = |step: &AskedStep| {
            // Hits are recorded of the last step.
            let is_theirs = !step.step().place.has_spans() && step.step().place.to_string() == last;
            let lines = places.iter().filter(|place| is_theirs && !place.is_call);
            lines.map(|place| place.probe).collect()
        };
        let mut layout = Self::of_steps(&steps, number, lines)?;
        for place in places.iter().filter(|place| place.is_call) {
            if let Some(shown) = layout.shown.get_mut(&place.probe) {
                shown.has_values = !place.expressions.is_empty();
            }
        }
        Some(layout)
    }

    /// That of these steps, without values; `lines` are a step's probes of lines.
    fn of_steps<S: CountedStep>(
        steps: &[&S],
        number: usize,
        lines: impl Fn(&S) -> Vec<ProbeId>,
    ) -> Option<Self> {
        let step = steps.get(number)?;
        let functions = step.functions().iter().flat_map(|function| {
            let probes = function.probes();
            probes.map(|probe| (probe, &function.info))
        });
        let shown = functions.map(|(probe, function)| {
            let shown = Shown {
                function: Arc::clone(function),
                printed: [].into(),
                has_values: false,
            };
            (probe, shown)
        });
        let mut layout = Self {
            step: number,
            shown: shown.collect(),
            behind: HashMap::new(),
            lines: Vec::new(),
            gates: 0,
        };
        let behind = || steps.iter().skip(number + 1);
        for step in behind().take_while(|step| !step.step().place.has_spans()) {
            layout.gates |= step.gate_bits();
        }
        for step in behind() {
            let place: Arc<str> = step.step().place.to_string().into();
            for function in step.functions().iter() {
                let name: Arc<str> = function.info.name.as_str().into();
                layout
                    .behind
                    .extend(function.probes().map(|probe| (probe, Arc::clone(&name))));
            }
            for probe in lines(step) {
                layout.behind.insert(probe, Arc::clone(&place));
                layout.lines.push(probe);
            }
        }
        Some(layout)
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        let keys = |layout: &Self| -> (BTreeSet<ProbeId>, BTreeSet<ProbeId>) {
            let behind = layout.behind.keys().copied().collect();
            (layout.shown.keys().copied().collect(), behind)
        };
        self.gates == other.gates && keys(self) == keys(other)
    }

    /// Has recorded what is shown of calls; or no more than the session itself asks for. `captures`: it has values read,
    /// or hits recorded.
    pub fn set_records(&self, engine: &Engine, steps: &Steps, captures: bool, on: bool) {
        let is_of_last = |probe: ProbeId| {
            steps.last().is_some_and(|last| {
                last.functions.has(probe) || last.lines().any(|(known, ..)| known == probe)
            })
        };
        let asked = |probe: ProbeId| on || captures && is_of_last(probe);
        for probe in &self.lines {
            engine.set_records(*probe, asked(*probe));
        }
        if captures {
            for probe in self.shown.keys() {
                engine.set_records(*probe, asked(*probe));
            }
        }
    }

    /// Number of the step whose calls are shown.
    pub fn step(&self) -> usize {
        self.step
    }

    /// The probes of the calls that are shown.
    pub fn probes(&self) -> impl Iterator<Item = ProbeId> + '_ {
        self.shown.keys().copied()
    }
}

/// Calls whose values were not recorded, by reason.
pub fn values_left_out(hits: HitCounts) -> [(&'static str, u64); 2] {
    [
        ("values_rate_limit", hits.limited),
        ("values_ring_full", hits.ring_full),
    ]
}

/// Hits in calls that were not recorded, by reason.
pub fn inside_left_out(hits: HitCounts) -> [(&'static str, u64); 2] {
    [
        ("inside_rate_limit", hits.limited),
        ("inside_ring_full", hits.ring_full),
    ]
}

/// What the programs could not record of a layout's calls, and of what is inside, by reason.
pub fn program_losses(readings: &dyn Readings, layout: &Layout) -> Losses {
    let mut lost = Losses::new();
    let mut add = |reason: &'static str, count: u64| {
        if count > 0 {
            *lost.entry(reason).or_default() += count;
        }
    };
    for (probe, shown) in &layout.shown {
        if shown.has_values {
            for (reason, count) in values_left_out(readings.hit_counts(*probe)) {
                add(reason, count);
            }
        }
    }
    for probe in &layout.lines {
        for (reason, count) in inside_left_out(readings.hit_counts(*probe)) {
            add(reason, count);
        }
    }
    for probe in layout.behind.keys() {
        add("join_limit", readings.probe_counts(*probe).join_limit);
    }
    lost
}
