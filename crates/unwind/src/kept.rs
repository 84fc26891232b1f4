//! A table as bytes, as it is kept on disk, and back.
//!
//! What is read back is a table that [`build`](super::build) could have made, whatever the bytes are, and one that was made by
//! this very code: its sources are part of what is compared.

use profiler_common::unwind::{CHUNK_ROWS, PAGE_BYTES, Row, Rule};

use super::table::{Counts, MAX_MODULE_PAGES, MAX_MODULE_ROWS, MAX_MODULE_RULES, Table};

const MAGIC: [u8; 8] = *b"unwind\0\x01";
/// Bytes before the tables: the magic number, the checksum of what follows it, what made it, the base, four counts, and
/// how many pages, rows and rules there are.
const HEAD: usize = 8 + 4 + 8 + 8 + 4 * 4 + 3 * 4;
const RULE: usize = size_of::<Rule>();
const ROW: usize = size_of::<Row>();

/// What tells tables of this code from those of any other: a table that was made wrong is not to outlive the mistake.
const MAKER: u64 = {
    let sources: [&[u8]; 13] = [
        include_bytes!("collect.rs"),
        include_bytes!("eh_return.rs"),
        include_bytes!("elf.rs"),
        include_bytes!("entry.rs"),
        include_bytes!("expression.rs"),
        include_bytes!("flatten.rs"),
        include_bytes!("kept.rs"),
        include_bytes!("padding.rs"),
        include_bytes!("rule_set.rs"),
        include_bytes!("table.rs"),
        include_bytes!("translate.rs"),
        include_bytes!("../../../profiler-common/src/unwind/rule.rs"),
        env!("CARGO_PKG_VERSION").as_bytes(),
    ];
    let (mut hash, mut file) = (0xcbf2_9ce4_8422_2325_u64, 0);
    while file < sources.len() {
        let mut at = 0;
        while at < sources[file].len() {
            hash = (hash ^ sources[file][at] as u64).wrapping_mul(0x100_0000_01b3);
            at += 1;
        }
        file += 1;
    }
    hash
};

impl Table {
    /// The table, for [`Self::from_bytes`].
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let Counts {
            entries,
            damaged_entries,
            rows,
            unsupported_rows,
        } = self.counts;
        let length = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let mut bytes = Vec::with_capacity(
            HEAD + self.rules.len() * RULE + self.page_starts.len() * 4 + self.rows.len() * ROW,
        );
        bytes.extend(MAGIC);
        bytes.extend([0; 4]);
        bytes.extend(MAKER.to_le_bytes());
        bytes.extend(self.base.to_le_bytes());
        for number in [
            entries,
            damaged_entries,
            rows,
            unsupported_rows,
            length(self.pages()),
            length(self.rows.len()),
            length(self.rules.len()),
        ] {
            bytes.extend(number.to_le_bytes());
        }
        for rule in &self.rules {
            bytes.extend(rule_bytes(rule));
        }
        for start in &self.page_starts {
            bytes.extend(start.to_le_bytes());
        }
        for row in &self.rows {
            bytes.extend(row.offset.to_le_bytes());
            bytes.extend(row.rule.to_le_bytes());
        }
        let checksum = crc32fast::hash(&bytes[12..]);
        bytes[8..12].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// What [`Self::to_bytes`] gave; `None` of what is damaged, or was made by other code.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let is_whole = bytes.get(..8)? == MAGIC
            && word(bytes, 8)? == crc32fast::hash(bytes.get(12..)?)
            && long(bytes, 12)? == MAKER;
        is_whole.then_some(())?;
        let [pages, rows, rules] = [44, 48, 52].map(|at| word(bytes, at).map(|count| count as usize));
        let (pages, rows, rules) = (pages?, rows?, rules?);
        let most_pages = usize::try_from(MAX_MODULE_PAGES).ok()?;
        let is_bounded = pages <= most_pages && rows <= MAX_MODULE_ROWS + pages && rules <= MAX_MODULE_RULES;
        is_bounded.then_some(())?;
        let mut rest = bytes.get(HEAD..)?;
        let mut part = |count: usize, size: usize| {
            let (part, behind) = rest.split_at_checked(count * size)?;
            rest = behind;
            Some(part.chunks_exact(size))
        };
        let (rules, starts, rows) = (part(rules, RULE)?, part(pages + 1, 4)?, part(rows, ROW)?);
        rest.is_empty().then_some(())?;
        let table = Self {
            base: long(bytes, 20)?,
            page_starts: starts.map(|start| word(start, 0)).collect::<Option<_>>()?,
            rows: rows
                .map(|row| {
                    Some(Row {
                        offset: half(row, 0)?,
                        rule: half(row, 2)?,
                    })
                })
                .collect::<Option<_>>()?,
            rules: rules.map(rule_of).collect::<Option<_>>()?,
            counts: Counts {
                entries: word(bytes, 28)?,
                damaged_entries: word(bytes, 32)?,
                rows: word(bytes, 36)?,
                unsupported_rows: word(bytes, 40)?,
            },
        };
        table.is_sound().then_some(table)
    }

    /// Whether it is put together as [`build`](super::build) does.
    fn is_sound(&self) -> bool {
        let reserved = [Rule::NONE, Rule::UNSUPPORTED];
        let bounds = (self.page_starts.first(), self.page_starts.last());
        let page_is_sound = |page: usize| {
            let rows = self.page(page);
            rows.len() <= CHUNK_ROWS as usize
                && rows.first().is_none_or(|row| row.offset == 0)
                && rows.windows(2).all(|pair| pair[0].offset < pair[1].offset)
        };
        self.base.is_multiple_of(PAGE_BYTES)
            && self.rules.starts_with(&reserved)
            && bounds == (Some(&0), u32::try_from(self.rows.len()).ok().as_ref())
            && self.page_starts.is_sorted()
            && (0..self.pages()).all(page_is_sound)
            && self
                .rows
                .iter()
                .all(|row| usize::from(row.rule) < self.rules.len())
    }
}

fn rule_bytes(rule: &Rule) -> [u8; RULE] {
    let Rule {
        cfa,
        cfa_register,
        return_address,
        saved,
        cfa_offset,
        rbp_offset,
        rbx_offset,
        extra,
    } = *rule;
    let mut bytes = [0; RULE];
    bytes[..4].copy_from_slice(&[cfa, cfa_register, return_address, saved]);
    bytes[4..8].copy_from_slice(&cfa_offset.to_le_bytes());
    bytes[8..12].copy_from_slice(&rbp_offset.to_le_bytes());
    bytes[12..14].copy_from_slice(&rbx_offset.to_le_bytes());
    bytes[14..].copy_from_slice(&extra.to_le_bytes());
    bytes
}

fn rule_of(bytes: &[u8]) -> Option<Rule> {
    let &[cfa, cfa_register, return_address, saved] = bytes.first_chunk()?;
    Some(Rule {
        cfa,
        cfa_register,
        return_address,
        saved,
        cfa_offset: word(bytes, 4)?.cast_signed(),
        rbp_offset: word(bytes, 8)?.cast_signed(),
        rbx_offset: half(bytes, 12)?.cast_signed(),
        extra: half(bytes, 14)?.cast_signed(),
    })
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::build;

    /// Bytes with the checksum that is right of them.
    fn checked(mut bytes: Vec<u8>) -> Vec<u8> {
        if bytes.len() >= 12 {
            let checksum = crc32fast::hash(&bytes[12..]);
            bytes[8..12].copy_from_slice(&checksum.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn a_table_comes_back_as_it_was() {
        for path in ["/bin/true", "/proc/self/exe"] {
            let table = build(&fs::read(path).unwrap()).unwrap();
            assert_eq!(Table::from_bytes(&table.to_bytes()), Some(table));
        }
    }

    #[test]
    fn refuses_damaged_tables() {
        let bytes = build(&fs::read("/bin/true").unwrap()).unwrap().to_bytes();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            assert_eq!(Table::from_bytes(&damaged), None, "byte {at}");
        }
        for length in 0..bytes.len() {
            assert_eq!(Table::from_bytes(&bytes[..length]), None, "{length} bytes");
            assert_eq!(Table::from_bytes(&checked(bytes[..length].to_vec())), None);
        }
        assert_eq!(Table::from_bytes(&checked([&bytes[..], &[0]].concat())), None);
    }

    #[test]
    fn refuses_tables_of_another_version() {
        let mut bytes = build(&fs::read("/bin/true").unwrap()).unwrap().to_bytes();
        bytes[12] ^= 1;
        assert_eq!(Table::from_bytes(&checked(bytes)), None);
    }

    #[test]
    fn refuses_inconsistent_tables_with_a_valid_checksum() {
        let table = build(&fs::read("/bin/true").unwrap()).unwrap();
        let changes: [fn(&mut Table); 8] = [
            |table| table.base += 1,
            |table| table.page_starts[0] = 1,
            |table| *table.page_starts.last_mut().unwrap() += 1,
            |table| table.page_starts[1] = u32::MAX,
            |table| table.rows.swap(1, 2),
            |table| table.rows[0].offset = 1,
            |table| table.rows[1].rule = u16::MAX,
            |table| table.rules[0] = Rule::ENTRY,
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let mut changed = table.clone();
            change(&mut changed);
            assert_eq!(Table::from_bytes(&changed.to_bytes()), None, "change {number}");
        }
        for at in [44, 48, 52] {
            let mut bytes = table.to_bytes();
            bytes[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
            assert_eq!(Table::from_bytes(&checked(bytes)), None, "a count at {at}");
        }
    }
}
