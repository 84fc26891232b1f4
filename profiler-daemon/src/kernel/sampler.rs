//! The sampler: a clock on every CPU, whose program looks only at the targets.
//!
//! One event per CPU rather than one per thread: new threads are covered from their first tick, and the
//! number of descriptors does not grow with the target.

use aya::{
    Ebpf,
    programs::{
        PerfEvent,
        perf_event::{PerfEventConfig, PerfEventLinkId, PerfEventScope, SamplePolicy, SoftwareEvent},
    },
    util::online_cpus,
};

use std::time::{Duration, Instant};

use super::KernelError;

const PROGRAM: &str = "sample";

/// Running clocks.
pub struct Sampler {
    links: Vec<PerfEventLinkId>,
    period_ns: u64,
}

impl Sampler {
    /// Starts a clock on every CPU that is online.
    ///
    /// # Errors
    /// Where the kernel refuses the events.
    pub fn start(ebpf: &mut Ebpf, frequency_hz: u32) -> Result<Self, KernelError> {
        let period_ns = 1_000_000_000 / u64::from(frequency_hz.max(1));
        let program: &mut PerfEvent = ebpf
            .program_mut(PROGRAM)
            .ok_or(KernelError::Missing(PROGRAM))?
            .try_into()?;
        if program.fd().is_err() {
            program.load()?;
        }
        let cpus = online_cpus().map_err(|(what, error)| KernelError::system(what, error))?;
        let mut sampler = Self {
            links: Vec::with_capacity(cpus.len()),
            period_ns,
        };
        for cpu in cpus {
            let attached = program.attach(
                PerfEventConfig::Software(SoftwareEvent::CpuClock),
                PerfEventScope::AllProcessesOneCpu { cpu },
                SamplePolicy::Period(period_ns),
                false,
            );
            match attached {
                Ok(link) => sampler.links.push(link),
                Err(error) => {
                    sampler.stop(ebpf);
                    return Err(error.into());
                }
            }
        }
        Ok(sampler)
    }

    /// The time that one tick stands for.
    pub fn period_ns(&self) -> u64 {
        self.period_ns
    }

    /// Ticks of all clocks in a second, at most.
    pub fn ticks_per_second(&self) -> u64 {
        self.links.len() as u64 * 1_000_000_000_u64.div_ceil(self.period_ns)
    }

    /// Stops the clocks.
    pub fn stop(self, ebpf: &mut Ebpf) {
        let Some(Ok(program)) = ebpf.program_mut(PROGRAM).map(<&mut PerfEvent>::try_from) else {
            return;
        };
        for link in self.links {
            if let Err(error) = program.detach(link) {
                tracing::debug!(%error, "sampler was gone");
            }
        }
    }
}

/// Interrupts that are looked at, and how many there are in a second.
const LOOK_TICKS: u32 = 20;
const LOOK_HZ: u32 = 4_000;

/// Measures what an interrupt of the sampler takes of a thread, beside its program: the clocks run while nothing
/// is a target, and this thread watches the time jump.
///
/// # Errors
/// Where the kernel refuses the clocks.
pub fn interrupt_ns(ebpf: &mut Ebpf) -> Result<u64, KernelError> {
    let sampler = Sampler::start(ebpf, LOOK_HZ)?;
    let look = Duration::from_secs(1) * LOOK_TICKS / LOOK_HZ;
    // As many as there are ticks: what else interrupts is rarer, or shorter.
    let mut jumps = Jumps::new(LOOK_TICKS as usize);
    let start = Instant::now();
    let mut before = start;
    loop {
        let now = Instant::now();
        jumps.add(now - before);
        before = now;
        if now - start >= look {
            break;
        }
    }
    sampler.stop(ebpf);
    let interrupt_ns = jumps.quartile_ns();
    tracing::debug!(interrupt_ns, "what an interrupt of the sampler takes");
    Ok(interrupt_ns)
}

/// The longest of many steps from one reading of the clock to the next.
struct Jumps {
    /// Shortest first.
    longest: Vec<Duration>,
    shortest: Duration,
}

impl Jumps {
    /// Keeps so many.
    fn new(count: usize) -> Self {
        Self {
            longest: vec![Duration::ZERO; count.max(1)],
            shortest: Duration::MAX,
        }
    }

    fn add(&mut self, step: Duration) {
        self.shortest = self.shortest.min(step);
        if step > self.longest[0] {
            self.longest[0] = step;
            let place = self.longest[1..].partition_point(|other| *other < step);
            self.longest[..=place].rotate_left(1);
        }
    }

    /// The lower quartile of the longest, beyond what a step takes anyway: most interrupts take no less, and a duration
    /// must not be given less than it had. In a virtual machine some take several times the median.
    fn quartile_ns(&self) -> u64 {
        let jump = self.longest[self.longest.len() / 4].saturating_sub(self.shortest);
        u64::try_from(jump.as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_longest_steps_are_kept_in_order(steps: Vec<u32>, count in 1_usize..20) {
            let mut jumps = Jumps::new(count);
            let mut expected: Vec<_> = steps.into_iter().map(|step| Duration::from_nanos(u64::from(step))).collect();
            for step in &expected {
                jumps.add(*step);
            }
            expected.extend(std::iter::repeat_n(Duration::ZERO, count));
            expected.sort_unstable();
            let expected = &expected[expected.len() - count..];
            prop_assert_eq!(&jumps.longest[..], expected);
        }
    }
}
