//! Gates between the steps of a scope: a step is observed only while the step before it is open on the same thread.
//!
//! A gate is a bit. The frame of an open span has those that are open while it is: its step's own, and those of lines
//! that were reached in it; and beside them the sum of its own and of all below, so that one look at the topmost frame
//! says that a gate is closed. A bit that was another step's before is told apart by when the span began.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::bpf_loop;
use profiler_common::{
    limits::{MAX_DEPTH, MAX_JOINED},
    probe::ProbeSlot,
    thread::{OpenSpan, ThreadState},
};

use crate::{
    atomic,
    span::{self, span_at},
    task,
};

/// The innermost span that opens the gate which a probe requires; null where the gate is closed.
///
/// # Safety
/// Both are live map values, `state` this thread's own.
#[inline(never)]
pub unsafe fn parent(state: *mut ThreadState, slot: *mut ProbeSlot) -> *mut OpenSpan {
    // SAFETY: the caller's; the callback takes a `Search`, which outlives the call.
    unsafe {
        let (requires, depth) = ((*slot).requires, (*state).depth);
        if depth == 0 {
            return core::ptr::null_mut();
        }
        let top = span_at(state, depth - 1);
        if (*top).gates & requires == 0 {
            return core::ptr::null_mut();
        }
        let since_ns = (*slot).gate_since_ns;
        if opens(top, requires, since_ns) {
            return top;
        }
        let mut search = Search {
            state,
            since_ns,
            requires,
            found: 0,
        };
        bpf_loop(depth, look_at_one as *mut c_void, (&raw mut search).cast(), 0);
        if search.found == 0 {
            return core::ptr::null_mut();
        }
        span_at(state, search.found - 1)
    }
}

/// As [`parent`], and changes nothing: whatever the thread was at is interrupted. Spans that it must have left are passed
/// over rather than given up.
///
/// # Safety
/// As of [`parent`].
#[inline(never)]
pub unsafe fn living_parent(
    state: *mut ThreadState,
    slot: *mut ProbeSlot,
    stack_pointer: u64,
) -> *mut OpenSpan {
    // SAFETY: the caller's; the callback takes a `Living`, which outlives the call.
    unsafe {
        let depth = (&raw const (*state).depth).read_volatile();
        let mut living = Living {
            search: Search {
                state,
                since_ns: (*slot).gate_since_ns,
                requires: (*slot).requires,
                found: 0,
            },
            depth,
            on_alternate: task::on_alternate_stack(stack_pointer),
            stack_pointer,
        };
        bpf_loop(depth, look_at_living as *mut c_void, (&raw mut living).cast(), 0);
        if living.search.found == 0 {
            return core::ptr::null_mut();
        }
        span_at(state, living.search.found - 1)
    }
}

/// What the search for a living parent carries along.
#[repr(C)]
struct Living {
    search: Search,
    stack_pointer: u64,
    depth: u32,
    on_alternate: bool,
}

/// Looks at one span, from the top down.
unsafe extern "C" fn look_at_living(index: u32, living: *mut c_void) -> i64 {
    // SAFETY: `living_parent` passes a `Living` with a live map value.
    unsafe {
        let living = &mut *living.cast::<Living>();
        let depth = living.depth.wrapping_sub(index);
        let span = span_at(living.search.state, depth.wrapping_sub(1));
        // What is reached is in the kernel, and so in the calls of its functions that are open.
        let lives =
            span::is_of_kernel(span) || !span::passed(span, living.stack_pointer, living.on_alternate);
        if opens(span, living.search.requires, living.search.since_ns) && lives {
            living.search.found = depth;
            return 1;
        }
        0
    }
}

#[inline(always)]
unsafe fn opens(span: *mut OpenSpan, requires: u32, since_ns: u64) -> bool {
    // SAFETY: the caller's span is a live map value.
    unsafe { (*span).own_gates & requires != 0 && (*span).start_ns >= since_ns }
}

/// What the search for a parent carries along.
#[repr(C)]
struct Search {
    state: *mut ThreadState,
    since_ns: u64,
    requires: u32,
    /// Depth that admits the span, 0 where none is found.
    found: u32,
}

/// Looks at one span, from the top down.
unsafe extern "C" fn look_at_one(index: u32, search: *mut c_void) -> i64 {
    // SAFETY: `parent` passes a `Search` with a live map value.
    unsafe {
        let search = &mut *search.cast::<Search>();
        let depth = (*search.state).depth.wrapping_sub(index);
        let span = span_at(search.state, depth.wrapping_sub(1));
        if opens(span, search.requires, search.since_ns) {
            search.found = depth;
            return 1;
        }
        0
    }
}

/// Fills in what a new frame has to do with gates. `parent` is null for the first step of a scope.
///
/// # Safety
/// All are live map values; `depth` is the new frame's place.
#[inline(always)]
pub unsafe fn open(state: *mut ThreadState, depth: u32, slot: *mut ProbeSlot, parent: *mut OpenSpan) {
    // SAFETY: the caller's.
    unsafe {
        let span = span_at(state, depth);
        (*span).parent = 0;
        (*span).joined = 0;
        (*span).own_gates = (*slot).opens;
        sum(state, depth);
        if !parent.is_null() {
            (*span).parent = (*parent).sequence;
            if join(slot, parent) {
                (*span).flags |= OpenSpan::JOINED;
            }
        }
    }
}

/// Whether something inside a span waits for its duration, which then asks for the span's end.
///
/// # Safety
/// Both are live map values.
#[inline(always)]
pub unsafe fn join(slot: *mut ProbeSlot, parent: *mut OpenSpan) -> bool {
    // SAFETY: the caller's.
    unsafe {
        if (*slot).flags & ProbeSlot::JOINED == 0 {
            return false;
        }
        if u32::from((*parent).joined) >= MAX_JOINED {
            atomic::add(&raw mut (*slot).join_limit, 1);
            return false;
        }
        (*parent).joined += 1;
        let hits = &raw mut (*parent).hits;
        hits.write_volatile(hits.read_volatile().saturating_add(1));
        true
    }
}

/// Sums up the gates of a frame and of those below it.
///
/// # Safety
/// A live map value.
#[inline(always)]
pub unsafe fn sum(state: *mut ThreadState, index: u32) {
    // SAFETY: the caller's; indexes are masked.
    unsafe {
        let span = span_at(state, index);
        let below = if index == 0 {
            0
        } else {
            (*span_at(state, index - 1)).gates
        };
        (*span).gates = (*span).own_gates | below;
    }
}

/// Opens a gate in a span that is open, because a line was reached in it.
///
/// # Safety
/// Both are live map values, `span` one of `state`.
#[inline(never)]
pub unsafe fn reach(state: *mut ThreadState, span: *mut OpenSpan, gate: u32) {
    // SAFETY: the caller's; the callback takes a `Reach`, which outlives the call.
    unsafe {
        // Atomically: a place of the kernel may be reached while a line's program is at it.
        atomic::set_bits(&raw mut (*span).own_gates, gate);
        let mut reach = Reach { state, span, gate };
        bpf_loop(
            (*state).depth,
            reach_one as *mut c_void,
            (&raw mut reach).cast(),
            0,
        );
    }
}

/// What opening a gate carries along.
#[repr(C)]
struct Reach {
    state: *mut ThreadState,
    span: *mut OpenSpan,
    gate: u32,
}

/// Adds the gate to one sum, from the top down to the span itself.
unsafe extern "C" fn reach_one(index: u32, reach: *mut c_void) -> i64 {
    // SAFETY: `reach` passes a `Reach` with live map values.
    unsafe {
        let reach = &mut *reach.cast::<Reach>();
        let depth = (*reach.state).depth.wrapping_sub(index);
        let span = span_at(reach.state, depth.wrapping_sub(1));
        atomic::set_bits(&raw mut (*span).gates, reach.gate);
        i64::from(span == reach.span)
    }
}

const _: () = assert!(MAX_DEPTH == 128);
