//! Text from targets (names, paths, command lines) made harmless before it is shown.

use std::borrow::Cow;

use profiler_export::text::is_unseen;

/// Escapes what could move a terminal's cursor, hide or reorder text, or break a line.
#[must_use]
pub fn terminal(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unseen) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        push(&mut escaped, c);
    }
    Cow::Owned(escaped)
}

/// Escapes text for XML, content and attributes alike.
#[must_use]
pub fn xml(text: &str) -> Cow<'_, str> {
    let special = |c| matches!(c, '&' | '<' | '>' | '"' | '\'') || is_unseen(c) || not_in_xml(c);
    if !text.contains(special) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c if not_in_xml(c) => escaped.push('\u{fffd}'),
            c => push(&mut escaped, c),
        }
    }
    Cow::Owned(escaped)
}

/// Escapes in JSON what could move a terminal's cursor, or hide or reorder text, and what JSON itself lets pass. Readers see
/// the same text.
#[must_use]
pub fn ndjson(lines: &str) -> Cow<'_, str> {
    // Everything else that is not ASCII, and so everything dangerous, stands within strings.
    let passes = |c: char| c.is_ascii() && c != '\u{7f}' || !is_unseen(c);
    if lines.chars().all(passes) {
        return Cow::Borrowed(lines);
    }
    let mut escaped = String::with_capacity(lines.len() + 16);
    for c in lines.chars() {
        if passes(c) {
            escaped.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                escaped.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    Cow::Owned(escaped)
}

/// A frame's name in a folded stack: `;` separates frames there, so it becomes `:`.
#[must_use]
pub fn folded(text: &str) -> Cow<'_, str> {
    match terminal(text) {
        harmless if !harmless.contains(';') => harmless,
        text => Cow::Owned(text.replace(';', ":")),
    }
}

fn push(escaped: &mut String, c: char) {
    match c {
        '\n' => escaped.push_str("\\n"),
        '\r' => escaped.push_str("\\r"),
        '\t' => escaped.push_str("\\t"),
        c if is_unseen(c) => escaped.extend(c.escape_unicode()),
        c => escaped.push(c),
    }
}

/// Characters that no XML 1.0 document may hold, even escaped (section 2.2).
fn not_in_xml(c: char) -> bool {
    matches!(c, '\u{fffe}' | '\u{ffff}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn terminal_text_moves_no_cursor() {
        assert_eq!(terminal("std::vec<int>::push_back"), "std::vec<int>::push_back");
        assert_eq!(terminal("a\x1b[2Jb"), "a\\u{1b}[2Jb");
        assert_eq!(terminal("a\u{202e}b\u{9b}c\nd"), "a\\u{202e}b\\u{9b}c\\nd");
        assert_eq!(terminal("größe 大"), "größe 大");
    }

    #[test]
    fn xml_has_no_markup() {
        assert_eq!(
            xml("<script>&'\"\x07\u{ffff}"),
            "&lt;script&gt;&amp;&#39;&quot;\\u{7}\u{fffd}"
        );
    }

    #[test]
    fn json_moves_no_cursor_and_reads_as_before() {
        let text = "a\u{9b}31mb\u{202e}c\u{7f}\u{e0041}größe 大";
        let line = serde_json::json!({ "name": text }).to_string() + "\n";
        let escaped = ndjson(&line);
        assert!(!escaped.trim_end().contains(is_unseen), "{escaped}");
        assert!(escaped.contains("größe 大"), "{escaped}");
        let read: serde_json::Value = serde_json::from_str(&escaped).unwrap();
        assert_eq!(read["name"], text);
        assert!(matches!(ndjson("{\"a\":1}\n"), Cow::Borrowed(_)));
    }

    #[test]
    fn a_folded_name_is_one_frame() {
        assert_eq!(folded("a;b\nc"), "a:b\\nc");
        assert_eq!(folded("plain"), "plain");
    }

    proptest! {
        #[test]
        fn nothing_dangerous_remains(text in any::<String>()) {
            prop_assert!(!terminal(&text).contains(is_unseen));
            let xml = xml(&text);
            prop_assert!(!xml.contains(is_unseen) && !xml.contains(['<', '>', '"', '\'']));
            prop_assert!(!folded(&text).contains([';', '\n']));
            let line = serde_json::Value::from(text.as_str()).to_string();
            let json = ndjson(&line);
            prop_assert!(!json.contains(is_unseen));
            prop_assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
        }
    }
}
