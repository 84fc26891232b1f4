//! What its probes cost the target, and which of them go where that is more than the budget.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    super::{
        budget::{Costly, Counter, Excess, Probed, Reached},
        calibrate::{CallCost, HitCosts},
        departures::ReplacedFile,
        functions::{Function, Key, key},
        picture::{ExitMethod, SiteInfo},
        probed_code::{Change, ChangedCode, ProbedCode},
        steps::{OffCause, RunningStep, TakenOff, taken_off},
    },
    Session,
};
use crate::kernel::Engine;
use profiler_common::probe::ProbeId;
use profiler_scope::Place;

/// In the reason for which a session ends whose probes cost too much.
pub const OVER_BUDGET: &str = "over the budget of";

/// How those at allocators are asked for.
const ALLOCATIONS: &str = "--allocations";

/// Hits from which on their cost matters, so that it is measured.
const MANY_HITS: u64 = 100;

/// What it costs a thread to reach probes, as far as it was measured.
#[derive(Clone, Copy)]
pub struct ProbeCosts<'a> {
    /// Of calls, with their ends.
    pub calls: &'a HashMap<ExitMethod, CallCost>,
    /// Of a single instruction.
    pub hits: Option<HitCosts>,
    /// Programs do a `ret` themselves, in the place of the kernel.
    pub programs_do_ret: bool,
}

/// Probes that can be taken off together.
enum Part {
    /// One function of a step, by their numbers.
    Function { step: usize, id: u32 },
    /// Functions of files that are probed for others of a step, which the scope does not have any more.
    Leftovers(usize),
    /// All of a step, by its number.
    Step(usize),
    /// A place at which it is looked for what slow calls do, by the number of its feature.
    Explained(usize),
    /// Those at the functions of allocators.
    Allocators,
}

/// What follows from costs that are more than the budget, or from code that was changed.
#[derive(Default)]
struct Verdict {
    /// Functions to be taken off, by step and number, each with the reason.
    functions: BTreeMap<usize, HashMap<u32, TakenOff>>,
    /// Steps of which all goes, by their numbers, each with the reason.
    steps: BTreeMap<usize, TakenOff>,
    /// Places at which it is looked for what slow calls do, by the numbers of their features, each with the reason.
    explained: HashMap<usize, String>,
    /// Why those at allocators go, if they do.
    allocators: Option<String>,
    /// All reasons, each with its function or step; the costliest first.
    reasons: Vec<String>,
}

/// CPU time of processes, as it was read last: what those have taken that have ended stays in the sum.
#[derive(Default)]
pub struct CpuTime(BTreeMap<u32, u64>);

impl CpuTime {
    /// Notes what is read of processes by now, in nanoseconds; `None` of one that is gone. Gives the sum.
    fn sum(&mut self, read: impl Iterator<Item = (u32, Option<u64>)>) -> u64 {
        self.0
            .extend(read.filter_map(|(pid, cpu_ns)| Some((pid, cpu_ns?))));
        self.0.values().sum()
    }
}

/// Functions whose calls cost more than the measured one, because the kernel single-steps their entry or exit: a call is measured with
/// an entry that the kernel emulates, and a `ret` as its exit, which it single-steps unless the programs do it.
#[derive(Default)]
struct Stepped {
    entries: HashSet<Key>,
    exits: HashSet<Key>,
}

impl Stepped {
    fn of<'a>(sites: impl Iterator<Item = &'a SiteInfo>, programs_do_ret: bool) -> Self {
        let mut stepped = Self::default();
        for site in sites {
            if site.entry_single_stepped {
                stepped.entries.insert(key(&site.function));
            }
            if site.exit_single_stepped && programs_do_ret {
                stepped.exits.insert(key(&site.function));
            }
        }
        stepped
    }

    /// Which of a call's two ends are single-stepped beyond what was measured.
    fn ends_of(&self, function: &Key) -> SteppedEnds {
        SteppedEnds {
            entry: self.entries.contains(function),
            exit: self.exits.contains(function),
        }
    }
}

/// Which ends of a function's calls the kernel single-steps, and the call that was measured has not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct SteppedEnds {
    /// The entry: its time is a part of the call's duration, which begins before.
    entry: bool,
    /// The exit: its time comes after.
    exit: bool,
}

impl SteppedEnds {
    fn count(self) -> u64 {
        u64::from(self.entry) + u64::from(self.exit)
    }
}

impl ProbeCosts<'_> {
    /// What it takes longer where an instruction is single-stepped.
    fn stepping_ns(self) -> u64 {
        let costs = self.hits.unwrap_or_default();
        costs.single_stepped_ns.saturating_sub(costs.emulated_ns)
    }

    /// The functions of a step with ends that the kernel single-steps.
    fn stepped(self, step: &RunningStep) -> Stepped {
        Stepped::of(step.sites.iter(), self.programs_do_ret)
    }

    /// What a call costs whose end is seen by a method, and some ends of which the kernel single-steps.
    fn of_call(self, method: ExitMethod, stepped: SteppedEnds) -> CallCost {
        let Some(cost) = self.calls.get(&method).copied() else {
            return CallCost::default();
        };
        CallCost {
            overhead_ns: cost.overhead_ns + u64::from(stepped.entry) * self.stepping_ns(),
            cost_ns: cost.cost_ns + stepped.count() * self.stepping_ns(),
        }
    }
}

impl Session {
    /// Whether it is time to look at what its probes cost.
    pub fn is_cost_due(&self, now_ns: u64) -> bool {
        self.budget.as_ref().is_some_and(|budget| budget.is_due(now_ns))
    }

    /// Whether calls cost more than the measured one, because the kernel single-steps their ends.
    pub fn has_stepped_ends(&self, programs_do_ret: bool) -> bool {
        let mut sites = self.steps.iter().flat_map(|step| &step.sites);
        sites.any(|site| site.entry_single_stepped || site.exit_single_stepped && programs_do_ret)
    }

    /// Sets what the probes add to a duration, and cost the target.
    pub fn set_costs(&mut self, costs: ProbeCosts<'_>) {
        for step in self.steps.iter_mut() {
            let stepped = costs.stepped(step);
            let of =
                |function: &Function| costs.of_call(function.method, stepped.ends_of(&key(&function.info)));
            step.functions.set_costs(&of);
        }
    }

    /// Whether it matters what hits of single instructions cost.
    pub fn has_many_hits(&self, engine: &Engine) -> bool {
        let is_stepped = |step: &RunningStep| {
            let mut sites = step.sites.iter();
            sites.any(|site| site.entry_single_stepped || site.exit_single_stepped)
        };
        let asks = |step: &&RunningStep| step.lines().next().is_some() || is_stepped(step);
        let steps = self.steps.iter().filter(asks);
        let hits = steps.flat_map(|step| {
            let reached = reached_in(step);
            step.probes().map(move |probe| reached(engine, probe))
        });
        hits.sum::<u64>() >= MANY_HITS
    }

    /// Takes off the target what costs it more than the budget. Why the session has to end, where nothing is left to look at then: not
    /// so where its scope was edited, which can be taken back.
    pub fn keep_to_budget(
        &mut self,
        engine: &mut Engine,
        costs: ProbeCosts<'_>,
        now_ns: u64,
    ) -> Option<String> {
        let mut budget = self.budget.take()?;
        let (parts, probed): (Vec<Part>, Vec<Probed>) = self.parts(engine, costs).into_iter().unzip();
        let processes = self.processes.iter();
        let read = processes.map(|process| (process.pid(), process.cpu_ns()));
        let cpu_ns = || Some(self.cpu_time.sum(read));
        let excess = budget.look(now_ns, &probed, cpu_ns);
        self.budget = Some(budget);
        let verdict = self.verdict(engine, &parts, &excess?);
        self.carry_out(engine, verdict)
    }

    /// Takes functions and lines off the targets whose code was changed in one of these, a line with all its places. Why the session has
    /// to end, as above.
    pub fn take_off_changed(&mut self, engine: &mut Engine, changed: &ChangedCode) -> Option<String> {
        if changed.generation != self.codes.generation() {
            // Probes were attached or detached since.
            return None;
        }
        let mut verdict = Verdict::default();
        let mut replaced: BTreeSet<(u32, PathBuf)> = BTreeSet::new();
        for (number, step) in self.steps.iter().enumerate() {
            // By function; of a line, by none.
            let mut changes: HashMap<Option<&Key>, Change> = HashMap::new();
            let mut stay: HashSet<Option<&Key>> = HashSet::new();
            let codes: Vec<_> = step
                .code()
                .filter(|code| self.looks_at(code.pid) && !changed.left.contains(&code.pid))
                .collect();
            for code in &codes {
                match changed.of(code) {
                    // One that a process has changed goes, whatever others did.
                    Some(change) => {
                        let of_it = changes.entry(code.function.as_ref()).or_insert(change);
                        if change == Change::Bytes {
                            *of_it = change;
                        }
                    }
                    None => _ = stay.insert(code.function.as_ref()),
                }
            }
            // Other processes may run the file that one has replaced: there it stays, and then all of it.
            let is_replaced = |code: &&Arc<ProbedCode>| changed.of(code) == Some(Change::Replaced);
            let kept: HashSet<&Path> = (codes.iter().filter(is_replaced))
                .filter(|code| stay.contains(&code.function.as_ref()))
                .map(|code| code.path.as_path())
                .collect();
            for code in codes.iter().filter(is_replaced) {
                if kept.contains(code.path.as_path()) {
                    let of_it = code.function.as_ref();
                    if changes.get(&of_it) == Some(&Change::Replaced) {
                        changes.remove(&of_it);
                    }
                    replaced.insert((code.pid, code.path.clone()));
                }
            }
            for function in step.functions.iter() {
                let own = key(&function.info);
                let Some(change) = changes.get(&Some(&own)) else {
                    continue;
                };
                verdict
                    .reasons
                    .push(taken_off(&function.info.name, change.reason()));
                let functions = verdict.functions.entry(number).or_default();
                functions.insert(function.id, changed_code(*change));
            }
            if let Some(change) = changes.get(&None) {
                verdict
                    .reasons
                    .push(taken_off(&step.step.to_string(), change.reason()));
                verdict.steps.insert(number, changed_code(*change));
            }
        }
        let name_of = |pid: u32| {
            let process = self.processes.iter().find(|process| process.pid() == pid);
            process.map_or_else(String::new, |process| process.name().to_owned())
        };
        let replaced = replaced.into_iter().map(|(pid, path)| ReplacedFile {
            pid,
            name: name_of(pid),
            path,
        });
        for file in replaced.collect::<Vec<_>>() {
            if self.departed.note_replaced(&file) {
                self.left.push(file.reason());
            }
        }
        if verdict.reasons.is_empty() {
            return None;
        }
        self.carry_out(engine, verdict)
    }

    /// Takes off what a verdict says. Why the session has to end, where it has.
    fn carry_out(&mut self, engine: &mut Engine, verdict: Verdict) -> Option<String> {
        let reason = verdict.reasons.join("; ");
        if self.ends_by(&verdict) && !self.is_edited {
            return Some(reason);
        }
        tracing::info!(target: "audit", session = %self.name, reason, "taken off");
        // Others are attached anew meanwhile.
        self.codes.set(std::iter::empty(), &[]);
        for (number, functions) in verdict.functions {
            self.steps.take_off(engine, number, &functions);
        }
        for (number, why) in verdict.steps {
            self.steps.take_off_step(engine, number, why);
        }
        if let Some(explain) = &mut self.explain
            && !verdict.explained.is_empty()
        {
            explain.take_off(engine, &verdict.explained);
        }
        if let Some(reason) = verdict.allocators {
            let detached = engine.detached_by(|engine| self.forget_allocations(engine));
            self.note_detached(engine, detached);
            self.allocations_off = Some(taken_off(ALLOCATIONS, &reason));
        }
        self.tell_code();
        None
    }

    /// Whether probes of it are to be attached again, once others are closed.
    pub fn is_awaited(&self) -> bool {
        self.steps.are_awaited()
    }

    /// Attaches what is to be attached again, as soon as that can be done. Why the session has to end, where it cannot be done.
    pub fn attach_again(&mut self, engine: &mut Engine) -> Result<(), String> {
        match self.steps.attach_again(engine) {
            Ok(true) => self.tell_code(),
            Ok(false) => {}
            Err(error) => return Err(format!("probes could not be attached again: {error}")),
        }
        Ok(())
    }

    /// How many functions and lines were taken off the target as they cost too much.
    pub(super) fn over_budget(&self) -> u64 {
        let all: u64 = self.steps.iter().map(RunningStep::taken_off).sum();
        all.saturating_sub(self.code_changed()) + u64::from(self.allocations_off.is_some())
    }

    /// How many were as their code was changed.
    pub(super) fn code_changed(&self) -> u64 {
        self.steps.iter().map(RunningStep::changed).sum()
    }

    /// What can be taken off.
    fn parts(&self, engine: &Engine, costs: ProbeCosts<'_>) -> Vec<(Part, Probed)> {
        let mut parts = Vec::new();
        let on_target = self.steps.iter().enumerate();
        for (number, step) in on_target.filter(|(_, step)| !step.is_taken_off()) {
            let reached = reached_in(step);
            let mut add = |part: Part, probes: &mut dyn Iterator<Item = (ProbeId, u64)>| {
                let reached = probes.map(|(probe, cost_ns)| Reached {
                    counter: Counter::Probe(probe),
                    hits: reached(engine, probe),
                    cost_ns,
                });
                let probed = Probed(reached.collect());
                if !probed.0.is_empty() {
                    parts.push((part, probed));
                }
            };
            let method_ns = |method: ExitMethod| costs.calls.get(&method).map_or(0, |cost| cost.cost_ns);
            match step.step.place {
                Place::Function(_) | Place::Inlined(_) | Place::Call { .. } => {
                    let stepped = costs.stepped(step);
                    for function in step.functions.iter().filter(|function| !function.is_taken_off()) {
                        let ends = stepped.ends_of(&key(&function.info));
                        let CallCost { cost_ns, .. } = costs.of_call(function.method, ends);
                        add(
                            Part::Function {
                                step: number,
                                id: function.id,
                            },
                            &mut function.probes().map(|probe| (probe, cost_ns)),
                        );
                    }
                    let method = step.sites.first().map(|site| site.exit_method);
                    let cost_ns = method.map_or(0, method_ns);
                    add(
                        Part::Leftovers(number),
                        &mut step.leftovers().map(|probe| (probe, cost_ns)),
                    );
                }
                Place::SystemCall(_) | Place::KernelFunction(_) => {
                    let functions = step.functions.iter();
                    let mut probes = functions.flat_map(|function| {
                        let cost_ns = method_ns(function.method);
                        function.probes().map(move |probe| (probe, cost_ns))
                    });
                    add(Part::Step(number), &mut probes);
                }
                Place::Line { .. } | Place::Address { .. } | Place::Branch { .. } => {
                    let cost_ns = |stepped: bool| costs.hits.map_or(0, |costs| costs.of(stepped));
                    let mut probes = step.stepping().map(|(probe, stepped)| (probe, cost_ns(stepped)));
                    add(Part::Step(number), &mut probes);
                }
                Place::Tracepoint { .. } => {
                    let cost_ns = costs.hits.and_then(|costs| costs.tracepoint_ns).unwrap_or(0);
                    let mut probes = step.stepping().map(|(probe, _)| (probe, cost_ns));
                    add(Part::Step(number), &mut probes);
                }
            }
        }
        let explain = self.explain.iter();
        parts.extend(explain.flat_map(|explain| {
            let places = explain.probed(engine).into_iter();
            places.map(|(feature, reached)| (Part::Explained(feature), Probed(reached)))
        }));
        if !self.allocations.is_empty() {
            parts.push((Part::Allocators, self.allocators_reached(engine, costs)));
        }
        parts
    }

    /// How often the functions of its allocators were called, and what that takes of the target.
    fn allocators_reached(&self, engine: &Engine, costs: ProbeCosts<'_>) -> Probed {
        let cost_ns = |method| costs.of_call(method, SteppedEnds::default()).cost_ns;
        let reached = self.allocations.iter().flat_map(|watch| {
            let counts = engine.allocator_counts(watch);
            [
                Reached {
                    counter: Counter::Allocating(watch.pid()),
                    hits: counts.allocations,
                    cost_ns: cost_ns(ExitMethod::Return),
                },
                Reached {
                    counter: Counter::Stacking(watch.pid()),
                    hits: counts.stacks_ns,
                    cost_ns: 1,
                },
                Reached {
                    counter: Counter::Freeing(watch.pid()),
                    hits: counts.frees,
                    cost_ns: cost_ns(ExitMethod::Never),
                },
            ]
        });
        Probed(reached.collect())
    }

    fn verdict(&self, engine: &Engine, parts: &[Part], excess: &Excess) -> Verdict {
        let mut verdict = Verdict::default();
        let costly = excess.costly.iter();
        for (part, costly) in costly.filter_map(|costly| Some((parts.get(costly.index)?, costly))) {
            match *part {
                Part::Function { step, id } => {
                    let mut functions = self
                        .steps
                        .get(step)
                        .into_iter()
                        .flat_map(|step| step.functions.iter());
                    let Some(function) = functions.find(|function| function.id == id) else {
                        continue;
                    };
                    let mut counts = function.probes().map(|probe| engine.probe_counts(probe));
                    let noun = if counts.any(|counts| counts.passed_by > counts.entries) {
                        "calls, and returns of what it ends in jumps to,"
                    } else {
                        "calls"
                    };
                    let reason = reason(noun, costly, excess.allowed);
                    verdict.reasons.push(taken_off(&function.info.name, &reason));
                    let functions = verdict.functions.entry(step).or_default();
                    functions.insert(id, too_costly(reason));
                }
                // They are in no scope: taken off with the rest of their files.
                Part::Leftovers(step) => {
                    verdict.functions.entry(step).or_default();
                }
                Part::Step(number) => {
                    let Some(step) = self.steps.get(number) else {
                        continue;
                    };
                    let reason = reason("hits", costly, excess.allowed);
                    verdict.reasons.push(taken_off(&step.step.to_string(), &reason));
                    verdict.steps.insert(number, too_costly(reason));
                }
                Part::Explained(feature) => {
                    let place = self.explain.as_ref().and_then(|explain| explain.place(feature));
                    let reason = reason("hits", costly, excess.allowed);
                    verdict
                        .reasons
                        .extend(place.map(|place| taken_off(&place, &reason)));
                    verdict.explained.insert(feature, reason);
                }
                Part::Allocators => {
                    let reason = reason("calls of the allocator", costly, excess.allowed);
                    verdict.reasons.push(taken_off(ALLOCATIONS, &reason));
                    verdict.allocators = Some(reason);
                }
            }
        }
        verdict
    }

    /// Whether a step has nothing left then.
    fn ends_by(&self, verdict: &Verdict) -> bool {
        let has_nothing = |(number, gone): (&usize, &HashMap<u32, TakenOff>)| {
            let stays = |step: &RunningStep| {
                let mut functions = step.functions.iter();
                functions.any(|function| !function.is_taken_off() && !gone.contains_key(&function.id))
            };
            !gone.is_empty() && !self.steps.get(*number).is_some_and(stays)
        };
        !verdict.steps.is_empty() || verdict.functions.iter().any(has_nothing)
    }
}

/// Times that a probe was reached where spans begin, whatever came of it: conditions are decided before one does; and where others
/// than its function return, which is about as dear.
pub fn spans_reached(engine: &Engine, probe: ProbeId) -> u64 {
    let counts = engine.probe_counts(probe);
    let hits = engine.hit_counts(probe);
    counts.entries + counts.outside + counts.passed_by + hits.rejected + hits.disturbed
}

/// What says how often the probes of a step were reached.
fn reached_in(step: &RunningStep) -> fn(&Engine, ProbeId) -> u64 {
    if step.step.place.has_spans() {
        spans_reached
    } else {
        line_reached
    }
}

/// The same at a line, of which conditions on values are decided after it was counted.
fn line_reached(engine: &Engine, probe: ProbeId) -> u64 {
    engine.hit_counts(probe).reached + engine.probe_counts(probe).outside
}

fn too_costly(reason: String) -> TakenOff {
    TakenOff {
        cause: OffCause::Cost,
        reason: reason.into(),
    }
}

fn changed_code(change: Change) -> TakenOff {
    TakenOff {
        cause: OffCause::ChangedCode,
        reason: change.reason().into(),
    }
}

fn reason(noun: &str, costly: &Costly, allowed: f64) -> String {
    // Each may keep to the budget that all of them exceed together.
    let together = if costly.share > allowed {
        ""
    } else {
        "with other probes "
    };
    format!(
        "{} {noun} a second took {} of the target's CPU time, {together}{OVER_BUDGET} {}",
        grouped(costly.hits_per_s),
        percent(costly.share),
        percent(allowed)
    )
}

/// A whole number, its digits in groups.
fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A share in percent, as people read it.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent > 0.0 && percent < 0.05 {
        "less than 0.1%".to_owned()
    } else if percent < 10.0 {
        format!("{}%", (percent * 10.0).round() / 10.0)
    } else {
        format!("{percent:.0}%")
    }
}

#[cfg(test)]
mod tests {
    use super::{super::super::picture::FunctionInfo, *};

    #[test]
    fn the_cpu_time_of_a_process_that_has_ended_stays_in_the_sum() {
        let mut cpu_time = CpuTime::default();
        assert_eq!(cpu_time.sum([(1, Some(10)), (2, Some(20))].into_iter()), 30);
        assert_eq!(cpu_time.sum([(1, Some(15)), (2, None)].into_iter()), 35);
        assert_eq!(cpu_time.sum([(1, Some(17))].into_iter()), 37);
    }

    #[test]
    fn a_probe_that_takes_less_than_the_budget_is_said_to_exceed_it_with_others() {
        let said = |share| {
            let costly = Costly {
                index: 0,
                hits_per_s: 253.0,
                share,
            };
            reason("calls", &costly, 0.03)
        };
        assert_eq!(
            said(0.024),
            "253 calls a second took 2.4% of the target's CPU time, with other probes over the budget of 3%"
        );
        assert!(!said(0.05).contains("other probes"), "{}", said(0.05));
    }

    #[test]
    fn numbers_are_in_groups_and_shares_in_percent() {
        assert_eq!(
            [7.2, 1_234.0, 2_104_332.4].map(grouped),
            ["7", "1,234", "2,104,332"]
        );
        assert_eq!(
            [0.0, 0.0004, 0.03, 0.0251, 0.97, 1.0].map(percent),
            ["0%", "less than 0.1%", "3%", "2.5%", "97%", "100%"]
        );
    }

    #[test]
    fn both_ends_of_a_call_count_where_they_are_single_stepped() {
        let site = |address, entry_single_stepped, exit_single_stepped| SiteInfo {
            function: Arc::new(FunctionInfo {
                address,
                ..FunctionInfo::default()
            }),
            entry_offset: 0,
            entry_instruction: String::new(),
            exit_method: ExitMethod::Ret,
            exits: 2,
            entry_single_stepped,
            exit_single_stepped,
        };
        let sites = [
            site(0, false, false),
            site(1, true, false),
            site(2, false, true),
            site(3, true, true),
        ];
        let ends = |programs_do_ret| {
            let stepped = Stepped::of(sites.iter(), programs_do_ret);
            sites.each_ref().map(|site| stepped.ends_of(&key(&site.function)))
        };
        let of = |entry, exit| SteppedEnds { entry, exit };
        let [none, entry, exit] = [of(false, false), of(true, false), of(false, true)];
        assert_eq!(ends(true), [none, entry, exit, of(true, true)]);
        // That of exits is in what was measured of a call.
        assert_eq!(ends(false), [none, entry, none, entry]);

        let calls = HashMap::from([(
            ExitMethod::Ret,
            CallCost {
                overhead_ns: 400,
                cost_ns: 900,
            },
        )]);
        let costs = ProbeCosts {
            calls: &calls,
            hits: Some(HitCosts {
                emulated_ns: 500,
                single_stepped_ns: 9_500,
                tracepoint_ns: None,
            }),
            programs_do_ret: true,
        };
        // A call's duration begins before its first instruction is stepped, and ends before its last.
        for (stepped, overhead_ns, cost_ns) in [
            (none, 400, 900),
            (entry, 9_400, 9_900),
            (exit, 400, 9_900),
            (of(true, true), 9_400, 18_900),
        ] {
            let cost = CallCost { overhead_ns, cost_ns };
            assert_eq!(costs.of_call(ExitMethod::Ret, stepped), cost, "{stepped:?}");
        }
    }
}
