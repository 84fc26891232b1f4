//! Where a file's text comes to lie in a process.

use profiler_elf::Segment;

/// Pages are mapped whole.
const MACHINE_PAGE_BYTES: u64 = 4096;

/// A file's executable segments.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Segments(Vec<Segment>);

impl Segments {
    /// Of an ELF file; none where it is not one.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Self {
        let segments = profiler_elf::header(bytes).and_then(|header| profiler_elf::segments(header, bytes));
        let mut segments = segments.unwrap_or_default();
        segments.retain(|segment| segment.executable);
        Self(segments)
    }

    /// What the loader added to the file's own addresses, where `file_offset` is mapped at `start`; wraps where it
    /// took something off. `None` where the file has no code there.
    #[must_use]
    pub fn load_bias(&self, start: u64, file_offset: u64) -> Option<u64> {
        let segment = self.0.iter().find(|segment| {
            let first = segment.offset & !(MACHINE_PAGE_BYTES - 1);
            let end = segment.offset.saturating_add(segment.size);
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
            size: 0x5000,
            memory_size: 0x5000,
            executable: true,
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
