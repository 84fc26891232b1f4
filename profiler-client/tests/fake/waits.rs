//! What the scripted daemon sends of who is waited for.

use profiler_proto::v1::{self, WaitKind, Waiting};

use super::info;

/// The waits after a number of updates; why it is the last message.
pub fn waits(update: usize, why: Option<&str>) -> v1::WatchWaitsResponse {
    let time_ns = 40_000_000 * (update as u64 + 1);
    let node = |parent, kind: WaitKind, thread: &str, stack: &[u32]| v1::WaitNode {
        parent,
        kind: kind.into(),
        thread: thread.into(),
        stack: stack.to_vec(),
        time_ns,
        count: 20,
        threads: 1,
        ..Default::default()
    };
    let frame = |id, name: &str| v1::Frame {
        id,
        function: name.into(),
        module: "server".into(),
        ..Default::default()
    };
    v1::WatchWaitsResponse {
        info: Some(info(update as u64, "", why)),
        nodes: vec![
            v1::WaitNode {
                waiting: Waiting::Sleeping.into(),
                threads: 20,
                lock: Some(v1::Lock {
                    address: 0x1000,
                    name: "till".into(),
                    ..Default::default()
                }),
                ..node(0, WaitKind::Waited, "clerk-*", &[1])
            },
            node(1, WaitKind::Woken, "keeper\x1b[31m", &[2]),
            node(2, WaitKind::Ran, "", &[]),
        ],
        frames: vec![frame(1, "enter"), frame(2, "leave")],
        waits: 20,
        waited_ns: time_ns,
        watched_ns: 1_000_000_000,
        lost: [("off_cpu_yielded".to_owned(), 5)].into(),
        ..Default::default()
    }
}
