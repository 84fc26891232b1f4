//! The command line from outside, against a daemon that plays a script.

#![expect(clippy::unwrap_used, reason = "helpers of tests, which clippy does not see")]

mod collector;
mod estimate;
mod fake;
mod imported;
mod newer;
mod opened;
mod spans;
mod syscalls;
mod timeline;
mod top;
mod trace;
mod waits;

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    process::{Child, Command, Output, Stdio},
};

use profiler_proto::v1::edit_scope_request::Edit;
use profiler_testkit::json::objects_of;
use rustix::process::{Pid, Signal, kill_process};

use fake::{Fake, Script};

fn profiler(fake: &Fake, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_profiler"));
    command
        .args(arguments)
        .arg("--host")
        .arg(format!("unix:{}", fake.socket().display()));
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn run(fake: &Fake, arguments: &[&str]) -> Output {
    profiler(fake, arguments).output().unwrap()
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

fn interrupt(child: &Child) {
    kill_process(Pid::from_child(child), Signal::INT).unwrap();
}

#[track_caller]
fn assert_status(output: &Output, status: i32) {
    assert_eq!(
        output.status.code(),
        Some(status),
        "{}\n{}",
        stdout(output),
        stderr(output)
    );
}

#[test]
fn processes_and_functions_are_listed() {
    let fake = Fake::start(Script::default());
    let output = run(&fake, &["ps", "server"]);
    assert_status(&output, 0);
    assert_eq!(
        stdout(&output),
        "PID   UID  THREADS  SYMBOLS   DEBUG  RUNTIME  IN              COMMAND\n  \
         7  1000        4  separate  lines  ?        docker \\u{1b}1  server --listen \\u{1b}[31m\n"
    );
    let output = run(&fake, &["ps", "server", "--json"]);
    let listed = objects_of("ps", stdout(&output)).remove(0);
    assert_eq!(
        listed,
        serde_json::json!({"type": "process", "schema": 1, "pid": 7, "uid": 1000, "threads": 4,
            "executable": "/usr/bin/server", "command": "server --listen \u{1b}[31m", "symbols": "separate",
            "debug_info": "lines", "runtime": null, "container": "docker \u{1b}1", "unit": null})
    );
    assert_status(&run(&fake, &["ps", "nosuch"]), 3);
    let output = run(&fake, &["functions", "-p", "7"]);
    assert_eq!(
        stdout(&output),
        "    SIZE  INLINED  FUNCTION\n     \
         100           handle  src/server.cc:12\n     \
         100        3  parse<int>  src/server.cc:40\n"
    );
    let output = run(&fake, &["functions", "-p", "7", "--json"]);
    let first = objects_of("functions", stdout(&output)).remove(0);
    assert_eq!(
        first,
        serde_json::json!({"type": "function", "schema": 1, "name": "handle", "linkage_name": "_Zhandle",
            "file": "src/server.cc", "line": 12, "module": "/usr/bin/server", "address": 4108, "size": 100,
            "inlined": 0, "same_code": [], "async": false, "copied": false, "named": true})
    );
}

#[test]
fn source_shows_what_can_be_probed() {
    let fake = Fake::start(Script::default());
    let output = run(&fake, &["source", "-p", "7", "handle"]);
    assert_status(&output, 0);
    assert_eq!(
        stdout(&output),
        "handle  src/server.cc:12–14\n  \
           /usr/bin/server+0x100c, 100 bytes\n   \
            12 ●    int handle(int fd) {\n\
         ▶  13 ●?→    return read(fd) > 0; // \\u{1b}[31m  ?14 →read #1,234 else\n   \
            14      }\n  \
           variables, and the lines at which they can be read\n    \
             fd  int  13\n\n  \
           ● begins here (2…9, *: in so many places)   ? branch, to the line it takes   → call (→* indirect)\n  \
           # times, since a running session probes it\n"
    );
    assert!(
        stderr(&output).contains("profiler: warning: src/server.cc is newer")
            && stderr(&output).contains("2 more functions match"),
        "{}",
        stderr(&output)
    );
    let coloured = run(&fake, &["source", "-p", "7", "handle", "--color", "always"]);
    assert!(stdout(&coloured).contains("\x1b[1m") && !stdout(&coloured).contains("\x1b[31m"));
    assert_status(&run(&fake, &["source", "-p", "404", "handle"]), 3);
    assert_status(&run(&fake, &["source", "-p", "403", "handle"]), 4);
    assert_status(&run(&fake, &["source", "-p", "7"]), 2);
    assert_status(&run(&fake, &["source", "-p", "7", "f[>= p195]"]), 2);
    for (place, words) in [
        ("handel", "candle"),
        ("server.cc:1", "the nearest lines with code: 12"),
        ("mod.rs:1", "a/mod.rs or b/mod.rs"),
    ] {
        let output = run(&fake, &["source", "-p", "7", place]);
        assert_status(&output, 3);
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
    }
}

#[test]
fn source_as_json_is_a_function_and_its_lines() {
    let fake = Fake::start(Script::default());
    let output = run(&fake, &["source", "-p", "7", "handle", "--json"]);
    assert_status(&output, 0);
    let objects = objects_of("source", stdout(&output));
    assert_eq!(objects.len(), 4);
    assert_eq!(
        objects[0],
        serde_json::json!({"type": "source", "schema": 1, "function": "handle", "linkage_name": "_Zhandle",
            "file": "src/server.cc", "line": 12, "last_line": 14, "marked_line": 13, "has_text": true,
            "module": "/usr/bin/server", "address": 4108, "size": 100, "ranges": [[4108, 4208]], "instances": [],
            "variables": [{"name": "fd", "type": "int", "kind": "parameter", "line": 12, "inlined_from": null,
                "ranges": [[4108, 4120]], "lines": [13]}],
            "missing": [], "warnings": ["src/server.cc is newer than the program"]})
    );
    assert_eq!(
        objects[2],
        serde_json::json!({"type": "line", "schema": 1, "function": "handle", "module": "/usr/bin/server",
            "address": 4108, "file": "src/server.cc", "line": 13, "marked": true,
            "text": "  return read(fd) > 0; // \x1b[31m", "sites": [4112],
            "branches": [{"address": 4124, "instruction": "jle",
                "taken": {"address": 4130, "file": "src/server.cc", "line": 14},
                "else": {"address": 4126, "file": "src/server.cc", "line": 13}, "loop": false}],
            "calls": [{"address": 4116, "return_address": 4121, "callee": "read", "callee_address": null,
                "kind": "plt", "tail": false}],
            "inlined": [], "variables": [{"name": "fd", "type": "int", "everywhere": true}],
            "counts": [{"session": "web", "step": "server.cc:13!else", "count": 1234}]})
    );
}

#[test]
fn latency_as_text_ends_with_a_table() {
    let fake = Fake::start(Script {
        target_exits_after: Some(3),
        ..Script::default()
    });
    let output = run(&fake, &["latency", "-p", "7", "handle"]);
    assert_status(&output, 0);
    let text = stdout(&output);
    let lines: Vec<&str> = text.lines().take_while(|line| !line.is_empty()).collect();
    let (heading, updates) = lines.split_first().unwrap();
    assert_eq!(
        *heading,
        "  time function         calls    /s    p50    p90    p99  p99.9    max open lost"
    );
    assert_eq!(updates.len(), 3, "{text}");
    for (number, update) in updates.iter().enumerate() {
        let numbers = "2000  900µs 1.90ms 20.0ms 30.0ms 31.0ms    2";
        assert!(
            update.contains(&format!("s handle {:>15}  {numbers}", (number + 1) * 100)),
            "{text}"
        );
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(
        text.contains("  start ") && text.contains("  ewma       0     0 "),
        "{text}"
    );
    assert!(!text.contains('\x1b'), "nothing is drawn into a pipe");
    assert!(
        stderr(&output).contains("profiler: warning: `handle` begins with"),
        "{}",
        stderr(&output)
    );
    assert_eq!(fake.left(), 0);
    let seen = fake.seen.lock().unwrap();
    assert_eq!(seen.created[0].scope, "handle");
    assert_eq!(seen.created[0].lease.unwrap().seconds, 10);
}

#[test]
fn latency_as_json_has_one_final_object() {
    let fake = Fake::start(Script {
        target_exits_after: Some(3),
        ..Script::default()
    });
    let output = run(&fake, &["latency", "-p", "7", "handle", "--json"]);
    assert_status(&output, 0);
    let objects = objects_of("latency", stdout(&output));
    assert_eq!(objects.len(), 4, "three updates and the last one");
    let (last, others) = objects.split_last().unwrap();
    assert_eq!(last["final"], true);
    assert!(others.iter().all(|object| object["final"] == false));
    assert_eq!(last["since_start"]["p95_ns"], 12_300_000);
    assert!(last["ewma"]["p95_ns"].is_null());
}

#[test]
fn ctrl_c_ends_the_run_with_its_result() {
    let fake = Fake::start(Script::default());
    let child = profiler(&fake, &["latency", "-p", "7", "handle"])
        .spawn()
        .unwrap();
    fake.await_updates(2);
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    assert_status(&output, 0);
    assert!(stdout(&output).contains("p99.9"), "{}", stdout(&output));
    assert_eq!(fake.left(), 0);
}

#[test]
fn a_second_ctrl_c_aborts_even_while_nobody_reads() {
    let fake = Fake::start(Script::default());
    let mut child = profiler(&fake, &["latency", "-p", "7", "handle", "--json"])
        .spawn()
        .unwrap();
    // A pipe holds 64 KiB: some hundred updates later the client is stuck in a write.
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    reader.read_line(&mut String::new()).unwrap();
    fake.await_updates(150);
    interrupt(&child);
    interrupt_until_gone(&mut child);
    let mut rest = String::new();
    child.stderr.take().unwrap().read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{rest}");
    assert!(rest.contains("Aborted."), "{rest}");
    assert_eq!(fake.left(), 0, "the session was ended all the same");
}

/// Two signals that arrive at once are one; so the second is sent until it counted.
fn interrupt_until_gone(child: &mut Child) {
    while child.try_wait().unwrap().is_none() {
        let _ = kill_process(Pid::from_child(child), Signal::INT);
        std::thread::yield_now();
    }
}

#[test]
fn a_target_that_exits_is_a_result() {
    let fake = Fake::start(Script {
        target_exits_after: Some(3),
        ..Script::default()
    });
    let output = run(&fake, &["latency", "-p", "7", "handle"]);
    assert_status(&output, 0);
    assert!(stdout(&output).contains("p99.9"));
    assert!(
        stderr(&output).contains("The target exited."),
        "{}",
        stderr(&output)
    );
    let output = run(&fake, &["flame", "-p", "7", "handle[>= p95]", "-f"]);
    assert_status(&output, 0);
    assert!(
        stdout(&output).contains("main;handle;slow:path"),
        "{}",
        stdout(&output)
    );
}

#[test]
fn what_was_collected_before_a_break_is_written() {
    let fake = Fake::start(Script {
        breaks_after: Some(2),
        ..Script::default()
    });
    let output = run(&fake, &["flame", "-p", "7", "handle[>= p95]", "-f"]);
    assert_status(&output, 1);
    assert!(
        stdout(&output).contains("main;handle;slow:path"),
        "{}",
        stdout(&output)
    );
    assert!(
        stderr(&output).contains("profiler: The daemon is gone"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_reader_that_leaves_ends_the_run_quietly() {
    let fake = Fake::start(Script::default());
    let mut child = profiler(&fake, &["latency", "-p", "7", "handle", "--json"])
        .spawn()
        .unwrap();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    reader.read_line(&mut String::new()).unwrap();
    drop(reader);
    let output = child.wait_with_output().unwrap();
    assert_status(&output, 0);
    assert!(!stderr(&output).contains("pipe"), "{}", stderr(&output));
    assert_eq!(fake.left(), 0);
}

#[test]
fn a_flame_graph_of_an_event_has_its_unit() {
    let fake = Fake::start(Script::default());
    let asked = ["flame", "-p", "7", "handle[>= p95]", "--duration", "0.2"];
    let drawn = |more: &[&str]| {
        let output = run(&fake, &[&asked[..], more].concat());
        assert_status(&output, 0);
        output
    };
    let tree = drawn(&["-e", "faults"]);
    let (table, run) = (stdout(&tree), stderr(&tree));
    assert!(table.starts_with("   share     faults "), "{table}");
    assert!(
        run.contains("000 faults drawn, ") && !run.contains("on the CPU"),
        "{run}"
    );
    assert!(run.contains("warning:") && run.contains("-c N"), "{run}");
    let svg = drawn(&["-e", "faults", "-c", "16", "--format", "svg"]);
    assert!(stdout(&svg).contains("<title>page-faults · handle[&gt;= p95]</title>"));
    let once = drawn(&["-e", "faults", "--unique"]);
    assert!(stdout(&once).starts_with("   share     faults "));
    let json = drawn(&["-e", "cycles", "-F", "250", "--json", "--diff"]);
    let last = stdout(&json).lines().last().unwrap().to_owned();
    assert!(
        last.contains("\"event\":\"page-faults\",\"unit\":\"faults\""),
        "{last}"
    );
    let seen = fake.seen.lock().unwrap();
    let paces: Vec<_> = seen
        .flames
        .iter()
        .map(|request| {
            (
                &*request.event,
                request.period,
                request.frequency_hz,
                request.unique,
            )
        })
        .collect();
    assert_eq!(
        paces,
        [
            ("faults", 0, 0, false),
            ("faults", 16, 0, false),
            ("faults", 0, 0, true),
            ("cycles", 0, 250, false)
        ]
    );
    drop(seen);
    assert_eq!(fake.left(), 0);
}

#[test]
fn a_flame_graph_comes_in_all_formats() {
    let fake = Fake::start(Script::default());
    let directory = tempfile::tempdir().unwrap();
    let scope = "handle[>= p95]";
    for (name, words) in [
        ("a.svg", "inside: &gt;= 12.3 ms (p95 of 10,234 calls"),
        ("a.folded", "main;handle;slow:path;read "),
        ("a.json", "\"type\":\"summary\",\"schema\":1"),
        (
            "a.speedscope.json",
            "\"name\":\"cpu, side inside\",\"unit\":\"nanoseconds\"",
        ),
        ("a.firefox.json", "\"name\":\"cpu, side inside\",\"processName\":"),
        ("a.perf", "inside     1 0.000000000: "),
        // A gzip file.
        ("a.pb.gz", "\u{1f}\u{fffd}\u{8}"),
    ] {
        let path = directory.path().join(name);
        let output = run(
            &fake,
            &[
                "flame",
                "-p",
                "7",
                scope,
                "-o",
                path.to_str().unwrap(),
                "--duration",
                "0.2",
            ],
        );
        assert_status(&output, 0);
        assert_eq!(stdout(&output), "");
        assert!(
            stderr(&output).contains(&format!("{name} written")),
            "{}",
            stderr(&output)
        );
        let content = fs::read(path).unwrap();
        let content = String::from_utf8_lossy(&content);
        assert!(content.contains(words), "{content}");
    }
    let output = run(
        &fake,
        &[
            "flame",
            "-p",
            "7",
            scope,
            "--diff",
            "--format",
            "svg",
            "--duration",
            "0.2",
        ],
    );
    assert!(
        stdout(&output).contains("+80.0 points, 95% interval +60.0 to +90.0"),
        "{}",
        stdout(&output)
    );
    let output = run(
        &fake,
        &["flame", "-p", "7", scope, "--outside", "-f", "--duration", "0.2"],
    );
    assert!(stdout(&output).starts_with("main;handle "), "{}", stdout(&output));
    let output = run(&fake, &["flame", "-p", "7", scope, "--duration", "0.2"]);
    assert!(stdout(&output).contains("slow;path"), "{}", stdout(&output));
    let seen = fake.seen.lock().unwrap();
    let differences: Vec<_> = seen.flames.iter().map(|request| request.difference).collect();
    assert_eq!(
        differences,
        [
            false, false, false, false, false, false, false, true, false, false
        ]
    );
    drop(seen);
    assert_eq!(fake.left(), 0);
}

#[test]
fn an_unwritable_file_is_noticed_before_the_run() {
    let fake = Fake::start(Script::default());
    let output = run(&fake, &["flame", "-p", "7", "-o", "/nonexistent/a.svg"]);
    assert_status(&output, 1);
    assert!(
        stderr(&output).contains("Cannot write /nonexistent/a.svg: No such file"),
        "{}",
        stderr(&output)
    );
    assert!(fake.seen.lock().unwrap().created.is_empty());
    let output = run(
        &fake,
        &[
            "flame",
            "-p",
            "7",
            "-o",
            "/dev/full",
            "--format",
            "svg",
            "--duration",
            "0.1",
        ],
    );
    assert_status(&output, 1);
    assert!(
        stderr(&output).contains("No space left on device"),
        "{}",
        stderr(&output)
    );
    assert_eq!(fake.left(), 0);
}

#[test]
fn errors_have_their_exit_status_and_words() {
    let fake = Fake::start(Script::default());
    for (arguments, status, words) in [
        (
            &["latency", "-p", "404", "f"][..],
            3,
            "profiler: There is no process 404.",
        ),
        (
            &["latency", "-p", "7", "handel"],
            3,
            "Nearest names:\n  handle\n  candle",
        ),
        (
            &["latency", "-p", "7", "f[>= p195]"],
            2,
            "\n  f[>= p195]\n       ^",
        ),
        (&["latency", "-p", "403", "f"], 4, "CAP_BPF"),
        (&["latency", "-p", "7", "*"], 1, "the limit is 2,048"),
        (&["functions", "-p", "404"], 3, "no process 404"),
        (
            &["flame", "-p", "7", "handle", "--diff"],
            2,
            "--diff needs a scope with a condition",
        ),
        (
            &["flame", "-p", "7", "handle", "--on-cpu", "--waits"],
            2,
            "--waits draws time off the CPU",
        ),
        (
            &["flame", "-p", "7", "--waits", "--by", "module"],
            2,
            "--waits draws functions",
        ),
        (
            &["flame", "-p", "7", "-e", "faults", "--unique", "--over", "window"],
            2,
            "--unique counts what is touched once since the run began",
        ),
        (
            &["flame", "-p", "7", "-e", "faults", "--unique", "-c", "4"],
            2,
            "cannot be used with",
        ),
        (
            &["flame", "--session", "plain", "--outside"],
            2,
            "--outside needs a scope with a condition",
        ),
        (&["flame", "--session", "nosuch"], 3, "there are: web, plain"),
        (&["session", "end", "nosuch"], 3, "no session `nosuch`"),
        (&["latency", "-p", "7"], 2, "which calls to time"),
        (&["latency"], 2, "which calls to time"),
        (&["frobnicate"], 2, "unrecognized subcommand"),
        (&["flame", "-p", "x"], 2, "invalid value 'x'"),
        (
            &["flame", "-p", "7", "-e", "cs", "--on-cpu"],
            2,
            "cannot be used with",
        ),
        (
            &["flame", "-p", "7", "-e", "cs", "-c", "2", "-F", "9"],
            2,
            "cannot be used with",
        ),
        (&["flame", "-p", "7", "-c", "2"], 2, "--event"),
        (&["flame", "-p", "7", "-e", "cs,faults"], 2, "one event"),
    ] {
        let output = run(&fake, arguments);
        assert!(
            stderr(&output).contains(words),
            "{arguments:?}: {}",
            stderr(&output)
        );
        assert_status(&output, status);
        assert_eq!(stdout(&output), "", "{arguments:?}");
    }
    assert_eq!(fake.left(), 0);
}

#[test]
fn sessions_are_made_listed_edited_and_ended() {
    let fake = Fake::start(Script::default());
    let output = run(
        &fake,
        &[
            "session",
            "new",
            "-p",
            "7",
            "handle[>= p95]",
            "--name",
            "mine",
            "-F",
            "999",
        ],
    );
    assert_status(&output, 0);
    assert_eq!(stdout(&output), "mine\n");
    let output = run(&fake, &["session", "list"]);
    assert!(
        stdout(&output).starts_with("NAME   PIDS  FUNCTIONS  WATCHERS  SCOPE\nweb    7"),
        "{}",
        stdout(&output)
    );
    let output = run(&fake, &["scope", "set", "mine", "handle[>= p99]"]);
    assert_eq!(stdout(&output), "handle[>= p99]\n");
    for edit in [
        &["scope", "append", "mine", "a.c:7/g"][..],
        &["scope", "drop", "mine"],
        &["scope", "drop", "mine", "2"],
        &["scope", "undo", "mine"],
    ] {
        assert_eq!(stdout(&run(&fake, edit)), "handle\n");
    }
    assert_status(&run(&fake, &["scope", "drop", "mine", "0"]), 2);
    assert_status(&run(&fake, &["session", "end", "mine"]), 0);
    let seen = fake.seen.lock().unwrap();
    assert_eq!(
        (
            seen.created[0].frequency_hz,
            seen.created[0].lease.unwrap().seconds
        ),
        (999, 600)
    );
    assert_eq!(seen.ended, ["mine"]);
    let edits: Vec<_> = seen.edits.iter().map(|edit| edit.edit.clone().unwrap()).collect();
    assert_eq!(
        edits,
        [
            Edit::Append("a.c:7/g".to_owned()),
            Edit::Drop(1),
            Edit::Drop(2),
            Edit::Undo(1)
        ]
    );
}

#[test]
fn a_joined_session_is_left_running() {
    let fake = Fake::start(Script::default());
    let output = run(
        &fake,
        &["latency", "--session", "web", "--duration", "0.2", "--json"],
    );
    assert_status(&output, 0);
    assert!(stdout(&output).lines().last().unwrap().contains("\"final\":true"));
    assert!(fake.seen.lock().unwrap().ended.is_empty());
}

#[test]
fn a_daemon_that_does_not_say_what_came_last_is_said() {
    let fake = Fake::start(Script {
        silent_after: Some(1),
        ..Script::default()
    });
    let output = run(
        &fake,
        &["latency", "--session", "web", "--duration", "0.2", "--json"],
    );
    assert_status(&output, 0);
    for said in [
        "warning: the daemon did not say within 3 s what came last",
        "Run this again",
    ] {
        assert!(stderr(&output).contains(said), "{}", stderr(&output));
    }
}

#[test]
fn a_session_can_record_hits_for_those_who_join() {
    let fake = Fake::start(Script::default());
    let new = [
        "session",
        "new",
        "-p",
        "1",
        "server.cc:12",
        "--print",
        "n",
        "--limit",
        "7",
    ];
    assert_status(&run(&fake, &new), 0);
    assert_status(
        &run(&fake, &["session", "new", "-p", "1", "handle", "--trace"]),
        0,
    );
    assert_status(
        &run(&fake, &["session", "new", "-p", "1", "handle", "--stack"]),
        0,
    );
    let joined = ["trace", "--session", "web", "--duration", "0.2"];
    assert_status(&run(&fake, &joined), 0);
    for excluded in [["--print", "n"], ["--limit", "7"], ["-p", "1"]] {
        assert_status(&run(&fake, &[&joined[..], &excluded].concat()), 2);
    }
    let seen = fake.seen.lock().unwrap();
    let captures: Vec<_> = seen.created.iter().map(|new| new.capture.clone()).collect();
    let capture = |print: &[&str], hits_per_second, stack| {
        Some(profiler_proto::v1::Capture {
            print: print.iter().map(|text| (*text).to_owned()).collect(),
            hits_per_second,
            stack,
        })
    };
    assert_eq!(
        captures,
        [
            capture(&["n"], 7, false),
            capture(&[], 1000, false),
            capture(&[], 1000, true)
        ]
    );
    assert!(seen.ended.is_empty());
}

#[test]
fn a_daemon_that_is_not_there_is_named() {
    let output = Command::new(env!("CARGO_BIN_EXE_profiler"))
        .args(["ps", "--host", "/nonexistent/profilerd.sock"])
        .output()
        .unwrap();
    assert_status(&output, 1);
    assert!(stderr(&output).contains("Cannot reach a daemon at /nonexistent/profilerd.sock: No such file"));
}

#[test]
fn every_help_has_units_examples_and_exit_statuses() {
    for verb in [
        &[][..],
        &["ps"],
        &["functions"],
        &["latency"],
        &["trace"],
        &["flame"],
        &["session"],
        &["session", "new"],
        &["session", "list"],
        &["session", "end"],
        &["scope"],
        &["scope", "set"],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_profiler"))
            .args(verb)
            .arg("--help")
            .output()
            .unwrap();
        assert_status(&output, 0);
        for words in [
            "Examples:",
            "Units:",
            "Exit status: 0 done; 1 failed; 2 usage; 3 no such target",
        ] {
            assert!(stdout(&output).contains(words), "{verb:?}: {words}");
        }
    }
}
