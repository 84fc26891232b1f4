//! The call tree as text: what `flame` prints where no format is asked for.

use super::{escape::terminal, units};
use crate::{
    state::sides::Sides,
    state::{
        flame::{FlameState, SideNames},
        tree::{Node, Tree},
    },
};

/// Nodes with a smaller share than this are summed up.
const SMALLEST: f64 = 0.01;

/// Renders the tree, the heaviest calls first.
#[must_use]
pub fn render(state: &FlameState, sides: Sides) -> String {
    let tree = Tree::of(state);
    let mut text = String::new();
    match sides {
        Sides::Difference => {
            let SideNames { inside, outside } = state.names();
            text.push_str(&format!(
                "{inside:>8} {outside:>8}    difference (95%)    function\n"
            ));
        }
        Sides::Inside | Sides::Outside => {
            let unit = if units::is_time(tree.unit) {
                "time"
            } else {
                tree.unit
            };
            text.push_str(&format!(
                "   share {unit:>width$}      own  function\n",
                width = width(&tree)
            ));
        }
    }
    let mut pending: Vec<(usize, usize)> = Vec::new();
    push_heaviest(&mut pending, &tree, &tree.roots, sides, 0);
    while let Some((at, depth)) = pending.pop() {
        let node = &tree.nodes[at];
        text.push_str(&numbers(&tree, node, sides));
        // Deep recursion would otherwise leave nothing but spaces on a line.
        text.push_str(&"  ".repeat(depth.min(40)));
        if !node.complete && node.parent.is_none() {
            text.push_str("[incomplete] ");
        }
        text.push_str(&terminal(&tree.label(node.frame)));
        if node.frame.inlined {
            text.push_str(" (inlined)");
        }
        if node.frame.kernel {
            text.push_str(" [kernel]");
        }
        text.push('\n');
        push_heaviest(&mut pending, &tree, &node.children, sides, depth + 1);
    }
    text
}

fn numbers(tree: &Tree<'_>, node: &Node<'_>, sides: Sides) -> String {
    let inside = units::ratio(node.total.inside_ns, tree.total.inside_ns);
    let outside = units::ratio(node.total.outside_ns, tree.total.outside_ns);
    match sides {
        Sides::Difference => format!(
            "{:>8} {:>8}  {:<20}  ",
            units::percent(inside),
            units::percent(outside),
            node.difference.map_or_else(String::new, |difference| format!(
                "{:+.1} [{:+.1}, {:+.1}]",
                difference.difference * 100.0,
                difference.low * 100.0,
                difference.high * 100.0
            )),
        ),
        Sides::Inside | Sides::Outside => format!(
            "{:>8} {:>width$} {:>8}  ",
            units::percent(share(tree, node, sides)),
            if units::is_time(tree.unit) {
                units::duration(node.total.ns(sides) as f64)
            } else {
                units::count(node.total.ns(sides))
            },
            units::percent(units::ratio(node.own.ns(sides), tree.total.ns(sides))),
            width = width(tree),
        ),
    }
}

/// The width of the column of weights.
fn width(tree: &Tree<'_>) -> usize {
    tree.unit.len().max(10)
}

/// A node's share of its side; of the two, the mean.
fn share(tree: &Tree<'_>, node: &Node<'_>, sides: Sides) -> f64 {
    let inside = units::ratio(node.total.inside_ns, tree.total.inside_ns);
    let outside = units::ratio(node.total.outside_ns, tree.total.outside_ns);
    match sides {
        Sides::Inside => inside,
        Sides::Outside => outside,
        Sides::Difference => f64::midpoint(inside, outside),
    }
}

fn push_heaviest(
    pending: &mut Vec<(usize, usize)>,
    tree: &Tree<'_>,
    nodes: &[usize],
    sides: Sides,
    depth: usize,
) {
    let mut heavy: Vec<usize> = nodes
        .iter()
        .copied()
        .filter(|&at| share(tree, &tree.nodes[at], sides) >= SMALLEST)
        .collect();
    // A stack: what is pushed last is printed first.
    heavy.sort_by(|&a, &b| {
        share(tree, &tree.nodes[a], sides)
            .total_cmp(&share(tree, &tree.nodes[b], sides))
            .then(b.cmp(&a))
    });
    pending.extend(heavy.into_iter().map(|at| (at, depth)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tree::tests::sample;

    #[test]
    fn the_heaviest_calls_come_first() {
        assert_eq!(
            render(&sample(), Sides::Inside),
            "   share       time      own  function
   90.0%     900 ns       0%  main
   90.0%     900 ns    10.0%    handle
   70.0%     700 ns    20.0%      slow;path (inlined)
   50.0%     500 ns    50.0%        do_syscall_64 [kernel]
   10.0%     100 ns    10.0%      fast_path
   10.0%     100 ns    10.0%  [incomplete] fast_path
"
        );
    }

    #[test]
    fn events_are_counted_in_their_unit() {
        let mut state = sample();
        state.unit = "instructions".into();
        let text = render(&state, Sides::Inside);
        assert!(
            text.starts_with(
                "   share instructions      own  function\n   90.0%          900       0%  main\n"
            ),
            "{text}"
        );
    }

    #[test]
    fn a_difference_shows_its_interval() {
        let text = render(&sample(), Sides::Difference);
        assert!(
            text.contains("   10.0%    80.0%  -70.0 [-80.0, -60.0]      fast_path"),
            "{text}"
        );
    }
}
