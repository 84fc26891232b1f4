//! Calls of the kernel's own functions, as spans of the thread that makes them.
//!
//! These programs run for every thread that calls the function, so they look at the process first. They count what the
//! thread does itself: in its system calls, exceptions and page faults. An interrupt has a stack of its own, or, where it comes
//! while the thread is in the target's code, says so in the CPU's count.
//!
//! Their working memory is the CPU's, see `place.rs`. They may interrupt a program of the thread that is at a probe of the
//! target: see `span.rs`.

use core::{ffi::c_void, ptr};

use aya_ebpf::helpers::{
    bpf_get_smp_processor_id, bpf_probe_read_kernel,
    generated::{bpf_get_current_task_btf, bpf_get_func_ip},
};
use profiler_common::{
    hit::HitSlot,
    limits::KERNEL_STACK_BYTES,
    probe::{Cookie, ProbeSlot},
};

use crate::{
    atomic, gate, hit,
    maps::{self, CPU_STATE},
    place::{self, REGISTERS_BYTES},
    registers::Registers,
    span, task,
};

/// Bytes from a function's first instruction to behind its call of the tracer, at most: `endbr64` and a call.
const TRACER_BYTES: u64 = 9;

/// Bytes of a return address.
const RETURN_ADDRESS: u64 = 8;

/// What a program of both ends says where the call begins: that its return is to be seen too.
pub const FOLLOW: u32 = 0;
/// The same: that it is not.
pub const LET_PASS: u32 = 1;

/// Whether a function is entered, rather than returned from, where one program sees both.
#[inline(always)]
pub fn is_entered(ctx: *mut c_void) -> bool {
    // SAFETY: the program's own context.
    let function = unsafe { bpf_get_func_ip(ctx) };
    // Where it returns to is behind a call in another function, or in this one, behind that of the tracer.
    Registers::new(ctx).instruction_pointer().wrapping_sub(function) <= TRACER_BYTES
}

/// A function is entered. Whether a span was opened.
#[inline(always)]
pub fn enter(ctx: *mut c_void, cookie: Cookie) -> bool {
    let Some((probe, slot)) = place::admitted_slots(cookie) else {
        return false;
    };
    let registers = Registers::new(ctx);
    let Some(stack_pointer) = place_on_stack(registers.stack_pointer()) else {
        return false;
    };
    if is_in_interrupt() {
        return false;
    }
    // SAFETY: live map values.
    unsafe { open(ctx, cookie, (probe, slot), stack_pointer) }
}

/// A function is entered that is only counted.
#[inline(always)]
pub fn count(cookie: Cookie) {
    if let Some((probe, _)) = place::admitted_slots(cookie)
        && !is_in_interrupt()
    {
        // SAFETY: a live map value.
        unsafe { atomic::add(&raw mut (*probe).entries, 1) };
    }
}

/// Opens a span where all is as is asked.
#[inline(always)]
unsafe fn open(
    ctx: *mut c_void,
    cookie: Cookie,
    (probe, slot): (*mut ProbeSlot, *mut HitSlot),
    stack_pointer: u64,
) -> bool {
    // SAFETY: the caller's, live map values.
    unsafe {
        if !span::leave_in_kernel(stack_pointer) {
            atomic::add(&raw mut (*probe).entries, 1);
            atomic::add(&raw mut (*probe).no_state, 1);
            return false;
        }
        if (*probe).requires != 0 && !is_inside(probe) {
            atomic::add(&raw mut (*probe).outside, 1);
            return false;
        }
        if (*slot).required > 0 {
            let Some(reading) = place::begin(ctx, slot, REGISTERS_BYTES) else {
                return false;
            };
            let passes = hit::passes::<false>(reading, slot);
            place::end(reading);
            if !passes {
                return false;
            }
        }
        let address = Registers::new(ctx).instruction_pointer();
        span::enter(ptr::null_mut(), cookie, stack_pointer, address);
        if !span::is_innermost(cookie.probe(), stack_pointer) {
            return false;
        }
        if (*slot).flags & HitSlot::RECORD != 0 && hit::may_record(slot) {
            let sequence = span::ask_for_end(cookie.probe(), stack_pointer, (*slot).opens);
            if sequence != 0
                && let Some(reading) = place::begin(ctx, slot, REGISTERS_BYTES)
            {
                hit::read_beginning::<false>(reading, slot);
                hit::send_beginning(reading, slot, cookie, sequence);
                place::end(reading);
            }
        }
    }
    true
}

/// A function returns whose entry the same program has seen, and opened a span at.
#[inline(always)]
pub fn exit_seen(ctx: *mut c_void, cookie: Cookie) {
    exit(ctx, cookie, |_| true);
}

/// A function returns, be it that no span was opened where it was entered.
#[inline(always)]
pub fn exit_any(ctx: *mut c_void, cookie: Cookie) {
    exit(ctx, cookie, |is_exact| is_exact);
}

/// Ends the innermost span that the stack pointer has come back to, if it is the one. Some kernels give a stack pointer that
/// is too low, below what they have put there themselves.
#[inline(always)]
fn exit(ctx: *mut c_void, cookie: Cookie, is_the_one: impl Fn(bool) -> bool) {
    if place::admitted_slots(cookie).is_none() {
        return;
    }
    let returned = Registers::new(ctx).stack_pointer();
    let Some(stack_pointer) = place_on_stack(returned.wrapping_sub(RETURN_ADDRESS)) else {
        return;
    };
    if let Some(opened) = span::innermost(cookie.probe(), stack_pointer)
        && is_the_one(opened == stack_pointer)
    {
        span::exit(ptr::null_mut(), ctx, cookie, opened, 0);
    }
}

/// Whether the gate is open that a probe requires.
#[inline(always)]
unsafe fn is_inside(probe: *mut ProbeSlot) -> bool {
    let Some(state) = task::state() else {
        return false;
    };
    // SAFETY: the caller's, live map values.
    unsafe { !gate::living_parent(state, probe, task::user_stack_pointer()).is_null() }
}

/// How far a stack pointer is above the end of the thread's kernel stack; `None` where it is on another.
#[inline(always)]
fn place_on_stack(stack_pointer: u64) -> Option<u64> {
    // SAFETY: the task is the current one; the helper checks the address.
    let stack = unsafe {
        let at = bpf_get_current_task_btf() as u64 + u64::from(maps::stack_offset());
        bpf_probe_read_kernel(at as *const u64).ok()?
    };
    let place = stack_pointer.wrapping_sub(stack);
    if place < KERNEL_STACK_BYTES {
        Some(place)
    } else {
        None
    }
}

/// Whether the CPU is in an interrupt (`include/linux/preempt.h`); no where that cannot be known.
#[inline(always)]
fn is_in_interrupt() -> bool {
    /// A software interrupt is being served.
    const SERVING: u32 = 1 << 8;
    const HARD: u32 = 1 << 16;
    const HARD_MASK: u32 = 0xf << 16;
    const UNMASKABLE: u32 = 1 << 20;
    const UNMASKABLE_MASK: u32 = 0xf << 20;
    let Some(count) = preempt_count() else {
        return false;
    };
    // A probe that is a breakpoint is itself what cannot be masked.
    let count = if count & UNMASKABLE_MASK == 0 {
        count
    } else {
        count.wrapping_sub(UNMASKABLE + HARD)
    };
    count & (SERVING | HARD_MASK | UNMASKABLE_MASK) != 0
}

/// The CPU's count of what keeps it from giving the thread up.
#[inline(always)]
fn preempt_count() -> Option<u32> {
    let known = CPU_STATE.get_ptr(0)?;
    // SAFETY: a live map value, which the daemon has written before; the helpers check the addresses.
    unsafe {
        let (offsets, variable) = ((*known).offsets, (*known).preempt_count);
        if offsets == 0 || variable == 0 {
            return None;
        }
        let cpu = u64::from(bpf_get_smp_processor_id());
        let offset = bpf_probe_read_kernel(offsets.wrapping_add(8 * cpu) as *const u64).ok()?;
        bpf_probe_read_kernel(offset.wrapping_add(variable) as *const u32).ok()
    }
}
