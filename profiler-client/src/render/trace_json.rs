//! Hits as NDJSON.

use std::collections::{BTreeMap, HashSet};

use profiler_proto::v1;
use serde_json::{Value, json};

use super::json::{SCHEMA, integer, known, line};
use crate::state::trace::TraceState;

/// A `hit` object for each.
#[must_use]
pub fn hits(state: &TraceState, hits: &[v1::Hit]) -> String {
    let mut lines = String::new();
    for hit in hits {
        if let Some(place) = state.place(hit) {
            object(&mut lines, state, hit, place);
        }
    }
    lines
}

/// The `summary` object.
#[must_use]
pub fn summary(state: &TraceState) -> String {
    let mut lines = String::new();
    line(
        &mut lines,
        &json!({
            "type": "summary",
            "schema": SCHEMA,
            "hits": integer(state.shown),
            "reached": integer(state.reached),
            "rejected": integer(state.rejected),
            "lost": by_reason(&state.lost),
            "unseen": by_reason(&state.unseen),
        }),
    );
    lines
}

fn by_reason(counts: &BTreeMap<String, u64>) -> BTreeMap<&str, Value> {
    let counts = counts.iter();
    counts
        .map(|(reason, &count)| (reason.as_str(), integer(count)))
        .collect()
}

fn object(lines: &mut String, state: &TraceState, hit: &v1::Hit, place: &v1::TracedPlace) {
    let is_line = !place.file.is_empty();
    let mut head = json!({
        "type": "hit",
        "schema": SCHEMA,
        "ts_ns": integer(hit.ts_ns),
        "tid": hit.tid,
        "thread": state.threads.of(hit.pid, hit.tid),
        "pid": hit.pid,
        "site": place.site,
        "function": known(&place.function),
        "file": known(&place.file),
        "line": if is_line { place.line.into() } else { Value::Null },
        "module": known(&place.module),
        "address": integer(place.address),
    });
    if let Some(duration_ns) = hit.duration_ns {
        head["duration_ns"] = integer(duration_ns);
    }
    // Values are JSON already. They are put in as they are: read and written again, a number could change.
    let head = head.to_string();
    lines.push_str(head.strip_suffix('}').unwrap_or(&head));
    lines.push_str(",\"values\":");
    push_values(lines, &hit.values);
    if let Some(stack) = &hit.stack {
        let frames: Vec<Value> = state.frames(stack).map(frame).collect();
        lines.push_str(&format!(
            ",\"stack\":{},\"complete\":{}",
            Value::from(frames),
            stack.complete
        ));
    }
    lines.push_str("}\n");
}

/// A frame of a stack, at the line that ran.
pub(super) fn frame(frame: &v1::Frame) -> Value {
    json!({
        "function": frame.function,
        "file": known(&frame.file),
        "line": if frame.line == 0 { Value::Null } else { frame.line.into() },
        "module": known(&frame.module),
        "inlined": frame.inlined,
    })
}

/// An object with a key for each value.
pub(super) fn push_values(lines: &mut String, values: &[v1::HitValue]) {
    lines.push('{');
    let mut keys = HashSet::new();
    for (at, value) in values.iter().enumerate() {
        if at > 0 {
            lines.push(',');
        }
        let key = key(&keys, &value.expression);
        lines.push_str(&Value::from(key.as_str()).to_string());
        lines.push(':');
        push_value(lines, value);
        keys.insert(key);
    }
    lines.push('}');
}

/// An expression as a key that is not taken: `n`, then `n#2`.
pub(super) fn key(taken: &HashSet<String>, expression: &str) -> String {
    if !taken.contains(expression) {
        return expression.to_owned();
    }
    // There are fewer keys than numbers.
    (2..=taken.len() + 2)
        .map(|number| format!("{expression}#{number}"))
        .find(|key| !taken.contains(key))
        .unwrap_or_default()
}

fn push_value(lines: &mut String, value: &v1::HitValue) {
    lines.push('{');
    push_state(lines, value);
    if value.state() == v1::ValueState::Ok {
        lines.push_str(",\"type\":");
        lines.push_str(&known(&value.r#type).to_string());
    }
    lines.push('}');
}

/// The state of a value, and the value or why there is none: keys of an object, without braces.
pub(super) fn push_state(lines: &mut String, value: &v1::HitValue) {
    let state = match value.state() {
        v1::ValueState::Ok => {
            lines.push_str("\"state\":\"ok\",\"value\":");
            push_json(lines, &value.json);
            if let Some(int) = value.as_int {
                lines.push_str(&format!(",\"as_int\":{int}"));
            }
            return;
        }
        v1::ValueState::OptimizedOut => "optimized_out",
        v1::ValueState::Unreadable => "unreadable",
        v1::ValueState::Unsupported | v1::ValueState::Unspecified => "unsupported",
    };
    let reason = Value::from(value.reason.as_str());
    lines.push_str(&format!("\"state\":\"{state}\",\"reason\":{reason}"));
}

/// JSON on one line; text that is not JSON as a string.
fn push_json(lines: &mut String, text: &str) {
    if serde_json::from_str::<Value>(text).is_ok() {
        // Within strings JSON has no line ends: these are between tokens.
        lines.extend(
            text.trim()
                .chars()
                .map(|c| if c == '\n' || c == '\r' { ' ' } else { c }),
        );
    } else {
        lines.push_str(&Value::from(text).to_string());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        super::parsed::{keys, parse},
        *,
    };
    use crate::render::trace::tests::{sample, value};

    #[test]
    fn a_hit_has_the_promised_keys() {
        let (state, seen) = sample();
        let objects = parse(&hits(&state, &seen));
        let mut promised = vec![
            "type", "schema", "ts_ns", "tid", "thread", "pid", "site", "function", "file", "line", "module",
            "address",
        ];
        assert_eq!(keys(&objects[0]), [promised.as_slice(), &["values"]].concat());
        promised.extend(["duration_ns", "values", "stack", "complete"]);
        assert_eq!(keys(&objects[1]), promised);
        assert_eq!(
            (&objects[1]["stack"], &objects[1]["complete"]),
            (
                &json!([
                    {"function": "serve\x1b[2J", "file": null, "line": null, "module": null, "inlined": false},
                    {"function": "handle_request", "file": "/src/main.cc", "line": 40, "module": "/usr/bin/server",
                        "inlined": true},
                ]),
                &json!(false)
            )
        );
        assert_eq!(objects[0]["site"], "/src/main.cc:1310");
        assert_eq!(
            (&objects[1]["site"], &objects[1]["file"], &objects[1]["line"]),
            (&json!("handle_request"), &Value::Null, &Value::Null)
        );
        assert_eq!(objects[1]["duration_ns"], 165_000);
        assert_eq!(objects[1]["values"], json!({}));
        let values = &objects[0]["values"];
        assert_eq!(values["n"], json!({"state": "ok", "value": 7, "type": "int"}));
        assert_eq!(values["s"]["value"], "a\x1b[2Jb");
        assert_eq!(
            values["m"],
            json!({"state": "optimized_out", "reason": "why\x1b[2J"})
        );
        assert_eq!(values["p"]["state"], "unreadable");
        assert_eq!(values["q"]["state"], "unsupported");
        assert_eq!(
            values["r"],
            json!({"state": "unsupported", "reason": "why\x1b[2J"}),
            "no state, no value"
        );
    }

    #[test]
    fn the_summary_counts_all_hits() {
        let (state, _) = sample();
        assert_eq!(
            parse(&summary(&state)),
            [
                json!({"type": "summary", "schema": 1, "hits": 2, "reached": 56_789, "rejected": 0,
                "lost": {"rate_limit": 56_787, "ring_full": 0}, "unseen": {}})
            ]
        );
    }

    #[test]
    fn an_expression_may_come_twice() {
        let (state, mut seen) = sample();
        let ok = v1::ValueState::Ok;
        seen.truncate(1);
        seen[0].values = ["n", "n", "n#2", "n"]
            .iter()
            .zip(1..)
            .map(|(expression, number)| value(expression, ok, &number.to_string(), ""))
            .collect();
        let values = &parse(&hits(&state, &seen))[0]["values"];
        assert_eq!(keys(values), ["n", "n#2", "n#2#2", "n#3"]);
        assert_eq!(
            (&values["n"]["value"], &values["n#3"]["value"]),
            (&json!(1), &json!(4))
        );
    }

    #[test]
    fn json_stays_as_it_is_and_text_becomes_a_string() {
        for (text, written) in [
            ("0.1234567890123456789", "0.1234567890123456789"),
            (" {\"a\":\n[1,\r2]}\n", "{\"a\": [1, 2]}"),
            ("\"\\ud83d\\ude00\"", "\"\\ud83d\\ude00\""),
            ("1} , {\"x\":2", "\"1} , {\\\"x\\\":2\""),
            ("1e999", "\"1e999\""),
            ("", "\"\""),
            ("NaN", "\"NaN\""),
        ] {
            let mut lines = String::new();
            push_json(&mut lines, text);
            assert_eq!(lines, written, "{text}");
        }
        let deep = "[".repeat(100_000);
        let mut lines = String::new();
        push_json(&mut lines, &deep);
        assert_eq!(lines, format!("\"{deep}\""));
    }

    proptest! {
        #[test]
        fn hostile_text_stays_one_object_a_line(
            texts in prop::collection::vec(prop_oneof![any::<String>(), "[\\[\\]{}\",:0-9nul\\\\ \n\r]{0,12}"], 1..8),
            state in -1..6_i32,
        ) {
            let (trace, mut seen) = sample();
            seen.truncate(1);
            seen[0].values = texts
                .iter()
                .map(|text| v1::HitValue {
                    expression: text.clone(),
                    state,
                    json: text.clone(),
                    text: text.clone(),
                    r#type: text.clone(),
                    reason: text.clone(),
                    as_int: None,
                })
                .collect();
            let lines = hits(&trace, &seen);
            let objects = parse(&lines);
            prop_assert_eq!((objects.len(), lines.lines().count()), (1, 1));
            prop_assert_eq!(objects[0]["values"].as_object().unwrap().len(), texts.len());
        }
    }
}
