//! How long a thread waits for others, without the time in which it works or waits for a CPU.

use std::{
    fs,
    time::{Duration, Instant},
};

/// Since a moment.
pub struct Blocked {
    begun: Instant,
    busy: Duration,
}

impl Blocked {
    /// From now on.
    #[must_use]
    pub fn begin() -> Self {
        Self {
            begun: Instant::now(),
            busy: busy(),
        }
    }

    /// Until now, on the same thread.
    #[must_use]
    pub fn end(self) -> Duration {
        let busy = busy().saturating_sub(self.busy);
        self.begun.elapsed().saturating_sub(busy)
    }
}

/// Time in which this thread was on a CPU or waited for one so far: the first two fields of `schedstat`
/// (`Documentation/scheduler/sched-stats.rst`).
fn busy() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let fields = text.split_whitespace().take(2);
    Duration::from_nanos(fields.filter_map(|field| field.parse::<u64>().ok()).sum())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn work_is_not_counted_and_waiting_for_others_is() {
        const TIME: Duration = Duration::from_millis(50);
        let working = Blocked::begin();
        let begun = Instant::now();
        while begun.elapsed() < TIME {
            std::hint::black_box(fs::read("/proc/self/stat").unwrap());
        }
        assert!(working.end() < TIME / 2);
        let (_sender, nothing) = mpsc::channel::<()>();
        let waiting = Blocked::begin();
        // A wait whose length is the point.
        assert!(nothing.recv_timeout(TIME).is_err());
        assert!(waiting.end() > TIME / 2);
    }
}
