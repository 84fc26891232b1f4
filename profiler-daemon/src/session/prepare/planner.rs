//! The sites of each step, chosen in the files of the target's processes.

use std::{collections::HashSet, path::Path, sync::Arc};

use profiler_plan::{
    self as plan, KernelAbility, Limits, ModuleIndex, PlanError, PlannedFunction,
    hazards::{Decision, Hazards, Method, exit_method},
    ifuncs::Choices,
    values::{Refusal, Returns},
};
use profiler_scope::{
    Condition, Name, Place, Step,
    expression::{Expression, Root},
};
use profiler_target::Process;

use super::{
    super::{
        by_value,
        command::{Capture, Purpose},
        error::{Reason, SessionError},
        explain::probed::Check,
        files::TargetFile,
        functions::key,
        kernel_functions, kernel_places,
        lines::{self, AskedOfHits, LookedAt, PreparedLine, Printed},
        picture::ExitMethod,
        refusal::plan_refusal,
    },
    PreparedFile, PreparedLines, PreparedSpan, PreparedStep, Returning,
    changed_code::{Code, CodeRange, under_probe},
    ifuncs,
    inlined::Inlined,
    sites::{Beginning, by_file, call_site, inlined_site},
    warnings::{
        BareFiles, look_up, warn, warn_of_async, warn_of_entries, warn_of_inlined, warn_of_lines, warn_once,
    },
};
use crate::kernel::{Ability, AttachKind, LookSpec, SpanKind};

/// Warnings beyond which functions and lines that a process runs in another form are only counted.
const MAX_REFUSALS: usize = 20;

/// The longest instruction.
const MAX_INSTRUCTION_BYTES: u64 = 15;

/// Hits recorded in a second at each place, where nobody said how many.
const HITS_PER_SECOND: u32 = 1_000;

/// What all steps are planned with.
pub struct Planner<'a> {
    pub(super) processes: &'a [Process],
    pub(super) files: &'a [Vec<TargetFile>],
    pub(super) ability: Ability,
    pub(super) exit: Option<ExitMethod>,
    pub(super) capture: Option<&'a Capture>,
}

impl Planner<'_> {
    /// Chooses the sites of a step; `next` is the one behind it.
    pub fn step(
        &self,
        step: &Step,
        next: Option<&Step>,
        warnings: &mut Vec<String>,
    ) -> Result<PreparedStep, SessionError> {
        let mut prepared = PreparedStep {
            step: step.clone(),
            files: Vec::new(),
            lines: Vec::new(),
            code: Vec::new(),
        };
        match &step.place {
            Place::Function(name) => {
                prepared.files = self.functions(name, &step.conditions, next, warnings)?;
            }
            Place::Inlined(name) => {
                prepared.files = self.inlined(name, &step.conditions, next, warnings)?;
            }
            Place::Line { file, line } => {
                prepared.lines = self
                    .each(|files, capture| lines::plan_all(files, file, *line, &step.conditions, capture))?;
            }
            Place::Branch { file, line, taken } => {
                prepared.lines = self.each(|files, capture| {
                    lines::plan_branches(files, file, *line, *taken, &step.conditions, capture)
                })?;
            }
            Place::Address { module, address } => {
                prepared.lines = self.each(|files, capture| {
                    lines::plan_address(files, module, *address, &step.conditions, capture)
                })?;
            }
            Place::Call { callee, file, line } => {
                prepared.files = self.calls(step, callee, file, *line, warnings)?;
            }
            Place::SystemCall(name) => {
                prepared.files = self.system_call(step, name)?;
            }
            Place::KernelFunction(name) => {
                prepared.files = self.kernel_functions(step, name)?;
            }
            Place::Tracepoint { category, name } => {
                prepared.lines = self.tracepoint(step, category, name)?;
            }
        }
        self.leave_out_changed(&mut prepared, warnings)?;
        warn_of_lines(warnings, &step.place, &prepared.lines);
        self.warn_of_bare_files(&prepared, warnings);
        Ok(prepared)
    }

    /// The files in which values are asked for that only debug information tells, and that have none.
    pub(super) fn bare_files<'a>(&'a self, step: &'a PreparedStep) -> impl Iterator<Item = &'a TargetFile> {
        let lacks = |printed: &Printed| matches!(printed.lowered, Err(Refusal::NoDebugInformation(_)));
        let spans = step.files.iter().filter(move |file| {
            let mut printed = file.sites.iter().flat_map(|span| span.shown.printed.iter());
            printed.any(lacks)
        });
        let lines = step.lines.iter().filter(move |file| {
            let mut printed = file.lines.iter().flat_map(|line| line.printed.iter());
            printed.any(lacks)
        });
        let of_spans = spans.map(|file| (file.pid, &file.path));
        let of_lines = lines.map(|file| (file.pid, &file.path));
        of_spans.chain(of_lines).filter_map(|(pid, path)| {
            let mut processes = self.processes.iter().zip(self.files);
            let (_, files) = processes.find(|(process, _)| process.pid() == pid)?;
            files.iter().find(|file| file.path == *path)
        })
    }

    /// Refuses to divide calls by what can be read where none of them begins.
    pub(super) fn require_readable(
        &self,
        last: Option<&PreparedStep>,
        expression: &Expression,
    ) -> Result<(), SessionError> {
        by_value::require_readable(last, expression).map_err(|refused| {
            match last.and_then(|step| self.bare_files(step).next()) {
                Some(file) => file.remedy().add_to(refused),
                None => refused,
            }
        })
    }

    /// Says what brings the debug information that values are asked of.
    fn warn_of_bare_files(&self, step: &PreparedStep, warnings: &mut Vec<String>) {
        let mut bare = BareFiles::default();
        for file in self.bare_files(step) {
            bare.warn(
                warnings,
                file,
                ", which tells names and types of values (without it registers can be read, $rdi, and where a function is entered its \
                 arguments, (int)arg0 or str(arg1))",
            );
        }
    }

    /// Leaves out what lies in code that a process has changed. What is left is watched from then on.
    fn leave_out_changed(
        &self,
        prepared: &mut PreparedStep,
        warnings: &mut Vec<String>,
    ) -> Result<(), SessionError> {
        let (mut refused, mut not_said) = (None, 0_u64);
        let mut refuse = |what: &str, why: &str| {
            let message = format!("{what} is not probed: {why}");
            refused.get_or_insert_with(|| message.clone());
            if warnings.len() < MAX_REFUSALS {
                warn_once(warnings, message);
            } else {
                not_said += 1;
            }
        };
        // Behind the others: so many places are watched, and no more.
        let (mut watched, mut elsewhere_watched) = (Vec::new(), Vec::new());
        let codes = self.processes.iter().zip(self.files);
        for (process, files) in codes {
            let code = Code::of(process.pid());
            let file_of = |path: &Path| files.iter().find(|file| file.path == path);
            for of_file in prepared.files.iter_mut().filter(|file| file.pid == process.pid()) {
                let Some(file) = file_of(&of_file.path) else {
                    continue;
                };
                of_file.sites.retain(|span| {
                    let function = &span.site.function;
                    let begins = file.known.index.offset_of(function.address);
                    let code_of_it = match begins {
                        Some(offset) if function.address > 0 => CodeRange {
                            offset,
                            bytes: function.size,
                        },
                        _ => CodeRange {
                            offset: span.spec.entry_offset,
                            bytes: MAX_INSTRUCTION_BYTES,
                        },
                    };
                    let elsewhere = span.spec.ends.elsewhere();
                    let mut elsewhere = elsewhere.map(|exit| CodeRange {
                        offset: exit.offset,
                        bytes: exit.bytes(),
                    });
                    let why = code
                        .refusal(file, code_of_it)
                        .or_else(|| elsewhere.find_map(|range| code.refusal(file, range)));
                    if let Some(why) = why {
                        refuse(&function.name, why);
                        return false;
                    }
                    let (pid, of) = (process.pid(), Some(key(function)));
                    // What is inlined is in several parts: what is behind its first may be another's.
                    let watched_code = if span.spec.kind == SpanKind::Function {
                        code_of_it
                    } else {
                        CodeRange::byte_at(code_of_it.offset)
                    };
                    let entry = under_probe(file, pid, of.clone(), watched_code, span.spec.entry_offset);
                    watched.extend(entry.map(Arc::new));
                    for exit in span.spec.ends.elsewhere() {
                        let byte = CodeRange::byte_at(exit.offset);
                        let exit = under_probe(file, pid, of.clone(), byte, exit.offset);
                        elsewhere_watched.extend(exit.map(Arc::new));
                    }
                    true
                });
            }
            for of_file in prepared.lines.iter_mut().filter(|file| file.pid == process.pid()) {
                let Some(file) = file_of(&of_file.path) else {
                    continue;
                };
                of_file.lines.retain(|line| {
                    let offset = line.spec.offset;
                    let instruction = CodeRange {
                        offset,
                        bytes: MAX_INSTRUCTION_BYTES,
                    };
                    if let Some(why) = code.refusal(file, instruction) {
                        refuse(&line.place.site, why);
                        return false;
                    }
                    // What is behind its first byte may be another's: an instruction's length is not known here.
                    let under_probe =
                        under_probe(file, process.pid(), None, CodeRange::byte_at(offset), offset);
                    watched.extend(under_probe.map(Arc::new));
                    true
                });
            }
        }
        if not_said > 0 {
            let message = format!(
                "{not_said} more are not probed, as a process runs them in another form than their file has"
            );
            warn_once(warnings, message);
        }
        watched.extend(elsewhere_watched);
        prepared.code = watched;
        prepared.files.retain(|file| !file.sites.is_empty());
        prepared.lines.retain(|file| !file.lines.is_empty());
        match refused {
            Some(message) if prepared.files.is_empty() && prepared.lines.is_empty() => {
                Err(SessionError::new(Reason::FunctionNotProbeable, message))
            }
            _ => Ok(()),
        }
    }

    /// Whether calls of a function of a name can be timed, in the first process; for other threads.
    pub fn check(&self) -> Check {
        let (Some(process), Some(files)) = (self.processes.first(), self.files.first()) else {
            return Box::new(|_| false);
        };
        let (kernel, decision) = (self.kernel(), self.decision(process, files));
        let known: Vec<_> = files.iter().map(|file| Arc::clone(&file.known)).collect();
        Box::new(move |name| {
            let modules: Vec<&ModuleIndex> = known.iter().map(|known| &known.index).collect();
            let name = Name::Exact(name.to_owned());
            plan::plan(
                &name,
                &modules,
                &Choices::default(),
                &decision,
                kernel,
                Limits::default(),
            )
            .is_ok_and(|plan| !plan.functions.is_empty())
        })
    }

    /// Plans hits in the files of each process.
    fn each<'a>(
        &'a self,
        plan: impl Fn(
            &'a [TargetFile],
            &Capture,
        ) -> Result<Vec<(&'a TargetFile, Vec<PreparedLine>)>, SessionError>,
    ) -> Result<Vec<PreparedLines>, SessionError> {
        let only_counted = only_counted();
        let capture = self.capture.unwrap_or(&only_counted);
        let mut lines = Vec::new();
        for (process, files) in self.processes.iter().zip(self.files) {
            // An instruction that a program does is no return, so a shadow stack stays in step.
            let by_programs = self.ability.write_context;
            lines.extend(plan(files, capture)?.into_iter().map(|(file, mut lines)| {
                for line in &mut lines {
                    line.find_cost(file, self.kernel(), by_programs);
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

    /// System calls of each process.
    fn system_call(&self, step: &Step, name: &str) -> Result<Vec<PreparedFile>, SessionError> {
        let mut prepared = Vec::new();
        for (process, files) in self.processes.iter().zip(self.files) {
            let stacks_switch = self.decision(process, files).stacks_switch;
            let span =
                kernel_places::system_call(&step.place, name, stacks_switch, &step.conditions, self.capture)?;
            prepared.push(PreparedFile {
                pid: process.pid(),
                path: kernel_places::MODULE.into(),
                sites: vec![span],
            });
        }
        Ok(prepared)
    }

    /// Functions of the kernel, for the threads of each process.
    fn kernel_functions(&self, step: &Step, name: &Name) -> Result<Vec<PreparedFile>, SessionError> {
        let by_links = self.ability.attach == AttachKind::Multi;
        let functions = kernel_functions::find(name, by_links)?;
        let prepare = |process: &Process| {
            let sites = functions
                .iter()
                .map(|function| function.span(&step.place, &step.conditions, self.capture));
            Ok(PreparedFile {
                pid: process.pid(),
                path: kernel_places::MODULE.into(),
                sites: sites.collect::<Result<_, SessionError>>()?,
            })
        };
        self.processes.iter().map(prepare).collect()
    }

    /// A tracepoint, for the threads of each process.
    fn tracepoint(
        &self,
        step: &Step,
        category: &str,
        name: &str,
    ) -> Result<Vec<PreparedLines>, SessionError> {
        let only_counted = only_counted();
        let capture = self.capture.unwrap_or(&only_counted);
        let prepare = |process: &Process| {
            Ok(PreparedLines {
                pid: process.pid(),
                path: kernel_places::MODULE.into(),
                lines: vec![kernel_places::tracepoint(
                    &step.place,
                    category,
                    name,
                    &step.conditions,
                    capture,
                )?],
            })
        };
        self.processes.iter().map(prepare).collect()
    }

    /// The calls that are made at a line: each begins at the call and ends at the instruction behind.
    fn calls(
        &self,
        step: &Step,
        callee: &Name,
        file: &str,
        line: u32,
        warnings: &mut Vec<String>,
    ) -> Result<Vec<PreparedFile>, SessionError> {
        if self.ability.attach == AttachKind::Perf {
            return Err(SessionError::new(
                Reason::FunctionNotProbeable,
                format!(
                    "{}: calls made at a line cannot be timed before Linux 6.10",
                    step.place
                ),
            ));
        }
        let mut prepared = Vec::new();
        for (process, files) in self.processes.iter().zip(self.files) {
            let decision = self.decision(process, files);
            for (file, calls) in lines::plan_calls(files, file, line, callee)? {
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
                format!(
                    "{}: none of these calls returns to the line that made it",
                    step.place
                ),
            ));
        }
        Ok(prepared)
    }

    /// How the ends of a process's calls are seen.
    fn decision(&self, process: &Process, files: &[TargetFile]) -> Decision {
        let chosen = self.exit.map(|method| match method {
            ExitMethod::Return => Method::Return,
            ExitMethod::Ret | ExitMethod::Never | ExitMethod::SystemCall | ExitMethod::KernelFunction => {
                Method::Ret
            }
        });
        let hazards = Hazards::of(
            files
                .iter()
                .map(|file| (file.shown.as_str(), &file.known.hazards)),
        );
        exit_method(&hazards, self.kernel(), has_shadow_stack(process), chosen)
    }

    /// Processes in which no call is to be seen to end by a return probe.
    pub fn without_returns(&self) -> HashSet<u32> {
        let processes = self.processes.iter().zip(self.files);
        let others =
            processes.filter(|(process, files)| self.decision(process, files).method != Method::Return);
        others.map(|(process, _)| process.pid()).collect()
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

    /// Whether expressions are read or decided on, where spans begin or where they end.
    fn reads(&self, conditions: &[Condition]) -> bool {
        !conditions.is_empty() || self.capture.is_some_and(|capture| !capture.print.is_empty())
    }

    /// Whether some are where spans begin.
    fn reads_at_entry(&self, conditions: &[Condition]) -> bool {
        let printed = self.capture.iter().flat_map(|capture| &capture.print);
        let decided = conditions.iter().map(|condition| &condition.expression);
        printed
            .chain(decided)
            .any(|expression| expression.root != Root::Return)
    }

    /// Has functions begin where what is taken there can be: before what is inlined into them, where that is asked for
    /// behind them, and before anything changes an argument, where values are read. Functions without such a place go.
    fn enter(
        &self,
        next: Option<&Step>,
        conditions: &[Condition],
        modules: &[&ModuleIndex],
        functions: &mut Vec<PlannedFunction>,
        warnings: &mut Vec<String>,
    ) {
        let at_first = next.is_some_and(|next| matches!(next.place, Place::Inlined(_)));
        let reads = self.reads_at_entry(conditions);
        functions.retain_mut(|function| {
            let Some(module) = modules.get(function.module) else {
                return false;
            };
            if at_first {
                function.enter_at_first(module, self.kernel());
            }
            let has_values = !reads
                || (at_first && function.entry.delta == 0)
                || (!at_first && function.enter_with_values(module, self.kernel()));
            if !has_values {
                let name = &function.name;
                warn_once(warnings, format!("{name} is not probed: {NO_ENTRY_WITH_VALUES}"));
            }
            has_values
        });
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
        if !self.reads(conditions) {
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
            returning,
        } in sites
        {
            // Before the probe of a function nothing has changed that is read there, while its variables may have moved.
            let address = match returning {
                Returning::Function => site.function.address,
                Returning::Callee(_) | Returning::Unknown => {
                    site.function.address + u64::from(site.entry_offset)
                }
            };
            let what = &site.function.name;
            let returns = match returning {
                Returning::Callee(callee) => Returns::OfCallee {
                    name: &callee.name,
                    symbol: &callee.symbol,
                    address: callee.address,
                },
                Returning::Function => Returns::OfFunction,
                Returning::Unknown => Returns::AtInstruction,
            };
            let at = LookedAt { address, returns };
            let asked = AskedOfHits {
                conditions,
                capture: self.capture,
            };
            let look = lines::look_at(file, &debug, at, what, asked)?;
            spec.look = Some(look.spec);
            *shown = look.shown;
        }
        Ok(())
    }

    /// The functions of a name, where there are such, and what of them is inlined.
    fn inlined(
        &self,
        name: &Name,
        conditions: &[Condition],
        next: Option<&Step>,
        warnings: &mut Vec<String>,
    ) -> Result<Vec<PreparedFile>, SessionError> {
        let looks = self.looks(conditions);
        // What is behind may be where they begin.
        let from_first = looks || next.is_some_and(|next| next.place.may_begin_at_once());
        let (mut prepared, mut bare) = (Vec::new(), BareFiles::default());
        for (process, files) in self.processes.iter().zip(self.files) {
            let (kernel, decision) = (self.kernel(), self.decision(process, files));
            let modules: Vec<&ModuleIndex> = files.iter().map(|file| &file.known.index).collect();
            let limits = Limits::default();
            let choices = ifuncs::choices(process.pid(), files, name);
            let functions = plan::plan(name, &modules, &choices, &decision, kernel, limits);
            let inlined = Inlined::find(name, &modules, kernel.long_nops);
            let instances = inlined.count();
            let (found, mut functions) = match functions {
                Ok(plan) => {
                    warn(warnings, &decision, &plan);
                    (plan.functions.len(), plan.functions)
                }
                Err(
                    PlanError::NoSuchFunction { .. } | PlanError::Unusable { .. } | PlanError::Indirect(_),
                ) if instances > 0 => (0, Vec::new()),
                Err(error @ PlanError::NoSuchFunction { .. }) => {
                    return Err(inlined
                        .refusal(name)
                        .unwrap_or_else(|| plan_refusal(process, files, name, error)));
                }
                Err(error) => return Err(plan_refusal(process, files, name, error)),
            };
            if found + instances > limits.functions {
                let error = PlanError::TooMany {
                    name: format!("{name}@inlined"),
                    found: found + instances,
                    limit: limits.functions,
                };
                return Err(plan_refusal(process, files, name, error));
            }
            self.enter(next, conditions, &modules, &mut functions, warnings);
            if functions.is_empty() && instances == 0 {
                return Err(no_entry_with_values(name));
            }
            inlined.warn(
                warnings,
                &mut bare,
                files,
                name,
                functions.iter().map(|function| function.module),
            );
            let mut sites: Vec<Vec<PreparedSpan>> = files.iter().map(|_| Vec::new()).collect();
            for (number, instance) in inlined.instances {
                let file = &files[number];
                sites[number].push(inlined_site(
                    file,
                    &decision,
                    kernel,
                    Beginning { looks, from_first },
                    instance,
                ));
            }
            let mut by_file: Vec<(&TargetFile, PreparedFile)> =
                by_file(process.pid(), files, &decision, looks, functions).collect();
            for (file, sites) in files.iter().zip(sites).filter(|(_, sites)| !sites.is_empty()) {
                let known = by_file.iter_mut().find(|(known, _)| known.path == file.path);
                match known {
                    Some((_, known)) => known.sites.extend(sites),
                    None => by_file.push((
                        file,
                        PreparedFile {
                            pid: process.pid(),
                            path: file.path.clone(),
                            sites,
                        },
                    )),
                }
            }
            for (file, mut of_file) in by_file {
                self.look(file, conditions, &mut of_file.sites)?;
                prepared.push(of_file);
            }
        }
        warn_of_entries(warnings, self.looks(conditions), &prepared);
        Ok(prepared)
    }

    fn functions(
        &self,
        name: &Name,
        conditions: &[Condition],
        next: Option<&Step>,
        warnings: &mut Vec<String>,
    ) -> Result<Vec<PreparedFile>, SessionError> {
        let mut prepared = Vec::new();
        for (process, files) in self.processes.iter().zip(self.files) {
            let (kernel, decision) = (self.kernel(), self.decision(process, files));
            let modules: Vec<&ModuleIndex> = files.iter().map(|file| &file.known.index).collect();
            let choices = ifuncs::choices(process.pid(), files, name);
            let mut plan = plan::plan(name, &modules, &choices, &decision, kernel, Limits::default())
                .map_err(|error| plan_refusal(process, files, name, error))?;
            // The others run the same files, but for few.
            if matches!(name, Name::Exact(_)) && prepared.is_empty() {
                look_up(files, &mut plan.functions);
                warn_of_inlined(warnings, &plan.functions);
                warn_of_async(warnings, files, &plan.functions);
            }
            self.enter(next, conditions, &modules, &mut plan.functions, warnings);
            if plan.functions.is_empty() {
                return Err(no_entry_with_values(name));
            }
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

/// What is recorded where nobody asks for hits yet.
fn only_counted() -> Capture {
    Capture {
        print: Vec::new(),
        hits_per_second: HITS_PER_SECOND,
        stack: false,
        purpose: Purpose::default(),
    }
}

/// Why values of a function's calls cannot be read.
const NO_ENTRY_WITH_VALUES: &str = "the kernel refuses a probe on its first instruction, which changes its arguments or the memory they point to: leave conditions and values out, or name a line in it";

fn no_entry_with_values(name: &Name) -> SessionError {
    SessionError::new(
        Reason::FunctionNotProbeable,
        format!("{name} cannot be probed: {NO_ENTRY_WITH_VALUES}"),
    )
}

/// Whether a thread of the process has a user shadow stack (`x86_Thread_features` of its status).
pub(super) fn has_shadow_stack(process: &Process) -> bool {
    let path = format!("/proc/{}/status", process.pid());
    std::fs::read_to_string(path).is_ok_and(|status| {
        status.lines().any(|line| {
            line.strip_prefix("x86_Thread_features:")
                .is_some_and(|on| on.contains("shstk"))
        })
    })
}
