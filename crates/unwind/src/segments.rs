//! Where a file's text comes to lie in a process.

use object::{
    LittleEndian,
    elf::{FileHeader64, PF_X, PT_LOAD},
    read::elf::{FileHeader as _, ProgramHeader as _},
};

/// Loaded segments that are looked at. Linkers write four or five.
const MAX_SEGMENTS: usize = 64;

/// Pages are mapped whole.
const MACHINE_PAGE_BYTES: u64 = 4096;

/// An executable segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Segment {
    offset: u64,
    address: u64,
    file_size: u64,
}

/// A file's executable segments.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Segments(Vec<Segment>);

impl Segments {
    /// Of an ELF file; none where it is not one.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Self {
        let Ok(header) = FileHeader64::<LittleEndian>::parse(bytes) else {
            return Self::default();
        };
        let headers = header.program_headers(LittleEndian, bytes).unwrap_or_default();
        let executable = headers.iter().filter(|header| {
            header.p_type(LittleEndian) == PT_LOAD && header.p_flags(LittleEndian).contains(PF_X)
        });
        let segments = executable.take(MAX_SEGMENTS).map(|header| Segment {
            offset: header.p_offset(LittleEndian),
            address: header.p_vaddr(LittleEndian),
            file_size: header.p_filesz(LittleEndian),
        });
        Self(segments.collect())
    }

    /// What the loader added to the file's own addresses, where `file_offset` is mapped at `start`; wraps where it
    /// took something off. `None` where the file has no code there.
    #[must_use]
    pub fn load_bias(&self, start: u64, file_offset: u64) -> Option<u64> {
        let segment = self.0.iter().find(|segment| {
            let first = segment.offset & !(MACHINE_PAGE_BYTES - 1);
            let end = segment.offset.saturating_add(segment.file_size);
            (first..end).contains(&file_offset)
        })?;
        let address = file_offset
            .wrapping_sub(segment.offset)
            .wrapping_add(segment.address);
        Some(start.wrapping_sub(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_begins_at_its_segments_page() {
        let segments = Segments(vec![Segment {
            offset: 0x1234,
            address: 0x40_2234,
            file_size: 0x5000,
        }]);
        assert_eq!(
            segments.load_bias(0x7f00_0000_1000, 0x1000),
            Some(0x7f00_0000_1000 - 0x40_2000)
        );
        assert_eq!(
            segments.load_bias(0x7f00_0000_3000, 0x3000),
            Some(0x7f00_0000_3000 - 0x40_4000)
        );
        // A prelinked or non-relocatable file lies where it says.
        assert_eq!(segments.load_bias(0x40_2000, 0x1000), Some(0));
        assert_eq!(segments.load_bias(0x40_2000, 0x9000), None);
        assert_eq!(Segments::read(b"#!/bin/sh").load_bias(0, 0), None);
    }

    #[test]
    fn this_very_program_lies_where_its_maps_say() {
        let bytes = std::fs::read("/proc/self/exe").unwrap();
        let segments = Segments::read(&bytes);
        let here = this_very_program_lies_where_its_maps_say as *const () as u64;
        let mappings = profiler_target::executable_mappings(std::process::id()).unwrap();
        let mapping = mappings.iter().find(|mapping| mapping.contains(here)).unwrap();
        let bias = segments.load_bias(mapping.start, mapping.file_offset).unwrap();
        let name = "this_very_program_lies_where_its_maps_say";
        let file = object::File::parse(&*bytes).unwrap();
        let addresses = object::Object::symbols(&file)
            .filter(|symbol| object::ObjectSymbol::name(symbol).is_ok_and(|text| text.contains(name)))
            .map(|symbol| object::ObjectSymbol::address(&symbol).wrapping_add(bias));
        assert!(addresses.into_iter().any(|address| address == here));
    }
}
