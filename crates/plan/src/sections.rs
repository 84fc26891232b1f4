//! The sections of a file's DWARF.

use std::{borrow::Cow, convert::Infallible};

use gimli::DwarfSections;
use profiler_elf::{Elf, MAX_UNCOMPRESSED_BYTES};

/// The sections of a file's DWARF, unfolded where they are compressed; those that it does not have, or that are damaged or
/// too large, are empty.
pub(super) fn dwarf_sections<'a>(elf: &Elf<'a>) -> DwarfSections<Cow<'a, [u8]>> {
    let mut left = MAX_UNCOMPRESSED_BYTES;
    let load =
        |id: gimli::SectionId| Ok::<_, Infallible>(elf.section(id.name(), &mut left).unwrap_or_default());
    let Ok(sections) = DwarfSections::load(load);
    sections
}
