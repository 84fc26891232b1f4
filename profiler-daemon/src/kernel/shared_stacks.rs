//! Stacks that are sent once and named by their id from then on: of threads off the CPU, of who woke them, of who makes
//! system calls.

use std::{collections::HashMap, sync::Arc};

use profiler_common::{
    limits::{MAX_SHARED_STACKS, shared_stack_place},
    record::{SHARED_STACK, SharedStackHeader},
};

use super::ring::{Reader, UserStack};

/// A stack that intervals share.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SharedStack {
    /// Its name: of equal numbers, equal stacks of the same process.
    pub id: u64,
    /// Kernel addresses, innermost first.
    pub kernel: Vec<u64>,
    /// The part in user space.
    pub user: UserStack,
}

/// Stacks that were used of late and may be forgotten, in each of two generations.
const MAX_RECENT: usize = MAX_SHARED_STACKS as usize / 2;

/// Stacks that were sent, for the intervals that name them.
#[derive(Default)]
pub(super) struct SharedStacks {
    /// Those that the programs may name without sending them again, by their place.
    current: HashMap<u32, Kept>,
    /// Those whose place another took, by their id: intervals that are under way may name them, and programs on two CPUs that
    /// took a place at once may have left the other one there.
    recent: HashMap<u64, Kept>,
    /// The same, that were not used since there were [`MAX_RECENT`] of the others.
    before: HashMap<u64, Kept>,
}

/// A stack, and the id of the one whose user's part it is still to be given; 0, which is nobody's, where there is none.
#[derive(Clone)]
struct Kept {
    stack: Arc<SharedStack>,
    user_of: u64,
}

impl SharedStacks {
    /// Keeps a stack; whether these bytes are one.
    pub fn keep(&mut self, bytes: &[u8]) -> bool {
        let Some((stack, user_of)) = parse_stack(bytes) else {
            return false;
        };
        let id = stack.id;
        let kept = self.completed(Kept {
            stack: Arc::new(stack),
            user_of,
        });
        let displaced = self.current.insert(shared_stack_place(id), kept);
        if let Some(displaced) = displaced.filter(|displaced| displaced.stack.id != id) {
            self.keep_recent(displaced);
        }
        true
    }

    fn keep_recent(&mut self, kept: Kept) {
        if self.recent.len() >= MAX_RECENT {
            self.before = std::mem::take(&mut self.recent);
        }
        self.recent.insert(kept.stack.id, kept);
    }

    /// With its user's part, if that has come by now.
    fn completed(&self, kept: Kept) -> Kept {
        let Some(whole) = self.find(kept.user_of) else {
            return kept;
        };
        let stack = SharedStack {
            user: whole.stack.user.clone(),
            ..SharedStack::clone(&kept.stack)
        };
        Kept {
            stack: Arc::new(stack),
            user_of: 0,
        }
    }

    fn find(&self, id: u64) -> Option<&Kept> {
        let current = self.current.get(&shared_stack_place(id));
        current
            .filter(|kept| kept.stack.id == id)
            .or_else(|| self.recent.get(&id))
            .or_else(|| self.before.get(&id))
    }

    /// The stack of a number, if it was sent and is not forgotten.
    pub fn get(&self, id: u64) -> Option<Arc<SharedStack>> {
        let kept = self.find(id)?;
        if kept.user_of == 0 {
            return Some(Arc::clone(&kept.stack));
        }
        Some(self.completed(kept.clone()).stack)
    }

    /// The same, which is used by that.
    pub fn take(&mut self, id: u64) -> Option<Arc<SharedStack>> {
        if let Some(kept) = self.before.remove(&id) {
            self.keep_recent(kept);
        }
        self.get(id)
    }
}

/// A stack, and the one whose user's part it has, or 0.
fn parse_stack(bytes: &[u8]) -> Option<(SharedStack, u64)> {
    let mut reader = Reader(bytes);
    // Field by field, in the order of `SharedStackHeader`, whose offsets are asserted.
    if reader.u32()? != SHARED_STACK {
        return None;
    }
    let (_tgid, id) = (reader.u32()?, reader.u64()?);
    let (kernel, user, flags, _zero) = (reader.u16()?, reader.u16()?, reader.u16()?, reader.u16()?);
    let user_of = reader.u64()?;
    let kernel = (0..kernel).map(|_| reader.u64()).collect::<Option<_>>()?;
    let addresses = (0..user).map(|_| reader.u64()).collect::<Option<_>>()?;
    let user = if user_of == 0 {
        UserStack { addresses, flags }
    } else {
        UserStack::MISSING
    };
    Some((SharedStack { id, kernel, user }, user_of))
}

const _: () = assert!(size_of::<SharedStackHeader>() == 32);

#[cfg(test)]
mod tests {
    use profiler_common::record::SampleHeader;

    use super::*;

    /// A record of a stack.
    fn record(id: u64, kernel: &[u64], user: &[u64], flags: u16, user_of: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend([SHARED_STACK, 7].map(u32::to_ne_bytes).concat());
        bytes.extend(id.to_ne_bytes());
        let lengths = [kernel, user].map(|part| u16::try_from(part.len()).unwrap());
        bytes.extend([lengths[0], lengths[1], flags, 0].map(u16::to_ne_bytes).concat());
        for word in [user_of].iter().chain(kernel).chain(user) {
            bytes.extend(word.to_ne_bytes());
        }
        bytes
    }

    #[test]
    fn a_kernel_part_that_came_later_has_the_user_part_that_came_before() {
        let mut stacks = SharedStacks::default();
        let complete = SampleHeader::USER_COMPLETE;
        assert!(stacks.keep(&record(3, &[], &[10, 11], complete, 0)));
        assert!(stacks.keep(&record(5, &[20], &[], 0, 3)));
        let user = UserStack {
            addresses: vec![10, 11],
            flags: complete,
        };
        let whole = stacks.get(5).unwrap();
        assert_eq!((&*whole.kernel, &whole.user), (&[20][..], &user));
        assert!(stacks.get(3).unwrap().kernel.is_empty());
        // That has been forgotten, until it is sent again.
        assert!(stacks.keep(&record(9, &[20], &[], 0, 7)));
        assert_eq!(stacks.get(9).unwrap().user, UserStack::MISSING);
        assert!(stacks.keep(&record(7, &[], &[10, 11], complete, 0)));
        assert_eq!(stacks.get(9).unwrap().user, user);
        assert!(!stacks.keep(&record(11, &[20], &[], 0, 3)[..31]));
    }

    /// The id of a stack at a place.
    fn id(place: u32, turn: u64) -> u64 {
        turn << 32 | u64::from(place) << 1 | 1
    }

    #[test]
    fn stacks_are_kept_while_the_programs_may_name_them() {
        let mut stacks = SharedStacks::default();
        let first = id(0, 0);
        assert!(stacks.keep(&record(first, &[1], &[], 0, 0)));
        // All other places, several times over.
        for turn in 1..5 {
            for place in 1..MAX_SHARED_STACKS {
                assert!(stacks.keep(&record(id(place, turn), &[1], &[], 0, 0)));
            }
        }
        assert!(stacks.take(first).is_some());
        let kept = [stacks.recent.len(), stacks.before.len(), stacks.current.len()];
        assert!(kept[0] <= MAX_RECENT && kept[1] <= MAX_RECENT && kept[2] <= MAX_SHARED_STACKS as usize);
        assert_eq!(stacks.get(id(1, 1)), None, "nobody has used it for long");
    }

    #[test]
    fn stacks_that_share_a_place_are_kept_while_they_are_used() {
        let mut stacks = SharedStacks::default();
        // Two of them, each of which is sent again as the other took its place.
        for _ in 0..=2 * MAX_RECENT {
            for turn in [1, 2] {
                assert!(stacks.keep(&record(id(7, turn), &[1], &[], 0, 0)));
            }
        }
        assert!(stacks.recent.len() + stacks.before.len() <= 2);
        // And one that is used, among others that come and go.
        for turn in 3..4 * MAX_RECENT as u64 {
            assert!(stacks.keep(&record(id(7, turn), &[1], &[], 0, 0)));
            assert!(stacks.take(id(7, 1)).is_some(), "{turn}");
        }
        assert!(stacks.take(id(7, 3)).is_none());
    }
}
