//! Hits with their values, the last at the end.

use ratatui::{
    style::{Modifier, Style},
    text::{Line, Span},
};

use super::{
    text::{Page, first},
    theme::Theme,
};
use crate::{
    live::line,
    render::{escape::terminal, source_names::cut, trace, units},
    tui::{
        data::{Data, HitRow},
        lens::{Item, Lens},
    },
};

/// Columns of a place.
const PLACE: usize = 32;
/// Columns of a value in the list; all of it stands below.
const VALUE: usize = 24;

/// Draws it.
pub fn draw(page: &mut Page<'_>, lens: &Lens, data: &Data) {
    let hits = &data.hits;
    if let Some(failure) = &hits.failure {
        return page.failure(failure);
    }
    if let Some(row) = data.selected_hit(lens) {
        // The list keeps half of the room.
        let room = page.rows() / 2;
        let rows = u16::try_from(row.hit.values.len().min(room)).unwrap_or(0);
        let mut counts = page.foot(rows + 1);
        foot(&mut counts.foot(1), data);
        let chosen = data.selected_value(lens).map(|(expression, _)| expression);
        selected_values(&mut counts, row, chosen.as_deref());
    } else {
        foot(&mut page.foot(1), data);
    }
    if hits.rows.is_empty() {
        let words = if hits.starting {
            "attaching …"
        } else {
            "no hit yet"
        };
        page.line(&line::Line::of(line::Style::Faint, format!("  {words}")));
        return;
    }
    let chosen = match lens.selection() {
        Some(Item::Hit(id)) => hits.rows.iter().position(|row| row.id() == *id),
        _ => None,
    };
    let selected = chosen.unwrap_or(hits.rows.len() - 1);
    let room = page.rows();
    // As long as none is chosen, the last are shown.
    let begin = match chosen {
        Some(_) => first(selected, hits.rows.len(), room),
        None => hits.rows.len().saturating_sub(room),
    };
    let origin_ns = hits.rows.front().map_or(0, |row| row.hit.ts_ns);
    let value = data.selected_value(lens).map(|(expression, _)| expression);
    for (at, row) in hits.rows.iter().enumerate().skip(begin).take(room) {
        let value = value.as_deref().filter(|_| at == selected);
        let line = line_of(row, origin_ns, value, page.theme);
        page.styled(&line, Style::new());
    }
}

fn line_of(row: &HitRow, origin_ns: u64, chosen: Option<&str>, theme: Theme) -> Line<'static> {
    let since_s = row.hit.ts_ns.saturating_sub(origin_ns) as f64 / 1e9;
    let place = cut(&trace::place(&row.place), PLACE);
    let mark = if chosen.is_some() { "▸" } else { " " };
    let mut spans = vec![
        Span::styled(
            format!("{mark}{since_s:9.3} s {:>8}  ", row.hit.tid),
            theme.of(line::Style::Faint),
        ),
        Span::styled(place, theme.of(line::Style::Strong)),
    ];
    if let Some(duration_ns) = row.hit.duration_ns {
        spans.push(Span::raw(format!(" {:>9}", units::duration(duration_ns as f64))));
    }
    for value in &row.hit.values {
        let name = format!("{}=", terminal(&value.expression));
        spans.push(Span::raw("  "));
        let (text, style) = match trace::shown(value) {
            Ok(text) => (cut(&text, VALUE), line::Style::Plain),
            Err(why_not) => (why_not, line::Style::Warning),
        };
        let mut styles = (theme.of(line::Style::Faint), theme.of(style));
        if chosen == Some(value.expression.as_str()) {
            styles = (Theme::selected(), Theme::selected().add_modifier(Modifier::BOLD));
        }
        spans.push(Span::styled(name, styles.0));
        spans.push(Span::styled(text, styles.1));
    }
    Line::from(spans)
}

/// All values of a hit, a line each.
fn selected_values(page: &mut Page<'_>, row: &HitRow, chosen: Option<&str>) {
    for value in &row.hit.values {
        let style = if chosen == Some(value.expression.as_str()) {
            Theme::selected()
        } else {
            Style::new()
        };
        let kind = match value.r#type.as_str() {
            "" => String::new(),
            name => format!("  {}", terminal(name)),
        };
        let (Ok(text) | Err(text)) = trace::shown(value);
        page.styled(
            &Line::from(vec![
                Span::styled(
                    format!("  {} = ", terminal(&value.expression)),
                    page.theme.of(line::Style::Strong),
                ),
                Span::raw(text),
                Span::styled(kind, page.theme.of(line::Style::Faint)),
            ]),
            style,
        );
    }
}

/// The counts.
fn foot(page: &mut Page<'_>, data: &Data) {
    let state = &data.hits.state;
    if !state.started {
        return;
    }
    let mut text = format!(
        "{} hits, {} of them shown, {} rejected by conditions",
        units::count(state.reached),
        units::count(state.shown),
        units::count(state.rejected)
    );
    if let Some(reasons) = trace::reasons(&state.lost) {
        text.push_str(&format!("; not shown: {reasons}"));
    }
    page.line(&line::Line::of(line::Style::Faint, text));
}
