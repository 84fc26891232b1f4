//! What an ELF file has, told from its headers and a few of its sections: some kilobytes of it are read, whatever its size and
//! whatever it says of itself.

use std::ops::Range;

use object::{
    CompressedData, CompressionFormat, LittleEndian,
    elf::{self, SectionHeader64},
    pod,
    read::elf::{FileHeader as _, SectionHeader as _},
};

use super::{
    ElfError, GO_SECTIONS, compressed, is_plain_name,
    open::{self, Header},
};

/// Sections that are looked at. Files of programs have some dozens.
const MAX_SECTIONS: usize = 1 << 10;
/// Bytes that are read of the names of sections.
const MAX_SECTION_NAMES: u64 = 64 << 10;
/// Bytes that are read of notes and of the link to a debug file, each.
const MAX_NOTES: u64 = 4 << 10;
/// Sections of notes that are looked at.
const MAX_NOTE_SECTIONS: usize = 16;
/// Bytes that are read of what compilers call themselves.
const MAX_COMMENT: u64 = 16 << 10;
/// Bytes that are read of the abbreviations of debug information, and that they unfold to.
const MAX_ABBREVIATIONS: u64 = 1 << 20;
/// Entries of a chain of the hash table that are looked at: linkers make them a few long.
const MAX_CHAIN: u64 = 256;

/// Names of functions that a file has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Symbols {
    /// None.
    #[default]
    None,
    /// Only those that it shares with other files.
    Dynamic,
    /// All, in a compressed table (`.gnu_debugdata`).
    Packed,
    /// All.
    Full,
}

/// Debug information that a file has itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DebugInfo {
    /// None.
    #[default]
    None,
    /// There is some, and no more is known: of what it describes too little was read.
    Unknown,
    /// Of lines, and not of parameters.
    Lines,
    /// Of parameters too, of some of its code at least.
    Full,
}

/// A name that tells by what code was made or is run, see [`Facts::marks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A function that other files may use.
    Shared(&'static str),
    /// A section.
    Section(&'static str),
    /// Any section of Go's.
    Go,
    /// What a compiler says of itself.
    Compiler(&'static str),
}

/// What a file has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Names of its functions.
    pub symbols: Symbols,
    /// Its own debug information.
    pub debug_info: DebugInfo,
    /// The number that the linker gave its contents.
    pub build_id: Option<Vec<u8>>,
    /// The name of the file with its debug information.
    pub debug_link: Option<Vec<u8>>,
    /// Which of the marks that were asked for it has, by their places.
    pub marks: Vec<usize>,
}

/// Reads a file: fills the bytes from an offset on, or says that it cannot.
pub type Read<'a> = &'a dyn Fn(&mut [u8], u64) -> bool;

impl Facts {
    /// Of a file that `read` reads.
    ///
    /// # Errors
    /// What is not x86-64 ELF, and what cannot be read where it says.
    pub fn read(read: Read<'_>, marks: &[Mark]) -> Result<Self, ElfError> {
        let sections = Sections::read(read)?;
        let kind = |kind| sections.all.iter().any(|section| section.sh_type(LE) == kind);
        let symbols = if kind(elf::SHT_SYMTAB) {
            Symbols::Full
        } else if sections.named(".gnu_debugdata").is_some() {
            Symbols::Packed
        } else if kind(elf::SHT_DYNSYM) {
            Symbols::Dynamic
        } else {
            Symbols::None
        };
        let notes = sections
            .all
            .iter()
            .filter(|section| section.sh_type(LE) == elf::SHT_NOTE)
            .take(MAX_NOTE_SECTIONS);
        let build_id = notes
            .filter_map(|section| sections.bytes(section, MAX_NOTES))
            .find_map(|notes| build_id(&notes));
        let debug_link = sections
            .named(".gnu_debuglink")
            .and_then(|section| sections.bytes(section, MAX_NOTES));
        let comment = sections
            .named(".comment")
            .and_then(|section| sections.bytes(section, MAX_COMMENT))
            .unwrap_or_default();
        let shared = SharedNames::of(&sections);
        let has = |mark: &Mark| match mark {
            Mark::Shared(name) => shared.as_ref().is_some_and(|shared| shared.has(name).is_some()),
            Mark::Section(name) => sections.named(name).is_some(),
            Mark::Go => GO_SECTIONS.iter().any(|name| sections.named(name).is_some()),
            Mark::Compiler(words) => memchr::memmem::find(&comment, words.as_bytes()).is_some(),
        };
        let marks = marks.iter().enumerate().filter(|(_, mark)| has(mark));
        Ok(Self {
            symbols,
            debug_info: sections.debug_info(),
            build_id,
            debug_link: debug_link.and_then(|link| plain_name(&link)),
            marks: marks.map(|(at, _)| at).collect(),
        })
    }
}

const LE: LittleEndian = LittleEndian;
type Section = SectionHeader64<LittleEndian>;

/// The sections of a file.
struct Sections<'a> {
    read: Read<'a>,
    all: Vec<Section>,
    names: Vec<u8>,
}

impl<'a> Sections<'a> {
    fn read(read: Read<'a>) -> Result<Self, ElfError> {
        let mut header = [0; size_of::<Header>()];
        if !read(&mut header, 0) {
            return Err(ElfError::NotElf);
        }
        open::accept_kind(&header)?;
        let damaged = || ElfError::Damaged("its sections are not where it says");
        let (header, _) = pod::from_bytes::<Header>(&header).map_err(|()| damaged())?;
        open::accept(header)?;
        let (at, count) = (header.e_shoff(LE), usize::from(header.e_shnum(LE)));
        let mut sections = Self {
            read,
            all: Vec::new(),
            names: Vec::new(),
        };
        // Section headers are not needed to run: a file without any is stripped.
        if at == 0 || count == 0 {
            return Ok(sections);
        }
        if usize::from(header.e_shentsize(LE)) != size_of::<Section>() || count > MAX_SECTIONS {
            return Err(damaged());
        }
        let mut bytes = vec![0; count * size_of::<Section>()];
        if !read(&mut bytes, at) {
            return Err(damaged());
        }
        let (all, _) = pod::slice_from_bytes::<Section>(&bytes, count).map_err(|()| damaged())?;
        sections.all = all.to_vec();
        let names = sections.all.get(usize::from(header.e_shstrndx.get(LE).0));
        sections.names = names
            .and_then(|section| sections.bytes(section, MAX_SECTION_NAMES))
            .unwrap_or_default();
        Ok(sections)
    }

    fn named(&self, name: &str) -> Option<&Section> {
        self.all.iter().find(|section| {
            let at = usize::try_from(section.sh_name(LE)).unwrap_or(usize::MAX);
            let rest = self.names.get(at..).unwrap_or_default();
            rest.strip_prefix(name.as_bytes())
                .is_some_and(|rest| rest.first() == Some(&0))
        })
    }

    /// Where in the file a section is; `None` of one that the file does not hold.
    fn range(section: &Section) -> Option<Range<u64>> {
        if section.sh_type(LE) == elf::SHT_NOBITS {
            return None;
        }
        let at = section.sh_offset(LE);
        Some(at..at.checked_add(section.sh_size(LE))?).filter(|range| !range.is_empty())
    }

    /// What a section begins with, as it is in the file; so much at most.
    fn bytes(&self, section: &Section, most: u64) -> Option<Vec<u8>> {
        let Range { start, end } = Self::range(section)?;
        let mut bytes = vec![0; usize::try_from((end - start).min(most)).ok()?];
        (self.read)(&mut bytes, start).then_some(bytes)
    }

    fn debug_info(&self) -> DebugInfo {
        let has = |name| {
            self.named(name)
                .is_some_and(|section| Self::range(section).is_some())
        };
        if !has(".debug_info") {
            return DebugInfo::None;
        }
        let described = self.abbreviations().and_then(|prefix| {
            let has_parameters = describe_parameters(&prefix.bytes);
            has_parameters.filter(|has| *has || prefix.is_all)
        });
        match described {
            Some(true) => DebugInfo::Full,
            Some(false) if has(".debug_line") => DebugInfo::Lines,
            Some(false) => DebugInfo::None,
            None => DebugInfo::Unknown,
        }
    }

    /// What abbreviations begin with, unfolded.
    fn abbreviations(&self) -> Option<Prefix> {
        const HEADER: usize = 24;
        let section = self.named(".debug_abbrev")?;
        let bytes = self.bytes(section, MAX_ABBREVIATIONS)?;
        if !section.sh_flags(LE).contains(elf::SHF_COMPRESSED) {
            let is_all = bytes.len() as u64 == section.sh_size(LE);
            return Some(Prefix { bytes, is_all });
        }
        let (header, data) = bytes.split_at_checked(HEADER)?;
        let word = |at: usize| header.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
        let format = match header.first()? {
            1 => CompressionFormat::Zlib,
            2 => CompressionFormat::Zstandard,
            _ => return None,
        };
        let uncompressed_size = word(8)?;
        let section = CompressedData {
            format,
            data,
            uncompressed_size,
        };
        let bytes = compressed::unfold_prefix(section, MAX_ABBREVIATIONS);
        let is_all = bytes.len() as u64 == uncompressed_size;
        Some(Prefix { bytes, is_all })
    }
}

/// What a section begins with.
struct Prefix {
    bytes: Vec<u8>,
    /// Whether it is the whole section.
    is_all: bool,
}

/// Names that other files may use, by their hash table (`.gnu.hash`): a few numbers and buckets, each with the first of a chain of
/// symbols. The last of a chain is marked in the lowest bit of its hash.
struct SharedNames<'a> {
    read: Read<'a>,
    symbols: u64,
    strings: u64,
    buckets: u64,
    chains: u64,
    count: u32,
    /// Symbols before this one are not in the table.
    first: u32,
}

impl<'a> SharedNames<'a> {
    fn of(sections: &Sections<'a>) -> Option<Self> {
        let of_kind = |kind| sections.all.iter().find(|section| section.sh_type(LE) == kind);
        let symbols = of_kind(elf::SHT_DYNSYM)?;
        let strings = sections.all.get(usize::try_from(symbols.sh_link(LE)).ok()?)?;
        let table = Sections::range(of_kind(elf::SHT_GNU_HASH)?)?.start;
        let read = sections.read;
        let number = |at: u64| number(read, table.checked_add(at)?);
        let (count, first, words) = (number(0)?, number(4)?, number(8)?);
        let buckets = table.checked_add(16 + 8 * u64::from(words))?;
        (count > 0).then_some(())?;
        Some(Self {
            read,
            symbols: Sections::range(symbols)?.start,
            strings: Sections::range(strings)?.start,
            buckets,
            chains: buckets.checked_add(4 * u64::from(count))?,
            count,
            first,
        })
    }

    /// Something, if the name is there.
    fn has(&self, name: &str) -> Option<()> {
        let step = |hash: u32, byte: &u8| hash.wrapping_mul(33).wrapping_add(u32::from(*byte));
        let hash = name.as_bytes().iter().fold(5381, step);
        let at = self.buckets.checked_add(4 * u64::from(hash % self.count))?;
        let symbol = u64::from(number(self.read, at)?);
        let place = symbol.checked_sub(u64::from(self.first))?;
        for at in 0..MAX_CHAIN {
            let found = number(self.read, self.chains.checked_add(4 * (place + at))?)?;
            if found | 1 == hash | 1 && self.is_called(symbol + at, name)? {
                return Some(());
            }
            if found & 1 == 1 {
                break;
            }
        }
        None
    }

    fn is_called(&self, symbol: u64, name: &str) -> Option<bool> {
        const SYMBOL_BYTES: u64 = 24;
        let at = number(self.read, self.symbols.checked_add(SYMBOL_BYTES * symbol)?)?;
        let mut found = vec![0; name.len() + 1];
        let is_read = (self.read)(&mut found, self.strings.checked_add(at.into())?);
        Some(is_read && found.strip_suffix(b"\0") == Some(name.as_bytes()))
    }
}

fn number(read: Read<'_>, at: u64) -> Option<u32> {
    let mut bytes = [0; 4];
    read(&mut bytes, at).then(|| u32::from_le_bytes(bytes))
}

/// The build-id among notes (elf(5)): sizes of name and contents, a kind, and both, padded to four bytes.
fn build_id(mut notes: &[u8]) -> Option<Vec<u8>> {
    const BUILD_ID: u32 = 3;
    loop {
        let (header, rest) = notes.split_at_checked(12)?;
        let word = |at: usize| Some(u32::from_le_bytes(header.get(at..at + 4)?.try_into().ok()?));
        let padded = |size: u32| usize::try_from(size).ok()?.checked_next_multiple_of(4);
        let (name_size, size, kind) = (word(0)?, word(4)?, word(8)?);
        let (name, rest) = rest.split_at_checked(padded(name_size)?)?;
        let contents = rest.get(..usize::try_from(size).ok()?)?;
        if kind == BUILD_ID && name == b"GNU\0" {
            return Some(contents.to_vec());
        }
        notes = rest.get(padded(size)?..)?;
    }
}

/// The name in a link to a debug file, which ends before a NUL, if it is that of a file.
fn plain_name(link: &[u8]) -> Option<Vec<u8>> {
    let name = link.get(..memchr::memchr(0, link)?)?;
    is_plain_name(name).then(|| name.to_vec())
}

/// Whether abbreviations have one of a parameter (DWARF 5, 7.5.3): information of lines alone has none. `None` where none comes before
/// one that is damaged or cut off.
fn describe_parameters(bytes: &[u8]) -> Option<bool> {
    let mut left = gimli::EndianSlice::new(bytes, gimli::LittleEndian);
    describes_parameters(&mut left).ok()
}

fn describes_parameters(left: &mut gimli::EndianSlice<'_, gimli::LittleEndian>) -> gimli::Result<bool> {
    use gimli::Reader as _;
    while !left.is_empty() {
        // A table ends with an empty entry, and others follow.
        if left.read_uleb128()? == 0 {
            continue;
        }
        if left.read_uleb128()? == u64::from(gimli::DW_TAG_formal_parameter.0) {
            return Ok(true);
        }
        left.read_u8()?;
        loop {
            let (name, form) = (left.read_uleb128()?, left.read_uleb128()?);
            if form == u64::from(gimli::DW_FORM_implicit_const.0) {
                left.read_sleb128()?;
            }
            if (name, form) == (0, 0) {
                break;
            }
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, fs::File, os::unix::fs::FileExt as _, path::Path, process::Command};

    use proptest::prelude::*;

    use super::*;

    const MARKS: [Mark; 3] = [
        Mark::Shared("shared"),
        Mark::Section(".text"),
        Mark::Compiler("GCC"),
    ];

    fn facts(path: &Path) -> Facts {
        let file = File::open(path).unwrap();
        let read = |bytes: &mut [u8], at| file.read_exact_at(bytes, at).is_ok();
        Facts::read(&read, &MARKS).unwrap()
    }

    /// A program, compiled and stripped by these words.
    fn compiled(folder: &Path, flags: &[&str], strip: &[&str]) -> Facts {
        let (source, program) = (folder.join("p.c"), folder.join("p"));
        let text =
            "int shared(int n) { return n; }\nint main(int argc, char **v) { return shared(argc) == 0; }";
        std::fs::write(&source, text).unwrap();
        let mut compiler = Command::new("cc");
        compiler
            .args(flags)
            .arg("-Wl,--build-id")
            .arg(&source)
            .arg("-o")
            .arg(&program);
        assert!(compiler.status().unwrap().success());
        if !strip.is_empty() {
            let status = Command::new("strip").args(strip).arg(&program).status();
            assert!(status.unwrap().success());
        }
        facts(&program)
    }

    #[test]
    fn a_program_has_what_it_was_built_with() {
        let folder = tempfile::tempdir().unwrap();
        let of = |flags: &[&str], strip: &[&str]| {
            let facts = compiled(folder.path(), flags, strip);
            assert!(facts.build_id.is_some_and(|id| id.len() == 20));
            (facts.symbols, facts.debug_info)
        };
        assert_eq!(of(&["-g"], &[]), (Symbols::Full, DebugInfo::Full));
        assert_eq!(of(&["-g", "-gz"], &[]), (Symbols::Full, DebugInfo::Full));
        assert_eq!(of(&["-g1"], &[]), (Symbols::Full, DebugInfo::Lines));
        assert_eq!(of(&["-g0"], &[]), (Symbols::Full, DebugInfo::None));
        assert_eq!(of(&["-g"], &["-g"]), (Symbols::Full, DebugInfo::None));
        assert_eq!(of(&["-g"], &["-s"]), (Symbols::Dynamic, DebugInfo::None));
        assert_eq!(of(&["-static"], &["-s"]), (Symbols::None, DebugInfo::None));
        assert_eq!(compiled(folder.path(), &["-rdynamic"], &[]).marks, [0, 1, 2]);
        assert_eq!(compiled(folder.path(), &[], &["-R", ".comment"]).marks, [1]);
    }

    #[test]
    fn long_abbreviations_are_not_taken_for_those_of_lines() {
        /// A table of one entry: a parameter, without attributes.
        const PARAMETER: [u8; 6] = [1, 5, 0, 0, 0, 0];
        let folder = tempfile::tempdir().unwrap();
        compiled(folder.path(), &["-g"], &[]);
        let at = |name: &str| folder.path().join(name);
        let with = |begin: &[u8], length: u64, compression: &str| {
            let mut abbreviations = begin.to_vec();
            abbreviations.resize(usize::try_from(length).unwrap(), 0);
            std::fs::write(at("abbreviations"), abbreviations).unwrap();
            let mut command = Command::new("objcopy");
            let update = format!("--update-section=.debug_abbrev={}", at("abbreviations").display());
            command.arg(update).arg(at("p")).arg(at("q"));
            assert!(command.status().unwrap().success());
            let mut command = Command::new("objcopy");
            command.arg(format!("--compress-debug-sections={compression}"));
            assert!(command.arg(at("q")).status().unwrap().success());
            facts(&at("q")).debug_info
        };
        let long = 2 * MAX_ABBREVIATIONS;
        for compression in ["none", "zlib"] {
            assert_eq!(
                with(&PARAMETER, long, compression),
                DebugInfo::Full,
                "{compression}"
            );
            assert_eq!(with(&[], long, compression), DebugInfo::Unknown, "{compression}");
            assert_eq!(
                with(&PARAMETER, 100, compression),
                DebugInfo::Full,
                "{compression}"
            );
            assert_eq!(with(&[], 100, compression), DebugInfo::Lines, "{compression}");
        }
    }

    #[test]
    fn a_link_names_a_file_and_nothing_else() {
        assert_eq!(
            plain_name(b"p.debug\0\x01\x02\x03\x04"),
            Some(b"p.debug".to_vec())
        );
        for link in [&b"../p\0"[..], b"..\0", b"\0", b"p", b""] {
            assert_eq!(plain_name(link), None, "{link:?}");
        }
    }

    #[test]
    fn sections_of_any_size_are_read_in_part() {
        let folder = tempfile::tempdir().unwrap();
        compiled(folder.path(), &["-g"], &[]);
        let mut bytes = std::fs::read(folder.path().join("p")).unwrap();
        // Every section says that it is as long as can be.
        let word = |bytes: &[u8], at: usize| {
            usize::try_from(u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())).unwrap()
        };
        let (headers, count) = (word(&bytes, 0x28), usize::from(bytes[0x3c]));
        for at in 0..count {
            let size = headers + at * 64 + 32;
            bytes[size..size + 8].copy_from_slice(&(1_u64 << 60).to_le_bytes());
        }
        let total = Cell::new(0);
        let read = |into: &mut [u8], at: u64| {
            total.set(total.get() + into.len());
            let from = bytes.get(usize::try_from(at).unwrap()..).unwrap_or_default();
            let length = from.len().min(into.len());
            // As a file with a hole behind it.
            into[..length].copy_from_slice(&from[..length]);
            true
        };
        Facts::read(&read, &MARKS).unwrap();
        assert!(total.get() < 2 << 20, "{}", total.get());
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(
            mut bytes in prop::collection::vec(any::<u8>(), 64..2_000),
            count in 0_u8..9,
            at in 0_u8..255,
        ) {
            bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
            bytes[18..20].copy_from_slice(&62_u16.to_le_bytes());
            bytes[0x28..0x30].copy_from_slice(&u64::from(at).to_le_bytes());
            bytes[0x3a..0x40].copy_from_slice(&[64, 0, count, 0, 1, 0]);
            let read = |into: &mut [u8], at: u64| {
                let from = usize::try_from(at).ok().and_then(|at| bytes.get(at..)?.get(..into.len()));
                from.is_some_and(|from| { into.copy_from_slice(from); true })
            };
            let _ = Facts::read(&read, &MARKS);
            let _ = build_id(&bytes);
            let _ = describe_parameters(&bytes);
        }
    }
}
