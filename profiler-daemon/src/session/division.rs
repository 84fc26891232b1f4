//! What the steps of a scope ask of durations: which of them divides the calls, and where, by the calls so far.

use profiler_aggregate::{
    Nesting,
    histogram::Histogram,
    join::Level,
    predicate::{Comparison, Limit, Predicate},
    threshold::{Band, Division, divide},
};
use profiler_common::probe::ProbeId;
use profiler_scope::{self as scope, Step};

use super::{
    functions::Functions,
    population::{Calls, Population},
};

/// A step of a scope whose calls are counted, be it now or in a recording.
pub trait CountedStep {
    /// As it was asked for.
    fn step(&self) -> &Step;
    /// Whose spans are seen; none of a line.
    fn functions(&self) -> &Functions;
    /// The same, to be read.
    fn functions_mut(&mut self) -> &mut Functions;
    /// The bits of the gate that it opens.
    fn gate_bits(&self) -> u32;
    /// Whether it asks for what is known when its spans have ended.
    fn asks(&self) -> bool {
        self.step().asks_for_end()
    }
}

/// What steps ask of durations, by their calls so far.
pub struct Bands {
    /// Of each step with spans, in their order.
    pub of_spans: Vec<StepBand>,
    /// What the last step's conditions come to, where it has any.
    pub last: Option<Division>,
}

/// The durations that a step with spans asks for.
pub struct StepBand {
    /// The step's number in the scope.
    pub step: usize,
    pub band: Band,
}

/// The steps with spans, each with its number.
pub fn spans<S: CountedStep>(steps: &[S]) -> impl DoubleEndedIterator<Item = (usize, &S)> {
    let steps = steps.iter().enumerate();
    steps.filter(|(_, step)| step.step().place.has_spans())
}

/// The probes of the steps with spans, and whether they ask for what is known at their end.
pub fn asked<S: CountedStep>(steps: &[S]) -> Vec<(Vec<ProbeId>, bool)> {
    spans(steps)
        .map(|(_, step)| (step.functions().probes().collect(), step.asks()))
        .collect()
}

/// The number of the step that divides: the last one that asks for what is known at its end, or else the last one with
/// spans.
pub fn divider<S: CountedStep>(steps: &[S]) -> Option<usize> {
    let asking = spans(steps).rev().find(|(_, step)| step.asks());
    let (number, _) = asking.or_else(|| spans(steps).next_back())?;
    Some(number)
}

/// What divides the samples.
pub fn dividing<S: CountedStep>(steps: &[S]) -> Vec<Predicate> {
    let divider = divider(steps).and_then(|number| steps.get(number));
    divider.map_or_else(Vec::new, |step| predicates(step.step()))
}

/// Whether a step before this one asks for what is known at an end: what it sees waits for that.
pub fn is_joined<S: CountedStep>(steps: &[S], number: usize) -> bool {
    steps.iter().take(number).any(CountedStep::asks)
}

/// The calls of a step.
pub fn population<'a, S: CountedStep>(steps: &[S], number: usize, calls: Calls<'a>) -> Population<'a> {
    calls.of(is_joined(steps, number))
}

/// Reads what was counted of the calls of all steps.
pub fn read<S: CountedStep>(steps: &mut [S], calls: Calls<'_>, now_ns: u64) {
    let mut is_joined = false;
    for step in steps {
        step.functions_mut().read(calls.of(is_joined), now_ns);
        is_joined |= step.asks();
    }
}

/// As [`read`], of calls that will have left the window before that is looked at.
pub fn read_behind_window<S: CountedStep>(steps: &mut [S], calls: Calls<'_>, now_ns: u64) {
    let mut is_joined = false;
    for step in steps {
        (step.functions_mut()).read_behind_window(calls.of(is_joined), now_ns);
        is_joined |= step.asks();
    }
}

/// How samples are looked for in the spans of the scope; `None` where all are inside.
pub fn nesting<S: CountedStep>(steps: &[S]) -> Option<Nesting> {
    let divider = divider(steps)?;
    let mut nesting = Nesting {
        by_return: (steps.get(divider)).is_some_and(|step| step.step().asks_for_return()),
        ..Nesting::default()
    };
    for (number, step) in steps.iter().enumerate() {
        if !step.step().place.has_spans() {
            if let Some(level) = nesting.levels.last_mut() {
                level.gates |= step.gate_bits();
            }
            continue;
        }
        let probes: Vec<_> = step.functions().probes().collect();
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

/// What the steps ask of durations, by their calls so far.
pub fn bands<S: CountedStep>(steps: &[S]) -> Bands {
    let divisions: Vec<Option<Division>> = steps.iter().map(divided).collect();
    let band = |division: Option<Division>| division.map_or(Band::ALL, |division| division.inside());
    Bands {
        of_spans: spans(steps)
            .map(|(step, _)| StepBand {
                step,
                band: band(divisions.get(step).copied().flatten()),
            })
            .collect(),
        last: divisions.last().copied().flatten(),
    }
}

/// What a step's conditions come to for its calls so far; `None` where it asks for no duration.
pub fn divided<S: CountedStep>(step: &S) -> Option<Division> {
    let predicates = predicates(step.step());
    if predicates.is_empty() {
        return None;
    }
    let mut calls = Histogram::<u64>::new();
    for function in step.functions().iter() {
        calls.merge(function.latency().since_start());
    }
    Some(divide(&predicates, &calls, 1.0, 0))
}

/// The duration from which a call of a step that is so divided is slow; `None` where it does not ask for slow calls.
pub fn slow_from_ns(step: &Step, division: &Division) -> Option<u64> {
    let asks_for_slow = predicates(step)
        .iter()
        .any(|predicate| predicate.comparison.keeps_above());
    if !asks_for_slow {
        return None;
    }
    if division.warming {
        return Some(u64::MAX);
    }
    division.threshold_ns().or(Some(u64::MAX))
}

/// A step's conditions, as the aggregates take them.
pub fn predicates(step: &Step) -> Vec<Predicate> {
    step.predicates
        .iter()
        .map(|condition| Predicate {
            comparison: match condition.comparison {
                scope::Comparison::Less => Comparison::Below,
                scope::Comparison::LessOrEqual => Comparison::AtMost,
                scope::Comparison::Greater => Comparison::Above,
                scope::Comparison::GreaterOrEqual => Comparison::AtLeast,
            },
            limit: match condition.bound {
                scope::Bound::Percentile(percentile) => Limit::Quantile(percentile.quantile()),
                scope::Bound::Duration(ns) => Limit::DurationNs(ns),
            },
        })
        .collect()
}
