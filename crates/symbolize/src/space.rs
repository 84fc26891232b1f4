//! One process: its mappings, and the addresses resolved so far.

use std::{
    collections::HashMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use profiler_debug_files::Rights;
use profiler_target::{Mapping, executable_mappings, read_of_process};

use super::{
    cache::{MappedFile, ModuleId},
    frame::{Data, FrameId, Frames},
    look_budget::LookBudget,
    module::Resolved,
    perf_file::PerfFile,
    reason::Reason,
};

/// Most addresses of one process whose frames are kept; then they are all resolved anew.
const ADDRESSES_MAX: usize = 1 << 16;
/// The mappings are not read more often than this, in ns.
const READ_EVERY_NS: u64 = 100_000_000;
/// Mappings older than this are read again before an address is resolved, in ns, be it a known one: a library can come
/// to lie where another lay.
const AGE_MAX_NS: u64 = 1_000_000_000;
/// Files of one process that are opened when it is first looked at, at most; others are when they are needed.
const OPENED_MAX: usize = 32;

/// What is known of the file behind a mapping.
#[derive(Clone, Copy)]
pub(super) enum Behind {
    NotOpened,
    Module(ModuleId),
    Unreadable(Reason),
}

/// Which line a frame has.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Detail {
    /// That of its function's declaration.
    Function,
    /// That which runs.
    Line,
}

/// A state of what is known of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Generation {
    space: u64,
    read: u64,
}

/// What a process has mapped.
pub(super) struct Seen {
    /// The process's, from before its mappings were read.
    rights: Rights,
    mappings: Vec<Mapping>,
}

/// What came of opening the file behind the mapping that starts there.
pub(super) struct OpenedMapping {
    pub start: u64,
    pub file: io::Result<MappedFile>,
}

impl Seen {
    /// Reads it, which may take as long as the process likes.
    ///
    /// # Errors
    /// As those of [`executable_mappings`].
    pub fn of(pid: u32) -> io::Result<Self> {
        let rights = Rights::of_process(pid);
        Ok(Self {
            rights,
            mappings: executable_mappings(pid)?,
        })
    }
}

/// Files of a process that were not opened yet.
pub(super) struct Unopened {
    rights: Arc<Rights>,
    mappings: Vec<Mapping>,
}

impl Unopened {
    /// Opens them, up to the first whose file system may not answer: each file of one is asked for by itself. `all_answer` says whether
    /// all have so far.
    pub fn open(
        &self,
        all_answer: &AtomicBool,
        open: impl Fn(&Rights, &Mapping) -> io::Result<MappedFile>,
    ) -> Vec<OpenedMapping> {
        let mut opened = Vec::new();
        for mapping in &self.mappings {
            if !all_answer.load(Ordering::Relaxed) {
                break;
            }
            let file = open(&self.rights, mapping);
            if !file.as_ref().is_ok_and(|file| file.open.file.answers()) {
                all_answer.store(false, Ordering::Relaxed);
            }
            let start = mapping.start;
            opened.push(OpenedMapping { start, file });
        }
        opened
    }
}

/// A process's executable mappings, as last read.
pub(super) struct Space {
    pid: u32,
    /// The process's, from before its mappings were read.
    rights: Arc<Rights>,
    mappings: Vec<(Mapping, Behind)>,
    read_at_ns: Option<u64>,
    /// The process did not let them be read then.
    is_silent: bool,
    resolved: HashMap<(u64, Detail), Resolved>,
    /// What lies at addresses of data.
    variables: HashMap<u64, Data>,
    /// Which space it is, and how often what was resolved has been forgotten.
    generation: Generation,
    /// Read once code without a file is seen.
    perf_map: Option<Box<PerfFile>>,
    /// When it was last used, by the symbolizer's counter.
    pub used: u64,
}

impl Space {
    /// One that nothing is known of yet; no two have the same number.
    pub fn new(pid: u32, number: u64) -> Self {
        Self {
            pid,
            generation: Generation {
                space: number,
                read: 0,
            },
            rights: Arc::new(Rights::nobody()),
            mappings: Vec::new(),
            read_at_ns: None,
            is_silent: false,
            resolved: HashMap::new(),
            variables: HashMap::new(),
            perf_map: None,
            used: 0,
        }
    }

    /// What is known, where it is not too old: what was found in the same generation is found again.
    pub fn generation(&mut self, now_ns: u64) -> Generation {
        self.refresh(now_ns);
        self.generation
    }

    /// The rights of the process when its mappings were read, or before that.
    pub fn rights(&mut self, now_ns: u64) -> Arc<Rights> {
        self.refresh(now_ns);
        Arc::clone(&self.rights)
    }

    fn refresh(&mut self, now_ns: u64) {
        if self.is_due(now_ns) {
            self.read(now_ns);
        }
    }

    /// Whether it is to be read, or read again, before an address is looked up.
    pub fn is_due(&self, now_ns: u64) -> bool {
        self.age_ns(now_ns).is_none_or(|age| age >= AGE_MAX_NS)
    }

    /// The mapping that starts at an address, as far as is known.
    pub fn starting_at(&mut self, start: u64) -> Option<&mut (Mapping, Behind)> {
        self.mappings
            .iter_mut()
            .find(|(mapping, _)| mapping.start == start)
    }

    /// The frames at an address, where it was resolved before and what is known is not too old.
    pub fn known(&mut self, address: u64, detail: Detail, now_ns: u64) -> Option<&Resolved> {
        self.refresh(now_ns);
        self.resolved.get(&(address, detail))
    }

    pub fn remember(&mut self, address: u64, detail: Detail, frames: Resolved) {
        if self.resolved.len() >= ADDRESSES_MAX {
            self.resolved.clear();
        }
        self.resolved.insert((address, detail), frames);
    }

    /// What lies at an address of data, where it was looked up before and what is known is not too old.
    pub fn known_variable(&mut self, address: u64, now_ns: u64) -> Option<Data> {
        self.refresh(now_ns);
        self.variables.get(&address).copied()
    }

    pub fn remember_variable(&mut self, address: u64, variable: Data) {
        if self.variables.len() >= ADDRESSES_MAX {
            self.variables.clear();
        }
        self.variables.insert(address, variable);
    }

    /// The code of files that is mapped nearest to an address, below and above: an address of data belongs to one of them,
    /// or to no file.
    pub fn code_around(&mut self, address: u64) -> impl Iterator<Item = &mut (Mapping, Behind)> {
        let above = self
            .mappings
            .partition_point(|(mapping, _)| mapping.start <= address);
        let (below, above) = self.mappings.split_at_mut(above);
        let is_file = |one: &&mut (Mapping, Behind)| one.0.is_file();
        let below = below.iter_mut().rev().find(is_file);
        let above = above.iter_mut().find(is_file);
        below.into_iter().chain(above)
    }

    /// The mapping that holds an address, reading the mappings again where that may help.
    pub fn mapping(&mut self, address: u64, now_ns: u64) -> Option<(&Mapping, &mut Behind)> {
        let mut found = self.find(address);
        if found.is_none() && self.age_ns(now_ns).is_none_or(|age| age >= READ_EVERY_NS) {
            self.read(now_ns);
            found = self.find(address);
        }
        let (mapping, behind) = self.mappings.get_mut(found?)?;
        Some((mapping, behind))
    }

    /// Why an address that no mapping is known of is in none.
    pub fn reason_without_mapping(&self) -> Reason {
        if self.is_silent {
            Reason::NotAnswering
        } else {
            Reason::NotMapped
        }
    }

    /// Where code is mapped, as far as is known; the mappings are read if they never were.
    pub fn begins(&mut self, now_ns: u64) -> Vec<u64> {
        if self.read_at_ns.is_none() {
            self.read(now_ns);
        }
        self.mappings.iter().map(|(mapping, _)| mapping.start).collect()
    }

    /// The function that a just-in-time compiler has put at an address. It is not to be remembered: other code
    /// may come to lie there.
    pub fn compiled(
        &mut self,
        address: u64,
        now_ns: u64,
        budget: &mut LookBudget,
        frames: &mut Frames,
    ) -> Option<FrameId> {
        let perf_map = self.perf_map.get_or_insert_default();
        perf_map.resolve(self.pid, address, now_ns, budget, frames)
    }

    /// Bytes that its perf map takes.
    pub fn perf_map_bytes(&self) -> usize {
        self.perf_map.as_ref().map_or(0, |map| map.bytes())
    }

    /// Lets go of its perf map, which is read anew where it is needed.
    pub fn drop_perf_map(&mut self) {
        self.perf_map = None;
    }

    fn age_ns(&self, now_ns: u64) -> Option<u64> {
        self.read_at_ns.map(|at| now_ns.saturating_sub(at))
    }

    fn find(&self, address: u64) -> Option<usize> {
        let after = self
            .mappings
            .partition_point(|(mapping, _)| mapping.start <= address);
        let index = after.checked_sub(1)?;
        self.mappings[index].0.contains(address).then_some(index)
    }

    fn read(&mut self, now_ns: u64) {
        let pid = self.pid;
        self.take(read_of_process(pid, move || Seen::of(pid)), now_ns);
    }

    /// The files behind its mappings that were not opened yet.
    pub fn unopened(&self) -> Unopened {
        let mappings = self.mappings.iter();
        let unopened =
            mappings.filter(|(mapping, behind)| mapping.is_file() && matches!(behind, Behind::NotOpened));
        Unopened {
            rights: Arc::clone(&self.rights),
            mappings: unopened
                .take(OPENED_MAX)
                .map(|(mapping, _)| mapping.clone())
                .collect(),
        }
    }

    /// Takes what was read of it, or why nothing was.
    pub fn take(&mut self, seen: io::Result<Seen>, now_ns: u64) {
        self.read_at_ns = Some(now_ns);
        self.is_silent = matches!(&seen, Err(error) if error.kind() == io::ErrorKind::TimedOut);
        let Seen { rights, mappings } = match seen {
            // A process that has ended has none: the old ones serve its last samples.
            Ok(seen) if seen.mappings.is_empty() => return,
            Ok(seen) => seen,
            Err(error) => {
                tracing::debug!(%error, pid = self.pid, "mappings not read");
                return;
            }
        };
        let same = mappings
            .iter()
            .eq(self.mappings.iter().map(|(mapping, _)| mapping));
        self.rights = Arc::new(rights);
        if !same {
            self.resolved.clear();
            self.variables.clear();
            self.generation.read += 1;
            self.mappings = mappings
                .into_iter()
                .map(|mapping| (mapping, Behind::NotOpened))
                .collect();
        }
    }
}
