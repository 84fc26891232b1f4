//! Names and values of targets as JSON, written as text: what is not seen or reorders text is escaped.

use std::fmt::Write as _;

use crate::{list::list, text::is_unseen, timeline::Value};

/// Integers beyond this are texts: readers count in floating-point numbers.
const MOST_EXACT: u64 = 1 << 53;

/// Writes a value; names are JSON.
pub fn value(text: &mut String, of: &Value, names: &[String]) {
    match of {
        Value::Unsigned(number) if *number > MOST_EXACT => {
            let _ = write!(text, "\"{number}\"");
        }
        Value::Signed(number) if number.unsigned_abs() > MOST_EXACT => {
            let _ = write!(text, "\"{number}\"");
        }
        Value::Unsigned(number) => {
            let _ = write!(text, "{number}");
        }
        Value::Signed(number) => {
            let _ = write!(text, "{number}");
        }
        Value::Double(number) => double(text, *number),
        Value::Bool(value) => {
            let _ = write!(text, "{value}");
        }
        Value::Text(of) => string(text, of),
        Value::Name(name) => text.push_str(names.get(*name as usize).map_or("\"\"", String::as_str)),
        Value::List(values) => list(text, values, |text, of| value(text, of, names)),
        Value::Object(members) => {
            text.push('{');
            for (at, member) in members.iter().enumerate() {
                if at > 0 {
                    text.push(',');
                }
                string(text, &member.name);
                text.push(':');
                value(text, &member.value, names);
            }
            text.push('}');
        }
    }
}

/// Writes a number; as a text what is none in JSON.
pub fn double(text: &mut String, number: f64) {
    let _ = if number.is_finite() {
        write!(text, "{number:?}")
    } else {
        write!(text, "\"{number}\"")
    };
}

/// Writes a string; what is not seen or reorders text is escaped.
pub fn string(text: &mut String, of: &str) {
    let is_escaped = |c: char| matches!(c, '"' | '\\') || is_unseen(c);
    text.push('"');
    let mut rest = of;
    while let Some(at) = rest.find(is_escaped) {
        let (plain, others) = rest.split_at(at);
        text.push_str(plain);
        let mut others = others.chars();
        match others.next() {
            Some(c @ ('"' | '\\')) => text.extend(['\\', c]),
            Some('\n') => text.push_str("\\n"),
            Some(c) => escape(text, c),
            None => {}
        }
        rest = others.as_str();
    }
    text.push_str(rest);
    text.push('"');
}

/// A string by itself.
pub fn quoted(of: &str) -> String {
    let mut text = String::with_capacity(of.len() + 2);
    string(&mut text, of);
    text
}

/// Escapes what is not seen in JSON that is otherwise as it should be: it can only stand in strings.
pub fn visible(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        if c != ' ' && is_unseen(c) {
            escape(&mut text, c);
        } else {
            text.push(c);
        }
    }
    text
}

fn escape(text: &mut String, c: char) {
    for unit in c.encode_utf16(&mut [0; 2]) {
        let _ = write!(text, "\\u{unit:04x}");
    }
}
