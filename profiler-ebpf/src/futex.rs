//! What the current thread waits for in memory, by the system call that it is in.

use crate::{field::long, task};

/// Offsets in `struct pt_regs`, part of x86-64's user ABI: of the second and first argument, and of the number of the system call, which is
/// -1 outside of such.
const SECOND_OFFSET: u32 = 104;
const FIRST_OFFSET: u32 = 112;
const NUMBER_OFFSET: u32 = 120;

const FUTEX: u64 = 202;
const FUTEX_WAITV: u64 = 449;
const FUTEX_WAIT: u64 = 455;

/// The operation, of `futex`'s second argument; the rest are flags.
const OPERATION: u64 = 0x7f;

/// Operations that wait: `FUTEX_WAIT`, `FUTEX_LOCK_PI`, `FUTEX_WAIT_BITSET`, `FUTEX_WAIT_REQUEUE_PI`, `FUTEX_LOCK_PI2`.
const WAITING: u64 = 1 | 1 << 6 | 1 << 9 | 1 << 11 | 1 << 13;

/// Offset of the address in `struct futex_waitv`.
const WAITV_ADDRESS: u64 = 8;

/// The address of the futex that the current thread waits for, as it sleeps; 0 where it waits for something else, or for
/// one of several.
#[inline(never)]
pub fn waited_for() -> u64 {
    let registers = task::user_registers();
    // SAFETY: the registers are the kernel's, as they are laid out there.
    let [number, first, second] =
        [NUMBER_OFFSET, FIRST_OFFSET, SECOND_OFFSET].map(|offset| unsafe { long(registers, offset) });
    match number {
        FUTEX => {
            let operation = second & OPERATION;
            if operation < 64 && WAITING >> operation & 1 != 0 {
                first
            } else {
                0
            }
        }
        FUTEX_WAIT => first,
        FUTEX_WAITV if second == 1 => task::read_user(first + WAITV_ADDRESS).unwrap_or(0),
        _ => 0,
    }
}
