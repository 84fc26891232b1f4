//! What the daemon itself costs.

use rustix::process::getpid;

use super::picture::{BudgetUse, Cost};

/// CPU time used by this process so far.
fn cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// `CLOCK_MONOTONIC`, the clock of every record.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Measures this process from a beginning.
#[derive(Clone, Copy, Debug)]
pub struct Meter {
    begin_ns: u64,
    begin_cpu_ns: u64,
}

impl Meter {
    /// Begins now.
    #[must_use]
    pub fn new(now_ns: u64) -> Self {
        Self {
            begin_ns: now_ns,
            begin_cpu_ns: cpu_ns(),
        }
    }

    /// The cost since the beginning; what probes take is told by who knows it.
    #[must_use]
    pub fn read(&self, now_ns: u64, budget_use: Option<BudgetUse>) -> Cost {
        let elapsed = now_ns.saturating_sub(self.begin_ns).max(1);
        Cost {
            cpu_share: cpu_ns().saturating_sub(self.begin_cpu_ns) as f64 / elapsed as f64,
            rss_anon_bytes: rss_anon_bytes(),
            kernel_share: 0.0,
            budget_use,
        }
    }
}

fn rss_anon_bytes() -> u64 {
    let path = format!("/proc/{}/status", getpid().as_raw_nonzero());
    let status = std::fs::read_to_string(path).unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"))
        .and_then(|text| text.trim().trim_end_matches(" kB").parse::<u64>().ok())
        .unwrap_or(0)
        * 1024
}
