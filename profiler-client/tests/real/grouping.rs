//! What the frames of a flame graph stand for.

use std::collections::HashSet;

use serde_json::Value;

use super::{
    command::{profiler, run, through},
    daemon::Daemon,
    verbs::{busy, unharmed},
};

/// A run's stacks, and its summary.
fn flame(pid: u32, by: &str, more: &[&str]) -> (Vec<Value>, Value) {
    let pid = pid.to_string();
    let arguments = [
        &[
            "flame",
            "-p",
            &pid,
            "--by",
            by,
            "--json",
            "-F",
            "999",
            "--duration",
            "2",
        ],
        more,
    ]
    .concat();
    let mut objects = run(profiler(&arguments)).status(0).objects();
    let summary = objects.pop().unwrap();
    assert_eq!(summary["type"], "summary");
    (objects, summary)
}

fn frames(stack: &Value) -> &[Value] {
    stack["frames"].as_array().unwrap()
}

fn samples(stack: &Value) -> u64 {
    stack["samples"].as_u64().unwrap()
}

/// Whether all stacks begin with one frame, and which.
fn root(stacks: &[Value]) -> &Value {
    let roots: HashSet<String> = stacks
        .iter()
        .filter(|stack| samples(stack) > 0)
        .map(|stack| frames(stack)[0].to_string())
        .collect();
    assert_eq!(roots.len(), 1, "{roots:?}");
    &frames(&stacks[0])[0]
}

#[test]
#[ignore = "needs root"]
fn frames_stand_for_what_is_asked() {
    let target = busy();
    let pid = target.pid();

    let (stacks, summary) = flame(pid, "module", &[]);
    assert_eq!(stacks.iter().map(samples).sum::<u64>(), summary["inside"]);
    for stack in &stacks {
        let modules: Vec<&str> = frames(stack)
            .iter()
            .map(|frame| {
                assert_eq!(frame["function"], frame["module"]);
                frame["module"].as_str().unwrap()
            })
            .collect();
        assert!(modules.windows(2).all(|two| two[0] != two[1]), "{modules:?}");
    }
    assert!(stacks.iter().any(|stack| {
        let modules = frames(stack).iter().map(|frame| &frame["module"]);
        modules.eq(["slowpath", "libc.so.6", "slowpath"])
    }));

    let (stacks, _) = flame(pid, "thread", &[]);
    let thread = root(&stacks);
    assert_eq!(
        (&thread["function"], &thread["module"]),
        (&format!("slowpath ({pid})").into(), &"[thread]".into())
    );
    assert!(
        stacks
            .iter()
            .any(|stack| frames(stack)[1]["function"] == "_start")
    );

    let (stacks, _) = flame(pid, "process", &[]);
    let process = root(&stacks);
    assert!(
        process["function"]
            .as_str()
            .unwrap()
            .ends_with("fixtures/slowpath")
    );
    assert_eq!(process["module"], "[process]");

    // The lines of the calls in `f`, and which of them the slow calls went through.
    let (stacks, _) = flame(pid, "line", &["f[> 5ms]", "--diff"]);
    let line_of = |stack: &Value, function: &str| {
        let frame = frames(stack).iter().find(|frame| frame["function"] == function)?;
        frame["line"].as_u64()
    };
    let lines = |called: &str| -> HashSet<u64> {
        let through = stacks.iter().filter(|stack| line_of(stack, called).is_some());
        through.filter_map(|stack| line_of(stack, "f")).collect()
    };
    let source = include_str!("../../../profiler-daemon/tests/fixtures/engine/slowpath.c");
    let calls = |called: &str| -> HashSet<u64> {
        let call = format!("{called}(");
        (1..)
            .zip(source.lines())
            .filter(|(_, line)| line.contains(&call) && !line.contains("void"))
            .map(|(number, _)| number)
            .collect()
    };
    for called in ["slow_path", "fast_path"] {
        assert!(
            !calls(called).is_empty() && lines(called).is_subset(&calls(called)),
            "{called}"
        );
        assert!(!lines(called).is_empty());
    }
    unharmed(target);
}

#[test]
#[ignore = "needs root"]
fn groupings_of_one_session_go_side_by_side() {
    let daemon = Daemon::start();
    let target = busy();
    let pid = target.pid().to_string();
    let socket = daemon.socket.as_path();
    run(through(
        socket,
        &[
            "session", "new", "-p", &pid, "--name", "grouped", "-F", "499", "f",
        ],
    ))
    .status(0);
    let watch = |by: &'static str| {
        let socket = socket.to_owned();
        std::thread::spawn(move || {
            let arguments = [
                "flame",
                "--session",
                "grouped",
                "--by",
                by,
                "-f",
                "--duration",
                "1",
            ];
            run(through(&socket, &arguments)).status(0)
        })
    };
    // A busy machine may leave the target no time in a second.
    let (modules, lines) = (0..30)
        .map(|_| {
            let (modules, lines) = (watch("module"), watch("line"));
            (modules.join().unwrap(), lines.join().unwrap())
        })
        .find(|(modules, lines)| !modules.stdout().is_empty() && !lines.stdout().is_empty())
        .unwrap();
    assert!(
        modules.stdout().contains("slowpath;libc.so.6;slowpath "),
        "{}",
        modules.stdout()
    );
    assert!(
        modules.stderr().contains("of stacks complete"),
        "{}",
        modules.stderr()
    );
    assert!(lines.stdout().contains(" slowpath.c:"), "{}", lines.stdout());
    assert!(!lines.stdout().contains("slowpath;libc.so.6;slowpath "));
    run(through(socket, &["session", "end", "grouped"])).status(0);
    unharmed(target);
}
