//! Whether a summary does in the place of the records that it sums up.

use profiler_aggregate::latency::AgeConfig;
use profiler_scope::Scope;

use super::{
    super::{super::division, asked, part::Part, question::Question, summed},
    flame::draws_outside,
};
use crate::recording::{Offered, OfferedKind};

/// Whether any summary does in the place of records: no others are read.
pub(super) fn may_answer(question: Question, is_summed: bool) -> bool {
    match question {
        // Also behind a part that is not, for what it ends amid of.
        Question::Flame(request) => request.event().is_none(),
        Question::Latency => is_summed,
        _ => false,
    }
}

/// Whether a summary does in the place of the records that it sums up.
pub(super) fn answers(
    offered: &Offered<'_>,
    asked: Option<&Scope>,
    part: Part,
    question: Question,
    is_summed: bool,
) -> bool {
    let Offered {
        scope,
        of,
        from_ns,
        to_ns,
    } = offered;
    // Behind the part, intervals that it ends amid of are looked for, which are not summed up.
    let is_behind = *from_ns >= part.end_ns;
    let is_of_event = question.flame().is_some_and(|request| request.event().is_some());
    if is_of_event || !(is_behind || is_summed && *to_ns <= part.end_ns) {
        return false;
    }
    let ages = part.ages(scope);
    let Ok(asked) = asked::steps(scope, asked, ages, *to_ns) else {
        return false;
    };
    match (question, *of) {
        (Question::Flame(request), OfferedKind::Samples { steps }) => {
            summed::answers(scope, steps, &asked) && (!is_behind || draws_outside(request, &asked))
        }
        (Question::Latency, OfferedKind::Calls) => {
            !is_behind
                && to_ns.saturating_add(recent_ns(ages)) <= part.end_ns
                && !division::is_joined(&asked, asked.len().saturating_sub(1))
        }
        _ => false,
    }
}

/// How long before its end the calls of a part are kept one by one, and counts by when they came: two windows, as a slow call
/// is kept for a window after the next; one more, in which so many came that others were not kept; and a moment.
pub(super) fn recent_ns(ages: AgeConfig) -> u64 {
    ages.window
        .window_ns
        .saturating_mul(3)
        .saturating_add(1_000_000_000)
}
