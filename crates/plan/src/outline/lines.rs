//! Which units have code of a line, and which paths source files have.
//!
//! A header may be in the file tables of all units, and have code in few of them: its line tables are not read for it where
//! it is known which. A line is a hash of its file's name, the last component of the path, and of its number; in files with
//! more lines than can be kept, of the number of a block of lines.
//!
//! Of a function that several units have the same of, the linker keeps one, and may let the line tables of all of these say
//! where that is. What they say is the same, so one unit has its lines.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher as _, Hash as _, Hasher as _},
    ops::RangeInclusive,
    sync::{Mutex, PoisonError},
};

use foldhash::fast::{FoldHasher, RandomState};
use gimli::{Dwarf, EndianSlice, LittleEndian, Section as _, Unit};

#[cfg(test)]
use super::Part;
use super::{Bounds, Outline, RANGE, Reader, hash, long, push};
use crate::{
    dwarf::{file_path, text},
    left::Left,
    lines::{Row, each_row, last_component, plain, rows_left},
};

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// Lines that are kept of a file, each with one unit.
const MAX_LINES: usize = 1 << 22;
/// Bytes of line tables for a line that is kept, at least. A function that several units have the same of, the linker keeps
/// once, and a line has several rows.
const BYTES_PER_LINE: usize = 8;
/// Bytes of paths that are told apart.
const MAX_PATH_BYTES: usize = 64 << 20;
/// Spreads the numbers of lines. It is odd: no two lines of one file have the same hash.
const SPREAD: u32 = 0x9e37_79b1;
/// Lines of a unit that are collected before those that are there several times are taken out.
const COLLECTED: usize = 1 << 16;
/// Lines of a sequence that are collected before it is known whether there is the same one already; what comes of a longer
/// one, each unit has for itself.
const MAX_FOUND: usize = 1 << 16;
/// Sequences that are told apart. What is the same as one beyond them, each unit has for itself.
const MAX_SEQUENCES: usize = 1 << 21;
/// Lines, or blocks of lines, that are looked at on either side of one without code.
const MAX_DISTANCE: u64 = 1 << 12;

/// What may be read of line tables, and how lines are told apart.
pub(super) struct Lines {
    pub rows: Left,
    /// Bytes of paths.
    pub paths: Left,
    /// Low bits of a line's number that are left out.
    pub left_out_bits: u32,
    /// Hashes of the sequences that a unit has, which nobody can foresee.
    sequences: Mutex<HashSet<u64>>,
    hashing: RandomState,
}

/// How many low bits of lines are left out for all lines to find room.
pub(super) fn bits_to_leave_out(dwarf: &Dwarf<Slice<'_>>, bounds: Bounds) -> u32 {
    let most = dwarf.debug_line.reader().len() / BYTES_PER_LINE;
    let mut bits = 1..u32::BITS;
    bits.find(|bits| most >> bits <= bounds.names)
        .unwrap_or(u32::BITS)
}

impl Lines {
    pub fn of(dwarf: &Dwarf<Slice<'_>>, left_out_bits: u32) -> Self {
        Self {
            rows: rows_left(dwarf),
            paths: Left::new(MAX_PATH_BYTES),
            left_out_bits,
            sequences: Mutex::default(),
            hashing: RandomState::default(),
        }
    }

    /// Whether something was left unread.
    pub fn is_short(&self) -> bool {
        self.rows.is_short() || self.paths.is_short()
    }

    /// Whether a sequence is the first of those that are the same.
    fn is_new(&self, sequence: u64) -> bool {
        let mut known = self.sequences.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() < MAX_SEQUENCES {
            known.insert(sequence)
        } else {
            !known.contains(&sequence)
        }
    }
}

impl Bounds {
    /// Those of lines, for a file of some length.
    pub(super) fn of_lines(length: usize) -> Self {
        let all = Self::of(length);
        Self {
            names: all.names.min(MAX_LINES),
            ..all
        }
    }
}

impl<'a> Reader<'_, '_, 'a> {
    /// The paths of its source files, and the lines of them that it has code of.
    pub(super) fn lines(&mut self, unit: &Unit<Slice<'a>>, number: u32) {
        let Some(program) = unit.line_program.clone() else {
            return;
        };
        let files = self.files_by_number(unit, number);
        let mut lines = LinesOfUnit::new(self.bounds.names);
        let mut sequence = Sequence::new(self.lines);
        // What comes after something damaged is not found.
        let _ = each_row(program, &self.lines.rows, |row| {
            if row.is_first {
                lines.add(&mut sequence);
            }
            let file = usize::try_from(row.file).ok().and_then(|file| files.get(file));
            sequence.add(row, file.and_then(Option::as_ref));
            if sequence.found.len() >= MAX_FOUND {
                lines.add_part(&mut sequence);
            }
        });
        lines.add(&mut sequence);
        for line in lines.take() {
            push(&mut self.found.second, (line, number), self.bounds.names);
        }
        for (name, line) in lines.greatest {
            let greatest = self.found.greatest.entry(name).or_insert(line);
            *greatest = line.max(*greatest);
        }
    }

    /// The source files, by number in its table. Their paths are noted.
    fn files_by_number(&mut self, unit: &Unit<Slice<'a>>, number: u32) -> Vec<Option<File>> {
        let Some(program) = &unit.line_program else {
            return Vec::new();
        };
        let header = program.header();
        // Versions before 5 count files from 1.
        let count = header.file_names().len() as u64 + u64::from(header.version() < 5);
        let mut files = Vec::new();
        for file in 0..count {
            let entry = header.file(file);
            let name = entry.and_then(|file| text(self.dwarf, unit, file.path_name()));
            let path = file_path(self.dwarf, unit, file).map(|path| plain(&path));
            let (Some(name), Some(path)) = (name, path) else {
                files.push(None);
                continue;
            };
            if !self.work.take(1 + path.len() / super::BYTES_PER_STEP) {
                break;
            }
            let name = last_component(&name);
            files.push(Some(File {
                name: hash(name),
                path: self.lines.hashing.hash_one(&path),
            }));
            // It is looked for by its name first.
            let is_name = name == last_component(&path);
            if is_name && !self.found.paths.contains_key(&path) && self.lines.paths.take(path.len()) {
                self.found.paths.insert(path, number);
            }
        }
        files
    }
}

/// A source file, by hashes.
struct File {
    /// Of its name.
    name: u32,
    /// Of its path, which nobody can foresee.
    path: u64,
}

/// What a sequence of rows says, until its end is reached.
struct Sequence<'l> {
    lines: &'l Lines,
    /// Of all of its rows.
    hasher: FoldHasher<'static>,
    /// Files and lines that it has code of, by the hashes of their names.
    found: Vec<(u32, u64)>,
    /// Some of what was found is the unit's already.
    is_long: bool,
}

impl<'l> Sequence<'l> {
    fn new(lines: &'l Lines) -> Self {
        Self {
            lines,
            hasher: lines.hashing.build_hasher(),
            found: Vec::new(),
            is_long: false,
        }
    }

    fn add(&mut self, row: &Row, file: Option<&File>) {
        let path = file.map(|file| file.path);
        (row.range.start, row.range.end, path, row.line, row.begins).hash(&mut self.hasher);
        if let Some(file) = file.filter(|_| row.begins || row.has_code()) {
            let line = (file.name, row.line);
            if self.found.last() != Some(&line) {
                self.found.push(line);
            }
        }
    }

    /// Whether it is the first of those that are the same.
    fn is_new(&self) -> bool {
        !self.found.is_empty() && (self.is_long || self.lines.is_new(self.hasher.finish()))
    }
}

/// The lines that a unit has code of.
struct LinesOfUnit {
    hashes: Vec<u32>,
    /// Their number when those that are there several times were taken out.
    sorted: usize,
    /// What is beyond so many is left out: the table does not take it either.
    most: usize,
    /// The greatest of each file, by the hash of its name.
    greatest: HashMap<u32, u64>,
}

impl LinesOfUnit {
    /// None yet, of at most so many and one.
    fn new(most: usize) -> Self {
        Self {
            hashes: Vec::new(),
            sorted: 0,
            most,
            greatest: HashMap::new(),
        }
    }

    /// Adds those of a sequence, and begins it anew.
    fn add(&mut self, sequence: &mut Sequence<'_>) {
        if sequence.is_new() {
            self.add_part(sequence);
        }
        sequence.found.clear();
        let found = std::mem::take(&mut sequence.found);
        *sequence = Sequence {
            found,
            ..Sequence::new(sequence.lines)
        };
    }

    /// Adds what was found of a sequence, which goes on.
    fn add_part(&mut self, sequence: &mut Sequence<'_>) {
        let bits = sequence.lines.left_out_bits;
        for (name, line) in sequence.found.drain(..) {
            let greatest = self.greatest.entry(name).or_insert(line);
            *greatest = line.max(*greatest);
            if self.sorted > self.most {
                continue;
            }
            self.hashes.push(line_hash(name, block(line, bits)));
            if self.hashes.len() >= COLLECTED + 2 * self.sorted {
                self.sort();
            }
        }
        sequence.is_long = true;
    }

    fn sort(&mut self) {
        self.hashes.sort_unstable();
        self.hashes.dedup();
        self.sorted = self.hashes.len();
    }

    /// All of them, each once.
    fn take(&mut self) -> Vec<u32> {
        self.sort();
        std::mem::take(&mut self.hashes)
    }
}

/// What is on one side of a line.
pub(crate) enum Near {
    /// Units that have code near it.
    Units {
        /// Of the lines that they may have, that which is nearest to it.
        nearest: u64,
        /// That which is furthest: what has code between it and the line is among them, or came before.
        furthest: u64,
        /// Their numbers.
        numbers: Vec<usize>,
    },
    /// It is not known what comes further on.
    NotKnown,
}

/// The lines of the source files of one name.
pub(crate) struct LineUnits<'o> {
    outline: &'o Outline,
    name: u32,
    left_out_bits: u32,
}

impl Outline {
    /// As [`Self::of`], with blocks of lines of this length.
    #[cfg(test)]
    pub(crate) fn of_lines(dwarf: &Dwarf<Slice<'_>>, length: usize, left_out_bits: u32) -> Self {
        let bounds = Bounds::of_lines(length);
        Self::within(dwarf, Part::Lines, bounds, &Lines::of(dwarf, left_out_bits))
    }

    /// Which units have lines of the files of this name, the last component of their paths; `None` where all may have.
    pub(crate) fn lines_of(&self, name: &str) -> Option<LineUnits<'_>> {
        self.first.as_ref().and(self.second.as_ref())?;
        Some(LineUnits {
            outline: self,
            name: hash(name),
            left_out_bits: self.detail,
        })
    }
}

impl LineUnits<'_> {
    /// Numbers of units among whose files are all paths that end with the name.
    pub fn of_paths(&self) -> Vec<usize> {
        let table = self.outline.first.as_ref();
        table.map_or_else(Vec::new, |table| self.outline.with_hash(table, self.name))
    }

    /// Numbers of the units that have code of a line.
    pub fn of_line(&self, line: u64) -> Vec<usize> {
        self.of_block(block(line, self.left_out_bits))
    }

    /// Where code is before a line, the nearest first.
    pub fn before(&self, line: u64) -> impl Iterator<Item = Near> {
        let own = block(line, self.left_out_bits);
        let first = own.saturating_sub(MAX_DISTANCE);
        let found = (first..=own).rev().filter_map(|block| {
            let lines = self.lines_of_block(block);
            self.near(block, *lines.end(), *lines.start())
        });
        found.chain((first > 0).then_some(Near::NotKnown))
    }

    /// Where code is after a line, the nearest first.
    pub fn after(&self, line: u64) -> impl Iterator<Item = Near> {
        let own = block(line, self.left_out_bits);
        let last = block(self.greatest(), self.left_out_bits);
        let end = last.min(own.saturating_add(MAX_DISTANCE));
        let found = (own..=end).filter_map(|block| {
            let lines = self.lines_of_block(block);
            self.near(block, *lines.start(), *lines.end())
        });
        found.chain((end < last).then_some(Near::NotKnown))
    }

    fn near(&self, block: u64, nearest: u64, furthest: u64) -> Option<Near> {
        let numbers = self.of_block(block);
        (!numbers.is_empty()).then_some(Near::Units {
            nearest,
            furthest,
            numbers,
        })
    }

    fn lines_of_block(&self, block: u64) -> RangeInclusive<u64> {
        let after = lowest(block.saturating_add(1), self.left_out_bits);
        lowest(block, self.left_out_bits)..=after.saturating_sub(1)
    }

    fn of_block(&self, block: u64) -> Vec<usize> {
        let table = self.outline.second.as_ref();
        table.map_or_else(Vec::new, |table| {
            self.outline.with_hash(table, line_hash(self.name, block))
        })
    }

    /// The greatest line that has code.
    fn greatest(&self) -> u64 {
        let table = self.outline.table(&self.outline.ranges);
        let (names, _) = table.as_chunks::<RANGE>();
        let name = u64::from(self.name);
        let at = names.partition_point(|range| long(range, 0).is_some_and(|other| other < name));
        let found = names.get(at).filter(|range| long(*range, 0) == Some(name));
        found.and_then(|range| long(range, 8)).unwrap_or(0)
    }
}

fn block(line: u64, left_out_bits: u32) -> u64 {
    line.checked_shr(left_out_bits).unwrap_or(0)
}

/// The lowest line of a block.
fn lowest(block: u64, left_out_bits: u32) -> u64 {
    block.checked_shl(left_out_bits).unwrap_or(u64::MAX)
}

fn line_hash(name: u32, block: u64) -> u32 {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "lines beyond have the hashes of others"
    )]
    name.wrapping_add((block as u32).wrapping_mul(SPREAD))
}
