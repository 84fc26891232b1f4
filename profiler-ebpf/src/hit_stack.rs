//! The stack of a thread at a hit, walked by the tables that samples are walked by.
//!
//! The working memory is the thread's own, as that of values is: a uprobe program can be preempted.

use core::{ffi::c_void, ptr};

use aya_ebpf::helpers::generated::{bpf_get_current_pid_tgid, bpf_probe_read_kernel, bpf_ringbuf_output};
use profiler_common::{
    limits::MAX_USER_FRAMES,
    record::{STACK, SampleHeader, StackHeader},
};

use crate::{
    emit::BPF_RB_NO_WAKEUP,
    maps::{self, RING, TAKEN_STACKS},
    plain::set,
    registers::Registers,
    unwind::{self, Walk},
};

/// The longest record.
const RECORD_BYTES: usize = size_of::<StackHeader>() + MAX_USER_FRAMES * 8;

/// The record as it is put together, and the state of the walk.
#[repr(C)]
pub struct TakenStack {
    header: StackHeader,
    frames: [u64; MAX_USER_FRAMES],
    walk: Walk,
}

// From Linux 7.0 task storage has no room for more than 8 KiB.
const _: () = assert!(size_of::<TakenStack>() <= 7 * 1024);

/// Takes the current thread's stack, to be sent with its hit; whether its memory could be had.
///
/// Its parts are functions of their own for their share of the stack.
#[inline(never)]
pub fn take(ctx: *mut c_void) -> bool {
    let taken = TAKEN_STACKS.current_or_new();
    if taken.is_null() {
        return false;
    }
    // SAFETY: a live map value of this thread; `frames` has room for a walk.
    unsafe {
        if start(taken, ctx) {
            let (walk, out) = (&raw mut (*taken).walk, (&raw mut (*taken).frames).cast());
            // What the sampler of a CPU remembers is its own: it may interrupt this.
            unwind::run(walk, ptr::null_mut(), out);
        }
        finish(taken);
    }
    true
}

/// Sets the walk to where the thread is; whether there are tables to walk by. The first frame is certain in any case.
#[inline(never)]
unsafe fn start(taken: *mut TakenStack, ctx: *mut c_void) -> bool {
    // SAFETY: a live map value of this thread.
    unsafe {
        let here = Registers::new(ctx).instruction_pointer();
        set!((*taken).frames[0], here | SampleHeader::INTERRUPTED);
        let walk = &raw mut (*taken).walk;
        unwind::forget(walk);
        unwind::start(process(), walk, |walk| unwind::begin_at_probe(walk, ctx)).is_some()
    }
}

/// Writes down what came of the walk.
#[inline(never)]
unsafe fn finish(taken: *mut TakenStack) {
    // SAFETY: a live map value of this thread.
    unsafe {
        let walk = &raw mut (*taken).walk;
        let walked = unwind::walked(walk);
        // A thread that was preempted for long may have gone by tables that are others' by now.
        let (frames, flags) = if walked.frames > 0 && unwind::is_current(process(), walk) {
            (walked.frames as u16, walked.flags)
        } else {
            (1, SampleHeader::USER_TRUNCATED | SampleHeader::USER_NO_TABLE)
        };
        set!((*taken).header.frames, frames);
        set!((*taken).header.flags, flags);
    }
}

/// Copies the innermost frames of the stack that was taken last, at most so many; how many there are. What stands for it is
/// where the innermost function goes on, and not an instruction that was interrupted.
///
/// # Safety
/// `out` has room for them.
#[inline(always)]
pub unsafe fn copy(out: *mut u64, most: u32) -> u64 {
    let taken = TAKEN_STACKS.current();
    if taken.is_null() {
        return 0;
    }
    // SAFETY: a live map value of this thread; the caller's room.
    unsafe {
        if bpf_probe_read_kernel(out.cast(), most * 8, (&raw const (*taken).frames).cast()) != 0 {
            return 0;
        }
        set!(*out, *out & !SampleHeader::INTERRUPTED);
        let frames = u64::from((*taken).header.frames);
        if frames < u64::from(most) {
            frames
        } else {
            u64::from(most)
        }
    }
}

/// The current process, in the initial PID namespace.
#[inline(always)]
fn process() -> u32 {
    // SAFETY: the helper takes nothing.
    unsafe { (bpf_get_current_pid_tgid() >> 32) as u32 }
}

/// Sends the stack that was taken last; whether there was room for it.
#[inline(never)]
pub fn send(ts_ns: u64) -> bool {
    let taken = TAKEN_STACKS.current();
    if taken.is_null() {
        return false;
    }
    // SAFETY: a live map value of this thread; the length is bounded to the record.
    unsafe {
        let ids = bpf_get_current_pid_tgid();
        set!((*taken).header.kind, STACK);
        set!((*taken).header.tgid, (ids >> 32) as u32);
        set!((*taken).header.tid, ids as u32);
        set!((*taken).header.ts_ns, ts_ns);
        let mut length = size_of::<StackHeader>() as u64 + u64::from((*taken).header.frames) * 8;
        core::arch::asm!("if {0} <= 4120 goto +1", "{0} = 4120", inout(reg) length);
        bpf_ringbuf_output(maps::handle(&RING), taken.cast(), length, BPF_RB_NO_WAKEUP) == 0
    }
}

const _: () = assert!(RECORD_BYTES == 4120);
