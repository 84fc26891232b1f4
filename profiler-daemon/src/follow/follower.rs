//! What is kept of the processes that are followed: their mappings, and which tables those use.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use profiler_common::unwind::{CHUNK_ROWS, MAX_MAPPINGS, Mapping};
use profiler_target::{self as target, contents::Contents, executable_mappings, read_of_process, user_of};
use profiler_unwind::{Key, Refused, Store, Table};

use super::{
    files::{Files, KnownFile, Made, Source},
    places::{Place, Places},
};
use crate::{
    cache::Folder,
    kernel::{UNWIND_LIMITS, UnwindMaps},
};

/// What was taken back from the programs is not used again before this: one may still be reading it. A walk takes
/// microseconds.
const GRACE: Duration = Duration::from_millis(20);

/// Files that were said to be left without a table; then all are said anew.
const MAX_SAID: usize = 4096;

/// A process as it was when last looked at.
#[derive(Default)]
struct Followed {
    seen: Vec<target::Mapping>,
    /// It did not answer for some of them.
    is_partial: bool,
    /// Who its tables count for.
    user: u32,
    /// None where there is no room for it.
    place: Option<Place>,
    keys: Vec<Key>,
    /// How many files there was no room for, and how often others had made room when that was so.
    without: u32,
    forgotten: u64,
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
    places: Places,
    files: Files,
    processes: HashMap<u32, Followed>,
    /// Taken back from the programs, oldest first.
    retired: VecDeque<(Instant, Followed)>,
    /// How many processes were forgotten: there may be more room since.
    forgotten: u64,
    /// Files that were said to be left without a table.
    said: HashSet<Key>,
}

impl Follower {
    /// Follows nothing yet; keeps tables in a folder.
    pub fn new(maps: UnwindMaps, folder: Option<Arc<Folder>>) -> Self {
        Self {
            maps,
            store: Store::new(UNWIND_LIMITS),
            places: Places::new(),
            files: Files::new(folder),
            processes: HashMap::new(),
            retired: VecDeque::new(),
            forgotten: 0,
            said: HashSet::new(),
        }
    }

    /// Brings the tables of a process up to date. Gives how many of its files there is no room for: their part of stacks is walked
    /// along frame pointers.
    pub fn look(&mut self, pid: u32) -> u32 {
        self.reuse();
        let seen = match read_of_process(pid, move || executable_mappings(pid)) {
            Ok(mappings) if !mappings.is_empty() => mappings,
            // It has ended, and samples no more, or does not answer, and is looked at again.
            _ => return 0,
        };
        if let Some(process) = self.processes.get(&pid)
            && process.seen == seen
            && !process.is_partial
            && (process.without == 0 || process.forgotten == self.forgotten)
        {
            return process.without;
        }
        let Some(user) = user_of(pid) else { return 0 };
        let start = Instant::now();
        let mut process = Followed {
            seen,
            user,
            forgotten: self.forgotten,
            ..Followed::default()
        };
        let mappings = self.tables(pid, &mut process);
        let count = u32::try_from(mappings.len()).unwrap_or(u32::MAX);
        let had_place = self
            .processes
            .get(&pid)
            .is_some_and(|process| process.place.is_some());
        let place = match self.places.take(user, count, !had_place) {
            Ok(place) => place,
            Err(no_place) => {
                tracing::warn!(pid, %no_place, "its stacks are walked along frame pointers");
                return self.leave_without(pid, process);
            }
        };
        process.place = Some(place);
        self.maps.write_mappings(place.first, &mappings);
        if let Err(error) = self.maps.set_process(pid, place.first, count) {
            tracing::warn!(pid, %error, "its stacks are walked along frame pointers");
            return self.leave_without(pid, process);
        }
        tracing::debug!(
            pid,
            mappings = count,
            chunks = self.store.chunks(),
            rules = self.store.rules(),
            took = ?start.elapsed(),
            "unwind tables",
        );
        let without = process.without;
        if let Some(old) = self.processes.insert(pid, process) {
            self.retire(old);
        }
        without
    }

    /// Gives up on a process: none of its files have tables for it. Gives how many these are.
    fn leave_without(&mut self, pid: u32, process: Followed) -> u32 {
        self.maps.remove_process(pid);
        let files = u32::try_from(process.keys.len()).unwrap_or(u32::MAX);
        let left = Followed {
            seen: process.seen.clone(),
            without: process.without.saturating_add(files).max(1),
            forgotten: process.forgotten,
            ..Followed::default()
        };
        self.retire(process);
        let without = left.without;
        if let Some(old) = self.processes.insert(pid, left) {
            self.retire(old);
        }
        without
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
            self.forgotten += 1;
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
            if let Some(place) = process.place {
                self.places.give_back(place);
            }
            for key in &process.keys {
                self.store.release(key, process.user);
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
            self.add(mapped, process, &mut mappings);
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
                Err(error) => {
                    *is_partial |= error.kind() == io::ErrorKind::TimedOut;
                    tracing::debug!(pid, %error, "its vDSO is not read");
                }
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

    fn add(&mut self, mapped: Mapped, process: &mut Followed, mappings: &mut Vec<Mapping>) {
        let Mapped {
            file,
            source,
            places,
            table,
        } = mapped;
        let (module, base) = match self.module(&file, &source, process.user, table) {
            Ok(Some(module)) => module,
            Ok(None) => return,
            Err(refused) => {
                process.without += 1;
                self.say_refused(file.key, &places, refused);
                return;
            }
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
        process.keys.push(file.key);
    }

    /// Says once of a file that there is no room for its table.
    fn say_refused(&mut self, key: Key, places: &[target::Mapping], refused: Refused) {
        if self.said.len() >= MAX_SAID {
            self.said.clear();
        }
        if self.said.insert(key) {
            let file = places.first().map(|place| place.path.display());
            let file = file.map(tracing::field::display);
            tracing::warn!(file, %refused, "its part of stacks is walked along frame pointers");
        }
    }

    /// The index of a file's table, and where it begins; `None` where there is none.
    fn module(
        &mut self,
        file: &KnownFile,
        source: &Source,
        user: u32,
        mut table: Option<Table>,
    ) -> Result<Option<(u32, u64)>, Refused> {
        loop {
            match self.place(file, source, user, &mut table) {
                Err(refused) => {
                    let module = self.store.evict(refused).ok_or(refused)?;
                    self.maps.remove_module(module);
                }
                placed => return placed,
            }
        }
    }

    /// The same, where no other file's gives way.
    fn place(
        &mut self,
        file: &KnownFile,
        source: &Source,
        user: u32,
        table: &mut Option<Table>,
    ) -> Result<Option<(u32, u64)>, Refused> {
        let key = &file.key;
        match self.files.made(key) {
            Made::Nothing => return Ok(None),
            Made::From(base) => {
                if let Some(module) = self.store.acquire(key, user)? {
                    return Ok(Some((module, base)));
                }
            }
            Made::NotYet => {}
        }
        if table.is_none() {
            // Another of this process's may have taken its place meanwhile.
            *table = self.files.tables(&[(file, source)]).pop().flatten();
        }
        let Some(table) = table else { return Ok(None) };
        if let Some(module) = self.store.acquire(key, user)? {
            return Ok(Some((module, table.base)));
        }
        let placement = self.store.add(key, user, table)?;
        if let Err(error) = self.maps.place(&placement) {
            tracing::warn!(%error, "no unwind table");
            self.store.release(key, user);
            return Ok(None);
        }
        Ok(Some((placement.module, table.base)))
    }
}
