//! Threads, those of one name together.

use super::{spots::Sign, text::Page};
use crate::{
    live::line::{Line, Style},
    render::{escape::terminal, units},
    tui::{
        data::{Data, ThreadRow},
        lens::{Item, Lens},
    },
};

/// Draws it.
pub fn draw(page: &mut Page<'_>, lens: &Lens, data: &Data) {
    if let Some(line) = super::shape_line(lens, data) {
        page.line(&line);
    }
    let rows: Vec<&ThreadRow> = data.threads_shown(lens).collect();
    if rows.is_empty() {
        let words = if data.threads.is_empty() {
            super::nothing_yet(lens, data)
        } else {
            "no thread matches the search; Esc shows all".into()
        };
        return page.paragraph(Style::Faint, &words);
    }
    let next = if lens.takes_threads() {
        "Enter: only what these threads do there"
    } else {
        "Enter: the flame graph of these threads alone"
    };
    page.foot(1).line(&Line::of(Style::Faint, next));
    let heading = format!(
        "{:>7} {:>10} {:>10} {:>9}  THREAD",
        "SHARE", "ON CPU", "OFF CPU", "SAMPLES"
    );
    page.heading(&heading, lens);
    let selected = rows
        .iter()
        .position(|row| matches!(lens.selection(), Some(Item::Threads(threads)) if *threads == row.patterns));
    let room = page.rows();
    let begin = page.first(lens, selected.unwrap_or(0), rows.len());
    let all = data.graph.total.inside_ns;
    // All of a target is sampled on the CPU alone.
    let has_off_cpu = !lens.scope.is_empty() || rows.iter().any(|row| row.times.off > 0);
    for (at, row) in rows.iter().enumerate().skip(begin).take(room) {
        page.sign(Sign::item(Item::Threads(row.patterns.clone())));
        let line = line(row, all, &data.flame.unit, has_off_cpu);
        page.row(&line, Some(at) == selected);
    }
}

fn line(row: &ThreadRow, all: u64, unit: &str, has_off_cpu: bool) -> Line {
    let off = if has_off_cpu {
        units::weight(row.times.off, unit)
    } else {
        "-".to_owned()
    };
    let numbers = format!(
        "{:>7} {:>10} {:>10} {:>9}  ",
        units::percent(units::ratio(row.times.all(), all)),
        units::weight(row.times.on, unit),
        off,
        units::count(row.times.samples),
    );
    let indent = if row.is_of_group { "  " } else { "" };
    let name = format!("{indent}{}", terminal(&row.name));
    let line = Line::of(Style::Plain, numbers);
    if row.threads > 0 {
        line.and(Style::Strong, name).and(
            Style::Faint,
            format!("  {} threads", units::count(row.threads as u64)),
        )
    } else {
        line.and(Style::Plain, name)
    }
}
