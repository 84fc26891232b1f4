//! Atomic operations on map memory.
//!
//! A uprobe program can be preempted and run again by another thread, so even per-CPU counters lose
//! counts to a plain `+= 1`. Rust offers no atomics for this target: they are written as instructions.

use core::arch::asm;

/// Adds to a counter in a map.
///
/// # Safety
/// `counter` points to an aligned `u64` inside a map value, valid for the rest of the program.
#[inline(always)]
pub unsafe fn add(counter: *mut u64, value: u64) {
    // SAFETY: the caller's pointer is valid and aligned; the instruction touches nothing else.
    unsafe {
        asm!("lock *(u64 *)({counter} + 0) += {value}", counter = in(reg) counter, value = in(reg) value);
    }
}

/// Adds to a counter in a map and returns what it was.
///
/// # Safety
/// As for [`add`].
#[inline(always)]
pub unsafe fn fetch_add(counter: *mut u64, value: u64) -> u64 {
    let mut old = value;
    // SAFETY: as in `add`.
    unsafe {
        asm!("{old} = atomic_fetch_add((u64 *)({counter} + 0), {old})", counter = in(reg) counter, old = inout(reg) old);
    }
    old
}

/// Sets bits of a word in a map.
///
/// # Safety
/// `cell` points to an aligned `u32` inside a map value, valid for the rest of the program.
#[inline(always)]
pub unsafe fn set_bits(cell: *mut u32, bits: u32) {
    // SAFETY: as in `add`; only named registers have 32-bit names.
    unsafe {
        asm!("lock *(u32 *)(r1 + 0) |= w2", in("r1") cell, in("r2") u64::from(bits));
    }
}

/// Replaces `expected` by `new`; returns what was there.
///
/// # Safety
/// `cell` points to an aligned `u32` inside a map value, valid for the rest of the program.
#[inline(always)]
pub unsafe fn compare_exchange(cell: *mut u32, expected: u32, new: u32) -> u32 {
    let mut found = u64::from(expected);
    // SAFETY: as in `add`; r0 is the instruction's fixed operand, and only named registers have 32-bit names.
    unsafe {
        asm!("w0 = cmpxchg32_32(r1 + 0, w0, w2)", in("r1") cell, in("r2") u64::from(new), inout("r0") found);
    }
    found as u32
}

/// As [`compare_exchange`], for a `u64`.
///
/// # Safety
/// `cell` points to an aligned `u64` inside a map value, valid for the rest of the program.
#[inline(always)]
pub unsafe fn compare_exchange_long(cell: *mut u64, expected: u64, new: u64) -> u64 {
    let mut found = expected;
    // SAFETY: as in `add`; r0 is the instruction's fixed operand.
    unsafe {
        asm!("r0 = cmpxchg_64(r1 + 0, r0, r2)", in("r1") cell, in("r2") new, inout("r0") found);
    }
    found
}
