//! Where an argument is when its function is entered.
//!
//! Of an instruction GCC may tell several places of a variable: before and after the statement that the instruction begins
//! has changed it (location views, <https://gcc.gnu.org/wiki/LVLI>). All but the last have an empty range of addresses, which
//! consumers pass over, so that at a function's first instruction `n` may already be what `n = n & 15` makes of it.

use gimli::{Expression, RawLocListEntry};

use super::{
    entry::Entry,
    file::{DebugFile, Slice},
    refusal::Refusal,
};

/// A range of addresses and the expression that holds there.
struct Located<'a> {
    begin: u64,
    end: u64,
    expression: Expression<Slice<'a>>,
}

impl<'a> DebugFile<'a> {
    /// The expression that holds when control reaches an address, where that is another than while its instruction runs:
    /// the first one of a variable's list, if its range begins there and is empty.
    pub(super) fn expression_on_entry(
        &self,
        variable: &Entry<'a>,
        address: u64,
    ) -> Result<Option<Expression<Slice<'a>>>, Refusal> {
        let first = match self.first_location(variable)? {
            Some(first) if first.begin == address && first.end == address => first,
            _ => return Ok(None),
        };
        Ok(Some(first.expression).filter(|expression| !expression.0.is_empty()))
    }

    fn first_location(&self, variable: &Entry<'a>) -> Result<Option<Located<'a>>, Refusal> {
        let unit = &variable.unit;
        let Some(value) = variable.value(gimli::DW_AT_location) else {
            return Ok(None);
        };
        let Some(offset) = self.dwarf.attr_locations_offset(unit, value)? else {
            return Ok(None);
        };
        let mut list = self.dwarf.raw_locations(unit, offset)?;
        let mut base = unit.low_pc;
        while let Some(location) = list.next()? {
            let located = |begin: u64, end: u64, expression| {
                Ok(Some(Located {
                    begin,
                    end,
                    expression,
                }))
            };
            match location {
                RawLocListEntry::BaseAddress { addr } => base = addr,
                RawLocListEntry::BaseAddressx { addr } => base = self.dwarf.address(unit, addr)?,
                RawLocListEntry::AddressOrOffsetPair { begin, end, data }
                | RawLocListEntry::OffsetPair { begin, end, data } => {
                    return located(base.wrapping_add(begin), base.wrapping_add(end), data);
                }
                RawLocListEntry::StartxEndx { begin, end, data } => {
                    let (begin, end) = (self.dwarf.address(unit, begin)?, self.dwarf.address(unit, end)?);
                    return located(begin, end, data);
                }
                RawLocListEntry::StartxLength { begin, length, data } => {
                    let begin = self.dwarf.address(unit, begin)?;
                    return located(begin, begin.wrapping_add(length), data);
                }
                RawLocListEntry::StartEnd { begin, end, data } => return located(begin, end, data),
                RawLocListEntry::StartLength { begin, length, data } => {
                    return located(begin, begin.wrapping_add(length), data);
                }
                RawLocListEntry::DefaultLocation { .. } => return Ok(None),
            }
        }
        Ok(None)
    }
}
