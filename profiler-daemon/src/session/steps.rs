//! The steps of a running scope: the probes of each, and how one step is replaced by another.
//!
//! See `docs/internals/steps.md` for how steps nest.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
    sync::Arc,
};

use profiler_aggregate::latency::AgeConfig;
use profiler_common::{instruction::Action, probe::ProbeId};
use profiler_scope::{Place, Step};
use profiler_target::Process;

use super::{
    division::{self, CountedStep},
    functions::{Function, Functions, Key, key},
    lines::{Printed, Shown, TracedPlace},
    picture::{ExitMethod, SiteInfo},
    prepare::{PreparedFile, PreparedLines, PreparedSpan, PreparedStep},
    probe_order::Late,
    probed_code::{CHANGED, ProbedCode},
};
use crate::kernel::{Attachment, Engine, Gate, Gates, KernelError, LookSpec};

/// Live probes of spans, and the functions that they are for.
struct AttachedSpans {
    attachment: Attachment,
    /// Of each probe.
    spans: Vec<AttachedSpan>,
    /// Its return probes were given up: its functions are attached to otherwise.
    is_given_up: bool,
}

/// A function's or call's spans in one process.
struct AttachedSpan {
    function: Key,
    site: SiteInfo,
    /// What is shown of each.
    shown: Shown,
}

impl AttachedSpans {
    /// Whether spans are seen to end by return probes.
    fn has_returns(&self) -> bool {
        let mut spans = self.spans.iter();
        let is_return = |span: &AttachedSpan| span.site.exit_method == ExitMethod::Return;
        self.attachment.is_attached() && spans.any(is_return)
    }

    fn is_of(&self, function: &Key) -> bool {
        self.spans.iter().any(|span| span.function == *function)
    }
}

/// Live probes of lines.
struct AttachedLines {
    attachment: Attachment,
    lines: Vec<AttachedLine>,
}

/// A line that is probed.
struct AttachedLine {
    place: Arc<TracedPlace>,
    printed: Arc<[Printed]>,
    /// The kernel single-steps its instruction.
    single_stepped: bool,
}

/// One step.
pub struct RunningStep {
    /// As it was asked for.
    pub step: Step,
    /// Whose spans are seen; none of a line.
    pub functions: Functions,
    /// How they are seen.
    pub sites: Vec<SiteInfo>,
    spans: Vec<AttachedSpans>,
    lines: Vec<AttachedLines>,
    /// What it opens, where a step follows.
    gate: Option<Gate>,
    /// Why all its probes were taken off the target, if they were.
    taken_off: Option<String>,
    /// The code that its probes are in.
    code: Vec<Arc<ProbedCode>>,
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
        if let Some(reason) = &self.taken_off {
            return u64::from(reason.starts_with(CHANGED));
        }
        let reasons = self.functions.iter().filter_map(Function::taken_off);
        reasons
            .filter(|reason| reason.starts_with(CHANGED))
            .map(|_| 1)
            .sum()
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
    fn keep_code(&mut self, planned: Vec<Arc<ProbedCode>>, fresh: &Fresh) {
        let spans = fresh.spans.iter().flat_map(|(attachment, sites)| {
            let pid = attachment.pid();
            sites
                .iter()
                .map(move |(site, _)| (pid, Some(key(&site.function))))
        });
        let lines = fresh.lines.iter().map(|lines| (lines.attachment.pid(), None));
        let fresh: HashSet<(u32, Option<Key>)> = spans.chain(lines).collect();
        let is_fresh = |code: &Arc<ProbedCode>| fresh.contains(&(code.pid, code.function.clone()));
        self.code.retain(|code| !is_fresh(code));
        self.code.extend(planned.into_iter().filter(is_fresh));
    }

    /// What became of its probes.
    fn warnings(&self) -> impl Iterator<Item = String> + '_ {
        let given_up = self.spans.iter().any(|spans| spans.is_given_up);
        let given_up = given_up.then(|| GIVEN_UP.to_owned());
        let all = self.taken_off.iter();
        let all = all.map(|reason| taken_off(&self.step.to_string(), reason));
        let functions = self.functions.iter().filter_map(|function| {
            let reason = function.taken_off()?;
            Some(taken_off(&function.info.name, reason))
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
    fn sees(&self, function: &Key, pid: u32) -> bool {
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
    fn sites_of(&self, prepared: Vec<PreparedFile>) -> Vec<SiteInfo> {
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

/// All of a scope's, outermost first.
#[derive(Default)]
pub struct Steps {
    list: Vec<RunningStep>,
    /// Processes in which functions were given up that are not yet attached to otherwise.
    given_up_in: HashSet<u32>,
}

/// What is said where return probes were given up.
const GIVEN_UP: &str = "return probes were detached, as newly mapped code makes them unsafe: the ends of calls open at that moment were not seen";

/// What is said of a function or step whose probes were taken off the target.
pub fn taken_off(name: &str, reason: &str) -> String {
    format!("`{name}` was taken off: {reason}")
}

/// A span's site, and what is shown of each span.
type FreshSpan = (SiteInfo, Shown);

/// What was attached for one step and belongs to nobody yet.
#[derive(Default)]
struct Fresh {
    spans: Vec<(Attachment, Vec<FreshSpan>)>,
    lines: Vec<AttachedLines>,
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

    /// Puts prepared steps in the place of these. What did not change keeps its probes and counts: the steps up to the
    /// first that differs, and of that one the functions that both have.
    ///
    /// # Errors
    /// Where something cannot be attached; then everything is as it was.
    pub fn replace(
        &mut self,
        engine: &mut Engine,
        prepared: Vec<PreparedStep>,
        records: bool,
        ages: AgeConfig,
        now_ns: u64,
    ) -> Result<(), KernelError> {
        let kept = self.kept(&prepared);
        let mut gates: Vec<Option<Gate>> = Vec::new();
        let mut taken = Vec::new();
        for number in 0..prepared.len() {
            let known = self
                .list
                .get(number)
                .filter(|_| number < kept)
                .and_then(|step| step.gate);
            let is_last = number + 1 == prepared.len();
            // What lies behind a line is told by its gate, be it only for samples.
            let opens = !is_last || number > 0 && !prepared[number].step.place.has_spans();
            gates.push(match known {
                _ if !opens => None,
                Some(gate) => Some(gate),
                None => match engine.take_gate(now_ns) {
                    Ok(gate) => {
                        taken.push(gate);
                        Some(gate)
                    }
                    Err(error) => {
                        give_back(engine, taken);
                        return Err(error);
                    }
                },
            });
        }
        let mut joined = false;
        let gates_of: Vec<Gates> = prepared
            .iter()
            .enumerate()
            .map(|(number, prepared)| {
                let gates = Gates {
                    requires: number.checked_sub(1).and_then(|before| gates[before]),
                    opens: gates[number],
                    joined,
                };
                joined |= prepared.step.asks_for_end();
                gates
            })
            .collect();
        let fresh = match self.attach(engine, &prepared, kept, &gates_of, records) {
            Ok(fresh) => fresh,
            Err(error) => {
                give_back(engine, taken);
                return Err(error);
            }
        };
        // Nothing can fail from here on.
        let before: Vec<Gate> = self.list.iter().filter_map(|step| step.gate).collect();
        for step in self.list.drain(kept..) {
            detach(engine, step);
        }
        for (number, (prepared, fresh)) in prepared.into_iter().zip(fresh).enumerate() {
            self.settle(engine, number, prepared, fresh, ages, now_ns);
        }
        let count = self.list.len();
        for (number, (step, gates)) in self.list.iter_mut().zip(gates_of).enumerate() {
            step.gate = gates.opens;
            for probe in step.leftovers() {
                engine.set_gates(probe, Gates::default());
                engine.set_threshold(probe, u64::MAX);
                engine.set_records(probe, false);
            }
            for probe in step.probes() {
                engine.set_gates(probe, gates);
                engine.set_threshold(probe, u64::MAX);
            }
            for probe in step.probes() {
                engine.set_records(probe, records && number + 1 == count);
            }
        }
        for gate in before {
            if !self.list.iter().any(|step| step.gate == Some(gate)) {
                engine.give_back_gate(gate);
            }
        }
        self.given_up_in.clear();
        Ok(())
    }

    /// How many of the steps have something that the prepared ones have too.
    fn kept(&self, prepared: &[PreparedStep]) -> usize {
        let mut kept = 0;
        for (known, new) in self.list.iter().zip(prepared) {
            let (known, new) = (&known.step, &new.step);
            let are_functions = is_by_name(&known.place) && is_by_name(&new.place);
            if known.conditions != new.conditions || known.place != new.place && !are_functions {
                break;
            }
            // What begins where something inlined does is seen in it only where that was attached after it.
            let behind = prepared.get(kept + 1).map(|step| &step.step.place);
            let is_new = self.list.get(kept + 1).map(|step| &step.step.place) != behind;
            let is_close = match &new.place {
                Place::Inlined(_) => behind.is_some_and(Place::may_begin_at_once),
                place => is_by_name(place) && matches!(behind, Some(Place::Inlined(_))),
            };
            if is_new && is_close {
                break;
            }
            kept += 1;
            if known != new {
                break;
            }
        }
        kept
    }

    /// Attaches what is not there yet, all or nothing.
    fn attach(
        &mut self,
        engine: &mut Engine,
        prepared: &[PreparedStep],
        kept: usize,
        gates: &[Gates],
        records: bool,
    ) -> Result<Vec<Fresh>, KernelError> {
        let mut all: Vec<Fresh> = prepared.iter().map(|_| Fresh::default()).collect();
        let attached = self.attach_in_order(engine, prepared, kept, gates, records, &mut all);
        if let Err(error) = attached {
            for Fresh { spans, lines } in all {
                for (attachment, _) in spans {
                    engine.detach(attachment);
                }
                for lines in lines {
                    engine.detach(lines.attachment);
                }
            }
            return Err(error);
        }
        Ok(all)
    }

    /// A line may lie where a function begins or ends that it is inside of, and functions may begin at one instruction: so all ends
    /// come first, and then beginnings and lines from the innermost step to the outermost ([`Late`]).
    fn attach_in_order(
        &mut self,
        engine: &mut Engine,
        prepared: &[PreparedStep],
        kept: usize,
        gates: &[Gates],
        records: bool,
        all: &mut [Fresh],
    ) -> Result<(), KernelError> {
        let last = prepared.len().saturating_sub(1);
        let read = read_places(prepared);
        let known = |number: usize| self.list.get(number).filter(|_| number < kept);
        let how = |number: usize| How {
            gates: gates[number],
            records: records && number == last,
            read: &read,
        };
        for (number, step) in prepared.iter().enumerate() {
            attach_ends(engine, step, known(number), &how(number), &mut all[number])?;
        }
        for (number, step) in prepared.iter().enumerate().rev() {
            attach_beginnings(engine, step, known(number), &how(number), &mut all[number])?;
        }
        let mut late = Late::default();
        for (number, fresh) in all.iter().enumerate() {
            for (attachment, _) in &fresh.spans {
                late.add(number, attachment);
            }
            for lines in &fresh.lines {
                late.add(number, &lines.attachment);
            }
        }
        let kept = kept.min(self.list.len());
        late.let_pass(engine, &mut self.list[..kept])
    }

    /// Makes one step what was prepared.
    fn settle(
        &mut self,
        engine: &mut Engine,
        number: usize,
        prepared: PreparedStep,
        fresh: Fresh,
        ages: AgeConfig,
        now_ns: u64,
    ) {
        let PreparedStep {
            step, files, code, ..
        } = prepared;
        if number == self.list.len() {
            self.list.push(RunningStep {
                step: step.clone(),
                functions: Functions::default(),
                sites: Vec::new(),
                spans: Vec::new(),
                lines: Vec::new(),
                gate: None,
                taken_off: None,
                code: Vec::new(),
            });
        }
        let running = &mut self.list[number];
        running.step = step;
        running.keep_code(code, &fresh);
        for (attachment, sites) in fresh.spans {
            for (probe, (site, _)) in attachment.probes().iter().zip(&sites) {
                running
                    .functions
                    .add(&site.function, site.exit_method, *probe, ages, now_ns);
            }
            running.spans.push(AttachedSpans {
                attachment,
                spans: sites.into_iter().map(attached_span).collect(),
                is_given_up: false,
            });
        }
        running.lines.extend(fresh.lines);
        running.sites = running.sites_of(files);
        let wanted: HashSet<Key> = running.sites.iter().map(|site| key(&site.function)).collect();
        running.functions.retain(|function| wanted.contains(function));
        let (kept, unused): (Vec<_>, Vec<_>) =
            std::mem::take(&mut running.spans)
                .into_iter()
                .partition(|attached| {
                    let mut spans = attached.spans.iter();
                    spans.any(|span| wanted.contains(&span.function))
                });
        running.spans = kept;
        for attached in unused {
            engine.detach(attached.attachment);
        }
        // Not of what was let go of, however often a scope is edited.
        running.code = running.code().collect();
    }

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
                engine.quiesce(&mut spans.attachment);
                for probe in spans.attachment.probes() {
                    step.functions.give_up(*probe);
                }
                spans.is_given_up = true;
                self.given_up_in.insert(spans.attachment.pid());
            }
        }
        self.has_given_up()
    }

    /// Takes all probes of a step off the target, for a reason; what they have counted stays.
    pub fn take_off_step(&mut self, engine: &mut Engine, number: usize, reason: String) {
        let Some(step) = self.list.get_mut(number) else {
            return;
        };
        step.taken_off = Some(reason);
        for attachment in step.attachments_mut() {
            engine.quiesce(attachment);
        }
    }

    /// Takes functions of a step off the target, by their numbers, each for a reason; what they have counted stays.
    ///
    /// # Errors
    /// Where the kernel refuses to attach the others of their files anew.
    pub fn take_off(
        &mut self,
        engine: &mut Engine,
        number: usize,
        reasons: &HashMap<u32, String>,
    ) -> Result<(), KernelError> {
        let Some(step) = self.list.get_mut(number) else {
            return Ok(());
        };
        let mut late = Late::default();
        for function in step.functions.iter_mut() {
            if let Some(reason) = reasons.get(&function.id) {
                function.take_off(reason);
            }
        }
        let stay = step.functions.iter().filter(|function| !function.is_taken_off());
        let stay: HashSet<ProbeId> = stay.flat_map(Function::probes).collect();
        for spans in &mut step.spans {
            let all = spans.attachment.probes().iter().copied();
            let gone: HashSet<ProbeId> = all.filter(|probe| !stay.contains(probe)).collect();
            let is_alive = Process::open(spans.attachment.pid()).is_ok();
            if gone.is_empty() || !spans.attachment.is_attached() || !is_alive {
                continue;
            }
            if gone.len() == spans.attachment.probes().len() {
                engine.quiesce(&mut spans.attachment);
                continue;
            }
            if engine.take_off(&mut spans.attachment, &gone)? {
                late.add(number, &spans.attachment);
            }
        }
        late.let_pass(engine, &mut self.list)
    }

    /// How many probes there are, with those that count no more.
    pub fn probes_held(&self) -> usize {
        let of_step = |step: &RunningStep| {
            let spans = step.spans.iter().map(|spans| spans.attachment.probes().len());
            let lines = step.lines.iter().map(|lines| lines.attachment.probes().len());
            spans.chain(lines).sum::<usize>()
        };
        self.list.iter().map(of_step).sum()
    }

    /// Whether there are probes in the code of its processes, beside those of the kernel's places.
    pub fn probes_code(&self) -> bool {
        self.list.iter().any(|step| {
            let spans = step.spans.iter().map(|spans| &spans.attachment);
            let mut all = spans.chain(step.lines.iter().map(|lines| &lines.attachment));
            all.any(Attachment::is_attached)
        })
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

fn attached_span((site, shown): FreshSpan) -> AttachedSpan {
    AttachedSpan {
        function: key(&site.function),
        site,
        shown,
    }
}

fn give_back(engine: &mut Engine, gates: Vec<Gate>) {
    for gate in gates {
        engine.give_back_gate(gate);
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

/// Whether a step's spans are those of functions of a name.
fn is_by_name(place: &Place) -> bool {
    matches!(place, Place::Function(_) | Place::Inlined(_))
}

/// A file offset in a process's file.
type At<'p> = (u32, &'p Path, u64);

/// Where lines and calls read values or stacks.
fn read_places(prepared: &[PreparedStep]) -> HashSet<At<'_>> {
    let mut found = HashSet::new();
    for step in prepared {
        let calls = step
            .files
            .iter()
            .filter(|_| matches!(step.step.place, Place::Call { .. }));
        for file in calls {
            let reads = |span: &&PreparedSpan| span.spec.look.as_ref().is_some_and(LookSpec::reads);
            let sites = file.sites.iter().filter(reads);
            found.extend(sites.map(|span| (file.pid, file.path.as_path(), span.spec.entry_offset)));
        }
        for file in &step.lines {
            let lines = file.lines.iter().filter(|line| line.spec.look.reads());
            found.extend(lines.map(|line| (file.pid, file.path.as_path(), line.spec.offset)));
        }
    }
    found
}

/// How a step is attached.
struct How<'p> {
    gates: Gates,
    records: bool,
    /// Where lines and calls read values or stacks: no other program is to have done the instruction before.
    read: &'p HashSet<At<'p>>,
}

/// Attaches where the spans of a step end, of what is not there yet.
fn attach_ends(
    engine: &mut Engine,
    prepared: &PreparedStep,
    known: Option<&RunningStep>,
    how: &How<'_>,
    fresh: &mut Fresh,
) -> Result<(), KernelError> {
    let How { gates, records, read } = *how;
    let is_only = prepared.has_one_process();
    for PreparedFile { pid, path, sites } in &prepared.files {
        let (mut infos, mut specs) = (Vec::new(), Vec::new());
        for PreparedSpan {
            site, spec, shown, ..
        } in sites
        {
            if known.is_some_and(|known| known.sees(&key(&site.function), *pid)) {
                continue;
            }
            let mut spec = spec.clone();
            spec.gates = gates;
            if let Some(look) = &mut spec.look {
                look.records = records;
            }
            if read.contains(&(*pid, path.as_path(), spec.entry_offset)) {
                spec.entry_action = Action::LEAVE;
            }
            infos.push((site.clone(), shown.clone()));
            specs.push(spec);
        }
        if specs.is_empty() {
            continue;
        }
        if let Some(attachment) = unless_ended(engine.attach_ends(*pid, path, &specs), *pid, is_only)? {
            fresh.spans.push((attachment, infos));
        }
    }
    Ok(())
}

/// Attaches where the spans of a step begin, and its lines.
fn attach_beginnings(
    engine: &mut Engine,
    prepared: &PreparedStep,
    known: Option<&RunningStep>,
    how: &How<'_>,
    fresh: &mut Fresh,
) -> Result<(), KernelError> {
    let is_only = prepared.has_one_process();
    for (attachment, _) in &mut fresh.spans {
        let pid = attachment.pid();
        unless_ended(engine.attach_entries(attachment), pid, is_only)?;
    }
    if known.is_some_and(|known| !known.lines.is_empty()) {
        return Ok(());
    }
    for PreparedLines { pid, path, lines } in &prepared.lines {
        let specs: Vec<_> = lines
            .iter()
            .map(|line| {
                let mut spec = line.spec.clone();
                spec.gates = how.gates;
                spec.look.records = how.records;
                spec
            })
            .collect();
        let Some(attachment) = unless_ended(engine.attach_hits(*pid, path, &specs), *pid, is_only)? else {
            continue;
        };
        let lines = lines
            .iter()
            .map(|line| AttachedLine {
                place: Arc::clone(&line.place),
                printed: Arc::clone(&line.printed),
                single_stepped: line.single_stepped.is_some(),
            })
            .collect();
        fresh.lines.push(AttachedLines { attachment, lines });
    }
    Ok(())
}

/// What was attached; `None` where the process has ended and is not the only one of its session, which goes on without it. Not so
/// where it has merely unmapped the file.
fn unless_ended<T>(
    attached: Result<T, KernelError>,
    pid: u32,
    is_only: bool,
) -> Result<Option<T>, KernelError> {
    match attached {
        Err(_) if !is_only && Process::open(pid).is_err() => Ok(None),
        attached => attached.map(Some),
    }
}
