//! The verbs: resolve, forget.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io,
    sync::{Arc, atomic::AtomicBool},
};

use profiler_debug_files::{Finder, Home, Rights, SideLoaded};
use profiler_target::{Mapping, OpenFile, read_of_process, read_of_processes, user_of};

use super::{
    cache::{MappedFile, ModuleId, Modules},
    frame::{Data, Frame, FrameId, Frames},
    frame_table::FrameTable,
    kernel::KernelSymbols,
    look_budget::LookBudget,
    memory::{Memories, Memory, NamedMemory},
    owners::Owners,
    reason::Reason,
    space::{Behind, Detail, Generation, OpenedMapping, Seen, Space, Unopened},
    tasks::Tasks,
};

/// Most processes whose mappings are kept.
const PROCESSES_MAX: usize = 1024;
/// Most processes that are looked at on one thread at once, one after the other.
const TOGETHER_MAX: usize = 32;
/// Most bytes of the perf maps of all processes; the one in use may take more.
const PERF_MAPS_MAX: usize = 128 << 20;
/// Where the kernel puts the page that pending return probes return to: the last of a process's addresses.
const UPROBES_PAGE: u64 = 0x7fff_ffff_e000;
/// The page's size.
const PAGE: u64 = 0x1000;
/// What that page is called, by the kernel and here.
const UPROBES: &str = "[uprobes]";
/// What code without a file is called.
const ANONYMOUS: &str = "[anon]";
/// How paths of files begin that are memory only, which some compilers run their code in.
const MEMORY_FILES: [&str; 2] = ["/memfd:", "/dev/zero"];
/// Code without a file that is the kernel's.
const KERNELS_OWN: [&str; 3] = ["[vdso]", "[vsyscall]", UPROBES];
/// The module of frames that name memory.
const MEMORY: &str = "[memory]";
/// What an address that nothing is mapped at is called.
const UNKNOWN: &str = "[unknown]";

/// Resolves addresses to functions. It reads files and belongs on a thread of its own.
#[derive(Default)]
pub struct Symbolizer {
    frames: Frames,
    modules: Modules,
    spaces: HashMap<u32, Space>,
    kernel: Option<KernelSymbols>,
    tasks: Tasks,
    owners: Owners,
    memories: Memories,
    /// Of the perf maps of all processes.
    look_budget: LookBudget,
    uses: u64,
    spaces_made: u64,
    /// Addresses that may come out otherwise the next time: compiled code, and where nothing is mapped.
    fleeting: u64,
    /// The same where a process did not answer. Those for which the files of a module did not, `modules` counts.
    unanswered: u64,
}

impl Symbolizer {
    /// One that has read nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// One that finds debug files so.
    #[must_use]
    pub fn with(finder: Finder) -> Self {
        Self {
            modules: Modules::new(finder),
            ..Self::default()
        }
    }

    /// Appends the frames at an address of a process, innermost inlined one first; always at least one.
    ///
    /// For a return address, `address` is one byte before it. `now_ns` is any clock that does not go back:
    /// it limits how often the mappings are read again.
    pub fn resolve_user(&mut self, pid: u32, address: u64, now_ns: u64, out: &mut Vec<FrameId>) {
        self.resolve(pid, address, Detail::Function, now_ns, out);
    }

    /// Looks at processes whose mappings are not known, or too old, those of a user together, before their addresses are looked up: for
    /// each by itself, another thread would be waited for.
    pub fn look_at(&mut self, pids: impl IntoIterator<Item = u32>, now_ns: u64) {
        let pids: BTreeSet<u32> = pids.into_iter().collect();
        let due = pids.into_iter().filter(|pid| self.space(*pid).is_due(now_ns));
        for (user, pids) in together(due.collect()) {
            for (pid, seen) in read_of_processes(user, pids, Seen::of) {
                self.space(pid).take(seen, now_ns);
            }
        }
    }

    /// As [`Self::meet`], of several processes.
    pub fn meet_all(&mut self, pids: &[u32], now_ns: u64) {
        self.look_at(pids.iter().copied(), now_ns);
        self.open_files(pids);
        for pid in pids {
            self.meet(*pid, now_ns);
        }
    }

    /// Opens the files behind what processes have mapped, those of a user together.
    fn open_files(&mut self, pids: &[u32]) {
        for (user, pids) in together(pids.to_vec()) {
            let unopened: HashMap<u32, Unopened> = pids
                .iter()
                .map(|pid| (*pid, self.space(*pid).unopened()))
                .collect();
            let all_answer = AtomicBool::new(true);
            let open = move |pid: u32| {
                let unopened = unopened.get(&pid).ok_or(io::ErrorKind::NotFound)?;
                Ok(unopened.open(&all_answer, |rights, mapping| open_mapped(pid, rights, mapping)))
            };
            for (pid, opened) in read_of_processes(user, pids, open) {
                self.take_opened(pid, opened.unwrap_or_default());
            }
        }
    }

    fn take_opened(&mut self, pid: u32, opened: Vec<OpenedMapping>) {
        let Self { modules, spaces, .. } = self;
        let Some(space) = spaces.get_mut(&pid) else { return };
        for OpenedMapping { start, file } in opened {
            if let Some((mapping, behind)) = space.starting_at(start)
                && let Ok(found) = behind_of(pid, mapping, file, modules)
            {
                *behind = found;
            }
        }
    }

    /// Reads what a process and its threads are called and what it has mapped, and opens the files, while it is there: it may end before
    /// its first stack is named.
    pub fn meet(&mut self, pid: u32, now_ns: u64) {
        self.meet_tasks(pid, now_ns);
        for address in self.space(pid).begins(now_ns) {
            self.resolve_user_lines(pid, address, now_ns, &mut Vec::new());
        }
    }

    /// Reads what a process and its threads are called, at most once a second: one that ends before its stacks are named has its name.
    pub fn meet_tasks(&mut self, pid: u32, now_ns: u64) {
        self.turn_to(pid, now_ns);
        self.tasks.meet(pid, now_ns, &mut self.frames);
    }

    /// As [`Self::resolve_user`], with the lines that run in place of those of the declarations: of a function that
    /// others are inlined into, the line of the call. As many frames, and 0 where the line is not known.
    pub fn resolve_user_lines(&mut self, pid: u32, address: u64, now_ns: u64, out: &mut Vec<FrameId>) {
        self.resolve(pid, address, Detail::Line, now_ns, out);
    }

    /// Counts the frames that are made from now on for the user whose process this is.
    fn turn_to(&mut self, pid: u32, now_ns: u64) {
        let user = self.owners.of(pid, now_ns);
        self.frames.turn_to(user);
    }

    fn resolve(&mut self, pid: u32, address: u64, detail: Detail, now_ns: u64, out: &mut Vec<FrameId>) {
        self.turn_to(pid, now_ns);
        self.space(pid);
        let Self {
            frames,
            modules,
            spaces,
            fleeting,
            unanswered,
            look_budget,
            ..
        } = self;
        let Some(space) = spaces.get_mut(&pid) else { return };
        if let Some(known) = space.known(address, detail, now_ns) {
            out.extend_from_slice(known);
            return;
        }
        if address & !(PAGE - 1) == UPROBES_PAGE {
            out.push(intern_word(frames, UPROBES));
            return;
        }
        let rights = space.rights(now_ns);
        let Some((mapping, behind)) = space.mapping(address, now_ns) else {
            let reason = space.reason_without_mapping();
            *(if reason == Reason::NotAnswering {
                unanswered
            } else {
                fleeting
            }) += 1;
            let unknown = Frame::named(UNKNOWN, &UNKNOWN.into(), false);
            out.push(frames.intern(Frame {
                unresolved: Some(reason),
                ..unknown
            }));
            return;
        };
        let resolve = |modules: &mut Modules, id, offset, frames: &mut Frames| match detail {
            Detail::Function => modules.resolve(id, offset, frames),
            Detail::Line => modules.resolve_lines(id, offset, frames),
        };
        let unanswered_before = modules.unanswered();
        let reason = match in_file(mapping, behind, (pid, &rights), address, modules, frames, resolve) {
            Ok(resolved) => {
                out.extend_from_slice(&resolved);
                if modules.unanswered() == unanswered_before {
                    space.remember(address, detail, resolved);
                }
                return;
            }
            Err(reason) => reason,
        };
        if reason == Reason::NotAnswering {
            // It may the next time.
            *unanswered += 1;
            out.push(without_symbols(mapping, address, reason, frames));
            return;
        }
        if may_be_compiled(mapping) {
            *fleeting += 1;
            let bytes = space.perf_map_bytes();
            let compiled = space.compiled(address, now_ns, look_budget, frames);
            let grown = space.perf_map_bytes() > bytes;
            if let Some(compiled) = compiled {
                out.push(compiled);
            } else if let Some((mapping, _)) = space.mapping(address, now_ns) {
                out.push(without_symbols(mapping, address, reason, frames));
            }
            if grown {
                self.bound_perf_maps();
            }
            return;
        }
        let resolved: Arc<[_]> = Arc::new([without_symbols(mapping, address, reason, frames)]);
        out.extend_from_slice(&resolved);
        space.remember(address, detail, resolved);
    }

    /// What lies at an address of a process's data: a variable that all threads share, with how far in it, or a place in a
    /// module; `None` where no module has it, as on a heap or a stack.
    pub fn variable(&mut self, pid: u32, address: u64, now_ns: u64) -> Option<FrameId> {
        self.turn_to(pid, now_ns);
        self.space(pid);
        let Self {
            frames,
            modules,
            spaces,
            ..
        } = self;
        let space = spaces.get_mut(&pid)?;
        if let Some(known) = space.known_variable(address, now_ns) {
            return known.name();
        }
        let rights = space.rights(now_ns);
        let mut is_silent = false;
        let unanswered_before = modules.unanswered();
        let look_up = |(mapping, behind): &mut (Mapping, Behind)| {
            let mapped = (mapping.start, mapping.file_offset);
            let in_module = |modules: &mut Modules, id, _, frames: &mut Frames| {
                modules.variable(id, address, mapped, frames)
            };
            in_file(
                mapping,
                behind,
                (pid, &rights),
                mapping.start,
                modules,
                frames,
                in_module,
            )
            .inspect_err(|reason| is_silent |= *reason == Reason::NotAnswering)
            .ok()
            .and_then(Data::name)
        };
        let found = space.code_around(address).find_map(look_up);
        if !is_silent && modules.unanswered() == unanswered_before {
            space.remember_variable(address, found.map_or(Data::Elsewhere, Data::Named));
        }
        found
    }

    /// What memory an address lies in that is no variable's: `stack of` a thread, `[heap]`, or what is mapped there by name;
    /// `None` where that is not known.
    pub fn memory(&mut self, pid: u32, address: u64, now_ns: u64) -> Option<NamedMemory> {
        self.turn_to(pid, now_ns);
        let (name, is_stack) = match self.memories.around(pid, address, now_ns)? {
            Memory::Named(name) => (name, false),
            Memory::StackOf(tid) => {
                let thread = self.thread(pid, tid, now_ns);
                let thread = &self.frames().get(thread.0 as usize)?.function;
                (format!("stack of {thread}"), true)
            }
        };
        Some(NamedMemory {
            name: self.memory_named(&name),
            is_stack,
        })
    }

    /// What stands for memory of this name.
    pub fn memory_named(&mut self, name: &str) -> FrameId {
        self.frames.intern(Frame::named(name, &MEMORY.into(), false))
    }

    /// What is known of a process, which is used now.
    fn space(&mut self, pid: u32) -> &mut Space {
        let Self {
            spaces,
            uses,
            spaces_made,
            ..
        } = self;
        *uses += 1;
        if spaces.len() >= PROCESSES_MAX && !spaces.contains_key(&pid) {
            let oldest = spaces
                .iter()
                .min_by_key(|(_, space)| space.used)
                .map(|(&pid, _)| pid);
            oldest.and_then(|oldest| spaces.remove(&oldest));
        }
        let space = spaces.entry(pid).or_insert_with(|| {
            *spaces_made += 1;
            Space::new(pid, *spaces_made)
        });
        space.used = *uses;
        space
    }

    /// What is known of a process: an address that was resolved in the same generation, and was not
    /// [fleeting](Self::fleeting), comes out the same.
    pub fn generation(&mut self, pid: u32, now_ns: u64) -> Generation {
        self.space(pid).generation(now_ns)
    }

    /// How many addresses were resolved so far that may come out otherwise the next time.
    #[must_use]
    pub fn fleeting(&self) -> u64 {
        self.fleeting + self.unanswered()
    }

    /// Of these, those that come out otherwise once a process or a file system answers.
    #[must_use]
    pub fn unanswered(&self) -> u64 {
        self.unanswered + self.modules.unanswered()
    }

    /// Lets go of perf maps, those not used for longest first, until the others are within their bound.
    fn bound_perf_maps(&mut self) {
        let mut bytes: usize = self.spaces.values().map(Space::perf_map_bytes).sum();
        while bytes > PERF_MAPS_MAX {
            let others = self.spaces.values_mut();
            let oldest = others
                .filter(|space| space.perf_map_bytes() > 0 && space.used < self.uses)
                .min_by_key(|space| space.used);
            let Some(oldest) = oldest else { return };
            bytes -= oldest.perf_map_bytes();
            oldest.drop_perf_map();
        }
    }

    /// Appends the frame at an address of the kernel.
    pub fn resolve_kernel(&mut self, address: u64, out: &mut Vec<FrameId>) {
        // The kernel has so many functions and no more.
        self.frames.turn_to(None);
        let symbols = self.kernel.get_or_insert_with(KernelSymbols::read);
        out.push(symbols.resolve(address, &mut self.frames));
    }

    /// Folds a stack by module: consecutive frames of one become a frame of its name.
    pub fn fold_by_module(&mut self, stack: &[FrameId]) -> Vec<FrameId> {
        self.frames.fold_by_module(stack)
    }

    /// The frame that stands for a thread.
    pub fn thread(&mut self, tgid: u32, tid: u32, now_ns: u64) -> FrameId {
        self.turn_to(tgid, now_ns);
        self.tasks.thread(tgid, tid, now_ns, &mut self.frames)
    }

    /// The frame that stands for threads that are called like this one, but for a number.
    pub fn threads_like(&mut self, tgid: u32, tid: u32, now_ns: u64) -> FrameId {
        self.turn_to(tgid, now_ns);
        self.tasks.threads_like(tgid, tid, now_ns, &mut self.frames)
    }

    /// The frame that stands for a process's command line.
    pub fn process(&mut self, tgid: u32, now_ns: u64) -> FrameId {
        self.turn_to(tgid, now_ns);
        self.tasks.process(tgid, now_ns, &mut self.frames)
    }

    /// The table of frames: a [`FrameId`] is an index. It only grows, and entries never change.
    #[must_use]
    pub fn frames(&self) -> &FrameTable {
        self.frames.table()
    }

    /// Whether this function is where threads begin: a stack that ends here is complete.
    ///
    /// Known roots by name, and functions whose unwind table marks the return address undefined.
    #[must_use]
    pub fn is_root(&self, frame: FrameId) -> bool {
        self.frames.is_root(frame)
    }

    /// Whether what a process called at an address is all that a thread or the program does, as the code says that called it: a stack
    /// whose outermost call it is, is complete. `address` is one byte before the return address.
    pub fn ends_behind(&mut self, pid: u32, address: u64, now_ns: u64) -> bool {
        self.space(pid);
        let Self {
            frames,
            modules,
            spaces,
            unanswered,
            ..
        } = self;
        let Some(space) = spaces.get_mut(&pid) else {
            return false;
        };
        let rights = space.rights(now_ns);
        let Some((mapping, behind)) = space.mapping(address, now_ns) else {
            return false;
        };
        let ends = |modules: &mut Modules, id, offset, _: &mut Frames| modules.ends_behind(id, offset);
        let ends = in_file(mapping, behind, (pid, &rights), address, modules, frames, ends);
        if ends == Err(Reason::NotAnswering) {
            *unanswered += 1;
        }
        ends.unwrap_or(false)
    }

    /// Whether nothing is mapped where this is: no program runs there.
    #[must_use]
    pub fn is_unmapped(&self, frame: FrameId) -> bool {
        self.frames
            .table()
            .get(frame.0 as usize)
            .is_some_and(|frame| &*frame.module == UNKNOWN)
    }

    /// Looks for symbols in these files before any others that do not come with the program itself.
    pub fn side_load(&mut self, files: SideLoaded) {
        self.modules.side_load(files);
        self.spaces.clear();
    }

    /// Drops what is known of a process: it has ended or exec'd.
    pub fn forget(&mut self, pid: u32) {
        self.spaces.remove(&pid);
        self.tasks.forget(pid);
        self.owners.forget(pid);
    }
}

/// Processes by their user, so many at once; not one that would be by itself, which is read when it is needed.
fn together(pids: Vec<u32>) -> Vec<(u32, Vec<u32>)> {
    let mut by_user: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    if pids.len() < 2 {
        return Vec::new();
    }
    for pid in pids {
        if let Some(user) = user_of(pid) {
            by_user.entry(user).or_default().push(pid);
        }
    }
    let chunks = by_user.iter().flat_map(|(user, pids)| {
        let chunks = pids.chunks(TOGETHER_MAX).filter(|pids| pids.len() > 1);
        chunks.map(|pids| (*user, pids.to_vec()))
    });
    chunks.collect()
}

/// What is known of an address where a file is mapped.
fn in_file<T>(
    mapping: &Mapping,
    behind: &mut Behind,
    (pid, rights): (u32, &Rights),
    address: u64,
    modules: &mut Modules,
    frames: &mut Frames,
    resolve: impl Fn(&mut Modules, ModuleId, u64, &mut Frames) -> Option<T>,
) -> Result<T, Reason> {
    let is_vdso = mapping.is_vdso();
    let offset = if is_vdso {
        address.checked_sub(mapping.start)
    } else if mapping.is_file() {
        mapping.offset_of(address)
    } else {
        return Err(Reason::NoFile);
    };
    let offset = offset.ok_or(Reason::Damaged)?;
    if let Behind::Module(id) = *behind {
        if let Some(resolved) = resolve(modules, id, offset, frames) {
            return Ok(resolved);
        }
        // It had to make room, or its file changed.
        *behind = Behind::NotOpened;
    }
    if matches!(behind, Behind::NotOpened) {
        let file = if is_vdso {
            modules
                .vdso(mapping)
                .map(|open| MappedFile::of_the_kernel(open, &mapping.path))
        } else {
            let (rights, mapping) = (rights.clone(), mapping.clone());
            read_of_process(pid, move || open_mapped(pid, &rights, &mapping))
        };
        *behind = behind_of(pid, mapping, file, modules)?;
    }
    match *behind {
        Behind::Module(id) => resolve(modules, id, offset, frames).ok_or(Reason::Damaged),
        Behind::Unreadable(reason) => Err(reason),
        Behind::NotOpened => Err(Reason::NotReadable),
    }
}

/// What is behind a mapping, by its file, or by why that could not be opened.
///
/// # Errors
/// Where the process or the file system does not answer, which it may the next time.
fn behind_of(
    pid: u32,
    mapping: &Mapping,
    file: io::Result<MappedFile>,
    modules: &mut Modules,
) -> Result<Behind, Reason> {
    let opened = file.and_then(|file| modules.open(&module_name(mapping), file));
    let error = match opened {
        Ok(id) => return Ok(Behind::Module(id)),
        Err(error) => error,
    };
    tracing::debug!(%error, pid, path = %mapping.path.display(), "module not readable");
    match error.kind() {
        io::ErrorKind::InvalidData => Ok(Behind::Unreadable(Reason::NotElf)),
        io::ErrorKind::FileTooLarge => Ok(Behind::Unreadable(Reason::TooLarge)),
        io::ErrorKind::TimedOut => Err(Reason::NotAnswering),
        _ => Ok(Behind::Unreadable(Reason::NotReadable)),
    }
}

/// The file behind a mapping of a process of these rights; opening it may take as long as its file system likes.
fn open_mapped(pid: u32, rights: &Rights, mapping: &Mapping) -> io::Result<MappedFile> {
    let user = user_of(pid).ok_or(io::ErrorKind::NotFound)?;
    let (file, _) = mapping.open(pid)?;
    let open = OpenFile::of(file, user)?;
    let home = Home::of(pid, rights, &mapping.path, &open.metadata);
    let shared_with = home.shared_with(&open.file);
    Ok(MappedFile {
        open,
        home,
        shared_with,
    })
}

/// Whether code of a just-in-time compiler may lie in a mapping that is not of an ELF file.
fn may_be_compiled(mapping: &Mapping) -> bool {
    let path = mapping.path.as_os_str().as_encoded_bytes();
    if mapping.is_file() {
        MEMORY_FILES
            .iter()
            .any(|memory| path.starts_with(memory.as_bytes()))
    } else {
        !KERNELS_OWN.iter().any(|own| path == own.as_bytes())
    }
}

/// What a mapping is called: the file's name, or the word in brackets.
fn module_name(mapping: &Mapping) -> String {
    let path = mapping.path.as_os_str();
    if path.is_empty() {
        return ANONYMOUS.to_owned();
    }
    mapping
        .path
        .file_name()
        .unwrap_or(path)
        .to_string_lossy()
        .into_owned()
}

/// A frame that says where an address lies, as an offset in the file. Memory without a file is one frame: its addresses
/// mean nothing to anybody, and each would make a stack of its own.
fn without_symbols(mapping: &Mapping, address: u64, reason: Reason, frames: &mut Frames) -> FrameId {
    let name = module_name(mapping);
    if name == UPROBES {
        return intern_word(frames, UPROBES);
    }
    let module = name.as_str().into();
    if !mapping.is_file() {
        return frames.intern(Frame {
            unresolved: Some(reason),
            ..Frame::named(&format!("{module} ({reason})"), &module, false)
        });
    }
    let offset = mapping.offset_of(address).unwrap_or(address);
    frames.intern(Frame::unresolved(&module, None, offset, reason))
}

fn intern_word(frames: &mut Frames, word: &str) -> FrameId {
    frames.intern(Frame::named(word, &word.into(), false))
}

/// It is handed to a thread of its own.
const _: () = {
    const fn assert_send<T: Send>() {}
    assert_send::<Symbolizer>();
};
