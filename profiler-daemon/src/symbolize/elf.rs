//! The bytes of one ELF file, and where in them everything is.

use std::{
    fs::{File, Metadata},
    io,
    ops::Range,
    os::unix::fs::MetadataExt as _,
};

use gimli::{EndianSlice, LittleEndian};
use memmap2::Mmap;
use object::{
    Endianness, Object as _, ObjectSection as _,
    elf::{PF_X, PT_LOAD},
    read::elf::{ElfFile64, ProgramHeader as _},
};

/// Most loaded segments that are looked at.
const SEGMENTS_MAX: usize = 256;

/// How DWARF is read: from borrowed bytes.
pub(super) type Bytes<'a> = EndianSlice<'a, LittleEndian>;
/// The parsed headers of a file.
pub(super) type Parsed<'a> = ElfFile64<'a, Endianness>;

/// What tells one state of a file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FileKey {
    device: u64,
    inode: u64,
    length: u64,
    modified: (i64, i64),
    changed: (i64, i64),
    /// Whose the file is: a build-id is believed only among files of one owner.
    pub owner: u32,
}

impl FileKey {
    pub fn of(file: &Metadata) -> Self {
        Self {
            device: file.dev(),
            inode: file.ino(),
            length: file.size(),
            modified: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
            owner: file.uid(),
        }
    }

    pub fn length(&self) -> u64 {
        self.length
    }
}

/// Bytes of a file that stay.
enum Backing {
    Mapped {
        file: File,
        bytes: Mmap,
        length: u64,
    },
    /// Unpacked from another file.
    Owned(Vec<u8>),
}

/// A loaded segment.
struct Segment {
    address: u64,
    offset: u64,
    file_size: u64,
    executable: bool,
}

/// A mapped ELF file.
pub(super) struct Elf {
    backing: Backing,
    segments: Vec<Segment>,
    build_id: Option<Vec<u8>>,
}

impl Elf {
    /// Maps a file and reads its headers.
    ///
    /// # Errors
    /// Where it cannot be mapped or is no x86-64 ELF file.
    pub fn map(file: File) -> io::Result<Self> {
        let length = file.metadata()?.size();
        if length == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the file is empty"));
        }
        // SAFETY: the bytes are only read, through a private mapping that lives as long as `Backing`, and
        // nothing borrowed from it outlives a call into this module, as no cache holds borrows.
        // Two things rest on others. A file that is written to while it is mapped changes under the
        // slices: nothing here relies on bytes read twice being equal for memory safety, as every access
        // goes through checked slices of plain bytes (`str` is made only by copying with a check).
        // A file that is cut short raises SIGBUS past its new end: `is_intact` compares the length before
        // each use, and what is used most, the sorted symbols, is copied when first needed. There remains
        // a truncation within one lookup, by someone who may write a file that is being executed.
        let bytes = unsafe { Mmap::map(&file)? };
        Self::new(Backing::Mapped { file, bytes, length })
    }

    /// Reads the headers of a file that is in memory.
    ///
    /// # Errors
    /// Where it is no x86-64 ELF file.
    pub fn from_bytes(bytes: Vec<u8>) -> io::Result<Self> {
        Self::new(Backing::Owned(bytes))
    }

    fn new(backing: Backing) -> io::Result<Self> {
        let mut elf = Self {
            backing,
            segments: Vec::new(),
            build_id: None,
        };
        let parsed = elf.parse()?;
        let endian = parsed.endian();
        let segments = parsed
            .elf_program_headers()
            .iter()
            .filter(|header| header.p_type(endian) == PT_LOAD)
            .take(SEGMENTS_MAX)
            .map(|header| Segment {
                address: header.p_vaddr(endian),
                offset: header.p_offset(endian),
                file_size: header.p_filesz(endian),
                executable: header.p_flags(endian).0 & PF_X.0 != 0,
            })
            .collect();
        let build_id = parsed
            .build_id()
            .ok()
            .flatten()
            .filter(|id| (8..=64).contains(&id.len()));
        let build_id = build_id.map(<[u8]>::to_vec);
        elf.segments = segments;
        elf.build_id = build_id;
        Ok(elf)
    }

    /// Whose the file is; `None` for one in memory.
    pub fn owner(&self) -> Option<u32> {
        match &self.backing {
            Backing::Mapped { file, .. } => file.metadata().ok().map(|file| file.uid()),
            Backing::Owned(_) => None,
        }
    }

    /// All of the file.
    pub fn bytes(&self) -> &[u8] {
        match &self.backing {
            Backing::Mapped { bytes, .. } => bytes,
            Backing::Owned(bytes) => bytes,
        }
    }

    /// Whether the file is as long as it was: see [`Elf::map`].
    pub fn is_intact(&self) -> bool {
        match &self.backing {
            Backing::Mapped { file, length, .. } => file.metadata().is_ok_and(|now| now.size() >= *length),
            Backing::Owned(_) => true,
        }
    }

    /// The number that the linker gave the contents.
    pub fn build_id(&self) -> Option<&[u8]> {
        self.build_id.as_deref()
    }

    /// Reads the headers anew: a few microseconds.
    pub fn parse(&self) -> io::Result<Parsed<'_>> {
        ElfFile64::parse(self.bytes()).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// The bytes in a range of the file; empty where it is not in the file.
    pub fn slice(&self, range: &Range<usize>) -> &[u8] {
        self.bytes().get(range.clone()).unwrap_or_default()
    }

    /// The address, in the file's own numbering, of code at an offset in the file.
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        let holds = |segment: &&Segment| {
            offset
                .checked_sub(segment.offset)
                .is_some_and(|inside| inside < segment.file_size)
        };
        // A page can belong to two segments: the executable one is the one that runs.
        let in_code = self
            .segments
            .iter()
            .filter(|segment| segment.executable)
            .find(holds);
        let segment = in_code.or_else(|| self.segments.iter().find(holds))?;
        (offset - segment.offset).checked_add(segment.address)
    }

    /// One past the last address of the segment that holds an address.
    pub fn segment_end(&self, address: u64) -> Option<u64> {
        self.segments.iter().find_map(|segment| {
            let inside = address.checked_sub(segment.address)?;
            (inside < segment.file_size).then(|| segment.address.saturating_add(segment.file_size))
        })
    }

    /// One past the last address of the section that holds an address, or of its segment where it is in no section.
    pub fn section_end(&self, address: u64) -> Option<u64> {
        let end = self.parse().ok().and_then(|parsed| {
            parsed.sections().find_map(|section| {
                let inside = address.checked_sub(section.address())?;
                let in_memory = section.address() != 0 && inside < section.size();
                in_memory.then(|| section.address().saturating_add(section.size()))
            })
        });
        end.or_else(|| self.segment_end(address))
    }

    /// Where in the file a slice of it lies.
    pub fn range_of(&self, part: &[u8]) -> Option<Range<usize>> {
        let start = part.as_ptr().addr().checked_sub(self.bytes().as_ptr().addr())?;
        let end = start.checked_add(part.len())?;
        (end <= self.bytes().len()).then_some(start..end)
    }

    /// Whether it has a section of this name that is not empty in the file.
    pub fn has_section(&self, name: &str) -> bool {
        self.parse().is_ok_and(|parsed| {
            let section = parsed.section_by_name(name);
            section.is_some_and(|section| section.file_range().is_some_and(|(_, size)| size > 0))
        })
    }

    /// Bytes of memory that are held for it, apart from the mapped file.
    pub fn bytes_owned(&self) -> usize {
        match &self.backing {
            Backing::Mapped { .. } => 0,
            Backing::Owned(bytes) => bytes.len(),
        }
    }
}
