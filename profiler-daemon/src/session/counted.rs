//! How often the probed places of running sessions were reached.

use profiler_scope::Place;

use super::{command::Caller, state::Session, steps::RunningStep};
use crate::kernel::Engine;

/// What a step has counted at one address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counted {
    /// The session's name.
    pub session: String,
    /// The step's canonical text.
    pub step: String,
    /// What is counted.
    pub kind: CountKind,
    /// Path of the ELF file.
    pub module: String,
    /// Virtual address in the ELF file.
    pub address: u64,
    /// Times, since the step is probed there; only those that its conditions let through, inside of the steps before.
    pub count: u64,
}

/// What is counted of a place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CountKind {
    /// That it was reached.
    Reached,
    /// Its branches that were taken.
    Taken,
    /// Its branches that were not.
    Else,
    /// Calls of the function, or made there.
    Calls,
}

impl Session {
    /// What its steps have counted, for a caller.
    pub fn counted(&self, caller: Caller, engine: &Engine) -> Vec<Counted> {
        let name = self.name.shown_to(caller);
        let steps = self.steps().iter();
        steps.flat_map(|step| of_step(&name, step, engine)).collect()
    }

    /// Calls of its scope's last step that have begun, or hits of it; `None` without a scope.
    pub fn calls_so_far(&self, engine: &Engine) -> Option<u64> {
        let last = self.steps().last()?;
        Some(
            of_step("", last, engine)
                .iter()
                .map(|counted| counted.count)
                .sum(),
        )
    }
}

fn of_step(session: &str, step: &RunningStep, engine: &Engine) -> Vec<Counted> {
    let kind = match step.step.place {
        Place::Function(_)
        | Place::Inlined(_)
        | Place::Call { .. }
        | Place::SystemCall(_)
        | Place::KernelFunction(_) => CountKind::Calls,
        Place::Line { .. } | Place::Address { .. } | Place::Tracepoint { .. } => CountKind::Reached,
        Place::Branch { taken: true, .. } => CountKind::Taken,
        Place::Branch { taken: false, .. } => CountKind::Else,
    };
    let text = step.step.to_string();
    let counted = |module: &str, address, count| Counted {
        session: session.to_owned(),
        step: text.clone(),
        kind,
        module: module.to_owned(),
        address,
        count,
    };
    let lines = step.lines().map(|(probe, place, _)| {
        let hits = engine.hit_counts(probe);
        let count = hits.reached.saturating_sub(hits.rejected);
        counted(&place.module, place.address, count)
    });
    let calls = step.functions.iter().map(|function| {
        let count = function
            .probes()
            .map(|probe| engine.probe_counts(probe).entries)
            .sum();
        counted(&function.info.module, function.info.address, count)
    });
    lines.chain(calls).collect()
}
