//! The loaded object, and what can be done with it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::OnceLock,
    time::Duration,
};

use aya::{
    Ebpf,
    maps::{HashMap, MapData, Queue, RingBuf},
    programs::RawTracePoint,
};
use profiler_common::{
    counter::Counter,
    limits::{MAX_PROBES, MAX_SITES, RING_BYTES, TARGET_WORDS},
    probe::ProbeId,
    settings::Sampling,
};

use super::{
    KernelError, ProbeCounts, Record, admission,
    allocations::{Allocations, WatchedAllocator},
    attach,
    counts::Counts,
    events::EventPrograms,
    gates::{GatePool, Gates},
    hits::HitMaps,
    kernel_functions::FunctionPrograms,
    leaving::Leaving,
    multi::MultiPrograms,
    object,
    off_cpu::{self, Interval, StillOff, TargetBits},
    ring::HitStacks,
    sampled_events::{self, EventMaps},
    sampler::{self, Sampler},
    shared_stacks::SharedStacks,
    system_calls::{self, CallViews},
    tracepoints::{self, Watch},
    unended::Unended,
    unwind_maps::UnwindMaps,
    watched_calls::WatchedCalls,
};

/// What is taken of a process: `profiler_common::settings::Sampling`, field by field.
type TargetWords = [u64; 3];

/// How the engine is set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// Size of the ring buffer; a power of two, at least a page.
    pub ring_bytes: u32,
    /// Let the programs log; costs time at every message.
    pub kernel_log: bool,
    /// Use perf events even where the kernel has multi links.
    pub force_perf: bool,
    /// How long the kernel may take to attach one program, beside a time for each site.
    pub attach_patience: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            ring_bytes: RING_BYTES,
            kernel_log: false,
            force_perf: false,
            attach_patience: ATTACH_PATIENCE,
        }
    }
}

/// See [`Config::attach_patience`]. The kernel takes some milliseconds, and where it is emulated a second.
const ATTACH_PATIENCE: Duration = Duration::from_secs(5);

/// How probes are attached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AttachKind {
    /// `uprobe_multi` links: one for all sites of a program in a file.
    Multi,
    /// One perf event per site: slow to detach.
    Perf,
}

/// Times that a process is sampled in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Times {
    /// Those on the CPU, by a clock.
    pub ticks: bool,
    /// Those off the CPU.
    pub off_cpu: OffCpu,
    /// With the stacks of who made threads runnable.
    pub wakers: bool,
    /// Flags of [`Sampling`]: costs that tracepoints tell, where stacks are taken.
    pub costs: u64,
    /// System calls in open spans are recorded one by one.
    pub call_records: bool,
    /// System calls are counted: for those of whom these gates' bits stand all of them, for others those in open spans.
    pub calls: Option<u32>,
}

/// Threads whose intervals off the CPU are recorded.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum OffCpu {
    /// None.
    #[default]
    No,
    /// Those in open spans.
    InSpans,
    /// All.
    All,
}

impl Times {
    /// On the CPU alone.
    pub const TICKS: Self = Self {
        ticks: true,
        off_cpu: OffCpu::No,
        wakers: false,
        costs: 0,
        call_records: false,
        calls: None,
    };

    /// On the CPU, and off it in open spans.
    pub const IN_SPANS: Self = Self {
        ticks: true,
        off_cpu: OffCpu::InSpans,
        wakers: false,
        costs: 0,
        call_records: false,
        calls: None,
    };

    /// Off the CPU alone, everywhere, with who made threads runnable.
    pub const WAITS: Self = Self {
        ticks: false,
        off_cpu: OffCpu::All,
        wakers: true,
        costs: 0,
        call_records: false,
        calls: None,
    };

    /// The same in open spans.
    pub const WAITS_IN_SPANS: Self = Self {
        ticks: false,
        off_cpu: OffCpu::InSpans,
        wakers: true,
        costs: 0,
        call_records: false,
        calls: None,
    };

    /// What either asks for.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            ticks: self.ticks || other.ticks,
            off_cpu: self.off_cpu.max(other.off_cpu),
            wakers: self.wakers || other.wakers,
            costs: self.costs | other.costs,
            call_records: self.call_records || other.call_records,
            calls: match (self.calls, other.calls) {
                (Some(views), Some(more)) => Some(views | more),
                (calls, other) => calls.or(other),
            },
        }
    }

    fn flags(self) -> u64 {
        let off_cpu = match self.off_cpu {
            OffCpu::No => 0,
            OffCpu::InSpans => Sampling::OFF_CPU_IN_SPANS,
            OffCpu::All => Sampling::OFF_CPU,
        };
        let ticks = if self.ticks { Sampling::TICKS } else { 0 };
        let wakers = if self.wakers { Sampling::WAKERS } else { 0 };
        off_cpu | ticks | wakers | self.costs | self.call_flags()
    }

    fn call_flags(self) -> u64 {
        self.calls.map_or(0, |views| {
            Sampling::SYSCALLS | u64::from(views) << Sampling::VIEWS_SHIFT
        }) | if self.call_records {
            Sampling::SYSCALLS | Sampling::SYSCALL_RECORDS
        } else {
            0
        }
    }
}

/// What this kernel lets the engine do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ability {
    /// How probes are attached.
    pub attach: AttachKind,
    /// Programs may write the probed thread's registers, and so do its instruction themselves.
    pub write_context: bool,
    /// The kernel emulates `nop`s of several bytes under a probe.
    pub long_nops: bool,
}

/// Oldest kernel that emulates `nop`s of several bytes under a probe.
const LONG_NOPS: (u32, u32) = (6, 18);

/// The loaded object.
pub struct Engine {
    pub(super) ebpf: Ebpf,
    pub(super) multi: MultiPrograms,
    pub(super) event_programs: EventPrograms,
    pub(super) watched_calls: WatchedCalls,
    pub(super) function_programs: FunctionPrograms,
    ring: RingBuf<MapData>,
    hit_stacks: HitStacks,
    pub(super) shared_stacks: SharedStacks,
    unended: Unended,
    pub(super) counts: Counts,
    pub(super) hits: HitMaps,
    pub(super) events: EventMaps,
    pub(super) gates: GatePool,
    pub(super) ability: Ability,
    sampler: Option<Sampler>,
    /// What the programs take of whom, as their map has it: nobody else writes there.
    targets: BTreeMap<u32, TargetWords>,
    target_bits: TargetBits,
    /// While intervals off the CPU are recorded.
    scheduler: Option<Watch>,
    /// While system calls are counted.
    calls: Option<Watch>,
    /// While stacks are taken at costs that tracepoints tell, in the order of [`sampled_events::COSTS`].
    costs: [Option<Watch>; sampled_events::COSTS.len()],
    pub(super) call_views: CallViews,
    pub(super) allocations: Allocations,
    /// By process.
    pub(super) allocators: BTreeMap<u32, WatchedAllocator>,
    /// How often who allocates was asked for.
    pub(super) allocation_watches: u32,
    /// What an interrupt of the sampler takes; measured when it is first started.
    interrupt_ns: Option<u64>,
    /// What is given back once programs do not go by it any more.
    pub(super) leaving: Vec<Leaving>,
    /// How often something was detached.
    pub(super) left: u64,
    /// Ends that were seen without a beginning, of probes that were taken off, by then.
    pub(super) unmatched_at_end: BTreeMap<ProbeId, u64>,
    free_slots: BTreeSet<u16>,
    generations: Vec<u16>,
    pub(super) free_sites: Vec<u32>,
    unwind: Option<UnwindMaps>,
    logger: Option<aya_log::EbpfLogger<&'static dyn log::Log>>,
}

impl Engine {
    /// Loads the object, and attaches what every span needs: the ends of threads and programs.
    ///
    /// # Errors
    /// Where the kernel refuses, for want of a privilege among others.
    pub fn load(config: &Config) -> Result<Self, KernelError> {
        let bytes = object::bytes()?;
        let mut ebpf = object::load(&bytes, config)?;
        let mut multi = MultiPrograms::new(&bytes, &ebpf, config.attach_patience)?;
        let counts = Counts::new(&ebpf)?;
        let hits = HitMaps::new(&ebpf)?;
        let events = EventMaps::new(&ebpf)?;
        for (program, tracepoint) in [
            ("thread_exit", "sched_process_exit"),
            ("thread_exec", "sched_process_exec"),
            ("process_fork", "sched_process_fork"),
        ] {
            let program: &mut RawTracePoint = ebpf
                .program_mut(program)
                .ok_or(KernelError::Missing("thread_exit"))?
                .try_into()?;
            program.load()?;
            program.attach(tracepoint)?;
        }
        let links = if !config.force_perf && multi.supported() {
            AttachKind::Multi
        } else {
            AttachKind::Perf
        };
        let write_context = links == AttachKind::Multi && multi.load(attach::RET_STEP).is_ok();
        let logger = if config.kernel_log {
            aya_log::EbpfLogger::init(&mut ebpf).ok()
        } else {
            None
        };
        let unwind = UnwindMaps::take(&mut ebpf)?;
        let call_views = CallViews::new(&ebpf)?;
        let allocations = Allocations::new(&ebpf)?;
        Watch::load(&mut ebpf, &[admission::ITERATOR])?;
        let ring = RingBuf::try_from(ebpf.take_map("RING").ok_or(KernelError::Missing("RING"))?)?;
        let mut engine = Self {
            ebpf,
            multi,
            event_programs: EventPrograms::default(),
            watched_calls: WatchedCalls::default(),
            function_programs: FunctionPrograms::default(),
            ring,
            hit_stacks: HitStacks::default(),
            unended: Unended::default(),
            shared_stacks: SharedStacks::default(),
            counts,
            hits,
            events,
            gates: GatePool::default(),
            ability: Ability {
                attach: links,
                write_context,
                long_nops: kernel_release() >= LONG_NOPS,
            },
            sampler: None,
            targets: BTreeMap::new(),
            target_bits: [0; TARGET_WORDS as usize],
            scheduler: None,
            calls: None,
            costs: Default::default(),
            call_views,
            allocations,
            allocators: BTreeMap::new(),
            allocation_watches: 0,
            interrupt_ns: None,
            leaving: Vec::new(),
            left: 0,
            unmatched_at_end: BTreeMap::new(),
            #[expect(clippy::cast_possible_truncation, reason = "MAX_PROBES is asserted to fit")]
            free_slots: (0..MAX_PROBES as u16).collect(),
            generations: vec![0; MAX_PROBES as usize],
            free_sites: (0..MAX_SITES).rev().collect(),
            unwind: Some(unwind),
            logger,
        };
        // What programs cost is measured at this process's own functions.
        engine.admit_any(&[std::process::id()])?;
        Ok(engine)
    }

    /// The tables that stacks are walked by, to be filled by whoever asks first.
    pub fn take_unwind_maps(&mut self) -> Option<UnwindMaps> {
        self.unwind.take()
    }

    /// What this kernel lets the engine do.
    #[must_use]
    pub fn ability(&self) -> Ability {
        self.ability
    }

    pub(super) fn open_slot(&mut self) -> Result<ProbeId, KernelError> {
        if self.free_slots.is_empty() {
            self.settle_leaving();
        }
        let index = self
            .free_slots
            .pop_first()
            .ok_or(KernelError::TooManyProbes(MAX_PROBES as usize))?;
        let generation = &mut self.generations[usize::from(index)];
        *generation = generation.wrapping_add(1);
        let id = ProbeId::new(index, *generation);
        self.counts.open_slot(id);
        Ok(id)
    }

    pub(super) fn close_slot(&mut self, id: ProbeId) {
        let closed = match self.ebpf.map_mut("FREE_PAGES") {
            Some(map) => Queue::try_from(map)
                .map_err(KernelError::from)
                .and_then(|mut free| self.counts.close_slot(id, &mut free)),
            None => Err(KernelError::Missing("FREE_PAGES")),
        };
        if let Err(error) = closed {
            tracing::warn!(%error, "histogram pages could not be given back");
        }
        self.unended.forget(id);
        #[expect(clippy::cast_possible_truncation, reason = "an index has 16 bits")]
        self.free_slots.insert(id.index() as u16);
    }

    /// The probe's histogram: every bucket that was ever hit, with its count since it was attached.
    pub fn histogram(&self, probe: ProbeId) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.counts.histogram(probe)
    }

    /// The probe's counters.
    #[must_use]
    pub fn probe_counts(&self, probe: ProbeId) -> ProbeCounts {
        let mut counts = self.counts.probe(probe);
        if let Some(unmatched) = self.unmatched_at_end.get(&probe) {
            counts.unmatched = counts.unmatched.min(*unmatched);
        }
        counts
    }

    /// A counter of the programs as a whole.
    #[must_use]
    pub fn counter(&self, counter: Counter) -> u64 {
        self.counts.counter(counter)
    }

    /// Spans of this probe at least this long emit a record of their own; `u64::MAX` for none.
    pub fn set_threshold(&self, probe: ProbeId, threshold_ns: u64) {
        self.counts.set_threshold(probe, threshold_ns);
    }

    /// Says what a live probe has to do with the steps before and after its own, from now on.
    pub fn set_gates(&self, probe: ProbeId, gates: Gates) {
        self.counts.set_gates(probe, gates);
    }

    /// Samples these processes at a frequency, each in the times that are asked for; where there are none, it ends.
    ///
    /// # Errors
    /// Where the kernel refuses the clocks.
    pub fn sample(&mut self, targets: &[(u32, Times)], frequency_hz: u32) -> Result<(), KernelError> {
        let period_ns = 1_000_000_000 / u64::from(frequency_hz.max(1));
        let ticks = targets.iter().any(|(_, times)| times.ticks);
        let off_cpu = targets.iter().any(|(_, times)| times.off_cpu != OffCpu::No);
        let calls = targets
            .iter()
            .any(|(_, times)| times.calls.is_some() || times.call_records);
        if (!ticks
            || self
                .sampler
                .as_ref()
                .is_some_and(|sampler| sampler.period_ns() != period_ns))
            && let Some(sampler) = self.sampler.take()
        {
            sampler.stop(&mut self.ebpf);
        }
        if !off_cpu && let Some(watch) = self.scheduler.take() {
            watch.stop(&mut self.ebpf);
        }
        if !calls && let Some(watch) = self.calls.take() {
            watch.stop(&mut self.ebpf);
        }
        if self.calls.is_none() && calls {
            Watch::load(&mut self.ebpf, &system_calls::PLACES)?;
            system_calls::forget(&mut self.ebpf)?;
            // Before there are targets: what returns then has begun before, and is one call of each thread.
            self.calls = Some(Watch::start(&mut self.ebpf, &system_calls::PLACES)?);
        }
        let costs = targets.iter().fold(0, |costs, (_, times)| costs | times.costs);
        for (watch, (flag, places)) in self.costs.iter_mut().zip(sampled_events::COSTS) {
            let is_watched = costs & flag != 0;
            if !is_watched && let Some(watch) = watch.take() {
                watch.stop(&mut self.ebpf);
            } else if is_watched && watch.is_none() {
                Watch::load(&mut self.ebpf, places)?;
                // Heaps whose end was being moved when they were last watched.
                tracepoints::clear::<u32, 1>(&mut self.ebpf, "OPEN_BREAKS")?;
                if flag == profiler_common::settings::Sampling::BLOCK_LATENCY {
                    tracepoints::clear::<u64, 3>(&mut self.ebpf, "OPEN_REQUESTS")?;
                }
                *watch = Some(Watch::start(&mut self.ebpf, places)?);
            }
        }
        let interrupt_ns = if ticks { self.ready_sampler()? } else { 0 };
        self.set_targets(targets, [period_ns, interrupt_ns])?;
        if self.sampler.is_none() && ticks {
            self.sampler = Some(Sampler::start(&mut self.ebpf, frequency_hz)?);
        }
        if off_cpu {
            self.ready_watch()?;
        }
        Ok(())
    }

    /// Takes no samples until [`Engine::sample`] says so again. System calls are counted as before, and so are times off the CPU where
    /// they are kept.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn pause(&mut self, keeps_off_cpu: bool) -> Result<(), KernelError> {
        if let Some(sampler) = self.sampler.take() {
            sampler.stop(&mut self.ebpf);
        }
        if !keeps_off_cpu && let Some(watch) = self.scheduler.take() {
            watch.stop(&mut self.ebpf);
        }
        let of_calls = Times {
            calls: Some(u32::MAX),
            call_records: true,
            ..Times::default()
        };
        let off_cpu = if keeps_off_cpu {
            Sampling::OFF_CPU | Sampling::OFF_CPU_IN_SPANS | Sampling::WAKERS
        } else {
            0
        };
        let kept = of_calls.flags() | off_cpu;
        let paused = self.targets.iter().map(|(pid, words)| {
            let [weight_ns, interrupt_ns, flags] = *words;
            (*pid, [weight_ns, interrupt_ns, flags & kept])
        });
        let paused = paused.collect();
        self.put_targets(&paused).map(|_| ())
    }

    /// Has the programs sample these processes and no others, and changes what is not so; gives those that were taken out.
    fn put_targets(&mut self, wanted: &BTreeMap<u32, TargetWords>) -> Result<Vec<u32>, KernelError> {
        const MAP: &str = "TARGETS";
        let map = self.ebpf.map_mut(MAP).ok_or(KernelError::Missing(MAP))?;
        let mut known: HashMap<&mut MapData, u32, TargetWords> = map.try_into()?;
        let gone = self.targets.keys().filter(|pid| !wanted.contains_key(pid));
        let gone: Vec<u32> = gone.copied().collect();
        for pid in &gone {
            known.remove(pid)?;
            self.targets.remove(pid);
        }
        for (pid, words) in wanted {
            if self.targets.get(pid) != Some(words) {
                known.insert(pid, words, 0)?;
                self.targets.insert(*pid, *words);
            }
        }
        Ok(gone)
    }

    /// Samples of the clocks that may be taken in a second; 0 while these stand still.
    #[must_use]
    pub fn ticks_per_second(&self) -> u64 {
        self.sampler.as_ref().map_or(0, Sampler::ticks_per_second)
    }

    /// Does what comes before the first sample and takes long: loads the sampler, and measures what an interrupt of it
    /// takes; gives that, in nanoseconds. Once that is done, this costs nothing.
    ///
    /// # Errors
    /// Where the kernel refuses the program or the clocks.
    pub fn ready_sampler(&mut self) -> Result<u64, KernelError> {
        if let Some(measured) = self.interrupt_ns {
            return Ok(measured);
        }
        // Where the machine is too busy for that, the next one measures.
        self.interrupt_ns = sampler::interrupt_ns(&mut self.ebpf)?;
        Ok(self.interrupt_ns.unwrap_or(0))
    }

    fn set_targets(
        &mut self,
        targets: &[(u32, Times)],
        [weight_ns, interrupt_ns]: [u64; 2],
    ) -> Result<(), KernelError> {
        let words = |times: &Times| [weight_ns, interrupt_ns, times.flags()];
        let wanted: BTreeMap<u32, TargetWords> =
            targets.iter().map(|(pid, times)| (*pid, words(times))).collect();
        let gone = self.put_targets(&wanted)?;
        let asks_wakers = targets.iter().filter(|(_, times)| times.wakers);
        let asks_wakers: BTreeSet<u32> = asks_wakers.map(|(pid, _)| *pid).collect();
        off_cpu::keep_presences(&mut self.ebpf, &asks_wakers)?;
        let pids: BTreeSet<u32> = wanted.into_keys().collect();
        off_cpu::set_target_bits(&mut self.ebpf, &mut self.target_bits, &pids)?;
        if !gone.is_empty() {
            // They will not be seen to come back.
            off_cpu::keep_threads(&mut self.ebpf, &pids)?;
        }
        Ok(())
    }

    /// Watches the scheduler, be it that there are no targets yet, so that these are seen at once.
    ///
    /// # Errors
    /// Where the kernel refuses the programs.
    pub fn ready_watch(&mut self) -> Result<(), KernelError> {
        if self.scheduler.is_none() {
            Watch::load(&mut self.ebpf, &off_cpu::PROGRAMS)?;
            // Those that were off the CPU when the scheduler was last watched.
            off_cpu::keep_threads(&mut self.ebpf, &BTreeSet::new())?;
            off_cpu::forget_presences(&mut self.ebpf)?;
            self.scheduler = Some(Watch::start(&mut self.ebpf, &off_cpu::PLACES)?);
        }
        Ok(())
    }

    /// Watches the scheduler no more, until it is asked to again; who is off the CPU now.
    pub fn stop_watch(&mut self) -> Vec<StillOff> {
        let Some(watch) = self.scheduler.take() else {
            return Vec::new();
        };
        let stacks = self.waiting_stacks();
        watch.stop(&mut self.ebpf);
        self.still_off_at(stacks.as_ref())
    }

    /// Who is off the CPU now, where the scheduler is watched: it goes on being so.
    pub fn still_off(&mut self) -> Vec<StillOff> {
        if self.scheduler.is_none() {
            return Vec::new();
        }
        let stacks = self.waiting_stacks();
        self.still_off_at(stacks.as_ref())
    }

    /// Keeps those of them that have been off the CPU all the time since.
    pub fn keep_off(&mut self, still_off: &mut Vec<StillOff>) {
        if let Err(error) = StillOff::keep(&mut self.ebpf, still_off) {
            tracing::warn!(%error, "who is off the CPU could not be read");
            still_off.clear();
        }
    }

    fn waiting_stacks(&mut self) -> Option<off_cpu::WaitingStacks> {
        off_cpu::waiting_stacks(&mut self.ebpf)
            .inspect_err(|error| tracing::warn!(%error, "where threads wait in the kernel could not be read"))
            .ok()
    }

    fn still_off_at(&mut self, stacks: Option<&off_cpu::WaitingStacks>) -> Vec<StillOff> {
        StillOff::all(&mut self.ebpf, stacks).unwrap_or_else(|error| {
            tracing::warn!(%error, "who is off the CPU could not be read");
            Vec::new()
        })
    }

    /// An interval that had not ended at `now_ns`. Its stack is known when all records before have been read.
    #[must_use]
    pub fn interval_of(&mut self, still_off: &StillOff, now_ns: u64) -> Option<Interval> {
        let mut interval = still_off.interval(&mut self.shared_stacks, now_ns)?;
        self.unended.leave_out_of_interval(&mut interval);
        Some(interval)
    }

    /// The ends of these probes' spans are not seen from now on, though their session goes on: later samples, intervals off the CPU and recorded
    /// system calls do not lie in them.
    pub fn leave_unended(&mut self, probes: impl IntoIterator<Item = ProbeId>, now_ns: u64) {
        self.unended.add(probes, now_ns);
    }

    /// Hands over the records that are there, at most `limit`; returns how many there were.
    pub fn drain(&mut self, limit: usize, mut each: impl FnMut(Record)) -> usize {
        let mut taken = 0;
        while taken < limit {
            let Some(item) = self.ring.next() else { break };
            taken += 1;
            if let Some(mut record) = Record::parse(&item) {
                if let Record::Hit(hit) = &mut record {
                    self.hit_stacks.give(hit);
                }
                self.unended.leave_out_of(&mut record);
                each(record);
            } else if let Some(mut interval) = self.shared_stacks.interval(&item) {
                self.unended.leave_out_of_interval(&mut interval);
                each(Record::OffCpu(interval));
            } else if !self.shared_stacks.keep(&item) && !self.hit_stacks.keep(&item) {
                tracing::error!(
                    bytes = item.len(),
                    "damaged record: object and daemon do not match"
                );
            }
        }
        if let Some(logger) = &mut self.logger {
            logger.flush();
        }
        taken
    }
}

/// Major and minor version of the running kernel; (0, 0) where it does not say.
pub(super) fn kernel_release() -> (u32, u32) {
    static RELEASE: OnceLock<(u32, u32)> = OnceLock::new();
    *RELEASE.get_or_init(|| {
        let name = rustix::system::uname();
        let text = name.release().to_string_lossy();
        let mut parts = text.split(['.', '-', '+']).map(|part| part.parse().unwrap_or(0));
        (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
    })
}
