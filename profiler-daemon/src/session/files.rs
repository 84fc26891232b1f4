//! The files that a target has mapped, with their functions.

use std::{
    io,
    ops::Add,
    path::PathBuf,
    sync::{Arc, OnceLock},
};

use profiler_common::instruction::Action;
use profiler_debug_files::{Home, Reader, Rights};
use profiler_plan::{DebugIndex, ModuleIndex, hazards::ModuleHazards};
use profiler_target::{
    self as target, Module, OpenFile, Process, contents::Contents, executable_mappings, read_for_request,
    user_of,
};

use super::{
    command::Caller,
    debug_package::{Remedy, SharedBudget},
    error::{Reason, SessionError},
    library::Library,
    refusal::gone_or,
    split_off::{Missing, Parts},
    thread_tables::ThreadTables,
};

/// A file that a process has mapped.
pub struct TargetFile {
    pub shown: String,
    pub path: PathBuf,
    pub module: Module,
    pub known: Arc<KnownFile>,
    /// What all files of the process say of its threads.
    pub threads: Arc<ThreadTables>,
    /// The process.
    pid: u32,
    /// Looked for when it is first asked for.
    remedy: OnceLock<Remedy>,
    /// What may be read for that.
    packages: SharedBudget,
}

impl TargetFile {
    /// The process that has it.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// What brings the debug information that it lacks.
    pub fn remedy(&self) -> &Remedy {
        self.remedy
            .get_or_init(|| Remedy::of(self.pid, self, &self.packages))
    }

    /// Whether that was looked for.
    #[cfg(test)]
    pub fn is_remedy_known(&self) -> bool {
        self.remedy.get().is_some()
    }

    /// Whether the process runs a place of the file from its mapping. A process can copy its code to other memory and run it there, as
    /// node does with `--use-largepages`: no probe on the file is reached then.
    pub fn runs(&self, file_offset: u64) -> bool {
        self.module.addresses_of(file_offset).next().is_some()
    }

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

    /// The difference between the address of code in the process and in the file. `None` where the file does not hold it, or is mapped
    /// twice, so that there are two; wraps.
    pub fn bias(&self, address: u64) -> Option<u64> {
        let offset = self.known.index.offset_of(address)?;
        let mut live = self.module.addresses_of(offset);
        match (live.next(), live.next()) {
            (Some(live), None) => Some(live.wrapping_sub(address)),
            _ => None,
        }
    }
}

/// What a file says of itself, whoever maps it.
pub struct KnownFile {
    pub index: ModuleIndex,
    pub hazards: ModuleHazards,
    /// Debug information that was not found.
    missing: Option<Missing>,
    /// What its files take.
    size: Size,
}

/// What a file takes, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Size {
    pub memory: usize,
    /// Mapped: on disk, even where it has no name any more.
    pub mapped: usize,
}

impl Add for Size {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            memory: self.memory.saturating_add(other.memory),
            mapped: self.mapped.saturating_add(other.mapped),
        }
    }
}

/// Reads the symbols of everything that a process has mapped, as far as they are not known. `packages` is what may be read to find
/// the packages of files, of all processes of the request together.
///
/// Files that the caller may not read are left out. The process is one that the caller may look at, and has read its files; but it may
/// run another program while they are read, and then its own again.
pub fn read_process(
    caller: Caller,
    process: &Process,
    library: &Library,
    packages: &SharedBudget,
) -> Result<Vec<TargetFile>, SessionError> {
    let pid = process.pid();
    let rights = Rights::of_process(pid);
    let (rights, reader) = if caller.is_root() {
        (rights, Reader::OWN)
    } else {
        let rights = caller.rights(rights);
        (rights.clone(), Reader::process(rights))
    };
    let mappings = read_for_request(pid, move || executable_mappings(pid));
    let mappings = mappings.map_err(|error| gone_or(process, "reading its maps", &error))?;
    library.trim();
    let mut found = Vec::new();
    for module in target::modules(&mappings) {
        let shown = module.path.display().to_string();
        let opened = open(pid, &module, &reader).and_then(|(file, path)| {
            let key = (file.key, shown.clone());
            // Most files are known, and lack nothing that would have to be looked for.
            let home = || Home::of(pid, &rights, &module.path, &file.metadata);
            if let Some(known) = library.get(&key).filter(|known| !known.is_outdated(home)) {
                return Ok((Some(known), path));
            }
            let known = know(&shown, &file, &home(), library)?.map(Arc::new);
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
        pid,
        remedy: OnceLock::new(),
        packages: Arc::clone(packages),
    });
    Ok(files.collect())
}

/// Opens a file that a process has mapped, if this reader may read it; also tells by which path.
fn open(pid: u32, module: &Module, reader: &Reader) -> io::Result<(OpenFile, PathBuf)> {
    let (module, reader) = (module.clone(), reader.clone());
    read_for_request(pid, move || {
        let user = user_of(pid).ok_or(io::ErrorKind::NotFound)?;
        let (file, path) = module.open(pid)?;
        if !reader.may_read(&file) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok((OpenFile::of(file, user)?, path))
    })
}

fn know(shown: &str, open: &OpenFile, home: &Home, library: &Library) -> io::Result<Option<KnownFile>> {
    let parts = Parts::find(Contents::of(&open.file)?, &open.key, home, library.outlines());
    let scan = |bytes| ModuleHazards::scan(shown, bytes);
    let hazards = scan(parts.files.program()).map(|own| match parts.files.symbols().map(scan) {
        // The dynamic symbols do not tell what the linker took in.
        Some(Ok(split)) => own.and(split),
        _ => own,
    });
    match (ModuleIndex::of(parts.files), hazards) {
        (Ok(index), Ok(hazards)) => Ok(Some(KnownFile {
            index: match parts.outlines {
                Some(place) => index.mapped_by(shown).with_outlines(Arc::new(place)),
                None => index.mapped_by(shown),
            },
            hazards,
            missing: parts.missing,
            size: parts.size,
        })),
        (Err(error), _) | (_, Err(error)) => {
            tracing::debug!(module = shown, %error, "not indexed");
            Ok(None)
        }
    }
}

impl KnownFile {
    /// What it takes by now.
    pub fn size(&self) -> Size {
        let memory = self.index.memory();
        self.size + Size { memory, mapped: 0 }
    }

    /// Whether there may be debug information by now that was not found.
    fn is_outdated(&self, home: impl FnOnce() -> Home) -> bool {
        self.missing
            .as_ref()
            .is_some_and(|missing| missing.may_be_found(&home()))
    }

    /// What the file's DWARF says of its functions; nothing where it has none, or it is damaged.
    pub fn debug(&self) -> DebugIndex {
        if !self.index.has_debug_info() {
            return DebugIndex::default();
        }
        DebugIndex::new(self.index.files().debug()).unwrap_or_else(|error| {
            tracing::warn!(%error, "debug information is not read");
            DebugIndex::default()
        })
    }
}

/// What a file at a path says of itself.
#[cfg(test)]
pub fn know_path(path: &std::path::Path) -> Arc<KnownFile> {
    let open = OpenFile::own(std::fs::File::open(path).unwrap()).unwrap();
    let home = Home::new(path, &["/"]);
    let known = know("", &open, &home, &Library::new(None));
    Arc::new(known.unwrap().unwrap())
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, Permissions},
        os::unix::fs::PermissionsExt as _,
        process::{Command, Stdio},
    };

    use profiler_testkit::skipped;

    use super::*;

    #[test]
    fn a_mapped_file_that_the_caller_may_not_read_is_left_out() {
        if !rustix::process::geteuid().is_root() {
            return skipped("needs root");
        }
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        fs::copy("/bin/sleep", &program).unwrap();
        let mut child = Command::new(&program)
            .arg("1000")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        // The kernel lets the parent go on before the new program is in place.
        let maps = format!("/proc/{}/maps", child.id());
        while !fs::read_to_string(&maps).unwrap().contains("/libc.so") {}
        let process = Process::open(child.id()).unwrap();
        // What somebody may see is not to be seen by others who are told what is known of it.
        let library = Library::new(None);
        let read_by = |uid, mode| {
            fs::set_permissions(&program, Permissions::from_mode(mode)).unwrap();
            let caller = Caller { uid, gid: uid };
            let files = read_process(caller, &process, &library, &SharedBudget::default()).unwrap();
            let has = |path: &str| files.iter().any(|file| file.shown.contains(path));
            [has("/program"), has("/libc.so")]
        };
        let read = [read_by(0, 0o711), read_by(1_234, 0o711), read_by(1_234, 0o755)];
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(read, [[true, true], [false, true], [true, true]]);
    }
}
