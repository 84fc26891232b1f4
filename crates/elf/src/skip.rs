//! Passes over the attributes of an entry.

use gimli::{AttributeSpecification, EntriesRaw, Reader};

/// As gimli's `skip_attributes`, which adds the length of a block, whatever a damaged file says it is, to those of the
/// attributes behind it: here a block ends a sum.
///
/// # Errors
/// Of the entry, if it has an unknown form or is longer than its unit.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place where blocks are taken care of"
)]
pub fn skip_attributes<R: Reader>(
    entries: &mut EntriesRaw<'_, R>,
    attributes: &[AttributeSpecification],
) -> gimli::Result<()> {
    let has_own_length = |attribute: &AttributeSpecification| {
        matches!(
            attribute.form(),
            gimli::DW_FORM_block | gimli::DW_FORM_exprloc | gimli::DW_FORM_indirect
        )
    };
    for run in attributes.split_inclusive(has_own_length) {
        match run.split_last() {
            Some((block, before)) if has_own_length(block) => {
                entries.skip_attributes(before)?;
                entries.read_attribute(*block)?;
            }
            _ => entries.skip_attributes(run)?,
        }
    }
    Ok(())
}
