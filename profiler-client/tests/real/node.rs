//! A program whose code is compiled while it runs, and that says so in a perf map.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
};

use super::{
    command::{profiler, run},
    skipped,
};

const SCRIPT: &str = "
function busyWork(n) {
    let state = 1;
    for (let i = 0; i < n; i++) state = (Math.imul(state, 31) + i) | 0;
    return state;
}
console.log('ready');
const end = Date.now() + 60000;
while (Date.now() < end) busyWork(1000000);
";

struct Node {
    child: Child,
    _directory: tempfile::TempDir,
}

impl Node {
    /// Starts it; `None` where it is not installed.
    fn start() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("busy.js");
        fs::write(&script, SCRIPT).unwrap();
        let mut child = Command::new("node")
            .arg("--perf-basic-prof")
            .arg(&script)
            // It leaves a log where it is.
            .current_dir(directory.path())
            .stdout(Stdio::piped())
            .spawn()
            .ok()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert_eq!(line, "ready\n");
        Some(Self {
            child,
            _directory: directory,
        })
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // What it has is of no use to anybody else; it may also have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(format!("/tmp/perf-{}.map", self.child.id()));
    }
}

#[test]
#[ignore = "needs root"]
fn functions_of_scripts_have_names() {
    let Some(node) = Node::start() else {
        return skipped("node is not installed");
    };
    let pid = node.child.id().to_string();
    let sampled = run(profiler(&[
        "flame",
        "-p",
        &pid,
        "-F",
        "999",
        "--duration",
        "1.5",
        "--json",
    ]));
    let objects = sampled.status(0).objects();
    let (mut all, mut named, mut complete) = (0, 0, 0);
    for stack in objects.iter().filter(|object| object["type"] == "stack") {
        let samples = stack["samples"].as_u64().unwrap();
        let is_named = |frame: &serde_json::Value| {
            let function = frame["function"].as_str().unwrap();
            function.starts_with("JS:") && function.contains("busyWork ") && frame["module"] == "[jit]"
        };
        all += samples;
        if stack["frames"].as_array().unwrap().iter().any(is_named) {
            named += samples;
        }
        if stack["complete"] == true {
            complete += samples;
        }
    }
    println!("{all} samples, {named} in the script's function, {complete} complete");
    // Some fall into the time in which the function is being compiled, however many there are of the others.
    let most = |share: u64| all / share + 5;
    assert!(all > 100 && all - named <= most(20) && all - complete <= most(200));
}
