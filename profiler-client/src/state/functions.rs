//! Functions by the time in them, wherever they were called from.

use std::{cmp::Ordering, collections::HashMap};

use profiler_proto::v1;

use super::{
    flame::FlameState,
    tree::{Tree, Weight},
};
use clap::ValueEnum;

/// What functions are ordered by.
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// Time while it was the innermost function.
    #[default]
    #[value(name = "self")]
    Own,
    /// Time in it and all that it called.
    Total,
}

impl Sort {
    /// What it is called as `--sort`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Own => "self",
            Self::Total => "total",
        }
    }
}

/// A function, as frames of it say.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameId {
    /// Its name.
    pub function: String,
    /// The file that it is in.
    pub module: String,
    /// Inlined there.
    pub inlined: bool,
    /// Of the kernel.
    pub kernel: bool,
    /// The line that ran, where lines are told apart; any, if left out.
    pub line: Option<u32>,
}

impl FrameId {
    /// That of a frame.
    #[must_use]
    pub fn of(frame: &v1::Frame) -> Self {
        Self {
            function: frame.function.clone(),
            module: frame.module.clone(),
            inlined: frame.inlined,
            kernel: frame.kernel,
            line: None,
        }
    }

    /// That of a frame of a view, which may tell lines apart.
    #[must_use]
    pub fn of_view(frame: &v1::Frame, by: v1::Grouping) -> Self {
        Self {
            line: (by == v1::Grouping::Line).then_some(frame.line),
            ..Self::of(frame)
        }
    }

    /// That of a name as it is typed, wherever it is.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self {
            function: name.to_owned(),
            ..Self::default()
        }
    }

    /// Whether a frame is of this function. One without a module, as it is typed, has any.
    #[must_use]
    pub fn is(&self, frame: &v1::Frame) -> bool {
        let is_there = self.module.is_empty()
            || self.module == frame.module && self.inlined == frame.inlined && self.kernel == frame.kernel;
        self.function == frame.function && is_there && self.line.is_none_or(|line| line == frame.line)
    }
}

/// A function and its time.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionRow {
    /// A frame of it.
    pub frame: v1::Frame,
    /// While it was the innermost function.
    pub own: Weight,
    /// In it and all that it called; in recursion once.
    pub total: Weight,
}

/// All functions of a view that any time was in, in an order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FunctionTimes {
    /// Those that take the most time first.
    pub rows: Vec<FunctionRow>,
    /// All time.
    pub total: Weight,
}

impl FunctionTimes {
    /// Those of a view.
    #[must_use]
    pub fn of(state: &FlameState, sort: Sort) -> Self {
        let tree = Tree::of(state);
        let mut rows = functions(&tree);
        rows.retain(|row| row.total.inside_ns > 0);
        rows.sort_by(|a, b| order(sort, a, b));
        Self {
            rows,
            total: tree.total,
        }
    }
}

/// Which of two functions comes first.
#[must_use]
pub fn order(sort: Sort, a: &FunctionRow, b: &FunctionRow) -> Ordering {
    let own = b.own.inside_ns.cmp(&a.own.inside_ns);
    let total = b.total.inside_ns.cmp(&a.total.inside_ns);
    let by_time = match sort {
        Sort::Own => own.then(total),
        Sort::Total => total.then(own),
    };
    by_time
        .then_with(|| a.frame.function.cmp(&b.frame.function))
        .then_with(|| a.frame.module.cmp(&b.frame.module))
}

/// What frames of the same function have in common.
#[derive(PartialEq, Eq, Hash)]
struct Key<'a> {
    function: &'a str,
    module: &'a str,
    inlined: bool,
    kernel: bool,
    line: u32,
}

/// A function's frame, wherever it is; the line, where the view tells lines apart.
fn key(frame: &v1::Frame, by: v1::Grouping) -> Key<'_> {
    let line = if by == v1::Grouping::Line { frame.line } else { 0 };
    Key {
        function: &frame.function,
        module: &frame.module,
        inlined: frame.inlined,
        kernel: frame.kernel,
        line,
    }
}

/// A step of the way through the tree.
enum Way {
    Into(usize),
    OutOf(usize),
}

/// All functions of a call tree, in no order.
#[must_use]
pub fn functions(tree: &Tree<'_>) -> Vec<FunctionRow> {
    let mut numbers: HashMap<Key<'_>, usize> = HashMap::new();
    let mut rows: Vec<FunctionRow> = Vec::new();
    // How often each function is on the stack.
    let mut open: Vec<u32> = Vec::new();
    let mut ahead: Vec<Way> = tree.roots.iter().map(|&root| Way::Into(root)).collect();
    while let Some(way) = ahead.pop() {
        let (Way::Into(at) | Way::OutOf(at)) = way;
        let node = &tree.nodes[at];
        let number = *numbers.entry(key(node.frame, tree.by)).or_insert_with(|| {
            rows.push(FunctionRow {
                frame: node.frame.clone(),
                own: Weight::default(),
                total: Weight::default(),
            });
            open.push(0);
            rows.len() - 1
        });
        match way {
            Way::OutOf(_) => open[number] -= 1,
            Way::Into(_) => {
                rows[number].own.add(node.own);
                if open[number] == 0 {
                    rows[number].total.add(node.total);
                }
                open[number] += 1;
                ahead.push(Way::OutOf(at));
                ahead.extend(node.children.iter().map(|&child| Way::Into(child)));
            }
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::flame::node;

    fn state() -> FlameState {
        let frame = |id, function: &str| v1::Frame {
            id,
            function: function.into(),
            ..Default::default()
        };
        let weight = |node, inside_ns| v1::NodeWeight {
            node,
            inside_ns,
            inside_samples: 1,
            ..Default::default()
        };
        let mut state = FlameState::default();
        state
            .apply(v1::WatchFlameResponse {
                snapshot: true,
                frames: vec![frame(1, "main"), frame(2, "sort"), frame(3, "sort")],
                // main → sort → sort, main → sort by another frame of it.
                nodes: vec![node(1, 0, 1), node(2, 1, 2), node(3, 2, 2), node(4, 1, 3)],
                weights: vec![weight(1, 1), weight(2, 10), weight(3, 100), weight(4, 1000)],
                ..Default::default()
            })
            .unwrap();
        state
    }

    #[test]
    fn recursion_counts_once_and_own_times_add_up() {
        let state = state();
        let tree = Tree::of(&state);
        let mut rows = functions(&tree);
        rows.sort_by(|a, b| a.frame.function.cmp(&b.frame.function));
        let times: Vec<(&str, u64, u64)> = rows
            .iter()
            .map(|row| {
                (
                    row.frame.function.as_str(),
                    row.own.inside_ns,
                    row.total.inside_ns,
                )
            })
            .collect();
        assert_eq!(times, [("main", 1, 1111), ("sort", 1110, 1110)]);
        let own: u64 = rows.iter().map(|row| row.own.inside_ns).sum();
        assert_eq!(own, tree.total.inside_ns);
    }
}
