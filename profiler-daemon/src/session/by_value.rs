//! The calls of a scope's last step, divided by the value of an expression where they begin.
//!
//! What was read at a call's beginning and its end come together as in a trace; here is what becomes of the pairs, and
//! of the calls that did not become one.

use std::{collections::HashMap, sync::Arc};

use profiler_aggregate::{
    by_value::{ByValue, not_divided},
    histogram::Histogram,
    summary::Summary,
};
use profiler_common::{probe::ProbeId, record::SpanEnd};
use profiler_plan::values::Reading;
use profiler_scope::{Scope, expression::Expression};

use super::{
    error::{Reason, SessionError},
    functions::Function,
    picture::Losses,
    population::{JoinedCalls, Population},
    prepare::PreparedStep,
    steps::RunningStep,
    trace::TracedValue,
};
use crate::kernel::Engine;

/// Values of one session that have a histogram of their own, at most: a scope may have thousands of functions.
const MAX_ROWS: usize = 1024;

/// The reason of calls that have not ended.
const OPEN: &str = "open";

/// The reason of calls of which nothing was read, as their step was not the last one when they began.
const NOT_RECORDED: &str = "not_recorded";

/// The reason of calls whose records are on their way.
const UNDER_WAY: &str = "under_way";

/// Calls by their duration.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ValueCalls {
    /// In numbers, without a rate.
    pub summary: Summary,
    /// By bucket.
    pub counts: Vec<(u32, u64)>,
}

/// The calls of a function by the value that an expression had where they began, since the start.
#[derive(Clone, PartialEq, Debug)]
pub struct CallsByValue {
    /// Number of the function within its session.
    pub function: u32,
    /// The expression, as it was understood.
    pub expression: Arc<str>,
    /// Name of its type; empty where it is not known.
    pub type_name: Arc<str>,
    /// Calls in all: the sum of those of `values`, `other` and `not_divided`.
    pub calls: u64,
    /// Values that have a histogram of their own, what took the most time in all first.
    pub values: Vec<(Reading, ValueCalls)>,
    /// Calls with other values.
    pub other: ValueCalls,
    /// Calls whose value or duration is not known, by reason.
    pub not_divided: Losses,
}

/// What tells values apart: as far as they are shown. A reading that has no value is told by its state alone, as the
/// address that could not be read may be another at each call.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Key {
    Ok(String),
    OptimizedOut,
    Unreadable,
    Unsupported,
}

impl Key {
    fn of(reading: &Reading) -> Self {
        match reading {
            Reading::Ok(value) => Self::Ok(value.to_string()),
            Reading::OptimizedOut(_) => Self::OptimizedOut,
            Reading::Unreadable(_) => Self::Unreadable,
            Reading::Unsupported(_) => Self::Unsupported,
        }
    }
}

/// Where calls are counted.
#[derive(Clone, Copy)]
pub struct Counted<'a> {
    /// By the programs.
    pub engine: &'a Engine,
    /// At the ends of spans around them.
    pub joined: &'a JoinedCalls,
}

/// The calls that one probe has seen.
struct Divided {
    calls: ByValue<Key, Reading>,
    type_name: Arc<str>,
    /// A step before its own asks for a duration.
    is_joined: bool,
    /// A call whose conditions could not be decided was not opened, but may have been one.
    has_conditions: bool,
    is_of_last: bool,
    /// When its step became the last one, if it has not been since it was attached: of calls that began before, nothing
    /// was read.
    since_ns: u64,
    /// Calls that ended, or were under way, while its step was not the last.
    not_recorded: u64,
}

/// The calls of a session by value.
pub struct ByValues {
    expression: Arc<str>,
    by_probe: HashMap<ProbeId, Divided>,
    rows: usize,
}

impl ByValues {
    /// No calls yet.
    pub fn new(expression: &Expression) -> Self {
        Self {
            expression: expression.to_string().into(),
            by_probe: HashMap::new(),
            rows: 0,
        }
    }

    /// Says whose calls are divided by now, those of the last step, and forgets probes that are gone. One that is live
    /// though not of the last step keeps what it has: it may be of the last step again. `was_live` says of a probe that
    /// it was there before this became the last step. Whether a step before the last asks for a duration does not change
    /// while its probes live.
    pub fn settle(
        &mut self,
        counted: Counted<'_>,
        last: Option<&RunningStep>,
        is_joined: bool,
        was_live: impl Fn(ProbeId) -> bool,
        is_live: impl Fn(ProbeId) -> bool,
        now_ns: u64,
    ) {
        self.by_probe.retain(|probe, _| is_live(*probe));
        self.rows = self.by_probe.values().map(|divided| divided.calls.len()).sum();
        for (probe, divided) in &mut self.by_probe {
            divided.is_of_last &= last.is_some_and(|last| last.functions.has(*probe));
        }
        let Some(last) = last else { return };
        for probe in last.functions.probes() {
            let divided = self
                .by_probe
                .entry(probe)
                .or_insert_with(|| Divided::new(last, probe, is_joined));
            if !divided.is_of_last && was_live(probe) {
                divided.skip(counted, probe, now_ns);
            }
            divided.is_of_last = true;
        }
    }

    /// Takes a call that ended, and is found to be one that counts, though nothing was read where it began.
    pub fn take_unread(&mut self, end: &SpanEnd) {
        if let Some(divided) = self.by_probe.get_mut(&end.probe)
            && divided.is_joined
            && end.start_ns < divided.since_ns
        {
            divided.not_recorded += 1;
        }
    }

    /// Takes a call that ended, and what was read where it began.
    pub fn take(&mut self, probe: ProbeId, duration_ns: u64, values: Vec<TracedValue>) {
        let (Some(divided), Some(value)) = (self.by_probe.get_mut(&probe), values.into_iter().next()) else {
            return;
        };
        let key = Key::of(&value.reading);
        let may_grow = self.rows < MAX_ROWS;
        if divided.calls.record(key, || value.reading, duration_ns, may_grow) {
            self.rows += 1;
        }
    }

    /// What is shown of a function; `ended` where nothing more is to come.
    pub fn picture(&self, counted: Counted<'_>, function: &Function, ended: bool) -> CallsByValue {
        let mut all = ByValue::default();
        let mut type_name: Arc<str> = "".into();
        let mut calls = 0;
        let mut lost = Losses::new();
        let rest = if ended { "end_lost" } else { UNDER_WAY };
        for probe in function.probes() {
            let Some(divided) = self.by_probe.get(&probe) else {
                continue;
            };
            if type_name.is_empty() {
                type_name = Arc::clone(&divided.type_name);
            }
            let reasons = divided.reasons(counted, probe);
            // The last to be read: what began meanwhile is under way.
            let begun = divided.begun(counted, probe);
            let in_rows = divided.calls.total();
            calls += begun.max(in_rows);
            for (reason, count) in not_divided(begun, in_rows, reasons, rest) {
                *lost.entry(reason).or_default() += count;
            }
            all.merge(&divided.calls);
        }
        let rows = all.rows().into_iter();
        CallsByValue {
            function: function.id,
            expression: Arc::clone(&self.expression),
            type_name,
            calls,
            values: rows
                .map(|row| (row.shown.clone(), ValueCalls::of(&row.calls)))
                .collect(),
            other: ValueCalls::of(all.other()),
            not_divided: lost,
        }
    }
}

impl Divided {
    fn new(last: &RunningStep, probe: ProbeId, is_joined: bool) -> Self {
        let printed = last.shown(probe).printed;
        let lowered = printed.first().and_then(|printed| printed.lowered.as_ref().ok());
        Self {
            calls: ByValue::default(),
            type_name: lowered
                .map_or("", |lowered| lowered.shape.type_name.as_str())
                .into(),
            is_joined,
            has_conditions: !last.step.conditions.is_empty(),
            is_of_last: false,
            since_ns: 0,
            not_recorded: 0,
        }
    }

    /// From now on its calls are divided: what has begun by now, and has not been, never will.
    fn skip(&mut self, counted: Counted<'_>, probe: ProbeId, now_ns: u64) {
        let reasons = self.reasons(counted, probe);
        let definite = reasons
            .into_iter()
            .filter(|(reason, _)| ![OPEN, NOT_RECORDED].contains(reason));
        let begun = self.begun(counted, probe);
        self.not_recorded = not_divided(begun, self.calls.total(), definite, NOT_RECORDED)
            .into_iter()
            .find(|(reason, _)| *reason == NOT_RECORDED)
            .map_or(0, |(_, count)| count);
        self.since_ns = now_ns;
    }

    /// The calls to be accounted for: of a step before which a duration is asked for, those that were found to be inside.
    fn begun(&self, counted: Counted<'_>, probe: ProbeId) -> u64 {
        if self.is_joined {
            return total(Population::Joined(counted.joined), probe);
        }
        let hits = counted.engine.hit_counts(probe);
        let undecided = if self.has_conditions { hits.no_state } else { 0 };
        let refused = counted.engine.probe_counts(probe).refused;
        (hits.reached + hits.disturbed + undecided).saturating_sub(refused)
    }

    /// Why calls may not be divided: what keeps them from having a duration first.
    fn reasons(&self, counted: Counted<'_>, probe: ProbeId) -> Vec<(&'static str, u64)> {
        let ended = total(Population::Counted(counted.engine), probe);
        let calls = counted.engine.probe_counts(probe);
        let hits = counted.engine.hit_counts(probe);
        let mut reasons = Vec::new();
        // Those that were found to be inside have ended.
        if !self.is_joined {
            reasons.extend([
                ("abandoned", calls.abandoned),
                ("too_deep", calls.too_deep),
                ("no_thread_state", calls.no_state + hits.no_state),
                ("disturbed", hits.disturbed),
                ("return_unknown", calls.undecided),
                (OPEN, calls.open(ended)),
            ]);
        }
        reasons.extend([
            ("ring_full", hits.ring_full),
            ("rate_limit", hits.limited),
            (NOT_RECORDED, self.not_recorded),
        ]);
        reasons
    }
}

/// All calls of a probe that count.
fn total(population: Population<'_>, probe: ProbeId) -> u64 {
    population.histogram(probe).map(|(_, count)| count).sum()
}

impl ValueCalls {
    fn of(calls: &Histogram<u64>) -> Self {
        let counts = calls.iter();
        Self {
            summary: Summary::of(calls, 1.0, 0.0),
            counts: counts
                .map(|(bucket, count)| (u32::try_from(bucket).unwrap_or(u32::MAX), count))
                .collect(),
        }
    }
}

/// Refuses to divide what is not calls.
///
/// # Errors
/// Where the scope is empty, or its last step a line.
pub fn require_calls(scope: &Scope, expression: &Expression) -> Result<(), SessionError> {
    let message = match scope.last() {
        Some(step) if step.place.has_spans() => return Ok(()),
        Some(step) => format!(
            "{} is {}, which has no duration: to divide calls by {expression}, name a function or the calls at a line, as in f or f@main.cc:1312",
            step.place,
            step.place.noun()
        ),
        None => format!("the scope is empty: name the function whose calls to divide by {expression}"),
    };
    Err(SessionError::new(Reason::ArgumentInvalid, message))
}

/// Refuses an expression that can be read nowhere where calls begin: all would be in one row.
///
/// # Errors
/// Why it cannot be read at the first place.
pub fn require_readable(last: Option<&PreparedStep>, expression: &Expression) -> Result<(), SessionError> {
    let mut refused = None;
    for span in last
        .iter()
        .flat_map(|step| &step.files)
        .flat_map(|file| &file.sites)
    {
        match span.shown.printed.first().map(|printed| &printed.lowered) {
            Some(Err(refusal)) => {
                refused.get_or_insert((&span.site.function.name, refusal));
            }
            _ => return Ok(()),
        }
    }
    match refused {
        Some((function, refusal)) => Err(SessionError::new(
            Reason::ExpressionRefused,
            format!("the calls of {function} cannot be divided by {expression}: {refusal}"),
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use profiler_plan::values::Value;

    fn text(bytes: &[u8], pointer: u64) -> Reading {
        Reading::Ok(Value::Text {
            bytes: bytes.to_vec(),
            length: Some(bytes.len() as u64),
            pointer: Some(pointer),
        })
    }

    #[test]
    fn values_that_look_alike_share_a_row() {
        let same = |a: &Reading, b: &Reading| Key::of(a) == Key::of(b);
        assert!(
            same(&text(b"alpha", 1), &text(b"alpha", 2)),
            "wherever the text is"
        );
        assert!(!same(&text(b"alpha", 1), &text(b"beta", 1)));
        let unreadable = |why: &str| Reading::Unreadable(why.to_owned());
        assert!(same(&unreadable("at 0x10"), &unreadable("at 0x20")));
        assert!(!same(
            &unreadable("why"),
            &Reading::OptimizedOut("why".to_owned())
        ));
        assert!(!same(&unreadable("why"), &Reading::Ok(Value::Unsigned(0))));
        let enumerator = |number, name: Option<&str>| {
            Reading::Ok(Value::Enumerator {
                number,
                name: name.map(str::to_owned),
            })
        };
        assert!(!same(&enumerator(1, Some("RED")), &enumerator(2, Some("GREEN"))));
        assert!(!same(&enumerator(1, Some("RED")), &enumerator(3, None)));
        assert!(!same(
            &Reading::Ok(Value::Float(0.0)),
            &Reading::Ok(Value::Float(-0.0))
        ));
    }
}
