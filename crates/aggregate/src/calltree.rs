//! Stacks, interned as a tree.

use std::collections::HashMap;

use foldhash::fast::RandomState;

/// Nodes that a tree may have. New stacks beyond it become [`CallTree::other`], counted.
pub const MAX_NODES: usize = 1 << 18;

/// A symbolised function, as numbered by the symboliser.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct FrameId(pub u32);

impl FrameId {
    /// Reserved for the frame that stands for all stacks that were folded together.
    pub const OTHER: Self = Self(0);
}

/// A node of the call tree: a function as called by the node's parent. 0 is no node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Debug)]
pub struct NodeId(pub u32);

impl NodeId {
    /// What roots have as parent.
    pub const NONE: Self = Self(0);

    /// As an index.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a node is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Node {
    /// The caller; [`NodeId::NONE`] for a root.
    pub parent: NodeId,
    /// The function.
    pub frame: FrameId,
    /// Whether its stacks reach a known root.
    pub complete: bool,
}

/// All stacks seen, as a tree. Ids begin at 1, parents come before children, and nodes are never
/// changed or removed. Complete and incomplete stacks share no node.
#[derive(Clone, Debug)]
pub struct CallTree {
    nodes: Vec<Node>,
    ids: HashMap<Node, NodeId, RandomState>,
    max_nodes: usize,
    folded: u64,
}

const OTHER_COMPLETE: NodeId = NodeId(1);
const OTHER_INCOMPLETE: NodeId = NodeId(2);

impl Default for CallTree {
    fn default() -> Self {
        Self::with_limit(MAX_NODES)
    }
}

impl CallTree {
    /// A tree of the two `other` nodes alone.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// As [`Self::new`], with another bound than [`MAX_NODES`].
    #[must_use]
    pub fn with_limit(max_nodes: usize) -> Self {
        let other = |complete| Node {
            parent: NodeId::NONE,
            frame: FrameId::OTHER,
            complete,
        };
        let nodes = vec![other(true), other(false)];
        let ids = HashMap::from_iter([(nodes[0], OTHER_COMPLETE), (nodes[1], OTHER_INCOMPLETE)]);
        Self {
            nodes,
            ids,
            max_nodes: max_nodes.clamp(2, MAX_NODES),
            folded: 0,
        }
    }

    /// The node of a stack's innermost function, its frames given root first. The stack without
    /// frames, and those that the tree has no room for, are [`Self::other`].
    pub fn intern(&mut self, stack: &[FrameId], complete: bool) -> NodeId {
        match self.extend(NodeId::NONE, stack, complete) {
            NodeId::NONE => Self::other(complete),
            node => node,
        }
    }

    /// The node of these frames on a node; of none that node. Those that the tree has no room for, and what is on
    /// [`Self::other`], are that.
    pub fn intern_on(&mut self, node: NodeId, frames: &[FrameId]) -> NodeId {
        match self.get(node).map(|node| node.complete) {
            Some(complete) if node != Self::other(complete) => self.extend(node, frames, complete),
            _ => node,
        }
    }

    fn extend(&mut self, base: NodeId, stack: &[FrameId], complete: bool) -> NodeId {
        let mut parent = base;
        for &frame in stack {
            let node = Node {
                parent,
                frame,
                complete,
            };
            parent = match self.ids.get(&node) {
                Some(&id) => id,
                None if self.nodes.len() >= self.max_nodes => {
                    self.folded += 1;
                    return Self::other(complete);
                }
                None => self.push(node),
            };
        }
        parent
    }

    /// The node that stands for stacks folded together.
    #[must_use]
    pub fn other(complete: bool) -> NodeId {
        if complete {
            OTHER_COMPLETE
        } else {
            OTHER_INCOMPLETE
        }
    }

    /// The number of nodes, which is also the highest id.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Never: the `other` nodes are always there.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// What a node is; `None` for an id that is none.
    #[must_use]
    pub fn get(&self, id: NodeId) -> Option<Node> {
        self.nodes.get(id.index().checked_sub(1)?).copied()
    }

    /// Nodes with an id above `after`, in the order of their ids: all of them after
    /// [`NodeId::NONE`].
    pub fn nodes_after(&self, after: NodeId) -> impl Iterator<Item = (NodeId, Node)> {
        (after.0 + 1..)
            .map(NodeId)
            .zip(self.nodes.iter().skip(after.index()).copied())
    }

    /// Whether a node's stacks reach a known root.
    #[must_use]
    pub fn is_complete(&self, id: NodeId) -> bool {
        self.get(id).is_some_and(|node| node.complete)
    }

    /// A node and its callers, innermost first.
    pub fn path(&self, id: NodeId) -> impl Iterator<Item = NodeId> {
        let caller = |id: &NodeId| {
            self.get(*id)
                .map(|node| node.parent)
                .filter(|&up| up != NodeId::NONE)
        };
        std::iter::successors(self.get(id).map(|_| id), caller)
    }

    /// The innermost node that two nodes' stacks have in common; [`NodeId::NONE`] where there is none.
    #[must_use]
    pub fn common(&self, mut a: NodeId, mut b: NodeId) -> NodeId {
        // A caller's id is less than that of whom it calls.
        while a != b {
            let inner = if a > b { &mut a } else { &mut b };
            *inner = self.get(*inner).map_or(NodeId::NONE, |node| node.parent);
        }
        a
    }

    /// Samples whose stack became `other` because the tree was full.
    #[must_use]
    pub fn folded(&self) -> u64 {
        self.folded
    }

    fn push(&mut self, node: Node) -> NodeId {
        self.nodes.push(node);
        // At most MAX_NODES.
        let id = NodeId(u32::try_from(self.nodes.len()).unwrap_or(u32::MAX));
        self.ids.insert(node, id);
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frames(tree: &CallTree, id: NodeId) -> Vec<FrameId> {
        let mut frames: Vec<_> = tree.path(id).map(|id| tree.get(id).unwrap().frame).collect();
        frames.reverse();
        frames
    }

    proptest! {
        #[test]
        fn a_node_gives_its_stack_back(
            stacks in prop::collection::vec((prop::collection::vec(1u32..5, 1..8), any::<bool>()), 1..80),
        ) {
            let mut tree = CallTree::new();
            let mut seen = HashMap::new();
            for (stack, complete) in stacks {
                let stack: Vec<_> = stack.into_iter().map(FrameId).collect();
                let id = tree.intern(&stack, complete);
                prop_assert_eq!(&frames(&tree, id), &stack);
                prop_assert!(tree.path(id).all(|id| tree.is_complete(id) == complete));
                prop_assert_eq!(*seen.entry((stack, complete)).or_insert(id), id);
            }
            for (id, node) in tree.nodes_after(NodeId::NONE) {
                prop_assert!(node.parent < id);
                prop_assert_eq!(tree.get(id), Some(node));
            }
            prop_assert_eq!(tree.nodes_after(NodeId(2)).count(), tree.len() - 2);
        }
    }

    #[test]
    fn a_full_tree_keeps_what_it_knows() {
        let mut tree = CallTree::with_limit(4);
        let known = tree.intern(&[FrameId(1), FrameId(2)], true);
        assert_eq!(
            tree.intern(&[FrameId(1), FrameId(3)], true),
            CallTree::other(true)
        );
        assert_eq!(
            tree.intern(&[FrameId(1), FrameId(2)], false),
            CallTree::other(false)
        );
        assert_eq!(tree.intern(&[FrameId(1), FrameId(2)], true), known);
        assert_eq!((tree.len(), tree.folded()), (4, 2));
        assert_eq!(tree.intern(&[], true), CallTree::other(true));
        assert_eq!(tree.intern_on(known, &[FrameId(3)]), CallTree::other(true));
        assert_eq!(
            tree.intern_on(CallTree::other(true), &[FrameId(1)]),
            CallTree::other(true)
        );
    }
}
