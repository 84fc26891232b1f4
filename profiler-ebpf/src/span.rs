//! A thread's stack of open spans: opening, ending, and what was jumped over.
//!
//! Frames are kept outermost first. Without stack switches they nest: whatever lies above a span that
//! ends has been jumped over. Where the target switches stacks ([`Cookie::STACKS_SWITCH`]), a frame is
//! given up only when the memory of its return address has been overwritten.
//!
//! No function here may use 64 bytes of stack or more. From Linux 6.13 the kernel gives such functions a
//! stack per CPU, although a uprobe program can be preempted by another thread's: they would overwrite
//! each other's, and with it the target's registers. The loader refuses it by the verifier's figures.
//!
//! The sampler can interrupt any of this on the same CPU, so a frame is complete before `depth` admits
//! it, and `depth` goes down before a frame's hits are read for the last time.

use core::{
    ffi::c_void,
    sync::atomic::{Ordering, compiler_fence},
};

use aya_ebpf::helpers::{bpf_ktime_get_ns, generated::bpf_loop};
use profiler_common::{
    limits::{MAX_DEPTH, MAX_PENDING_RETURNS, MAX_PROBES},
    probe::{Cookie, ProbeId, ProbeSlot},
    record::SpanEnd,
    thread::{OpenSpan, ThreadState},
};

use crate::{atomic, emit, histogram, maps::PROBES, task};

/// The page that the kernel maps into a target for its return probes. A return address there means
/// that a return probe is pending on that very stack slot.
const TRAMPOLINE_PAGE: u64 = 0x7fff_ffff_e000;

/// Opens a span.
#[inline(always)]
pub fn enter(cookie: Cookie, stack_pointer: u64) {
    let Some(slot) = slot_of(cookie.probe()) else {
        return;
    };
    // SAFETY: `slot` is a live map value, here and below.
    unsafe { atomic::add(&raw mut (*slot).entries, 1) };
    let Some(state) = task::state_or_new() else {
        // SAFETY: as above.
        unsafe { atomic::add(&raw mut (*slot).no_state, 1) };
        return;
    };
    // SAFETY: `state` is a live map value that only this thread writes; the index is masked.
    unsafe {
        let mut depth = (*state).depth;
        if depth > 0 && (*span_at(state, depth - 1)).stack_pointer <= stack_pointer {
            settle(state, stack_pointer, cookie);
            depth = (*state).depth;
        }
        let flags = cookie.flags();
        let by_return_probe = flags & Cookie::RETURN_PROBE != 0;
        if depth >= MAX_DEPTH as u32 || by_return_probe && (*state).pending_returns >= MAX_PENDING_RETURNS {
            atomic::add(&raw mut (*slot).too_deep, 1);
            return;
        }
        let span = span_at(state, depth);
        (*span).probe = cookie.probe();
        (*span).hits = 0;
        (*span).flags = u16::from(flags);
        (*span).stack_pointer = stack_pointer;
        (*span).return_address = if flags & Cookie::STACKS_SWITCH != 0 {
            task::read_user(stack_pointer).unwrap_or(0)
        } else {
            0
        };
        (*span).sampling_ns = 0;
        (*span).sequence = (*state).sequence;
        (*state).sequence += 1;
        if by_return_probe {
            (*state).pending_returns += 1;
        }
        // Last, so that the span holds as little of this program as can be.
        (*span).start_ns = bpf_ktime_get_ns();
        compiler_fence(Ordering::SeqCst);
        (&raw mut (*state).depth).write_volatile(depth + 1);
    }
}

/// Ends the span that was opened at this stack pointer.
#[inline(always)]
pub fn exit(cookie: Cookie, stack_pointer: u64) {
    // SAFETY: the helper takes nothing.
    let end_ns = unsafe { bpf_ktime_get_ns() };
    let Some(slot) = slot_of(cookie.probe()) else {
        return;
    };
    let Some(state) = task::state() else {
        // SAFETY: a live map value.
        unsafe { atomic::add(&raw mut (*slot).unmatched, 1) };
        return;
    };
    // SAFETY: `state` and `slot` are live map values; only this thread writes `state`; indexes are masked.
    unsafe {
        let depth = (*state).depth;
        let top = depth.wrapping_sub(1);
        let matches_top = depth > 0 && is(span_at(state, top), cookie.probe(), stack_pointer);
        if !matches_top && !bring_to_top(state, slot, cookie, stack_pointer) {
            return;
        }
        let top = (*state).depth.wrapping_sub(1);
        let span = span_at(state, top);
        pop(state, span);
        // What sampling took is not the call's; and sampled calls must not seem slow for being sampled.
        let sampling_ns = (&raw const (*span).sampling_ns).read_volatile();
        let start_ns = (*span).start_ns;
        let duration_ns = end_ns.wrapping_sub(start_ns).saturating_sub(sampling_ns);
        histogram::record(slot, duration_ns);
        let hits = (&raw const (*span).hits).read_volatile();
        let slow = duration_ns >= (*slot).threshold_ns;
        if hits > 0 || slow {
            emit::span_end(
                span,
                u32::from(hits),
                start_ns.wrapping_add(duration_ns),
                if slow { SpanEnd::SLOW } else { 0 },
            );
        }
    }
}

/// Gives up everything that is open, because the thread or its program comes to its end; says how
/// much that was. `thread` is the id under which the spans were opened.
#[inline(always)]
pub fn abandon_all(thread: u32) -> u32 {
    let Some(state) = task::state_of(thread) else {
        return 0;
    };
    // SAFETY: a live map value.
    let open = unsafe { (*state).depth };
    if open == 0 {
        return 0;
    }
    // SAFETY: the helper takes nothing.
    let now_ns = unsafe { bpf_ktime_get_ns() };
    let mut walk = Walk {
        state,
        now_ns,
        stack_pointer: u64::MAX,
        floor: 0,
        on_alternate: false,
        switches: false,
    };
    // SAFETY: the callback takes a `Walk`, which outlives the call.
    unsafe {
        bpf_loop(
            MAX_DEPTH as u32,
            abandon_above as *mut c_void,
            (&raw mut walk).cast(),
            0,
        )
    };
    open
}

/// What the loops over a thread's spans carry along.
#[repr(C)]
struct Walk {
    state: *mut ThreadState,
    now_ns: u64,
    /// Stack pointer of the entry or exit at hand.
    stack_pointer: u64,
    /// Spans below this depth stay.
    floor: u32,
    on_alternate: bool,
    switches: bool,
}

/// Before a span opens: gives up the topmost spans that this entry shows to be dead.
#[inline(never)]
unsafe fn settle(state: *mut ThreadState, stack_pointer: u64, cookie: Cookie) {
    let mut walk = Walk {
        state,
        // SAFETY: the helper takes nothing.
        now_ns: unsafe { bpf_ktime_get_ns() },
        stack_pointer,
        floor: 0,
        on_alternate: task::on_alternate_stack(stack_pointer),
        switches: cookie.flags() & Cookie::STACKS_SWITCH != 0,
    };
    // SAFETY: the callback takes a `Walk`, which outlives the call.
    unsafe {
        bpf_loop(
            MAX_DEPTH as u32,
            settle_one as *mut c_void,
            (&raw mut walk).cast(),
            0,
        )
    };
}

/// Gives up the topmost span if it is dead; stops at the first that lives.
unsafe extern "C" fn settle_one(_index: u32, walk: *mut c_void) -> i64 {
    // SAFETY: `settle` passes a `Walk` with a live map value.
    unsafe {
        let walk = &*walk.cast::<Walk>();
        let depth = (*walk.state).depth;
        if depth == 0 {
            return 1;
        }
        let span = span_at(walk.state, depth - 1);
        let dead = if (*span).stack_pointer == walk.stack_pointer {
            walk.switches || !is_tail_call(span)
        } else {
            passed(span, walk.stack_pointer, walk.on_alternate)
        };
        if !dead {
            return 1;
        }
        abandon(walk.state, span, walk.now_ns);
        0
    }
}

/// Whether a thread whose stack pointer is now elsewhere must have left this span, by a jump that
/// nothing noticed.
#[inline(always)]
pub unsafe fn passed(span: *mut OpenSpan, stack_pointer: u64, on_alternate: bool) -> bool {
    // SAFETY: the caller's span is a live map value.
    let (flags, own) = unsafe { ((*span).flags, (*span).stack_pointer) };
    if flags & u16::from(Cookie::STACKS_SWITCH) != 0 {
        // SAFETY: as above.
        return own < stack_pointer && unsafe { overwritten(span) };
    }
    let own_on_alternate = task::on_alternate_stack(own);
    if own_on_alternate != on_alternate {
        // Back on the ordinary stack: the handler was left by a jump. On the alternate one: a handler
        // runs, and what it interrupted lives.
        return own_on_alternate;
    }
    own < stack_pointer
}

/// A second entry at one stack pointer: a tail call keeps the return address that the first entry's
/// return probe replaced; a new call has put its own there. A span that ends at its jump is over.
#[inline(always)]
unsafe fn is_tail_call(span: *mut OpenSpan) -> bool {
    // SAFETY: the caller's span is a live map value.
    let (flags, stack_pointer) = unsafe { ((*span).flags, (*span).stack_pointer) };
    flags & u16::from(Cookie::RETURN_PROBE) != 0
        && task::read_user(stack_pointer).is_some_and(|address| address & !0xfff == TRAMPOLINE_PAGE)
}

/// Whether the stack slot of a span's return address has been used for something else.
#[inline(always)]
unsafe fn overwritten(span: *mut OpenSpan) -> bool {
    // SAFETY: the caller's span is a live map value.
    unsafe { task::read_user((*span).stack_pointer) != Some((*span).return_address) }
}

/// What the search for an exit's span carries along.
#[repr(C)]
struct Search {
    state: *mut ThreadState,
    stack_pointer: u64,
    probe: ProbeId,
    /// Depth that admits the span, 0 where none is found.
    found: u32,
}

/// An exit whose span is not on top: makes it so, or counts why there is none.
#[inline(never)]
unsafe fn bring_to_top(
    state: *mut ThreadState,
    slot: *mut ProbeSlot,
    cookie: Cookie,
    stack_pointer: u64,
) -> bool {
    // SAFETY: both are live map values; the callbacks take what they are given, which outlives the calls.
    unsafe {
        let depth = (*state).depth;
        let found = find(state, cookie.probe(), stack_pointer);
        if found == 0 {
            // The end of a call that was too deep to be kept has been counted at its entry.
            let too_deep =
                depth as usize >= MAX_DEPTH && stack_pointer < (*span_at(state, depth - 1)).stack_pointer;
            if !too_deep {
                atomic::add(&raw mut (*slot).unmatched, 1);
            }
            return false;
        }
        let mut walk = Walk {
            state,
            now_ns: bpf_ktime_get_ns(),
            stack_pointer,
            floor: found,
            on_alternate: false,
            switches: false,
        };
        if cookie.flags() & Cookie::STACKS_SWITCH == 0 {
            bpf_loop(
                MAX_DEPTH as u32,
                abandon_above as *mut c_void,
                (&raw mut walk).cast(),
                0,
            );
        } else {
            bpf_loop(
                depth.wrapping_sub(found),
                lift_one as *mut c_void,
                (&raw mut walk).cast(),
                0,
            );
        }
        true
    }
}

/// The depth that admits the span of a probe at a stack pointer; 0 where there is none.
#[inline(never)]
unsafe fn find(state: *mut ThreadState, probe: ProbeId, stack_pointer: u64) -> u32 {
    let mut search = Search {
        state,
        stack_pointer,
        probe,
        found: 0,
    };
    // SAFETY: `state` is a live map value; the callback takes a `Search`, which outlives the call.
    unsafe {
        bpf_loop(
            (*state).depth,
            match_one as *mut c_void,
            (&raw mut search).cast(),
            0,
        )
    };
    search.found
}

/// Looks at one span, from the top down.
unsafe extern "C" fn match_one(index: u32, search: *mut c_void) -> i64 {
    // SAFETY: `bring_to_top` passes a `Search` with a live map value.
    unsafe {
        let search = &mut *search.cast::<Search>();
        let depth = (*search.state).depth.wrapping_sub(index);
        if is(
            span_at(search.state, depth.wrapping_sub(1)),
            search.probe,
            search.stack_pointer,
        ) {
            search.found = depth;
            return 1;
        }
        0
    }
}

/// Gives up the topmost span while it lies above the floor.
unsafe extern "C" fn abandon_above(_index: u32, walk: *mut c_void) -> i64 {
    // SAFETY: the callers pass a `Walk` with a live map value.
    unsafe {
        let walk = &*walk.cast::<Walk>();
        let depth = (*walk.state).depth;
        if depth <= walk.floor {
            return 1;
        }
        abandon(walk.state, span_at(walk.state, depth - 1), walk.now_ns);
        0
    }
}

/// Moves the span at the floor one place up by swapping it with its neighbour, which may belong to
/// another stack and live on.
unsafe extern "C" fn lift_one(_index: u32, walk: *mut c_void) -> i64 {
    // SAFETY: `bring_to_top` passes a `Walk` with a live map value; both places are below `depth`.
    unsafe {
        let walk = &mut *walk.cast::<Walk>();
        let lower = span_at(walk.state, walk.floor.wrapping_sub(1));
        let upper = span_at(walk.state, walk.floor);
        let moved = *lower;
        *lower = *upper;
        *upper = moved;
        walk.floor += 1;
    }
    0
}

/// Gives up the topmost span.
#[inline(always)]
unsafe fn abandon(state: *mut ThreadState, span: *mut OpenSpan, now_ns: u64) {
    // SAFETY: the caller passes live map values, `span` the topmost of `state`.
    unsafe {
        pop(state, span);
        let probe = (*span).probe;
        if let Some(slot) = slot_of(probe) {
            atomic::add(&raw mut (*slot).abandoned, 1);
        }
        let hits = (&raw const (*span).hits).read_volatile();
        if hits > 0 {
            emit::span_end(span, u32::from(hits), now_ns, SpanEnd::ABANDONED);
        }
    }
}

/// Takes the topmost span off; it stays readable until the thread opens another.
#[inline(always)]
unsafe fn pop(state: *mut ThreadState, span: *mut OpenSpan) {
    // SAFETY: the caller passes live map values, `span` the topmost of `state`.
    unsafe {
        if (*span).flags & u16::from(Cookie::RETURN_PROBE) != 0 {
            (*state).pending_returns = (*state).pending_returns.saturating_sub(1);
        }
        let depth = &raw mut (*state).depth;
        depth.write_volatile(depth.read_volatile().wrapping_sub(1));
        compiler_fence(Ordering::SeqCst);
    }
}

#[inline(always)]
unsafe fn is(span: *mut OpenSpan, probe: ProbeId, stack_pointer: u64) -> bool {
    // SAFETY: the caller's span is a live map value.
    unsafe { (*span).probe == probe && (*span).stack_pointer == stack_pointer }
}

/// The place of a span; the index is masked, so that the verifier need not follow its history.
#[inline(always)]
pub unsafe fn span_at(state: *mut ThreadState, index: u32) -> *mut OpenSpan {
    let mut index = u64::from(index);
    // SAFETY: register arithmetic that the optimiser cannot drop; the result is within the array.
    unsafe {
        core::arch::asm!("{0} &= 127", inout(reg) index);
        (&raw mut (*state).spans).cast::<OpenSpan>().add(index as usize)
    }
}

const _: () = assert!(MAX_DEPTH == 128);

/// A probe's slot, unless it has been given to another probe since.
#[inline(always)]
fn slot_of(probe: ProbeId) -> Option<*mut ProbeSlot> {
    let slot = PROBES.get_ptr_mut(probe.index() & (MAX_PROBES - 1))?;
    // SAFETY: a live map value; the daemon writes the id before anything is attached.
    if unsafe { (*slot).id } == probe {
        Some(slot)
    } else {
        None
    }
}
