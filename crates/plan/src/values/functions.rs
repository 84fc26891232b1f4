//! Which function and blocks an address is in.

use super::{
    super::subprograms::subprograms,
    entry::Entry,
    file::{DebugFile, Functions, Slice},
    refusal::Refusal,
};
use gimli::Unit;
use std::rc::Rc;

/// Functions of one unit that are listed.
const MAX_FUNCTIONS: usize = 1 << 20;
/// Blocks and inlined calls around an address.
const MAX_BLOCKS: usize = 256;
/// Units whose functions are kept listed.
const MAX_LISTED_UNITS: usize = 256;

/// The function that an address is in.
pub(super) struct Function<'a> {
    /// The entry that has the code.
    pub entry: Entry<'a>,
    /// The blocks and inlined calls around the address, the function itself first.
    pub blocks: Vec<Entry<'a>>,
}

impl<'a> DebugFile<'a> {
    /// The function at an address.
    pub(super) fn function(&self, address: u64) -> Result<Function<'a>, Refusal> {
        for offset in self.units_of_code(address) {
            let unit = self.unit_at(offset)?;
            let functions = self.functions_of(offset, &unit)?;
            // Of functions within functions, the one that begins last is the innermost.
            let holding = functions.iter().filter(|(range, _)| range.contains(&address));
            if let Some((_, function)) = holding.max_by_key(|(range, _)| range.start) {
                let entry = Entry::at(&unit, *function)?;
                let blocks = self.blocks(&entry, address)?;
                return Ok(Function { entry, blocks });
            }
        }
        Err(Refusal::NoDebugInformation(address))
    }

    fn functions_of(&self, offset: usize, unit: &Rc<Unit<Slice<'a>>>) -> Result<Functions, Refusal> {
        if let Some(functions) = self.functions.borrow().get(&offset) {
            return Ok(Rc::clone(functions));
        }
        let mut found = Vec::new();
        for at in subprograms(unit, usize::MAX)? {
            let at = at?;
            let entry = Entry::at(unit, at)?;
            let ranges = self.ranges(&entry).into_iter();
            // What the linker left out begins at 0.
            let ranges = ranges.filter(|range| range.start != 0);
            found.extend(ranges.map(|range| (range, at)));
            if found.len() >= MAX_FUNCTIONS {
                break;
            }
        }
        let functions: Functions = found.into();
        let mut kept = self.functions.borrow_mut();
        if kept.len() >= MAX_LISTED_UNITS {
            kept.clear();
        }
        kept.insert(offset, Rc::clone(&functions));
        Ok(functions)
    }

    fn blocks(&self, function: &Entry<'a>, address: u64) -> Result<Vec<Entry<'a>>, Refusal> {
        let mut blocks = vec![function.clone()];
        let mut innermost = function.clone();
        while blocks.len() < MAX_BLOCKS {
            let inner = innermost.children()?.into_iter().find(|child| {
                matches!(
                    child.tag(),
                    gimli::DW_TAG_lexical_block
                        | gimli::DW_TAG_inlined_subroutine
                        | gimli::DW_TAG_try_block
                        | gimli::DW_TAG_catch_block
                ) && self.holds_or_has_none(child, address)
            });
            let Some(inner) = inner else { break };
            blocks.push(inner.clone());
            innermost = inner;
        }
        Ok(blocks)
    }

    /// Whether code of a block is at an address. A block without code of its own has no variable there either.
    fn holds_or_has_none(&self, block: &Entry<'a>, address: u64) -> bool {
        self.holds(block, address)
    }
}
