//! What a recording waits for: a slow call, or a percentile that is too high for a while.

use std::{collections::HashSet, fmt};

use profiler_aggregate::{
    histogram::Histogram,
    predicate::Predicate,
    threshold::{Band, divide},
    window::Window,
};
use profiler_common::probe::ProbeId;
use profiler_proto::v1;
use profiler_scope::{Bound, Place, Step};

use super::decode;
use crate::session::predicates;

/// Something that is looked for in a stream of records.
pub struct Trigger {
    text: String,
    place: Place,
    condition: Condition,
    /// Of the steps of this place.
    probes: HashSet<ProbeId>,
}

enum Condition {
    /// A call ends after such a time.
    Call(Band),
    /// A percentile of the sliding window is such, for a while.
    Window(Box<OfWindow>),
}

struct OfWindow {
    quantile: f64,
    asked: Band,
    for_ns: u64,
    /// `None` before the length of the window is told.
    calls: Option<Window>,
    /// Since when it is so.
    since_ns: Option<u64>,
}

/// A trigger that cannot be, or not of what is recorded.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TriggerError(String);

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Trigger {
    /// Reads `f[>= 50ms]`, a call of a recorded step; or `window p99 of f > 20ms for 5s`, where the last two words may be
    /// missing.
    ///
    /// # Errors
    /// What is wrong with the text, as a sentence.
    pub fn parse(text: &str) -> Result<Self, TriggerError> {
        let text = text.trim();
        let (place, condition) = match text.strip_prefix("window ") {
            None => {
                let step = step(text)?;
                (step.place.clone(), Condition::Call(band(&step, text)?))
            }
            Some(words) => of_window(words)?,
        };
        if !place.has_spans() {
            return Err(TriggerError(format!(
                "`{text}` is of a place without durations: name a function or a call, as in f[>= 50ms]"
            )));
        }
        Ok(Self {
            text: text.to_owned(),
            place,
            condition,
            probes: HashSet::new(),
        })
    }

    /// Whether its step is one of a scope.
    ///
    /// # Errors
    /// Where it is not: then it never happens.
    pub fn check(&self, scope: &str) -> Result<(), TriggerError> {
        let steps = profiler_scope::parse(scope)
            .map(|scope| scope.steps)
            .unwrap_or_default();
        if steps.iter().any(|step| step.place == self.place) {
            return Ok(());
        }
        let recorded = if scope.is_empty() {
            "nothing is timed".to_owned()
        } else {
            format!("`{scope}`")
        };
        Err(TriggerError(format!(
            "`{}` is not among the steps that are recorded, {recorded}: name one of them",
            self.place
        )))
    }

    /// Takes the next message; whether it has happened. It is looked for in the calls that were counted, all those of the
    /// step, four times a second.
    pub fn take(&mut self, message: &v1::WatchRecordsResponse) -> bool {
        if let Some(scope) = &message.scope {
            self.begin(scope, message.from_ns);
        }
        let mut calls = Vec::new();
        for counted in &message.calls {
            if self.probes.contains(&ProbeId(counted.probe))
                && let Ok(counted) = decode::counted(counted.clone())
            {
                calls.extend(counted.ended);
            }
        }
        match &mut self.condition {
            Condition::Call(asked) => calls.iter().any(|(bucket, _)| asked.contains(*bucket)),
            Condition::Window(window) => window.take(message.to_ns, &calls),
        }
    }

    /// Finds the step in a scope that is told, which may be another than before.
    fn begin(&mut self, scope: &v1::RecordedScope, now_ns: u64) {
        let of_place = scope.steps.iter().filter(|recorded| {
            let step = profiler_scope::parse(&recorded.text).ok();
            let step = step.and_then(|scope| scope.steps.into_iter().next());
            step.is_some_and(|step| step.place == self.place)
        });
        let functions = of_place.flat_map(|step| &step.functions);
        let probes = functions.flat_map(|function| &function.probes);
        let probes = probes.map(|probe| ProbeId(probe.id)).collect();
        let is_another = std::mem::replace(&mut self.probes, probes) != self.probes;
        if let Condition::Window(window) = &mut self.condition
            && (is_another || window.calls.is_none())
        {
            window.calls = Some(Window::new(decode::ages(scope).window, now_ns));
            window.since_ns = None;
        }
    }
}

impl OfWindow {
    fn take(&mut self, now_ns: u64, calls: &[(usize, u64)]) -> bool {
        let Some(window) = &mut self.calls else {
            return false;
        };
        window.record(now_ns, calls);
        let calls = window.histogram(now_ns);
        // Of fewer, it is the slowest of them.
        let is_enough = calls.total() as f64 * (1.0 - self.quantile) >= 1.0 - 1e-9;
        let at = calls.quantile(self.quantile).filter(|_| is_enough);
        if at.is_none_or(|bucket| !self.asked.contains(bucket)) {
            self.since_ns = None;
            return false;
        }
        let since_ns = *self.since_ns.get_or_insert(now_ns);
        now_ns.saturating_sub(since_ns) >= self.for_ns
    }
}

/// Reads `p99 of f > 20ms for 5s`.
fn of_window(words: &str) -> Result<(Place, Condition), TriggerError> {
    let malformed = || {
        TriggerError(format!(
            "`window {words}` is not understood: window p99 of f > 20ms, and `for 5s` behind it if it has to last"
        ))
    };
    let (percentile, rest) = words.split_once(" of ").ok_or_else(malformed)?;
    let (asked, lasts) = match rest.rsplit_once(" for ") {
        Some((asked, lasts)) => (asked, Some(lasts)),
        None => (rest, None),
    };
    let at = asked.rfind(['<', '>']).ok_or_else(malformed)?;
    // `>=` and `<=` begin there too.
    let (name, limit) = (asked[..at].trim(), &asked[at..]);
    let step = self::step(&format!("{name}[{limit}]"))?;
    let percentile = self::step(&format!("{name}[>= {}]", percentile.trim()))?;
    let quantile = percentile
        .predicates
        .iter()
        .find_map(|predicate| match predicate.bound {
            Bound::Percentile(percentile) => Some(percentile.quantile()),
            Bound::Duration(_) => None,
        });
    let for_ns = match lasts {
        Some(lasts) => duration_ns(lasts).ok_or_else(malformed)?,
        None => 0,
    };
    let window = OfWindow {
        quantile: quantile.ok_or_else(malformed)?,
        asked: band(&step, words)?,
        for_ns,
        calls: None,
        since_ns: None,
    };
    Ok((step.place, Condition::Window(Box::new(window))))
}

/// A duration as scopes have it.
fn duration_ns(text: &str) -> Option<u64> {
    let step = step(&format!("f[>= {}]", text.trim())).ok()?;
    step.predicates
        .iter()
        .find_map(|predicate| match predicate.bound {
            Bound::Duration(ns) => Some(ns),
            Bound::Percentile(_) => None,
        })
}

/// The one step of a scope's text.
fn step(text: &str) -> Result<Step, TriggerError> {
    let scope = profiler_scope::parse(text).map_err(|error| TriggerError(error.to_string()))?;
    let mut steps = scope.steps.into_iter();
    match (steps.next(), steps.next()) {
        (Some(step), None) => Ok(step),
        _ => Err(TriggerError(format!(
            "`{text}` is of several steps: name one that is recorded, as in f[>= 50ms]"
        ))),
    }
}

/// The durations that a step asks for.
fn band(step: &Step, text: &str) -> Result<Band, TriggerError> {
    let is_of_durations =
        (step.predicates.iter()).all(|predicate| matches!(predicate.bound, Bound::Duration(_)));
    if step.predicates.is_empty() || !is_of_durations || !step.conditions.is_empty() {
        return Err(TriggerError(format!(
            "`{text}` asks for no duration: f[>= 50ms] is a call of so long, window p99 of f > 20ms a percentile"
        )));
    }
    let predicates: Vec<Predicate> = predicates(step);
    Ok(divide(&predicates, &Histogram::<u64>::new(), 1.0, 0).inside())
}

#[cfg(test)]
mod tests {
    use super::*;
    use profiler_common::layout::bucket_of;

    const MS: u64 = 1_000_000;

    fn scope() -> v1::RecordedScope {
        let function = v1::RecordedFunction {
            probes: vec![v1::RecordedProbe { id: 7, open: 0 }],
            ..Default::default()
        };
        v1::RecordedScope {
            text: "f[>= p95]".to_owned(),
            steps: vec![v1::RecordedStep {
                text: "f[>= p95]".to_owned(),
                functions: vec![function],
                gates: 0,
            }],
            window: Some(prost_types::Duration { seconds: 1, nanos: 0 }),
            ..Default::default()
        }
    }

    /// A message of a quarter of a second, with calls of probe 7.
    fn message(number: u64, calls: &[(u64, u64)]) -> v1::WatchRecordsResponse {
        let mut ended: Vec<(u32, u64)> = (calls.iter())
            .map(|(ns, count)| (u32::try_from(bucket_of(*ns)).unwrap(), *count))
            .collect();
        ended.sort_unstable();
        v1::WatchRecordsResponse {
            from_ns: number * 250 * MS,
            to_ns: (number + 1) * 250 * MS,
            scope: (number == 0).then(scope),
            calls: vec![v1::CountedCalls {
                probe: 7,
                ended: Some(crate::rpc::histogram(&ended)),
                ..Default::default()
            }],
            ..Default::default()
        }
    }

    #[test]
    fn a_call_that_is_slow_enough_fires() {
        let mut trigger = Trigger::parse(" f[>= 50ms] ").unwrap();
        assert!(!trigger.take(&message(0, &[(MS, 1000), (49 * MS, 1)])));
        assert!(trigger.take(&message(1, &[(MS, 1000), (51 * MS, 1)])));
        let mut band = Trigger::parse("f[>= 2ms][< 5ms]").unwrap();
        assert!(!band.take(&message(0, &[(MS, 1), (9 * MS, 1)])));
        assert!(band.take(&message(1, &[(3 * MS, 1)])));
    }

    #[test]
    fn a_percentile_fires_once_it_has_lasted() {
        let slow = [(MS, 90), (30 * MS, 10)];
        let mut trigger = Trigger::parse("window p95 of f > 20ms for 1s").unwrap();
        let fires: Vec<bool> = (0..8)
            .map(|number| {
                let calls = if number == 0 { &[(MS, 100)][..] } else { &slow };
                trigger.take(&message(number, calls))
            })
            .collect();
        let first = fires.iter().position(|fires| *fires).unwrap();
        // From 0.75 s on more than 5% are slow.
        assert_eq!(first, 6, "{fires:?}");
        // It ends meanwhile.
        let mut trigger = Trigger::parse("window p95 of f > 20ms for 1s").unwrap();
        for number in 0..40 {
            let calls = if number % 8 < 3 {
                &slow[..]
            } else {
                &[(MS, 10_000)]
            };
            assert!(!trigger.take(&message(number, calls)), "{number}");
        }
        // One call is no percentile.
        let mut trigger = Trigger::parse("window p99 of f >= 20ms").unwrap();
        assert!(!trigger.take(&message(0, &[(30 * MS, 1)])));
        assert!(trigger.take(&message(1, &[(30 * MS, 200)])));
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_can() {
        for (text, words) in [
            ("f", "asks for no duration"),
            ("f[>= p95]", "asks for no duration"),
            ("f/g[>= 5ms]", "several steps"),
            ("f[>=", "f[>="),
            ("main.c:3[>= 5ms]", "main.c:3"),
            ("window p99 f > 20ms", "window p99 of f > 20ms"),
            ("window p99 of f 20ms", "window p99 of f > 20ms"),
            ("window p99 of f > 20ms for ever", "for 5s"),
            ("window f of f > 20ms", ""),
        ] {
            let refused = Trigger::parse(text).map(|trigger| trigger.to_string());
            let refused = refused.unwrap_err().to_string();
            assert!(refused.contains(words), "{text}: {refused}");
        }
        let other = Trigger::parse("g[>= 5ms]").unwrap();
        let refused = other.check("f[>= p95]").unwrap_err().to_string();
        assert!(refused.contains("`g` is not among the steps"), "{refused}");
        assert!(other.check("").is_err());
        Trigger::parse("f[>= 5ms]").unwrap().check("f[>= p95]").unwrap();
    }
}
