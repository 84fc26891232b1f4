//! What the scripted daemon sends.

use profiler_proto::v1;

use super::info;

/// A function of the target.
pub fn function(name: &str, line: u32) -> v1::Function {
    v1::Function {
        name: name.into(),
        linkage_name: format!("_Z{name}"),
        file: "src/server.cc".into(),
        line,
        module: "/usr/bin/server".into(),
        address: 0x1000 + u64::from(line),
        size: 100,
        inlined: 0,
        ..v1::Function::default()
    }
}

/// The latency view after a number of updates; why it is the last one.
pub fn latency(update: usize, why: Option<&str>) -> v1::WatchLatencyResponse {
    let calls = 100.0 * (update + 1) as f64;
    let summary = Some(v1::Summary {
        count: calls,
        rate_hz: 2000.0,
        mean_ns: 1_500_000.0,
        min_ns: 250_000,
        max_ns: 31_000_000,
        p50_ns: 900_000,
        p90_ns: 1_900_000,
        p95_ns: 12_300_000,
        p99_ns: 20_000_000,
        p999_ns: 30_000_000,
    });
    let counts = v1::Histogram {
        bucket_deltas: vec![1700, 100, 100, 300],
        counts: vec![40, 50, 7, 3],
    };
    v1::WatchLatencyResponse {
        info: Some(v1::StreamInfo {
            cost: Some(v1::Cost {
                cpu_share: 0.004,
                rss_anon_bytes: 21 << 20,
                kernel_share: 0.001,
                ..Default::default()
            }),
            ..info(update as u64, "handle", why)
        }),
        snapshot: update == 0,
        functions: vec![v1::FunctionLatency {
            id: 1,
            function: Some(function("handle", 12)),
            since_start: summary,
            window: summary,
            ewma: None,
            since_start_counts: Some(counts.clone()),
            window_counts: Some(counts),
            open: 2,
            overhead_ns: 800,
            slowest: vec![v1::SlowCall {
                ts_ns: 1,
                tid: 77,
                duration_ns: 31_000_000,
            }],
            ..Default::default()
        }],
        ..Default::default()
    }
}

/// The flame view after a number of updates; why it is the last one.
pub fn flame(update: usize, why: Option<&str>) -> v1::WatchFlameResponse {
    let frame = |id, function: &str, kernel| v1::Frame {
        id,
        function: function.into(),
        module: if kernel { "[kernel]" } else { "/usr/bin/server" }.into(),
        kernel,
        ..Default::default()
    };
    let samples = update as u64 + 1;
    let snapshot = update == 0;
    v1::WatchFlameResponse {
        info: Some(info(update as u64, "handle[>= p95]", why)),
        snapshot,
        frames: if snapshot {
            vec![
                frame(1, "main", false),
                frame(2, "handle", false),
                frame(3, "slow;path", false),
                frame(4, "read", true),
            ]
        } else {
            Vec::new()
        },
        nodes: if snapshot {
            [(1, 0, 1), (2, 1, 2), (3, 2, 3), (4, 3, 4)]
                .map(|(id, parent, frame)| v1::FlameNode {
                    id,
                    parent,
                    frame,
                    complete: true,
                })
                .into()
        } else {
            Vec::new()
        },
        weights: [(2, 1, 9), (3, 5, 0), (4, 4, 1)]
            .map(|(node, inside, outside)| v1::NodeWeight {
                node,
                inside_ns: inside * samples * 10_000_000,
                inside_samples: inside * samples,
                outside_ns: outside * samples * 10_000_000,
                outside_samples: outside * samples,
            })
            .into(),
        differences: vec![v1::NodeDifference {
            node: 3,
            difference: 0.8,
            low: 0.6,
            high: 0.9,
            inside_spans: 12,
            outside_spans: 40,
        }],
        summary: Some(v1::FlameSummary {
            samples: 20 * samples,
            inside: 10 * samples,
            outside: 10 * samples,
            threshold_ns: 12_300_000,
            calls: 10_234.0,
            calls_inside: 512.0,
            ..Default::default()
        }),
        ..Default::default()
    }
}
