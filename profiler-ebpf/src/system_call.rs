//! System calls: each is remembered where it begins, with the stack of who makes it, and counted where it returns.
//!
//! No call costs a record: what is counted is read and taken by the daemon, a turn behind the programs, which count for the
//! turn that it is. Who counts a call is a set of gates: those of whoever looks at all calls of the process, and those that
//! the thread's open spans open.

use core::{ffi::c_void, ptr};

use aya_ebpf::helpers::{
    bpf_ktime_get_ns,
    generated::{bpf_get_current_pid_tgid, bpf_loop, bpf_ringbuf_output},
};
use profiler_common::{
    counter::Counter,
    limits::{MAX_DEPTH, MAX_GATES},
    record::{SYSTEM_CALL, SpanRef, SystemCallHeader},
    settings::Sampling,
    system_call::{
        BEGUN_BEFORE, COMPAT, CallCount, CallKey, CallWatch, MAX_ERROR, NO_CALL, OpenCall, counted_as,
    },
    thread::ThreadState,
};

use crate::{
    admission, atomic,
    emit::{self, BPF_RB_NO_WAKEUP, Fill},
    field::long,
    maps::{self, CALL_COUNTS, CALL_SCRATCH, CALL_WATCH, OPEN_CALLS, RING, TARGETS},
    off_cpu,
    open_spans::{self, Mode, Taken},
    plain::set,
    shared_stack::{self, StackScratch, WithKernel, bounded, masked},
    span::span_at,
    task,
};

/// What is put together where a call begins.
#[repr(C)]
pub struct CallScratch {
    stack: StackScratch,
    /// Spans that are not left behind.
    spans: u32,
    /// Gates that they open.
    views: u32,
    record: CallRecord,
}

#[repr(C)]
struct CallRecord {
    header: SystemCallHeader,
    spans: [SpanRef; MAX_DEPTH],
}

const _: () = assert!(size_of::<CallRecord>() < 8192);

/// Ours of [`UNWIND_RECENT`](crate::maps::UNWIND_RECENT).
const RECENT: u32 = 2;

/// The current thread enters the kernel by a call of this number.
#[inline(never)]
pub fn enter(ctx: *mut c_void, number: u64) -> u32 {
    // SAFETY: the helper takes nothing.
    let tgid = unsafe { bpf_get_current_pid_tgid() >> 32 } as u32;
    // Before anything else: all other processes pay for it too.
    let Some(flags) = watched(tgid) else { return 0 };
    // SAFETY: the helper takes nothing.
    let begun_ns = unsafe { bpf_ktime_get_ns() };
    let (Some(watch), Some(scratch)) = (CALL_WATCH.get_ptr(0), CALL_SCRATCH.get_ptr_mut(0)) else {
        return 0;
    };
    let number = numbered(number);
    if is_of_probe(number) {
        return 0;
    }
    let state = task::state();
    // SAFETY: a live map value, and this CPU's own: no program that uses it can interrupt this one.
    let (spans, in_spans) = unsafe {
        let spans = open_spans::live_depth(state, &raw mut (*scratch).spans, Mode::User);
        (spans, views_of_spans(state, spans, watch, scratch))
    };
    let views = (flags >> Sampling::VIEWS_SHIFT) as u32 | in_spans;
    let is_recorded = flags & Sampling::SYSCALL_RECORDS != 0 && spans > 0;
    if views == 0 && !is_recorded {
        return 0;
    }
    // SAFETY: as above; the helper takes nothing.
    let (stack, start_ns) = unsafe {
        let scratch = &raw mut (*scratch).stack;
        let stack = if views != 0 && shared_stack::is_allowed(scratch, begun_ns) {
            shared_stack::take(ctx, scratch, WithKernel::No, RECENT)
        } else {
            0
        };
        (stack, bpf_ktime_get_ns())
    };
    if let Some(state) = state {
        let taken = Taken::by_program(state, spans, [begun_ns, start_ns], 0);
        open_spans::take_off(state, spans, taken);
    }
    let call = OpenCall {
        start_ns,
        stack,
        tgid,
        views,
        number,
        zero: 0,
    };
    if never_returns(number) {
        if views != 0 {
            count(&call, views, 0, 0, watch);
        }
    } else if OPEN_CALLS.insert(task::address(), &call, 0).is_err() {
        emit::count(Counter::SyscallOpenLimit);
    }
    0
}

/// The call that the current thread is in is about to return. `registers` are its `struct pt_regs`.
#[inline(never)]
pub fn exit(registers: *mut c_void, result: u64) -> u32 {
    // SAFETY: the helper takes nothing.
    let tgid = unsafe { bpf_get_current_pid_tgid() >> 32 } as u32;
    let Some(flags) = watched(tgid) else { return 0 };
    // SAFETY: the helper takes nothing.
    let now_ns = unsafe { bpf_ktime_get_ns() };
    let Some(watch) = CALL_WATCH.get_ptr(0) else {
        return 0;
    };
    let all = (flags >> Sampling::VIEWS_SHIFT) as u32;
    let thread = task::address();
    let mut missed = all;
    // SAFETY: the value is copied at once; nobody else has this thread's.
    if let Some(call) = unsafe { OPEN_CALLS.get(thread).copied() } {
        // There is nothing to be done where it was removed meanwhile.
        let _ = OPEN_CALLS.remove(thread);
        // SAFETY: a live map value.
        let views = unsafe { begun_since(watch, call.views, call.start_ns) };
        if views != 0 {
            let time_ns = now_ns.wrapping_sub(call.start_ns);
            count(&call, views, error_of(call.number, result), time_ns, watch);
        }
        missed &= !views;
        if flags & Sampling::SYSCALL_RECORDS != 0 {
            record(call.number, error_of(call.number, result), call.start_ns, now_ns);
        }
    }
    if missed == 0 {
        return 0;
    }
    // SAFETY: the kernel gives a `struct pt_regs`, as the verifier checks.
    let number = numbered(unsafe { long(registers, ORIGINAL_AX_OFFSET) });
    if is_of_probe(number) || result == 0 && begins_thread(number) {
        return 0;
    }
    let call = OpenCall {
        start_ns: 0,
        stack: 0,
        tgid,
        views: 0,
        number,
        zero: 0,
    };
    count(&call, missed, BEGUN_BEFORE, 0, watch);
    0
}

/// Sends a call that has returned, if it was in open spans.
#[inline(never)]
fn record(number: u32, error: u32, start_ns: u64, end_ns: u64) -> u32 {
    let (Some(state), Some(scratch)) = (task::state(), CALL_SCRATCH.get_ptr_mut(0)) else {
        return 0;
    };
    // SAFETY: a live map value, and this CPU's own: no program that uses it can interrupt this one.
    let spans = open_spans::live_depth(Some(state), unsafe { &raw mut (*scratch).spans }, Mode::User);
    let spans = bounded(spans, MAX_DEPTH as u32);
    if spans == 0 {
        return 0;
    }
    if Fill::now().should_yield() {
        emit::count(Counter::SyscallYielded);
        return 0;
    }
    // SAFETY: as above; the length is bounded to the record.
    unsafe {
        let ids = bpf_get_current_pid_tgid();
        let record = &raw mut (*scratch).record;
        let header = &raw mut (*record).header;
        set!((*header).kind, SYSTEM_CALL);
        set!((*header).spans, spans);
        set!((*header).tgid, (ids >> 32) as u32);
        set!((*header).tid, ids as u32);
        set!((*header).start_ns, start_ns);
        set!((*header).end_ns, end_ns);
        set!((*header).number, number);
        set!((*header).error, error);
        open_spans::write(state, (&raw mut (*record).spans).cast(), spans);
        let length = size_of::<SystemCallHeader>() as u64 + u64::from(spans) * size_of::<SpanRef>() as u64;
        let ring = maps::handle(&RING);
        if bpf_ringbuf_output(ring, record.cast(), masked(length), BPF_RB_NO_WAKEUP) != 0 {
            emit::count(Counter::SyscallRingFull);
        }
    }
    0
}

/// The current thread ends.
#[inline(always)]
pub fn forget() {
    // Nothing to be done where there is none, which is nearly always so.
    let _ = OPEN_CALLS.remove(task::address());
}

/// Offset of `orig_ax` in `struct pt_regs`, which is part of x86-64's user ABI: the number of the call.
const ORIGINAL_AX_OFFSET: u32 = 120;

/// How a process's calls are counted, if they are.
#[inline(always)]
fn watched(tgid: u32) -> Option<u64> {
    if !off_cpu::may_be_target(tgid) {
        return None;
    }
    // SAFETY: the value is read at once.
    let flags = unsafe { TARGETS.get(tgid)?.flags };
    if flags & Sampling::SYSCALLS == 0 {
        return None;
    }
    if !admission::is_admitted() {
        // A call that was seen to begin will not be seen to return: left there, the next one would be taken for it.
        forget();
        None
    } else {
        Some(flags)
    }
}

/// A call's number with its interface; one for all that no kernel has.
#[inline(always)]
fn numbered(number: u64) -> u32 {
    let compat = if task::is_in_compat_call() { COMPAT } else { 0 };
    counted_as(number as u32 & !COMPAT) | compat
}

/// The call that the current thread is in, with its interface; [`NO_CALL`] where it is in none, or in one of a probe.
#[inline(never)]
pub fn current() -> u32 {
    // SAFETY: the registers are the kernel's, laid out as part of x86-64's user ABI.
    let number = unsafe { long(task::user_registers(), ORIGINAL_AX_OFFSET) };
    // -1 after interrupts and exceptions.
    if number as i64 <= -1 {
        return NO_CALL;
    }
    let number = numbered(number);
    if is_of_probe(number) { NO_CALL } else { number }
}

/// `uretprobe` and `uprobe`: the probes' own. Where they return, the kernel has made them look like an exception.
#[inline(always)]
fn is_of_probe(number: u32) -> bool {
    number == 335 || number == 336 || number & !COMPAT == !COMPAT
}

/// `exit`, `exit_group`.
#[inline(always)]
fn never_returns(number: u32) -> bool {
    matches!(number, 60 | 231) || number == 1 | COMPAT || number == 252 | COMPAT
}

/// `clone`, `fork`, `vfork`, `clone3`: what they begin returns from them as well.
#[inline(always)]
fn begins_thread(number: u32) -> bool {
    let is_compat = number & COMPAT != 0;
    match number & !COMPAT {
        435 => true,
        56..=58 => !is_compat,
        2 | 120 | 190 => is_compat,
        _ => false,
    }
}

/// `rt_sigreturn`, `sigreturn`: what they return is what the thread had when a signal came.
#[inline(always)]
fn returns_nothing(number: u32) -> bool {
    number == 15 || number == 119 | COMPAT || number == 173 | COMPAT
}

/// The error that a call returned, 0 for none.
#[inline(always)]
fn error_of(number: u32, result: u64) -> u32 {
    let error = result.wrapping_neg();
    if error > u64::from(MAX_ERROR) || returns_nothing(number) {
        0
    } else {
        error as u32
    }
}

/// Gates of those who count what is in the thread's open spans.
#[inline(always)]
unsafe fn views_of_spans(
    state: Option<*mut ThreadState>,
    spans: u32,
    watch: *const CallWatch,
    scratch: *mut CallScratch,
) -> u32 {
    let Some(state) = state else { return 0 };
    if spans == 0 {
        return 0;
    }
    // SAFETY: live map values.
    unsafe {
        let wanted = (&raw const (*watch).in_spans).read_volatile();
        if (*span_at(state, spans - 1)).gates & wanted == 0 {
            return 0;
        }
        set!((*scratch).views, 0);
        let mut cursor = Cursor {
            state,
            watch,
            scratch,
            wanted,
        };
        bpf_loop(spans, look_at_one as *mut c_void, (&raw mut cursor).cast(), 0);
        (&raw const (*scratch).views).read_volatile()
    }
}

/// What the loop over the open spans carries along.
#[repr(C)]
struct Cursor {
    state: *mut ThreadState,
    watch: *const CallWatch,
    scratch: *mut CallScratch,
    wanted: u32,
}

/// Adds the gates that one span opens.
unsafe extern "C" fn look_at_one(index: u32, cursor: *mut c_void) -> i64 {
    // SAFETY: `views_of_spans` passes a `Cursor` with live map values.
    unsafe {
        let cursor = &*cursor.cast::<Cursor>();
        let span = span_at(cursor.state, index);
        let gates = (&raw const (*span).own_gates).read_volatile() & cursor.wanted;
        if gates != 0 {
            let views = &raw mut (*cursor.scratch).views;
            let opened = begun_since(cursor.watch, gates, (*span).start_ns);
            views.write_volatile(views.read_volatile() | opened);
        }
    }
    0
}

/// Of some gates those that stood for whom they stand now when something began.
#[inline(never)]
unsafe fn begun_since(watch: *const CallWatch, views: u32, start_ns: u64) -> u32 {
    // SAFETY: the caller's live map value; the index is masked.
    unsafe {
        let views = views & (&raw const (*watch).live).read_volatile();
        if start_ns >= (&raw const (*watch).latest_ns).read_volatile() {
            return views;
        }
        let since = (&raw const (*watch).since_ns).cast::<u64>();
        let mut left = 0;
        for bit in 0..MAX_GATES {
            let since_ns = since.add(bit as usize & (MAX_GATES as usize - 1)).read_volatile();
            // Without a branch: the verifier would follow both ways of each, and some kernels' do not see that they meet.
            // The difference is below 0 where the gate stood for somebody else then.
            let is_later = (start_ns.wrapping_sub(since_ns) >> 63) as u32;
            left |= (is_later ^ 1) << bit;
        }
        views & left
    }
}

/// Counts a call for some views.
#[inline(always)]
fn count(call: &OpenCall, views: u32, result: u32, time_ns: u64, watch: *const CallWatch) {
    const BPF_NOEXIST: u64 = 1;
    let key = CallKey {
        stack: call.stack,
        tgid: call.tgid,
        views,
        number: call.number,
        result,
        // SAFETY: a live map value.
        turn: unsafe { (&raw const (*watch).turn).read_volatile() },
        zero: 0,
    };
    let mut found = CALL_COUNTS.get_ptr_mut(&key);
    if found.is_none() {
        let none = CallCount {
            calls: 0,
            time_ns: 0,
            longest_ns: 0,
        };
        // Another CPU may be faster: then its is found.
        let _ = CALL_COUNTS.insert(&key, &none, BPF_NOEXIST);
        found = CALL_COUNTS.get_ptr_mut(&key);
    }
    let count = found.unwrap_or(ptr::null_mut());
    if count.is_null() {
        emit::count(Counter::SyscallLimit);
        return;
    }
    // SAFETY: a live map value.
    unsafe {
        atomic::add(&raw mut (*count).calls, 1);
        atomic::add(&raw mut (*count).time_ns, time_ns);
        raise(&raw mut (*count).longest_ns, time_ns);
    }
}

/// Times that it is tried again to write what another CPU has just written.
const MAX_RETRIES: u32 = 4;

/// Makes a number at least as large as another.
#[inline(always)]
unsafe fn raise(place: *mut u64, least: u64) {
    for _ in 0..MAX_RETRIES {
        // SAFETY: the caller's live map value.
        unsafe {
            let known = place.read_volatile();
            if known >= least || atomic::compare_exchange_long(place, known, least) == known {
                return;
            }
        }
    }
}
