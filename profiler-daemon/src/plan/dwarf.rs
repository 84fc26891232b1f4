//! What DWARF adds to the functions of a file: where they are declared, and how often inlined.
//!
//! Read only when asked for, by all cores, a unit at a time.

use super::elf::{Elf, ElfError, MAX_UNCOMPRESSED_BYTES};
use gimli::{
    AttributeValue, DebugInfoOffset, DebuggingInformationEntry, Dwarf, EndianSlice, LittleEndian,
    Section as _, Unit, UnitHeader,
};
use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// References that are followed from a function to its declaration.
const MAX_CHAIN: usize = 8;
/// Units that are read: two hundred times a large browser's.
const MAX_UNITS: usize = 1 << 22;

/// Bytes of names and paths that are kept per byte of `.debug_info`, and at most. An entry of some ten bytes has a path
/// of a hundred, but few entries are functions; many that refer to one long text are contrived.
const TEXT_PER_BYTE: usize = 16;
const MAX_TEXT_BYTES: usize = 2 << 30;

/// How often the headers of line tables may be read, in bytes per byte of their section, and what a small file may take
/// of that in any case: units of types share the table of the unit that they were made from.
const LINE_HEADERS_PER_BYTE: usize = 64;
const MIN_LINE_HEADERS: usize = 16 << 20;

/// Where something is declared.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
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
#[derive(Clone, PartialEq, Eq, Hash, Default)]
struct Declared {
    name: Option<String>,
    linkage_name: Option<String>,
    source: Source,
}

impl Declared {
    fn text_bytes(&self) -> usize {
        let names = [&self.name, &self.linkage_name].into_iter().flatten();
        names.map(String::len).sum::<usize>() + self.source.file.len()
    }
}

/// Scans a unit. Where its lines' header is more than what is left, nothing is left.
fn read_unit<'a>(
    dwarf: &Dwarf<Slice<'a>>,
    header: &UnitHeader<Slice<'a>>,
    lines_left: &AtomicUsize,
    found: &mut Found,
) -> gimli::Result<()> {
    let unit = dwarf.unit(*header)?;
    if let Some(lines) = &unit.line_program
        && !take(lines_left, lines.header().header_length())
    {
        lines_left.store(0, Ordering::Relaxed);
    }
    scan(dwarf, &unit, found)
}

/// Takes from what is left, where there is as much.
fn take(left: &AtomicUsize, bytes: usize) -> bool {
    let taken = |left: usize| left.checked_sub(bytes);
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken)
        .is_ok()
}

impl DebugIndex {
    /// Reads a file's DWARF. A file without any gives an empty index.
    ///
    /// # Errors
    /// What is not x86-64 ELF, and what is damaged.
    pub fn new(bytes: &[u8]) -> Result<Self, ElfError> {
        let elf = Elf::parse(bytes)?;
        let mut left = MAX_UNCOMPRESSED_BYTES;
        let sections: gimli::DwarfSections<Cow<'_, [u8]>> = gimli::DwarfSections::load(|id| {
            Ok::<_, ElfError>(elf.section(id.name(), &mut left).unwrap_or_default())
        })?;
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
        let lines = dwarf.debug_line.reader().len();
        let lines = lines.saturating_mul(LINE_HEADERS_PER_BYTE).max(MIN_LINE_HEADERS);
        let lines_left = AtomicUsize::new(lines);
        let found = each(&headers, Found::default, |found, header| {
            if lines_left.load(Ordering::Relaxed) == 0
                || read_unit(dwarf, header, &lines_left, found).is_err()
            {
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
        let text_left = AtomicUsize::new(text.min(MAX_TEXT_BYTES));
        let declared = declarations(dwarf, &headers, &entries, &text_left);
        let of = |entry: usize| declared.get(&entry).cloned().unwrap_or_default();
        // The same function of a header is described once in each unit that includes it.
        let mut instances: HashMap<Declared, u64> = HashMap::new();
        for (entry, count) in counts {
            *instances.entry(of(entry)).or_default() += count;
        }
        let mut with_code = HashSet::new();
        let mut functions: HashMap<u64, Debugged> = HashMap::with_capacity(concrete.len());
        for (address, entry) in concrete {
            let declared = of(entry);
            let inlined = instances.get(&declared).copied().unwrap_or(0);
            let source = declared.source.clone();
            functions.entry(address).or_insert(Debugged { source, inlined });
            with_code.insert(declared);
        }
        instances.retain(|declared, _| !with_code.contains(declared));
        let only = instances.into_iter().filter_map(|(declared, instances)| {
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
        });
        let mut inlined_only: Vec<InlinedOnly> = only.collect();
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
fn each<T: Sync, S: Send>(
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
fn global(unit: &Unit<Slice<'_>>, entry: &DebuggingInformationEntry<Slice<'_>>) -> Option<usize> {
    entry
        .offset()
        .to_debug_info_offset(&unit.header)
        .map(|offset| offset.0)
}

/// The entry that this one is an instance of.
fn origin(unit: &Unit<Slice<'_>>, entry: &DebuggingInformationEntry<Slice<'_>>) -> Option<usize> {
    reference(unit, entry.attr_value(gimli::DW_AT_abstract_origin)?)
}

fn reference(unit: &Unit<Slice<'_>>, value: AttributeValue<Slice<'_>>) -> Option<usize> {
    match value {
        AttributeValue::UnitRef(offset) => offset.to_debug_info_offset(&unit.header).map(|offset| offset.0),
        AttributeValue::DebugInfoRef(offset) => Some(offset.0),
        _ => None,
    }
}

/// What entries declare. `entries` is sorted, `headers` in order of offset.
fn declarations(
    dwarf: &Dwarf<Slice<'_>>,
    headers: &[UnitHeader<Slice<'_>>],
    entries: &[usize],
    text_left: &AtomicUsize,
) -> HashMap<usize, Declared> {
    // Entries of one unit are looked up together, so that its header is read once.
    let mut groups: Vec<&[usize]> = Vec::new();
    let mut rest = entries;
    while let Some(&first) = rest.first() {
        let unit = unit_of(headers, first);
        let count = rest.partition_point(|&entry| unit_of(headers, entry) == unit);
        groups.push(&rest[..count]);
        rest = &rest[count..];
    }
    let parts = each(&groups, Vec::new, |found: &mut Vec<(usize, Declared)>, group| {
        let mut unit = None;
        for &entry in *group {
            let mut declared = Declared::default();
            follow(dwarf, headers, entry, &mut unit, &mut declared);
            if take(text_left, declared.text_bytes()) {
                found.push((entry, declared));
            }
        }
    });
    parts.into_iter().flatten().collect()
}

fn unit_of(headers: &[UnitHeader<Slice<'_>>], entry: usize) -> Option<usize> {
    let after = headers.partition_point(|header| start_of(header) <= entry);
    after.checked_sub(1)
}

fn start_of(header: &UnitHeader<Slice<'_>>) -> usize {
    header.debug_info_offset().map_or(0, |offset| offset.0)
}

/// Collects what an entry and those it refers to say; the first to say something is right.
fn follow<'a>(
    dwarf: &Dwarf<Slice<'a>>,
    headers: &[UnitHeader<Slice<'a>>],
    entry: usize,
    cached: &mut Option<(usize, Unit<Slice<'a>>)>,
    declared: &mut Declared,
) {
    let mut at = Some(entry);
    for _ in 0..MAX_CHAIN {
        let Some(entry) = at else { return };
        let Some(number) = unit_of(headers, entry) else {
            return;
        };
        if cached.as_ref().is_none_or(|(cached, _)| *cached != number) {
            let Ok(unit) = dwarf.unit(headers[number]) else {
                return;
            };
            *cached = Some((number, unit));
        }
        let Some((_, unit)) = cached.as_ref() else { return };
        let Some(offset) = DebugInfoOffset(entry).to_unit_offset(&unit.header) else {
            return;
        };
        let Ok(entry) = unit.entry(offset) else { return };
        let text = |value| {
            dwarf
                .attr_string(unit, value)
                .ok()
                .map(|s| s.to_string_lossy().into_owned())
        };
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
            declared.source.file = file_path(dwarf, unit, file).unwrap_or_default();
        }
        at = entry
            .attr_value(gimli::DW_AT_abstract_origin)
            .or_else(|| entry.attr_value(gimli::DW_AT_specification))
            .and_then(|value| reference(unit, value));
    }
}

/// The path of a file in a unit's table.
fn file_path(dwarf: &Dwarf<Slice<'_>>, unit: &Unit<Slice<'_>>, number: u64) -> Option<String> {
    let header = unit.line_program.as_ref()?.header();
    let file = header.file(number)?;
    let text = |value| {
        Some(
            dwarf
                .attr_string(unit, value)
                .ok()?
                .to_string_lossy()
                .into_owned(),
        )
    };
    let name = text(file.path_name())?;
    if name.starts_with('/') {
        return Some(name);
    }
    let directory = file.directory(header).and_then(text).unwrap_or_default();
    let path = if directory.is_empty() {
        name
    } else {
        format!("{directory}/{name}")
    };
    if path.starts_with('/') {
        return Some(path);
    }
    let compiled_in = unit.comp_dir.as_ref()?.to_string_lossy();
    Some(format!("{compiled_in}/{path}"))
}
