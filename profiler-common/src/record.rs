//! Records of the ring buffer. Every record begins with its kind.

use crate::{assert_layout, probe::ProbeId};

/// [`SampleHeader::kind`].
pub const SAMPLE: u32 = 1;
/// [`SpanEnd::kind`].
pub const SPAN_END: u32 = 2;
/// [`crate::hit::HitHeader::kind`].
pub const HIT: u32 = 3;
/// [`StackHeader::kind`].
pub const STACK: u32 = 4;
/// [`OffCpuHeader::kind`].
pub const OFF_CPU: u32 = 5;
/// [`SharedStackHeader::kind`].
pub const SHARED_STACK: u32 = 6;
/// [`Weight::kind`].
pub const WEIGHT: u32 = 7;

/// [`SystemCallHeader::kind`].
pub const SYSTEM_CALL: u32 = 8;

/// A system call that has returned in open spans: this header, then `spans` × [`SpanRef`] (outermost first).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SystemCallHeader {
    /// [`SYSTEM_CALL`].
    pub kind: u32,
    /// Number of spans that were open.
    pub spans: u32,
    /// The process (thread group), in the initial PID namespace.
    pub tgid: u32,
    /// The thread, in the initial PID namespace.
    pub tid: u32,
    /// `CLOCK_MONOTONIC`, when it began.
    pub start_ns: u64,
    /// When it was about to return.
    pub end_ns: u64,
    /// As [`crate::system_call::OpenCall::number`].
    pub number: u32,
    /// The error that it returned; 0 for none.
    pub error: u32,
}

assert_layout!(SystemCallHeader, size 40,
    kind at 0, spans at 4, tgid at 8, tid at 12, start_ns at 16, end_ns at 24, number at 32, error at 36);

/// A sample: this header, then `spans` × [`SpanRef`] (outermost first), then `kernel_frames`
/// and `user_frames` addresses of 8 bytes each, innermost first.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SampleHeader {
    /// [`SAMPLE`].
    pub kind: u32,
    /// 0 at a tick of the clock; else 1 + the number of the event that it was taken at ([`crate::event`]).
    pub event: u32,
    /// The process (thread group), in the initial PID namespace.
    pub tgid: u32,
    /// The thread, in the initial PID namespace.
    pub tid: u32,
    /// `CLOCK_MONOTONIC`.
    pub ts_ns: u64,
    /// What the sample stands for: time in nanoseconds, or a number of events; 0 where a [`Weight`] says so later.
    pub weight: u64,
    /// What it was about: the address of a fault, the sector at which a request begins; of one whose [`Weight`] comes later,
    /// what names it until then. 0 of others.
    pub key: u64,
    /// Where that lies: the number of the device of a request; 0 of what lies in the process.
    pub space: u64,
    /// Number of spans that were open.
    pub spans: u16,
    /// Number of kernel addresses.
    pub kernel_frames: u16,
    /// Number of user addresses.
    pub user_frames: u16,
    /// [`SampleHeader::USER_TRUNCATED`] and others.
    pub flags: u16,
}

impl SampleHeader {
    /// The user stack had more frames than are taken.
    pub const USER_TRUNCATED: u16 = 1;
    /// The user stack could not be walked at all.
    pub const USER_MISSING: u16 = 2;
    /// The user stack was walked to a root that the unwind information names as such.
    pub const USER_COMPLETE: u16 = 4;
    /// The user stack was walked by the kernel along frame pointers: there were no tables.
    pub const USER_BY_KERNEL: u16 = 8;
    /// Code was met that no table covers, so that there may be new code in the process.
    pub const USER_NO_TABLE: u16 = 16;

    /// Mark in a user address: execution stands there, or will go on there, as in the innermost frame or beneath
    /// a signal frame. Other addresses are return addresses.
    pub const INTERRUPTED: u64 = 1 << 63;
    /// Mark in a user address: it was found along frame pointers, for want of unwind information.
    pub const BY_FRAME_POINTER: u64 = 1 << 62;
    /// The address without its marks.
    pub const ADDRESS: u64 = (1 << 62) - 1;
}

assert_layout!(SampleHeader, size 56,
    kind at 0, event at 4, tgid at 8, tid at 12, ts_ns at 16, weight at 24, key at 32, space at 40, spans at 48,
    kernel_frames at 50, user_frames at 52, flags at 54);

/// The weight of a sample that was sent before: what it began has come to its end.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Weight {
    /// [`WEIGHT`].
    pub kind: u32,
    /// [`SampleHeader::event`] of the sample.
    pub event: u32,
    /// The sample's process.
    pub tgid: u32,
    /// Its thread.
    pub tid: u32,
    /// When it was taken.
    pub ts_ns: u64,
    /// Its [`SampleHeader::key`].
    pub key: u64,
    /// What it stands for.
    pub weight: u64,
}

assert_layout!(Weight, size 40,
    kind at 0, event at 4, tgid at 8, tid at 12, ts_ns at 16, key at 24, weight at 32);

/// The stack of a thread at a hit: this header, then `frames` addresses as a sample's user addresses are. The hit's
/// record follows, that of the same thread and time; without it the hit was lost.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct StackHeader {
    /// [`STACK`].
    pub kind: u32,
    /// The process (thread group), in the initial PID namespace.
    pub tgid: u32,
    /// The thread, in the initial PID namespace.
    pub tid: u32,
    /// Number of addresses.
    pub frames: u16,
    /// Those of [`SampleHeader::flags`] that begin with `USER_`.
    pub flags: u16,
    /// `CLOCK_MONOTONIC`: [`crate::hit::HitHeader::ts_ns`].
    pub ts_ns: u64,
}

assert_layout!(StackHeader, size 24, kind at 0, tgid at 4, tid at 8, frames at 12, flags at 14, ts_ns at 16);

/// The stack of a thread that left the CPU, or made another runnable: this header, then `kernel_frames` and `user_frames`
/// addresses as a sample's are. It is sent once, before the intervals that name it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SharedStackHeader {
    /// [`SHARED_STACK`].
    pub kind: u32,
    /// The process, in the initial PID namespace.
    pub tgid: u32,
    /// What intervals name it by: a hash of the process and all that follows, never 0.
    pub id: u64,
    /// Number of kernel addresses.
    pub kernel_frames: u16,
    /// Number of user addresses.
    pub user_frames: u16,
    /// Those of [`SampleHeader::flags`].
    pub flags: u16,
    /// Always 0.
    pub zero: u16,
    /// The stack whose user addresses and flags are this one's too, which was sent before; 0 where it has its own.
    pub user_of: u64,
}

assert_layout!(SharedStackHeader, size 32,
    kind at 0, tgid at 4, id at 8, kernel_frames at 16, user_frames at 18, flags at 20, zero at 22, user_of at 24);

/// The whole stack of a thread that is off the CPU, as the iterator over threads writes it.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WaitingStack {
    /// The thread, in the initial PID namespace.
    pub tid: u32,
    /// Always 0.
    pub zero: u32,
    /// [`crate::thread::OffCpu::start_ns`].
    pub start_ns: u64,
    /// [`SharedStackHeader::id`].
    pub stack: u64,
}

assert_layout!(WaitingStack, size 24, tid at 0, zero at 4, start_ns at 8, stack at 16);

/// An interval that a thread was off the CPU, sent when it is back: this header, then `spans` × [`SpanRef`]
/// (outermost first).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct OffCpuHeader {
    /// [`OFF_CPU`].
    pub kind: u32,
    /// Number of spans that were open.
    pub spans: u32,
    /// The process (thread group), in the initial PID namespace.
    pub tgid: u32,
    /// The thread, in the initial PID namespace.
    pub tid: u32,
    /// `CLOCK_MONOTONIC`, when it left the CPU.
    pub start_ns: u64,
    /// When another made it runnable; 0 where it was runnable all the time, or where nobody was seen to do so.
    pub woken_ns: u64,
    /// When it was given a CPU again.
    pub end_ns: u64,
    /// [`SharedStackHeader::id`] of where it left; 0 where that was not taken.
    pub stack: u64,
    /// The state that it left in, as [`state`] has them.
    pub state: u32,
    /// The thread that made it runnable; 0 where nobody was seen to.
    pub waker_tid: u32,
    /// That thread's process.
    pub waker_tgid: u32,
    /// Whether the stack of who made it runnable was asked for, 1 or 0.
    pub asks_waker: u32,
    /// [`SharedStackHeader::id`] of who made it runnable, then; 0 where that was not taken.
    pub waker_stack: u64,
    /// The address of the futex that it waited for: of a lock, a semaphore, a condition variable; 0 where it waited for
    /// something else.
    pub lock: u64,
    /// How long no thread of its process was on a CPU until it was made runnable; [`OffCpuHeader::NOT_KEPT`] where that was not
    /// asked for.
    pub still_ns: u64,
    /// The system call that it left the CPU in, as [`crate::system_call::OpenCall::number`];
    /// [`crate::system_call::NO_CALL`] where it was in none.
    pub system_call: u32,
    /// Always 0.
    pub zero: u32,
}

impl OffCpuHeader {
    /// Of [`OffCpuHeader::still_ns`].
    pub const NOT_KEPT: u64 = u64::MAX;
}

assert_layout!(OffCpuHeader, size 96,
    kind at 0, spans at 4, tgid at 8, tid at 12, start_ns at 16, woken_ns at 24, end_ns at 32, stack at 40,
    state at 48, waker_tid at 52, waker_tgid at 56, asks_waker at 60, waker_stack at 64, lock at 72, still_ns at 80,
    system_call at 88, zero at 92);

/// States that a thread leaves the CPU in: bits of the kernel's (`include/linux/sched.h`).
pub mod state {
    /// It waits, and a signal ends that (`TASK_INTERRUPTIBLE`).
    pub const INTERRUPTIBLE: u32 = 1;
    /// It waits, and no signal ends that (`TASK_UNINTERRUPTIBLE`).
    pub const UNINTERRUPTIBLE: u32 = 2;
    /// It was stopped, by a signal or a tracer (`__TASK_STOPPED`, `__TASK_TRACED`).
    pub const STOPPED: u32 = 4 | 8;
    /// It will not come back (`TASK_DEAD`).
    pub const DEAD: u32 = 0x80;
    /// Ours: it was runnable, and had to make way.
    pub const PREEMPTED: u32 = 1 << 31;
}

/// A span that was open when a sample was taken. With the sample's thread, `sequence` is its id.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpanRef {
    /// Whose span it is.
    pub probe: ProbeId,
    /// Gates that were open while it was: [`crate::thread::OpenSpan::own_gates`].
    pub gates: u32,
    /// Number of the span within its thread.
    pub sequence: u64,
    /// `CLOCK_MONOTONIC` at entry.
    pub start_ns: u64,
}

assert_layout!(SpanRef, size 24, probe at 0, gates at 4, sequence at 8, start_ns at 16);

/// The end of a span that samples hit, or that was slow.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpanEnd {
    /// [`SPAN_END`].
    pub kind: u32,
    /// [`SpanEnd::ABANDONED`] and others, and [`SpanEnd::inside`].
    pub flags: u32,
    /// The process.
    pub tgid: u32,
    /// The thread.
    pub tid: u32,
    /// Whose span it was.
    pub probe: ProbeId,
    /// Samples that hit it.
    pub hits: u32,
    /// Number of the span within its thread.
    pub sequence: u64,
    /// `CLOCK_MONOTONIC` at entry.
    pub start_ns: u64,
    /// `CLOCK_MONOTONIC` at its end, less what the samples that hit it took of the thread; of an abandoned one,
    /// when that was noticed.
    pub end_ns: u64,
    /// Number of the span that its step is observed inside of; 0 where there is none.
    pub parent: u32,
    /// Gates that were open while it was: [`crate::thread::OpenSpan::own_gates`].
    pub gates: u32,
    /// `rax` and `rdx` where it returned, which is what it returned unless that is in other places; 0 without
    /// [`SpanEnd::RETURNED`].
    pub returned: [u64; 2],
}

impl SpanEnd {
    /// The span was jumped over: it has no duration, and its samples belong to nobody.
    pub const ABANDONED: u32 = 1;
    /// The span reached its probe's threshold.
    pub const SLOW: u32 = 2;
    /// It counts if its parent's duration is as asked.
    pub const JOINED: u32 = 4;
    /// Its end was seen where it returned, and not where it jumped to another function.
    pub const RETURNED: u32 = 8;
    /// It did not return what is asked, and counts for nothing.
    pub const REFUSED: u32 = 16;
    /// With [`SpanEnd::REFUSED`]: what it returned is not known.
    pub const UNDECIDED: u32 = 32;
    /// Place of [`SpanEnd::inside`] in the flags.
    pub const INSIDE_SHIFT: u32 = 8;

    /// Records of spans and hits inside it that waited for its duration, at most [`crate::limits::MAX_JOINED`].
    #[must_use]
    pub const fn inside(&self) -> u32 {
        (self.flags >> Self::INSIDE_SHIFT) & 0xff
    }
}

assert_layout!(SpanEnd, size 72,
    kind at 0, flags at 4, tgid at 8, tid at 12, probe at 16, hits at 20, sequence at 24,
    start_ns at 32, end_ns at 40, parent at 48, gates at 52, returned at 56);
