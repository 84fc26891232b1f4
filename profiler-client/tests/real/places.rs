//! System calls and tracepoints, as the verbs show them, against what the target says it made.

use serde_json::{Value, json};

use super::{
    command::{Ended, Running, profiler, run, through},
    daemon::Daemon,
    fixture::Fixture,
};

/// Calls that each of the target's two threads makes.
const CALLS: u64 = 50;

/// Looks at a target from before its first call to after its last one; also gives what it made, by its own count.
fn watched(arguments: &[&str]) -> (Ended, Value) {
    let mut target = Fixture::start("places", &[CALLS.to_string()]);
    let daemon = Daemon::start();
    let number = target.pid().to_string();
    let arguments = [&arguments[..1], &["-p", &number], &arguments[1..]].concat();
    let command = Running::start(through(&daemon.socket, &arguments));
    daemon.until_watched();
    assert_eq!(target.run()["work"].calls, 2 * CALLS);
    let ended = target.finish();
    assert_eq!(ended.status, Some(0));
    let command = command.end().status(0);
    assert_eq!(daemon.sessions(), Vec::<Value>::new());
    assert_eq!(daemon.stop(), Some(0));
    let made = ended.output.lines().find_map(|line| line.strip_prefix("made "));
    (command, serde_json::from_str(made.unwrap()).unwrap())
}

#[test]
#[ignore = "needs root"]
fn system_calls_are_hits_with_what_they_return() {
    let scope = "work/syscall:lseek[return < 0]";
    let (command, made) = watched(&[
        "trace",
        scope,
        "--print",
        "offset,return",
        "--json",
        "--limit",
        "100000",
    ]);
    let mut hits = command.objects();
    let summary = hits.pop().unwrap();
    let lost: u64 = summary["lost"]
        .as_object()
        .unwrap()
        .values()
        .filter_map(Value::as_u64)
        .sum();
    assert_eq!(summary["reached"], made["inside"]);
    assert_eq!(
        hits.len() as u64 + lost + summary["rejected"].as_u64().unwrap(),
        summary["reached"]
    );
    assert!(!hits.is_empty());
    for hit in &hits {
        let names = (&hit["type"], &hit["site"], &hit["module"]);
        assert_eq!(
            names,
            (&json!("hit"), &json!("syscall:lseek"), &json!("[kernel]"))
        );
        assert!(hit["duration_ns"].as_u64().unwrap() > 0);
        let values = (&hit["values"]["offset"], &hit["values"]["return"]);
        let ok = |value: i64, kind: &str| json!({"state": "ok", "value": value, "type": kind});
        assert_eq!(values, (&ok(-1, "off_t"), &ok(-22, "long")), "{hit}");
    }
}

#[test]
#[ignore = "needs root"]
fn tracepoints_are_lines_with_their_fields() {
    let (command, made) = watched(&["trace", "work/tracepoint:task:task_rename", "--print", "newcomm"]);
    let lines = command.stdout().lines().count() as u64;
    assert_eq!(
        Some(lines),
        made["renamed"].as_u64(),
        "{}{}",
        command.stdout(),
        command.stderr()
    );
    let is_told = |line: &str| line.contains("  tracepoint:task:task_rename  newcomm=\"place-");
    assert!(command.stdout().lines().all(is_told), "{}", command.stdout());
}

#[test]
#[ignore = "needs root"]
fn system_calls_are_timed_like_calls() {
    let (command, made) = watched(&["latency", "work/syscall:nanosleep", "--json"]);
    let last = command.objects().pop().unwrap();
    assert_eq!(last["final"], true);
    assert_eq!(last["function"], "syscall:nanosleep");
    assert_eq!(last["since_start"]["count"], made["nanosleep"]);
    assert!(
        last["since_start"]["min_ns"].as_u64().unwrap() >= 4_900_000,
        "{last}"
    );
}

#[test]
#[ignore = "needs root"]
fn what_the_kernel_has_not_is_refused_with_what_it_has() {
    let target = Fixture::start("places", &["1".to_owned()]);
    let pid = target.pid().to_string();
    let refused = |verb: &str, arguments: &[&str]| run(profiler(&[&[verb, "-p", &pid], arguments].concat()));
    refused("latency", &["syscall:lseke"])
        .status(3)
        .says("there is lseek");
    refused("trace", &["tracepoint:task:task_renam"])
        .status(3)
        .says("there is task_rename");
    refused("trace", &["tracepoint:task:task_rename", "--print", "comm"])
        .status(3)
        .says("it has pid, oldcomm, newcomm");
    refused("trace", &["tracepoint:task:task_rename[> 2ms]"])
        .status(2)
        .says("no duration");
    refused("latency", &["tracepoint:task:task_rename"])
        .status(2)
        .says("no duration");
    refused("trace", &["syscall:lseek", "--stack"])
        .status(2)
        .says("--stack");
    refused("trace", &["syscall:lseek", "--print", "$rdi"])
        .status(2)
        .says("$rdi");
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn functions_of_the_kernel_are_timed_or_it_is_said_why_not() {
    let target = Fixture::start("places", &["1".to_owned()]);
    let pid = target.pid().to_string();
    let refused = run(profiler(&["latency", "-p", &pid, "kernel:shmem_file_lseek"]));
    if std::path::Path::new("/sys/bus/event_source/devices/kprobe").is_dir() {
        refused.status(3).says("there is shmem_file_llseek");
        let (command, made) = watched(&["latency", "work/kernel:shmem_file_llseek", "--json"]);
        let last = command.objects().pop().unwrap();
        assert_eq!(last["function"], "kernel:shmem_file_llseek");
        assert_eq!(last["since_start"]["count"], made["inside"]);
    } else {
        refused.status(1).says("CONFIG_KPROBES");
    }
    run(profiler(&["latency", "-p", &pid, "kernel:"])).status(2);
    assert_eq!(target.finish().status, Some(0));
}
