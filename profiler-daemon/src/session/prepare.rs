//! From a scope's text and a target to sites, before anything is attached. All of it may block on files,
//! so none of it runs in the session task.

use std::{
    collections::HashMap,
    fs::File,
    path::{Path, PathBuf},
    sync::Arc,
};

use memmap2::Mmap;

use super::{
    command::{Caller, TargetSpec},
    error::{Reason, SessionError},
    picture::{ExitMethod, FunctionInfo, SiteInfo},
};
use crate::{
    kernel::{Ability, ExitSite, KernelError, ProbeSpec, missing_capabilities},
    plan::{
        self, Limits, ModuleIndex, PlanError, PlannedFunction,
        elf::Bytes,
        hazards::{Decision, Hazards, KernelAbility, Method, ModuleHazards, exit_method},
        scope::{self, Scope},
    },
    target::{self, Process, TargetError},
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
    scope: Scope,
    processes: Vec<Process>,
    warnings: Vec<String>,
}

/// The target's files, with their functions.
pub struct Read {
    looked_up: LookedUp,
    /// By process, in the same order.
    files: Vec<Vec<TargetFile>>,
}

/// A file that a process has mapped.
struct TargetFile {
    shown: String,
    path: PathBuf,
    known: Arc<KnownFile>,
}

/// What a file says of itself, whoever maps it.
struct KnownFile {
    index: ModuleIndex,
    hazards: ModuleHazards,
}

/// Parses the scope and finds the target.
pub fn look_up(caller: Caller, target: &TargetSpec, text: &str) -> Result<LookedUp, SessionError> {
    let scope = scope::parse(text).map_err(|error| {
        SessionError::new(Reason::ScopeInvalid, error.message.clone())
            .with("scope", error.text.clone())
            .with("offset", error.offset.to_string())
    })?;
    let missing = missing_capabilities();
    if let Some(first) = missing.first() {
        let names: Vec<&str> = missing.iter().map(|missing| missing.name).collect();
        let message = format!(
            "{} is missing ({}): run as root, or grant it with `setcap {}+ep`",
            names.join(", "),
            first.purpose,
            names.join(",").to_lowercase(),
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
        let mut cache: HashMap<((u32, u32), u64), Arc<KnownFile>> = HashMap::new();
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

fn read_process(
    process: &Process,
    cache: &mut HashMap<((u32, u32), u64), Arc<KnownFile>>,
) -> Result<Vec<TargetFile>, SessionError> {
    let pid = process.pid();
    let mappings =
        target::executable_mappings(pid).map_err(|error| gone_or(process, "reading its maps", &error))?;
    let mut files = Vec::new();
    for module in target::modules(&mappings) {
        let shown = module.path.display().to_string();
        let opened = module.open(pid).and_then(|(file, path)| {
            let key = (module.device, module.inode);
            if let Some(known) = cache.get(&key) {
                return Ok((Some(Arc::clone(known)), path));
            }
            let known = know(&shown, &file)?.map(Arc::new);
            if let Some(known) = &known {
                cache.insert(key, Arc::clone(known));
            }
            Ok((known, path))
        });
        match opened {
            Ok((Some(known), path)) => files.push(TargetFile { shown, path, known }),
            // Mapped executable, but no ELF file that could hold a function.
            Ok((None, _)) => {}
            Err(error) => tracing::warn!(pid, module = shown, %error, "mapped file cannot be read"),
        }
    }
    if files.is_empty() {
        return Err(SessionError::new(
            Reason::TargetGone,
            format!("process {pid} has no readable executable mapped"),
        ));
    }
    Ok(files)
}

fn know(shown: &str, file: &File) -> std::io::Result<Option<KnownFile>> {
    // SAFETY: the map is private and read-only. A file that is cut short while mapped raises SIGBUS; the
    // executables and libraries of running programs are replaced by renaming, as writing to them in
    // place would break the programs themselves.
    let map: Mmap = unsafe { Mmap::map(file)? };
    let bytes: Bytes = Arc::new(map);
    let hazards = ModuleHazards::scan(shown, (*bytes).as_ref());
    let index = ModuleIndex::new(Arc::clone(&bytes));
    match (index, hazards) {
        (Ok(index), Ok(hazards)) => Ok(Some(KnownFile { index, hazards })),
        (Err(error), _) | (_, Err(error)) => {
            tracing::debug!(module = shown, %error, "not indexed");
            Ok(None)
        }
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
                    .map_err(|error| plan_refusal(process, files, error))?;
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
    use profiler_common::instruction::Action;
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
            action: exit.action,
            may_stay_inside: exit.may_stay_inside,
        })
        .collect();
    let spec = ProbeSpec {
        entry_offset: function.entry_offset,
        entry_action: function.entry.action,
        exits,
        done_by_program: decision.done_by_program,
        stacks_switch: decision.stacks_switch,
    };
    (site, spec)
}

/// The functions of a process, or those of a name or glob; nothing is attached.
///
/// # Errors
/// Where the pattern is no name, the target may not be looked at, or nothing matches.
pub fn list_functions(
    caller: Caller,
    target: &TargetSpec,
    pattern: &str,
) -> Result<Vec<FunctionInfo>, SessionError> {
    let everything = pattern.is_empty();
    let read = look_up(caller, target, if everything { "*" } else { pattern })?.read()?;
    let Some(step) = &read.looked_up.scope.step else {
        return Ok(Vec::new());
    };
    let (Some(process), Some(files)) = (read.looked_up.processes.first(), read.files.first()) else {
        return Ok(Vec::new());
    };
    let mut listed = Vec::new();
    for file in files {
        let index = &file.known.index;
        for (at, _) in index.matching(&step.place) {
            let function = index.function(at);
            listed.push(FunctionInfo {
                name: function.name().into_owned(),
                linkage_name: function.linkage_name().into_owned(),
                module: file.shown.clone(),
                address: function.address(),
                size: function.size(),
                ..FunctionInfo::default()
            });
        }
    }
    if listed.is_empty() && !everything {
        let modules: Vec<&ModuleIndex> = files.iter().map(|file| &file.known.index).collect();
        let decision = exit_method(&Hazards::default(), KernelAbility::default(), false, None);
        let planned = plan::plan(
            &step.place,
            &modules,
            &decision,
            KernelAbility::default(),
            Limits::default(),
        );
        if let Err(error) = planned {
            return Err(plan_refusal(process, files, error));
        }
    }
    Ok(listed)
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

fn target_refusal(error: &TargetError) -> SessionError {
    let reason = match error {
        TargetError::NotFound(_) => Reason::TargetNotFound,
        TargetError::Ended(_) => Reason::TargetGone,
        TargetError::KernelThread { .. } => Reason::TargetIsKernelThread,
        TargetError::Is32Bit(_) | TargetError::OtherMachine { .. } => Reason::TargetIs32Bit,
        TargetError::NotPermitted { .. } => Reason::PermissionDenied,
        TargetError::System { .. } => Reason::Kernel,
    };
    SessionError::new(reason, error.to_string())
}

fn gone_or(process: &Process, what: &str, error: &std::io::Error) -> SessionError {
    if process.is_alive() {
        SessionError::new(
            Reason::PermissionDenied,
            format!("process {}: {what}: {error}", process.pid()),
        )
    } else {
        SessionError::new(Reason::TargetGone, format!("process {} has ended", process.pid()))
    }
}

fn plan_refusal(process: &Process, files: &[TargetFile], error: PlanError) -> SessionError {
    let message = error.to_string();
    match error {
        PlanError::NoSuchFunction { nearest, .. } => {
            let bare = files.first().is_some_and(|file| file.known.index.is_empty());
            if bare && nearest.is_empty() {
                let message = format!(
                    "the executable of process {} is stripped: it has no function names",
                    process.pid()
                );
                return SessionError::new(Reason::TargetStripped, message);
            }
            SessionError::new(Reason::FunctionNotFound, message).with("nearest", nearest.join(","))
        }
        PlanError::OnlyInlined { .. } => SessionError::new(Reason::FunctionOnlyInlined, message),
        PlanError::Indirect(_) => SessionError::new(Reason::FunctionIsIfunc, message),
        PlanError::TooMany { found, limit, .. } => SessionError::new(Reason::TooManyFunctions, message)
            .with("matched", found.to_string())
            .with("limit", limit.to_string()),
        PlanError::Unusable { .. } => SessionError::new(Reason::FunctionNotProbeable, message),
    }
}

/// What the kernel refused, said to a client.
pub fn kernel_refusal(error: &KernelError) -> SessionError {
    let reason = match error {
        KernelError::TooManyProbes(_) | KernelError::TooManySites(_) => Reason::LimitReached,
        error if error.is_permission() => Reason::CapabilityMissing,
        error if error.is_gone() => Reason::TargetGone,
        _ => Reason::Kernel,
    };
    SessionError::new(reason, error.to_string())
}
