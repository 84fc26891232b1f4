//! The files that a target has mapped, with their functions.

use std::{collections::HashMap, fs::File, path::PathBuf, sync::Arc};

use super::{
    error::{Reason, SessionError},
    refusal::gone_or,
};
use crate::{
    plan::{DebugIndex, ModuleIndex, elf::Bytes, hazards::ModuleHazards},
    target::{self, Module, Process, contents::Contents},
};

/// A file that a process has mapped.
pub struct TargetFile {
    pub shown: String,
    pub path: PathBuf,
    pub module: Module,
    pub known: Arc<KnownFile>,
}

/// What a file says of itself, whoever maps it.
pub struct KnownFile {
    pub index: ModuleIndex,
    pub hazards: ModuleHazards,
}

/// Files by device and inode, so that one that many processes map is read once.
pub type Cache = HashMap<((u32, u32), u64), Arc<KnownFile>>;

/// Reads the symbols of everything that a process has mapped.
pub fn read_process(process: &Process, cache: &mut Cache) -> Result<Vec<TargetFile>, SessionError> {
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
            Ok((Some(known), path)) => files.push(TargetFile {
                shown,
                path,
                module,
                known,
            }),
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
    let bytes: Bytes = Arc::new(Contents::of(file)?);
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

impl KnownFile {
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
