//! What the kernel did not show to the programs at places of its own.
//!
//! A kernel does not run a program on a CPU on which it has begun and not ended, nor, at tracepoints and functions, while a
//! map is written there. Where threads may be preempted meanwhile (at the tracepoints of system calls, from Linux 6.13 on
//! at all), what others pass on that CPU goes by. The kernel counts how often, in whichever process.

use std::os::fd::{AsFd as _, BorrowedFd};

use super::{Engine, syscall, system_calls, tracepoints::Place, watched_calls};

/// How often a place was passed without its program, since the programs were loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Missed {
    /// Beginnings and ends of system calls that are spans.
    pub call_spans: u64,
    /// Tracepoints and functions: the latter, and events of the former, are counted from Linux 6.7 on.
    pub places: u64,
}

impl Missed {
    /// Since an earlier reading.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            call_spans: self.call_spans.saturating_sub(before.call_spans),
            places: self.places.saturating_sub(before.places),
        }
    }
}

impl Engine {
    /// How often system calls were not shown to those that count them, since they were loaded.
    #[must_use]
    pub fn missed_calls(&self) -> u64 {
        self.missed_by(system_calls::PLACES)
    }

    /// What was not shown of spans and hits.
    #[must_use]
    pub fn missed(&self) -> Missed {
        let programs = self
            .event_programs
            .programs()
            .chain(self.function_programs.programs());
        Missed {
            call_spans: self.missed_by(watched_calls::PROGRAMS),
            places: programs.filter_map(misses_of).sum(),
        }
    }

    fn missed_by(&self, programs: [Place; 2]) -> u64 {
        let missed = |(name, _): Place| misses_of(self.ebpf.program(name)?.fd().ok()?.as_fd());
        programs.into_iter().filter_map(missed).sum()
    }
}

fn misses_of(program: BorrowedFd<'_>) -> Option<u64> {
    syscall::recursion_misses(program).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_program_has_missed_nothing_that_is_known() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(misses_of(file.as_fd()), None);
    }
}
