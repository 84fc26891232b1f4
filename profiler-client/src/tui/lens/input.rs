//! A line of text that is being typed.

use super::action::Typing;

/// Characters that a line has at most: those of the longest scope.
const MAX_CHARS: usize = 4096;

/// What the text is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The scope.
    Scope,
    /// What is searched for.
    Search,
    /// Expressions whose values are shown.
    Print,
    /// Functions that are left out.
    Hide,
    /// Functions that are part of their callers.
    Fold,
}

/// The line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// What it is for.
    pub purpose: Purpose,
    text: Vec<char>,
    cursor: usize,
    /// The text before, for who forgets it.
    pub before: String,
    /// The suggestion that is chosen, counted from 0.
    pub chosen: Option<usize>,
}

impl Input {
    /// A line with a text to begin with, the cursor behind it.
    #[must_use]
    pub fn new(purpose: Purpose, text: &str) -> Self {
        let chars: Vec<char> = text.chars().take(MAX_CHARS).collect();
        Self {
            purpose,
            cursor: chars.len(),
            text: chars,
            before: text.to_owned(),
            chosen: None,
        }
    }

    /// The text.
    #[must_use]
    pub fn text(&self) -> String {
        self.text.iter().collect()
    }

    /// The text before the cursor.
    #[must_use]
    pub fn before_cursor(&self) -> String {
        self.text[..self.cursor].iter().collect()
    }

    /// The text behind the cursor.
    #[must_use]
    pub fn behind_cursor(&self) -> String {
        self.text[self.cursor..].iter().collect()
    }

    /// The beginning of a function's name that is typed just now: what stands between the last separator of steps and the
    /// cursor, without the quote before it.
    #[must_use]
    pub fn fragment(&self) -> String {
        self.text[self.fragment_begins()..self.cursor]
            .iter()
            .filter(|c| **c != '"')
            .collect()
    }

    fn fragment_begins(&self) -> usize {
        let mut quoted = false;
        let mut begins = 0;
        for (at, c) in self.text[..self.cursor].iter().enumerate() {
            match c {
                '"' => quoted = !quoted,
                '/' if !quoted => begins = at + 1,
                _ => {}
            }
        }
        begins
    }

    /// Puts a name in the place of the fragment.
    pub fn complete(&mut self, name: &str) {
        let begins = self.fragment_begins();
        let name: Vec<char> = name.chars().collect();
        let ends = begins + name.len();
        self.text.splice(begins..self.cursor, name);
        self.cursor = ends;
        self.text.truncate(MAX_CHARS);
        self.cursor = self.cursor.min(self.text.len());
        self.chosen = None;
    }

    /// Edits it; what else can be typed is left to the caller.
    pub fn edit(&mut self, typing: &Typing) {
        match typing {
            Typing::Insert(c) if self.text.len() < MAX_CHARS && !c.is_control() => {
                self.text.insert(self.cursor, *c);
                self.cursor += 1;
            }
            Typing::Erase if self.cursor > 0 => {
                self.cursor -= 1;
                self.text.remove(self.cursor);
            }
            Typing::EraseWord => {
                let head = &self.text[..self.cursor];
                let is_word = |c: &char| c.is_alphanumeric() || *c == '_';
                let kept = head.iter().rposition(is_word).map_or(0, |end| {
                    head[..end]
                        .iter()
                        .rposition(|c| !is_word(c))
                        .map_or(0, |at| at + 1)
                });
                self.text.drain(kept..self.cursor);
                self.cursor = kept;
            }
            Typing::EraseAll => {
                self.text.clear();
                self.cursor = 0;
            }
            Typing::Left => self.cursor = self.cursor.saturating_sub(1),
            Typing::Right => self.cursor = (self.cursor + 1).min(self.text.len()),
            Typing::Home => self.cursor = 0,
            Typing::End => self.cursor = self.text.len(),
            _ => return,
        }
        self.chosen = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_edited_where_the_cursor_is() {
        let mut input = Input::new(Purpose::Scope, "main/größe");
        for typing in [
            Typing::Left,
            Typing::Erase,
            Typing::Insert('ß'),
            Typing::Insert('x'),
        ] {
            input.edit(&typing);
        }
        assert_eq!(input.text(), "main/größxe");
        input.edit(&Typing::End);
        input.edit(&Typing::EraseWord);
        assert_eq!(input.text(), "main/");
        input.edit(&Typing::Insert('\x1b'));
        assert_eq!(input.text(), "main/");
    }

    #[test]
    fn a_name_takes_the_place_of_its_beginning() {
        let mut input = Input::new(Purpose::Scope, "f[>= p95]/par");
        assert_eq!(input.fragment(), "par");
        input.complete("parse_request");
        assert_eq!(input.text(), "f[>= p95]/parse_request");
        let mut input = Input::new(Purpose::Scope, "\"a/b");
        assert_eq!(input.fragment(), "a/b", "a slash in quotes separates nothing");
        input.complete("\"a/b::c\"");
        assert_eq!(input.text(), "\"a/b::c\"");
    }
}
