//! Several processes that are looked at together: named one by one.

use std::{fs, process::Command};

use super::{
    command::{Running, profiler, run},
    fixture::{self, Fixture},
};

/// The calls that a fixture makes once it is let go.
fn arguments(calls: u64) -> [String; 4] {
    ["run", "1", &calls.to_string(), "fn_push"].map(str::to_owned)
}

/// Lets one go and waits until it has ended by itself.
fn finished(mut target: Fixture) {
    target.run();
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn calls_of_processes_that_are_named_one_by_one_are_counted_together() {
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("other");
    fs::copy(fixture::directory().join("calls"), &other).unwrap();
    let targets = [
        Fixture::start("calls", &arguments(100)),
        Fixture::start("calls", &arguments(50)),
        Fixture::start_by(Command::new(&other).args(arguments(250))),
    ];
    let [first, second, third] = [0, 1, 2].map(|at: usize| targets[at].pid().to_string());
    // One of them is named twice.
    let both = [&*first, &second, &first].join(",");
    let words = ["latency", "-p", &both, "-p", &third, "fn_push", "--json"];
    let mut watching = Running::start(profiler(&words));
    watching.line();
    for target in targets {
        finished(target);
    }
    let ended = watching.end().status(0);
    let last = ended
        .objects()
        .into_iter()
        .filter(|object| object["final"] == true);
    // Of one executable there is one function, whatever process calls it.
    let mut counts: Vec<u64> = last
        .filter_map(|last| last["since_start"]["count"].as_u64())
        .collect();
    counts.sort_unstable();
    assert_eq!(counts, [150, 250], "{}", ended.stdout());
}

#[test]
#[ignore = "needs root"]
fn one_process_that_is_not_there_refuses_those_that_are_named_with_it() {
    let target = Fixture::start("calls", &arguments(1));
    let gone = Fixture::start("calls", &arguments(1));
    let (pid, gone_pid) = (target.pid().to_string(), gone.pid().to_string());
    finished(gone);
    for verb in [&["latency", "fn_push"][..], &["functions", "fn_push"]] {
        let words = [verb, &["-p", &pid, "-p", &gone_pid]].concat();
        run(profiler(&words)).status(3).says(&gone_pid);
    }
    let many: Vec<String> = (1..=257).map(|pid| pid.to_string()).collect();
    let refused = run(profiler(&["latency", "-p", &many.join(","), "fn_push"]));
    refused.says("257 processes are named; at most 256 can be looked at at once");
    finished(target);
}
