//! Values and stacks as arguments of events.

use std::collections::HashSet;

use profiler_export::timeline::{Argument, Member, Timeline, Value};
use profiler_proto::v1;

use super::super::{trace::shown, trace_json::key};

/// Objects and lists within each other; what is deeper is text.
const MOST_DEEP: usize = 32;

/// An argument for each value: its expression, a second time with a number behind it.
pub(super) fn arguments(timeline: &mut Timeline, values: &[v1::HitValue]) -> Vec<Argument> {
    let mut taken = HashSet::new();
    let mut arguments = Vec::with_capacity(values.len() + 1);
    for value in values {
        let key = key(&taken, &value.expression);
        arguments.push(argument(timeline, &key, of(value)));
        taken.insert(key);
    }
    arguments
}

/// An argument; names that are no expressions begin with a bracket.
pub(super) fn argument(timeline: &mut Timeline, name: &str, value: Value) -> Argument {
    Argument {
        name: timeline.name(name),
        value,
    }
}

/// A stack, the innermost frame first.
pub(super) fn stack<'a>(
    timeline: &mut Timeline,
    frames: impl DoubleEndedIterator<Item = &'a v1::Frame>,
    complete: bool,
) -> Value {
    let mut list: Vec<Value> = frames
        .rev()
        .map(|frame| Value::Name(timeline.name(&named(frame))))
        .collect();
    if !complete {
        list.push(Value::Name(timeline.name("[incomplete]")));
    }
    Value::List(list)
}

pub(super) fn text(text: &str) -> Value {
    Value::Text(text.into())
}

/// How much room an argument takes, about.
pub(super) fn bytes(argument: &Argument) -> usize {
    size_of::<Argument>() + bytes_behind(&argument.value)
}

fn bytes_behind(value: &Value) -> usize {
    match value {
        Value::Text(text) => text.len(),
        Value::List(values) => values
            .iter()
            .map(|value| size_of::<Value>() + bytes_behind(value))
            .sum(),
        Value::Object(members) => members
            .iter()
            .map(|member| size_of::<Member>() + member.name.len() + bytes_behind(&member.value))
            .sum(),
        Value::Name(_) | Value::Unsigned(_) | Value::Signed(_) | Value::Double(_) | Value::Bool(_) => 0,
    }
}

/// A function at the line that ran.
fn named(frame: &v1::Frame) -> String {
    let function = if frame.function.is_empty() {
        "[unknown]"
    } else {
        &frame.function
    };
    match (frame.file.as_str(), frame.line) {
        ("", _) => function.to_owned(),
        (file, 0) => format!("{function} ({file})"),
        (file, line) => format!("{function} ({file}:{line})"),
    }
}

/// A value, or why there is none.
fn of(value: &v1::HitValue) -> Value {
    if let Err(why_not) = shown(value) {
        return text(&why_not);
    }
    serde_json::from_str(&value.json).map_or_else(|_| text(&value.json), |json| converted(json, 0))
}

fn converted(json: serde_json::Value, depth: usize) -> Value {
    match json {
        serde_json::Value::Null => text("null"),
        serde_json::Value::Bool(value) => Value::Bool(value),
        serde_json::Value::Number(number) => number
            .as_u64()
            .map(Value::Unsigned)
            .or_else(|| number.as_i64().map(Value::Signed))
            .or_else(|| number.as_f64().map(Value::Double))
            .unwrap_or_else(|| text(&number.to_string())),
        serde_json::Value::String(value) => Value::Text(value.into()),
        json if depth + 1 >= MOST_DEEP => text(&json.to_string()),
        serde_json::Value::Array(values) => Value::List(
            values
                .into_iter()
                .map(|value| converted(value, depth + 1))
                .collect(),
        ),
        serde_json::Value::Object(members) => Value::Object(
            members
                .into_iter()
                .map(|(name, value)| Member {
                    name: name.into(),
                    value: converted(value, depth + 1),
                })
                .collect(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::render::trace::tests::value;

    #[test]
    fn values_are_what_they_are_in_json() {
        let ok = |json: &str| of(&value("n", v1::ValueState::Ok, json, "text"));
        assert_eq!(ok("7"), Value::Unsigned(7));
        assert_eq!(ok("-7"), Value::Signed(-7));
        assert_eq!(ok("0.5"), Value::Double(0.5));
        assert_eq!(ok("true"), Value::Bool(true));
        assert_eq!(ok("null"), text("null"));
        assert_eq!(ok("\"18446744073709551615\""), text("18446744073709551615"));
        assert_eq!(ok("not JSON"), text("not JSON"));
        let object = Value::Object(vec![Member {
            name: "a".into(),
            value: Value::List(vec![Value::Unsigned(1), text("b")]),
        }]);
        assert_eq!(ok("{\"a\": [1, \"b\"]}"), object);
        let unreadable = value("p", v1::ValueState::Unreadable, "", "");
        assert!(matches!(of(&unreadable), Value::Text(text) if text.starts_with("<unreadable")));
    }

    #[test]
    fn what_is_too_deep_is_text() {
        let deep = (0..100).fold(json!(1), |inner, _| json!([inner]));
        let mut value = converted(deep, 0);
        let mut depth = 0;
        while let Value::List(mut inner) = value {
            (value, depth) = (inner.remove(0), depth + 1);
        }
        let inner = format!("{}1{}", "[".repeat(69), "]".repeat(69));
        assert_eq!((depth, value), (31, text(&inner)));
    }

    #[test]
    fn the_same_expression_twice_is_two_arguments() {
        let mut timeline = Timeline::default();
        let values = ["n", "n"].map(|expression| value(expression, v1::ValueState::Ok, "1", ""));
        let arguments = arguments(&mut timeline, &values);
        let names: Vec<&str> = arguments
            .iter()
            .map(|argument| timeline.names()[argument.name as usize].as_str())
            .collect();
        assert_eq!(names, ["n", "n#2"]);
    }
}
