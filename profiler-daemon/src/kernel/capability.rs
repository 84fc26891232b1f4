//! What this process is allowed to do, said before it is tried.

/// A capability that is missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Missing {
    /// Its name, `CAP_…`.
    pub name: &'static str,
    /// What it is needed for.
    pub purpose: &'static str,
}

/// Bits of `CapEff`, from `include/uapi/linux/capability.h`, and what each is for.
const NEEDED: [(u32, Missing); 3] = [
    (
        39,
        Missing {
            name: "CAP_BPF",
            purpose: "to load eBPF programs",
        },
    ),
    (
        38,
        Missing {
            name: "CAP_PERFMON",
            purpose: "to attach them to a process and to sample",
        },
    ),
    (
        SYS_PTRACE,
        Missing {
            name: "CAP_SYS_PTRACE",
            purpose: "to read another process's maps and files",
        },
    ),
];

/// Bit of `CAP_SYS_PTRACE`.
const SYS_PTRACE: u32 = 19;

/// Bit of `CAP_SYS_ADMIN`, which stands for `CAP_BPF` and `CAP_PERFMON` too.
const SYS_ADMIN: u32 = 21;

/// The capabilities that are needed and missing.
#[must_use]
pub fn missing_capabilities() -> Vec<Missing> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    missing(&status)
}

fn missing(status: &str) -> Vec<Missing> {
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
    // An unreadable status says nothing: the kernel will.
    let Some(effective) = effective else {
        return Vec::new();
    };
    let has = |bit: u32| effective >> bit & 1 == 1;
    NEEDED
        .iter()
        .filter(|(bit, _)| !(has(*bit) || *bit != SYS_PTRACE && has(SYS_ADMIN)))
        .map(|(_, missing)| *missing)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_misses_nothing_and_nobody_everything() {
        assert_eq!(missing("CapEff:\t000001ffffffffff\n"), []);
        let names: Vec<_> = missing("CapEff:\t0000000000000000\n")
            .iter()
            .map(|missing| missing.name)
            .collect();
        assert_eq!(names, ["CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE"]);
        assert_eq!(missing(""), []);
    }

    #[test]
    fn sys_admin_stands_for_the_newer_ones() {
        let names: Vec<_> = missing("CapEff:\t0000000000200000\n")
            .iter()
            .map(|missing| missing.name)
            .collect();
        assert_eq!(names, ["CAP_SYS_PTRACE"]);
    }
}
