//! The lines of a function, and what of them can become a step.

use profiler_proto::v1;
use ratatui::{
    style::Style,
    text::{Line, Span},
};

use super::{spots::Sign, text::Page, theme::Theme};
use crate::{
    live::line,
    render::{
        escape::terminal,
        source::{Marks, gutter, notes, text_of},
        source_names::cut,
        units,
    },
    tui::{
        data::{Data, source},
        lens::{Item, Lens, LineId},
    },
};

/// Draws it.
pub fn draw(page: &mut Page<'_>, lens: &Lens, data: &Data) {
    let Some(shown) = data.source.as_deref() else {
        let words = data
            .source_failure
            .clone()
            .unwrap_or_else(|| "reading the source …".to_owned());
        for words in words.lines() {
            page.paragraph(line::Style::Faint, words);
        }
        return;
    };
    heading(page, shown);
    foot(&mut page.foot(1), lens, data);
    let lines: Vec<&v1::SourceLine> = source::lines(shown).collect();
    if lines.is_empty() {
        for missing in &shown.missing {
            page.paragraph(line::Style::Warning, &terminal(missing));
        }
        return;
    }
    let is_selected = |line: &&v1::SourceLine| match lens.selection() {
        Some(Item::Line(id)) => source::id(shown, line) == *id,
        _ => false,
    };
    let room = page.rows();
    let begin = page.first(lens, lines.iter().position(is_selected).unwrap_or(0), lines.len());
    let digits = shown.last_line.max(999).to_string().len();
    let shares = data.shares_of_lines();
    for line in lines.iter().skip(begin).take(room) {
        let style = if is_selected(line) {
            Theme::selected()
        } else {
            Style::new()
        };
        let LineId { file, line: number } = source::id(shown, line);
        let share = shares.get(&(file.as_str(), number)).copied();
        let row = row(line, share, digits, page);
        page.sign(Sign::item(Item::Line(source::id(shown, line))));
        page.styled(&row, style);
    }
}

fn heading(page: &mut Page<'_>, shown: &v1::SourceFunction) {
    let function = shown.function.clone().unwrap_or_default();
    let place = if function.line > 0 {
        format!(
            "  {}:{}–{}",
            terminal(&function.file),
            function.line,
            shown.last_line
        )
    } else {
        String::new()
    };
    let heading = line::Line::of(line::Style::Strong, terminal(&function.name).into_owned());
    page.line(&heading.and(line::Style::Faint, place));
    for warning in shown.warnings.iter().take(1) {
        page.line(&line::Line::of(
            line::Style::Warning,
            terminal(warning).into_owned(),
        ));
    }
}

/// A line with the share of the samples that were in it, or in what it calls.
fn row(line: &v1::SourceLine, share: Option<f64>, digits: usize, page: &Page<'_>) -> Line<'static> {
    let (width, theme) = (page.width(), page.theme);
    let share = share
        .filter(|share| *share > 0.0)
        .map_or_else(String::new, units::percent);
    let share = format!("{share:>6} ");
    let mut marks = Marks::default();
    let number = if line.file.is_empty() {
        format!("{:>digits$} ", line.line)
    } else {
        let file = line.file.rsplit('/').next().unwrap_or_default();
        format!("{}:{} ", terminal(file), line.line)
    };
    let gutter = gutter(line, &mut marks);
    let notes = notes(line, &mut marks).join(" ");
    let before = share.chars().count() + number.chars().count() + gutter.chars().count() + 1;
    let room = width.saturating_sub(before);
    let notes = cut(&notes, room / 2);
    let taken = if notes.is_empty() {
        0
    } else {
        notes.chars().count() + 2
    };
    let text = cut(&text_of(&line.text), room.saturating_sub(taken));
    let padding = room.saturating_sub(text.chars().count() + notes.chars().count());
    Line::from(vec![
        Span::styled(share, theme.of(line::Style::Plain)),
        Span::styled(number, theme.of(line::Style::Faint)),
        Span::styled(format!("{gutter} "), theme.of(line::Style::Bar)),
        Span::raw(text),
        Span::raw(" ".repeat(padding)),
        Span::styled(notes, theme.of(line::Style::SlowBar)),
    ])
}

/// What Enter does at the selected line, and what else it can be.
fn foot(page: &mut Page<'_>, lens: &Lens, data: &Data) {
    let (Some((shown, line)), Some(place)) = (data.selected_line(lens), data.selected_place(lens)) else {
        page.line(&line::Line::of(
            line::Style::Faint,
            "no code begins at this line; n goes to the next branch",
        ));
        return;
    };
    let places = source::places(shown, line);
    let at = places.iter().position(|other| *other == place).unwrap_or(0);
    let words = terminal(&source::words(line, &place)).into_owned();
    let mut text = line::Line::of(line::Style::Plain, "Enter: ").and(line::Style::Strong, words);
    if places.len() > 1 {
        text = text.and(
            line::Style::Faint,
            format!("   ←/→ {} of {}", at + 1, places.len()),
        );
    }
    page.line(&text);
}
