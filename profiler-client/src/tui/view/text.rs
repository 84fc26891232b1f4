//! Lines of a part of the screen.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::{Line, Span},
};

use super::{
    spots::{Sign, Spots},
    theme::Theme,
};
use crate::{live::line, render::escape::terminal, tui::lens::Lens};

/// A part of the screen that is filled line by line.
pub struct Page<'a> {
    /// Where it is drawn.
    pub buffer: &'a mut Buffer,
    /// What is there to be pointed at.
    pub spots: &'a mut Spots,
    /// How.
    pub theme: Theme,
    /// What is left of it.
    pub area: Rect,
}

impl<'a> Page<'a> {
    /// A part that is empty.
    pub fn new(buffer: &'a mut Buffer, spots: &'a mut Spots, theme: Theme, area: Rect) -> Self {
        let area = area.intersection(buffer.area);
        Self {
            buffer,
            spots,
            theme,
            area,
        }
    }

    /// A part of the same screen.
    pub fn part(&mut self, area: Rect) -> Page<'_> {
        Page::new(self.buffer, self.spots, self.theme, area)
    }

    /// The next line is something to point at.
    pub fn sign(&mut self, sign: Sign) {
        if self.area.height > 0 {
            let row = Rect {
                height: 1,
                ..self.area
            };
            self.spots.add(row, sign);
        }
    }

    /// The first of so many rows that are drawn here, if one of them is selected. One that was clicked stays under the pointer.
    pub fn first(&self, lens: &Lens, selected: usize, count: usize) -> usize {
        let room = self.rows();
        let above = lens
            .pointed_row()
            .and_then(|row| row.checked_sub(self.area.y))
            .map(usize::from)
            .filter(|above| *above < room);
        match above {
            Some(above) => selected.saturating_sub(above).min(count.saturating_sub(room)),
            None => first(selected, count, room),
        }
    }

    /// Columns.
    pub fn width(&self) -> usize {
        self.area.width.into()
    }

    /// Lines that are left.
    pub fn rows(&self) -> usize {
        self.area.height.into()
    }

    /// The next line, if there is room.
    pub fn line(&mut self, line: &line::Line) {
        self.row(line, false);
    }

    /// The next line, above a list of which a search leaves some.
    pub fn heading(&mut self, heading: &str, lens: &Lens) {
        let line = line::Line::of(line::Style::Faint, heading);
        let search = terminal(&lens.search);
        let is_searched = !search.is_empty();
        self.line(&if is_searched {
            line.and(line::Style::Warning, format!("  matching `{search}` (Esc: all)"))
        } else {
            line
        });
    }

    /// The next lines, which say what went wrong.
    pub fn failure(&mut self, failure: &str) {
        for words in failure.lines() {
            self.paragraph(line::Style::Warning, words);
        }
    }

    /// The next lines, with a text that may be longer than one.
    pub fn paragraph(&mut self, style: line::Style, text: &str) {
        for line in line::in_words(text, self.width().saturating_sub(4)) {
            self.line(&line::Line::of(style, format!("  {line}")));
        }
    }

    /// The next line of a list.
    pub fn row(&mut self, line: &line::Line, is_selected: bool) {
        let line = line.clone().cut(self.width());
        let spans = line
            .0
            .iter()
            .map(|(style, text)| Span::styled(text.as_str(), self.theme.of(*style)));
        let style = if is_selected {
            Theme::selected()
        } else {
            Style::new()
        };
        self.styled(&spans.collect::<Line<'_>>(), style);
    }

    /// The next line, and what it lies on.
    pub fn styled(&mut self, line: &Line<'_>, style: Style) {
        if self.area.height == 0 {
            return;
        }
        self.buffer
            .set_line(self.area.x, self.area.y, line, self.area.width);
        let row = Rect {
            height: 1,
            ..self.area
        };
        self.buffer.set_style(row, style);
        self.skip(1);
    }

    /// Leaves lines empty.
    pub fn skip(&mut self, rows: u16) {
        let rows = rows.min(self.area.height);
        self.area.y += rows;
        self.area.height -= rows;
    }

    /// Takes so many lines off its end.
    pub fn foot(&mut self, rows: u16) -> Page<'_> {
        let rows = rows.min(self.area.height);
        self.area.height -= rows;
        let area = Rect {
            y: self.area.y + self.area.height,
            height: rows,
            ..self.area
        };
        Page {
            buffer: self.buffer,
            spots: self.spots,
            theme: self.theme,
            area,
        }
    }
}

/// The first of so many rows that are drawn, if one of them is selected.
#[must_use]
fn first(selected: usize, count: usize, room: usize) -> usize {
    selected.saturating_sub(room / 2).min(count.saturating_sub(room))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_selected_is_drawn() {
        for (selected, count, room, expected) in [
            (0, 5, 10, 0),
            (4, 5, 10, 0),
            (9, 100, 10, 4),
            (99, 100, 10, 90),
            (3, 4, 0, 3),
        ] {
            assert_eq!(first(selected, count, room), expected);
        }
    }
}
