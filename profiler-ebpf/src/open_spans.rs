//! The spans that are open on a thread, as samples refer to them.

use core::{ffi::c_void, ptr};

use aya_ebpf::helpers::generated::bpf_loop;
use profiler_common::{
    limits::MAX_DEPTH,
    record::SpanRef,
    thread::{OpenSpan, ThreadState},
};

use crate::{span, task};

/// What the loop over the open spans carries along.
#[repr(C)]
struct Cursor {
    state: *mut ThreadState,
    /// Where references to the spans are written, one behind the other.
    out: *mut SpanRef,
    /// Spans to visit.
    depth: u32,
    /// What this took of the thread.
    taken: Taken,
}

/// What was taken of a thread for looking at it: that is not its spans' own time.
///
/// What is taken of a span in all, and the time that it was off the CPU, are never more than its duration: no time is taken
/// twice, and what is estimated is no more than the time in which it can have been.
#[derive(Clone, Copy)]
pub struct Taken {
    /// As the clock says.
    measured_ns: u64,
    /// Beside that, as is estimated: what an interrupt takes before its program and behind it.
    estimated_ns: u64,
    /// `CLOCK_MONOTONIC` when the program began.
    begun_ns: u64,
}

impl Taken {
    /// Nothing.
    const NOTHING: Self = Self {
        measured_ns: 0,
        estimated_ns: 0,
        begun_ns: 0,
    };

    /// By a program that ran from `begun_ns` to `ended_ns`, and about `estimated_ns` around it: of so many of the thread's spans,
    /// outermost first. From now on the thread goes on: what is taken later is taken from there.
    #[inline(always)]
    pub fn by_program(
        state: *mut ThreadState,
        spans: u32,
        [begun_ns, ended_ns]: [u64; 2],
        estimated_ns: u64,
    ) -> Self {
        // SAFETY: a live map value, and nothing else changes this thread's meanwhile but what interrupts this.
        let resumed_ns = unsafe {
            let resumed = &raw mut (*state).resumed_ns;
            let before_ns = resumed.read_volatile();
            resumed.write_volatile(ended_ns);
            (&raw mut (*state).resumed_depth).write_volatile(spans);
            before_ns
        };
        if resumed_ns > begun_ns {
            // Another program has interrupted this one, and has taken its own time. What this one took before that is left to the
            // spans: a little too much, and never too little.
            return Self {
                measured_ns: ended_ns.saturating_sub(resumed_ns),
                estimated_ns: 0,
                begun_ns,
            };
        }
        Self {
            measured_ns: ended_ns.saturating_sub(begun_ns),
            estimated_ns: at_most(estimated_ns, begun_ns.wrapping_sub(resumed_ns)),
            begun_ns,
        }
    }

    /// The same with what was measured earlier.
    #[inline(always)]
    pub fn and_earlier(self, measured_ns: u64) -> Self {
        Self {
            measured_ns: self.measured_ns.wrapping_add(measured_ns),
            ..self
        }
    }

    /// Of a span that began then.
    #[inline(always)]
    fn of_span(&self, start_ns: u64) -> u64 {
        let within_ns = self.begun_ns.saturating_sub(start_ns);
        self.measured_ns
            .wrapping_add(at_most(self.estimated_ns, within_ns))
    }
}

/// The smaller one.
#[inline(always)]
fn at_most(ns: u64, most_ns: u64) -> u64 {
    if ns > most_ns { most_ns } else { ns }
}

/// Where a thread is whose open spans are looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// In the target's own code, or about to enter or leave it: calls of the kernel's functions are over.
    User,
    /// In the kernel's, where they are not.
    Kernel,
}

/// How many of the open spans are not left behind by a jump that no probe has noticed yet.
#[inline(always)]
pub fn live_depth(state: Option<*mut ThreadState>, left: *mut u32, mode: Mode) -> u32 {
    let Some(state) = state else { return 0 };
    // SAFETY: the state is a live map value. This CPU runs its only writer, which we interrupt.
    let depth = unsafe { (&raw const (*state).depth).read_volatile() };
    let depth = if depth as usize > MAX_DEPTH {
        MAX_DEPTH as u32
    } else {
        depth
    };
    if depth == 0 {
        return 0;
    }
    let stack_pointer = task::user_stack_pointer();
    // SAFETY: the caller's scratch.
    unsafe { left.write_volatile(depth) };
    let mut trim = Trim {
        state,
        stack_pointer,
        left,
        on_alternate: task::on_alternate_stack(stack_pointer),
        in_kernel: mode == Mode::Kernel,
    };
    // SAFETY: the callback takes a `Trim`, which outlives the call.
    unsafe { bpf_loop(depth, trim_one as *mut c_void, (&raw mut trim).cast(), 0) };
    // SAFETY: the caller's scratch.
    let mut depth = unsafe { left.read_volatile() };
    // SAFETY: register arithmetic that the optimiser cannot drop: for the verifier.
    unsafe { core::arch::asm!("{0} &= 255", inout(reg) depth) };
    depth
}

const _: () = assert!(MAX_DEPTH < 256);

/// What the search for the topmost live span carries along.
#[repr(C)]
struct Trim {
    state: *mut ThreadState,
    stack_pointer: u64,
    /// Spans that are not left behind, so far.
    left: *mut u32,
    on_alternate: bool,
    in_kernel: bool,
}

/// Passes over the topmost span if the stack pointer shows that it was left.
unsafe extern "C" fn trim_one(_index: u32, trim: *mut c_void) -> i64 {
    // SAFETY: `live_depth` passes a `Trim` with a live map value.
    unsafe {
        let trim = &mut *trim.cast::<Trim>();
        let depth = trim.left.read_volatile();
        let top = span::span_at(trim.state, depth.wrapping_sub(1));
        let lives = trim.in_kernel && span::is_of_kernel(top);
        if lives || !span::passed(top, trim.stack_pointer, trim.on_alternate) {
            return 1;
        }
        trim.left.write_volatile(depth.wrapping_sub(1));
    }
    0
}

/// Writes references to a thread's open spans, outermost first.
///
/// # Safety
/// `out` has room for as many, and for [`MAX_DEPTH`].
#[inline(always)]
pub unsafe fn write(state: *mut ThreadState, out: *mut SpanRef, depth: u32) {
    for_each_span(state, out, depth, Taken::NOTHING, write_span);
}

/// Marks a thread's open spans as hit, and keeps what that took of them.
#[inline(always)]
pub fn count_hit(state: *mut ThreadState, depth: u32, taken: Taken) {
    for_each_span(state, ptr::null_mut(), depth, taken, count_one);
}

/// Keeps what was taken of a thread's open spans, which does not make anybody ask for their ends.
#[inline(always)]
pub fn take_off(state: *mut ThreadState, depth: u32, taken: Taken) {
    for_each_span(state, ptr::null_mut(), depth, taken, take_off_one);
}

#[inline(always)]
fn for_each_span(
    state: *mut ThreadState,
    out: *mut SpanRef,
    depth: u32,
    taken: Taken,
    each: unsafe extern "C" fn(u32, *mut c_void) -> i64,
) {
    let mut cursor = Cursor {
        state,
        out,
        depth,
        taken,
    };
    // SAFETY: the callback takes a `Cursor`, which outlives the call.
    unsafe { bpf_loop(depth, each as *mut c_void, (&raw mut cursor).cast(), 0) };
}

/// Writes one span's reference.
unsafe extern "C" fn write_span(index: u32, cursor: *mut c_void) -> i64 {
    // SAFETY: `for_each_span` passes a `Cursor` of live map values; indexes are masked to both arrays.
    unsafe {
        let cursor = &*cursor.cast::<Cursor>();
        let index = index as usize & (MAX_DEPTH - 1);
        let span = &raw const (*cursor.state).spans;
        let span = span.cast::<OpenSpan>().add(index);
        let out = cursor.out.add(index);
        (*out).probe = (*span).probe;
        (*out).gates = (&raw const (*span).own_gates).read_volatile();
        (*out).sequence = u64::from((*span).sequence);
        (*out).start_ns = (*span).start_ns;
    }
    0
}

/// Marks one span as hit, and keeps what that took of it.
unsafe extern "C" fn count_one(index: u32, cursor: *mut c_void) -> i64 {
    // SAFETY: as in `write_span`.
    unsafe {
        let cursor = &*cursor.cast::<Cursor>();
        let span = (&raw mut (*cursor.state).spans).cast::<OpenSpan>();
        let span = span.add(index as usize & (MAX_DEPTH - 1));
        let (hits, sampling_ns) = (&raw mut (*span).hits, &raw mut (*span).sampling_ns);
        let taken_ns = cursor.taken.of_span((*span).start_ns);
        sampling_ns.write_volatile(sampling_ns.read_volatile().wrapping_add(taken_ns));
        hits.write_volatile(hits.read_volatile().saturating_add(1));
    }
    0
}

/// Keeps what was taken of one span.
unsafe extern "C" fn take_off_one(index: u32, cursor: *mut c_void) -> i64 {
    // SAFETY: as in `write_span`.
    unsafe {
        let cursor = &*cursor.cast::<Cursor>();
        let span = (&raw mut (*cursor.state).spans).cast::<OpenSpan>();
        let span = span.add(index as usize & (MAX_DEPTH - 1));
        let sampling_ns = &raw mut (*span).sampling_ns;
        let taken_ns = cursor.taken.of_span((*span).start_ns);
        sampling_ns.write_volatile(sampling_ns.read_volatile().wrapping_add(taken_ns));
    }
    0
}
