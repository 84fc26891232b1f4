//! The debug sections of a file: in it, or decompressed.

use std::{borrow::Cow, io, ops::Range};

use gimli::{EndianSlice, LittleEndian, SectionId};
use object::{Object as _, ObjectSection as _};
use profiler_debug_files::{Bytes, Elf};
use profiler_elf::compressed;

/// Most bytes that the compressed debug sections of one file may take decompressed.
const DECOMPRESSED_MAX: u64 = 256 << 20;

/// What is read of a file.
const READ: [SectionId; 9] = [
    SectionId::DebugAbbrev,
    SectionId::DebugAddr,
    SectionId::DebugInfo,
    SectionId::DebugLine,
    SectionId::DebugLineStr,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
];

/// What is read besides of a `.dwo` or `.dwp` file: the index, and that of which it lists parts.
const READ_SPLIT: [SectionId; 7] = [
    SectionId::DebugCuIndex,
    SectionId::DebugTuIndex,
    SectionId::DebugLoc,
    SectionId::DebugLocLists,
    SectionId::DebugMacinfo,
    SectionId::DebugMacro,
    SectionId::DebugTypes,
];

#[derive(Default)]
enum Section {
    #[default]
    Missing,
    InFile(Range<usize>),
    Decompressed(Box<[u8]>),
}

/// Where the debug sections of one file are. Views of them are made with that file.
#[derive(Default)]
pub(super) struct Sections(Vec<(SectionId, Section)>);

impl Sections {
    /// Finds the debug sections, decompressing those that are compressed.
    ///
    /// # Errors
    /// Where a section is damaged, or they take more than [`DECOMPRESSED_MAX`].
    pub fn load(elf: &Elf) -> io::Result<Self> {
        let mut left = DECOMPRESSED_MAX;
        let load = |id: SectionId| Ok((id, load_section(elf, id.name(), &mut left)?));
        READ.into_iter().map(load).collect::<io::Result<_>>().map(Self)
    }

    /// The same for the sections of a `.dwo` or `.dwp` file.
    ///
    /// # Errors
    /// As for [`Self::load`].
    pub fn load_split(elf: &Elf) -> io::Result<Self> {
        let mut left = DECOMPRESSED_MAX;
        let named = READ.into_iter().chain(READ_SPLIT);
        let named = named.filter_map(|id| Some((id, id.dwo_name()?)));
        let load = |(id, name)| Ok((id, load_section(elf, name, &mut left)?));
        named.map(load).collect::<io::Result<_>>().map(Self)
    }

    /// Whether there is anything to read with DWARF.
    pub fn has_info(&self) -> bool {
        self.0
            .iter()
            .any(|(id, section)| *id == SectionId::DebugInfo && !matches!(section, Section::Missing))
    }

    /// Bytes that the decompressed sections take.
    pub fn bytes(&self) -> usize {
        let size = |section: &Section| match section {
            Section::Decompressed(bytes) => bytes.len(),
            Section::Missing | Section::InFile(_) => 0,
        };
        self.0.iter().map(|(_, section)| size(section)).sum()
    }

    /// A view of them.
    pub fn dwarf<'a>(&'a self, elf: &'a Elf) -> gimli::Dwarf<Bytes<'a>> {
        let find = |wanted| Ok::<_, std::convert::Infallible>(self.view(elf, wanted));
        let Ok(dwarf) = gimli::Dwarf::load(find);
        dwarf
    }

    /// A view of those of a `.dwp` file.
    ///
    /// # Errors
    /// Where its index is damaged.
    pub fn package<'a>(&'a self, elf: &'a Elf) -> gimli::Result<gimli::DwarfPackage<Bytes<'a>>> {
        let find = |wanted| Ok::<_, gimli::Error>(self.view(elf, wanted));
        gimli::DwarfPackage::load(find, EndianSlice::new(&[], LittleEndian))
    }

    fn view<'a>(&'a self, elf: &'a Elf, wanted: SectionId) -> Bytes<'a> {
        let found = self.0.iter().find(|(id, _)| *id == wanted);
        let bytes = match found.map(|(_, section)| section) {
            Some(Section::InFile(range)) => elf.slice(range),
            Some(Section::Decompressed(bytes)) => bytes,
            Some(Section::Missing) | None => &[],
        };
        EndianSlice::new(bytes, LittleEndian)
    }
}

fn load_section(elf: &Elf, name: &str, left: &mut u64) -> io::Result<Section> {
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    let in_file = |bytes| elf.range_of(bytes).map_or(Section::Missing, Section::InFile);
    let parsed = elf.parse()?;
    let Some(section) = parsed.section_by_name(name) else {
        return Ok(Section::Missing);
    };
    let data = section.compressed_data().map_err(invalid)?;
    let unfolded = compressed::unfold(data, left)
        .map_err(|why| io::Error::new(io::ErrorKind::InvalidData, format!("{name}: {why}")))?;
    Ok(match unfolded {
        Cow::Owned(bytes) => Section::Decompressed(bytes.into_boxed_slice()),
        Cow::Borrowed([]) => Section::Missing,
        Cow::Borrowed(bytes) => in_file(bytes),
    })
}
