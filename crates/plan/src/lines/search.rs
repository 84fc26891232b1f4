//! Reads units for a line. Where many have its file, as of a header, the outline says which of them have code of it.

use std::{
    collections::BTreeSet,
    ops::{ControlFlow, Range},
};

use gimli::{Dwarf, EndianSlice, LittleEndian, Unit, UnitHeader};
use profiler_elf::Elf;

use super::{
    LISTED, LineError, LineSite, MAX_ROWS, MAX_SITES, each_row, ends_with, last_component, plain, rows_left,
};
use crate::{
    dwarf::{each, file_path, is_of_type, lines_left, text},
    functions::ModuleIndex,
    left::Left,
    outline::{LineUnits, Near, Outline, Part},
    sections::dwarf_sections,
};

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// Units that are read without asking which of them have code of the line: it takes less time.
const FEW_UNITS: usize = 16;

/// What one core found in the units that it read.
#[derive(Default, PartialEq, Eq, Debug)]
pub(super) struct Found {
    pub paths: BTreeSet<String>,
    pub sites: BTreeSet<LineSite>,
    /// What the line's rows cover.
    pub code: Vec<Range<u64>>,
    /// The nearest lines with code before and after the one that is sought. Where it has places itself, these need not be
    /// the nearest of all units.
    pub before: Option<u64>,
    pub after: Option<u64>,
    /// Whether a unit had a line table.
    lines: bool,
}

impl Found {
    fn add(&mut self, other: Self) {
        self.paths.extend(other.paths);
        self.sites.extend(other.sites);
        self.code.extend(other.code);
        self.before = self.before.max(other.before);
        self.after = [self.after, other.after].into_iter().flatten().min();
        self.lines |= other.lines;
    }
}

/// Looks for a line in the units that have it; with the file's whole path.
pub(super) fn read(module: &ModuleIndex, file: &str, line: u64) -> Result<(String, Found), LineError> {
    read_with(module, file, line, |units| {
        (units > FEW_UNITS).then(|| module.outline(Part::Lines))
    })
}

/// As [`read`], by the outline of lines that is given for a number of units, if one is.
fn read_with(
    module: &ModuleIndex,
    file: &str,
    line: u64,
    lines: impl FnOnce(usize) -> Option<Outline>,
) -> Result<(String, Found), LineError> {
    let places = module.outline(Part::Places);
    if !places.has_lines() {
        return Err(LineError::NoLines);
    }
    let name = last_component(file);
    let with_file = places.with_file(name);
    if with_file.as_ref().is_some_and(Vec::is_empty) {
        return Err(LineError::NoSuchFile(file.to_owned()));
    }
    let elf = Elf::parse(module.files().debug())?;
    let sections = dwarf_sections(&elf);
    let dwarf = sections.borrow(|section| EndianSlice::new(section, LittleEndian));
    let count = with_file.as_ref().map_or(usize::MAX, Vec::len);
    if let Some(outline) = lines(count)
        && let Some(units) = outline.lines_of(name)
    {
        let mut search = Search::new(&dwarf, file, line);
        if search.read_by(&units).is_continue() {
            return search.answer();
        }
    }
    let mut search = Search::new(&dwarf, file, line);
    let numbers = with_file.unwrap_or_else(|| (0..search.headers.len()).collect());
    search.read(numbers);
    search.answer()
}

/// The outline does not tell: all units that have the file are to be read.
struct NotKnown;

/// The search for a line in some units.
struct Search<'d, 'a> {
    dwarf: &'d Dwarf<Slice<'a>>,
    headers: Vec<UnitHeader<Slice<'a>>>,
    file: &'d str,
    line: u64,
    headers_left: Left,
    rows_left: Left,
    /// Units whose rows are read.
    done: BTreeSet<usize>,
    found: Found,
}

impl<'d, 'a> Search<'d, 'a> {
    fn new(dwarf: &'d Dwarf<Slice<'a>>, file: &'d str, line: u64) -> Self {
        let mut headers = Vec::new();
        let mut units = dwarf.units();
        // What follows a damaged unit cannot be found.
        while let Ok(Some(header)) = units.next() {
            headers.push(header);
        }
        Self {
            dwarf,
            headers,
            file,
            line,
            headers_left: lines_left(dwarf),
            rows_left: rows_left(dwarf),
            done: BTreeSet::new(),
            found: Found::default(),
        }
    }

    /// Reads the units that have code of the line; where it has no place, those of its neighbours.
    fn read_by(&mut self, units: &LineUnits<'_>) -> ControlFlow<NotKnown> {
        self.each_unit(&units.of_paths(), |search, unit, found| {
            search.files(unit, found);
        });
        // It has a line table, or it would not be in the outline.
        self.found.lines = true;
        // One that does not exist, or several.
        if self.found.paths.len() != 1 {
            return ControlFlow::Continue(());
        }
        self.read(units.of_line(self.line));
        if !self.found.sites.is_empty() {
            return ControlFlow::Continue(());
        }
        let [before, after] = [|found: &Found| found.before, |found: &Found| found.after];
        self.read_side(units.before(self.line), before, |before, furthest| {
            before >= furthest
        })?;
        self.read_side(units.after(self.line), after, |after, furthest| after <= furthest)
    }

    /// Reads the units on one side of the line, until the nearest line with code there is certain; `is_within` of that and
    /// the furthest that the units may have.
    fn read_side(
        &mut self,
        side: impl Iterator<Item = Near>,
        found_there: impl Fn(&Found) -> Option<u64>,
        is_within: impl Fn(u64, u64) -> bool,
    ) -> ControlFlow<NotKnown> {
        for near in side {
            let Near::Units {
                nearest,
                furthest,
                numbers,
            } = near
            else {
                return ControlFlow::Break(NotKnown);
            };
            self.read_until(&numbers, |found| found_there(found) == Some(nearest));
            // All that have code between the two lines are read, or none of them can have any that is nearer.
            if found_there(&self.found).is_some_and(|line| is_within(line, furthest)) {
                break;
            }
        }
        ControlFlow::Continue(())
    }

    /// Reads the rows of units, some at a time, until what is looked for is found.
    fn read_until(&mut self, numbers: &[usize], is_found: impl Fn(&Found) -> bool) {
        for some in numbers.chunks(FEW_UNITS) {
            if is_found(&self.found) {
                break;
            }
            self.read(some.to_vec());
        }
    }

    /// Reads the rows of units, of each once.
    fn read(&mut self, mut numbers: Vec<usize>) {
        numbers.retain(|number| self.done.insert(*number));
        self.each_unit(&numbers, |search, unit, found| {
            // A damaged unit spoils no other.
            let _ = search.scan(unit, found);
        });
    }

    /// Visits units by all cores.
    fn each_unit(&mut self, numbers: &[usize], visit: impl Fn(&Self, &Unit<Slice<'a>>, &mut Found) + Sync) {
        if numbers.is_empty() {
            return;
        }
        let parts = each(numbers, Found::default, |found, &number| {
            let Some(header) = self.headers.get(number) else {
                return;
            };
            if is_of_type(header) || self.headers_left.is_short() || self.rows_left.is_short() {
                return;
            }
            let Ok(unit) = self.dwarf.unit(*header) else {
                return;
            };
            if let Some(lines) = &unit.line_program {
                self.headers_left.take(lines.header().header_length());
            }
            visit(self, &unit, found);
        });
        for part in parts {
            self.found.add(part);
        }
    }

    fn answer(self) -> Result<(String, Found), LineError> {
        let Self { file, mut found, .. } = self;
        let mut paths = std::mem::take(&mut found.paths).into_iter();
        let Some(path) = paths.next() else {
            return Err(if found.lines {
                LineError::NoSuchFile(file.to_owned())
            } else {
                LineError::NoLines
            });
        };
        if let Some(second) = paths.next() {
            return Err(LineError::Ambiguous {
                file: file.to_owned(),
                paths: [path, second].into_iter().chain(paths).take(LISTED).collect(),
            });
        }
        Ok((path, found))
    }

    /// The files of a unit's table that are meant, by number.
    fn files(&self, unit: &Unit<Slice<'a>>, found: &mut Found) -> Vec<bool> {
        let Some(program) = &unit.line_program else {
            return Vec::new();
        };
        found.lines = true;
        let header = program.header();
        // Versions before 5 count files from 1; there, 0 has no name and is passed over.
        let count = header.file_names().len() as u64 + u64::from(header.version() < 5);
        let mut wanted = vec![false; usize::try_from(count).unwrap_or(0)];
        for (number, wanted) in (0..).zip(&mut wanted) {
            // The name first: most files are not the one, and a whole path takes longer to put together.
            let name = header
                .file(number)
                .and_then(|entry| text(self.dwarf, unit, entry.path_name()));
            if !name.is_some_and(|name| ends_with(&name, last_component(self.file))) {
                continue;
            }
            let Some(path) = file_path(self.dwarf, unit, number).map(|path| plain(&path)) else {
                continue;
            };
            if ends_with(&path, self.file) {
                found.paths.insert(path);
                *wanted = true;
            }
        }
        wanted
    }

    /// Looks for the line in a unit.
    fn scan(&self, unit: &Unit<Slice<'a>>, found: &mut Found) -> gimli::Result<()> {
        let wanted = self.files(unit, found);
        if !wanted.contains(&true) {
            return Ok(());
        }
        let Some(program) = unit.line_program.clone() else {
            return Ok(());
        };
        let is_wanted =
            |file: u64| usize::try_from(file).is_ok_and(|index| wanted.get(index).copied().unwrap_or(false));
        let line = self.line;
        // Whether the line's run has begun.
        let mut begun = false;
        each_row(program, &self.rows_left, |row| {
            let is_wanted = is_wanted(row.file);
            let is_line = is_wanted && row.line == line;
            // Code of another line is between. A row without code says only that another line begins there as well.
            begun &= !row.is_first && (is_line || !row.has_code());
            if is_line && row.has_code() && found.code.len() <= MAX_ROWS {
                found.code.push(row.range.clone());
            }
            if is_line && row.begins {
                if !begun && found.sites.len() <= MAX_SITES {
                    found.sites.insert(LineSite {
                        address: row.range.start,
                    });
                }
                begun = true;
            } else if is_wanted && row.begins && row.line != 0 && row.line < line {
                found.before = found.before.max(Some(row.line));
            } else if is_wanted && row.begins && row.line > line {
                found.after = Some(found.after.map_or(row.line, |after| after.min(row.line)));
            }
        })
    }
}

#[cfg(test)]
mod tests;
