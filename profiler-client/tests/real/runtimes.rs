//! Programs that a virtual machine runs, whose functions it names in a perf map: stacks lead from them to where threads begin.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
};

use serde_json::Value;

use super::{
    command::{profiler, run},
    skipped,
};
use profiler_testkit::has_program;

const ERLANG: &str = "
-module(busy).
-export([start/0, busy_work/1]).
busy_work(N) when N < 2 -> N;
busy_work(N) -> busy_work(N - 1) + busy_work(N - 2).
loop(Sum) -> loop(Sum + busy_work(20)).
start() -> io:format(\"ready~n\"), loop(0).
";

const JAVA: &str = "
public class Busy {
    static long busyWork(int n) { return n < 2 ? n : busyWork(n - 1) + busyWork(n - 2); }
    public static void main(String[] arguments) {
        long sum = 0;
        // Long enough for the compiler to have taken it up.
        for (int i = 0; i < 2_000; i++) sum += busyWork(20);
        System.out.println(\"ready\");
        while (true) sum += busyWork(20);
    }
}
";

/// A machine that runs a program.
struct Machine {
    child: Child,
    _directory: tempfile::TempDir,
}

impl Machine {
    /// Starts it, and waits until its program says that it is ready.
    fn start(mut command: Command, directory: tempfile::TempDir) -> Self {
        let mut child = command
            .current_dir(directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self {
            child,
            _directory: directory,
        }
    }

    /// Samples it: the summary, and the stacks.
    fn sampled(&self) -> (Value, Vec<Value>) {
        let pid = self.child.id().to_string();
        let flame = [
            "flame",
            "-p",
            &pid,
            "--on-cpu",
            "-F",
            "499",
            "--duration",
            "2",
            "--json",
        ];
        let mut objects = run(profiler(&flame)).status(0).objects();
        let is_summary = |object: &Value| object["type"] == "summary";
        let at = objects.iter().position(is_summary).unwrap();
        (objects.remove(at), objects)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // What it has is of no use to anybody else; it may also have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(format!("/tmp/perf-{}.map", self.child.id()));
    }
}

/// Samples whose stacks lead from a function that is called so to a known root; and all in such a function.
fn complete_in(stacks: &[Value], function: &str) -> (u64, u64) {
    let is_in = |stack: &&Value| {
        let mut frames = stack["frames"].as_array().unwrap().iter();
        frames.any(|frame| frame["function"].as_str().unwrap().contains(function))
    };
    let of = |stacks: &mut dyn Iterator<Item = &Value>| -> u64 {
        stacks.map(|stack| stack["samples"].as_u64().unwrap()).sum()
    };
    let inside: Vec<&Value> = stacks.iter().filter(is_in).collect();
    let complete = &mut inside.iter().copied().filter(|stack| stack["complete"] == true);
    (of(complete), of(&mut inside.iter().copied()))
}

fn expect_complete(machine: &Machine, function: &str) {
    let (summary, stacks) = machine.sampled();
    let (complete, all) = complete_in(&stacks, function);
    println!("{function}: {complete} of {all} samples have whole stacks; {summary}");
    assert!(all >= 100, "{summary}");
    // A function's first and last instructions have no frame pointer of their own.
    assert!(complete * 10 >= all * 9, "{complete} of {all}");
}

fn write(directory: &Path, name: &str, text: &str) {
    fs::write(directory.join(name), text).unwrap();
}

#[test]
#[ignore = "needs root"]
fn stacks_of_erlang_end_where_its_processes_do() {
    if !has_program("erlc") {
        return skipped("erlang is not installed");
    }
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "busy.erl", ERLANG);
    let compiled = Command::new("erlc")
        .arg("busy.erl")
        .current_dir(directory.path())
        .status();
    assert!(compiled.unwrap().success());
    let mut command = Command::new("erl");
    command.args(["+JPperf", "true", "-noshell", "-eval", "busy:start()."]);
    expect_complete(&Machine::start(command, directory), "busy:busy_work/1");
}

#[test]
#[ignore = "needs root"]
fn stacks_of_the_java_machine_lead_through_compiled_code() {
    if !(has_program("java") && has_program("jcmd")) {
        return skipped("java is not installed");
    }
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "Busy.java", JAVA);
    let mut command = Command::new("java");
    command.args(["-XX:+PreserveFramePointer", "Busy.java"]);
    let machine = Machine::start(command, directory);
    let pid = machine.child.id().to_string();
    let told = Command::new("jcmd")
        .args([&pid, "Compiler.perfmap"])
        .output()
        .unwrap();
    assert!(told.status.success(), "{told:?}");
    expect_complete(&machine, "Busy.busyWork(int)");
}
