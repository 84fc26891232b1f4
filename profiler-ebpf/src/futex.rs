//! What the current thread waits for in memory, by the system call that it is in.

use aya_ebpf::helpers::bpf_probe_read_kernel;

use crate::task;

/// Of `struct pt_regs`, part of x86-64's user ABI: its second and first argument, and the number of the system call.
#[repr(C)]
#[derive(Clone, Copy)]
struct Call {
    second: u64,
    first: u64,
    /// -1 outside of system calls.
    number: u64,
}

/// Offset of [`Call`].
const CALL_OFFSET: u64 = 104;

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
    let registers = task::user_registers() + CALL_OFFSET;
    // SAFETY: the helper checks the address.
    let Ok(call) = (unsafe { bpf_probe_read_kernel(registers as *const Call) }) else {
        return 0;
    };
    match call.number {
        FUTEX => {
            let operation = call.second & OPERATION;
            if operation < 64 && WAITING >> operation & 1 != 0 {
                call.first
            } else {
                0
            }
        }
        FUTEX_WAIT => call.first,
        FUTEX_WAITV if call.second == 1 => task::read_user(call.first + WAITV_ADDRESS).unwrap_or(0),
        _ => 0,
    }
}
