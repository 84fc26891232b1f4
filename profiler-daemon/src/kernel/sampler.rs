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
