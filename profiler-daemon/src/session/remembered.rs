//! Stacks that were named before: the same come again and again, and most of a sample's cost was to name them anew.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use profiler_symbolize::{Generation, Groupings, Stacks};

use crate::kernel::Activity;

/// Words of addresses that are kept; then all stacks are named anew. Their names take less than that again.
const MAX_WORDS: usize = 1 << 19;

/// A stack by its addresses, as far as these are the same for the symbolizer.
#[derive(Default)]
pub struct Remembered {
    groupings: Groupings,
    /// By [`Self::address`]'s words. To hash them is most of what a stack takes that is known.
    stacks: HashMap<Box<[u64]>, Known, RandomState>,
    words: usize,
    /// Of the stack that is looked at.
    address: Vec<u64>,
}

struct Known {
    generation: Generation,
    stacks: Stacks,
    complete: bool,
}

impl Remembered {
    /// Turns to a stack, which is named in these groupings: its process and what the thread did there, its flags, and its
    /// addresses in the kernel and above.
    pub fn turn_to(
        &mut self,
        groupings: Groupings,
        (tgid, activity): (u32, Activity),
        flags: u16,
        kernel: &[u64],
        user: &[u64],
    ) {
        if groupings != self.groupings {
            self.forget();
            self.groupings = groupings;
        }
        self.address.clear();
        self.address.extend([
            u64::from(tgid) << 16 | u64::from(flags),
            (activity as u64) << 32 | kernel.len() as u64,
        ]);
        self.address.extend(kernel.iter().chain(user));
    }

    /// What the stack was named, if that still holds, and whether it is complete.
    pub fn get(&self, generation: Generation) -> Option<(Stacks, bool)> {
        let known = self.stacks.get(&*self.address)?;
        (known.generation == generation).then(|| (known.stacks.clone(), known.complete))
    }

    /// Remembers what the stack was named.
    pub fn keep(&mut self, generation: Generation, stacks: &Stacks, complete: bool) {
        if self.words + self.address.len() > MAX_WORDS {
            self.forget();
        }
        self.words += self.address.len();
        let known = Known {
            generation,
            stacks: stacks.clone(),
            complete,
        };
        if self
            .stacks
            .insert(self.address.as_slice().into(), known)
            .is_some()
        {
            self.words -= self.address.len();
        }
    }

    fn forget(&mut self) {
        self.stacks.clear();
        self.words = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use profiler_symbolize::{FrameId, Grouping, Symbolizer};

    fn stacks(frame: u32) -> Stacks {
        let groupings = [Grouping::Function].into_iter().collect();
        Stacks::make(groupings, |_| vec![FrameId(frame)])
    }

    #[test]
    fn a_stack_is_its_process_flags_and_addresses_in_one_generation() {
        let groupings: Groupings = [Grouping::Function].into_iter().collect();
        let mut symbolizer = Symbolizer::new();
        let own = std::process::id();
        let generation = symbolizer.generation(own, 0);
        let mut remembered = Remembered::default();
        remembered.turn_to(groupings, (own, Activity::OnCpu), 1, &[7], &[8, 9]);
        assert!(remembered.get(generation).is_none());
        remembered.keep(generation, &stacks(3), true);
        assert_eq!(remembered.get(generation), Some((stacks(3), true)));
        for (tgid, activity, flags, kernel, user) in [
            (own + 1, Activity::OnCpu, 1, &[7][..], &[8, 9][..]),
            (own, Activity::Sleeping, 1, &[7], &[8, 9]),
            (own, Activity::OnCpu, 0, &[7], &[8, 9]),
            (own, Activity::OnCpu, 1, &[], &[7, 8, 9]),
            (own, Activity::OnCpu, 1, &[7, 8], &[9]),
            (own, Activity::OnCpu, 1, &[7], &[8]),
        ] {
            remembered.turn_to(groupings, (tgid, activity), flags, kernel, user);
            assert!(remembered.get(generation).is_none());
        }
        remembered.turn_to(groupings, (own, Activity::OnCpu), 1, &[7], &[8, 9]);
        assert!(remembered.get(generation).is_some());
        // What is mapped may be read as before, or be forgotten and read anew.
        assert_eq!(symbolizer.generation(own, 1), generation);
        symbolizer.forget(own);
        assert!(remembered.get(symbolizer.generation(own, 2)).is_none());
    }

    #[test]
    fn other_groupings_and_too_many_stacks_are_named_anew() {
        let mut symbolizer = Symbolizer::new();
        let generation = symbolizer.generation(std::process::id(), 0);
        let mut remembered = Remembered::default();
        let groupings: Groupings = [Grouping::Function].into_iter().collect();
        remembered.turn_to(groupings, (1, Activity::OnCpu), 0, &[], &[5]);
        remembered.keep(generation, &stacks(3), true);
        let others: Groupings = [Grouping::Line].into_iter().collect();
        remembered.turn_to(others, (1, Activity::OnCpu), 0, &[], &[5]);
        assert!(remembered.get(generation).is_none());
        for address in 0..(MAX_WORDS / 50) as u64 {
            remembered.turn_to(others, (1, Activity::OnCpu), 0, &[], &[address; 100]);
            remembered.keep(generation, &stacks(3), true);
            assert!(remembered.get(generation).is_some());
            assert!(remembered.stacks.len() * 100 <= MAX_WORDS);
        }
    }
}
