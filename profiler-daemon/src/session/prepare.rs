//! From a scope's text and a target to sites, before anything is attached. All of it may block on files,
//! so none of it runs in the session task.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use profiler_common::instruction::Action;

use super::{
    command::{Caller, TargetSpec},
    error::{Reason, SessionError},
    files::{Cache, TargetFile, read_process},
    picture::{ExitMethod, FunctionInfo, SiteInfo},
    refusal::{plan_refusal, target_refusal},
};
use crate::{
    kernel::{Ability, ExitSite, ProbeSpec, missing_capabilities},
    plan::{
        self, KernelAbility, Limits, ModuleIndex, PlannedFunction,
        hazards::{Decision, Hazards, Method, exit_method},
        scope::{self, Scope},
    },
    target::{self, Process},
};

/// Processes that one session may look at.
const MAX_PROCESSES: usize = 256;

/// Warnings of one kind that are spelled out.
const MAX_WARNINGS: usize = 5;

/// A scope that can be attached.
pub struct Prepared {
    pub scope: Scope,
    /// Canonical text.
    pub text: String,
    pub processes: Vec<Process>,
    pub files: Vec<PreparedFile>,
    pub warnings: Vec<String>,
}

/// The sites in one file of one process.
pub struct PreparedFile {
    pub pid: u32,
    /// A path that the kernel resolves to the mapped file, whatever its name is by now.
    pub path: PathBuf,
    pub sites: Vec<(SiteInfo, ProbeSpec)>,
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
    pub fn read(self) -> Result<Read, SessionError> {
        let mut cache = Cache::new();
        let mut files = Vec::new();
        if self.scope.step.is_some() {
            for process in &self.processes {
                files.push(read_process(process, &mut cache)?);
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
    pub fn plan(self, ability: Ability, exit: Option<ExitMethod>) -> Result<Prepared, SessionError> {
        let Self {
            looked_up:
                LookedUp {
                    scope,
                    processes,
                    mut warnings,
                },
            files,
        } = self;
        let mut prepared = Vec::new();
        if let Some(step) = &scope.step {
            for (process, files) in processes.iter().zip(&files) {
                let chosen = exit.map(|method| match method {
                    ExitMethod::Return => Method::Return,
                    ExitMethod::Ret => Method::Ret,
                });
                let hazards = Hazards::of(
                    files
                        .iter()
                        .map(|file| (file.shown.as_str(), &file.known.hazards)),
                );
                let kernel = KernelAbility {
                    write_context: ability.write_context,
                    long_nops: ability.long_nops,
                };
                let decision = exit_method(&hazards, kernel, has_shadow_stack(process), chosen);
                let modules: Vec<&ModuleIndex> = files.iter().map(|file| &file.known.index).collect();
                let plan = plan::plan(&step.place, &modules, &decision, kernel, Limits::default())
                    .map_err(|error| plan_refusal(process, files, &step.place, error))?;
                warn(&mut warnings, &decision, &plan);
                prepared.extend(by_file(process.pid(), files, &decision, plan.functions));
            }
        }
        let text = scope.to_string();
        Ok(Prepared {
            scope,
            text,
            processes,
            files: prepared,
            warnings,
        })
    }
}

fn warn(warnings: &mut Vec<String>, decision: &Decision, plan: &plan::Plan) {
    let mut add = |warning: String| {
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
    };
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
    let stepped: Vec<&PlannedFunction> = plan
        .functions
        .iter()
        .filter(|function| entry_single_stepped(function, decision))
        .collect();
    if let Some(first) = stepped.first() {
        let others = match stepped.len() {
            1 => String::new(),
            count => format!(" and of {} more", count - 1),
        };
        add(format!(
            "the entry of {}{others} ({}) is single-stepped by the kernel: a call costs about ten times as much",
            first.name, first.entry.mnemonic
        ));
    }
}

fn entry_single_stepped(function: &PlannedFunction, decision: &Decision) -> bool {
    function.entry.single_stepped && !(decision.done_by_program && function.entry.action != Action::LEAVE)
}

/// Groups planned functions by the file that they are in.
fn by_file(
    pid: u32,
    files: &[TargetFile],
    decision: &Decision,
    functions: Vec<PlannedFunction>,
) -> impl Iterator<Item = PreparedFile> {
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
        into.sites.push(site(file, decision, function));
    }
    prepared.into_iter().filter(|file| !file.sites.is_empty())
}

fn site(file: &TargetFile, decision: &Decision, function: PlannedFunction) -> (SiteInfo, ProbeSpec) {
    let exit_method = match function.method {
        Method::Return => ExitMethod::Return,
        Method::Ret => ExitMethod::Ret,
    };
    let entry_single_stepped = entry_single_stepped(&function, decision);
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
        entry_single_stepped,
        exit_single_stepped: exit_method == ExitMethod::Ret && !decision.done_by_program,
    };
    let exits = function
        .exits
        .iter()
        .map(|exit| ExitSite {
            offset: exit.file_offset,
            action: at_address(file, exit.file_offset, exit.action),
            may_stay_inside: exit.may_stay_inside,
        })
        .collect();
    let spec = ProbeSpec {
        entry_offset: function.entry_offset,
        entry_action: at_address(file, function.entry_offset, function.entry.action),
        exits,
        done_by_program: decision.done_by_program,
        stacks_switch: decision.stacks_switch,
    };
    (site, spec)
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
