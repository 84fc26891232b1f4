//! Every verb on a real target, without a daemon.

use std::fs;

use serde_json::Value;

use super::{
    bpf,
    command::{Running, objects, profiler, run, through},
    daemon::Daemon,
    fixture::Fixture,
};

/// A target that computes, 6% of its calls of `f` through `slow_path`, until it is told to end.
pub fn busy() -> Fixture {
    let mut target = Fixture::start("slowpath", &[]);
    target.say("go");
    target
}

/// Lets a target end, unharmed: its code as in its file, and all of its calls made.
pub fn unharmed(target: Fixture) {
    bpf::wait_until_unchanged(target.pid());
    target.end();
}

/// A line of folded stacks: frames and its last number.
fn folded(text: &str) -> Vec<(Vec<&str>, u64)> {
    text.lines()
        .map(|line| {
            let (frames, weight) = line.rsplit_once(' ').unwrap();
            (frames.split(';').collect(), weight.parse().unwrap())
        })
        .collect()
}

/// The share of the weight whose stack has a frame.
fn share(text: &str, frame: &str) -> f64 {
    let stacks = folded(text);
    let sum = |with: &dyn Fn(&[&str]) -> bool| -> u64 {
        let chosen = stacks.iter().filter(|(frames, _)| with(frames));
        chosen.map(|(_, weight)| weight).sum()
    };
    sum(&|frames| frames.contains(&frame)) as f64 / sum(&|_| true) as f64
}

#[test]
#[ignore = "needs root"]
fn processes_and_functions_are_listed() {
    let target = Fixture::start("slowpath", &[]);
    let pid = target.pid().to_string();
    let listed = run(profiler(&["ps", "fixtures/slowpath"])).status(0).quietly();
    assert!(
        listed.stdout().trim_start().starts_with("PID "),
        "{}",
        listed.stdout()
    );
    let row = listed
        .stdout()
        .lines()
        .find(|line| line.trim_start().starts_with(&pid));
    assert!(row.unwrap().ends_with("fixtures/slowpath"), "{}", listed.stdout());
    let listed = run(profiler(&["ps", "fixtures/slowpath", "--json"]))
        .status(0)
        .objects();
    let ours = listed
        .iter()
        .find(|process| process["pid"] == target.pid())
        .unwrap();
    assert_eq!((&ours["type"], &ours["threads"]), (&"process".into(), &1.into()));
    run(profiler(&["ps", "no such program"]))
        .status(3)
        .says("matches `no such program`");

    let listed = run(profiler(&["functions", "-p", &pid, "slow_*"]))
        .status(0)
        .quietly();
    let source = include_str!("../../../profiler-daemon/tests/fixtures/engine/slowpath.c");
    let declared = source
        .lines()
        .position(|line| line.contains(" slow_inner("))
        .unwrap()
        + 1;
    assert!(
        listed.stdout().contains(&format!("/slowpath.c:{declared}\n")),
        "{}",
        listed.stdout()
    );
    let listed = run(profiler(&["functions", "-p", &pid, "slow_*", "--json"]))
        .status(0)
        .objects();
    let names: Vec<_> = listed.iter().map(|function| &function["name"]).collect();
    assert_eq!(names, ["slow_inner", "slow_path"]);
    assert!(listed[0]["line"].as_u64().unwrap() > 0 && listed[0]["size"].as_u64().unwrap() > 0);
    run(profiler(&["functions", "-p", &pid, "slow_pat"]))
        .status(3)
        .says("slow_path");
    // All of them, its libraries' too.
    let listed = run(profiler(&["functions", "-p", &pid])).status(0).quietly();
    assert!(listed.stdout().lines().count() > 1000);
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn latency_counts_every_call() {
    let calls = 5000;
    let mut target = Fixture::start(
        "calls",
        &["run", "2", &calls.to_string(), "fn_push", "fn_endbr"].map(str::to_owned),
    );
    let pid = target.pid().to_string();
    let mut watching = Running::start(profiler(&[
        "latency",
        "-p",
        &pid,
        "fn_*",
        "--json",
        "--interval",
        "0.1",
    ]));
    let first = &objects(&watching.line())[0];
    assert_eq!(
        (&first["final"], &first["since_start"]["count"]),
        (&false.into(), &0.into())
    );
    target.run();
    watching.interrupt();
    let objects = watching.end().status(0).objects();
    let finals: Vec<_> = objects.iter().filter(|object| object["final"] == true).collect();
    assert_eq!(finals.len(), 9, "one for each function");
    for object in finals {
        let called = object["function"] == "fn_push" || object["function"] == "fn_endbr";
        let expected = if called { 2 * calls } else { 0 };
        assert_eq!(object["since_start"]["count"], expected, "{object}");
        assert_eq!(object["since_start"]["p95_ns"].is_null(), !called, "{object}");
        assert_eq!((&object["open"], &object["abandoned"]), (&0.into(), &0.into()));
    }
    bpf::wait_until_unchanged(target.pid());
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn latency_for_a_while_ends_with_a_table() {
    let target = busy();
    let pid = target.pid().to_string();
    let shown = run(profiler(&[
        "latency",
        "-p",
        &pid,
        "f",
        "--duration",
        "700ms",
        "--interval",
        "200ms",
    ]))
    .status(0);
    let lines: Vec<&str> = shown.stdout().lines().collect();
    let headings = lines.iter().filter(|line| line.starts_with("  time function "));
    assert_eq!(headings.count(), 1, "{}", shown.stdout());
    // The time, the function, its calls and their rate, five durations, and what is open and lost.
    let is_update = |line: &&str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.len() == 11 && words[1] == "f" && words[4..9].iter().all(|time| time.ends_with('s'))
    };
    assert!(lines.iter().any(is_update), "{}", shown.stdout());
    // Above the table stands where the function is: a path of any length.
    let updates = lines.iter().take_while(|line| !line.is_empty());
    let table = lines.iter().filter(|line| line.starts_with("  "));
    assert!(
        updates.chain(table).all(|line| line.chars().count() <= 80),
        "{}",
        shown.stdout()
    );
    assert!(
        shown.stdout().contains("p99.9") && shown.stdout().contains("  start "),
        "{}",
        shown.stdout()
    );
    unharmed(target);
}

#[test]
#[ignore = "needs root"]
fn flame_graphs_tell_slow_calls_from_fast_ones() {
    let target = busy();
    let pid = target.pid().to_string();
    let flame_for = |seconds: &str, scope: &str, more: &[&str]| {
        let arguments = [
            &["flame", "-p", &pid, scope, "-F", "999", "--duration", seconds],
            more,
        ]
        .concat();
        run(profiler(&arguments)).status(0)
    };
    let flame = |scope: &str, more: &[&str]| flame_for("1.2", scope, more);
    // The 20/(1 - 0.95) calls without which a percentile is said to be warming take about a second on a CPU, of which a busy
    // machine may leave the target a part. A fast call that has to make way for another program is slow as well, but not
    // on the CPU: there it takes a twentieth of what a slow one does.
    let inside = flame_for("6", "f[>= p95]", &["-f", "--on-cpu"]);
    let outside = flame("f[> 5ms]", &["-f", "--on-cpu", "--outside"]);
    println!(
        "slow_path: {:.4} inside, {:.4} outside",
        share(inside.stdout(), "slow_path"),
        share(outside.stdout(), "slow_path")
    );
    assert!(share(inside.stdout(), "slow_path") > 0.9, "{}", inside.stdout());
    assert!(
        share(outside.stdout(), "slow_path") < 0.02,
        "{}",
        outside.stdout()
    );
    assert!(share(outside.stdout(), "f") > 0.98, "{}", outside.stdout());

    let compared = flame("f[> 5ms]", &["-f", "--on-cpu", "--diff"]);
    let two = compared
        .stdout()
        .lines()
        .find(|line| line.contains("slow_inner"))
        .unwrap();
    let weights: Vec<u64> = two
        .rsplit(' ')
        .take(2)
        .map(|weight| weight.parse().unwrap())
        .collect();
    assert!(weights[0] > 100 * weights[1], "{two}");

    // A busy machine may leave the target an eighth of this.
    let json = flame_for("4", "f[> 5ms]", &["--json"]).objects();
    let (summary, stacks) = json.split_last().unwrap();
    assert_eq!(summary["type"], "summary");
    let of = |name: &str| summary[name].as_u64().unwrap();
    assert_eq!(
        of("samples"),
        of("inside") + of("outside") + of("elsewhere") + of("open")
    );
    assert!(of("samples") > 500, "{summary}");
    assert!(
        stacks
            .iter()
            .all(|stack| stack["type"] == "stack" && stack["frames"].is_array())
    );
    let times = summary["times_ns"].as_object().unwrap();
    let times_ns: u64 = times.values().map(|time| time.as_u64().unwrap()).sum();
    let weights_ns: u64 = stacks
        .iter()
        .map(|stack| stack["weight_ns"].as_u64().unwrap())
        .sum();
    assert_eq!(times_ns, weights_ns, "{summary}");

    let tree = flame("", &[]);
    assert!(
        tree.stdout().contains("slow_inner") && tree.stdout().contains("fast_path"),
        "{}",
        tree.stdout()
    );
    unharmed(target);
}

#[test]
#[ignore = "needs root"]
fn flame_graphs_show_waits() {
    let wait = |more: &[&str]| {
        let daemon = Daemon::start();
        let mut target = Fixture::start("offcpu", &["40".to_owned()]);
        let pid = target.pid().to_string();
        let arguments = [&["flame", "-p", &pid, "--json"], more].concat();
        let flame = Running::start(through(&daemon.socket, &arguments));
        daemon.until_watched();
        target.say("go");
        target.truth();
        assert_eq!(target.finish().status, Some(0));
        // The end of the target is the end of the run.
        let mut objects = flame.end().status(0).objects();
        (objects.pop().unwrap(), objects)
    };
    let function = |frame: &Value| frame["function"].as_str().unwrap().to_owned();
    let time = |summary: &Value, activity: &str| summary["times_ns"][activity].as_u64().unwrap();

    // Of a call both times are drawn, and only one where it is asked for.
    let (summary, stacks) = wait(&["nap"]);
    assert!(time(&summary, "sleeping") > time(&summary, "on_cpu"), "{summary}");
    for stack in &stacks {
        let names: Vec<String> = stack["frames"].as_array().unwrap().iter().map(function).collect();
        assert!(names.iter().any(|name| name == "nap"), "{names:?}");
        // What the scheduler itself takes of the thread is time on the CPU.
        let has_waited = names.last().is_some_and(|word| word.starts_with('['));
        let in_scheduler = names.iter().any(|name| name == "__schedule");
        assert!(!(has_waited && in_scheduler), "{names:?}");
    }
    let (summary, stacks) = wait(&["nap", "--on-cpu"]);
    assert_eq!(time(&summary, "sleeping"), 0, "{summary} {stacks:?}");

    // Without a call it is that of all threads.
    let (summary, stacks) = wait(&["--off-cpu"]);
    assert_eq!(time(&summary, "on_cpu"), 0, "{summary}");
    let ends_with = |function: &str, activity: &str| {
        stacks.iter().any(|stack| {
            let text = stack["frames"].to_string();
            text.contains(&format!("\"{function}\"")) && text.contains(activity)
        })
    };
    assert!(ends_with("nap", "[sleeping]"), "{stacks:?}");
    assert!(ends_with("birth", "[uninterruptible]"), "{stacks:?}");
    assert!(ends_with("compete", "[runnable]"), "{stacks:?}");
    assert!(ends_with("speaker", "[sleeping]"), "{stacks:?}");

    // On the wait for the lock is who held it, asleep.
    let (summary, stacks) = wait(&["lock[> 1ms]", "--waits"]);
    assert!(time(&summary, "sleeping") > time(&summary, "on_cpu"), "{summary}");
    let leads_to_holder = stacks.iter().any(|stack| {
        let names: Vec<String> = stack["frames"].as_array().unwrap().iter().map(function).collect();
        let mut names = names.iter();
        ["lock", "[sleeping]", "holder", "[sleeping]", "[interrupt]"]
            .into_iter()
            .all(|wanted| names.any(|name| name == wanted))
    });
    assert!(leads_to_holder, "{stacks:?}");
}

#[test]
#[ignore = "needs root"]
fn flame_graphs_are_written_to_files() {
    let target = busy();
    let pid = target.pid().to_string();
    let directory = tempfile::tempdir().unwrap();
    for (name, more, words) in [
        ("slow.svg", &[][..], "slow_inner"),
        ("diff.svg", &["--diff"], "points, 95% interval"),
        ("slow.folded", &[], ";slow_path;slow_inner;"),
        ("slow.json", &[], "\"type\":\"summary\",\"schema\":1"),
    ] {
        let path = directory.path().join(name);
        let path = path.to_str().unwrap();
        let arguments = [
            "flame",
            "-p",
            &pid,
            "f[> 5ms]",
            "-F",
            "999",
            "--duration",
            "1.5",
            "-o",
            path,
        ];
        let written = run(profiler(&[&arguments, more].concat())).status(0);
        assert_eq!(written.stdout(), "");
        let written = written.says(&format!("{name} written: "));
        println!("{}", written.stderr().trim_end());
        let content = fs::read_to_string(path).unwrap();
        assert!(content.contains(words), "{name}: {content}");
    }
    // Whole files and nothing besides.
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 4);
    unharmed(target);
}
