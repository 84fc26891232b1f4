//! DWARF: the chain of inlined functions at an address.

use gimli::{Dwarf, Unit, UnitOffset};
use profiler_debug_files::Bytes;
use profiler_elf::skip::skip_attributes;

use super::units::WORK_MAX;

/// Deepest chain that is followed.
pub(super) const INLINED_MAX: usize = 128;

/// The entries of the calls inlined at an address in a function, outermost first, after the function's own.
///
/// The tree is walked as a list, so its depth, which the file decides, costs no stack.
pub(super) fn chain(
    dwarf: &Dwarf<Bytes<'_>>,
    unit: &Unit<Bytes<'_>>,
    function: UnitOffset,
    address: u64,
) -> gimli::Result<Vec<UnitOffset>> {
    let mut chain = vec![function];
    let mut entries = unit.entries_raw(Some(function))?;
    let top = entries.next_depth();
    let Some(abbreviation) = entries.read_abbreviation()? else {
        return Ok(chain);
    };
    skip_attributes(&mut entries, abbreviation.attributes())?;
    // Entries deeper than this belong to something that does not hold the address.
    let mut skipped: Option<isize> = None;
    // The depth of the innermost call found: leaving it ends the search.
    let mut found = top;
    let mut work = WORK_MAX;
    while !entries.is_empty() && entries.next_depth() > found && work > 0 && chain.len() < INLINED_MAX {
        let (offset, depth) = (entries.next_offset(), entries.next_depth());
        let Some(abbreviation) = entries.read_abbreviation()? else {
            continue;
        };
        work = work.saturating_sub(1 + abbreviation.attributes().len());
        skip_attributes(&mut entries, abbreviation.attributes())?;
        if skipped.is_some_and(|at| depth > at) {
            continue;
        }
        skipped = None;
        match abbreviation.tag() {
            gimli::DW_TAG_inlined_subroutine => {
                if holds(dwarf, unit, offset, address, &mut work)? {
                    chain.push(offset);
                    found = depth;
                } else {
                    skipped = Some(depth);
                }
            }
            gimli::DW_TAG_subprogram => skipped = Some(depth),
            _ => {}
        }
    }
    Ok(chain)
}

fn holds(
    dwarf: &Dwarf<Bytes<'_>>,
    unit: &Unit<Bytes<'_>>,
    offset: UnitOffset,
    address: u64,
    work: &mut usize,
) -> gimli::Result<bool> {
    let mut ranges = dwarf.die_ranges(unit, &unit.entry(offset)?)?;
    while let Some(range) = ranges.next()?
        && *work > 0
    {
        *work -= 1;
        if (range.begin..range.end).contains(&address) {
            return Ok(true);
        }
    }
    Ok(false)
}
