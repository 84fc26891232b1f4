//! What is drawn of a flame view. It takes long of a large one, and nothing that is shown waits for it.

use std::collections::HashMap;

use profiler_proto::v1;

use super::{
    graph::Graph,
    recorded_source::{WantedSource, recorded_source},
    threads::{ThreadRow, threads},
};
use crate::{
    render::units,
    state::{
        flame::FlameState,
        functions::{FunctionRow, Sort, functions, order},
        lines::{LineKey, LineTime, lines},
        shape::Shape,
        tree::Tree,
    },
};

/// How it is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Making {
    /// What is done to stacks.
    pub shape: Shape,
    /// The view is the one that the screen is made of; of another, nothing is drawn.
    pub fits: bool,
    /// Threads are listed.
    pub by_thread: bool,
    /// The source that is made of samples.
    pub source: Option<WantedSource>,
}

/// It.
#[derive(Clone, Debug, Default)]
pub struct Picture {
    /// The call tree.
    pub graph: Graph,
    /// Functions.
    pub functions: Vec<FunctionRow>,
    /// Lines, where they are told apart.
    pub lines: HashMap<LineKey, LineTime>,
    /// Threads.
    pub threads: Vec<ThreadRow>,
    /// The source that is wanted, without its text; or why there is none.
    pub source: Option<Result<v1::SourceFunction, String>>,
    /// The share of the view's time that is not in there.
    pub share_left_out: f64,
}

impl Picture {
    /// That of a view.
    #[must_use]
    pub fn of(view: &FlameState, making: &Making) -> Self {
        if !making.fits {
            return Self::default();
        }
        let shaped = (!making.shape.is_plain()).then(|| making.shape.of(view));
        let shown = shaped.as_ref().unwrap_or(view);
        let all = view.inside();
        let tree = Tree::of(shown);
        // Sorting what is sorted takes no time when it is drawn.
        let mut functions = functions(&tree);
        functions.sort_by(|a, b| order(Sort::Own, a, b));
        let lines = if tree.by == v1::Grouping::Line {
            lines(&tree)
        } else {
            HashMap::new()
        };
        let wanted = making.source.as_ref().filter(|_| shown.started);
        Self {
            graph: Graph::of(&tree),
            functions,
            source: wanted.map(|wanted| recorded_source(shown, &lines, &wanted.place)),
            lines,
            threads: if making.by_thread {
                threads(shown)
            } else {
                Vec::new()
            },
            share_left_out: units::ratio(all.saturating_sub(tree.total.inside_ns), all),
        }
    }
}
