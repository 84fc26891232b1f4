//! What the frames of a stack stand for.

use std::sync::Arc;

use super::frame::FrameId;

/// What a frame stands for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Grouping {
    /// A function, at the line of its declaration.
    Function,
    /// A function at the line that ran: of callers, that of the call.
    Line,
    /// An executable or library: calls within one are one frame.
    Module,
    /// As [`Self::Function`], below a frame for the thread.
    Thread,
    /// As [`Self::Function`], below a frame for the command line.
    Process,
}

impl Grouping {
    const ALL: [Self; 5] = [
        Self::Function,
        Self::Line,
        Self::Module,
        Self::Thread,
        Self::Process,
    ];
}

/// A set of groupings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Groupings(u8);

impl Groupings {
    /// Whether it is one of them.
    #[must_use]
    pub fn contain(self, grouping: Grouping) -> bool {
        self.0 & 1 << grouping as u8 != 0
    }

    /// All of them.
    pub fn iter(self) -> impl Iterator<Item = Grouping> {
        Grouping::ALL
            .into_iter()
            .filter(move |grouping| self.contain(*grouping))
    }
}

impl Extend<Grouping> for Groupings {
    fn extend<T: IntoIterator<Item = Grouping>>(&mut self, groupings: T) {
        for grouping in groupings {
            self.0 |= 1 << grouping as u8;
        }
    }
}

impl FromIterator<Grouping> for Groupings {
    fn from_iter<T: IntoIterator<Item = Grouping>>(groupings: T) -> Self {
        let mut set = Self::default();
        set.extend(groupings);
        set
    }
}

/// One stack in the groupings that were asked for; frames root first. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stacks(Arc<[(Grouping, Vec<FrameId>)]>);

impl Stacks {
    /// Makes a stack for each grouping.
    pub fn make(groupings: Groupings, mut make: impl FnMut(Grouping) -> Vec<FrameId>) -> Self {
        Self(
            groupings
                .iter()
                .map(|grouping| (grouping, make(grouping)))
                .collect(),
        )
    }

    /// Where they are: while they are kept, no others are there.
    #[must_use]
    pub fn address(&self) -> usize {
        self.0.as_ptr().addr()
    }

    /// Whether others have these too: a stack that is remembered, and comes again.
    #[must_use]
    pub fn are_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// How much memory they take, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let stacks = self.0.iter().map(|(_, stack)| size_of_val(stack.as_slice()));
        stacks.sum()
    }

    /// Whether there is a stack for each of these.
    #[must_use]
    pub fn have(&self, groupings: Groupings) -> bool {
        groupings.iter().all(|grouping| self.of(grouping).is_some())
    }

    /// The stack in a grouping, where it was asked for.
    #[must_use]
    pub fn of(&self, grouping: Grouping) -> Option<&[FrameId]> {
        let of = self.0.iter().find(|(other, _)| *other == grouping);
        of.map(|(_, stack)| &**stack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn makes_each_requested_grouping_once() {
        let asked: Groupings = [Grouping::Module, Grouping::Line, Grouping::Module]
            .into_iter()
            .collect();
        let mut made = Vec::new();
        let stacks = Stacks::make(asked, |grouping| {
            made.push(grouping);
            vec![FrameId(grouping as u32)]
        });
        assert_eq!(made, [Grouping::Line, Grouping::Module]);
        assert_eq!(stacks.of(Grouping::Module), Some(&[FrameId(2)][..]));
        assert_eq!(stacks.of(Grouping::Function), None);
        assert!(stacks.have(asked) && !stacks.have([Grouping::Function].into_iter().collect()));
        assert!(
            Grouping::ALL
                .into_iter()
                .all(|one| !Groupings::default().contain(one))
        );
    }
}
