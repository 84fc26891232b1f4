//! What was touched, each thing once: a page of memory, a block of a disk.
//!
//! A thing that was touched from one stack stands there. One that was touched from several stands at the innermost function
//! that they have in common, so that the weight of a function with all below it is what would not be touched any more if
//! that were gone.
//!
//! See `docs/internals/events.md` for how stacks are taken at events.

use std::{collections::HashMap, ops::RangeInclusive};

use super::{
    calltree::{CallTree, FrameId, NodeId},
    matrix::Cell,
};

/// Things that are told apart; samples with others are lost then, counted. 2 GiB of pages or blocks, some 30 MB here.
pub const MAX_KEYS: usize = 1 << 19;

/// What was touched at once: so many things beside each other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Touched {
    /// Where they lie: a process, a device.
    pub space: u32,
    /// Their places there.
    pub places: RangeInclusive<u64>,
    /// What each of them weighs.
    pub weight: u64,
}

/// Where a thing stands.
#[derive(Clone, Copy, Debug)]
struct Stand {
    node: NodeId,
    /// Samples that are counted at it.
    samples: u32,
}

/// All things that were touched, and where they stand.
#[derive(Clone, Debug)]
pub struct Unique {
    things: HashMap<(u32, u64), Stand>,
    cells: HashMap<NodeId, Cell<u64>>,
    /// Where things stand whose stacks have no function in common.
    nowhere: NodeId,
    elsewhere: u64,
    lost: u64,
    max: usize,
}

impl Unique {
    /// Nothing yet; what stacks without a common function touch stands at a frame of its own.
    #[must_use]
    pub fn new(tree: &mut CallTree, nowhere: FrameId) -> Self {
        Self::with_limit(tree, nowhere, MAX_KEYS)
    }

    /// As [`Self::new`], with another bound than [`MAX_KEYS`].
    #[must_use]
    pub fn with_limit(tree: &mut CallTree, nowhere: FrameId, max: usize) -> Self {
        Self {
            things: HashMap::new(),
            cells: HashMap::new(),
            nowhere: tree.intern(&[nowhere], true),
            elsewhere: 0,
            lost: 0,
            max,
        }
    }

    /// Takes a sample. It counts where the first of the things stands that it touched.
    pub fn touch(&mut self, tree: &CallTree, node: NodeId, touched: &Touched) {
        let Touched {
            space,
            places,
            weight,
        } = touched;
        let is_new = |place: &u64| !self.things.contains_key(&(*space, *place));
        let room = self.max - self.things.len();
        if places.is_empty() || places.clone().filter(is_new).nth(room).is_some() {
            self.lost += 1;
            return;
        }
        for (number, place) in places.clone().enumerate() {
            let samples = u32::from(number == 0);
            let thing = self.things.entry((*space, place)).or_insert(Stand {
                node: NodeId::NONE,
                samples: 0,
            });
            let before = *thing;
            thing.samples = thing.samples.saturating_add(samples);
            thing.node = match before.node {
                NodeId::NONE => node,
                known => match tree.common(known, node) {
                    NodeId::NONE => self.nowhere,
                    common => common,
                },
            };
            let after = *thing;
            if after.node != before.node && before.node != NodeId::NONE {
                self.take_from(before.node, *weight, before.samples);
                self.add_to(after.node, *weight, after.samples);
            } else {
                let is_first = before.node == NodeId::NONE;
                self.add_to(
                    after.node,
                    if is_first { *weight } else { 0 },
                    after.samples - before.samples,
                );
            }
        }
    }

    fn add_to(&mut self, node: NodeId, weight: u64, samples: u32) {
        let cell = self.cells.entry(node).or_default();
        cell.weight += weight;
        cell.samples += u64::from(samples);
    }

    fn take_from(&mut self, node: NodeId, weight: u64, samples: u32) {
        if let Some(cell) = self.cells.get_mut(&node) {
            cell.weight = cell.weight.saturating_sub(weight);
            cell.samples = cell.samples.saturating_sub(samples.into());
        }
    }

    /// Counts a sample that is of no span that is looked at.
    pub fn pass_by(&mut self) {
        self.elsewhere += 1;
    }

    /// What stands at each node.
    pub fn cells(&self) -> impl Iterator<Item = (NodeId, Cell<u64>)> {
        self.cells.iter().map(|(node, cell)| (*node, *cell))
    }

    /// Samples that are of no span that is looked at.
    #[must_use]
    pub fn elsewhere(&self) -> u64 {
        self.elsewhere
    }

    /// Samples with things for which there was no room.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    const NOWHERE: FrameId = FrameId(9);

    fn one(place: u64) -> Touched {
        Touched {
            space: 1,
            places: place..=place,
            weight: 1,
        }
    }

    /// What a function has with all below it.
    fn total(unique: &Unique, tree: &CallTree, node: NodeId) -> u64 {
        let below = unique
            .cells()
            .filter(|(at, _)| tree.path(*at).any(|up| up == node));
        below.map(|(_, cell)| cell.weight).sum()
    }

    proptest! {
        #[test]
        fn each_thing_counts_once_where_its_stacks_part(
            touches in prop::collection::vec((prop::collection::vec(1u32..4, 1..5), 0u64..12, 1u64..5), 0..60),
        ) {
            let mut tree = CallTree::new();
            let mut unique = Unique::new(&mut tree, NOWHERE);
            let mut stacks_of: HashMap<u64, Vec<Vec<FrameId>>> = HashMap::new();
            for (stack, place, length) in &touches {
                let stack: Vec<_> = stack.iter().copied().map(FrameId).collect();
                let node = tree.intern(&stack, true);
                let touched = Touched {
                    space: 1,
                    places: *place..=place + length - 1,
                    weight: 4096,
                };
                unique.touch(&tree, node, &touched);
                for place in touched.places {
                    stacks_of.entry(place).or_default().push(stack.clone());
                }
            }
            let weights: u64 = unique.cells().map(|(_, cell)| cell.weight).sum();
            prop_assert_eq!(weights, 4096 * stacks_of.len() as u64, "each once");
            let samples: u64 = unique.cells().map(|(_, cell)| cell.samples).sum();
            prop_assert_eq!((samples, unique.lost()), (touches.len() as u64, 0));

            // Each at the longest beginning that its stacks share.
            let mut expected: HashMap<NodeId, u64> = HashMap::new();
            for stacks in stacks_of.values() {
                let shared = stacks.iter().skip(1).fold(stacks[0].len(), |shared, stack| {
                    stacks[0].iter().zip(stack).take(shared).take_while(|(a, b)| a == b).count()
                });
                let stack = if shared == 0 { &[NOWHERE][..] } else { &stacks[0][..shared] };
                *expected.entry(tree.intern(stack, true)).or_default() += 4096;
            }
            for (node, cell) in unique.cells() {
                prop_assert_eq!(cell.weight, expected.remove(&node).unwrap_or(0), "{:?}", node);
            }
            prop_assert!(expected.is_empty());

            // What a function has is what nobody else touches.
            for (node, _) in tree.nodes_after(NodeId(3)) {
                let frames = |id: NodeId| tree.path(id).map(|id| tree.get(id).unwrap().frame).collect::<Vec<_>>();
                let mut prefix = frames(node);
                prefix.reverse();
                let alone = stacks_of.values().filter(|stacks| stacks.iter().all(|stack| stack.starts_with(&prefix)));
                prop_assert_eq!(total(&unique, &tree, node), 4096 * alone.count() as u64);
            }
        }

        #[test]
        fn beyond_the_limit_is_counted(places in prop::collection::vec((0u64..20, 1u64..6), 0..40), max in 0usize..12) {
            let mut tree = CallTree::new();
            let mut unique = Unique::with_limit(&mut tree, NOWHERE, max);
            let node = tree.intern(&[FrameId(1)], true);
            let mut known = HashSet::new();
            let mut lost = 0;
            for (place, length) in &places {
                let places = *place..=place + length - 1;
                let new = places.clone().filter(|place| !known.contains(place)).count();
                if known.len() + new > max {
                    lost += 1;
                } else {
                    known.extend(places.clone());
                }
                unique.touch(&tree, node, &Touched { space: 1, places, weight: 1 });
            }
            let cells: Vec<_> = unique.cells().map(|(_, cell)| (cell.weight, cell.samples)).collect();
            let (weight, samples) = cells.first().copied().unwrap_or_default();
            prop_assert_eq!((unique.lost(), weight), (lost, known.len() as u64));
            prop_assert_eq!(samples + lost, places.len() as u64, "nothing is lost unsaid");
        }
    }

    #[test]
    fn spaces_are_told_apart() {
        let mut tree = CallTree::new();
        let mut unique = Unique::new(&mut tree, NOWHERE);
        let node = tree.intern(&[FrameId(1)], true);
        unique.touch(&tree, node, &one(5));
        unique.touch(&tree, node, &Touched { space: 2, ..one(5) });
        unique.touch(&tree, node, &one(5));
        let (_, cell) = unique.cells().next().unwrap();
        assert_eq!((cell.weight, cell.samples), (2, 3));
    }
}
