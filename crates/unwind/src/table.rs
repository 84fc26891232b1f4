//! A module's rows, cut into pages.

use gimli::{DebugFrame, EhFrame, LittleEndian};
use profiler_common::unwind::{PAGE_BYTES, Row, Rule};
use profiler_elf::ElfError;

use super::{
    collect::{self, Collected},
    elf::{self, Kind, Source},
    entry,
    flatten::flatten,
    padding::is_padding,
    rule_set::RuleSet,
};

/// Pages of a module: 1 GiB of text, first to last byte.
pub const MAX_MODULE_PAGES: u64 = 1 << 14;

/// Rows that a section may hold before equal neighbours are merged.
pub const MAX_MODULE_ROWS: usize = collect::MAX_ROWS;

/// Distinct rules of a module; further ones are unsupported. The most seen is below 1,000.
pub(super) const MAX_MODULE_RULES: usize = 4096;

/// Why a file has no table.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BuildError {
    /// No ELF file for x86-64, or a damaged one.
    #[error(transparent)]
    Elf(#[from] ElfError),
    /// The file contradicts itself.
    #[error("a damaged ELF file: {0}")]
    Damaged(&'static str),
    /// Neither `.eh_frame` nor `.debug_frame`.
    #[error("no unwind information: neither .eh_frame nor .debug_frame")]
    NoUnwindInformation,
    /// More than [`MAX_MODULE_PAGES`].
    #[error("its text spans {0} bytes: more than is taken")]
    TextTooLarge(u64),
    /// More than [`MAX_MODULE_ROWS`].
    #[error("its unwind information has more rows than are taken")]
    TooManyRows,
    /// Its entries refer to each other so that reading them takes far longer than their size warrants.
    #[error("its unwind information is contrived to take long to read")]
    TooMuchWork,
}

/// What a table was made of.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Entries (functions, or parts of them) whose rows were taken.
    pub entries: u32,
    /// Entries that could not be read.
    pub damaged_entries: u32,
    /// Rows, those that repeat a rule at the beginning of a page included.
    pub rows: u32,
    /// Rows of them that say that the unwind information has a form that is not supported.
    pub unsupported_rows: u32,
}

/// A module's unwind table, independent of all others: what may be kept on disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    /// Address of the first page in the file's own address space, a multiple of [`PAGE_BYTES`].
    pub base: u64,
    /// The index of each page's first row, and at the end the number of rows.
    pub page_starts: Vec<u32>,
    /// The rows of all pages. A page that has any has one at its offset 0.
    pub rows: Vec<Row>,
    /// What [`Row::rule`] numbers, the reserved ones included.
    pub rules: Vec<Rule>,
    /// What it was made of.
    pub counts: Counts,
}

/// Makes the table of an ELF file, or of the vDSO's image as it is in memory.
///
/// # Errors
/// Where the bytes are no x86-64 ELF file, have no unwind information, or exceed a limit. Single entries that are
/// damaged or not supported are no error: they are counted.
pub fn build(bytes: &[u8]) -> Result<Table, BuildError> {
    let source = elf::read(bytes)?;
    let base = source.text.start & !(PAGE_BYTES - 1);
    let length = source.text.end - base;
    let pages = length.div_ceil(PAGE_BYTES);
    if pages > MAX_MODULE_PAGES {
        return Err(BuildError::TextTooLarge(length));
    }
    let mut rules = RuleSet::new(MAX_MODULE_RULES);
    let mut collected = collected(&source, base, &mut rules)?;
    if let Some(entry) = source.entry.and_then(|entry| entry::extent(&source.text, entry)) {
        collected.add_unless_covered(
            u32::try_from(entry.start.saturating_sub(base)).unwrap_or(u32::MAX),
            u32::try_from(entry.end.saturating_sub(base)).unwrap_or(u32::MAX),
            rules.intern(Rule::ROOT),
        );
    }

    let rows = flatten(&collected, |start, end| {
        source
            .text
            .bytes(base + u64::from(start), base + u64::from(end))
            .is_some_and(is_padding)
    });
    let mut table = Table {
        base,
        page_starts: Vec::new(),
        rows: Vec::new(),
        rules: rules.rules().to_vec(),
        counts: Counts {
            entries: u32::try_from(collected.spans.len()).unwrap_or(u32::MAX),
            damaged_entries: collected.damaged_entries,
            ..Counts::default()
        },
    };
    table.cut(&rows, u32::try_from(pages).unwrap_or(u32::MAX));
    Ok(table)
}

fn collected(source: &Source<'_>, base: u64, rules: &mut RuleSet) -> Result<Collected, BuildError> {
    let (bytes, bases, text) = (&*source.section, &source.bases, &source.text);
    match source.kind {
        Kind::EhFrame => {
            let section = EhFrame::new(bytes, LittleEndian);
            collect::collect(&section, bytes.len(), bases, text, base, rules)
        }
        Kind::DebugFrame => {
            let mut section = DebugFrame::new(bytes, LittleEndian);
            section.set_address_size(8);
            collect::collect(&section, bytes.len(), bases, text, base, rules)
        }
    }
}

impl Table {
    /// Number of pages.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.page_starts.len().saturating_sub(1)
    }

    /// The rows of a page; none where it has no unwind information, or is not there.
    #[must_use]
    pub fn page(&self, page: usize) -> &[Row] {
        match (self.page_starts.get(page), self.page_starts.get(page + 1)) {
            (Some(from), Some(to)) => self.rows.get(*from as usize..*to as usize).unwrap_or_default(),
            _ => &[],
        }
    }

    fn cut(&mut self, rows: &[(u32, u16)], pages: u32) {
        self.rows.reserve_exact(rows.len() + pages as usize);
        let mut rows = rows.iter().copied().peekable();
        let mut rule = Rule::NONE_INDEX;
        for page in 0..pages {
            let start = self.rows.len();
            self.page_starts.push(u32::try_from(start).unwrap_or(u32::MAX));
            self.rows.push(Row { offset: 0, rule });
            while let Some((at, next)) = rows.next_if(|row| row.0 >> 16 == page) {
                let offset = u16::try_from(at & 0xffff).unwrap_or_default();
                rule = next;
                match self.rows.last_mut() {
                    Some(first) if offset == 0 => first.rule = rule,
                    _ => self.rows.push(Row { offset, rule }),
                }
            }
            if self.rows.len() == start + 1 && rule == Rule::NONE_INDEX {
                self.rows.pop();
            }
        }
        self.page_starts
            .push(u32::try_from(self.rows.len()).unwrap_or(u32::MAX));
        self.rows.shrink_to_fit();
        let unsupported = self
            .rows
            .iter()
            .filter(|row| row.rule == Rule::UNSUPPORTED_INDEX)
            .count();
        self.counts.rows = u32::try_from(self.rows.len()).unwrap_or(u32::MAX);
        self.counts.unsupported_rows = u32::try_from(unsupported).unwrap_or(u32::MAX);
    }
}
