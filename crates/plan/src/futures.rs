//! Async functions of Rust, as DWARF tells them: they return the future that rustc made of their own body, which is all that a call of one
//! does. rustc puts the type of that into a namespace of the function's name.

use std::collections::{HashMap, HashSet};

use gimli::{DebuggingInformationEntry, Dwarf, EndianSlice, LittleEndian, Section as _, Unit, UnitHeader};

use super::{
    dwarf::{each, global, is_of_type, reference, unit_of},
    left::Left,
    outline::without_arguments,
};

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// How rustc calls the type of an async function's future.
const ASYNC_FUNCTION: &[u8] = b"{async_fn_env#";

/// Entries from a function to the one that says what it returns, and on to the one that has its name.
const MAX_STEPS: usize = 8;

/// Entries that are kept of a file, of functions and of futures; of others it is not said.
const MAX_ENTRIES: usize = 1 << 22;

/// Entries that lie in one another; rustc's are less deep.
const MAX_DEPTH: usize = 1024;

/// What the units that were read say of functions and futures, by the offsets of their entries.
#[derive(Default)]
pub(super) struct Futures<'a> {
    functions: HashMap<usize, Function<'a>>,
    /// By the type of a future, the name of what that is in.
    within: HashMap<usize, &'a [u8]>,
    /// Units, by their numbers.
    read: HashSet<usize>,
}

/// What an entry says of a function.
#[derive(Clone, Copy)]
struct Function<'a> {
    name: Option<&'a [u8]>,
    /// The entry of the type that it returns.
    returned: Option<usize>,
    /// The entry that says more.
    described_by: Option<usize>,
}

/// Where an entry is that was not read.
struct Unread(usize);

impl<'a> Futures<'a> {
    /// Of all units of a file.
    pub fn of_all(dwarf: &Dwarf<Slice<'a>>, headers: &[UnitHeader<Slice<'a>>]) -> Self {
        let mut all = Self::default();
        if mentions_futures(dwarf) {
            all.read(dwarf, headers, (0..headers.len()).collect());
        }
        all
    }

    /// Of the units that some functions are in, by the offsets of their entries, and of those that these refer to.
    pub fn of(dwarf: &Dwarf<Slice<'a>>, headers: &[UnitHeader<Slice<'a>>], functions: &[usize]) -> Self {
        let mut some = Self::default();
        if !mentions_futures(dwarf) {
            return some;
        }
        for _ in 0..=MAX_STEPS {
            let unread = functions
                .iter()
                .filter_map(|entry| some.returns_own(*entry).err());
            let units: HashSet<usize> = unread
                .filter_map(|Unread(entry)| unit_of(headers, entry))
                .collect();
            let units: Vec<usize> = units.difference(&some.read).copied().collect();
            if units.is_empty() {
                break;
            }
            some.read(dwarf, headers, units);
        }
        some
    }

    /// Whether a function is one of these, by the entry that describes it.
    pub fn is_async(&self, entry: usize) -> bool {
        self.returns_own(entry).unwrap_or(false)
    }

    fn returns_own(&self, entry: usize) -> Result<bool, Unread> {
        let (mut at, mut returned, mut name) = (Some(entry), None, None);
        for _ in 0..MAX_STEPS {
            let Some(entry) = at.filter(|_| returned.is_none() || name.is_none()) else {
                break;
            };
            let function = self.functions.get(&entry).ok_or(Unread(entry))?;
            returned = returned.or(function.returned);
            name = name.or(function.name);
            at = function.described_by;
        }
        let (Some(returned), Some(name)) = (returned, name) else {
            return Ok(false);
        };
        let within = self.within.get(&returned).ok_or(Unread(returned))?;
        let name = std::str::from_utf8(name).map_or(name, |name| without_arguments(name).as_bytes());
        Ok(*within == name)
    }

    /// Reads units once more.
    fn read(&mut self, dwarf: &Dwarf<Slice<'a>>, headers: &[UnitHeader<Slice<'a>>], units: Vec<usize>) {
        let room = Left::new(MAX_ENTRIES.saturating_sub(self.functions.len() + self.within.len()));
        let parts = each(&units, Self::default, |part, &number| {
            if let Some(header) = headers.get(number).filter(|header| !is_of_type(header))
                && let Ok(unit) = dwarf.unit(*header)
            {
                // What is behind damage cannot be found.
                let _ = part.note(dwarf, &unit, &room);
            }
        });
        for part in parts {
            self.functions.extend(part.functions);
            self.within.extend(part.within);
        }
        self.read.extend(units);
    }

    /// Takes what a unit of Rust says.
    fn note(&mut self, dwarf: &Dwarf<Slice<'a>>, unit: &Unit<Slice<'a>>, room: &Left) -> gimli::Result<()> {
        let mut entries = unit.entries();
        // The names of the entries that the next one is in.
        let mut outer: Vec<Option<&'a [u8]>> = Vec::new();
        while let Some(entry) = entries.next_dfs()? {
            outer.truncate(usize::try_from(entry.depth()).unwrap_or(0));
            let is_of_others = outer.is_empty() && !is_rust(entry);
            if is_of_others || outer.len() >= MAX_DEPTH {
                return Ok(());
            }
            let name = named(dwarf, unit, entry);
            if let Some(at) = global(unit, entry) {
                self.note_entry(at, entry, unit, (name, outer.last().copied().flatten()), room);
            }
            outer.push(name);
        }
        Ok(())
    }

    fn note_entry(
        &mut self,
        at: usize,
        entry: &DebuggingInformationEntry<Slice<'a>>,
        unit: &Unit<Slice<'a>>,
        (name, within): (Option<&'a [u8]>, Option<&'a [u8]>),
        room: &Left,
    ) {
        let refers = |attribute| reference(unit, entry.attr_value(attribute)?);
        match entry.tag() {
            gimli::DW_TAG_subprogram => {
                let described_by = refers(gimli::DW_AT_abstract_origin);
                let function = Function {
                    name,
                    returned: refers(gimli::DW_AT_type),
                    described_by: described_by.or_else(|| refers(gimli::DW_AT_specification)),
                };
                let says_more = function.returned.is_some() || function.described_by.is_some();
                if says_more && room.take(1) {
                    self.functions.insert(at, function);
                }
            }
            _ if name.is_some_and(|name| name.starts_with(ASYNC_FUNCTION)) && room.take(1) => {
                self.within.extend(within.map(|within| (at, within)));
            }
            _ => {}
        }
    }
}

/// Whether a file can have such functions at all: else reading all of its units would be for nothing.
fn mentions_futures(dwarf: &Dwarf<Slice<'_>>) -> bool {
    let texts = [dwarf.debug_str.reader(), dwarf.debug_info.reader()];
    let mut texts = texts.into_iter();
    texts.any(|text| memchr::memmem::find(text.slice(), ASYNC_FUNCTION).is_some())
}

fn is_rust(root: &DebuggingInformationEntry<Slice<'_>>) -> bool {
    let language = root.attr_value(gimli::DW_AT_language);
    matches!(
        language,
        Some(gimli::AttributeValue::Language(gimli::DW_LANG_Rust))
    )
}

fn named<'a>(
    dwarf: &Dwarf<Slice<'a>>,
    unit: &Unit<Slice<'a>>,
    entry: &DebuggingInformationEntry<Slice<'a>>,
) -> Option<&'a [u8]> {
    let name = entry.attr_value(gimli::DW_AT_name)?;
    Some(dwarf.attr_string(unit, name).ok()?.slice())
}
