//! From a line and expressions to the probes at it and the plans that read the values.

use std::{cell::Cell, sync::Arc};

use profiler_common::{
    instruction::{Action, register},
    values::{Comparison, Kind, ReadPlan},
};
use profiler_plan::{
    KernelAbility, addresses,
    branches::{self, BranchError},
    calls::{self, CallError, FoundCalls},
    instruction::InstructionSite,
    lines::{self, LineError, LineSite},
    values::{self, DebugFile, DebugSections, Lowered, Refusal, Returns, Shape, Site, shape::Form},
};
use profiler_scope::{
    Condition, Constant, Name,
    expression::{Expression, Root},
};

use super::{
    command::{Capture, Purpose},
    error::{Reason, SessionError},
    files::TargetFile,
};
use crate::kernel::{Gates, HitSpec, LookSpec, can_be_done};

/// A place whose hits are recorded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TracedPlace {
    /// What it is: the file and line, the function whose calls they are, or the module and address.
    pub site: String,
    /// The function that it is, or that it is in; empty where it is not known.
    pub function: String,
    /// Source file of a line; empty of a function and an address.
    pub file: String,
    /// Line in it; 0 where there is no file.
    pub line: u32,
    /// Path of the ELF file.
    pub module: String,
    /// Virtual address in the ELF file.
    pub address: u64,
}

/// An expression at a place: how it is read there, or why it is not.
pub struct Printed {
    pub expression: Arc<str>,
    pub lowered: Result<Arc<Lowered>, Refusal>,
    pub known: Known,
}

/// Where a value is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Known {
    /// At the place.
    AtOnce,
    /// In the registers that a call returns with, which are told when it ends.
    Returned,
    /// In memory that these lead to, which is read where the call returns.
    Followed,
}

/// What is shown of a place.
#[derive(Clone, Default)]
pub struct Shown {
    pub printed: Arc<[Printed]>,
}

/// What is attached at one address of a line.
pub struct PreparedLine {
    pub place: Arc<TracedPlace>,
    /// The linkage name of the function that it is in; empty where it is not known.
    pub in_function: String,
    pub printed: Arc<[Printed]>,
    pub spec: HitSpec,
    /// The instruction there, if the kernel has to single-step it.
    pub single_stepped: Option<String>,
}

impl PreparedLine {
    /// Finds out who does its instruction: the program where it can, and where nothing is read there, which is of no use
    /// once another program has done it; else the kernel, which may have to single-step it.
    pub fn find_cost(&mut self, file: &TargetFile, kernel: KernelAbility, by_programs: bool) {
        // One that cannot be probed at all is refused where it is attached.
        let Ok(site) = InstructionSite::find(&file.known.index, self.place.address) else {
            return;
        };
        if !site.is_single_stepped(kernel) {
            return;
        }
        let action = file.placed(site.file_offset, site.action);
        // Others there, a return probe of the kernel too, go by where the stack pointer was.
        let moves_stack = action.target == register::RSP;
        if by_programs && !self.spec.look.reads() && !moves_stack && can_be_done(&action) {
            self.spec.action = action;
            self.spec.done_by_program = true;
        } else {
            self.single_stepped = Some(site.mnemonic);
        }
    }
}

/// What is looked at where one instruction is reached.
pub struct Look {
    pub spec: LookSpec,
    /// What is shown of it.
    pub shown: Shown,
}

/// Hits that are recorded in a second at a place where it is known only when a call ends which of them are shown.
const LATE_PER_SECOND: u64 = 100_000;

/// Of those that wait for the end of a call around theirs.
const JOINED_PER_SECOND: u64 = 10_000;

/// The same where the stack is taken of each, which costs the target some microseconds.
const STACKS_PER_SECOND: u64 = 5_000;

/// A line of a source file.
#[derive(Clone, Copy)]
struct SourceLine<'a> {
    /// Empty where only the address is known.
    path: &'a str,
    line: u32,
}

/// An instruction at which something is looked at.
#[derive(Clone, Copy)]
pub struct LookedAt<'a> {
    pub address: u64,
    /// What is known there of what a call returns.
    pub returns: Returns<'a>,
}

/// What is asked of each hit of a place.
#[derive(Clone, Copy)]
pub struct AskedOfHits<'a> {
    /// They are to hold.
    pub conditions: &'a [Condition],
    /// What is shown of it, where anything is.
    pub capture: Option<&'a Capture>,
}

/// How conditions are decided and values read at an address; `what` is at it.
pub fn look_at(
    file: &TargetFile,
    debug: &DebugFile<'_>,
    at: LookedAt<'_>,
    what: &str,
    asked: AskedOfHits<'_>,
) -> Result<Look, SessionError> {
    let LookedAt { address, returns } = at;
    if file.known.index.offset_of(address).is_none() {
        return Err(SessionError::new(
            Reason::LineNotFound,
            format!("the code of {what} is not in {}", file.shown),
        ));
    }
    // Where a file is mapped twice, its own variables are in two places.
    let mapped_twice = || Refusal::Unsupported(format!("{} is mapped twice", file.shown));
    let site = file.bias(address).map(|bias| Site { address, bias });
    let site = site.ok_or_else(mapped_twice);
    let lacks_debug_information = Cell::new(false);
    compose(
        what,
        asked,
        |expression| is_of_end(expression, returns),
        |expression| values::lower_with(debug, site.clone()?, returns, expression),
        |condition| {
            require(debug, site.clone()?, returns, condition).inspect_err(|refusal| {
                lacks_debug_information.set(matches!(refusal, Refusal::NoDebugInformation(_)));
            })
        },
    )
    .map_err(|refused| {
        if lacks_debug_information.get() {
            file.remedy().add_to(refused)
        } else {
            refused
        }
    })
}

/// As [`look_at`], of a place of any kind: what is known at the end there, how values are read, and how conditions are
/// decided.
pub fn compose(
    what: &str,
    asked: AskedOfHits<'_>,
    is_of_end: impl Fn(&Expression) -> bool,
    lower: impl Fn(&Expression) -> Result<Lowered, Refusal>,
    require: impl Fn(&Condition) -> Result<ReadPlan, Refusal>,
) -> Result<Look, SessionError> {
    let AskedOfHits { conditions, capture } = asked;
    let printed: Arc<[Printed]> = capture
        .map_or(&[][..], |capture| &capture.print)
        .iter()
        .map(|expression| {
            let lowered = lower(expression);
            Printed {
                expression: expression.to_string().into(),
                known: match &lowered {
                    _ if !is_of_end(expression) => Known::AtOnce,
                    Ok(lowered) if lowered.plan.reads_memory() => Known::Followed,
                    _ => Known::Returned,
                },
                lowered: lowered.map(Arc::new),
            }
        })
        .collect();
    let is_returned = |condition: &&Condition| is_of_end(&condition.expression);
    let (at_end, at_begin): (Vec<&Condition>, Vec<&Condition>) = conditions.iter().partition(is_returned);
    let plans = |conditions: Vec<&Condition>| {
        let plans = conditions.into_iter().map(&require);
        plans.collect::<Result<Vec<ReadPlan>, Refusal>>()
    };
    let (required, at_end) = plans(at_begin)
        .and_then(|required| Ok((required, plans(at_end)?)))
        .map_err(|refusal| {
            // Before anything is attached: a condition that cannot be decided would reject every hit.
            SessionError::new(
                Reason::ConditionRefused,
                format!("a condition at {what}: {refusal}"),
            )
        })?;
    let plans_of = |known: Known| {
        let printed = printed.iter().filter(move |printed| printed.known == known);
        printed.filter_map(|printed| Some(printed.lowered.as_ref().ok()?.plan))
    };
    let by_return = !at_end.is_empty();
    let spec = LookSpec {
        required,
        values: plans_of(Known::AtOnce).collect(),
        followed: plans_of(Known::Followed).collect(),
        decided: at_end,
        interval_ns: match capture {
            Some(capture) if by_return && capture.purpose == Purpose::Shown => late_interval_ns(capture),
            capture => capture.map_or(0, interval_ns),
        },
        records: false,
        stack: capture.is_some_and(|capture| capture.stack),
    };
    Ok(Look {
        spec,
        shown: Shown { printed },
    })
}

/// Whether an expression is of what a call returns, which is known when it ends.
fn is_of_end(expression: &Expression, returns: Returns<'_>) -> bool {
    expression.root == Root::Return && returns != Returns::AtInstruction
}

/// Time between two hits that are recorded where it is known only when a call ends which of them are shown: the limit is on
/// these.
pub fn late_interval_ns(capture: &Capture) -> u64 {
    let per_second = if capture.stack {
        STACKS_PER_SECOND
    } else {
        LATE_PER_SECOND
    };
    interval_ns(capture).min(1_000_000_000 / per_second)
}

/// The same of what waits for the end of a call around it: all sessions' find room there only for so long.
pub fn joined_interval_ns(capture: &Capture) -> u64 {
    let most = interval_ns(capture).min(1_000_000_000 / JOINED_PER_SECOND);
    most.max(late_interval_ns(capture))
}

/// Time between two hits at a limit.
pub fn interval_ns(capture: &Capture) -> u64 {
    1_000_000_000 / u64::from(capture.hits_per_second.max(1))
}

fn at(
    file: &TargetFile,
    debug: &DebugFile<'_>,
    SourceLine { path, line }: SourceLine<'_>,
    site: LineSite,
    conditions: &[Condition],
    capture: &Capture,
) -> Result<PreparedLine, SessionError> {
    let index = &file.known.index;
    let what = match path {
        "" => format!("{:#x} of {}", site.address, file.shown),
        path => format!("line {line} of {path}"),
    };
    let at = LookedAt {
        address: site.address,
        returns: Returns::AtInstruction,
    };
    let asked = AskedOfHits {
        conditions,
        capture: Some(capture),
    };
    let Look { spec: look, shown } = look_at(file, debug, at, &what, asked)?;
    let function = index.function_at(site.address);
    let in_function = function
        .as_ref()
        .map_or_else(String::new, |function| function.linkage_name().into_owned());
    let function = function.map_or_else(String::new, |function| function.name().into_owned());
    Ok(PreparedLine {
        in_function,
        place: Arc::new(TracedPlace {
            site: match path {
                "" => format!("{}+{:#x}", file.shown, site.address),
                path => format!("{path}:{line}"),
            },
            function,
            file: path.to_owned(),
            line,
            module: file.shown.clone(),
            address: site.address,
        }),
        spec: HitSpec {
            // `look_at` has found it.
            offset: index.offset_of(site.address).unwrap_or_default(),
            // Left to the kernel, which emulates or single-steps it.
            action: Action::LEAVE,
            done_by_program: false,
            look,
            branch: None,
            gates: Gates::default(),
            of_kernel: None,
        },
        printed: shown.printed,
        single_stepped: None,
    })
}

/// Lowers a condition, its constant as the value's own kind of number.
fn require(
    debug: &DebugFile<'_>,
    site: Site,
    returns: Returns<'_>,
    condition: &Condition,
) -> Result<ReadPlan, Refusal> {
    let Condition {
        expression,
        comparison,
        constant,
    } = condition;
    if let Constant::Text(text) = constant {
        return values::require_text(debug, site, returns, expression, *comparison, text.as_bytes());
    }
    values::require_with(debug, site, returns, expression, *comparison, |shape, kind| {
        number(shape, kind, *comparison, constant)
    })
}

/// A constant as a number of a kind.
pub fn number(
    shape: &Shape,
    kind: Kind,
    comparison: Comparison,
    constant: &Constant,
) -> Result<u64, Refusal> {
    let cannot = || Refusal::Unsupported(format!("{} cannot be compared with {constant}", shape.type_name));
    let float = |text: &str| text.parse::<f64>().map_err(|_| cannot());
    match (constant, kind) {
        (Constant::Name(name), Kind::Signed | Kind::Unsigned) => match &shape.form {
            Form::Enumeration { names, .. } => names
                .iter()
                .find(|(_, known)| known == name || name.rsplit("::").next() == Some(known.as_str()))
                .and_then(|(number, _)| i64::try_from(*number).ok())
                .map(i64::cast_unsigned)
                .ok_or_else(|| Refusal::Unsupported(format!("{} has no enumerator {name}", shape.type_name))),
            _ => Err(cannot()),
        },
        (Constant::Boolean(value), Kind::Unsigned) => Ok(u64::from(*value)),
        (Constant::Integer(value), Kind::Signed) => i64::try_from(*value)
            .map(i64::cast_unsigned)
            .map_err(|_| cannot()),
        (Constant::Integer(value), Kind::Unsigned) => match u64::try_from(*value) {
            Ok(value) => Ok(value),
            // Less than any: what is asked is known without looking, and surely not meant.
            Err(_) if matches!(comparison, Comparison::NotEqual) => Err(cannot()),
            Err(_) => Err(cannot()),
        },
        #[expect(
            clippy::cast_precision_loss,
            reason = "the nearest one is what the language would take"
        )]
        (Constant::Integer(value), Kind::Double) => Ok((*value as f64).to_bits()),
        #[expect(clippy::cast_precision_loss, reason = "as above")]
        (Constant::Integer(value), Kind::Float) => Ok(u64::from((*value as f32).to_bits())),
        (Constant::Decimal(text), Kind::Double) => float(text).map(f64::to_bits),
        #[expect(clippy::cast_possible_truncation, reason = "as above")]
        (Constant::Decimal(text), Kind::Float) => {
            float(text).map(|value| u64::from((value as f32).to_bits()))
        }
        _ => Err(cannot()),
    }
}

/// What all files say of a line, by file; where none has anything, why the one that comes nearest has not. That a file's
/// name means several goes before everything. An error has a weight by how much it says, see [`line_weight`].
pub fn in_files<'f, T, E>(
    files: impl Iterator<Item = &'f TargetFile> + Clone,
    mut find: impl FnMut(&'f TargetFile) -> Result<Result<T, E>, SessionError>,
    weight: impl Fn(&E) -> u8,
    refusal: impl Fn(&E) -> SessionError,
) -> Result<Vec<(&'f TargetFile, T)>, SessionError> {
    let mut found = Vec::new();
    let mut worst: Option<E> = None;
    for file in files.clone().filter(|file| file.known.index.has_debug_info()) {
        match find(file)? {
            Ok(of_file) => found.push((file, of_file)),
            Err(error) if worst.as_ref().is_none_or(|worst| weight(&error) > weight(worst)) => {
                worst = Some(error);
            }
            Err(_) => {}
        }
    }
    match worst {
        Some(error) if found.is_empty() || weight(&error) == AMBIGUOUS => {
            let refused = refusal(&error);
            Err(match bare_executable(files.clone()) {
                Some(file) if weight(&error) <= OF_OTHERS => without_lines(file, Some(refused)),
                _ => refused,
            })
        }
        None if found.is_empty() => Err(bare_executable(files).map_or_else(
            || line_refusal(&LineError::NoLines),
            |file| without_lines(file, None),
        )),
        _ => Ok(found),
    }
}

/// The executable, if it has no debug information: what is not found elsewhere may be in it.
fn bare_executable<'f>(mut files: impl Iterator<Item = &'f TargetFile>) -> Option<&'f TargetFile> {
    files.next().filter(|file| !file.known.index.has_debug_info())
}

/// Why no line of a file is known, what brings it, and what can be named instead. `elsewhere` is why there is no such line in
/// other files, where those have lines.
fn without_lines(file: &TargetFile, elsewhere: Option<SessionError>) -> SessionError {
    let (shown, remedy) = (&file.shown, file.remedy());
    let name = shown.rsplit('/').next().unwrap_or_default();
    let own = format!(
        "{shown} has no debug information about lines: {remedy}; without it, functions can be named, and instructions by their \
         address ({name}+0x1234)"
    );
    let mut refused = elsewhere.unwrap_or_else(|| SessionError::new(Reason::LineNotFound, String::new()));
    refused.message = match refused.message.as_str() {
        "" => own,
        of_others => format!("{of_others}, and {own}"),
    };
    remedy.with_details(refused)
}

/// How much an error says: what another file cannot have does not matter.
pub fn line_weight(error: &LineError) -> u8 {
    match error {
        LineError::Elf(_) => 0,
        LineError::NoLines => 1,
        LineError::NoSuchFile(_) => OF_OTHERS,
        LineError::NoCode { .. } => 3,
        LineError::TooMany { .. } => 4,
        LineError::Ambiguous { .. } => AMBIGUOUS,
    }
}

/// The greatest weight of an error that says nothing of the executable, if that has no debug information.
const OF_OTHERS: u8 = 2;

/// The weight of [`LineError::Ambiguous`].
const AMBIGUOUS: u8 = 5;

/// The weight of an error that is of a line which has code.
const OF_CODE: u8 = u8::MAX;

/// Why there is no such line.
pub fn line_refusal(error: &LineError) -> SessionError {
    let message = error.to_string();
    match error {
        LineError::Ambiguous { paths, .. } => {
            SessionError::new(Reason::FileAmbiguous, message).with("nearest", paths.join(","))
        }
        LineError::NoLines => SessionError::new(
            Reason::LineNotFound,
            "the target's files have no debug information about lines: build them with `-g`, or name a function",
        ),
        LineError::TooMany { .. } => SessionError::new(Reason::LimitReached, message),
        LineError::NoCode { nearest, .. } => {
            SessionError::new(Reason::LineNotFound, message).with("nearest", listed(nearest))
        }
        LineError::NoSuchFile(_) | LineError::Elf(_) => SessionError::new(Reason::LineNotFound, message),
    }
}

fn listed(lines: &[u64]) -> String {
    let lines: Vec<String> = lines.iter().map(u64::to_string).collect();
    lines.join(",")
}

/// The line's addresses in all files.
///
/// # Errors
/// Where there are none, with the nearest lines; where a condition cannot be decided.
pub fn plan_all<'f>(
    files: &'f [TargetFile],
    path: &str,
    line: u32,
    conditions: &[Condition],
    capture: &Capture,
) -> Result<Vec<(&'f TargetFile, Vec<PreparedLine>)>, SessionError> {
    let plan = |file: &'f TargetFile| {
        let found = match lines::find(&file.known.index, path, line.into()) {
            Ok(found) => found,
            Err(error) => return Ok(Err(error)),
        };
        let sections = sections(file)?;
        let debug = debug(file, &sections);
        let source = SourceLine {
            path: &found.file,
            line,
        };
        let at_site = |site: &LineSite| at(file, &debug, source, *site, conditions, capture);
        Ok(Ok(found.sites.iter().map(at_site).collect::<Result<_, _>>()?))
    };
    in_files(files.iter(), plan, line_weight, line_refusal)
}

/// The branches of a line in all files that go one way.
///
/// # Errors
/// Where there are none, with the nearest lines; where a condition on values cannot be decided.
pub fn plan_branches<'f>(
    files: &'f [TargetFile],
    path: &str,
    line: u32,
    taken: bool,
    conditions: &[Condition],
    capture: &Capture,
) -> Result<Vec<(&'f TargetFile, Vec<PreparedLine>)>, SessionError> {
    let plan = |file: &'f TargetFile| {
        let branches = match branches::find(&file.known.index, path, line.into()) {
            Ok(branches) => branches,
            Err(error) => return Ok(Err(error)),
        };
        let sections = sections(file)?;
        let debug = debug(file, &sections);
        let source = SourceLine {
            path: &branches.file,
            line,
        };
        let mut prepared = Vec::new();
        for site in &branches.sites {
            let address = site.jump.address;
            let at_jump = LineSite { address };
            let mut line = at(file, &debug, source, at_jump, conditions, capture)?;
            let condition = if taken {
                site.condition
            } else {
                site.condition.opposite()
            };
            line.spec.branch = Some(condition.number());
            prepared.push(line);
        }
        Ok(Ok(prepared))
    };
    let weight = |error: &BranchError| match error {
        BranchError::Line(error) => line_weight(error),
        _ => OF_CODE,
    };
    in_files(files.iter(), plan, weight, |error| match error {
        BranchError::Line(error) => line_refusal(error),
        error => {
            let nearest = match error {
                BranchError::NoBranches { nearest, .. } => listed(nearest),
                _ => String::new(),
            };
            SessionError::new(Reason::LineNotFound, error.to_string()).with("nearest", nearest)
        }
    })
}

/// The instruction at an address of a file.
///
/// # Errors
/// Where none begins there, or no file or several are called so; where a condition on values cannot be decided.
pub fn plan_address<'f>(
    files: &'f [TargetFile],
    module: &str,
    address: u64,
    conditions: &[Condition],
    capture: &Capture,
) -> Result<Vec<(&'f TargetFile, Vec<PreparedLine>)>, SessionError> {
    let mut called: Vec<&TargetFile> = files
        .iter()
        .filter(|file| lines::ends_with(&file.shown, module))
        .collect();
    if let Some(whole) = files.iter().find(|file| file.shown == module) {
        called = vec![whole];
    }
    let file = match (called.pop(), called.is_empty()) {
        (Some(file), true) => file,
        (Some(last), false) => {
            let mut paths: Vec<&str> = called.iter().map(|file| file.shown.as_str()).collect();
            paths.push(&last.shown);
            let message = format!("{module} could be {}: write more of the path", paths.join(" or "));
            return Err(SessionError::new(Reason::FileAmbiguous, message).with("nearest", paths.join(",")));
        }
        (None, _) => {
            let paths: Vec<&str> = files.iter().map(|file| file.shown.as_str()).collect();
            let message = format!("the target has no file mapped that is called {module}");
            return Err(SessionError::new(Reason::LineNotFound, message).with("nearest", paths.join(",")));
        }
    };
    let sections = sections(file)?;
    let debug = debug(file, &sections);
    let site = addresses::find(&file.known.index, &debug, address)
        .map_err(|error| SessionError::new(Reason::LineNotFound, format!("{}: {error}", file.shown)))?;
    let site = LineSite {
        address: site.address,
    };
    let unknown = SourceLine { path: "", line: 0 };
    let prepared = at(file, &debug, unknown, site, conditions, capture)?;
    Ok(vec![(file, vec![prepared])])
}

/// The calls of a line in all files, by file.
///
/// # Errors
/// Where there are none, with what is there instead.
pub fn plan_calls<'f>(
    files: &'f [TargetFile],
    path: &str,
    line: u32,
    callee: &Name,
) -> Result<Vec<(&'f TargetFile, FoundCalls)>, SessionError> {
    let plan = |file: &'f TargetFile| Ok(calls::find(&file.known.index, path, line.into(), callee));
    let weight = |error: &CallError| match error {
        CallError::Line(error) => line_weight(error),
        _ => OF_CODE,
    };
    in_files(files.iter(), plan, weight, |error| match error {
        CallError::Line(error) => line_refusal(error),
        CallError::Inlined { .. } => SessionError::new(Reason::FunctionOnlyInlined, error.to_string()),
        _ => SessionError::new(Reason::FunctionNotFound, error.to_string()),
    })
}

/// The sections of the file's debug information.
pub fn sections(file: &TargetFile) -> Result<DebugSections<'_>, SessionError> {
    let files = file.known.index.files();
    DebugSections::load(files.program(), files.debug())
        .map_err(|error| SessionError::new(Reason::Kernel, format!("{}: {error}", file.shown)))
}

/// The file's debug information over its sections.
pub fn debug<'a>(file: &'a TargetFile, sections: &'a DebugSections<'a>) -> DebugFile<'a> {
    let debug = DebugFile::new(sections).of_module(&file.known.index);
    if sections.needs_thread_module() {
        debug.with_thread_module(file.threads.module(&file.module, &file.known))
    } else {
        debug
    }
}
