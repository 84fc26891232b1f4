//! `profiler timeline` on a real target, against its own account.

use serde_json::Value;

use super::{
    command::{Running, profiler, run, through},
    daemon::Daemon,
    fixture::{Fixture, small_scale, spec},
};

#[test]
#[ignore = "needs root"]
fn buckets_add_up_to_the_targets_own_account() {
    let spec = spec("costs");
    let mut target = Fixture::start("costs", &spec.args);
    let daemon = Daemon::start();
    let pid = target.pid().to_string();
    let picture = tempfile::Builder::new().suffix(".svg").tempfile().unwrap();
    let path = picture.path().to_str().unwrap();
    let counters = "task-clock,page-faults,context-switches,page-faults/context-switches";
    let timeline = |more: &[&str]| {
        let arguments = [
            &["timeline", "-p", &pid, "work", "-e", counters, "--step", "50ms"],
            more,
        ]
        .concat();
        Running::start(through(&daemon.socket, &arguments))
    };
    let [lines, drawn] = [&["--json", "--threads"][..], &["-o", path]].map(timeline);
    let are_watched = || {
        let sessions = daemon.sessions();
        sessions.len() == 2 && sessions.iter().all(|session| session["watchers"] == 1)
    };
    while !are_watched() {}
    target.say("go");
    let costs: Value = serde_json::from_str(target.line().strip_prefix("costs ").unwrap()).unwrap();
    assert_eq!(target.truth(), spec.truth);
    assert_eq!(target.finish().status, Some(0));

    // The end of the target is the end of the run.
    let mut buckets = lines.end().status(0).objects();
    let summary = buckets.pop().unwrap();
    println!("{summary}\nthe target: {costs}");
    let number = |of: &Value| of.as_u64().unwrap();
    for (counter, truth) in [
        ("page-faults", number(&costs["faults"])),
        ("context-switches", number(&costs["switches"])),
    ] {
        let sum: u64 = buckets
            .iter()
            .map(|bucket| number(&bucket["counters"][counter]))
            .sum();
        assert_eq!(sum, number(&summary["counters"][counter]), "{counter}");
        // It also reads the word to go, and writes its account.
        assert!(
            sum.abs_diff(truth) <= truth / 50 + 20,
            "{counter}: {sum}, the target: {truth}"
        );
    }
    assert_eq!(number(&summary["calls"]), spec.truth["work"].calls);
    assert_eq!(number(&summary["buckets"]), buckets.len() as u64);
    let ratio = summary["ratios"]["page-faults/context-switches"]
        .as_f64()
        .unwrap();
    let of_sums = number(&summary["counters"]["page-faults"]) as f64
        / number(&summary["counters"]["context-switches"]) as f64;
    assert!((ratio - of_sums).abs() < 1e-6, "{ratio} {of_sums}");
    // Nothing lies between two buckets.
    for pair in buckets.windows(2) {
        assert_eq!(pair[0]["to_ns"], pair[1]["from_ns"]);
    }
    assert!(small_scale() || buckets.len() >= 3, "{}", buckets.len());

    drawn.end().status(0);
    let svg = std::fs::read_to_string(path).unwrap();
    assert!(svg.contains("<svg") && svg.contains("page-faults"), "{svg}");
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
#[ignore = "needs root"]
fn what_the_machine_does_not_count_is_refused_with_what_it_does() {
    let target = Fixture::start("costs", &spec("costs").args);
    let pid = target.pid().to_string();
    let ended = run(profiler(&[
        "timeline",
        "-p",
        &pid,
        "-e",
        "tracepoint:sched:no_such_thing",
    ]))
    .status(3);
    assert!(
        ended.stderr().contains("tracepoint:sched:no_such_thing") && ended.stderr().contains("task-clock"),
        "{}",
        ended.stderr()
    );
    assert_eq!(target.finish().status, Some(0));
}
