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

/// How long they are waited for at most: on a busy machine this thread is on a CPU for a part of the time alone.
const LOOK_AT_MOST: Duration = Duration::from_millis(200);

/// Measures what an interrupt of the sampler takes of a thread, beside its program: the clocks run while nothing
/// is a target, and this thread watches the time jump.
///
/// # Errors
/// Where the kernel refuses the clocks.
pub fn interrupt_ns(ebpf: &mut Ebpf) -> Result<Option<u64>, KernelError> {
    let sampler = Sampler::start(ebpf, LOOK_HZ)?;
    let start = Instant::now();
    let interrupt_ns = look(|| start.elapsed(), switches);
    sampler.stop(ebpf);
    tracing::debug!(?interrupt_ns, "what an interrupt of the sampler takes");
    Ok(interrupt_ns)
}

/// Watches a clock jump, for as many ticks as are looked at. Others that have the CPU meanwhile make it jump too, and further
/// than an interrupt does: what a switch lies in is left out, of the jumps and of the time. So is a jump over a whole tick, which
/// is no interrupt's: in a virtual machine, or an emulated one, others have the CPU without a switch.
fn look(mut clock: impl FnMut() -> Duration, mut switches: impl FnMut() -> u64) -> Option<u64> {
    let tick = Duration::from_secs(1) / LOOK_HZ;
    // As many as there are ticks: what else interrupts is rarer, or shorter.
    let mut jumps = Jumps::new(LOOK_TICKS as usize);
    let mut looked = Duration::ZERO;
    let mut switched = switches();
    let start = clock();
    let mut before = start;
    while looked < tick * LOOK_TICKS && before.saturating_sub(start) < LOOK_AT_MOST {
        let now = clock();
        let step = now.saturating_sub(before);
        before = now;
        if jumps.is_long(step) {
            let known = std::mem::replace(&mut switched, switches());
            // That took time itself.
            before = clock();
            if switched != known || step > tick {
                continue;
            }
        }
        jumps.add(step);
        looked += step;
    }
    let ticks = looked.as_nanos() / tick.as_nanos();
    jumps.quartile_ns(usize::try_from(ticks).unwrap_or(usize::MAX))
}

/// How often this thread has left the CPU that it was on.
fn switches() -> u64 {
    // SAFETY: plain data, for which all zeroes is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is ours, of the call's layout, and is there for as long as the call takes. Where the call fails,
    // the structure stays as it is, and nothing is left out.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    (usage.ru_nvcsw + usage.ru_nivcsw).cast_unsigned()
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

    /// Whether a step is one of the longest so far.
    fn is_long(&self, step: Duration) -> bool {
        step > self.longest[0]
    }

    fn add(&mut self, step: Duration) {
        self.shortest = self.shortest.min(step);
        if self.is_long(step) {
            self.longest[0] = step;
            let place = self.longest[1..].partition_point(|other| *other < step);
            self.longest[..=place].rotate_left(1);
        }
    }

    /// The lower quartile of the longest, of so many, beyond what a step takes anyway: most interrupts take no less, and a
    /// duration must not be given less than it had. In a virtual machine some take several times the median.
    fn quartile_ns(&self, count: usize) -> Option<u64> {
        let count = count.min(self.longest.len());
        if count == 0 {
            return None;
        }
        let jump = self.longest[self.longest.len() - count + count / 4].saturating_sub(self.shortest);
        u64::try_from(jump.as_nanos()).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use proptest::prelude::*;

    /// What is found of interrupts of 14 µs, four in a millisecond, by a thread that has to make way for
    /// `others` after each `turn` on a CPU, which it is told of or not.
    fn found([turn, others]: [Duration; 2], is_told: bool) -> Option<u64> {
        let (nanosecond, tick) = (Duration::from_nanos(1), Duration::from_micros(250));
        let interrupt = Duration::from_micros(14);
        let [now, on_cpu] = [Cell::new(Duration::ZERO), Cell::new(Duration::ZERO)];
        let switches = Cell::new(0_u64);
        let pass = |time: Duration| {
            let earlier = on_cpu.get();
            on_cpu.set(earlier + time);
            now.set(now.get() + time);
            if earlier.as_nanos() / tick.as_nanos() != on_cpu.get().as_nanos() / tick.as_nanos() {
                now.set(now.get() + interrupt);
            }
            if earlier.as_nanos() / turn.as_nanos() != on_cpu.get().as_nanos() / turn.as_nanos() {
                now.set(now.get() + others);
                switches.set(switches.get() + u64::from(is_told));
            }
        };
        let clock = || {
            pass(nanosecond * 30);
            now.get()
        };
        let count = || {
            pass(nanosecond * 700);
            switches.get()
        };
        look(clock, count)
    }

    #[test]
    fn an_interrupt_takes_what_it_takes_on_a_busy_machine_too() {
        let micros = Duration::from_micros;
        for busy in [
            // An idle machine, and shares of a CPU.
            [micros(1_000_000), micros(0)],
            [micros(3_000), micros(3_000)],
            [micros(1_100), micros(4_000)],
            [micros(400), micros(100)],
            // Hardly any: less than all ticks are seen.
            [micros(700), micros(20_000)],
        ] {
            let found = found(busy, true).unwrap();
            assert!((13_900..=14_100).contains(&found), "{busy:?}: {found}");
        }
        // None at all.
        assert_eq!(found([micros(20), micros(100_000)], true), None);
    }

    #[test]
    fn what_a_machine_takes_from_a_virtual_one_is_no_interrupt() {
        let micros = Duration::from_micros;
        for stolen in [[micros(400), micros(4_000)], [micros(100), micros(300)]] {
            let found = found(stolen, false).unwrap();
            assert!(found <= 14_100, "{stolen:?}: {found}");
        }
    }

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
