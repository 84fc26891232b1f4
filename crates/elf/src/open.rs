//! Which files are read, whoever reads them: ELF files for x86-64; and where their bytes are mapped.

use object::{
    LittleEndian, Object,
    elf::{self, FileHeader64},
    read::{
        ReadRef,
        elf::{ElfFile64, FileHeader as _, ProgramHeader as _},
    },
};

use super::ElfError;

/// The header of a file.
pub type Header = FileHeader64<LittleEndian>;

/// The headers of a file with those of its sections.
pub type Parsed<'a, R = &'a [u8]> = ElfFile64<'a, LittleEndian, R>;

/// Segments that are kept. Linkers write about a dozen.
const MAX_SEGMENTS: usize = 256;

/// A loadable part of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Address in the file's own address space.
    pub address: u64,
    /// Where its bytes are in the file.
    pub offset: u64,
    /// Bytes in the file.
    pub size: u64,
    /// Bytes in memory.
    pub memory_size: u64,
    /// Whether it is mapped executable.
    pub executable: bool,
}

impl Segment {
    /// How far into it an address is. A damaged one may reach beyond the last address: what is before it is not in it.
    fn distance_to(&self, address: u64) -> Option<u64> {
        let distance = address.checked_sub(self.address)?;
        (distance < self.size).then_some(distance)
    }

    /// How far into it a file offset is.
    fn distance_to_offset(&self, offset: u64) -> Option<u64> {
        let distance = offset.checked_sub(self.offset)?;
        (distance < self.size).then_some(distance)
    }

    /// Whether code at an address is of it.
    #[must_use]
    pub fn has_code_at(&self, address: u64) -> bool {
        self.executable && self.distance_to(address).is_some()
    }
}

/// The address of a file offset, by the segment that holds it. A page can belong to two: the executable one is the one that runs.
#[must_use]
pub fn address_of(segments: &[Segment], offset: u64) -> Option<u64> {
    let holding = |segment: &Segment| Some((*segment, segment.distance_to_offset(offset)?));
    let mut in_code = segments.iter().filter(|segment| segment.executable);
    let found = in_code.find_map(holding);
    let (segment, distance) = found.or_else(|| segments.iter().find_map(holding))?;
    segment.address.checked_add(distance)
}

/// The file offset of an address, by the segment that holds it.
#[must_use]
pub fn offset_of(segments: &[Segment], address: u64) -> Option<u64> {
    let mut segments = segments.iter();
    let (segment, distance) = segments.find_map(|segment| Some((segment, segment.distance_to(address)?)))?;
    segment.offset.checked_add(distance)
}

/// The header of a file.
///
/// # Errors
/// Where it is no ELF file for x86-64.
pub fn header(data: &[u8]) -> Result<&Header, ElfError> {
    accept_kind(data)?;
    let header = Header::parse(data)?;
    accept(header)?;
    Ok(header)
}

/// The headers of a file and of its sections.
///
/// # Errors
/// Where it is no ELF file for x86-64, or its headers are damaged.
pub fn parse<'a, R: ReadRef<'a>>(data: R) -> Result<Parsed<'a, R>, ElfError> {
    let parsed = Parsed::parse(data)?;
    accept(parsed.elf_header())?;
    Ok(parsed)
}

/// Checks by its first bytes what a file is.
pub(super) fn accept_kind(first: &[u8]) -> Result<(), ElfError> {
    if first.get(..4) != Some(b"\x7fELF".as_slice()) {
        return Err(ElfError::NotElf);
    }
    if first.get(4) == Some(&elf::ELFCLASS32.0) {
        return Err(ElfError::Class32);
    }
    Ok(())
}

/// Checks what machine a file is for.
pub(super) fn accept(header: &Header) -> Result<(), ElfError> {
    if header.endian().is_err() || header.e_machine(LittleEndian) != elf::EM_X86_64 {
        return Err(ElfError::OtherMachine(header.e_machine(LittleEndian).0));
    }
    Ok(())
}

/// The number that a file's linker gave its contents, unless many files could have it.
#[must_use]
pub fn build_id<'a>(file: &impl Object<'a>) -> Option<Vec<u8>> {
    let build_id = file.build_id().ok().flatten();
    build_id.filter(|id| is_plain_build_id(id)).map(<[u8]>::to_vec)
}

/// Whether a build-id is none that many files could have.
#[must_use]
pub fn is_plain_build_id(build_id: &[u8]) -> bool {
    (8..=64).contains(&build_id.len())
}

/// The loadable parts of a file; the first 256 of more.
///
/// # Errors
/// Where they are not where the header says.
pub fn segments<'a>(header: &Header, data: impl ReadRef<'a>) -> Result<Vec<Segment>, ElfError> {
    let headers = header.program_headers(LittleEndian, data)?.iter();
    let loaded = headers.filter(|header| header.p_type(LittleEndian) == elf::PT_LOAD);
    let segments = loaded.take(MAX_SEGMENTS).map(|header| Segment {
        address: header.p_vaddr(LittleEndian),
        offset: header.p_offset(LittleEndian),
        size: header.p_filesz(LittleEndian),
        memory_size: header.p_memsz(LittleEndian),
        executable: header.p_flags(LittleEndian).contains(elf::PF_X),
    });
    Ok(segments.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_beyond_the_last_address_has_nothing_before_it() {
        let beyond = [Segment {
            address: u64::MAX - 0xff,
            offset: u64::MAX - 0x1ff,
            size: u64::MAX,
            memory_size: u64::MAX,
            executable: true,
        }];
        assert_eq!(offset_of(&beyond, 0x10), None);
        assert_eq!(address_of(&beyond, 0x10), None);
        assert!(!beyond[0].has_code_at(0x10) && beyond[0].has_code_at(u64::MAX));
        assert_eq!(offset_of(&beyond, u64::MAX), Some(u64::MAX - 0x100));
    }

    #[test]
    fn code_is_at_the_address_where_it_runs() {
        let segment = |address, executable| Segment {
            address,
            offset: 0x1000,
            size: 0x1000,
            memory_size: 0x1000,
            executable,
        };
        let both = [segment(0x10_0000, false), segment(0x20_0000, true)];
        assert_eq!(address_of(&both, 0x1234), Some(0x20_0234));
        assert_eq!(address_of(&both[..1], 0x1234), Some(0x10_0234));
    }

    #[test]
    fn files_for_other_machines_are_refused_however_they_are_read() {
        let own = std::fs::read("/proc/self/exe").unwrap();
        assert!(header(&own).is_ok() && parse(&*own).is_ok());
        let mut other = own.clone();
        // `e_machine`: 183 is AArch64's.
        other[18..20].copy_from_slice(&183_u16.to_le_bytes());
        let refused = Some(ElfError::OtherMachine(183));
        assert_eq!(header(&other).err(), refused);
        assert_eq!(parse(&*other).err(), refused);
        let mut small = own;
        small[4] = 1;
        assert_eq!(header(&small).err(), Some(ElfError::Class32));
        assert!(parse(&*small).is_err());
        assert_eq!(header(b"#!/bin/sh").err(), Some(ElfError::NotElf));
    }
}
