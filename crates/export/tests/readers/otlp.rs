//! OpenTelemetry's package for Python.

use profiler_export::otlp;

use super::*;

#[test]
fn profiles_have_every_stack_and_weight() {
    let profile = support::profile();
    let module = "opentelemetry.proto.profiles.v1development.profiles_pb2";
    let Some(samples) = read_by_python(module, "otlp_profiles.py", &otlp::encoded_profiles(&profile)) else {
        return;
    };
    let mut read: BTreeMap<String, Stacks> = BTreeMap::new();
    for sample in samples {
        let (measure, side) = (sample[0].as_str().unwrap(), sample[2].as_str().unwrap());
        let of = read.entry(format!("{measure}, side {side}")).or_default();
        of.insert(texts(&sample[1]), sample[3].as_u64().unwrap());
    }
    assert_eq!(read, by_measure_and_side(&profile));
}

#[test]
fn metrics_have_every_call_in_its_bucket() {
    let module = "opentelemetry.proto.metrics.v1.metrics_pb2";
    let durations = support::durations();
    let Some(histograms) = read_by_python(module, "otlp_metrics.py", &otlp::encoded_metrics(&durations))
    else {
        return;
    };
    let bucket = |value_ns: f64| ((value_ns / 1e9).log2() * f64::from(1 << otlp::SCALE)).floor();
    let expected = serde_json::json!([
        "profiler.call.duration",
        {"code.function.name": "handle", "profiler.module": "/usr/bin/server", "profiler.scope": "handle"},
        9_503,
        3,
        otlp::SCALE,
        [[bucket(10_048.0) as i64, 9_000], [bucket(30_015_488.0) as i64, 500]],
    ]);
    assert_eq!(histograms, [expected]);
}
