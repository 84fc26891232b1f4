//! What the scripted daemon sends of the slowest calls.

use profiler_proto::v1::{self, ValueState};

use super::{info, views::function};

/// The slowest calls after a number of updates, as many as were asked for of two; why it is the last message.
pub fn spans(wanted: u32, update: usize, why: Option<&str>) -> v1::WatchSpansResponse {
    let slow = v1::Span {
        ts_ns: 1_000_000_000,
        pid: 7,
        tid: 77,
        function: Some(function("handle<\x1b[31m>", 12)),
        duration_ns: 31_000_000 + update as u64,
        values: vec![v1::HitValue {
            expression: "n".into(),
            state: ValueState::Ok.into(),
            json: "7".into(),
            text: "7".into(),
            r#type: "int".into(),
            reason: String::new(),
            as_int: None,
        }],
        children: vec![v1::SpanChild {
            place: "server.cc:13".into(),
            offset_ns: 12_000,
            duration_ns: None,
        }],
        samples: 12,
        stack_samples: 9,
        stack: vec![4, 9],
        ..Default::default()
    };
    let fast = v1::Span {
        duration_ns: 900_000,
        values: Vec::new(),
        values_missing: true,
        children: Vec::new(),
        samples: 0,
        stack_samples: 0,
        stack: Vec::new(),
        ..slow.clone()
    };
    let frame = |id, name: &str| v1::Frame {
        id,
        function: name.into(),
        file: "/src/server.cc".into(),
        line: id,
        module: "server".into(),
        ..Default::default()
    };
    v1::WatchSpansResponse {
        info: Some(info(update as u64, "handle", why)),
        spans: [slow, fast].into_iter().take(wanted as usize).collect(),
        frames: vec![frame(4, "main"), frame(9, "compress")],
        calls: 1000 * (update as u64 + 1),
        window_ns: 10_000_000_000,
        watched_ns: 12_000_000_000,
        threshold_ns: 900_000,
        lost: [("slow_end_yielded".to_owned(), 5)].into(),
        ..Default::default()
    }
}
