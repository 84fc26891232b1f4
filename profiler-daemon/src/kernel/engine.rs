//! The loaded object, and what can be done with it.

use std::{
    collections::BTreeSet,
    ffi::CString,
    os::{fd::OwnedFd, unix::ffi::OsStrExt as _},
    path::Path,
    sync::OnceLock,
};

use aya::{
    Ebpf,
    maps::{Array, HashMap, MapData, Queue, RingBuf},
    programs::RawTracePoint,
};
use profiler_common::{
    counter::Counter,
    instruction::{Action, Operation},
    limits::{MAX_PROBES, MAX_SITES, RING_BYTES},
    probe::{Cookie, ProbeId},
};

use super::{
    KernelError, ProbeCounts, Record,
    counts::Counts,
    multi::MultiPrograms,
    object,
    perf::{self, PerfLinks},
    sampler::Sampler,
};

/// How the engine is set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// Size of the ring buffer; a power of two, at least a page.
    pub ring_bytes: u32,
    /// Let the programs log; costs time at every message.
    pub kernel_log: bool,
    /// Use perf events even where the kernel has multi links.
    pub force_perf: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            ring_bytes: RING_BYTES,
            kernel_log: false,
            force_perf: false,
        }
    }
}

/// How probes are attached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AttachKind {
    /// `uprobe_multi` links: one for all sites of a program in a file.
    Multi,
    /// One perf event per site: slow to detach.
    Perf,
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

/// A place where a span ends.
#[derive(Clone, Debug)]
pub struct ExitSite {
    /// File offset of the instruction.
    pub offset: u64,
    /// What the instruction means.
    pub action: Action,
    /// A jump that may stay inside its function.
    pub may_stay_inside: bool,
}

/// A function to be probed.
#[derive(Clone, Debug)]
pub struct ProbeSpec {
    /// File offset of the entry probe.
    pub entry_offset: u64,
    /// What the instruction there means.
    pub entry_action: Action,
    /// Where the span ends; empty for a return probe of the kernel.
    pub exits: Vec<ExitSite>,
    /// Programs do the probed instructions themselves.
    pub done_by_program: bool,
    /// The target may switch stacks.
    pub stacks_switch: bool,
}

/// Live probes. They stay attached until [`Engine::detach`] takes this back.
pub struct Attachment {
    probes: Vec<ProbeId>,
    sites: Vec<u32>,
    links: Links,
}

impl Attachment {
    /// The probes, in the order of the specifications.
    #[must_use]
    pub fn probes(&self) -> &[ProbeId] {
        &self.probes
    }
}

/// Links by which probes are attached; within each, entries before exits, the order of detaching.
enum Links {
    Multi {
        entries: Vec<OwnedFd>,
        exits: Vec<OwnedFd>,
    },
    Perf {
        entries: Vec<PerfLinks>,
        exits: Vec<PerfLinks>,
    },
}

/// Oldest kernel that emulates `nop`s of several bytes under a probe.
const LONG_NOPS: (u32, u32) = (6, 18);

/// The programs' names by role.
const ENTRY: &str = "span_entry";
const ENTRY_STEP: &str = "span_entry_step";
const RETURN: &str = "span_return";
const RET: &str = "span_ret";
const RET_STEP: &str = "span_ret_step";

/// The loaded object.
pub struct Engine {
    ebpf: Ebpf,
    multi: MultiPrograms,
    ring: RingBuf<MapData>,
    counts: Counts,
    ability: Ability,
    sampler: Option<Sampler>,
    free_slots: BTreeSet<u16>,
    generations: Vec<u16>,
    free_sites: Vec<u32>,
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
        let mut multi = MultiPrograms::new(&bytes, &ebpf)?;
        let counts = Counts::new(&ebpf)?;
        for (program, tracepoint) in [
            ("thread_exit", "sched_process_exit"),
            ("thread_exec", "sched_process_exec"),
        ] {
            let program: &mut RawTracePoint = ebpf
                .program_mut(program)
                .ok_or(KernelError::Missing("thread_exit"))?
                .try_into()?;
            program.load()?;
            program.attach(tracepoint)?;
        }
        let attach = if !config.force_perf && multi.supported() {
            AttachKind::Multi
        } else {
            AttachKind::Perf
        };
        let write_context = attach == AttachKind::Multi && multi.load(RET_STEP).is_ok();
        let logger = if config.kernel_log {
            aya_log::EbpfLogger::init(&mut ebpf).ok()
        } else {
            None
        };
        let ring = RingBuf::try_from(ebpf.take_map("RING").ok_or(KernelError::Missing("RING"))?)?;
        Ok(Self {
            ebpf,
            multi,
            ring,
            counts,
            ability: Ability {
                attach,
                write_context,
                long_nops: kernel_release() >= LONG_NOPS,
            },
            sampler: None,
            #[expect(clippy::cast_possible_truncation, reason = "MAX_PROBES is asserted to fit")]
            free_slots: (0..MAX_PROBES as u16).collect(),
            generations: vec![0; MAX_PROBES as usize],
            free_sites: (0..MAX_SITES).rev().collect(),
            logger,
        })
    }

    /// What this kernel lets the engine do.
    #[must_use]
    pub fn ability(&self) -> Ability {
        self.ability
    }

    /// Attaches probes to one file of one process; all or none. When this returns, every call counts.
    ///
    /// # Errors
    /// Where the kernel refuses a site, or slots run out; nothing stays attached.
    pub fn attach(&mut self, pid: u32, file: &Path, specs: &[ProbeSpec]) -> Result<Attachment, KernelError> {
        let links = match self.ability.attach {
            AttachKind::Multi => Links::Multi {
                entries: Vec::new(),
                exits: Vec::new(),
            },
            AttachKind::Perf => Links::Perf {
                entries: Vec::new(),
                exits: Vec::new(),
            },
        };
        let mut attachment = Attachment {
            probes: Vec::new(),
            sites: Vec::new(),
            links,
        };
        match self.attach_all(pid, file, specs, &mut attachment) {
            Ok(()) => Ok(attachment),
            Err(error) => {
                self.detach(attachment);
                Err(error)
            }
        }
    }

    fn attach_all(
        &mut self,
        pid: u32,
        file: &Path,
        specs: &[ProbeSpec],
        attachment: &mut Attachment,
    ) -> Result<(), KernelError> {
        // Sites by program: (file offset, cookie).
        let (mut entries, mut entries_step) = (Vec::new(), Vec::new());
        let (mut returns, mut rets, mut rets_step) = (Vec::new(), Vec::new(), Vec::new());
        for spec in specs {
            let probe = self.open_slot()?;
            attachment.probes.push(probe);
            let switch = if spec.stacks_switch {
                Cookie::STACKS_SWITCH
            } else {
                0
            };
            let by_return = if spec.exits.is_empty() {
                Cookie::RETURN_PROBE
            } else {
                0
            };
            let flags = switch | by_return;
            let step = spec.done_by_program && self.ability.write_context;
            let entry_step = step && can_be_done(&spec.entry_action);
            let site = if entry_step {
                self.open_site(&spec.entry_action, &mut attachment.sites)?
            } else {
                0
            };
            let entry = (spec.entry_offset, Cookie::new(probe, site, flags).0);
            if entry_step {
                &mut entries_step
            } else {
                &mut entries
            }
            .push(entry);
            if spec.exits.is_empty() {
                returns.push((spec.entry_offset, Cookie::new(probe, 0, flags).0));
            }
            for exit in &spec.exits {
                let exit_step = step && can_be_done(&exit.action);
                let site = if exit_step || exit.may_stay_inside {
                    self.open_site(&exit.action, &mut attachment.sites)?
                } else {
                    0
                };
                let inside = if exit.may_stay_inside {
                    Cookie::MAY_STAY_INSIDE
                } else {
                    0
                };
                let exit = (exit.offset, Cookie::new(probe, site, flags | inside).0);
                if exit_step { &mut rets_step } else { &mut rets }.push(exit);
            }
        }
        // Exits first: a call that is seen to begin is then always seen to end.
        for (program, sites, is_exit) in [
            (RETURN, returns, true),
            (RET, rets, true),
            (RET_STEP, rets_step, true),
            (ENTRY, entries, false),
            (ENTRY_STEP, entries_step, false),
        ] {
            if !sites.is_empty() {
                self.attach_program(program, pid, file, &sites, is_exit, &mut attachment.links)?;
            }
        }
        Ok(())
    }

    fn attach_program(
        &mut self,
        program: &'static str,
        pid: u32,
        file: &Path,
        sites: &[(u64, u64)],
        is_exit: bool,
        links: &mut Links,
    ) -> Result<(), KernelError> {
        match links {
            Links::Multi { entries, exits } => {
                let path = CString::new(file.as_os_str().as_bytes())
                    .map_err(|error| KernelError::system(file.display().to_string(), error.into()))?;
                let link = self.multi.attach(program, &path, sites, pid, program == RETURN)?;
                if is_exit { exits } else { entries }.push(link);
            }
            Links::Perf { entries, exits } => {
                let link = perf::attach(&mut self.ebpf, program, file, sites, pid)?;
                if is_exit { exits } else { entries }.push(link);
            }
        }
        Ok(())
    }

    /// Detaches probes and gives their slots back. Entries go first, so that spans still open can end.
    pub fn detach(&mut self, attachment: Attachment) {
        let Attachment { probes, sites, links } = attachment;
        match links {
            Links::Multi { entries, exits } => {
                drop(entries);
                drop(exits);
            }
            Links::Perf { entries, exits } => {
                for links in entries.into_iter().chain(exits) {
                    perf::detach(&mut self.ebpf, links);
                }
            }
        }
        for probe in probes {
            self.close_slot(probe);
        }
        self.free_sites.extend(sites);
    }

    fn open_slot(&mut self) -> Result<ProbeId, KernelError> {
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

    fn close_slot(&mut self, id: ProbeId) {
        let closed = match self.ebpf.map_mut("FREE_PAGES") {
            Some(map) => Queue::try_from(map)
                .map_err(KernelError::from)
                .and_then(|mut free| self.counts.close_slot(id, &mut free)),
            None => Err(KernelError::Missing("FREE_PAGES")),
        };
        if let Err(error) = closed {
            tracing::warn!(%error, "histogram pages could not be given back");
        }
        #[expect(clippy::cast_possible_truncation, reason = "an index has 16 bits")]
        self.free_slots.insert(id.index() as u16);
    }

    /// Writes an action and remembers its site in `sites`.
    fn open_site(&mut self, action: &Action, sites: &mut Vec<u32>) -> Result<u32, KernelError> {
        let site = self
            .free_sites
            .pop()
            .ok_or(KernelError::TooManySites(MAX_SITES as usize))?;
        sites.push(site);
        let map = self
            .ebpf
            .map_mut("ACTIONS")
            .ok_or(KernelError::Missing("ACTIONS"))?;
        let mut actions: Array<&mut MapData, [u64; 4]> = Array::try_from(map)?;
        actions.set(site, action_words(action), 0)?;
        Ok(site)
    }

    /// The probe's histogram: every bucket that was ever hit, with its count since it was attached.
    pub fn histogram(&self, probe: ProbeId) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.counts.histogram(probe)
    }

    /// The probe's counters.
    #[must_use]
    pub fn probe_counts(&self, probe: ProbeId) -> ProbeCounts {
        self.counts.probe(probe)
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

    /// Samples these processes at a frequency; an empty list stops the sampler.
    ///
    /// # Errors
    /// Where the kernel refuses the clocks.
    pub fn sample(&mut self, pids: &[u32], frequency_hz: u32) -> Result<(), KernelError> {
        let period_ns = 1_000_000_000 / u64::from(frequency_hz.max(1));
        if (pids.is_empty()
            || self
                .sampler
                .as_ref()
                .is_some_and(|sampler| sampler.period_ns() != period_ns))
            && let Some(sampler) = self.sampler.take()
        {
            sampler.stop(&mut self.ebpf);
        }
        self.set_targets(pids, period_ns)?;
        if self.sampler.is_none() && !pids.is_empty() {
            self.sampler = Some(Sampler::start(&mut self.ebpf, frequency_hz)?);
        }
        Ok(())
    }

    fn set_targets(&mut self, pids: &[u32], weight_ns: u64) -> Result<(), KernelError> {
        let map = self
            .ebpf
            .map_mut("TARGETS")
            .ok_or(KernelError::Missing("TARGETS"))?;
        let mut targets: HashMap<&mut MapData, u32, u64> = HashMap::try_from(map)?;
        let before: Vec<u32> = targets.keys().collect::<Result<_, _>>()?;
        for pid in before.iter().filter(|pid| !pids.contains(pid)) {
            targets.remove(pid)?;
        }
        for pid in pids {
            targets.insert(pid, weight_ns, 0)?;
        }
        Ok(())
    }

    /// Hands over the records that are there, at most `limit`; returns how many there were.
    pub fn drain(&mut self, limit: usize, mut each: impl FnMut(Record)) -> usize {
        let mut taken = 0;
        while taken < limit {
            let Some(item) = self.ring.next() else { break };
            taken += 1;
            if let Some(record) = Record::parse(&item) {
                each(record);
            } else {
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

/// Whether programs can do an instruction.
fn can_be_done(action: &Action) -> bool {
    action.operation != Operation::Leave as u8 && action.address != 0
}

/// An action as the words of its map value.
fn action_words(action: &Action) -> [u64; 4] {
    let Action {
        operation,
        size,
        target,
        source,
        base,
        index,
        scale,
        length,
        immediate,
        function_size,
        function_offset,
        address,
    } = *action;
    [
        u64::from_ne_bytes([operation, size, target, source, base, index, scale, length]),
        immediate.cast_unsigned(),
        u64::from(function_size) | u64::from(function_offset) << 32,
        address,
    ]
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
