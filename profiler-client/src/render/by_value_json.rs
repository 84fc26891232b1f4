//! Calls by value as NDJSON.

use profiler_proto::v1;
use serde_json::{Value, json};

use super::{
    json::{SCHEMA, counts, integer, known, numbers},
    trace_json::push_state,
};
use crate::state::{
    by_value::{ByValue, ValueCalls},
    latency::{FunctionState, LatencyState},
};

/// A `latency_by` object for each function whose calls are divided.
#[must_use]
pub fn latency_by(state: &LatencyState, is_final: bool) -> String {
    let mut lines = String::new();
    for function in state.functions.values() {
        if let Some(by) = &function.by {
            object(&mut lines, &state.scope, function, by, is_final);
        }
    }
    lines
}

fn object(lines: &mut String, scope: &str, function: &FunctionState, by: &ByValue, is_final: bool) {
    let head = json!({
        "type": "latency_by",
        "schema": SCHEMA,
        "scope": scope,
        "function": function.function.name,
        "module": function.function.module,
        "address": integer(function.function.address),
        "final": is_final,
        "expression": by.expression,
        "type_name": known(&by.type_name),
        "calls": integer(by.calls),
    });
    // Values are JSON already, and put in as they are.
    push_open(lines, &head);
    lines.push_str(",\"values\":[");
    for (at, ValueCalls { value, summary, .. }) in by.values.iter().enumerate() {
        lines.push_str(if at == 0 { "{" } else { ",{" });
        push_state(lines, value);
        let calls = calls(summary).to_string();
        lines.push(',');
        lines.push_str(calls.strip_prefix('{').unwrap_or(&calls));
    }
    lines.push_str("],");
    let rest =
        json!({ "other": calls(&by.other.summary), "not_divided": counts(&by.not_divided) }).to_string();
    lines.push_str(rest.strip_prefix('{').unwrap_or(&rest));
    lines.push('\n');
}

/// An object without its end.
fn push_open(lines: &mut String, object: &Value) {
    let object = object.to_string();
    lines.push_str(object.strip_suffix('}').unwrap_or(&object));
}

fn calls(summary: &v1::Summary) -> Value {
    let mut object = numbers(summary);
    if let Some(object) = object.as_object_mut() {
        // Of the whole run, so that it would say the same as the calls.
        object.shift_remove("rate_hz");
        let count = object.shift_remove("count").unwrap_or_default();
        object.shift_insert(0, "calls".to_owned(), count);
    }
    object
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        super::parsed::{keys, parse},
        *,
    };
    use crate::{render::text::tests::sample, state::by_value};

    fn state() -> LatencyState {
        let mut state = sample();
        let by = ByValue::read(by_value::tests::sample(1)).unwrap();
        state.functions.get_mut(&1).unwrap().by = Some(by);
        state
    }

    #[test]
    fn an_object_has_the_promised_keys() {
        let objects = parse(&latency_by(&state(), true));
        let [object] = objects.as_slice() else {
            panic!("{objects:?}")
        };
        assert_eq!(
            keys(object),
            [
                "type",
                "schema",
                "scope",
                "function",
                "module",
                "address",
                "final",
                "expression",
                "type_name",
                "calls",
                "values",
                "other",
                "not_divided"
            ]
        );
        let numbers = [
            "calls", "mean_ns", "min_ns", "max_ns", "p50_ns", "p90_ns", "p95_ns", "p99_ns", "p999_ns",
        ];
        let values = &object["values"];
        assert_eq!(keys(&values[0]), [&["state", "value"], &numbers[..]].concat());
        assert_eq!(keys(&values[2]), [&["state", "reason"], &numbers[..]].concat());
        assert_eq!(keys(&object["other"]), numbers);
        assert_eq!(
            (&values[0]["value"], &values[0]["calls"]),
            (&json!("RED"), &json!(80))
        );
        assert_eq!(values[2]["state"], "unreadable");
        assert_eq!(object["not_divided"], json!({"open": 1, "rate_limit": 4}));
        assert_eq!((&object["calls"], &object["final"]), (&json!(150), &json!(true)));
        assert!(latency_by(&state(), true).contains("\"value\":9007199254740993,"));
        assert_eq!(
            latency_by(&sample(), true),
            "",
            "of what is not divided nothing is said"
        );
    }

    #[test]
    fn nothing_has_no_numbers() {
        let mut state = state();
        state.functions.get_mut(&1).unwrap().by = Some(ByValue::default());
        let object = &parse(&latency_by(&state, false))[0];
        assert_eq!(
            (
                &object["other"]["calls"],
                &object["other"]["p50_ns"],
                &object["values"],
                &object["type_name"]
            ),
            (&json!(0), &Value::Null, &json!([]), &Value::Null)
        );
    }

    proptest! {
        #[test]
        fn hostile_text_stays_one_object_a_line(text in prop_oneof![any::<String>(), "[\\[\\]{}\",:0-9nul\\\\ \n\r]{0,12}"], value_state in -1..6_i32) {
            let mut state = state();
            let by = state.functions.get_mut(&1).unwrap().by.as_mut().unwrap();
            (by.expression, by.type_name) = (text.clone(), text.clone());
            by.not_divided.insert(text.clone(), 1);
            by.values[0].value = v1::HitValue {
                state: value_state,
                json: text.clone(),
                reason: text.clone(),
                ..Default::default()
            };
            let lines = latency_by(&state, false);
            let objects = parse(&lines);
            prop_assert_eq!((objects.len(), lines.lines().count()), (1, 1));
            prop_assert_eq!(objects[0]["values"].as_array().unwrap().len(), 3);
        }
    }
}
