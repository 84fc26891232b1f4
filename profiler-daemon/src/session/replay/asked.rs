//! Finds the recorded steps of a requested scope. Steps may be left out from the end, and conditions on durations
//! may be any; everything else has to be as recorded. Where calls were recorded one by one inside of others, they wait for those
//! others in any case.

use std::collections::HashMap;

use profiler_aggregate::latency::AgeConfig;
use profiler_scope::{Place, Scope, Step};

use super::super::{
    calibrate::CallCost,
    division::{self, CountedStep},
    error::{Reason, SessionError},
    functions::{Functions, key},
    records::{RecordedScope, RecordedStep},
};

/// A step whose calls are counted from a recording.
pub struct AskedStep {
    step: Step,
    pub functions: Functions,
    gates: u32,
    /// Calls inside of its calls were recorded one by one, to be counted once these had ended.
    is_awaited: bool,
}

impl AskedStep {
    /// The step itself.
    pub fn text(&self) -> Step {
        self.step.clone()
    }

    /// Asks what another step asks, of the calls that were counted.
    pub fn ask(&mut self, other: Self) {
        self.step = other.step;
    }
}

impl CountedStep for AskedStep {
    fn step(&self) -> &Step {
        &self.step
    }

    fn functions(&self) -> &Functions {
        &self.functions
    }

    fn functions_mut(&mut self) -> &mut Functions {
        &mut self.functions
    }

    fn gate_bits(&self) -> u32 {
        self.gates
    }

    fn asks(&self) -> bool {
        self.is_awaited || self.step.asks_for_end()
    }
}

/// The steps that a scope asks for, and the scope in words; of none given, all that were recorded, as they were.
///
/// # Errors
/// Where they were not recorded.
pub fn steps(
    recorded: &RecordedScope,
    asked: Option<&Scope>,
    ages: AgeConfig,
    now_ns: u64,
) -> Result<Vec<AskedStep>, SessionError> {
    let known = known(recorded)?;
    let asked: Vec<Step> = match asked {
        Some(scope) => scope.steps.clone(),
        None => known.clone(),
    };
    for (number, step) in asked.iter().enumerate() {
        let is_recorded = known
            .get(number)
            .is_some_and(|known| known.place == step.place && known.conditions == step.conditions);
        if !is_recorded {
            let asked = Scope { steps: asked.clone() };
            return Err(not_recorded(step, &asked, recorded, known.get(number)));
        }
    }
    let last = asked.len().saturating_sub(1);
    let steps: Vec<AskedStep> = (asked.into_iter().zip(&known).zip(&recorded.steps).enumerate())
        .map(|(number, ((step, known), recorded))| AskedStep {
            functions: functions(recorded, ages, now_ns),
            step,
            gates: recorded.gates,
            is_awaited: number < last && known.asks_for_end(),
        })
        .collect();
    refuse_other_joins(&steps, &known)?;
    Ok(steps)
}

/// Refuses steps of which none has spans, for a view that is made of these.
///
/// # Errors
/// Where that is so, and there are steps.
pub fn refuse_lines(steps: &[AskedStep]) -> Result<(), SessionError> {
    if steps.is_empty() || division::spans(steps).next().is_some() {
        return Ok(());
    }
    let message = "a flame graph needs a function or a call, not a line";
    Err(SessionError::new(Reason::ArgumentInvalid, message))
}

/// The recorded steps, as they were asked for.
///
/// # Errors
/// Where they cannot be read.
pub fn known(recorded: &RecordedScope) -> Result<Vec<Step>, SessionError> {
    recorded.steps.iter().map(parsed).collect()
}

/// Refuses to select calls by those around them where they were not recorded one by one.
fn refuse_other_joins(steps: &[AskedStep], known: &[Step]) -> Result<(), SessionError> {
    for (number, step) in steps.iter().enumerate() {
        let was = known.iter().take(number).any(Step::asks_for_end);
        if division::is_joined(steps, number) == was {
            continue;
        }
        let before = number.checked_sub(1).and_then(|before| known.get(before));
        let before = before.map(ToString::to_string).unwrap_or_default();
        let message = format!(
            "the recording holds only counts of the calls of `{}`, not each call: to select those in slow calls of `{before}`, record with --calls",
            step.step
        );
        return Err(SessionError::new(Reason::ArgumentInvalid, message));
    }
    Ok(())
}

fn functions(step: &RecordedStep, ages: AgeConfig, now_ns: u64) -> Functions {
    let mut functions = Functions::default();
    let mut overheads = HashMap::new();
    for function in &step.functions {
        overheads.insert(key(&function.info), function.overhead_ns);
        for probe in &function.probes {
            functions.add(&function.info, function.method, *probe, ages, now_ns);
        }
    }
    functions.set_costs(&|function| CallCost {
        overhead_ns: overheads.get(&key(&function.info)).copied().unwrap_or(0),
        ..CallCost::default()
    });
    functions
}

/// What of two scopes has to be the same for them to be no other.
#[derive(Clone, Copy)]
pub enum Compared {
    /// All of them, as they were recorded.
    AsRecorded,
    /// At most so many steps from the outermost on, whatever they ask of durations.
    AnyDurations(usize),
}

/// Whether another scope is told than before, as far as it is looked at: its steps, the gates that these open and their probes.
/// Which processes are told is of no count: the probes of one that has ended stay.
pub fn is_another(before: &RecordedScope, now: &RecordedScope, compared: Compared) -> bool {
    let steps = match compared {
        Compared::AsRecorded => usize::MAX,
        Compared::AnyDurations(steps) => steps,
    };
    let told = |scope: &RecordedScope| -> Vec<_> {
        let told = scope.steps.iter().take(steps).map(|step| {
            let functions = step.functions.iter();
            let probes: Vec<_> = functions.flat_map(|function| function.probes.clone()).collect();
            let text = match compared {
                Compared::AsRecorded => step.text.clone(),
                Compared::AnyDurations(_) => without_durations(step),
            };
            (text, step.gates, probes)
        });
        told.collect()
    };
    told(before) != told(now)
}

/// The text of a recorded step without what it asks of durations.
pub fn without_durations(step: &RecordedStep) -> String {
    match parsed(step) {
        Ok(mut step) => {
            step.predicates.clear();
            step.to_string()
        }
        Err(_) => step.text.clone(),
    }
}

fn parsed(step: &RecordedStep) -> Result<Step, SessionError> {
    let scope = profiler_scope::parse(&step.text).ok();
    let step = scope.and_then(|scope| scope.steps.into_iter().next());
    step.ok_or_else(|| {
        let message =
            "the recording's scope cannot be read: the recording was made by another version, or is damaged";
        SessionError::new(Reason::ScopeInvalid, message)
    })
}

/// Why a step of the scope that is asked for cannot be shown.
fn not_recorded(
    step: &Step,
    asked: &Scope,
    recorded: &RecordedScope,
    instead: Option<&Step>,
) -> SessionError {
    let text = &recorded.text;
    let (what, others) = if text.is_empty() {
        ("everything, without a scope".to_owned(), "")
    } else {
        (format!("`{text}`"), "only steps at its end can be left out, and ")
    };
    let is_condition = instead.is_some_and(|known| known.place == step.place);
    let message = if is_condition {
        format!(
            "`{step}` was recorded with other conditions on values, which cannot be changed afterwards: the recording is of {what}"
        )
    } else {
        // As a shell takes it.
        let asked = asked.to_string().replace('\'', r"'\''");
        format!(
            "`{step}` was not recorded there: the recording is of {what}; {others}it takes one of that: profiler record -p PID '{asked}' -o FILE"
        )
    };
    let reason = match step.place {
        Place::Function(_) if !is_condition => Reason::FunctionNotFound,
        _ => Reason::ArgumentInvalid,
    };
    SessionError::new(reason, message)
}
