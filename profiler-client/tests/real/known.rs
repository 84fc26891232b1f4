//! What is known of processes before anything is attached.

use std::{
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use profiler_testkit::has_program;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{
    command::{profiler, run},
    fixture::Fixture,
    split_off,
};

/// A program that runs until this is dropped.
struct Running(Child);

impl Running {
    fn start(program: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped());
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Self(child.unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What `ps` says of a process.
fn known(pid: u32) -> Value {
    let listed = run(profiler(&["ps", &pid.to_string(), "--json"]))
        .status(0)
        .objects();
    let own = listed.into_iter().find(|process| process["pid"] == pid);
    own.unwrap()
}

/// What of its executable and runtime, as soon as it is known: others may keep the machine busy for longer than it is waited for.
fn of_executable(pid: u32) -> Value {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let found = of_executable_now(pid);
        if !found[0].is_null() {
            return found;
        }
        assert!(Instant::now() < until, "{found}");
    }
}

fn of_executable_now(pid: u32) -> Value {
    let known = known(pid);
    json!([known["symbols"], known["debug_info"], known["runtime"]])
}

/// Waits for a process to have begun what is expected of it: it is known by what it has mapped by then.
fn comes_to_run(pid: u32, runtime: &str) {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let known = known(pid);
        if known["runtime"] == runtime {
            return;
        }
        assert!(Instant::now() < until, "{known}");
    }
}

#[test]
#[ignore = "needs root"]
fn executables_are_told_by_what_they_have() {
    let whole = Fixture::start("slowpath", &[]);
    assert_eq!(of_executable(whole.pid()), json!(["full", "full", "native"]));
    let bare = Fixture::start("idle_static_stripped", &[]);
    assert_eq!(of_executable(bare.pid()), json!(["none", "none", "native"]));
    let other = Fixture::start("idle32", &[]);
    assert_eq!(of_executable_now(other.pid()), json!([null, null, null]));

    let folder = TempDir::new().unwrap();
    let (program, debug) = split_off::stripped(&folder, "slowpath");
    let split = Running::start(&program, &[]);
    assert_eq!(
        of_executable(split.0.id()),
        json!(["separate", "separate", "native"])
    );
    drop(split);
    std::fs::remove_file(folder.path().join(debug)).unwrap();
    // What was found is kept for the file for a while: another one is another.
    let copy = folder.path().join("copy");
    std::fs::copy(&program, &copy).unwrap();
    let split = Running::start(copy.to_str().unwrap(), &[]);
    assert_eq!(of_executable(split.0.id()), json!(["dynamic", "none", "native"]));
}

#[test]
#[ignore = "needs root"]
fn runtimes_are_told_by_what_is_mapped() {
    let go = Fixture::start("goroutines", &[]);
    assert_eq!(known(go.pid())["runtime"], "go");
    for (program, arguments, runtime) in [
        (
            "/usr/bin/python3",
            &["-c", "import time; time.sleep(100)"][..],
            "python",
        ),
        ("node", &["-e", "setInterval(() => {}, 1000)"], "node"),
        ("perl", &["-e", "sleep 100"], "perl"),
        ("ruby", &["-e", "sleep 100"], "ruby"),
        ("erl", &["-noshell"], "erlang"),
    ] {
        if has_program(program) {
            let running = Running::start(program, arguments);
            comes_to_run(running.0.id(), runtime);
        }
    }
}

#[test]
#[ignore = "needs root"]
fn another_namespace_of_processes_is_said() {
    if !has_program("unshare") {
        return;
    }
    let outer = Running::start("unshare", &["--pid", "--fork", "--kill-child", "sleep", "987654"]);
    let until = Instant::now() + Duration::from_secs(30);
    let inner = loop {
        let listed = run(profiler(&["ps", "sleep 987654", "--json"])).objects();
        let inner = listed
            .into_iter()
            .find(|process| process["command"] == "sleep 987654" && process["container"].is_string());
        if let Some(inner) = inner {
            break inner;
        }
        assert!(Instant::now() < until);
    };
    assert!(
        inner["container"].as_str().unwrap().starts_with("pidns "),
        "{inner}"
    );
    assert_eq!(known(outer.0.id())["container"], Value::Null);
}
