//! What the steps of a scope ask of durations: which of them divides the calls, and where, by the calls so far.

use profiler_aggregate::{
    Nesting,
    histogram::Histogram,
    join::Level,
    predicate::{self, Limit},
    threshold::{Band, Division, divide},
};
use profiler_common::probe::ProbeId;
use profiler_scope::{self as scope, Step};

use super::{super::steps::RunningStep, Session};

impl Session {
    /// The steps with spans, each with its number.
    pub(super) fn spans(&self) -> impl DoubleEndedIterator<Item = (usize, &RunningStep)> {
        let steps = self.steps.iter().enumerate();
        steps.filter(|(_, step)| step.step.place.has_spans())
    }

    /// The probes of the steps with spans, and whether they ask for what is known at their end.
    pub(super) fn asked(&self) -> Vec<(Vec<ProbeId>, bool)> {
        self.spans()
            .map(|(_, step)| (step.functions.probes().collect(), step.asks()))
            .collect()
    }

    /// The number of the step that divides: the last one that asks for what is known at its end, or else the last one with
    /// spans.
    pub(super) fn divider(&self) -> Option<usize> {
        let asking = self.spans().rev().find(|(_, step)| step.asks());
        let (number, _) = asking.or_else(|| self.spans().next_back())?;
        Some(number)
    }

    /// What divides the samples.
    pub(super) fn dividing(&self) -> Vec<predicate::Predicate> {
        let divider = self.divider().and_then(|number| self.steps.get(number));
        divider.map_or_else(Vec::new, |step| predicates(&step.step))
    }

    /// How samples are looked for in the spans of the scope; `None` where all are inside.
    pub(super) fn nesting(&self) -> Option<Nesting> {
        let divider = self.divider()?;
        let mut nesting = Nesting {
            by_return: (self.steps.get(divider)).is_some_and(|step| step.step.asks_for_return()),
            ..Nesting::default()
        };
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

    /// Says what steps ask of durations, by their calls so far; what the last one's conditions come to.
    pub(super) fn set_bands(&mut self) -> Option<Division> {
        let divisions: Vec<Option<Division>> = self.steps.iter().map(divided).collect();
        let bands: Vec<Band> = self.spans().map(|(number, _)| band(&divisions, number)).collect();
        for (number, band) in bands.iter().enumerate() {
            self.path.set_band(number, *band);
            for flame in self.flames.values_mut() {
                flame.set_band(number, *band);
            }
        }
        if let Some(spans) = &mut self.spans {
            let step = spans.layout().step();
            spans.set_band(band(&divisions, step));
        }
        divisions.last().copied().flatten()
    }
}

/// The durations that a step asks for.
fn band(divisions: &[Option<Division>], step: usize) -> Band {
    let division = divisions.get(step).copied().flatten();
    division.map_or(Band::ALL, |division| division.inside())
}

/// What a step's conditions come to for its calls so far; `None` where it asks for no duration.
pub(super) fn divided(step: &RunningStep) -> Option<Division> {
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

/// The duration from which a call of a step that is so divided is slow; `None` where it does not ask for slow calls.
pub(super) fn slow_from_ns(step: &Step, division: &Division) -> Option<u64> {
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
