//! The list of processes.

use ratatui::{
    style::Style,
    text::{Line, Span},
};

use super::{
    text::{Page, first},
    theme::Theme,
};
use crate::{
    live::line,
    render::escape::terminal,
    tui::{
        data::{Data, ProcessRow},
        lens::{Item, Lens},
    },
};

/// Draws it.
pub fn draw(page: &mut Page<'_>, lens: &Lens, data: &Data) {
    let rows: Vec<&ProcessRow> = data.processes_shown(lens).collect();
    let heading = format!(
        "{:>8} {:<12} {:>7} {:>7}  COMMAND",
        "PID", "USER", "THREADS", "CPU"
    );
    page.line(&line::Line::of(line::Style::Faint, heading));
    if rows.is_empty() {
        let words = if data.processes.is_empty() {
            "looking …"
        } else {
            "no process matches"
        };
        page.line(&line::Line::of(line::Style::Faint, format!("  {words}")));
        return;
    }
    let is_selected = |row: &&ProcessRow| lens.selection() == Some(&Item::Process(row.pid));
    let selected = rows.iter().position(is_selected);
    let room = page.rows();
    let begin = first(selected.unwrap_or(0), rows.len(), room);
    for row in rows.iter().skip(begin).take(room) {
        let style = if is_selected(row) {
            Theme::selected()
        } else {
            Style::new()
        };
        page.styled(&Line::from(Span::raw(text(row))), style);
    }
}

fn text(row: &ProcessRow) -> String {
    let cpus = row
        .cpus
        .map_or_else(|| "?".to_owned(), |cpus| format!("{:.0}%", cpus * 100.0));
    let user: String = terminal(&row.user).chars().take(12).collect();
    format!(
        "{:>8} {user:<12} {:>7} {cpus:>7}  {}",
        row.pid,
        row.threads,
        terminal(&row.command)
    )
}
