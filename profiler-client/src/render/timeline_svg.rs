//! Counters over time as one self-contained SVG: a panel for each row, all with one axis of time.

use std::fmt::Write as _;

use super::{escape::xml, svg::About, timeline::Drawn, units};

const STYLE: &str = include_str!("timeline.css");

/// The page's width, that of a panel, and where panels begin.
const WIDTH: f64 = 1200.0;
const PANEL: f64 = 1140.0;
const LEFT: f64 = 30.0;
const TOP: f64 = 84.0;
/// Height of a panel's picture, and of it with its label and a gap.
const HEIGHT: f64 = 64.0;
const PITCH: f64 = 104.0;
/// Points that a panel has room for: one for each pixel of its width.
const MOST_POINTS: usize = 1140;
/// Marks on the axis of time.
const MARKS: u32 = 10;

/// Renders the page.
#[must_use]
pub fn render(drawn: &[Drawn], scope: &str, notes: &[String], about: &About) -> String {
    let height = TOP + PITCH * drawn.len().max(1) as f64 + 30.0;
    let mut page = String::new();
    page.push_str("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = writeln!(
        page,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" version=\"1.1\" width=\"100%\" viewBox=\"0 0 {WIDTH} {height}\">"
    );
    let title = if scope.is_empty() { "timeline" } else { scope };
    let _ = writeln!(page, "<title>{}</title>", xml(title));
    let _ = writeln!(page, "<style><![CDATA[\n{STYLE}]]></style>");
    let _ = writeln!(
        page,
        "<rect class=\"page\" width=\"{WIDTH}\" height=\"{height}\"/>"
    );
    let _ = writeln!(
        page,
        "<text class=\"title\" x=\"{LEFT}\" y=\"34\">{}</text>",
        xml(title)
    );
    let mut facts = vec![
        about.target.clone(),
        format!("{:.1} s", about.elapsed.as_secs_f64()),
    ];
    facts.extend(notes.iter().cloned());
    let _ = writeln!(
        page,
        "<text class=\"facts\" x=\"{LEFT}\" y=\"56\">{}</text>",
        xml(&facts.join(" · "))
    );
    let ends = || {
        drawn
            .iter()
            .flat_map(|row| row.points.iter().map(|(end_ns, _)| *end_ns))
    };
    let axis = (ends().min().unwrap_or(0), ends().max().unwrap_or(0));
    for (number, row) in drawn.iter().enumerate() {
        panel(&mut page, row, axis, TOP + PITCH * number as f64);
    }
    marks(&mut page, axis, TOP + PITCH * drawn.len() as f64);
    page.push_str("</svg>\n");
    page
}

fn x((from_ns, to_ns): (u64, u64), at_ns: u64) -> f64 {
    let part = at_ns.saturating_sub(from_ns) as f64 / to_ns.saturating_sub(from_ns).max(1) as f64;
    LEFT + part * PANEL
}

fn panel(page: &mut String, row: &Drawn, axis: (u64, u64), top: f64) {
    let known = row.points.iter().filter_map(|(_, value)| *value);
    let most = known.fold(0.0, f64::max);
    let numbers = format!(
        "mean {}, highest {}",
        row.unit.text(row.mean),
        row.unit.text(Some(most).filter(|_| row.mean.is_some()))
    );
    let _ = writeln!(
        page,
        "<text class=\"label\" x=\"{LEFT}\" y=\"{:.1}\">{}<tspan class=\"facts\">{}  {}</tspan></text>",
        top + 14.0,
        xml(&row.label),
        row.unit.suffix(),
        xml(&numbers)
    );
    let bottom = top + 22.0 + HEIGHT;
    let _ = writeln!(
        page,
        "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{bottom:.1}\" y2=\"{bottom:.1}\"/>",
        LEFT + PANEL
    );
    // What is not known is a gap.
    for run in thinned(&row.points).split(|(_, value)| value.is_none()) {
        let (Some(first), Some(last)) = (run.first(), run.last()) else {
            continue;
        };
        let mut path = format!("M{:.1} {bottom:.1}", x(axis, first.0));
        for (at_ns, value) in run {
            let share = if most > 0.0 {
                value.unwrap_or(0.0) / most
            } else {
                0.0
            };
            let _ = write!(path, "L{:.1} {:.1}", x(axis, *at_ns), bottom - share * HEIGHT);
        }
        let _ = write!(path, "L{:.1} {bottom:.1}Z", x(axis, last.0));
        let _ = writeln!(page, "<path class=\"area\" d=\"{path}\"/>");
    }
}

/// No more points than there are pixels: of several the highest.
fn thinned(points: &[(u64, Option<f64>)]) -> Vec<(u64, Option<f64>)> {
    let each = points.len().div_ceil(MOST_POINTS).max(1);
    let highest = |points: &[(u64, Option<f64>)]| {
        let values = points.iter().filter_map(|(_, value)| *value);
        let end_ns = points.last().map_or(0, |(end_ns, _)| *end_ns);
        (end_ns, values.reduce(f64::max))
    };
    points.chunks(each).map(highest).collect()
}

fn marks(page: &mut String, axis: (u64, u64), top: f64) {
    let span_ns = axis.1.saturating_sub(axis.0);
    for number in 0..=MARKS {
        let at_ns = span_ns / u64::from(MARKS) * u64::from(number);
        let anchor = match number {
            0 => "start",
            MARKS => "end",
            _ => "middle",
        };
        let _ = writeln!(
            page,
            "<text class=\"facts\" text-anchor=\"{anchor}\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            x(axis, axis.0 + at_ns),
            top + 8.0,
            units::duration(at_ns as f64)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::{super::timeline::tests::sample, *};

    #[test]
    fn there_is_a_panel_for_each_row() {
        let (mut state, view) = sample();
        state.scope = "a<b>".to_owned();
        let page = render(
            &view.drawn(&state),
            &state.scope,
            &["a & b".to_owned()],
            &About::default(),
        );
        assert_eq!(page.matches("class=\"label\"").count(), 7);
        // A thread's faults, and a ratio to them, are not known.
        assert_eq!(page.matches("class=\"area\"").count(), 6);
        assert!(page.contains("a &amp; b") && page.contains("a&lt;b&gt;") && !page.contains("a<b>"));
    }

    #[test]
    fn of_many_points_the_highest_are_drawn() {
        let points: Vec<_> = (0..10_000)
            .map(|at| (at, Some(if at == 5_001 { 7.0 } else { 1.0 })))
            .collect();
        let thinned = thinned(&points);
        assert!(thinned.len() <= MOST_POINTS);
        assert_eq!(thinned.iter().filter(|(_, value)| *value == Some(7.0)).count(), 1);
    }
}
