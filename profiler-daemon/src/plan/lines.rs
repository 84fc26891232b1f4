//! From a source line to the addresses at which it begins to run.
//!
//! A line's code can lie in several places: where the compiler moved parts of it, and in each instance of an inlined or
//! cloned function. Each uninterrupted run of its rows in the line table is one such place, and begins at the run's first
//! row that the compiler calls a statement (`is_stmt`).

use std::{borrow::Cow, collections::BTreeSet, ops::Range};

use gimli::{Dwarf, EndianSlice, LineRow, LittleEndian, Section as _, Unit, UnitHeader};

use super::{
    dwarf::{each, file_path, is_of_type, lines_left, text},
    elf::{Elf, ElfError, MAX_UNCOMPRESSED_BYTES},
    functions::ModuleIndex,
    left::Left,
    outline::Part,
};

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// Places that a line may have: a function of a header can be inlined that often.
pub const MAX_SITES: usize = 10_000;
/// Rows that are read per byte of the tables, which have at most one: units of types share those of the unit that they
/// were made from, but have no code.
const ROWS_PER_BYTE: usize = 4;
/// Rows that a line may have: each place of it can be cut up.
const MAX_ROWS: usize = 16 * MAX_SITES;
/// Paths that an error lists.
const LISTED: usize = 5;

/// Where a line begins to run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LineSite {
    /// The address of the first instruction, in the file's address space.
    pub address: u64,
}

/// A source line of a file, and the places where it begins to run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundLine {
    /// The file's whole path, as the compiler was given it.
    pub file: String,
    /// By address; there are some.
    pub sites: Vec<LineSite>,
}

/// Why there is no such line.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LineError {
    /// The executable cannot be read.
    #[error(transparent)]
    Elf(#[from] ElfError),
    /// There are no line tables.
    #[error("it has no debug information that tells lines")]
    NoLines,
    /// No source file has that path.
    #[error("no source file is called {0}")]
    NoSuchFile(String),
    /// Several source files have paths that end so.
    #[error("{file} could be {}: write more of the path", .paths.join(" or "))]
    Ambiguous {
        /// What was asked for.
        file: String,
        /// Some of the paths.
        paths: Vec<String>,
    },
    /// No instruction begins the line.
    #[error("{}", no_code(.file, *.line, .nearest))]
    NoCode {
        /// The file's whole path.
        file: String,
        /// What was asked for.
        line: u64,
        /// The lines before and after it that have code.
        nearest: Vec<u64>,
    },
    /// The line is in more places than can be probed.
    #[error("line {line} of {file} is in more than {MAX_SITES} places")]
    TooMany {
        /// The file's whole path.
        file: String,
        /// What was asked for.
        line: u64,
    },
}

fn no_code(file: &str, line: u64, nearest: &[u64]) -> String {
    let lines: Vec<String> = nearest.iter().map(u64::to_string).collect();
    match lines.as_slice() {
        [] => format!("line {line} of {file} has no code"),
        lines => format!(
            "line {line} of {file} has no code; the nearest that have: {}",
            lines.join(", ")
        ),
    }
}

/// What one core found in the units that it read.
#[derive(Default)]
struct Found {
    paths: BTreeSet<String>,
    sites: BTreeSet<LineSite>,
    /// What the line's rows cover.
    code: Vec<Range<u64>>,
    /// The nearest lines with code before and after the one that is sought.
    before: Option<u64>,
    after: Option<u64>,
    /// Whether a unit had a line table.
    lines: bool,
}

/// A source line of a file, and all of its code.
pub(super) struct LineCode {
    /// The file's whole path, as the compiler was given it.
    pub file: String,
    /// What each of its rows covers, by address; nothing where the line only begins where another's code is.
    pub rows: Vec<Range<u64>>,
}

/// Finds the places of a line. The file is given by the last components of its path.
///
/// # Errors
/// See [`LineError`].
pub fn find(module: &ModuleIndex, file: &str, line: u64) -> Result<FoundLine, LineError> {
    let (path, found) = read(module, file, line)?;
    if found.sites.is_empty() {
        return Err(without_code(path, line, &found));
    }
    if found.sites.len() > MAX_SITES {
        return Err(LineError::TooMany { file: path, line });
    }
    Ok(FoundLine {
        file: path,
        sites: found.sites.into_iter().collect(),
    })
}

/// Finds the code of a line: also that of rows which are no statement.
pub(super) fn code(module: &ModuleIndex, file: &str, line: u64) -> Result<LineCode, LineError> {
    let (path, mut found) = read(module, file, line)?;
    if found.code.is_empty() && found.sites.is_empty() {
        return Err(without_code(path, line, &found));
    }
    if found.code.len() > MAX_ROWS || found.sites.len() > MAX_SITES {
        return Err(LineError::TooMany { file: path, line });
    }
    let begins = found.sites.iter().map(|site| site.address..site.address);
    found.code.extend(begins);
    found.code.sort_unstable_by_key(|range| (range.start, range.end));
    found.code.dedup();
    Ok(LineCode {
        file: path,
        rows: found.code,
    })
}

fn without_code(file: String, line: u64, found: &Found) -> LineError {
    LineError::NoCode {
        file,
        line,
        nearest: [found.before, found.after].into_iter().flatten().collect(),
    }
}

/// Looks for a line in the units that have the file; with the file's whole path.
fn read(module: &ModuleIndex, file: &str, line: u64) -> Result<(String, Found), LineError> {
    let outline = module.outline(Part::Places);
    if !outline.has_lines() {
        return Err(LineError::NoLines);
    }
    let with_file = outline.with_file(last_component(file));
    if with_file.as_ref().is_some_and(Vec::is_empty) {
        return Err(LineError::NoSuchFile(file.to_owned()));
    }
    let elf = Elf::parse(module.data())?;
    let mut left = MAX_UNCOMPRESSED_BYTES;
    let sections: gimli::DwarfSections<Cow<'_, [u8]>> = gimli::DwarfSections::load(|id| {
        Ok::<_, ElfError>(elf.section(id.name(), &mut left).unwrap_or_default())
    })?;
    let dwarf = sections.borrow(|section| EndianSlice::new(section, LittleEndian));
    let mut headers: Vec<UnitHeader<Slice<'_>>> = Vec::new();
    let mut units = dwarf.units();
    // What follows a damaged unit cannot be found.
    while let Ok(Some(header)) = units.next() {
        headers.push(header);
    }
    if let Some(numbers) = with_file {
        headers = numbers
            .into_iter()
            .filter_map(|number| headers.get(number).copied())
            .collect();
    }
    read_units(&dwarf, &headers, file, line)
}

fn read_units(
    dwarf: &Dwarf<Slice<'_>>,
    headers: &[UnitHeader<Slice<'_>>],
    file: &str,
    line: u64,
) -> Result<(String, Found), LineError> {
    let headers_left = lines_left(dwarf);
    let rows = dwarf.debug_line.reader().len().saturating_mul(ROWS_PER_BYTE);
    let rows_left = Left::new(rows);
    let parts = each(headers, Found::default, |found, header| {
        if is_of_type(header) || headers_left.is_short() || rows_left.is_short() {
            return;
        }
        // A damaged unit spoils no other.
        let _ = dwarf.unit(*header).and_then(|unit| {
            if let Some(lines) = &unit.line_program {
                headers_left.take(lines.header().header_length());
            }
            scan(dwarf, &unit, (file, line), &rows_left, found)
        });
    });
    let mut all = Found::default();
    for part in parts {
        all.paths.extend(part.paths);
        all.sites.extend(part.sites);
        all.code.extend(part.code);
        all.before = all.before.max(part.before);
        all.after = [all.after, part.after].into_iter().flatten().min();
        all.lines |= part.lines;
    }
    let mut paths = std::mem::take(&mut all.paths).into_iter();
    let Some(path) = paths.next() else {
        return Err(if all.lines {
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
    Ok((path, all))
}

fn last_component(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Whether a path ends with these components.
#[must_use]
pub fn ends_with(path: &str, end: &str) -> bool {
    path.strip_suffix(end)
        .is_some_and(|before| before.is_empty() || before.ends_with('/') || end.starts_with('/'))
}

/// A path without `.` and `..`, as a compiler may have put them in.
pub(super) fn plain(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    let root = if path.starts_with('/') { "/" } else { "" };
    format!("{root}{}", parts.join("/"))
}

/// Looks for the line in a unit.
fn scan(
    dwarf: &Dwarf<Slice<'_>>,
    unit: &Unit<Slice<'_>>,
    (file, line): (&str, u64),
    rows_left: &Left,
    found: &mut Found,
) -> gimli::Result<()> {
    let Some(program) = unit.line_program.clone() else {
        return Ok(());
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
            .and_then(|entry| text(dwarf, unit, entry.path_name()));
        if !name.is_some_and(|name| ends_with(&name, last_component(file))) {
            continue;
        }
        let Some(path) = file_path(dwarf, unit, number).map(|path| plain(&path)) else {
            continue;
        };
        if ends_with(&path, file) {
            found.paths.insert(path);
            *wanted = true;
        }
    }
    if !wanted.contains(&true) {
        return Ok(());
    }
    let is_wanted = |row: &LineRow| {
        usize::try_from(row.file_index()).is_ok_and(|index| wanted.get(index).copied().unwrap_or(false))
    };
    let mut rows = program.rows();
    // The row before, and whether the line's run has begun.
    let mut before: Option<LineRow> = None;
    let mut begun = false;
    // Where the linker dropped code, its sequence begins at 0, and goes on from there.
    let mut is_dropped = false;
    while let Some((_, row)) = rows.next_row()? {
        let row = *row;
        if !rows_left.take(1) {
            break;
        }
        if before.is_none() {
            is_dropped = row.address() == 0;
        }
        if let Some(before) = before {
            let has_code = before.address() < row.address();
            let number = before.line().map_or(0, std::num::NonZero::get);
            let is_wanted = is_wanted(&before);
            let is_line = is_wanted && number == line;
            // Code of another line is between. A row without code says only that another line begins there as well.
            begun &= is_line || !has_code;
            if is_line && has_code && !is_dropped && found.code.len() <= MAX_ROWS {
                found.code.push(before.address()..row.address());
            }
            // At the end of a sequence there is nothing any more.
            let begins = before.is_stmt() && !is_dropped && (has_code || !row.end_sequence());
            if is_line && begins {
                if !begun && found.sites.len() <= MAX_SITES {
                    found.sites.insert(LineSite {
                        address: before.address(),
                    });
                }
                begun = true;
            } else if is_wanted && begins && number != 0 && number < line {
                found.before = found.before.max(Some(number));
            } else if is_wanted && begins && number > line {
                found.after = Some(found.after.map_or(number, |after| after.min(number)));
            }
        }
        if row.end_sequence() {
            (before, begun) = (None, false);
        } else {
            before = Some(row);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_end_at_components() {
        assert!(ends_with("/a/b/main.cc", "main.cc"));
        assert!(ends_with("/a/b/main.cc", "b/main.cc"));
        assert!(ends_with("/a/b/main.cc", "/a/b/main.cc"));
        assert!(!ends_with("/a/b/domain.cc", "main.cc"));
        assert!(!ends_with("/a/b/main.cc", "c/main.cc"));
    }

    #[test]
    fn paths_are_made_plain() {
        for (path, expected) in [
            ("/a/./b/../c.c", "/a/c.c"),
            ("a//b.c", "a/b.c"),
            ("../x.c", "../x.c"),
            ("/", "/"),
        ] {
            assert_eq!(plain(path), expected);
        }
    }
}
