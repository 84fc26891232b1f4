//! What taking stacks may take: a share of the time, and more at once where nothing was taken for long.

use profiler_common::limits::{STACK_BURST_NS, STACK_SHARE};

use crate::plain::set;

/// What was taken, less what was allowed since: as a time, which it reaches.
#[repr(transparent)]
pub struct Allowance(u64);

impl Allowance {
    /// Whether less was taken than may be.
    ///
    /// # Safety
    /// `this` is a live map value.
    #[inline(always)]
    pub unsafe fn is_left(this: *const Self, now_ns: u64) -> bool {
        // SAFETY: the caller's.
        unsafe { (*this).0 < now_ns.wrapping_add(STACK_BURST_NS * STACK_SHARE) }
    }

    /// Keeps what was taken from then until now.
    ///
    /// # Safety
    /// `this` is a live map value, and nobody else's meanwhile.
    #[inline(always)]
    pub unsafe fn charge(this: *mut Self, begun_ns: u64, now_ns: u64) {
        // SAFETY: the caller's.
        unsafe {
            let taken_until_ns = (*this).0;
            let from_ns = if taken_until_ns > now_ns {
                taken_until_ns
            } else {
                now_ns
            };
            let took_ns = now_ns.wrapping_sub(begun_ns).wrapping_mul(STACK_SHARE);
            set!((*this).0, from_ns.wrapping_add(took_ns));
        }
    }
}
