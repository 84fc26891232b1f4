//! The steps of a running scope: the probes of each, and how one step is replaced by another.
//!
//! See `docs/internals/steps.md` for how steps nest.
//!
//! | file | idea |
//! |---|---|
//! | `running` | one step and its probes |
//! | `replace` | prepared steps take the place of those that run |
//! | `attach` | the order in which steps are attached |
//! | `take_off` | probes are taken off, or return probes given up, while the session goes on |

mod attach;
mod replace;
mod running;
mod take_off;

use std::collections::HashSet;

pub use self::{
    running::RunningStep,
    take_off::{OffCause, TakenOff, taken_off},
};
use super::division;
use crate::kernel::{Attachment, Engine, Gate, Gates};

/// All of a scope's, outermost first.
#[derive(Default)]
pub struct Steps {
    list: Vec<RunningStep>,
    /// Processes in which functions were given up that are not yet attached to otherwise.
    given_up_in: HashSet<u32>,
}

impl Steps {
    /// All steps.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &RunningStep> + ExactSizeIterator {
        self.list.iter()
    }

    /// What became of their probes.
    pub fn warnings(&self) -> impl Iterator<Item = String> + '_ {
        let mut said = HashSet::new();
        let all = self.list.iter().flat_map(RunningStep::warnings);
        all.filter(move |warning| said.insert(warning.clone()))
    }

    /// All steps, in a row.
    pub fn as_slice(&self) -> &[RunningStep] {
        &self.list
    }

    /// The same, to be changed.
    pub fn as_mut_slice(&mut self) -> &mut [RunningStep] {
        &mut self.list
    }

    /// All steps, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut RunningStep> {
        self.list.iter_mut()
    }

    /// The innermost.
    pub fn last(&self) -> Option<&RunningStep> {
        self.list.last()
    }

    /// The innermost, to be changed.
    pub fn last_mut(&mut self) -> Option<&mut RunningStep> {
        self.list.last_mut()
    }

    /// The step of a number.
    pub fn get(&self, number: usize) -> Option<&RunningStep> {
        self.list.get(number)
    }

    /// Whether a step before this one asks for what is known at an end: what it sees waits for that.
    pub fn is_joined(&self, number: usize) -> bool {
        division::is_joined(&self.list, number)
    }

    /// Has the spans of the last step that begin from now on open a gate, or none.
    pub fn open_in_last(&self, engine: &Engine, gate: Option<Gate>) {
        let Some((last, before)) = self.list.split_last() else {
            return;
        };
        let gates = Gates {
            requires: before.last().and_then(|step| step.gate),
            opens: gate,
            joined: self.is_joined(before.len()),
        };
        for probe in last.probes() {
            engine.set_gates(probe, gates);
        }
    }

    /// How many probes there are, with those that count no more.
    pub fn probes_held(&self) -> usize {
        let probes = self.all_attached().map(|attachment| attachment.probes().len());
        probes.sum()
    }

    /// Values that are read at them.
    pub fn values_held(&self) -> usize {
        self.all_attached().map(Attachment::values_read).sum()
    }

    /// Gates that its steps have.
    pub fn gates_held(&self) -> usize {
        self.list.iter().filter(|step| step.gate.is_some()).count()
    }

    /// All that was attached, be it off the target by now.
    pub fn all_attached(&self) -> impl Iterator<Item = &Attachment> {
        self.list.iter().flat_map(|step| {
            let spans = step.spans.iter().map(|spans| &spans.attachment);
            spans.chain(step.lines.iter().map(|lines| &lines.attachment))
        })
    }

    /// Whether there are probes in the code of its processes, beside those of the kernel's places.
    pub fn probes_code(&self) -> bool {
        self.all_attached().any(Attachment::is_attached)
    }

    /// How many times something is attached.
    pub fn attachments(&self) -> usize {
        self.list
            .iter()
            .map(|step| step.spans.len() + step.lines.len())
            .sum()
    }

    /// Detaches everything.
    pub fn detach(&mut self, engine: &mut Engine) {
        for step in self.list.drain(..) {
            let gate = step.gate;
            detach(engine, step);
            if let Some(gate) = gate {
                engine.give_back_gate(gate);
            }
        }
    }
}

fn detach(engine: &mut Engine, step: RunningStep) {
    for attached in step.spans {
        engine.detach(attached.attachment);
    }
    for attached in step.lines {
        engine.detach(attached.attachment);
    }
}
