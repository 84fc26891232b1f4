//! Lines of styled text, before they become a terminal's.

use crate::render::source_names::in_columns;

/// What a piece of text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Text.
    Plain,
    /// A name, or several, each called by the next: text that may be shown in fewer columns than it has.
    Name,
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

/// Columns that a name is left, however narrow the screen is.
const NAME_COLUMNS: usize = 16;

/// Text of so many columns at most, by what begins it and what ends it.
#[must_use]
pub fn cut_middle(text: &str, columns: usize) -> String {
    let length = text.chars().count();
    let Some(kept) = columns.checked_sub(1).filter(|_| length > columns) else {
        return text.chars().take(columns).collect();
    };
    let (head, tail) = (kept / 2, kept - kept / 2);
    let begin = text.chars().take(head);
    begin
        .chain(['…'])
        .chain(text.chars().skip(length - tail))
        .collect()
}

/// Lines of so many columns, divided between words where a word fits; all but the first are indented.
#[must_use]
pub fn in_words(text: &str, columns: usize) -> Vec<String> {
    const INDENT: &str = "  ";
    let columns = columns.max(INDENT.len() + 1);
    let mut lines = Vec::new();
    let mut line = String::new();
    let mut is_empty = true;
    for word in text.split(' ') {
        let mut word: Vec<char> = word.chars().collect();
        if !is_empty && line.chars().count() + 1 + word.len() > columns {
            lines.push(std::mem::replace(&mut line, INDENT.to_owned()));
        } else if !is_empty {
            line.push(' ');
        }
        // One that is longer than a line is divided.
        while line.chars().count() + word.len() > columns {
            let rest = word.split_off(columns - line.chars().count());
            line.extend(word);
            lines.push(std::mem::replace(&mut line, INDENT.to_owned()));
            word = rest;
        }
        line.extend(word);
        is_empty = false;
    }
    lines.push(line);
    lines
}

/// Lines of one style that together have a text, each of so many columns.
#[must_use]
pub fn wrapped(style: Style, text: &str, columns: usize) -> Vec<Line> {
    let lines = in_words(text, columns).into_iter();
    lines.map(|line| Line::of(style, line)).collect()
}

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

    /// Cuts the longest name that stands beside other text in its middle, as those of C++ and Rust tell apart by their ends, so that
    /// the line has a width, as far as that alone can make it. Of [names](Style::Name) that is tried with briefer ones first.
    #[must_use]
    pub fn with_short_name(mut self, width: usize) -> Self {
        let beyond = self.width().saturating_sub(width);
        let pieces = self.0.len();
        let is_name = |style: &Style| matches!(style, Style::Strong | Style::Name);
        let names = self.0.iter_mut().filter(|(style, _)| is_name(style));
        if beyond > 0
            && pieces > 1
            && let Some((style, name)) = names.max_by_key(|(_, text)| text.chars().count())
        {
            let columns = name.chars().count().saturating_sub(beyond).max(NAME_COLUMNS);
            *name = match style {
                Style::Name => in_columns(name, columns),
                _ => cut_middle(name, columns),
            };
        }
        self
    }

    /// Cuts it to a width as a row of a table, whose first piece are its numbers: the others by briefer names, or in their middle, the
    /// longest first, and only then the line at its end.
    #[must_use]
    pub fn fitted(mut self, width: usize) -> Self {
        for _ in 1..self.0.len() {
            let beyond = self.width().saturating_sub(width);
            let others = self.0.iter_mut().skip(1);
            let longest = others.max_by_key(|(_, text)| text.chars().count());
            let Some((_, text)) = longest.filter(|_| beyond > 0) else {
                break;
            };
            let columns = text.chars().count();
            *text = in_columns(text, columns.saturating_sub(beyond).max(NAME_COLUMNS));
        }
        self.cut(width)
    }

    /// Cuts it to a width: a name in its middle, and then the line at its end, where a mark says so.
    #[must_use]
    pub fn cut(self, width: usize) -> Self {
        let line = self.with_short_name(width);
        let is_cut = line.text().trim_end().chars().count() > width;
        let mut room = if is_cut { width.saturating_sub(1) } else { width };
        let mut pieces = Vec::with_capacity(line.0.len());
        let mut is_marked = !is_cut || width == 0;
        for (style, text) in line.0 {
            let mut shown: String = text.chars().take(room).collect();
            let columns = shown.chars().count();
            room -= columns;
            if !is_marked && columns < text.chars().count() {
                is_marked = true;
                shown.push('…');
            }
            pieces.push((style, shown));
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
        let line = Line::of(Style::Plain, "größe").and(Style::Faint, " of it  ");
        let cut = |width| line.clone().cut(width).text();
        for (width, text) in [
            (0, ""),
            (1, "…"),
            (5, "größ…"),
            (6, "größe…"),
            (7, "größe …"),
            // Spaces at its end are nothing to miss.
            (11, "größe of it"),
            (12, "größe of it "),
            (13, "größe of it  "),
        ] {
            assert_eq!(cut(width), text);
        }
    }

    #[test]
    fn a_name_is_cut_in_its_middle_so_that_the_rest_of_its_line_fits() {
        let name = "std::collections::hash::map::HashMap<alloc::string::String, u64>::insert";
        let line = || {
            let numbers = Line::of(Style::Plain, "  45.5%  50.5 ms  ");
            numbers.and(Style::Strong, name).and(Style::Faint, "  server")
        };
        assert_eq!(line().cut(200), line());
        let cut = line().cut(80).text();
        assert_eq!(cut.chars().count(), 80, "{cut}");
        assert!(
            cut.starts_with("  45.5%  50.5 ms  std::collections::") && cut.ends_with("u64>::insert  server"),
            "{cut}"
        );
        // A few columns of a name are left, and what does not fit then is cut.
        assert_eq!(line().cut(30).text(), "  45.5%  50.5 ms  std::co…::i…");
    }

    #[test]
    fn names_are_shown_briefly_where_they_have_little_room() {
        let name =
            "shop::cart::Cart<std::vec::Vec<std::string::String, std::allocator<char> > >::add(int, long)";
        let line = |name: &str| {
            Line::of(Style::Plain, "        ")
                .and(Style::Name, name)
                .and(Style::Faint, "  cart.cc:7")
        };
        assert_eq!(
            line(name).with_short_name(200).text(),
            format!("        {name}  cart.cc:7")
        );
        assert_eq!(
            line(name).with_short_name(80).text(),
            "        Cart::add  cart.cc:7"
        );
        let chain = line("a_rather_long_function < another_long_function < a_third_function_there < main");
        assert_eq!(
            chain.with_short_name(80).text(),
            "        a_rather_long_function < another_long_function < …  cart.cc:7"
        );
    }

    #[test]
    fn lines_are_divided_between_words() {
        assert_eq!(
            in_words("waits cannot be filtered", 12),
            ["waits cannot", "  be", "  filtered"]
        );
        assert_eq!(in_words("", 12), [""]);
        assert_eq!(in_words("abcdefgh i", 4), ["abcd", "  ef", "  gh", "  i"]);
        for columns in 0..20 {
            let lines = in_words("a few words, and averyveryverylongone", columns);
            assert!(
                lines.iter().all(|line| line.chars().count() <= columns.max(3)),
                "{lines:?}"
            );
        }
    }

    #[test]
    fn a_row_is_cut_in_the_middle_of_what_is_longest_behind_its_numbers() {
        let row = Line::of(Style::Plain, "  45.5%  50.5 ms  ")
            .and(Style::Strong, "read")
            .and(
                Style::Plain,
                "  do_read < fill_the_buffer < handle_a_request < main",
            )
            .and(Style::Faint, "  3 open");
        assert_eq!(row.clone().fitted(100), row);
        let fitted = row.clone().fitted(60).text();
        assert_eq!(
            fitted,
            "  45.5%  50.5 ms  read  do_read < fill_t…_buffer < …  3 open"
        );
        for width in 0..100 {
            let fitted = row.clone().fitted(width);
            assert!(fitted.width() <= width, "{width}: {}", fitted.text());
        }
    }

    #[test]
    fn text_is_cut_in_its_middle() {
        for (columns, cut) in [
            (6, "abcdef"),
            (5, "ab…ef"),
            (4, "a…ef"),
            (2, "…f"),
            (1, "…"),
            (0, ""),
        ] {
            assert_eq!(cut_middle("abcdef", columns), cut);
        }
    }
}
