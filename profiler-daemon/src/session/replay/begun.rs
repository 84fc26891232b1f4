//! What is known of a part when its session is made: the scope with which it begins.

use std::sync::Arc;

use profiler_scope::Scope;

use super::{
    super::{
        division::CountedStep as _,
        ending::ENDED_BY_REQUEST,
        error::{Reason, SessionError},
        picture::FunctionInfo,
        records::RecordedScope,
    },
    around,
    asked::{self, AskedStep},
    part::{Part, since},
    unreadable,
};
use crate::recording::Recording;

/// What is known of a part when its session is made.
pub struct Begun {
    /// Canonical text.
    pub scope: String,
    pub pids: Vec<u32>,
    pub frequency_hz: u32,
    pub warnings: Vec<String>,
    /// When it begins: at what was recorded first in it.
    pub begin_ns: u64,
    /// The functions of its steps.
    pub functions: Vec<Arc<FunctionInfo>>,
}

/// Looks at the scope with which a part begins.
///
/// # Errors
/// Where the scope that is asked for was not recorded, or nothing can be read.
pub fn begin(recording: &mut Recording, asked: Option<&Scope>, part: Part) -> Result<Begun, SessionError> {
    let mut found: Option<(RecordedScope, u64)> = None;
    let read = recording.read_scopes(part.begin_ns, |told| {
        if let Some(scope) = told.scope {
            found = Some((scope, told.from_ns));
        } else if let Some((_, from_ns)) = &mut found {
            *from_ns = told.from_ns;
        }
        told.from_ns < part.begin_ns
    });
    read.map_err(|error| unreadable(&error))?;
    let (scope, from_ns) = found.ok_or_else(nothing)?;
    let steps = asked::steps(&scope, asked, part.ages(&scope), part.begin_ns)?;
    let mut warnings = scope.warnings.clone();
    if asked.is_none() {
        warnings.extend(around::moves(&scope_of(&steps)));
    }
    let late_ns = from_ns.saturating_sub(part.begin_ns);
    if late_ns > 0 && part.begin_ns > recording.begin_ns() {
        warnings.push(format!(
            "counts are recorded every 0.25 s: the time shown begins at {} s, and ends at such a time too",
            since(recording.begin_ns(), from_ns)
        ));
    }
    if part.end_ns >= recording.end_ns() {
        let ending = recording.read_ending().map_err(|error| unreadable(&error))?;
        // Whoever ends a session knows.
        let ending = ending.filter(|reason| reason != ENDED_BY_REQUEST);
        warnings.extend(ending.map(|reason| format!("the recorded session ended by itself: {reason}")));
    }
    Ok(Begun {
        scope: scope_of(&steps).to_string(),
        pids: scope.pids,
        frequency_hz: scope.frequency_hz,
        warnings,
        begin_ns: from_ns,
        functions: (scope.steps.iter().take(steps.len()))
            .flat_map(|step| step.functions.iter().map(|function| Arc::clone(&function.info)))
            .collect(),
    })
}

/// The scope of these steps.
pub(super) fn scope_of(steps: &[AskedStep]) -> Scope {
    Scope {
        steps: steps.iter().map(|step| step.step().clone()).collect(),
    }
}

/// Refuses a part in which there is nothing.
pub fn nothing() -> SessionError {
    SessionError::new(Reason::ArgumentInvalid, "nothing was recorded in that time")
}
