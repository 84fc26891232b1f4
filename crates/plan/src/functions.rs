//! The functions of an ELF file by its symbol tables.
//!
//! Building it touches symbols only: names stay in the file, mangled, until they are asked for.

use std::{
    borrow::Cow,
    ops::Range,
    sync::{Arc, OnceLock},
};

use object::elf;
use profiler_elf::{Bytes, Elf, ElfError, RawSymbol, Segment, offset_of};

use super::{
    code,
    demangle::{self, CloneKind, display_name, split_clone, without_version},
    files::{ModuleFiles, NameFile},
    frames::Frames,
    outline::{self, Outline, Outlines, Part},
    return_address,
};

/// Longest linkage name that is looked at.
const MAX_LINKAGE_BYTES: usize = 64 * 1024;
/// Symbols that are kept of a file; a hundred times a large browser's.
const MAX_SYMBOLS: usize = 1 << 26;

/// Bytes of names that are looked at per byte of the file. Names may share their ends; many symbols that share one long
/// name are contrived, and would take long to match.
const NAMES_PER_BYTE: usize = 4;

/// Symbols before an address that are looked at for one that reaches it: symbols may nest.
const MAX_NESTED: usize = 16;

/// What a symbol names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum SymbolKind {
    /// A function.
    Function,
    /// A function that chooses, when the program is loaded, what stands for its name.
    Indirect,
    /// A piece that a function jumps to.
    Cold,
    /// A label of assembly: it names addresses, but is nothing to probe.
    Label,
}

/// A symbol, its name a range of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Symbol {
    pub address: u64,
    pub size: u64,
    name: u64,
    name_bytes: u32,
    pub kind: SymbolKind,
    /// Global before weak before local: which of several names is shown.
    rank: u8,
    file: NameFile,
}

/// A piece of a function.
#[derive(Clone, Copy)]
struct ColdPiece {
    /// Where it is among the other symbols.
    symbol: u32,
    /// How much of its name is its function's.
    owner_bytes: u32,
}

/// A file's functions, in order of address.
pub struct ModuleIndex {
    files: ModuleFiles,
    segments: Vec<Segment>,
    symbols: Vec<Symbol>,
    /// Where in `symbols` those of each function begin; symbols of one address are one function.
    functions: Vec<u32>,
    /// Code of functions that no symbol names, by the unwind rows, in order of address. Made when first asked for.
    unnamed: OnceLock<Box<[Range<u64>]>>,
    /// Slots of other files' functions that look at the address that they return to, in order. Made when first asked for.
    slots_of_readers: OnceLock<Box<[u64]>>,
    /// The path that it is mapped by; empty where it has none.
    path: Box<str>,
    /// Cold pieces and labels.
    others: Vec<Symbol>,
    /// The cold ones among them, by the name of the function that each is a piece of.
    cold: Vec<ColdPiece>,
    stripped: bool,
    has_debug_info: bool,
    has_go: bool,
    build_id: Option<Box<[u8]>>,
    outlines: outline::Lazy,
}

impl ModuleIndex {
    /// Reads the symbol tables of a file that nothing was split off from.
    ///
    /// # Errors
    /// What is not x86-64 ELF, and what is damaged.
    pub fn new(bytes: Bytes) -> Result<Self, ElfError> {
        Self::of(ModuleFiles::whole(bytes))
    }

    /// Reads the symbol tables of a module's files.
    ///
    /// # Errors
    /// What is not x86-64 ELF, and what is damaged.
    pub fn of(files: ModuleFiles) -> Result<Self, ElfError> {
        let program = Elf::parse(files.program())?;
        // One that says that it has symbols, and is damaged, has none.
        let split = files.symbols().and_then(|symbols| Elf::parse(symbols).ok());
        let mut symbols = Vec::new();
        let mut others = Vec::new();
        let length = files.program().len() + files.symbols().map_or(0, <[u8]>::len);
        let mut names_left = length.saturating_mul(NAMES_PER_BYTE);
        let in_program = program.symbols().map(|raw| (NameFile::Program, raw));
        let in_split = split.iter().flat_map(Elf::symbols);
        let in_split = in_split.map(|raw| (NameFile::Symbols, raw));
        for (file, raw) in in_program.chain(in_split).take(MAX_SYMBOLS) {
            if let Some(symbol) = accept(&files, file, &program.segments, &raw) {
                names_left = names_left
                    .checked_sub(symbol.name_bytes as usize)
                    .ok_or(ElfError::Damaged("its symbols share long names without end"))?;
                if symbol.kind <= SymbolKind::Indirect {
                    symbols.push(symbol);
                } else {
                    others.push(symbol);
                }
            }
        }
        symbols.sort_unstable_by_key(|s: &Symbol| (s.address, s.rank, s.name_bytes, s.name));
        others.sort_unstable_by_key(|s: &Symbol| (s.address, s.kind));
        // The dynamic table repeats names of the full one. The sort has put them side by side.
        symbols.dedup_by(|b, a| {
            a.address == b.address && a.name_bytes == b.name_bytes && name_of(&files, a) == name_of(&files, b)
        });
        give_sizes(&mut symbols, &mut others, (&program, files.program()));
        let mut functions: Vec<u32> = Vec::new();
        for (at, symbol) in symbols.iter().enumerate() {
            if at == 0 || symbols[at - 1].address != symbol.address {
                functions.push(u32::try_from(at).map_err(|_| ElfError::Damaged("too many symbols"))?);
            }
        }
        let cold = cold_pieces(&files, &others)?;
        let stripped = !program.has_symbol_table() && !split.is_some_and(|split| split.has_symbol_table());
        let has_debug_info = files.has_debug_info();
        let build_id = program.build_id().map(Box::from);
        let has_go = program.has_go();
        let segments = program.segments;
        Ok(Self {
            files,
            segments,
            symbols,
            functions,
            unnamed: OnceLock::new(),
            slots_of_readers: OnceLock::new(),
            path: Box::default(),
            others,
            cold,
            stripped,
            has_debug_info,
            has_go,
            build_id,
            outlines: outline::Lazy::default(),
        })
    }

    /// Takes the outlines of its units from where such are kept.
    #[must_use]
    pub fn with_outlines(mut self, outlines: Arc<dyn Outlines>) -> Self {
        self.outlines = outline::Lazy::kept_in(outlines);
        self
    }

    /// Says by which path it is mapped: functions without names are called by its last component and where they begin.
    #[must_use]
    pub fn mapped_by(mut self, path: &str) -> Self {
        self.path = path.into();
        self
    }

    /// Which of its units have what. It is made, by reading debug information once, when it is first asked for.
    #[must_use]
    pub fn outline(&self, part: Part) -> Outline {
        self.outlines
            .get(part, &|| Outline::of_file(self.files.debug(), part))
    }

    /// Bytes of memory that it takes by now, apart from the file's own.
    #[must_use]
    pub fn memory(&self) -> usize {
        (self.symbols.capacity() + self.others.capacity()) * size_of::<Symbol>()
            + self.functions.capacity() * size_of::<u32>()
            + self.cold.capacity() * size_of::<ColdPiece>()
            + self.unnamed.get().map_or(0, |unnamed| size_of_val(&**unnamed))
            + self
                .slots_of_readers
                .get()
                .map_or(0, |slots| size_of_val(&**slots))
            + self.outlines.memory()
    }

    /// The files that it is of.
    #[must_use]
    pub fn files(&self) -> &ModuleFiles {
        &self.files
    }

    /// The loadable parts.
    #[must_use]
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Whether only exported names are known: the full symbol table has been stripped.
    #[must_use]
    pub fn is_stripped(&self) -> bool {
        self.stripped
    }

    /// Whether some of its code was compiled by Go.
    #[must_use]
    pub fn has_go(&self) -> bool {
        self.has_go
    }

    /// Whether there is DWARF to join by [`super::dwarf::DebugIndex`].
    #[must_use]
    pub fn has_debug_info(&self) -> bool {
        self.has_debug_info
    }

    /// The file's build-id.
    #[must_use]
    pub fn build_id(&self) -> Option<&[u8]> {
        self.build_id.as_deref()
    }

    /// Number of functions that have names.
    #[must_use]
    pub fn len(&self) -> usize {
        self.functions.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// The code of functions that no symbol names, in order of address: what unwind rows are of, where that begins as a function
    /// does and no symbol lies in it. They have the numbers from [`Self::len`] on.
    #[must_use]
    pub fn unnamed(&self) -> &[Range<u64>] {
        self.unnamed.get_or_init(|| {
            let mut found = Frames::of(self.files.program()).functions();
            found.retain(|range| self.is_unnamed(range));
            found.into()
        })
    }

    /// The slots that hold addresses of other files' functions that look at the address that they return to, in order.
    pub(super) fn slots_of_readers(&self) -> &[u64] {
        let of_program = || return_address::slots_of_readers(self.files.program());
        self.slots_of_readers.get_or_init(of_program)
    }

    fn is_unnamed(&self, range: &Range<u64>) -> bool {
        let reaches_in = |symbols: &[Symbol]| {
            let behind = symbols.partition_point(|symbol| symbol.address < range.end);
            // Of symbols that nest, the last ones before are looked at.
            let mut last = symbols[..behind].iter().rev().take(MAX_NESTED);
            last.any(|symbol| symbol.address.saturating_add(symbol.size.max(1)) > range.start)
        };
        let mut segments = self.segments.iter();
        segments.any(|segment| segment.has_code_at(range.start))
            && !self.code(range.clone()).is_none_or(is_linkage)
            && !reaches_in(&self.symbols)
            && !reaches_in(&self.others)
    }

    /// How a function without a name is called that begins at an address.
    #[must_use]
    pub fn unnamed_name(&self, address: u64) -> String {
        let file = self.path.rsplit('/').next().unwrap_or_default();
        format!("{file}+{address:#x}")
    }

    /// The path that its file is mapped by; empty where that was not said.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Whether its file may be called so: by its path, or by the last components of that.
    #[must_use]
    pub fn is_at_path(&self, path: &str) -> bool {
        let before = self.path.strip_suffix(path);
        !path.is_empty() && before.is_some_and(|before| before.is_empty() || before.ends_with('/'))
    }

    /// The number of the function that begins at an address, with a name or without.
    #[must_use]
    pub fn number_at(&self, address: u64) -> Option<usize> {
        let begins = |&at: &u32| self.symbols[at as usize].address;
        if let Ok(named) = self.functions.binary_search_by_key(&address, begins) {
            return Some(named);
        }
        let unnamed = self.unnamed().binary_search_by_key(&address, |range| range.start);
        Some(self.len() + unnamed.ok()?)
    }

    /// The function that begins at an address, with a name or without.
    #[must_use]
    pub fn function_from(&self, address: u64) -> Option<Function<'_>> {
        Some(self.function(self.number_at(address)?))
    }

    /// The function that holds an address of the file, with a name or without.
    #[must_use]
    pub fn function_around(&self, address: u64) -> Option<Function<'_>> {
        let unnamed = || {
            let behind = self.unnamed().partition_point(|range| range.start <= address);
            let range = self.unnamed()[..behind]
                .last()
                .filter(|range| range.contains(&address))?;
            self.function_from(range.start)
        };
        self.function_at(address).or_else(unnamed)
    }

    /// Whether a number is that of a function.
    #[must_use]
    pub fn has_number(&self, at: usize) -> bool {
        at < self.len() || at - self.len() < self.unnamed().len()
    }

    /// The functions that have names, in order of address.
    #[must_use]
    pub fn functions(&self) -> impl DoubleEndedIterator<Item = Function<'_>> + ExactSizeIterator {
        (0..self.functions.len()).map(|at| self.function(at))
    }

    /// Function number `at`, which is below [`Self::len`], or of one without a name.
    #[must_use]
    pub fn function(&self, at: usize) -> Function<'_> {
        if at >= self.functions.len() {
            let unnamed = self.unnamed().get(at - self.functions.len());
            let Range { start, end } = unnamed.cloned().unwrap_or_default();
            return Function {
                index: self,
                symbols: &[],
                unnamed: UnnamedCode {
                    address: start,
                    size: end - start,
                },
            };
        }
        let end = self
            .functions
            .get(at + 1)
            .map_or(self.symbols.len(), |&end| end as usize);
        Function {
            index: self,
            symbols: &self.symbols[self.functions[at] as usize..end],
            unnamed: UnnamedCode::default(),
        }
    }

    /// The function with a name that holds an address of the file.
    #[must_use]
    pub fn function_at(&self, address: u64) -> Option<Function<'_>> {
        let after = self
            .functions
            .partition_point(|&at| self.symbols[at as usize].address <= address);
        let function = self.function(after.checked_sub(1)?);
        (address - function.address() < function.size()).then_some(function)
    }

    /// The shown name of whatever symbol holds an address, cold pieces and labels of assembly
    /// included.
    #[must_use]
    pub fn symbol_name_at(&self, address: u64) -> Option<Cow<'_, str>> {
        if let Some(function) = self.function_at(address) {
            return Some(function.name());
        }
        let after = self.others.partition_point(|symbol| symbol.address <= address);
        let symbol = self.others[..after]
            .last()
            .filter(|s| address - s.address < s.size)?;
        let name = self.name(symbol);
        Some(match name {
            Cow::Borrowed(name) => display_name(name),
            Cow::Owned(name) => Cow::Owned(display_name(&name).into_owned()),
        })
    }

    /// The machine code between two addresses, where the file has all of it.
    #[must_use]
    pub fn code(&self, range: Range<u64>) -> Option<&[u8]> {
        let length = usize::try_from(range.end.checked_sub(range.start)?).ok()?;
        let start = usize::try_from(self.offset_of(range.start)?).ok()?;
        self.files.program().get(start..start.checked_add(length)?)
    }

    /// The file offset of an address.
    #[must_use]
    pub fn offset_of(&self, address: u64) -> Option<u64> {
        offset_of(&self.segments, address)
    }

    fn name(&self, symbol: &Symbol) -> Cow<'_, str> {
        String::from_utf8_lossy(name_of(&self.files, symbol))
    }

    /// Cold pieces whose name says that they belong to one of these linkage names, in order of address.
    pub(super) fn cold_parts(&self, function: &Function<'_>) -> Vec<Range<u64>> {
        let mut pieces: Vec<u32> = Vec::new();
        for owner in raw_names(function) {
            let name = |piece: &ColdPiece| owner_of(&self.files, &self.others, *piece);
            let first = self.cold.partition_point(|piece| name(piece) < owner);
            let own = self.cold[first..].iter().take_while(|piece| name(piece) == owner);
            pieces.extend(own.map(|piece| piece.symbol));
        }
        pieces.sort_unstable();
        pieces.dedup();
        let range = |at| {
            let Symbol { address, size, .. } = self.others[at as usize];
            address..address.saturating_add(size)
        };
        pieces.into_iter().map(range).collect()
    }
}

/// Whether code begins with a jump to where a pointer leads: the linkage to other files' functions, all of which have their unwind
/// rows in common.
fn is_linkage(code: &[u8]) -> bool {
    const ENDBR64: &[u8] = b"\xf3\x0f\x1e\xfa";
    /// Before a jump: its target has to be within bounds (MPX).
    const BND: &[u8] = b"\xf2";
    const JUMP_BY_POINTER: &[u8] = b"\xff\x25";
    let code = code.strip_prefix(ENDBR64).unwrap_or(code);
    code.strip_prefix(BND)
        .unwrap_or(code)
        .starts_with(JUMP_BY_POINTER)
}

fn owner_of<'a>(files: &'a ModuleFiles, others: &[Symbol], piece: ColdPiece) -> &'a [u8] {
    let name = name_of(files, &others[piece.symbol as usize]);
    &name[..name.len().min(piece.owner_bytes as usize)]
}

/// The cold pieces among symbols, by the names of their functions.
fn cold_pieces(files: &ModuleFiles, others: &[Symbol]) -> Result<Vec<ColdPiece>, ElfError> {
    let mut pieces = Vec::new();
    let cold = others.iter().enumerate();
    for (at, symbol) in cold.filter(|(_, symbol)| symbol.kind == SymbolKind::Cold) {
        let at = u32::try_from(at).map_err(|_| ElfError::Damaged("too many symbols"))?;
        for end in memchr::memmem::find_iter(name_of(files, symbol), b".cold") {
            pieces.push(ColdPiece {
                symbol: at,
                owner_bytes: u32::try_from(end).unwrap_or(u32::MAX),
            });
        }
    }
    pieces.sort_unstable_by(|a, b| owner_of(files, others, *a).cmp(owner_of(files, others, *b)));
    Ok(pieces)
}

/// One function: an address with one or several names, or with none.
#[derive(Clone, Copy)]
pub struct Function<'a> {
    index: &'a ModuleIndex,
    /// Its names.
    symbols: &'a [Symbol],
    /// What is known of it where it has none.
    unnamed: UnnamedCode,
}

/// The code of a function without a name.
#[derive(Clone, Copy, Default)]
struct UnnamedCode {
    address: u64,
    size: u64,
}

impl<'a> Function<'a> {
    /// Its address in the file's address space.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.symbols
            .first()
            .map_or(self.unnamed.address, |symbol| symbol.address)
    }

    /// Whether no symbol names it: it is known by unwind rows alone.
    #[must_use]
    pub fn is_unnamed(&self) -> bool {
        self.symbols.is_empty()
    }

    /// Its size in bytes: the largest that its names give. 0 where nothing says.
    #[must_use]
    pub fn size(&self) -> u64 {
        let sizes = self.symbols.iter().map(|symbol| symbol.size);
        sizes.max().unwrap_or(self.unnamed.size)
    }

    /// Where its first byte is in the file.
    #[must_use]
    pub fn file_offset(&self) -> Option<u64> {
        self.index.offset_of(self.address())
    }

    /// Whether the name stands for a resolver that runs when the program is loaded.
    #[must_use]
    pub fn is_indirect(&self) -> bool {
        self.symbols
            .iter()
            .any(|symbol| symbol.kind == SymbolKind::Indirect)
    }

    /// The first of the names that stand for what it chooses, if it is such a resolver.
    #[must_use]
    pub fn indirect_name(&self) -> Option<Cow<'a, str>> {
        let mut symbols = self.symbols.iter();
        let indirect = symbols.find(|symbol| symbol.kind == SymbolKind::Indirect)?;
        Some(self.index.name(indirect))
    }

    /// Its names in the symbol table, without versions; global ones first.
    pub fn linkage_names(&self) -> impl Iterator<Item = Cow<'a, str>> + use<'a> {
        let index = self.index;
        self.symbols.iter().map(move |symbol| index.name(symbol))
    }

    /// The first of its linkage names; of one without a name, its file and where it begins.
    #[must_use]
    pub fn linkage_name(&self) -> Cow<'a, str> {
        self.symbols.first().map_or_else(
            || Cow::Owned(self.index.unnamed_name(self.unnamed.address)),
            |symbol| self.index.name(symbol),
        )
    }

    /// The name that is shown: demangled, without hash.
    #[must_use]
    pub fn name(&self) -> Cow<'a, str> {
        if self.is_unnamed() {
            return self.linkage_name();
        }
        match self.linkage_name() {
            Cow::Borrowed(name) => display_name(name),
            Cow::Owned(name) => Cow::Owned(display_name(&name).into_owned()),
        }
    }

    /// Its machine code, where the file has all of it.
    #[must_use]
    pub fn code(&self) -> Option<&'a [u8]> {
        self.index
            .code(self.address()..self.address().checked_add(self.size())?)
    }
}

/// Names of a function's symbols as bytes, for matching without conversions.
pub(super) fn raw_names<'a>(function: &Function<'a>) -> impl Iterator<Item = &'a [u8]> + use<'a> {
    unread_names(function).map(|name| name.bytes())
}

/// The same, for who can tell by where a name is whether to read it.
pub(super) fn unread_names<'a>(function: &Function<'a>) -> impl Iterator<Item = UnreadName<'a>> + use<'a> {
    let files = &function.index.files;
    let symbols = function.symbols.iter();
    symbols.map(move |symbol| UnreadName { files, symbol })
}

/// A linkage name, not read yet.
pub(super) struct UnreadName<'a> {
    files: &'a ModuleFiles,
    symbol: &'a Symbol,
}

impl<'a> UnreadName<'a> {
    /// Which file it is in.
    pub fn file(&self) -> NameFile {
        self.symbol.file
    }

    /// Where it is in that file.
    pub fn range(&self) -> Range<u64> {
        self.symbol.name..self.symbol.name.saturating_add(self.symbol.name_bytes.into())
    }

    pub fn bytes(&self) -> &'a [u8] {
        name_of(self.files, self.symbol)
    }
}

fn name_of<'a>(files: &'a ModuleFiles, symbol: &Symbol) -> &'a [u8] {
    // The range was inside the file when the index was built, and the file cannot have shrunk:
    // it is the same slice.
    let names = files.names(symbol.file);
    usize::try_from(symbol.name)
        .ok()
        .and_then(|start| names.get(start..start + symbol.name_bytes as usize))
        .unwrap_or_default()
}

fn accept(files: &ModuleFiles, file: NameFile, segments: &[Segment], raw: &RawSymbol) -> Option<Symbol> {
    let kind = match raw.kind {
        elf::STT_FUNC => SymbolKind::Function,
        elf::STT_GNU_IFUNC => SymbolKind::Indirect,
        elf::STT_NOTYPE => SymbolKind::Label,
        _ => return None,
    };
    if raw.undefined || raw.absolute {
        return None;
    }
    if !segments.iter().any(|s| s.has_code_at(raw.address)) {
        return None;
    }
    let start = usize::try_from(raw.name).ok()?;
    let limit = usize::try_from(raw.name_limit)
        .ok()?
        .min(start.saturating_add(MAX_LINKAGE_BYTES));
    let text = files.names(file).get(start..limit)?;
    let text = &text[..memchr::memchr(0, text)?];
    let text = &text[..memchr::memchr(b'@', text)
        .filter(|&at| at > 0)
        .unwrap_or(text.len())];
    if text.is_empty() {
        return None;
    }
    let kind =
        if kind == SymbolKind::Function && memchr::memmem::find(text, b".cold").is_some() && is_cold(text) {
            SymbolKind::Cold
        } else {
            kind
        };
    let rank = match raw.bind {
        elf::STB_GLOBAL => 0,
        elf::STB_WEAK => 1,
        _ => 2,
    };
    let name_bytes = u32::try_from(text.len()).ok()?;
    Some(Symbol {
        address: raw.address,
        size: raw.size,
        name: raw.name,
        name_bytes,
        kind,
        rank,
        file,
    })
}

fn is_cold(name: &[u8]) -> bool {
    std::str::from_utf8(name).is_ok_and(|name| split_clone(name).1 == CloneKind::Cold)
}

/// The file's code in a range; nothing of one that it has not all of.
fn code_of<'a>(elf: &Elf<'_>, program: &'a [u8], range: Range<u64>) -> &'a [u8] {
    let start = offset_of(&elf.segments, range.start).and_then(|start| usize::try_from(start).ok());
    let length = usize::try_from(range.end.saturating_sub(range.start)).ok();
    start
        .zip(length)
        .and_then(|(start, length)| program.get(start..start.checked_add(length)?))
        .unwrap_or_default()
}

/// Gives symbols without a size the room up to the next symbol, or to the end of their section, as far as their unwind rows reach
/// or, without such, their code.
fn give_sizes(symbols: &mut [Symbol], others: &mut [Symbol], (elf, program): (&Elf<'_>, &[u8])) {
    if symbols.iter().chain(others.iter()).all(|symbol| symbol.size != 0) {
        return;
    }
    let frames = Frames::of(program);
    let sections = elf.code_sections();
    let mut starts: Vec<u64> = symbols
        .iter()
        .chain(others.iter())
        .map(|symbol| symbol.address)
        .collect();
    starts.sort_unstable();
    for symbol in symbols
        .iter_mut()
        .chain(others.iter_mut())
        .filter(|symbol| symbol.size == 0)
    {
        let section = sections
            .partition_point(|range| range.start <= symbol.address)
            .checked_sub(1);
        let Some(end) = section
            .map(|at| sections[at].end)
            .filter(|&end| end > symbol.address)
        else {
            continue;
        };
        let next = starts.get(starts.partition_point(|&start| start <= symbol.address));
        let end = next.copied().unwrap_or(end).min(end);
        let rows = frames.piece(symbol.address).map(|piece| piece.end);
        let by_code = || match code_of(elf, program, symbol.address..end) {
            [] => end,
            code => code::reach(code, symbol.address),
        };
        symbol.size = rows.unwrap_or_else(by_code).min(end) - symbol.address;
    }
}

/// The name without version and compiler-made suffix, and what the suffix says.
pub(super) fn plain_linkage(name: &str) -> (&str, CloneKind) {
    demangle::split_clone(without_version(name))
}
