//! What DWARF adds to the functions of a file: where they are declared, and how often inlined.
//!
//! Read only when asked for, by all cores, a unit at a time.

use std::{
    borrow::Cow,
    collections::{HashMap, VecDeque},
    rc::Rc,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use gimli::{
    AttributeValue, DebugInfoOffset, DebuggingInformationEntry, Dwarf, EndianSlice, LittleEndian,
    Section as _, Unit, UnitHeader,
};
use profiler_elf::{Elf, ElfError};

use super::{futures::Futures, left::Left, sections::dwarf_sections};

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// References that are followed from a function to its declaration.
const MAX_CHAIN: usize = 8;
/// Units that are read: two hundred times a large browser's.
const MAX_UNITS: usize = 1 << 22;

/// Bytes of names and paths that are kept per byte of `.debug_info`, and at most. An entry of some ten bytes has a path
/// of a hundred, but few entries are functions; many that refer to one long text are contrived.
const TEXT_PER_BYTE: usize = 16;
const MAX_TEXT_BYTES: usize = 2 << 30;

/// Longest name, or part of a path, in bytes; the rest is left out. Instances of templates have the longest.
const MAX_ONE_TEXT_BYTES: usize = 64 << 10;
/// Units that are kept while others are read: those that a function's types and inlined functions come from.
const KEPT_UNITS: usize = 16;
/// Bytes of a unit's headers and names that take as long as an entry.
const BYTES_PER_STEP: usize = 64;

/// How often the headers of line tables may be read, in bytes per byte of their section, and what a small file may take
/// of that in any case: units of types share the table of the unit that they were made from.
const LINE_HEADERS_PER_BYTE: usize = 64;
const MIN_LINE_HEADERS: usize = 16 << 20;

/// Where something is declared.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Source {
    /// Path of the file, empty where unknown.
    pub file: String,
    /// Line in it, counted from 1; 0 where unknown.
    pub line: u64,
}

/// What is known of a function that has code of its own.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Debugged {
    /// Where it is declared.
    pub source: Source,
    /// Places that it has been inlined into.
    pub inlined: u64,
    /// It is an async function of Rust: its calls make a future.
    pub is_async: bool,
}

/// A function without code of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InlinedOnly {
    /// Its name as DWARF has it, without path.
    pub name: String,
    /// Its linkage name, where it has one.
    pub linkage_name: Option<String>,
    /// Where it is declared.
    pub source: Source,
    /// Places that it has been inlined into.
    pub instances: u64,
}

/// What a file's DWARF says of its functions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DebugIndex {
    /// By address.
    pub functions: HashMap<u64, Debugged>,
    /// Those that exist only inlined.
    pub inlined_only: Vec<InlinedOnly>,
    /// Units that were damaged, of a newer version or in other files, and so left out.
    pub skipped_units: usize,
}

/// What one unit says, references as offsets into `.debug_info`.
#[derive(Default)]
struct Found {
    /// Address of a function, and the entry that describes it first of all.
    concrete: Vec<(u64, usize)>,
    /// Inlined instances by the entry of what is inlined.
    inlined: HashMap<usize, u64>,
    skipped: usize,
}

/// What an entry declares.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct Declared {
    pub name: Option<String>,
    pub linkage_name: Option<String>,
    pub source: Source,
}

impl Declared {
    pub fn text_bytes(&self) -> usize {
        let names = [&self.name, &self.linkage_name].into_iter().flatten();
        names.map(String::len).sum::<usize>() + self.source.file.len()
    }
}

/// What may be read of the headers of line tables, in bytes.
pub(super) fn lines_left(dwarf: &Dwarf<Slice<'_>>) -> Left {
    let lines = dwarf.debug_line.reader().len();
    Left::new(lines.saturating_mul(LINE_HEADERS_PER_BYTE).max(MIN_LINE_HEADERS))
}

/// Whether a unit describes a type alone: it has no code, and the line table of the unit that it was made from.
pub(super) fn is_of_type(header: &UnitHeader<Slice<'_>>) -> bool {
    matches!(
        header.type_(),
        gimli::UnitType::Type { .. } | gimli::UnitType::SplitType { .. }
    )
}

/// Whether an entry describes a function that instances can refer to: one that may be inlined. What GCC writes before it
/// optimizes a whole program does not say so, but has neither code nor a description elsewhere.
pub(super) fn may_be_inlined(abbreviation: &gimli::Abbreviation) -> bool {
    let has = |name| {
        let attributes = abbreviation.attributes();
        attributes.iter().any(|attribute| attribute.name() == name)
    };
    let is_elsewhere =
        || has(gimli::DW_AT_low_pc) || has(gimli::DW_AT_ranges) || has(gimli::DW_AT_declaration);
    abbreviation.tag() == gimli::DW_TAG_subprogram && (has(gimli::DW_AT_inline) || !is_elsewhere())
}

/// Scans a unit, and takes its lines' header from what is left.
fn read_unit<'a>(
    dwarf: &Dwarf<Slice<'a>>,
    header: &UnitHeader<Slice<'a>>,
    lines_left: &Left,
    found: &mut Found,
) -> gimli::Result<()> {
    let unit = dwarf.unit(*header)?;
    if let Some(lines) = &unit.line_program {
        lines_left.take(lines.header().header_length());
    }
    scan(dwarf, &unit, found)
}

impl DebugIndex {
    /// Reads a file's DWARF. A file without any gives an empty index.
    ///
    /// # Errors
    /// What is not x86-64 ELF, and what is damaged.
    pub fn new(bytes: &[u8]) -> Result<Self, ElfError> {
        let elf = Elf::parse(bytes)?;
        let sections = dwarf_sections(&elf);
        let dwarf = sections.borrow(|section| EndianSlice::new(section, LittleEndian));
        Ok(Self::read(&dwarf))
    }

    fn read(dwarf: &Dwarf<Slice<'_>>) -> Self {
        let mut headers: Vec<UnitHeader<Slice<'_>>> = Vec::new();
        let mut units = dwarf.units();
        let mut damaged = 0;
        loop {
            match units.next() {
                Ok(Some(header)) if headers.len() < MAX_UNITS => headers.push(header),
                Ok(_) => break,
                Err(_) => {
                    damaged = 1;
                    break;
                }
            }
        }
        let lines_left = lines_left(dwarf);
        let found = each(&headers, Found::default, |found, header| {
            if is_of_type(header) {
                return;
            }
            if lines_left.is_short() || read_unit(dwarf, header, &lines_left, found).is_err() {
                found.skipped += 1;
            }
        });
        let mut counts: HashMap<usize, u64> = HashMap::new();
        let mut concrete = Vec::new();
        let mut skipped_units = damaged;
        for mut part in found {
            concrete.append(&mut part.concrete);
            skipped_units += part.skipped;
            for (entry, count) in part.inlined {
                *counts.entry(entry).or_default() += count;
            }
        }
        // Each function is described once, however many refer to it.
        let mut entries: Vec<usize> = concrete
            .iter()
            .map(|&(_, entry)| entry)
            .chain(counts.keys().copied())
            .collect();
        entries.sort_unstable();
        entries.dedup();
        let text = dwarf.debug_info.reader().len().saturating_mul(TEXT_PER_BYTE);
        let text_left = Left::new(text.min(MAX_TEXT_BYTES));
        let declarations = Declarations::read(dwarf, &headers, &entries, &text_left);
        // The same function of a header is described once in each unit that includes it.
        let mut instances = vec![0_u64; declarations.all.len()];
        for (entry, count) in counts {
            instances[declarations.number(entry)] += count;
        }
        let mut with_code = vec![false; declarations.all.len()];
        let futures = Futures::of_all(dwarf, &headers);
        let mut functions: HashMap<u64, Debugged> = HashMap::new();
        for (address, entry) in concrete {
            let number = declarations.number(entry);
            with_code[number] = true;
            functions.entry(address).or_insert_with(|| Debugged {
                source: declarations.all[number].source.clone(),
                inlined: instances[number],
                is_async: futures.is_async(entry),
            });
        }
        let only = declarations.all.into_iter().zip(instances).zip(with_code);
        let only = only.filter(|((_, instances), with_code)| *instances > 0 && !with_code);
        let mut inlined_only: Vec<InlinedOnly> = only
            .filter_map(|((declared, instances), _)| {
                let Declared {
                    name,
                    linkage_name,
                    source,
                } = declared;
                let name = name.or_else(|| linkage_name.clone())?;
                Some(InlinedOnly {
                    name,
                    linkage_name,
                    source,
                    instances,
                })
            })
            .collect();
        inlined_only.sort_by(|a, b| {
            (&a.name, &a.source.file, a.source.line).cmp(&(&b.name, &b.source.file, b.source.line))
        });
        Self {
            functions,
            inlined_only,
            skipped_units,
        }
    }
}

/// Visits every item by all cores, each with a state of its own.
pub(super) fn each<T: Sync, S: Send>(
    items: &[T],
    state: impl Fn() -> S + Sync,
    visit: impl Fn(&mut S, &T) + Sync,
) -> Vec<S> {
    let cores = thread::available_parallelism()
        .map_or(1, std::num::NonZero::get)
        .min(items.len())
        .max(1);
    let next = AtomicUsize::new(0);
    let work = || {
        let mut state = state();
        // Units differ in size by orders of magnitude, so they are taken one at a time.
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            visit(&mut state, item);
        }
        state
    };
    thread::scope(|scope| {
        let others: Vec<_> = (1..cores).map(|_| scope.spawn(work)).collect();
        let mut states = vec![work()];
        for other in others {
            match other.join() {
                Ok(state) => states.push(state),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        states
    })
}

fn scan(dwarf: &Dwarf<Slice<'_>>, unit: &Unit<Slice<'_>>, found: &mut Found) -> gimli::Result<()> {
    let mut entries = unit.entries();
    while let Some(entry) = entries.next_dfs()? {
        match entry.tag() {
            gimli::DW_TAG_subprogram => {
                let mut ranges = dwarf.die_ranges(unit, entry)?;
                // The first range holds the entry; the others are cold parts.
                if let Some(range) = ranges.next()?.filter(|range| range.begin < range.end)
                    && let Some(described) = origin(unit, entry).or_else(|| global(unit, entry))
                {
                    found.concrete.push((range.begin, described));
                }
            }
            gimli::DW_TAG_inlined_subroutine => {
                if let Some(origin) = origin(unit, entry) {
                    *found.inlined.entry(origin).or_default() += 1;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// The offset in `.debug_info` of an entry.
pub(super) fn global(unit: &Unit<Slice<'_>>, entry: &DebuggingInformationEntry<Slice<'_>>) -> Option<usize> {
    entry
        .offset()
        .to_debug_info_offset(&unit.header)
        .map(|offset| offset.0)
}

/// The entry that this one is an instance of.
pub(super) fn origin(unit: &Unit<Slice<'_>>, entry: &DebuggingInformationEntry<Slice<'_>>) -> Option<usize> {
    reference(unit, entry.attr_value(gimli::DW_AT_abstract_origin)?)
}

pub(super) fn reference(unit: &Unit<Slice<'_>>, value: AttributeValue<Slice<'_>>) -> Option<usize> {
    match value {
        AttributeValue::UnitRef(offset) => offset.to_debug_info_offset(&unit.header).map(|offset| offset.0),
        AttributeValue::DebugInfoRef(offset) => Some(offset.0),
        _ => None,
    }
}

/// What one core has read: declarations with their numbers, and the entries that have them.
type Declaring = (HashMap<Declared, usize>, Vec<(usize, usize)>);

/// What entries declare: each declaration once, as thousands of entries may have the same.
struct Declarations {
    /// The first says nothing.
    all: Vec<Declared>,
    /// The numbers of those of entries.
    of: HashMap<usize, usize>,
}

impl Declarations {
    /// `entries` is sorted, `headers` in order of offset.
    fn read(
        dwarf: &Dwarf<Slice<'_>>,
        headers: &[UnitHeader<Slice<'_>>],
        entries: &[usize],
        text_left: &Left,
    ) -> Self {
        // All entries are different.
        let work = Left::new(usize::MAX);
        // Entries of one unit are looked up together, so that its header is read once.
        let mut groups: Vec<&[usize]> = Vec::new();
        let mut rest = entries;
        while let Some(&first) = rest.first() {
            let unit = unit_of(headers, first);
            let count = rest.partition_point(|&entry| unit_of(headers, entry) == unit);
            groups.push(&rest[..count]);
            rest = &rest[count..];
        }
        let parts = each(&groups, Declaring::default, |(known, of), group| {
            let mut units = Units::new(dwarf, headers, &work);
            for &entry in *group {
                let declared = follow(&mut units, entry);
                if text_left.take(declared.text_bytes()) {
                    of.push((entry, number_of(known, declared)));
                }
            }
        });
        let mut known = HashMap::from([(Declared::default(), 0)]);
        let mut of = HashMap::with_capacity(entries.len());
        for (of_part, entries) in parts {
            let mut numbers = vec![0; of_part.len()];
            for (declared, number) in of_part {
                numbers[number] = number_of(&mut known, declared);
            }
            of.extend(
                entries
                    .into_iter()
                    .map(|(entry, number)| (entry, numbers[number])),
            );
        }
        let mut all = vec![Declared::default(); known.len()];
        for (declared, number) in known {
            all[number] = declared;
        }
        Self { all, of }
    }

    fn number(&self, entry: usize) -> usize {
        self.of.get(&entry).copied().unwrap_or(0)
    }
}

/// The number of a declaration, which is the next where it is new.
fn number_of(known: &mut HashMap<Declared, usize>, declared: Declared) -> usize {
    let next = known.len();
    *known.entry(declared).or_insert(next)
}

pub(super) fn unit_of(headers: &[UnitHeader<Slice<'_>>], entry: usize) -> Option<usize> {
    let after = headers.partition_point(|header| start_of(header) <= entry);
    after.checked_sub(1)
}

fn start_of(header: &UnitHeader<Slice<'_>>) -> usize {
    header.debug_info_offset().map_or(0, |offset| offset.0)
}

/// The units of a file, of which a few are kept.
pub(super) struct Units<'d, 'a> {
    dwarf: &'d Dwarf<Slice<'a>>,
    headers: &'d [UnitHeader<Slice<'a>>],
    work: &'d Left,
    kept: VecDeque<(usize, Rc<Unit<Slice<'a>>>)>,
}

impl<'d, 'a> Units<'d, 'a> {
    pub fn new(dwarf: &'d Dwarf<Slice<'a>>, headers: &'d [UnitHeader<Slice<'a>>], work: &'d Left) -> Self {
        Self {
            dwarf,
            headers,
            work,
            kept: VecDeque::new(),
        }
    }

    /// A unit by its number; `None` of one that is damaged, or where nothing is left to read it.
    pub fn unit(&mut self, number: usize) -> Option<Rc<Unit<Slice<'a>>>> {
        if let Some((_, unit)) = self.kept.iter().find(|(kept, _)| *kept == number) {
            return Some(Rc::clone(unit));
        }
        if self.work.is_short() {
            return None;
        }
        let unit = Rc::new(self.dwarf.unit(*self.headers.get(number)?).ok()?);
        self.work.take(steps_of(&unit));
        if self.kept.len() == KEPT_UNITS {
            self.kept.pop_front();
        }
        self.kept.push_back((number, Rc::clone(&unit)));
        Some(unit)
    }

    /// The entry at an offset of `.debug_info`, and its unit.
    pub fn entry(
        &mut self,
        offset: usize,
    ) -> Option<(Rc<Unit<Slice<'a>>>, DebuggingInformationEntry<Slice<'a>>)> {
        let number = unit_of(self.headers, offset)?;
        let unit = self.unit(number)?;
        let entry = unit
            .entry(DebugInfoOffset(offset).to_unit_offset(&unit.header)?)
            .ok()?;
        self.work.take(1 + entry.attrs().len()).then_some((unit, entry))
    }
}

/// How long reading a unit takes, in entries. One can refer to a long header or name, and be short itself.
pub(super) fn steps_of(unit: &Unit<Slice<'_>>) -> usize {
    let lines = unit
        .line_program
        .as_ref()
        .map_or(0, |lines| lines.header().header_length());
    let names = [unit.name, unit.comp_dir].into_iter().flatten();
    let names: usize = names.map(|name| name.len()).sum();
    1 + lines.saturating_add(names) / BYTES_PER_STEP
}

/// What an entry and those it refers to say; the first to say something is right.
pub(super) fn follow(units: &mut Units<'_, '_>, entry: usize) -> Declared {
    let mut declared = Declared::default();
    let mut at = Some(entry);
    for _ in 0..MAX_CHAIN {
        let Some((unit, entry)) = at.and_then(|at| units.entry(at)) else {
            break;
        };
        let text = |value| text(units.dwarf, &unit, value).map(Cow::into_owned);
        if declared.name.is_none() {
            declared.name = entry.attr_value(gimli::DW_AT_name).and_then(text);
        }
        if declared.linkage_name.is_none() {
            declared.linkage_name = entry
                .attr_value(gimli::DW_AT_linkage_name)
                .or_else(|| entry.attr_value(gimli::DW_AT_MIPS_linkage_name))
                .and_then(text);
        }
        // A definition outside its class says a line of its own in the file that declared it.
        if declared.source.line == 0 {
            declared.source.line = entry
                .attr_value(gimli::DW_AT_decl_line)
                .and_then(|v| v.udata_value())
                .unwrap_or(0);
        }
        if declared.source.file.is_empty()
            && let Some(AttributeValue::FileIndex(file)) = entry.attr_value(gimli::DW_AT_decl_file)
        {
            declared.source.file = file_path(units.dwarf, &unit, file).unwrap_or_default();
        }
        at = entry
            .attr_value(gimli::DW_AT_abstract_origin)
            .or_else(|| entry.attr_value(gimli::DW_AT_specification))
            .and_then(|value| reference(&unit, value));
    }
    declared
}

/// A text that an attribute has, or refers to. What is too long is cut before it is looked through.
pub(super) fn text<'a>(
    dwarf: &Dwarf<Slice<'a>>,
    unit: &Unit<Slice<'a>>,
    value: AttributeValue<Slice<'a>>,
) -> Option<Cow<'a, str>> {
    let (section, offset) = match value {
        AttributeValue::String(text) => return Some(cut(text)),
        AttributeValue::DebugStrRef(offset) => (dwarf.debug_str.reader(), offset.0),
        AttributeValue::DebugLineStrRef(offset) => (dwarf.debug_line_str.reader(), offset.0),
        AttributeValue::DebugStrOffsetsIndex(index) => {
            let offset = dwarf.string_offset(unit, index).ok()?;
            (dwarf.debug_str.reader(), offset.0)
        }
        _ => return None,
    };
    Some(cut(Slice::new(section.slice().get(offset..)?, LittleEndian)))
}

/// What comes before a NUL.
fn cut(text: Slice<'_>) -> Cow<'_, str> {
    let text = text.slice();
    let text = &text[..text.len().min(MAX_ONE_TEXT_BYTES)];
    let end = memchr::memchr(0, text).unwrap_or(text.len());
    String::from_utf8_lossy(&text[..end])
}

/// The path of a file in a unit's table.
pub(super) fn file_path(dwarf: &Dwarf<Slice<'_>>, unit: &Unit<Slice<'_>>, number: u64) -> Option<String> {
    let header = unit.line_program.as_ref()?.header();
    let file = header.file(number)?;
    let name = text(dwarf, unit, file.path_name())?;
    if name.starts_with('/') {
        return Some(name.into_owned());
    }
    let directory = file
        .directory(header)
        .and_then(|directory| text(dwarf, unit, directory))
        .unwrap_or_default();
    let path = if directory.is_empty() {
        name.into_owned()
    } else {
        format!("{directory}/{name}")
    };
    if path.starts_with('/') {
        return Some(path);
    }
    let compiled_in = cut(unit.comp_dir?);
    Some(format!("{compiled_in}/{path}"))
}
