//! The rules of all modules in one table, each for as long as a module has it.

use std::collections::{HashMap, HashSet};

use profiler_common::unwind::Rule;

/// Rules by index. The reserved indexes hold [`Rule::NONE`] and [`Rule::UNSUPPORTED`], always.
#[derive(Clone, Debug)]
pub struct SharedRules {
    rules: Vec<Used>,
    indexes: HashMap<Rule, u16>,
    /// Indexes that no module has any more.
    free: Vec<u16>,
    limit: usize,
}

#[derive(Clone, Copy, Debug)]
struct Used {
    rule: Rule,
    modules: u32,
}

/// A rule that is to be written into the programs' table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewRule {
    /// Where.
    pub index: u16,
    /// The rule.
    pub rule: Rule,
}

impl SharedRules {
    /// Room for `limit` rules, and never more than [`Rule::MAX`]; the reserved ones are to be [`Self::take`]n first.
    pub fn new(limit: usize) -> Self {
        Self {
            rules: Vec::new(),
            indexes: HashMap::new(),
            free: Vec::new(),
            limit: limit.clamp(2, Rule::MAX),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.rules.len() - self.free.len()
    }

    /// The index of a rule that there is.
    pub fn index(&self, rule: &Rule) -> Option<u16> {
        self.indexes.get(rule).copied()
    }

    /// Whether all of these can be there at once.
    pub fn has_room(&self, rules: &[Rule]) -> bool {
        let is_new = |rule: &&Rule| !self.indexes.contains_key(rule);
        let new: HashSet<&Rule> = rules.iter().filter(is_new).collect();
        self.len() + new.len() <= self.limit
    }

    /// A module has these; gives their indexes, in the same order. Those that were not there are added to `new`. One that finds no
    /// room is [`Rule::UNSUPPORTED`].
    pub fn take(&mut self, rules: &[Rule], new: &mut Vec<NewRule>) -> Vec<u16> {
        let indexes: Vec<u16> = rules
            .iter()
            .map(|rule| self.intern(*rule, new).unwrap_or(Rule::UNSUPPORTED_INDEX))
            .collect();
        for index in distinct(&indexes) {
            if let Some(used) = self.rules.get_mut(usize::from(index)) {
                used.modules += 1;
            }
        }
        indexes
    }

    /// The module that took these, each once, has gone.
    pub fn give_back(&mut self, indexes: &[u16]) {
        for index in indexes {
            let Some(used) = self.rules.get_mut(usize::from(*index)) else {
                continue;
            };
            used.modules = used.modules.saturating_sub(1);
            if used.modules == 0 && self.indexes.remove(&used.rule).is_some() {
                self.free.push(*index);
            }
        }
    }

    fn intern(&mut self, rule: Rule, new: &mut Vec<NewRule>) -> Option<u16> {
        if let Some(index) = self.index(&rule) {
            return Some(index);
        }
        let used = Used { rule, modules: 0 };
        let index = match self.free.pop() {
            Some(index) => {
                self.rules[usize::from(index)] = used;
                index
            }
            None if self.rules.len() < self.limit => {
                let index = u16::try_from(self.rules.len()).ok()?;
                self.rules.push(used);
                index
            }
            None => return None,
        };
        self.indexes.insert(rule, index);
        new.push(NewRule { index, rule });
        Some(index)
    }
}

/// Each once.
pub fn distinct(indexes: &[u16]) -> Vec<u16> {
    let mut distinct = indexes.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    distinct
}

#[cfg(test)]
mod tests {
    use profiler_common::unwind::Cfa;

    use super::*;

    fn rule(number: i32) -> Rule {
        Rule {
            cfa_offset: number,
            ..Rule::bare(Cfa::Register)
        }
    }

    #[test]
    fn a_rule_is_there_for_as_long_as_a_module_has_it() {
        let mut rules = SharedRules::new(4);
        let mut new = Vec::new();
        assert_eq!(rules.take(&[Rule::NONE, Rule::UNSUPPORTED], &mut new), [0, 1]);
        assert_eq!(rules.take(&[rule(1), rule(2), rule(1)], &mut new), [2, 3, 2]);
        assert_eq!(new.len(), 4);
        new.clear();
        assert_eq!(rules.take(&[rule(2)], &mut new), [3]);
        assert!(new.is_empty() && !rules.has_room(&[rule(3)]) && rules.has_room(&[rule(2)]));
        assert_eq!(rules.take(&[rule(3)], &mut new), [Rule::UNSUPPORTED_INDEX]);
        rules.give_back(&[2, 3]);
        assert_eq!(
            (rules.len(), rules.index(&rule(1)), rules.index(&rule(2))),
            (3, None, Some(3))
        );
        assert_eq!(rules.take(&[rule(4)], &mut new), [2]);
        assert_eq!(
            new,
            [NewRule {
                index: 2,
                rule: rule(4)
            }]
        );
        rules.give_back(&[3]);
        assert_eq!((rules.len(), rules.index(&rule(2))), (3, None));
    }
}
