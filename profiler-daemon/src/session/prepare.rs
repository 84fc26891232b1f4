//! From a scope's text and a target to sites, before anything is attached. All of it may block on files,
//! so none of it runs in the session task.
//!
//! | file | idea |
//! |---|---|
//! | `planner` | the sites of each step |
//! | `inlined` | the inlined instances of a name in all files, and what is said of those that are left out |
//! | `allocators` | by which functions processes allocate memory |
//! | `sites` | what was planned, as it is attached |
//! | `warnings` | what is said of it before |

mod allocators;
pub mod changed_code;
mod ifuncs;
mod inlined;
mod planner;
mod sites;
mod warnings;

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    sync::Arc,
};

pub use self::{allocators::PreparedAllocator, planner::Planner};
use super::{
    authorize::{authorize, authorize_asking, authorize_steps, may_look},
    by_value,
    children_before::{ChildrenCount, Parent},
    command::{Caller, Capture, TargetSpec},
    debug_package::SharedBudget,
    error::{Reason, SessionError},
    explain::{PreparedExplain, candidates},
    files::{TargetFile, read_process},
    kernel_places,
    late_code::MappedCode,
    library::Library,
    lines::{PreparedLine, Shown},
    picture::{ExitMethod, SiteInfo},
    probed_code::ProbedCode,
    quotas::Held,
    refusal::{scope_refusal, target_refusal},
};
use crate::kernel::{Ability, Expected, LookSpec, ProbeSpec, missing_capabilities};
use profiler_plan::values::Refusal;
use profiler_scope::{self as scope, Scope, Step};
use profiler_target::{self as target, Process, Resolved, Standing, mapped_code_bytes};

/// Processes that one session may look at.
const MAX_PROCESSES: usize = 1024;

/// A scope that can be attached.
pub struct Prepared {
    pub scope: Scope,
    /// Canonical text.
    pub text: String,
    /// Processes that there were when the target was looked up.
    pub found: usize,
    pub processes: Vec<Process>,
    pub steps: Vec<PreparedStep>,
    pub warnings: Vec<String>,
    /// Processes in whose code there will be probes.
    pub parents: Vec<Parent>,
    /// What had been counted of their children before it was planned.
    pub children_before: Vec<ChildrenCount>,
    /// What is looked at to tell slow calls of the last step from others.
    pub explain: Option<PreparedExplain>,
    /// What allocates memory, where that is to be remembered.
    pub allocators: Vec<PreparedAllocator>,
    /// Code that its processes had mapped before their files were read.
    pub code: MappedCode,
    /// Processes in which no call is to be seen to end by a return probe.
    pub no_returns_in: HashSet<u32>,
}

/// How a scope is to be planned.
#[derive(Clone, Default)]
pub struct How {
    /// As asked for; `None` for the safest.
    pub exit_method: Option<ExitMethod>,
    /// What is recorded of each hit.
    pub capture: Option<Capture>,
    /// What slow calls do that others do not is looked for.
    pub explain: bool,
    /// Who allocates memory is remembered.
    pub allocations: bool,
}

impl Prepared {
    /// Its processes, each once.
    pub fn pids(&self) -> Vec<u32> {
        self.processes.iter().map(Process::pid).collect()
    }

    /// Leaves out processes that have ended, where they are not the only ones; whether there were any.
    pub fn leave_out_ended(&mut self) -> bool {
        let ended = self.processes.iter().filter(|process| !process.is_alive());
        let ended: HashSet<u32> = ended.map(Process::pid).collect();
        if ended.is_empty() || ended.len() == self.processes.len() {
            return false;
        }
        let lives = |pid: u32| !ended.contains(&pid);
        self.processes.retain(|process| lives(process.pid()));
        self.allocators.retain(|allocator| lives(allocator.pid));
        let places = self.explain.iter_mut().flat_map(|explain| &mut explain.places);
        for step in self.steps.iter_mut().chain(places.map(|place| &mut place.step)) {
            step.files.retain(|file| lives(file.pid));
            step.lines.retain(|lines| lives(lines.pid));
            step.code.retain(|code| lives(code.pid));
        }
        true
    }

    /// Says how many processes were left out.
    pub fn warn_of_ended(&mut self) {
        let ended = self.found.saturating_sub(self.processes.len());
        if ended > 0 {
            let found = self.found;
            let warning = format!("{ended} of {found} processes ended before they were attached to");
            self.warnings.push(warning);
        }
    }

    /// What its session will hold of the resources that all sessions share.
    pub fn held(&self) -> Held {
        let of_step = |step: &PreparedStep| {
            let spans = step.files.iter().map(|file| file.sites.len());
            let lines = step.lines.iter().map(|lines| lines.lines.len());
            spans.chain(lines).sum::<usize>()
        };
        let values_of_step = |step: &PreparedStep| {
            let spans = step.files.iter().flat_map(|file| &file.sites);
            let spans = spans.filter_map(|span| span.spec.look.as_ref());
            let lines = step.lines.iter().flat_map(|lines| &lines.lines);
            let lines = lines.map(|line| &line.spec.look);
            spans.chain(lines).map(LookSpec::values_read).sum::<usize>()
        };
        Held {
            sessions: 1,
            probes: self.steps.iter().map(of_step).sum(),
            // One before each step but the first.
            gates: self.steps.len().saturating_sub(1),
            values: self.steps.iter().map(values_of_step).sum(),
        }
    }

    /// The methods by which the ends of its spans will be seen, and those of calls of allocators, each once.
    pub fn exit_methods(&self) -> HashSet<ExitMethod> {
        let files = self.steps.iter().flat_map(|step| &step.files);
        let sites = files.flat_map(|file| &file.sites);
        let mut methods: HashSet<ExitMethod> = sites.map(|span| span.site.exit_method).collect();
        if !self.allocators.is_empty() {
            methods.extend([ExitMethod::Return, ExitMethod::Never]);
        }
        methods
    }
}

/// The sites of one step.
pub struct PreparedStep {
    pub step: Step,
    /// Of its spans.
    pub files: Vec<PreparedFile>,
    /// Of its lines.
    pub lines: Vec<PreparedLines>,
    /// The code that its probes are put into.
    pub code: Vec<Arc<ProbedCode>>,
}

impl PreparedStep {
    /// Whether all that is attached for it is in one process.
    pub fn has_one_process(&self) -> bool {
        let files = self.files.iter().map(|file| file.pid);
        let mut pids = files.chain(self.lines.iter().map(|lines| lines.pid));
        let first = pids.next();
        pids.all(|pid| Some(pid) == first)
    }
}

/// The sites in one file of one process.
pub struct PreparedFile {
    pub pid: u32,
    /// A path that the kernel resolves to the mapped file, whatever its name is by now.
    pub path: PathBuf,
    pub sites: Vec<PreparedSpan>,
}

/// A function or call to be probed.
pub struct PreparedSpan {
    pub site: SiteInfo,
    pub spec: ProbeSpec,
    /// What is shown of each.
    pub shown: Shown,
    pub returning: Returning,
}

/// Of what it can be said what a span returns.
pub enum Returning {
    /// Of the function itself.
    Function,
    /// Of what is called.
    Callee(PreparedCallee),
    /// Of nothing: what an inlined instance returns is wherever the compiler put it.
    Unknown,
}

/// What a call calls.
pub struct PreparedCallee {
    /// Its name as it is shown.
    pub name: String,
    /// Its name as it is linked; empty where that is not known.
    pub symbol: String,
    /// Where it is in the same file, if it is there.
    pub address: Option<u64>,
}

/// The addresses of a line in one file of one process.
pub struct PreparedLines {
    pub pid: u32,
    /// As of [`PreparedFile::path`].
    pub path: PathBuf,
    pub lines: Vec<PreparedLine>,
}

/// A request whose scope parses and whose target may be looked at.
pub struct LookedUp {
    /// Who asks.
    caller: Caller,
    pub scope: Scope,
    /// Processes that there were.
    found: usize,
    /// Those of them that have not ended.
    pub processes: Vec<Process>,
    /// Code that they have mapped, in bytes.
    code: MappedCode,
    warnings: Vec<String>,
}

/// The target's files, with their functions.
pub struct Read {
    pub looked_up: LookedUp,
    /// By process, in the same order.
    pub files: Vec<Vec<TargetFile>>,
    /// What had been counted of the children of processes meanwhile.
    pub children: Vec<ChildrenCount>,
}

/// Parses the scope and finds the target.
pub fn look_up(
    caller: Caller,
    target: &TargetSpec,
    text: &str,
    library: &Library,
) -> Result<LookedUp, SessionError> {
    let scope = scope::parse(text).map_err(|error| scope_refusal(&error))?;
    let missing = missing_capabilities();
    if !missing.is_empty() {
        let names: Vec<&str> = missing.iter().map(|missing| missing.name).collect();
        let wanted: Vec<String> = missing
            .iter()
            .map(|missing| format!("{} ({})", missing.name, missing.purpose))
            .collect();
        let message = format!(
            "missing {}: run as root, or have root run the daemon (docs/service/setup.sh installs it)",
            wanted.join(", "),
        );
        let error = SessionError::new(Reason::CapabilityMissing, message);
        return Err(names
            .into_iter()
            .fold(error, |error, name| error.with("capability", name)));
    }
    authorize_steps(caller, &scope.steps)?;
    let mut warnings = Vec::new();
    let mut processes = Vec::new();
    let pids = pids(caller, target, library)?;
    // Where each has to be there, one that is not is refused as the only one would be.
    let several = match target {
        TargetSpec::Each(_) => Several(1),
        _ => Several(pids.len()),
    };
    let mut found = pids.len();
    for pid in pids {
        // What it runs is told, and opened, for those alone who may look at it.
        let standing = Standing::of(pid);
        if let Ok(standing) = standing
            && let Err(refused) = authorize(caller, pid, &standing)
        {
            tracing::info!(target: "audit", uid = caller.uid, pid, error = %refused, "refused");
            return Err(refused);
        }
        let opened = Process::open(pid).map_err(|error| target_refusal(&error));
        let opened = opened.and_then(|process| {
            authorize_process(caller, &process, library)?;
            Ok(process)
        });
        let Some(process) = several.unless_ended(opened)? else {
            continue;
        };
        if let Some(thread) = process.asked_for_thread() {
            warnings.push(format!(
                "{thread} is a thread of process {}: the whole process is profiled",
                process.pid()
            ));
        }
        if is_among(&process, &processes) {
            found -= 1;
        } else {
            processes.push(process);
        }
    }
    several.require_one(&processes)?;
    let pids: Vec<u32> = processes.iter().map(Process::pid).collect();
    Ok(LookedUp {
        caller,
        scope,
        found,
        code: mapped_code_bytes(&pids),
        processes,
        warnings,
    })
}

/// Whether a process is one of these already: it may be named by several of its threads.
fn is_among(process: &Process, processes: &[Process]) -> bool {
    processes.iter().any(|other| other.pid() == process.pid())
}

/// How many processes a target had when it was looked up. Of several, one that ends before it is attached to is left out: those of
/// a server come and go.
#[derive(Clone, Copy)]
struct Several(usize);

impl Several {
    /// What came of one of them; `None` where it has ended and is not the only one.
    fn unless_ended<T>(self, result: Result<T, SessionError>) -> Result<Option<T>, SessionError> {
        match result {
            Err(error)
                if self.0 > 1 && matches!(error.reason, Reason::TargetGone | Reason::TargetNotFound) =>
            {
                Ok(None)
            }
            result => result.map(Some),
        }
    }

    /// Refuses where none is left.
    fn require_one(self, processes: &[Process]) -> Result<(), SessionError> {
        if processes.is_empty() {
            let message = format!("all {} processes have ended", self.0);
            return Err(SessionError::new(Reason::TargetGone, message));
        }
        Ok(())
    }
}

/// Checks that a caller may look at a process now, and has it in the audit log where not.
fn authorize_process(caller: Caller, process: &Process, library: &Library) -> Result<(), SessionError> {
    authorize_asking(caller, process, library.trace_access()).inspect_err(|error| {
        tracing::info!(target: "audit", uid = caller.uid, pid = process.pid(), %error, "refused");
    })
}

fn pids(caller: Caller, target: &TargetSpec, library: &Library) -> Result<Vec<u32>, SessionError> {
    let pids = match target {
        TargetSpec::Pid(pid) => vec![*pid],
        TargetSpec::Pids(pids) | TargetSpec::Each(pids) => pids.clone(),
        TargetSpec::Recording(_) | TargetSpec::Comparison { .. } => {
            let message = "a recording has only flame graphs and latency";
            return Err(SessionError::new(Reason::ArgumentInvalid, message));
        }
        TargetSpec::Executable(name) => {
            // Looking at itself, the daemon would wait for its own readings. Somebody else's of the same name are left aside.
            let admitted = |pid| pid != std::process::id() && may_look(caller, pid);
            let lines = |processes: &[_]| library.command_lines().of(caller, processes);
            // Folders that are closed to the caller do not say what is in them.
            let reader = caller.reader();
            let resolve = |path: &Path| reader.run(|| Resolved::of(path)).ok();
            let mut pids = target::find_executable(Path::new(name), resolve, admitted, lines)
                .map_err(|error| SessionError::new(Reason::Kernel, format!("reading /proc: {error}")))?;
            // Meanwhile a number may have become another's.
            pids.retain(|pid| may_look(caller, *pid));
            if pids.is_empty() {
                let of_caller = if caller.is_root() { "" } else { " of yours" };
                let message = format!(
                    "no process{of_caller} runs `{name}`: `profiler ps` lists those that can be profiled"
                );
                return Err(SessionError::new(Reason::TargetNotFound, message));
            }
            pids
        }
    };
    if pids.len() > MAX_PROCESSES {
        let how = match target {
            TargetSpec::Each(_) => "are named",
            _ => "match",
        };
        let message = format!(
            "{} processes {how}; at most {MAX_PROCESSES} can be looked at at once",
            pids.len()
        );
        return Err(SessionError::new(Reason::LimitReached, message));
    }
    Ok(pids)
}

impl LookedUp {
    /// Has a scope of nothing but an address mean the calls of the function that begins there: it is to be timed, and an
    /// instruction has no duration.
    pub fn time_last(&mut self) {
        if let [only] = self.scope.steps.as_mut_slice() {
            only.place.call_at_address();
        }
    }

    /// What its steps will be attached to. `captures` says whether anything is shown of the last, and whether it is read.
    pub fn expected(&self, captures: Option<bool>) -> Expected {
        let mut expected = Expected::default();
        let steps = self.scope.steps.iter().rev().enumerate();
        for (number, step) in steps.filter(|(_, step)| !step.place.is_of_kernel()) {
            let captures = captures.filter(|_| number == 0);
            let decides = !step.conditions.is_empty();
            if !step.place.has_spans() {
                expected.read_hits |= decides || captures == Some(true);
            } else if decides || captures.is_some() {
                expected.read_spans = true;
            } else {
                expected.timed_spans = true;
            }
        }
        expected
    }

    /// Reads the symbols of everything that the target has mapped, if any are asked for.
    pub fn read(mut self, library: &Library, allocations: bool) -> Result<Read, SessionError> {
        let mut files = Vec::new();
        if allocations || !self.scope.steps.is_empty() {
            let several = Several(self.processes.len());
            let packages = SharedBudget::default();
            let mut processes = Vec::new();
            for process in self.processes {
                let read = read_process(self.caller, &process, library, &packages);
                // It takes a while: what was read may be of a program that it has begun meanwhile.
                let read = read.and_then(|read| {
                    authorize_process(self.caller, &process, library)?;
                    if process.executable_changed() {
                        // Meanwhile it may have been one that the caller may not look at.
                        let message = format!(
                            "process {} ran another program while it was looked at: try again",
                            process.pid()
                        );
                        return Err(SessionError::new(Reason::TargetGone, message));
                    }
                    Ok(read)
                });
                if let Some(read) = several.unless_ended(read)? {
                    files.push(read);
                    processes.push(process);
                }
            }
            several.require_one(&processes)?;
            self.processes = processes;
        }
        Ok(Read {
            looked_up: self,
            files,
            children: Vec::new(),
        })
    }
}

impl Read {
    /// The files of all processes, each once: most of these run the same ones.
    pub fn each_file(&self) -> Vec<&TargetFile> {
        let mut seen: HashSet<(&str, usize)> = HashSet::new();
        let all = self.files.iter().flatten();
        all.filter(|file| seen.insert((&file.shown, Arc::as_ptr(&file.known).addr())))
            .collect()
    }

    /// Code that the processes had mapped before their files were read.
    pub fn code(&self) -> MappedCode {
        self.looked_up.code.clone()
    }

    /// Processes in which no call is to be seen to end by a return probe, whatever the scope.
    pub fn no_returns_in(&self, ability: Ability, how: &How) -> HashSet<u32> {
        let planner = Planner {
            processes: &self.looked_up.processes,
            files: &self.files,
            ability,
            exit: how.exit_method,
            capture: None,
        };
        planner.without_returns()
    }

    /// Chooses the sites.
    pub fn plan(self, ability: Ability, how: &How) -> Result<Prepared, SessionError> {
        let How {
            exit_method: exit,
            ref capture,
            explain,
            allocations,
        } = *how;
        let capture = capture.as_ref();
        let Self {
            looked_up:
                LookedUp {
                    caller: _,
                    scope,
                    found,
                    processes,
                    code,
                    mut warnings,
                },
            files,
            children: children_before,
        } = self;
        // What is in the calls is looked for in one process: the others of a session run the same file.
        let first = files.first().map_or(&[][..], Vec::as_slice);
        let explained = if explain {
            let subjects = candidates::subjects(first, &scope)?;
            let (capture, features) = candidates::capture(&subjects)?;
            Some((subjects, capture, features))
        } else {
            None
        };
        let capture = explained.as_ref().map(|(_, capture, _)| capture).or(capture);
        let allocators = if allocations {
            allocators::find(&processes, &files, &mut warnings)?
        } else {
            Vec::new()
        };
        let divides_by = capture.and_then(Capture::divides_by);
        if let Some(expression) = divides_by {
            by_value::require_calls(&scope, expression)?;
        }
        let Some(last) = scope.last() else {
            return Ok(Prepared {
                scope,
                text: String::new(),
                found,
                parents: parents(&processes, &[], &allocators),
                processes,
                steps: Vec::new(),
                warnings,
                children_before,
                explain: None,
                allocators,
                code,
                no_returns_in: HashSet::new(),
            });
        };
        if capture.is_none() && scope.steps.len() == 1 {
            require_duration(last)?;
        }
        let planner = Planner {
            processes: &processes,
            files: &files,
            ability,
            exit,
            capture,
        };
        let steps = scope
            .steps
            .iter()
            .enumerate()
            .map(|(number, step)| planner.step(step, scope.steps.get(number + 1), &mut warnings))
            .collect::<Result<Vec<_>, _>>()?;
        let explain = explained.as_ref().map(|(subjects, capture, features)| {
            let only_counted = Planner {
                capture: None,
                ..planner
            };
            candidates::prepare(&only_counted, subjects, capture.clone(), features.clone())
        });
        if let Some(expression) = divides_by {
            planner.require_readable(steps.last(), expression)?;
        }
        require_returns(steps.last())?;
        let parents = parents(&processes, &steps, &allocators);
        let text = scope.to_string();
        let no_returns_in = planner.without_returns();
        Ok(Prepared {
            scope,
            text,
            found,
            processes,
            steps,
            warnings,
            parents,
            children_before,
            explain,
            allocators,
            code,
            no_returns_in,
        })
    }
}

/// The processes that may have children with the probes' breakpoints: none where all probes are the kernel's.
fn parents(processes: &[Process], steps: &[PreparedStep], allocators: &[PreparedAllocator]) -> Vec<Parent> {
    let mut files = steps.iter().flat_map(|step| {
        let spans = step.files.iter().map(|file| &file.path);
        spans.chain(step.lines.iter().map(|file| &file.path))
    });
    if allocators.is_empty() && files.all(|path| path.as_os_str() == kernel_places::MODULE) {
        return Vec::new();
    }
    Parent::all(processes)
}

/// Refuses a step that has no duration.
fn require_duration(step: &Step) -> Result<(), SessionError> {
    if step.place.has_spans() {
        return Ok(());
    }
    Err(SessionError::new(
        Reason::ArgumentInvalid,
        format!(
            "{} is {}, which has no duration: `profiler trace` shows when it is reached",
            step.place,
            step.place.noun()
        ),
    ))
}

/// Refuses `return` where no call returns anything.
fn require_returns(last: Option<&PreparedStep>) -> Result<(), SessionError> {
    let files = last.iter().flat_map(|step| &step.files);
    let mut of_nothing = None;
    for PreparedSpan { site, shown, .. } in files.flat_map(|file| &file.sites) {
        let mut printed = shown
            .printed
            .iter()
            .filter(|printed| printed.known != super::lines::Known::AtOnce);
        match printed.next().map(|printed| &printed.lowered) {
            Some(Err(Refusal::ReturnsNothing)) => of_nothing = Some(&site.function.name),
            _ => return Ok(()),
        }
    }
    match of_nothing {
        Some(function) => Err(SessionError::new(
            Reason::ExpressionRefused,
            format!("{function} returns nothing: leave `return` out"),
        )),
        None => Ok(()),
    }
}
