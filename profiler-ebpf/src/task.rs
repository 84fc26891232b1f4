//! The current thread: its cookie, its open spans, its alternate signal stack.

use core::{ffi::c_void, ptr};

use aya_ebpf::{
    bindings::task_struct,
    helpers::{
        bpf_probe_read_kernel, bpf_probe_read_user,
        generated::{
            bpf_get_attach_cookie, bpf_get_current_pid_tgid, bpf_get_current_task, bpf_get_current_task_btf,
            bpf_map_update_elem, bpf_task_pt_regs,
        },
    },
};
use profiler_common::{probe::Cookie, thread::ThreadState};

use crate::{
    field::{long, word},
    maps::{self, HASHED_THREADS, NEW_THREAD, THREADS},
    registers,
};

/// The cookie that the daemon attached the program with.
#[inline(always)]
pub fn cookie(ctx: *mut c_void) -> Cookie {
    // SAFETY: `ctx` is the program's own context.
    Cookie(unsafe { bpf_get_attach_cookie(ctx) })
}

/// The current thread's id, in the initial PID namespace.
#[inline(always)]
pub fn id() -> u32 {
    // SAFETY: the helper takes nothing.
    unsafe { bpf_get_current_pid_tgid() as u32 }
}

/// The current thread's process, in the initial PID namespace.
#[inline(always)]
pub fn process() -> u32 {
    // SAFETY: the helper takes nothing.
    (unsafe { bpf_get_current_pid_tgid() } >> 32) as u32
}

/// A thread's id, in the initial PID namespace. `task` is its `task_struct`, as a tracepoint gives it.
#[inline(always)]
pub fn id_of(task: *mut c_void) -> u32 {
    // SAFETY: the offset is this kernel's, from its BTF; the verifier checks that a number is there.
    unsafe { *task.cast::<u8>().add(maps::pid_offset() as usize).cast::<u32>() }
}

/// How often a thread has left the CPU: a departure that is kept of it is its last one where this is the same. `task` as of
/// [`id_of`].
#[inline(always)]
pub fn departures_of(task: *mut c_void) -> u64 {
    let task = task.cast::<u8>();
    // SAFETY: as in `id_of`.
    unsafe {
        let waits = *task.add(maps::waits_offset() as usize).cast::<u64>();
        waits.wrapping_add(*task.add(maps::preemptions_offset() as usize).cast::<u64>())
    }
}

/// The same of the current thread.
#[inline(always)]
pub fn departures() -> u64 {
    // SAFETY: the helper returns the current task.
    departures_of(unsafe { bpf_get_current_task_btf() }.cast())
}

/// Whether the return of one of the kernel's functions that the current thread is in is awaited, by whomever.
#[inline(always)]
pub fn awaits_kernel_return() -> bool {
    let offset = maps::rethooks_offset();
    if offset == 0 {
        return false;
    }
    // SAFETY: the helper returns the current task; the offset as in `id_of`, of a pointer.
    let first = unsafe {
        let task: *const u8 = bpf_get_current_task_btf().cast();
        task.add(offset as usize).cast::<u64>().read()
    };
    first != 0
}

/// What tells the current thread from all others while it lives: where its `task_struct` is.
#[inline(always)]
pub fn address() -> u64 {
    // SAFETY: the helper takes nothing.
    unsafe { bpf_get_current_task() }
}

/// Whether the system call that the current thread is in is one of the 32-bit interface.
#[inline(always)]
pub fn is_in_compat_call() -> bool {
    const TS_COMPAT: u32 = 2;
    // SAFETY: the task is the current one; the offset is this kernel's, from its BTF.
    let status = unsafe { word(bpf_get_current_task_btf().cast(), maps::status_offset()) };
    status & TS_COMPAT != 0
}

/// The same of a thread's process.
#[inline(always)]
pub fn process_of(task: *mut c_void) -> u32 {
    // SAFETY: as in `id_of`.
    unsafe { *task.cast::<u8>().add(maps::tgid_offset() as usize).cast::<u32>() }
}

/// The current thread's open spans, if it has any state yet.
#[inline(always)]
pub fn state() -> Option<*mut ThreadState> {
    state_of(id())
}

/// As [`state`], for a thread that has just changed its id.
#[inline(always)]
pub fn state_of(thread: u32) -> Option<*mut ThreadState> {
    stored_state().or_else(|| HASHED_THREADS.get_ptr_mut(thread))
}

/// The same, and only where they are in the thread's own storage: what is kept there is of no other thread, ever.
#[inline(always)]
pub fn stored_state() -> Option<*mut ThreadState> {
    present(THREADS.current())
}

/// The same, of the current task.
#[inline(always)]
pub fn stored_state_of(current: *mut task_struct) -> Option<*mut ThreadState> {
    present(THREADS.of(current))
}

/// The current thread's open spans, made if there are none yet.
#[inline(always)]
pub fn state_or_new() -> Option<*mut ThreadState> {
    stored_state().or_else(|| present(new_state()))
}

/// Makes the thread's state: in task storage, or where the kernel is too busy for that, in the hash map.
/// A thread stays where it began.
#[inline(never)]
fn new_state() -> *mut ThreadState {
    const BPF_NOEXIST: u64 = 1;
    let thread = id();
    if let Some(state) = HASHED_THREADS.get_ptr_mut(thread) {
        return state;
    }
    if let Some(state) = present(THREADS.current_or_new()) {
        return state;
    }
    let Some(empty) = NEW_THREAD.get_ptr_mut(0) else {
        return ptr::null_mut();
    };
    // SAFETY: key and value are as large as the map says.
    unsafe {
        bpf_map_update_elem(
            maps::handle(&HASHED_THREADS),
            (&raw const thread).cast_mut().cast(),
            empty.cast(),
            BPF_NOEXIST,
        )
    };
    HASHED_THREADS.get_ptr_mut(thread).unwrap_or(ptr::null_mut())
}

/// Forgets the state of a thread that is gone. Task storage goes with its task.
#[inline(always)]
pub fn forget(thread: u32) {
    // Nothing to be done where there is none, which is nearly always so.
    let _ = HASHED_THREADS.remove(thread);
}

#[inline(always)]
fn present(state: *mut ThreadState) -> Option<*mut ThreadState> {
    if state.is_null() { None } else { Some(state) }
}

/// Where the thread's user registers are, as `struct pt_regs`: those it has, or will have again, in user space.
#[inline(always)]
pub fn user_registers() -> *mut c_void {
    // SAFETY: the task is the current one.
    unsafe { bpf_task_pt_regs(bpf_get_current_task_btf()) as *mut c_void }
}

/// The stack pointer that the thread has, or will have again, in user space.
#[inline(always)]
pub fn user_stack_pointer() -> u64 {
    // SAFETY: the registers are the kernel's, laid out as part of x86-64's user ABI.
    unsafe { long(user_registers(), registers::SP_OFFSET) }
}

/// Reads a word of the target's memory; `None` where it is not resident.
#[inline(always)]
pub fn read_user(address: u64) -> Option<u64> {
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_user(address as *const u64) }.ok()
}

/// Reads 1, 2, 4 or 8 bytes of the target's memory, zero-extended; `None` where they are not resident.
#[inline(always)]
pub fn read_user_bytes(address: u64, size: u8) -> Option<u64> {
    // SAFETY: the helper checks the address.
    unsafe {
        match size {
            1 => bpf_probe_read_user(address as *const u8).map(u64::from),
            2 => bpf_probe_read_user(address as *const u16).map(u64::from),
            4 => bpf_probe_read_user(address as *const u32).map(u64::from),
            _ => bpf_probe_read_user(address as *const u64),
        }
    }
    .ok()
}

/// As [`read_user_bytes`], of the kernel's memory.
#[inline(always)]
pub fn read_kernel_bytes(address: u64, size: u8) -> Option<u64> {
    // SAFETY: the helper checks the address.
    unsafe {
        match size {
            1 => bpf_probe_read_kernel(address as *const u8).map(u64::from),
            2 => bpf_probe_read_kernel(address as *const u16).map(u64::from),
            4 => bpf_probe_read_kernel(address as *const u32).map(u64::from),
            _ => bpf_probe_read_kernel(address as *const u64),
        }
    }
    .ok()
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
