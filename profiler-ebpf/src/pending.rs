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

use crate::{maps, plain::set};

/// Longest instruction of x86.
const MAX_INSTRUCTION_BYTES: u64 = 15;

/// A thread's pending return probes, while its stack is walked.
#[repr(C)]
pub struct Pending {
    /// The innermost `return_instance`; 0 where there is none.
    first: u64,
    /// The one that is expected next.
    next: u64,
    /// The address that replaces return addresses; 0 where nothing is pending.
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
            if first != 0 {
                let area = field(field(task, maps::mm_offset()), maps::xol_area_offset());
                trampoline = field(area, maps::xol_area_vaddr_offset());
            }
        }
        set!((*pending).first, first);
        set!((*pending).next, first);
        set!((*pending).trampoline, trampoline);
        set!((*pending).utask, utask);
    }
}

/// The instruction that the thread is at, where it executes a copy of it, or is on its way through the trampoline.
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
        // At the trampoline, or behind the breakpoint that is all of it.
        let trampoline = (*pending).trampoline;
        if trampoline != 0 && (ip == trampoline || ip == trampoline.wrapping_add(1)) {
            let mut search = Search {
                at: (*pending).first,
                slot: 0,
                trampoline,
                found: 0,
            };
            run(&mut search);
            return if search.found == 0 { ip } else { search.found };
        }
        let copy = field(utask, maps::xol_vaddr_offset());
        let past = ip.wrapping_sub(copy);
        if copy != 0 && past <= MAX_INSTRUCTION_BYTES {
            return field(utask, maps::vaddr_offset()).wrapping_add(past);
        }
        ip
    }
}

/// The return address of the stack slot, which holds `ip`: the one that a return probe replaced, if one did.
///
/// # Safety
/// `pending` is valid.
#[inline(never)]
pub unsafe fn return_address(pending: *mut Pending, slot: u64, ip: u64) -> u64 {
    // SAFETY: the caller's pointer is valid.
    unsafe {
        let trampoline = (*pending).trampoline;
        if trampoline == 0 || ip != trampoline {
            return ip;
        }
        // Frames are met innermost first, as the kernel lists them: but for other stacks, the next is the one.
        let mut search = Search {
            at: (*pending).next,
            slot,
            trampoline,
            found: 0,
        };
        run(&mut search);
        if search.found == 0 {
            search.at = (*pending).first;
            run(&mut search);
        }
        if search.found == 0 {
            return ip;
        }
        (*pending).next = search.at;
        search.found
    }
}

/// What the search for a stack slot's return probe carries along.
#[repr(C)]
struct Search {
    /// The `return_instance` to look at.
    at: u64,
    /// The stack slot; 0 for any.
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
    if search.slot != 0 && field(at, maps::instance_stack_offset()) != search.slot {
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
