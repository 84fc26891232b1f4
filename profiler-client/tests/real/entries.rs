//! What is taken where a function begins: arguments as the caller passed them, and the time from its first instruction on.

use serde_json::Value;

use super::{
    command::{Ended, Running, through},
    daemon::Daemon,
    fixture::Fixture,
};

/// Calls of each function.
const CALLS: usize = 300;

/// A function, what is read of its calls, and what that has to be, by the number of the call.
struct Probed {
    function: &'static str,
    prints: &'static str,
    values: fn(i64) -> Vec<Value>,
}

const V: fn(i64) -> i64 = |n| 3 * n + 1;

const PROBED: [Probed; 6] = [
    Probed {
        function: "scaled",
        prints: "n,v,$rdi",
        values: |n| vec![n.into(), V(n).into(), n.into()],
    },
    Probed {
        function: "counted_down",
        prints: "n,v,$rsi",
        values: |n| vec![n.into(), V(n).into(), V(n).into()],
    },
    Probed {
        function: "followed",
        prints: "n,node->key,node->next->key",
        values: |n| vec![n.into(), (n % 7).into(), 5.into()],
    },
    Probed {
        function: "weighed",
        prints: "n",
        values: |n| vec![n.into()],
    },
    Probed {
        function: "swapped",
        prints: "n,v",
        values: |n| vec![n.into(), V(n).into()],
    },
    Probed {
        function: "stacked",
        prints: "n,v,f",
        values: |n| vec![n.into(), V(n).into(), 6.into()],
    },
];

/// What the profiler says of all that a target does, and what that printed.
fn watched(daemon: &Daemon, name: &str, verb: &str, arguments: &[&str]) -> (Ended, String) {
    let mut target = Fixture::start(name, &[CALLS.to_string()]);
    let pid = target.pid().to_string();
    let arguments = [&[verb, "-p", &pid], arguments].concat();
    let command = Running::start(through(&daemon.socket, &arguments));
    daemon.until_watched();
    target.run();
    let ended = target.finish();
    assert_eq!(ended.status, Some(0));
    (command.end().status(0), ended.output)
}

fn traced(daemon: &Daemon, name: &str, scope: &str, prints: &str) -> Vec<Value> {
    let arguments = [scope, "--print", prints, "--json", "--limit", "100000"];
    let mut hits = watched(daemon, name, "trace", &arguments).0.objects();
    let summary = hits.pop().unwrap();
    assert_eq!(summary["type"], "summary", "{summary}");
    hits
}

#[test]
#[ignore = "needs root"]
fn arguments_are_those_that_the_caller_passed() {
    // The programs are loaded once for many sessions.
    let daemon = Daemon::with(&["--keep-loaded"]);
    for level in ["arguments_o0", "arguments_o1", "arguments_o2", "arguments_o3"] {
        for probed in &PROBED {
            let what = format!("{level} {}", probed.function);
            let hits = traced(&daemon, level, probed.function, probed.prints);
            assert_eq!(hits.len(), CALLS, "{what}");
            for (n, hit) in (0..).zip(&hits) {
                let read = probed
                    .prints
                    .split(',')
                    .map(|print| &hit["values"][print]["value"]);
                let expected = (probed.values)(n);
                assert_eq!(
                    read.collect::<Vec<_>>(),
                    expected.iter().collect::<Vec<_>>(),
                    "{what}: {hit}"
                );
            }
        }
        // Conditions are decided by the same.
        let hits = traced(&daemon, level, "scaled[n >= 290][v != 880]", "n");
        let read: Vec<_> = hits
            .iter()
            .map(|hit| hit["values"]["n"]["value"].as_i64().unwrap())
            .collect();
        let expected: Vec<_> = (290..300).filter(|n| *n != 293).collect();
        assert_eq!(read, expected, "{level}");
    }
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
#[ignore = "needs root"]
fn a_fault_in_the_first_instruction_is_part_of_a_calls_time() {
    let daemon = Daemon::start();
    let (latency, told) = watched(&daemon, "late_page", "latency", &["first_touch", "--json"]);
    let told = told.lines().find_map(|line| line.strip_prefix("timed "));
    let told: Value = serde_json::from_str(told.unwrap()).unwrap();
    let last = latency.objects().pop().unwrap();
    let function = &last["since_start"];
    assert_eq!(function["count"], CALLS, "{last}");
    let (said, true_mean) = (
        function["mean_ns"].as_f64().unwrap(),
        told["mean_ns"].as_f64().unwrap(),
    );
    // The caller's clock has the cost of the probes too, some microseconds; a bucket is up to 0.8% wide.
    assert!(
        said > 0.97 * true_mean && said < 1.01 * true_mean,
        "{said} of {true_mean} ns"
    );
    assert_eq!(daemon.stop(), Some(0));
}
