//! Where a process keeps the thread-local storage of its libraries.

use std::{fs::File, io, os::unix::fs::FileExt as _, sync::Arc};

use object::{Object as _, ObjectSymbol as _};
use profiler_plan::values::{Refusal, ThreadModule};
use profiler_target::{Module, read_for_request};

use super::files::KnownFile;

/// The files of a process, which say it.
pub struct ThreadTables {
    pid: u32,
    files: Vec<(Module, Arc<KnownFile>)>,
}

impl ThreadTables {
    pub fn new(pid: u32, files: Vec<(Module, Arc<KnownFile>)>) -> Self {
        Self { pid, files }
    }

    /// What threads find a file's storage by.
    pub fn module(&self, module: &Module, known: &KnownFile) -> Result<ThreadModule, Refusal> {
        let Some(loaded_at) = loaded_at(module, known) else {
            return Err(Refusal::Unsupported(
                "a thread-local variable of a library that is mapped twice".to_owned(),
            ));
        };
        // Pages of files that nobody has touched are fetched: a library's tables may lie there.
        let pid = self.pid;
        let word = |address, size: u8| {
            let read = move || {
                let mut word = [0; 8];
                let into = word
                    .get_mut(..usize::from(size))
                    .ok_or(io::ErrorKind::InvalidInput)?;
                File::open(format!("/proc/{pid}/mem"))?.read_exact_at(into, address)?;
                Ok(u64::from_le_bytes(word))
            };
            read_for_request(pid, read).ok()
        };
        ThreadModule::find(loaded_at, |name| self.symbol(name), word)
    }

    /// Where in the process a dynamic symbol is.
    fn symbol(&self, name: &str) -> Option<u64> {
        self.files.iter().find_map(|(module, known)| {
            let file = profiler_elf::parse(known.index.files().program()).ok()?;
            let mut symbols = file.dynamic_symbols().filter(|symbol| !symbol.is_undefined());
            let symbol = symbols.find(|symbol| symbol.name_bytes() == Ok(name.as_bytes()))?;
            Some(loaded_at(module, known)?.wrapping_add(symbol.address()))
        })
    }
}

/// What is added to a file's addresses in the process; `None` where it is mapped twice.
fn loaded_at(module: &Module, known: &KnownFile) -> Option<u64> {
    let code = known.index.segments().iter().find(|segment| segment.executable)?;
    let mut live = module.addresses_of(code.offset);
    match (live.next(), live.next()) {
        (Some(live), None) => Some(live.wrapping_sub(code.address)),
        _ => None,
    }
}
