//! The source of a process's functions, and what can be probed in it; nothing is attached.
//!
//! See `docs/internals/source.md` for how the source of a function is shown.

use std::{collections::HashMap, fs, io, path::Path, sync::Arc, time::SystemTime};

use profiler_debug_files::{Home, MAX_SOURCE_BYTES, Reader, SourceText};
use profiler_plan::{
    self as plan, KernelAbility, Limits, ModuleIndex,
    hazards::{Hazards, exit_method},
    ifuncs::Choices,
    names::Match,
    source::{self, FunctionSource, Place},
};
use profiler_scope::Name;
use profiler_target::Process;

use super::{
    command::{Caller, TargetSpec},
    error::{Reason, SessionError},
    files::TargetFile,
    library::Library,
    lines::{in_files, line_refusal, line_weight},
    prepare::{Read, look_up},
    refusal::{plan_refusal, scope_refusal},
};

/// Functions that are shown of one request; of the others only the number is said.
const MAX_FUNCTIONS: usize = 64;
/// Text of source files that is read for one request, in bytes.
const MAX_TEXT_BYTES: u64 = 4 * MAX_SOURCE_BYTES;

/// A function's source.
#[derive(Clone, Debug)]
pub struct SourceView {
    /// The path of the ELF file.
    pub module: String,
    /// What is known of the function.
    pub source: FunctionSource,
    /// Its file's text, where it could be read.
    pub text: Option<Arc<SourceText>>,
    /// The line that was asked for, where not a function was.
    pub marked: Option<MarkedLine>,
    /// What may be wrong.
    pub warnings: Vec<String>,
}

/// A line of a source file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MarkedLine {
    /// The file's path, as the compiler was given it.
    pub file: String,
    /// Counted from 1.
    pub line: u32,
}

/// The functions that a place means.
#[derive(Clone, Debug)]
pub struct Sources {
    /// The target's processes.
    pub pids: Vec<u32>,
    /// By file and address; those that exist only inlined come last.
    pub views: Vec<SourceView>,
    /// Functions beyond them.
    pub left_out: usize,
}

/// Shows functions by name, or those that contain a line (`FILE:LINE`).
///
/// # Errors
/// Where the place is neither, the target may not be looked at, or there is no such function or line.
pub fn sources(
    library: &Library,
    caller: Caller,
    target: &TargetSpec,
    place: &str,
) -> Result<Sources, SessionError> {
    let parsed = source::parse(place).map_err(|error| scope_refusal(&error))?;
    // A line is looked for in all files, whatever their functions are called.
    let name = match &parsed {
        Place::Function(_) => place,
        Place::Line { .. } => "*",
    };
    let read = look_up(caller, target, name, library)?.read(library, false)?;
    let files = read.each_file();
    let (found, left_out) = match &parsed {
        Place::Function(name) => by_name(&read, &files, name)?,
        Place::Line { file, line } => by_line(&files, file, *line)?,
    };
    let mut texts = Texts {
        processes: &read.looked_up.processes,
        caller,
        of_processes: HashMap::new(),
        bytes_left: MAX_TEXT_BYTES,
    };
    let views = found.into_iter().map(|found| view(found, &mut texts)).collect();
    let pids = read.looked_up.processes.iter().map(Process::pid).collect();
    Ok(Sources {
        pids,
        views,
        left_out,
    })
}

/// The file systems that a process's source files are looked for in. Its root is opened with our rights; what is below
/// it, with the caller's. Of the caller's groups nothing is known: a file that only a group of theirs may read is not
/// read, and one that everybody but a group of theirs may read is.
fn home(process: &Process, caller: Caller) -> Home {
    let home = Home::new(Path::new(""), &[&format!("/proc/{}/root", process.pid()), "/"])
        .read_by(Reader::user(caller.uid));
    // Its number may have become another's before the root was opened.
    if process.is_alive() { home } else { Home::default() }
}

struct Found<'f> {
    file: &'f TargetFile,
    source: FunctionSource,
    marked: Option<MarkedLine>,
}

/// What is found, and the number of functions beyond.
type AllFound<'f> = (Vec<Found<'f>>, usize);

fn by_name<'f>(read: &Read, files: &[&'f TargetFile], name: &Name) -> Result<AllFound<'f>, SessionError> {
    let found_in = |file: &'f TargetFile| {
        move |source| Found {
            file,
            source,
            marked: None,
        }
    };
    let matching: Vec<Vec<(usize, Match)>> =
        files.iter().map(|file| file.known.index.matching(name)).collect();
    // As in a scope, a function whose whole name it is goes before those that only end in it.
    let full =
        matches!(name, Name::Exact(_)) && matching.iter().flatten().any(|(_, kind)| *kind == Match::Full);
    let mut found = Vec::new();
    let mut left_out = 0;
    for (file, matching) in files.iter().zip(matching) {
        let mut numbers: Vec<usize> = matching
            .into_iter()
            .filter(|(_, kind)| !full || *kind == Match::Full)
            .map(|(at, _)| at)
            .collect();
        let room = MAX_FUNCTIONS - found.len();
        left_out += numbers.len().saturating_sub(room);
        numbers.truncate(room);
        if !numbers.is_empty() {
            let described = source::functions(&file.known.index, &numbers);
            found.extend(described.into_iter().map(found_in(file)));
        }
    }
    if found.is_empty() {
        for file in files.iter().filter(|file| file.known.index.has_debug_info()) {
            let room = MAX_FUNCTIONS - found.len();
            let inlined = source::inlined(&file.known.index, name, room);
            left_out += inlined.left_out;
            found.extend(inlined.functions.into_iter().map(found_in(file)));
        }
    }
    if found.is_empty() {
        return Err(no_function(read, name));
    }
    Ok((found, left_out))
}

/// Why there is no such function: as for a function to probe.
fn no_function(read: &Read, name: &Name) -> SessionError {
    let files = read.files.first().map_or(&[][..], Vec::as_slice);
    let modules: Vec<&ModuleIndex> = files.iter().map(|file| &file.known.index).collect();
    let ability = KernelAbility::default();
    let decision = exit_method(&Hazards::default(), ability, false, None);
    let planned = plan::plan(
        name,
        &modules,
        &Choices::default(),
        &decision,
        ability,
        Limits::default(),
    );
    match (planned, read.looked_up.processes.first()) {
        (Err(error), Some(process)) => plan_refusal(process, files, name, error),
        _ => SessionError::new(Reason::FunctionNotFound, format!("no function is called {name}")),
    }
}

fn by_line<'f>(files: &[&'f TargetFile], path: &str, line: u32) -> Result<AllFound<'f>, SessionError> {
    let mut room = MAX_FUNCTIONS;
    let describe = |file: &'f TargetFile| {
        let described = source::line(&file.known.index, path, line.into(), room);
        if let Ok((_, described)) = &described {
            room -= described.functions.len();
        }
        Ok(described)
    };
    let mut found = Vec::new();
    let mut left_out = 0;
    for (file, (path, described)) in in_files(files.iter().copied(), describe, line_weight, line_refusal)? {
        left_out += described.left_out;
        found.extend(described.functions.into_iter().map(|source| Found {
            file,
            source,
            marked: Some(MarkedLine {
                file: path.clone(),
                line,
            }),
        }));
    }
    Ok((found, left_out))
}

/// Source files, as each process has them.
struct Texts<'p> {
    processes: &'p [Process],
    caller: Caller,
    /// By process: one in a container may have another file of a path.
    of_processes: HashMap<u32, TextsOfProcess>,
    bytes_left: u64,
}

/// Those of one process by path.
struct TextsOfProcess {
    home: Home,
    read: HashMap<String, Result<Arc<SourceText>, String>>,
}

impl Texts<'_> {
    fn of(&mut self, pid: u32, path: &str) -> Result<Arc<SourceText>, String> {
        let own = self.of_processes.entry(pid).or_insert_with(|| {
            let process = self.processes.iter().find(|process| process.pid() == pid);
            TextsOfProcess {
                home: process
                    .map(|process| home(process, self.caller))
                    .unwrap_or_default(),
                read: HashMap::new(),
            }
        });
        if let Some(known) = own.read.get(path) {
            return known.clone();
        }
        let read = SourceText::read(&own.home, path, self.bytes_left)
            .map(Arc::new)
            .map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => {
                    format!("the source file {path} is not there, or you may not read it")
                }
                io::ErrorKind::FileTooLarge if self.bytes_left < MAX_TEXT_BYTES => {
                    format!("the source file {path} is left out: the source files are too many, or too large")
                }
                _ => format!("the source file {path} cannot be read: {error}"),
            });
        if let Ok(text) = &read {
            self.bytes_left = self.bytes_left.saturating_sub(text.bytes().len() as u64);
        }
        own.read.insert(path.to_owned(), read.clone());
        read
    }
}

fn view(found: Found<'_>, texts: &mut Texts<'_>) -> SourceView {
    let Found {
        file,
        mut source,
        marked,
    } = found;
    let mut warnings = Vec::new();
    let mut text = None;
    if !source.file.is_empty() {
        match texts.of(file.pid(), &source.file) {
            Ok(read) => {
                let built = fs::metadata(&file.path).and_then(|file| file.modified()).ok();
                warnings.extend(staleness(&source, &read, built));
                text = Some(read);
            }
            Err(why) => source.missing.insert(0, why),
        }
    }
    if !file.known.index.has_debug_info() {
        source.missing.push(file.remedy().to_string());
    }
    SourceView {
        module: file.shown.clone(),
        source,
        text,
        marked,
        warnings,
    }
}

/// Whether the text may not be what was compiled.
fn staleness(source: &FunctionSource, text: &SourceText, built: Option<SystemTime>) -> Option<String> {
    let path = &source.file;
    if let Some(md5) = source.md5 {
        return (text.md5() != md5).then(|| {
            format!("{path} is not the version that was compiled: its checksum differs; lines may be wrong")
        });
    }
    if source.last_line as usize > text.len() {
        return Some(format!(
            "{path} has {} lines, but the function goes to {}: it is not the version that was compiled",
            text.len(),
            source.last_line
        ));
    }
    let newer = text.modified.zip(built).is_some_and(|(text, built)| text > built);
    newer.then(|| format!("{path} is newer than the program: lines may be wrong"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_text_that_was_not_compiled_is_told() {
        let at = |seconds| Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        let text = |seconds| SourceText::new(b"abc".to_vec(), at(seconds));
        let source = FunctionSource {
            file: "/a.c".to_owned(),
            line: 1,
            last_line: 1,
            ..FunctionSource::default()
        };
        let warning = |source: &FunctionSource, text| staleness(source, &text, at(10)).unwrap_or_default();
        assert_eq!(warning(&source, text(9)), "");
        assert!(warning(&source, text(11)).contains("newer"));
        let longer = FunctionSource {
            last_line: 2,
            ..source.clone()
        };
        assert!(warning(&longer, text(9)).contains("has 1 lines"));
        let hashed = |md5| FunctionSource {
            md5: Some(md5),
            ..source.clone()
        };
        // What is known to be the same is not doubted for its time.
        assert_eq!(warning(&hashed(text(11).md5()), text(11)), "");
        assert!(warning(&hashed([1; 16]), text(9)).contains("checksum"));
    }
}
