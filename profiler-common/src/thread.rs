//! What is kept of a thread: its stack of open spans, and since when it is off the CPU.

use crate::{
    admission::{Image, Rights},
    assert_layout,
    limits::MAX_DEPTH,
    probe::ProbeId,
};

/// One open span of a thread.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct OpenSpan {
    /// Whose span it is.
    pub probe: ProbeId,
    /// Samples that hit it; its end emits a record only where this is not 0.
    pub hits: u16,
    /// The entry's [`crate::probe::Cookie`] flags, and [`OpenSpan::JOINED`].
    pub flags: u8,
    /// Records of spans and hits inside it that wait for its duration, at most [`crate::limits::MAX_JOINED`].
    pub joined: u8,
    /// `CLOCK_MONOTONIC` at entry.
    pub start_ns: u64,
    /// Stack pointer at entry, where the return address lies. Of a function of the kernel how far above the end of the
    /// thread's kernel stack it is: below [`crate::limits::KERNEL_STACK_BYTES`], where no user's stack is.
    pub stack_pointer: u64,
    /// Number of the span within its thread, from 1; with the thread id, the span's id. It wraps, long after the span
    /// that had it before has ended.
    pub sequence: u32,
    /// The return address's lower half, where [`crate::probe::Cookie::STACKS_SWITCH`] asks for it; else 0.
    pub return_address: u32,
    /// Time that the samples which hit it took of the thread; its duration is less by this.
    pub sampling_ns: u64,
    /// Number of the span that its step is observed inside of; 0 where the step is its scope's first.
    pub parent: u32,
    /// Gates that are open while it is: its own step's, and those of the lines that were reached in it.
    pub own_gates: u32,
    /// These, and those of the spans below it.
    pub gates: u32,
    /// Where it was entered, the lower half: probes of several sessions there open a span each.
    pub address: u32,
}

impl OpenSpan {
    /// The span itself waits for the duration of its parent: its end is recorded in any case.
    pub const JOINED: u8 = 1 << 7;
}

assert_layout!(OpenSpan, size 56,
    probe at 0, hits at 4, flags at 6, joined at 7, start_ns at 8, stack_pointer at 16, sequence at 24,
    return_address at 28, sampling_ns at 32, parent at 40, own_gates at 44, gates at 48, address at 52);

/// A thread that is off the CPU.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct OffCpu {
    /// `CLOCK_MONOTONIC`, when it left.
    pub start_ns: u64,
    /// When it was made runnable; 0 until then.
    pub woken_ns: u64,
    /// [`crate::record::SharedStackHeader::id`] of where it left; 0 where that was not taken.
    pub stack: u64,
    /// The same of who made it runnable.
    pub waker_stack: u64,
    /// Its process.
    pub tgid: u32,
    /// Spans that were open.
    pub spans: u32,
    /// [`crate::record::OffCpuHeader::state`].
    pub state: u32,
    /// The thread that made it runnable.
    pub waker_tid: u32,
    /// That thread's process.
    pub waker_tgid: u32,
    /// What the taking of the stack took of the thread, which was still on the CPU then.
    pub taking_ns: u32,
    /// Whether the stack of who makes it runnable is asked for, 1 or 0.
    pub asks_waker: u32,
    /// Whether `stack` is the user's part alone, 1 or 0: the kernel's is taken when the thread is back.
    pub awaits_kernel: u32,
    /// [`crate::record::OffCpuHeader::lock`].
    pub lock: u64,
    /// [`Presence::still_ns`] of its process when it left, if it is kept; from where it is made runnable, by how much that has
    /// grown since.
    pub still_ns: u64,
    /// How often the thread had left the CPU by then; more where it has come back unseen.
    pub departures: u64,
    /// [`crate::record::OffCpuHeader::system_call`].
    pub system_call: u32,
    /// Always 0.
    pub zero: u32,
    /// At which of the daemon's changes of admissions it was admitted, where that holds until the next.
    pub admitted_at: u64,
}

/// Whether threads of a process are on CPUs, while it is asked who waits for whom.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Presence {
    /// CPUs that threads of it are on.
    pub cpus: u64,
    /// Since when there are none; 0 where there are some, or where that is not known.
    pub still_since_ns: u64,
    /// How long there were none, up to then.
    pub still_ns: u64,
}

assert_layout!(Presence, size 24, cpus at 0, still_since_ns at 8, still_ns at 16);

assert_layout!(OffCpu, size 104,
    start_ns at 0, woken_ns at 8, stack at 16, waker_stack at 24, tgid at 32, spans at 36, state at 40,
    waker_tid at 44, waker_tgid at 48, taking_ns at 52, asks_waker at 56, awaits_kernel at 60,
    lock at 64, still_ns at 72, departures at 80, system_call at 88, zero at 92, admitted_at at 96);

/// A thread's open spans, outermost first. From Linux 7.0 task storage has no room for more than 8 KiB.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ThreadState {
    /// Open spans. Written after the span it admits is complete: the sampler may interrupt.
    pub depth: u32,
    /// How many of them end by a return probe; the kernel keeps a bounded number pending.
    pub pending_returns: u32,
    /// Spans begun by the thread so far; the number of the last one, which wraps past 0.
    pub sequence: u32,
    /// 1 while a program changes which spans are open: what it calls of the kernel must not, meanwhile.
    pub busy: u32,
    /// Changes of admissions so far when the thread's process was last found admitted; 0 where it was not.
    pub admitted_at: u64,
    /// `CLOCK_MONOTONIC` when the target's thread last went on: behind what samples, stacks and waits that its spans were
    /// told of took of it. 0 before the first of them.
    pub resumed_ns: u64,
    /// How many of the spans, outermost first, were told of what was taken then.
    pub resumed_depth: u32,
    /// 1 where the process was found admitted with any rights, else 0: then it is so while the thread is as follows.
    pub any_rights: u32,
    /// The program that it was found admitted with.
    pub image: Image,
    /// Its rights then.
    pub rights: Rights,
    /// The spans.
    pub spans: [OpenSpan; MAX_DEPTH],
}

assert_layout!(ThreadState, size 112 + 56 * MAX_DEPTH,
    depth at 0, pending_returns at 4, sequence at 8, busy at 12, admitted_at at 16, resumed_ns at 24,
    resumed_depth at 32, any_rights at 36, image at 40, rights at 64, spans at 112);
