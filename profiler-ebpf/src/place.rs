//! The kernel's own places: a tracepoint is a hit, a system call is a span.
//!
//! The kernel runs these programs for every thread that gets there, so they look at the process first. It runs one of them
//! at a time on a CPU, with preemption off, and leaves out what would interrupt it: so their working memory is the CPU's.
//!
//! A tracepoint may be passed in an interrupt or a page fault, in the middle of a program that is at work on the thread's
//! open spans. So a hit changes nothing of what these are: it looks for the one that it is inside of, and marks it as the
//! sampler does. A system call begins and ends between the target's code and the kernel's, where no such program runs.

use core::{ffi::c_void, ptr};

use aya_ebpf::helpers::generated::{bpf_get_current_task_btf, bpf_task_pt_regs};
use profiler_common::{
    hit::HitSlot,
    limits::MAX_PROBES,
    probe::{Cookie, ProbeSlot},
    thread::OpenSpan,
};

use crate::{
    atomic, gate,
    hit::{self, Reading},
    maps::{HITS, PLACE_READING},
    span, task,
};

/// What the programs return. At anything else the kernel would keep the event from the perf events of other tools:
/// aya's macro for tracepoints cannot be used, which returns 0.
pub const PASS: u32 = 1;

/// Bytes of a record, at most (`PERF_MAX_TRACE_SIZE` in `include/linux/trace_events.h`).
const RECORD_BYTES: u32 = 8192;

/// Bytes of a system call's: what all records begin with, its number, six arguments.
const CALL_BYTES: u32 = 16 + 6 * 8;

/// A tracepoint is passed, whose record is the context.
#[inline(always)]
pub fn take(ctx: *mut c_void, cookie: Cookie) {
    let Some((probe, slot)) = slots(cookie) else {
        return;
    };
    let mut parent = ptr::null_mut();
    // SAFETY: live map values; `parent` may be null.
    unsafe {
        if (*probe).requires != 0 {
            parent = look_inside(probe);
            if parent.is_null() {
                atomic::add(&raw mut (*probe).outside, 1);
                return;
            }
        }
        atomic::add(&raw mut (*probe).entries, 1);
        let records = (*slot).flags & HitSlot::RECORD != 0;
        if !records && (*slot).required == 0 {
            hit::open(probe, parent);
            return;
        }
        let Some(reading) = begin(ctx, RECORD_BYTES, slot) else {
            return;
        };
        if !hit::passes(reading, slot) {
            return;
        }
        hit::open(probe, parent);
        if records && hit::may_record(slot) {
            hit::write(reading, slot, probe, parent, cookie);
        }
    }
}

/// A system call begins, with its arguments for the context.
#[inline(always)]
pub fn enter(ctx: *mut c_void, cookie: Cookie) {
    let Some((probe, slot)) = slots(cookie) else {
        return;
    };
    let Some(stack_pointer) = task::user_stack_pointer() else {
        return;
    };
    // SAFETY: live map values.
    unsafe {
        if (*probe).requires != 0 && hit::look_inside(probe, stack_pointer).is_null() {
            atomic::add(&raw mut (*probe).outside, 1);
            return;
        }
        let records = (*slot).flags & HitSlot::RECORD != 0;
        if (*slot).required > 0 {
            let Some(reading) = begin(ctx, CALL_BYTES, slot) else {
                return;
            };
            if !hit::passes(reading, slot) {
                return;
            }
        }
        span::enter(cookie, stack_pointer, 0);
        if !records || !hit::may_record(slot) {
            return;
        }
        let sequence = span::ask_for_end(cookie.probe(), stack_pointer, (*slot).opens);
        if sequence == 0 {
            return;
        }
        if let Some(reading) = begin(ctx, CALL_BYTES, slot) {
            hit::write_beginning(reading, slot, cookie, sequence);
        }
    }
}

/// A system call ends. Its span is the thread's innermost of that probe, wherever the stack pointer is by now: a signal's
/// handler that returns puts it back to where it was.
#[inline(always)]
pub fn leave(cookie: Cookie) {
    if slots(cookie).is_none() {
        return;
    }
    let Some(stack_pointer) = span::innermost(cookie.probe()) else {
        return;
    };
    // SAFETY: the task is the current one. What the call returns is in its registers by now.
    let registers = unsafe { bpf_task_pt_regs(bpf_get_current_task_btf()) };
    span::exit(registers as *mut c_void, cookie, stack_pointer, 0);
}

/// What is counted and done at a probe, if the thread is of its process.
#[inline(always)]
fn slots(cookie: Cookie) -> Option<(*mut ProbeSlot, *mut HitSlot)> {
    let probe = span::slot_of(cookie.probe())?;
    let slot = HITS.get_ptr_mut(cookie.probe().index() & (MAX_PROBES - 1))?;
    // SAFETY: a live map value.
    let is_its = unsafe { (*slot).id == cookie.probe() && (*slot).tgid == task::process() };
    is_its.then_some((probe, slot))
}

/// Finds the span that a hit is inside of.
#[inline(always)]
unsafe fn look_inside(probe: *mut ProbeSlot) -> *mut OpenSpan {
    let (Some(thread), Some(stack_pointer)) = (task::state(), task::user_stack_pointer()) else {
        return ptr::null_mut();
    };
    // SAFETY: live map values.
    unsafe { gate::living_parent(thread, probe, stack_pointer) }
}

/// The working memory, at the place.
#[inline(always)]
unsafe fn begin(ctx: *mut c_void, bytes: u32, slot: *mut HitSlot) -> Option<*mut Reading> {
    let reading = PLACE_READING.get_ptr_mut(0);
    // SAFETY: live map values.
    unsafe {
        match reading {
            Some(reading) => hit::begin_in_kernel(reading, ctx, bytes),
            None => atomic::add(&raw mut (*slot).no_state, 1),
        }
    }
    reading
}
