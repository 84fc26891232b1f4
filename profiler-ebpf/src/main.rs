//! The kernel side: entry points only. Each does one thing and says which module does it.
//!
//! | program | attached to | does |
//! |---|---|---|
//! | `span_entry`, `span_entry_step` | a function's entry | opens a span |
//! | `span_return` | the kernel's return probe | ends it |
//! | `span_ret`, `span_ret_step` | `ret` instructions and tail jumps | ends it |
//! | `hit`, `hit_step` | a line's instruction | records the hit and its values |
//! | `sample` | perf event | takes a stack with the thread's open spans |
//! | `place_hit` | a tracepoint of the kernel | records the hit and its values |
//! | `call_enter`, `call_exit` | the tracepoints of system calls | opens a span, and ends it |
//! | `off_cpu_switch`, `off_cpu_wake` | the scheduler's BTF tracepoints | keeps intervals off the CPU |
//! | `syscall_enter`, `syscall_exit` | the kernel's BTF tracepoints of system calls | counts them |
//! | `thread_exit`, `thread_exec` | scheduler tracepoints | abandons what is still open |
//!
//! The `_step` variants also do the probed instruction themselves, which needs a kernel that lets a
//! uprobe program write its registers; they are loaded only there.
#![no_std]
#![no_main]
#![feature(asm_experimental_arch)]

mod atomic;
mod emit;
mod futex;
mod gate;
mod histogram;
mod hit;
mod hit_stack;
mod maps;
mod off_cpu;
mod open_spans;
mod pending;
mod place;
mod plain;
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
    macros::{btf_tracepoint, perf_event, raw_tracepoint, uprobe, uretprobe},
    programs::{BtfTracePointContext, PerfEventContext, ProbeContext, RawTracePointContext, RetProbeContext},
};

use aya_log_ebpf::debug;
use profiler_common::record;

use crate::registers::Registers;

/// A function is entered.
#[uprobe]
pub fn span_entry(ctx: ProbeContext) -> u32 {
    let registers = Registers::new(ctx.as_ptr());
    span::enter(
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
    span::enter(
        cookie,
        step::stack_pointer_at_site(registers, cookie),
        step::address_of_site(registers, cookie),
    );
    step::run(registers, cookie);
    0
}

/// A function is entered, or a call is made, at which values are looked at.
#[uprobe]
pub fn span_entry_look(ctx: ProbeContext) -> u32 {
    hit::enter(ctx.as_ptr(), task::cookie(ctx.as_ptr()));
    0
}

/// A function returned through the kernel's return probe.
#[uretprobe]
pub fn span_return(ctx: RetProbeContext) -> u32 {
    let registers = Registers::new(ctx.as_ptr());
    // The return address has been popped: at entry the stack pointer was one word lower.
    span::exit(
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
    if step::takes_branch(registers, cookie) && step::leaves_function(registers, cookie) {
        span::exit(
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
    if step::leaves_function(registers, cookie) {
        span::exit(
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
    hit::take(ctx.as_ptr(), task::cookie(ctx.as_ptr()));
    0
}

/// As `hit`, and the instruction is done here rather than single-stepped.
#[uprobe]
pub fn hit_step(ctx: ProbeContext) -> u32 {
    let cookie = task::cookie(ctx.as_ptr());
    hit::take(ctx.as_ptr(), cookie);
    step::run(Registers::new(ctx.as_ptr()), cookie);
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

/// The sampler ticked.
#[perf_event]
pub fn sample(ctx: PerfEventContext) -> u32 {
    sample::take(ctx.as_ptr());
    0
}

/// A CPU goes from one thread to another. Runs as the one that leaves.
#[btf_tracepoint(function = "sched_switch")]
pub fn off_cpu_switch(ctx: BtfTracePointContext) -> i32 {
    let (preempted, next, state) = (ctx.arg::<u32>(0), ctx.arg::<*mut c_void>(2), ctx.arg::<u32>(3));
    let state = if preempted & 1 != 0 || state == 0 {
        record::state::PREEMPTED
    } else {
        state
    };
    if off_cpu::may_be_target(task::process()) {
        off_cpu::leave(ctx.as_ptr(), state);
    }
    if off_cpu::may_be_target(task::process_of(next)) {
        off_cpu::come(next, task::id_of(next));
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

/// A thread exits. Attached to `sched_process_exit`, in the exiting thread.
#[raw_tracepoint(tracepoint = "sched_process_exit")]
pub fn thread_exit(ctx: RawTracePointContext) -> i32 {
    let thread = task::id();
    let open = span::abandon_all(thread);
    if open > 0 {
        debug!(&ctx, "thread exits with {} spans open", open);
    }
    task::forget(thread);
    system_call::forget();
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
