//! DWARF: the units and functions that hold addresses, and entries wherever they are.

use std::{
    cell::OnceCell,
    collections::{BTreeSet, HashMap},
    ops::Range,
    rc::Rc,
};

use gimli::{
    AttributeValue, DebuggingInformationEntry, Dwarf, EndianSlice, LittleEndian, Unit, UnitHeader, UnitOffset,
};
use profiler_elf::{Elf, Relocation};

use super::{
    super::{
        dwarf::{Declared, Units, follow, unit_of},
        functions::ModuleIndex,
        left::Left,
        outline::Part,
        subprograms::subprograms,
    },
    budget::Budget,
    rows::{Files, UnitRows},
    scopes::shown_name,
};

pub(crate) type Slice<'a> = EndianSlice<'a, LittleEndian>;
pub(crate) type Entry<'a> = DebuggingInformationEntry<Slice<'a>>;

/// Units that are read, as many as [`super::super::DebugIndex`] reads.
const MAX_UNITS: usize = 1 << 22;
/// Ranges of one entry.
const MAX_RANGES: usize = 1 << 12;
/// Entries whose names are kept.
const MAX_KNOWN: usize = 1 << 17;
/// What noting the function of an address takes, in ranges that could be compared in that time.
const STEPS_PER_ADDRESS: usize = 8;
/// Entries that are passed over in one unit in search of functions.
const MAX_ENTRIES: usize = 1 << 26;

/// The units' headers, in order of offset. What follows a damaged one cannot be found.
pub(super) fn headers<'a>(dwarf: &Dwarf<Slice<'a>>) -> Vec<UnitHeader<Slice<'a>>> {
    let mut headers = Vec::new();
    let mut units = dwarf.units();
    while let Ok(Some(header)) = units.next() {
        if headers.len() == MAX_UNITS {
            break;
        }
        headers.push(header);
    }
    headers
}

/// Visits the address ranges of an entry, in its order, while something is left and `visit` wants more.
fn each_range<'a>(
    dwarf: &Dwarf<Slice<'a>>,
    unit: &Unit<Slice<'a>>,
    entry: &Entry<'a>,
    left: &Left,
    mut visit: impl FnMut(Range<u64>) -> bool,
) {
    let list = entry
        .attr_value(gimli::DW_AT_ranges)
        .and_then(|value| dwarf.attr_ranges_offset(unit, value).ok().flatten());
    if let Some(offset) = list {
        let Ok(mut list) = dwarf.ranges(unit, offset) else {
            return;
        };
        // Entries of the list that are no ranges count too: there can be as many.
        while left.take(1)
            && let Ok(Some(raw)) = list.next_raw()
            && let Ok(range) = list.convert_raw(raw)
        {
            if range.is_some_and(|range| !visit(range.begin..range.end)) {
                return;
            }
        }
        return;
    }
    let address = |value| dwarf.attr_address(unit, value).ok().flatten();
    let Some(begin) = entry.attr_value(gimli::DW_AT_low_pc).and_then(address) else {
        return;
    };
    let end = match entry.attr_value(gimli::DW_AT_high_pc) {
        Some(AttributeValue::Udata(size)) => begin.checked_add(size),
        value => value.and_then(address),
    };
    if let Some(end) = end.filter(|&end| begin < end && left.take(1)) {
        visit(begin..end);
    }
}

/// The address ranges of an entry, in its order: for a function the first holds its entry. Without those of code that
/// the linker dropped.
fn ranges<'a>(
    dwarf: &Dwarf<Slice<'a>>,
    unit: &Unit<Slice<'a>>,
    entry: &Entry<'a>,
    left: &Left,
) -> Vec<Range<u64>> {
    let mut found = Vec::new();
    each_range(dwarf, unit, entry, left, |range| {
        if range.start != 0 {
            found.push(range);
        }
        found.len() < MAX_RANGES
    });
    found
}

/// What is known of an entry by those that it refers to.
#[derive(Default)]
pub(crate) struct Known {
    pub declared: Declared,
    /// The name that is shown.
    pub name: String,
}

/// Entries, names and lines, wherever in the DWARF they are, within a budget.
pub(crate) struct Reader<'d, 'a> {
    pub dwarf: &'d Dwarf<Slice<'a>>,
    pub headers: &'d [UnitHeader<Slice<'a>>],
    pub budget: &'d Budget,
    pub files: Files,
    pub module: &'d ModuleIndex,
    elf: &'d Elf<'a>,
    units: Units<'d, 'a>,
    /// By offset.
    known: HashMap<usize, Rc<Known>>,
    /// Those of the unit that was asked for last.
    rows: Option<(usize, Rc<UnitRows>)>,
    relocations: OnceCell<Vec<Relocation>>,
}

impl<'d, 'a> Reader<'d, 'a> {
    pub fn new(
        module: &'d ModuleIndex,
        elf: &'d Elf<'a>,
        dwarf: &'d Dwarf<Slice<'a>>,
        headers: &'d [UnitHeader<Slice<'a>>],
        budget: &'d Budget,
    ) -> Self {
        Self {
            dwarf,
            headers,
            budget,
            files: Files::new(),
            module,
            elf,
            units: Units::new(dwarf, headers, &budget.work),
            known: HashMap::new(),
            rows: None,
            relocations: OnceCell::new(),
        }
    }

    /// A unit by its number.
    pub fn unit(&mut self, number: usize) -> Option<Rc<Unit<Slice<'a>>>> {
        self.units.unit(number)
    }

    /// The entry at an offset of `.debug_info`, and its unit.
    pub fn entry(&mut self, offset: usize) -> Option<(Rc<Unit<Slice<'a>>>, Entry<'a>)> {
        self.units.entry(offset)
    }

    /// What the entry at an offset of `.debug_info`, and those that it refers to, declare.
    pub fn known(&mut self, offset: usize) -> Rc<Known> {
        if let Some(known) = self.known.get(&offset) {
            return Rc::clone(known);
        }
        let declared = follow(&mut self.units, offset);
        let name = shown_name(&declared);
        let fits = self.budget.text.take(declared.text_bytes() + name.len());
        let known = Rc::new(if fits {
            Known { declared, name }
        } else {
            Known::default()
        });
        if self.known.len() < MAX_KNOWN {
            self.known.insert(offset, Rc::clone(&known));
        }
        known
    }

    /// The address ranges of a block, a function or an instance.
    pub fn ranges(&self, unit: &Unit<Slice<'a>>, entry: &Entry<'a>) -> Vec<Range<u64>> {
        ranges(self.dwarf, unit, entry, &self.budget.ranges)
    }

    /// The line table of a unit.
    pub fn rows(&mut self, number: usize) -> Option<Rc<UnitRows>> {
        if let Some((_, rows)) = self.rows.as_ref().filter(|(of, _)| *of == number) {
            return Some(Rc::clone(rows));
        }
        let unit = self.unit(number)?;
        // Before others are read: both are large.
        self.rows = None;
        let rows = Rc::new(UnitRows::read(
            self.dwarf,
            &unit,
            number,
            &mut self.files,
            self.budget,
        ));
        self.rows = Some((number, Rc::clone(&rows)));
        Some(rows)
    }

    /// The file, and what its loader writes, by address.
    pub fn relocations(&self) -> (&Elf<'a>, &[Relocation]) {
        (self.elf, self.relocations.get_or_init(|| self.elf.relocations()))
    }

    /// The numbers of the units that hold these addresses: by the table of them that the file has, else by its
    /// outline.
    pub fn holding(&self, addresses: &[u64]) -> HashMap<u64, usize> {
        let mut missing: BTreeSet<u64> = addresses.iter().copied().collect();
        let mut found = self.by_table(&mut missing);
        if missing.is_empty() {
            return found;
        }
        for (range, number) in self.module.outline(Part::Places).ranges() {
            if missing.is_empty() || !self.budget.steps.take(1) {
                break;
            }
            let held = take(&mut missing, range);
            found.extend(held.into_iter().map(|address| (address, number)));
        }
        found
    }

    fn by_table(&self, missing: &mut BTreeSet<u64>) -> HashMap<u64, usize> {
        let mut found = HashMap::new();
        let mut tables = self.dwarf.debug_aranges.headers();
        while let Ok(Some(table)) = tables.next() {
            let Some(number) = unit_of(self.headers, table.debug_info_offset().0) else {
                continue;
            };
            let mut entries = table.entries();
            while let Ok(Some(entry)) = entries.next() {
                if missing.is_empty() || !self.budget.steps.take(1) {
                    return found;
                }
                let range = entry.range();
                let held = take(missing, range.begin..range.end);
                found.extend(held.into_iter().map(|address| (address, number)));
            }
        }
        found
    }
}

/// Takes out those addresses that a range holds.
fn take(addresses: &mut BTreeSet<u64>, range: Range<u64>) -> Vec<u64> {
    if range.is_empty() {
        return Vec::new();
    }
    let inside: Vec<u64> = addresses.range(range).copied().collect();
    for address in &inside {
        addresses.remove(address);
    }
    inside
}

/// The innermost function of a unit that holds each of these addresses.
pub(super) fn functions_holding<'a>(
    dwarf: &Dwarf<Slice<'a>>,
    unit: &Unit<Slice<'a>>,
    addresses: &[u64],
    left: &Left,
) -> HashMap<u64, UnitOffset> {
    let addresses: BTreeSet<u64> = addresses.iter().copied().collect();
    let mut found = HashMap::new();
    let mut scan = || -> gimli::Result<()> {
        for offset in subprograms(unit, MAX_ENTRIES)? {
            let offset = offset?;
            if left.is_short() {
                break;
            }
            let entry = unit.entry(offset)?;
            for range in ranges(dwarf, unit, &entry, left) {
                for &address in addresses.range(range) {
                    if !left.take(STEPS_PER_ADDRESS) {
                        return Ok(());
                    }
                    // One that is declared within another comes after it.
                    found.insert(address, offset);
                }
            }
        }
        Ok(())
    };
    // What comes after something damaged is not found.
    let _ = scan();
    found
}
