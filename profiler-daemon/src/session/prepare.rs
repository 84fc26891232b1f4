//! From a scope's text and a target to sites, before anything is attached. All of it may block on files,
//! so none of it runs in the session task.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use profiler_common::instruction::Action;

use super::{
    by_value,
    command::{Caller, Capture, Purpose, TargetSpec},
    error::{Reason, SessionError},
    explain::{PreparedExplain, candidates},
    files::{TargetFile, read_process},
    functions::key,
    library::Library,
    lines::{self, PreparedLine, Shown},
    picture::{ExitMethod, FunctionInfo, SiteInfo},
    refusal::{plan_refusal, target_refusal},
};
use crate::{
    kernel::{Ability, AttachKind, ExitSite, Gates, LookSpec, ProbeSpec, can_be_done, missing_capabilities},
    plan::{
        self, KernelAbility, Limits, ModuleIndex, PlannedFunction,
        calls::CallSite,
        entry::EntryPoint,
        hazards::{Decision, Hazards, Method, exit_method},
        scope::{self, Condition, Name, Place, Scope, Step},
        values::{Refusal, Returns, expression::Root},
    },
    target::{self, Process},
};

/// Processes that one session may look at.
const MAX_PROCESSES: usize = 256;

/// Warnings of one kind that are spelled out.
const MAX_WARNINGS: usize = 5;

/// Hits recorded in a second at each place, where nobody said how many.
const HITS_PER_SECOND: u32 = 1_000;

/// A scope that can be attached.
pub struct Prepared {
    pub scope: Scope,
    /// Canonical text.
    pub text: String,
    pub processes: Vec<Process>,
    pub steps: Vec<PreparedStep>,
    pub warnings: Vec<String>,
    /// What is looked at to tell slow calls of the last step from others.
    pub explain: Option<PreparedExplain>,
}

/// The sites of one step.
pub struct PreparedStep {
    pub step: Step,
    /// Of its spans.
    pub files: Vec<PreparedFile>,
    /// Of its lines.
    pub lines: Vec<PreparedLines>,
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
    /// Of a call, the name of what is called, and where that is in the same file.
    pub callee: Option<(String, Option<u64>)>,
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
    pub scope: Scope,
    pub processes: Vec<Process>,
    warnings: Vec<String>,
}

/// The target's files, with their functions.
pub struct Read {
    pub looked_up: LookedUp,
    /// By process, in the same order.
    pub files: Vec<Vec<TargetFile>>,
}

/// Parses the scope and finds the target.
pub fn look_up(caller: Caller, target: &TargetSpec, text: &str) -> Result<LookedUp, SessionError> {
    let scope = scope::parse(text).map_err(|error| {
        SessionError::new(Reason::ScopeInvalid, error.message.clone())
            .with("scope", error.text.clone())
            .with("offset", error.offset.to_string())
    })?;
    let missing = missing_capabilities();
    if !missing.is_empty() {
        let names: Vec<&str> = missing.iter().map(|missing| missing.name).collect();
        let wanted: Vec<String> = missing
            .iter()
            .map(|missing| format!("{} ({})", missing.name, missing.purpose))
            .collect();
        let program = std::env::current_exe().unwrap_or_else(|_| "PROGRAM".into());
        let message = format!(
            "missing {}: run as root, or once as root `setcap {}+ep {}`",
            wanted.join(", "),
            names.join(",").to_lowercase(),
            program.display(),
        );
        let error = SessionError::new(Reason::CapabilityMissing, message);
        return Err(names
            .into_iter()
            .fold(error, |error, name| error.with("capability", name)));
    }
    let mut warnings = Vec::new();
    let mut processes = Vec::new();
    for pid in pids(target)? {
        let process = Process::open(pid).map_err(|error| target_refusal(&error))?;
        authorise(caller, &process)?;
        if let Some(thread) = process.asked_for_thread() {
            warnings.push(format!(
                "{thread} is a thread of process {}: all of the process is looked at",
                process.pid()
            ));
        }
        processes.push(process);
    }
    Ok(LookedUp {
        scope,
        processes,
        warnings,
    })
}

fn pids(target: &TargetSpec) -> Result<Vec<u32>, SessionError> {
    let pids = match target {
        TargetSpec::Pid(pid) => vec![*pid],
        TargetSpec::Pids(pids) => pids.clone(),
        TargetSpec::Executable(name) => {
            let mut pids = target::find_executable(Path::new(name))
                .map_err(|error| SessionError::new(Reason::Kernel, format!("reading /proc: {error}")))?;
            // Looking at itself, the daemon would wait for its own readings.
            pids.retain(|pid| *pid != std::process::id());
            if pids.is_empty() {
                let message =
                    format!("no process runs `{name}`: `profiler ps` lists those that can be profiled");
                return Err(SessionError::new(Reason::TargetNotFound, message));
            }
            pids
        }
    };
    if pids.len() > MAX_PROCESSES {
        let message = format!(
            "{} processes match; at most {MAX_PROCESSES} can be looked at at once",
            pids.len()
        );
        return Err(SessionError::new(Reason::LimitReached, message));
    }
    Ok(pids)
}

/// Checks that a caller may look at a process: root, or the one user that it runs as.
///
/// # Errors
/// Where it may not, or the process is gone.
pub fn authorise(caller: Caller, process: &Process) -> Result<(), SessionError> {
    let uids = process.uids_now().map_err(|error| target_refusal(&error))?;
    if caller.uid == 0 || uids.all_are(caller.uid) {
        return Ok(());
    }
    let message = format!(
        "process {} belongs to user {}, you are user {}: ask its owner or root",
        process.pid(),
        uids.real,
        caller.uid
    );
    Err(SessionError::new(Reason::PermissionDenied, message).with("role", "owner"))
}

impl LookedUp {
    /// Reads the symbols of everything that the target has mapped.
    pub fn read(self, library: &Library) -> Result<Read, SessionError> {
        let mut files = Vec::new();
        if !self.scope.steps.is_empty() {
            for process in &self.processes {
                files.push(read_process(process, library)?);
            }
        }
        Ok(Read {
            looked_up: self,
            files,
        })
    }
}

impl Read {
    /// Chooses the sites.
    pub fn plan(
        self,
        ability: Ability,
        exit: Option<ExitMethod>,
        capture: Option<&Capture>,
        explain: bool,
    ) -> Result<Prepared, SessionError> {
        let Self {
            looked_up:
                LookedUp {
                    scope,
                    processes,
                    mut warnings,
                },
            files,
        } = self;
        // What is in the calls is looked for in one process: the others of a session run the same file.
        let first = files.first().map_or(&[][..], Vec::as_slice);
        let explained = if explain {
            let (subjects, too_many) = candidates::subjects(first, &scope)?;
            let (capture, features) = candidates::capture(&subjects)?;
            Some(((subjects, too_many), capture, features))
        } else {
            None
        };
        let capture = explained.as_ref().map(|(_, capture, _)| capture).or(capture);
        let divides_by = capture.and_then(Capture::divides_by);
        if let Some(expression) = divides_by {
            by_value::require_calls(&scope, expression)?;
        }
        let Some(last) = scope.last() else {
            return Ok(Prepared {
                scope,
                text: String::new(),
                processes,
                steps: Vec::new(),
                warnings,
                explain: None,
            });
        };
        if !last.place.has_spans() && capture.is_none() && scope.steps.len() == 1 {
            return Err(SessionError::new(
                Reason::ArgumentInvalid,
                format!(
                    "{} is {}, which has no duration: `profiler trace` shows when it is reached",
                    last.place,
                    last.place.noun()
                ),
            ));
        }
        if let Some(refused) = condition_on_return(&scope, capture) {
            return Err(refused);
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
            .map(|step| planner.step(step, &mut warnings))
            .collect::<Result<Vec<_>, _>>()?;
        let explain = explained
            .as_ref()
            .map(|((subjects, too_many), capture, features)| {
                let only_counted = Planner {
                    capture: None,
                    ..planner
                };
                candidates::prepare(
                    &only_counted,
                    (subjects, *too_many),
                    capture.clone(),
                    features.clone(),
                )
            });
        if let Some(expression) = divides_by {
            by_value::require_readable(steps.last(), expression)?;
        }
        require_returns(steps.last())?;
        let text = scope.to_string();
        Ok(Prepared {
            scope,
            text,
            processes,
            steps,
            warnings,
            explain,
        })
    }
}

/// Why a condition on what a call returns cannot be asked for, if it cannot: that is known when the call has ended, and
/// decides only what is shown.
fn condition_on_return(scope: &Scope, capture: Option<&Capture>) -> Option<SessionError> {
    let asks = |step: &Step| {
        let mut conditions = step.conditions.iter();
        step.place.has_spans() && conditions.any(|condition| condition.expression.root == Root::Return)
    };
    let asking = scope.steps.iter().position(asks)?;
    let message = if asking + 1 < scope.steps.len() {
        "what a call returns can be asked for at the last step only"
    } else if capture.is_none_or(|capture| capture.purpose != Purpose::Shown) {
        "what a call returns can be asked for by `trace`, and where a session records calls for it"
    } else {
        return None;
    };
    Some(SessionError::new(Reason::ArgumentInvalid, message))
}

/// Refuses `return` where no call returns anything.
fn require_returns(last: Option<&PreparedStep>) -> Result<(), SessionError> {
    let files = last.iter().flat_map(|step| &step.files);
    let mut of_nothing = None;
    for PreparedSpan { site, shown, .. } in files.flat_map(|file| &file.sites) {
        let mut printed = shown.printed.iter().filter(|printed| printed.is_returned);
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

/// What all steps are planned with.
pub(super) struct Planner<'a> {
    processes: &'a [Process],
    files: &'a [Vec<TargetFile>],
    ability: Ability,
    exit: Option<ExitMethod>,
    capture: Option<&'a Capture>,
}

impl Planner<'_> {
    /// Chooses the sites of a step.
    pub(super) fn step(&self, step: &Step, warnings: &mut Vec<String>) -> Result<PreparedStep, SessionError> {
        let mut prepared = PreparedStep {
            step: step.clone(),
            files: Vec::new(),
            lines: Vec::new(),
        };
        match &step.place {
            Place::Function(name) => {
                prepared.files = self.functions(name, &step.conditions, warnings)?;
            }
            Place::Line { file, line } => {
                prepared.lines = self
                    .each(|files, capture| lines::plan_all(files, file, *line, &step.conditions, capture))?;
            }
            Place::Branch { file, line, taken } => {
                prepared.lines = self.each(|files, capture| {
                    lines::plan_branches(files, (file, *line, *taken), &step.conditions, capture)
                })?;
            }
            Place::Address { module, address } => {
                prepared.lines = self.each(|files, capture| {
                    lines::plan_address(files, (module, *address), &step.conditions, capture)
                })?;
            }
            Place::Call { callee, file, line } => {
                prepared.files = self.calls(step, callee, (file, *line), warnings)?;
            }
        }
        warn_of_lines(warnings, &step.place, &prepared.lines);
        Ok(prepared)
    }

    /// Plans hits in the files of each process.
    fn each<'a>(
        &'a self,
        plan: impl Fn(
            &'a [TargetFile],
            &Capture,
        ) -> Result<Vec<(&'a TargetFile, Vec<PreparedLine>)>, SessionError>,
    ) -> Result<Vec<PreparedLines>, SessionError> {
        let only_counted = Capture {
            print: Vec::new(),
            // Of those who ask for hits later.
            hits_per_second: HITS_PER_SECOND,
            stack: false,
            purpose: Purpose::default(),
        };
        let capture = self.capture.unwrap_or(&only_counted);
        let mut lines = Vec::new();
        for (process, files) in self.processes.iter().zip(self.files) {
            lines.extend(plan(files, capture)?.into_iter().map(|(file, mut lines)| {
                for line in &mut lines {
                    line.find_cost(file, self.kernel());
                }
                PreparedLines {
                    pid: process.pid(),
                    path: file.path.clone(),
                    lines,
                }
            }));
        }
        Ok(lines)
    }

    /// The calls that are made at a line: each begins at the call and ends at the instruction behind.
    fn calls(
        &self,
        step: &Step,
        callee: &Name,
        (file, line): (&str, u32),
        warnings: &mut Vec<String>,
    ) -> Result<Vec<PreparedFile>, SessionError> {
        if self.ability.attach == AttachKind::Perf {
            return Err(SessionError::new(
                Reason::FunctionNotProbeable,
                format!(
                    "{}: calls made at a line are not seen to end before Linux 6.10",
                    step.place
                ),
            ));
        }
        let mut prepared = Vec::new();
        for (process, files) in self.processes.iter().zip(self.files) {
            let decision = self.decision(process, files);
            for (file, calls) in lines::plan_calls(files, (file, line), callee)? {
                for left_out in &calls.left_out {
                    warn_once(
                        warnings,
                        format!(
                            "the call in {} at {:#x} is not probed: {}",
                            left_out.function, left_out.address, left_out.reason
                        ),
                    );
                }
                let mut sites: Vec<_> = calls
                    .sites
                    .iter()
                    .filter_map(|call| call_site(file, &decision, self.kernel(), &step.place, call))
                    .collect();
                self.look(file, &step.conditions, &mut sites)?;
                if !sites.is_empty() {
                    prepared.push(PreparedFile {
                        pid: process.pid(),
                        path: file.path.clone(),
                        sites,
                    });
                }
            }
        }
        if prepared.is_empty() {
            return Err(SessionError::new(
                Reason::FunctionNotProbeable,
                format!("{}: no such call returns to where it was made", step.place),
            ));
        }
        Ok(prepared)
    }

    /// How the ends of a process's calls are seen.
    fn decision(&self, process: &Process, files: &[TargetFile]) -> Decision {
        let chosen = self.exit.map(|method| match method {
            ExitMethod::Return => Method::Return,
            ExitMethod::Ret => Method::Ret,
        });
        let hazards = Hazards::of(
            files
                .iter()
                .map(|file| (file.shown.as_str(), &file.known.hazards)),
        );
        exit_method(&hazards, self.kernel(), has_shadow_stack(process), chosen)
    }

    fn kernel(&self) -> KernelAbility {
        KernelAbility {
            write_context: self.ability.write_context,
            long_nops: self.ability.long_nops,
        }
    }

    /// Whether anything is looked at where spans begin: a condition, a value, or that they begin.
    fn looks(&self, conditions: &[Condition]) -> bool {
        self.capture.is_some() || !conditions.is_empty()
    }

    /// Says what is looked at where spans begin, if anything is.
    fn look(
        &self,
        file: &TargetFile,
        conditions: &[Condition],
        sites: &mut [PreparedSpan],
    ) -> Result<(), SessionError> {
        if !self.looks(conditions) {
            return Ok(());
        }
        let prints = self.capture.is_some_and(|capture| !capture.print.is_empty());
        if !prints && conditions.is_empty() {
            for PreparedSpan { spec, .. } in sites {
                spec.look = Some(LookSpec {
                    interval_ns: self.capture.map_or(0, lines::interval_ns),
                    stack: self.capture.is_some_and(|capture| capture.stack),
                    ..LookSpec::default()
                });
            }
            return Ok(());
        }
        let sections = lines::sections(file)?;
        let debug = lines::debug(file, &sections);
        for PreparedSpan {
            site,
            spec,
            shown,
            callee,
        } in sites
        {
            let address = site.function.address + u64::from(site.entry_offset);
            let what = &site.function.name;
            let returns = match callee {
                Some((name, address)) => Returns::OfCallee {
                    name,
                    address: *address,
                },
                None => Returns::OfFunction,
            };
            let at = (address, returns);
            let look = lines::look_at(file, &debug, at, what, conditions, self.capture)?;
            spec.look = Some(look.spec);
            *shown = look.shown;
        }
        Ok(())
    }

    fn functions(
        &self,
        name: &Name,
        conditions: &[Condition],
        warnings: &mut Vec<String>,
    ) -> Result<Vec<PreparedFile>, SessionError> {
        let mut prepared = Vec::new();
        for (process, files) in self.processes.iter().zip(self.files) {
            let (kernel, decision) = (self.kernel(), self.decision(process, files));
            let modules: Vec<&ModuleIndex> = files.iter().map(|file| &file.known.index).collect();
            let plan = plan::plan(name, &modules, &decision, kernel, Limits::default())
                .map_err(|error| plan_refusal(process, files, name, error))?;
            warn(warnings, &decision, &plan);
            let looks = self.looks(conditions);
            for (file, mut of_file) in by_file(process.pid(), files, &decision, looks, plan.functions) {
                self.look(file, conditions, &mut of_file.sites)?;
                prepared.push(of_file);
            }
        }
        warn_of_entries(warnings, self.looks(conditions), &prepared);
        Ok(prepared)
    }
}

/// One call, and how it is timed; `None` where it never returns.
fn call_site(
    file: &TargetFile,
    decision: &Decision,
    kernel: KernelAbility,
    place: &Place,
    call: &CallSite,
) -> Option<PreparedSpan> {
    let behind = call.behind.as_ref()?;
    let behind_action = at_address(file, behind.file_offset, behind.action);
    let info = FunctionInfo {
        name: place.to_string(),
        module: file.shown.clone(),
        address: call.call.address,
        size: call.call.length.into(),
        ..FunctionInfo::default()
    };
    let site = SiteInfo {
        function: Arc::new(info),
        entry_offset: 0,
        entry_instruction: call.call.mnemonic.clone(),
        exit_method: ExitMethod::Ret,
        exits: 1,
        entry_single_stepped: call.call.is_single_stepped(kernel),
        exit_single_stepped: behind.is_single_stepped(kernel)
            && !(decision.done_by_program && can_be_done(&behind_action)),
    };
    let spec = ProbeSpec {
        entry_offset: call.call.file_offset,
        entry_action: Action::LEAVE,
        exits: vec![ExitSite {
            offset: behind.file_offset,
            action: behind_action,
            may_stay_inside: false,
            is_jump: false,
        }],
        done_by_program: decision.done_by_program,
        stacks_switch: decision.stacks_switch,
        gates: Gates::default(),
        look: None,
        call_length: Some(call.call.length),
    };
    Some(PreparedSpan {
        site,
        spec,
        shown: Shown::default(),
        callee: Some((call.callee.clone(), call.callee_address)),
    })
}

fn warn_once(warnings: &mut Vec<String>, warning: String) {
    if !warnings.contains(&warning) {
        warnings.push(warning);
    }
}

fn warn(warnings: &mut Vec<String>, decision: &Decision, plan: &plan::Plan) {
    let mut add = |warning: String| warn_once(warnings, warning);
    for warning in &decision.warnings {
        add(warning.clone());
    }
    for skipped in plan.skipped.iter().take(MAX_WARNINGS) {
        add(format!("{} is not probed: {}", skipped.name, skipped.reason));
    }
    if plan.skipped.len() > MAX_WARNINGS {
        add(format!(
            "{} more functions are not probed",
            plan.skipped.len() - MAX_WARNINGS
        ));
    }
}

/// Names the cost of entries that the kernel has to single-step, for what is attached at them.
fn warn_of_entries(warnings: &mut Vec<String>, looks: bool, prepared: &[PreparedFile]) {
    let sites = prepared.iter().flat_map(|file| &file.sites);
    let stepped: Vec<&PreparedSpan> = sites.filter(|span| span.site.entry_single_stepped).collect();
    let Some(PreparedSpan { site, spec, .. }) = stepped.first() else {
        return;
    };
    // A function is in several processes, or files.
    let mut functions: Vec<_> = stepped.iter().map(|span| key(&span.site.function)).collect();
    functions.sort_unstable();
    functions.dedup();
    let others = match functions.len() {
        1 => String::new(),
        count => format!(" and of {} more", count - 1),
    };
    // Where the programs do instructions themselves, they do not where they have more to do.
    let why = if looks && spec.done_by_program {
        ", as it is looked at there"
    } else {
        ""
    };
    warn_once(
        warnings,
        format!(
            "the entry of {}{others} ({}) is single-stepped by the kernel{why}: a call costs about ten times as much",
            site.function.name, site.entry_instruction
        ),
    );
}

/// Names the cost of the places of a step that the kernel has to single-step.
fn warn_of_lines(warnings: &mut Vec<String>, place: &Place, prepared: &[PreparedLines]) {
    let lines = || prepared.iter().flat_map(|file| &file.lines);
    let mut stepped = lines().filter_map(|line| line.single_stepped.as_deref());
    let Some(mnemonic) = stepped.next() else { return };
    let of = match (1 + stepped.count(), lines().count()) {
        (_, 1) => String::new(),
        (stepped, all) => format!(" at {stepped} of {all} addresses"),
    };
    warn_once(
        warnings,
        format!(
            "{place} ({mnemonic}) is single-stepped by the kernel{of}: reaching it costs about ten times as much"
        ),
    );
}

/// Who does the instruction that a call's entry is probed at, and so what that costs.
struct EntryDecision {
    /// The instruction, if the program does it.
    action: Action,
    /// The kernel has to single-step it.
    single_stepped: bool,
}

impl EntryDecision {
    /// `looks` says that more is done there than to take the time: the program leaves the instruction to the kernel then.
    fn of(entry: &EntryPoint, action: Action, done_by_program: bool, looks: bool) -> Self {
        let by_program = done_by_program && !looks && can_be_done(&action);
        Self {
            action: if by_program { action } else { Action::LEAVE },
            single_stepped: entry.single_stepped && !by_program,
        }
    }
}

/// Groups planned functions by the file that they are in.
fn by_file<'f>(
    pid: u32,
    files: &'f [TargetFile],
    decision: &Decision,
    looks: bool,
    functions: Vec<PlannedFunction>,
) -> impl Iterator<Item = (&'f TargetFile, PreparedFile)> {
    let mut prepared: Vec<PreparedFile> = files
        .iter()
        .map(|file| PreparedFile {
            pid,
            path: file.path.clone(),
            sites: Vec::new(),
        })
        .collect();
    for function in functions {
        let (Some(file), Some(into)) = (files.get(function.module), prepared.get_mut(function.module)) else {
            continue;
        };
        into.sites.push(site(file, decision, looks, function));
    }
    files
        .iter()
        .zip(prepared)
        .filter(|(_, prepared)| !prepared.sites.is_empty())
}

fn site(file: &TargetFile, decision: &Decision, looks: bool, function: PlannedFunction) -> PreparedSpan {
    let exit_method = match function.method {
        Method::Return => ExitMethod::Return,
        Method::Ret => ExitMethod::Ret,
    };
    let action = at_address(file, function.entry_offset, function.entry.action);
    let entry = EntryDecision::of(&function.entry, action, decision.done_by_program, looks);
    let info = FunctionInfo {
        name: function.name,
        linkage_name: function.linkage_name,
        module: file.shown.clone(),
        address: function.address,
        size: function.size,
        ..FunctionInfo::default()
    };
    let site = SiteInfo {
        function: Arc::new(info),
        entry_offset: u32::try_from(function.entry.delta).unwrap_or(u32::MAX),
        entry_instruction: function.entry.mnemonic,
        exit_method,
        exits: u32::try_from(function.exits.len().max(1)).unwrap_or(u32::MAX),
        entry_single_stepped: entry.single_stepped,
        exit_single_stepped: exit_method == ExitMethod::Ret && !decision.done_by_program,
    };
    let exits = function
        .exits
        .iter()
        .map(|exit| ExitSite {
            offset: exit.file_offset,
            action: at_address(file, exit.file_offset, exit.action),
            may_stay_inside: exit.may_stay_inside,
            is_jump: exit.is_jump,
        })
        .collect();
    let spec = ProbeSpec {
        entry_offset: function.entry_offset,
        entry_action: entry.action,
        exits,
        done_by_program: decision.done_by_program,
        stacks_switch: decision.stacks_switch,
        gates: Gates::default(),
        look: None,
        call_length: None,
    };
    PreparedSpan {
        site,
        spec,
        shown: Shown::default(),
        callee: None,
    }
}

/// Says where in the target an action's instruction lies. A file that is mapped twice leaves that open, and
/// the instruction to the kernel.
fn at_address(file: &TargetFile, file_offset: u64, action: Action) -> Action {
    let mut addresses = file.module.addresses_of(file_offset);
    let address = match (addresses.next(), addresses.next()) {
        (Some(address), None) => address,
        _ => 0,
    };
    Action { address, ..action }
}

/// Whether a thread of the process has a user shadow stack (`x86_Thread_features` of its status).
fn has_shadow_stack(process: &Process) -> bool {
    let path = format!("/proc/{}/status", process.pid());
    std::fs::read_to_string(path).is_ok_and(|status| {
        status.lines().any(|line| {
            line.strip_prefix("x86_Thread_features:")
                .is_some_and(|on| on.contains("shstk"))
        })
    })
}

#[cfg(test)]
mod tests {
    use profiler_common::instruction::Operation;

    use super::*;

    fn entry(single_stepped: bool) -> EntryPoint {
        EntryPoint {
            delta: 0,
            mnemonic: "mov".into(),
            single_stepped,
            action: skip(0),
        }
    }

    fn skip(address: u64) -> Action {
        Action {
            operation: Operation::Skip as u8,
            address,
            ..Action::LEAVE
        }
    }

    #[test]
    fn an_entry_costs_what_is_attached_there() {
        let cost = |stepped, action, by_program, looks| {
            let decision = EntryDecision::of(&entry(stepped), action, by_program, looks);
            (decision.action == action, decision.single_stepped)
        };
        let known = skip(0x1000);
        assert_eq!(cost(true, known, true, false), (true, false));
        assert_eq!(cost(true, known, false, false), (false, true));
        // What is read or recorded there leaves the instruction to the kernel.
        assert_eq!(cost(true, known, true, true), (false, true));
        assert_eq!(cost(false, known, true, true), (false, false));
        // So does a file that is mapped twice.
        assert_eq!(cost(true, skip(0), true, false), (false, true));
        assert_eq!(cost(true, Action::LEAVE, true, false), (true, true));
    }
}
