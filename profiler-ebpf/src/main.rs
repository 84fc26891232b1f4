//! The kernel side: entry points only. Each does one thing and says which module does it.
//!
//! | program | attached to | does |
//! |---|---|---|
//! | `span_entry`, `span_entry_step` | a function's entry | opens a span |
//! | `span_return` | the kernel's return probe | ends it |
//! | `span_ret`, `span_ret_step` | `ret` instructions and tail jumps | ends it |
//! | `hit`, `hit_step` | a line's instruction | records the hit and its values |
//! | `span_entry_look_paging`, `hit_paging` | as those without `_paging` | the same, waiting for memory |
//! | `allocation_entry`, `allocation_return` | an allocator's functions | keeps who allocates what |
//! | `sample` | perf event | takes a stack with the thread's open spans |
//! | `sample_event_0` to `_7` | perf events that are inherited, and have no cookie then | the same at an event |
//! | `cost_block` | the kernel's BTF tracepoint of block devices | takes a stack with the bytes that are given to one |
//! | `cost_block_begin`, `cost_block_end`, `cost_request_end` | the same, and where one has done it | times requests to them |
//! | `cost_enter`, `cost_exit` | the kernel's BTF tracepoints of system calls | the same with what memory grows by |
//! | `place_hit` | a tracepoint of the kernel | records the hit and its values |
//! | `call_enter`, `call_exit` | the tracepoints of system calls | opens a span, and ends it |
//! | `kernel_call` | functions of the kernel, where one program sees both ends | opens a span, and ends it |
//! | `kernel_hit` | functions of the kernel | counts that it is entered |
//! | `kernel_entry`, `kernel_return` | the same, by perf events | opens a span; ends it |
//! | `off_cpu_switch`, `off_cpu_wake` | the scheduler's BTF tracepoints | keeps intervals off the CPU |
//! | `off_cpu_waiting` | the iterator over all threads | takes the stacks of those that are off the CPU |
//! | `admission_look` | the same | tells what processes are that are to be looked at |
//! | `syscall_enter`, `syscall_exit` | the kernel's BTF tracepoints of system calls | counts them |
//! | `thread_exit`, `thread_exec` | scheduler tracepoints | abandons what is still open |
//! | `process_fork` | the same | counts children that have the target's breakpoints |
//!
//! The `_step` variants also do the probed instruction themselves, which needs a kernel that lets a
//! uprobe program write its registers; they are loaded only there.
//!
//! Each asks [`admission`] before it reads anything of a process.
#![no_std]
#![no_main]
#![feature(asm_experimental_arch)]

mod admission;
mod allocation;
mod allowance;
mod atomic;
mod cost;
mod emit;
mod field;
mod futex;
mod gate;
mod histogram;
mod hit;
mod hit_stack;
mod kernel_function;
mod limit;
mod maps;
mod memory;
mod off_cpu;
mod open_spans;
mod pending;
mod place;
mod plain;
mod presence;
mod registers;
mod sample;
mod shared_stack;
mod span;
mod stack;
mod step;
mod system_call;
mod task;
mod unwind;

use core::ffi::c_void;

use aya_ebpf::{
    EbpfContext as _,
    macros::{btf_tracepoint, kprobe, kretprobe, perf_event, raw_tracepoint, uprobe, uretprobe},
    programs::{BtfTracePointContext, PerfEventContext, ProbeContext, RawTracePointContext, RetProbeContext},
};

use aya_log_ebpf::debug;
use profiler_common::{allocation::AllocationSite, record};

use crate::registers::Registers;

/// A function is entered.
#[uprobe]
pub fn span_entry(ctx: ProbeContext) -> u32 {
    let Some(thread) = admission::admitted_thread() else {
        return 0;
    };
    let registers = Registers::new(ctx.as_ptr());
    span::enter(
        thread,
        task::cookie(ctx.as_ptr()),
        registers.stack_pointer(),
        registers.instruction_pointer(),
    );
    0
}

/// A function is entered, and its instruction is done here rather than single-stepped.
#[uprobe]
pub fn span_entry_step(ctx: ProbeContext) -> u32 {
    let registers = Registers::new(ctx.as_ptr());
    let cookie = task::cookie(ctx.as_ptr());
    if let Some(thread) = admission::admitted_thread() {
        span::enter(
            thread,
            cookie,
            step::stack_pointer_at_site(registers, cookie),
            step::address_of_site(registers, cookie),
        );
    }
    step::run(registers, cookie);
    0
}

/// A function is entered, or a call is made, at which values are looked at.
#[uprobe]
pub fn span_entry_look(ctx: ProbeContext) -> u32 {
    if admission::is_thread_admitted() {
        hit::enter::<false>(ctx.as_ptr(), task::cookie(ctx.as_ptr()));
    }
    0
}

/// As [`span_entry_look`], waiting for pages that are not in memory.
#[uprobe(sleepable)]
pub fn span_entry_look_paging(ctx: ProbeContext) -> u32 {
    if admission::is_thread_admitted() {
        hit::enter::<true>(ctx.as_ptr(), task::cookie(ctx.as_ptr()));
    }
    0
}

/// A function returned through the kernel's return probe.
#[uretprobe]
pub fn span_return(ctx: RetProbeContext) -> u32 {
    let Some(thread) = admission::admitted_thread() else {
        return 0;
    };
    let registers = Registers::new(ctx.as_ptr());
    // The return address has been popped: at entry the stack pointer was one word lower.
    span::exit(
        thread,
        ctx.as_ptr(),
        task::cookie(ctx.as_ptr()),
        registers.stack_pointer().wrapping_sub(8),
        registers.instruction_pointer(),
    );
    0
}

/// A function is about to return, or to jump to another in its place.
#[uprobe]
pub fn span_ret(ctx: ProbeContext) -> u32 {
    let registers = Registers::new(ctx.as_ptr());
    let cookie = task::cookie(ctx.as_ptr());
    if step::takes_branch(registers, cookie)
        && step::leaves_function(registers, cookie)
        && let Some(thread) = admission::admitted_thread()
        && !span::is_of_another_caller(cookie, registers.stack_pointer())
    {
        span::exit(
            thread,
            ctx.as_ptr(),
            cookie,
            registers.stack_pointer(),
            registers.instruction_pointer(),
        );
    }
    0
}

/// As `span_ret`, and the instruction is done here rather than single-stepped.
#[uprobe]
pub fn span_ret_step(ctx: ProbeContext) -> u32 {
    let registers = Registers::new(ctx.as_ptr());
    let cookie = task::cookie(ctx.as_ptr());
    if step::leaves_function(registers, cookie)
        && let Some(thread) = admission::admitted_thread()
        && !span::is_of_another_caller(cookie, step::stack_pointer_at_site(registers, cookie))
    {
        span::exit(
            thread,
            ctx.as_ptr(),
            cookie,
            step::stack_pointer_at_site(registers, cookie),
            step::address_of_site(registers, cookie),
        );
    }
    step::run(registers, cookie);
    0
}

/// A line is reached.
#[uprobe]
pub fn hit(ctx: ProbeContext) -> u32 {
    if admission::is_thread_admitted() {
        hit::take::<false>(ctx.as_ptr(), task::cookie(ctx.as_ptr()));
    }
    0
}

/// As `hit`, waiting for pages that are not in memory.
#[uprobe(sleepable)]
pub fn hit_paging(ctx: ProbeContext) -> u32 {
    if admission::is_thread_admitted() {
        hit::take::<true>(ctx.as_ptr(), task::cookie(ctx.as_ptr()));
    }
    0
}

/// As `hit_paging`, and the instruction is done here rather than single-stepped.
#[uprobe(sleepable)]
pub fn hit_step(ctx: ProbeContext) -> u32 {
    let cookie = task::cookie(ctx.as_ptr());
    if admission::is_thread_admitted() {
        hit::take::<true>(ctx.as_ptr(), cookie);
    }
    step::run(Registers::new(ctx.as_ptr()), cookie);
    0
}

/// A function of an allocator is called.
#[uprobe]
pub fn allocation_entry(ctx: ProbeContext) -> u32 {
    if admission::is_admitted() {
        allocation::enter(ctx.as_ptr(), AllocationSite(task::cookie(ctx.as_ptr()).0));
    }
    0
}

/// It returned, by the kernel's return probe.
#[uretprobe]
pub fn allocation_return(ctx: RetProbeContext) -> u32 {
    if admission::is_admitted() {
        allocation::exit(ctx.as_ptr(), AllocationSite(task::cookie(ctx.as_ptr()).0));
    }
    0
}

/// A tracepoint of the kernel is passed.
#[unsafe(link_section = "tracepoint")]
#[unsafe(no_mangle)]
pub extern "C" fn place_hit(ctx: *mut c_void) -> u32 {
    place::take(ctx, task::cookie(ctx));
    place::PASS
}

/// A system call begins.
#[raw_tracepoint(tracepoint = "sys_enter")]
pub fn call_enter(ctx: RawTracePointContext) -> i32 {
    place::enter_call(ctx.arg(0), ctx.arg::<u64>(1) as u32);
    0
}

/// A system call ends.
#[raw_tracepoint(tracepoint = "sys_exit")]
pub fn call_exit(ctx: RawTracePointContext) -> i32 {
    place::exit_call(ctx.arg(0));
    0
}

/// A function of the kernel is entered, or returns: then what this returns says nothing.
#[unsafe(link_section = "kprobe")]
#[unsafe(no_mangle)]
pub extern "C" fn kernel_call(ctx: *mut c_void) -> u32 {
    let cookie = task::cookie(ctx);
    if !kernel_function::is_entered(ctx) {
        kernel_function::exit_seen(ctx, cookie);
        return kernel_function::FOLLOW;
    }
    if kernel_function::enter(ctx, cookie) {
        kernel_function::FOLLOW
    } else {
        kernel_function::LET_PASS
    }
}

/// A function of the kernel is entered, and only counted.
#[unsafe(link_section = "kprobe")]
#[unsafe(no_mangle)]
pub extern "C" fn kernel_hit(ctx: *mut c_void) -> u32 {
    kernel_function::count(task::cookie(ctx));
    kernel_function::LET_PASS
}

/// A function of the kernel is entered.
#[kprobe]
pub fn kernel_entry(ctx: ProbeContext) -> u32 {
    kernel_function::enter(ctx.as_ptr(), task::cookie(ctx.as_ptr()));
    0
}

/// A function of the kernel returns.
#[kretprobe]
pub fn kernel_return(ctx: RetProbeContext) -> u32 {
    kernel_function::exit_any(ctx.as_ptr(), task::cookie(ctx.as_ptr()));
    0
}

/// The sampler ticked.
#[perf_event]
pub fn sample(ctx: PerfEventContext) -> u32 {
    sample::take(ctx.as_ptr());
    0
}

/// Programs of events: what inherits a perf event has its program and not its cookie, so each event has one.
macro_rules! sample_event {
    ($($name:ident: $number:literal),*) => {$(
        /// The event of this number happened.
        #[perf_event]
        pub fn $name(ctx: PerfEventContext) -> u32 {
            sample::take_at_event(ctx.as_ptr(), $number)
        }
    )*};
}

sample_event!(
    sample_event_0: 0, sample_event_1: 1, sample_event_2: 2, sample_event_3: 3,
    sample_event_4: 4, sample_event_5: 5, sample_event_6: 6, sample_event_7: 7
);

const _: () = assert!(profiler_common::event::MAX_EVENTS == 8);

/// A CPU goes from one thread to another. Runs as the one that leaves.
#[btf_tracepoint(function = "sched_switch")]
pub fn off_cpu_switch(ctx: BtfTracePointContext) -> i32 {
    let (preempted, next, state) = (ctx.arg::<u32>(0), ctx.arg::<*mut c_void>(2), ctx.arg::<u32>(3));
    let state = if preempted & 1 != 0 || state == 0 {
        record::state::PREEMPTED
    } else {
        state
    };
    let next_process = task::process_of(next);
    presence::hand_over(next_process, off_cpu::may_be_target(next_process));
    if off_cpu::may_be_target(task::process()) {
        off_cpu::leave(ctx.as_ptr(), state);
    }
    if off_cpu::may_be_target(next_process) {
        off_cpu::come(next, next_process, task::id_of(next));
    }
    0
}

/// A thread is made runnable. Runs as the one that does so.
#[btf_tracepoint(function = "sched_waking")]
pub fn off_cpu_wake(ctx: BtfTracePointContext) -> i32 {
    let woken = ctx.arg(0);
    if off_cpu::may_be_target(task::process_of(woken)) {
        off_cpu::wake(ctx.as_ptr(), task::id_of(woken));
    }
    0
}

/// One of the threads there are; null at the end.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task")]
pub fn off_cpu_waiting(ctx: *mut off_cpu::TaskIteration) -> i32 {
    // SAFETY: the context of such a program; the verifier checks the pointers in it.
    let (meta, task) = unsafe { ((*ctx).meta, (*ctx).task) };
    if !task.is_null() {
        // SAFETY: as above.
        off_cpu::look(unsafe { (*meta).output }, task);
    }
    0
}

/// One of the threads there are, as above.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task")]
pub fn admission_look(ctx: *mut off_cpu::TaskIteration) -> i32 {
    // SAFETY: the context of such a program; the verifier checks the pointers in it.
    let (meta, task) = unsafe { ((*ctx).meta, (*ctx).task) };
    if !task.is_null() {
        admission::look(meta, task);
    }
    0
}

/// A thread enters the kernel by a system call.
#[btf_tracepoint(function = "sys_enter")]
pub fn syscall_enter(ctx: BtfTracePointContext) -> i32 {
    system_call::enter(ctx.as_ptr(), ctx.arg(1));
    0
}

/// A system call is about to return.
#[btf_tracepoint(function = "sys_exit")]
pub fn syscall_exit(ctx: BtfTracePointContext) -> i32 {
    system_call::exit(ctx.arg(0), ctx.arg(1));
    0
}

/// A thread gives bytes to a block device.
#[btf_tracepoint(function = "block_bio_queue")]
pub fn cost_block(ctx: BtfTracePointContext) -> i32 {
    cost::queue(ctx.as_ptr(), ctx.arg(0));
    0
}

/// A thread makes a request to a block device.
#[btf_tracepoint(function = "block_bio_queue")]
pub fn cost_block_begin(ctx: BtfTracePointContext) -> i32 {
    cost::begin(ctx.as_ptr());
    0
}

/// A device has done a request, or a part of it.
#[btf_tracepoint(function = "block_rq_complete")]
pub fn cost_request_end(ctx: BtfTracePointContext) -> i32 {
    cost::end_merged(ctx.as_ptr());
    0
}

/// A block device that knows no requests has done what a `struct bio` asks for.
#[btf_tracepoint(function = "block_bio_complete")]
pub fn cost_block_end(ctx: BtfTracePointContext) -> i32 {
    cost::end(ctx.as_ptr());
    0
}

/// A thread enters the kernel by a system call, which may move the end of its heap.
#[btf_tracepoint(function = "sys_enter")]
pub fn cost_enter(ctx: BtfTracePointContext) -> i32 {
    cost::enter(ctx.arg(1));
    0
}

/// A system call is about to return, which may have given memory.
#[btf_tracepoint(function = "sys_exit")]
pub fn cost_exit(ctx: BtfTracePointContext) -> i32 {
    cost::exit(ctx.as_ptr(), ctx.arg(0), ctx.arg(1));
    0
}

/// A thread exits. Attached to `sched_process_exit`, in the exiting thread.
#[raw_tracepoint(tracepoint = "sched_process_exit")]
pub fn thread_exit(ctx: RawTracePointContext) -> i32 {
    admission::note_end();
    let thread = task::id();
    let open = span::abandon_all(thread);
    if open > 0 {
        debug!(&ctx, "thread exits with {} spans open", open);
    }
    task::forget(thread);
    system_call::forget();
    0
}

/// A process begins another, or a thread. Attached to `sched_process_fork`, in the thread that does so.
#[raw_tracepoint(tracepoint = "sched_process_fork")]
pub fn process_fork(ctx: RawTracePointContext) -> i32 {
    admission::note_child(ctx.arg(1));
    0
}

/// A process runs another program. Attached to `sched_process_exec`, in the surviving thread.
#[raw_tracepoint(tracepoint = "sched_process_exec")]
pub fn thread_exec(ctx: RawTracePointContext) -> i32 {
    // A thread that is not its process's first has just taken over the first one's id.
    let thread = ctx.arg::<u32>(1);
    let open = span::abandon_all(thread);
    if open > 0 {
        debug!(&ctx, "exec with {} spans open", open);
    }
    task::forget(thread);
    if thread != task::id() {
        admission::note_taken_over();
    }
    0
}

#[cfg(not(test))]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    // Nothing here panics: indexes are masked and arithmetic wraps. The verifier would refuse the loop.
    loop {}
}

/// Licence of the programs, as the kernel reads it.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
