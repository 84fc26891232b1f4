//! Several processes that are looked at together: named one by one, and which of them end meanwhile.

use std::{
    fs,
    io::Write as _,
    process::{Child, Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{
    command::{Running, objects, profiler, run, through},
    daemon::Daemon,
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
    let many: Vec<String> = (1..=1_025).map(|pid| pid.to_string()).collect();
    let refused = run(profiler(&["latency", "-p", &many.join(","), "fn_push"]));
    refused.says("1025 processes are named; at most 1024 can be looked at at once");
    finished(target);
}

/// The next process that a run says has left.
fn next_left(watching: &mut Running) -> Value {
    loop {
        let line = watching.line();
        assert!(!line.is_empty(), "the run has ended");
        let object = objects(&line).remove(0);
        if object["type"] == "process_left" {
            return object;
        }
    }
}

fn kill(target: &Fixture) {
    let pid = Pid::from_raw(target.pid().cast_signed()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
}

#[test]
#[ignore = "needs root"]
fn processes_that_end_are_said_at_once_and_the_last_ends_the_run() {
    for verb in [
        &["latency", "fn_push", "--interval", "0.1"][..],
        &["trace", "fn_push"],
        &["timeline", "--step", "0.1"],
        &["waits"],
        &["syscalls"],
        &["spans", "fn_push"],
        &["flame"],
        &["explain", "fn_push[>= p90]", "--duration", "60"],
    ] {
        let [ends, is_killed, stays] = [1, 2, 3].map(|calls| Fixture::start("calls", &arguments(calls)));
        let pids = [&ends, &is_killed, &stays].map(Fixture::pid);
        let named = pids.map(|pid| pid.to_string()).join(",");
        let daemon = Daemon::start();
        let words = [verb, &["-p", &named, "--json"]].concat();
        let mut watching = Running::start(through(&daemon.socket, &words));
        daemon.until_watched();
        finished(ends);
        let left = next_left(&mut watching);
        let reason = format!("process {} (calls) ended", pids[0]);
        assert_eq!(
            left,
            json!({"type": "process_left", "schema": 1, "pid": pids[0], "name": "calls", "cause": "ended",
                   "reason": reason, "signal": null, "left": 2, "of": 3})
        );
        kill(&is_killed);
        let left = next_left(&mut watching);
        assert_eq!(
            (&left["pid"], &left["left"]),
            (&json!(pids[1]), &json!(1)),
            "{left}"
        );
        assert_eq!(
            (&left["cause"], &left["signal"]),
            (&json!("ended"), &json!(9)),
            "{left}"
        );
        finished(stays);
        let ended = watching.end().status(0);
        let killed = format!("process {} (calls) was ended by signal 9 (SIGKILL)", pids[1]);
        let ended = ended.says(&format!("profiler: {reason}; 2 of 3 are left\n"));
        let ended = ended.says(&format!("profiler: {killed}; 1 of 3 is left\n"));
        ended.says(&format!(
            "The run ended by itself: process {} (calls) ended.",
            pids[2]
        ));
        assert_eq!(daemon.stop(), Some(0));
    }
}

/// A shell that goes on with a line, and ends with this.
struct Shell(Child);

impl Shell {
    fn start(script: &str) -> Self {
        let mut command = Command::new("/bin/sh");
        Self(
            command
                .args(["-c", script])
                .stdin(Stdio::piped())
                .spawn()
                .unwrap(),
        )
    }

    fn go(&mut self) {
        self.0.stdin.take().unwrap().write_all(b"go\n").unwrap();
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "needs root"]
fn a_process_that_runs_another_program_is_said_as_well() {
    let mut becomes = Shell::start("read line; exec sleep 600");
    let mut stays = Shell::start("read line");
    let (pid, last) = (becomes.0.id(), stays.0.id());
    let daemon = Daemon::start();
    let words = ["flame", "--json", "-p", &format!("{pid},{last}")];
    let mut watching = Running::start(through(&daemon.socket, &words));
    daemon.until_watched();
    becomes.go();
    let left = next_left(&mut watching);
    assert_eq!(
        (&left["pid"], &left["cause"], &left["signal"]),
        (&json!(pid), &json!("another_program"), &json!(null)),
        "{left}"
    );
    assert_eq!((&left["left"], &left["of"]), (&json!(1), &json!(2)), "{left}");
    stays.go();
    let ended = watching
        .end()
        .status(0)
        .says("runs another program now; 1 of 2 is left");
    ended.says(&format!("The run ended by itself: process {last} "));
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
#[ignore = "needs root"]
fn source_is_shown_of_all_processes_that_are_named() {
    let calls = Fixture::start("calls", &arguments(1));
    let parent = Fixture::start("parent", &["1".to_owned()]);
    let named = format!("{},{}", calls.pid(), parent.pid());
    let shown = |place: &str| -> Vec<Value> {
        let shown = run(profiler(&["source", "-p", &named, place, "--json"])).status(0);
        let mut objects = shown.objects();
        objects.retain(|object| object["type"] == "source");
        objects
    };
    // The first of them has no such function, and no such line.
    for place in ["work", "parent.c:13"] {
        let functions = shown(place);
        let [function] = &*functions else {
            panic!("{functions:?}")
        };
        assert_eq!(function["function"], "work", "{place}");
        assert!(
            function["module"].as_str().unwrap().ends_with("/parent"),
            "{place}"
        );
    }
    // Both have one: each is shown once.
    let both = shown("main");
    let modules: Vec<&str> = both
        .iter()
        .map(|function| function["module"].as_str().unwrap())
        .collect();
    for fixture in ["/calls", "/parent"] {
        let of_it = modules.iter().filter(|module| module.ends_with(fixture));
        assert_eq!(of_it.count(), 1, "{modules:?}");
    }
    drop([calls, parent]);
}
