//! Modules by file and by build-id; the least recently used go first.

use std::{collections::HashMap, io, path::Path, time::Duration};

use profiler_debug_files::{Elf, Finder, Home, SharedWith, SideLoaded};
use profiler_target::{
    Mapping, OpenFile,
    contents::{FileKey, UNKNOWN_OWNER},
    read_file,
};

use super::{
    frame::{Data, Frames},
    module::{Module, Resolved},
    vdso::Vdso,
};

/// Most modules that are kept.
const MODULES_MAX: usize = 256;
/// Most bytes that what has been read of them may take; the one in use may take more.
const BYTES_MAX: usize = 512 << 20;

/// How long a module is made do with whose files a file system has kept back; then it is read anew.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// The number of a module; never used again for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ModuleId(u64);

/// Contents that are taken to be equal: the same build-id and length, of files of one owner. Another owner
/// could copy the build-id and have others' code shown under names of their choice.
#[derive(PartialEq, Eq, Hash)]
struct Build {
    id: Vec<u8>,
    length: u64,
    owner: u32,
    shared_with: SharedWith,
}

/// A file, for those whose processes are shown what is found beside it.
#[derive(PartialEq, Eq, Hash)]
struct SharedFile {
    key: FileKey,
    with: SharedWith,
}

/// A file that a process has mapped.
pub(super) struct MappedFile {
    /// The file.
    pub open: OpenFile,
    /// Where what belongs to it is looked for.
    pub home: Home,
    /// Whose processes may be shown what is found there.
    pub shared_with: SharedWith,
}

impl MappedFile {
    /// The kernel's own, which is the same in all processes, by what it is called.
    pub fn of_the_kernel(open: OpenFile, name: &Path) -> Self {
        Self {
            open,
            home: Home::new(name, &["/"]),
            shared_with: SharedWith::All,
        }
    }
}

struct Entry {
    module: Module,
    used: u64,
    bytes: usize,
}

impl Entry {
    /// Whether the module is to be read anew: its files have changed, or may answer by now that did not.
    fn is_outdated(&self, ask_again: Duration) -> bool {
        let home = self.module.home();
        let may_answer =
            || home.silent_for().is_some_and(|since| since >= ask_again) && !home.is_still_silent();
        !self.module.is_intact() || may_answer()
    }
}

/// The modules that are open.
pub(super) struct Modules {
    entries: HashMap<ModuleId, Entry>,
    by_file: HashMap<SharedFile, ModuleId>,
    by_build: HashMap<Build, ModuleId>,
    finder: Finder,
    /// Read when first asked for.
    vdso: Option<Vdso>,
    uses: u64,
    next: u64,
    /// Addresses that were looked up while a file system gave no answer that may have more of their module's files.
    unanswered: u64,
    ask_again: Duration,
}

impl Default for Modules {
    fn default() -> Self {
        Self::new(Finder::default())
    }
}

impl Modules {
    /// Modules whose debug files are found so.
    pub fn new(finder: Finder) -> Self {
        Self {
            entries: HashMap::new(),
            by_file: HashMap::new(),
            by_build: HashMap::new(),
            finder,
            vdso: None,
            uses: 0,
            next: 0,
            unanswered: 0,
            ask_again: ASK_AGAIN,
        }
    }

    /// The module of an open file, read in if it is new; what belongs to it is then looked for at home.
    ///
    /// # Errors
    /// Where it cannot be mapped or is no ELF file, or its file system does not answer (`TimedOut`).
    pub fn open(&mut self, name: &str, file: MappedFile) -> io::Result<ModuleId> {
        let MappedFile {
            open,
            home,
            shared_with,
        } = file;
        let key = open.key;
        let shared_file = SharedFile {
            key,
            with: shared_with,
        };
        let known = self.by_file.get(&shared_file).copied();
        if let Some(id) = known.filter(|id| self.is_of_use(*id, &home)) {
            return Ok(id);
        }
        let elf = read_file(open, Elf::read)?;
        let build = elf
            .build_id()
            .filter(|_| key.owner != UNKNOWN_OWNER)
            .map(|build| Build {
                id: build.to_vec(),
                length: key.length,
                owner: key.owner,
                shared_with,
            });
        let known = build.as_ref().and_then(|build| self.by_build.get(build)).copied();
        if let Some(id) = known.filter(|id| self.is_of_use(*id, &home)) {
            self.by_file.insert(shared_file, id);
            return Ok(id);
        }
        let id = ModuleId(self.next);
        self.next += 1;
        self.uses += 1;
        let module = Module::new(name, elf, home);
        let entry = Entry {
            bytes: module.bytes(),
            used: self.uses,
            module,
        };
        self.entries.insert(id, entry);
        self.by_file.insert(shared_file, id);
        if let Some(build) = build {
            self.by_build.insert(build, id);
        }
        self.make_room(id);
        Ok(id)
    }

    /// Whether a module that is open serves another process, whose files are looked for here; one that is outdated goes.
    fn is_of_use(&mut self, id: ModuleId, home: &Home) -> bool {
        let Some(entry) = self.entries.get(&id) else {
            return false;
        };
        if entry.is_outdated(self.ask_again) {
            self.remove(id);
            return false;
        }
        // What one user's files keep back, those of another may not.
        let known = entry.module.home();
        known.silent_for().is_none() || known.user() == home.user()
    }

    /// The file behind a mapping that has none: the kernel's own code in every process.
    ///
    /// # Errors
    /// Where it cannot be read, or the mapping is of another.
    pub fn vdso(&mut self, mapping: &Mapping) -> io::Result<OpenFile> {
        let vdso = match self.vdso.take() {
            Some(vdso) => vdso,
            None => Vdso::read()?,
        };
        self.vdso.insert(vdso).open(mapping).and_then(OpenFile::own)
    }

    /// The frames at an offset in a module's file; `None` where the module has had to go.
    pub fn resolve(&mut self, id: ModuleId, file_offset: u64, frames: &mut Frames) -> Option<Resolved> {
        self.with(id, |module, finder| module.resolve(file_offset, finder, frames))
    }

    /// As [`Self::resolve`], with the lines that run there.
    pub fn resolve_lines(&mut self, id: ModuleId, file_offset: u64, frames: &mut Frames) -> Option<Resolved> {
        self.with(id, |module, finder| {
            module.resolve_lines(file_offset, finder, frames)
        })
    }

    /// As [`Module::ends_behind`]; `None` where the module has had to go.
    pub fn ends_behind(&mut self, id: ModuleId, file_offset: u64) -> Option<bool> {
        self.with(id, |module, finder| module.ends_behind(file_offset, finder))
    }

    /// As [`Module::variable`]; `None` where the module has had to go.
    pub fn variable(
        &mut self,
        id: ModuleId,
        address: u64,
        mapped: (u64, u64),
        frames: &mut Frames,
    ) -> Option<Data> {
        self.with(id, |module, finder| {
            module.variable(address, mapped, finder, frames)
        })
    }

    /// How many addresses were looked up that may come out otherwise once a file system answers.
    pub fn unanswered(&self) -> u64 {
        self.unanswered
    }

    fn with<T>(&mut self, id: ModuleId, resolve: impl FnOnce(&mut Module, &Finder) -> T) -> Option<T> {
        let entry = self.entries.get_mut(&id)?;
        if entry.is_outdated(self.ask_again) {
            self.remove(id);
            return None;
        }
        self.uses += 1;
        entry.used = self.uses;
        let resolved = resolve(&mut entry.module, &self.finder);
        self.unanswered += u64::from(entry.module.home().silent_for().is_some());
        let bytes = entry.module.bytes();
        if bytes != std::mem::replace(&mut entry.bytes, bytes) {
            self.make_room(id);
        }
        Some(resolved)
    }

    /// Looks for what belongs to modules among these files first. All modules are read anew.
    pub fn side_load(&mut self, files: SideLoaded) {
        self.finder.side_load(files);
        self.entries.clear();
        self.by_file.clear();
        self.by_build.clear();
    }

    fn make_room(&mut self, in_use: ModuleId) {
        // A file that is rewritten again and again leaves keys behind, as do copies of one build.
        if self.by_file.len() > 4 * MODULES_MAX {
            self.by_file.clear();
        }
        while self.entries.len() > 1
            && (self.entries.len() > MODULES_MAX
                || self.entries.values().map(|entry| entry.bytes).sum::<usize>() > BYTES_MAX)
        {
            let others = self.entries.iter().filter(|(id, _)| **id != in_use);
            let Some((&oldest, _)) = others.min_by_key(|(_, entry)| entry.used) else {
                return;
            };
            self.remove(oldest);
        }
    }

    fn remove(&mut self, id: ModuleId) {
        self.entries.remove(&id);
        self.by_file.retain(|_, other| *other != id);
        self.by_build.retain(|_, other| *other != id);
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, path::PathBuf, sync::mpsc, thread};

    use profiler_debug_files::Reader;
    use profiler_target::{has_unanswered, read_of_user};
    use profiler_testkit::skipped;

    use super::*;

    fn open(modules: &mut Modules, name: &str, path: &Path) -> ModuleId {
        open_for(modules, name, path, SharedWith::All, Home::default())
    }

    fn open_for(
        modules: &mut Modules,
        name: &str,
        path: &Path,
        shared_with: SharedWith,
        home: Home,
    ) -> ModuleId {
        let file = MappedFile {
            open: OpenFile::own(File::open(path).unwrap()).unwrap(),
            home,
            shared_with,
        };
        modules.open(name, file).unwrap()
    }

    #[test]
    fn equal_builds_are_one_module_and_old_ones_go() {
        let folder = tempfile::tempdir().unwrap();
        let mut modules = Modules::default();
        let libc = std::fs::canonicalize("/lib/x86_64-linux-gnu/libc.so.6").unwrap();
        let copy = folder.path().join("copy");
        std::fs::copy(&libc, &copy).unwrap();
        let first = open(&mut modules, "libc", &libc);
        assert_eq!(open(&mut modules, "libc", &libc), first);
        assert_eq!(open(&mut modules, "copy", &copy), first);
        assert_eq!(modules.len(), 1);
        // Without the build-id, copies are told apart: make more than are kept.
        for index in 0..MODULES_MAX + 5 {
            let mut bytes = std::fs::read("/bin/true").unwrap();
            let elf = Elf::from_bytes(bytes.clone()).unwrap();
            let build = elf.build_id().unwrap();
            let at = bytes.windows(build.len()).position(|part| part == build).unwrap();
            bytes[at..at + 8].copy_from_slice(&(index as u64).to_le_bytes());
            std::fs::write(&copy, bytes).unwrap();
            open(&mut modules, "true", &copy);
            let renewed = folder.path().join(format!("{index}"));
            std::fs::rename(&copy, renewed).unwrap();
        }
        assert_eq!(modules.len(), MODULES_MAX);
        assert!(modules.resolve(first, 0, &mut Frames::default()).is_none());
    }

    #[test]
    fn a_module_of_a_process_that_sees_other_file_systems_is_its_users_alone() {
        use SharedWith::{All, ProcessesOf};
        let mut modules = Modules::default();
        let mut open = |with| {
            open_for(
                &mut modules,
                "true",
                Path::new("/bin/true"),
                with,
                Home::default(),
            )
        };
        let ids = [All, ProcessesOf(1), ProcessesOf(2)].map(&mut open);
        assert!(
            ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2],
            "{ids:?}"
        );
        assert_eq!([All, ProcessesOf(1), ProcessesOf(2)].map(open), ids);
    }

    #[test]
    fn a_module_whose_files_were_kept_back_is_read_again() {
        const USER: u32 = 61_238;
        if !rustix::process::geteuid().is_root() {
            return skipped("only root can take others' rights");
        }
        let path = Path::new("/bin/true");
        let of_user = || Home::new(path, &["/"]).read_by(Reader::user(USER));
        let mut modules = Modules {
            ask_again: Duration::ZERO,
            ..Modules::default()
        };
        let holds: Vec<_> = thread::scope(|scope| {
            // Longer together than a user's files are waited for.
            let waiting = [(); 4].map(|()| {
                let (hold, held) = mpsc::channel::<()>();
                let read = scope.spawn(move || read_of_user(USER, move || Ok(held.recv().is_ok())));
                (hold, read)
            });
            let mut over = |(hold, read): (_, thread::ScopedJoinHandle<'_, io::Result<bool>>)| {
                let unanswered = read.join().unwrap().unwrap_err();
                assert_eq!(unanswered.kind(), io::ErrorKind::TimedOut);
                hold
            };
            waiting.into_iter().map(&mut over).collect()
        });
        let look_up =
            |modules: &mut Modules, id| modules.resolve(id, 0x2000, &mut Frames::default()).is_some();
        let id = open_for(&mut modules, "true", path, SharedWith::All, of_user());
        for looked_up in 1..3 {
            assert!(look_up(&mut modules, id));
            assert_eq!(modules.unanswered(), looked_up);
        }
        // As long as there is no answer it is made do with, but by nobody else.
        let of_others = open(&mut modules, "true", path);
        assert_ne!(of_others, id);
        assert!(look_up(&mut modules, of_others));
        assert_eq!(modules.unanswered(), 2);
        drop(holds);
        while has_unanswered(USER) {
            thread::yield_now();
        }
        assert!(!look_up(&mut modules, id));
        assert_eq!(
            open_for(&mut modules, "true", path, SharedWith::All, of_user()),
            of_others
        );
    }

    /// A program that others may change.
    fn copied() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("copy");
        std::fs::copy("/bin/true", &copy).unwrap();
        (folder, copy)
    }

    fn shorten(path: &Path) {
        let file = File::options().write(true).open(path).unwrap();
        file.set_len(100).unwrap();
    }

    #[test]
    fn a_module_that_is_to_be_read_anew_is_not_handed_out() {
        let (_folder, copy) = copied();
        let mut modules = Modules::default();
        let id = open(&mut modules, "copy", &copy);
        let mapped = OpenFile::own(File::open(&copy).unwrap()).unwrap();
        shorten(&copy);
        // As it was when it was opened.
        let file = MappedFile {
            open: mapped,
            home: Home::default(),
            shared_with: SharedWith::All,
        };
        assert!(modules.open("copy", file).is_err(), "{id:?}");
    }

    #[test]
    fn shortened_file_is_let_go() {
        let (_folder, copy) = copied();
        let mut modules = Modules::default();
        let id = open(&mut modules, "copy", &copy);
        assert!(modules.resolve(id, 0x2000, &mut Frames::default()).is_some());
        shorten(&copy);
        assert!(modules.resolve(id, 0x2010, &mut Frames::default()).is_none());
        assert_eq!(modules.len(), 0);
    }
}
