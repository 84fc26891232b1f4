//! What the units of a file are about: their code, the source files of their lines, the variables outside of functions,
//! the functions that are inlined.
//!
//! A gigabyte of debug information takes seconds to read; an answer takes a few of its units. An outline says which. It
//! is a selection only: what is asked for is read of the units themselves, so that a unit that is named in vain costs its
//! reading and nothing else.
//!
//! There are three of a file, as one takes the beginnings of the units only, one all entries, and one all rows of the line
//! tables. They are made by all cores, a unit at a time, and used in the form that is kept in files: numbers of four and
//! eight bytes.
//!
//! | file | idea |
//! |---|---|
//! | `lazy` | an outline is got or made when it is first asked for |
//! | `lines` | which units have code of a line |
//!
//! See `docs/internals/debug-info.md` for how large debug information is read.

mod lazy;
mod lines;

use std::{borrow::Cow, collections::HashMap, ops::Range, sync::Arc};

use gimli::{AttributeValue, Dwarf, EndianSlice, LittleEndian, Unit, UnitHeader, UnitOffset};
use profiler_elf::{Bytes, Elf, skip::skip_attributes};

use super::{
    dwarf::{Units, each, is_of_type, lines_left, may_be_inlined, reference, text},
    left::Left,
    lines::last_component,
    sections::dwarf_sections,
};

pub use self::lazy::Outlines;
use self::lines::Lines;
pub(super) use self::{lazy::Lazy, lines::LineUnits, lines::Near};

type Slice<'a> = EndianSlice<'a, LittleEndian>;
type Entry<'a> = gimli::DebuggingInformationEntry<Slice<'a>>;

/// How an outline begins: what it is, and the version of its form.
const MAGIC: [u8; 8] = *b"outline2";
/// Bytes before the tables: the magic number, the checksum of what follows it, which part it is, what is said of
/// it as a whole, and the counts of the tables.
const HEAD: usize = 8 + 4 + 4 + 4 + 3 * 4;
/// Bytes of a range: where it begins and ends, and the unit's number.
const RANGE: usize = 8 + 8 + 4;
/// Bytes of a name: its hash and the unit's number.
const NAME: usize = 4 + 4;
/// Names of one kind that are kept of a file. Where there are more, every unit may have what is asked for.
const MAX_NAMES: usize = 1 << 23;
/// Ranges of code that are kept; the code of others has no unit.
const MAX_RANGES: usize = 1 << 22;
/// Bytes of a file per name that is kept of it. A compiler writes tens of bytes for each; units that share one long list
/// are contrived.
const FILE_PER_NAME: usize = 4 * NAME;
/// The same of ranges: each has a function.
const FILE_PER_RANGE: usize = RANGE;
/// Names and ranges that may be kept in any case.
const MIN_KEPT: usize = 1 << 13;
/// Stands for the name of whatever function of another unit. None has it.
const FOREIGN: &str = "";
/// Stands for the count of a table that is too large to keep.
const TOO_MANY: u32 = u32::MAX;
/// Units that are read, as many as [`super::DebugIndex`] reads.
const MAX_UNITS: usize = 1 << 22;
/// Declarations that are followed to a name.
const MAX_CHAIN: usize = 8;
/// Ranges, names and references that are read: some seconds. Many entries can share a long list or name.
const WORK: usize = 1 << 27;
/// Bytes of a name that take as long as a range.
const BYTES_PER_STEP: usize = 64;

/// Which of the outlines of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// What code the units have, and the source files of their lines.
    Places,
    /// Names of variables outside of functions, and of functions that are inlined.
    Names,
    /// The paths of source files, and which lines of them the units have code of.
    Lines,
}

/// Which units have what.
#[derive(Clone)]
pub struct Outline {
    bytes: Bytes,
    /// Whether it takes memory of our own: it is not one that was kept.
    is_made: bool,
    /// Of places, whether a unit has a line table; of lines, how many low bits of a line's number are left out.
    detail: u32,
    /// Where in the bytes each table is. Of lines, a range is the hash of a file's name and its greatest line.
    ranges: Range<usize>,
    /// By hash; `None` where it would be too large. The files, the variables, or one unit for each path.
    first: Option<Range<usize>>,
    /// The functions that are inlined, or the lines.
    second: Option<Range<usize>>,
}

/// How many of what the outline of a file has, at most.
#[derive(Clone, Copy)]
struct Bounds {
    names: usize,
    ranges: usize,
}

impl Bounds {
    /// For a file of some length.
    fn of(length: usize) -> Self {
        Self {
            names: (length / FILE_PER_NAME).clamp(MIN_KEPT, MAX_NAMES),
            ranges: (length / FILE_PER_RANGE).clamp(MIN_KEPT, MAX_RANGES),
        }
    }
}

/// What one core found in the units that it read.
#[derive(Default)]
struct Found {
    ranges: Vec<(u32, u64, u64)>,
    first: Vec<(u32, u32)>,
    second: Vec<(u32, u32)>,
    /// The first unit that has each path, where a unit is asked for by path.
    paths: HashMap<String, u32>,
    /// The greatest line that has code, by the hash of its file's name.
    greatest: HashMap<u32, u64>,
    has_lines: bool,
}

impl Outline {
    /// Reads the debug information of a file; that of a damaged one is empty.
    #[must_use]
    pub fn of_file(bytes: &[u8], part: Part) -> Self {
        let elf = Elf::parse(bytes);
        let sections = elf.as_ref().map(dwarf_sections).unwrap_or_default();
        let dwarf = sections.borrow(|section| EndianSlice::new(section, LittleEndian));
        Self::of(&dwarf, part, bytes.len())
    }

    /// Reads debug information of a file of some length.
    pub(super) fn of(dwarf: &Dwarf<Slice<'_>>, part: Part, length: usize) -> Self {
        let bounds = match part {
            Part::Lines => Bounds::of_lines(length),
            Part::Places | Part::Names => Bounds::of(length),
        };
        let exact = Lines::of(dwarf, 0);
        let outline = Self::within(dwarf, part, bounds, &exact);
        // How many lines there are, without what the linker kept once, shows only when all are read.
        let is_too_many = outline.first.is_some() && outline.second.is_none();
        if part == Part::Lines && is_too_many {
            let blocks = Lines::of(dwarf, lines::bits_to_leave_out(dwarf, bounds));
            return Self::within(dwarf, part, bounds, &blocks);
        }
        outline
    }

    fn within(dwarf: &Dwarf<Slice<'_>>, part: Part, bounds: Bounds, lines: &Lines) -> Self {
        let mut headers: Vec<UnitHeader<Slice<'_>>> = Vec::new();
        let mut units = dwarf.units();
        // What follows a damaged unit cannot be found.
        while let Ok(Some(header)) = units.next()
            && headers.len() < MAX_UNITS
        {
            headers.push(header);
        }
        let numbers: Vec<u32> = (0..).take(headers.len()).collect();
        let (lines_left, work) = (lines_left(dwarf), Left::new(WORK));
        let parts = each(&numbers, Found::default, |found, &number| {
            let header = headers[number as usize];
            if part != Part::Names && is_of_type(&header) {
                return;
            }
            if lines_left.is_short() || work.is_short() || lines.is_short() {
                return;
            }
            let Ok(unit) = dwarf.unit(header) else {
                return;
            };
            if let Some(lines) = &unit.line_program {
                lines_left.take(lines.header().header_length());
            }
            let mut reader = Reader {
                dwarf,
                headers: &headers,
                work: &work,
                lines,
                bounds,
                found,
            };
            match part {
                Part::Places => {
                    reader.files(&unit, number);
                    reader.ranges(&unit, number);
                }
                Part::Names => {
                    // What comes after something damaged is not found.
                    let _ = reader.names(&unit, number);
                }
                Part::Lines => reader.lines(&unit, number),
            }
        });
        let mut all = Found::default();
        for mut found in parts {
            all.ranges.append(&mut found.ranges);
            all.first.append(&mut found.first);
            all.second.append(&mut found.second);
            for (path, unit) in found.paths {
                let first = all.paths.entry(path).or_insert(unit);
                *first = unit.min(*first);
            }
            for (name, line) in found.greatest {
                let all = all.greatest.entry(name).or_insert(line);
                *all = line.max(*all);
            }
            all.has_lines |= found.has_lines;
        }
        let paths = std::mem::take(&mut all.paths);
        all.first.extend(
            paths
                .iter()
                .map(|(path, unit)| (hash(last_component(path)), *unit)),
        );
        drop(paths);
        let greatest = std::mem::take(&mut all.greatest).into_iter();
        all.ranges
            .extend(greatest.map(|(name, line)| (0, name.into(), line)));
        let is_cut = part == Part::Lines && all.ranges.len() > bounds.ranges;
        let is_short = is_cut || lines_left.is_short() || work.is_short() || lines.is_short();
        let detail = match part {
            Part::Lines => lines.left_out_bits,
            Part::Places | Part::Names => all.has_lines.into(),
        };
        all.into_outline(part, detail, bounds, is_short)
    }

    /// What [`Self::bytes`] gave; `None` of what is damaged, or of another part or version.
    #[must_use]
    pub fn read(bytes: Bytes, part: Part) -> Option<Self> {
        let data: &[u8] = (*bytes).as_ref();
        let is_whole = data.get(..8)? == MAGIC
            && word(data, 8)? == crc32fast::hash(data.get(12..)?)
            && word(data, 12)? == part as u32;
        if !is_whole {
            return None;
        }
        let detail = word(data, 16)?;
        let mut at = HEAD;
        let mut table = |count: u32, size: usize| {
            let table = at..at.checked_add((count as usize).checked_mul(size)?)?;
            at = table.end;
            data.get(table.clone())?;
            Some(table)
        };
        let ranges = table(word(data, 20)?, RANGE)?;
        let mut names = |count: u32| match count {
            TOO_MANY => Some(None),
            count => Some(Some(table(count, NAME)?)),
        };
        let (first, second) = (names(word(data, 24)?)?, names(word(data, 28)?)?);
        (at == data.len()).then_some(())?;
        Some(Self {
            bytes,
            is_made: false,
            detail,
            ranges,
            first,
            second,
        })
    }

    /// All of it, as [`Self::read`] takes it.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        (*self.bytes).as_ref()
    }

    /// Whether a unit has a line table.
    pub(super) const fn has_lines(&self) -> bool {
        self.detail != 0
    }

    /// What the units say that they cover, without code that the linker dropped, and the unit's number, in its order.
    pub(super) fn ranges(&self) -> impl Iterator<Item = (Range<u64>, usize)> {
        self.table(&self.ranges).chunks_exact(RANGE).filter_map(|range| {
            let (begin, end) = (long(range, 0)?, long(range, 8)?);
            Some((begin..end, word(range, 16)? as usize))
        })
    }

    /// The numbers of the units whose line tables have a file of this name, the last component of its path; `None` where
    /// all may have one.
    pub(super) fn with_file(&self, name: &str) -> Option<Vec<usize>> {
        Some(self.with_name(self.first.as_ref()?, name))
    }

    /// The numbers of the units that have a variable of this name outside of functions; `None` where all may have one.
    pub(super) fn with_variable(&self, name: &str) -> Option<Vec<usize>> {
        Some(self.with_name(self.first.as_ref()?, name))
    }

    /// The numbers of the units that describe a function which may be inlined: by its own name without arguments, or its
    /// linkage name; `None` where all may have one.
    pub(super) fn with_inlined(&self, name: &str) -> Option<Vec<usize>> {
        Some(self.with_name(self.second.as_ref()?, name))
    }

    /// The numbers of the units into which functions of other units are inlined; `None` where all may be such.
    pub(super) fn with_foreign(&self) -> Option<Vec<usize>> {
        self.with_inlined(FOREIGN)
    }

    fn table(&self, table: &Range<usize>) -> &[u8] {
        self.bytes().get(table.clone()).unwrap_or_default()
    }

    fn with_name(&self, table: &Range<usize>, name: &str) -> Vec<usize> {
        self.with_hash(table, hash(name))
    }

    fn with_hash(&self, table: &Range<usize>, wanted: u32) -> Vec<usize> {
        let table = self.table(table);
        let hash_at = |at: usize| word(table, at * NAME).unwrap_or(u32::MAX);
        let count = table.len() / NAME;
        let (mut first, mut after) = (0, count);
        while first < after {
            let middle = usize::midpoint(first, after);
            if hash_at(middle) < wanted {
                first = middle + 1;
            } else {
                after = middle;
            }
        }
        let found = (first..count).take_while(|&at| hash_at(at) == wanted);
        found
            .filter_map(|at| Some(word(table, at * NAME + 4)? as usize))
            .collect()
    }
}

impl Found {
    /// Where not all was read, a name may be anywhere.
    fn into_outline(mut self, part: Part, detail: u32, bounds: Bounds, is_short: bool) -> Outline {
        self.ranges.sort_unstable();
        self.ranges.dedup();
        self.ranges.truncate(bounds.ranges);
        let names = |mut names: Vec<(u32, u32)>| {
            names.sort_unstable();
            names.dedup();
            (!is_short && names.len() <= bounds.names).then_some(names)
        };
        let names = [names(self.first), names(self.second)];
        let mut bytes = MAGIC.to_vec();
        bytes.extend([0; 4]);
        bytes.extend((part as u32).to_le_bytes());
        bytes.extend(detail.to_le_bytes());
        let mut at = HEAD;
        let mut table = |count: Option<usize>, size: usize| {
            let number = count.and_then(|count| u32::try_from(count).ok());
            bytes.extend(number.unwrap_or(TOO_MANY).to_le_bytes());
            let table = at..at + count.unwrap_or(0) * size;
            at = table.end;
            count.map(|_| table)
        };
        let ranges = table(Some(self.ranges.len()), RANGE).unwrap_or(HEAD..HEAD);
        let tables = names
            .each_ref()
            .map(|names| table(names.as_ref().map(Vec::len), NAME));
        bytes.reserve_exact(at - HEAD);
        for (unit, begin, end) in self.ranges {
            bytes.extend(begin.to_le_bytes());
            bytes.extend(end.to_le_bytes());
            bytes.extend(unit.to_le_bytes());
        }
        for (hash, unit) in names.into_iter().flatten().flatten() {
            bytes.extend(hash.to_le_bytes());
            bytes.extend(unit.to_le_bytes());
        }
        let checksum = crc32fast::hash(&bytes[12..]);
        bytes[8..12].copy_from_slice(&checksum.to_le_bytes());
        let [first, second] = tables;
        Outline {
            bytes: Arc::new(bytes),
            is_made: true,
            detail,
            ranges,
            first,
            second,
        }
    }
}

/// What reads a unit.
struct Reader<'f, 'd, 'a> {
    dwarf: &'d Dwarf<Slice<'a>>,
    headers: &'d [UnitHeader<Slice<'a>>],
    work: &'d Left,
    lines: &'d Lines,
    bounds: Bounds,
    found: &'f mut Found,
}

impl<'a> Reader<'_, '_, 'a> {
    /// The source files of its line table.
    fn files(&mut self, unit: &Unit<Slice<'a>>, number: u32) {
        let Some(program) = &unit.line_program else {
            return;
        };
        self.found.has_lines = true;
        let header = program.header();
        // Versions before 5 count files from 1; there, 0 is the file that the unit is called after.
        for file in (0..=header.file_names().len() as u64).filter_map(|number| header.file(number)) {
            if let Some(path) = self.text(unit, file.path_name()) {
                let name = hash(last_component(&path));
                push(&mut self.found.first, (name, number), self.bounds.names);
            }
        }
    }

    /// What it says that it covers.
    fn ranges(&mut self, unit: &Unit<Slice<'a>>, number: u32) {
        let Ok(mut ranges) = self.dwarf.unit_ranges(unit) else {
            return;
        };
        while self.work.take(1)
            && let Ok(Some(range)) = ranges.next()
        {
            if range.begin != 0 && range.begin < range.end {
                push(
                    &mut self.found.ranges,
                    (number, range.begin, range.end),
                    self.bounds.ranges,
                );
            }
        }
    }

    /// Its variables outside of functions, and the members and constants that are found as such; and the functions that
    /// may be inlined, wherever they are.
    fn names(&mut self, unit: &Unit<Slice<'a>>, number: u32) -> gimli::Result<()> {
        let mut entries = unit.entries_raw(None)?;
        let mut function_depth = None;
        let mut is_foreign = false;
        while !entries.is_empty() {
            let (at, depth) = (entries.next_offset(), entries.next_depth());
            let Some(abbreviation) = entries.read_abbreviation()? else {
                continue;
            };
            let attributes = abbreviation.attributes();
            skip_attributes(&mut entries, attributes)?;
            let has = |name| attributes.iter().any(|attribute| attribute.name() == name);
            let is_inside = function_depth.is_some_and(|function| depth > function);
            match abbreviation.tag() {
                gimli::DW_TAG_subprogram => {
                    if !is_inside {
                        function_depth = Some(depth);
                    }
                    if may_be_inlined(abbreviation) {
                        self.inlined(unit, at, number);
                    }
                }
                gimli::DW_TAG_inlined_subroutine if !is_foreign => {
                    is_foreign = attributes.iter().any(|attribute| {
                        attribute.name() == gimli::DW_AT_abstract_origin
                            && attribute.form() == gimli::DW_FORM_ref_addr
                    });
                }
                gimli::DW_TAG_variable | gimli::DW_TAG_member | gimli::DW_TAG_constant
                    if !is_inside && (has(gimli::DW_AT_location) || has(gimli::DW_AT_const_value)) =>
                {
                    if let (Some(name), _) = self.names_of(unit, at) {
                        push(&mut self.found.first, (hash(&name), number), self.bounds.names);
                    }
                }
                _ => {}
            }
        }
        if is_foreign {
            push(&mut self.found.second, (hash(FOREIGN), number), self.bounds.names);
        }
        Ok(())
    }

    fn inlined(&mut self, unit: &Unit<Slice<'a>>, at: UnitOffset, number: u32) {
        let (name, linkage) = self.names_of(unit, at);
        let own = name.as_deref().map(without_arguments);
        for name in own.into_iter().chain(linkage.as_deref()) {
            push(&mut self.found.second, (hash(name), number), self.bounds.names);
        }
    }

    /// The name and the linkage name of an entry, or of what it defines.
    fn names_of(
        &self,
        unit: &Unit<Slice<'a>>,
        at: UnitOffset,
    ) -> (Option<Cow<'a, str>>, Option<Cow<'a, str>>) {
        let (mut name, mut linkage) = (None, None);
        let mut read = |unit: &Unit<Slice<'a>>, entry: &Entry<'a>| {
            let text = |value| self.text(unit, value);
            name = name
                .take()
                .or_else(|| entry.attr_value(gimli::DW_AT_name).and_then(text));
            let value = entry.attr_value(gimli::DW_AT_linkage_name);
            let value = value.or_else(|| entry.attr_value(gimli::DW_AT_MIPS_linkage_name));
            linkage = linkage.take().or_else(|| value.and_then(text));
            let of = entry.attr_value(gimli::DW_AT_abstract_origin);
            reference(unit, of.or_else(|| entry.attr_value(gimli::DW_AT_specification))?)
        };
        let mut next = unit.entry(at).ok().and_then(|entry| read(unit, &entry));
        let mut units = Units::new(self.dwarf, self.headers, self.work);
        for _ in 0..MAX_CHAIN {
            let Some(offset) = next else { break };
            // Most declarations are in the same unit, which is read already.
            let own = gimli::DebugInfoOffset(offset).to_unit_offset(&unit.header);
            next = match own.and_then(|own| unit.entry(own).ok()) {
                Some(entry) => read(unit, &entry),
                None => units.entry(offset).and_then(|(unit, entry)| read(&unit, &entry)),
            };
        }
        (name, linkage)
    }

    fn text(&self, unit: &Unit<Slice<'a>>, value: AttributeValue<Slice<'a>>) -> Option<Cow<'a, str>> {
        let text = text(self.dwarf, unit, value)?;
        self.work.take(1 + text.len() / BYTES_PER_STEP).then_some(text)
    }
}

/// Adds to a list, which grows beyond its bound by no more than shows that it does.
fn push<T>(list: &mut Vec<T>, item: T, bound: usize) {
    if list.len() <= bound {
        list.push(item);
    }
}

/// A function's own name without those of template arguments and parameters.
pub(super) fn without_arguments(name: &str) -> &str {
    name.split(['<', '(']).next().unwrap_or(name)
}

/// What stands for a name.
fn hash(name: &str) -> u32 {
    crc32fast::hash(name.as_bytes())
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|word| u32::from_le_bytes(*word))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|long| u64::from_le_bytes(*long))
}
