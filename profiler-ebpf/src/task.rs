//! The current thread: its cookie, its open spans, its alternate signal stack.

use core::ffi::c_void;

use aya_ebpf::helpers::{
    bpf_probe_read_kernel, bpf_probe_read_user,
    generated::{bpf_get_attach_cookie, bpf_get_current_task_btf, bpf_task_pt_regs, bpf_task_storage_get},
};
use profiler_common::{probe::Cookie, thread::ThreadState};

use crate::{
    maps::{self, THREADS},
    registers,
};

/// The cookie that the daemon attached the program with.
#[inline(always)]
pub fn cookie(ctx: *mut c_void) -> Cookie {
    // SAFETY: `ctx` is the program's own context.
    Cookie(unsafe { bpf_get_attach_cookie(ctx) })
}

/// The current thread's open spans, if it has any state yet.
#[inline(always)]
pub fn state() -> Option<*mut ThreadState> {
    get(0)
}

/// The current thread's open spans, made if there are none yet.
#[inline(always)]
pub fn state_or_new() -> Option<*mut ThreadState> {
    const BPF_LOCAL_STORAGE_GET_F_CREATE: u64 = 1;
    get(BPF_LOCAL_STORAGE_GET_F_CREATE)
}

#[inline(always)]
fn get(flags: u64) -> Option<*mut ThreadState> {
    // SAFETY: the task is the current one, so it cannot vanish; the map is task storage.
    let state = unsafe {
        bpf_task_storage_get(
            maps::handle(&THREADS),
            bpf_get_current_task_btf(),
            core::ptr::null_mut(),
            flags,
        )
    };
    if state.is_null() { None } else { Some(state.cast()) }
}

/// The stack pointer that the thread has, or will have again, in user space.
#[inline(always)]
pub fn user_stack_pointer() -> Option<u64> {
    // SAFETY: the helper returns the current task's saved user registers, and the read is checked.
    unsafe {
        let registers = bpf_task_pt_regs(bpf_get_current_task_btf()) as u64;
        bpf_probe_read_kernel((registers + registers::SP_OFFSET) as *const u64).ok()
    }
}

/// Reads a word of the target's memory; `None` where it is not resident.
#[inline(always)]
pub fn read_user(address: u64) -> Option<u64> {
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_user(address as *const u64) }.ok()
}

/// Whether an address lies on the thread's alternate signal stack.
#[inline(never)]
pub fn on_alternate_stack(address: u64) -> bool {
    // SAFETY: the offsets are this kernel's, from its BTF; the reads are checked by the helper.
    unsafe {
        let task = bpf_get_current_task_btf() as u64;
        let start = bpf_probe_read_kernel((task + u64::from(maps::sas_ss_sp_offset())) as *const u64);
        let size = bpf_probe_read_kernel((task + u64::from(maps::sas_ss_size_offset())) as *const u64);
        address.wrapping_sub(start.unwrap_or(0)) < size.unwrap_or(0)
    }
}
