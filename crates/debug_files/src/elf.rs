//! The bytes of one ELF file, and where in them everything is.

use std::{fs::File, io, ops::Range, os::unix::fs::MetadataExt as _};

use gimli::{EndianSlice, LittleEndian};
use object::{Object as _, ObjectSection as _, read::ReadCache};
pub use profiler_elf::Parsed;
use profiler_elf::{ElfError, Segment};
use profiler_target::{
    Handle, OpenFile,
    contents::{self, Contents, FileKey},
};

use super::finder::Kept;

/// What is mapped begins at a multiple of this.
const PAGE: u64 = 0x1000;

/// How DWARF is read: from borrowed bytes.
pub type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// Bytes of a file that stay.
enum Backing {
    File {
        file: Handle,
        contents: Contents,
        length: u64,
    },
    /// Unpacked from another file.
    Memory(Vec<u8>),
    /// Unfolded, and kept by somebody.
    Unfolded(Kept),
}

/// An ELF file.
pub struct Elf {
    backing: Backing,
    key: Option<FileKey>,
    segments: Vec<Segment>,
    build_id: Option<Vec<u8>>,
}

impl Elf {
    /// Reads a file's headers.
    ///
    /// `is_intact` compares a mapped file's length before each use, and what is used most, the sorted symbols, is copied
    /// when first needed. Nothing that borrows from the bytes outlives a call into this module, as no cache holds borrows.
    ///
    /// # Errors
    /// As for [`Contents::of`], and where it is no x86-64 ELF file.
    pub fn open(file: File) -> io::Result<Self> {
        Self::read(OpenFile::own(file)?)
    }

    /// As [`Self::open`], of a file that was asked about.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn read(open: OpenFile) -> io::Result<Self> {
        let OpenFile { file, metadata, key } = open;
        let length = metadata.size();
        let contents = Contents::of(&file)?;
        Self::new(
            Backing::File {
                file,
                contents,
                length,
            },
            Some(key),
        )
    }

    /// Reads the headers of a file that is in memory.
    ///
    /// # Errors
    /// Where it is no x86-64 ELF file.
    pub fn from_bytes(bytes: Vec<u8>) -> io::Result<Self> {
        Self::new(Backing::Memory(bytes), None)
    }

    /// A file, by what it is unfolded.
    ///
    /// # Errors
    /// Where that is no ELF file.
    pub fn unfolded(bytes: Kept, file: &Self) -> io::Result<Self> {
        let mut elf = Self::new(Backing::Unfolded(bytes), file.key)?;
        elf.build_id.clone_from(&file.build_id);
        Ok(elf)
    }

    fn new(backing: Backing, key: Option<FileKey>) -> io::Result<Self> {
        let mut elf = Self {
            backing,
            key,
            segments: Vec::new(),
            build_id: None,
        };
        let parsed = elf.parse()?;
        let segments = profiler_elf::segments(parsed.elf_header(), elf.bytes()).map_err(invalid)?;
        let build_id = profiler_elf::build_id(&parsed);
        elf.segments = segments;
        elf.build_id = build_id;
        Ok(elf)
    }

    /// Whose the file is, or was when it was copied; `None` for one that was unpacked.
    #[must_use]
    pub fn owner(&self) -> Option<u32> {
        self.key.map(|key| key.owner)
    }

    /// Which file it is, and in which state; `None` for one that was unpacked.
    #[must_use]
    pub fn key(&self) -> Option<&FileKey> {
        self.key.as_ref()
    }

    /// All of the file.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match &self.backing {
            Backing::File { contents, .. } => contents.as_ref(),
            Backing::Memory(bytes) => bytes,
            Backing::Unfolded(bytes) => (**bytes).as_ref(),
        }
    }

    /// Whether the file is as long as it was: see [`Elf::open`].
    #[must_use]
    pub fn is_intact(&self) -> bool {
        match &self.backing {
            Backing::File {
                file,
                contents: Contents::Mapped(_),
                length,
            } => file.metadata().is_ok_and(|now| now.size() >= *length),
            _ => true,
        }
    }

    /// The number that the linker gave the contents.
    #[must_use]
    pub fn build_id(&self) -> Option<&[u8]> {
        self.build_id.as_deref()
    }

    /// Reads the headers anew: a few microseconds.
    ///
    /// # Errors
    /// Where they are damaged.
    pub fn parse(&self) -> io::Result<Parsed<'_>> {
        parse(self.bytes())
    }

    /// The bytes in a range of the file; empty where it is not in the file.
    #[must_use]
    pub fn slice(&self, range: &Range<usize>) -> &[u8] {
        self.bytes().get(range.clone()).unwrap_or_default()
    }

    /// The address, in the file's own numbering, of code at an offset in the file.
    #[must_use]
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        profiler_elf::address_of(&self.segments, offset)
    }

    /// The address, in the file's own numbering, of what a process has at an address, where a part of the file with code
    /// is mapped at `start`; `None` where that belongs to no segment of the file.
    #[must_use]
    pub fn address_in_process(&self, address: u64, (start, file_offset): (u64, u64)) -> Option<u64> {
        // What is mapped begins with a page, and a segment anywhere in one.
        let begins_in_page = |segment: &&Segment| {
            segment.executable
                && segment.offset < file_offset.saturating_add(PAGE)
                && segment.offset.saturating_add(segment.size) > file_offset
        };
        let mapped = self.segments.iter().find(begins_in_page)?;
        let mapped_at = mapped
            .address
            .wrapping_sub(mapped.offset)
            .wrapping_add(file_offset);
        let own = address.wrapping_sub(start).wrapping_add(mapped_at);
        let holds = |segment: &Segment| {
            own.checked_sub(segment.address)
                .is_some_and(|inside| inside < segment.memory_size)
        };
        self.segments.iter().any(holds).then_some(own)
    }

    /// One past the last address of the segment that holds an address.
    #[must_use]
    pub fn segment_end(&self, address: u64) -> Option<u64> {
        self.segments.iter().find_map(|segment| {
            let inside = address.checked_sub(segment.address)?;
            (inside < segment.size).then(|| segment.address.saturating_add(segment.size))
        })
    }

    /// One past the last address of the section that holds an address, or of its segment where it is in no section.
    #[must_use]
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

    /// What the file has of a section from an address on; nothing where it has none of it.
    #[must_use]
    pub fn code_from(&self, address: u64) -> &[u8] {
        let Ok(parsed) = self.parse() else { return &[] };
        let rest = parsed.sections().find_map(|section| {
            let inside = address.checked_sub(section.address())?;
            let holds = section.address() != 0 && inside < section.size();
            let bytes = holds.then(|| section.data().ok())??;
            bytes.get(usize::try_from(inside).ok()?..)
        });
        rest.unwrap_or_default()
    }

    /// Where in the file a slice of it lies.
    #[must_use]
    pub fn range_of(&self, part: &[u8]) -> Option<Range<usize>> {
        let start = part.as_ptr().addr().checked_sub(self.bytes().as_ptr().addr())?;
        let end = start.checked_add(part.len())?;
        (end <= self.bytes().len()).then_some(start..end)
    }

    /// Whether it has a section of this name that is not empty in the file.
    #[must_use]
    pub fn has_section(&self, name: &str) -> bool {
        self.parse().is_ok_and(|parsed| {
            let section = parsed.section_by_name(name);
            section.is_some_and(|section| section.file_range().is_some_and(|(_, size)| size > 0))
        })
    }

    /// Bytes of memory that are held for it, apart from what is mapped.
    #[must_use]
    pub fn bytes_owned(&self) -> usize {
        match &self.backing {
            Backing::File {
                contents: Contents::Mapped(_) | Contents::OnDisk(_),
                ..
            }
            | Backing::Unfolded(_) => 0,
            Backing::File {
                contents: Contents::Copied(bytes),
                ..
            }
            | Backing::Memory(bytes) => bytes.len(),
        }
    }
}

impl AsRef<[u8]> for Elf {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

/// What a file says of itself, without reading all of it.
pub struct Summary {
    pub build_id: Option<Vec<u8>>,
    pub has_debug: bool,
}

impl Summary {
    /// Reads a file's headers and notes.
    ///
    /// # Errors
    /// As for [`Elf::open`].
    pub fn read(file: File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        contents::check(
            &file,
            metadata.size(),
            contents::may_be_cut_short(&file, &metadata),
        )?;
        let pieces = ReadCache::new(file);
        let parsed = profiler_elf::parse(&pieces).map_err(invalid)?;
        let debug = parsed.section_by_name(".debug_info");
        let size = debug.and_then(|section| section.file_range());
        Ok(Self {
            build_id: profiler_elf::build_id(&parsed),
            has_debug: size.is_some_and(|(_, size)| size > 0),
        })
    }
}

/// The headers of the bytes of a file.
///
/// # Errors
/// Where it is no x86-64 ELF file, or they are damaged.
pub(super) fn parse(bytes: &[u8]) -> io::Result<Parsed<'_>> {
    profiler_elf::parse(bytes).map_err(invalid)
}

fn invalid(error: ElfError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests {
    use profiler_testkit::skipped;

    use super::*;

    #[test]
    fn another_users_file_counts_as_memory() {
        if !rustix::process::geteuid().is_root() {
            return skipped("only root can give files away");
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("copy");
        std::fs::copy("/bin/true", &path).unwrap();
        std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
        let elf = Elf::open(File::open(&path).unwrap()).unwrap();
        assert!(elf.bytes_owned() > 0);
        assert!(elf.is_intact());
        assert_eq!(elf.owner(), Some(65534));
    }
}
