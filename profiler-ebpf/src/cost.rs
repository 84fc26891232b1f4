//! Costs that the kernel's tracepoints tell: what is given to block devices, and what a process's memory grows by.

use core::ffi::c_void;

use aya_ebpf::helpers::{
    bpf_probe_read_kernel,
    generated::{bpf_get_current_task, bpf_loop},
};
use profiler_common::{
    event::{BLOCK_BYTES, MAX_MERGED, MEMORY_GROWTH},
    settings::Sampling,
};

use crate::{
    admission,
    maps::{self, OPEN_BREAKS},
    off_cpu,
    sample::{self, About},
    task,
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

/// The current thread gives a `struct bio` to a block device: its bytes count.
#[inline(never)]
pub fn queue(ctx: *mut c_void, bio: u64) -> u32 {
    if !off_cpu::may_be_target(task::process()) || !sample::is_asked_for(Sampling::BLOCK_BYTES) {
        return 0;
    }
    let bytes = bytes_moved(bio);
    if bytes > 0 {
        let about = About {
            key: read(bio + u64::from(maps::bio_sector_offset())),
            space: device(bio),
        };
        sample::take_at_place(ctx, BLOCK_BYTES, bytes, about);
    }
    0
}

/// The current thread gives a `struct bio` to a block device: it is timed from here.
#[inline(never)]
pub fn begin(ctx: *mut c_void) -> u32 {
    let is_target = off_cpu::may_be_target(task::process()) && sample::is_asked_for(Sampling::BLOCK_LATENCY);
    let bio = argument(ctx, 0);
    if is_target && bytes_moved(bio) > 0 {
        sample::take_at_request(ctx, bio);
    }
    0
}

/// A device has done so many bytes of a `struct request`: ends those that it holds and that lie in these. Runs in an interrupt,
/// whoever is on the CPU.
#[inline(never)]
pub fn end_merged(ctx: *mut c_void) -> u32 {
    let request = argument(ctx, 0);
    let mut merged = Merged {
        bio: read(request + u64::from(maps::request_bio_offset())),
        bytes: argument(ctx, 2) & u64::from(u32::MAX),
    };
    // SAFETY: the callback takes a `Merged`, which outlives the call.
    unsafe { bpf_loop(MAX_MERGED, end_one as *mut c_void, (&raw mut merged).cast(), 0) };
    0
}

/// What is left of a request that is done.
struct Merged {
    /// The next that it holds.
    bio: u64,
    /// Bytes that are done, from there.
    bytes: u64,
}

const CONTINUE: i64 = 0;
const STOP: i64 = 1;

/// Ends one of them.
unsafe extern "C" fn end_one(_number: u64, merged: *mut Merged) -> i64 {
    // SAFETY: the caller of the loop gives a `Merged`.
    let merged = unsafe { &mut *merged };
    if merged.bio == 0 {
        return STOP;
    }
    let size = merged.bio + u64::from(maps::bio_size_offset());
    // SAFETY: the offset is this kernel's, from its BTF; the helper checks the address.
    let bytes = u64::from(unsafe { bpf_probe_read_kernel(size as *const u32) }.unwrap_or(0));
    if bytes > merged.bytes {
        return STOP;
    }
    merged.bytes -= bytes;
    sample::end_request(merged.bio);
    merged.bio = read(merged.bio + u64::from(maps::bio_next_offset()));
    CONTINUE
}

/// A block device that knows no requests has done what a `struct bio` asks for. Runs in an interrupt, whoever is on the CPU.
#[inline(never)]
pub fn end(ctx: *mut c_void) -> u32 {
    sample::end_request(argument(ctx, 1))
}

/// An argument of a tracepoint as a number, which may be sent: of one that was read in its place, the verifier knows that it is
/// an address.
#[inline(always)]
fn argument(ctx: *mut c_void, number: u64) -> u64 {
    read(ctx as u64 + number * 8)
}

/// The bytes that a `struct bio` reads or writes; 0 of others.
#[inline(always)]
fn bytes_moved(bio: u64) -> u64 {
    let read = |offset: u32| {
        // SAFETY: the offsets are this kernel's, from its BTF; the helper checks the address.
        unsafe { bpf_probe_read_kernel((bio + u64::from(offset)) as *const u32) }
    };
    match (read(maps::bio_operation_offset()), read(maps::bio_size_offset())) {
        (Ok(operation), Ok(bytes)) if matches!(operation & OPERATION, READ | WRITE) => u64::from(bytes),
        _ => 0,
    }
}

/// The number of the device that a `struct bio` is given to.
#[inline(always)]
fn device(bio: u64) -> u64 {
    let device = read(bio + u64::from(maps::bio_device_offset()));
    // SAFETY: the offset is this kernel's, from its BTF; the helper checks the address.
    let number =
        unsafe { bpf_probe_read_kernel((device + u64::from(maps::device_number_offset())) as *const u32) };
    number.map_or(0, u64::from)
}

/// A word of the kernel's memory; 0 where it cannot be read.
#[inline(always)]
fn read(address: u64) -> u64 {
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_kernel(address as *const u64) }.unwrap_or(0)
}

/// The current thread begins a system call: where that moves the end of its heap, this is remembered as it is now.
#[inline(never)]
pub fn enter(number: u64) -> u32 {
    if number == BRK
        && off_cpu::may_be_target(task::process())
        && !task::is_in_compat_call()
        && admission::is_admitted()
    {
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
    if !off_cpu::may_be_target(task::process()) || result >= ERRORS || !admission::is_admitted() {
        return 0;
    }
    let read = |offset: u64| read(registers + offset);
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
    if after > before && !task::is_in_compat_call() && sample::is_asked_for(Sampling::MEMORY_GROWTH) {
        let growth = after.wrapping_sub(before);
        sample::take_at_place(ctx, MEMORY_GROWTH, growth, About::NOTHING);
    }
    0
}
