//! Rules that were found a while ago: the same return addresses lie on most stacks of a program.

use super::Process;
use crate::assert_layout;

/// Places for them: a power of two, so that an index can be masked.
pub const RECENT: usize = 1 << 10;

/// An address and its rule, as they were looked up.
///
/// It holds for as long as the process's mappings are the same, which [`Process::generation`] tells.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Recent {
    /// The process's; 0 where there is nothing.
    generation: u64,
    /// The address's lower 48 bits, and in the lowest 16 the index of the rule.
    address_and_rule: u64,
}

assert_layout!(Recent, size 16, generation at 0, address_and_rule at 8);

impl Recent {
    /// What was found; `None` for the address of no program, which a damaged stack may hold.
    #[inline(always)]
    #[must_use]
    #[allow(clippy::inline_always, reason = "inlined into eBPF")]
    pub const fn new(process: &Process, address: u64, rule: u16) -> Option<Self> {
        if address >> 48 == 0 {
            Some(Self {
                generation: process.generation,
                address_and_rule: address << 16 | rule as u64,
            })
        } else {
            None
        }
    }

    /// Its place, below [`RECENT`]. Of addresses that are close together, none share one.
    #[inline(always)]
    #[must_use]
    #[allow(
        clippy::inline_always,
        clippy::cast_possible_truncation,
        reason = "inlined into eBPF; masked"
    )]
    pub const fn place(address: u64) -> usize {
        // Return addresses differ in any of the low bits, modules in the higher ones.
        (address ^ address >> 10 ^ address >> 20) as usize & (RECENT - 1)
    }

    /// The index of the address's rule, where this is what was found.
    #[inline(always)]
    #[must_use]
    #[allow(
        clippy::inline_always,
        clippy::cast_possible_truncation,
        reason = "inlined into eBPF; the lower half"
    )]
    pub const fn rule(&self, process: &Process, address: u64) -> Option<u16> {
        if self.generation == process.generation && self.address_and_rule >> 16 == address {
            Some(self.address_and_rule as u16)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const fn process(generation: u64) -> Process {
        Process {
            first_mapping: 0,
            mappings: 0,
            generation,
        }
    }

    proptest! {
        #[test]
        fn only_what_was_kept_is_found(address: u64, other: u64, rule: u16, generation in 1u64.., later in 1u64..) {
            let recent = Recent::new(&process(generation), address, rule);
            prop_assert_eq!(recent.is_none(), address >> 48 != 0);
            let recent = recent.unwrap_or_default();
            let expected = |of: u64, at: u64| (of == generation && at == address && address >> 48 == 0).then_some(rule);
            prop_assert_eq!(recent.rule(&process(generation), address), expected(generation, address));
            prop_assert_eq!(recent.rule(&process(later), address), expected(later, address));
            prop_assert_eq!(recent.rule(&process(generation), other), expected(generation, other));
            prop_assert_eq!(Recent::default().rule(&process(generation), other), None);
            prop_assert!(Recent::place(address) < RECENT);
        }
    }

    #[test]
    fn neighbours_have_places_of_their_own() {
        let start = 0x7f12_3456_7000;
        let places: BTreeSet<usize> = (start..start + RECENT as u64).map(Recent::place).collect();
        assert_eq!(places.len(), RECENT);
    }
}
