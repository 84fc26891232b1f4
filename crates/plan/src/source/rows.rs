//! The rows of a line table that belong to some code, and where lines begin to run.

use std::{collections::HashMap, ops::Range};

use gimli::{LineRow, Unit};

use super::{
    super::{
        dwarf::{file_path, text},
        lines::plain,
    },
    budget::Budget,
    ranges::Ranges,
    units::Slice,
};

/// Rows that are kept of one unit, while functions of it are read.
const MAX_UNIT_ROWS: usize = 1 << 22;
/// Rows that are kept of one function.
const MAX_ROWS: usize = 1 << 18;
/// Bytes of a table's program that take as long as a row, where they make none.
const BYTES_PER_ROW: usize = 16;
/// Files that are told apart.
const MAX_FILES: usize = 1 << 18;
/// Numbers in units' tables whose path is remembered.
const MAX_KNOWN: usize = 1 << 16;
/// Bytes of a path that take as long as a row.
const PATH_BYTES_PER_ROW: usize = 64;
/// Bytes of their paths.
const MAX_PATH_BYTES: usize = 1 << 26;
/// Rows that are looked at before the one that may hold an address: those without length come among the others.
const LOOKED_BACK: usize = 64;
/// Lines that can begin at one address.
const MAX_BEGUN: usize = 64;

/// Paths of source files by number. Number 0 is no file.
pub(crate) struct Files {
    paths: Vec<String>,
    numbers: HashMap<String, usize>,
    /// By unit and number in its table.
    known: HashMap<(usize, u64), usize>,
    bytes_left: usize,
}

impl Files {
    pub fn new() -> Self {
        Self {
            paths: vec![String::new()],
            numbers: HashMap::from([(String::new(), 0)]),
            known: HashMap::new(),
            bytes_left: MAX_PATH_BYTES,
        }
    }

    /// The number of a path; 0 where there are too many.
    pub fn number(&mut self, path: &str) -> usize {
        let path = plain(path);
        if path == "/" || path.is_empty() {
            return 0;
        }
        if let Some(&number) = self.numbers.get(&path) {
            return number;
        }
        let Some(bytes_left) = self.bytes_left.checked_sub(path.len()) else {
            return 0;
        };
        if self.paths.len() == MAX_FILES {
            return 0;
        }
        self.bytes_left = bytes_left;
        self.paths.push(path.clone());
        self.numbers.insert(path, self.paths.len() - 1);
        self.paths.len() - 1
    }

    /// The number of a file of a unit's table.
    pub fn of_unit(
        &mut self,
        dwarf: &gimli::Dwarf<Slice<'_>>,
        unit: &Unit<Slice<'_>>,
        unit_number: usize,
        file: u64,
        budget: &Budget,
    ) -> usize {
        if let Some(&number) = self.known.get(&(unit_number, file)) {
            return number;
        }
        if self.known.len() == MAX_KNOWN {
            self.known.clear();
        }
        let path = file_path(dwarf, unit, file).unwrap_or_default();
        if !budget.work.take(1 + path.len() / PATH_BYTES_PER_ROW) {
            return 0;
        }
        let number = self.number(&path);
        self.known.insert((unit_number, file), number);
        number
    }

    pub fn path(&self, number: usize) -> &str {
        self.paths.get(number).map_or("", String::as_str)
    }
}

/// A row of the table: code of one line. Without length it says only that a line begins there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Row {
    pub range: Range<u64>,
    /// See [`Files`].
    pub file: usize,
    /// 0 for code of no line.
    pub line: u32,
    /// Whether an uninterrupted run of the line's rows begins to count here: a place of it in the sense of
    /// [`super::super::lines`].
    pub begins: bool,
}

/// The MD5 of a source file, where the unit's table has it.
pub(super) fn md5(
    dwarf: &gimli::Dwarf<Slice<'_>>,
    unit: &Unit<Slice<'_>>,
    path: &str,
    budget: &Budget,
) -> Option<[u8; 16]> {
    let header = unit.line_program.as_ref()?.header();
    if !header.file_has_md5() {
        return None;
    }
    let name = path.rsplit('/').next()?;
    for (number, file) in header.file_names().iter().enumerate() {
        if !budget.work.take(1) {
            return None;
        }
        let own = text(dwarf, unit, file.path_name())?;
        if own.ends_with(name) && file_path(dwarf, unit, number as u64).is_some_and(|own| plain(&own) == path)
        {
            // What was not known is all zero.
            return Some(*file.md5()).filter(|md5| *md5 != [0; 16]);
        }
    }
    None
}

/// The line table of a unit.
pub(crate) struct UnitRows {
    /// By address.
    rows: Vec<Row>,
    /// There was more than is read.
    cut: bool,
}

impl UnitRows {
    pub fn read(
        dwarf: &gimli::Dwarf<Slice<'_>>,
        unit: &Unit<Slice<'_>>,
        unit_number: usize,
        files: &mut Files,
        budget: &Budget,
    ) -> Self {
        let mut read = Self {
            rows: Vec::new(),
            cut: false,
        };
        let Some(program) = unit.line_program.clone() else {
            return read;
        };
        let bytes = program.header().raw_program_buf().len();
        if !budget.work.take(bytes / BYTES_PER_ROW) {
            read.cut = true;
            return read;
        }
        let mut rows = program.rows();
        let mut before: Option<LineRow> = None;
        // The lines whose run has begun.
        let mut begun: Vec<(usize, u32)> = Vec::new();
        // What comes after something damaged is not known.
        while let Ok(Some((_, row))) = rows.next_row() {
            let row = *row;
            if read.rows.len() == MAX_UNIT_ROWS || !budget.work.take(1) {
                read.cut = true;
                break;
            }
            if let Some(before) = before {
                let (start, end) = (before.address(), row.address());
                let has_code = start < end;
                let line = before
                    .line()
                    .map_or(0, |line| u32::try_from(line.get()).unwrap_or(0));
                let file = files.of_unit(dwarf, unit, unit_number, before.file_index(), budget);
                if has_code {
                    begun.retain(|&other| other == (file, line));
                }
                // At the end of a sequence there is nothing any more, and code that the linker dropped lies at 0.
                let counts = before.is_stmt() && start != 0 && (has_code || !row.end_sequence());
                let begins = counts && line != 0 && !begun.contains(&(file, line));
                if begins {
                    begun.truncate(MAX_BEGUN - 1);
                    begun.push((file, line));
                }
                if has_code || begins {
                    read.rows.push(Row {
                        range: start..end.max(start),
                        file,
                        line,
                        begins,
                    });
                }
            }
            if row.end_sequence() {
                before = None;
                begun.clear();
            } else {
                before = Some(row);
            }
        }
        read.rows.sort_by_key(|row| row.range.start);
        read
    }

    /// The rows that overlap some ranges, by address. The second is whether that is all of them.
    pub fn within(&self, ranges: &Ranges, budget: &Budget) -> (Vec<Row>, bool) {
        let mut kept: Vec<Row> = Vec::new();
        // What comes before was looked at for an earlier range.
        let mut next = 0;
        for range in ranges.iter() {
            let first = self.rows.partition_point(|row| row.range.start < range.start);
            let around = first.saturating_sub(LOOKED_BACK).max(next)..first.max(next);
            let around = self.rows[around].iter().filter(|row| row.range.end > range.start);
            let before = kept.len();
            kept.extend(around.cloned().map(|row| Row { begins: false, ..row }));
            let added = kept.len() - before;
            let rest = &self.rows[first.max(next)..];
            let inside = &rest[..rest.partition_point(|row| row.range.start < range.end)];
            next = first.max(next) + inside.len();
            if kept.len() + inside.len() > MAX_ROWS || !budget.rows.take(added + inside.len()) {
                return (kept, false);
            }
            kept.extend_from_slice(inside);
        }
        (kept, !self.cut)
    }
}

/// The row that holds an address; rows are by address.
pub(crate) fn row_at(rows: &[Row], address: u64) -> Option<&Row> {
    let after = rows.partition_point(|row| row.range.start <= address);
    let mut before = rows[..after].iter().rev().take(LOOKED_BACK);
    before.find(|row| row.range.contains(&address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_within_ranges_are_found() {
        let row = |range: Range<u64>| Row {
            range,
            file: 1,
            line: 1,
            begins: true,
        };
        let all = UnitRows {
            rows: vec![row(0..10), row(10..10), row(10..20), row(20..30), row(30..40)],
            cut: false,
        };
        let ranges = Ranges::new([5..12, 15..21, 35..60]);
        let (rows, complete) = all.within(&ranges, &Budget::new());
        assert!(complete);
        let found: Vec<_> = rows.iter().map(|row| (row.range.start, row.begins)).collect();
        // Where a row begins outside, nothing begins inside; each is there once.
        assert_eq!(
            found,
            [(0, false), (10, true), (10, true), (20, true), (30, false)]
        );
        assert!(all.within(&Ranges::default(), &Budget::new()).0.is_empty());
    }
}
