//! For which scopes a recording is summed up minute by minute, and which questions such sums answer.
//!
//! Samples are summed up by stack and by the duration of the call that they were taken in, so that any condition on that
//! duration can be asked for. What waits for the durations of calls further out cannot be summed up: those conditions
//! move with the calls.

use profiler_aggregate::Nesting;
use profiler_scope::{Scope, Step};

use super::{
    super::{division, records::RecordedScope},
    asked::{self, AskedStep},
};

/// Steps of a recorded scope that samples are summed up for.
pub struct SummedSteps {
    /// How many, from the first on.
    pub steps: usize,
    /// How samples are looked for in their spans; `None` where all are inside.
    pub nesting: Option<Nesting>,
}

/// What a recorded scope is summed up for: all its steps, those without the last, and so on, and none.
pub fn of(recorded: &RecordedScope) -> Vec<SummedSteps> {
    let Ok(known) = asked::known(recorded) else {
        return Vec::new();
    };
    (0..=known.len())
        .filter_map(|steps| summed(recorded, &known, steps))
        .collect()
}

/// So many of the recorded steps, where samples are summed up for them.
fn summed(recorded: &RecordedScope, known: &[Step], steps: usize) -> Option<SummedSteps> {
    let scope = Scope {
        steps: known.get(..steps)?.to_vec(),
    };
    let asked = asked::steps(recorded, Some(&scope), recorded.ages, 0).ok()?;
    asked::refuse_lines(&asked).ok()?;
    let nesting = nesting(&asked)?;
    Some(SummedSteps { steps, nesting })
}

/// Whether the sums for so many of the recorded steps answer what is asked of these.
pub fn answers(recorded: &RecordedScope, steps: usize, asked: &[AskedStep]) -> bool {
    let known = asked::known(recorded).unwrap_or_default();
    let summed = summed(recorded, &known, steps);
    asked.len() == steps && summed.is_some_and(|summed| nesting(asked) == Some(summed.nesting))
}

/// Whether what was made of samples for these steps answers those, too.
pub fn are_alike(these: &[AskedStep], those: &[AskedStep]) -> bool {
    let nesting = nesting(these);
    these.len() == those.len() && nesting.is_some() && nesting == self::nesting(those)
}

/// How samples are looked for; `None` where they wait for calls further out.
#[expect(clippy::option_option, reason = "a scope without steps has no nesting")]
fn nesting(steps: &[AskedStep]) -> Option<Option<Nesting>> {
    let nesting = division::nesting(steps);
    let waits = (nesting.iter().flat_map(|nesting| &nesting.around)).any(|(_, asks)| *asks);
    (!waits).then_some(nesting)
}
