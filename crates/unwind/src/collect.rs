//! Every entry's rows, in work that is bounded by the section's size.

use std::{collections::HashMap, ops::Range};

use gimli::{
    BaseAddresses, CieOrFde, CommonInformationEntry, EndianSlice, FrameDescriptionEntry, LittleEndian,
    PartialFrameDescriptionEntry, Register, UnwindContext, UnwindOffset, UnwindSection,
};
use profiler_common::unwind::{Rule, register::RIP};

use super::{
    eh_return::{self, Saves},
    elf::Text,
    rule_set::RuleSet,
    table::BuildError,
    translate::translate,
};

/// How section bytes are read.
pub(super) type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// Rows of one module, before equal neighbours are merged across entries. The most seen in a
/// distribution's files is 1.7 million.
pub(super) const MAX_ROWS: usize = 1 << 23;

/// Bytes of instructions evaluated per byte of the section. A common entry's are evaluated again for each
/// entry that uses it, about once its own length in files as they are.
const WORK_PER_BYTE: u64 = 16;

/// Common entries kept parsed. Linked files have a few.
const MAX_COMMON_ENTRIES: usize = 256;

/// Text from one entry: rows `first_row..first_row + rows` of [`Collected::rows`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Span {
    /// Offset from the base.
    pub start: u32,
    /// Offset after the last byte.
    pub end: u32,
    pub first_row: u32,
    pub rows: u32,
}

/// What the section says, in its order.
#[derive(Default, Debug)]
pub(super) struct Collected {
    pub spans: Vec<Span>,
    /// Offset from the base and rule, ascending within a span.
    pub rows: Vec<(u32, u16)>,
    /// Entries that could not be read at all.
    pub damaged_entries: u32,
}

impl Collected {
    /// Adds text with one rule, unless an entry covers its beginning.
    pub fn add_unless_covered(&mut self, start: u32, end: u32, rule: u16) {
        if self
            .spans
            .iter()
            .any(|span| (span.start..span.end).contains(&start))
        {
            return;
        }
        if let Ok(first_row) = u32::try_from(self.rows.len()) {
            self.rows.push((start, rule));
            self.spans.push(Span {
                start,
                end,
                first_row,
                rows: 1,
            });
        }
    }
}

/// Reads all entries. Offsets count from `base`, which lies at most 4 GiB beneath the text's end.
pub(super) fn collect<'a, S>(
    section: &S,
    section_bytes: usize,
    bases: &BaseAddresses,
    text: &Text<'_>,
    base: u64,
    rules: &mut RuleSet,
) -> Result<Collected, BuildError>
where
    S: UnwindSection<Slice<'a>>,
    S::Offset: UnwindOffset<usize>,
{
    let mut collector = Collector {
        section,
        bases,
        base,
        context: UnwindContext::new(),
        common: HashMap::new(),
        work_left: (section_bytes as u64 + 1024) * WORK_PER_BYTE,
        last: (Rule::NONE, Rule::NONE_INDEX),
        rules,
        out: Collected::default(),
    };
    let mut entries = section.entries(bases);
    loop {
        match entries.next() {
            Ok(Some(CieOrFde::Fde(entry))) => collector.entry(&entry, text)?,
            Ok(Some(CieOrFde::Cie(_))) => {}
            Ok(None) => break,
            // Where an entry ends is not known any more: what came before it stands.
            Err(_) => {
                collector.out.damaged_entries += 1;
                break;
            }
        }
    }
    Ok(collector.out)
}

struct Collector<'a, 'b, S: UnwindSection<Slice<'a>>> {
    section: &'b S,
    bases: &'b BaseAddresses,
    base: u64,
    context: UnwindContext<usize>,
    common: HashMap<usize, CommonInformationEntry<Slice<'a>>>,
    work_left: u64,
    /// The rule before, which the next one often is.
    last: (Rule, u16),
    rules: &'b mut RuleSet,
    out: Collected,
}

impl<'a, S> Collector<'a, '_, S>
where
    S: UnwindSection<Slice<'a>>,
    S::Offset: UnwindOffset<usize>,
{
    fn entry(
        &mut self,
        entry: &PartialFrameDescriptionEntry<'_, S, Slice<'a>>,
        text: &Text<'_>,
    ) -> Result<(), BuildError> {
        let Ok(fde) = self.parse(entry)? else {
            self.out.damaged_entries += 1;
            return Ok(());
        };
        self.spend(fde.entry_len() as u64 + fde.cie().entry_len() as u64)?;
        let start = fde.initial_address().max(text.start);
        let end = fde.initial_address().saturating_add(fde.len()).min(text.end);
        let (Ok(start), Ok(end)) = (
            u32::try_from(start - self.base),
            u32::try_from(end.saturating_sub(self.base)),
        ) else {
            return Ok(());
        };
        if start >= end {
            return Ok(());
        }
        let first_row = self.out.rows.len();
        if let Some((exit, saves)) = self.rows(&fde, start, end)? {
            self.lose_overwritten(text, first_row, start..end, exit, saves)?;
        }
        if self.out.rows.len() > MAX_ROWS {
            return Err(BuildError::TooManyRows);
        }
        if let (Ok(first_row), Ok(rows)) = (
            u32::try_from(first_row),
            u32::try_from(self.out.rows.len() - first_row),
        ) {
            self.out.spans.push(Span {
                start,
                end,
                first_row,
                rows,
            });
        }
        Ok(())
    }

    /// Appends the entry's rows from `start` on, at least one. What it returns is where it leaves to a handler, if it does.
    fn rows(
        &mut self,
        fde: &FrameDescriptionEntry<Slice<'a>>,
        start: u32,
        end: u32,
    ) -> Result<Option<(u32, Saves)>, BuildError> {
        let signal = fde.is_signal_trampoline();
        let usual = fde.cie().return_address_register() == Register(RIP.into());
        let base = self.base;
        let first = self.out.rows.len();
        // Up to where the rows that could be read reach.
        let mut covered = start;
        let mut exit = None;
        if let Ok(mut table) = fde.rows(self.section, self.bases, &mut self.context) {
            while let Ok(Some(row)) = table.next_row() {
                let to = row.end_address().saturating_sub(base).min(end.into());
                let Ok(to) = u32::try_from(to) else { break };
                if to <= covered {
                    continue;
                }
                if exit.is_none() {
                    exit = eh_return::exit(row).map(|saves| (covered, saves));
                }
                let rule = if usual {
                    translate(self.section, row, signal)
                } else {
                    Rule::UNSUPPORTED
                };
                if rule != self.last.0 {
                    self.last = (rule, self.rules.intern(rule));
                }
                let index = self.last.1;
                let rows = &mut self.out.rows;
                if rows.len() == first || rows.last().is_some_and(|row| row.1 != index) {
                    rows.push((covered, index));
                }
                covered = to;
                if rows.len() > MAX_ROWS {
                    return Err(BuildError::TooManyRows);
                }
            }
        }
        if covered < end {
            self.out.rows.push((covered, Rule::UNSUPPORTED_INDEX));
        }
        Ok(exit)
    }

    /// Takes out of an entry's rows, those from `first_row` on, what its function overwrites before it leaves to a handler
    /// at `exit`.
    fn lose_overwritten(
        &mut self,
        text: &Text<'_>,
        first_row: usize,
        entry: Range<u32>,
        exit: u32,
        saves: Saves,
    ) -> Result<(), BuildError> {
        self.spend(u64::from(exit - entry.start))?;
        let address = |offset: u32| self.base + u64::from(offset);
        let Some(leaving) = eh_return::leaving(text, address(entry.start), address(exit), saves) else {
            return Ok(());
        };
        let offset = |address: u64| u32::try_from(address - self.base).unwrap_or(u32::MAX);
        let (from, end) = (offset(leaving.overwritten.start), offset(leaving.end));
        let jump = offset(leaving.overwritten.end);
        let none = self.rules.intern(Rule::OVERWRITTEN);
        let rows = self.out.rows.split_off(first_row);
        for (index, (start, rule)) in rows.iter().enumerate() {
            let next = rows.get(index + 1).map_or(entry.end, |next| next.0);
            let known = self.rules.rules().get(usize::from(*rule));
            let kept = known.and_then(|rule| rule.without_saved(leaving.return_address?));
            let kept = kept.map_or(none, |rule| self.rules.intern(rule));
            let parts = [
                (*start, from, *rule),
                (from, jump, kept),
                (jump, end, none),
                (end, next, *rule),
            ];
            for (from, to, rule) in parts {
                let (from, to) = (from.max(*start), to.min(next));
                if from < to {
                    self.out.rows.push((from, rule));
                }
            }
        }
        Ok(())
    }

    fn parse(
        &mut self,
        entry: &PartialFrameDescriptionEntry<'_, S, Slice<'a>>,
    ) -> Result<gimli::Result<FrameDescriptionEntry<Slice<'a>>>, BuildError> {
        let Self { section, common, .. } = self;
        let mut parsed = 0;
        let fde = entry.parse(|_, bases, offset| {
            let key = UnwindOffset::into(offset);
            if let Some(entry) = common.get(&key) {
                return Ok(entry.clone());
            }
            let entry = section.cie_from_offset(bases, offset)?;
            parsed = entry.entry_len() as u64;
            if common.len() == MAX_COMMON_ENTRIES {
                common.clear();
            }
            common.insert(key, entry.clone());
            Ok(entry)
        });
        self.spend(parsed)?;
        Ok(fde)
    }

    fn spend(&mut self, work: u64) -> Result<(), BuildError> {
        self.work_left = self.work_left.checked_sub(work).ok_or(BuildError::TooMuchWork)?;
        Ok(())
    }
}
