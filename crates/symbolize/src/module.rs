//! One ELF file: resolves its addresses.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use profiler_debug_files::{Elf, Finder, Home};

use super::{
    declaration::Declaration,
    entry,
    frame::{Data, Frame, FrameId, Frames},
    inlined,
    lines::{self, Lines, Place},
    name::{demangle, is_mangled},
    reason::Reason,
    references::References,
    root,
    sources::Sources,
    symbols::{Kind, Symbols},
    units::{Found, InSplit, Units},
};

/// Most addresses of one module whose frames are kept; then they are all resolved anew.
const ADDRESSES_MAX: usize = 1 << 16;

/// What ends a thread or the program, as a libc calls it.
const ENDINGS: [&[u8]; 3] = [b"exit", b"pthread_exit", b"__pthread_exit"];

/// Frames at an address, innermost first.
pub(super) type Resolved = Arc<[FrameId]>;

/// A module and what has been read of it so far.
pub(super) struct Module {
    name: Arc<str>,
    build_id: Option<Arc<[u8]>>,
    /// Whether a frame says which build it is.
    is_build_told: bool,
    sources: Sources,
    symbols: Option<Symbols>,
    variables: Option<Symbols>,
    units: Option<Units>,
    resolved: HashMap<u64, Resolved>,
    lines: Lines,
    /// As `resolved`, with the lines that run.
    resolved_lines: HashMap<u64, Resolved>,
    /// Of calls, whether a thread ends behind them.
    endings: HashMap<u64, bool>,
    /// As of [`entry::first_calls`], once somebody asked.
    first_calls: Option<HashSet<u64>>,
}

impl Module {
    pub fn new(name: &str, elf: Elf, home: Home) -> Self {
        Self {
            name: name.into(),
            build_id: elf.build_id().map(Into::into),
            is_build_told: false,
            sources: Sources::new(elf, home),
            symbols: None,
            variables: None,
            units: None,
            resolved: HashMap::new(),
            lines: Lines::default(),
            resolved_lines: HashMap::new(),
            endings: HashMap::new(),
            first_calls: None,
        }
    }

    /// Where its files are looked for.
    pub fn home(&self) -> &Home {
        self.sources.home()
    }

    /// Whether its files are as long as they were.
    pub fn is_intact(&self) -> bool {
        self.sources.is_intact()
    }

    /// The frames at an offset in the file.
    pub fn resolve(&mut self, file_offset: u64, finder: &Finder, frames: &mut Frames) -> Resolved {
        let Some(address) = self.sources.own().address_of(file_offset) else {
            return Arc::new([self.unresolved(file_offset, Reason::Damaged, frames)]);
        };
        self.resolve_address(address, finder, frames)
    }

    /// As [`Self::resolve`], by an address of the file's own numbering.
    pub fn resolve_address(&mut self, address: u64, finder: &Finder, frames: &mut Frames) -> Resolved {
        if let Some(known) = self.resolved.get(&address) {
            return Arc::clone(known);
        }
        if !self.sources.is_intact() {
            return Arc::new([self.unresolved(address, Reason::Damaged, frames)]);
        }
        let refused = frames.refused();
        if let Some(build_id) = self.build_id.as_ref().filter(|_| !self.is_build_told) {
            let told = frames.intern(Frame::of_build(&self.name, build_id));
            self.is_build_told = told != FrameId::OTHER;
        }
        self.sources.find(finder);
        let found = self.look_up(address, frames);
        if let Some(&outermost) = found.last()
            && root::is_root(self.sources.own(), address)
        {
            frames.set_root(outermost);
        }
        if self.resolved.len() >= ADDRESSES_MAX {
            self.resolved.clear();
        }
        let found: Resolved = found.into();
        // Others may have room where the one has none that it was named for.
        if frames.refused() == refused {
            self.resolved.insert(address, Arc::clone(&found));
        }
        found
    }

    /// Whether what was called at an offset in the file is all that a thread or the program does: what it returns is handed to what
    /// ends that, by code without unwind information, which leads nowhere else. So musl's first functions do (`exit(main(…))`), also
    /// where a file has no names left: `clone` by its code, and what calls `main` as the entry point leads there. Of the call alone: a
    /// function may call something else before.
    pub fn ends_behind(&mut self, file_offset: u64, finder: &Finder) -> bool {
        let Some(address) = self.sources.own().address_of(file_offset) else {
            return false;
        };
        if let Some(&known) = self.endings.get(&address) {
            return known;
        }
        if !self.sources.is_intact() {
            return false;
        }
        self.sources.find(finder);
        let own = self.sources.own();
        let called = root::result_goes_to(own, address);
        let exits = root::exits_behind(own, address)
            || called.is_some_and(|called| match self.symbol(called) {
                Some(name) => ENDINGS.contains(&name.as_slice()),
                None => self.is_first_call(address),
            });
        // Last, as a table without an index is read through.
        let ends = exits && !root::may_have_rows(self.sources.own(), address);
        if self.endings.len() >= ADDRESSES_MAX {
            self.endings.clear();
        }
        self.endings.insert(address, ends);
        ends
    }

    /// Whether a call is one of the program's first functions. `address` is the last byte of the call.
    fn is_first_call(&mut self, address: u64) -> bool {
        let own = self.sources.own();
        self.first_calls
            .get_or_insert_with(|| entry::first_calls(own))
            .contains(&address)
    }

    /// As [`Self::resolve`], with the lines that run there in place of those of the declarations.
    pub fn resolve_lines(&mut self, file_offset: u64, finder: &Finder, frames: &mut Frames) -> Resolved {
        if let Some(known) = self.resolved_lines.get(&file_offset) {
            return Arc::clone(known);
        }
        let refused = frames.refused();
        let resolved = match self.sources.own().address_of(file_offset) {
            Some(address) => self.resolve_address_lines(address, finder, frames),
            None => self.resolve(file_offset, finder, frames),
        };
        if self.resolved_lines.len() >= ADDRESSES_MAX {
            self.resolved_lines.clear();
        }
        if frames.refused() == refused {
            self.resolved_lines.insert(file_offset, Arc::clone(&resolved));
        }
        resolved
    }

    /// As [`Self::resolve_lines`], by an address of the file's own numbering.
    pub fn resolve_address_lines(&mut self, address: u64, finder: &Finder, frames: &mut Frames) -> Resolved {
        let functions = self.resolve_address(address, finder, frames);
        let mut places = if self.sources.is_intact() {
            self.places(address).into_iter()
        } else {
            Vec::new().into_iter()
        };
        let at_line = |&id: &FrameId| {
            let place = places.next().flatten();
            let Some(function) = frames.table().get(id.0 as usize).filter(|_| id != FrameId::OTHER) else {
                return id;
            };
            // A file that is to be had elsewhere knows the line of this very address.
            if let Some(reason) = function.unresolved {
                return frames.intern(Frame::unresolved(
                    &self.name,
                    self.build_id.as_ref(),
                    address,
                    reason,
                ));
            }
            let (file, line) = place.map_or_else(
                || (Arc::clone(&function.file), 0),
                |Place { file, line }| (file.into(), line),
            );
            let frame = Frame {
                file,
                line,
                ..function.clone()
            };
            frames.intern(frame)
        };
        functions.iter().map(at_line).collect()
    }

    /// Where the functions at an address are in the source, innermost first; none where DWARF knows nothing.
    fn places(&mut self, address: u64) -> Vec<Option<Place>> {
        let Some(units) = self.units.as_mut().filter(|units| !units.is_empty()) else {
            return Vec::new();
        };
        let dwarf = self.sources.dwarf();
        let Some(Found { split, unit, entry }) = units.find(&dwarf, self.sources.split(), address) else {
            return Vec::new();
        };
        let (in_unit, table) = match &split {
            Some(InSplit { dwarf, skeleton }) => (dwarf, skeleton),
            None => (&dwarf, &unit),
        };
        let chain = inlined::chain(in_unit, &unit, entry, address).unwrap_or_else(|_| vec![entry]);
        let here = self.lines.at(&dwarf, table, address);
        let calls = lines::calls(in_unit, &unit, &chain);
        std::iter::once(here).chain(calls).collect()
    }

    fn look_up(&mut self, address: u64, frames: &mut Frames) -> Vec<FrameId> {
        let declarations = self.declarations(address);
        // Only where DWARF has no name for the linker: symbols of a large file cost time and memory.
        let incomplete = declarations
            .last()
            .is_none_or(|outermost| outermost.linkage_name.is_none());
        let symbol = if incomplete { self.symbol(address) } else { None };
        if declarations.is_empty() {
            return match symbol {
                Some(name) => vec![frames.intern(Frame::named(&demangle(&name), &self.name, false))],
                None => vec![self.unresolved(self.beginning(address), self.sources.lacking(), frames)],
            };
        }
        let outermost = declarations.len() - 1;
        let frame = |(index, declaration): (usize, Declaration)| {
            let Declaration {
                linkage_name,
                name,
                file,
                line,
            } = declaration;
            let inlined = index != outermost;
            let symbol = symbol.as_ref().filter(|_| !inlined);
            let mangled = symbol.filter(|name| is_mangled(name));
            let name = linkage_name.or_else(|| mangled.cloned()).or(name);
            let named = match name.or_else(|| symbol.cloned()) {
                Some(name) => Frame::named(&demangle(&name), &self.name, false),
                None => Frame::unresolved(
                    &self.name,
                    self.build_id.as_ref(),
                    self.beginning(address),
                    self.sources.lacking(),
                ),
            };
            Frame {
                file: file.into(),
                line,
                inlined,
                ..named
            }
        };
        declarations
            .into_iter()
            .enumerate()
            .map(frame)
            .map(|frame| frames.intern(frame))
            .collect()
    }

    /// What DWARF knows of the functions at an address, innermost first; none where it knows nothing.
    fn declarations(&mut self, address: u64) -> Vec<Declaration> {
        if self.units.is_none() {
            self.units = Some(if self.sources.has_debug() {
                Units::read(&mut self.sources.dwarf())
            } else {
                Units::none()
            });
        }
        let Some(units) = self.units.as_mut().filter(|units| !units.is_empty()) else {
            return Vec::new();
        };
        let skeletons = units.skeletons(&self.sources.dwarf(), address);
        self.sources.load_split(&skeletons);
        let dwarf = self.sources.dwarf();
        let Some(Found { split, unit, entry }) = units.find(&dwarf, self.sources.split(), address) else {
            return Vec::new();
        };
        let references = References {
            // Nothing in a file of its own refers to other units.
            own: split.is_none().then_some(units.offsets()),
            supplement: self.sources.supplement_offsets(),
            dwarf: split.as_ref().map_or(&dwarf, |split| &split.dwarf),
        };
        let dwarf = references.dwarf;
        let chain = inlined::chain(dwarf, &unit, entry, address).unwrap_or_else(|error| {
            tracing::debug!(%error, module = %self.name, address, "inlined functions left out");
            vec![entry]
        });
        let declaration = |&entry| Declaration::read(references, &unit, entry);
        chain.iter().rev().map(declaration).collect()
    }

    fn symbol(&mut self, address: u64) -> Option<Vec<u8>> {
        let files = self.sources.with_symbols();
        let symbols = self
            .symbols
            .get_or_insert_with(|| Symbols::read(&files, Kind::Functions));
        symbols.find(&files, address).map(<[u8]>::to_vec)
    }

    /// The variable of the module that a process has at an address, or where in the module that is, where the module's
    /// code is `mapped` from this part of its file.
    pub fn variable(
        &mut self,
        address: u64,
        mapped: (u64, u64),
        finder: &Finder,
        frames: &mut Frames,
    ) -> Data {
        let Some(address) = self.sources.own().address_in_process(address, mapped) else {
            return Data::Elsewhere;
        };
        self.sources.find(finder);
        let files = self.sources.with_symbols();
        let variables = self
            .variables
            .get_or_insert_with(|| Symbols::read(&files, Kind::Variables));
        let name = match variables.find_from(&files, address) {
            Some((begins, name)) if begins == address => demangle(name),
            Some((begins, name)) => format!("{}+{}", demangle(name), address - begins),
            None => format!("{}+{address:#x}", self.name),
        };
        Data::Named(frames.intern(Frame::named(&name, &self.name, false)))
    }

    /// Where the function begins that holds an address, as far as unwind rows say: it is called after that where nothing else
    /// names it.
    fn beginning(&self, address: u64) -> u64 {
        root::beginning(self.sources.own(), address).unwrap_or(address)
    }

    fn unresolved(&self, address: u64, reason: Reason, frames: &mut Frames) -> FrameId {
        let build_id = self.build_id.as_ref();
        frames.intern(Frame::unresolved(&self.name, build_id, address, reason))
    }

    /// Bytes of memory that it takes, apart from the mapped file; about right.
    pub fn bytes(&self) -> usize {
        self.symbols.as_ref().map_or(0, Symbols::bytes)
            + self.variables.as_ref().map_or(0, Symbols::bytes)
            + self.units.as_ref().map_or(0, Units::bytes)
            + self.sources.bytes()
            + (self.resolved.len() + self.resolved_lines.len()) * 64
            + self.endings.len() * 16
            + self.first_calls.as_ref().map_or(0, HashSet::len) * 16
            + self.lines.bytes()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use object::{Object as _, ObjectSection as _, ObjectSymbol as _};
    use proptest::prelude::*;

    use super::*;

    /// A small object of the system's own compiler, with inlined functions.
    static OBJECT: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let folder = tempfile::tempdir().unwrap();
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/inlined.c");
        let output = folder.path().join("object");
        let built = std::process::Command::new("gcc")
            .args(["-O2", "-g", "-shared", "-fPIC", "-nostdlib", "-o"])
            .arg(&output)
            .arg(source)
            .status();
        assert!(built.unwrap().success());
        std::fs::read(output).unwrap()
    });

    fn resolve_all(bytes: Vec<u8>) -> usize {
        let length = bytes.len() as u64;
        let Ok(elf) = Elf::from_bytes(bytes) else { return 0 };
        let mut module = Module::new("object", elf, Home::default());
        let mut frames = Frames::default();
        for offset in (0..length).step_by(16) {
            module.resolve(offset, &Finder::default(), &mut frames);
            module.resolve_lines(offset, &Finder::default(), &mut frames);
            module.ends_behind(offset, &Finder::default());
            if let Some(address) = module.sources.own().address_of(offset) {
                root::may_have_rows(module.sources.own(), address);
            }
        }
        frames.table().iter().filter(|frame| frame.inlined).count()
    }

    /// Functions that call something, and what they do with what it returned.
    const FIRST_FUNCTIONS: &str = "
        .macro function name
            .type \\name, @function
            \\name:
        .endm
        .macro then name, from, to, callee
            call *%r9
            after_\\name: mov \\from, \\to
            call \\callee
            hlt
            .size \\name, . - \\name
        .endm
        .globl exit, _start
        function exit; hlt; .size exit, . - exit
        function inner; ret; .size inner, . - inner
        function thread; then thread, %rax, %rdi, exit
        function program; then program, %eax, %edi, exit
        function another; then another, %rax, %rdi, inner
        function widened; call *%r9
            after_widened: movslq %eax, %rdi; call exit; hlt; .size widened, . - widened
        function twice; call *%r9
            mov %rax, %r9; call *%r9
            after_twice: mov %eax, %edi; call exit; hlt; .size twice, . - twice
        function moved; then moved, %rax, %rsi, exit
        function with_rows; .cfi_startproc; then with_rows, %rax, %rdi, exit; .cfi_endproc
        function bare; call *%r9
            after_bare: mov %eax, %edi; xor %eax, %eax; mov $60, %al; syscall; hlt; .size bare, . - bare
        function writes; call *%r9
            after_writes: mov %eax, %edi; xor %eax, %eax; mov $1, %al; syscall; hlt; .size writes, . - writes
        _start: hlt
    ";

    #[test]
    fn code_without_rows_that_ends_with_what_it_called_is_where_a_thread_begins() {
        // Programs that are linked statically have no index of their rows.
        for index in ["-Wl,--eh-frame-hdr", "-Wl,--no-eh-frame-hdr"] {
            calls_that_end_a_thread_are_told(index);
        }
    }

    fn calls_that_end_a_thread_are_told(index: &str) {
        let folder = tempfile::tempdir().unwrap();
        let (source, output) = (folder.path().join("first.s"), folder.path().join("first"));
        std::fs::write(&source, FIRST_FUNCTIONS).unwrap();
        let built = std::process::Command::new("gcc")
            .args(["-nostdlib", "-static", index, "-o"])
            .args([&output, &source])
            .status();
        assert!(built.unwrap().success());
        let elf = Elf::from_bytes(std::fs::read(output).unwrap()).unwrap();
        let parsed = elf.parse().unwrap();
        assert_eq!(
            parsed.section_by_name(".eh_frame_hdr").is_some(),
            index == "-Wl,--eh-frame-hdr"
        );
        let text = parsed.section_by_name(".text").unwrap();
        let (text_offset, text_address) = (text.file_range().unwrap().0, text.address());
        let addresses: HashMap<String, u64> = parsed
            .symbols()
            .filter_map(|symbol| Some((symbol.name().ok()?.to_owned(), symbol.address())))
            .collect();
        let mut module = Module::new("first", elf, Home::default());
        let mut frames = Frames::default();
        let mut begins_before = |name: &str, before: u64| {
            let offset = addresses[&format!("after_{name}")] - before - text_address + text_offset;
            let ends = module.ends_behind(offset, &Finder::default());
            let found = module.resolve(offset, &Finder::default(), &mut frames);
            let outermost = *found.last().unwrap();
            // Not so for whatever else it calls.
            assert!(!frames.is_root(outermost), "{name}");
            assert_eq!(&*frames.table()[outermost.0 as usize].function, name);
            assert_eq!(module.ends_behind(offset, &Finder::default()), ends);
            ends
        };
        // The call before `mov %rax, %r9; call *%r9`.
        let first_of_twice = begins_before("twice", 1 + 6);
        let mut begins = |name| begins_before(name, 1);
        assert!(begins("thread") && begins("program") && begins("widened"));
        assert!(begins("twice") && !first_of_twice, "only one of its calls");
        assert!(begins("bare"), "which needs no symbol");
        assert!(!begins("another") && !begins("moved") && !begins("writes"));
        assert!(!begins("with_rows"), "which says itself who called it");
    }

    /// A program's first functions as those of musl, and what they call.
    const FIRST_CALLS: &str = "
        .globl _start
        _start: xor %rbp, %rbp; mov %rsp, %rdi; and $-16, %rsp; call first; nop
        first: jmp begin
        begin: push %rbp; call inner; test %eax, %eax; je skip
            nop
        skip: lea stage(%rip), %rax; pop %rbp; jmp *%rax
        stage: push %rbx; call inner
            after_inner: mov %rdi, %rbx; call *%rbx
            after_program: mov %eax, %edi; call ending
        ending: mov $231, %eax; syscall; jmp ending
        inner: call *%r9
            after_deeper: mov %eax, %edi; call ending
        unreached: call *%r9
            after_unreached: mov %eax, %edi; call ending
    ";

    #[test]
    fn a_stripped_programs_first_call_is_found_from_its_entry_point() {
        let folder = tempfile::tempdir().unwrap();
        let [source, named, stripped] = ["first.s", "named", "stripped"].map(|name| folder.path().join(name));
        std::fs::write(&source, FIRST_CALLS).unwrap();
        let run = |program: &str, arguments: &[&std::ffi::OsStr]| {
            let status = std::process::Command::new(program).args(arguments).status();
            assert!(status.unwrap().success());
        };
        let flags = ["-nostdlib", "-static", "-o"].map(AsRef::as_ref);
        run("gcc", &[&flags[..], &[named.as_ref(), source.as_ref()]].concat());
        run("strip", &["-o".as_ref(), stripped.as_ref(), named.as_ref()]);
        let with_names = Elf::from_bytes(std::fs::read(named).unwrap()).unwrap();
        let parsed = with_names.parse().unwrap();
        let address_of = |name: &str| {
            let mut symbols = parsed.symbols();
            symbols
                .find(|symbol| symbol.name() == Ok(name))
                .unwrap()
                .address()
        };
        let text = parsed.section_by_name(".text").unwrap();
        let (text_offset, text_address) = (text.file_range().unwrap().0, text.address());
        let elf = Elf::from_bytes(std::fs::read(stripped).unwrap()).unwrap();
        let mut module = Module::new("first", elf, Home::default());
        let mut ends_before = |name: &str| {
            let offset = address_of(name) - 1 - text_address + text_offset;
            module.ends_behind(offset, &Finder::default())
        };
        assert!(ends_before("after_program"));
        assert!(!ends_before("after_inner"), "it goes on");
        assert!(!ends_before("after_deeper"), "it is called itself");
        assert!(!ends_before("after_unreached"));
    }

    #[test]
    fn whole_object_resolves() {
        assert!(resolve_all(OBJECT.clone()) > 0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn damaged_objects_do_no_harm(damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40)) {
            let mut bytes = OBJECT.clone();
            for (at, byte) in damage {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            resolve_all(bytes);
        }

        #[test]
        fn damaged_tables_without_index_do_no_harm(
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
            at in any::<u64>(),
            address in any::<u64>(),
        ) {
            let elf = Elf::from_bytes(OBJECT.clone()).unwrap();
            let parsed = elf.parse().unwrap();
            let mut table = parsed.section_by_name(".eh_frame").unwrap().data().unwrap().to_vec();
            for (at, byte) in damage {
                let at = at.index(table.len());
                table[at] = byte;
            }
            root::may_have_entry(&table, at, address);
        }

        #[test]
        fn cut_objects_do_no_harm(length in any::<prop::sample::Index>()) {
            let mut bytes = OBJECT.clone();
            bytes.truncate(length.index(bytes.len()));
            resolve_all(bytes);
        }
    }
}
