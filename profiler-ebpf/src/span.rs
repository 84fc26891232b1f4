//! A thread's stack of open spans: opening, ending, and what was jumped over.
//!
//! Frames are kept outermost first. Without stack switches they nest: whatever lies above a span that
//! ends has been jumped over. Where the target switches stacks ([`Cookie::STACKS_SWITCH`]), a frame is
//! given up only when the memory of its return address has been overwritten.
//!
//! Calls of the kernel's functions are inside of all of the target's own. Their stack pointer is counted from the end of the
//! kernel's stack ([`KERNEL_STACK_BYTES`]), so that it is below every other: a thread that is in the target's code has left them.
//!
//! What a program does may lead through a function of the kernel that is probed itself: by a helper, a page fault, an interrupt
//! at whose end the thread gives up the CPU. So a thread's state says when it is being changed ([`ThreadState::busy`]), and such
//! a call is then let pass.
//!
//! No function here may use 64 bytes of stack or more. From Linux 6.13 the kernel gives such functions a
//! stack per CPU, although a uprobe program can be preempted by another thread's: they would overwrite
//! each other's, and with it the target's registers. The loader refuses it by the verifier's figures.
//!
//! The sampler can interrupt any of this on the same CPU, so a frame is complete before `depth` admits
//! it, and `depth` goes down before a frame's hits are read for the last time.

use core::{
    ffi::c_void,
    ptr,
    sync::atomic::{Ordering, compiler_fence},
};

use aya_ebpf::helpers::{bpf_ktime_get_ns, generated::bpf_loop};
use profiler_common::{
    limits::{KERNEL_STACK_BYTES, MAX_DEPTH, MAX_PENDING_RETURNS, MAX_PROBES},
    probe::{Cookie, ProbeId, ProbeSlot},
    record::SpanEnd,
    thread::{OpenSpan, ThreadState},
};

use crate::{atomic, emit, gate, histogram, hit, maps::PROBES, registers::Registers, task};

/// The page that the kernel maps into a target for its return probes. A return address there means
/// that a return probe is pending on that very stack slot.
const TRAMPOLINE_PAGE: u64 = 0x7fff_ffff_e000;

/// Opens a span of the current thread, whose state may be given by who has looked it up already; else null. A function of its own
/// for its share of the stack.
#[inline(never)]
pub fn enter(known: *mut ThreadState, cookie: Cookie, stack_pointer: u64, address: u64) {
    let Some(slot) = slot_of(cookie.probe()) else {
        return;
    };
    if goes_on(cookie, stack_pointer) {
        return;
    }
    // SAFETY: `slot` is a live map value, here and below.
    let requires = unsafe { (*slot).requires };
    if requires == 0 {
        // SAFETY: as above.
        unsafe { atomic::add(&raw mut (*slot).entries, 1) };
    }
    let state = if !known.is_null() {
        Some(known)
    } else if requires == 0 {
        task::state_or_new()
    } else {
        task::state()
    };
    let Some(state) = state else {
        // SAFETY: as above.
        unsafe {
            let without = if requires == 0 {
                &raw mut (*slot).no_state
            } else {
                &raw mut (*slot).outside
            };
            atomic::add(without, 1);
        };
        return;
    };
    // SAFETY: `state` is a live map value that only this thread writes; the index is masked.
    unsafe {
        set_busy(state, true);
        let mut depth = (*state).depth;
        if depth > 0 && (*span_at(state, depth - 1)).stack_pointer <= stack_pointer {
            settle(state, stack_pointer, cookie, address);
            depth = (*state).depth;
        }
        let mut parent = ptr::null_mut();
        if requires != 0 {
            parent = gate::parent(state, slot);
            if parent.is_null() {
                atomic::add(&raw mut (*slot).outside, 1);
                set_busy(state, false);
                return;
            }
            atomic::add(&raw mut (*slot).entries, 1);
        }
        // What is left says how the span is to be ended.
        let flags = cookie.flags() & !Cookie::LOOPS;
        let by_return_probe = flags & Cookie::RETURN_PROBE != 0;
        if depth >= MAX_DEPTH as u32 || by_return_probe && (*state).pending_returns >= MAX_PENDING_RETURNS {
            atomic::add(&raw mut (*slot).too_deep, 1);
            set_busy(state, false);
            return;
        }
        let span = span_at(state, depth);
        (*span).probe = cookie.probe();
        (*span).hits = 0;
        (*span).flags = flags;
        (*span).stack_pointer = stack_pointer;
        (*span).address = address as u32;
        (*span).return_address = if flags & Cookie::CALL_SITE != 0 {
            address.wrapping_add(u64::from(cookie.site())) as u32
        } else if flags & (Cookie::STACKS_SWITCH | Cookie::GOES_ON_ELSEWHERE) != 0
            && flags & Cookie::INLINED == 0
        {
            task::read_user(stack_pointer).unwrap_or(0) as u32
        } else {
            0
        };
        (*span).sampling_ns = 0;
        (*state).sequence = (*state).sequence.wrapping_add(1);
        (*span).sequence = (*state).sequence;
        gate::open(state, depth, slot, parent);
        if by_return_probe {
            (*state).pending_returns += 1;
        }
        // Last, so that the span holds as little of this program as can be; and before `depth` admits it: a sample in between is
        // not known to be the call's, so that nothing of it is taken off.
        (*span).start_ns = bpf_ktime_get_ns();
        compiler_fence(Ordering::SeqCst);
        (&raw mut (*state).depth).write_volatile(depth + 1);
        compiler_fence(Ordering::SeqCst);
        set_busy(state, false);
    }
}

/// Whether an entry is a turn of a loop within an open call, and no call.
#[inline(always)]
pub fn goes_on(cookie: Cookie, stack_pointer: u64) -> bool {
    if cookie.flags() & Cookie::LOOPS == 0 {
        return false;
    }
    let Some(state) = task::state() else { return false };
    // SAFETY: a live map value.
    unsafe { find(state, cookie.probe(), stack_pointer) != 0 }
}

/// Says that the thread's spans are being changed, or no more.
#[inline(always)]
unsafe fn set_busy(state: *mut ThreadState, busy: bool) {
    // SAFETY: the caller's live map value.
    unsafe { (&raw mut (*state).busy).write_volatile(u32::from(busy)) };
    compiler_fence(Ordering::SeqCst);
}

/// Whether a span is of a function of the kernel.
///
/// # Safety
/// A live map value.
#[inline(always)]
pub unsafe fn is_of_kernel(span: *const OpenSpan) -> bool {
    // SAFETY: the caller's.
    unsafe { (*span).stack_pointer < KERNEL_STACK_BYTES }
}

/// Whether the innermost span of the thread is that of a probe's call at a stack pointer.
#[inline(always)]
pub fn is_innermost(probe: ProbeId, stack_pointer: u64) -> bool {
    let Some(state) = task::state() else { return false };
    // SAFETY: a live map value; the index is masked.
    unsafe {
        let depth = (*state).depth;
        depth > 0 && is(span_at(state, depth - 1), probe, stack_pointer)
    }
}

/// Gives up calls of the kernel's functions that a thread must have left which enters one. Those of the target's are left to
/// its own probes: one that has just returned may not have been seen to yet. Nothing is changed, and the answer is no,
/// where the function is on the way of a program which changes the spans itself.
#[inline(always)]
pub fn leave_in_kernel(stack_pointer: u64) -> bool {
    let Some(state) = task::state() else { return true };
    // SAFETY: a live map value, and this thread's own.
    unsafe {
        if (&raw const (*state).busy).read_volatile() != 0 {
            return false;
        }
        leave(state, stack_pointer);
    }
    true
}

/// Has the end of the span recorded that has just been opened, and opens gates in it; its number, 0 where it was not
/// opened.
#[inline(always)]
pub fn ask_for_end(probe: ProbeId, stack_pointer: u64, gates: u32) -> u32 {
    let Some(state) = task::state() else { return 0 };
    // SAFETY: a live map value that only this thread writes; the index is masked.
    unsafe {
        let depth = (*state).depth;
        let span = span_at(state, depth.wrapping_sub(1));
        if depth == 0 || !is(span, probe, stack_pointer) {
            return 0;
        }
        let hits = &raw mut (*span).hits;
        hits.write_volatile(hits.read_volatile().saturating_add(1));
        (*span).own_gates |= gates;
        (*span).gates |= gates;
        (*span).sequence
    }
}

/// The stack pointer of a probe's innermost span of those that began at this stack pointer or above; `None` where it has none
/// open.
#[inline(never)]
pub fn innermost(probe: ProbeId, stack_pointer: u64) -> Option<u64> {
    let state = task::state()?;
    // SAFETY: a live map value; the callback takes a `Search`, which outlives the call.
    unsafe {
        let depth = (*state).depth;
        let mut search = Search {
            state,
            stack_pointer,
            probe,
            found: 0,
        };
        bpf_loop(depth, match_probe as *mut c_void, (&raw mut search).cast(), 0);
        if search.found == 0 {
            return None;
        }
        Some((*span_at(state, search.found - 1)).stack_pointer)
    }
}

/// Looks at one span, from the top down.
unsafe extern "C" fn match_probe(index: u32, search: *mut c_void) -> i64 {
    // SAFETY: `innermost` passes a `Search` with a live map value.
    unsafe {
        let search = &mut *search.cast::<Search>();
        let depth = (*search.state).depth.wrapping_sub(index);
        let span = span_at(search.state, depth.wrapping_sub(1));
        if (*span).probe == search.probe && (*span).stack_pointer >= search.stack_pointer {
            search.found = depth;
            return 1;
        }
        0
    }
}

/// Whether a return is of another caller's call of what a probed function ends in a jump to. The stack pointer alone does not tell:
/// a call that was left by a jump which nothing noticed can have begun there. Then that one is given up. A function of its
/// own for its share of the stack.
#[inline(always)]
pub fn is_of_another_caller(cookie: Cookie, stack_pointer: u64) -> bool {
    cookie.flags() & Cookie::ELSEWHERE != 0 && returns_to_another_caller(cookie, stack_pointer)
}

#[inline(never)]
fn returns_to_another_caller(cookie: Cookie, stack_pointer: u64) -> bool {
    let Some(state) = task::state() else { return false };
    // SAFETY: a live map value that only this thread writes; indexes are masked.
    unsafe {
        let found = find(state, cookie.probe(), stack_pointer);
        if found == 0 || goes_on_elsewhere(span_at(state, found.wrapping_sub(1))) {
            return false;
        }
        set_busy(state, true);
        lift(state, found);
        abandon(state, span_at(state, (*state).depth.wrapping_sub(1)));
        set_busy(state, false);
    }
    if let Some(slot) = slot_of(cookie.probe()) {
        // SAFETY: a live map value.
        unsafe { count_unmatched(slot, cookie) };
    }
    true
}

/// Ends the span that was opened at this stack pointer. `known` is as of [`enter`]; `address` is that of the site.
#[inline(always)]
pub fn exit(known: *mut ThreadState, ctx: *mut c_void, cookie: Cookie, stack_pointer: u64, address: u64) {
    if cookie.flags() & Cookie::CALL_SITE != 0 && !has_just_returned(stack_pointer, address) {
        // The instruction was reached by another way: without the call, or from where an exception was caught.
        return;
    }
    // SAFETY: the helper takes nothing.
    let end_ns = unsafe { bpf_ktime_get_ns() };
    let ctx = if has_returned(ctx, cookie, address) {
        ctx
    } else {
        ptr::null_mut()
    };
    let Some(slot) = slot_of(cookie.probe()) else {
        return;
    };
    let state = if known.is_null() {
        task::state()
    } else {
        Some(known)
    };
    let Some(state) = state else {
        // SAFETY: a live map value.
        unsafe { count_unmatched(slot, cookie) };
        return;
    };
    // SAFETY: `state` and `slot` are live map values; only this thread writes `state`; indexes are masked.
    unsafe {
        set_busy(state, true);
        let depth = (*state).depth;
        let top = depth.wrapping_sub(1);
        let matches_top = depth > 0 && is(span_at(state, top), cookie.probe(), stack_pointer);
        if !matches_top && !bring_to_top(state, slot, cookie, stack_pointer) {
            set_busy(state, false);
            return;
        }
        let top = (*state).depth.wrapping_sub(1);
        let span = span_at(state, top);
        pop(state, span);
        // A sample, a stack or a wait that came in between the clock and the pop is one of the call's if this span was told of it:
        // then so is its time. One that found the span left already is not, and its time lies behind the end.
        let resumed_ns = (&raw const (*state).resumed_ns).read_volatile();
        let was_told = (&raw const (*state).resumed_depth).read_volatile() > top;
        let end_ns = if resumed_ns > end_ns && was_told {
            bpf_ktime_get_ns()
        } else {
            end_ns
        };
        // What sampling took is not the call's; and sampled calls must not seem slow for being sampled.
        let sampling_ns = (&raw const (*span).sampling_ns).read_volatile();
        let duration_ns = end_ns.wrapping_sub((*span).start_ns).saturating_sub(sampling_ns);
        if (*slot).flags & ProbeSlot::DECIDES != 0 && is_refused(ctx, slot, span, duration_ns) {
            set_busy(state, false);
            return;
        }
        histogram::record(slot, duration_ns);
        if !is_told(span, slot, duration_ns) {
            set_busy(state, false);
            return;
        }
        if (*slot).flags & ProbeSlot::FOLLOWS != 0 && !ctx.is_null() {
            hit::follow(ctx, span);
        }
        // Read anew rather than kept over the call: what a program keeps is of its stack, which is to stay small.
        let start_ns = (&raw const (*span).start_ns).read_volatile();
        let hits = (&raw const (*span).hits).read_volatile();
        let slow = duration_ns >= (&raw const (*slot).threshold_ns).read_volatile();
        let joined = (&raw const (*span).flags).read_volatile() & OpenSpan::JOINED != 0;
        let slow = if slow { SpanEnd::SLOW } else { 0 };
        let joined = if joined { SpanEnd::JOINED } else { 0 };
        emit::span_end(
            span,
            u32::from(hits),
            start_ns.wrapping_add(duration_ns),
            slow | joined,
            ctx,
        );
        set_busy(state, false);
    }
}

/// Whether a span that has just ended does not count, as it has not returned what is asked. Then that is counted, and told
/// where something waits for its end.
#[inline(never)]
unsafe fn is_refused(
    ctx: *mut c_void,
    slot: *mut ProbeSlot,
    span: *const OpenSpan,
    duration_ns: u64,
) -> bool {
    // SAFETY: the caller's: its own context or null, and live map values.
    unsafe {
        let refused = hit::decide(ctx, span);
        if refused == 0 {
            return false;
        }
        let counter = if refused & SpanEnd::UNDECIDED == 0 {
            &raw mut (*slot).refused
        } else {
            &raw mut (*slot).undecided
        };
        atomic::add(counter, 1);
        let hits = (&raw const (*span).hits).read_volatile();
        if hits > 0 {
            let joined = (*span).flags & OpenSpan::JOINED != 0;
            let joined = if joined { SpanEnd::JOINED } else { 0 };
            let end_ns = (*span).start_ns.wrapping_add(duration_ns);
            emit::span_end(span, u32::from(hits), end_ns, refused | joined, ctx);
        }
        true
    }
}

/// Whether the end of a span becomes a record.
#[inline(always)]
unsafe fn is_told(span: *const OpenSpan, slot: *const ProbeSlot, duration_ns: u64) -> bool {
    // SAFETY: the caller's, live map values.
    unsafe {
        let hits = (&raw const (*span).hits).read_volatile();
        hits > 0 || duration_ns >= (*slot).threshold_ns || (*span).flags & OpenSpan::JOINED != 0
    }
}

/// Whether the registers hold what the span returns: not where another function is to return in its place, nor where another
/// program on the site behind a call has done the instruction there already.
#[inline(always)]
fn has_returned(ctx: *mut c_void, cookie: Cookie, address: u64) -> bool {
    let is_there =
        cookie.flags() & Cookie::CALL_SITE == 0 || Registers::new(ctx).instruction_pointer() == address;
    cookie.flags() & Cookie::JUMP == 0 && is_there
}

/// Whether the thread is where it is because a call has just returned to it: its return address lies right below the
/// stack pointer, or what a return probe has put there.
#[inline(always)]
fn has_just_returned(stack_pointer: u64, address: u64) -> bool {
    task::read_user(stack_pointer.wrapping_sub(8))
        .is_some_and(|below| below == address || below & !0xfff == TRAMPOLINE_PAGE)
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
    let mut walk = Walk {
        state,
        stack_pointer: u64::MAX,
        floor: 0,
        on_alternate: false,
        switches: false,
        enters: false,
        is_within: false,
        address: 0,
    };
    // SAFETY: a live map value; the callback takes a `Walk`, which outlives the call.
    unsafe {
        set_busy(state, true);
        bpf_loop(
            MAX_DEPTH as u32,
            abandon_above as *mut c_void,
            (&raw mut walk).cast(),
            0,
        );
        set_busy(state, false);
    };
    open
}

/// What the loops over a thread's spans carry along.
#[repr(C)]
struct Walk {
    state: *mut ThreadState,
    /// Stack pointer of the entry or exit at hand.
    stack_pointer: u64,
    /// Spans below this depth stay.
    floor: u32,
    on_alternate: bool,
    switches: bool,
    /// A call begins there, rather than a line.
    enters: bool,
    /// It is made there, or inlined, rather than entered: it begins within a frame.
    is_within: bool,
    /// Where it begins, the lower half: other probes may have seen it.
    address: u32,
}

/// Before a span opens: gives up the topmost spans that this entry shows to be dead.
#[inline(never)]
unsafe fn settle(state: *mut ThreadState, stack_pointer: u64, cookie: Cookie, address: u64) {
    let mut walk = Walk {
        state,
        stack_pointer,
        floor: 0,
        on_alternate: task::on_alternate_stack(stack_pointer),
        switches: cookie.flags() & Cookie::STACKS_SWITCH != 0,
        enters: true,
        is_within: cookie.flags() & (Cookie::CALL_SITE | Cookie::INLINED) != 0,
        address: address as u32,
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
    // SAFETY: a live map value.
    unsafe { abandon_own(state, cookie, stack_pointer) };
}

/// Gives up the span that the entering probe itself has at this stack pointer: a probe sees a call once, so that one is
/// over. What other probes have there they look after themselves.
#[inline(never)]
unsafe fn abandon_own(state: *mut ThreadState, cookie: Cookie, stack_pointer: u64) {
    // SAFETY: the caller's state is a live map value; indexes are masked.
    unsafe {
        let own = find(state, cookie.probe(), stack_pointer);
        if own == 0 {
            return;
        }
        let is_open_still =
            cookie.flags() & Cookie::STACKS_SWITCH == 0 && is_tail_call(span_at(state, own.wrapping_sub(1)));
        if is_open_still {
            return;
        }
        lift(state, own);
        abandon(state, span_at(state, (*state).depth.wrapping_sub(1)));
    }
}

/// Gives up the topmost spans that a thread whose stack pointer is here must have left.
///
/// # Safety
/// `state` is a live map value, and this thread's own.
#[inline(never)]
pub unsafe fn leave(state: *mut ThreadState, stack_pointer: u64) {
    // SAFETY: the caller's; the callback takes a `Walk`, which outlives the call.
    unsafe {
        let depth = (*state).depth;
        if depth == 0 || (*span_at(state, depth - 1)).stack_pointer >= stack_pointer {
            return;
        }
        let mut walk = Walk {
            state,
            stack_pointer,
            floor: 0,
            on_alternate: task::on_alternate_stack(stack_pointer),
            switches: false,
            enters: false,
            is_within: false,
            address: 0,
        };
        set_busy(state, true);
        bpf_loop(
            MAX_DEPTH as u32,
            settle_one as *mut c_void,
            (&raw mut walk).cast(),
            0,
        );
        set_busy(state, false);
    }
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
        let dead = if walk.enters && (*span).stack_pointer == walk.stack_pointer {
            // Of another session, which saw this very call first; or the function that makes this call, and has moved
            // its stack pointer by nothing, or what is inlined around it.
            // Of the kernel, a function that this one takes the place of, as they return together.
            let is_of_call_site = (*span).flags & Cookie::CALL_SITE != 0;
            let lives =
                (*span).address == walk.address || walk.is_within && !is_of_call_site || is_of_kernel(span);
            !lives && !goes_on_elsewhere(span) && (walk.switches || !is_tail_call(span))
        } else {
            passed(span, walk.stack_pointer, walk.on_alternate)
        };
        if !dead {
            return 1;
        }
        abandon(walk.state, span);
        0
    }
}

/// Whether a thread whose stack pointer is now elsewhere must have left this span, by a jump that
/// nothing noticed.
#[inline(always)]
pub unsafe fn passed(span: *mut OpenSpan, stack_pointer: u64, on_alternate: bool) -> bool {
    // SAFETY: the caller's span is a live map value.
    let (flags, own) = unsafe { ((*span).flags, (*span).stack_pointer) };
    if own < KERNEL_STACK_BYTES || stack_pointer < KERNEL_STACK_BYTES {
        return own < stack_pointer;
    }
    if flags & Cookie::STACKS_SWITCH != 0 {
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
    flags & Cookie::RETURN_PROBE != 0
        && task::read_user(stack_pointer).is_some_and(|address| address & !0xfff == TRAMPOLINE_PAGE)
}

/// Whether what is at a span's stack pointer may be what its function ends in a jump to: it has the same return address, or one that
/// a return probe has replaced since.
#[inline(always)]
unsafe fn goes_on_elsewhere(span: *mut OpenSpan) -> bool {
    // SAFETY: the caller's span is a live map value.
    unsafe {
        (*span).flags & Cookie::GOES_ON_ELSEWHERE != 0
            && task::read_user((*span).stack_pointer).is_some_and(|address| {
                address as u32 == (*span).return_address || address & !0xfff == TRAMPOLINE_PAGE
            })
    }
}

/// Whether the stack slot of a span's return address has been used for something else.
#[inline(always)]
unsafe fn overwritten(span: *mut OpenSpan) -> bool {
    // SAFETY: the caller's span is a live map value.
    unsafe {
        // Where in its frame the return address is, is not known.
        if (*span).flags & Cookie::INLINED != 0 {
            return false;
        }
        // A call site's stack pointer is that before the call.
        let below = if (*span).flags & Cookie::CALL_SITE != 0 {
            8
        } else {
            0
        };
        task::read_user((*span).stack_pointer.wrapping_sub(below))
            .is_none_or(|address| address as u32 != (*span).return_address)
    }
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
                count_unmatched(slot, cookie);
            }
            return false;
        }
        if cookie.flags() & Cookie::STACKS_SWITCH == 0 {
            abandon_down_to(state, found, stack_pointer);
        }
        lift(state, found);
        true
    }
}

/// Counts an end without a beginning: of a call that had begun before the probe came, or of others who call what its function ends
/// in a jump to. A call whose gate was closed, or whose values were not as asked, was not opened either.
#[inline(always)]
unsafe fn count_unmatched(slot: *mut ProbeSlot, cookie: Cookie) {
    // SAFETY: the caller's slot is a live map value.
    unsafe {
        if cookie.flags() & Cookie::ELSEWHERE != 0 {
            atomic::add(&raw mut (*slot).passed_by, 1);
        } else if (*slot).requires == 0 && (*slot).flags & ProbeSlot::LOOKS == 0 {
            atomic::add(&raw mut (*slot).unmatched, 1);
        }
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

/// Gives up what lies above a floor, from the top down to the first span of the call at hand.
#[inline(never)]
unsafe fn abandon_down_to(state: *mut ThreadState, floor: u32, stack_pointer: u64) {
    let mut walk = Walk {
        state,
        stack_pointer,
        floor,
        on_alternate: false,
        switches: false,
        enters: false,
        is_within: false,
        address: 0,
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
}

/// Gives up the topmost span while it lies above the floor, and is not of the call at hand.
unsafe extern "C" fn abandon_above(_index: u32, walk: *mut c_void) -> i64 {
    // SAFETY: the callers pass a `Walk` with a live map value.
    unsafe {
        let walk = &*walk.cast::<Walk>();
        let depth = (*walk.state).depth;
        if depth <= walk.floor || (*span_at(walk.state, depth - 1)).stack_pointer == walk.stack_pointer {
            return 1;
        }
        abandon(walk.state, span_at(walk.state, depth - 1));
        0
    }
}

/// What moving a span up carries along.
#[repr(C)]
struct Lift {
    state: *mut ThreadState,
    /// The depth that admits the span.
    depth: u32,
}

/// Brings the span that a depth admits to the top. What is above it lives: on another stack, or as another session's span of the same call.
#[inline(never)]
unsafe fn lift(state: *mut ThreadState, depth: u32) {
    let mut lift = Lift { state, depth };
    // SAFETY: `state` is a live map value; the callback takes a `Lift`, which outlives the call.
    unsafe {
        let admitted = &raw mut (*state).depth;
        let all = admitted.read_volatile();
        // The sampler must not see a span that is half another.
        admitted.write_volatile(depth.wrapping_sub(1));
        compiler_fence(Ordering::SeqCst);
        bpf_loop(
            all.wrapping_sub(depth),
            lift_one as *mut c_void,
            (&raw mut lift).cast(),
            0,
        );
        compiler_fence(Ordering::SeqCst);
        admitted.write_volatile(all);
    };
}

/// Moves the span one place up by swapping it with its neighbour. Places are counted by the loop: a counter of its own
/// would differ at each turn, and the verifier of Linux 7 would follow every one.
unsafe extern "C" fn lift_one(index: u32, lift: *mut c_void) -> i64 {
    // SAFETY: `lift` passes a `Lift` with a live map value; both places are below the state's depth.
    unsafe {
        let lift = &*lift.cast::<Lift>();
        let upper = lift.depth.wrapping_add(index);
        let lower = upper.wrapping_sub(1);
        swap(
            span_at(lift.state, lower).cast(),
            span_at(lift.state, upper).cast(),
        );
        gate::sum(lift.state, lower);
        gate::sum(lift.state, upper);
    }
    0
}

/// Swaps two spans word by word: a whole one on the stack would be more than a function here may use.
#[inline(always)]
unsafe fn swap(one: *mut u64, other: *mut u64) {
    // SAFETY: the caller's spans are live map values of so many words.
    unsafe {
        for word in 0..size_of::<OpenSpan>() / size_of::<u64>() {
            let (one, other) = (one.add(word), other.add(word));
            let moved = one.read_volatile();
            one.write_volatile(other.read_volatile());
            other.write_volatile(moved);
        }
    }
}

/// Gives up the topmost span.
#[inline(always)]
unsafe fn abandon(state: *mut ThreadState, span: *mut OpenSpan) {
    // SAFETY: the caller passes live map values, `span` the topmost of `state`.
    unsafe {
        pop(state, span);
        let probe = (*span).probe;
        if let Some(slot) = slot_of(probe) {
            atomic::add(&raw mut (*slot).abandoned, 1);
        }
        let hits = (&raw const (*span).hits).read_volatile();
        let joined = (*span).flags & OpenSpan::JOINED != 0;
        if hits > 0 || joined {
            let joined = if joined { SpanEnd::JOINED } else { 0 };
            emit::span_end(
                span,
                u32::from(hits),
                bpf_ktime_get_ns(),
                SpanEnd::ABANDONED | joined,
                ptr::null_mut(),
            );
        }
    }
}

/// Takes the topmost span off; it stays readable until the thread opens another.
#[inline(always)]
unsafe fn pop(state: *mut ThreadState, span: *mut OpenSpan) {
    // SAFETY: the caller passes live map values, `span` the topmost of `state`.
    unsafe {
        if (*span).flags & Cookie::RETURN_PROBE != 0 {
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
pub fn slot_of(probe: ProbeId) -> Option<*mut ProbeSlot> {
    let slot = PROBES.get_ptr_mut(probe.index() & (MAX_PROBES - 1))?;
    // SAFETY: a live map value; the daemon writes the id before anything is attached.
    if unsafe { (*slot).id } == probe {
        Some(slot)
    } else {
        None
    }
}
