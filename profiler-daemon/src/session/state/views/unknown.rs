//! Scopes that a view cannot evaluate while calls are still running.

use profiler_scope::Step;

use crate::session::error::{Reason, SessionError};

/// Why a view refuses a scope.
#[derive(Clone, Copy)]
pub struct Unknown {
    /// Of a scope with a condition on a duration.
    pub by_duration: &'static str,
    /// Of a scope with a condition on what a call returns.
    pub by_return: &'static str,
    /// Of a line that no call is known to be around.
    pub at_line: &'static str,
}

/// Rejects scopes that a view cannot evaluate while calls are still running: with a condition on a duration or a return value, or of a
/// line alone.
///
/// # Errors
/// The view's own reason.
pub fn refuse_unknown(steps: &[&Step], unknown: Unknown) -> Result<(), SessionError> {
    let refuse = |why: &str| Err(SessionError::new(Reason::ArgumentInvalid, why));
    if steps.iter().any(|step| !step.predicates.is_empty()) {
        return refuse(unknown.by_duration);
    }
    if steps.iter().any(|step| step.asks_for_return()) {
        return refuse(unknown.by_return);
    }
    if !steps.is_empty() && !steps.iter().any(|step| step.place.has_spans()) {
        return refuse(unknown.at_line);
    }
    Ok(())
}
