//! The slow path: some milliseconds of computing, in functions that no fast request enters.

use std::hint::black_box;

use crate::request::{digest, mix};

/// Entries of the index, and the pages behind it. Together they make a rebuild take milliseconds.
const ENTRIES: usize = 60_000;
const PAGES_BYTES: usize = 1 << 20;
const PAGE_BYTES: usize = 4096;

/// One connection's index, allocated once.
#[derive(Debug)]
pub struct Index {
    entries: Vec<u64>,
    pages: Vec<u8>,
}

impl Index {
    /// An index of its full size, its memory touched.
    pub fn new() -> Self {
        Self {
            entries: vec![1; ENTRIES],
            pages: vec![1; PAGES_BYTES],
        }
    }
}

/// Fills the index anew from `seed` and brings it in order.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "Rust" fn rebuild_index(index: &mut Index, seed: u64) -> u64 {
    let mut state = seed;
    for entry in &mut index.entries {
        state = mix(state);
        *entry = state;
    }
    sort_entries(&mut index.entries);
    let checksum = checksum_pages(&index.pages);
    black_box(checksum ^ index.entries[index.entries.len() / 2])
}

/// Sorts the entries.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "Rust" fn sort_entries(entries: &mut [u64]) {
    entries.sort_unstable();
    black_box(entries);
}

/// Digests all pages.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "Rust" fn checksum_pages(pages: &[u8]) -> u64 {
    let sum = pages
        .chunks(PAGE_BYTES)
        .fold(0, |sum: u64, page| sum.rotate_left(1) ^ digest(page));
    black_box(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rebuilt_index_is_sorted_and_depends_on_its_seed() {
        let mut index = Index::new();
        let first = rebuild_index(&mut index, 1);
        assert!(index.entries.is_sorted());
        assert_ne!(first, rebuild_index(&mut index, 2));
        assert_eq!(first, rebuild_index(&mut index, 1));
    }
}
