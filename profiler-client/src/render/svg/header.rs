//! The top of the page: what was looked at, what divides the sides, what is missing.

use std::fmt::Write as _;

use super::{About, blocks::Layout};
use crate::{
    render::{
        escape::{terminal, xml},
        text::losses,
        threshold, units,
    },
    state::sides::Sides,
    state::{flame::FlameState, tree::Tree},
};

/// The page's name.
#[must_use]
pub fn title(state: &FlameState) -> String {
    let scope = if state.scope.is_empty() {
        "everything"
    } else {
        &state.scope
    };
    if state.event.is_empty() {
        scope.to_owned()
    } else {
        format!("{} · {scope}", state.event)
    }
}

/// Writes title, facts and legend.
pub fn write(
    page: &mut String,
    state: &FlameState,
    tree: &Tree<'_>,
    sides: Sides,
    about: &About,
    layout: &Layout,
) {
    let names = state.names();
    let suffix = match sides {
        Sides::Inside => String::new(),
        Sides::Outside => names.outside.to_owned(),
        Sides::Difference => format!("{} against {}", names.inside, names.outside),
    };
    let _ = writeln!(
        page,
        "<text class=\"title\" x=\"1.25%\" y=\"36\">{}<tspan class=\"suffix\" dx=\"10\">{suffix}</tspan></text>",
        xml(&title(state))
    );
    for (at, line) in [
        first(state, tree, sides, about),
        second(state, tree, sides, layout),
    ]
    .iter()
    .enumerate()
    {
        let _ = writeln!(
            page,
            "<text class=\"facts\" x=\"1.25%\" y=\"{}\">{}</text>",
            60 + 19 * at,
            xml(line)
        );
    }
    let of = if units::is_time(tree.unit) {
        "time"
    } else {
        tree.unit
    };
    let more = format!("more of the {of} {}", names.inside);
    let swatches: &[(&str, &str)] = match sides {
        Sides::Inside | Sides::Outside if tree.unit.is_empty() => &[
            ("#ee9a4d", "user code"),
            ("#f8dfae", "inlined"),
            ("#94bcd2", "kernel"),
            ("#c0b3dd", "off the CPU"),
        ],
        Sides::Inside | Sides::Outside => &[
            ("#ee9a4d", "user code"),
            ("#f8dfae", "inlined"),
            ("#94bcd2", "kernel"),
        ],
        Sides::Difference => &[
            ("#c4221e", &more),
            ("#1e54b7", "less"),
            ("", "not significant: the 95% interval includes 0"),
        ],
    };
    page.push_str("<svg class=\"legend\" x=\"1.25%\" y=\"92\" width=\"97.5%\" height=\"20\">");
    let mut x = 0;
    for (colour, name) in swatches {
        let fill = if colour.is_empty() {
            "class=\"neutral\"".to_owned()
        } else {
            format!("fill=\"{colour}\"")
        };
        let _ = write!(
            page,
            "<rect x=\"{x}\" y=\"4\" width=\"12\" height=\"12\" rx=\"2\" {fill}/><text x=\"{}\" y=\"14\">{}</text>",
            x + 18,
            xml(name)
        );
        x += 18 + name.len() * 6 + 26;
    }
    if sides == Sides::Difference {
        let _ = write!(
            page,
            "<text class=\"extra\" x=\"{x}\" y=\"14\">width: mean of the two shares</text>"
        );
    }
    page.push_str("</svg>\n");
}

fn first(state: &FlameState, tree: &Tree<'_>, sides: Sides, about: &About) -> String {
    let mut facts = Vec::new();
    if !about.target.is_empty() {
        facts.push(terminal(&about.target).into_owned());
    }
    facts.push(format!(
        "{} of run",
        units::duration(about.elapsed.as_nanos() as f64)
    ));
    let names = state.names();
    for (side, name) in [(Sides::Inside, names.inside), (Sides::Outside, names.outside)] {
        let has_sides = !state.scope.is_empty() || state.before.is_some();
        let name = match (!has_sides, tree.unit.is_empty()) {
            (true, true) => "on CPU",
            (true, false) => "in all",
            (false, _) => name,
        };
        if sides == side || sides == Sides::Difference {
            facts.push(format!(
                "{} {name}, {} samples",
                units::weight(tree.total.ns(side), tree.unit),
                units::count(tree.total.samples(side))
            ));
        }
    }
    facts.join(" · ")
}

fn second(state: &FlameState, tree: &Tree<'_>, sides: Sides, layout: &Layout) -> String {
    let summary = &state.summary;
    let mut facts = Vec::new();
    let threshold = threshold::describe(&state.scope, summary);
    if !threshold.is_empty() {
        facts.push(format!("{}: {threshold}", state.names().inside));
    }
    let before = state.before.as_ref();
    let before = before.map(|before| threshold::describe(&state.scope, before));
    if let Some(before) = before.filter(|before| !before.is_empty()) {
        facts.push(format!("{}: {before}", state.names().outside));
    }
    if tree.total.ns(sides) > 0 {
        let complete = units::ratio(tree.complete.ns(sides), tree.total.ns(sides));
        facts.push(format!("{} complete", units::percent(complete)));
    }
    facts.push(losses(
        &summary
            .lost
            .iter()
            .map(|(reason, &n)| (reason.clone(), n))
            .collect(),
    ));
    if summary.open > 0 {
        facts.push(format!(
            "{} samples in calls still open",
            units::count(summary.open)
        ));
    }
    if summary.folded_stacks > 0 {
        facts.push(format!(
            "{} rare stacks folded into `other`",
            units::count(summary.folded_stacks)
        ));
    }
    if layout.narrow > 0 {
        facts.push(format!(
            "{} boxes too narrow to draw",
            units::count(layout.narrow as u64)
        ));
    }
    facts.join(" · ")
}
