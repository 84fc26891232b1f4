//! Lines of styled text, before they become a terminal's.

/// What a piece of text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Text.
    Plain,
    /// What the eye should find first.
    Strong,
    /// What it may skip.
    Faint,
    /// A bar.
    Bar,
    /// A bar beyond the 95th percentile.
    SlowBar,
    /// What is wrong.
    Warning,
}

/// A line of the screen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line(pub Vec<(Style, String)>);

impl Line {
    /// A line of one style.
    #[must_use]
    pub fn of(style: Style, text: impl Into<String>) -> Self {
        Self(vec![(style, text.into())])
    }

    /// Adds text.
    #[must_use]
    pub fn and(mut self, style: Style, text: impl Into<String>) -> Self {
        self.0.push((style, text.into()));
        self
    }

    /// Its width, taking every character for one column.
    #[must_use]
    pub fn width(&self) -> usize {
        self.0.iter().map(|(_, text)| text.chars().count()).sum()
    }

    /// Cuts it to a width.
    #[must_use]
    pub fn cut(self, width: usize) -> Self {
        let mut room = width;
        let mut pieces = Vec::with_capacity(self.0.len());
        for (style, text) in self.0 {
            let text: String = text.chars().take(room).collect();
            room -= text.chars().count();
            pieces.push((style, text));
        }
        Self(pieces)
    }

    /// Its text alone.
    #[must_use]
    pub fn text(&self) -> String {
        self.0.iter().map(|(_, text)| text.as_str()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_across_its_pieces() {
        let line = Line::of(Style::Plain, "größe").and(Style::Faint, " of it").cut(7);
        assert_eq!((line.text().as_str(), line.width()), ("größe o", 7));
    }
}
