//! Unwind tables as they are kept on disk.
//!
//! An input is what lies behind the part that only says whether the rest is whole and whose it is.

use profiler_common::unwind::Rule;
use profiler_unwind::{Counts, Table};

use super::unwind::check;

/// The magic number, the checksum of what follows it, and what made the table.
const COMPARED: usize = 8 + 4 + 8;

/// Reads an input as it is, and with what is compared put right.
///
/// # Panics
/// Where what is read is no table that could have been kept.
pub fn run(data: &[u8]) {
    assert!(Table::from_bytes(data).is_none_or(|table| table.to_bytes() == data));
    let kept = put_right(data);
    if let Some(table) = Table::from_bytes(&kept) {
        assert_eq!(table.to_bytes(), kept);
        check(&table, data);
    }
}

/// The bytes behind what this code writes before them.
fn put_right(data: &[u8]) -> Vec<u8> {
    let least = Table {
        base: 0,
        page_starts: vec![0],
        rows: Vec::new(),
        rules: vec![Rule::NONE, Rule::UNSUPPORTED],
        counts: Counts::default(),
    };
    let mut kept = least.to_bytes();
    kept.truncate(COMPARED);
    kept.extend(data);
    let checksum = crc32fast::hash(&kept[12..]);
    kept[8..12].copy_from_slice(&checksum.to_le_bytes());
    kept
}
