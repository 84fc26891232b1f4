//! `profiler spans` on a real target, whose slow calls are known by their number.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{
    command::{Running, objects, profiler, run, through},
    daemon::Daemon,
    fixture::Fixture,
};

/// Longest wait for calls to be read.
const PATIENCE: Duration = Duration::from_mins(1);

/// Calls of `slowpath` that take the slow way.
fn is_slow(number: u64) -> bool {
    [16, 33, 49].contains(&(number % 50))
}

/// Looks at a target from before its first call to after its last one.
fn watched(calls: u32, arguments: &[&str]) -> super::command::Ended {
    let mut target = Fixture::start("slowpath", &[calls.to_string()]);
    let daemon = Daemon::start();
    let number = target.pid().to_string();
    let command = Running::start(through(
        &daemon.socket,
        &[&["spans", "-p", &number], arguments].concat(),
    ));
    daemon.until_watched();
    let truth = target.run();
    assert_eq!(truth["f"].calls, u64::from(calls));
    let ended = daemon.end(command);
    assert_eq!(target.finish().status, Some(0));
    assert_eq!(daemon.stop(), Some(0));
    ended
}

#[test]
#[ignore = "needs root"]
fn the_slowest_calls_are_objects_and_a_summary() {
    let scope = "f[> 15ms]/slow_inner";
    let command = watched(
        200,
        &[
            scope, "--print", "i", "-n", "50", "-F", "999", "--window", "60", "--json",
        ],
    );
    let mut objects = command.objects();
    let summary = objects.pop().unwrap();
    assert_eq!(
        (&summary["type"], &summary["spans"], &summary["calls"]),
        (&json!("summary"), &json!(objects.len()), &json!(200))
    );
    // Some kernels hide threads of their own, and so who comes after those.
    let lost = summary["lost"].as_object().unwrap();
    assert!(lost.keys().all(|reason| reason == "off_cpu_unseen"), "{lost:?}");
    let durations: Vec<u64> = objects
        .iter()
        .map(|span| span["duration_ns"].as_u64().unwrap())
        .collect();
    assert!(durations.is_sorted_by(|one, other| one >= other), "{durations:?}");
    let mut slow: Vec<u64> = Vec::new();
    for span in &objects {
        assert_eq!((&span["type"], &span["function"]), (&json!("span"), &json!("f")));
        let number = span["values"]["i"]["value"].as_u64().unwrap();
        if !is_slow(number) {
            // It had to wait for a CPU.
            assert_eq!(span["children"], json!([]));
            continue;
        }
        slow.push(number);
        let [child] = span["children"].as_array().unwrap().as_slice() else {
            panic!("{span}")
        };
        assert_eq!(child["place"], "slow_inner");
        assert!(child["duration_ns"].as_u64().unwrap() >= 15_000_000, "{span}");
    }
    slow.sort_unstable();
    let truth: Vec<u64> = (0..200).filter(|number| is_slow(*number)).collect();
    assert_eq!(slow, truth);
    let sampled = objects
        .iter()
        .find(|span| span["samples"].as_u64() > Some(2))
        .unwrap();
    let stack: Vec<&str> = sampled["stack"]
        .as_array()
        .unwrap()
        .iter()
        .map(|frame| frame["function"].as_str().unwrap())
        .collect();
    assert!(stack.contains(&"f") && stack.contains(&"slow_inner"), "{stack:?}");
}

#[test]
#[ignore = "needs root"]
fn the_table_has_them_too_and_the_last_line_says_of_how_many() {
    let command = watched(100, &["f", "-n", "3", "--window", "60"]);
    let text = command.stdout();
    for number in 1..=3 {
        assert!(text.contains(&format!("#{number} ")), "{text}");
    }
    assert!(!text.contains("#4"), "{text}");
    // It was not watched for as long as the window is.
    assert!(
        command
            .stderr()
            .contains(" s, the 3 slowest of 100 calls in the last "),
        "{}",
        command.stderr()
    );
    println!("{text}\n{}", command.stderr());
}

#[test]
#[ignore = "needs root"]
fn a_running_session_is_looked_at_and_goes_on() {
    let mut target = Fixture::start("slowpath", &[]);
    let daemon = Daemon::start();
    let pid = target.pid().to_string();
    let new = ["session", "new", "-p", &pid, "--name", "web", "f[> 15ms]"];
    run(through(&daemon.socket, &new)).status(0);
    target.say("go");
    let arguments = ["spans", "--session", "web", "--duration", "3", "--json"];
    let command = run(through(&daemon.socket, &arguments)).status(0);
    let seen = objects(command.stdout());
    assert!(seen.len() > 1, "{seen:?}");
    for span in &seen[..seen.len() - 1] {
        assert!(span["duration_ns"].as_u64().unwrap() >= 14_000_000, "{span}");
        assert_eq!(span["values"], json!({}));
    }
    let sessions = daemon.sessions();
    assert_eq!((sessions.len(), &sessions[0]["name"]), (1, &json!("web")));
    assert_eq!(daemon.stop(), Some(0));
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn what_has_no_duration_is_refused_with_the_reason() {
    let target = Fixture::start("slowpath", &["1".to_owned()]);
    let pid = target.pid().to_string();
    let refused = |scope: &str| run(profiler(&["spans", "-p", &pid, scope]));
    refused("slowpath.c:34")
        .status(2)
        .says("is a line, which has no duration");
    refused("nosuch").status(3).says("nosuch");
    refused("f[>=").status(2).says("^");
    run(profiler(&[
        "spans",
        "-p",
        &pid,
        "f",
        "--print",
        "nosuch",
        "--duration",
        "0.2",
    ]))
    .status(0);
    assert_eq!(target.finish().status, Some(0));
}

/// What `courses` says of its calls.
fn courses(output: &str) -> Vec<Value> {
    let said = output.lines().filter_map(|line| line.strip_prefix("course "));
    said.map(|course| serde_json::from_str(course).unwrap()).collect()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

/// A call of `courses` is drawn with its nap and its read where its own clock has them.
#[test]
#[ignore = "needs root"]
fn a_call_has_its_waits_where_the_target_has_them() {
    const NAP_NS: u64 = 8_000_000;
    let mut target = Fixture::start("courses", &["10".to_owned()]);
    let daemon = Daemon::start();
    let pid = target.pid().to_string();
    let arguments = [
        "spans", "-p", &pid, "serve", "-n", "50", "--window", "60", "--json",
    ];
    let command = Running::start(through(&daemon.socket, &arguments));
    daemon.until_watched();
    assert_eq!(target.run()["serve"].calls, 30);
    let ended = daemon.end(command);
    let courses = courses(&target.finish().output);
    let mut objects = ended.objects();
    let summary = objects.pop().unwrap();
    assert_eq!((objects.len(), courses.len()), (30, 30), "{summary}");
    // Some kernels hide threads of their own, and so who comes after those.
    let lost = summary["lost"].as_object().unwrap();
    assert!(lost.keys().all(|reason| reason == "off_cpu_unseen"), "{lost:?}");
    let (mut naps, mut reads) = (0, 0);
    for course in &courses {
        let begun_ns = number(&course["begun_ns"]);
        let ended_ns = number(&course["ended_ns"]);
        let is_it = |span: &&Value| {
            span["tid"] == course["tid"] && (begun_ns..ended_ns).contains(&number(&span["ts_ns"]))
        };
        let [span] = objects.iter().filter(is_it).collect::<Vec<_>>()[..] else {
            panic!("{course}")
        };
        let ts_ns = number(&span["ts_ns"]);
        let mut last_ns = ts_ns;
        let mut sums = [0; 4];
        for period in span["off_cpu"].as_array().unwrap() {
            let from_ns = ts_ns + number(&period["offset_ns"]);
            let to_ns = from_ns + number(&period["time_ns"]);
            assert!(last_ns <= from_ns && to_ns <= ended_ns, "{span}");
            last_ns = to_ns;
            let activity = period["activity"].as_str().unwrap();
            let words = ["sleeping", "uninterruptible", "stopped", "runnable"];
            let at = words.iter().position(|word| *word == activity).unwrap();
            sums[at] += to_ns - from_ns;
            let within = |times: &Value| number(&times[0]) <= from_ns && to_ns <= number(&times[1]);
            match (activity, period["system_call"].as_str()) {
                ("sleeping", Some("clock_nanosleep" | "nanosleep")) => {
                    assert!(within(&course["nap"]), "{course} {period}");
                    assert!(to_ns >= number(&course["nap"][0]) + NAP_NS, "{course} {period}");
                    naps += 1;
                }
                ("sleeping", Some("read")) => {
                    assert!(within(&course["read"]), "{course} {period}");
                    reads += 1;
                }
                ("sleeping", call) => panic!("{call:?}: {span}"),
                _ => {}
            }
        }
        assert_eq!(span["off_cpu_left_out"], 0);
        // Each time is one of these.
        let times = times_off_cpu(span);
        assert_eq!(sums, times, "{span}");
    }
    // A thread that gets no CPU in time finds its timer gone off already.
    println!("{naps} naps and {reads} reads of 30 calls; {lost:?}");
    assert!(naps > 20 && reads > 20, "{naps} {reads}");
    assert_eq!(daemon.stop(), Some(0));
}

/// Times off the CPU of a call.
fn times_off_cpu(span: &Value) -> [u64; 4] {
    ["sleeping", "uninterruptible", "stopped", "runnable"].map(|word| number(&span["times_ns"][word]))
}

/// What `serve` asks, and how often, by system call and error.
const ASKED: [(&str, Option<&str>, u64); 5] = [
    ("getppid", None, 20),
    ("close", Some("EBADF"), 3),
    ("timerfd_settime", None, 1),
    ("clock_nanosleep", None, 1),
    ("read", None, 1),
];

#[test]
#[ignore = "needs root"]
fn a_call_has_the_system_calls_that_it_makes() {
    let mut target = Fixture::start("courses", &["300".to_owned()]);
    // There is room for what comes while a busy machine has no CPU for the daemon.
    let daemon = Daemon::with(&["--ring-bytes", "67108864"]);
    let pid = target.pid().to_string();
    let arguments = [
        "spans",
        "-p",
        &pid,
        "serve",
        "--syscalls",
        "-n",
        "100",
        "--window",
        "60",
        "--json",
    ];
    let command = Running::start(through(&daemon.socket, &arguments));
    daemon.until_watched();
    target.run();
    let mut objects = daemon.end(command).objects();
    let summary = objects.pop().unwrap();
    let lost = summary["lost"].as_object().unwrap();
    assert!(
        !lost.keys().any(|reason| reason.starts_with("syscall")),
        "{lost:?}"
    );
    // They are recorded from a moment after the beginning.
    let known: Vec<&Value> = objects
        .iter()
        .filter(|span| !span["syscalls"].is_null())
        .collect();
    println!(
        "{} of {} calls have their system calls",
        known.len(),
        objects.len()
    );
    assert!(known.len() > 20, "{} of {}", known.len(), objects.len());
    for span in known {
        assert_eq!(span["syscalls"]["left_out"], 0);
        let kinds = span["syscalls"]["kinds"].as_array().unwrap();
        for (name, error, calls) in ASKED {
            let is_it = |kind: &&Value| kind["name"] == name && kind["error"] == json!(error);
            let kind = kinds
                .iter()
                .find(is_it)
                .unwrap_or_else(|| panic!("{name}: {span}"));
            assert_eq!(kind["calls"], calls, "{name}: {span}");
            assert!(number(&kind["longest_ns"]) <= number(&kind["time_ns"]), "{span}");
        }
        let nap = kinds
            .iter()
            .find(|kind| kind["name"] == "clock_nanosleep")
            .unwrap();
        assert!(number(&nap["time_ns"]) >= 8_000_000, "{span}");
    }
    assert_eq!(target.finish().status, Some(0));
    assert_eq!(daemon.stop(), Some(0));
}

/// Each thread of `courses` makes ten calls.
const CALLS_OF_THREAD: u64 = 10;

#[test]
#[ignore = "needs root"]
fn calls_of_some_threads_are_counted_alone() {
    let mut target = Fixture::start("courses", &[CALLS_OF_THREAD.to_string()]);
    let pid = target.pid().to_string();
    let daemon = Daemon::start();
    let porter = thread_called(&pid, "porter");
    let scopes = [
        (
            "clerks",
            r#"serve[$comm == "clerk-*"]"#.to_owned(),
            2 * CALLS_OF_THREAD,
        ),
        (
            "clerk",
            r#"serve[$comm == "clerk-2"]"#.to_owned(),
            CALLS_OF_THREAD,
        ),
        (
            "others",
            r#"serve[$comm != "porter"]"#.to_owned(),
            2 * CALLS_OF_THREAD,
        ),
        ("porter", format!("serve[$tid == {porter}]"), CALLS_OF_THREAD),
        ("nobody", r#"serve[$comm == "clerk"]"#.to_owned(), 0),
        (
            "both",
            r#"serve[$comm == "clerk-*"][number > 1]"#.to_owned(),
            CALLS_OF_THREAD,
        ),
    ];
    for (name, scope, _) in &scopes {
        run(through(
            &daemon.socket,
            &["session", "new", "-p", &pid, "--name", name, scope],
        ))
        .status(0);
    }
    assert_eq!(target.run()["serve"].calls, 3 * CALLS_OF_THREAD);
    for (name, scope, expected) in &scopes {
        let look = ["latency", "--session", name, "--duration", "0.3", "--json"];
        let counted = || {
            let objects = run(through(&daemon.socket, &look)).status(0).objects();
            number(&objects.last().unwrap()["since_start"]["count"])
        };
        // What was counted last is read a moment later.
        let begin = Instant::now();
        while counted() < *expected {
            assert!(begin.elapsed() < PATIENCE, "{scope}: {}", counted());
        }
        assert_eq!(counted(), *expected, "{scope}");
    }
    assert_eq!(daemon.stop(), Some(0));
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn a_thread_is_printed_with_its_number_and_name() {
    let mut target = Fixture::start("courses", &["2".to_owned()]);
    let pid = target.pid().to_string();
    let daemon = Daemon::start();
    let arguments = [
        "spans",
        "-p",
        &pid,
        "serve",
        "--print",
        "$tid,$comm",
        "-n",
        "50",
        "--window",
        "60",
        "--json",
    ];
    let command = Running::start(through(&daemon.socket, &arguments));
    daemon.until_watched();
    target.run();
    let mut objects = daemon.end(command).objects();
    let summary = objects.pop().unwrap();
    assert_eq!(objects.len(), 6, "{summary}");
    let courses = courses(&target.finish().output);
    for span in &objects {
        let course = courses
            .iter()
            .find(|course| course["tid"] == span["tid"])
            .unwrap();
        assert_eq!(span["values"]["$tid"]["value"], span["tid"], "{span}");
        assert_eq!(span["values"]["$comm"]["value"], course["thread"], "{span}");
    }
    assert_eq!(daemon.stop(), Some(0));
}

/// What cannot be asked of a thread is refused with the reason before anything is attached.
#[test]
#[ignore = "needs root"]
fn what_no_thread_can_be_is_refused() {
    let target = Fixture::start("courses", &["1".to_owned()]);
    let pid = target.pid().to_string();
    for (scope, words) in [
        (
            r#"serve[$comm == "sixteen--letters"]"#,
            "the kernel keeps 15 of it",
        ),
        (r#"serve[$comm == "*-1"]"#, "but at its end"),
        ("serve[$comm > 3]", "is not a number"),
        (r#"serve[$tid == "porter"]"#, "$tid is not text"),
        (r#"syscall:read[$comm == "porter"]"#, "only its fields can"),
        ("serve[$thread == 3]", "of the thread tid or comm"),
    ] {
        let refused = run(profiler(&["spans", "-p", &pid, scope, "--dry-run"]));
        println!("{scope}: {}", refused.stderr());
        assert_ne!(refused.code(), Some(0), "{scope}");
        refused.says(words);
    }
    assert_eq!(target.finish().status, Some(0));
}

/// The number of a process's thread of this name.
fn thread_called(pid: &str, name: &str) -> u32 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let called = threads.map(|thread| thread.unwrap()).find(|thread| {
        let comm = std::fs::read_to_string(thread.path().join("comm")).unwrap();
        comm.trim_end() == name
    });
    called.unwrap().file_name().to_str().unwrap().parse().unwrap()
}
