//! The files that a program has mapped, and what is planned of them.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs,
    ops::Range,
    rc::Rc,
    sync::Arc,
};

use gimli::{BaseAddresses, CieOrFde, EhFrame, LittleEndian, UnwindContext, UnwindSection as _};
use iced_x86::{Decoder, DecoderOptions};
use object::{Object as _, ObjectSection as _};
use profiler_plan::{
    Ends, Limits, ModuleIndex, PlanError, PlannedFunction,
    exits::Way,
    hazards::{Decision, KernelAbility, Method},
    ifuncs::Choices,
    plan,
};
use profiler_scope::Name;

/// Bytes of the longest instruction.
const LONGEST: u64 = 15;

const RET: Decision = Decision {
    method: Method::Ret,
    done_by_program: false,
    stacks_switch: false,
    reasons: vec![],
    warnings: vec![],
};

/// An end of a function.
#[derive(Clone, Copy, Debug)]
pub struct End {
    pub way: Way,
    pub is_conditional: bool,
}

/// A function and its plan, all addresses as in its file.
#[derive(Debug)]
pub struct Planned {
    pub name: String,
    pub own: Range<u64>,
    pub entry: u64,
    pub loops: bool,
    pub ends: HashMap<u64, End>,
    pub never_ends: bool,
}

/// A mapped file.
pub struct Module {
    pub path: String,
    index: ModuleIndex,
    starts: HashSet<u64>,
    planned: HashMap<u64, Option<Rc<Planned>>>,
    /// The addresses of all instructions that were executed.
    pub executed: HashSet<u64>,
}

impl Module {
    pub fn of(path: &str) -> Option<Self> {
        let bytes = Arc::new(fs::read(path).ok()?);
        let index = ModuleIndex::new(bytes).ok()?.mapped_by(path);
        let named = index.functions().filter(|function| !function.is_indirect());
        let starts = named.map(|function| function.address());
        let starts = starts.chain(index.unnamed().iter().map(|range| range.start));
        Some(Self {
            path: path.to_owned(),
            starts: starts.collect(),
            index,
            planned: HashMap::new(),
            executed: HashSet::new(),
        })
    }

    /// What is to be subtracted from the addresses of a mapping that begins there, of the file from an offset on.
    pub fn bias(&self, start: u64, offset: u64) -> Option<u64> {
        // A mapping begins at a page, a segment may begin within it.
        let mut segments = self.index.segments().iter().filter(|segment| segment.executable);
        let segment = segments
            .find(|segment| segment.offset & !0xfff == offset & !0xfff || offset >= segment.offset)?;
        Some(start.wrapping_sub(segment.address.wrapping_add(offset.wrapping_sub(segment.offset))))
    }

    pub fn begins_at(&self, address: u64) -> bool {
        self.starts.contains(&address)
    }

    /// The plan of the function that begins at an address, where there is one.
    pub fn planned(&mut self, address: u64) -> Option<Rc<Planned>> {
        if let Some(known) = self.planned.get(&address) {
            return known.clone();
        }
        let name = Name::at_address(&self.path, address);
        let plan = plan(
            &name,
            &[&self.index],
            &Choices::default(),
            &RET,
            KernelAbility::default(),
            Limits::default(),
        );
        let function = plan.ok().and_then(|plan| plan.functions.into_iter().next());
        let known = function.map(|function| Rc::new(self.of_file(&function)));
        self.planned.insert(address, known.clone());
        known
    }

    fn address_of(&self, offset: u64) -> u64 {
        profiler_elf::address_of(self.index.segments(), offset).unwrap()
    }

    fn of_file(&self, function: &PlannedFunction) -> Planned {
        let ends = function.ends.sites().iter().map(|exit| {
            let end = End {
                way: exit.way,
                is_conditional: exit.condition.is_some(),
            };
            (self.address_of(exit.file_offset), end)
        });
        Planned {
            name: function.name.clone(),
            own: function.address..function.address + function.size,
            entry: self.address_of(function.entry_offset),
            loops: function.loops,
            ends: ends.collect(),
            never_ends: function.ends == Ends::Never,
        }
    }

    /// Bytes of the instruction at an address.
    pub fn length(&self, address: u64) -> Option<u64> {
        let code = (1..=LONGEST)
            .rev()
            .find_map(|length| self.index.code(address..address + length))?;
        let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
        let instruction = decoder.decode();
        (!instruction.is_invalid()).then_some(instruction.len() as u64)
    }

    /// Number of functions of which a call was seen, and of those that have a plan.
    pub fn called(&self) -> (usize, usize) {
        (
            self.planned.len(),
            self.planned.values().filter(|known| known.is_some()).count(),
        )
    }

    /// Holds the sites of all functions against the instructions that were executed and the addresses at which unwind rows begin.
    pub fn check(&self, wrong: &mut Vec<String>) -> Checked {
        let rows = self.rows();
        let mut checked = Checked::default();
        for (name, site) in self.all_sites(&mut checked) {
            checked.sites += 1;
            let Some(length) = self.length(site) else {
                wrong.push(format!(
                    "{}: a site of {name} at {site:#x} is no instruction",
                    self.path
                ));
                continue;
            };
            if rows.range(site + 1..site + length).next().is_some() {
                wrong.push(format!(
                    "{}: within a site of {name} at {site:#x} begins an unwind row",
                    self.path
                ));
            }
            if self.executed.contains(&site) {
                checked.executed += 1;
                continue;
            }
            let before = (1..LONGEST).map(|back| site.wrapping_sub(back));
            let over = before
                .filter(|address| self.executed.contains(address))
                .find(|&address| self.length(address).is_some_and(|length| address + length > site));
            if let Some(over) = over {
                wrong.push(format!(
                    "{}: a site of {name} at {site:#x} lies in the instruction at {over:#x}",
                    self.path
                ));
            }
        }
        checked
    }

    /// The sites of each function that has a plan.
    fn all_sites(&self, checked: &mut Checked) -> Vec<(String, u64)> {
        let mut sites = Vec::new();
        for pattern in [
            "*".to_owned(),
            format!("{}+0x*", self.path.rsplit('/').next().unwrap()),
        ] {
            let plan = plan(
                &Name::Glob(pattern),
                &[&self.index],
                &Choices::default(),
                &RET,
                KernelAbility::default(),
                Limits {
                    functions: usize::MAX,
                },
            );
            let plan = match plan {
                Ok(plan) => plan,
                Err(PlanError::NoSuchFunction { .. } | PlanError::Unusable(_) | PlanError::Indirect(_)) => {
                    continue;
                }
                Err(error) => panic!("{error}"),
            };
            for skipped in plan.skipped {
                *checked.refused.entry(kind(&skipped.reason)).or_default() += 1;
            }
            for function in plan.functions {
                checked.functions += 1;
                let planned = self.of_file(&function);
                let all = planned.ends.keys().copied().chain([planned.entry]);
                sites.extend(all.map(|site| (planned.name.clone(), site)));
            }
        }
        sites
    }

    /// Where the unwind rows of the file begin: each is at an instruction.
    fn rows(&self) -> std::collections::BTreeSet<u64> {
        let mut rows = std::collections::BTreeSet::new();
        let file = object::File::parse(self.index.files().program()).unwrap();
        let Some(section) = file.section_by_name(".eh_frame") else {
            return rows;
        };
        let data = section.data().unwrap();
        let mut bases = BaseAddresses::default().set_eh_frame(section.address());
        if let Some(text) = file.section_by_name(".text") {
            bases = bases.set_text(text.address());
        }
        let frames = EhFrame::new(data, LittleEndian);
        let mut entries = frames.entries(&bases);
        let mut context = UnwindContext::new();
        while let Ok(Some(entry)) = entries.next() {
            let CieOrFde::Fde(partial) = entry else { continue };
            let Ok(entry) = partial.parse(EhFrame::cie_from_offset) else {
                continue;
            };
            let Ok(mut table) = entry.rows(&frames, &bases, &mut context) else {
                continue;
            };
            while let Ok(Some(row)) = table.next_row() {
                rows.insert(row.start_address());
            }
        }
        rows
    }
}

/// A reason without what it says of one function.
fn kind(reason: &str) -> String {
    reason
        .split(' ')
        .filter(|word| !word.contains("0x") && !word.contains('`'))
        .collect::<Vec<_>>()
        .join(" ")
}

/// The number of what was checked of a file.
#[derive(Default, Debug)]
pub struct Checked {
    pub functions: usize,
    pub sites: usize,
    pub executed: usize,
    pub refused: BTreeMap<String, usize>,
}
