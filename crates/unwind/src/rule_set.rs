//! Rules interned: a few hundred serve a large file, and most are common to many.

use std::collections::HashMap;

use profiler_common::unwind::Rule;

/// Distinct rules, numbered from 0. The reserved indexes hold [`Rule::NONE`] and [`Rule::UNSUPPORTED`].
#[derive(Clone, Debug)]
pub struct RuleSet {
    rules: Vec<Rule>,
    indexes: HashMap<Rule, u16>,
    limit: usize,
}

impl RuleSet {
    /// A set that takes at most `limit` rules, and never more than [`Rule::MAX`].
    #[must_use]
    pub fn new(limit: usize) -> Self {
        let mut set = Self {
            rules: Vec::new(),
            indexes: HashMap::new(),
            limit: limit.clamp(2, Rule::MAX),
        };
        set.intern(Rule::NONE);
        set.intern(Rule::UNSUPPORTED);
        set
    }

    /// The rule's index, [`Rule::UNSUPPORTED_INDEX`] where the set is full.
    pub fn intern(&mut self, rule: Rule) -> u16 {
        if let Some(index) = self.indexes.get(&rule) {
            return *index;
        }
        if self.rules.len() >= self.limit {
            return Rule::UNSUPPORTED_INDEX;
        }
        let Ok(index) = u16::try_from(self.rules.len()) else {
            return Rule::UNSUPPORTED_INDEX;
        };
        self.rules.push(rule);
        self.indexes.insert(rule, index);
        index
    }

    /// The rules, by index.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_indexes_equal_rules_and_the_limit() {
        let mut set = RuleSet::new(3);
        assert_eq!(set.intern(Rule::NONE), Rule::NONE_INDEX);
        assert_eq!(set.intern(Rule::UNSUPPORTED), Rule::UNSUPPORTED_INDEX);
        assert_eq!(set.intern(Rule::ENTRY), 2);
        assert_eq!(set.intern(Rule::ENTRY), 2);
        assert_eq!(set.intern(Rule::FRAME_POINTER), Rule::UNSUPPORTED_INDEX);
        assert_eq!(set.rules().len(), 3);
    }
}
