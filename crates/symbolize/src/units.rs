//! DWARF: which unit and which function an address is in.

use std::{
    collections::HashMap,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use gimli::{Dwarf, Section as _, Unit, UnitOffset};
use profiler_debug_files::Bytes;
use profiler_elf::skip::skip_attributes;

use super::{
    references::Offsets,
    split::{Skeleton, Split},
};

/// Most address ranges of the units of one file, or of the functions of one unit.
const RANGES_MAX: usize = 1 << 20;
/// Most attributes and ranges that are passed over in search of the functions of a unit. Many entries can refer to one
/// list of ranges.
pub(super) const WORK_MAX: usize = 1 << 28;
/// How often the headers of line tables may be read, in bytes per byte of their section: units can share one.
const LINE_HEADERS_PER_BYTE: usize = 4;
/// What a small file may take of that in any case.
const LINE_HEADERS_MIN: usize = 16 << 20;
/// Most bytes that the functions of the units of one file may take; then all are read anew.
const FUNCTIONS_BYTES_MAX: usize = 64 << 20;
/// How many ranges before an address are looked at for one that reaches it: ranges can overlap.
const OVERLAP_MAX: usize = 64;

#[derive(Clone, Copy)]
struct Span<T> {
    begin: u64,
    end: u64,
    /// The largest `end` up to here: where it is not beyond an address, nothing before reaches it.
    reach: u64,
    item: T,
}

/// Ranges of addresses, sorted.
struct Spans<T>(Box<[Span<T>]>);

impl<T: Copy> Spans<T> {
    fn new(mut spans: Vec<Span<T>>) -> Self {
        spans.sort_by_key(|span| (span.begin, span.end));
        let mut reach = 0;
        for span in &mut spans {
            reach = reach.max(span.end);
            span.reach = reach;
        }
        Self(spans.into_boxed_slice())
    }

    /// What holds an address, innermost begin first.
    fn find(&self, address: u64) -> impl Iterator<Item = T> + '_ {
        let after = self.0.partition_point(|span| span.begin <= address);
        let before = self.0[..after].iter().rev().take(OVERLAP_MAX);
        before
            .take_while(move |span| span.reach > address)
            .filter(move |span| span.end > address)
            .map(|span| span.item)
    }

    fn bytes(&self) -> usize {
        self.0.len() * size_of::<Span<T>>()
    }
}

/// Collects ranges, leaving out those of code that the linker dropped. Each takes from the work that is left.
fn collect<T: Copy>(
    spans: &mut Vec<Span<T>>,
    mut ranges: gimli::RangeIter<Bytes<'_>>,
    item: T,
    work: &mut usize,
) -> gimli::Result<()> {
    while let Some(gimli::Range { begin, end }) = ranges.next()? {
        if spans.len() >= RANGES_MAX || *work == 0 {
            return Ok(());
        }
        *work -= 1;
        if begin != 0 && begin < end {
            spans.push(Span {
                begin,
                end,
                reach: 0,
                item,
            });
        }
    }
    Ok(())
}

/// The functions of one unit that have code.
pub(super) struct Functions(Spans<UnitOffset>);

impl Functions {
    fn read(dwarf: &Dwarf<Bytes<'_>>, unit: &Unit<Bytes<'_>>) -> gimli::Result<Self> {
        let mut spans = Vec::new();
        let mut work = WORK_MAX;
        let mut entries = unit.entries_raw(None)?;
        while !entries.is_empty() && spans.len() < RANGES_MAX && work > 0 {
            let offset = entries.next_offset();
            let Some(abbreviation) = entries.read_abbreviation()? else {
                continue;
            };
            let attributes = abbreviation.attributes();
            work = work.saturating_sub(1 + attributes.len());
            skip_attributes(&mut entries, attributes)?;
            let has_code = || {
                attributes
                    .iter()
                    .any(|attribute| matches!(attribute.name(), gimli::DW_AT_low_pc | gimli::DW_AT_ranges))
            };
            if abbreviation.tag() == gimli::DW_TAG_subprogram && has_code() {
                let entry = unit.entry(offset)?;
                // One function with damaged ranges does not spoil the others.
                if let Ok(ranges) = dwarf.die_ranges(unit, &entry) {
                    let _ = collect(&mut spans, ranges, offset, &mut work);
                }
            }
        }
        Ok(Self(Spans::new(spans)))
    }

    /// The function that holds an address.
    pub fn find(&self, address: u64) -> Option<UnitOffset> {
        self.0.find(address).next()
    }
}

/// The units of one file, and the functions of those that were asked for.
pub(super) struct Units {
    offsets: Offsets,
    spans: Spans<u32>,
    functions: HashMap<u32, Option<Functions>>,
    functions_bytes: usize,
}

impl Units {
    /// Lists the units and the ranges that they cover.
    pub fn read(dwarf: &mut Dwarf<Bytes<'_>>) -> Self {
        // Units that share abbreviations would parse them over and over.
        dwarf.populate_abbreviations_cache(gimli::AbbreviationsCacheStrategy::Duplicates);
        let offsets = Offsets::read(dwarf);
        let mut spans = Vec::new();
        let mut work = WORK_MAX;
        let lines = dwarf.debug_line.reader().len();
        let mut lines_left = lines.saturating_mul(LINE_HEADERS_PER_BYTE).max(LINE_HEADERS_MIN);
        for (index, offset) in offsets.iter() {
            if lines_left == 0 {
                break;
            }
            let Ok(header) = dwarf.unit_header(offset) else {
                continue;
            };
            if matches!(
                header.type_(),
                gimli::UnitType::Partial | gimli::UnitType::Type { .. }
            ) {
                continue;
            }
            let ranges = dwarf.unit(header).and_then(|unit| {
                let lines = unit.line_program.as_ref();
                let lines = lines.map_or(0, |lines| lines.header().header_length());
                lines_left = lines_left.saturating_sub(lines);
                let ranges = dwarf.unit_ranges(&unit)?;
                collect(&mut spans, ranges, index, &mut work)
            });
            if let Err(error) = ranges {
                tracing::debug!(%error, unit = offset.0, "debug information of a unit left out");
            }
        }
        Self {
            offsets,
            spans: Spans::new(spans),
            functions: HashMap::new(),
            functions_bytes: 0,
        }
    }

    /// For a file without debug information.
    pub fn none() -> Self {
        Self {
            offsets: Offsets::default(),
            spans: Spans::new(Vec::new()),
            functions: HashMap::new(),
            functions_bytes: 0,
        }
    }

    /// Whether no address can be found.
    pub fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// The units that may hold an address and are in files of their own.
    pub fn skeletons(&self, dwarf: &Dwarf<Bytes<'_>>, address: u64) -> Vec<Skeleton> {
        let skeleton = |index: u32| {
            let header = dwarf.unit_header(self.offsets.get(index)?).ok()?;
            let unit = dwarf.unit(header).ok()?;
            let id = unit.dwo_id?;
            let name = dwarf.attr_string(&unit, unit.dwo_name().ok()??).ok()?;
            let folder = unit.comp_dir.map_or(&[][..], |folder| folder.slice());
            Some(Skeleton {
                id,
                path: path(folder).join(path(name.slice())),
            })
        };
        self.spans.find(address).filter_map(skeleton).collect()
    }

    /// The function that holds an address.
    pub fn find<'a>(
        &mut self,
        dwarf: &Dwarf<Bytes<'a>>,
        split: &'a Split,
        address: u64,
    ) -> Option<Found<'a>> {
        let candidates: Vec<u32> = self.spans.find(address).collect();
        for index in candidates {
            let header = dwarf.unit_header(self.offsets.get(index)?).ok()?;
            let Ok(unit) = dwarf.unit(header) else { continue };
            let (split, unit) = whole(dwarf, split, unit);
            let in_unit = split.as_ref().map_or(dwarf, |split| &split.dwarf);
            if self.functions_bytes > FUNCTIONS_BYTES_MAX {
                self.functions.clear();
                self.functions_bytes = 0;
            }
            let functions = self.functions.entry(index).or_insert_with(|| {
                let read = Functions::read(in_unit, &unit).ok();
                self.functions_bytes += read.as_ref().map_or(0, |functions| functions.0.bytes()) + 32;
                read
            });
            if let Some(entry) = functions.as_ref().and_then(|functions| functions.find(address)) {
                return Some(Found { split, unit, entry });
            }
        }
        None
    }

    /// Where the units begin.
    pub fn offsets(&self) -> &Offsets {
        &self.offsets
    }

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        self.offsets.bytes() + self.spans.bytes() + self.functions_bytes
    }
}

/// A function's entry.
pub(super) struct Found<'a> {
    /// Where its unit is in a file of its own.
    pub split: Option<InSplit<'a>>,
    pub unit: Unit<Bytes<'a>>,
    pub entry: UnitOffset,
}

/// The other half of a unit in a file of its own.
pub(super) struct InSplit<'a> {
    /// The sections that the unit is in.
    pub dwarf: Dwarf<Bytes<'a>>,
    /// What stands for the unit in the file that refers to it, lines included.
    pub skeleton: Unit<Bytes<'a>>,
}

/// The unit that a skeleton stands for, or the unit itself.
fn whole<'a>(
    dwarf: &Dwarf<Bytes<'a>>,
    split: &'a Split,
    skeleton: Unit<Bytes<'a>>,
) -> (Option<InSplit<'a>>, Unit<Bytes<'a>>) {
    let found = || {
        let id = skeleton.dwo_id?;
        let split = split.dwarf(id, dwarf)?;
        let mut headers = split.units();
        while let Ok(Some(header)) = headers.next() {
            let Ok(mut unit) = split.unit(header) else {
                continue;
            };
            if unit.dwo_id == Some(id) {
                unit.copy_relocated_attributes(&skeleton);
                // Files are numbered as in the skeleton's table, where the unit has none.
                if unit.line_program.is_none() {
                    unit.line_program.clone_from(&skeleton.line_program);
                }
                unit.comp_dir = unit.comp_dir.or(skeleton.comp_dir);
                return Some((split, unit));
            }
        }
        None
    };
    match found() {
        Some((dwarf, unit)) => (Some(InSplit { dwarf, skeleton }), unit),
        None => (None, skeleton),
    }
}

fn path(bytes: &[u8]) -> PathBuf {
    Path::new(std::ffi::OsStr::from_bytes(bytes)).to_path_buf()
}
