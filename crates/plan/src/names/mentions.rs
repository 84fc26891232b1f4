//! Which symbols' names contain a piece of text, by one search of the string tables.
//!
//! A search of each name by itself starts over for each, and takes several times as long: most hold a few dozen bytes,
//! anywhere in the file.

use std::ops::Range;

use memchr::memmem::Finder;

/// Places of a text that are kept. Of one that is everywhere, names are searched by themselves.
const MAX_PLACES: usize = 1 << 20;

/// Where a text begins in string tables.
pub struct Mentions {
    /// Offsets in the file, in order.
    places: Vec<u64>,
    /// Bytes of the text.
    length: u64,
}

impl Mentions {
    /// Searches string tables, which are ranges of the file; `None` where the text is at too many places.
    pub fn find(file: &[u8], tables: impl Iterator<Item = Range<usize>>, text: &Finder<'_>) -> Option<Self> {
        let mut places = Vec::new();
        for table in tables {
            let mut from = table.start;
            // Places may overlap: a name may be the end of another one.
            while let Some(at) = file.get(from..table.end).and_then(|rest| text.find(rest)) {
                if places.len() >= MAX_PLACES {
                    return None;
                }
                places.push((from + at) as u64);
                from += at + 1;
            }
        }
        // Two kinds of symbols may share a table.
        places.sort_unstable();
        Some(Self {
            places,
            length: text.needle().len() as u64,
        })
    }

    /// Whether a name, a range of the file within a string table, contains the text.
    pub fn are_in(&self, name: &Range<u64>) -> bool {
        let first = self.places.partition_point(|place| *place < name.start);
        self.places
            .get(first)
            .is_some_and(|place| *place + self.length <= name.end)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn names_that_contain_a_text_are_those_that_a_search_of_each_finds(
            names in prop::collection::vec("[ab@]{0,12}", 1..12),
            text in "[ab]{1,4}",
            cuts in prop::collection::vec((0_usize..12, 0_usize..12, 0_usize..12), 1..24),
        ) {
            let mut file = b"abab\0".to_vec();
            let table = file.len();
            let mut starts = Vec::new();
            for name in &names {
                starts.push(file.len());
                file.extend_from_slice(name.as_bytes());
                file.push(0);
            }
            let end = file.len();
            file.extend_from_slice(b"abab");
            let finder = Finder::new(&text);
            let found = Mentions::find(&file, std::iter::once(table..end), &finder).unwrap();
            for (name, skipped, cut) in cuts {
                let name = name % names.len();
                // The end of a name is another's, and a version is no part of it.
                let length = names[name].len();
                let (skipped, cut) = (skipped.min(length), cut.min(length));
                let range = starts[name] + skipped..starts[name] + cut.max(skipped);
                let expected = finder.find(&file[range.clone()]).is_some();
                prop_assert_eq!(found.are_in(&(range.start as u64..range.end as u64)), expected);
            }
        }
    }
}
