//! The callee that is asked for.

use std::collections::HashMap;

use profiler_scope::Name;

use super::super::{
    functions::{ModuleIndex, raw_names},
    names::{Match, Matcher},
    source::{Call, budget::Budget, scopes::Inlined},
};

/// What making a name readable takes, in rows or entries that could be read in that time: a short one can unfold.
const NAME_WORK: usize = 1 << 10;
/// Bytes of a name that are searched in the time of a row.
const BYTES_PER_WORK: usize = 16;

/// The callee that is asked for.
pub(super) struct Wanted<'n> {
    matcher: Matcher<'n>,
    name: &'n Name,
    /// By address, and by linkage name: many calls have the same callee.
    by_address: HashMap<u64, Option<Match>>,
    by_name: HashMap<Box<str>, Option<Match>>,
}

impl<'n> Wanted<'n> {
    pub fn new(name: &'n Name) -> Self {
        Self {
            matcher: Matcher::new(name),
            name,
            by_address: HashMap::new(),
            by_name: HashMap::new(),
        }
    }

    pub fn name(&self) -> &'n Name {
        self.name
    }

    /// Whether calls count whose callee is not known.
    pub fn is_any(&self) -> bool {
        matches!(self.name, Name::Glob(pattern) if pattern.bytes().all(|byte| byte == b'*'))
    }

    /// Whether a call is one of what is asked for.
    pub fn is_called(&mut self, module: &ModuleIndex, call: &Call, budget: &Budget) -> Option<Match> {
        if self.is_any() {
            return Some(Match::Full);
        }
        if !call.symbol.is_empty() {
            return self.is_named(&call.symbol, budget);
        }
        let address = call.callee_address?;
        if let Some(&known) = self.by_address.get(&address) {
            return known;
        }
        let found = match module.function_at(address) {
            Some(function) if function.address() == address => raw_names(&function)
                .filter_map(|name| self.has_name(name, budget))
                .max(),
            Some(_) => None,
            // A label of assembly.
            None => self.has_name(call.callee.as_bytes(), budget),
        };
        self.by_address.insert(address, found);
        found
    }

    /// Whether what is inlined is what is asked for.
    pub fn is_inlined(&mut self, inlined: &Inlined, budget: &Budget) -> Option<Match> {
        let declared = &inlined.known.declared;
        let name = declared.linkage_name.as_ref().or(declared.name.as_ref())?;
        self.is_named(name, budget)
    }

    fn is_named(&mut self, linkage: &str, budget: &Budget) -> Option<Match> {
        if let Some(&known) = self.by_name.get(linkage) {
            return known;
        }
        let found = self.has_name(linkage.as_bytes(), budget);
        self.by_name.insert(linkage.into(), found);
        found
    }

    fn has_name(&self, linkage: &[u8], budget: &Budget) -> Option<Match> {
        let work = if self.matcher.may_match(linkage) {
            NAME_WORK + linkage.len()
        } else {
            1 + linkage.len() / BYTES_PER_WORK
        };
        if budget.work.take(work) {
            self.matcher.matches(linkage)
        } else {
            None
        }
    }
}
