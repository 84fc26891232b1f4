//! What is kept of the processes that are followed: their mappings, and which tables those use.

use std::{
    collections::{HashMap, VecDeque},
    time::{Duration, Instant},
};

use profiler_common::{
    limits::MAX_UNWIND_MAPPINGS,
    unwind::{MAX_MAPPINGS, Mapping},
};

use super::files::{Files, KnownFile, Made, Source};
use crate::{
    kernel::{UNWIND_LIMITS, UnwindMaps},
    target::{self, executable_mappings},
    unwind::{Key, Refused, Runs, Store},
};

/// What was taken back from the programs is not used again before this: one may still be reading it. A walk takes
/// microseconds.
const GRACE: Duration = Duration::from_millis(20);

/// A process as it was when last looked at.
#[derive(Default)]
struct Followed {
    seen: Vec<target::Mapping>,
    first_mapping: u32,
    mappings: u32,
    keys: Vec<Key>,
}

/// Processes, and the tables that they share.
pub struct Follower {
    maps: UnwindMaps,
    store: Store,
    places: Runs,
    files: Files,
    processes: HashMap<u32, Followed>,
    /// Taken back from the programs, oldest first.
    retired: VecDeque<(Instant, Followed)>,
}

impl Follower {
    /// Follows nothing yet.
    pub fn new(maps: UnwindMaps) -> Self {
        Self {
            maps,
            store: Store::new(UNWIND_LIMITS),
            places: Runs::new(MAX_UNWIND_MAPPINGS),
            files: Files::default(),
            processes: HashMap::new(),
            retired: VecDeque::new(),
        }
    }

    /// Brings the tables of a process up to date.
    pub fn look(&mut self, pid: u32) {
        self.reuse();
        let seen = match executable_mappings(pid) {
            Ok(mappings) if !mappings.is_empty() => mappings,
            // It has ended, and samples no more.
            _ => return,
        };
        if self
            .processes
            .get(&pid)
            .is_some_and(|process| process.seen == seen)
        {
            return;
        }
        let start = Instant::now();
        let mut process = Followed {
            seen,
            ..Followed::default()
        };
        let mappings = self.tables(pid, &mut process);
        let count = u32::try_from(mappings.len()).unwrap_or(u32::MAX);
        let Some(first) = self.places.take(count) else {
            tracing::warn!(
                pid,
                "no room for its mappings: its stacks are walked along frame pointers"
            );
            self.retire(process);
            return;
        };
        (process.first_mapping, process.mappings) = (first, count);
        self.maps.write_mappings(first, &mappings);
        if let Err(error) = self.maps.set_process(pid, first, count) {
            tracing::warn!(pid, %error, "its stacks are walked along frame pointers");
            self.retire(process);
            return;
        }
        tracing::debug!(
            pid,
            mappings = count,
            chunks = self.store.chunks(),
            rules = self.store.rules().len(),
            took = ?start.elapsed(),
            "unwind tables",
        );
        if let Some(old) = self.processes.insert(pid, process) {
            self.retire(old);
        }
    }

    /// Forgets a process.
    pub fn forget(&mut self, pid: u32) {
        self.maps.remove_process(pid);
        if let Some(process) = self.processes.remove(&pid) {
            self.retire(process);
        }
        self.reuse();
    }

    fn retire(&mut self, process: Followed) {
        self.retired.push_back((Instant::now(), process));
    }

    /// Gives free what no program reads any more.
    fn reuse(&mut self) {
        while let Some((since, _)) = self.retired.front()
            && since.elapsed() >= GRACE
            && let Some((_, process)) = self.retired.pop_front()
        {
            self.places.give_back(process.first_mapping, process.mappings);
            for key in &process.keys {
                self.store.release(key);
            }
        }
    }

    /// Has tables for everything that the process has mapped; gives where that is, by address.
    fn tables(&mut self, pid: u32, process: &mut Followed) -> Vec<Mapping> {
        let mut mappings = Vec::new();
        for module in target::modules(&process.seen) {
            match self.files.open(pid, &module) {
                Ok((file, source)) => {
                    self.add(&file, &source, &module.mappings, &mut process.keys, &mut mappings);
                }
                Err(error) => tracing::debug!(pid, %error, module = %module.path.display(), "not read"),
            }
        }
        let vdso = process.seen.iter().find(|mapping| mapping.is_vdso());
        if let Some(vdso) = vdso {
            match Files::vdso(pid, vdso) {
                Ok((file, source)) => {
                    let vdso = std::slice::from_ref(vdso);
                    self.add(&file, &source, vdso, &mut process.keys, &mut mappings);
                }
                Err(error) => tracing::debug!(pid, %error, "its vDSO is not read"),
            }
        }
        mappings.sort_unstable_by_key(|mapping| mapping.start);
        if mappings.len() > MAX_MAPPINGS as usize {
            tracing::warn!(
                pid,
                limit = MAX_MAPPINGS,
                "has more mappings: the last are walked along frame pointers"
            );
            mappings.truncate(MAX_MAPPINGS as usize);
        }
        mappings
    }

    fn add(
        &mut self,
        file: &KnownFile,
        source: &Source,
        places: &[target::Mapping],
        keys: &mut Vec<Key>,
        mappings: &mut Vec<Mapping>,
    ) {
        let Some((module, base)) = self.module(&file.key, source) else {
            return;
        };
        keys.push(file.key.clone());
        mappings.extend(places.iter().filter_map(|place| {
            Some(Mapping {
                start: place.start,
                end: place.end,
                bias: file.load_bias(place)?.wrapping_add(base),
                module,
                reserved: 0,
            })
        }));
    }

    /// The index of a file's table, and where it begins; `None` where there is none, or no room.
    fn module(&mut self, key: &Key, source: &Source) -> Option<(u32, u64)> {
        match self.files.made(key) {
            Made::Nothing => return None,
            Made::From(base) => {
                if let Some(module) = self.store.acquire(key) {
                    return Some((module, base));
                }
            }
            Made::NotYet => {}
        }
        let table = self.files.build(key, source)?;
        loop {
            match self.store.add(key, &table) {
                Ok(placement) => {
                    if let Err(error) = self.maps.place(&placement, self.store.rules()) {
                        tracing::warn!(%error, "no unwind table");
                        self.store.release(key);
                        return None;
                    }
                    return Some((placement.module, table.base));
                }
                Err(Refused::Held) => return Some((self.store.acquire(key)?, table.base)),
                Err(refused) => {
                    let Some(module) = self.store.evict() else {
                        tracing::warn!(%refused, "a file's stacks are walked along frame pointers");
                        return None;
                    };
                    self.maps.remove_module(module);
                }
            }
        }
    }
}
