//! What a service may send, for tests.

use std::{sync::Arc, time::Instant};

use profiler_common::layout;
use profiler_proto::v1;

use super::{
    data::{Data, Hits, ProcessRow, StepCount},
    lens::{Lens, Pane, Suggestion, path},
};
use crate::{cli::args::By, state::flame::node};

/// A name that would drive a terminal if it could.
pub const HOSTILE: &str = "evil\x1b[2J\u{202e}name";

fn frame(id: u32, function: &str) -> v1::Frame {
    v1::Frame {
        id,
        function: function.into(),
        file: "/src/server.cc".into(),
        line: id,
        module: "/usr/bin/server".into(),
        ..Default::default()
    }
}

fn flame(lost: u64) -> v1::WatchFlameResponse {
    let weight = |node, inside_ns: u64, outside_ns: u64| v1::NodeWeight {
        node,
        inside_ns,
        inside_samples: inside_ns / 1_000_000,
        outside_ns,
        outside_samples: outside_ns / 1_000_000,
    };
    let kernel = v1::Frame {
        kernel: true,
        module: "[kernel]".into(),
        ..frame(6, "vfs_read")
    };
    v1::WatchFlameResponse {
        info: Some(v1::StreamInfo {
            cost: Some(v1::Cost {
                cpu_share: 0.004,
                rss_anon_bytes: 16 << 20,
                kernel_share: 0.0,
                ..Default::default()
            }),
            ..v1::StreamInfo::default()
        }),
        snapshot: true,
        frames: vec![
            frame(1, "main"),
            frame(2, "handle"),
            frame(3, "parse"),
            frame(4, "compress"),
            frame(5, HOSTILE),
            kernel,
        ],
        nodes: vec![
            node(1, 0, 1),
            node(2, 1, 2),
            node(3, 2, 3),
            node(4, 2, 4),
            node(5, 4, 5),
            node(6, 3, 6),
        ],
        weights: vec![
            weight(1, 10_000_000, 20_000_000),
            weight(3, 200_000_000, 500_000_000),
            weight(4, 600_000_000, 100_000_000),
            weight(5, 40_000_000, 0),
            weight(6, 50_000_000, 80_000_000),
        ],
        differences: vec![v1::NodeDifference {
            node: 4,
            difference: 0.57,
            low: 0.5,
            high: 0.64,
            inside_spans: 40,
            outside_spans: 900,
        }],
        summary: Some(v1::FlameSummary {
            samples: 1600,
            inside: 900,
            outside: 700,
            threshold_ns: 2_000_000,
            calls: 2000.0,
            calls_inside: 100.0,
            lost: [("sample_ring_full".to_owned(), lost)].into(),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn bucket(ns: u64) -> u32 {
    u32::try_from(layout::bucket_of(ns)).unwrap()
}

/// Two modes, with a few calls in each bar between them.
fn in_every_bar() -> v1::Histogram {
    const BETWEEN_US: [u64; 8] = [150, 220, 310, 440, 620, 880, 1_250, 1_760];
    let between = BETWEEN_US.map(|us| (us * 1000, 5));
    let first = [(100_000, 1860)];
    let calls = first.into_iter().chain(between).chain([(2_000_000, 100)]);
    let mut before = 0;
    let mut histogram = v1::Histogram::default();
    for (ns, count) in calls {
        histogram.bucket_deltas.push(bucket(ns) - before);
        histogram.counts.push(count);
        before = bucket(ns);
    }
    histogram
}

fn latency() -> v1::WatchLatencyResponse {
    let summary = v1::Summary {
        count: 2000.0,
        rate_hz: 200.0,
        mean_ns: 300_000.0,
        min_ns: 1000,
        max_ns: 9_000_000,
        p50_ns: 100_000,
        p90_ns: 900_000,
        p95_ns: 2_000_000,
        p99_ns: 4_000_000,
        p999_ns: 8_000_000,
    };
    v1::WatchLatencyResponse {
        info: Some(v1::StreamInfo {
            scope: "handle[>= p95]".into(),
            ..v1::StreamInfo::default()
        }),
        snapshot: true,
        functions: vec![v1::FunctionLatency {
            id: 1,
            function: Some(v1::Function {
                name: "handle".into(),
                file: "/src/server.cc".into(),
                line: 12,
                ..Default::default()
            }),
            since_start: Some(summary),
            window: Some(summary),
            ewma: Some(summary),
            since_start_counts: Some(in_every_bar()),
            overhead_ns: 700,
            cost_ns: 7000,
            ..Default::default()
        }],
        ..Default::default()
    }
}

fn source() -> v1::SourceFunction {
    let line = |number, text: &str| v1::SourceLine {
        line: number,
        text: text.into(),
        sites: vec![u64::from(number)],
        ..Default::default()
    };
    let at = |line| {
        Some(v1::SourcePosition {
            address: 1,
            file: String::new(),
            line,
        })
    };
    v1::SourceFunction {
        function: Some(v1::Function {
            name: "handle".into(),
            file: "/src/server.cc".into(),
            line: 12,
            ..Default::default()
        }),
        last_line: 16,
        has_text: true,
        lines: vec![
            line(12, "int handle(int n) {"),
            v1::SourceLine {
                branches: vec![v1::SourceBranch {
                    address: 2,
                    mnemonic: "je".into(),
                    taken: at(15),
                    otherwise: at(14),
                    is_loop: false,
                }],
                ..line(13, "  if (n > 100) // \x1b[31m")
            },
            v1::SourceLine {
                calls: vec![v1::SourceCall {
                    address: 3,
                    return_address: 4,
                    callee: "compress".into(),
                    ..Default::default()
                }],
                variables: vec![0],
                ..line(14, "    compress(n);")
            },
            line(15, "  return parse(n);"),
            v1::SourceLine {
                sites: Vec::new(),
                ..line(16, "}")
            },
        ],
        variables: vec![v1::SourceVariable {
            name: "n".into(),
            r#type: "int".into(),
            parameter: true,
            ranges: vec![v1::AddressRange { begin: 1, end: 9 }],
            ..Default::default()
        }],
        ..Default::default()
    }
}

fn trace(lost: u64) -> v1::WatchTraceResponse {
    let value = |expression: &str, text: &str| v1::HitValue {
        expression: expression.into(),
        state: v1::ValueState::Ok.into(),
        json: text.into(),
        text: text.into(),
        r#type: "int".into(),
        reason: String::new(),
        as_int: None,
    };
    v1::WatchTraceResponse {
        places: vec![v1::TracedPlace {
            function: "handle".into(),
            file: "/src/server.cc".into(),
            line: 14,
            module: "/usr/bin/server".into(),
            address: 3,
            site: "/src/server.cc:14".into(),
        }],
        hits: (0..3)
            .map(|at| v1::Hit {
                ts_ns: 1_000_000_000 * at,
                tid: 7,
                values: vec![value("n", &(100 + at).to_string()), value("name", HOSTILE)],
                ..Default::default()
            })
            .collect(),
        reached: 9,
        rejected: 4,
        lost: [("rate_limit".to_owned(), lost)].into(),
        ..Default::default()
    }
}

fn explained() -> v1::WatchExplainResponse {
    let calls = |calls, mean_ns| Some(v1::CallsOfSide { calls, mean_ns });
    let share = |have, of| Some(v1::CallShare { have, of });
    v1::WatchExplainResponse {
        looked_at: 1000,
        slow: calls(100, 3e6),
        other: calls(900, 1e5),
        features: 14,
        findings: vec![v1::Finding {
            kind: v1::finding::Kind::Branch.into(),
            text: "server.cc:13!else".into(),
            slow: share(99, 100),
            other: share(9, 900),
            difference: Some(v1::Interval {
                value: 0.98,
                low: 0.9,
                high: 1.0,
            }),
            next: "handle[>= p95]/server.cc:13!else".into(),
            ..Default::default()
        }],
        ..Default::default()
    }
}

fn spans() -> v1::WatchSpansResponse {
    let span = |ts_ns, duration_ns| v1::Span {
        ts_ns,
        tid: 4631,
        duration_ns,
        function: Some(v1::Function {
            name: "handle".into(),
            ..Default::default()
        }),
        ..Default::default()
    };
    let child = |place: &str, offset_ns, duration_ns| v1::SpanChild {
        place: place.into(),
        offset_ns,
        duration_ns,
    };
    let off_cpu = |activity: v1::Activity, offset_ms: u64, time_ms: u64, system_call: &str| v1::SpanPeriod {
        activity: activity.into(),
        offset_ns: offset_ms * 1_000_000,
        time_ns: time_ms * 1_000_000,
        system_call: system_call.into(),
    };
    v1::WatchSpansResponse {
        info: Some(v1::StreamInfo {
            scope: "handle[>= p95]".into(),
            ..v1::StreamInfo::default()
        }),
        spans: vec![
            v1::Span {
                children: vec![
                    child("server.cc:13", 12_000, None),
                    child(HOSTILE, 10_000_000, Some(5_000_000)),
                ],
                children_left_out: 7,
                samples: 12,
                stack_samples: 9,
                stack: vec![1, 2],
                times: Some(v1::SpanTimes {
                    on_cpu_ns: 6_000_000,
                    sleeping_ns: 14_000_000,
                    ..Default::default()
                }),
                waits: 3,
                longest_wait: Some(v1::SpanWait {
                    activity: "sleeping".into(),
                    offset_ns: 5_000_000,
                    time_ns: 10_000_000,
                    stack: vec![1, 2, 3],
                    ..Default::default()
                }),
                off_cpu: vec![
                    off_cpu(v1::Activity::Sleeping, 1, 3, HOSTILE),
                    off_cpu(v1::Activity::Sleeping, 5, 10, "read"),
                    off_cpu(v1::Activity::Sleeping, 17, 1, "read"),
                ],
                ..span(7_000_000_000, 20_000_000)
            },
            span(6_000_000_000, 4_000_000),
        ],
        frames: vec![frame(1, "main"), frame(2, "handle"), frame(3, "read")],
        calls: 2000,
        window_ns: 10_000_000_000,
        watched_ns: 60_000_000_000,
        ..Default::default()
    }
}

/// Threads that wait for one that is called as a terminal had better not show.
fn waits() -> v1::WatchWaitsResponse {
    let node = |parent, kind: v1::WaitKind, thread: &str, stack: &[u32], time_ns| v1::WaitNode {
        parent,
        kind: kind.into(),
        thread: thread.to_owned(),
        waiting: v1::Waiting::Sleeping.into(),
        stack: stack.to_vec(),
        time_ns,
        count: 7,
        ..Default::default()
    };
    let kernel = v1::Frame {
        kernel: true,
        ..frame(3, "futex_wait_queue")
    };
    v1::WatchWaitsResponse {
        nodes: vec![
            node(0, v1::WaitKind::Waited, "clerk-*", &[1, 2, 3], 900_000_000),
            node(1, v1::WaitKind::Woken, HOSTILE, &[1], 800_000_000),
            node(0, v1::WaitKind::Waited, "main", &[1, 3], 300_000_000),
        ],
        frames: vec![frame(1, "main"), frame(2, "handle"), kernel],
        waits: 21,
        waited_ns: 1_200_000_000,
        watched_ns: 10_000_000_000,
        ..Default::default()
    }
}

fn syscalls() -> v1::WatchSyscallsResponse {
    let syscall = |name: &str, calls, time_ns| v1::Syscall {
        name: name.to_owned(),
        calls,
        time_ns,
        longest_ns: time_ns / 2,
        callers: vec![v1::SyscallCaller {
            stack: vec![1, 2],
            calls,
            time_ns,
            ..Default::default()
        }],
        ..Default::default()
    };
    v1::WatchSyscallsResponse {
        syscalls: vec![
            syscall("read", 4_000, 800_000_000),
            syscall("futex", 90, 20_000_000),
        ],
        frames: vec![frame(1, "main"), frame(2, "handle")],
        watched_ns: 10_000_000_000,
        ..Default::default()
    }
}

/// Nothing has come yet but the processes.
pub fn empty() -> Data {
    Data {
        processes: vec![
            ProcessRow {
                pid: 4211,
                user: "www".into(),
                threads: 6,
                cpus: Some(1.25),
                command: "/opt/shop/releases/current/bin/server --listen \x1b[31m".into(),
                command_by_name: "server --listen \x1b[31m".into(),
                symbols: "dynamic".into(),
                debug_info: "separate".into(),
                runtime: "native".into(),
                place: "docker 0123456789ab".into(),
            },
            ProcessRow {
                pid: 4212,
                user: "root".into(),
                threads: 1,
                cpus: None,
                command: "other".into(),
                command_by_name: "other".into(),
                ..ProcessRow::default()
            },
        ],
        ..Data::default()
    }
}

/// Every view has something.
pub fn busy() -> Data {
    let mut data = Data {
        target: "pid 4211 (server)".into(),
        session: Some(Arc::new(v1::Session {
            warnings: vec!["each return is single-stepped".into(), "another".into()],
            ..Default::default()
        })),
        source: Some(Arc::new(source())),
        source_of: "handle".to_owned(),
        completions: ["handle", "a::<b>::handle"]
            .map(|name| Suggestion {
                text: path::quoted(name),
                about: String::new(),
            })
            .to_vec(),
        stale: true,
        ..empty()
    };
    Arc::make_mut(&mut data.flame).apply(flame(0)).unwrap();
    data.latency.apply(latency()).unwrap();
    data.hits.apply(trace(0)).unwrap();
    data.aside.explained = Some(explained());
    data.aside.calls.apply(spans()).unwrap();
    data.aside.waits.apply(waits()).unwrap();
    data.aside.syscalls.apply(syscalls()).unwrap();
    for message in timeline() {
        data.aside.timeline.apply(message).unwrap();
    }
    let count = StepCount {
        count: 1234,
        rate_hz: Some(99.5),
        at: Instant::now(),
    };
    data.counts.insert("handle[>= p95]".into(), count);
    data.settle(&Lens::default());
    data
}

/// The flame view with frames that stand for something else.
pub fn by(grouping: v1::Grouping) -> Data {
    let mut data = busy();
    let message = v1::WatchFlameResponse {
        by: grouping.into(),
        ..flame(0)
    };
    Arc::make_mut(&mut data.flame).apply(message).unwrap();
    data.stale = true;
    let by = match grouping {
        v1::Grouping::Line => By::Line,
        v1::Grouping::Module => By::Module,
        v1::Grouping::Thread => By::Thread,
        _ => By::Function,
    };
    let mut lens = Lens::default();
    lens.by = by;
    data.settle(&lens);
    data
}

/// The flame view of three threads.
pub fn by_thread() -> Data {
    let mut data = busy();
    let mut message = v1::WatchFlameResponse {
        by: v1::Grouping::Thread.into(),
        ..flame(0)
    };
    for (id, name) in [(11, "clerk-1 (4212)"), (12, "clerk-2 (4213)"), (13, HOSTILE)] {
        message.frames.push(v1::Frame {
            module: "[thread]".into(),
            ..frame(id, name)
        });
        for (node, parent, frame) in [(id * 10, 0, id), (id * 10 + 1, id * 10, 1)] {
            message.nodes.push(v1::FlameNode {
                id: node,
                parent,
                frame,
                complete: true,
            });
        }
        message.weights.push(v1::NodeWeight {
            node: id * 10 + 1,
            inside_ns: u64::from(20 - id) * 1_000_000_000,
            inside_samples: u64::from(id),
            ..v1::NodeWeight::default()
        });
    }
    Arc::make_mut(&mut data.flame).apply(message).unwrap();
    data.stale = true;
    let mut lens = Lens::default();
    lens.pane = Pane::Threads;
    data.settle(&lens);
    data
}

fn timeline() -> Vec<v1::WatchTimelineResponse> {
    const STEP_NS: u64 = 250_000_000;
    let count = |count| v1::Count {
        unknown: false,
        count,
        share: 1.0,
    };
    (0..8)
        .map(|seq| v1::WatchTimelineResponse {
            info: Some(v1::StreamInfo {
                seq,
                ..v1::StreamInfo::default()
            }),
            counters: vec!["task-clock".into(), "page-faults".into()],
            from_ns: seq * STEP_NS,
            to_ns: (seq + 1) * STEP_NS,
            counts: vec![count(STEP_NS / 2), count(10 * seq)],
            ..v1::WatchTimelineResponse::default()
        })
        .collect()
}

/// Two more messages have come of the latency view: fast calls in each, a slow one in the second.
pub fn go_on(data: &mut Data) {
    let at = Instant::now();
    data.heat.add(&data.latency, at);
    for (seconds, slow) in [(1, 0), (2, 1)] {
        let mut message = latency();
        message.snapshot = false;
        message.functions[0].since_start_counts = Some(v1::Histogram {
            bucket_deltas: vec![bucket(100_000), bucket(2_000_000) - bucket(100_000)],
            counts: vec![190, slow],
        });
        data.latency.apply(message).unwrap();
        data.heat
            .add(&data.latency, at + std::time::Duration::from_secs(seconds));
    }
}

/// As busy, and something was lost.
pub fn lossy() -> Data {
    let mut data = busy();
    Arc::make_mut(&mut data.flame).apply(flame(1234)).unwrap();
    data.hits = Hits::default();
    data.hits.apply(trace(2)).unwrap();
    data
}
