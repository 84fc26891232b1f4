//! Text of targets in formats that are lines of text.

use std::borrow::Cow;

/// Text in one line, without characters that are not seen or reorder others: those become `\u{…}`.
#[must_use]
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unseen) {
        return Cow::Borrowed(text);
    }
    let mut visible = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_unseen(c) {
            visible.extend(c.escape_unicode());
        } else {
            visible.push(c);
        }
    }
    Cow::Owned(visible)
}

/// Control characters, and those that reorder, hide or break text (Unicode TR 36 and UAX 9).
#[must_use]
pub fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{061c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}' | '\u{2029}'
            | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}
