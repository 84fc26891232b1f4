//! What a target allocates, by where: so that data on a heap can be told by who made it.

/// Frames that are kept of an allocation's stack, from the innermost on.
pub const ALLOCATION_FRAMES: usize = 24;

/// Which parameters of an allocator's function say what: the cookie of a probe at it. Parameters count from 1; 0 for none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AllocationSite(pub u64);

impl AllocationSite {
    /// A function that allocates, or frees where it has no `size`: `size` bytes, `times` as many where that is a parameter. It
    /// frees what `old` points at, and writes where the memory is to where `out` points, if it does not return that.
    #[must_use]
    pub const fn new(watch: u32, [size, times, old, out]: [u8; 4]) -> Self {
        let parameters = size as u64 | (times as u64) << 8 | (old as u64) << 16 | (out as u64) << 24;
        Self(parameters | (watch as u64) << 32)
    }

    /// Of how many bytes; 0 of a function that only frees.
    #[must_use]
    pub const fn size(self) -> u8 {
        self.0.to_le_bytes()[0]
    }

    /// How many times as many.
    #[must_use]
    pub const fn times(self) -> u8 {
        self.0.to_le_bytes()[1]
    }

    /// What is freed.
    #[must_use]
    pub const fn old(self) -> u8 {
        self.0.to_le_bytes()[2]
    }

    /// Where the address is written to.
    #[must_use]
    pub const fn out(self) -> u8 {
        self.0.to_le_bytes()[3]
    }

    /// Who wants to know: [`AllocationKey::watch`].
    #[must_use]
    pub const fn watch(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// A piece of memory.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AllocationKey {
    /// Who wants to know of it, in one process: a number that is used once.
    pub watch: u64,
    /// Where it begins.
    pub address: u64,
}

/// What is known of it.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allocation {
    /// In bytes, as asked for.
    pub size: u64,
    /// Of `stack` those that are used.
    pub frames: u64,
    /// Return addresses, innermost first: the first is where the allocator was called.
    pub stack: [u64; ALLOCATION_FRAMES],
}

/// How often the functions of a watched allocator were called, and what that took beside the probes themselves.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct AllocatorCounts {
    /// Calls of those that allocate.
    pub allocations: u64,
    /// Calls of those that only free.
    pub frees: u64,
    /// What the stacks of those that allocate took, in nanoseconds: a millisecond each at most, as one that takes longer was preempted.
    pub stacks_ns: u64,
}

crate::assert_layout!(AllocatorCounts, size 24, allocations at 0, frees at 8, stacks_ns at 16);
crate::assert_layout!(AllocationKey, size 16, watch at 0, address at 8);
crate::assert_layout!(Allocation, size 208, size at 0, frames at 8, stack at 16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_says_what_it_was_made_of() {
        let site = AllocationSite::new(u32::MAX, [4, 3, 2, 1]);
        assert_eq!([site.size(), site.times(), site.old(), site.out()], [4, 3, 2, 1]);
        assert_eq!(site.watch(), u32::MAX);
        let free = AllocationSite::new(7, [0, 0, 1, 0]);
        assert_eq!((free.size(), free.old(), free.watch()), (0, 1, 7));
    }
}
