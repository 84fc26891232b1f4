//! How often the ring buffer is looked at: seldom, where nothing but a clock's samples of known code comes by it.

use profiler_common::{
    limits::{MAX_KERNEL_FRAMES, MAX_USER_FRAMES},
    record::SampleHeader,
};

/// Time between looks at the ring buffer.
pub const TICK_NS: u64 = 50_000_000;

/// The same at most, while all is calm.
const CALM_TICK_NS: u64 = 250_000_000;

/// So long all is calm before looks become rare.
const CALM_AFTER_NS: u64 = 1_000_000_000;

/// The longest record of a sample outside of calls, with the ring buffer's own word.
const SAMPLE_MAX: u64 = (size_of::<SampleHeader>() + (MAX_KERNEL_FRAMES + MAX_USER_FRAMES + 1) * 8) as u64;

/// When the ring buffer is looked at.
pub struct Pace {
    /// Room for samples.
    room: u64,
    calm_since_ns: u64,
}

impl Pace {
    /// Of a ring buffer of so many bytes, whose last quarter samples leave to other records.
    pub fn new(ring_bytes: u32, now_ns: u64) -> Self {
        Self {
            room: u64::from(ring_bytes) / 4 * 3,
            calm_since_ns: now_ns,
        }
    }

    /// Something else has come than samples of known code, or may come.
    pub fn disturb(&mut self, now_ns: u64) {
        self.calm_since_ns = now_ns;
    }

    /// From one look to the next, while so many samples may be taken in a second: never so long that they could find no
    /// room, whatever the targets begin to do.
    pub fn tick_ns(&self, samples_per_second: u64, now_ns: u64) -> u64 {
        if now_ns.saturating_sub(self.calm_since_ns) < CALM_AFTER_NS {
            return TICK_NS;
        }
        let bytes_per_second = samples_per_second.max(1).saturating_mul(SAMPLE_MAX);
        let full_ns = self.room.saturating_mul(1_000_000_000) / bytes_per_second;
        full_ns.clamp(TICK_NS, CALM_TICK_NS)
    }
}

#[cfg(test)]
mod tests {
    use profiler_common::limits::RING_BYTES;

    use super::*;

    #[test]
    fn looks_become_rare_when_all_has_been_calm_and_no_sample_can_be_lost() {
        let mut pace = Pace::new(RING_BYTES, 7);
        let calm_ns = 7 + CALM_AFTER_NS;
        assert_eq!(pace.tick_ns(198, 7), TICK_NS);
        assert_eq!(pace.tick_ns(198, calm_ns - 1), TICK_NS);
        assert_eq!(pace.tick_ns(198, calm_ns), CALM_TICK_NS);
        assert_eq!(pace.tick_ns(1_998, calm_ns), CALM_TICK_NS);
        pace.disturb(calm_ns);
        assert_eq!(pace.tick_ns(198, calm_ns + 1), TICK_NS);
        for samples_per_second in [0, 1, 99, 1_998, 9_999, 100_000, u64::MAX] {
            let pace = Pace::new(RING_BYTES, 0);
            let tick_ns = pace.tick_ns(samples_per_second, CALM_AFTER_NS);
            let samples = u128::from(tick_ns) * u128::from(samples_per_second) / 1_000_000_000;
            assert!(
                tick_ns == TICK_NS || samples * u128::from(SAMPLE_MAX) <= u128::from(RING_BYTES) / 4 * 3,
                "{samples_per_second}: {tick_ns}"
            );
        }
    }
}
