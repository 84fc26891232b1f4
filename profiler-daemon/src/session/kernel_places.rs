//! From the kernel's own places to their programs: tracepoints are hits, system calls are spans.
//!
//! See `docs/internals/kernel-places.md` for how the kernel's own places are seen.

use std::sync::Arc;

use profiler_common::instruction::Action;
use profiler_plan::values::{self, Record, Refusal};
use profiler_scope::{Condition, Constant, Place, expression::Expression, expression::Root};

use super::{
    command::Capture,
    error::{Reason, SessionError},
    lines::{self, AskedOfHits, Look, PreparedLine, TracedPlace},
    picture::{ExitMethod, FunctionInfo, SiteInfo},
    prepare::{PreparedSpan, Returning},
    refusal::kernel_refusal,
};
use crate::{
    abi,
    kernel::{Ends, Gates, HitSpec, KernelPlace, ProbeSpec, SpanKind, Tracefs},
};

/// What stands for the kernel where others have a file.
pub const MODULE: &str = "[kernel]";

/// The category of the tracepoints of system calls, and what the names of those begin with where calls do.
const SYSTEM_CALLS: &str = "syscalls";
const ENTER: &str = "sys_enter_";

/// System calls that the kernel's tracepoints call otherwise than their manual.
const RENAMED: [(&str, &str); 6] = [
    ("fstat", "newfstat"),
    ("lstat", "newlstat"),
    ("sendfile", "sendfile64"),
    ("stat", "newstat"),
    ("umount2", "umount"),
    ("uname", "newuname"),
];

/// A tracepoint.
///
/// # Errors
/// Where there is no such, or a field of its record is asked for that it does not have.
pub fn tracepoint(
    place: &Place,
    category: &str,
    name: &str,
    conditions: &[Condition],
    capture: &Capture,
) -> Result<PreparedLine, SessionError> {
    let tracefs = Tracefs::open().map_err(|error| kernel_refusal(&error))?;
    let Some(record) = record(&tracefs, category, name)? else {
        let categories = tracefs.categories();
        if !categories.iter().any(|known| known == category) {
            let what = format!("no category of the kernel's tracepoints is called {category}");
            return Err(not_found(&what, category, categories));
        }
        let what = format!("no tracepoint of the category {category} is called {name}");
        return Err(not_found(&what, name, tracefs.names(category)));
    };
    let look = look(place, &record, None, conditions, Some(capture))?;
    let text = place.to_string();
    Ok(PreparedLine {
        place: Arc::new(TracedPlace {
            site: text.clone(),
            function: text,
            file: String::new(),
            line: 0,
            module: MODULE.to_owned(),
            address: 0,
        }),
        in_function: String::new(),
        printed: look.shown.printed,
        spec: HitSpec {
            offset: 0,
            action: Action::LEAVE,
            done_by_program: false,
            look: look.spec,
            branch: None,
            gates: Gates::default(),
            of_kernel: Some(KernelPlace::Tracepoint(record.id)),
        },
        single_stepped: None,
    })
}

/// A system call. Where neither values nor records of it are asked for, `capture` and `conditions` are nothing.
///
/// # Errors
/// As of [`tracepoint`].
pub fn system_call(
    place: &Place,
    name: &str,
    stacks_switch: bool,
    conditions: &[Condition],
    capture: Option<&Capture>,
) -> Result<PreparedSpan, SessionError> {
    let tracefs = Tracefs::open().map_err(|error| kernel_refusal(&error))?;
    let (number, record) = find_system_call(&tracefs, name)?;
    let look = look(place, &record, Some(()), conditions, capture)?;
    let info = FunctionInfo {
        name: place.to_string(),
        module: MODULE.to_owned(),
        ..FunctionInfo::default()
    };
    Ok(PreparedSpan {
        site: SiteInfo {
            function: Arc::new(info),
            entry_offset: 0,
            entry_instruction: String::new(),
            exit_method: ExitMethod::SystemCall,
            exits: 1,
            entry_single_stepped: false,
            exit_single_stepped: false,
        },
        spec: ProbeSpec {
            entry_offset: 0,
            entry_action: Action::LEAVE,
            loops: false,
            ends: Ends::Never,
            done_by_program: false,
            stacks_switch,
            gates: Gates::default(),
            look: (capture.is_some() || !conditions.is_empty()).then_some(look.spec),
            kind: SpanKind::SystemCall {
                number,
                tracepoint: record.id,
            },
        },
        shown: look.shown,
        returning: Returning::Unknown,
    })
}

/// A system call's number, and where its arguments are.
fn find_system_call(tracefs: &Tracefs, name: &str) -> Result<(u32, Record), SessionError> {
    let known = RENAMED
        .iter()
        .find(|(manual, kernel)| [*manual, *kernel].contains(&name));
    let (manual, kernel) = known.copied().unwrap_or((name, name));
    let number = abi::system_call_number(manual);
    let record = record(tracefs, SYSTEM_CALLS, &format!("{ENTER}{kernel}"))?;
    if let (Some(number), Some(record)) = (number, record) {
        return Ok((number, record.of_registers()));
    }
    if tracefs.names(SYSTEM_CALLS).is_empty() {
        let message =
            "this kernel does not describe its system calls: use one built with CONFIG_FTRACE_SYSCALLS";
        return Err(SessionError::new(Reason::PlaceNotFound, message));
    }
    let what = format!("no system call that can be watched is called {name}");
    Err(not_found(
        &what,
        name,
        abi::system_call_names().map(str::to_owned).collect(),
    ))
}

fn record(tracefs: &Tracefs, category: &str, name: &str) -> Result<Option<Record>, SessionError> {
    let text = tracefs
        .format(category, name)
        .map_err(|error| kernel_refusal(&error))?;
    text.map(|text| {
        Record::parse(&text).ok_or_else(|| {
            let message = format!("the kernel's description of tracepoint {category}:{name} cannot be read");
            SessionError::new(Reason::Kernel, message)
        })
    })
    .transpose()
}

pub fn not_found(what: &str, name: &str, all: Vec<String>) -> SessionError {
    let nearest = values::nearest(name, all);
    let message = match nearest.as_slice() {
        [] => what.to_owned(),
        nearest => format!("{what}; there is {}", nearest.join(", ")),
    };
    SessionError::new(Reason::PlaceNotFound, message).with("nearest", nearest.join(","))
}

/// How conditions are decided and fields read; `of_call` of a system call or function, which returns something.
pub fn look(
    place: &Place,
    record: &Record,
    of_call: Option<()>,
    conditions: &[Condition],
    capture: Option<&Capture>,
) -> Result<Look, SessionError> {
    let printed = capture.map_or(&[][..], |capture| &capture.print);
    if capture.is_some_and(|capture| capture.stack) {
        let message = format!("stacks are not taken at {place}: leave --stack out");
        return Err(SessionError::new(Reason::ArgumentInvalid, message));
    }
    let returns = |expression: &Expression| of_call.is_some() && expression.root == Root::Return;
    let all = printed
        .iter()
        .chain(conditions.iter().map(|condition| &condition.expression));
    for expression in all.filter(|expression| !returns(expression)) {
        require_field(place, record, expression)?;
    }
    lines::compose(
        &place.to_string(),
        AskedOfHits { conditions, capture },
        returns,
        |expression| {
            if !returns(expression) {
                return record.lower(expression);
            }
            require_whole(expression)?;
            match place {
                Place::KernelFunction(_) => values::of_kernel_function(),
                _ => values::of_system_call(),
            }
        },
        |condition| {
            let Condition {
                expression,
                comparison,
                constant,
            } = condition;
            if returns(expression) {
                require_whole(expression)?;
                return values::require_of_system_call(*comparison, |shape, kind| {
                    lines::number(shape, kind, *comparison, constant)
                });
            }
            match constant {
                Constant::Text(text) => record.require_text(expression, *comparison, text.as_bytes()),
                constant => record.require(expression, *comparison, |shape, kind| {
                    lines::number(shape, kind, *comparison, constant)
                }),
            }
        },
    )
}

/// Refuses what is no field of the record.
fn require_field(place: &Place, record: &Record, expression: &Expression) -> Result<(), SessionError> {
    if matches!(
        expression.root,
        Root::Register(_) | Root::Return | Root::Thread(_)
    ) {
        let message = format!("{expression} cannot be read at {place}: only its fields can");
        return Err(SessionError::new(Reason::ArgumentInvalid, message));
    }
    let Err(Refusal::NoVariable { name, .. }) = record.lower(expression) else {
        return Ok(());
    };
    let all: Vec<&str> = record.names().collect();
    let message = format!("{place} has no field {name}; it has {}", all.join(", "));
    Err(SessionError::new(Reason::PlaceNotFound, message).with("nearest", all.join(",")))
}

/// Refuses parts of what a system call returns, which is a number.
fn require_whole(expression: &Expression) -> Result<(), Refusal> {
    if expression.steps.is_empty() {
        return Ok(());
    }
    Err(Refusal::Unsupported(
        "a part of the return value, which is a number".to_owned(),
    ))
}
