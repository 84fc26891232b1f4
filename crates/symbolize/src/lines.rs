//! DWARF: the line of the source that an address belongs to.

use std::collections::HashMap;

use gimli::{AttributeValue, DebugInfoOffset, Dwarf, Unit, UnitOffset};
use profiler_debug_files::Bytes;

use super::declaration::file_name;

/// Most rows of one unit's table.
const ROWS_MAX: usize = 1 << 20;
/// Most bytes that the tables of one file may take; then all are read anew. Many units can refer to one table.
const BYTES_MAX: usize = 64 << 20;
/// Stands for the end of a sequence of rows in the place of a file.
const END: u32 = u32::MAX;

/// From this address on, a line of a file.
#[derive(Clone, Copy)]
struct Row {
    address: u64,
    file: u32,
    line: u32,
}

/// Where something is in the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub file: String,
    /// 0 where the compiler says that it is no line's.
    pub line: u32,
}

/// The tables of the units that were asked for.
#[derive(Default)]
pub(super) struct Lines {
    units: HashMap<DebugInfoOffset, Box<[Row]>>,
    bytes: usize,
}

impl Lines {
    /// The place at an address, by the table of its unit. A unit in a file of its own has none there: its skeleton
    /// has it.
    pub fn at(&mut self, dwarf: &Dwarf<Bytes<'_>>, unit: &Unit<Bytes<'_>>, address: u64) -> Option<Place> {
        if self.bytes > BYTES_MAX {
            self.units.clear();
            self.bytes = 0;
        }
        let rows = self
            .units
            .entry(unit.header.debug_info_offset()?)
            .or_insert_with(|| {
                // What comes before damage is as good as ever.
                let mut rows = Vec::new();
                let _ = read(unit, &mut rows);
                // Stable: of rows at one address the last one counts, and an end gives way to a beginning.
                rows.sort_by_key(|row| (row.address, row.file != END));
                self.bytes += rows.len() * size_of::<Row>();
                rows.into_boxed_slice()
            });
        let after = rows.partition_point(|row| row.address <= address);
        let row = rows[after.checked_sub(1)?];
        let file = (row.file != END).then_some(row.file)?;
        Some(Place {
            file: file_name(dwarf, unit, file.into())?,
            line: row.line,
        })
    }

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

fn read(unit: &Unit<Bytes<'_>>, all: &mut Vec<Row>) -> gimli::Result<()> {
    let Some(program) = unit.line_program.clone() else {
        return Ok(());
    };
    let mut rows = program.rows();
    let mut begin = all.len();
    while let Some((_, row)) = rows.next_row()?
        && all.len() < ROWS_MAX
    {
        all.push(Row {
            address: row.address(),
            file: match u32::try_from(row.file_index()) {
                Ok(file) if !row.end_sequence() => file,
                _ => END,
            },
            line: row
                .line()
                .and_then(|line| u32::try_from(line.get()).ok())
                .unwrap_or(0),
        });
        if row.end_sequence() {
            // Code that the linker dropped lies at 0.
            if all[begin].address == 0 {
                all.truncate(begin);
            }
            begin = all.len();
        }
    }
    Ok(())
}

/// From where the inlined functions of a chain are called, innermost first. The chain is as
/// [`super::inlined::chain`] gives it, outermost first.
pub(super) fn calls(
    dwarf: &Dwarf<Bytes<'_>>,
    unit: &Unit<Bytes<'_>>,
    chain: &[UnitOffset],
) -> Vec<Option<Place>> {
    let inlined = chain.get(1..).unwrap_or_default();
    inlined
        .iter()
        .rev()
        .map(|&entry| call(dwarf, unit, entry))
        .collect()
}

/// Where an inlined function is called from.
fn call(dwarf: &Dwarf<Bytes<'_>>, unit: &Unit<Bytes<'_>>, entry: UnitOffset) -> Option<Place> {
    let entry = unit.entry(entry).ok()?;
    let file = match entry.attr_value(gimli::DW_AT_call_file)? {
        AttributeValue::FileIndex(file) => file,
        other => other.udata_value()?,
    };
    let line = entry.attr_value(gimli::DW_AT_call_line)?.udata_value()?;
    Some(Place {
        file: file_name(dwarf, unit, file)?,
        line: u32::try_from(line).ok()?,
    })
}
