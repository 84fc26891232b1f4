//! The slowest calls as NDJSON.

use std::collections::BTreeMap;

use profiler_proto::v1;
use serde_json::{Value, json};

use super::{
    course,
    json::{SCHEMA, integer, known, line},
    trace_json::{frame, push_values},
    waits_json,
};
use crate::state::spans::{EndedBy, SpansState};

/// A `span` object for each, and the `summary`.
#[must_use]
pub fn spans(state: &SpansState) -> String {
    let mut lines = String::new();
    for span in &state.spans {
        object(&mut lines, state, span);
    }
    let lost: BTreeMap<&str, Value> = state
        .lost
        .iter()
        .map(|(reason, &count)| (reason.as_str(), integer(count)))
        .collect();
    line(
        &mut lines,
        &json!({
            "type": "summary",
            "schema": SCHEMA,
            "spans": state.spans.len(),
            "calls": integer(state.calls),
            "window_ns": integer(state.window_ns),
            "watched_ns": integer(state.watched_ns),
            "sampled": !state.not_sampled,
            "threshold_ns": integer(state.threshold_ns),
            "lost": lost,
        }),
    );
    lines
}

fn object(lines: &mut String, state: &SpansState, span: &v1::Span) {
    let function = span.function.clone().unwrap_or_default();
    let head = json!({
        "type": "span",
        "schema": SCHEMA,
        "ts_ns": integer(span.ts_ns),
        "pid": span.pid,
        "tid": span.tid,
        "thread": state.threads.of(span.pid, span.tid),
        "function": function.name,
        "module": known(&function.module),
        "address": integer(function.address),
        "duration_ns": integer(span.duration_ns),
    });
    let head = head.to_string();
    lines.push_str(head.strip_suffix('}').unwrap_or(&head));
    lines.push_str(",\"values\":");
    if span.values_missing {
        lines.push_str("null");
    } else {
        push_values(lines, &span.values);
    }
    let child = |child: &v1::SpanChild| {
        json!({
            "place": child.place,
            "offset_ns": integer(child.offset_ns),
            "duration_ns": child.duration_ns.map_or(Value::Null, integer),
        })
    };
    let tail = json!({
        "children": span.children.iter().map(child).collect::<Vec<_>>(),
        "children_left_out": integer(span.children_left_out),
        "stack": state.stack(span).map(frame).collect::<Vec<_>>(),
        "sampled": !span.not_sampled,
        "samples": integer(span.samples),
        "stack_samples": integer(span.stack_samples),
        "times_ns": span.times.as_ref().map(times),
        "waits": integer(span.waits),
        "off_cpu": span.off_cpu.iter().map(period).collect::<Vec<_>>(),
        "off_cpu_left_out": integer(span.off_cpu_left_out),
        "off_cpu_left_out_ns": integer(span.off_cpu_left_out_ns),
        "syscalls": span.system_calls.as_ref().map(system_calls),
        "longest_wait": span.longest_wait.as_ref().map(|wait| {
            json!({
                "activity": wait.activity,
                "offset_ns": integer(wait.offset_ns),
                "time_ns": integer(wait.time_ns),
                "stack": state.waited(wait).map(frame).collect::<Vec<_>>(),
                "lock": wait.lock.as_ref().map(waits_json::lock),
                "ended_by": state.ended_by(wait).map(ended_by),
            })
        }),
    });
    let tail = tail.to_string();
    lines.push(',');
    lines.push_str(tail.strip_prefix('{').unwrap_or(&tail));
    lines.push('\n');
}

/// The system calls of a call.
fn system_calls(calls: &v1::SpanSystemCalls) -> Value {
    let kind = |kind: &v1::SpanSystemCall| {
        json!({
            "name": kind.name,
            "error": known(&kind.error),
            "calls": integer(kind.calls),
            "time_ns": integer(kind.time_ns),
            "longest_ns": integer(kind.longest_ns),
        })
    };
    json!({
        "kinds": calls.kinds.iter().map(kind).collect::<Vec<_>>(),
        "left_out": integer(calls.left_out),
    })
}

/// A part of a call that its thread was off the CPU.
fn period(period: &v1::SpanPeriod) -> Value {
    json!({
        "activity": course::activity(period),
        "offset_ns": integer(period.offset_ns),
        "time_ns": integer(period.time_ns),
        "system_call": known(&period.system_call),
    })
}

/// A thread, or the function of an interrupt.
fn ended_by(by: EndedBy<'_>) -> Value {
    match by {
        EndedBy::Thread {
            pid,
            tid,
            name,
            stack,
        } => json!({
            "pid": pid,
            "tid": tid,
            "thread": name,
            "stack": stack.into_iter().map(frame).collect::<Vec<_>>(),
        }),
        EndedBy::Interrupt(function) => json!({"interrupt": function.function}),
    }
}

fn times(times: &v1::SpanTimes) -> Value {
    json!({
        "on_cpu": integer(times.on_cpu_ns),
        "sleeping": integer(times.sleeping_ns),
        "uninterruptible": integer(times.uninterruptible_ns),
        "stopped": integer(times.stopped_ns),
        "runnable": integer(times.runnable_ns),
    })
}

#[cfg(test)]
mod tests {
    use super::{
        super::parsed::{keys, parse},
        *,
    };
    use crate::render::spans::tests::sample;

    #[test]
    fn a_span_has_its_system_calls() {
        let objects = parse(&spans(&sample()));
        assert_eq!(
            objects[0]["syscalls"],
            json!({"kinds": [
                {"name": "read", "error": null, "calls": 2, "time_ns": 5_000_000, "longest_ns": 4_000_000},
                {"name": "open", "error": "ENOENT", "calls": 1200, "time_ns": 900_000, "longest_ns": 1_000},
            ], "left_out": 0})
        );
        assert_eq!(objects[1]["syscalls"], Value::Null);
    }

    #[test]
    fn a_span_has_its_times_off_the_cpu() {
        let objects = parse(&spans(&sample()));
        assert_eq!(
            (&objects[0]["off_cpu"][0], &objects[0]["off_cpu"][2]),
            (
                &json!({"activity": "sleeping", "offset_ns": 1_000_000, "time_ns": 20_000_000, "system_call": "futex"}),
                &json!({"activity": "sleeping", "offset_ns": 24_000_000, "time_ns": 5_000_000, "system_call": null}),
            )
        );
        assert_eq!(
            (
                &objects[0]["off_cpu_left_out"],
                &objects[0]["off_cpu_left_out_ns"]
            ),
            (&json!(2), &json!(90_000))
        );
    }

    #[test]
    fn a_span_has_the_promised_keys() {
        let objects = parse(&spans(&sample()));
        assert_eq!(objects.len(), 3);
        assert_eq!(
            keys(&objects[0]),
            [
                "type",
                "schema",
                "ts_ns",
                "pid",
                "tid",
                "thread",
                "function",
                "module",
                "address",
                "duration_ns",
                "values",
                "children",
                "children_left_out",
                "stack",
                "sampled",
                "samples",
                "stack_samples",
                "times_ns",
                "waits",
                "off_cpu",
                "off_cpu_left_out",
                "off_cpu_left_out_ns",
                "syscalls",
                "longest_wait"
            ]
        );
        assert_eq!(
            objects[0]["values"],
            json!({"n": {"state": "ok", "value": 7, "type": "int"}})
        );
        assert_eq!(
            objects[0]["children"],
            json!([
                {"place": "main.cc:1310", "offset_ns": 12_000, "duration_ns": null},
                {"place": "recv@main.cc:1312", "offset_ns": 1_200_000, "duration_ns": 3_100_000},
            ])
        );
        assert_eq!(
            objects[0]["stack"][2],
            json!({"function": "compress\x1b[2J", "file": "/src/zlib.c", "line": 210, "module": "server", "inlined": false})
        );
        assert_eq!(objects[0]["stack"][0]["line"], Value::Null);
        assert_eq!(
            (
                &objects[1]["values"],
                &objects[1]["stack"],
                &objects[1]["children_left_out"]
            ),
            (&Value::Null, &json!([]), &json!(3))
        );
        assert_eq!(
            objects[0]["times_ns"],
            json!({"on_cpu": 5_900_000, "sleeping": 25_000_000, "uninterruptible": 0, "stopped": 0, "runnable": 100_000})
        );
        let wait = &objects[0]["longest_wait"];
        assert_eq!(
            (&wait["activity"], &wait["time_ns"], &wait["stack"][1]["function"]),
            (&json!("sleeping"), &json!(20_000_000), &json!("handle_request"))
        );
        assert_eq!(
            wait["lock"],
            json!({"address": "0x7f00", "symbol": null, "memory": "[heap]", "allocated": null})
        );
        assert_eq!(
            (&objects[0]["thread"], &objects[1]["thread"]),
            (&json!("worker-1"), &Value::Null)
        );
        let ended_by = &wait["ended_by"];
        assert_eq!(
            (&ended_by["pid"], &ended_by["tid"], &ended_by["thread"]),
            (&json!(7), &json!(4640), &json!("flusher"))
        );
        assert_eq!(ended_by["stack"][1]["function"], json!("unlock"));
        assert_eq!(
            (&objects[1]["times_ns"], &objects[1]["longest_wait"]),
            (&Value::Null, &Value::Null)
        );
        assert_eq!(
            objects[2],
            json!({"type": "summary", "schema": 1, "spans": 2, "calls": 12_345, "window_ns": 10_000_000_000_u64,
                "watched_ns": 72_000_000_000_u64, "sampled": true, "threshold_ns": 900_000, "lost": {"slow_end_yielded": 1024}})
        );
    }
}
