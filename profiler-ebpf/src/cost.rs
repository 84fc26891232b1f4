//! Costs that the kernel's tracepoints tell: what is given to block devices, and what a process's memory grows by.

use core::ffi::c_void;

use aya_ebpf::helpers::{bpf_probe_read_kernel, generated::bpf_get_current_task};
use profiler_common::{
    event::{BLOCK_BYTES, MEMORY_GROWTH},
    settings::Sampling,
};

use crate::{
    maps::{self, OPEN_BREAKS},
    off_cpu, sample, task,
};

/// Operations of a `struct bio` that move data: the lower bits of its `bi_opf`.
const OPERATION: u32 = 0xff;
const READ: u32 = 0;
const WRITE: u32 = 1;

/// System calls that give a process memory, by their numbers on x86-64.
const MMAP: u64 = 9;
const BRK: u64 = 12;
const MREMAP: u64 = 25;

/// Offsets of arguments and number in `struct pt_regs`.
const RDX_OFFSET: u64 = 96;
const RSI_OFFSET: u64 = 104;
const ORIGINAL_AX_OFFSET: u64 = 120;

const PAGE: u64 = 4096;

/// Results from here on are errors.
const ERRORS: u64 = 4095_u64.wrapping_neg();

/// The current thread gives a `struct bio` to a block device.
#[inline(never)]
pub fn queue(ctx: *mut c_void, bio: u64) -> u32 {
    if !off_cpu::may_be_target(task::process()) {
        return 0;
    }
    let read = |offset: u32| {
        // SAFETY: the offsets are this kernel's, from its BTF; the helper checks the address.
        unsafe { bpf_probe_read_kernel((bio + u64::from(offset)) as *const u32) }
    };
    let (Ok(operation), Ok(bytes)) = (read(maps::bio_operation_offset()), read(maps::bio_size_offset()))
    else {
        return 0;
    };
    if bytes > 0 && matches!(operation & OPERATION, READ | WRITE) {
        sample::take_at_place(ctx, BLOCK_BYTES, Sampling::BLOCK_BYTES, u64::from(bytes));
    }
    0
}

/// The current thread begins a system call: where that moves the end of its heap, this is remembered as it is now.
#[inline(never)]
pub fn enter(number: u64) -> u32 {
    if number == BRK && off_cpu::may_be_target(task::process()) && !task::is_in_compat_call() {
        // SAFETY: the offsets are this kernel's, from its BTF; the helpers check the addresses.
        let end = unsafe {
            let memory = bpf_get_current_task() + u64::from(maps::mm_offset());
            bpf_probe_read_kernel(memory as *const u64).and_then(|memory| {
                bpf_probe_read_kernel((memory + u64::from(maps::brk_offset())) as *const u64)
            })
        };
        if let Ok(end) = end
            && OPEN_BREAKS.insert(task::id(), &end, 0).is_err()
        {
            sample::count_limited(MEMORY_GROWTH);
        }
    }
    0
}

/// The current thread is about to return from a system call. `registers` is its `struct pt_regs`.
#[inline(never)]
pub fn exit(ctx: *mut c_void, registers: u64, result: u64) -> u32 {
    if !off_cpu::may_be_target(task::process()) || result >= ERRORS {
        return 0;
    }
    let read = |offset: u64| {
        // SAFETY: the helper checks the address.
        unsafe { bpf_probe_read_kernel((registers + offset) as *const u64) }.unwrap_or(0)
    };
    let pages = |bytes: u64| bytes.wrapping_add(PAGE - 1) & !(PAGE - 1);
    let (before, after) = match read(ORIGINAL_AX_OFFSET) {
        MMAP => (0, read(RSI_OFFSET)),
        MREMAP => (read(RSI_OFFSET), read(RDX_OFFSET)),
        BRK => {
            let thread = task::id();
            // SAFETY: the value is copied at once; it is this thread's own.
            let Some(before) = (unsafe { OPEN_BREAKS.get(&thread).copied() }) else {
                return 0;
            };
            // There is nothing to be done where it was removed meanwhile.
            let _ = OPEN_BREAKS.remove(thread);
            (before, result)
        }
        _ => return 0,
    };
    let (before, after) = (pages(before), pages(after));
    if after > before && !task::is_in_compat_call() {
        let growth = after.wrapping_sub(before);
        sample::take_at_place(ctx, MEMORY_GROWTH, Sampling::MEMORY_GROWTH, growth);
    }
    0
}
