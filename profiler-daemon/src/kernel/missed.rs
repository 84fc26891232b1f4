//! System calls that the kernel did not show to the programs.
//!
//! A kernel does not run a program on a CPU on which it has begun and not ended. Where threads may be preempted in it, as at
//! the tracepoints of system calls from Linux 6.13 on, all others that follow on that CPU meanwhile pass it by. The kernel counts how
//! often, whosever calls they are.

use std::{
    fs,
    os::fd::{AsFd as _, AsRawFd as _},
};

use super::{Engine, system_calls, tracepoints::Place, watched_calls};

impl Engine {
    /// How often they were not shown to those that count them, of all processes, since they were loaded.
    #[must_use]
    pub fn missed_calls(&self) -> u64 {
        self.missed_by(system_calls::PLACES)
    }

    /// The same of those that see them as spans.
    #[must_use]
    pub fn missed_call_spans(&self) -> u64 {
        self.missed_by(watched_calls::PROGRAMS)
    }

    fn missed_by(&self, programs: [Place; 2]) -> u64 {
        let missed = |(name, _): Place| {
            let program = self.ebpf.program(name)?;
            let number = program.fd().ok()?.as_fd().as_raw_fd();
            misses(&fs::read_to_string(format!("/proc/self/fdinfo/{number}")).ok()?)
        };
        programs.into_iter().filter_map(missed).sum()
    }
}

/// What `/proc/PID/fdinfo` has of it for a program (`bpf_prog_show_fdinfo`).
fn misses(info: &str) -> Option<u64> {
    let of_line = |line: &str| line.strip_prefix("recursion_misses:")?.trim().parse().ok();
    info.lines().find_map(of_line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misses_are_read_from_what_the_kernel_says() {
        let info = "pos:\t0\nflags:\t02000002\nprog_type:\t26\nverified_insns:\t9\nrecursion_misses:\t123\n";
        assert_eq!(misses(info), Some(123));
        // Before Linux 5.12.
        assert_eq!(misses("pos:\t0\n"), None);
    }
}
