//! The functions of a process; nothing is attached.

use std::collections::HashMap;

use profiler_plan::{
    self as plan, KernelAbility, Limits, ModuleIndex,
    hazards::{Hazards, exit_method},
    source,
};
use profiler_scope::{Place, Step};

use super::{
    command::{Caller, TargetSpec},
    error::{Reason, SessionError},
    library::Library,
    picture::FunctionInfo,
    prepare::look_up,
    refusal::plan_refusal,
};

/// Functions that are looked up one by one in a file.
const MAX_LOOKED_UP: usize = 256;

/// The functions of a process, or those of a name or glob, with what DWARF knows of them.
///
/// # Errors
/// Where the pattern is no name, the target may not be looked at, or nothing matches.
pub fn list_functions(
    library: &Library,
    caller: Caller,
    target: &TargetSpec,
    pattern: &str,
) -> Result<Vec<FunctionInfo>, SessionError> {
    let everything = pattern.is_empty();
    let read = look_up(caller, target, if everything { "*" } else { pattern })?.read(library, false)?;
    let [
        Step {
            place: Place::Function(name),
            ..
        },
    ] = read.looked_up.scope.steps.as_slice()
    else {
        return Err(SessionError::new(
            Reason::ArgumentInvalid,
            "functions can only be listed by name: `profiler source` shows the functions that contain a line",
        ));
    };
    let (Some(process), Some(files)) = (read.looked_up.processes.first(), read.files.first()) else {
        return Ok(Vec::new());
    };
    let mut listed = Vec::new();
    for file in files {
        let index = &file.known.index;
        let matching = index.matching(name);
        // Debug information is read of the files that have something to say only, and all of it only where much is asked.
        let debug = match matching.len() {
            0 => HashMap::new(),
            1..=MAX_LOOKED_UP if index.has_debug_info() => {
                let addresses = matching.iter().map(|(at, _)| index.function(*at).address());
                source::debugged(index, &addresses.collect::<Vec<_>>())
            }
            _ => file.known.debug().functions,
        };
        for (at, _) in matching {
            let function = index.function(at);
            let known = debug.get(&function.address()).cloned().unwrap_or_default();
            listed.push(FunctionInfo {
                name: function.name().into_owned(),
                linkage_name: function.linkage_name().into_owned(),
                module: file.shown.clone(),
                address: function.address(),
                size: function.size(),
                file: known.source.file,
                line: u32::try_from(known.source.line).unwrap_or(0),
                inlined: u32::try_from(known.inlined).unwrap_or(u32::MAX),
            });
        }
    }
    if listed.is_empty() && !everything {
        let modules: Vec<&ModuleIndex> = files.iter().map(|file| &file.known.index).collect();
        let decision = exit_method(&Hazards::default(), KernelAbility::default(), false, None);
        let planned = plan::plan(
            name,
            &modules,
            &decision,
            KernelAbility::default(),
            Limits::default(),
        );
        if let Err(error) = planned {
            return Err(plan_refusal(process, files, name, error));
        }
    }
    Ok(listed)
}
