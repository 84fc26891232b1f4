//! What is shown when a box is pointed at.

use profiler_proto::v1;

use super::colour::{Significance, significance};
use crate::{
    render::{escape::terminal, units},
    state::sides::Sides,
    state::tree::{self, Node, Tree, Weight},
};

/// Of the box that holds everything.
#[must_use]
pub fn all(tree: &Tree<'_>, sides: Sides) -> Vec<String> {
    let mut lines = vec!["all".to_owned()];
    weights(&mut lines, tree, tree.total, sides);
    lines
}

/// Of the box that holds stacks that did not reach a known root.
#[must_use]
pub fn incomplete(summary: &v1::FlameSummary) -> Vec<String> {
    vec![
        "[incomplete]".to_owned(),
        "stacks that did not reach a known root: their callers are not known".to_owned(),
        format!("{} samples on both sides", units::count(summary.incomplete)),
    ]
}

/// Of a function's box.
#[must_use]
pub fn node(tree: &Tree<'_>, node: &Node<'_>, sides: Sides) -> Vec<String> {
    let frame = node.frame;
    let kind = match (frame.kernel, frame.inlined) {
        (true, true) => " (kernel, inlined)",
        (true, false) => " (kernel)",
        (false, true) => " (inlined)",
        (false, false) => "",
    };
    let mut lines = vec![format!("{}{kind}", terminal(tree::name(frame)))];
    if !frame.file.is_empty() {
        let line = if frame.line > 0 {
            format!(":{}", frame.line)
        } else {
            String::new()
        };
        lines.push(format!("{}{line}", terminal(&frame.file)));
    }
    if !frame.module.is_empty() {
        lines.push(terminal(&frame.module).into_owned());
    }
    weights(&mut lines, tree, node.total, sides);
    if sides == Sides::Difference {
        lines.extend(node.difference.map_or_else(
            || vec!["seen in too few calls for an interval".to_owned()],
            |difference| compared(difference, tree),
        ));
    } else if node.own.ns(sides) > 0 && node.own != node.total {
        lines.push(format!(
            "in itself {}, {}",
            units::weight(node.own.ns(sides), tree.unit),
            units::percent(units::ratio(node.own.ns(sides), tree.total.ns(sides)))
        ));
    }
    lines
}

fn weights(lines: &mut Vec<String>, tree: &Tree<'_>, weight: Weight, sides: Sides) {
    for (side, name) in [
        (Sides::Inside, tree.names.inside),
        (Sides::Outside, tree.names.outside),
    ] {
        if sides == side || sides == Sides::Difference {
            lines.push(format!(
                "{}, {} of {name}, {} samples",
                units::weight(weight.ns(side), tree.unit),
                units::percent(units::ratio(weight.ns(side), tree.total.ns(side))),
                units::count(weight.samples(side)),
            ));
        }
    }
}

fn compared(difference: &v1::NodeDifference, tree: &Tree<'_>) -> Vec<String> {
    let side = tree.names.inside;
    let points = |share: f64| format!("{:+.1}", share * 100.0);
    let verdict = match (significance(difference), tree.unit) {
        (Significance::More, "") => format!("more time {side}"),
        (Significance::Less, "") => format!("less time {side}"),
        (Significance::More, unit) => format!("more of the {unit} {side}"),
        (Significance::Less, unit) => format!("less of the {unit} {side}"),
        (Significance::None, _) => "not significant".to_owned(),
    };
    vec![
        format!(
            "{} points, 95% interval {} to {}: {verdict}",
            points(difference.difference),
            points(difference.low),
            points(difference.high),
        ),
        format!(
            "seen in {} {} inside, {} outside",
            units::count(difference.inside_spans.into()),
            tree.observed,
            units::count(difference.outside_spans.into()),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tree::tests::sample;

    #[test]
    fn a_difference_shows_both_sides_and_the_interval() {
        let state = sample();
        let tree = Tree::of(&state);
        assert_eq!(
            node(&tree, &tree.nodes[3], Sides::Difference),
            [
                "fast_path",
                "src/server.rs:40",
                "/usr/bin/server",
                "100 ns, 10.0% of inside, 10 samples",
                "800 ns, 80.0% of outside, 80 samples",
                "-70.0 points, 95% interval -80.0 to -60.0: less time inside",
                "seen in 40 sampled calls inside, 90 outside",
            ]
        );
    }
}
