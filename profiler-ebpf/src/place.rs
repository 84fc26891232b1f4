//! The kernel's own places: a tracepoint is a hit, a system call is a span.
//!
//! These programs run for every thread that gets there, so they look at the process first.
//!
//! A tracepoint may be passed in an interrupt or a page fault, in the middle of a program that is at work on the thread's
//! open spans. So a hit changes nothing of what these are: it looks for the one that it is inside of, and marks it as the
//! sampler does. Its working memory is the CPU's, and taken for as long as the program is at work on it: up to Linux 6.12 the
//! kernel runs one program of a perf event at a time on a CPU, with preemption off, and leaves out what would interrupt it; a
//! preemptible 7.2 leaves out the same program alone, and another may come in the middle.
//!
//! A system call begins and ends between the target's code and the kernel's, where no other program of the thread runs but
//! such a hit.

use core::{ffi::c_void, ptr};

use aya_ebpf::helpers::{
    bpf_probe_read_kernel,
    generated::{bpf_get_current_task_btf, bpf_loop, bpf_task_pt_regs},
};
use profiler_common::{
    hit::{HitSlot, Watched},
    limits::MAX_PROBES,
    probe::{Cookie, ProbeSlot},
    thread::OpenSpan,
};

use crate::{
    admission, atomic, gate,
    hit::{self, Reading},
    maps::{HITS, PLACE_READING, WATCHED_CALLS},
    plain::set,
    span, task,
};

/// What the programs return. At anything else the kernel would keep the event from the perf events of other tools:
/// aya's macro for tracepoints cannot be used, which returns 0.
pub const PASS: u32 = 1;

/// Bytes of a record, at most (`PERF_MAX_TRACE_SIZE` in `include/linux/trace_events.h`).
const RECORD_BYTES: u32 = 8192;

/// Size of `struct pt_regs`.
pub const REGISTERS_BYTES: u32 = 168;

/// Offset of a system call's number (`orig_ax`) in it.
const NUMBER_OFFSET: u64 = 120;

const _: () = assert!(Watched::MAX == 7);

/// A tracepoint is passed, whose record is the context.
#[inline(always)]
pub fn take(ctx: *mut c_void, cookie: Cookie) {
    let Some((probe, slot)) = admitted_slots(cookie) else {
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
        let Some(reading) = begin(ctx, slot, RECORD_BYTES) else {
            return;
        };
        if hit::passes::<false>(reading, slot) {
            hit::open(probe, parent);
            if records && hit::may_record(slot) {
                hit::write::<false>(reading, slot, probe, parent, cookie);
            }
        }
        end(reading);
    }
}

/// A system call of this number begins, with these registers.
#[inline(always)]
pub fn enter_call(registers: u64, number: u32) {
    each_probe(registers, number, enter_one);
}

/// A system call ends.
#[inline(always)]
pub fn exit_call(registers: u64) {
    let number = (registers + NUMBER_OFFSET) as *const u64;
    // SAFETY: the helper checks the address.
    if let Ok(number) = unsafe { bpf_probe_read_kernel(number) } {
        each_probe(registers, number as u32, exit_one);
    }
}

/// What the loop over the probes of a system call carries along.
#[repr(C)]
struct Call {
    watched: *const Watched,
    registers: u64,
}

/// Does something for each probe of a system call of the current process.
#[inline(always)]
fn each_probe(registers: u64, number: u32, each: unsafe extern "C" fn(u32, *mut c_void) -> i64) {
    let Some(watched) = WATCHED_CALLS.get_ptr_mut(Watched::key(task::process(), number)) else {
        return;
    };
    if task::is_in_compat_call() || !admission::is_admitted() {
        return;
    }
    let mut call = Call {
        watched: watched.cast_const(),
        registers,
    };
    // SAFETY: a live map value; the callback takes a `Call`, which outlives the loop.
    unsafe {
        let count = (*watched).count as u32 & Watched::MAX as u32;
        bpf_loop(count, each as *mut c_void, (&raw mut call).cast(), 0);
    }
}

/// Opens one probe's span.
unsafe extern "C" fn enter_one(index: u32, call: *mut c_void) -> i64 {
    // SAFETY: `each_probe` passes a `Call` of a live map value.
    unsafe {
        let call = &*call.cast::<Call>();
        enter(call.registers as *mut c_void, cookie(call, index));
    }
    0
}

/// Ends one probe's span.
unsafe extern "C" fn exit_one(index: u32, call: *mut c_void) -> i64 {
    // SAFETY: as of `enter_one`.
    unsafe { leave(cookie(&*call.cast::<Call>(), index)) };
    0
}

#[inline(always)]
unsafe fn cookie(call: &Call, index: u32) -> Cookie {
    let mut index = u64::from(index);
    // SAFETY: register arithmetic that the optimiser cannot drop; the result is within the array, or right before it.
    unsafe {
        core::arch::asm!("{0} &= 7", inout(reg) index);
        let cookies = call.watched.cast::<u64>();
        // The count lies before them; there is none at the last place.
        let place = if index as usize >= Watched::MAX {
            0
        } else {
            index as usize + 1
        };
        Cookie(cookies.add(place).read_volatile())
    }
}

/// Opens a span of a system call, whose registers are what can be read of it.
#[inline(always)]
fn enter(registers: *mut c_void, cookie: Cookie) {
    let Some((probe, slot)) = slots(cookie) else {
        return;
    };
    let stack_pointer = task::user_stack_pointer();
    // SAFETY: live map values.
    unsafe {
        if (*probe).requires != 0 && hit::look_inside(probe, stack_pointer).is_null() {
            atomic::add(&raw mut (*probe).outside, 1);
            return;
        }
        if (*slot).required > 0 {
            let Some(reading) = begin_call(registers, slot) else {
                return;
            };
            if !hit::passes::<false>(reading, slot) {
                return;
            }
        }
        span::enter(ptr::null_mut(), cookie, stack_pointer, 0);
        if (*slot).flags & HitSlot::RECORD == 0 || !hit::may_record(slot) {
            return;
        }
        let sequence = span::ask_for_end(cookie.probe(), stack_pointer, (*slot).opens);
        if sequence == 0 {
            return;
        }
        if let Some(reading) = begin_call(registers, slot) {
            hit::read_beginning::<false>(reading, slot);
            hit::send_beginning(reading, slot, cookie, sequence);
        }
    }
}

/// Ends the span of a system call: the thread's innermost of that probe, wherever the stack pointer is by now. A signal's
/// handler that returns puts it back to where it was.
#[inline(always)]
fn leave(cookie: Cookie) {
    if slots(cookie).is_none() {
        return;
    }
    let Some(stack_pointer) = span::innermost(cookie.probe(), 0) else {
        return;
    };
    // SAFETY: the task is the current one. What the call returns is in its registers by now.
    let registers = unsafe { bpf_task_pt_regs(bpf_get_current_task_btf()) };
    span::exit(
        ptr::null_mut(),
        registers as *mut c_void,
        cookie,
        stack_pointer,
        0,
    );
}

/// The working memory at a system call: the thread's own, which no other program is at.
#[inline(always)]
unsafe fn begin_call(registers: *mut c_void, slot: *mut HitSlot) -> Option<*mut Reading> {
    // SAFETY: the caller's.
    unsafe { begin_on(hit::reading(), registers, slot, REGISTERS_BYTES) }
}

/// What is counted and done at a probe, if the thread is of its process.
#[inline(always)]
pub fn slots(cookie: Cookie) -> Option<(*mut ProbeSlot, *mut HitSlot)> {
    let probe = span::slot_of(cookie.probe())?;
    let slot = HITS.get_ptr_mut(cookie.probe().index() & (MAX_PROBES - 1))?;
    // SAFETY: a live map value.
    let is_its = unsafe { (*slot).id == cookie.probe() && (*slot).tgid == task::process() };
    is_its.then_some((probe, slot))
}

/// The same, if the process may be looked at.
#[inline(always)]
pub fn admitted_slots(cookie: Cookie) -> Option<(*mut ProbeSlot, *mut HitSlot)> {
    slots(cookie).filter(|_| admission::is_admitted())
}

/// Finds the span that a hit is inside of.
#[inline(always)]
unsafe fn look_inside(probe: *mut ProbeSlot) -> *mut OpenSpan {
    let Some(thread) = task::state() else {
        return ptr::null_mut();
    };
    // SAFETY: live map values.
    unsafe { gate::living_parent(thread, probe, task::user_stack_pointer()) }
}

/// The working memory at a tracepoint or a function of the kernel, and what can be read there: so many bytes. It is to be
/// given back by [`end`].
///
/// # Safety
/// `slot` is a live map value.
#[inline(always)]
pub unsafe fn begin(ctx: *mut c_void, slot: *mut HitSlot, bytes: u32) -> Option<*mut Reading> {
    // SAFETY: the caller's.
    unsafe { begin_on(take_reading(), ctx, slot, bytes) }
}

/// Working memory, and what can be read there; that there is none is counted.
///
/// # Safety
/// `slot` is a live map value, and `reading` one or null.
#[inline(always)]
unsafe fn begin_on(
    reading: *mut Reading,
    record: *mut c_void,
    slot: *mut HitSlot,
    bytes: u32,
) -> Option<*mut Reading> {
    // SAFETY: the caller's.
    unsafe {
        if reading.is_null() {
            atomic::add(&raw mut (*slot).no_state, 1);
            return None;
        }
        hit::begin_in_kernel(reading, record, bytes);
    }
    Some(reading)
}

/// The CPU's working memory; null while another program is at work on it.
#[inline(always)]
pub fn take_reading() -> *mut Reading {
    let Some(reading) = PLACE_READING.get_ptr_mut(0) else {
        return ptr::null_mut();
    };
    // SAFETY: a live map value.
    let taken = unsafe { atomic::compare_exchange(&raw mut (*reading).taken, 0, 1) };
    if taken == 0 { reading } else { ptr::null_mut() }
}

/// Gives the CPU's working memory back.
///
/// # Safety
/// It has been taken by this run of the program.
#[inline(always)]
pub unsafe fn end(reading: *mut Reading) {
    // SAFETY: the caller's.
    unsafe { set!((*reading).taken, 0) };
}
