//! An ELF file as planning sees it: what it is, where its bytes are mapped, its symbols, notes and
//! sections. Everything is read in place; nothing is believed.

pub mod compressed;
pub mod facts;
mod open;
pub mod skip;

use object::{
    LittleEndian, elf,
    read::elf::{
        CompressionHeader as _, FileHeader as _, ProgramHeader as _, Rela as _, SectionHeader as _, Sym as _,
    },
};
use std::{borrow::Cow, ops::Range, sync::Arc};

/// A file's bytes, shared by what is read from them. Usually a memory map.
pub type Bytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

pub use open::{
    Header, Parsed, Segment, address_of, build_id, header, is_plain_build_id, offset_of, parse, segments,
};

type Sections<'a> = object::read::elf::SectionTable<'a, Header>;

/// Most bytes that the compressed sections of one file may unfold to.
pub const MAX_UNCOMPRESSED_BYTES: u64 = 1 << 30;
/// Relocations that are read, and sections that they are in. A large browser has half a million in two.
const MAX_RELOCATIONS: usize = 1 << 22;
const MAX_RELOCATION_SECTIONS: usize = 64;
/// Longest name of a symbol that is looked up, in bytes.
const MAX_SYMBOL_BYTES: usize = 64 << 10;
/// Sections that Go's linker writes, by which its code is told. The tables of functions are in one of their own of position-independent
/// code.
pub const GO_SECTIONS: [&str; 4] = [
    ".gopclntab",
    ".data.rel.ro.gopclntab",
    ".go.buildinfo",
    ".note.go.buildid",
];
/// Longest name of a file, in bytes.
const MAX_FILE_NAME: usize = 255;
/// How the build information that Go's linker writes begins.
const GO_BUILD_INFO: &[u8] = b"\xff Go buildinf:";
/// Bytes of a writable segment in which it is looked for.
const GO_BUILD_INFO_BYTES: usize = 16 << 20;

/// Whether a name is that of a file, and leads to no other folder.
#[must_use]
pub fn is_plain_name(name: &[u8]) -> bool {
    let is_name = !name.is_empty() && name.len() <= MAX_FILE_NAME && !name.contains(&b'/');
    is_name && !matches!(name, b"." | b"..")
}

/// Why a file cannot be planned for.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ElfError {
    /// Not an ELF file at all.
    #[error("not an ELF file")]
    NotElf,
    /// A 32-bit file.
    #[error("a 32-bit program: only x86-64 is supported")]
    Class32,
    /// Another machine's file; the number is its `e_machine`.
    #[error("a program for another machine (ELF machine {0}): only x86-64 is supported")]
    OtherMachine(u16),
    /// The file contradicts itself.
    #[error("a damaged ELF file: {0}")]
    Damaged(&'static str),
}

impl From<object::read::Error> for ElfError {
    fn from(error: object::read::Error) -> Self {
        // The library's error is a fixed text that it shows but does not hand out.
        let text = error.to_string();
        if text.contains("program header") {
            Self::Damaged("its program headers are not where it says")
        } else if text.contains("section") {
            Self::Damaged("its sections are not where it says")
        } else {
            Self::Damaged("its headers or tables are not where it says")
        }
    }
}

/// Machine code that a file holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MappedCode<'a> {
    /// Where it begins, in the file's own address space.
    pub address: u64,
    /// Its bytes; none where they are in another file, as those of a file of debug information are.
    pub bytes: &'a [u8],
}

/// A symbol as the file has it.
#[derive(Clone, Copy, Debug)]
pub struct RawSymbol {
    /// Its address; 0 for most undefined ones.
    pub address: u64,
    /// Its size, 0 where unknown.
    pub size: u64,
    /// File offset of its name, which ends before a NUL.
    pub name: u64,
    /// File offset that the name ends before at the latest.
    pub name_limit: u64,
    /// `STT_…`.
    pub kind: elf::SymbolType,
    /// `STB_…`.
    pub bind: elf::SymbolBind,
    /// Whether it is another file's.
    pub undefined: bool,
    /// Whether it is a plain number rather than an address.
    pub absolute: bool,
}

/// Something that the loader is to write.
#[derive(Clone, Copy, Debug)]
pub struct Relocation {
    /// Where.
    pub address: u64,
    /// What has the address to write: the number of its table's section, and its own in the table. `None` where that
    /// is the file's own place plus the addend.
    pub symbol: Option<(u32, u32)>,
    /// What is added.
    pub addend: i64,
    /// What is written is what the function at the address returns that would be written otherwise.
    pub is_resolved: bool,
}

/// A parsed file header over the file's bytes.
pub struct Elf<'a> {
    data: &'a [u8],
    header: &'a Header,
    sections: Sections<'a>,
    /// The loadable parts.
    pub segments: Vec<Segment>,
}

impl<'a> Elf<'a> {
    /// Reads the headers.
    ///
    /// # Errors
    /// What is not x86-64 ELF, and what is damaged.
    pub fn parse(data: &'a [u8]) -> Result<Self, ElfError> {
        let header = open::header(data)?;
        let segments = open::segments(header, data)?;
        // Section headers are not needed to run: a file without good ones is merely stripped.
        let sections = header.sections(LittleEndian, data).unwrap_or_default();
        Ok(Self {
            data,
            header,
            sections,
            segments,
        })
    }

    /// The symbols of both tables, the full one first. A damaged table is left out.
    pub fn symbols(&self) -> impl Iterator<Item = RawSymbol> {
        [elf::SHT_SYMTAB, elf::SHT_DYNSYM]
            .into_iter()
            .flat_map(|kind| self.table(kind))
    }

    /// Where the names of both tables' symbols are in the file.
    pub fn string_tables(&self) -> impl Iterator<Item = Range<u64>> {
        [elf::SHT_SYMTAB, elf::SHT_DYNSYM]
            .into_iter()
            .map(|kind| self.strings(self.symbol_table(kind)))
    }

    fn symbol_table(&self, kind: elf::SectionType) -> Option<&'a elf::SectionHeader64<LittleEndian>> {
        self.sections
            .iter()
            .find(|section| section.sh_type(LittleEndian) == kind)
    }

    /// The names of a table of symbols, as far as the file has them.
    fn strings(&self, symbols: Option<&'a elf::SectionHeader64<LittleEndian>>) -> Range<u64> {
        let strings = symbols
            .and_then(|section| self.sections.section(section.link(LittleEndian)).ok())
            .and_then(|section| section.file_range(LittleEndian));
        let (start, length) = strings.unwrap_or_default();
        start..start.saturating_add(length).min(self.data.len() as u64)
    }

    fn table(&self, kind: elf::SectionType) -> impl Iterator<Item = RawSymbol> + use<'a> {
        let section = self.symbol_table(kind);
        let symbols: &'a [elf::Sym64<LittleEndian>] = section
            .and_then(|section| section.data_as_array(LittleEndian, self.data).ok())
            .unwrap_or_default();
        let Range { start, end: limit } = self.strings(section);
        symbols.iter().skip(1).filter_map(move |symbol| {
            let name = start.checked_add(symbol.st_name(LittleEndian).into())?;
            (name < limit).then(|| RawSymbol {
                address: symbol.st_value(LittleEndian),
                size: symbol.st_size(LittleEndian),
                name,
                name_limit: limit,
                kind: symbol.st_type(),
                bind: symbol.st_bind(),
                undefined: symbol.is_undefined(LittleEndian),
                absolute: symbol.is_absolute(LittleEndian),
            })
        })
    }

    /// Whether there is a full symbol table.
    #[must_use]
    pub fn has_symbol_table(&self) -> bool {
        self.sections
            .iter()
            .any(|section| section.sh_type(LittleEndian) == elf::SHT_SYMTAB)
    }

    /// Whether an interpreter loads it or it is a library: it has a dynamic section.
    #[must_use]
    pub fn is_dynamic(&self) -> bool {
        let headers = self
            .header
            .program_headers(LittleEndian, self.data)
            .unwrap_or_default();
        headers
            .iter()
            .any(|header| header.p_type(LittleEndian) == elf::PT_INTERP)
            || self
                .sections
                .iter()
                .any(|section| section.sh_type(LittleEndian) == elf::SHT_DYNSYM)
    }

    /// Address ranges of the sections that are mapped executable, in order.
    #[must_use]
    pub fn code_sections(&self) -> Vec<Range<u64>> {
        let code = self.sections.iter().filter(|section| {
            section
                .sh_flags(LittleEndian)
                .contains(elf::SHF_EXECINSTR | elf::SHF_ALLOC)
        });
        let mut ranges: Vec<Range<u64>> = code
            .map(|s| s.sh_addr(LittleEndian)..s.sh_addr(LittleEndian).saturating_add(s.sh_size(LittleEndian)))
            .collect();
        ranges.sort_unstable_by_key(|range| range.start);
        ranges
    }

    /// What the file holds of its machine code: its executable sections, or its executable segments where it has no section headers.
    #[must_use]
    pub fn mapped_code(&self) -> Vec<MappedCode<'a>> {
        if self.sections.is_empty() {
            let segments = self.segments.iter().filter(|segment| segment.executable);
            return segments
                .filter_map(|segment| {
                    let start = usize::try_from(segment.offset).ok()?;
                    let end = start.saturating_add(usize::try_from(segment.size).ok()?);
                    Some(MappedCode {
                        address: segment.address,
                        bytes: self.data.get(start..end.min(self.data.len()))?,
                    })
                })
                .collect();
        }
        let code = self.sections.iter().filter(|section| {
            section
                .sh_flags(LittleEndian)
                .contains(elf::SHF_EXECINSTR | elf::SHF_ALLOC)
        });
        code.filter_map(|section| {
            Some(MappedCode {
                address: section.sh_addr(LittleEndian),
                bytes: section.data(LittleEndian, self.data).ok()?,
            })
        })
        .collect()
    }

    /// The build-id: a hash of what was linked.
    #[must_use]
    pub fn build_id(&self) -> Option<&'a [u8]> {
        let headers = self.header.program_headers(LittleEndian, self.data).ok()?;
        for header in headers {
            let Ok(Some(mut notes)) = header.notes(LittleEndian, self.data) else {
                continue;
            };
            while let Ok(Some(note)) = notes.next() {
                if note.name() == elf::ELF_NOTE_GNU && note.n_type(LittleEndian) == elf::NT_GNU_BUILD_ID {
                    return Some(note.desc());
                }
            }
        }
        None
    }

    /// Whether any of its code was compiled by Go. That survives stripping, and without section headers too, as Go's runtime reads
    /// these tables itself. The format of the build information: <https://pkg.go.dev/debug/buildinfo>.
    #[must_use]
    pub fn has_go(&self) -> bool {
        let has_section = |name: &&str| {
            let name = name.as_bytes();
            self.sections.section_by_name(LittleEndian, name).is_some()
        };
        if GO_SECTIONS.iter().any(has_section) {
            return true;
        }
        let data = self
            .header
            .program_headers(LittleEndian, self.data)
            .unwrap_or_default()
            .iter()
            .filter(|header| header.p_type(LittleEndian) == elf::PT_LOAD)
            .filter(|header| header.p_flags(LittleEndian).contains(elf::PF_W));
        data.filter_map(|header| header.data(LittleEndian, self.data).ok())
            .map(|bytes| &bytes[..bytes.len().min(GO_BUILD_INFO_BYTES)])
            .any(|bytes| memchr::memmem::find(bytes, GO_BUILD_INFO).is_some())
    }

    /// A section's bytes, uncompressed; `None` where there is no such section, or it is damaged or
    /// would unfold to more than `left` bytes, which are then fewer.
    pub fn section(&self, name: &str, left: &mut u64) -> Option<Cow<'a, [u8]>> {
        let (_, section) = self.sections.section_by_name(LittleEndian, name.as_bytes())?;
        let data = section.data(LittleEndian, self.data).ok()?;
        if !section.sh_flags(LittleEndian).contains(elf::SHF_COMPRESSED) {
            return Some(Cow::Borrowed(data));
        }
        let (header, offset, size) = section.compression(LittleEndian, self.data).ok()??;
        let format = match header.ch_type(LittleEndian) {
            elf::ELFCOMPRESS_ZLIB => object::CompressionFormat::Zlib,
            elf::ELFCOMPRESS_ZSTD => object::CompressionFormat::Zstandard,
            _ => return None,
        };
        let offset = usize::try_from(offset).ok()?;
        let data = self
            .data
            .get(offset..offset.checked_add(usize::try_from(size).ok()?)?)?;
        let section = object::CompressedData {
            format,
            data,
            uncompressed_size: header.ch_size(LittleEndian),
        };
        compressed::unfold(section, left).ok()
    }

    /// What the program's loader is to write, by address. A damaged table is left out, as is what is too much.
    #[must_use]
    pub fn relocations(&self) -> Vec<Relocation> {
        // Others than the loader's were for the linker.
        let loaders = self
            .sections
            .iter()
            .filter(|section| section.sh_flags(LittleEndian).contains(elf::SHF_ALLOC))
            .filter_map(|section| section.rela(LittleEndian, self.data).ok().flatten());
        let mut found: Vec<Relocation> = loaders
            .take(MAX_RELOCATION_SECTIONS)
            .flat_map(|(relocations, link)| relocations.iter().map(move |relocation| (relocation, link)))
            .take(MAX_RELOCATIONS)
            .map(|(relocation, link)| Relocation {
                address: relocation.r_offset(LittleEndian),
                symbol: relocation
                    .symbol(LittleEndian, false)
                    .and_then(|symbol| Some((u32::try_from(link.0).ok()?, u32::try_from(symbol.0).ok()?))),
                addend: relocation.r_addend(LittleEndian),
                is_resolved: relocation.r_type(LittleEndian, false) == elf::R_X86_64_IRELATIVE,
            })
            .collect();
        found.sort_by_key(|relocation| relocation.address);
        found
    }

    /// The name of a relocation's symbol; `None` of one that has none, or too long a one.
    #[must_use]
    pub fn symbol_name(&self, (table, symbol): (u32, u32)) -> Option<&'a [u8]> {
        let table = self
            .sections
            .section(object::SectionIndex(usize::try_from(table).ok()?))
            .ok()?;
        let symbols: &[elf::Sym64<LittleEndian>] = table.data_as_array(LittleEndian, self.data).ok()?;
        let symbol = symbols.get(usize::try_from(symbol).ok()?)?;
        let strings = self.sections.section(table.link(LittleEndian)).ok()?;
        let strings = strings.data(LittleEndian, self.data).ok()?;
        let name = strings.get(usize::try_from(symbol.st_name(LittleEndian)).ok()?..)?;
        let name = &name[..name.len().min(MAX_SYMBOL_BYTES)];
        let name = &name[..memchr::memchr(0, name)?];
        (!name.is_empty()).then_some(name)
    }

    /// Whether there is DWARF that describes functions.
    #[must_use]
    pub fn has_debug_info(&self) -> bool {
        self.sections
            .section_by_name(LittleEndian, b".debug_info")
            .is_some()
    }
}
