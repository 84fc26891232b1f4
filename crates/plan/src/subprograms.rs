//! The functions of a unit that have code.

use gimli::{Reader, Unit, UnitOffset};
use profiler_elf::skip::skip_attributes;

/// Where they are, in the order of the file, among so many entries; what comes behind something damaged is not found.
pub(super) fn subprograms<R: Reader>(
    unit: &Unit<R>,
    most: usize,
) -> gimli::Result<impl Iterator<Item = gimli::Result<UnitOffset<R::Offset>>>> {
    let mut entries = unit.entries_raw(None)?;
    let mut left = most;
    let mut next = move || -> gimli::Result<Option<UnitOffset<R::Offset>>> {
        while !entries.is_empty() && left > 0 {
            left -= 1;
            let offset = entries.next_offset();
            let Some(abbreviation) = entries.read_abbreviation()? else {
                continue;
            };
            let attributes = abbreviation.attributes();
            skip_attributes(&mut entries, attributes)?;
            let has_code = attributes
                .iter()
                .any(|attribute| matches!(attribute.name(), gimli::DW_AT_low_pc | gimli::DW_AT_ranges));
            if abbreviation.tag() == gimli::DW_TAG_subprogram && has_code {
                return Ok(Some(offset));
            }
        }
        left = 0;
        Ok(None)
    };
    let mut is_damaged = false;
    Ok(std::iter::from_fn(move || {
        if is_damaged {
            return None;
        }
        let found = next().transpose();
        is_damaged = matches!(found, Some(Err(_)));
        found
    }))
}
