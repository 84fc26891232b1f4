//! What attaching a scope would do and cost, before it is attached: the same planning, a moment of samples, and, where
//! that is asked for, a moment of counting.
//!
//! Samples say how much of the target's time is inside of a function, and nothing of how often it is called: that is the
//! time divided by a duration which they do not know. So how often places are reached is counted or not said.

use profiler_aggregate::calltree::{FrameId, Node, NodeId};
use std::{collections::HashMap, path::PathBuf, sync::Arc, time::Duration};

use profiler_scope::Place;
use profiler_symbolize::{Grouping, demangle};
use profiler_target::Process;

use super::{
    budget,
    calibrate::HitCosts,
    command::{Caller, Command, Handle, NewSession, TargetSpec},
    error::SessionError,
    kernel_places,
    lines::{PreparedLine, TracedPlace},
    measure::{self, MeasuredFile},
    picture::{ExitMethod, FlamePicture, FlameRequest, FlameTimes, SiteInfo},
    prepare::{Prepared, PreparedSpan, PreparedStep},
    state::{OVER_BUDGET, percent},
};
use crate::kernel::{Gates, HitSpec, KernelPlace, LookSpec, SpanKind};

/// Samples per second and CPU: some hundreds of a busy thread, for half a percent of its time.
const FREQUENCY_HZ: u32 = 499;

/// Of the session that samples: what a client leaves behind that has gone does not stay.
const LEASE_NS: u64 = 5_000_000_000;

/// How a target is looked at to estimate what a scope would cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Looks {
    /// How long it is sampled; 0 for not at all.
    pub sampled_ns: u64,
    /// Hits are counted for a moment, by probes that do nothing else.
    pub measures: bool,
}

impl Looks {
    /// A second of samples.
    pub const SAMPLES: Self = Self {
        sampled_ns: 1_000_000_000,
        measures: false,
    };
    /// A second of samples, and a moment of counting.
    pub const SAMPLES_AND_COUNTS: Self = Self {
        measures: true,
        ..Self::SAMPLES
    };
}

/// What attaching a scope would do.
#[derive(Clone, Debug)]
pub struct Estimate {
    /// Canonical text of the scope.
    pub scope: String,
    /// The target's processes.
    pub pids: Vec<u32>,
    /// Probes would be perf events, not multi links.
    pub perf_links: bool,
    /// Outermost first.
    pub steps: Vec<EstimatedStep>,
    /// Branches, calls and values that would be looked at to explain slow calls.
    pub features: usize,
    /// What the user should know.
    pub warnings: Vec<String>,
    /// The one of them that says that the probes would take more than they may, if it is there.
    pub over_budget: Option<String>,
    /// What was sampled; `None` where the target could not be, or was not to be.
    pub sampled: Option<Sampled>,
    /// How long hits were counted; `None` where they were not.
    pub counted_ns: Option<u64>,
}

/// Samples of the target.
#[derive(Clone, Default, Debug)]
pub struct Sampled {
    /// How many.
    pub samples: u64,
    /// Time that they stand for.
    pub cpu_ns: u64,
    /// How long the target was sampled.
    pub ns: u64,
    /// Samples that have a function on their stack, by its name and the file name of its module.
    inside: HashMap<(Arc<str>, Arc<str>), u64>,
}

/// A step of the scope.
#[derive(Clone, Debug)]
pub struct EstimatedStep {
    /// Canonical text.
    pub text: String,
    /// Where it would be probed.
    pub places: Vec<EstimatedPlace>,
}

/// A place that would be probed.
#[derive(Clone, Debug)]
pub struct EstimatedPlace {
    /// The process.
    pub pid: u32,
    /// Which.
    pub place: Arc<TracedPlace>,
    /// The instruction of the probe; empty where it is not known.
    pub instruction: String,
    /// The kernel has to single-step it.
    pub single_stepped: bool,
    /// How its end is seen; `None` of what has none.
    pub end: Option<EstimatedEnd>,
    /// Samples with its function on their stack; `None` where that is not known.
    pub samples_inside: Option<u64>,
    /// Times that it was reached while hits were counted.
    pub hits: Option<u64>,
    /// What reaching it costs, with its end; `None` where that could not be measured.
    pub cost_ns: Option<u64>,
}

/// How the end of a call would be seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EstimatedEnd {
    /// The method.
    pub method: ExitMethod,
    /// Probes that see it.
    pub probes: u32,
    /// The kernel has to single-step them.
    pub single_stepped: bool,
}

impl EstimatedPlace {
    /// Also gives the linkage name of its function; empty where it is not known.
    fn of_span(pid: u32, place: &Place, span: &PreparedSpan) -> (Self, String) {
        let PreparedSpan { site, .. } = span;
        let SiteInfo {
            function,
            entry_offset,
            entry_instruction,
            exit_method,
            exits,
            entry_single_stepped,
            exit_single_stepped,
        } = site;
        let (name, linkage_name) = match place {
            Place::Function(_) => (function.name.clone(), function.linkage_name.clone()),
            _ => (String::new(), String::new()),
        };
        let estimated = Self {
            pid,
            place: Arc::new(TracedPlace {
                site: function.name.clone(),
                function: name,
                file: String::new(),
                line: 0,
                module: function.module.clone(),
                address: function.address + u64::from(*entry_offset),
            }),
            instruction: entry_instruction.clone(),
            single_stepped: *entry_single_stepped,
            end: Some(EstimatedEnd {
                method: *exit_method,
                probes: *exits,
                single_stepped: *exit_single_stepped,
            }),
            samples_inside: None,
            hits: None,
            cost_ns: None,
        };
        (estimated, linkage_name)
    }

    fn of_line(pid: u32, line: &PreparedLine) -> (Self, String) {
        let estimated = Self {
            pid,
            place: Arc::clone(&line.place),
            instruction: line.single_stepped.clone().unwrap_or_default(),
            single_stepped: line.single_stepped.is_some(),
            end: None,
            samples_inside: None,
            hits: None,
            cost_ns: None,
        };
        (estimated, line.in_function.clone())
    }

    /// A call costs its entry and one exit; one that never returns, its entry alone. `None` where it was not measured: of the
    /// kernel's functions and system calls.
    fn cost_ns(&self, costs: HitCosts) -> Option<u64> {
        let of_kernel = self.place.module == kernel_places::MODULE;
        match self.end {
            None if of_kernel => costs.tracepoint_ns,
            Some(_) if of_kernel => None,
            end => {
                let end = end.filter(|end| end.probes > 0);
                Some(costs.of(self.single_stepped) + end.map_or(0, |end| costs.of(end.single_stepped)))
            }
        }
    }
}

impl Estimate {
    /// Says so where the probes would take more of the target's CPU time than they may.
    pub(super) fn warn_of_costs(&mut self, budget: Option<f64>) {
        let (Some(budget), Some(sampled), Some(counted_ns)) = (budget, &self.sampled, self.counted_ns) else {
            return;
        };
        let places = self.steps.iter().flat_map(|step| &step.places);
        let costs = places.filter_map(|place| Some(place.hits? as f64 * place.cost_ns? as f64));
        let cores = |ns: f64, of_ns: u64| if of_ns > 0 { ns / of_ns as f64 } else { 0.0 };
        let cost_cores = cores(costs.sum(), counted_ns);
        let busy_cores = cores(sampled.cpu_ns as f64, sampled.ns);
        if let Some(share) = budget::excess(budget, cost_cores, busy_cores) {
            let is_one = self.steps.iter().map(|step| step.places.len()).sum::<usize>() == 1;
            let which = if is_one { "they" } else { "the costliest" };
            let over = format!(
                "the probes would take {} of the target's CPU time, {OVER_BUDGET} {}: {which} would be taken off",
                percent(share),
                percent(budget)
            );
            self.warnings.push(over.clone());
            self.over_budget = Some(over);
        }
    }
}

/// What a step's places are, the linkage name of the function of each, and how its hits are counted, in the same order.
fn of_step(step: &PreparedStep) -> (EstimatedStep, (Vec<String>, Vec<MeasuredFile>)) {
    let mut places = Vec::new();
    let mut files: Vec<MeasuredFile> = Vec::new();
    let mut add = |pid: u32, path: &PathBuf, specs: Vec<HitSpec>| {
        files.push(MeasuredFile {
            pid,
            path: path.clone(),
            specs,
        });
    };
    for file in &step.files {
        let spans = file.sites.iter();
        places.extend(spans.map(|span| EstimatedPlace::of_span(file.pid, &step.step.place, span)));
        let counted = |span: &PreparedSpan| HitSpec {
            offset: span.spec.entry_offset,
            action: span.spec.entry_action,
            done_by_program: span.spec.done_by_program,
            look: LookSpec::default(),
            branch: None,
            gates: Gates::default(),
            of_kernel: match span.spec.kind {
                SpanKind::SystemCall { tracepoint, .. } => Some(KernelPlace::Tracepoint(tracepoint)),
                SpanKind::KernelFunction { address } => Some(KernelPlace::Function(address)),
                _ => None,
            },
        };
        add(file.pid, &file.path, file.sites.iter().map(counted).collect());
    }
    for file in &step.lines {
        let lines = file.lines.iter();
        places.extend(lines.map(|line| EstimatedPlace::of_line(file.pid, line)));
        // Either way of a branch costs a hit.
        let counted = |line: &PreparedLine| HitSpec {
            look: LookSpec::default(),
            branch: None,
            ..line.spec.clone()
        };
        add(file.pid, &file.path, file.lines.iter().map(counted).collect());
    }
    let text = step.step.to_string();
    let (places, functions) = places.into_iter().unzip();
    (EstimatedStep { text, places }, (functions, files))
}

impl Sampled {
    /// What a flame graph of all of the target has.
    fn of(picture: &FlamePicture, ns: u64) -> Self {
        let node = |number: u32| {
            let at = usize::try_from(number).ok()?.checked_sub(1)?;
            picture.nodes.get(at)
        };
        let mut sampled = Self {
            ns,
            ..Self::default()
        };
        for weight in &picture.picture.weights {
            sampled.samples += weight.inside_samples;
            sampled.cpu_ns += weight.inside_ns;
            let mut functions = Vec::new();
            let mut number = weight.node.0;
            // Parents come before their children, so this ends.
            while let Some(Node {
                parent: NodeId(parent),
                frame: FrameId(frame),
                ..
            }) = node(number).copied()
            {
                if let Some(frame) = usize::try_from(frame).ok().and_then(|at| picture.frames.get(at)) {
                    functions.push((Arc::clone(&frame.function), Arc::clone(&frame.module)));
                }
                number = parent;
            }
            functions.sort_unstable();
            functions.dedup();
            for function in functions {
                *sampled.inside.entry(function).or_default() += weight.inside_samples;
            }
        }
        sampled
    }

    /// Samples with a function on their stack, by its linkage name; frames have its name without parameters.
    fn inside(&self, module: &str, function: &str) -> Option<u64> {
        if function.is_empty() || self.samples == 0 {
            return None;
        }
        let module = module.rsplit('/').next().unwrap_or_default();
        let key = (Arc::from(demangle(function.as_bytes())), Arc::from(module));
        Some(self.inside.get(&key).copied().unwrap_or(0))
    }
}

impl Handle {
    /// Says what attaching what was prepared would do, by what is asked to be looked at.
    pub(super) async fn estimate_of(
        &self,
        caller: Caller,
        prepared: Prepared,
        perf_links: bool,
        looks: Looks,
    ) -> Result<Estimate, SessionError> {
        let pids: Vec<u32> = prepared.processes.iter().map(Process::pid).collect();
        let mut warnings = prepared.warnings.clone();
        let (mut steps, others): (Vec<_>, Vec<_>) = prepared.steps.iter().map(of_step).unzip();
        let (functions, counted): (Vec<_>, Vec<_>) = others.into_iter().unzip();
        let files: Vec<MeasuredFile> = counted.into_iter().flatten().collect();
        let places: usize = files.iter().map(|file| file.specs.len()).sum();
        if looks.measures {
            measure::require_few(places, perf_links)?;
        }
        let sampled = match looks.sampled_ns {
            0 => Ok(None),
            ns => self.sample(caller, pids.clone(), ns).await.map(Some),
        };
        let sampled = match sampled {
            Ok(sampled) => sampled,
            Err(error) => {
                warnings.push(format!("the target is not sampled: {error}"));
                None
            }
        };
        let costs = self.ask(caller, |reply| Command::HitCosts { reply }).await?;
        let measured = if looks.measures && places > 0 {
            let measured = self.ask(caller, |reply| Command::Measure { caller, files, reply });
            Some(measured.await?)
        } else {
            None
        };
        let mut hits = measured.iter().flat_map(|measured| measured.hits.iter().copied());
        let places = steps.iter_mut().flat_map(|step| &mut step.places);
        for (place, function) in places.zip(functions.iter().flatten()) {
            place.samples_inside = sampled
                .as_ref()
                .and_then(|sampled| sampled.inside(&place.place.module, function));
            place.hits = hits.next();
            place.cost_ns = costs.and_then(|costs| place.cost_ns(costs));
        }
        let explain = prepared.explain.as_ref();
        let left_out = explain.iter().flat_map(|explain| &explain.left_out);
        warnings.extend(left_out.map(|not| format!("{} is not looked at: {}", not.what, not.reason)));
        Ok(Estimate {
            scope: prepared.text,
            pids,
            perf_links,
            steps,
            features: explain.map_or(0, |explain| explain.features.len()),
            warnings,
            over_budget: None,
            counted_ns: measured.map(|measured| measured.ns),
            sampled,
        })
    }

    /// Samples processes for so long, through a session that probes nothing.
    async fn sample(&self, caller: Caller, pids: Vec<u32>, for_ns: u64) -> Result<Sampled, SessionError> {
        let session = self.create(caller, samples_of(pids)).await?;
        let request = FlameRequest::of(Grouping::Function, Some(FlameTimes::OnCpu));
        let name = session.name;
        let watch = self.watch_flame(caller, name.clone(), LEASE_NS, request).await;
        let mut pictures = match watch {
            Ok(pictures) => pictures,
            Err(error) => {
                self.end(caller, name).await?;
                return Err(error);
            }
        };
        let began = tokio::time::Instant::now();
        tokio::time::sleep(Duration::from_nanos(for_ns)).await;
        let ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        // It may have ended with its target; the last picture is there in any case.
        let _ = self.end(caller, name).await;
        loop {
            let last = pictures.borrow_and_update().clone();
            if let Some(last) = last.filter(|picture| picture.ended.is_some()) {
                return Ok(Sampled::of(&last, ns));
            }
            if pictures.changed().await.is_err() {
                return Ok(Sampled::default());
            }
        }
    }
}

/// A session of all samples of some processes.
fn samples_of(pids: Vec<u32>) -> NewSession {
    NewSession {
        name: String::new(),
        target: TargetSpec::Pids(pids),
        scope: String::new(),
        frequency_hz: FREQUENCY_HZ,
        window_ns: 1_000_000_000,
        half_life_ns: 1_000_000_000,
        lease_ns: LEASE_NS,
        exit_method: None,
        capture: None,
        explain: false,
        allocations: false,
        budget: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_costs_what_both_of_its_ends_do() {
        const COSTS: HitCosts = HitCosts {
            emulated_ns: 500,
            single_stepped_ns: 9000,
            tracepoint_ns: Some(200),
        };
        let cost_in = |module: &str, stepped: bool, end: Option<(ExitMethod, u32, bool)>| {
            let place = EstimatedPlace {
                pid: 1,
                place: Arc::new(TracedPlace {
                    site: "f".to_owned(),
                    function: "f".to_owned(),
                    file: String::new(),
                    line: 0,
                    module: module.to_owned(),
                    address: 0,
                }),
                instruction: String::new(),
                single_stepped: stepped,
                end: end.map(|(method, probes, single_stepped)| EstimatedEnd {
                    method,
                    probes,
                    single_stepped,
                }),
                samples_inside: None,
                hits: None,
                cost_ns: None,
            };
            place.cost_ns(COSTS)
        };
        assert_eq!(
            cost_in(kernel_places::MODULE, false, None),
            Some(200),
            "a tracepoint"
        );
        let system_call = Some((ExitMethod::SystemCall, 1, false));
        assert_eq!(cost_in(kernel_places::MODULE, false, system_call), None);
        let cost_ns = |stepped, end| cost_in("a", stepped, end).unwrap();
        assert_eq!(cost_ns(false, None), 500, "a line");
        assert_eq!(cost_ns(false, Some((ExitMethod::Return, 1, false))), 1000);
        // One of its exits is taken.
        assert_eq!(cost_ns(false, Some((ExitMethod::Ret, 4, true))), 9500);
        assert_eq!(cost_ns(true, Some((ExitMethod::Ret, 4, true))), 18_000);
        assert_eq!(
            cost_ns(true, Some((ExitMethod::Never, 0, false))),
            9000,
            "it never returns"
        );
    }
}
