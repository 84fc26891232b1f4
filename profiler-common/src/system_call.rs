//! System calls: one that is open on a thread, and what those that returned are counted by.

use crate::{assert_layout, limits::MAX_GATES};

/// A system call that has not returned.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct OpenCall {
    /// `CLOCK_MONOTONIC`, when it began.
    pub start_ns: u64,
    /// [`crate::record::SharedStackHeader::id`] of who made it; 0 where that was not taken.
    pub stack: u64,
    /// The process, in the initial PID namespace.
    pub tgid: u32,
    /// Those who count it: bits of gates.
    pub views: u32,
    /// Its number, and [`COMPAT`].
    pub number: u32,
    /// Always 0.
    pub zero: u32,
}

assert_layout!(OpenCall, size 32, start_ns at 0, stack at 8, tgid at 16, views at 20, number at 24, zero at 28);

/// Mark in a number: a call of the 32-bit interface, which has numbers of its own.
pub const COMPAT: u32 = 1 << 31;

/// Numbers of calls that a kernel may have are below this: Linux 6.18 has none above 469.
pub const MAX_CALLS: u32 = 1024;

/// In the place of all other numbers, which any thread may call the kernel by: they are counted together.
pub const UNKNOWN_CALL: u32 = MAX_CALLS;

/// A number as it is counted, without [`COMPAT`].
#[inline(always)]
#[must_use]
#[allow(clippy::inline_always, reason = "inlined into eBPF")]
pub const fn counted_as(number: u32) -> u32 {
    // Where a probe's own call returns, the number is -1: that is nobody's call.
    if number < MAX_CALLS || number == !COMPAT {
        number
    } else {
        UNKNOWN_CALL
    }
}

/// In the place of a number: the thread is in no call.
pub const NO_CALL: u32 = u32::MAX;

/// What calls are counted by.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CallKey {
    /// [`OpenCall::stack`].
    pub stack: u64,
    /// [`OpenCall::tgid`].
    pub tgid: u32,
    /// [`OpenCall::views`].
    pub views: u32,
    /// [`OpenCall::number`].
    pub number: u32,
    /// The error; 0 where there was none. Or [`BEGUN_BEFORE`].
    pub result: u32,
    /// [`CallWatch::turn`] when it returned.
    pub turn: u32,
    /// Always 0.
    pub zero: u32,
}

assert_layout!(CallKey, size 32,
    stack at 0, tgid at 8, views at 12, number at 16, result at 20, turn at 24, zero at 28);

/// In the place of a result: it had begun before it was watched.
pub const BEGUN_BEFORE: u32 = u32::MAX;

/// The highest number of an error (`MAX_ERRNO`).
pub const MAX_ERROR: u32 = 4095;

/// Calls that were counted together.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CallCount {
    /// Their number.
    pub calls: u64,
    /// The sum of their durations.
    pub time_ns: u64,
    /// The longest of these.
    pub longest_ns: u64,
}

assert_layout!(CallCount, size 24, calls at 0, time_ns at 8, longest_ns at 16);

/// Who has system calls counted. Written by the daemon at any time.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CallWatch {
    /// Bits of all gates that stand for somebody who does.
    pub live: u32,
    /// Those of them that are opened by spans.
    pub in_spans: u32,
    /// Counts of other turns are added to no more.
    pub turn: u32,
    /// Always 0.
    pub zero: u32,
    /// The latest of [`CallWatch::since_ns`].
    pub latest_ns: u64,
    /// `CLOCK_MONOTONIC`, since when each bit stands for who it does now.
    pub since_ns: [u64; MAX_GATES as usize],
}

assert_layout!(CallWatch, size 280,
    live at 0, in_spans at 4, turn at 8, zero at 12, latest_ns at 16, since_ns at 24);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_no_kernel_has_are_counted_as_one() {
        assert_eq!([0, 471, 1023].map(counted_as), [0, 471, 1023]);
        assert_eq!(
            [1024, 22_000, 1 << 30, !COMPAT - 1].map(counted_as),
            [UNKNOWN_CALL; 4]
        );
        assert_eq!(counted_as(!COMPAT), !COMPAT);
    }
}
