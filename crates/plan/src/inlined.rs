//! From a name to the inlined instances of the functions with that name, and where each begins and ends.
//!
//! An instance can be timed where every way into its code leads to where it begins, and none from its own code does;
//! where nothing in it moves the stack pointer, which tells its spans apart; and where it is left for other code of the
//! same function. What is no such instance is left out, with the reason.
//!
//! | file | idea |
//! |---|---|
//! | `region` | the ways into and out of an instance's code |
//!
//! See `docs/internals/inlined.md` for how an inlined instance is timed.

mod region;
pub(super) mod tables;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::Range,
    rc::Rc,
};

use gimli::{ColumnType, UnitOffset};

pub use self::region::When;
use self::region::{Graph, Region};
use super::{
    code::{Code, CodeError},
    entry::{Taken, entry_point},
    functions::ModuleIndex,
    goroutines,
    handling::Handling,
    instruction::{InstructionSite, Obstacle, instruction_at},
    names::{Match, Matcher},
    source::{
        MAX_INSTANCES,
        find::{abstracts_of, entries, instances, meant, with_dwarf},
        ranges::Ranges,
        scopes::call_of,
        units::{Known, Reader},
        whole::Wholes,
    },
};
use profiler_scope::Name;

/// Instances that are looked at: more than can be probed at once are too many anyway.
const MAX_LOOKED_AT: usize = 2_500;
/// Instructions that are followed in the time of a row.
const INSTRUCTIONS_PER_WORK: usize = 16;

/// An inlined instance that can be timed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InlinedInstance {
    /// How it is shown: its name, where it is called, and in which function.
    pub name: String,
    /// Its linkage name.
    pub linkage_name: String,
    /// The file and line that the function is declared at; empty and 0 where unknown.
    pub declared: (String, u64),
    /// Where its code begins.
    pub address: u64,
    /// Where it begins: at its first instruction that can be probed.
    pub entry: InstructionSite,
    /// One straight behind that, which the kernel need not single-step.
    pub cheap_entry: Option<InstructionSite>,
    /// Its bytes of code.
    pub size: u64,
    /// Where it ends, by address; there are some.
    pub exits: Vec<InstanceExit>,
    /// How its name matches.
    pub kind: Match,
}

/// Where an instance ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InstanceExit {
    /// The instruction.
    pub site: InstructionSite,
    /// When control leaves there.
    pub when: When,
}

/// An instance that cannot be timed, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeftOut {
    /// The lowest address of its code.
    pub address: u64,
    /// Its name, as it is shown.
    pub name: String,
    /// What is in the way.
    pub reason: Reason,
    /// How its name matches.
    pub kind: Match,
}

/// Why an instance cannot be timed. In words it is what each such instance does.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, thiserror::Error)]
pub enum Reason {
    /// A way leads into its middle.
    #[error("with several entries")]
    EnteredElsewhere,
    /// It stands for several calls.
    #[error("copied by the compiler, as in an unrolled loop")]
    Copied,
    /// Its first instruction is reached from its own code.
    #[error("beginning with a loop")]
    LoopsBack,
    /// Its spans could not be told apart.
    #[error("moving the stack pointer")]
    MovesStack,
    /// Where jumps lead is not known.
    #[error("in a function with an indirect jump")]
    JumpsByTable,
    /// It goes on in another function.
    #[error("ending in a jump to another function")]
    TailCall,
    /// It is left by a jump that looks at a register.
    #[error("ending in a jump that tests a register")]
    NotByFlags,
    /// Its last instruction would not be timed.
    #[error("ending in an instruction that may take long")]
    EndsLong,
    /// It can be left anywhere.
    #[error("a transaction")]
    Transaction,
    /// No way leads out of it.
    #[error("without an exit")]
    NeverLeft,
    /// It begins where it ends.
    #[error("too short")]
    TooShort,
    /// Nothing leads into it, or it is not in the file.
    #[error("without reachable code")]
    NoCode,
    /// It may go on on another thread.
    #[error("Go code, which moves between threads")]
    Goroutine,
    /// The function that it is in does not decode.
    #[error("in a function that cannot be read ({0})")]
    Undecodable(String),
    /// A probe cannot be put where it begins or ends.
    #[error("where the kernel accepts no probe ({0})")]
    Refused(String),
}

impl From<CodeError> for Reason {
    fn from(error: CodeError) -> Self {
        Self::Undecodable(error.to_string())
    }
}

impl From<Obstacle> for Reason {
    fn from(obstacle: Obstacle) -> Self {
        match obstacle {
            Obstacle::Refused { mnemonic, .. } => Self::Refused(mnemonic),
            Obstacle::Replaced { .. } => Self::Refused("a nop that it may replace by a call".to_owned()),
            Obstacle::NotInFile(_) => Self::NoCode,
        }
    }
}

/// The inlined instances of a name in a file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FoundInstances {
    /// By address.
    pub instances: Vec<InlinedInstance>,
    /// Those that cannot be timed, by address.
    pub left_out: Vec<LeftOut>,
    /// What could not be read.
    pub missing: Vec<String>,
    /// Their number, where it is more than are looked at.
    pub too_many: Option<usize>,
}

/// Finds the inlined instances of what has a name: those that have code. `long_nops` says whether the kernel emulates
/// `nop`s of several bytes, which decides where functions are probed.
#[must_use]
pub fn find(module: &ModuleIndex, name: &Name, long_nops: bool) -> FoundInstances {
    with_dwarf(module, |reader| {
        let mut search = Search {
            module,
            long_nops,
            found: FoundInstances::default(),
            beginnings: HashMap::new(),
        };
        search.run(reader, name);
        search.found
    })
    .unwrap_or_default()
}

/// An instance as the debug information has it.
struct Described {
    /// The entry of what is inlined.
    origin: usize,
    known: Rc<Known>,
    kind: Match,
    unit: usize,
    ranges: Vec<Range<u64>>,
    entry: Option<u64>,
    /// The file and line of the call; empty and 0 where unknown.
    call: (String, u32),
}

impl Described {
    fn start(&self) -> u64 {
        self.ranges.iter().map(|range| range.start).min().unwrap_or(0)
    }

    fn end(&self) -> u64 {
        self.ranges.iter().map(|range| range.end).max().unwrap_or(0)
    }
}

/// A function that holds instances.
struct Holder {
    name: String,
    graph: Graph,
    /// Where it is probed itself.
    entry: Option<u64>,
    code: Ranges,
}

struct Search<'m> {
    module: &'m ModuleIndex,
    long_nops: bool,
    found: FoundInstances,
    /// Where calls begin, by unit and what is inlined.
    beginnings: HashMap<(usize, usize), BTreeSet<u64>>,
}

impl Search<'_> {
    fn run(&mut self, reader: &mut Reader<'_, '_>, name: &Name) {
        let matcher = Matcher::new(name);
        let mut kinds = BTreeMap::new();
        for (offset, declared) in abstracts_of(reader, name, MAX_INSTANCES) {
            if let Some(kind) = meant(&declared, &matcher) {
                kinds.insert(offset, kind);
            }
        }
        let all = instances(reader, &kinds.keys().copied().collect());
        let described: Vec<Described> = all
            .into_iter()
            .filter_map(|(origin, unit, offset)| {
                Self::describe(reader, (origin, kinds[&origin]), unit, offset)
            })
            .collect();
        if described.len() > MAX_LOOKED_AT {
            self.found.too_many = Some(described.len());
            return;
        }
        let starts: Vec<u64> = described.iter().map(|one| one.ranges[0].start).collect();
        let entries = entries(reader, &starts);
        let mut by_holder: BTreeMap<Option<(usize, UnitOffset)>, Vec<Described>> = BTreeMap::new();
        for one in described {
            let holder = entries.get(&one.ranges[0].start).copied();
            by_holder.entry(holder).or_default().push(one);
        }
        let mut wholes = Wholes::default();
        for (entry, described) in by_holder {
            match self.holder(reader, &mut wholes, entry, &described) {
                Ok(holder) => self.judge(reader, &holder, &described),
                Err(reason) => {
                    for one in &described {
                        self.leave_out(one, reason.clone());
                    }
                }
            }
        }
        if reader.budget.is_short() {
            self.found
                .missing
                .push("the file has too many inlined instances: not all were checked".to_owned());
        }
        self.found.instances.sort_by_key(|one| one.entry.address);
        self.found.left_out.sort_by_key(|one| one.address);
    }

    fn describe(
        reader: &mut Reader<'_, '_>,
        (origin, kind): (usize, Match),
        number: usize,
        offset: UnitOffset,
    ) -> Option<Described> {
        let unit = reader.unit(number)?;
        let entry = unit.entry(offset).ok()?;
        let ranges = reader.ranges(&unit, &entry);
        if ranges.is_empty() || !reader.budget.work.take(1) {
            return None;
        }
        let (call_file, call_line) = call_of(&entry);
        let (dwarf, budget) = (reader.dwarf, reader.budget);
        let file = reader.files.of_unit(dwarf, &unit, number, call_file, budget);
        let begins = entry
            .attr_value(gimli::DW_AT_entry_pc)
            .and_then(|value| dwarf.attr_address(&unit, value).ok().flatten());
        Some(Described {
            origin,
            known: reader.known(origin),
            kind,
            unit: number,
            ranges,
            entry: begins,
            call: (reader.files.path(file).to_owned(), call_line),
        })
    }

    /// Reads the function that holds some instances.
    fn holder(
        &self,
        reader: &mut Reader<'_, '_>,
        wholes: &mut Wholes,
        entry: Option<(usize, UnitOffset)>,
        described: &[Described],
    ) -> Result<Holder, Reason> {
        if described
            .iter()
            .any(|one| goroutines::run(self.module, one.start()))
        {
            return Err(Reason::Goroutine);
        }
        let mut ranges: Vec<Range<u64>> = described.iter().flat_map(|one| one.ranges.clone()).collect();
        if let Some((number, offset)) = entry
            && let Some(unit) = reader.unit(number)
            && let Ok(entry) = unit.entry(offset)
        {
            ranges.extend(reader.ranges(&unit, &entry));
        }
        let code = wholes.of(self.module, &Ranges::new(ranges), reader.budget);
        let mut codes = Vec::new();
        let mut starts = BTreeSet::new();
        let mut named = None;
        for range in code.iter() {
            let bytes = self.module.code(range.clone()).ok_or(CodeError::NotInFile)?;
            if !reader.budget.code.take(bytes.len()) {
                return Err(Reason::Undecodable("there is too much of it".to_owned()));
            }
            codes.push(Code::decode(bytes, range.start)?);
            if let Some(function) = self.module.function_at(range.start) {
                starts.insert(function.address());
                named.get_or_insert(function);
            }
        }
        let hot = named.and_then(|function| {
            codes
                .iter()
                .position(|code| code.range().start == function.address())
        });
        let probed = hot.and_then(|hot| {
            let point = entry_point(
                &codes[hot],
                Taken::Time,
                |address| codes.iter().any(|code| code.is_target(address)),
                self.long_nops,
                |_| false,
            )?;
            // At a function's first instruction its probe runs before those of what is inlined there.
            (!point.single_stepped).then(|| codes[hot].range().start + point.delta)
        });
        Ok(Holder {
            name: named.map_or_else(String::new, |function| function.name().into_owned()),
            graph: Graph::new(&codes, starts, |range| self.module.code(range)),
            entry: probed,
            code,
        })
    }

    fn judge(&mut self, reader: &mut Reader<'_, '_>, holder: &Holder, described: &[Described]) {
        for one in described {
            if !reader
                .budget
                .work
                .take(1 + holder.graph.len() / INSTRUCTIONS_PER_WORK)
            {
                self.leave_out(one, Reason::Undecodable("there is too much of it".to_owned()));
                continue;
            }
            let ranges = Ranges::new(one.ranges.iter().cloned());
            let region = holder.graph.region(&ranges, one.entry);
            let region = region.and_then(|region| {
                if self.is_copied(reader, holder, described, one, &region) {
                    Err(Reason::Copied)
                } else {
                    Ok(region)
                }
            });
            match region.and_then(|region| self.instance(reader, holder, one, &region)) {
                Ok(instance) => self.found.instances.push(instance),
                Err(reason) => self.leave_out(one, reason),
            }
        }
    }

    fn leave_out(&mut self, one: &Described, reason: Reason) {
        self.found.left_out.push(LeftOut {
            address: one.start(),
            name: one.known.name.clone(),
            reason,
            kind: one.kind,
        });
    }

    fn instance(
        &self,
        reader: &Reader<'_, '_>,
        holder: &Holder,
        one: &Described,
        region: &Region,
    ) -> Result<InlinedInstance, Reason> {
        let site = |address: u64| {
            let end = holder.code.iter().find(|range| range.contains(&address));
            let end = end.map_or(u64::MAX, |range| range.end);
            Ok::<_, Reason>(instruction_at(self.module, address, end)?.1)
        };
        // Two probes on one instruction run in no certain order.
        let is_free = |address: &&u64| !region.exits.contains_key(address) && holder.entry != Some(**address);
        let free = region
            .entries
            .iter()
            .filter(is_free)
            .map(|&address| site(address));
        let mut refused = None;
        let mut entry = None;
        let mut cheap_entry = None;
        for found in free {
            match found {
                Ok(found) if found.handling == Handling::Emulated => {
                    cheap_entry = Some(found.clone());
                    entry = entry.or(Some(found));
                    break;
                }
                Ok(found) => entry = entry.or(Some(found)),
                Err(reason) => refused = refused.or(Some(reason)),
            }
        }
        let entry = match (entry, refused) {
            (Some(entry), _) => entry,
            (None, Some(reason)) => return Err(reason),
            (None, None) if region.exits.contains_key(&region.entries[0]) => return Err(Reason::TooShort),
            // It runs beside that of the function, at worst behind it.
            (None, None) => site(region.entries[0])?,
        };
        let mut exits = Vec::new();
        for (&address, &when) in &region.exits {
            let site = site(address)?;
            exits.push(InstanceExit { site, when });
        }
        let declared = &one.known.declared;
        Ok(InlinedInstance {
            name: reader.budget.text(&shown(one, holder)),
            linkage_name: declared.linkage_name.clone().unwrap_or_default(),
            declared: (declared.source.file.clone(), declared.source.line),
            address: region.entries[0],
            entry,
            cheap_entry,
            size: one.ranges.iter().map(|range| range.end - range.start).sum(),
            exits,
            kind: one.kind,
        })
    }
}

/// How an instance is shown: `parse@main.cc:1312 in handle`.
fn shown(one: &Described, holder: &Holder) -> String {
    let (file, line) = &one.call;
    let mut text = one.known.name.clone();
    if let Some(file) = file
        .rsplit('/')
        .next()
        .filter(|file| !file.is_empty() && *line != 0)
    {
        text = format!("{text}@{file}:{line}");
    }
    if !holder.name.is_empty() {
        text = format!("{text} in {}", holder.name);
    }
    text
}

impl Search<'_> {
    /// Whether a call begins in an instance a second time.
    ///
    /// GCC writes a row of the place of the function's declaration where each of its calls begins. Others write none, and
    /// there the first line of the instance tells: it begins again where the instance was copied, and in loops.
    fn is_copied(
        &mut self,
        reader: &mut Reader<'_, '_>,
        holder: &Holder,
        described: &[Described],
        one: &Described,
        region: &Region,
    ) -> bool {
        let is_of = |address: u64, other: &Described| {
            let entry = other.entry.unwrap_or_else(|| other.start());
            address == entry || holder.graph.leads_straight(address, entry)
        };
        let key = (one.unit, one.origin);
        let beginnings = self
            .beginnings
            .entry(key)
            .or_insert_with(|| beginnings(reader, one));
        let hull = holder
            .code
            .within(&Ranges::new(std::iter::once(one.start()..one.end())));
        let own: Vec<u64> = hull
            .iter()
            .flat_map(|range| beginnings.range(range.clone()).copied())
            .collect();
        if one.entry.is_some() && own.iter().any(|&address| is_of(address, one)) {
            return own
                .iter()
                .any(|&address| !described.iter().any(|other| is_of(address, other)));
        }
        begins_again(reader, &hull, holder, described, one, region)
    }
}

/// Where calls of what is inlined begin in a unit, by rows of the place of its declaration.
fn beginnings(reader: &mut Reader<'_, '_>, one: &Described) -> BTreeSet<u64> {
    let mut found = BTreeSet::new();
    let source = &one.known.declared.source;
    let file = reader.files.number(&source.file);
    let column = reader
        .entry(one.origin)
        .and_then(|(_, entry)| entry.attr_value(gimli::DW_AT_decl_column)?.udata_value());
    let Some((unit, program)) = reader
        .unit(one.unit)
        .and_then(|unit| Some((Rc::clone(&unit), unit.line_program.clone()?)))
    else {
        return found;
    };
    let mut rows = program.rows();
    // What comes after something damaged is not known.
    while let Ok(Some((_, row))) = rows.next_row() {
        if !reader.budget.work.take(1) {
            break;
        }
        let is_there = row.is_stmt()
            && !row.end_sequence()
            && row.line().is_some_and(|line| line.get() == source.line)
            && match (column, row.column()) {
                (Some(column), ColumnType::Column(own)) => own.get() == column,
                _ => true,
            };
        let (dwarf, budget) = (reader.dwarf, reader.budget);
        if is_there
            && file != 0
            && reader
                .files
                .of_unit(dwarf, &unit, one.unit, row.file_index(), budget)
                == file
        {
            found.insert(row.address());
        }
    }
    found
}

/// Whether the first line of an instance begins again in it, and not in a loop of its own.
fn begins_again(
    reader: &mut Reader<'_, '_>,
    hull: &Ranges,
    holder: &Holder,
    described: &[Described],
    one: &Described,
    region: &Region,
) -> bool {
    let Some(rows) = reader.rows(one.unit) else {
        return false;
    };
    let (rows, _) = rows.within(hull, reader.budget);
    let entry = region.entries[0];
    let Some(first) = rows.iter().rfind(|row| row.range.contains(&entry)) else {
        return false;
    };
    let others = described
        .iter()
        .filter(|other| !std::ptr::eq(*other, one) && other.start() > entry);
    let others = Ranges::new(others.flat_map(|other| other.ranges.clone()));
    rows.iter().any(|row| {
        let address = row.range.start;
        row.begins
            && (row.file, row.line) == (first.file, first.line)
            && address > entry
            && region.addresses.contains(&address)
            && !others.contains(address)
            && !(reader
                .budget
                .work
                .take(1 + holder.graph.len() / INSTRUCTIONS_PER_WORK)
                && holder.graph.is_in_loop(region, address))
    })
}
