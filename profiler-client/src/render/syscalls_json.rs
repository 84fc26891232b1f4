//! System calls as NDJSON.

use profiler_proto::v1;
use serde_json::{Map, Value, json};

use super::{
    json::{SCHEMA, counts, integer, line},
    trace_json::frame,
};
use crate::state::syscalls::{SyscallsState, mean_ns, name};

/// A `syscall` object for each, its `syscall_caller` objects behind it, and the `summary`.
#[must_use]
pub fn syscalls(state: &SyscallsState) -> String {
    let mut lines = String::new();
    for syscall in &state.syscalls {
        line(&mut lines, &object(syscall));
        for caller in &syscall.callers {
            line(
                &mut lines,
                &json!({
                    "type": "syscall_caller",
                    "schema": SCHEMA,
                    "name": name(syscall),
                    "number": syscall.number,
                    "is_32_bit": syscall.is_32_bit,
                    "calls": integer(caller.calls),
                    "failed": integer(caller.failed),
                    "time_ns": integer(caller.time_ns),
                    "longest_ns": integer(caller.longest_ns),
                    "frames": state.stack(caller).map(frame).collect::<Vec<_>>(),
                }),
            );
        }
    }
    line(
        &mut lines,
        &json!({
            "type": "summary",
            "schema": SCHEMA,
            "calls": integer(state.calls),
            "failed": integer(state.failed),
            "time_ns": integer(state.time_ns),
            "begun_before": integer(state.begun_before),
            "open": integer(state.open),
            "watched_ns": integer(state.watched_ns),
            "lost": counts(&state.lost),
        }),
    );
    lines
}

fn object(syscall: &v1::Syscall) -> Value {
    let errors: Map<String, Value> = syscall
        .errors
        .iter()
        .map(|error| (error.name.clone(), integer(error.calls)))
        .collect();
    json!({
        "type": "syscall",
        "schema": SCHEMA,
        "name": name(syscall),
        "number": syscall.number,
        "is_32_bit": syscall.is_32_bit,
        "calls": integer(syscall.calls),
        "failed": integer(syscall.failed),
        "errors": errors,
        "time_ns": integer(syscall.time_ns),
        "mean_ns": mean_ns(syscall.calls, syscall.time_ns),
        "longest_ns": integer(syscall.longest_ns),
        "open": integer(syscall.open),
    })
}

#[cfg(test)]
mod tests {
    use super::{
        super::{parsed::parse, syscalls::tests::sample},
        *,
    };

    #[test]
    fn callers_follow_their_system_call_and_a_summary_is_last() {
        let objects = parse(&syscalls(&sample()));
        assert_eq!(
            objects[0],
            json!({
                "type": "syscall", "schema": 1, "name": "clock_nanosleep", "number": 230, "is_32_bit": false,
                "calls": 400, "failed": 0, "errors": {}, "time_ns": 2_000_000_000, "mean_ns": 5_000_000.0,
                "longest_ns": 10_200_000, "open": 2,
            })
        );
        let types: Vec<&Value> = objects.iter().map(|object| &object["type"]).collect();
        assert_eq!(types[1..5], ["syscall_caller"; 4]);
        assert_eq!(objects[1]["frames"][3]["function"], "nanosleep");
        assert_eq!(objects[3]["frames"], json!([]));
        assert_eq!(
            (
                &objects[5]["name"],
                &objects[5]["errors"]["ENOENT"],
                &objects[5]["is_32_bit"]
            ),
            (&json!("syscall_999"), &json!(1_200), &json!(true))
        );
        assert_eq!(objects[7]["mean_ns"], Value::Null);
        assert_eq!(
            objects.last().unwrap(),
            &json!({
                "type": "summary", "schema": 1, "calls": 1_606, "failed": 1_205, "time_ns": 2_008_000_000, "begun_before": 3,
                "open": 2, "watched_ns": 2_000_000_000, "lost": {"syscall_limit": 7},
            })
        );
    }
}
