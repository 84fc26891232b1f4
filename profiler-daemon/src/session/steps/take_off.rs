//! How probes are taken off a target, and return probes given up for others, while the session goes on.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use profiler_common::probe::ProbeId;
use profiler_target::is_running;

use super::{
    super::{cost::monotonic_ns, functions::Function, prepare::PreparedStep, probe_order::Late},
    Steps,
    running::{AttachedSpans, RunningStep},
};
use crate::kernel::{Attachment, Engine, KernelError};

/// What is said where return probes were given up.
pub(super) const GIVEN_UP: &str = "return probes were detached, as newly mapped code makes them unsafe: the ends of calls open at that moment were not seen, nor is what is in them from then on";

/// Why probes were taken off the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenOff {
    /// What brought it about.
    pub cause: OffCause,
    /// In words.
    pub reason: Arc<str>,
}

/// What takes probes off a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OffCause {
    /// They took more of the target's CPU time than they may.
    #[default]
    Cost,
    /// The target's code is not that of its file there.
    ChangedCode,
}

/// What is said of a function or step whose probes were taken off the target.
pub fn taken_off(name: &str, reason: &str) -> String {
    format!("`{name}` was taken off: {reason}")
}

impl Steps {
    /// Takes all probes off the target, or those of one process off that; what they have counted stays.
    pub fn quiesce(&mut self, engine: &mut Engine, of: Option<u32>) {
        let is_of = |attachment: &Attachment| of.is_none_or(|pid| attachment.pid() == pid);
        for step in &mut self.list {
            for attachment in step.attachments_mut().filter(|attachment| is_of(attachment)) {
                engine.quiesce(attachment);
            }
        }
    }

    /// Processes in which calls are seen to end by return probes, or were and nothing is attached in the place of these.
    pub fn return_probed(&self) -> impl Iterator<Item = u32> + '_ {
        let spans = self.list.iter().flat_map(|step| &step.spans);
        let returns = spans.filter(|spans| spans.has_returns());
        let attached = returns.map(|spans| spans.attachment.pid());
        attached.chain(self.given_up_in.iter().copied())
    }

    /// Whether functions were given up that are not yet attached to otherwise.
    pub fn has_given_up(&self) -> bool {
        !self.given_up_in.is_empty()
    }

    /// Takes return probes off processes in which they are not safe, with all else of their files, in the steps that the prepared
    /// ones have too; what they have counted stays. Whether there were any that have to be attached otherwise.
    pub fn give_up_returns(
        &mut self,
        engine: &mut Engine,
        prepared: &[PreparedStep],
        no_returns_in: &HashSet<u32>,
    ) -> bool {
        let kept = self.kept(prepared);
        for step in self.list.iter_mut().take(kept) {
            let is_unsafe = |spans: &&mut AttachedSpans| {
                no_returns_in.contains(&spans.attachment.pid()) && spans.has_returns()
            };
            for spans in step.spans.iter_mut().filter(is_unsafe) {
                engine.silence_now(&mut spans.attachment, monotonic_ns);
                for probe in spans.attachment.probes() {
                    step.functions.give_up(*probe);
                }
                spans.is_given_up = true;
                self.given_up_in.insert(spans.attachment.pid());
            }
        }
        self.has_given_up()
    }

    /// Takes all return probes off the target at once, with all else of their files, before all else is done.
    pub fn take_returns_off(&mut self, engine: &mut Engine) {
        for step in &mut self.list {
            for spans in step.spans.iter_mut().filter(|spans| spans.has_returns()) {
                engine.silence_now(&mut spans.attachment, monotonic_ns);
            }
        }
    }

    /// Takes all probes of a step off the target; what they have counted stays.
    pub fn take_off_step(&mut self, engine: &mut Engine, number: usize, why: TakenOff) {
        let Some(step) = self.list.get_mut(number) else {
            return;
        };
        step.taken_off = Some(why);
        for attachment in step.attachments_mut() {
            engine.silence(attachment, monotonic_ns);
        }
    }

    /// Takes functions of a step off the target, by their numbers, each for a reason; what they have counted stays. Others of their files
    /// may have to be [attached again](Self::attach_again).
    pub fn take_off(&mut self, engine: &mut Engine, number: usize, reasons: &HashMap<u32, TakenOff>) {
        let Some(step) = self.list.get_mut(number) else {
            return;
        };
        let mut late = Late::default();
        for function in step.functions.iter_mut() {
            if let Some(why) = reasons.get(&function.id) {
                function.take_off(why.clone());
            }
        }
        let stay = step.functions.iter().filter(|function| !function.is_taken_off());
        let stay: HashSet<ProbeId> = stay.flat_map(Function::probes).collect();
        for spans in &mut step.spans {
            let all = spans.attachment.probes().iter().copied();
            let gone: HashSet<ProbeId> = all.filter(|probe| !stay.contains(probe)).collect();
            if gone.is_empty() || !spans.attachment.is_attached() || !is_running(spans.attachment.pid()) {
                continue;
            }
            if gone.len() == spans.attachment.probes().len() {
                engine.silence(&mut spans.attachment, monotonic_ns);
                continue;
            }
            let attached_anew = engine.take_off(&mut spans.attachment, &gone);
            engine.leave_unended(gone, monotonic_ns());
            if attached_anew {
                late.add(number, &spans.attachment);
            }
        }
        late.let_pass(engine, &mut self.list);
    }

    /// Whether probes are to be attached again, once others are closed.
    pub fn are_awaited(&self) -> bool {
        self.all_attached().any(Attachment::is_awaited)
    }

    /// Attaches what is to be attached again, as soon as that can be done: ends first, then beginnings and lines from the innermost step to
    /// the outermost. Whether it was done.
    ///
    /// # Errors
    /// Where the kernel refuses what it has taken before.
    pub fn attach_again(&mut self, engine: &mut Engine) -> Result<bool, KernelError> {
        let all = self.list.iter_mut().flat_map(RunningStep::attachments_mut);
        let mut awaited: Vec<&mut Attachment> = all.filter(|attachment| attachment.is_awaited()).collect();
        if awaited.is_empty() {
            return Ok(false);
        }
        engine.attach_again(&mut awaited, is_running)
    }
}
