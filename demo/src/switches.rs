//! Context switches, as the kernel counts them.

use std::ops::{Add, AddAssign, Sub};

/// Times that a thread gave up the CPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Switches {
    /// It waited for something.
    pub voluntary: u64,
    /// Something else was to run.
    pub involuntary: u64,
}

impl Switches {
    /// Of all threads of the process, those that ended included.
    pub fn of_process() -> Self {
        Self::read(libc::RUSAGE_SELF)
    }

    /// Of the calling thread.
    pub fn of_thread() -> Self {
        Self::read(libc::RUSAGE_THREAD)
    }

    fn read(who: libc::c_int) -> Self {
        // SAFETY: rusage is a plain structure of integers, for which all zeros is valid.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer is to one live rusage. With these two constants the call has no failure.
        unsafe { libc::getrusage(who, &raw mut usage) };
        Self {
            voluntary: usage.ru_nvcsw.unsigned_abs(),
            involuntary: usage.ru_nivcsw.unsigned_abs(),
        }
    }
}

impl Sub for Switches {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            voluntary: self.voluntary.saturating_sub(earlier.voluntary),
            involuntary: self.involuntary.saturating_sub(earlier.involuntary),
        }
    }
}

impl Add for Switches {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            voluntary: self.voluntary + other.voluntary,
            involuntary: self.involuntary + other.involuntary,
        }
    }
}

impl AddAssign for Switches {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_is_counted_as_voluntary() {
        std::thread::spawn(|| {
            let before = Switches::of_thread();
            std::thread::park_timeout(std::time::Duration::from_millis(2));
            assert!((Switches::of_thread() - before).voluntary >= 1);
        })
        .join()
        .unwrap();
    }
}
