//! Which module has which pages and rows of the tables that all processes share, under a cap.
//!
//! A module's rows lie in pieces, each in one chunk, of whole pages. A module that fits into one free run is one
//! piece; small modules share chunks. Modules in use stay; those that nothing uses any more are kept for the next
//! process until they are evicted, in the order in which they fell idle. A rule goes with the last module that has it.
//!
//! A module counts as that of each user whose processes use it, and of the last one while none do.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    sync::Arc,
};

use profiler_common::unwind::{CHUNK_ROWS, Module, Page, Row, Rule};

use super::{
    runs::Runs,
    shared_rules::{NewRule, SharedRules, distinct},
    shares::{self, ROOT, Shares, Size},
    table::Table,
};

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
    /// Rules, with the reserved ones; at most [`Rule::MAX`].
    pub rules: u32,
}

impl Limits {
    /// Rows in all chunks.
    pub(super) const fn rows(&self) -> u32 {
        self.chunks.saturating_mul(CHUNK_ROWS)
    }
}

impl Default for Limits {
    /// 4,096 modules, 4 GiB of text, and rows in 32 MiB: libLLVM takes 4.
    fn default() -> Self {
        Self {
            modules: 1 << 12,
            pages: 1 << 16,
            chunks: 128,
            rules: 1 << 16,
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
    /// [`Limits::rules`].
    #[error("no room for more than {0} different rules of unwind tables at once")]
    Rules(u32),
    /// The share of one user.
    #[error(
        "the processes of one user, here of {user}, may use a quarter of the unwind tables: there is no room for more {part}"
    )]
    OfUser {
        /// Whose processes.
        user: u32,
        /// Of what there is no more.
        part: Part,
    },
    /// That of all users.
    #[error(
        "the processes of all users but root may use three quarters of the unwind tables: there is no room for more {0}"
    )]
    OfUsers(Part),
}

/// What a module takes of the tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// A file.
    Files,
    /// Pages of text.
    Pages,
    /// Rows.
    Rows,
    /// Rules.
    Rules,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Files => "files",
            Self::Pages => "pages of 64 KiB of text",
            Self::Rows => "rows",
            Self::Rules => "different rules",
        })
    }
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
    /// The rules that are new.
    pub new_rules: Vec<NewRule>,
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
    rows: u32,
    /// Chunk, place and length.
    runs: Vec<(u32, u32, u32)>,
    /// Each once.
    rules: Vec<u16>,
    /// How many processes of each user use it. Where none do, the last one's is there with 0.
    users: HashMap<u32, u32>,
}

impl Held {
    fn is_idle(&self) -> bool {
        self.users.values().all(|processes| *processes == 0)
    }

    /// Whether it counts as that of another user than this one and root.
    fn is_of_others(&self, user: u32) -> bool {
        self.users.keys().any(|other| ![user, ROOT].contains(other))
    }

    fn size(&self) -> Size {
        Size {
            pages: self.pages,
            rows: self.rows,
        }
    }
}

/// The allocation of the tables. The rows themselves are only in what it hands out.
#[derive(Debug)]
pub struct Store {
    limits: Limits,
    shares: Shares,
    rules: SharedRules,
    /// The reserved rules, until they are written with the first module.
    reserved: Vec<NewRule>,
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
        let mut rules = SharedRules::new(limits.rules as usize);
        let mut reserved = Vec::new();
        rules.take(&[Rule::NONE, Rule::UNSUPPORTED], &mut reserved);
        Self {
            limits,
            shares: Shares::new(limits),
            rules,
            reserved,
            modules: Runs::new(limits.modules),
            pages: Runs::new(limits.pages),
            chunks: Vec::new(),
            held: HashMap::new(),
            idle: VecDeque::new(),
        }
    }

    /// Number of different rules of all modules.
    #[must_use]
    pub fn rules(&self) -> usize {
        self.rules.len()
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

    /// The index of the module that is known by `key`, which one more process of a user uses; `None` where it is to be
    /// [`Self::add`]ed.
    ///
    /// # Errors
    /// Where the user's processes use their share already, when nothing has changed.
    pub fn acquire(&mut self, key: &Key, user: u32) -> Result<Option<u32>, Refused> {
        let Some(held) = self.held.get_mut(key) else {
            return Ok(None);
        };
        let was_idle = held.is_idle();
        if let Some(processes) = held.users.get_mut(&user) {
            *processes += 1;
        } else {
            let (is_users, size) = (held.is_of_others(user), held.size());
            let rules: Vec<Option<u16>> = held.rules.iter().copied().map(Some).collect();
            self.shares.admit(user, is_users, size, &rules)?;
            self.shares.add(user, is_users, size, &held.rules);
            held.users.insert(user, 1);
            // It counted as the last one's, whose processes use it no more.
            let last = held.users.iter().find(|(_, processes)| **processes == 0);
            if let Some(last) = last.map(|(last, _)| *last) {
                held.users.remove(&last);
                self.shares
                    .remove(last, held.is_of_others(last), size, &held.rules);
            }
        }
        if was_idle {
            self.idle.retain(|idle| idle != key);
        }
        Ok(Some(held.module))
    }

    /// One process of a user less. The caller has removed its mappings from the tables before.
    pub fn release(&mut self, key: &Key, user: u32) {
        let Some(held) = self.held.get_mut(key) else {
            return;
        };
        let Some(processes) = held.users.get_mut(&user).filter(|processes| **processes > 0) else {
            return;
        };
        *processes -= 1;
        let is_last_of_user = *processes == 0;
        if held.is_idle() {
            self.idle.push_back(Arc::clone(key));
        } else if is_last_of_user {
            held.users.remove(&user);
            let is_users = held.is_of_others(user);
            self.shares.remove(user, is_users, held.size(), &held.rules);
        }
    }

    /// Gives a module its place; a process of a user uses it.
    ///
    /// # Errors
    /// Where it has a place already, there is none, or the user's processes use their share, when nothing has changed.
    pub fn add(&mut self, key: &Key, user: u32, table: &Table) -> Result<Placement, Refused> {
        if self.held.contains_key(key) {
            return Err(Refused::Held);
        }
        let size = Size {
            pages: u32::try_from(table.pages()).unwrap_or(u32::MAX),
            rows: u32::try_from(table.rows.len()).unwrap_or(u32::MAX),
        };
        let known: Vec<Option<u16>> = table.rules.iter().map(|rule| self.rules.index(rule)).collect();
        self.shares.admit(user, false, size, &known)?;
        if !self.rules.has_room(&table.rules) {
            return Err(Refused::Rules(self.limits.rules));
        }
        let (mut held, placed) = self.place(user, size, table)?;

        let mut new_rules = std::mem::take(&mut self.reserved);
        let rules = self.rules.take(&table.rules, &mut new_rules);
        let mut pieces = placed.pieces;
        for row in pieces.iter_mut().flat_map(|piece| &mut piece.rows) {
            row.rule = rules
                .get(usize::from(row.rule))
                .copied()
                .unwrap_or(Rule::UNSUPPORTED_INDEX);
        }
        held.rules = distinct(&rules);
        self.shares.add(user, false, size, &held.rules);
        let placement = Placement {
            new_rules,
            pieces,
            pages: placed.pages,
            module: held.module,
            record: Module {
                first_page: held.first_page,
                pages: held.pages,
            },
        };
        self.held.insert(Arc::clone(key), held);
        Ok(placement)
    }

    /// Finds places for a module and all that it has.
    fn place(&mut self, user: u32, size: Size, table: &Table) -> Result<(Held, Placed), Refused> {
        let Limits { modules, pages, .. } = self.limits;
        let module = self
            .modules
            .take_below(1, shares::reach(user, modules))
            .ok_or(Refused::Modules(modules))?;
        let Some(first_page) = self.pages.take_below(size.pages, shares::reach(user, pages)) else {
            self.modules.give_back(module, 1);
            return Err(Refused::Pages(pages));
        };
        let mut held = Held {
            module,
            first_page,
            pages: size.pages,
            rows: size.rows,
            runs: Vec::new(),
            rules: Vec::new(),
            users: HashMap::from([(user, 1)]),
        };
        let reach = shares::reach(user, self.limits.chunks) as usize;
        let Some(placed) = self.place_rows(reach, table, &mut held.runs) else {
            self.give_back(&held);
            return Err(Refused::Chunks(self.limits.chunks));
        };
        Ok((held, placed))
    }

    /// Forgets a module that is idle, so that there may be room for one that was refused, and gives its index: its record is to
    /// be zeroed before anything else is added. `None` where that helps nothing.
    ///
    /// Where it is the share of a user that is used, one goes that counts as theirs; whichever has been idle longest.
    pub fn evict(&mut self, refused: Refused) -> Option<u32> {
        let goes = |held: &Held| match refused {
            Refused::Held => false,
            Refused::OfUser { user, .. } => held.users.contains_key(&user),
            Refused::OfUsers(_) => held.is_of_others(ROOT),
            Refused::Modules(_) | Refused::Pages(_) | Refused::Chunks(_) | Refused::Rules(_) => true,
        };
        let place = self
            .idle
            .iter()
            .position(|key| self.held.get(key).is_some_and(goes))?;
        let held = self.held.remove(&self.idle.remove(place)?)?;
        for user in held.users.keys() {
            self.shares
                .remove(*user, held.is_of_others(*user), held.size(), &held.rules);
        }
        self.give_back(&held);
        Some(held.module)
    }

    fn give_back(&mut self, held: &Held) {
        let Held {
            module,
            first_page,
            pages,
            rows: _,
            runs,
            rules,
            users: _,
        } = held;
        self.modules.give_back(*module, 1);
        self.pages.give_back(*first_page, *pages);
        for (chunk, place, length) in runs {
            if let Some(chunk) = self.chunks.get_mut(*chunk as usize) {
                chunk.give_back(*place, *length);
            }
        }
        self.rules.give_back(rules);
    }

    /// Finds places for all pages' rows, in the first `reach` chunks. What was taken is in `runs`, also where there is not enough.
    fn place_rows(&mut self, reach: usize, table: &Table, runs: &mut Vec<(u32, u32, u32)>) -> Option<Placed> {
        let mut placed = Placed {
            pages: Vec::with_capacity(table.pages()),
            pieces: Vec::new(),
        };
        while placed.pages.len() < table.pages() {
            let from = placed.pages.len();
            let rest: usize = (from..table.pages()).map(|page| table.page(page).len()).sum();
            let (chunk, room) = self.room(reach, u32::try_from(rest).unwrap_or(u32::MAX))?;
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
    fn room(&mut self, reach: usize, rows: u32) -> Option<(u32, u32)> {
        let free = |chunks: &[Runs]| {
            let lengths: Vec<u32> = chunks.iter().map(Runs::longest).collect();
            let fits = lengths.iter().position(|length| *length >= rows);
            let best = fits.or_else(|| (0..lengths.len()).max_by_key(|chunk| lengths[*chunk]))?;
            Some((u32::try_from(best).ok()?, lengths[best]))
        };
        let found = free(&self.chunks[..self.chunks.len().min(reach)]);
        if found.is_some_and(|(_, length)| length >= rows.min(CHUNK_ROWS)) {
            return found;
        }
        if self.chunks.len() < reach {
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
