//! Symbols of functions, and of variables, sorted by address.

use std::ops::Range;

use object::{
    elf::{
        SHF_EXECINSTR, SHN_UNDEF, STB_GLOBAL, STB_WEAK, STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE, STT_OBJECT,
        SymbolSection,
    },
    read::elf::{SectionHeader as _, Sym as _, SymbolTable},
};
use profiler_debug_files::{Elf, Parsed};
use profiler_elf::Header;

use super::root;

/// Most symbols of one file that are looked at.
const SYMBOLS_MAX: usize = 4 << 20;
/// How many symbols before an address are looked at for one that reaches it: symbols can nest.
const NESTING_MAX: usize = 16;
/// How the upper bits of [`Symbol::name`] say which string table the name is in: two of each file.
const TABLE_SHIFT: u32 = 30;
/// Most files whose symbols are put together.
const FILES_MAX: usize = 2;

#[derive(Clone, Copy)]
struct Symbol {
    address: u64,
    /// 0: up to the next symbol.
    size: u32,
    /// Offset in the string table, and which that is.
    name: u32,
}

/// What symbols are of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Functions,
    /// Those that are there once, whatever thread looks.
    Variables,
}

/// The symbols of a kind of a module, from one file or two. Names are read from the files when asked for.
pub(super) struct Symbols {
    sorted: Box<[Symbol]>,
    strings: [Range<usize>; 2 * FILES_MAX],
}

impl Symbols {
    /// Reads the symbol table and the dynamic one of each file; of two at an address, the first file's stays.
    pub fn read(files: &[&Elf], kind: Kind) -> Self {
        let mut ranked: Vec<(u8, Symbol)> = Vec::new();
        let mut strings = [const { 0..0 }; 2 * FILES_MAX];
        for (file, elf) in files.iter().take(FILES_MAX).enumerate() {
            let Ok(parsed) = elf.parse() else { continue };
            let tables = [parsed.elf_symbol_table(), parsed.elf_dynamic_symbol_table()];
            for (index, table) in (2 * file..).zip(tables) {
                strings[index] = string_range(&parsed, table).unwrap_or(0..0);
                let mark = u32::try_from(index).unwrap_or(0) << TABLE_SHIFT;
                let text = elf.slice(&strings[index]);
                ranked.extend(of_kind(&parsed, table, text, kind).map(|(rank, mut symbol)| {
                    symbol.name |= mark;
                    (rank, symbol)
                }));
            }
        }
        ranked.sort_unstable_by_key(|(rank, symbol)| (symbol.address, *rank, symbol.name));
        ranked.dedup_by_key(|(_, symbol)| symbol.address);
        Self {
            sorted: ranked.into_iter().map(|(_, symbol)| symbol).collect(),
            strings,
        }
    }

    /// The mangled name of the function or variable that holds an address, from the files that were read.
    pub fn find<'a>(&self, files: &[&'a Elf], address: u64) -> Option<&'a [u8]> {
        self.find_from(files, address).map(|(_, name)| name)
    }

    /// As [`Self::find`], with its first address.
    pub fn find_from<'a>(&self, files: &[&'a Elf], address: u64) -> Option<(u64, &'a [u8])> {
        let after = self.sorted.partition_point(|symbol| symbol.address <= address);
        let holds = |(back, symbol): (usize, &Symbol)| {
            if symbol.size != 0 {
                return address - symbol.address < u64::from(symbol.size);
            }
            // An unsized label reaches to the next symbol, and no further than its section and its code.
            let end = || files.first()?.section_end(symbol.address);
            back == 0
                && end().is_some_and(|end| address < end)
                && files
                    .first()
                    .is_none_or(|own| has_code_in_common(own, symbol.address, address))
        };
        let before = self.sorted[..after].iter().rev().take(NESTING_MAX).enumerate();
        let symbol = before.into_iter().find(|&candidate| holds(candidate))?.1;
        let table = (symbol.name >> TABLE_SHIFT) as usize;
        let strings = files.get(table / 2)?.slice(&self.strings[table]);
        let name = text_at(strings, symbol.name & !(u32::MAX << TABLE_SHIFT));
        (!name.is_empty()).then_some((symbol.address, name))
    }

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        self.sorted.len() * size_of::<Symbol>()
    }
}

/// Whether what begins at an address goes on to another: they have their unwind rows in common or, where neither has any, the code
/// leads from one to the other. What the file has no code of is not told.
fn has_code_in_common(own: &Elf, begins: u64, address: u64) -> bool {
    match (root::beginning(own, begins), root::beginning(own, address)) {
        (None, None) => {
            let code = own.code_from(begins);
            code.is_empty() || address < profiler_plan::code::reach(code, begins)
        }
        (first, other) => first == other,
    }
}

/// The text that begins at an offset of a string table; empty where there is none.
fn text_at(strings: &[u8], offset: u32) -> &[u8] {
    let rest = strings.get(offset as usize..).unwrap_or_default();
    let rest = &rest[..rest.len().min(super::name::NAME_MAX)];
    &rest[..rest.iter().position(|&byte| byte == 0).unwrap_or(rest.len())]
}

fn string_range(parsed: &Parsed<'_>, table: &SymbolTable<'_, Header>) -> Option<Range<usize>> {
    if table.is_empty() {
        return None;
    }
    let section = parsed.elf_section_table().section(table.string_section()).ok()?;
    let (offset, size) = section.file_range(parsed.endian())?;
    let start = usize::try_from(offset).ok()?;
    Some(start..start.checked_add(usize::try_from(size).ok()?)?)
}

/// The symbols of a kind in a table, each with its rank among symbols of the same address: lowest is best.
fn of_kind<'a>(
    parsed: &'a Parsed<'_>,
    table: &'a SymbolTable<'_, Header>,
    strings: &'a [u8],
    wanted: Kind,
) -> impl Iterator<Item = (u8, Symbol)> + 'a {
    let endian = parsed.endian();
    let sections = parsed.elf_section_table();
    let in_code = move |index: SymbolSection| {
        let section = sections.section(object::SectionIndex(usize::from(index.0)));
        section.is_ok_and(|section| {
            let flags = section.sh_flags(endian);
            flags.0 & SHF_EXECINSTR.0 != 0
        })
    };
    table.iter().take(SYMBOLS_MAX).filter_map(move |symbol| {
        let (kind, section, address) = (symbol.st_type(), symbol.st_shndx(endian), symbol.st_value(endian));
        let name = symbol.st_name(endian);
        let is_wanted = match (wanted, kind) {
            (Kind::Functions, STT_FUNC | STT_GNU_IFUNC) => true,
            // Labels of assembly have no type. A toolchain's own markers begin with `$` or are empty.
            (Kind::Functions, STT_NOTYPE) => in_code(section),
            (Kind::Variables, STT_OBJECT) => symbol.st_size(endian) > 0,
            _ => false,
        };
        if !is_wanted || section == SHN_UNDEF || address == 0 || name >> TABLE_SHIFT != 0 {
            return None;
        }
        let first = strings.get(name as usize).copied().unwrap_or(0);
        if first == 0 || first == b'$' {
            return None;
        }
        let binding = match symbol.st_bind() {
            STB_GLOBAL => 0,
            STB_WEAK => 1,
            _ => 2,
        };
        let size = u32::try_from(symbol.st_size(endian)).unwrap_or(u32::MAX);
        let typed = kind != STT_NOTYPE && size != 0;
        // Of aliases, the one without underscores is the one that a program calls.
        let rank = u8::from(!typed) * 8 + u8::from(first == b'_') * 4 + binding;
        Some((rank, Symbol { address, size, name }))
    })
}
