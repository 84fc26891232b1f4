//! Functions, those that take the most time first.

use super::{spots::Sign, text::Page};
use crate::{
    live::line,
    render::{escape::terminal, units},
    state::functions::{FunctionRow, Sort},
    tui::{
        data::Data,
        lens::{FrameId, Item, Lens},
    },
};
use profiler_proto::v1;

/// Draws it.
pub fn draw(page: &mut Page<'_>, lens: &Lens, data: &Data) {
    let mark = |sort| if lens.sort == sort { "▼" } else { " " };
    let heading = format!(
        "{}{:>6} {:>9} {}{:>6} {:>9}  {}",
        mark(Sort::Own),
        "SELF",
        "",
        mark(Sort::Total),
        "TOTAL",
        "",
        match data.flame.by {
            v1::Grouping::Line => "LINE AND FUNCTION",
            v1::Grouping::Module => "LIBRARY",
            _ => "FUNCTION",
        }
    );
    if let Some(line) = super::shape_line(lens, data) {
        page.line(&line);
    }
    page.heading(&heading, lens);
    let rows: Vec<&FunctionRow> = data.functions_shown(lens).collect();
    if rows.is_empty() {
        let words = match (data.functions.is_empty(), lens.search.is_empty()) {
            (false, false) => "no function matches the search; Esc shows all".into(),
            _ => super::nothing_yet(lens, data),
        };
        return page.paragraph(line::Style::Faint, &words);
    }
    let is_selected = |row: &&FunctionRow| match lens.selection() {
        Some(Item::Function(id)) => id.is(&row.frame),
        _ => false,
    };
    let room = page.rows();
    let begin = page.first(lens, rows.iter().position(is_selected).unwrap_or(0), rows.len());
    let total = data.graph.total.inside_ns;
    for row in rows.iter().skip(begin).take(room) {
        page.sign(Sign::item(Item::Function(data.id_of(&row.frame))));
        let is_marked = lens.marked.contains(&row.frame.function);
        page.row(&line_of(row, total, data, is_marked), is_selected(row));
    }
}

/// What stands before a marked function.
pub const MARKED: &str = "●";

fn line_of(row: &FunctionRow, total: u64, data: &Data, is_marked: bool) -> line::Line {
    let unit = &data.flame.unit;
    let share = |part: u64| units::percent(units::ratio(part, total));
    let numbers = format!(
        "{}{:>6} {:>9}  {:>6} {:>9}  ",
        if is_marked { MARKED } else { " " },
        share(row.own.inside_ns),
        units::weight(row.own.inside_ns, unit),
        share(row.total.inside_ns),
        units::weight(row.total.inside_ns, unit),
    );
    let last = |path: &str| terminal(path.rsplit('/').next().unwrap_or_default()).into_owned();
    let by = data.flame.by;
    // A line stands first: names may be longer than the screen is wide.
    let place = match by {
        v1::Grouping::Line if row.frame.line > 0 => format!("{}:{}  ", last(&row.frame.file), row.frame.line),
        _ => String::new(),
    };
    // A library is its own.
    let module = match by {
        v1::Grouping::Module => String::new(),
        _ => format!("  {}", last(&row.frame.module)),
    };
    let line = line::Line::of(line::Style::Plain, numbers + &place);
    let line = line.and(line::Style::Strong, name(&FrameId::of(&row.frame)));
    line.and(line::Style::Faint, module)
}

/// What a function is called, with what it is besides.
pub fn name(frame: &FrameId) -> String {
    let name = if frame.function.is_empty() {
        "[unknown]"
    } else {
        &frame.function
    };
    let besides = if frame.inlined { " (inlined)" } else { "" };
    format!("{}{besides}", terminal(name))
}
