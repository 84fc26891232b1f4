//! What is kept of the processes that are followed: their mappings, and which tables those use.

use std::{
    collections::{HashMap, VecDeque},
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use profiler_common::{
    limits::MAX_UNWIND_MAPPINGS,
    unwind::{CHUNK_ROWS, MAX_MAPPINGS, Mapping},
};
use profiler_target::{self as target, contents::Contents, executable_mappings, read_of_process};
use profiler_unwind::{Key, Refused, Runs, Store, Table};

use super::files::{Files, KnownFile, Made, Source};
use crate::{
    cache::Folder,
    kernel::{UNWIND_LIMITS, UnwindMaps},
};

/// What was taken back from the programs is not used again before this: one may still be reading it. A walk takes
/// microseconds.
const GRACE: Duration = Duration::from_millis(20);

/// A process as it was when last looked at.
#[derive(Default)]
struct Followed {
    seen: Vec<target::Mapping>,
    /// It did not answer for some of them.
    is_partial: bool,
    first_mapping: u32,
    mappings: u32,
    keys: Vec<Key>,
}

/// A file that a process has mapped.
struct Mapped {
    file: KnownFile,
    source: Source,
    places: Vec<target::Mapping>,
    /// Where it was made already.
    table: Option<Table>,
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
    /// Follows nothing yet; keeps tables in a folder.
    pub fn new(maps: UnwindMaps, folder: Option<Arc<Folder>>) -> Self {
        Self {
            maps,
            store: Store::new(UNWIND_LIMITS),
            places: Runs::new(MAX_UNWIND_MAPPINGS),
            files: Files::new(folder),
            processes: HashMap::new(),
            retired: VecDeque::new(),
        }
    }

    /// Brings the tables of a process up to date.
    pub fn look(&mut self, pid: u32) {
        self.reuse();
        let seen = match read_of_process(pid, move || executable_mappings(pid)) {
            Ok(mappings) if !mappings.is_empty() => mappings,
            // It has ended, and samples no more, or does not answer, and is looked at again.
            _ => return,
        };
        if self
            .processes
            .get(&pid)
            .is_some_and(|process| process.seen == seen && !process.is_partial)
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

    /// Keeps tables on disk that were made for processes.
    pub fn keep(&mut self) {
        self.files.keep();
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
        let mut mapped = self.open(pid, process);
        self.make_tables(&mut mapped);
        self.make_room(&mapped);
        let mut mappings = Vec::new();
        for mapped in mapped {
            self.add(mapped, &mut process.keys, &mut mappings);
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

    /// Opens what a process has mapped.
    fn open(&mut self, pid: u32, process: &mut Followed) -> Vec<Mapped> {
        let Followed { seen, is_partial, .. } = process;
        let mut mapped = Vec::new();
        let mut add = |follower: &mut Self, (file, source), places| {
            let mut one = Mapped {
                file,
                source,
                places,
                table: None,
            };
            if matches!(one.source, Source::Read(Contents::Copied(_))) {
                // Its bytes are not kept until all are open.
                follower.make_tables(std::slice::from_mut(&mut one));
            }
            mapped.push(one);
        };
        for module in target::modules(seen) {
            match self.files.open(pid, &module) {
                Ok(opened) => add(self, opened, module.mappings),
                Err(error) => {
                    *is_partial |= error.kind() == io::ErrorKind::TimedOut;
                    tracing::debug!(pid, %error, module = %module.path.display(), "not read");
                }
            }
        }
        if let Some(vdso) = seen.iter().find(|mapping| mapping.is_vdso()) {
            match Files::vdso(pid, vdso) {
                Ok(opened) => add(self, opened, vec![vdso.clone()]),
                Err(error) => tracing::debug!(pid, %error, "its vDSO is not read"),
            }
        }
        mapped
    }

    /// Makes the tables that are not there.
    fn make_tables(&mut self, mapped: &mut [Mapped]) {
        let is_wanted = |one: &&mut Mapped| {
            one.table.is_none()
                && self.files.made(&one.file.key) != Made::Nothing
                && !self.store.holds(&one.file.key)
        };
        let mut wanted: Vec<&mut Mapped> = mapped.iter_mut().filter(is_wanted).collect();
        let sources: Vec<_> = wanted.iter().map(|one| (&one.file, &one.source)).collect();
        let tables = self.files.tables(&sources);
        for (one, table) in wanted.iter_mut().zip(tables) {
            one.table = table;
        }
    }

    /// Has the chunks that all these tables will take, by one call: the kernel waits after each.
    fn make_room(&mut self, mapped: &[Mapped]) {
        let tables = mapped.iter().filter_map(|one| one.table.as_ref());
        let rows: usize = tables.map(|table| table.rows.len()).sum();
        let chunks = self.store.chunks() + rows.div_ceil(CHUNK_ROWS as usize);
        let most = UNWIND_LIMITS.chunks as usize;
        if let Err(error) = self.maps.add_chunks(chunks.min(most)) {
            tracing::debug!(%error, "chunks are made with their tables");
        }
    }

    fn add(&mut self, mapped: Mapped, keys: &mut Vec<Key>, mappings: &mut Vec<Mapping>) {
        let Mapped {
            file,
            source,
            places,
            table,
        } = mapped;
        let Some((module, base)) = self.module(&file, &source, table) else {
            return;
        };
        mappings.extend(places.iter().filter_map(|place| {
            Some(Mapping {
                start: place.start,
                end: place.end,
                bias: file.load_bias(place)?.wrapping_add(base),
                module,
                reserved: 0,
            })
        }));
        keys.push(file.key);
    }

    /// The index of a file's table, and where it begins; `None` where there is none, or no room.
    fn module(&mut self, file: &KnownFile, source: &Source, table: Option<Table>) -> Option<(u32, u64)> {
        let key = &file.key;
        match self.files.made(key) {
            Made::Nothing => return None,
            Made::From(base) => {
                if let Some(module) = self.store.acquire(key) {
                    return Some((module, base));
                }
            }
            Made::NotYet => {}
        }
        // Another of this process's may have taken its place meanwhile.
        let table = table.or_else(|| self.files.tables(&[(file, source)]).pop().flatten())?;
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
