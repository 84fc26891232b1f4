//! Edits of a scope's text. All give its canonical text, or say why not.

use profiler_proto::v1;
use profiler_scope::{Bound, Comparison, Name, Percentile, Place, Predicate, Scope, Step, parse};

pub use crate::render::scopes::without_thresholds;
use crate::{render::escape::terminal, state::times::OFF_CPU};

/// Percentiles that a threshold is moved along, in percent.
const LADDER: [f64; 5] = [50.0, 90.0, 95.0, 99.0, 99.9];

/// The percentile that a threshold begins with.
const FIRST: f64 = 95.0;

/// Which way a threshold is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Towards {
    /// Fewer calls.
    Slower,
    /// More calls.
    Faster,
}

/// Reads a scope; what is wrong with it in a sentence.
///
/// # Errors
///
/// Where it does not parse.
pub fn read(text: &str) -> Result<Scope, String> {
    if text.trim_start().starts_with('\'') {
        return Err(
            "Single quotes are for a shell: write the scope without them, as in *Command[>= p95].".to_owned(),
        );
    }
    parse(text).map_err(|error| {
        let text = error.to_string();
        let lines: Vec<_> = text.lines().map(terminal).collect();
        lines.join("\n")
    })
}

/// The texts of its steps, outermost first; none where it does not parse.
#[must_use]
pub fn steps(text: &str) -> Vec<String> {
    let steps = parse(text).map(|scope| scope.steps).unwrap_or_default();
    steps.iter().map(ToString::to_string).collect()
}

/// The scope with a step behind its last.
///
/// # Errors
///
/// Where a scope cannot have such a step there.
pub fn append(text: &str, place: Place) -> Result<String, String> {
    let mut scope = read(text)?;
    if scope.last().is_some_and(|last| last.place == place) {
        return Ok(scope.to_string());
    }
    scope.steps.push(step(place));
    // The grammar has rules of its own.
    read(&scope.to_string()).map(|scope| scope.to_string())
}

/// The scope of a single step.
#[must_use]
pub fn only(place: Place) -> String {
    step(place).to_string()
}

fn step(place: Place) -> Step {
    Step {
        place,
        predicates: Vec::new(),
        conditions: Vec::new(),
    }
}

/// The last step that asks for a duration, and its first such condition.
#[must_use]
pub fn threshold(text: &str) -> Option<Predicate> {
    let scope = parse(text).ok()?;
    let mut steps = scope.steps.into_iter().rev();
    steps.find_map(|step| step.predicates.first().copied())
}

/// The scope with a threshold: its own, or the 95th percentile of the calls of its last step that has a duration.
///
/// # Errors
///
/// Where nothing of it has a duration.
pub fn with_threshold(text: &str) -> Result<String, String> {
    if threshold(text).is_some() && !is_of_all(text) {
        return Ok(text.to_owned());
    }
    let mut scope = read(text)?;
    let first = percentile(FIRST).map(Bound::Percentile);
    timed_step(&mut scope)?.predicates = first.into_iter().map(or_more).collect();
    Ok(scope.to_string())
}

/// Whether all calls meet what the last step asks of durations that asks for any, as recordings have it for the sake of them: `[>= 0ns]`.
fn is_of_all(text: &str) -> bool {
    let steps = parse(text).map(|scope| scope.steps).unwrap_or_default();
    let divided = steps.iter().rfind(|step| !step.predicates.is_empty());
    let of_all = or_more(Bound::Duration(0));
    divided.is_some_and(|step| step.predicates.iter().all(|predicate| *predicate == of_all))
}

/// The scope whose slow calls can be explained: as [`with_threshold`], up to the step that has it.
///
/// # Errors
///
/// Where nothing of it has a duration.
pub fn explained(text: &str) -> Result<String, String> {
    let mut scope = read(&with_threshold(text)?)?;
    let divided = scope.steps.iter().rposition(|step| !step.predicates.is_empty());
    scope.steps.truncate(divided.map_or(usize::MAX, |at| at + 1));
    // It is of one step's durations.
    if let Some((_, before)) = scope.steps.split_last_mut() {
        for step in before {
            step.predicates.clear();
        }
    }
    Ok(scope.to_string())
}

/// The scope of calls that take as long as one of them did, to two digits.
///
/// # Errors
///
/// Where nothing of it has a duration.
pub fn at_least(text: &str, duration_ns: u64) -> Result<String, String> {
    let mut scope = read(text)?;
    let digits = duration_ns.checked_ilog10().unwrap_or(0);
    let unit_ns = 10u64.pow(digits.saturating_sub(1));
    timed_step(&mut scope)?.predicates = vec![or_more(Bound::Duration(duration_ns / unit_ns * unit_ns))];
    Ok(scope.to_string())
}

/// The scope of calls that take at least so long and less than so long, each to three digits: calls of the last step that has a
/// duration, which are those that are shown.
///
/// # Errors
///
/// Where nothing of it has a duration, or no end is given.
pub fn between(text: &str, from_ns: Option<u64>, below_ns: Option<u64>) -> Result<String, String> {
    let mut scope = read(text)?;
    let rounded = |ns: u64| Bound::Duration(rounded_ns(ns));
    let below = below_ns.map(|ns| Predicate {
        comparison: Comparison::Less,
        bound: rounded(ns),
    });
    let predicates: Vec<Predicate> = from_ns
        .map(|ns| or_more(rounded(ns)))
        .into_iter()
        .chain(below)
        .collect();
    if predicates.is_empty() {
        return Err("These are all calls: select fewer bars.".to_owned());
    }
    let shown = scope.steps.iter_mut().rfind(|step| step.place.has_spans());
    shown.ok_or(NOTHING_TIMED)?.predicates = predicates;
    read(&scope.to_string()).map(|scope| scope.to_string())
}

/// A time to three digits.
#[must_use]
pub fn rounded_ns(ns: u64) -> u64 {
    let unit_ns = unit_of_three_digits_ns(ns);
    ns.saturating_add(unit_ns / 2) / unit_ns * unit_ns
}

/// The same, never a longer time.
#[must_use]
pub fn rounded_down_ns(ns: u64) -> u64 {
    let unit_ns = unit_of_three_digits_ns(ns);
    ns / unit_ns * unit_ns
}

fn unit_of_three_digits_ns(ns: u64) -> u64 {
    let digits = ns.checked_ilog10().unwrap_or(0);
    10u64.pow(digits.saturating_sub(2))
}

/// Whether the calls whose durations are shown are divided by them: those of the last step that has any, and not of one around it.
#[must_use]
pub fn divides_shown(text: &str) -> bool {
    let last = parse(text)
        .ok()
        .and_then(|scope| scope.steps.into_iter().rfind(|step| step.place.has_spans()));
    last.is_some_and(|step| !step.predicates.is_empty())
}

/// What is said of bars that no threshold is made of.
pub const WITHOUT_CALLS: &str = "No call took so long: select a bar that has calls.";

const NOTHING_TIMED: &str =
    "Choose a function first: slow calls are those of a function (1 shows functions).";

/// The step whose calls are divided by their duration: the last that is, or else the last that has one.
fn timed_step(scope: &mut Scope) -> Result<&mut Step, String> {
    let steps = &mut scope.steps;
    let divided = steps.iter().rposition(|step| !step.predicates.is_empty());
    let timed = divided.or_else(|| steps.iter().rposition(|step| step.place.has_spans()));
    timed
        .and_then(|at| steps.get_mut(at))
        .ok_or_else(|| NOTHING_TIMED.to_owned())
}

const fn or_more(bound: Bound) -> Predicate {
    Predicate {
        comparison: Comparison::GreaterOrEqual,
        bound,
    }
}

/// The scope with its threshold at the next percentile.
///
/// # Errors
///
/// Where nothing of it has a duration.
pub fn nudge(text: &str, towards: Towards) -> Result<String, String> {
    if threshold(text).is_none() || is_of_all(text) {
        return with_threshold(text);
    }
    let mut scope = read(text)?;
    let mut steps = scope.steps.iter_mut().rev();
    let predicate = steps.find_map(|step| step.predicates.first_mut());
    match predicate.map(|predicate| &mut predicate.bound) {
        Some(Bound::Percentile(bound)) => {
            let now = bound.quantile() * 100.0;
            let next = match towards {
                Towards::Slower => LADDER.into_iter().find(|next| *next > now + 1e-6),
                Towards::Faster => LADDER.into_iter().rev().find(|next| *next < now - 1e-6),
            };
            if let Some(next) = next.and_then(percentile) {
                *bound = next;
            }
        }
        Some(Bound::Duration(bound)) => *bound = next_time(*bound, towards),
        None => {}
    }
    // The two ends of a band do not pass each other.
    read(&scope.to_string()).map(|scope| scope.to_string())
}

/// The next of the times that a threshold is moved along: 1, 1.5, 2, 3, 5 and 7 of each power of ten.
fn next_time(now_ns: u64, towards: Towards) -> u64 {
    const TENTHS: [u64; 6] = [10, 15, 20, 30, 50, 70];
    const POWERS: u32 = 12;
    let mut times = (0..POWERS).flat_map(|power| TENTHS.map(|tenths| tenths * 10u64.pow(power)));
    let next = match towards {
        Towards::Slower => times.find(|next| *next > now_ns),
        Towards::Faster => times.rfind(|next| *next < now_ns),
    };
    next.unwrap_or(now_ns)
}

fn percentile(percent: f64) -> Option<Percentile> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "below 100 million"
    )]
    Percentile::from_millionths((percent * 1e6).round() as u32)
}

/// The scope with a condition on a value of its last step: `[n == 7]`.
///
/// # Errors
///
/// Where there is no step, or no such condition.
pub fn with_condition(text: &str, expression: &str, value: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("Choose a function or a line first: a condition needs one.".to_owned());
    }
    read(&format!("{text}[{expression} == {value}]")).map(|scope| scope.to_string())
}

/// Whether the last step takes conditions on the thread: it is a place in the program.
#[must_use]
pub fn takes_threads(text: &str) -> bool {
    let last = |scope: Scope| scope.steps.last().map(|step| step.place.clone());
    parse(text).ok().and_then(last).is_some_and(|place| {
        !matches!(
            place,
            Place::SystemCall(_) | Place::KernelFunction(_) | Place::Tracepoint { .. }
        )
    })
}

/// The function whose source belongs to a scope: the innermost step that is one.
#[must_use]
pub fn function(text: &str) -> Option<String> {
    let scope = parse(text).ok()?;
    scope.steps.iter().rev().find_map(|step| match &step.place {
        Place::Function(name) | Place::Inlined(name) | Place::Call { callee: name, .. } => {
            Some(name.text().to_owned())
        }
        _ => None,
    })
}

/// The same, as the service takes it where a place is asked for.
#[must_use]
pub fn source(text: &str) -> Option<String> {
    function(text).map(|function| quoted(&function))
}

/// The step that looks inside of a frame; `None` where it is no function that is known by name.
#[must_use]
pub fn place_of(frame: &v1::Frame) -> Option<Place> {
    let name = if frame.unresolved.is_empty() {
        frame.function.as_str()
    } else {
        numbered(&frame.function)?
    };
    let known = !name.is_empty()
        && !frame.function.starts_with('[')
        && frame.function != "other"
        && !matches!(frame.module.as_str(), OFF_CPU | "[thread]" | "[process]");
    let name = || Name::Exact(name.to_owned());
    known.then(|| {
        if frame.kernel {
            Place::KernelFunction(name())
        } else if frame.inlined {
            Place::Inlined(name())
        } else {
            Place::Function(name())
        }
    })
}

/// The file and the address of a function that has no name, without why: `nginx+0x51397` of `nginx+0x51397 (no symbols)`.
fn numbered(function: &str) -> Option<&str> {
    let name = function.rsplit_once(" (").map_or(function, |(name, _)| name);
    let (_, address) = name.rsplit_once("+0x")?;
    let is_address = !address.is_empty() && address.chars().all(|c| c.is_ascii_hexdigit());
    is_address.then_some(name)
}

/// The line that ran in a frame, as a step; `None` where it is not known.
#[must_use]
pub fn line_of(frame: &v1::Frame) -> Option<Place> {
    let file = frame.file.rsplit('/').next().filter(|file| !file.is_empty())?;
    (frame.line > 0 && place_of(frame).is_some()).then(|| Place::Line {
        file: file.to_owned(),
        line: frame.line,
    })
}

/// A function's name as the service takes it where a place is asked for.
#[must_use]
pub fn quoted(function: &str) -> String {
    Place::Function(Name::Exact(function.to_owned())).to_string()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn function_named(name: &str) -> Place {
        Place::Function(Name::Exact(name.into()))
    }

    #[test]
    fn steps_come_behind_the_last() {
        assert_eq!(append("", function_named("f")).unwrap(), "f");
        assert_eq!(
            append("f[>= p95]", function_named("a::<b>::c")).unwrap(),
            "f[>= p95]/\"a::<b>::c\""
        );
        assert_eq!(append("f", function_named("f")).unwrap(), "f", "it is there");
        let line = Place::Branch {
            file: "main.cc".into(),
            line: 13,
            taken: true,
        };
        assert_eq!(
            append("f[>= p95]", line.clone()).unwrap(),
            "f[>= p95]/main.cc:13!taken"
        );
        assert!(append("main.cc:12", line).is_err(), "nothing ends a line");
    }

    #[test]
    fn a_threshold_moves_along_percentiles() {
        assert_eq!(nudge("f", Towards::Slower).unwrap(), "f[>= p95]");
        assert_eq!(nudge("f[>= p95]", Towards::Slower).unwrap(), "f[>= p99]");
        assert_eq!(nudge("f[>= p99.9]", Towards::Slower).unwrap(), "f[>= p99.9]");
        assert_eq!(nudge("f[>= p95]/g", Towards::Faster).unwrap(), "f[>= p90]/g");
        assert_eq!(nudge("f[>= p42]", Towards::Faster).unwrap(), "f[>= p42]");
        assert_eq!(nudge("f[> 5ms]", Towards::Faster).unwrap(), "f[> 3ms]");
        assert_eq!(nudge("f[> 5.1ms]", Towards::Slower).unwrap(), "f[> 7ms]");
        assert_eq!(nudge("f[> 7ms]", Towards::Slower).unwrap(), "f[> 10ms]");
        assert!(nudge("", Towards::Slower).is_err());
        assert_eq!(with_threshold("f/main.cc:3").unwrap(), "f[>= p95]/main.cc:3");
    }

    #[test]
    fn a_duration_becomes_the_threshold() {
        assert_eq!(at_least("f", 31_047_000).unwrap(), "f[>= 31ms]");
        assert_eq!(
            at_least("f[>= p95]/main.cc:3", 1_299_999).unwrap(),
            "f[>= 1.2ms]/main.cc:3"
        );
        assert_eq!(at_least("f[>= p50][< 1s]", 7).unwrap(), "f[>= 7ns]");
        assert!(at_least("main.cc:3", 7).is_err());
        assert!(at_least("", 0).is_err());
    }

    #[test]
    fn bars_become_a_band() {
        let between = |text: &str, from, below| between(text, from, below);
        assert_eq!(
            between("f[>= p95]", Some(1_048_576), Some(4_194_304)).unwrap(),
            "f[>= 1.05ms][< 4.19ms]"
        );
        assert_eq!(
            between("f/main.cc:3", Some(1_448), None).unwrap(),
            "f[>= 1.45us]/main.cc:3"
        );
        assert_eq!(between("f", None, Some(724)).unwrap(), "f[< 724ns]");
        // What is shown are the calls of g: the condition is theirs, and that on f stays.
        assert_eq!(
            between("f[>= p95]/g@a.c:7", Some(3_000_000), None).unwrap(),
            "f[>= p95]/g@a.c:7[>= 3ms]"
        );
        assert!(between("f", None, None).is_err());
        assert!(between("main.cc:3", Some(1), None).is_err());
    }

    #[test]
    fn a_value_becomes_a_condition() {
        assert_eq!(
            with_condition("f/main.cc:3", "n", "7").unwrap(),
            "f/main.cc:3[n == 7]"
        );
        assert!(with_condition("", "n", "7").is_err());
        assert!(with_condition("f", "n", "[]").is_err());
    }

    #[test]
    fn frames_are_steps_where_they_have_a_name() {
        let frame = |function: &str, kernel, inlined| v1::Frame {
            function: function.into(),
            kernel,
            inlined,
            ..Default::default()
        };
        assert_eq!(place_of(&frame("f", false, false)).unwrap().to_string(), "f");
        assert_eq!(
            place_of(&frame("f", false, true)).unwrap().to_string(),
            "f@inlined"
        );
        assert_eq!(
            place_of(&frame("vfs_read", true, false)).unwrap().to_string(),
            "kernel:vfs_read"
        );
        for name in ["", "[sleeping]", "other"] {
            assert_eq!(place_of(&frame(name, false, false)), None);
        }
        // By the unwind rows a function begins there, which has no name.
        let unnamed = |function: &str| v1::Frame {
            unresolved: "no_symbols".into(),
            ..frame(function, false, false)
        };
        let place = place_of(&unnamed("nginx+0x51397 (no symbols)")).unwrap();
        assert_eq!(read(&place.to_string()).unwrap().to_string(), place.to_string());
        assert!(place.to_string().contains("nginx+0x51397") && !place.to_string().contains('('));
        assert_eq!(place_of(&unnamed("[unknown]")), None);
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in ".*", name in ".*") {
            let _ = (nudge(&text, Towards::Slower), with_threshold(&text), steps(&text), function(&text));
            let _ = (between(&text, Some(text.len() as u64), None), between(&text, None, Some(u64::MAX)));
            let _ = (with_condition(&text, &name, &name), at_least(&text, text.len() as u64));
            if let Ok(scope) = append(&text, function_named(&name)) {
                prop_assert_eq!(read(&scope).unwrap().to_string(), scope);
            }
        }
    }
}
