//! The functions that hold the code of a line, and what their machine code does.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::Range,
};

use gimli::UnitOffset;

use super::{
    functions::ModuleIndex,
    source::{
        find::{entries, with_dwarf},
        flow::{Flow, flow, name_at},
        ranges::Ranges,
        rows::{Row, row_at},
        scopes::Body,
        units::Reader,
        whole::Wholes,
    },
};

/// Lines that an error offers.
const NEAREST: usize = 4;

/// A function with code of the line: itself, not what is inlined into it.
pub(super) struct Holder {
    /// The name that is shown; empty where nothing has one.
    pub name: String,
    /// The number of its unit and its entry, where the debug information describes it.
    pub entry: Option<(usize, UnitOffset)>,
    /// What is described of it.
    pub body: Option<Body>,
    /// Its code: instructions are decoded from the beginning of each range.
    pub code: Ranges,
    /// Its calls and jumps, the line's and all others.
    pub flow: Flow,
}

impl Holder {
    /// Where the run of instructions ends that holds an address.
    pub fn end_of(&self, address: u64) -> Option<u64> {
        let mut ranges = self.code.iter();
        ranges
            .find(|range| range.contains(&address))
            .map(|range| range.end)
    }
}

/// What tells functions apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Entry(usize, UnitOffset),
    Symbol(u64),
    /// Code that nothing describes: a row's.
    Bare(u64),
}

/// Visits the functions that hold a line's rows, one after the other: each may be large, and there may be many.
pub(super) fn each_holder<'d, 'a>(
    module: &ModuleIndex,
    reader: &mut Reader<'d, 'a>,
    rows: &[Range<u64>],
    mut visit: impl FnMut(&mut Reader<'d, 'a>, Holder),
) {
    // What a line table says of other places is nothing to probe.
    let is_code = |address: u64| {
        let mut segments = module.segments().iter();
        segments.any(|segment| segment.has_code_at(address))
    };
    let rows = || rows.iter().filter(|row| is_code(row.start));
    let starts: Vec<u64> = rows().map(|row| row.start).collect();
    let entries = entries(reader, &starts);
    let mut by_key: BTreeMap<Key, Range<u64>> = BTreeMap::new();
    for row in rows() {
        let key = match (entries.get(&row.start), module.function_at(row.start)) {
            (Some(&(unit, offset)), _) => Key::Entry(unit, offset),
            (None, Some(function)) => Key::Symbol(function.address()),
            (None, None) => Key::Bare(row.start),
        };
        by_key.entry(key).or_insert_with(|| row.clone());
    }
    let mut wholes = Wholes::default();
    for (key, row) in by_key {
        let entry = match key {
            Key::Entry(unit, offset) => Some((unit, offset)),
            Key::Symbol(_) | Key::Bare(_) => None,
        };
        let body = entry.and_then(|(unit, offset)| Body::read(reader, unit, offset));
        let function = module.function_at(row.start);
        let code = match (&body, function) {
            (Some(body), _) => Ranges::new(body.scopes[0].ranges.iter().cloned()),
            (None, Some(function)) => {
                let start = function.address();
                Ranges::new(std::iter::once(start..start.saturating_add(function.size())))
            }
            (None, None) => Ranges::new(std::iter::once(row.clone())),
        };
        let whole = wholes.of(module, &code, reader.budget);
        let named = code.iter().find_map(|range| module.function_at(range.start));
        let name = named.map_or_else(
            || name_at(module, row.start),
            |function| function.name().into_owned(),
        );
        let flow = flow(module, reader, &code, &whole);
        let holder = Holder {
            name: reader.budget.text(&name),
            entry,
            body,
            code,
            flow,
        };
        visit(reader, holder);
    }
}

/// Of the lines of a file that these instructions belong to, those nearest to one, in order.
pub(super) fn nearest_lines(
    reader: &mut Reader<'_, '_>,
    instructions: &[u64],
    (file, line): (&str, u64),
) -> Vec<u64> {
    let file = reader.files.number(file);
    let mut lines: BTreeSet<u64> = rows_of(reader, instructions)
        .into_iter()
        .filter(|(_, row)| row.file == file && row.line != 0)
        .map(|(_, row)| u64::from(row.line))
        .collect();
    lines.remove(&line);
    let mut nearest: Vec<u64> = lines.into_iter().collect();
    nearest.sort_by_key(|other| other.abs_diff(line));
    nearest.truncate(NEAREST);
    nearest.sort_unstable();
    nearest
}

/// Where these instructions are in the source, by the line table alone: what is inlined is in its own file, whatever it is
/// inlined into. Those of no line are left out.
#[must_use]
pub fn lines_of(module: &ModuleIndex, instructions: &[u64]) -> HashMap<u64, (String, u32)> {
    let found = with_dwarf(module, |reader| {
        let rows = rows_of(reader, instructions);
        let with_line = rows.into_iter().filter(|(_, row)| row.line != 0);
        with_line
            .map(|(address, row)| (address, (reader.files.path(row.file).to_owned(), row.line)))
            .collect()
    });
    found.unwrap_or_default()
}

/// The rows of the line table that these instructions belong to.
fn rows_of(reader: &mut Reader<'_, '_>, instructions: &[u64]) -> Vec<(u64, Row)> {
    let mut found_rows = Vec::new();
    let mut by_unit: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
    for (address, number) in reader.holding(instructions) {
        by_unit.entry(number).or_default().push(address);
    }
    for (number, addresses) in by_unit {
        let Some(rows) = reader.rows(number) else { continue };
        let places = addresses.iter().map(|&at| at..at.saturating_add(1));
        let (rows, _) = rows.within(&Ranges::new(places), reader.budget);
        found_rows.extend(
            addresses
                .iter()
                .filter_map(|&address| Some((address, row_at(&rows, address)?.clone()))),
        );
    }
    found_rows
}

/// Lines in words.
pub(super) fn listed(lines: &[u64]) -> String {
    let lines: Vec<String> = lines.iter().map(u64::to_string).collect();
    lines.join(", ")
}
