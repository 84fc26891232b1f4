//! Limits of so many a second, shared by all CPUs.

use crate::atomic;

/// Whether one more may be taken at `now_ns`, which then counts against the limit of one in `interval_ns` (generic cell
/// rate algorithm): `next_ns` says when the next one is due, and may be `burst_ns` ahead. CPUs that come at once do not
/// take each other's turns.
///
/// # Safety
/// `next_ns` points to an aligned `u64` inside a map value, valid for the rest of the program.
#[inline(always)]
pub unsafe fn takes_turn(next_ns: *mut u64, interval_ns: u64, burst_ns: u64, now_ns: u64) -> bool {
    // SAFETY: the caller's.
    unsafe {
        let next = next_ns.read_volatile();
        if next < now_ns {
            atomic::compare_exchange_long(next_ns, next, now_ns);
        }
        let is_within = atomic::fetch_add(next_ns, interval_ns) <= now_ns.wrapping_add(burst_ns);
        if !is_within {
            atomic::add(next_ns, interval_ns.wrapping_neg());
        }
        is_within
    }
}
