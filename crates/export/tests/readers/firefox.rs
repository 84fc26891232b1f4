//! The Firefox Profiler's command line (`@firefox-devtools/profiler-cli`), which has the importers and the call tree of its page.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use profiler_export::firefox;

use super::*;
use seen::{Seen, all};

/// The command line with a file loaded; it is served by a daemon, which ends with this.
struct Cli {
    program: PathBuf,
    home: TempDir,
}

/// The session's name, as an argument.
const SESSION: [&str; 2] = ["--session", "test"];

impl Cli {
    fn load(package: &Path, file: &Path) -> Self {
        let cli = Self {
            program: package.join("../../.bin/profiler-cli"),
            home: tempfile::tempdir().unwrap(),
        };
        let load = cli
            .command()
            .arg("load")
            .arg(file)
            .args(SESSION)
            .output()
            .unwrap();
        // Its daemon has half a second to begin, and begins all the same where that was not enough.
        let give_up = Instant::now() + Duration::from_mins(1);
        while !cli
            .command()
            .args(["thread", "list"])
            .args(SESSION)
            .output()
            .unwrap()
            .status
            .success()
        {
            let said = String::from_utf8_lossy(&load.stderr);
            assert!(said.contains("did not become ready"), "{said}");
            assert!(Instant::now() < give_up, "{said}");
        }
        cli
    }

    /// With a daemon of its own.
    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.env("HOME", self.home.path());
        command.env("PROFILER_CLI_SESSION_DIR", self.home.path().join("sessions"));
        command
    }

    fn run(&self, arguments: &[&str]) -> String {
        printed(self.command().args(arguments).args(SESSION))
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.run(&[arguments, &["--json"]].concat())).unwrap()
    }

    /// The stacks of each thread that weigh something themselves, as its call tree shows them.
    fn threads(&self) -> BTreeMap<String, Vec<(Vec<String>, f64)>> {
        let list = self.json(&["thread", "list"]);
        let threads = list["threads"].as_array().unwrap().iter();
        let of_thread = |thread: &Value| {
            let handle = thread["threadHandle"].as_str().unwrap();
            let tree = [
                "thread",
                "samples-top-down",
                "--include-idle",
                "--max-lines",
                "100000",
                "--thread",
            ];
            let tree = self.json(&[&tree[..], &[handle]].concat());
            let mut stacks = Vec::new();
            collect(&tree["regularCallTree"], &mut Vec::new(), &mut stacks);
            (thread["name"].as_str().unwrap().to_owned(), stacks)
        };
        threads.map(of_thread).collect()
    }
}

impl Drop for Cli {
    fn drop(&mut self) {
        let ended = self.command().args(["stop", "--all"]).output();
        // A test that has failed says why itself.
        if !std::thread::panicking() {
            assert!(ended.is_ok_and(|output| output.status.success()));
        }
    }
}

fn collect(node: &Value, outer: &mut Vec<String>, stacks: &mut Vec<(Vec<String>, f64)>) {
    for child in node["children"].as_array().into_iter().flatten() {
        outer.push(child["name"].as_str().unwrap().to_owned());
        let own = child["selfSamples"].as_f64().unwrap();
        if own > 0.0 {
            stacks.push((outer.clone(), own));
        }
        collect(child, outer, stacks);
        outer.pop();
    }
}

/// Each thread is a measure and a side, and has all its stacks; times are milliseconds there.
#[test]
fn the_call_tree_of_each_measure_and_side_has_every_stack_and_weight() {
    let Some(package) = npm_package("@firefox-devtools/profiler-cli") else {
        return;
    };
    let profile = support::profile();
    let written = Written::new("profile.json", &firefox::write(&profile));
    let threads = Cli::load(&package, &written.path).threads();
    let read = threads.into_iter().map(|(name, stacks)| {
        let unit = if is_time(&profile, &name) { 1e6 } else { 1.0 };
        let stacks = stacks
            .into_iter()
            .map(|(stack, own)| (stack, (own * unit).round() as u64));
        (name, stacks.collect())
    });
    assert_eq!(
        read.collect::<BTreeMap<_, Stacks>>(),
        by_measure_and_side(&profile)
    );
}

/// It counts the records of what `perf script` prints.
#[test]
fn the_text_of_perf_script_has_every_stack_in_its_share() {
    let Some(package) = npm_package("@firefox-devtools/profiler-cli") else {
        return;
    };
    let profile = support::plain();
    let written = Written::new("profile.perf", &perf_script_of(&profile));
    let threads = Cli::load(&package, &written.path).threads();
    let counts = |(side, stacks): (String, Vec<(Vec<String>, f64)>)| {
        stacks
            .into_iter()
            .map(move |(stack, own)| ((stack, side.clone()), own))
    };
    let read: BTreeMap<_, f64> = threads.into_iter().flat_map(counts).collect();
    let records: f64 = read.values().sum();
    let written = by_stack(&profile);
    let sum: u64 = written.values().map(|weights| weights[1]).sum();
    assert_eq!(read.len(), written.len());
    for (stack, weights) in written {
        let (read, written) = (read[&stack] / records, weights[1] as f64 / sum as f64);
        assert!((read - written).abs() <= 1e-4, "{stack:?}: {read} of {written}");
    }
}

/// Markers by their names, and counters.
#[test]
fn events_are_markers_with_their_times_and_counters_are_there() {
    let Some(package) = npm_package("@firefox-devtools/profiler-cli") else {
        return;
    };
    let timeline = made::sample();
    let written = Written::new("profile.json", &firefox::events(&timeline, made::ANY_SIZE).bytes);
    let cli = Cli::load(&package, &written.path);
    let first_ns = timeline.first_ns().unwrap();
    let mut seen = Vec::new();
    for (thread, pid) in [("t-0", 7), ("t-1", 8)] {
        let list = cli.json(&["thread", "markers", "--list", "--thread", thread]);
        for marker in list["flatMarkers"].as_array().unwrap() {
            let ns = |value: &Value| value.as_f64().map(|ms| (ms * 1e6).round() as u64);
            assert_eq!(marker["fields"][0]["label"], "n");
            let value = &marker["fields"][0]["value"];
            assert!(value == "18446744073709551615" || value == "0.5", "{marker}");
            seen.push(Seen {
                pid,
                tid: pid + 100,
                name: marker["name"].as_str().unwrap().to_owned(),
                category: marker["category"].as_str().unwrap().to_owned(),
                at_ns: first_ns + ns(&marker["start"]).unwrap(),
                duration_ns: ns(&marker["duration"]),
            });
        }
    }
    seen.sort();
    assert_eq!(seen, all(&timeline));
    let counters = cli.json(&["counter", "list"]);
    let counters = counters["counters"].as_array().unwrap().iter();
    let counters: Vec<[&str; 3]> = counters
        .map(|counter| ["name", "pid", "graphType"].map(|key| counter[key].as_str().unwrap()))
        .collect();
    assert_eq!(
        counters,
        [
            ["page-faults", "7", "line-rate"],
            ["page-faults, clerk 108", "8", "line-rate"]
        ]
    );
}
