//! The files that a target has mapped, with their functions.

use std::{fs::File, path::PathBuf, sync::Arc};

use profiler_common::instruction::Action;

use super::{
    error::{Reason, SessionError},
    library::Library,
    outlines,
    refusal::gone_or,
    thread_tables::ThreadTables,
};
use crate::{
    plan::{DebugIndex, ModuleIndex, elf::Bytes, hazards::ModuleHazards},
    target::{
        self, Module, Process,
        contents::{Contents, FileKey},
    },
};

/// A file that a process has mapped.
pub struct TargetFile {
    pub shown: String,
    pub path: PathBuf,
    pub module: Module,
    pub known: Arc<KnownFile>,
    /// What all files of the process say of its threads.
    pub threads: Arc<ThreadTables>,
}

impl TargetFile {
    /// Says where in the target an action's instruction lies. A file that is mapped twice leaves that open, and the
    /// instruction to the kernel.
    pub fn placed(&self, file_offset: u64, action: Action) -> Action {
        let mut addresses = self.module.addresses_of(file_offset);
        let address = match (addresses.next(), addresses.next()) {
            (Some(address), None) => address,
            _ => 0,
        };
        Action { address, ..action }
    }
}

/// What a file says of itself, whoever maps it.
pub struct KnownFile {
    pub index: ModuleIndex,
    pub hazards: ModuleHazards,
    /// Whether its bytes had to be copied.
    is_copied: bool,
}

/// What a file takes, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Size {
    pub memory: usize,
    /// Mapped: on disk, even where it has no name any more.
    pub mapped: usize,
}

/// Reads the symbols of everything that a process has mapped, as far as they are not known.
pub fn read_process(process: &Process, library: &Library) -> Result<Vec<TargetFile>, SessionError> {
    let pid = process.pid();
    let mappings =
        target::executable_mappings(pid).map_err(|error| gone_or(process, "reading its maps", &error))?;
    library.trim();
    let mut found = Vec::new();
    for module in target::modules(&mappings) {
        let shown = module.path.display().to_string();
        let opened = module.open(pid).and_then(|(file, path)| {
            let key = (FileKey::of(&file.metadata()?), shown.clone());
            if let Some(known) = library.get(&key) {
                return Ok((Some(known), path));
            }
            let known = know(&shown, &file, &key.0, library)?.map(Arc::new);
            if let Some(known) = &known {
                library.keep(key, known);
            }
            Ok((known, path))
        });
        match opened {
            Ok((Some(known), path)) => found.push((shown, path, module, known)),
            // Mapped executable, but no ELF file that could hold a function.
            Ok((None, _)) => {}
            Err(error) => tracing::warn!(pid, module = shown, %error, "mapped file cannot be read"),
        }
    }
    if found.is_empty() {
        return Err(SessionError::new(
            Reason::TargetGone,
            format!("process {pid} has no readable executable mapped"),
        ));
    }
    let of_threads = found
        .iter()
        .map(|(_, _, module, known)| (module.clone(), Arc::clone(known)));
    let threads = Arc::new(ThreadTables::new(pid, of_threads.collect()));
    let files = found.into_iter().map(|(shown, path, module, known)| TargetFile {
        shown,
        path,
        module,
        known,
        threads: Arc::clone(&threads),
    });
    Ok(files.collect())
}

fn know(shown: &str, file: &File, key: &FileKey, library: &Library) -> std::io::Result<Option<KnownFile>> {
    let contents = Contents::of(file)?;
    let is_copied = matches!(contents, Contents::Copied(_));
    let bytes: Bytes = Arc::new(contents);
    let hazards = ModuleHazards::scan(shown, (*bytes).as_ref());
    let index = ModuleIndex::new(Arc::clone(&bytes));
    match (index, hazards) {
        (Ok(index), Ok(hazards)) => {
            // What others may write to can be another file's by the time that it is read.
            let folder = library
                .outlines()
                .filter(|_| !is_copied && key.length >= outlines::MIN_LENGTH);
            let place = folder.and_then(|folder| folder.place(index.build_id(), key));
            let index = match place {
                Some(place) => index.with_outlines(Arc::new(place)),
                None => index,
            };
            Ok(Some(KnownFile {
                index,
                hazards,
                is_copied,
            }))
        }
        (Err(error), _) | (_, Err(error)) => {
            tracing::debug!(module = shown, %error, "not indexed");
            Ok(None)
        }
    }
}

impl KnownFile {
    /// What it takes by now.
    pub fn size(&self) -> Size {
        let bytes = (**self.index.bytes()).as_ref().len();
        let (copied, mapped) = if self.is_copied { (bytes, 0) } else { (0, bytes) };
        Size {
            memory: copied + self.index.memory(),
            mapped,
        }
    }

    /// What the file's DWARF says of its functions; nothing where it has none, or it is damaged.
    pub fn debug(&self) -> DebugIndex {
        if !self.index.has_debug_info() {
            return DebugIndex::default();
        }
        let bytes = (**self.index.bytes()).as_ref();
        DebugIndex::new(bytes).unwrap_or_else(|error| {
            tracing::warn!(%error, "debug information is not read");
            DebugIndex::default()
        })
    }
}

/// What a file at a path says of itself.
#[cfg(test)]
pub fn know_path(path: &std::path::Path) -> Arc<KnownFile> {
    let file = File::open(path).unwrap();
    let key = FileKey::of(&file.metadata().unwrap());
    let library = Library::new(None);
    Arc::new(know("", &file, &key, &library).unwrap().unwrap())
}
