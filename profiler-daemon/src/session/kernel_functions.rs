//! From the name of a kernel function to its probes: a span from its entry to its return.
//!
//! See `docs/internals/kernel-places.md` for how the kernel's own places are seen.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use profiler_common::instruction::Action;
use profiler_plan::{
    names::{Meant, means_symbol},
    values::Record,
};
use profiler_scope::{Condition, Name, Place};

use super::{
    command::Capture,
    error::{Reason, SessionError},
    kernel_places::{MODULE, look, not_found},
    picture::{ExitMethod, FunctionInfo, SiteInfo},
    prepare::{PreparedSpan, Returning},
    refusal::kernel_refusal,
};
use crate::kernel::{Btf, Ends, Gates, KernelSymbols, ProbeSpec, SpanKind, Tracefs, has_function_probes};

/// Functions that a glob may mean, where one link has them all.
const MAX_FUNCTIONS: usize = 512;

/// Where each has two events, which take a tenth of a second each to detach.
const MAX_BY_EVENTS: usize = 32;

/// A function of the kernel.
pub struct KernelFunction {
    name: String,
    address: u64,
    /// Its parameters as values.
    parameters: Record,
}

/// The functions that a name means; `by_links` where all of them have one link.
///
/// # Errors
/// Where there are none, or too many, or the kernel probes none at all.
pub fn find(name: &Name, by_links: bool) -> Result<Vec<KernelFunction>, SessionError> {
    if !has_function_probes() {
        let message = "this kernel cannot probe its own functions: it was built without CONFIG_KPROBES (there is no \
                       /sys/bus/event_source/devices/kprobe). System calls (syscall:NAME) and tracepoints \
                       (tracepoint:CATEGORY:NAME) can be looked at";
        return Err(SessionError::new(Reason::Kernel, message));
    }
    let symbols = KernelSymbols::read().map_err(|error| kernel_refusal(&error))?;
    let traceable = match name {
        // What is named is tried.
        Name::Exact(_) => None,
        Name::Glob(_) => Tracefs::open().ok().and_then(|tracefs| tracefs.traceable()),
    };
    let found = matching(name, &symbols, traceable.as_ref())?;
    let limit = if by_links { MAX_FUNCTIONS } else { MAX_BY_EVENTS };
    if found.len() > limit {
        let message = format!(
            "kernel:{} matches {} functions; at most {limit} can be probed at once: narrow it down",
            name.text(),
            found.len()
        );
        return Err(SessionError::new(Reason::TooManyFunctions, message)
            .with("matched", found.len().to_string())
            .with("limit", limit.to_string()));
    }
    // A clone may have lost some of its function's, and is none of these.
    let names: HashSet<&str> = found.iter().map(|(name, _)| *name).collect();
    let known = Btf::read().map_or_else(|_| HashMap::new(), |btf| btf.parameters(&names));
    let function = |(name, address): (&str, u64)| KernelFunction {
        name: name.to_owned(),
        address,
        parameters: Record::of_function(known.get(name).cloned().flatten()),
    };
    Ok(found.into_iter().map(function).collect())
}

/// Names and addresses of the functions that are meant.
fn matching<'a>(
    name: &Name,
    symbols: &'a KernelSymbols,
    traceable: Option<&HashSet<String>>,
) -> Result<Vec<(&'a str, u64)>, SessionError> {
    let mut found: Vec<(&str, u64)> = Vec::new();
    let (mut parts, mut not_traceable) = (Vec::new(), 0_usize);
    for (symbol, address) in symbols.functions() {
        match means_symbol(name, symbol) {
            Some(Meant::Whole) if traceable.is_some_and(|names| !names.contains(symbol)) => {
                not_traceable += 1;
            }
            // One function may have several names.
            Some(Meant::Whole) if found.last().is_some_and(|(_, last)| *last == address) => {}
            Some(Meant::Whole) => found.push((symbol, address)),
            Some(Meant::Part) => parts.push(symbol),
            None => {}
        }
    }
    if !found.is_empty() {
        return Ok(found);
    }
    let text = name.text();
    if not_traceable > 0 {
        let message =
            format!("none of the {not_traceable} kernel functions that kernel:{text} matches can be traced");
        return Err(SessionError::new(Reason::FunctionNotProbeable, message));
    }
    if let Some(part) = parts.first() {
        let message = format!(
            "the kernel's function {text} is inlined into its callers: only parts of it exist, such as {part}"
        );
        return Err(SessionError::new(Reason::FunctionOnlyInlined, message));
    }
    let what = format!("no function of the kernel is called {text}, or it is inlined wherever it is called");
    let names = symbols.functions().map(|(name, _)| name.to_owned());
    Err(not_found(&what, text, names.collect()))
}

impl KernelFunction {
    /// Its calls, which are looked at as is asked.
    ///
    /// # Errors
    /// Where a value is asked for that it does not have.
    pub fn span(
        &self,
        place: &Place,
        conditions: &[Condition],
        capture: Option<&Capture>,
    ) -> Result<PreparedSpan, SessionError> {
        let look = look(place, &self.parameters, Some(()), conditions, capture)?;
        let info = FunctionInfo {
            name: format!("kernel:{}", self.name),
            module: MODULE.to_owned(),
            address: self.address,
            ..FunctionInfo::default()
        };
        Ok(PreparedSpan {
            site: SiteInfo {
                function: Arc::new(info),
                entry_offset: 0,
                entry_instruction: String::new(),
                exit_method: ExitMethod::KernelFunction,
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
                stacks_switch: false,
                gates: Gates::default(),
                look: (capture.is_some() || !conditions.is_empty()).then_some(look.spec),
                kind: SpanKind::KernelFunction {
                    address: self.address,
                },
            },
            shown: look.shown,
            returning: Returning::Unknown,
        })
    }
}
