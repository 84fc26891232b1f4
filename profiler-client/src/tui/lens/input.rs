//! A line of text that is being typed.

use super::action::Typing;

/// Characters that a line has at most: those of the longest scope.
const MAX_CHARS: usize = 4096;

/// What the text is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The part of the recording that is looked at.
    Part,
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

/// What suggestions are wanted for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// None.
    Nothing,
    /// A step.
    Step {
        /// The scope before it.
        before: String,
        /// Its beginning, or some of its letters.
        fragment: String,
    },
    /// A value of a condition.
    Value {
        /// The scope up to the step that it is of.
        step: String,
        /// Its beginning, or some of its letters.
        fragment: String,
    },
}

/// A suggestion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suggestion {
    /// What is put in the place of what is typed.
    pub text: String,
    /// What it is, beside it.
    pub about: String,
}

/// Where what is typed begins, and whether it is a condition.
struct Fragment {
    begins: usize,
    bracket: bool,
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

    /// What is typed just now, which there may be suggestions for: a step, behind the last separator of steps, without the quote
    /// before it; or a value, behind the bracket of a condition.
    #[must_use]
    pub fn wanted(&self) -> Wanted {
        let Fragment { begins, bracket } = self.fragment();
        let text = |chars: &[char]| chars.iter().collect::<String>();
        let fragment = text(&self.text[begins..self.cursor]);
        if bracket {
            let before = text(&self.text[..begins.saturating_sub(1)]);
            let is_whole = fragment.contains(['=', '<', '>', '!', ' ']);
            return if is_whole {
                Wanted::Nothing
            } else {
                Wanted::Value {
                    step: before,
                    fragment,
                }
            };
        }
        // Patterns, calls and branches are typed.
        if fragment.contains([']', '*', '?', '@', '!']) {
            return Wanted::Nothing;
        }
        Wanted::Step {
            before: text(&self.text[..begins.saturating_sub(1)]),
            fragment: fragment.replace('"', ""),
        }
    }

    /// Where what is typed begins.
    fn fragment(&self) -> Fragment {
        let mut quoted = false;
        let mut fragment = Fragment {
            begins: 0,
            bracket: false,
        };
        for (at, c) in self.text[..self.cursor].iter().enumerate() {
            match c {
                '"' => quoted = !quoted,
                '[' if !quoted => {
                    fragment = Fragment {
                        begins: at + 1,
                        bracket: true,
                    }
                }
                ']' if !quoted => fragment.bracket = false,
                '/' if !quoted && !fragment.bracket => fragment.begins = at + 1,
                _ => {}
            }
        }
        fragment
    }

    /// Puts a name in the place of the fragment.
    pub fn complete(&mut self, name: &str) {
        let begins = self.fragment().begins;
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
        assert!(matches!(input.wanted(), Wanted::Step { fragment, .. } if fragment == "par"));
        input.complete("parse_request");
        assert_eq!(input.text(), "f[>= p95]/parse_request");
        let mut input = Input::new(Purpose::Scope, "\"a/b");
        // A slash in quotes separates nothing.
        assert!(matches!(input.wanted(), Wanted::Step { fragment, .. } if fragment == "a/b"));
        input.complete("\"a/b::c\"");
        assert_eq!(input.text(), "\"a/b::c\"");
    }
}
