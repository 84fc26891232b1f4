//! One JSON object a line, as `docs/json.md` promises them. Every object has `type` and `schema`.

use std::collections::BTreeMap;

use profiler_aggregate::pace::Pace;
use profiler_proto::v1;
use serde_json::{Map, Value, json};

use crate::{
    state::sides::Sides,
    state::{
        flame::{FlameState, SideNames},
        latency::LatencyState,
        times::{ACTIVITIES, times},
        tree::{self, Tree},
        unresolved,
    },
};

/// Version of the objects' shape.
pub(super) const SCHEMA: u64 = 1;

/// Integers beyond this do not survive a reader that keeps numbers as doubles.
const EXACT: u64 = 1 << 53;

/// One `latency` object for each function.
#[must_use]
pub fn latency(state: &LatencyState, is_final: bool) -> String {
    let mut lines = String::new();
    for function in state.functions.values() {
        line(
            &mut lines,
            &json!({
                "type": "latency",
                "schema": SCHEMA,
                "scope": state.scope,
                "function": function.function.name,
                "module": function.function.module,
                "address": integer(function.function.address),
                "inlined": function.function.inlined,
                "same_code": function.function.same_code,
                "async": function.function.is_async,
                "final": is_final,
                "since_start": numbers(&function.since_start),
                "window": numbers(&function.window),
                "ewma": numbers(&function.ewma),
                "open": integer(function.open),
                "abandoned": integer(function.abandoned),
                "overhead_ns": integer(function.overhead_ns),
                "cost_ns": integer(function.cost_ns),
                "other_hits": function.other_hits.map(integer),
                "lost": counts(&state.lost_of(function)),
                "timed_share": number(function.timed_share()),
                "taken_off": function.taken_off.as_ref().map(|why| &why.reason),
            }),
        );
    }
    lines
}

/// `stack` objects, root first, then the `summary`.
#[must_use]
pub fn flame(state: &FlameState, sides: Sides) -> String {
    let tree = Tree::of(state);
    let mut lines = String::new();
    for (at, node) in tree.nodes.iter().enumerate() {
        if node.own.ns(sides) == 0 && node.own.samples(sides) == 0 {
            continue;
        }
        let frames: Vec<Value> = tree.stack(at).into_iter().map(frame).collect();
        let (weight, samples) = match sides {
            Sides::Inside | Sides::Difference => (node.own.inside_ns, node.own.inside_samples),
            Sides::Outside => (node.own.outside_ns, node.own.outside_samples),
        };
        let mut object = json!({
            "type": "stack",
            "schema": SCHEMA,
            "frames": frames,
        });
        let is_event = !state.unit.is_empty();
        object[if is_event { "weight" } else { "weight_ns" }] = integer(weight);
        if is_event {
            object["unit"] = state.unit.as_str().into();
        }
        object["samples"] = integer(samples);
        object["complete"] = node.complete.into();
        if sides == Sides::Difference {
            let key = if is_event {
                "outside_weight"
            } else {
                "outside_weight_ns"
            };
            object[key] = integer(node.own.outside_ns);
            object["outside_samples"] = integer(node.own.outside_samples);
        }
        line(&mut lines, &object);
    }
    let summary = &state.summary;
    let mut object = json!({
        "type": "summary",
        "schema": SCHEMA,
        "samples": integer(summary.samples),
        "inside": integer(summary.inside),
        "outside": integer(summary.outside),
        "elsewhere": integer(summary.elsewhere),
        "open": integer(summary.open),
        "incomplete": integer(summary.incomplete),
    });
    if state.unit.is_empty() {
        object["times_ns"] = times_ns(state, sides);
    } else {
        object["event"] = state.event.as_str().into();
        object["unit"] = state.unit.as_str().into();
        match state.pace {
            None => {}
            Some(Pace::Period(period)) => object["period"] = integer(period),
            Some(Pace::Frequency(frequency_hz)) => object["frequency_hz"] = frequency_hz.into(),
        }
    }
    if let Some(before) = &state.before {
        let SideNames { inside, outside } = state.names();
        object["sides"] = json!({"inside": inside, "outside": outside});
        for (name, summary) in [(inside, summary), (outside, before)] {
            object[name] = json!({
                "calls": number(summary.calls),
                "calls_inside": number(summary.calls_inside),
                "threshold_ns": integer(summary.threshold_ns),
            });
        }
    }
    object["unresolved"] = counts(&unresolved::samples(state));
    object["lost"] = counts(
        &summary
            .lost
            .iter()
            .map(|(reason, &n)| (reason.clone(), n))
            .collect(),
    );
    line(&mut lines, &object);
    lines
}

/// What threads did in the time that is drawn, by activity.
fn times_ns(state: &FlameState, sides: Sides) -> Value {
    let of_side = |(inside_ns, outside_ns)| match sides {
        Sides::Inside | Sides::Difference => integer(inside_ns),
        Sides::Outside => integer(outside_ns),
    };
    let times = ACTIVITIES.into_iter().zip(times(state));
    times
        .map(|(activity, times)| (activity.to_owned(), of_side(times)))
        .collect::<Map<_, _>>()
        .into()
}

/// A `function` object.
#[must_use]
pub fn function(function: &v1::Function) -> String {
    let mut lines = String::new();
    line(
        &mut lines,
        &json!({
               "type": "function",
        "schema": SCHEMA,
        "name": function.name,
        "linkage_name": function.linkage_name,
        "file": known(&function.file),
        "line": if function.line == 0 { Value::Null } else { function.line.into() },
        "module": function.module,
        "address": integer(function.address),
        "size": integer(function.size),
        "inlined": function.inlined,
        "same_code": function.same_code,
        "async": function.is_async,
        "copied": function.is_copied,
        "named": !super::text::is_unnamed(function),
           }),
    );
    lines
}

/// An `unnamed_functions` object.
#[must_use]
pub fn unnamed_functions(file: &v1::UnnamedFunctions) -> String {
    let mut lines = String::new();
    line(
        &mut lines,
        &json!({
            "type": "unnamed_functions",
            "schema": SCHEMA,
            "module": file.module,
            "count": integer(file.count),
        }),
    );
    lines
}

/// A `process` object.
#[must_use]
pub fn process(process: &v1::Process) -> String {
    let mut lines = String::new();
    line(
        &mut lines,
        &json!({
            "type": "process",
            "schema": SCHEMA,
            "pid": process.pid,
            "uid": process.uid,
            "threads": process.threads,
            "executable": process.executable,
            "command": process.command,
            "symbols": known(&process.symbols),
            "debug_info": known(&process.debug_info),
            "runtime": known(&process.runtime),
            "container": known(&process.container),
            "unit": known(&process.unit),
        }),
    );
    lines
}

/// A `session` object.
#[must_use]
pub fn session(session: &v1::Session) -> String {
    let mut lines = String::new();
    line(
        &mut lines,
        &json!({
            "type": "session",
            "schema": SCHEMA,
            "name": session.name,
            "scope": session.scope,
            "pids": session.pids,
            "functions": session.sites.len(),
            "watchers": session.watchers,
            "warnings": session.warnings,
        }),
    );
    lines
}

/// Processes that have left a session, an object each.
#[must_use]
pub fn departures(departures: &[&v1::Departure]) -> String {
    let mut lines = String::new();
    for left in departures {
        let cause = match left.cause() {
            v1::DepartureCause::Unspecified | v1::DepartureCause::Ended => "ended",
            v1::DepartureCause::AnotherProgram => "another_program",
            v1::DepartureCause::NotAllowed => "not_allowed",
        };
        line(
            &mut lines,
            &json!({
                "type": "process_left",
                "schema": SCHEMA,
                "pid": left.pid,
                "name": left.name,
                "cause": cause,
                "reason": left.reason,
                "signal": (left.signal != 0).then_some(left.signal),
                "left": left.left,
                "of": left.of,
            }),
        );
    }
    lines
}

/// Files that processes of a session replaced, an object each.
#[must_use]
pub fn replaced_files(replaced: &[&v1::ReplacedFile]) -> String {
    let mut lines = String::new();
    for v1::ReplacedFile {
        pid,
        name,
        path,
        reason,
    } in replaced
    {
        line(
            &mut lines,
            &json!({
                "type": "file_replaced",
                "schema": SCHEMA,
                "pid": pid,
                "name": name,
                "path": path,
                "reason": reason,
            }),
        );
    }
    lines
}

pub(super) fn line(lines: &mut String, object: &Value) {
    lines.push_str(&object.to_string());
    lines.push('\n');
}

/// A histogram in numbers.
pub(super) fn numbers(summary: &v1::Summary) -> Value {
    if summary.count > 0.0 {
        json!({
            "count": number(summary.count),
            "rate_hz": number(summary.rate_hz),
            "mean_ns": number(summary.mean_ns),
            "min_ns": integer(summary.min_ns),
            "max_ns": integer(summary.max_ns),
            "p50_ns": integer(summary.p50_ns),
            "p90_ns": integer(summary.p90_ns),
            "p95_ns": integer(summary.p95_ns),
            "p99_ns": integer(summary.p99_ns),
            "p999_ns": integer(summary.p999_ns),
        })
    } else {
        json!({
            "count": 0,
            "rate_hz": null,
            "mean_ns": null,
            "min_ns": null,
            "max_ns": null,
            "p50_ns": null,
            "p90_ns": null,
            "p95_ns": null,
            "p99_ns": null,
            "p999_ns": null,
        })
    }
}

fn frame(frame: &v1::Frame) -> Value {
    json!({
        "function": tree::name(frame),
        "file": known(&frame.file),
        "line": if frame.line == 0 { Value::Null } else { frame.line.into() },
        "module": known(&frame.module),
        "inlined": frame.inlined,
    })
}

pub(super) fn counts(lost: &BTreeMap<String, u64>) -> Value {
    Value::Object(
        lost.iter()
            .map(|(reason, &n)| (reason.clone(), integer(n)))
            .collect::<Map<_, _>>(),
    )
}

pub(super) fn known(text: &str) -> Value {
    if text.is_empty() { Value::Null } else { text.into() }
}

/// An integer, as a string where a double could not hold it.
pub(super) fn integer(value: u64) -> Value {
    if value > EXACT {
        value.to_string().into()
    } else {
        value.into()
    }
}

/// A number; a whole one without a fraction.
fn number(value: f64) -> Value {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "whole and in range"
    )]
    if value >= 0.0 && value <= EXACT as f64 && value.fract() == 0.0 {
        (value as u64).into()
    } else {
        value.into()
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::parsed::{keys, parse},
        *,
    };
    use crate::state::tree::tests::sample;

    #[test]
    fn a_latency_object_has_the_promised_keys() {
        let mut state = LatencyState::default();
        state
            .apply(v1::WatchLatencyResponse {
                info: Some(v1::StreamInfo {
                    scope: "f".into(),
                    ..v1::StreamInfo::default()
                }),
                snapshot: true,
                functions: vec![v1::FunctionLatency {
                    id: 1,
                    since_start: Some(v1::Summary {
                        count: 3.0,
                        rate_hz: 0.5,
                        max_ns: (1 << 53) + 1,
                        ..Default::default()
                    }),
                    lost: [("too_deep".to_owned(), 2)].into(),
                    ..Default::default()
                }],
                ..Default::default()
            })
            .unwrap();
        let objects = parse(&latency(&state, true));
        assert_eq!(objects.len(), 1);
        assert_eq!(
            keys(&objects[0]),
            [
                "type",
                "schema",
                "scope",
                "function",
                "module",
                "address",
                "inlined",
                "same_code",
                "async",
                "final",
                "since_start",
                "window",
                "ewma",
                "open",
                "abandoned",
                "overhead_ns",
                "cost_ns",
                "other_hits",
                "lost",
                "timed_share",
                "taken_off"
            ]
        );
        assert_eq!(objects[0]["timed_share"], 0.6);
        assert!(objects[0]["taken_off"].is_null());
        let histogram = &objects[0]["since_start"];
        assert_eq!(
            keys(histogram),
            [
                "count", "rate_hz", "mean_ns", "min_ns", "max_ns", "p50_ns", "p90_ns", "p95_ns", "p99_ns",
                "p999_ns"
            ]
        );
        assert_eq!(histogram["count"], 3);
        assert_eq!(histogram["rate_hz"], 0.5);
        assert_eq!(histogram["max_ns"], "9007199254740993");
        assert_eq!(keys(&objects[0]["window"]), keys(histogram));
        assert_eq!(objects[0]["window"]["count"], 0);
        assert!(objects[0]["window"]["p95_ns"].is_null());
        assert_eq!(objects[0]["final"], true);
        assert_eq!(objects[0]["lost"], json!({"too_deep": 2}));
    }

    #[test]
    fn flame_objects_are_stacks_root_first_and_a_summary() {
        let objects = parse(&flame(&sample(), Sides::Inside));
        let slow = &objects[1];
        assert_eq!(
            keys(slow),
            ["type", "schema", "frames", "weight_ns", "samples", "complete"]
        );
        assert_eq!(
            keys(&slow["frames"][0]),
            ["function", "file", "line", "module", "inlined"]
        );
        assert_eq!(slow["frames"][0]["function"], "main");
        assert_eq!(
            slow["frames"][2]["function"], "slow;path",
            "JSON needs no replacement"
        );
        assert_eq!((&slow["weight_ns"], &slow["samples"]), (&json!(200), &json!(20)));
        let last = objects.last().unwrap();
        assert_eq!(
            last,
            &json!({"type": "summary", "schema": 1, "samples": 250, "inside": 100, "outside": 100,
                "elsewhere": 40, "open": 10, "incomplete": 20,
                "times_ns": {"on_cpu": 1000, "sleeping": 0, "uninterruptible": 0, "stopped": 0, "runnable": 0},
                "unresolved": {}, "lost": {"sample_ring_full": 3}})
        );
        let incomplete = &objects[objects.len() - 2];
        assert_eq!(incomplete["complete"], false);
    }

    #[test]
    fn an_event_has_its_unit() {
        let mut state = sample();
        (state.event, state.unit) = ("page-faults".into(), "faults".into());
        state.pace = Some(Pace::Period(16));
        let objects = parse(&flame(&state, Sides::Difference));
        assert_eq!(
            keys(&objects[0]),
            [
                "type",
                "schema",
                "frames",
                "weight",
                "unit",
                "samples",
                "complete",
                "outside_weight",
                "outside_samples"
            ]
        );
        assert_eq!(objects[0]["weight"], 100);
        let last = objects.last().unwrap();
        assert_eq!(
            (&last["event"], &last["unit"], &last["period"]),
            (&json!("page-faults"), &json!("faults"), &json!(16))
        );
        assert!(last.get("times_ns").is_none() && last["lost"]["sample_ring_full"] == 3);
    }

    #[test]
    fn a_difference_has_both_weights() {
        let objects = parse(&flame(&sample(), Sides::Difference));
        assert_eq!(objects[0]["weight_ns"], 100);
        assert_eq!(objects[0]["outside_weight_ns"], 100);
    }
}
