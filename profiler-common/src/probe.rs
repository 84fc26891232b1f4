//! A probe as the programs see it: its identity, what an attach cookie says, and its counters.

use crate::{assert_layout, limits::MAX_PROBES};

/// Identity of a probe: a slot index in the low half and the slot's generation in the high half,
/// so that spans opened under an earlier use of the slot are never mistaken for the new one's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(transparent)]
pub struct ProbeId(pub u32);

const _: () = assert!(MAX_PROBES <= 1 << 16);

impl ProbeId {
    /// The id of slot `index` in its use number `generation`.
    #[must_use]
    pub const fn new(index: u16, generation: u16) -> Self {
        Self((generation as u32) << 16 | index as u32)
    }

    /// The slot.
    #[must_use]
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "inlined into eBPF")]
    pub const fn index(self) -> u32 {
        self.0 & 0xffff
    }
}

/// What an attach cookie carries: the probe, the site's entry in the action table, and flags.
///
/// ```text
/// bits 0..32   probe id      bits 32..56  site      bits 56..64  flags
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct Cookie(pub u64);

impl Cookie {
    /// The span's end is seen by a return probe of the kernel, not by probes on each `ret`.
    pub const RETURN_PROBE: u8 = 1;
    /// The target may switch stacks (fibers, `swapcontext`): open spans need not nest.
    pub const STACKS_SWITCH: u8 = 2;
    /// The site is a jump through a register or memory that may stay inside the function.
    pub const MAY_STAY_INSIDE: u8 = 4;
    /// The span is one call, from its instruction to the one behind: of an entry, the site is the instruction's length.
    pub const CALL_SITE: u8 = 8;
    /// The site is a jump that leaves the function: another returns in its place.
    pub const JUMP: u8 = 16;
    /// The span is of an inlined instance: it begins and ends within the frame that the stack pointer is of.
    pub const INLINED: u8 = 32;
    /// The site is a conditional jump that ends the span where it goes one way: the site's number is the condition's.
    pub const BRANCH: u8 = 64;
    /// The site is an entry that the function's own jumps lead back to: at the stack pointer of an open call, that goes on.
    pub const LOOPS: u8 = 128;
    /// Of an entry: the function ends in jumps to others, and its calls last until these return.
    pub const GOES_ON_ELSEWHERE: u8 = Self::JUMP;
    /// Of an exit: it is in another function, whose own callers come there too.
    pub const ELSEWHERE: u8 = Self::LOOPS;

    /// Packs a cookie. `site` is below [`crate::limits::MAX_SITES`].
    #[must_use]
    pub const fn new(probe: ProbeId, site: u32, flags: u8) -> Self {
        Self(probe.0 as u64 | ((site & 0x00ff_ffff) as u64) << 32 | (flags as u64) << 56)
    }

    /// The probe.
    #[must_use]
    #[inline(always)]
    #[allow(
        clippy::inline_always,
        clippy::cast_possible_truncation,
        reason = "inlined into eBPF; unpacking"
    )]
    pub const fn probe(self) -> ProbeId {
        ProbeId(self.0 as u32)
    }

    /// The site's index in the action table.
    #[must_use]
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "inlined into eBPF")]
    pub const fn site(self) -> u32 {
        (self.0 >> 32) as u32 & 0x00ff_ffff
    }

    /// The flags.
    #[must_use]
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "inlined into eBPF")]
    pub const fn flags(self) -> u8 {
        (self.0 >> 56) as u8
    }
}

/// Entries of a probe's page directory: [`crate::layout::PAGES`] rounded up to a power of two, so
/// that an index can be masked, which is what the verifier understands on every kernel.
pub const DIRECTORY: usize = 128;

const _: () = assert!(crate::layout::PAGES <= DIRECTORY);

/// A probe's slot: its counters, all incremented atomically, and its histogram's page directory.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ProbeSlot {
    /// Calls seen to begin.
    pub entries: u64,
    /// Spans that ended without returning: jumped over by `longjmp`, an exception, a thread's exit.
    pub abandoned: u64,
    /// Calls beyond the depth that is kept per thread, or that the kernel keeps return probes for.
    pub too_deep: u64,
    /// Ends without a beginning: spans that were open when the probe was added.
    pub unmatched: u64,
    /// Calls whose thread state could not be had, so that no span was opened.
    pub no_state: u64,
    /// Spans whose duration could not be counted because the page pool was exhausted.
    pub no_page: u64,
    /// Spans at least this long emit a record even where no sample hit them; `u64::MAX` for none.
    pub threshold_ns: u64,
    /// The slot's current id; spans of another id are of an earlier use.
    pub id: ProbeId,
    /// [`ProbeSlot::JOINED`], [`ProbeSlot::LOOKS`], [`ProbeSlot::FOLLOWS`], [`ProbeSlot::DECIDES`].
    pub flags: u32,
    /// Calls or hits while the gate of the step before was closed; they are nothing else's.
    pub outside: u64,
    /// Spans and hits that were too many in one span to wait for its duration.
    pub join_limit: u64,
    /// Spans that did not return what is asked.
    pub refused: u64,
    /// Spans of which it is not known what they returned, where that is asked.
    pub undecided: u64,
    /// Returns of functions that it ends in jumps to, in calls that others have made ([`Cookie::ELSEWHERE`]).
    pub passed_by: u64,
    /// `CLOCK_MONOTONIC`: the gate that it requires is of spans that began later.
    pub gate_since_ns: u64,
    /// The gate that has to be open: one bit; 0 for none.
    pub requires: u32,
    /// The gate that its spans open, or a hit in its parent; one bit, 0 for none.
    pub opens: u32,
    /// Page numbers plus one, by bucket / `PAGE_BUCKETS`; 0 where none is allocated.
    pub pages: [u32; DIRECTORY],
}

impl ProbeSlot {
    /// What it sees counts only where the duration of a span around it is as its scope asks, which is known when that
    /// ends.
    pub const JOINED: u32 = 1;
    /// Values are looked at where its spans begin, so that ends without a beginning say nothing.
    pub const LOOKS: u32 = 2;
    /// Where its spans return, values are read that are found by what they return.
    pub const FOLLOWS: u32 = 4;
    /// Its spans count only if they return what is asked, which is decided where they do.
    pub const DECIDES: u32 = 8;
}

assert_layout!(ProbeSlot, size 632,
    entries at 0, abandoned at 8, too_deep at 16, unmatched at 24, no_state at 32, no_page at 40,
    threshold_ns at 48, id at 56, flags at 60, outside at 64, join_limit at 72, refused at 80, undecided at 88,
    passed_by at 96, gate_since_ns at 104, requires at 112, opens at 116, pages at 120);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_cookie_unpacks_to_what_it_was_made_of(
            index in 0u16..4096, generation: u16, site in 0u32..1 << 24, flags: u8,
        ) {
            let probe = ProbeId::new(index, generation);
            let cookie = Cookie::new(probe, site, flags);
            prop_assert_eq!(cookie.probe(), probe);
            prop_assert_eq!(cookie.probe().index(), u32::from(index));
            prop_assert_eq!(cookie.site(), site);
            prop_assert_eq!(cookie.flags(), flags);
        }
    }
}
