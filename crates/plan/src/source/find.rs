//! From names and lines to functions and their inlined instances.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    rc::Rc,
};

use gimli::{EndianSlice, LittleEndian, UnitHeader, UnitOffset};
use profiler_elf::{Elf, skip::skip_attributes};
use profiler_scope::Name;

use super::{
    super::{
        dwarf::{Debugged, Declared, Units, each, follow, global, may_be_inlined, origin, unit_of},
        functions::ModuleIndex,
        futures::Futures,
        lines::{self, LineError},
        names::{self, Match, Matcher},
        outline::{Part, without_arguments},
        sections::dwarf_sections,
    },
    budget::Budget,
    join::{Subject, join},
    model::FunctionSource,
    ranges::Ranges,
    scopes::{Body, Inlined, shown_name},
    types::Types,
    units::{Known, Reader, functions_holding, headers},
};

/// Inlined instances of one function that are described.
pub const MAX_INSTANCES: usize = 1_000;
/// Entries of functions that may be inlined, of which instances are counted.
const MAX_ABSTRACTS: usize = 1 << 18;
/// Functions that are told apart, and those of which instances are looked for.
const MAX_OWNERS: usize = 1_000;
/// Instances that are looked through for those of different functions.
const MAX_FOUND: usize = 1 << 18;

/// Functions, as many as were asked for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Found {
    /// Those that have code of their own first.
    pub functions: Vec<FunctionSource>,
    /// Functions beyond them.
    pub left_out: usize,
}

/// Describes functions of a file by their numbers in its index.
#[must_use]
pub fn functions(module: &ModuleIndex, numbers: &[usize]) -> Vec<FunctionSource> {
    let with_code: Vec<usize> = numbers
        .iter()
        .copied()
        .filter(|&at| module.has_number(at))
        .collect();
    let described = with_dwarf(module, |reader| {
        let addresses: Vec<u64> = with_code
            .iter()
            .map(|&at| module.function(at).address())
            .collect();
        let entries = entries(reader, &addresses);
        let mut types = Types::default();
        with_code
            .iter()
            .map(|&at| {
                let entry = entries.get(&module.function(at).address()).copied();
                let subject = concrete(module, reader, at, entry);
                join(module, reader, &mut types, subject)
            })
            .collect()
    });
    described.unwrap_or_default()
}

/// Describes the functions that contain a line, up to a number; with the whole path of the file.
///
/// # Errors
/// Where there is no such line; see [`LineError`].
pub fn line(module: &ModuleIndex, file: &str, line: u64, limit: usize) -> Result<(String, Found), LineError> {
    let found = lines::find(module, file, line)?;
    let addresses: Vec<u64> = found.sites.iter().map(|site| site.address).collect();
    let described = holding(module, &addresses, (&found.file, line), limit);
    Ok((found.file, described))
}

/// Describes the functions, inlined ones for themselves, whose code is at some addresses, up to a number.
#[must_use]
pub fn at_addresses(module: &ModuleIndex, addresses: &[u64], limit: usize) -> Found {
    holding(module, addresses, ("", 0), limit)
}

/// The functions that hold some addresses, which are those of a line.
fn holding(module: &ModuleIndex, addresses: &[u64], line: (&str, u64), limit: usize) -> Found {
    let described = with_dwarf(module, |reader| {
        let mut owners = Owners::default();
        let mut by_entry: BTreeMap<(usize, UnitOffset), Vec<u64>> = BTreeMap::new();
        for (address, entry) in entries(reader, addresses) {
            by_entry.entry(entry).or_default().push(address);
        }
        for (entry, addresses) in by_entry {
            owners.add(reader, entry, &addresses, line);
        }
        owners.describe(module, reader, limit)
    });
    described.unwrap_or_default()
}

/// Describes functions that exist only inlined, up to a number.
#[must_use]
pub fn inlined(module: &ModuleIndex, name: &Name, limit: usize) -> Found {
    let described = with_dwarf(module, |reader| {
        let known = abstracts_of(reader, name, MAX_INSTANCES)
            .into_iter()
            .map(|(offset, declared)| {
                let name = shown_name(&declared);
                (offset, Rc::new(Known { declared, name }))
            });
        let known: HashMap<usize, Rc<Known>> = known.collect();
        let mut owners = Owners::default();
        for (origin, number, offset) in instances(reader, &known.keys().copied().collect()) {
            owners.instance(&known[&origin], (number, offset));
        }
        owners.describe(module, reader, limit)
    });
    described.unwrap_or_default()
}

/// Works on the file's DWARF, which may be empty; `None` of a damaged file.
pub(crate) fn with_dwarf<T>(module: &ModuleIndex, work: impl FnOnce(&mut Reader<'_, '_>) -> T) -> Option<T> {
    let elf = Elf::parse(module.files().program()).ok()?;
    let debug = Elf::parse(module.files().debug()).ok()?;
    let sections = dwarf_sections(&debug);
    let mut dwarf = sections.borrow(|section| EndianSlice::new(section, LittleEndian));
    // Many units of a linked file have the same.
    dwarf.populate_abbreviations_cache(gimli::AbbreviationsCacheStrategy::Duplicates);
    let headers = headers(&dwarf);
    let budget = Budget::new();
    Some(work(&mut Reader::new(module, &elf, &dwarf, &headers, &budget)))
}

/// The unit and the entry of the functions at these addresses.
pub(crate) fn entries(reader: &mut Reader<'_, '_>, addresses: &[u64]) -> HashMap<u64, (usize, UnitOffset)> {
    let mut by_unit: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
    for (address, number) in reader.holding(addresses) {
        by_unit.entry(number).or_default().push(address);
    }
    let mut found = HashMap::new();
    for (number, addresses) in by_unit {
        let Some(unit) = reader.unit(number) else { continue };
        for (address, offset) in functions_holding(reader.dwarf, &unit, &addresses, &reader.budget.steps) {
            found.insert(address, (number, offset));
        }
    }
    found
}

/// A function with code of its own.
fn concrete(
    module: &ModuleIndex,
    reader: &mut Reader<'_, '_>,
    at: usize,
    entry: Option<(usize, UnitOffset)>,
) -> Subject {
    let function = module.function(at);
    let hot = function.address()..function.address().saturating_add(function.size());
    let cold = module.cold_parts(&function);
    let mut shown = FunctionSource {
        name: function.name().into_owned(),
        linkage_name: function.linkage_name().into_owned(),
        address: function.address(),
        size: function.size(),
        ranges: Ranges::new(std::iter::once(hot).chain(cold)).into_vec(),
        ..FunctionSource::default()
    };
    let mut body = entry.and_then(|(number, offset)| Body::read(reader, number, offset));
    if !module.has_debug_info() {
        shown.missing.push(
            "the file has no debug information: lines, variables and inlined functions are not known"
                .to_owned(),
        );
    } else if body.is_none() {
        let lines = lines_alone(reader, &shown);
        let missing = match lines {
            Some(_) => {
                "the file's debug information has lines alone here: variables and inlined functions are not known"
            }
            None => {
                "the file's debug information does not describe this function: lines, variables and inlined functions \
                 are not known"
            }
        };
        shown.missing.push(missing.to_owned());
        body = lines;
    }
    let known = entry.map(|entry| known(reader, entry)).unwrap_or_default();
    Subject {
        shown,
        known,
        bodies: body.into_iter().collect(),
    }
}

/// The code of a function of which the debug information has lines and nothing else, as compilers leave it under
/// `-gline-tables-only`.
fn lines_alone(reader: &mut Reader<'_, '_>, function: &FunctionSource) -> Option<Body> {
    let address = function.address;
    let number = reader.holding(&[address]).remove(&address)?;
    let ranges = Ranges::new(function.ranges.iter().cloned());
    let (rows, _) = reader.rows(number)?.within(&ranges, reader.budget);
    let has_lines = rows.iter().any(|row| row.line > 0);
    has_lines.then(|| Body::of_lines(number, function.ranges.clone()))
}

pub(crate) fn known(reader: &mut Reader<'_, '_>, (number, offset): (usize, UnitOffset)) -> Rc<Known> {
    let offset = reader
        .unit(number)
        .and_then(|unit| offset.to_debug_info_offset(&unit.header));
    offset.map(|offset| reader.known(offset.0)).unwrap_or_default()
}

/// A function that is inlined.
struct Inlines {
    known: Rc<Known>,
    /// Its instances: unit and entry.
    instances: BTreeSet<(usize, UnitOffset)>,
}

/// The functions that some addresses belong to, those that are inlined counting as themselves.
#[derive(Default)]
struct Owners {
    concrete: BTreeSet<(usize, UnitOffset)>,
    inlined: BTreeMap<Declared, Inlines>,
    left_out: usize,
}

impl Owners {
    /// Adds the owners of a line's places in a function.
    fn add(
        &mut self,
        reader: &mut Reader<'_, '_>,
        entry: (usize, UnitOffset),
        addresses: &[u64],
        (file, line): (&str, u64),
    ) {
        let (Some(body), Some(unit)) = (Body::read(reader, entry.0, entry.1), reader.unit(entry.0)) else {
            return;
        };
        // Compilers give some code of an instance the line of its call, which is not the inlined function's.
        let file = reader.files.number(file);
        let mut is_call = |inlined: &Inlined| {
            let (dwarf, budget) = (reader.dwarf, reader.budget);
            u64::from(inlined.call_line) == line
                && file != 0
                && reader
                    .files
                    .of_unit(dwarf, &unit, entry.0, inlined.call_file, budget)
                    == file
        };
        for &address in addresses {
            match body.chain_at(address).find(|(_, inlined)| !is_call(inlined)) {
                Some((_, inlined)) => self.instance(&inlined.known, (entry.0, inlined.offset)),
                None => {
                    self.concrete.insert(entry);
                }
            }
        }
    }

    fn instance(&mut self, known: &Rc<Known>, entry: (usize, UnitOffset)) {
        if !self.inlined.contains_key(&known.declared) {
            if self.inlined.len() == MAX_OWNERS {
                return;
            }
            let new = Inlines {
                known: Rc::clone(known),
                instances: BTreeSet::new(),
            };
            self.inlined.insert(known.declared.clone(), new);
        }
        let Some(Inlines { instances, .. }) = self.inlined.get_mut(&known.declared) else {
            return;
        };
        if instances.len() < MAX_INSTANCES {
            instances.insert(entry);
        } else {
            self.left_out += 1;
        }
    }

    fn describe(self, module: &ModuleIndex, reader: &mut Reader<'_, '_>, limit: usize) -> Found {
        let mut types = Types::default();
        let mut described = Vec::new();
        let count = self.concrete.len() + self.inlined.len();
        for entry in self.concrete.into_iter().take(limit) {
            let Some(body) = Body::read(reader, entry.0, entry.1) else {
                continue;
            };
            let known = known(reader, entry);
            let start = body.scopes[0].ranges.first().map_or(0, |range| range.start);
            let mut shown = FunctionSource {
                name: known.name.clone(),
                address: start,
                ..FunctionSource::default()
            };
            if let Some(function) = module.function_at(start) {
                shown.name = function.name().into_owned();
                shown.linkage_name = function.linkage_name().into_owned();
                shown.size = function.size();
            }
            let subject = Subject {
                shown,
                known,
                bodies: vec![body],
            };
            described.push(join(module, reader, &mut types, subject));
        }
        let room = limit.saturating_sub(described.len());
        for Inlines { known, instances } in self.inlined.into_values().take(room) {
            let mut shown = FunctionSource {
                name: known.name.clone(),
                linkage_name: known.declared.linkage_name.clone().unwrap_or_default(),
                ..FunctionSource::default()
            };
            if self.left_out > 0 {
                let left_out = self.left_out;
                shown
                    .missing
                    .push(format!("{left_out} more inlined instances are left out"));
            }
            let bodies = instances
                .into_iter()
                .filter_map(|(number, offset)| Body::read(reader, number, offset))
                .filter(|body| !body.scopes[0].ranges.is_empty())
                .collect();
            let subject = Subject { shown, known, bodies };
            described.push(join(module, reader, &mut types, subject));
        }
        Found {
            left_out: count.saturating_sub(limit),
            functions: described,
        }
    }
}

/// Functions that may be inlined, of those units that can describe them, up to a number: by the offset of the entry that
/// instances refer to.
fn abstracts(
    reader: &Reader<'_, '_>,
    numbers: &[usize],
    limit: usize,
    is_wanted: impl Fn(&Declared) -> bool + Sync,
) -> HashMap<usize, Declared> {
    let (dwarf, headers, budget) = (reader.dwarf, reader.headers, reader.budget);
    let parts = each(
        numbers,
        Vec::new,
        |found: &mut Vec<(usize, Declared)>, &number| {
            let Some(Ok(unit)) = headers.get(number).map(|header| dwarf.unit(*header)) else {
                return;
            };
            let mut units = Units::new(dwarf, headers, &budget.work);
            let mut scan = || -> gimli::Result<()> {
                let mut entries = unit.entries_raw(None)?;
                while !entries.is_empty() && found.len() < limit && !budget.work.is_short() {
                    let offset = entries.next_offset();
                    let Some(abbreviation) = entries.read_abbreviation()? else {
                        continue;
                    };
                    skip_attributes(&mut entries, abbreviation.attributes())?;
                    if !may_be_inlined(abbreviation) {
                        continue;
                    }
                    let Some(offset) = offset.to_debug_info_offset(&unit.header) else {
                        continue;
                    };
                    let declared = follow(&mut units, offset.0);
                    if is_wanted(&declared) && budget.text.take(declared.text_bytes()) {
                        found.push((offset.0, declared));
                    }
                }
                Ok(())
            };
            // What comes after something damaged is not found.
            let _ = scan();
        },
    );
    parts.into_iter().flatten().take(limit).collect()
}

/// Functions of a name that may be inlined.
pub(crate) fn abstracts_of(reader: &Reader<'_, '_>, name: &Name, limit: usize) -> HashMap<usize, Declared> {
    let outline = reader.module.outline(Part::Names);
    let numbers = names::own(name).and_then(|own| outline.with_inlined(own));
    let numbers = numbers.unwrap_or_else(|| (0..reader.headers.len()).collect());
    let matcher = Matcher::new(name);
    abstracts(reader, &numbers, limit, |declared| {
        meant(declared, &matcher).is_some()
    })
}

/// Whether and how a function is meant by a name. Of rustc's async functions, DWARF has another name than the linker.
pub(crate) fn meant(declared: &Declared, matcher: &Matcher<'_>) -> Option<Match> {
    let names = [declared.linkage_name.as_deref(), declared.name.as_deref()];
    let names = names.into_iter().flatten();
    names.filter_map(|name| matcher.matches(name.as_bytes())).max()
}

/// Visits the inlined instances of functions, which are given by their entries: what is inlined, unit and entry.
fn each_instance<S: Send>(
    reader: &Reader<'_, '_>,
    origins: &HashSet<usize>,
    state: impl Fn() -> S + Sync,
    visit: impl Fn(&mut S, (usize, usize, UnitOffset)) + Sync,
) -> Vec<S> {
    if origins.is_empty() {
        return Vec::new();
    }
    let (dwarf, headers) = (reader.dwarf, reader.headers);
    // A function is inlined into its own unit, or into those that refer to others.
    let numbers = match reader.module.outline(Part::Names).with_foreign() {
        Some(mut numbers) => {
            numbers.extend(origins.iter().filter_map(|&origin| unit_of(headers, origin)));
            numbers.sort_unstable();
            numbers.dedup();
            numbers
        }
        None => (0..headers.len()).collect(),
    };
    each(&numbers, state, |state, &number| {
        let Some(Ok(unit)) = headers.get(number).map(|header| dwarf.unit(*header)) else {
            return;
        };
        let mut scan = || -> gimli::Result<()> {
            let mut entries = unit.entries_raw(None)?;
            while !entries.is_empty() {
                let offset = entries.next_offset();
                let Some(abbreviation) = entries.read_abbreviation()? else {
                    continue;
                };
                skip_attributes(&mut entries, abbreviation.attributes())?;
                if abbreviation.tag() != gimli::DW_TAG_inlined_subroutine {
                    continue;
                }
                let entry = unit.entry(offset)?;
                if let Some(origin) = origin(&unit, &entry).or_else(|| global(&unit, &entry))
                    && origins.contains(&origin)
                {
                    visit(state, (origin, number, offset));
                }
            }
            Ok(())
        };
        let _ = scan();
    })
}

/// The inlined instances of some functions: what is inlined, and unit and entry of the instance.
pub(crate) fn instances(
    reader: &Reader<'_, '_>,
    origins: &HashSet<usize>,
) -> Vec<(usize, usize, UnitOffset)> {
    let parts = each_instance(reader, origins, Vec::new, |found, instance| {
        if found.len() < MAX_FOUND {
            found.push(instance);
        }
    });
    let mut found: Vec<_> = parts.into_iter().flatten().collect();
    found.sort_unstable();
    found
}

/// How often functions are inlined, by the entry that instances refer to.
fn instance_counts(reader: &Reader<'_, '_>, origins: &HashSet<usize>) -> HashMap<usize, u64> {
    let parts = each_instance(
        reader,
        origins,
        HashMap::<usize, u64>::new,
        |counts, (origin, _, _)| {
            *counts.entry(origin).or_default() += 1;
        },
    );
    let mut counts: HashMap<usize, u64> = HashMap::new();
    for (origin, count) in parts.into_iter().flatten() {
        *counts.entry(origin).or_default() += count;
    }
    counts
}

/// The name of functions that exist only inlined, and the number of their instances; `None` where there is none of this
/// name.
#[must_use]
pub fn inlined_count(module: &ModuleIndex, name: &Name) -> Option<(String, u64)> {
    with_dwarf(module, |reader| {
        let abstracts = abstracts_of(reader, name, MAX_ABSTRACTS);
        let counts = instance_counts(reader, &abstracts.keys().copied().collect());
        let of = |origin| {
            let declared: &Declared = abstracts.get(origin)?;
            declared.name.as_ref().or(declared.linkage_name.as_ref())
        };
        let first = counts.keys().filter_map(of).min()?;
        Some((first.clone(), counts.values().sum()))
    })
    .flatten()
}

/// What debug information says of functions, by address: as [`super::super::DebugIndex`] has it, but of few functions and
/// so of few units.
#[must_use]
pub fn debugged(module: &ModuleIndex, addresses: &[u64]) -> HashMap<u64, Debugged> {
    let of_dwarf = |reader: &mut Reader<'_, '_>| {
        let mut declared: HashMap<u64, Declared> = HashMap::new();
        let entries = entries(reader, addresses);
        let offset_of = |&(number, offset): &(usize, UnitOffset)| {
            let header: &UnitHeader<_> = reader.headers.get(number)?;
            Some(offset.to_debug_info_offset(header)?.0)
        };
        let offsets: HashMap<u64, usize> = entries
            .iter()
            .filter_map(|(address, entry)| Some((*address, offset_of(entry)?)))
            .collect();
        let functions: Vec<usize> = offsets.values().copied().collect();
        let futures = Futures::of(reader.dwarf, reader.headers, &functions);
        for (address, entry) in entries {
            declared.insert(address, described(reader, entry).unwrap_or_default());
        }
        let wanted: HashSet<&Declared> = declared.values().collect();
        let outline = reader.module.outline(Part::Names);
        let mut units: Option<BTreeSet<usize>> = Some(BTreeSet::new());
        for declared in &wanted {
            let name = declared.name.as_deref().map(without_arguments);
            if let Some(name) = name.or(declared.linkage_name.as_deref()) {
                units = units.zip(outline.with_inlined(name)).map(|(mut units, of_name)| {
                    units.extend(of_name);
                    units
                });
            }
        }
        let units: Vec<usize> = match units {
            Some(units) => units.into_iter().collect(),
            None => (0..reader.headers.len()).collect(),
        };
        let abstracts = abstracts(reader, &units, MAX_ABSTRACTS, |declared| {
            wanted.contains(declared)
        });
        let mut counts: HashMap<&Declared, u64> = HashMap::new();
        for (origin, count) in instance_counts(reader, &abstracts.keys().copied().collect()) {
            if let Some(declared) = abstracts.get(&origin) {
                *counts.entry(declared).or_default() += count;
            }
        }
        let debugged = declared.iter().map(|(&address, declared)| {
            let debugged = Debugged {
                source: declared.source.clone(),
                inlined: counts.get(declared).copied().unwrap_or(0),
                is_async: offsets
                    .get(&address)
                    .is_some_and(|entry| futures.is_async(*entry)),
            };
            (address, debugged)
        });
        debugged.collect()
    };
    with_dwarf(module, of_dwarf).unwrap_or_default()
}

/// What the entry of a function declares, as its instances have it.
fn described(reader: &mut Reader<'_, '_>, (number, offset): (usize, UnitOffset)) -> Option<Declared> {
    let unit = reader.unit(number)?;
    let entry = unit.entry(offset).ok()?;
    let described = origin(&unit, &entry).or_else(|| global(&unit, &entry))?;
    Some(reader.known(described).declared.clone())
}
