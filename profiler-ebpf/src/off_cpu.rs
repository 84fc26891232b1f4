//! Intervals off the CPU: where a thread left it and why, who made it runnable, and when it was back.
//!
//! All but the iterator runs inside the scheduler, with interrupts off, and nothing here allocates. The user's part of the
//! stack is taken where the thread leaves, as its memory can be read there alone. The kernel's part stays as it is until the
//! thread is back, and is taken then, from outside: that takes half as long as from inside of the scheduler, where the walk
//! begins with our own programs. It leaves out what waits by calling the scheduler, which says the most where a thread
//! waits uninterruptibly, for the kernel's own locks and for disks: there the kernel's part is taken first as well. So it is
//! in a function of the kernel whose return somebody awaits. The record is sent when its length is known.

use core::{ffi::c_void, ptr};

use aya_ebpf::helpers::{
    bpf_ktime_get_ns,
    generated::{bpf_get_current_pid_tgid, bpf_ringbuf_output, bpf_seq_write, bpf_task_storage_get},
};
use profiler_common::{
    counter::Counter,
    limits::{MAX_DEPTH, target_bit},
    record::{self, OffCpuHeader, SpanRef, WaitingStack},
    settings::Sampling,
    thread::{OffCpu, ThreadState},
};

use crate::{
    admission,
    emit::{self, BPF_RB_NO_WAKEUP, Fill},
    futex,
    maps::{self, HASHED_THREADS, OFF_CPU, OFF_CPU_SCRATCH, RING, TARGET_BITS, TARGETS, THREADS},
    open_spans::{self, Mode, Taken},
    plain::set,
    presence,
    shared_stack::{self, StackScratch, WithKernel, bounded, masked},
    system_call, task,
};

/// Of a map: the key must not be there yet.
const BPF_NOEXIST: u64 = 1;

/// `-EEXIST`.
const EXISTS: i32 = -17;

/// The records as they are put together.
#[repr(C)]
pub struct OffCpuScratch {
    stack: StackScratch,
    interval: IntervalRecord,
    /// Spans that are not left behind.
    spans: u32,
    zero: u32,
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
    TARGET_BITS.get(word).is_some_and(|bits| bits & bit != 0)
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
    let thread = ids as u32;
    let admitted_at = if sampling.flags & (Sampling::OFF_CPU | Sampling::OFF_CPU_IN_SPANS) == 0 {
        0
    } else {
        admission::admitted_at()
    };
    if admitted_at == 0 {
        forget_departure(thread);
        return 0;
    }
    if state & record::state::PREEMPTED == 0 && state & record::state::DEAD != 0 {
        forget_departure(thread);
        return 0;
    }
    let Some(scratch) = OFF_CPU_SCRATCH.get_ptr_mut(0) else {
        return 0;
    };
    // SAFETY: a live map value, and this CPU's own: nothing that uses it can interrupt the scheduler.
    let spans = open_spans::live_depth(task::state(), unsafe { &raw mut (*scratch).spans }, Mode::Kernel);
    if spans == 0 && sampling.flags & Sampling::OFF_CPU == 0 {
        forget_departure(thread);
        return 0;
    }
    // The kernel complains (`rethook_find_ret_addr`) of who walks the stack of another thread, which is runnable, through a
    // function whose return is awaited.
    let may_wait = state & (record::state::UNINTERRUPTIBLE | record::state::STOPPED) == 0
        || state & record::state::PREEMPTED != 0;
    let awaits_kernel = may_wait && !task::awaits_kernel_return();
    let part = if awaits_kernel {
        WithKernel::No
    } else {
        WithKernel::Yes
    };
    // SAFETY: as above.
    let stack = unsafe { take_stack(ctx, scratch, part, begun_ns) };
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
        awaits_kernel: u32::from(awaits_kernel),
        lock: if state & (record::state::PREEMPTED | record::state::INTERRUPTIBLE)
            == record::state::INTERRUPTIBLE
        {
            futex::waited_for()
        } else {
            0
        },
        still_ns: presence::still_ns(tgid, start_ns),
        departures: task::departures(),
        admitted_at,
        system_call: system_call::current(),
        zero: 0,
    };
    match OFF_CPU.insert(thread, &off, BPF_NOEXIST) {
        Ok(()) => return 0,
        Err(EXISTS) => {
            count_unseen();
        }
        Err(_) => {}
    }
    if OFF_CPU.insert(thread, &off, 0).is_err() {
        emit::count(Counter::OffCpuAttempted);
        emit::count(Counter::OffCpuLimit);
    }
    0
}

/// The thread leaves without being asked about: a departure that is kept of it is one that it was not seen to come back from.
/// Left there, it would end with this one, in calls that are over.
#[inline(always)]
fn forget_departure(thread: u32) {
    if OFF_CPU.get_ptr_mut(thread).is_some() && OFF_CPU.remove(thread).is_ok() {
        count_unseen();
    }
}

/// Counts a thread that was not seen to come back: nobody knows when it did.
#[inline(always)]
fn count_unseen() {
    emit::count(Counter::OffCpuAttempted);
    emit::count(Counter::OffCpuUnseen);
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
            && (admission::holds((*off).admitted_at) || admission::is_shown_with((*off).tgid))
            && let Some(scratch) = OFF_CPU_SCRATCH.get_ptr_mut(0)
        {
            // Interrupts are off, and a thread that is off the CPU is not the current one: the scratch is free.
            (*off).waker_stack = take_stack(ctx, scratch, WithKernel::Yes, now_ns);
        }
        (*off).still_ns = presence::grown((*off).tgid, (*off).still_ns, now_ns);
        (*off).waker_tid = ids as u32;
        (*off).waker_tgid = (ids >> 32) as u32;
        woken_ns.write_volatile(now_ns);
    }
    0
}

/// A thread of a process is given a CPU. `task` is its `task_struct`.
#[inline(never)]
pub fn come(task: *mut c_void, tgid: u32, thread: u32) -> u32 {
    // SAFETY: the value is copied at once; nobody else changes it once the thread is about to run.
    let Some(off) = (unsafe { OFF_CPU.get(&thread).copied() }) else {
        return 0;
    };
    // SAFETY: the helper takes nothing.
    let end_ns = unsafe { bpf_ktime_get_ns() };
    // There is nothing to be done where it was removed meanwhile.
    let _ = OFF_CPU.remove(thread);
    if task::departures_of(task) != off.departures {
        count_unseen();
        return 0;
    }
    // It is the thread that left, as it has not been back since.
    if !admission::holds(off.admitted_at) && admission::admits(task, tgid) == 0 {
        return 0;
    }
    // One that goes on is not attempted yet.
    emit::count(Counter::OffCpuAttempted);
    if Fill::now().should_yield() {
        emit::count(Counter::OffCpuYielded);
        return 0;
    }
    let Some(scratch) = OFF_CPU_SCRATCH.get_ptr_mut(0) else {
        return 0;
    };
    let mut taken_until_ns = end_ns;
    let mut stack = off.stack;
    if off.awaits_kernel != 0 && stack != 0 {
        // SAFETY: a live map value, and this CPU's own, as above.
        stack = unsafe { take_kernel(task, scratch, &off, end_ns) };
        // SAFETY: the helper takes nothing.
        taken_until_ns = unsafe { bpf_ktime_get_ns() };
    }
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
        set!((*header).end_ns, end_ns);
        set!((*header).stack, stack);
        set!((*header).state, off.state);
        set!((*header).waker_tid, off.waker_tid);
        set!((*header).waker_tgid, off.waker_tgid);
        set!((*header).asks_waker, off.asks_waker);
        set!((*header).waker_stack, off.waker_stack);
        set!((*header).lock, off.lock);
        let still_ns = if off.woken_ns == 0 {
            presence::grown(off.tgid, off.still_ns, end_ns)
        } else {
            off.still_ns
        };
        set!((*header).still_ns, still_ns);
        set!((*header).system_call, off.system_call);
        set!((*header).zero, 0);
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
            let taken = Taken::by_program(state, spans, [end_ns, taken_until_ns], 0);
            open_spans::count_hit(state, spans, taken.and_earlier(u64::from(off.taking_ns)));
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

/// What a program is given that goes over all threads (`struct bpf_iter__task` in `kernel/bpf/task_iter.c`).
#[repr(C)]
pub struct TaskIteration {
    /// How far it is, and where it writes to.
    pub meta: *mut IterationMeta,
    /// A `task_struct`, or null at the end.
    pub task: *mut c_void,
}

/// The beginning of `struct bpf_iter_meta`.
#[repr(C)]
pub struct IterationMeta {
    /// The `seq_file` that is read.
    pub output: *mut c_void,
}

/// Takes the kernel's part of a thread's stack where it is off the CPU, and writes what both parts are named by.
#[inline(always)]
pub fn look(output: *mut c_void, task: *mut c_void) {
    let thread = task::id_of(task);
    // SAFETY: the value is copied at once.
    let Some(off) = (unsafe { OFF_CPU.get(&thread).copied() }) else {
        return;
    };
    if task::departures_of(task) != off.departures || admission::admits(task, off.tgid) == 0 {
        // It may not be looked at. Or it runs, or has run: what it waited in is over.
        return;
    }
    let Some(scratch) = OFF_CPU_SCRATCH.get_ptr_mut(1) else {
        return;
    };
    let mut stack = off.stack;
    if off.awaits_kernel != 0 && stack != 0 {
        // The kernel walks into memory of this CPU and copies that from there. A thread that takes the CPU in between has it
        // walked for another: twice the same it is not then.
        // SAFETY: a live map value, this CPU's own, and used by nobody else: one thread of the daemon reads.
        let [first, second] = unsafe {
            [
                take_kernel(task, scratch, &off, bpf_ktime_get_ns()),
                take_kernel(task, scratch, &off, bpf_ktime_get_ns()),
            ]
        };
        if first == second {
            stack = first;
        } else {
            emit::count(Counter::OffCpuStackNoKernel);
        }
    }
    // Until it is back the stack does not change.
    // SAFETY: the value is copied at once.
    let is_same = unsafe { OFF_CPU.get(&thread).map(|later| later.start_ns) } == Some(off.start_ns);
    if is_same && task::departures_of(task) == off.departures {
        let row = WaitingStack {
            tid: thread,
            zero: 0,
            start_ns: off.start_ns,
            stack,
        };
        // Where there is no room, the kernel has the program run once more for this thread.
        // SAFETY: the row is initialised, and as long as is said.
        unsafe {
            bpf_seq_write(
                output.cast(),
                (&raw const row).cast(),
                size_of::<WaitingStack>() as u32,
            )
        };
    }
}

/// Takes the kernel's part of a thread that is off the CPU; what to name both parts by, or the user's alone where that
/// fails.
///
/// # Safety
/// `scratch` is a live map value, and nobody else's meanwhile.
#[inline(always)]
unsafe fn take_kernel(task: *mut c_void, scratch: *mut OffCpuScratch, off: &OffCpu, now_ns: u64) -> u64 {
    // SAFETY: the caller's.
    let id =
        unsafe { shared_stack::take_waiting(task, &raw mut (*scratch).stack, off.tgid, off.stack, now_ns) };
    if id == 0 {
        emit::count(Counter::OffCpuStackNoKernel);
        return off.stack;
    }
    id
}

/// Takes the current thread's stack, if stacks may take more of this CPU; what to name it by, or 0.
#[inline(always)]
unsafe fn take_stack(
    ctx: *mut c_void,
    scratch: *mut OffCpuScratch,
    with_kernel: WithKernel,
    now_ns: u64,
) -> u64 {
    // SAFETY: the caller's scratch is a live map value.
    unsafe {
        let stack = &raw mut (*scratch).stack;
        if !shared_stack::is_allowed(stack, now_ns) {
            emit::count(Counter::OffCpuStackSkipped);
            return 0;
        }
        let id = shared_stack::take(ctx, stack, with_kernel, RECENT);
        if id == 0 {
            emit::count(Counter::OffCpuStackRingFull);
        }
        id
    }
}

/// Ours of [`UNWIND_RECENT`](maps::UNWIND_RECENT).
const RECENT: u32 = 1;
