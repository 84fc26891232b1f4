//! From a source line to the addresses at which it begins to run.
//!
//! A line's code can lie in several places: where the compiler moved parts of it, and in each instance of an inlined or
//! cloned function. Each uninterrupted run of its rows in the line table is one such place, and begins at the run's first
//! row that the compiler calls a statement (`is_stmt`).
//!
//! | file | idea |
//! |---|---|
//! | `rows` | the rows of a unit's line table that say something of code |
//! | `search` | units are read for a line, and those left alone that have none of it |

mod rows;
mod search;

use std::ops::Range;

use profiler_elf::ElfError;

use super::functions::ModuleIndex;

pub(super) use self::rows::{Row, each_row, rows_left};
use self::search::{Found, read};

/// Places that a line may have: a function of a header can be inlined that often.
pub const MAX_SITES: usize = 10_000;
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
    #[error("it has no debug information about lines")]
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
            "line {line} of {file} has no code; the nearest lines with code: {}",
            lines.join(", ")
        ),
    }
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

/// The name of a file.
pub(super) fn last_component(path: &str) -> &str {
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
