//! Indirect functions (ifuncs): names that stand for one of several functions, which a resolver chooses when the program is
//! loaded, as `memcpy` does in the C library for what the processor can do.
//!
//! The loader writes the choice into memory, at the places that relocations name: those of the resolver itself
//! (`R_X86_64_IRELATIVE`, whose addend is the resolver's address), and those of other files' references to the name. A file says
//! where these words are, the process's memory what is in them.

use std::collections::{BTreeMap, BTreeSet};

use profiler_elf::Elf;
use profiler_scope::Name;

use super::{
    demangle::without_version,
    functions::{Function, ModuleIndex},
    source::slot_of,
};

/// A function that chooses another one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Resolver {
    /// Index of its module among the target's.
    pub module: usize,
    /// Its address in the file's address space.
    pub address: u64,
}

/// A word of a process's memory into which the loader writes the address of the function that a resolver chose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot {
    /// Index of the module that it is in.
    pub module: usize,
    /// Its address in the file's address space.
    pub address: u64,
    /// Who chooses what it holds.
    pub resolver: Resolver,
}

/// The functions that resolvers chose, by the addresses of their file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Choices(BTreeMap<Resolver, BTreeSet<u64>>);

impl Choices {
    /// Notes what a slot holds: an address in the address space of the resolver's file. It counts where a function begins there.
    pub fn add(&mut self, resolver: Resolver, address: u64, modules: &[&ModuleIndex]) {
        let Some(module) = modules.get(resolver.module) else {
            return;
        };
        // Until its first call a slot can lead back into the linkage table.
        if address != resolver.address
            && module.function_from(address).is_some()
            && slot_of(module, address).is_none()
        {
            self.0.entry(resolver).or_default().insert(address);
        }
    }

    /// The addresses of what a resolver chose.
    pub fn of(&self, resolver: Resolver) -> impl Iterator<Item = u64> + '_ {
        self.0.get(&resolver).into_iter().flatten().copied()
    }

    /// Other resolvers of the file that chose a function too.
    pub fn others(&self, resolver: Resolver, chosen: u64) -> impl Iterator<Item = Resolver> + '_ {
        self.0
            .iter()
            .filter(move |(other, chosen_by)| {
                **other != resolver && other.module == resolver.module && chosen_by.contains(&chosen)
            })
            .map(|(other, _)| *other)
    }
}

/// The slots of all ifuncs of the modules in which a name means one. Most names mean none, and cost nothing more.
#[must_use]
pub fn slots(name: &Name, modules: &[&ModuleIndex]) -> Vec<Slot> {
    let means_one = |module: &&ModuleIndex| {
        // Few files have any, while to look for a name takes long.
        if !module.functions().any(|function| function.is_indirect()) {
            return false;
        }
        let mut matching = module.matching(name).into_iter();
        matching.any(|(at, _)| module.function(at).is_indirect())
    };
    let mut by_name: BTreeMap<String, Vec<Resolver>> = BTreeMap::new();
    let mut of_modules = BTreeSet::new();
    for (number, module) in modules.iter().enumerate().filter(|(_, module)| means_one(module)) {
        of_modules.insert(number);
        for function in module.functions().filter(Function::is_indirect) {
            let resolver = Resolver {
                module: number,
                address: function.address(),
            };
            for name in function.linkage_names() {
                by_name.entry(name.into_owned()).or_default().push(resolver);
            }
        }
    }
    if by_name.is_empty() {
        return Vec::new();
    }
    let of_module = |(number, module): (usize, &&ModuleIndex)| {
        slots_of(number, module, of_modules.contains(&number), &by_name)
    };
    modules.iter().enumerate().flat_map(of_module).collect()
}

/// The slots of one module; `has_resolvers` where those of its own resolvers count.
fn slots_of(
    number: usize,
    module: &ModuleIndex,
    has_resolvers: bool,
    by_name: &BTreeMap<String, Vec<Resolver>>,
) -> Vec<Slot> {
    let Ok(elf) = Elf::parse(module.files().program()) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for relocation in elf.relocations() {
        let mut add = |resolver| {
            found.push(Slot {
                module: number,
                address: relocation.address,
                resolver,
            });
        };
        if relocation.is_resolved {
            if let Ok(address) = u64::try_from(relocation.addend)
                && has_resolvers
            {
                let module = number;
                add(Resolver { module, address });
            }
            continue;
        }
        let name = relocation.symbol.and_then(|symbol| elf.symbol_name(symbol));
        let name = name.and_then(|name| std::str::from_utf8(name).ok());
        let resolvers = name.and_then(|name| by_name.get(without_version(name)));
        resolvers.into_iter().flatten().copied().for_each(&mut add);
    }
    found
}
