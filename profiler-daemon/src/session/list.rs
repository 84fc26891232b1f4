//! The functions of a process; nothing is attached.

use std::collections::HashMap;

use profiler_plan::{
    self as plan, KernelAbility, Limits, ModuleIndex,
    hazards::{Hazards, exit_method},
    ifuncs::Choices,
    source,
};
use profiler_scope::{Place, Step};

use super::{
    command::{Caller, TargetSpec},
    error::{Reason, SessionError},
    files::TargetFile,
    library::Library,
    picture::FunctionInfo,
    prepare::look_up,
    refusal::plan_refusal,
};

/// Functions that are looked up one by one in a file.
const MAX_LOOKED_UP: usize = 256;

/// Functions of a process.
pub struct Listed {
    /// Those that were asked for.
    pub functions: Vec<FunctionInfo>,
    /// Where all were asked for: those without names that each file has, which are not among them.
    pub unnamed: Vec<UnnamedFunctions>,
}

impl Listed {
    /// Bytes that it takes, about.
    #[must_use]
    pub fn memory(&self) -> usize {
        let functions = self.functions.iter().map(|function| {
            let FunctionInfo {
                name,
                linkage_name,
                file,
                module,
                same_code,
                ..
            } = function;
            let texts = [name, linkage_name, file, module].into_iter().chain(same_code);
            let texts: usize = texts.map(String::len).sum();
            size_of::<FunctionInfo>() + same_code.len() * size_of::<String>() + texts
        });
        functions.sum()
    }
}

/// How many functions of a file no symbol names.
pub struct UnnamedFunctions {
    /// Path of the ELF file.
    pub module: String,
    /// Their number.
    pub count: usize,
}

/// The functions of a process that have names, or those of a name or glob, with what DWARF knows of them.
///
/// # Errors
/// Where the pattern is no name, the target may not be looked at, or nothing matches.
pub fn list_functions(
    library: &Library,
    caller: Caller,
    target: &TargetSpec,
    pattern: &str,
) -> Result<Listed, SessionError> {
    let everything = pattern.is_empty();
    let read =
        look_up(caller, target, if everything { "*" } else { pattern }, library)?.read(library, false)?;
    let mut steps = read.looked_up.scope.steps.clone();
    if let [only] = steps.as_mut_slice() {
        only.place.call_at_address();
    }
    let [
        Step {
            place: Place::Function(name),
            ..
        },
    ] = steps.as_slice()
    else {
        return Err(SessionError::new(
            Reason::ArgumentInvalid,
            "functions can only be listed by name: `profiler source` shows the functions that contain a line",
        ));
    };
    let (Some(process), Some(files)) = (read.looked_up.processes.first(), read.files.first()) else {
        return Ok(Listed {
            functions: Vec::new(),
            unnamed: Vec::new(),
        });
    };
    let mut listed = Vec::new();
    let each = read.each_file();
    for file in &each {
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
                same_code: function.same_code(),
                is_async: known.is_async,
                is_copied: function.file_offset().is_some_and(|offset| !file.runs(offset)),
            });
        }
    }
    if listed.is_empty() && !everything {
        let modules: Vec<&ModuleIndex> = files.iter().map(|file| &file.known.index).collect();
        let decision = exit_method(&Hazards::default(), KernelAbility::default(), false, None);
        let planned = plan::plan(
            name,
            &modules,
            &Choices::default(),
            &decision,
            KernelAbility::default(),
            Limits::default(),
        );
        if let Err(error) = planned {
            return Err(plan_refusal(process, files, name, error));
        }
    }
    let mut unnamed: Vec<UnnamedFunctions> = Vec::new();
    if everything {
        let of_file = |file: &TargetFile| UnnamedFunctions {
            module: file.shown.clone(),
            count: file.known.index.unnamed().len(),
        };
        unnamed.extend(each.into_iter().map(of_file).filter(|file| file.count > 0));
    }
    Ok(Listed {
        functions: listed,
        unnamed,
    })
}
