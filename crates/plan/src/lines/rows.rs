//! The rows of a unit's line table that say something of code that is in the file.

use std::{num::NonZero, ops::Range};

use gimli::{Dwarf, EndianSlice, IncompleteLineProgram, LineRow, LittleEndian, Section as _};

use crate::left::Left;

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// Rows that are read per byte of the tables, which have at most one: units of types share those of the unit that they
/// were made from, but have no code.
const ROWS_PER_BYTE: usize = 4;

/// A row, and what the one behind it says of it.
pub(crate) struct Row {
    /// From its address to that of the next.
    pub range: Range<u64>,
    /// Number of the source file in the unit's table.
    pub file: u64,
    /// 0 for code of no line.
    pub line: u64,
    /// Whether a line can begin here. One without code says only that its line begins where the next does.
    pub begins: bool,
    /// It is the first of its sequence: nothing goes on from before.
    pub is_first: bool,
}

impl Row {
    /// Whether code is between it and the next.
    pub const fn has_code(&self) -> bool {
        self.range.start < self.range.end
    }
}

/// What may be read of the rows of a file.
pub(crate) fn rows_left(dwarf: &Dwarf<Slice<'_>>) -> Left {
    Left::new(dwarf.debug_line.reader().len().saturating_mul(ROWS_PER_BYTE))
}

/// Visits the rows of code that the linker kept, while something is left.
///
/// # Errors
/// Where the table is damaged; what comes before is visited.
pub(crate) fn each_row(
    program: IncompleteLineProgram<Slice<'_>>,
    rows_left: &Left,
    mut visit: impl FnMut(&Row),
) -> gimli::Result<()> {
    let mut rows = program.rows();
    let mut before: Option<LineRow> = None;
    // Where the linker dropped code, its sequence begins at 0, and goes on from there.
    let mut is_dropped = false;
    let mut is_first = true;
    while let Some((_, row)) = rows.next_row()? {
        if !rows_left.take(1) {
            break;
        }
        match before {
            None => (is_dropped, is_first) = (row.address() == 0, true),
            Some(before) if !is_dropped => {
                let range = before.address()..row.address();
                // At the end of a sequence there is nothing any more.
                let goes_on = range.start < range.end || !row.end_sequence();
                visit(&Row {
                    range,
                    file: before.file_index(),
                    line: before.line().map_or(0, NonZero::get),
                    begins: before.is_stmt() && goes_on,
                    is_first,
                });
                is_first = false;
            }
            Some(_) => {}
        }
        before = (!row.end_sequence()).then_some(*row);
    }
    Ok(())
}
