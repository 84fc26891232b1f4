//! One step of a running scope: its probes, and what is known of them.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use profiler_common::probe::ProbeId;
use profiler_scope::Step;

use super::{
    super::{
        division::CountedStep,
        functions::{Function, Functions, Key, key},
        lines::{Printed, Shown, TracedPlace},
        picture::{ExitMethod, SiteInfo},
        prepare::PreparedFile,
        probed_code::ProbedCode,
    },
    attach::Fresh,
    take_off::{GIVEN_UP, OffCause, TakenOff, taken_off},
};
use crate::kernel::{Attachment, Gate};

/// Live probes of spans, and the functions that they are for.
pub(super) struct AttachedSpans {
    pub(super) attachment: Attachment,
    /// Of each probe.
    pub(super) spans: Vec<AttachedSpan>,
    /// Its return probes were given up: its functions are attached to otherwise.
    pub(super) is_given_up: bool,
}

/// A function's or call's spans in one process.
pub(super) struct AttachedSpan {
    pub(super) function: Key,
    pub(super) site: SiteInfo,
    /// What is shown of each.
    pub(super) shown: Shown,
}

impl AttachedSpans {
    /// Whether spans are seen to end by return probes.
    pub(super) fn has_returns(&self) -> bool {
        let mut spans = self.spans.iter();
        let is_return = |span: &AttachedSpan| span.site.exit_method == ExitMethod::Return;
        self.attachment.is_attached() && spans.any(is_return)
    }

    fn is_of(&self, function: &Key) -> bool {
        self.spans.iter().any(|span| span.function == *function)
    }
}

/// Live probes of lines.
pub(super) struct AttachedLines {
    pub(super) attachment: Attachment,
    pub(super) lines: Vec<AttachedLine>,
}

/// A line that is probed.
pub(super) struct AttachedLine {
    pub(super) place: Arc<TracedPlace>,
    pub(super) printed: Arc<[Printed]>,
    /// The kernel single-steps its instruction.
    pub(super) single_stepped: bool,
}

/// One step.
pub struct RunningStep {
    /// As it was asked for.
    pub step: Step,
    /// Whose spans are seen; none of a line.
    pub functions: Functions,
    /// How they are seen.
    pub sites: Vec<SiteInfo>,
    pub(super) spans: Vec<AttachedSpans>,
    pub(super) lines: Vec<AttachedLines>,
    /// What it opens, where a step follows.
    pub(super) gate: Option<Gate>,
    /// Why all its probes were taken off the target, if they were.
    pub(super) taken_off: Option<TakenOff>,
    /// The code that its probes are in.
    pub(super) code: Vec<Arc<ProbedCode>>,
}

impl RunningStep {
    /// What it opens.
    pub fn gate(&self) -> Option<Gate> {
        self.gate
    }

    /// Its lines, each with its probe.
    pub fn lines(&self) -> impl Iterator<Item = (ProbeId, &Arc<TracedPlace>, &Arc<[Printed]>)> {
        self.lines.iter().flat_map(|attached| {
            let probes = attached.attachment.probes().iter();
            probes
                .zip(&attached.lines)
                .map(|(probe, line)| (*probe, &line.place, &line.printed))
        })
    }

    /// How many of what it has are off the target: functions, or all of it.
    pub fn taken_off(&self) -> u64 {
        let functions = self.functions.iter().filter(|function| function.is_taken_off());
        if self.is_taken_off() {
            1
        } else {
            functions.map(|_| 1).sum()
        }
    }

    /// How many of these are, as their code was changed.
    pub fn changed(&self) -> u64 {
        let is_changed = |why: &TakenOff| why.cause == OffCause::ChangedCode;
        if let Some(why) = &self.taken_off {
            return u64::from(is_changed(why));
        }
        let reasons = self.functions.iter().filter_map(Function::taken_off);
        reasons.filter(|why| is_changed(why)).map(|_| 1).sum()
    }

    /// The code that it still has probes in.
    pub fn code(&self) -> impl Iterator<Item = Arc<ProbedCode>> + '_ {
        let on = self.functions.iter().filter(|function| !function.is_taken_off());
        let on: HashSet<Key> = on.map(|function| key(&function.info)).collect();
        let live = self.spans.iter().filter(|spans| !spans.is_given_up);
        let live = live.flat_map(|spans| {
            let pid = spans.attachment.pid();
            spans.spans.iter().map(move |span| (pid, span.function.clone()))
        });
        let live: HashSet<(u32, Key)> = live.collect();
        let is_on = move |code: &ProbedCode| {
            code.function
                .as_ref()
                .is_none_or(|function| on.contains(function) && live.contains(&(code.pid, function.clone())))
        };
        let all = self.code.iter().filter(|_| !self.is_taken_off());
        all.filter(move |code| is_on(code)).cloned()
    }

    /// Notes the code of what is attached now, before it is among the rest. What stays attached stays in the code that it was attached
    /// in, whatever was planned for it since.
    pub(super) fn keep_code(&mut self, planned: Vec<Arc<ProbedCode>>, fresh: &Fresh) {
        let spans = fresh.spans.iter().flat_map(
            |AttachedSpans {
                 attachment, spans, ..
             }| {
                let pid = attachment.pid();
                spans.iter().map(move |span| (pid, Some(span.function.clone())))
            },
        );
        let lines = fresh.lines.iter().map(|lines| (lines.attachment.pid(), None));
        let fresh: HashSet<(u32, Option<Key>)> = spans.chain(lines).collect();
        let is_fresh = |code: &Arc<ProbedCode>| fresh.contains(&(code.pid, code.function.clone()));
        self.code.retain(|code| !is_fresh(code));
        self.code.extend(planned.into_iter().filter(is_fresh));
    }

    /// What became of its probes.
    pub(super) fn warnings(&self) -> impl Iterator<Item = String> + '_ {
        let given_up = self.spans.iter().any(|spans| spans.is_given_up);
        let given_up = given_up.then(|| GIVEN_UP.to_owned());
        let all = self.taken_off.iter();
        let all = all.map(|why| taken_off(&self.step.to_string(), &why.reason));
        let functions = self.functions.iter().filter_map(|function| {
            let why = function.taken_off()?;
            Some(taken_off(&function.info.name, &why.reason))
        });
        given_up.into_iter().chain(all).chain(functions)
    }

    /// Whether all its probes were taken off the target.
    pub fn is_taken_off(&self) -> bool {
        self.taken_off.is_some()
    }

    /// The probes of its lines, and whether the kernel single-steps the instruction of each.
    pub fn stepping(&self) -> impl Iterator<Item = (ProbeId, bool)> {
        self.lines.iter().flat_map(|attached| {
            let probes = attached.attachment.probes().iter();
            probes
                .zip(&attached.lines)
                .map(|(probe, line)| (*probe, line.single_stepped))
        })
    }

    /// All that is attached for it.
    pub fn attachments_mut(&mut self) -> impl Iterator<Item = &mut Attachment> {
        let spans = self.spans.iter_mut().map(|spans| &mut spans.attachment);
        spans.chain(self.lines.iter_mut().map(|lines| &mut lines.attachment))
    }

    /// Whether a function's calls in a process are seen, or are not to be.
    pub(super) fn sees(&self, function: &Key, pid: u32) -> bool {
        let mut spans = self.spans.iter();
        let seen =
            spans.any(|spans| !spans.is_given_up && spans.attachment.pid() == pid && spans.is_of(function));
        let mut functions = self.functions.iter();
        functions.any(|known| key(&known.info) == *function && (seen || known.is_taken_off()))
    }

    /// What is shown of a probe's spans.
    pub fn shown(&self, probe: ProbeId) -> Shown {
        self.spans
            .iter()
            .flat_map(|attached| attached.attachment.probes().iter().zip(&attached.spans))
            .find(|(known, _)| **known == probe)
            .map_or_else(Shown::default, |(_, span)| span.shown.clone())
    }

    /// The probes of its spans and lines.
    pub fn probes(&self) -> impl Iterator<Item = ProbeId> + '_ {
        self.functions
            .probes()
            .chain(self.lines().map(|(probe, ..)| probe))
    }

    /// The sites that were prepared: of spans that are attached already, as they are.
    pub(super) fn sites_of(&self, prepared: Vec<PreparedFile>) -> Vec<SiteInfo> {
        let spans = self.spans.iter().filter(|spans| !spans.is_given_up);
        let attached = spans.flat_map(|attached| {
            let pid = attached.attachment.pid();
            let spans = attached.spans.iter();
            spans.map(move |span| ((pid, &span.function), &span.site))
        });
        let attached: HashMap<(u32, &Key), &SiteInfo> = attached.collect();
        let sites = prepared.into_iter().flat_map(|file| {
            let sites = file.sites.into_iter();
            sites.map(move |span| (file.pid, span.site))
        });
        let as_attached = |(pid, site): (u32, SiteInfo)| {
            let function = key(&site.function);
            let known = attached.get(&(pid, &function)).copied().cloned();
            known.unwrap_or(site)
        };
        sites.map(as_attached).collect()
    }

    /// Probes of functions that are wanted no longer, attached because others of their file are.
    pub fn leftovers(&self) -> impl Iterator<Item = ProbeId> + '_ {
        let attached = self.spans.iter().flat_map(|spans| spans.attachment.probes());
        attached.copied().filter(|probe| !self.functions.has(*probe))
    }
}

impl CountedStep for RunningStep {
    fn step(&self) -> &Step {
        &self.step
    }

    fn functions(&self) -> &Functions {
        &self.functions
    }

    fn functions_mut(&mut self) -> &mut Functions {
        &mut self.functions
    }

    fn gate_bits(&self) -> u32 {
        self.gate.map_or(0, Gate::bits)
    }
}
