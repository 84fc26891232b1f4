//! Entries put in order of address, with what lies between them.

use profiler_common::unwind::Rule;

use super::collect::{Collected, Span};

/// The rows of a module: offset and rule, ascending, no two neighbours alike. Before the first, there is no
/// rule.
///
/// Where entries overlap, the one that begins later holds, as it would be found by a binary search over
/// beginnings; text after its end that only an earlier one covers is ambiguous, hence unsupported. A gap has no
/// rule, unless it is padding, which the rows before it run over: `is_padding` is asked with both offsets.
pub(super) fn flatten(collected: &Collected, is_padding: impl Fn(u32, u32) -> bool) -> Vec<(u32, u16)> {
    // Each with how far it reaches, or those do that begin where it does.
    let mut spans: Vec<(Span, u32)> = collected.spans.iter().map(|span| (*span, span.end)).collect();

    // Stable: of entries that begin alike, the section's first comes first, and is the one that is kept.
    spans.sort_by_key(|(span, _)| span.start);
    spans.dedup_by(|(later, reach), (kept, kept_reach)| {
        let alike = later.start == kept.start;
        *kept_reach = if alike {
            (*kept_reach).max(*reach)
        } else {
            *kept_reach
        };
        alike
    });

    let mut rows = Rows {
        rows: Vec::with_capacity(collected.rows.len()),
    };
    let mut reach = 0;
    let mut end = 0;
    for (index, (span, span_reach)) in spans.iter().enumerate() {
        if span.start > end && !(end > 0 && reach <= end && is_padding(end, span.start)) {
            rows.gap(end, reach.min(span.start), span.start);
        }
        end = spans
            .get(index + 1)
            .map_or(span.end, |(next, _)| span.end.min(next.start));
        reach = reach.max(*span_reach);
        let own = collected
            .rows
            .iter()
            .skip(span.first_row as usize)
            .take(span.rows as usize);
        for (offset, rule) in own.take_while(|row| row.0 < end) {
            rows.push(*offset, *rule);
        }
    }
    if !spans.is_empty() {
        rows.gap(end, reach, u32::MAX);
    }
    rows.rows
}

struct Rows {
    rows: Vec<(u32, u16)>,
}

impl Rows {
    fn push(&mut self, offset: u32, rule: u16) {
        if self.rows.last().map_or(Rule::NONE_INDEX, |row| row.1) != rule {
            self.rows.push((offset, rule));
        }
    }

    /// No entry from `start` to `end`, of which an earlier one still covers the text up to `reach`.
    fn gap(&mut self, start: u32, reach: u32, end: u32) {
        if reach > start {
            self.push(start, Rule::UNSUPPORTED_INDEX);
        }
        let start = start.max(reach);
        if start < end {
            self.push(start, Rule::NONE_INDEX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NONE: u16 = Rule::NONE_INDEX;
    const UNSUPPORTED: u16 = Rule::UNSUPPORTED_INDEX;

    /// Start, end, rows.
    type Entry<'a> = (u32, u32, &'a [(u32, u16)]);

    fn collected(entries: &[Entry<'_>]) -> Collected {
        let mut collected = Collected::default();
        for (start, end, rows) in entries {
            let first_row = u32::try_from(collected.rows.len()).unwrap();
            let rows_len = u32::try_from(rows.len()).unwrap();
            collected.spans.push(Span {
                start: *start,
                end: *end,
                first_row,
                rows: rows_len,
            });
            collected.rows.extend_from_slice(rows);
        }
        collected
    }

    #[test]
    fn gaps_padding_and_order() {
        let entries = collected(&[
            (100, 120, &[(100, 7), (110, 8)]),
            (0x20, 0x30, &[(0x20, 5), (0x28, 6)]),
            (120, 130, &[(120, 8)]),
            (140, 150, &[(140, 5)]),
        ]);
        let rows = flatten(&entries, |from, to| (from, to) == (130, 140));
        assert_eq!(
            rows,
            [
                (0x20, 5),
                (0x28, 6),
                (0x30, NONE),
                (100, 7),
                (110, 8),
                (140, 5),
                (150, NONE)
            ]
        );
    }

    #[test]
    fn the_later_of_two_overlapping_entries_holds() {
        let entries = collected(&[
            (0, 100, &[(0, 5), (50, 6), (90, 7)]),
            (40, 60, &[(40, 8)]),
            (40, 70, &[(40, 9)]),
            (200, 210, &[(200, 9)]),
        ]);
        let rows = flatten(&entries, |_, _| true);
        assert_eq!(
            rows,
            [
                (0, 5),
                (40, 8),
                (60, UNSUPPORTED),
                (100, NONE),
                (200, 9),
                (210, NONE)
            ]
        );
    }

    proptest! {
        #[test]
        fn ascending_without_equal_neighbours(entries in proptest::collection::vec((0u32..1000, 1u32..200, 2u16..6), 0..40)) {
            let mut all = Collected::default();
            for (index, (start, length, rule)) in entries.iter().enumerate() {
                all.rows.push((*start, *rule));
                all.spans.push(Span { start: *start, end: start + length, first_row: u32::try_from(index).unwrap(), rows: 1 });
            }
            let rows = flatten(&all, |_, _| false);
            prop_assert!(rows.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 != pair[1].1));
            // Each offset has the rule of an entry that covers it, is ambiguous where several do, or has none.
            for offset in 0..1300 {
                let place = rows.partition_point(|row| row.0 <= offset);
                let rule = place.checked_sub(1).map_or(NONE, |place| rows[place].1);
                let covering = entries.iter().filter(|(start, length, _)| (*start..start + length).contains(&offset));
                let mut covering = covering.map(|(_, _, rule)| *rule).peekable();
                match rule {
                    NONE => prop_assert!(covering.peek().is_none()),
                    UNSUPPORTED => prop_assert!(covering.peek().is_some()),
                    rule => prop_assert!(covering.any(|covering| covering == rule)),
                }
            }
        }
    }
}
