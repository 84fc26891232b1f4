//! A part of the terminal that is drawn over again and again.
//!
//! No mode of the terminal is changed, neither raw input nor a hidden cursor: so there is nothing to
//! restore, however the process ends.

use std::io::{self, IsTerminal as _};

use crossterm::{
    cursor::{MoveToColumn, MoveUp},
    queue,
    style::{Attribute, Color, Print, ResetColor, SetAttribute, SetForegroundColor},
    terminal::{self, BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate},
};

use super::line::{Line, Style};
use crate::{cli::args::Color as When, failure::Failure, output};

/// The part of the screen, just above the cursor.
#[derive(Debug)]
pub struct Screen {
    colour: bool,
    /// Widths of the lines that are on the screen now.
    drawn: Vec<usize>,
    /// What had been written amid it when it was drawn.
    noted: u64,
}

impl Screen {
    /// Nothing drawn yet.
    #[must_use]
    pub fn new(colour: bool) -> Self {
        Self {
            colour,
            drawn: Vec::new(),
            noted: 0,
        }
    }

    /// Columns and lines to draw in; the line of the cursor is left out.
    #[must_use]
    pub fn size() -> (usize, usize) {
        // One that does not know its size says that it has none.
        let known = terminal::size().ok().filter(|(columns, _)| *columns > 0);
        let (columns, rows) = known.unwrap_or((80, 24));
        (
            usize::from(columns).max(20),
            usize::from(rows).saturating_sub(1).max(4),
        )
    }

    /// Replaces what was drawn before.
    ///
    /// # Errors
    ///
    /// Where the terminal cannot be written to.
    pub fn draw(&mut self, lines: Vec<Line>) -> Result<(), Failure> {
        let (columns, rows) = Self::size();
        let noted = output::noted_amid();
        if noted != self.noted {
            // It stands below what was drawn.
            self.drawn.clear();
            self.noted = noted;
        }
        let lines: Vec<Line> = lines
            .into_iter()
            .take(rows)
            .map(|line| line.cut(columns))
            .collect();
        let bytes = self
            .render(&lines, columns, rows)
            .map_err(|error| Failure::failed(format!("Cannot draw: {error}.")))?;
        output::stdout(bytes)?;
        self.drawn = lines.iter().map(Line::width).collect();
        Ok(())
    }

    fn render(&self, lines: &[Line], columns: usize, rows: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        queue!(bytes, BeginSynchronizedUpdate, MoveToColumn(0))?;
        // A terminal that was made narrower has wrapped what was drawn.
        let up: usize = self
            .drawn
            .iter()
            .map(|&width| width.div_ceil(columns).max(1))
            .sum();
        if let Ok(up @ 1..) = u16::try_from(up.min(rows)) {
            queue!(bytes, MoveUp(up))?;
        }
        queue!(bytes, Clear(ClearType::FromCursorDown))?;
        for line in lines {
            for (style, text) in &line.0 {
                piece(&mut bytes, self.colour, *style, text)?;
            }
            queue!(bytes, Print("\r\n"))?;
        }
        queue!(bytes, EndSynchronizedUpdate)?;
        Ok(bytes)
    }
}

fn piece(bytes: &mut Vec<u8>, colour: bool, style: Style, text: &str) -> io::Result<()> {
    if !colour || matches!(style, Style::Plain | Style::Name) || text.is_empty() {
        return queue!(bytes, Print(text));
    }
    match style {
        Style::Strong => queue!(bytes, SetAttribute(Attribute::Bold))?,
        Style::Faint => queue!(bytes, SetAttribute(Attribute::Dim))?,
        Style::Bar => queue!(bytes, SetForegroundColor(Color::DarkCyan))?,
        Style::SlowBar => queue!(bytes, SetForegroundColor(Color::DarkYellow))?,
        Style::Warning => queue!(bytes, SetForegroundColor(Color::Red))?,
        Style::Plain | Style::Name => {}
    }
    queue!(bytes, Print(text), ResetColor, SetAttribute(Attribute::Reset))
}

/// Whether to colour what is written to standard output, which is a terminal or not.
#[must_use]
pub fn is_coloured(color: When, terminal: bool) -> bool {
    match color {
        When::Always => true,
        When::Never => false,
        When::Auto => terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
    }
}

/// Columns of what is written to standard output; `None` where that is no terminal.
#[must_use]
pub fn width() -> Option<usize> {
    io::stdout().is_terminal().then(|| Screen::size().0)
}

/// Writes lines to standard output, to stay there. On a terminal, names are cut to its width.
///
/// # Errors
///
/// Where they cannot be written.
pub fn print(lines: &[Line], colour: bool) -> Result<(), Failure> {
    // The decision was made; crossterm would look at NO_COLOR again.
    crossterm::style::force_color_output(colour);
    let mut bytes = Vec::new();
    let width = width();
    for line in lines {
        let line = width.map_or(line.clone(), |width| line.clone().with_short_name(width));
        for (style, text) in &line.0 {
            piece(&mut bytes, colour, *style, text)
                .map_err(|error| Failure::failed(format!("Cannot draw: {error}.")))?;
        }
        bytes.push(b'\n');
    }
    output::stdout(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(screen: &Screen, columns: usize) -> String {
        let lines = [Line::of(Style::Strong, "a"), Line::of(Style::Plain, "b")];
        String::from_utf8(screen.render(&lines, columns, 20).unwrap()).unwrap()
    }

    #[test]
    fn the_first_drawing_moves_nowhere() {
        let text = rendered(&Screen::new(false), 80);
        assert!(
            text.contains("a\r\nb\r\n") && !text.contains("A\u{1b}"),
            "{text:?}"
        );
        assert!(!text.contains("\u{1b}[1m") && !text.contains("\u{1b}[2A"));
    }

    #[test]
    fn the_next_begins_where_it_did_even_when_wrapped() {
        let mut screen = Screen::new(false);
        screen.drawn = vec![50, 10];
        assert!(rendered(&screen, 80).contains("\u{1b}[2A"));
        assert!(
            rendered(&screen, 40).contains("\u{1b}[3A"),
            "50 columns take two lines of 40"
        );
    }
}
