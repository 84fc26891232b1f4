//! Why a function is not probed, and what can be asked for instead.

use super::{
    code::CodeError,
    functions::{Function, ModuleIndex},
    goroutines,
    hazards::{Decision, Method},
};

/// Why a function is not probed.
pub(super) struct Unusable {
    /// What is in the way.
    pub reason: String,
    /// What still says something of it; empty where the reason does.
    pub instead: String,
}

/// What says something of a function whose code is not understood.
const SAMPLES: &str = "its time is drawn by samples: `flame`";

impl Unusable {
    /// Goroutines run it.
    pub fn of_goroutines() -> Self {
        Self {
            reason: goroutines::NO_SPANS.to_owned(),
            instead: String::new(),
        }
    }

    /// Its code cannot be decoded, so that no instruction in it can be probed either.
    pub fn of_code(error: &CodeError) -> Self {
        Self {
            reason: error.to_string(),
            instead: SAMPLES.to_owned(),
        }
    }

    /// There is no instruction to probe it at.
    pub fn of_entry(reason: &str) -> Self {
        Self {
            reason: reason.to_owned(),
            instead: SAMPLES.to_owned(),
        }
    }

    /// Calls of it have no duration, or their ends cannot be told: where they begin can be seen.
    pub fn of_duration(reason: &str, place: &str) -> Self {
        Self {
            reason: reason.to_owned(),
            instead: format!("where it begins is counted: `trace -p PID {place}`"),
        }
    }

    /// Its ends cannot be told by its code. `returns` says that a return probe would see them.
    pub fn of_exits(error: &CodeError, place: &str, decision: &Decision, returns: bool) -> Self {
        let Self { reason, mut instead } = Self::of_duration(&error.to_string(), place);
        if returns && decision.method == Method::Ret {
            instead.push_str("; `--exit return` times it, at a risk");
            if let Some(first) = decision.reasons.first() {
                instead.push_str(": ");
                instead.push_str(first);
            }
        }
        Self { reason, instead }
    }
}

/// A function's beginning as a place: the file's last component, and the address in it.
pub(super) fn place_of(module: &ModuleIndex, function: &Function<'_>) -> String {
    let file = module.path().rsplit('/').next().unwrap_or_default();
    format!("{file}+{:#x}", function.address())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_still_works_is_said_with_what_it_risks() {
        let decision = |method| Decision {
            method,
            done_by_program: false,
            stacks_switch: false,
            reasons: vec!["stacks may be switched (swapcontext in /usr/bin/a)".to_owned()],
            warnings: Vec::new(),
        };
        let error = CodeError::FallsThrough;
        let said = |method, returns| Unusable::of_exits(&error, "a+0x10", &decision(method), returns).instead;
        assert_eq!(
            said(Method::Ret, true),
            "where it begins is counted: `trace -p PID a+0x10`; `--exit return` times it, at a risk: stacks may be switched \
             (swapcontext in /usr/bin/a)"
        );
        // A return probe would read another address than it replaces; or is what was asked for.
        for (method, returns) in [(Method::Ret, false), (Method::Return, true)] {
            assert_eq!(
                said(method, returns),
                "where it begins is counted: `trace -p PID a+0x10`"
            );
        }
    }
}
