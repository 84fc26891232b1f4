//! What attaching a scope would do, as NDJSON.

use profiler_proto::v1;
use serde_json::{Value, json};

use super::{
    estimate::{cpu_share, hits_per_s, inside, sum},
    json::{SCHEMA, integer, known, line},
};

/// A `place` for each place, then the `summary`.
#[must_use]
pub fn estimate(estimate: &v1::EstimateScopeResponse) -> String {
    let mut lines = String::new();
    for (number, step) in estimate.steps.iter().enumerate() {
        for place in &step.places {
            line(&mut lines, &self::place(estimate, (number, &step.step), place));
        }
    }
    line(&mut lines, &summary(estimate));
    lines
}

fn place(
    estimate: &v1::EstimateScopeResponse,
    (number, step): (usize, &str),
    place: &v1::EstimatedPlace,
) -> Value {
    let end = match place.exit_method() {
        v1::ExitMethod::Return => "return".into(),
        v1::ExitMethod::Ret => "ret".into(),
        v1::ExitMethod::Never => "never".into(),
        v1::ExitMethod::SystemCall => "syscall".into(),
        v1::ExitMethod::KernelFunction => "kernel".into(),
        v1::ExitMethod::Unspecified | v1::ExitMethod::Auto => Value::Null,
    };
    let optional = |number: Option<u64>| number.map_or(Value::Null, integer);
    json!({
        "type": "place",
        "schema": SCHEMA,
        "number": number,
        "step": step,
        "pid": place.pid,
        "site": place.site,
        "function": known(&place.function),
        "file": known(&place.file),
        "line": if place.file.is_empty() { Value::Null } else { place.line.into() },
        "module": place.module,
        "address": integer(place.address),
        "instruction": known(&place.instruction),
        "single_stepped": place.single_stepped,
        "end": end,
        "exits": place.exits,
        "exit_single_stepped": place.exit_single_stepped,
        "samples": optional(place.samples_inside),
        "time_inside": inside(estimate, place),
        "hits": optional(place.hits),
        "hits_per_s": hits_per_s(estimate, place),
        "hit_cost_ns": optional(place.hit_cost_ns),
        "cpu_share": cpu_share(estimate, place),
    })
}

fn summary(estimate: &v1::EstimateScopeResponse) -> Value {
    let places: usize = estimate.steps.iter().map(|step| step.places.len()).sum();
    let samples = estimate.samples.as_ref();
    let counted = estimate.counted.is_some();
    json!({
        "type": "summary",
        "schema": SCHEMA,
        "scope": estimate.scope,
        "pids": estimate.pids,
        "links": if estimate.attach_method() == v1::AttachMethod::Perf { "perf" } else { "multi" },
        "places": places,
        "features": estimate.features,
        "samples": samples.map(|samples| integer(samples.samples)),
        "sampled_ns": nanoseconds(samples.and_then(|samples| samples.sampled)),
        "cpu_ns": nanoseconds(samples.and_then(|samples| samples.cpu)),
        "counted_ns": nanoseconds(estimate.counted),
        "hits_per_s": sum(estimate, hits_per_s).filter(|_| counted),
        "cpu_share": sum(estimate, cpu_share).filter(|_| counted),
        "warnings": estimate.warnings,
    })
}

fn nanoseconds(duration: Option<prost_types::Duration>) -> Value {
    let of = |duration: prost_types::Duration| {
        let seconds = u64::try_from(duration.seconds).ok()?;
        let rest = u64::try_from(duration.nanos).ok()?;
        seconds.checked_mul(1_000_000_000)?.checked_add(rest)
    };
    duration.and_then(of).map_or(Value::Null, integer)
}
