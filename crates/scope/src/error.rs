//! What is wrong with a scope's text, and where.

use std::fmt;

/// A scope that does not parse. `Display` shows the text with a caret under the character.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScopeError {
    /// What is wrong and what is expected.
    pub message: String,
    /// Byte offset into `text` of the character at fault; its length where the text ended early.
    pub offset: usize,
    /// The text that was parsed.
    pub text: String,
}

/// Characters of context shown on each side of the caret.
const CONTEXT_CHARS: usize = 60;

impl fmt::Display for ScopeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // One printable character for each: the caret stays where it belongs, and a scope from the
        // wire cannot send control sequences to a terminal.
        let shown = |c: char| if c.is_control() { '\u{fffd}' } else { c };
        let position = self
            .text
            .char_indices()
            .take_while(|(at, _)| *at < self.offset)
            .count();
        let first = position.saturating_sub(CONTEXT_CHARS);
        let line: String = self
            .text
            .chars()
            .skip(first)
            .take(2 * CONTEXT_CHARS)
            .map(shown)
            .collect();
        write!(
            f,
            "{}\n  {line}\n  {:>width$}",
            self.message,
            "^",
            width = position - first + 1
        )
    }
}

impl std::error::Error for ScopeError {}
