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
    state::lines::LineTime,
    tui::{
        data::{Data, source},
        lens::{Item, Lens, LineId},
    },
};

/// Draws it.
pub fn draw(page: &mut Page<'_>, lens: &Lens, data: &Data) {
    let Some(shown) = data.source_shown(lens) else {
        let words = match &data.source_failure {
            Some(failure) => failure.clone(),
            None if data.is_over() => super::nothing_yet(lens, data).into_owned(),
            None => "reading the source …".to_owned(),
        };
        for words in words.lines() {
            page.paragraph(line::Style::Faint, words);
        }
        return;
    };
    heading(page, shown);
    if lens.is_of_recording() {
        let words = "where samples were taken: a line can be a step if it was recorded as one (Enter)";
        page.line(&line::Line::of(line::Style::Faint, words));
    }
    let (margin, digits) = (
        Margin::of(page.width(), data),
        shown.last_line.max(999).to_string().len(),
    );
    let cut_text = cut_text(page, lens, data, margin, digits);
    let mut at_foot = page.foot(1 + u16::from(cut_text.is_some()));
    if let Some(text) = cut_text {
        at_foot.line(&line::Line::of(line::Style::Plain, text));
    }
    foot(&mut at_foot, lens, data);
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
    page.line(&line::Line::of(line::Style::Faint, margin.heading()));
    let room = page.rows();
    let begin = page.first(lens, lines.iter().position(is_selected).unwrap_or(0), lines.len());
    for line in lines.iter().skip(begin).take(room) {
        let style = if is_selected(line) {
            Theme::selected()
        } else {
            Style::new()
        };
        let LineId { file, line: number } = source::id(shown, line);
        let times = margin.text(data.time_of_line(&file, number));
        let row = row(line, times, digits, page);
        page.sign(Sign::item(Item::Line(source::id(shown, line))));
        page.styled(&row, style);
    }
}

/// Warnings that there is room for.
const MOST_WARNINGS: usize = 4;

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
    for warning in shown.warnings.iter().take(MOST_WARNINGS) {
        page.paragraph(line::Style::Warning, &terminal(warning));
    }
}

/// Columns of a terminal in which time on the CPU and off it stand for themselves.
const WIDE: usize = 110;

/// What stands before lines: time in them or in what they call, by the samples there.
#[derive(Clone, Copy)]
enum Margin {
    /// Both together.
    Time,
    /// On the CPU, and off it.
    TimeOnAndOff,
    /// Events have no time.
    Share,
}

impl Margin {
    fn of(width: usize, data: &Data) -> Self {
        if !data.flame.unit.is_empty() {
            Self::Share
        } else if width < WIDE {
            Self::Time
        } else {
            Self::TimeOnAndOff
        }
    }

    fn heading(self) -> &'static str {
        match self {
            Self::Time => "    TIME  SHARE",
            Self::TimeOnAndOff => "  ON CPU OFF CPU  SHARE",
            Self::Share => " SHARE",
        }
    }

    fn text(self, time: Option<(LineTime, f64)>) -> String {
        let (time, share) = time.unwrap_or_default();
        let duration = |ns: u64| {
            if ns == 0 {
                String::new()
            } else {
                units::duration(ns as f64)
            }
        };
        let share = if time.all_ns == 0 {
            String::new()
        } else {
            units::percent(share)
        };
        let all = duration(time.all_ns);
        let on = duration(time.all_ns.saturating_sub(time.off_cpu_ns));
        let off = duration(time.off_cpu_ns);
        match self {
            Self::Time => format!("{all:>8} {share:>6} "),
            Self::TimeOnAndOff => format!("{on:>8}{off:>8} {share:>6} "),
            Self::Share => format!("{share:>6} "),
        }
    }
}

/// A line with what stands before it.
fn row(line: &v1::SourceLine, times: String, digits: usize, page: &Page<'_>) -> Line<'static> {
    let (width, theme) = (page.width(), page.theme);
    let mut marks = Marks::default();
    let number = if line.file.is_empty() {
        format!("{:>digits$} ", line.line)
    } else {
        let file = line.file.rsplit('/').next().unwrap_or_default();
        format!("{}:{} ", terminal(file), line.line)
    };
    let gutter = gutter(line, &mut marks);
    let notes = notes(line, &mut marks).join(" ");
    let before = times.chars().count() + number.chars().count() + gutter.chars().count() + 1;
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
        Span::styled(times, theme.of(line::Style::Plain)),
        Span::styled(number, theme.of(line::Style::Faint)),
        Span::styled(format!("{gutter} "), theme.of(line::Style::Bar)),
        Span::raw(text),
        Span::raw(" ".repeat(padding)),
        Span::styled(notes, theme.of(line::Style::SlowBar)),
    ])
}

/// The text of the selected line, where its row has no room for all of it.
fn cut_text(page: &Page<'_>, lens: &Lens, data: &Data, margin: Margin, digits: usize) -> Option<String> {
    let (shown, line) = data.selected_line(lens)?;
    let LineId { file, line: number } = source::id(shown, line);
    let row = row(line, margin.text(data.time_of_line(&file, number)), digits, page);
    let text = text_of(&line.text);
    let is_whole = row.spans.iter().any(|span| span.content == text);
    (!is_whole).then(|| text.trim().to_owned())
}

/// What Enter does at the selected line, and what else it can be.
fn foot(page: &mut Page<'_>, lens: &Lens, data: &Data) {
    let (Some((shown, line)), Some(place)) = (data.selected_line(lens), data.selected_place(lens)) else {
        page.line(&line::Line::of(
            line::Style::Faint,
            if lens.is_of_recording() {
                "the file of this line is not known; n goes to the next line with samples"
            } else {
                "no code begins at this line; n goes to the next branch or loop"
            },
        ));
        return;
    };
    let places = data.places(lens, shown, line);
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
