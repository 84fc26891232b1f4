//! Stacks that are taken often, at few places: equal ones are sent once, and named by their hash.
//!
//! What they take is bounded to a part of each CPU. Who takes them has its own scratch on each CPU, which nothing that
//! uses the same interrupts.

use core::{ffi::c_void, ptr};

use aya_ebpf::helpers::{
    bpf_ktime_get_ns,
    generated::{bpf_get_current_pid_tgid, bpf_loop, bpf_ringbuf_output},
};
use profiler_common::{
    limits::{MAX_SHARED_STACKS, MAX_USER_FRAMES, shared_stack_place},
    record::{SHARED_STACK, SampleHeader, SharedStackHeader},
};

use crate::{
    allowance::Allowance,
    emit::BPF_RB_NO_WAKEUP,
    maps::{self, RING, SHARED_STACKS, UNWIND_RECENT},
    plain::set,
    stack::{self, Part},
    unwind::{self, Walk},
};

/// Words of the longest stack; a power of two, so that an index can be masked.
const STACK_WORDS: usize = 1024;

const _: () = assert!(stack::WALK_BYTES / 8 + MAX_USER_FRAMES <= STACK_WORDS);
const _: () = assert!(MAX_SHARED_STACKS.is_power_of_two());

/// The record as it is put together, and the state of the walk.
#[repr(C)]
pub struct StackScratch {
    record: StackRecord,
    /// Words of the stack, while they are hashed.
    words: u64,
    /// The hash of those that were looked at.
    hash: u64,
    /// What stacks may take of this CPU.
    allowance: Allowance,
    walk: Walk,
}

#[repr(C)]
struct StackRecord {
    header: SharedStackHeader,
    words: [u64; STACK_WORDS],
}

/// Whether the kernel's part of a stack is taken as well.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum WithKernel {
    Yes,
    No,
}

/// Whether stacks have taken less of this CPU than they may.
///
/// # Safety
/// `scratch` is a live map value, and nobody else's meanwhile.
#[inline(always)]
pub unsafe fn is_allowed(scratch: *mut StackScratch, now_ns: u64) -> bool {
    // SAFETY: the caller's.
    unsafe { Allowance::is_left(&raw const (*scratch).allowance, now_ns) }
}

/// Takes the current thread's stack and sends it, unless it was sent before; what to name it by, or 0 where the ring
/// buffer is full. `recent` is the caller's number in [`UNWIND_RECENT`].
///
/// # Safety
/// As for [`is_allowed`]; `ctx` is the program's own.
#[inline(always)]
pub unsafe fn take(
    ctx: *mut c_void,
    scratch: *mut StackScratch,
    with_kernel: WithKernel,
    recent: u32,
) -> u64 {
    // SAFETY: the caller's.
    unsafe {
        let begun_ns = bpf_ktime_get_ns();
        walk(ctx, scratch, with_kernel, recent);
        let id = send(scratch);
        Allowance::charge(&raw mut (*scratch).allowance, begun_ns, bpf_ktime_get_ns());
        id
    }
}

/// Takes the kernel's part of the stack of a thread that is off the CPU, whose user's part was taken as `user_of` where it
/// left; what to name both by, or 0 where the stack cannot be walked, or the ring buffer is full. It is not asked whether
/// that [`is_allowed`], as it was where the thread left: what it takes is charged to those that are to come.
///
/// # Safety
/// As for [`is_allowed`]; `task` is the thread's `task_struct`.
#[inline(always)]
pub unsafe fn take_waiting(
    task: *mut c_void,
    scratch: *mut StackScratch,
    tgid: u32,
    user_of: u64,
    begun_ns: u64,
) -> u64 {
    // SAFETY: the caller's; the record has room for the walk.
    unsafe {
        let words = (&raw mut (*scratch).record.words).cast::<u8>();
        let kernel = stack::walk_waiting(task, words).unwrap_or(0);
        if kernel == 0 {
            return 0;
        }
        describe(scratch, tgid, [kernel, 0], 0, user_of);
        let id = send(scratch);
        Allowance::charge(&raw mut (*scratch).allowance, begun_ns, bpf_ktime_get_ns());
        id
    }
}

/// Walks the parts of the stack into the record.
#[inline(always)]
unsafe fn walk(ctx: *mut c_void, scratch: *mut StackScratch, with_kernel: WithKernel, recent: u32) {
    // SAFETY: the caller's; the record has room for both walks, and the second's place is masked.
    unsafe {
        let tgid = (bpf_get_current_pid_tgid() >> 32) as u32;
        let words = (&raw mut (*scratch).record.words).cast::<u64>();
        let kernel = if with_kernel == WithKernel::Yes {
            stack::walk(ctx, words.cast(), Part::Kernel).unwrap_or(0)
        } else {
            0
        };
        let walk = &raw mut (*scratch).walk;
        unwind::forget(walk);
        let begun = unwind::start(tgid, walk, |walk| unwind::begin_at_interrupt(walk, true));
        let mut flags = SampleHeader::USER_MISSING;
        let mut user = 0;
        if begun.is_some() {
            let recent = UNWIND_RECENT.get_ptr_mut(recent).unwrap_or(ptr::null_mut());
            let out = words.add(bounded(kernel as u32, 255) as usize);
            unwind::run(walk, recent.cast(), out.cast());
            let walked = unwind::walked(walk);
            (user, flags) = (walked.frames, walked.flags);
        }
        describe(scratch, tgid, [kernel, user], flags, 0);
    }
}

/// Says in the header what the words of the record are.
#[inline(always)]
unsafe fn describe(
    scratch: *mut StackScratch,
    tgid: u32,
    [kernel, user]: [usize; 2],
    flags: u16,
    user_of: u64,
) {
    // SAFETY: the caller's scratch is a live map value.
    unsafe {
        let header = &raw mut (*scratch).record.header;
        set!((*header).kind, SHARED_STACK);
        set!((*header).tgid, tgid);
        set!((*header).kernel_frames, kernel as u16);
        set!((*header).user_frames, user as u16);
        set!((*header).flags, flags);
        set!((*header).zero, 0);
        set!((*header).user_of, user_of);
        set!((*scratch).words, (kernel + user) as u64);
    }
}

/// Sends the stack of the record, unless it was sent before; what to name it by, or 0.
#[inline(never)]
unsafe fn send(scratch: *mut StackScratch) -> u64 {
    // SAFETY: the caller's; the callback takes the scratch, a live map value; indexes and lengths are masked.
    unsafe {
        let header = &raw mut (*scratch).record.header;
        let (tgid, flags) = ((*header).tgid, (*header).flags);
        let both = u64::from((*header).kernel_frames) << 32 | u64::from((*header).user_frames) << 16;
        let begin = mix(
            u64::from(maps::seed()) << 32 | u64::from(tgid),
            both | u64::from(flags),
        );
        set!((*scratch).hash, mix(begin, (*header).user_of));
        let words = bounded((*scratch).words as u32, STACK_WORDS as u32 - 1);
        let mut cursor = Cursor { scratch };
        bpf_loop(words, hash_one as *mut c_void, (&raw mut cursor).cast(), 0);
        let id = (*scratch).hash | 1;
        set!((*header).id, id);
        let Some(known) = SHARED_STACKS.get_ptr_mut(shared_stack_place(id)) else {
            return 0;
        };
        if *known == id {
            return id;
        }
        let length = size_of::<SharedStackHeader>() as u64 + u64::from(words) * 8;
        let record = &raw mut (*scratch).record;
        if bpf_ringbuf_output(
            maps::handle(&RING),
            record.cast(),
            masked(length),
            BPF_RB_NO_WAKEUP,
        ) != 0
        {
            return 0;
        }
        *known = id;
        id
    }
}

const _: () = assert!(size_of::<SharedStackHeader>() + (STACK_WORDS - 1) * 8 < 16384);

/// What the loop over the words carries along.
#[repr(C)]
struct Cursor {
    scratch: *mut StackScratch,
}

/// Adds one word to the hash.
unsafe extern "C" fn hash_one(index: u32, cursor: *mut c_void) -> i64 {
    // SAFETY: `send` passes a `Cursor` with a live map value; the index is masked.
    unsafe {
        let scratch = (*cursor.cast::<Cursor>()).scratch;
        let words = (&raw const (*scratch).record.words).cast::<u64>();
        let word = *words.add(index as usize & (STACK_WORDS - 1));
        set!((*scratch).hash, mix((*scratch).hash, word));
    }
    0
}

/// The finalizer of MurmurHash3 (Austin Appleby, in the public domain), over a word at a time.
#[inline(always)]
fn mix(hash: u64, word: u64) -> u64 {
    let mut hash = hash.wrapping_mul(5) ^ word;
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ hash >> 33
}

/// Bounds a number, in a way that the optimiser cannot drop; `most` is a power of two, or one less.
#[inline(always)]
pub fn bounded(number: u32, most: u32) -> u32 {
    let mut number = if number > most { most } else { number };
    // SAFETY: register arithmetic only.
    unsafe { core::arch::asm!("{0} &= 1023", inout(reg) number) };
    number
}

/// Bounds a record's length, likewise.
#[inline(always)]
pub fn masked(mut length: u64) -> u64 {
    // SAFETY: register arithmetic only.
    unsafe { core::arch::asm!("{0} &= 16383", inout(reg) length) };
    length
}
