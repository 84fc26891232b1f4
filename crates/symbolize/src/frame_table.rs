//! Frames by number, in a table that only grows and whose parts all who hold it share.

use std::{
    ops::Index,
    sync::{Arc, Weak},
};

use super::frame::Frame;

/// Frames of a piece. Where somebody else holds the table, adding a frame copies the last piece, and after so many the list of pieces:
/// the length is about where both cost the least.
const PIECE: usize = 256;

/// Frames by number. A copy has what the table had when it was made, and keeps no memory of its own but for a part of its last piece and
/// the list of pieces: some ten kilobytes of a table of a hundred megabytes.
#[derive(Clone, Debug, Default)]
pub struct FrameTable {
    /// Pieces that will not change any more, each of [`PIECE`] frames.
    full: Arc<Vec<Arc<Vec<Frame>>>>,
    /// The frames behind those: fewer than a piece has.
    last: Arc<Vec<Frame>>,
    /// What all copies have in common, whenever they were made.
    holders: Arc<()>,
}

impl FrameTable {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.full.len() * PIECE + self.last.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The frame of a number; `None` where there are fewer.
    #[must_use]
    pub fn get(&self, number: usize) -> Option<&Frame> {
        match self.full.get(number / PIECE) {
            Some(piece) => piece.get(number % PIECE),
            None => self.last.get(number - self.full.len() * PIECE),
        }
    }

    /// All of them, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = &Frame> {
        self.since(0)
    }

    /// Those from a number on, in the order of their numbers.
    pub fn since(&self, number: usize) -> impl Iterator<Item = &Frame> {
        (number..self.len()).filter_map(|number| self.get(number))
    }

    /// Is there as long as somebody holds a copy of the table, of whatever moment.
    #[must_use]
    pub fn holders(&self) -> Weak<()> {
        Arc::downgrade(&self.holders)
    }

    /// Adds one, whose number is how many there were. Copies of the table stay as they are.
    pub fn push(&mut self, frame: Frame) {
        let last = Arc::make_mut(&mut self.last);
        last.push(frame);
        if last.len() == PIECE {
            last.shrink_to_fit();
            let piece = std::mem::take(&mut self.last);
            Arc::make_mut(&mut self.full).push(piece);
        }
    }
}

impl FromIterator<Frame> for FrameTable {
    fn from_iter<I: IntoIterator<Item = Frame>>(frames: I) -> Self {
        let mut table = Self::default();
        frames.into_iter().for_each(|frame| table.push(frame));
        table
    }
}

impl Index<usize> for FrameTable {
    type Output = Frame;

    /// # Panics
    /// Where there are fewer frames.
    fn index(&self, number: usize) -> &Frame {
        match self.full.get(number / PIECE) {
            Some(piece) => &piece[number % PIECE],
            None => &self.last[number - self.full.len() * PIECE],
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Frames that differ by their lines, so many.
    fn frames(lines: std::ops::Range<usize>) -> impl Iterator<Item = Frame> {
        let like = Frame::named("function", &"module".into(), false);
        lines.map(move |line| Frame {
            line: u32::try_from(line).unwrap(),
            ..like.clone()
        })
    }

    /// Whether a table has these frames, however it is asked.
    fn has(table: &FrameTable, frames: &[Frame]) -> bool {
        let each = frames
            .iter()
            .enumerate()
            .all(|(number, frame)| table.get(number) == Some(frame));
        let half = frames.len() / 2;
        each && table.len() == frames.len()
            && table.is_empty() == frames.is_empty()
            && table.get(frames.len()).is_none()
            && table.get(usize::MAX).is_none()
            && table.iter().eq(frames)
            && table.since(half).eq(&frames[half..])
            && table.since(frames.len() + 1).next().is_none()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_copy_stays_as_it_was_and_shares_its_pieces(
            added in prop::collection::vec(prop_oneof![0..3_usize, 0..3 * PIECE], 1..10)
        ) {
            let mut table = FrameTable::default();
            let mut plain: Vec<Frame> = Vec::new();
            let mut copies = Vec::new();
            for count in added {
                copies.push((table.clone(), plain.len()));
                for frame in frames(plain.len()..plain.len() + count) {
                    table.push(frame.clone());
                    plain.push(frame);
                }
            }
            prop_assert!(has(&table, &plain));
            for (copy, length) in &copies {
                prop_assert!(has(copy, &plain[..*length]));
                let shared = copy.full.iter().zip(table.full.iter());
                prop_assert_eq!(shared.filter(|(own, now)| Arc::ptr_eq(own, now)).count(), length / PIECE);
            }
        }
    }

    #[test]
    fn what_is_added_to_a_copy_is_its_own() {
        let table: FrameTable = frames(0..PIECE + 5).collect();
        let mut copy = table.clone();
        frames(7..8).for_each(|frame| copy.push(frame));
        let plain: Vec<Frame> = frames(0..PIECE + 5).collect();
        assert!(has(&table, &plain));
        assert!(has(&copy, &[&plain[..], &[plain[7].clone()]].concat()));
    }
}
