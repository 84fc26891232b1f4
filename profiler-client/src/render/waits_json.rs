//! The tree of waits as NDJSON.

use profiler_proto::v1::{self, WaitKind};
use serde_json::{Value, json};

use super::{
    json::{SCHEMA, counts, integer, line},
    trace_json::frame,
    waits::waiting,
};
use crate::state::waits::WaitsState;

/// What was waited for in memory.
pub(super) fn lock(lock: &v1::Lock) -> Value {
    json!({
        "address": format!("{:#x}", lock.address),
        "symbol": (!lock.name.is_empty()).then_some(&lock.name),
        "memory": (!lock.memory.is_empty()).then_some(&lock.memory),
        "allocated": (!lock.allocated.is_empty()).then_some(&lock.allocated),
    })
}

/// A `wait` object for each node, parents first, and the `summary`.
#[must_use]
pub fn waits(state: &WaitsState) -> String {
    let mut lines = String::new();
    for (at, node) in state.nodes.iter().enumerate() {
        line(&mut lines, &object(state, at + 1, node));
    }
    line(
        &mut lines,
        &json!({
            "type": "summary",
            "schema": SCHEMA,
            "waits": integer(state.waits),
            "waited_ns": integer(state.waited_ns),
            "runnable_ns": integer(state.runnable_ns),
            "watched_ns": integer(state.watched_ns),
            "lost": counts(&state.lost),
        }),
    );
    lines
}

fn object(state: &WaitsState, id: usize, node: &v1::WaitNode) -> Value {
    let kind = match node.kind() {
        WaitKind::Waited => "waited",
        WaitKind::Woken => "woken",
        WaitKind::Interrupt => "interrupt",
        WaitKind::Ran => "ran",
        WaitKind::Runnable => "runnable",
        WaitKind::GoesOn => "goes_on",
        WaitKind::Unseen | WaitKind::Unspecified => "unseen",
    };
    let of_thread = match node.kind() {
        WaitKind::Waited | WaitKind::Woken => true,
        WaitKind::GoesOn => !node.thread.is_empty(),
        _ => false,
    };
    let lock = node.lock.as_ref().map(lock);
    json!({
        "type": "wait",
        "schema": SCHEMA,
        "id": id,
        "parent": (node.parent > 0).then_some(node.parent),
        "kind": kind,
        "thread": of_thread.then_some(&node.thread),
        "threads": node.threads,
        "outside": node.outside,
        "activity": (node.kind() == WaitKind::Waited).then(|| waiting(node.waiting())),
        "lock": lock,
        "other_locks": node.other_locks,
        "time_ns": integer(node.time_ns),
        "not_followed_ns": integer(node.not_followed_ns),
        "count": integer(node.count),
        "longest_ns": integer(node.longest_ns),
        "held_up_ns": node.held_up_ns.map(integer),
        "frames": state.stack(node).map(frame).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::{
        super::{parsed::parse, waits::tests::sample},
        *,
    };

    #[test]
    fn an_object_for_each_node_and_a_summary() {
        let objects = parse(&waits(&sample()));
        assert_eq!(objects.len(), 8);
        assert_eq!(
            (
                &objects[0]["kind"],
                &objects[0]["parent"],
                &objects[0]["activity"]
            ),
            (&json!("waited"), &Value::Null, &json!("sleeping"))
        );
        assert_eq!(
            (&objects[1]["parent"], &objects[1]["activity"]),
            (&json!(1), &Value::Null)
        );
        assert_eq!(
            (&objects[0]["lock"], &objects[1]["lock"]),
            (
                &json!({"address": "0x7f00", "symbol": "till", "memory": null, "allocated": null}),
                &Value::Null
            )
        );
        assert_eq!(objects[4]["outside"], true);
        assert_eq!(objects[6]["frames"][0]["function"], "hrtimer_wakeup");
        assert_eq!(objects[6]["thread"], Value::Null);
        assert_eq!(
            objects[7],
            json!({
                "type": "summary",
                "schema": 1,
                "waits": 40,
                "waited_ns": 150_000_000,
                "runnable_ns": 1_000_000,
                "watched_ns": 2_000_000_000_u64,
                "lost": {"off_cpu_yielded": 7},
            })
        );
    }
}
