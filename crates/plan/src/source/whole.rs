//! All of the code of the functions that some code is in.

use std::{
    collections::{BTreeSet, HashMap},
    ops::Range,
};

use super::{super::functions::ModuleIndex, budget::Budget, ranges::Ranges};

/// The functions that bodies are in, by address: all of their code.
#[derive(Default)]
pub(crate) struct Wholes(HashMap<u64, Vec<Range<u64>>>);

impl Wholes {
    /// All of the functions that some ranges are in.
    pub fn of(&mut self, module: &ModuleIndex, ranges: &Ranges, budget: &Budget) -> Ranges {
        let mut all: Vec<_> = ranges.iter().cloned().collect();
        let mut seen = BTreeSet::new();
        for range in ranges.iter() {
            let function = module.function_at(range.start);
            let Some(function) = function.filter(|function| seen.insert(function.address())) else {
                continue;
            };
            let address = function.address();
            let parts = self.0.entry(address).or_insert_with(|| {
                let mut parts = module.cold_parts(&function);
                parts.push(address..address.saturating_add(function.size()));
                parts
            });
            if budget.work.take(parts.len()) {
                all.extend_from_slice(parts);
            }
        }
        Ranges::new(all)
    }
}
