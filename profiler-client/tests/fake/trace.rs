//! What the scripted daemon sends of a trace.

use profiler_proto::v1::{self, ValueState};

use super::info;

/// Hits in each message.
pub const HITS: u64 = 2;

/// Hits that are counted as lost with each message.
pub const LOST: u64 = 500;

fn value(expression: &str, state: ValueState, json: &str, text: &str) -> v1::HitValue {
    v1::HitValue {
        expression: expression.into(),
        state: state.into(),
        json: json.into(),
        text: text.into(),
        r#type: if state == ValueState::Ok { "int" } else { "" }.into(),
        reason: match state {
            ValueState::Ok => String::new(),
            _ => "because \x1b[2J".into(),
        },
        as_int: None,
    }
}

fn hit(update: usize, of_call: bool, with_stack: bool) -> v1::Hit {
    v1::Hit {
        ts_ns: 1_000_000_000 + update as u64 * 50_000_000,
        pid: 7,
        tid: 77,
        place: 0,
        duration_ns: of_call.then_some(165_000),
        values: vec![
            value("n", ValueState::Ok, "7", "7"),
            value(
                "req->path",
                ValueState::Ok,
                "\"/\\u001b[2J\"",
                "\"/\x1b[2J\u{202e}\"",
            ),
            value("n", ValueState::Ok, "not JSON", "8"),
            value("m", ValueState::OptimizedOut, "", ""),
            value("p", ValueState::Unreadable, "", ""),
            value("q", ValueState::Unsupported, "", ""),
        ],
        stack: with_stack.then(|| v1::Stack {
            frames: vec![1, 2],
            complete: of_call,
        }),
    }
}

fn frame(id: u32, function: &str, line: u32) -> v1::Frame {
    v1::Frame {
        id,
        function: function.into(),
        file: "/src/server.cc".into(),
        line,
        module: "/usr/bin/server".into(),
        inlined: id == 2,
        ..Default::default()
    }
}

/// The trace after a number of updates; why it is the last one. A scope with a colon is of a line, another of calls;
/// stacks of a line are incomplete.
pub fn trace(scope: &str, with_stack: bool, update: usize, why: Option<&str>) -> v1::WatchTraceResponse {
    let is_line = scope.contains(':');
    let place = v1::TracedPlace {
        site: if is_line {
            "/src/server.cc:13"
        } else {
            "handle<\x1b[31m>"
        }
        .into(),
        function: "handle<\x1b[31m>".into(),
        file: if is_line { "/src/server.cc" } else { "" }.into(),
        line: if is_line { 13 } else { 0 },
        module: "/usr/bin/server".into(),
        address: 4108,
    };
    let messages = update as u64 + 1;
    v1::WatchTraceResponse {
        info: Some(info(update as u64, "", why)),
        places: if update == 0 { vec![place] } else { Vec::new() },
        hits: vec![hit(update, !is_line, with_stack); usize::try_from(HITS).unwrap()],
        reached: messages * (HITS + LOST + 1),
        rejected: messages,
        lost: [("rate_limit".to_owned(), messages * LOST)].into(),
        unseen: [("place_missed".to_owned(), messages)].into(),
        thread_names: Vec::new(),
        frames: if with_stack && update == 0 {
            vec![frame(1, "main\x1b[2J", 40), frame(2, "handle", 13)]
        } else {
            Vec::new()
        },
    }
}
