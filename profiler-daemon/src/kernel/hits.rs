//! Probes on single instructions: what is recorded where a line is reached.
//!
//! See `docs/internals/values.md` for how a hit gets its values.

use std::{mem::offset_of, path::Path, sync::atomic::Ordering};

use aya::Ebpf;
use memmap2::MmapRaw;
use profiler_common::{
    hit::{HitSlot, MAX_READ_PLANS},
    instruction::Action,
    limits::MAX_PROBES,
    probe::{Cookie, ProbeId},
    values::{MAX_INSTRUCTIONS, MAX_VALUES, ReadPlan, Test},
};

use super::{
    Engine, KernelError,
    attach::{Attachment, Site, can_be_done, placed},
    counts::{half, map, word},
    events,
    gates::{Gate, Gates},
    kernel_functions::{KernelFunction, Seen},
};

/// The programs' names by role.
pub(super) const HIT: &str = "hit";
pub(super) const HIT_PAGING: &str = "hit_paging";
pub(super) const HIT_STEP: &str = "hit_step";

/// An instruction to be probed.
#[derive(Clone, Debug)]
pub struct HitSpec {
    /// File offset of the instruction.
    pub offset: u64,
    /// What it means.
    pub action: Action,
    /// Programs do the probed instruction themselves.
    pub done_by_program: bool,
    /// What is looked at there.
    pub look: LookSpec,
    /// The way that a conditional jump has to go for a hit: a condition's number; `None` for any instruction.
    pub branch: Option<u8>,
    /// Its step's place in a scope.
    pub gates: Gates,
    /// The place of the kernel that it is, and no instruction.
    pub of_kernel: Option<KernelPlace>,
}

/// A place of the kernel's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KernelPlace {
    /// A tracepoint, by its number.
    Tracepoint(u64),
    /// A function, by its address: where it is entered.
    Function(u64),
}

/// What is looked at where an instruction is reached, be it that a span begins there.
#[derive(Clone, Default, Debug)]
pub struct LookSpec {
    /// What has to hold for a hit to be recorded, or a span to be opened.
    pub required: Vec<ReadPlan>,
    /// Values that are recorded, at most [`MAX_VALUES`].
    pub values: Vec<ReadPlan>,
    /// Values that are found by what a span returns, and recorded where it does; at most [`MAX_VALUES`].
    pub followed: Vec<ReadPlan>,
    /// What has to hold where a span returns for it to count, at most [`MAX_VALUES`].
    pub decided: Vec<ReadPlan>,
    /// Time between two that are recorded, on average; 0 for no limit.
    pub interval_ns: u64,
    /// They are recorded, and not only counted or timed.
    pub records: bool,
    /// The thread's stack is recorded with them.
    pub stack: bool,
}

impl LookSpec {
    /// Whether anything of the thread is read: values, be it for a condition, or its stack.
    #[must_use]
    pub fn reads(&self) -> bool {
        self.stack || !self.required.is_empty() || !self.values.is_empty()
    }

    /// How many values are read, be it for a condition.
    #[must_use]
    pub fn values_read(&self) -> usize {
        self.required.len() + self.values.len() + self.followed.len() + self.decided.len()
    }

    fn flags(&self) -> u32 {
        let of = |is: bool, flag: u32| if is { flag } else { 0 };
        of(self.records, HitSlot::RECORD) | of(self.stack, HitSlot::STACK)
    }
}

/// What came of a probe's hits: those that are neither rejected nor lost were recorded.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct HitCounts {
    /// Times that the instruction was reached.
    pub reached: u64,
    /// Hits that a required value has rejected.
    pub rejected: u64,
    /// Hits beyond the limit.
    pub limited: u64,
    /// Hits whose thread's working memory could not be had.
    pub no_state: u64,
    /// Hits that found no room in the ring buffer, or left it to others.
    pub ring_full: u64,
    /// Hits at which another program had done the instruction already.
    pub disturbed: u64,
}

impl HitCounts {
    /// With what was counted in another while.
    #[must_use]
    pub fn plus(self, more: Self) -> Self {
        Self {
            reached: self.reached.saturating_add(more.reached),
            rejected: self.rejected.saturating_add(more.rejected),
            limited: self.limited.saturating_add(more.limited),
            no_state: self.no_state.saturating_add(more.no_state),
            ring_full: self.ring_full.saturating_add(more.ring_full),
            disturbed: self.disturbed.saturating_add(more.disturbed),
        }
    }
}

/// The maps that say what is done at a hit, and which places in them are free.
pub(super) struct HitMaps {
    slots: MmapRaw,
    plans: MmapRaw,
    /// Read plans that are in use, by their first.
    used: Vec<Plans>,
}

/// Read plans of one probe, which lie in a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Plans {
    first: u32,
    count: u32,
}

impl Plans {
    pub(super) fn count(self) -> usize {
        self.count as usize
    }
}

impl HitMaps {
    /// Maps them.
    ///
    /// # Errors
    /// Where a map is missing or cannot be mapped.
    pub fn new(ebpf: &Ebpf) -> Result<Self, KernelError> {
        Ok(Self {
            slots: map(ebpf, "HITS", MAX_PROBES as usize * size_of::<HitSlot>())?,
            plans: map(
                ebpf,
                "READ_PLANS",
                MAX_READ_PLANS as usize * size_of::<ReadPlan>(),
            )?,
            used: Vec::new(),
        })
    }

    /// Writes plans to consecutive places.
    fn write_plans<'a>(
        &mut self,
        plans: impl ExactSizeIterator<Item = &'a ReadPlan>,
    ) -> Result<Plans, KernelError> {
        let count = u32::try_from(plans.len()).unwrap_or(u32::MAX);
        let first = self.take(count)?;
        for (number, plan) in (first..).zip(plans) {
            let base = number as usize * size_of::<ReadPlan>();
            for (index, instruction) in plan.instructions.iter().enumerate() {
                let at = base + index * size_of_val(instruction);
                let head = u64::from_ne_bytes([
                    instruction.operation,
                    instruction.size,
                    instruction.register,
                    instruction.comparison,
                    instruction.length.to_ne_bytes()[0],
                    instruction.length.to_ne_bytes()[1],
                    instruction.length.to_ne_bytes()[2],
                    instruction.length.to_ne_bytes()[3],
                ]);
                word(&self.plans, at).store(head, Ordering::Relaxed);
                word(&self.plans, at + 8).store(instruction.immediate, Ordering::Relaxed);
            }
        }
        Ok(Plans { first, count })
    }

    /// Takes the first gap that is long enough.
    fn take(&mut self, count: u32) -> Result<u32, KernelError> {
        let (place, first) = self.gap(count);
        if MAX_READ_PLANS - first < count {
            return Err(KernelError::TooManyReads {
                of: MAX_READ_PLANS as usize,
                wanted: count as usize,
            });
        }
        self.used.insert(place, Plans { first, count });
        Ok(first)
    }

    /// The first gap that is long enough, or the end: its place among those in use, and its first plan.
    fn gap(&self, count: u32) -> (usize, u32) {
        let mut first = 0;
        let mut place = 0;
        for used in &self.used {
            if used.first - first >= count {
                break;
            }
            first = used.first + used.count;
            place += 1;
        }
        (place, first)
    }

    /// Whether there is room for so many plans of one probe.
    fn has_room(&self, count: usize) -> bool {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        MAX_READ_PLANS - self.gap(count).1 >= count
    }

    pub(super) fn give_back(&mut self, plans: &[Plans]) {
        self.used.retain(|used| !plans.contains(used));
    }

    /// Makes a slot a probe's.
    fn open(&self, id: ProbeId, offset: u64, branch: Option<u8>, look: &LookSpec, first_plan: u32) {
        let base = slot(id);
        for offset in (0..size_of::<HitSlot>()).step_by(8) {
            word(&self.slots, base + offset).store(0, Ordering::Relaxed);
        }
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the place within a page; few values"
        )]
        for (field, value) in [
            (offset_of!(HitSlot, first_plan), first_plan),
            (offset_of!(HitSlot, required), look.required.len() as u32),
            (offset_of!(HitSlot, values), look.values.len() as u32),
            (offset_of!(HitSlot, page_offset), offset as u32 & PAGE_MASK),
            (offset_of!(HitSlot, followed), look.followed.len() as u32),
            (offset_of!(HitSlot, decided), look.decided.len() as u32),
            (offset_of!(HitSlot, flags), look.flags()),
            (
                offset_of!(HitSlot, branch),
                branch.map_or(0, |number| u32::from(number) + 1),
            ),
        ] {
            half(&self.slots, base + field).store(value, Ordering::Relaxed);
        }
        word(&self.slots, base + offset_of!(HitSlot, interval_ns)).store(look.interval_ns, Ordering::Relaxed);
        self.set_test(
            base,
            look.required.iter().find_map(Test::of_plan).unwrap_or_default(),
        );
        half(&self.slots, base + offset_of!(HitSlot, id)).store(id.0, Ordering::Release);
    }

    /// Says what has to hold first, in a slot that is nobody's yet.
    fn set_test(&self, base: usize, test: Test) {
        let Test {
            of,
            register,
            bits,
            size,
            is_signed,
            kind,
            comparison,
            zero,
            offset,
            right,
        } = test;
        let head = u64::from_ne_bytes([of, register, bits, size, is_signed, kind, comparison, zero]);
        for (number, part) in [head, offset, right].into_iter().enumerate() {
            word(&self.slots, base + offset_of!(HitSlot, test) + number * 8).store(part, Ordering::Relaxed);
        }
    }

    /// Says whose threads count, at a place of the kernel.
    pub(super) fn set_process(&self, id: ProbeId, tgid: u32) {
        half(&self.slots, slot(id) + offset_of!(HitSlot, tgid)).store(tgid, Ordering::Release);
    }

    pub(super) fn close(&self, id: ProbeId) {
        half(&self.slots, slot(id) + offset_of!(HitSlot, id)).store(u32::MAX, Ordering::Release);
    }
}

/// Place of an address within its page: the same in the file and in memory.
const PAGE_MASK: u32 = 0xfff;

const _: () = assert!(size_of::<ReadPlan>() == MAX_INSTRUCTIONS * 16);

fn slot(id: ProbeId) -> usize {
    id.index() as usize * size_of::<HitSlot>()
}

impl Engine {
    /// Attaches probes to instructions of one file of one process; all or none. When this returns, every hit counts.
    ///
    /// # Errors
    /// Where the kernel refuses a site, or slots run out; nothing stays attached.
    pub fn attach_hits(
        &mut self,
        pid: u32,
        file: &Path,
        specs: &[HitSpec],
    ) -> Result<Attachment, KernelError> {
        self.attach_all_or_none(pid, file, |engine, attachment| {
            engine.attach_all_hits(pid, specs, attachment)
        })
    }

    /// Says what is looked at where a probe's site is reached; until then nothing is recorded there.
    pub(super) fn open_look(
        &mut self,
        probe: ProbeId,
        offset: u64,
        branch: Option<u8>,
        look: &LookSpec,
        plans: &mut Vec<Plans>,
    ) -> Result<(), KernelError> {
        let plans_of = [&look.required, &look.values, &look.followed, &look.decided];
        if plans_of.iter().any(|plans| plans.len() > MAX_VALUES) {
            return Err(KernelError::TooManyValues(MAX_VALUES));
        }
        let all: Vec<&ReadPlan> = plans_of.into_iter().flatten().collect();
        if !self.hits.has_room(all.len()) {
            self.settle_leaving();
        }
        let written = self.hits.write_plans(all.into_iter())?;
        plans.push(written);
        self.hits.open(probe, offset, branch, look, written.first);
        if !look.required.is_empty() {
            self.counts.set_looks(probe);
        }
        if !look.followed.is_empty() {
            self.counts.set_follows(probe);
        }
        if !look.decided.is_empty() {
            self.counts.set_decides(probe);
        }
        Ok(())
    }

    fn attach_all_hits(
        &mut self,
        pid: u32,
        specs: &[HitSpec],
        attachment: &mut Attachment,
    ) -> Result<(), KernelError> {
        // By program.
        let (mut plain, mut step) = (Vec::new(), Vec::new());
        let mut functions = Vec::new();
        for spec in specs {
            let probe = self.open_slot()?;
            attachment.probes.push(probe);
            self.counts.set_gates(probe, spec.gates);
            self.open_look(probe, spec.offset, spec.branch, &spec.look, &mut attachment.plans)?;
            if let Some(place) = spec.of_kernel {
                self.hits.set_process(probe, pid);
                let cookie = Cookie::new(probe, 0, 0).0;
                match place {
                    KernelPlace::Tracepoint(number) => {
                        let link = self.attach_event(events::HIT, number, cookie)?;
                        attachment.events.push(link);
                    }
                    KernelPlace::Function(address) => functions.push(KernelFunction { address, cookie }),
                }
                continue;
            }
            let by_program = spec.done_by_program && self.ability.write_context && can_be_done(&spec.action);
            let site = if by_program {
                self.open_site(&spec.action, &mut attachment.sites)?
            } else {
                0
            };
            let sites = if by_program { &mut step } else { &mut plain };
            sites.push(Site {
                offset: spec.offset,
                cookie: Cookie::new(probe, site, 0).0,
            });
        }
        attachment.entries = placed([(self.hit_program(), plain), (HIT_STEP, step)]);
        self.attach_entries_in_files(attachment)?;
        self.attach_functions(&functions, Seen::Entries, &mut attachment.function_links)
    }

    /// Says whether a live probe's hits are recorded, or only counted.
    pub fn set_records(&self, probe: ProbeId, records: bool) {
        let flags = half(&self.hits.slots, slot(probe) + offset_of!(HitSlot, flags));
        // The programs do not write them.
        if records {
            flags.fetch_or(HitSlot::RECORD, Ordering::Relaxed);
        } else {
            flags.fetch_and(!HitSlot::RECORD, Ordering::Relaxed);
        }
    }

    /// Says how much time is between two hits of a live probe that are recorded, on average; 0 for no limit.
    pub fn set_interval(&self, probe: ProbeId, interval_ns: u64) {
        let interval = word(&self.hits.slots, slot(probe) + offset_of!(HitSlot, interval_ns));
        // The programs do not write it.
        interval.store(interval_ns, Ordering::Relaxed);
    }

    /// Says which gate a span opens whose beginning is recorded, beside that of its step.
    pub fn open_where_recorded(&self, probe: ProbeId, gate: Option<Gate>) {
        let gates = gate.map_or(0, Gate::bits);
        half(&self.hits.slots, slot(probe) + offset_of!(HitSlot, opens)).store(gates, Ordering::Relaxed);
    }

    /// What came of a probe's hits; of one that looks at nothing, how many there were.
    #[must_use]
    pub fn hit_counts(&self, probe: ProbeId) -> HitCounts {
        let id = half(&self.hits.slots, slot(probe) + offset_of!(HitSlot, id));
        // Else the counts are those of a probe that was there before.
        let is_its_own = id.load(Ordering::Acquire) == probe.0;
        let at = |offset: usize| {
            if is_its_own {
                word(&self.hits.slots, slot(probe) + offset).load(Ordering::Relaxed)
            } else {
                0
            }
        };
        let refused = at(offset_of!(HitSlot, refused));
        HitCounts {
            reached: self.counts.probe(probe).entries + refused,
            rejected: at(offset_of!(HitSlot, rejected)) + refused,
            limited: at(offset_of!(HitSlot, limited)),
            no_state: at(offset_of!(HitSlot, no_state)),
            ring_full: at(offset_of!(HitSlot, ring_full)),
            disturbed: at(offset_of!(HitSlot, disturbed)),
        }
    }
}
