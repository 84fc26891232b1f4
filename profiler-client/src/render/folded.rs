//! Folded stacks: a line each, root first, `;` between frames, then its weight in nanoseconds.

use std::collections::BTreeMap;

use super::escape;
use crate::{
    state::sides::Sides,
    state::{flame::FlameState, tree::Tree},
};

/// First frame of stacks that did not reach a known root.
pub const INCOMPLETE: &str = "[incomplete]";

/// Renders one side, or both as two weights a line: outside, then inside.
///
/// Stacks that read alike (their frames differ in what folded stacks do not tell) are one line.
#[must_use]
pub fn render(state: &FlameState, sides: Sides) -> String {
    let tree = Tree::of(state);
    let mut lines: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for (at, node) in tree.nodes.iter().enumerate() {
        if node.own.ns(sides) == 0 {
            continue;
        }
        let mut stack = String::new();
        if !node.complete {
            stack.push_str(INCOMPLETE);
        }
        for frame in tree.stack(at) {
            if !stack.is_empty() {
                stack.push(';');
            }
            stack.push_str(&escape::folded(&tree.label(frame)));
        }
        let (outside, inside) = lines.entry(stack).or_default();
        *outside = outside.saturating_add(node.own.outside_ns);
        *inside = inside.saturating_add(node.own.inside_ns);
    }
    let mut text = String::new();
    for (stack, (outside, inside)) in lines {
        text.push_str(&stack);
        match sides {
            Sides::Inside => text.push_str(&format!(" {inside}\n")),
            Sides::Outside => text.push_str(&format!(" {outside}\n")),
            Sides::Difference => text.push_str(&format!(" {outside} {inside}\n")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tree::tests::sample;

    #[test]
    fn one_side() {
        assert_eq!(
            render(&sample(), Sides::Inside),
            "[incomplete];fast_path 100\n\
             main;handle 100\n\
             main;handle;fast_path 100\n\
             main;handle;slow:path 200\n\
             main;handle;slow:path;do_syscall_64 500\n"
        );
        assert_eq!(
            render(&sample(), Sides::Outside),
            "[incomplete];fast_path 100\nmain;handle 100\nmain;handle;fast_path 800\n"
        );
    }

    #[test]
    fn both_sides() {
        assert!(render(&sample(), Sides::Difference).contains("main;handle;fast_path 800 100\n"));
    }

    #[test]
    fn nothing_sampled_is_nothing_written() {
        assert_eq!(render(&FlameState::default(), Sides::Inside), "");
    }
}
