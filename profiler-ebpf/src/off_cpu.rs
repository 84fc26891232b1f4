//! Intervals off the CPU: where a thread left it and why, who made it runnable, and when it was back.
//!
//! All runs inside the scheduler, with interrupts off, and nothing here allocates. The stack is taken where the thread
//! leaves, which is where it will still be when it is back; the record is sent when its length is known. Equal stacks are
//! sent once: threads wait at few places, many times.

use core::{ffi::c_void, ptr};

use aya_ebpf::helpers::{
    bpf_ktime_get_ns,
    generated::{bpf_get_current_pid_tgid, bpf_loop, bpf_ringbuf_output, bpf_task_storage_get},
};
use profiler_common::{
    counter::Counter,
    limits::{
        MAX_DEPTH, MAX_SHARED_STACKS, MAX_USER_FRAMES, OFF_CPU_STACK_BURST_NS, OFF_CPU_STACK_SHARE,
        target_bit,
    },
    record::{self, OffCpuHeader, SHARED_STACK, SampleHeader, SharedStackHeader, SpanRef},
    settings::Sampling,
    thread::{OffCpu, ThreadState},
};

use crate::{
    emit::{self, BPF_RB_NO_WAKEUP, Fill},
    maps::{
        self, HASHED_THREADS, OFF_CPU, OFF_CPU_SCRATCH, RING, SHARED_STACKS, TARGET_BITS, TARGETS, THREADS,
        UNWIND_RECENT,
    },
    open_spans,
    plain::set,
    stack::{self, Part},
    task,
    unwind::{self, Walk},
};

/// Words of the longest stack; a power of two, so that an index can be masked.
const STACK_WORDS: usize = 1024;

/// Of a map: the key must not be there yet.
const BPF_NOEXIST: u64 = 1;

/// `-EEXIST`.
const EXISTS: i32 = -17;

const _: () = assert!(stack::WALK_BYTES / 8 + MAX_USER_FRAMES <= STACK_WORDS);
const _: () = assert!(MAX_SHARED_STACKS.is_power_of_two());

/// The records as they are put together, and the state of the walk.
#[repr(C)]
pub struct OffCpuScratch {
    stack: StackRecord,
    interval: IntervalRecord,
    /// Spans that are not left behind.
    spans: u32,
    /// Words of the stack, while they are hashed.
    words: u32,
    /// The hash of those that were looked at.
    hash: u64,
    /// What stacks have taken of this CPU, less what they were allowed since; as a time, which it reaches.
    taken_until_ns: u64,
    walk: Walk,
}

#[repr(C)]
struct StackRecord {
    header: SharedStackHeader,
    words: [u64; STACK_WORDS],
}

#[repr(C)]
struct IntervalRecord {
    header: OffCpuHeader,
    spans: [SpanRef; MAX_DEPTH],
}

/// Whether a process is sampled, as far as a bit that it may share with others tells: most threads that the scheduler
/// deals with are passed over by this alone.
#[inline(always)]
pub fn may_be_target(tgid: u32) -> bool {
    let (word, bit) = target_bit(tgid);
    // SAFETY: the value is copied at once.
    unsafe { TARGET_BITS.get(word) }.is_some_and(|bits| bits & bit != 0)
}

/// The current thread leaves the CPU, in this state.
///
/// Its parts are functions of their own, for the verifier's sake: what it knows of one is not multiplied by the other.
#[inline(never)]
pub fn leave(ctx: *mut c_void, state: u32) -> u32 {
    // SAFETY: the helpers take nothing.
    let (ids, begun_ns) = unsafe { (bpf_get_current_pid_tgid(), bpf_ktime_get_ns()) };
    let tgid = (ids >> 32) as u32;
    // SAFETY: the value is copied at once.
    let Some(sampling) = (unsafe { TARGETS.get(&tgid).copied() }) else {
        return 0;
    };
    if sampling.flags & (Sampling::OFF_CPU | Sampling::OFF_CPU_IN_SPANS) == 0 {
        return 0;
    }
    if state & record::state::PREEMPTED == 0 && state & record::state::DEAD != 0 {
        return 0;
    }
    let Some(scratch) = OFF_CPU_SCRATCH.get_ptr_mut(0) else {
        return 0;
    };
    // SAFETY: a live map value, and this CPU's own: nothing that uses it can interrupt the scheduler.
    let spans = open_spans::live_depth(task::state(), unsafe { &raw mut (*scratch).spans });
    if spans == 0 && sampling.flags & Sampling::OFF_CPU == 0 {
        return 0;
    }
    // SAFETY: as above.
    let stack = unsafe { take_allowed(ctx, scratch, begun_ns) };
    // SAFETY: the helper takes nothing.
    let start_ns = unsafe { bpf_ktime_get_ns() };
    let off = OffCpu {
        start_ns,
        woken_ns: 0,
        stack,
        waker_stack: 0,
        tgid,
        spans,
        state,
        waker_tid: 0,
        waker_tgid: 0,
        taking_ns: start_ns.wrapping_sub(begun_ns) as u32,
        asks_waker: u32::from(sampling.flags & Sampling::WAKERS != 0),
        zero: 0,
    };
    let thread = ids as u32;
    match OFF_CPU.insert(thread, &off, BPF_NOEXIST) {
        Ok(()) => return 0,
        Err(EXISTS) => {
            // It was not seen to come back: nobody knows when it did.
            emit::count(Counter::OffCpuAttempted);
            emit::count(Counter::OffCpuUnseen);
        }
        Err(_) => {}
    }
    if OFF_CPU.insert(thread, &off, 0).is_err() {
        emit::count(Counter::OffCpuAttempted);
        emit::count(Counter::OffCpuLimit);
    }
    0
}

/// A thread is made runnable by the current one, or by an interrupt of it.
#[inline(never)]
pub fn wake(ctx: *mut c_void, thread: u32) -> u32 {
    let Some(off) = OFF_CPU.get_ptr_mut(thread) else {
        return 0;
    };
    // SAFETY: a live map value; two wakers at once leave one of both, and a time between theirs.
    unsafe {
        let woken_ns = &raw mut (*off).woken_ns;
        if woken_ns.read_volatile() != 0 || (*off).state & record::state::PREEMPTED != 0 {
            return 0;
        }
        let (ids, now_ns) = (bpf_get_current_pid_tgid(), bpf_ktime_get_ns());
        if (*off).asks_waker != 0
            && let Some(scratch) = OFF_CPU_SCRATCH.get_ptr_mut(0)
        {
            // Interrupts are off, and a thread that is off the CPU is not the current one: the scratch is free.
            (*off).waker_stack = take_allowed(ctx, scratch, now_ns);
        }
        (*off).waker_tid = ids as u32;
        (*off).waker_tgid = (ids >> 32) as u32;
        woken_ns.write_volatile(now_ns);
    }
    0
}

/// A thread is given a CPU. `task` is its `task_struct`.
#[inline(never)]
pub fn come(task: *mut c_void, thread: u32) -> u32 {
    // SAFETY: the value is copied at once; nobody else changes it once the thread is about to run.
    let Some(off) = (unsafe { OFF_CPU.get(&thread).copied() }) else {
        return 0;
    };
    // There is nothing to be done where it was removed meanwhile.
    let _ = OFF_CPU.remove(thread);
    // One that goes on is not attempted yet.
    emit::count(Counter::OffCpuAttempted);
    if Fill::now().should_yield() {
        emit::count(Counter::OffCpuYielded);
        return 0;
    }
    let Some(scratch) = OFF_CPU_SCRATCH.get_ptr_mut(0) else {
        return 0;
    };
    let state = state_of(task, thread);
    let spans = if state.is_null() {
        0
    } else {
        bounded(off.spans, MAX_DEPTH as u32)
    };
    // SAFETY: a live map value of this CPU; the length is bounded to the record.
    unsafe {
        let record = &raw mut (*scratch).interval;
        let header = &raw mut (*record).header;
        set!((*header).kind, record::OFF_CPU);
        set!((*header).spans, spans);
        set!((*header).tgid, off.tgid);
        set!((*header).tid, thread);
        set!((*header).start_ns, off.start_ns);
        set!((*header).woken_ns, off.woken_ns);
        set!((*header).end_ns, bpf_ktime_get_ns());
        set!((*header).stack, off.stack);
        set!((*header).state, off.state);
        set!((*header).waker_tid, off.waker_tid);
        set!((*header).waker_tgid, off.waker_tgid);
        set!((*header).asks_waker, off.asks_waker);
        set!((*header).waker_stack, off.waker_stack);
        if !state.is_null() {
            open_spans::write(state, (&raw mut (*record).spans).cast(), spans);
        }
        let length = size_of::<OffCpuHeader>() as u64 + u64::from(spans) * size_of::<SpanRef>() as u64;
        if bpf_ringbuf_output(
            maps::handle(&RING),
            record.cast(),
            masked(length),
            BPF_RB_NO_WAKEUP,
        ) != 0
        {
            emit::count(Counter::OffCpuRingFull);
            return 0;
        }
        // Only an interval that is on its way may ask for the end of its spans.
        if !state.is_null() {
            open_spans::count_hit(state, spans, u64::from(off.taking_ns));
        }
    }
    0
}

const _: () = assert!(size_of::<IntervalRecord>() < 8192);

/// The open spans of a thread that is not the current one; null where it has none.
#[inline(always)]
fn state_of(task: *mut c_void, thread: u32) -> *mut ThreadState {
    // SAFETY: the task is the scheduler's own; the map is task storage.
    let stored: *mut ThreadState =
        unsafe { bpf_task_storage_get(maps::handle(&THREADS), task.cast(), ptr::null_mut(), 0).cast() };
    if stored.is_null() {
        HASHED_THREADS.get_ptr_mut(thread).unwrap_or(ptr::null_mut())
    } else {
        stored
    }
}

/// Whether stacks have taken less of this CPU than they may.
#[inline(always)]
unsafe fn is_allowed(scratch: *mut OffCpuScratch, now_ns: u64) -> bool {
    // SAFETY: the caller's, a live map value.
    unsafe { (*scratch).taken_until_ns < now_ns.wrapping_add(OFF_CPU_STACK_BURST_NS * OFF_CPU_STACK_SHARE) }
}

/// Takes the current thread's stack, if stacks may take more of this CPU; what to name it by, or 0.
#[inline(always)]
unsafe fn take_allowed(ctx: *mut c_void, scratch: *mut OffCpuScratch, now_ns: u64) -> u64 {
    // SAFETY: the caller's scratch is a live map value.
    unsafe {
        if is_allowed(scratch, now_ns) {
            take_stack(ctx, scratch)
        } else {
            emit::count(Counter::OffCpuStackSkipped);
            0
        }
    }
}

/// Takes the current thread's stack and sends it, unless it was sent before; what to name it by, or 0.
#[inline(always)]
unsafe fn take_stack(ctx: *mut c_void, scratch: *mut OffCpuScratch) -> u64 {
    // SAFETY: the caller's scratch is a live map value.
    unsafe {
        let begun_ns = bpf_ktime_get_ns();
        walk(ctx, scratch);
        let id = send_stack(scratch);
        let now_ns = bpf_ktime_get_ns();
        let taken_until_ns = (*scratch).taken_until_ns;
        let from_ns = if taken_until_ns > now_ns {
            taken_until_ns
        } else {
            now_ns
        };
        let took_ns = now_ns.wrapping_sub(begun_ns).wrapping_mul(OFF_CPU_STACK_SHARE);
        set!((*scratch).taken_until_ns, from_ns.wrapping_add(took_ns));
        id
    }
}

/// Walks both parts of the stack into the record.
#[inline(always)]
unsafe fn walk(ctx: *mut c_void, scratch: *mut OffCpuScratch) {
    // SAFETY: the caller's; the record has room for both walks, and the second's place is masked.
    unsafe {
        let tgid = (bpf_get_current_pid_tgid() >> 32) as u32;
        let words = (&raw mut (*scratch).stack.words).cast::<u64>();
        let kernel = stack::walk(ctx, words.cast(), Part::Kernel).unwrap_or(0);
        let walk = &raw mut (*scratch).walk;
        unwind::forget(walk);
        let begun = unwind::start(tgid, walk, |walk| unwind::begin_at_interrupt(walk, true));
        let mut flags = SampleHeader::USER_MISSING;
        let mut user = 0;
        if begun.is_some() {
            let recent = UNWIND_RECENT.get_ptr_mut(1).unwrap_or(ptr::null_mut());
            let out = words.add(bounded(kernel as u32, 255) as usize);
            unwind::run(walk, recent.cast(), out.cast());
            let walked = unwind::walked(walk);
            (user, flags) = (walked.frames, walked.flags);
        }
        let header = &raw mut (*scratch).stack.header;
        set!((*header).kind, SHARED_STACK);
        set!((*header).tgid, tgid);
        set!((*header).kernel_frames, kernel as u16);
        set!((*header).user_frames, user as u16);
        set!((*header).flags, flags);
        set!((*header).zero, 0);
        set!((*scratch).words, kernel as u32 + user as u32);
    }
}

/// Sends the stack of the record, unless it was sent before; what to name it by, or 0.
#[inline(never)]
unsafe fn send_stack(scratch: *mut OffCpuScratch) -> u64 {
    // SAFETY: the caller's; the callback takes the scratch, a live map value; indexes and lengths are masked.
    unsafe {
        let header = &raw mut (*scratch).stack.header;
        let (tgid, flags) = ((*header).tgid, (*header).flags);
        let both = u64::from((*header).kernel_frames) << 32 | u64::from((*header).user_frames) << 16;
        let begin = mix(
            u64::from(maps::seed()) << 32 | u64::from(tgid),
            both | u64::from(flags),
        );
        set!((*scratch).hash, begin);
        let words = bounded((*scratch).words, STACK_WORDS as u32 - 1);
        let mut cursor = Cursor { scratch };
        bpf_loop(words, hash_one as *mut c_void, (&raw mut cursor).cast(), 0);
        let id = (*scratch).hash | 1;
        set!((*header).id, id);
        let Some(known) = SHARED_STACKS.get_ptr_mut(id as u32 >> 1 & (MAX_SHARED_STACKS - 1)) else {
            return 0;
        };
        if *known == id {
            return id;
        }
        let length = size_of::<SharedStackHeader>() as u64 + u64::from(words) * 8;
        let record = &raw mut (*scratch).stack;
        if bpf_ringbuf_output(
            maps::handle(&RING),
            record.cast(),
            masked(length),
            BPF_RB_NO_WAKEUP,
        ) != 0
        {
            emit::count(Counter::OffCpuStackRingFull);
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
    scratch: *mut OffCpuScratch,
}

/// Adds one word to the hash.
unsafe extern "C" fn hash_one(index: u32, cursor: *mut c_void) -> i64 {
    // SAFETY: `send_stack` passes a `Cursor` with a live map value; the index is masked.
    unsafe {
        let scratch = (*cursor.cast::<Cursor>()).scratch;
        let words = (&raw const (*scratch).stack.words).cast::<u64>();
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
fn bounded(number: u32, most: u32) -> u32 {
    let mut number = if number > most { most } else { number };
    // SAFETY: register arithmetic only.
    unsafe { core::arch::asm!("{0} &= 1023", inout(reg) number) };
    number
}

/// Bounds a record's length, likewise.
#[inline(always)]
fn masked(mut length: u64) -> u64 {
    // SAFETY: register arithmetic only.
    unsafe { core::arch::asm!("{0} &= 16383", inout(reg) length) };
    length
}
