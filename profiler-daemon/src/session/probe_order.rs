//! The order in which programs run at one instruction: the kernel runs the one first that was attached last.
//!
//! A call is to be seen to begin before what is inside of it, and to end behind all of that. So all ends are attached first, and then
//! beginnings and lines from the innermost step to the outermost. What is attached later than that has others moved behind it.
//!
//! See `docs/internals/budget.md` for how probes keep to a budget.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::PathBuf,
};

use super::steps::RunningStep;
use crate::kernel::{Attachment, Engine};

/// Instructions in files of processes.
#[derive(Default)]
struct Places(HashMap<(u32, PathBuf), HashSet<u64>>);

impl Places {
    fn add(&mut self, attachment: &Attachment, offsets: impl Iterator<Item = u64>) {
        let file = (attachment.pid(), attachment.file().to_owned());
        self.0.entry(file).or_default().extend(offsets);
    }

    fn append(&mut self, others: Self) {
        for (file, offsets) in others.0 {
            self.0.entry(file).or_default().extend(offsets);
        }
    }

    /// Whether something is seen to begin at one of them.
    fn are_entered(&self, attachment: &Attachment) -> bool {
        let file = (attachment.pid(), attachment.file().to_owned());
        let here = self.0.get(&file);
        here.is_some_and(|here| attachment.entry_offsets().any(|offset| here.contains(&offset)))
    }
}

/// What was attached later than its place in the order is.
#[derive(Default)]
pub struct Late {
    ends: Places,
    /// By the number of the step.
    beginnings: BTreeMap<usize, Places>,
}

impl Late {
    /// Adds what was attached for a step.
    pub fn add(&mut self, step: usize, attachment: &Attachment) {
        self.ends.add(attachment, attachment.exit_offsets());
        let beginnings = self.beginnings.entry(step).or_default();
        beginnings.add(attachment, attachment.entry_offsets());
    }

    /// Has the beginnings and lines of steps run before what was attached after them, where they have to: they are attached again once
    /// their links are closed.
    pub fn let_pass(mut self, engine: &mut Engine, steps: &mut [RunningStep]) {
        let mut passed = self.ends;
        let outermost = self.beginnings.last_key_value().map_or(0, |(step, _)| step + 1);
        for number in (0..outermost.max(steps.len())).rev() {
            let known = steps
                .get_mut(number)
                .into_iter()
                .flat_map(RunningStep::attachments_mut);
            // What was taken off the target is not to come back.
            for attachment in known.filter(|attachment| attachment.is_attached()) {
                if passed.are_entered(attachment) {
                    engine.let_pass(attachment);
                    passed.add(attachment, attachment.entry_offsets());
                }
            }
            passed.append(self.beginnings.remove(&number).unwrap_or_default());
        }
    }
}
