//! What the kernel's probes have done to a thread: return addresses that return probes replaced, of whatever
//! tool, and instructions that are executed elsewhere than they stand.
//!
//! Structures: `kernel/events/uprobes.c` and `include/linux/uprobes.h`; their offsets come from the kernel's BTF.

use core::ffi::c_void;

use aya_ebpf::helpers::{
    bpf_probe_read_kernel,
    generated::{bpf_get_current_task_btf, bpf_loop},
};
use profiler_common::limits::MAX_PENDING_RETURNS;

use crate::{maps, plain::set, task};

/// Longest instruction of x86.
const MAX_INSTRUCTION_BYTES: u64 = 15;

/// A thread's pending return probes, while its stack is walked.
#[repr(C)]
pub struct Pending {
    /// The innermost `return_instance`; 0 where there is none.
    first: u64,
    /// The one that is expected next.
    next: u64,
    /// The address that replaces return addresses; 0 where there is none.
    trampoline: u64,
    /// The thread's `uprobe_task`; 0 where it never met a probe.
    utask: u64,
}

/// Reads a word of the kernel's; 0 where that fails.
#[inline(always)]
fn word(address: u64) -> u64 {
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_kernel(address as *const u64) }.unwrap_or(0)
}

#[inline(always)]
fn field(structure: u64, offset: u32) -> u64 {
    word(structure.wrapping_add(u64::from(offset)))
}

/// Looks at what is pending for the current thread.
///
/// # Safety
/// `pending` is valid for writes.
#[inline(always)]
pub unsafe fn begin(pending: *mut Pending) {
    // SAFETY: the helper returns the current task, and the caller's pointer is valid.
    unsafe {
        let task = bpf_get_current_task_btf() as u64;
        let utask = field(task, maps::utask_offset());
        let mut first = 0;
        let mut trampoline = 0;
        if utask != 0 {
            first = field(utask, maps::return_instances_offset());
            let area = field(field(task, maps::mm_offset()), maps::xol_area_offset());
            if area != 0 {
                trampoline = field(area, maps::xol_area_vaddr_offset());
            }
        }
        set!((*pending).first, first);
        set!((*pending).next, first);
        set!((*pending).trampoline, trampoline);
        set!((*pending).utask, utask);
    }
}

/// The instruction that the thread is at, where it executes a copy of it.
///
/// # Safety
/// `pending` is valid.
#[inline(always)]
pub unsafe fn instruction_of(pending: *mut Pending, ip: u64) -> u64 {
    // SAFETY: the caller's pointer is valid.
    unsafe {
        let utask = (*pending).utask;
        if utask == 0 {
            return ip;
        }
        let copy = field(utask, maps::xol_vaddr_offset());
        let past = ip.wrapping_sub(copy);
        if copy != 0 && past <= MAX_INSTRUCTION_BYTES {
            return field(utask, maps::vaddr_offset()).wrapping_add(past);
        }
        ip
    }
}

/// The trampoline is a breakpoint, which is all of it. So it is before Linux 6.11.
const BREAKPOINT: u8 = 0xcc;

/// How the trampoline begins that makes a system call (`uretprobe_trampoline_entry` in `arch/x86/kernel/uprobes.c`):
/// `push rax; push rcx; push r11`, then `mov rax, NUMBER; syscall` from byte 4 to byte 13.
const PUSHES: u32 = 0x5341_5150;
/// What follows: `pop r11; pop rcx; ret`. The system call has put the return address in place of `rax`.
const POPS: u32 = 0xc359_5b41;
/// Where that is.
const AFTER_CALL: u64 = 13;
/// The trampoline's last instruction.
const LAST: u64 = 16;

/// The stack pointer of a thread that has left the trampoline but for that: at the end of the system call, the kernel
/// has it point to the three registers that the trampoline saved, a moment before it turns the instruction pointer back
/// to the trampoline as well.
///
/// # Safety
/// `pending` is valid.
#[inline(always)]
pub unsafe fn before_leaving(pending: *mut Pending, sp: u64, [r11, rcx, rax]: [u64; 3]) -> u64 {
    // SAFETY: the caller's pointer is valid.
    if unsafe { (*pending).trampoline } == 0 {
        return sp;
    }
    let holds = |word: u64, value: u64| task::read_user(sp.wrapping_add(8 * word)) == Some(value);
    if holds(0, r11) && holds(1, rcx) && holds(2, rax) {
        sp.wrapping_add(24)
    } else {
        sp
    }
}

/// Where a thread on its way through the trampoline will be when it is through.
pub struct Through {
    /// 0 where that is not to be had.
    pub ip: u64,
    pub sp: u64,
}

/// Sees a thread through the trampoline; `None` where it is elsewhere. `returned` is the value that it returns from
/// the probed function, if it is in the kernel now.
///
/// # Safety
/// `pending` is valid.
#[inline(always)]
pub unsafe fn through_trampoline(
    pending: *mut Pending,
    ip: u64,
    sp: u64,
    returned: Option<u64>,
) -> Option<Through> {
    // SAFETY: the caller's pointer is valid.
    unsafe {
        let trampoline = (*pending).trampoline;
        let past = ip.wrapping_sub(trampoline);
        if trampoline == 0 || past > LAST {
            return None;
        }
        let begins = task::read_user(trampoline).unwrap_or(0);
        let makes_call = begins as u32 == PUSHES;
        if !makes_call && begins as u8 != BREAKPOINT {
            return Some(Through { ip: 0, sp });
        }
        let pushed = match past {
            _ if !makes_call => 0,
            0..=2 => past,
            15 => 2,
            LAST => 1,
            _ => 3,
        };
        let slot = sp.wrapping_add(8 * pushed).wrapping_sub(8);
        let found = if past > AFTER_CALL {
            0
        } else {
            // While the kernel runs the handlers, the stack pointer is what it was in the function.
            let handling = sp.wrapping_sub(8);
            let found = find(pending, handling);
            if found != 0 {
                return Some(Through { ip: found, sp });
            }
            if slot == handling { 0 } else { find(pending, slot) }
        };
        let sp = slot.wrapping_add(8);
        if found != 0 || past < AFTER_CALL || !makes_call {
            return Some(Through { ip: found, sp });
        }
        // The kernel is done with it, and has put the return address where `rax` was, or is about to.
        let pops = task::read_user(trampoline.wrapping_add(AFTER_CALL)).unwrap_or(0) as u32;
        let ip = task::read_user(slot).unwrap_or(0);
        let is_rax = returned == Some(ip);
        let ip = if pops != POPS || is_rax { 0 } else { ip };
        Some(Through { ip, sp })
    }
}

/// Whether this stands for another address.
#[inline(always)]
pub fn is_trampoline(pending: &Pending, ip: u64) -> bool {
    pending.trampoline != 0 && ip == pending.trampoline
}

/// The return address of the stack slot, which holds `ip`: the one that a return probe replaced, if one did. 0 where
/// one did and the kernel has not noted yet which.
///
/// # Safety
/// `pending` is valid.
#[inline(never)]
pub unsafe fn return_address(pending: *mut Pending, slot: u64, ip: u64) -> u64 {
    // SAFETY: the caller's pointer is valid.
    unsafe {
        if !is_trampoline(&*pending, ip) {
            return ip;
        }
        find(pending, slot)
    }
}

/// Whether the kernel is just putting the trampoline's address in place of a return address: it may do so byte by byte,
/// and its last byte is the first. Of true return addresses, one in 256 looks alike.
#[inline(always)]
pub fn is_half_replaced(pending: &Pending, ip: u64) -> bool {
    pending.trampoline != 0 && ip != pending.trampoline && (ip ^ pending.trampoline) & 0xff == 0
}

/// The address that a return probe replaced in a stack slot; 0 where none did.
#[inline(never)]
unsafe fn find(pending: *mut Pending, slot: u64) -> u64 {
    // SAFETY: the caller's pointer is valid.
    unsafe {
        // Frames are met innermost first, as the kernel lists them: but for other stacks, the next is the one.
        let mut search = Search {
            at: (*pending).next,
            slot,
            trampoline: (*pending).trampoline,
            found: 0,
        };
        run(&mut search);
        if search.found == 0 {
            search.at = (*pending).first;
            run(&mut search);
        }
        if search.found != 0 {
            (*pending).next = search.at;
        }
        search.found
    }
}

/// What the search for a stack slot's return probe carries along.
#[repr(C)]
struct Search {
    /// The `return_instance` to look at.
    at: u64,
    /// The stack slot.
    slot: u64,
    trampoline: u64,
    /// The return address, 0 where none is found.
    found: u64,
}

#[inline(always)]
fn run(search: &mut Search) {
    // SAFETY: the callback takes a `Search`, which outlives the call.
    unsafe {
        bpf_loop(
            // Several probes of a function share a slot.
            2 * MAX_PENDING_RETURNS,
            look as *mut c_void,
            core::ptr::from_mut(search).cast(),
            0,
        )
    };
}

/// Looks at one return probe; stops at the right one.
unsafe extern "C" fn look(_index: u32, search: *mut c_void) -> i64 {
    // SAFETY: `run` passes a `Search`.
    let search = unsafe { &mut *search.cast::<Search>() };
    let at = search.at;
    if at == 0 {
        return 1;
    }
    search.at = field(at, maps::instance_next_offset());
    if field(at, maps::instance_stack_offset()) != search.slot {
        return 0;
    }
    let address = field(at, maps::instance_return_offset());
    // Where a second probe replaced what the first had put there, the first one knows.
    if address == search.trampoline {
        return 0;
    }
    search.found = address;
    1
}
