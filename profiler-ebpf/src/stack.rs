//! The kernel's own walk: of the kernel's stack always, of a user's where the daemon has no tables for it.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::{bpf_get_stack, bpf_get_task_stack};
use profiler_common::limits::MAX_KERNEL_FRAMES;

const BPF_F_USER_STACK: u64 = 1 << 8;

/// Bytes that a walk may write.
pub const WALK_BYTES: usize = MAX_KERNEL_FRAMES * 8;

/// Which part of the stack.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// From the system call or interrupt inwards.
    Kernel,
    /// The target's own, along frame pointers.
    User,
}

/// Writes addresses, innermost first, and returns their number; `None` where the stack cannot be had.
///
/// # Safety
/// `out` has room for [`WALK_BYTES`].
#[inline(always)]
pub unsafe fn walk(ctx: *mut c_void, out: *mut u8, part: Part) -> Option<usize> {
    let flags = if part == Part::User { BPF_F_USER_STACK } else { 0 };
    // SAFETY: the caller gives the room that the size says.
    let bytes = unsafe { bpf_get_stack(ctx, out.cast(), WALK_BYTES as u32, flags) };
    frames_in(bytes)
}

/// Writes the kernel's addresses of a thread that is off the CPU, as [`walk`] does of the current one; without the functions
/// of the scheduler, and those that wait by calling it (the kernel's `.sched.text`). `task` is its `task_struct`.
///
/// # Safety
/// `out` has room for [`WALK_BYTES`].
#[inline(always)]
pub unsafe fn walk_waiting(task: *mut c_void, out: *mut u8) -> Option<usize> {
    // SAFETY: the caller gives the room that the size says.
    let bytes = unsafe { bpf_get_task_stack(task.cast(), out.cast(), WALK_BYTES as u32, 0) };
    frames_in(bytes)
}

/// The addresses in so many bytes; a negative number is an error.
#[inline(always)]
fn frames_in(bytes: i64) -> Option<usize> {
    if bytes < 0 { None } else { Some(bytes as usize / 8) }
}
