//! Which module has which pages and rows of the tables that all processes share, under a cap.
//!
//! A module's rows lie in pieces, each in one chunk, of whole pages. A module that fits into one free run is one
//! piece; small modules share chunks. Modules in use stay; those that nothing uses any more are kept for the next
//! process until they are evicted, in the order in which they fell idle. Rules are never taken back.

use std::{
    collections::{HashMap, VecDeque},
    ops::Range,
    sync::Arc,
};

use profiler_common::unwind::{CHUNK_ROWS, Module, Page, Row, Rule};

use super::{rule_set::RuleSet, runs::Runs, table::Table};

/// What a file is known by: its build-id, or whatever else tells it from all others.
pub type Key = Arc<[u8]>;

/// The sizes of the tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Modules at once.
    pub modules: u32,
    /// Pages, of [`profiler_common::unwind::PAGE_BYTES`] of text.
    pub pages: u32,
    /// Chunks, of [`CHUNK_ROWS`] rows; at most 65,536.
    pub chunks: u32,
}

impl Default for Limits {
    /// 4,096 modules, 4 GiB of text, and rows in 32 MiB: libLLVM takes 4.
    fn default() -> Self {
        Self {
            modules: 1 << 12,
            pages: 1 << 16,
            chunks: 128,
        }
    }
}

/// Why a module was given no place. [`Store::evict`] may make room.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// It has one.
    #[error("the unwind tables of this file are there already")]
    Held,
    /// [`Limits::modules`].
    #[error("no room for the unwind tables of more than {0} files at once")]
    Modules(u32),
    /// [`Limits::pages`].
    #[error("no room for the unwind tables of more than {0} pages of 64 KiB of text at once")]
    Pages(u32),
    /// [`Limits::chunks`].
    #[error("no room for more than {0} chunks of 256 KiB of unwind tables at once")]
    Chunks(u32),
}

/// Rows to be written to one chunk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Piece {
    /// The chunk.
    pub chunk: u32,
    /// Place of the first row in the chunk.
    pub place: u32,
    /// The rows, with rules as the store numbers them.
    pub rows: Vec<Row>,
}

/// Where a module went: what is to be written, in the order of the fields.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placement {
    /// Indexes of the rules that are new.
    pub new_rules: Range<usize>,
    /// Rows.
    pub pieces: Vec<Piece>,
    /// Pages, the first of which is `record.first_page`.
    pub pages: Vec<Page>,
    /// The module's index.
    pub module: u32,
    /// The module's record.
    pub record: Module,
}

#[derive(Debug)]
struct Held {
    module: u32,
    first_page: u32,
    pages: u32,
    /// Chunk, place and length.
    runs: Vec<(u32, u32, u32)>,
    users: u32,
}

/// The allocation of the tables. The rows themselves are only in what it hands out.
#[derive(Debug)]
pub struct Store {
    limits: Limits,
    rules: RuleSet,
    modules: Runs,
    pages: Runs,
    chunks: Vec<Runs>,
    held: HashMap<Key, Held>,
    idle: VecDeque<Key>,
}

impl Store {
    /// Empty tables.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let limits = Limits {
            chunks: limits.chunks.min(1 << 16),
            ..limits
        };
        Self {
            limits,
            rules: RuleSet::new(Rule::MAX),
            modules: Runs::new(limits.modules),
            pages: Runs::new(limits.pages),
            chunks: Vec::new(),
            held: HashMap::new(),
            idle: VecDeque::new(),
        }
    }

    /// The rules of all modules, by index. They only ever grow.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        self.rules.rules()
    }

    /// Chunks that have ever been in use, of [`Limits::chunks`].
    #[must_use]
    pub fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// Whether the module that is known by `key` has a place.
    #[must_use]
    pub fn holds(&self, key: &Key) -> bool {
        self.held.contains_key(key)
    }

    /// The index of the module that is known by `key`, with one more user; `None` where it is to be
    /// [`Self::add`]ed.
    pub fn acquire(&mut self, key: &Key) -> Option<u32> {
        let held = self.held.get_mut(key)?;
        held.users += 1;
        if held.users == 1 {
            self.idle.retain(|idle| idle != key);
        }
        Some(held.module)
    }

    /// One user less. The caller has removed the user's mappings from the tables before.
    pub fn release(&mut self, key: &Key) {
        let Some(held) = self.held.get_mut(key) else {
            return;
        };
        if held.users == 0 {
            return;
        }
        held.users -= 1;
        if held.users == 0 {
            self.idle.push_back(Arc::clone(key));
        }
    }

    /// Gives a module its place, with one user.
    ///
    /// # Errors
    /// Where it has a place already, or there is none, when nothing has changed.
    pub fn add(&mut self, key: &Key, table: &Table) -> Result<Placement, Refused> {
        if self.held.contains_key(key) {
            return Err(Refused::Held);
        }
        let pages = u32::try_from(table.pages()).unwrap_or(u32::MAX);
        let module = self
            .modules
            .take(1)
            .ok_or(Refused::Modules(self.limits.modules))?;
        let Some(first_page) = self.pages.take(pages) else {
            self.modules.give_back(module, 1);
            return Err(Refused::Pages(self.limits.pages));
        };
        let mut held = Held {
            module,
            first_page,
            pages,
            runs: Vec::new(),
            users: 1,
        };
        let Some(placed) = self.place_rows(table, &mut held.runs) else {
            self.give_back(&held);
            return Err(Refused::Chunks(self.limits.chunks));
        };
        self.held.insert(Arc::clone(key), held);

        let known = self.rules.rules().len();
        let rules: Vec<u16> = table.rules.iter().map(|rule| self.rules.intern(*rule)).collect();
        let mut pieces = placed.pieces;
        for row in pieces.iter_mut().flat_map(|piece| &mut piece.rows) {
            row.rule = rules
                .get(usize::from(row.rule))
                .copied()
                .unwrap_or(Rule::UNSUPPORTED_INDEX);
        }
        Ok(Placement {
            new_rules: known..self.rules.rules().len(),
            pieces,
            pages: placed.pages,
            module,
            record: Module { first_page, pages },
        })
    }

    /// Forgets the module that has been idle longest, and gives its index: its record is to be zeroed before
    /// anything else is added. `None` where all are in use.
    pub fn evict(&mut self) -> Option<u32> {
        let held = self.held.remove(&self.idle.pop_front()?)?;
        self.give_back(&held);
        Some(held.module)
    }

    fn give_back(&mut self, held: &Held) {
        let Held {
            module,
            first_page,
            pages,
            runs,
            users: _,
        } = held;
        self.modules.give_back(*module, 1);
        self.pages.give_back(*first_page, *pages);
        for (chunk, place, length) in runs {
            if let Some(chunk) = self.chunks.get_mut(*chunk as usize) {
                chunk.give_back(*place, *length);
            }
        }
    }

    /// Finds places for all pages' rows. What was taken is in `runs`, also where there is not enough.
    fn place_rows(&mut self, table: &Table, runs: &mut Vec<(u32, u32, u32)>) -> Option<Placed> {
        let mut placed = Placed {
            pages: Vec::with_capacity(table.pages()),
            pieces: Vec::new(),
        };
        while placed.pages.len() < table.pages() {
            let from = placed.pages.len();
            let rest: usize = (from..table.pages()).map(|page| table.page(page).len()).sum();
            let (chunk, room) = self.room(u32::try_from(rest).unwrap_or(u32::MAX))?;
            let mut piece = Piece {
                chunk,
                place: 0,
                rows: Vec::new(),
            };
            let mut lengths = Vec::new();
            for page in from..table.pages() {
                let rows = table.page(page);
                if piece.rows.len() + rows.len() > room as usize {
                    break;
                }
                piece.rows.extend_from_slice(rows);
                lengths.push(u32::try_from(rows.len()).unwrap_or(u32::MAX));
            }
            if lengths.is_empty() {
                return None;
            }
            let length = u32::try_from(piece.rows.len()).unwrap_or(u32::MAX);
            piece.place = self.chunks.get_mut(chunk as usize)?.take(length)?;
            runs.push((chunk, piece.place, length));
            let mut place = piece.place;
            for rows in lengths {
                let first_row = if rows == 0 { 0 } else { chunk << 16 | place };
                placed.pages.push(Page { first_row, rows });
                place += rows;
            }
            if !piece.rows.is_empty() {
                placed.pieces.push(piece);
            }
        }
        Some(placed)
    }

    /// A chunk with a free run of `rows`, or else the one with the longest, and that run's length.
    fn room(&mut self, rows: u32) -> Option<(u32, u32)> {
        let free = |chunks: &[Runs]| {
            let lengths: Vec<u32> = chunks.iter().map(Runs::longest).collect();
            let fits = lengths.iter().position(|length| *length >= rows);
            let best = fits.or_else(|| (0..lengths.len()).max_by_key(|chunk| lengths[*chunk]))?;
            Some((u32::try_from(best).ok()?, lengths[best]))
        };
        let found = free(&self.chunks);
        if found.is_some_and(|(_, length)| length >= rows.min(CHUNK_ROWS)) {
            return found;
        }
        if self.chunks.len() < self.limits.chunks as usize {
            self.chunks.push(Runs::new(CHUNK_ROWS));
            return Some((u32::try_from(self.chunks.len() - 1).ok()?, CHUNK_ROWS));
        }
        found
    }
}

struct Placed {
    pages: Vec<Page>,
    pieces: Vec<Piece>,
}

#[cfg(test)]
mod tests;
