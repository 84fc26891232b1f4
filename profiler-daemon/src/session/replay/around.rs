//! Percentiles of the steps around others.
//!
//! A session knows only the calls so far: a call that ended early is held against another percentile than one that ends
//! late. Of a recording all calls are there, so that the percentile of each such step is taken of all its calls first, from the
//! outermost on, and the calls inside are then held against that. The scope that was recorded keeps the session's, where it is
//! not named.

use profiler_aggregate::threshold::Band;
use profiler_scope::{Bound, Scope, Step};

use super::{
    super::error::SessionError,
    part::Part,
    play::{self, Asked},
    question::Question,
};
use crate::recording::Recording;

/// What the outer steps with spans ask of durations, from the outermost on; `None` of one that asks for no percentile.
///
/// # Errors
/// As [`play::play`].
pub fn bands(
    recording: &mut Recording,
    asked: Option<&Scope>,
    part: Part,
    question: Question,
    is_awaited: &dyn Fn() -> bool,
) -> Result<Vec<Option<Band>>, SessionError> {
    let Some(scope) = asked else { return Ok(Vec::new()) };
    let mut bands = Vec::new();
    for (number, step) in outer(scope, question).iter().enumerate() {
        if !step.place.has_spans() {
            continue;
        }
        if !asks_for_percentile(step) {
            bands.push(None);
            continue;
        }
        let inner = Scope {
            steps: scope.steps.iter().take(number + 1).cloned().collect(),
        };
        let asked = Asked {
            scope: Some(&inner),
            around: &bands,
        };
        let played = play::go_through(recording, asked, part, Question::Latency, is_awaited, true)?;
        bands.push(played.last_band());
    }
    Ok(bands)
}

/// A sentence on percentiles that are those of the calls until then, where a scope has such.
pub fn moves(scope: &Scope) -> Option<String> {
    let step = outer(scope, Question::Latency)
        .iter()
        .find(|step| step.place.has_spans() && asks_for_percentile(step))?;
    Some(format!(
        "the percentile of `{step}` is that of the calls until then, as in the session: name the scope, '{scope}', for that of all calls of the time shown"
    ))
}

/// The steps whose calls others wait for.
fn outer(scope: &Scope, question: Question) -> &[Step] {
    let last = match question {
        // Samples are divided by the durations of the last step that asks for some, whose percentile is that of all its calls.
        Question::Flame(_) => scope.steps.iter().rposition(Step::asks_for_end),
        // Which calls are shown is asked of all of them.
        Question::Trace | Question::Spans(_) => Some(scope.steps.len()),
        Question::Latency => scope.steps.iter().rposition(|step| step.place.has_spans()),
    };
    scope.steps.get(..last.unwrap_or(0)).unwrap_or_default()
}

fn asks_for_percentile(step: &Step) -> bool {
    let mut predicates = step.predicates.iter();
    predicates.any(|predicate| matches!(predicate.bound, Bound::Percentile(_)))
}
