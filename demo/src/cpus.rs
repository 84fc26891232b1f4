//! A CPU list as the kernel writes them: `0-3,8`.

use std::{collections::BTreeSet, str::FromStr};

use crate::error::Error;

/// CPUs to run on; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuSet(BTreeSet<u16>);

/// The kernel's `cpu_set_t` holds this many.
const CPUS_MAX: u16 = 1024;

impl FromStr for CpuSet {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut cpus = BTreeSet::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let [first, last] =
                [first, last].map(|number| number.parse::<u16>().ok().filter(|cpu| *cpu < CPUS_MAX));
            match (first, last) {
                (Some(first), Some(last)) if first <= last => cpus.extend(first..=last),
                _ => return Err(format!("`{part}` is no CPU and no range of CPUs, such as 0-1,3")),
            }
        }
        Ok(Self(cpus))
    }
}

impl CpuSet {
    /// Confines the calling thread, and every thread and child that it starts from now on.
    ///
    /// # Errors
    /// [`Error::System`] where none of the CPUs can be used.
    pub fn apply(&self) -> Result<(), Error> {
        // SAFETY: cpu_set_t is a plain array of integers, for which all zeros is the empty set.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        for cpu in &self.0 {
            // SAFETY: the CPU is below CPUS_MAX, the number of bits in the set.
            unsafe { libc::CPU_SET(usize::from(*cpu), &mut set) };
        }
        // SAFETY: the pointer and the size are those of one live cpu_set_t; 0 is the calling thread.
        match unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) } {
            0 => Ok(()),
            _ => Err(Error::last_os(
                "sched_setaffinity (are the CPUs of --cpus there?)",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_ranges_are_read() {
        let CpuSet(cpus) = "0-2,8,1".parse().unwrap();
        assert_eq!(cpus.into_iter().collect::<Vec<_>>(), [0, 1, 2, 8]);
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for text in ["", ",", "1-", "-1", "2-1", "a", "1024", "0-99999"] {
            assert!(text.parse::<CpuSet>().is_err(), "{text}");
        }
    }
}
