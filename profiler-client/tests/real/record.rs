//! `profiler record`, and what is asked of a recording.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
    time::{Duration, Instant},
};

use profiler_recording::{Chunk, Kind, Reader};
use profiler_testkit::{
    Random,
    fixture::{Fixture, long_scale, spec},
};
use rustix::{
    process::Signal,
    time::{ClockId, clock_gettime},
};
use serde_json::Value;

use super::{
    command::{Running, on_a_small_disk, profiler, run, through},
    daemon::Daemon,
    split_off,
    verbs::{busy, unharmed},
};

/// Longest wait for what a file is to have.
const PATIENCE: Duration = Duration::from_mins(1);

/// A flame graph's stacks, each with its weights, and its summary without what the command itself costs.
fn stacks(objects: &[Value]) -> (BTreeMap<String, String>, Value) {
    let (summary, stacks) = objects.split_last().unwrap();
    assert_eq!(summary["type"], "summary");
    let weights = |stack: &Value| {
        let mut weights = stack.clone();
        weights.as_object_mut().unwrap().remove("frames");
        weights.to_string()
    };
    let stacks = stacks
        .iter()
        .map(|stack| (stack["frames"].to_string(), weights(stack)))
        .collect();
    let mut summary = summary.clone();
    summary.as_object_mut().unwrap().remove("cost");
    (stacks, summary)
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("{key}: {value}"))
}

#[test]
#[ignore = "needs root"]
fn a_recording_answers_as_the_session_did() {
    const SCOPE: &str = "f[>= p90]";
    let daemon = Daemon::start();
    let mut target = Fixture::start("slowpath", &[]);
    let pid = target.pid().to_string();
    daemon
        .profiler(&["session", "new", "-p", &pid, "--name", "s", "-F", "499", SCOPE])
        .status(0);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.profrec");
    let file = path.to_str().unwrap();
    let recorder = daemon.on("s", &["record", "-o", file]);
    let questions: [&[&str]; 7] = [
        &["flame", "--json"],
        &["flame", "--json", "--diff"],
        &["flame", "--json", "--by", "line"],
        &["flame", "--json", "--by", "module"],
        &["flame", "--json", "--by", "thread"],
        &["flame", "--json", "--by", "process"],
        &["flame", "--json", "--outside", "--on-cpu"],
    ];
    let live: Vec<Running> = questions
        .iter()
        .map(|question| daemon.on("s", question))
        .collect();
    let mut latency = daemon.on("s", &["latency", "--json", "--interval", "0.2"]);
    daemon.until_watched_by(9);
    target.say("go");
    let calls = |line: &str| {
        let object: Value = serde_json::from_str(line).unwrap();
        object["since_start"]["count"].as_u64().unwrap_or(0)
    };
    while calls(&latency.line()) < 1500 {}
    target.say("exit");
    target.truth();
    assert_eq!(target.finish().status, Some(0));
    let ended = recorder.end().status(0).says("a.profrec written");
    println!("{}", ended.stderr().trim_end());

    for (question, live) in questions.iter().zip(live) {
        let live = live.end().status(0).objects();
        let asked = [question, &["--from", file][..]].concat();
        let recorded = run(profiler(&asked)).status(0).objects();
        let ((live, of_live), (recorded, of_recorded)) = (stacks(&live), stacks(&recorded));
        println!("{question:?}: {of_recorded}");
        assert!(number(&of_live, "inside") > 100, "{of_live}");
        assert_eq!(recorded, live, "{question:?}");
        assert_eq!(of_recorded, of_live, "{question:?}");
    }
    let last = |objects: Vec<Value>| {
        let object = objects.into_iter().rfind(|object| object["type"] == "latency");
        object.unwrap()
    };
    let live = last(latency.end().status(0).objects());
    let recorded = last(
        run(profiler(&["latency", "--json", "--from", file]))
            .status(0)
            .objects(),
    );
    println!("{}", recorded["since_start"]);
    for key in [
        "function",
        "module",
        "address",
        "open",
        "abandoned",
        "overhead_ns",
        "lost",
    ] {
        assert_eq!(recorded[key], live[key], "{key}");
    }
    for key in [
        "count", "min_ns", "max_ns", "p50_ns", "p95_ns", "p999_ns", "mean_ns",
    ] {
        assert_eq!(recorded["since_start"][key], live["since_start"][key], "{key}");
    }
    asked_otherwise(file, number(&live["since_start"], "count"));
    assert!(daemon.stop() == Some(0));
}

/// Asks a recording of `f[>= p90]` what nobody has asked while it was made.
fn asked_otherwise(file: &str, calls: u64) {
    let ask = |arguments: &[&str]| {
        let asked = [&["flame", "--json", "--from", file], arguments].concat();
        stacks(&run(profiler(&asked)).status(0).objects()).1
    };
    let drawn = |summary: &Value| number(summary, "inside") + number(summary, "outside");
    let all = ask(&["f", "--on-cpu"]);
    let (slow, slowest) = (ask(&["f[>= p90]", "--on-cpu"]), ask(&["f[>= p99]", "--on-cpu"]));
    let band = ask(&["f[>= p50][< p99]", "--on-cpu"]);
    println!("{calls} calls; {all}; {slow}; {slowest}; {band}");
    assert_eq!(drawn(&all), drawn(&slow));
    assert_eq!(drawn(&all), drawn(&slowest));
    assert_eq!(drawn(&all), drawn(&band));
    assert_eq!(number(&all, "outside"), 0);
    assert!(number(&slowest, "inside") <= number(&slow, "inside"));
    // Two parts are no more than the whole.
    let part = |time: &str| drawn(&ask(&["f", "--on-cpu", "--time", time]));
    let parts = (1..).map(|s| (part(&format!("..{s}s")), part(&format!("{s}s.."))));
    // The target began some time after the recording did, and went on for seconds.
    let (first, second) = parts.into_iter().find(|(first, _)| *first > 0).unwrap();
    println!("{first} and {second} of {}", drawn(&all));
    assert!(second > 0 && first + second <= drawn(&all));
}

#[test]
#[ignore = "needs root"]
fn a_killed_recorder_leaves_what_it_had_written() {
    let target = busy();
    let pid = target.pid().to_string();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.profrec");
    let file = path.to_str().unwrap();
    let recorder = Running::start(profiler(&["record", "-p", &pid, "f", "-o", file]));
    // It can be read while it is written, up to its last whole chunk.
    let inside = || {
        let ended = run(profiler(&["flame", "--json", "--from", file]));
        ended
            .stdout()
            .lines()
            .last()
            .map_or(0, |line| number(&serde_json::from_str(line).unwrap(), "inside"))
    };
    let begin = Instant::now();
    let more_than = |least: u64| {
        loop {
            assert!(begin.elapsed() < PATIENCE, "no more than {least} samples");
            let now = inside();
            if now > least {
                return now;
            }
        }
    };
    // Each time by a chunk, and more.
    let before = more_than(more_than(0));
    recorder.signal(Signal::KILL);
    let _ = recorder.end();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(inside() >= before);

    // Cut off amid a chunk, as where a copy was not whole.
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 5]).unwrap();
    run(profiler(&["latency", "--json", "--from", file]))
        .status(0)
        .says("bytes of the recording are left out");
    unharmed(target);
}

/// The time that a file's records reach to, once there are any, and whether it ends amid a chunk.
fn reaches(path: &Path) -> Option<(u64, bool)> {
    let reader = Reader::open(File::open(path).ok()?).ok()?;
    let is_record = |chunk: &&Chunk| chunk.kind == Kind::Records && chunk.to_ns > chunk.from_ns;
    let last = reader.chunks().rfind(is_record)?;
    Some((last.to_ns, reader.cut().is_some()))
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap()
}

#[test]
#[ignore = "needs root"]
fn recorders_that_are_killed_at_any_time_leave_all_but_the_last_second() {
    // With `PROFILER_SCALE=long` as often as a user may rely on.
    let times = if long_scale() { 100 } else { 3 };
    let target = busy();
    let pid = target.pid().to_string();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.profrec");
    let file = path.to_str().unwrap();
    let mut random = Random::from_seed(u64::from(target.pid()));
    let mut lost_ns = Vec::new();
    let mut cut_off = 0;
    for _ in 0..times {
        let recorder = Running::start(profiler(&["record", "-p", &pid, "f", "--force", "-o", file]));
        let begin = Instant::now();
        while reaches(&path).is_none() {
            assert!(begin.elapsed() < PATIENCE, "nothing is written");
            std::thread::sleep(Duration::from_millis(5));
        }
        // Anywhere between two writes.
        std::thread::sleep(Duration::from_millis(random.below(1200) as u64));
        let killed_ns = now_ns();
        recorder.signal(Signal::KILL);
        let _ = recorder.end();
        let (until_ns, is_cut) = reaches(&path).unwrap();
        lost_ns.push(killed_ns.saturating_sub(until_ns));
        let ended = run(profiler(&["latency", "--json", "--from", file])).status(0);
        assert!(
            number(&ended.objects()[0]["since_start"], "count") > 0,
            "{}",
            ended.stdout()
        );
        let says_so = ended.stderr().contains("bytes of the recording are left out");
        assert_eq!(says_so, is_cut, "{}", ended.stderr());
        cut_off += u32::from(is_cut);
        fs::remove_file(&path).unwrap();
    }
    lost_ns.sort_unstable();
    println!(
        "killed {times} times, each file is read; lost at the end: {:.3} s at most, {:.3} s in the middle; {cut_off} were cut off \
         amid a chunk, which is said",
        *lost_ns.last().unwrap() as f64 / 1e9,
        lost_ns[lost_ns.len() / 2] as f64 / 1e9,
    );
    // Where others take the CPUs, what was counted is on its way for longer.
    assert!(lost_ns[0] <= 1_000_000_000, "{lost_ns:?}");
    assert!(
        lost_ns.iter().all(|lost_ns| *lost_ns <= 5_000_000_000),
        "{lost_ns:?}"
    );
    unharmed(target);
}

#[test]
#[ignore = "needs root"]
fn two_recordings_are_compared_stack_by_stack() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (before, after) = (file("before.profrec"), file("after.profrec"));
    let (target, other) = (busy(), busy());
    for (target, file) in [(&target, &before), (&other, &after)] {
        let pid = target.pid().to_string();
        let recorded = [
            "record",
            "-p",
            &pid,
            "f",
            "-F",
            "499",
            "--duration",
            "2",
            "-o",
            file,
        ];
        run(profiler(&recorded)).status(0);
    }
    let flame = |file: &str, scope: &str| {
        let asked = ["flame", "--json", "--from", file, scope];
        stacks(&run(profiler(&asked)).status(0).objects()).0
    };
    for scope in ["f", "f[>= p90]"] {
        let asked = ["diff", "--json", &before, &after, scope];
        let ended = run(profiler(&asked)).status(0);
        let objects = ended.objects();
        let of_side = |weight: &str, samples: &str| {
            let mut objects = objects.clone();
            for object in &mut objects {
                if object["type"] == "stack" {
                    object["weight_ns"] = object[weight].clone();
                    object["samples"] = object[samples].clone();
                    for key in ["outside_weight_ns", "outside_samples"] {
                        object.as_object_mut().unwrap().remove(key);
                    }
                }
            }
            objects.retain(|object| object["type"] != "stack" || number(object, "samples") > 0);
            stacks(&objects).0
        };
        assert_eq!(of_side("weight_ns", "samples"), flame(&after, scope), "{scope}");
        assert_eq!(
            of_side("outside_weight_ns", "outside_samples"),
            flame(&before, scope),
            "{scope}"
        );
        println!("{scope}: {}", objects.last().unwrap());
    }

    // A recording does not differ from itself; a page, and formats with sides, are those of a difference.
    let text = run(profiler(&["diff", &after, &after])).status(0);
    let lines = text.stdout().lines();
    assert!(
        text.stdout().starts_with("   after   before    difference (95%)"),
        "{}",
        text.stdout()
    );
    assert!(
        lines.skip(1).all(|line| line.contains("+0.0 [-")),
        "{}",
        text.stdout()
    );
    let page = file("diff.svg");
    run(profiler(&["diff", &before, &after, "-o", &page])).status(0);
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("after against before") && page.contains("more of the time after"));
    run(profiler(&[
        "diff", &after, &after, "--before", "..1s", "--after", "1s..",
    ]))
    .status(0)
    .says("drawn of after and");

    run(profiler(&["diff", &before, &file("none.profrec")]))
        .status(1)
        .says("none.profrec: No such file");
    run(profiler(&["diff", &before, &after, "g"]))
        .status(3)
        .says("`g` was not recorded");
    let everything = file("everything.profrec");
    let pid = target.pid().to_string();
    run(profiler(&[
        "record",
        "-p",
        &pid,
        "--duration",
        "1",
        "-o",
        &everything,
    ]))
    .status(0);
    run(profiler(&["diff", &before, &everything]))
        .status(2)
        .says("different scopes, `f` and everything");
    run(profiler(&["diff", &everything, &everything])).status(0);
    for target in [target, other] {
        unharmed(target);
    }
}

#[test]
#[ignore = "needs root"]
fn a_full_disk_ends_a_recording_which_can_be_read_up_to_there() {
    let target = busy();
    let pid = target.pid().to_string();
    let directory = tempfile::tempdir().unwrap();
    let script = "\"$0\" record -p \"$1\" -F 999 -o a.profrec; status=$?
        \"$0\" flame --from a.profrec --json | tail -1; exit $status";
    let full = on_a_small_disk(directory.path(), "16k", &pid, script);
    let ended = run(full)
        .status(1)
        .says("Cannot write a.profrec: No space left on device")
        .says("a.profrec written: ");
    println!("{}{}", ended.stderr(), ended.stdout());
    assert!(number(&ended.objects()[0], "inside") > 0);
    assert!(
        !ended.stderr().contains("warning"),
        "what is not whole was taken away"
    );
    unharmed(target);
}

#[test]
#[ignore = "needs root"]
fn files_that_are_no_place_for_a_recording_are_refused() {
    let target = busy();
    let pid = target.pid().to_string();
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let record = |file: &str, more: &[&str]| {
        let arguments = [
            &["record", "-p", &pid, "f", "--duration", "0.5", "-o", file],
            more,
        ]
        .concat();
        run(profiler(&arguments))
    };
    fs::write(path("there"), "before").unwrap();
    symlink(path("there"), path("link")).unwrap();
    record(&path("there"), &[])
        .status(2)
        .says("replace it with --force");
    assert_eq!(fs::read_to_string(path("there")).unwrap(), "before");
    for (file, more) in [
        (path("link"), &["--force"][..]),
        ("/dev/null".to_owned(), &["--force"]),
    ] {
        record(&file, more).status(2).says("not a regular file");
    }
    record("/nonexistent/a", &[])
        .status(1)
        .says("Cannot write /nonexistent/a: No such file or directory (os error 2).");
    record("-", &[]).status(2).says("needs a regular file");
    let refused = run(profiler(&[
        "record",
        "-p",
        &pid,
        "no_such_function",
        "-o",
        &path("none"),
    ]));
    refused.status(3);
    assert!(!fs::exists(path("none")).unwrap(), "nothing came of it");
    let there = path("there");
    let refused = ["record", "-p", &pid, "no_such_function", "--force", "-o", &there];
    run(profiler(&refused)).status(3);
    assert_eq!(
        fs::read_to_string(path("there")).unwrap(),
        "before",
        "nor was it replaced"
    );
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    record(&path("there"), &["--force"]).status(0);
    run(profiler(&["flame", "--from", &path("there"), "--folded"])).status(0);

    let from = |arguments: &[&str]| run(profiler(arguments));
    from(&["flame", "--from", "/bin/sh"])
        .status(1)
        .says("is not a recording");
    from(&["flame", "--from", &there, "g"])
        .status(3)
        .says("the recording is of `f`");
    from(&["flame", "--from", &there, "--waits"])
        .status(2)
        .says("record it with `profiler record --waits`");
    from(&["flame", "--from", &there, "-p", &pid])
        .status(2)
        .says("cannot be used with");
    from(&["spans", "--from", &there, "f"]).status(0);
    for (verb, flag) in [
        ("waits", "--waits"),
        ("syscalls", "--syscalls"),
        ("trace", "--trace"),
        ("timeline", "--timeline"),
    ] {
        from(&[verb, "--from", &there, "f"]).status(2).says(flag);
    }
    let top = from(&["top", "--from", &there, "--json"]).status(0);
    let objects = top.objects();
    assert!(
        objects.iter().any(|object| object["function"] == "f"),
        "{objects:?}"
    );
    from(&["flame", "--from", &there, "--time", "9m.."])
        .status(2)
        .says("it has nothing after 540.000 s");
    unharmed(target);
}

#[test]
#[ignore = "needs root"]
fn a_recording_ends_after_what_it_waits_for_and_has_what_was_before() {
    let target = busy();
    let pid = target.pid().to_string();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.profrec");
    let file = file.to_str().unwrap();
    let record = |scope: &str, more: &[&str]| {
        let arguments = ["record", "-p", &pid, scope, "--force", "-o", file];
        run(profiler(&[&arguments[..], more].concat()))
    };
    // Slow calls take 20 ms, and come all the time.
    record("f", &["--on", "f[>= 15ms]", "--after", "1"])
        .status(0)
        .says("f[>= 15ms] happened")
        .says("it goes on for 1.00 s")
        .says("a.profrec written: ");
    let latency = run(profiler(&["latency", "--from", file, "--json", "f[>= 15ms]"])).status(0);
    let function = latency
        .objects()
        .into_iter()
        .rfind(|object| object["type"] == "latency");
    let slow = function.unwrap()["since_start"]["max_ns"].as_u64().unwrap();
    assert!(slow >= 15_000_000, "{slow}");
    record(
        "f",
        &["--on", "window p95 of f > 15ms for 500ms", "--after", "0.5"],
    )
    .status(0)
    .says("window p95 of f > 15ms for 500ms happened");
    record("f", &["--on", "f[>= 100s]", "--duration", "1"])
        .status(0)
        .says("no condition of --on has held");
    let before = fs::read(file).unwrap();
    record("f", &["--on", "slow_path[>= 1ms]"])
        .status(2)
        .says("`slow_path` is not among the steps");
    assert_eq!(fs::read(file).unwrap(), before, "it is as it was");
    record("f", &["--on", "f"]).status(2).says("asks for no duration");

    fs::remove_file(file).unwrap();
    let recorder = Running::start(profiler(&[
        "record", "-p", &pid, "f", "--force", "-o", file, "--on", "signal", "--after", "0.2",
    ]));
    until_there_is(file);
    recorder.signal(Signal::USR1);
    recorder.end().status(0).says("SIGUSR1 happened");
    unharmed(target);
}

#[test]
#[ignore = "needs root"]
fn inner_calls_are_asked_for_by_any_percentile_of_outer_ones() {
    let target = busy();
    let pid = target.pid().to_string();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.profrec");
    let file = file.to_str().unwrap();
    let record = |more: &[&str]| {
        let arguments = ["record", "-p", &pid, "--duration", "3", "--force", "-o", file];
        run(profiler(&[&arguments[..], more].concat()))
    };
    record(&["--calls", "f/slow_path"])
        .status(0)
        .says("a.profrec written: ");
    let calls = |scope: &str| {
        let ended = run(profiler(&["latency", "--from", file, "--json", scope])).status(0);
        let says = ended.stderr().contains("percentiles of outer steps are exact");
        assert_eq!(says, scope.contains("= p"), "{scope}: {}", ended.stderr());
        let object = ended
            .objects()
            .into_iter()
            .rfind(|object| object["type"] == "latency");
        let object = object.unwrap();
        let mut lost = object["lost"].as_object().unwrap().clone();
        // The target may be amid a call as it is attached to.
        lost.remove("open_at_attach");
        assert!(lost.is_empty(), "{object}");
        object["since_start"].clone()
    };
    let count = |scope: &str| number(&calls(scope), "count");
    let (outer, all) = (count("f"), count("f/slow_path"));
    // 6% go through it, and these are the slowest, but for those that had to wait for a CPU.
    let (slow, slowest) = (count("f[>= p50]/slow_path"), count("f[>= p99]/slow_path"));
    // A percentile takes all calls that share its bucket of durations, as does the time that is printed for it.
    let p99_ns = number(&calls("f"), "p99_ns");
    let as_slow = count(&format!("f[>= {p99_ns}ns]/slow_path"));
    println!("{outer} calls of f, {all}, {slow}, and {slowest} of slow_path, from {p99_ns} ns {as_slow}");
    assert!(outer > 200 && all > 10);
    assert_eq!(slow, all);
    assert!(slowest > 0, "{slowest} of {outer}");
    assert_eq!(slowest, as_slow);

    record(&["--calls", "f"]).status(2).says("calls inside of others");
    record(&["f/slow_path"]).status(0);
    run(profiler(&["latency", "--from", file, "f[>= p90]/slow_path"]))
        .status(2)
        .says("record with --calls");
    unharmed(target);
}

/// The hits that were shown, and what was counted of them.
fn hits(objects: Vec<Value>) -> (Vec<Value>, Value) {
    let mut hits = objects;
    let mut summary = hits.pop().unwrap();
    assert_eq!(summary["type"], "summary");
    for hit in &mut hits {
        // A name is known only of a thread that was sampled.
        hit.as_object_mut().unwrap().remove("thread");
    }
    summary.as_object_mut().unwrap().remove("cost");
    (hits, summary)
}

#[test]
#[ignore = "needs root"]
fn recorded_hits_are_those_that_were_traced() {
    let daemon = Daemon::start();
    let directory = tempfile::tempdir().unwrap();
    for (name, scope, narrower) in [
        ("calls", "f[>= 15ms]", "f[>= 30ms]"),
        ("lines", "f[>= 0ns]/slowpath.c:25", "f[>= 30ms]/slowpath.c:25"),
    ] {
        let mut target = Fixture::start("slowpath", &["1000".to_owned()]);
        let pid = target.pid().to_string();
        let path = directory.path().join(name);
        let file = path.to_str().unwrap();
        daemon
            .profiler(&[
                "session", "new", "-p", &pid, "--name", name, "--print", "i", "--stack", scope,
            ])
            .status(0);
        let recorder = daemon.on(name, &["record", "-o", file]);
        let live = daemon.on(name, &["trace", "--json"]);
        daemon.until_watched_by(2);
        target.run();
        assert_eq!(target.finish().status, Some(0));
        println!("{}", recorder.end().status(0).says(" hits, ").stderr().trim_end());

        let (live, of_live) = hits(live.end().status(0).objects());
        let asked = |more: &[&str]| {
            let arguments = [&["trace", "--json", "--from", file], more].concat();
            hits(run(profiler(&arguments)).status(0).objects())
        };
        let (recorded, of_recorded) = asked(&[]);
        println!("{scope}: {of_recorded}");
        assert!(live.len() > 10, "{of_live}");
        assert_eq!(recorded, live, "{scope}");
        for key in ["hits", "reached", "rejected", "lost"] {
            assert_eq!(of_recorded[key], of_live[key], "{key}: {of_recorded} {of_live}");
        }
        let (slower, of_slower) = asked(&[narrower]);
        println!("{narrower}: {of_slower}");
        assert_eq!(of_slower["reached"], of_live["reached"]);
        if name == "calls" {
            let is_slower = |hit: &&Value| number(hit, "duration_ns") >= 30_000_000;
            let slow = live.iter().filter(is_slower).count();
            // Calls in the bucket that the duration lies in are shown, too.
            assert!((slow..=live.len()).contains(&slower.len()), "{slow} {of_slower}");
        }
        let in_part = asked(&["--time", "1s..2s"]).0;
        assert!(in_part.len() < live.len() && in_part.iter().all(|hit| live.contains(hit)));
        run(profiler(&["trace", "--from", file, "--print", "i"]))
            .status(2)
            .says("leave --print and --stack out");
    }
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
#[ignore = "needs root"]
fn recorded_counters_add_up_to_those_that_were_watched() {
    let daemon = Daemon::start();
    let directory = tempfile::tempdir().unwrap();
    let mut target = Fixture::start("slowpath", &["1000".to_owned()]);
    let pid = target.pid().to_string();
    let path = directory.path().join("a.profrec");
    let file = path.to_str().unwrap();
    daemon
        .profiler(&["session", "new", "-p", &pid, "--name", "s", "f"])
        .status(0);
    let counters = ["-e", "task-clock,cs,page-faults", "--threads"];
    let recorder = daemon.on("s", &[&["record", "-o", file][..], &counters].concat());
    let live = daemon.on("s", &[&["timeline", "--json"][..], &counters].concat());
    // The recorder watches records and counters.
    daemon.until_watched_by(3);
    target.run();
    assert_eq!(target.finish().status, Some(0));
    recorder.end().status(0).says("a.profrec written");

    let asked = |more: &[&str]| {
        let arguments = [&["timeline", "--json", "--from", file], more].concat();
        run(profiler(&arguments)).status(0).objects()
    };
    let (live, recorded) = (live.end().status(0).objects(), asked(&["--threads"]));
    let (of_live, of_recorded) = (live.last().unwrap(), recorded.last().unwrap());
    println!("{of_live}\n{of_recorded}");
    assert_eq!(
        (&of_recorded["type"], &of_recorded["calls"]),
        (&Value::from("summary"), &Value::from(1000))
    );
    assert_eq!(of_live["calls"], of_recorded["calls"]);
    // Each began to count when nothing happened.
    assert_eq!(of_live["counters"], of_recorded["counters"]);
    // Longer buckets are those that were recorded, added up; counters are chosen by any of their names.
    let longer = asked(&["--step", "1s", "-e", "context-switches"]);
    assert!(
        longer.len() < recorded.len() / 4,
        "{} {}",
        longer.len(),
        recorded.len()
    );
    assert_eq!(longer.last().unwrap()["calls"], of_recorded["calls"]);
    let in_part = asked(&["--time", "1s..2s"]);
    assert!(
        in_part.len() > 2 && in_part.len() < recorded.len(),
        "{}",
        in_part.len()
    );
    run(profiler(&["timeline", "--from", file, "-e", "syscalls"]))
        .status(3)
        .says("was not recorded. There are: task-clock, cs, page-faults");
    assert_eq!(daemon.stop(), Some(0));
}

/// The tree of waits, without numbers of frames, and what it comes to.
fn waits(objects: Vec<Value>) -> (Vec<Value>, Value) {
    let mut nodes = objects;
    let mut summary = nodes.pop().unwrap();
    assert_eq!(summary["type"], "summary");
    let summary = summary.as_object_mut().unwrap();
    for changing in ["cost", "watched_ns", "dropped"] {
        summary.remove(changing);
    }
    (nodes, Value::from(summary.clone()))
}

#[test]
#[ignore = "needs root"]
fn recorded_waits_are_those_that_were_watched() {
    let daemon = Daemon::start();
    let directory = tempfile::tempdir().unwrap();
    let mut target = Fixture::start("locks", &["100".to_owned()]);
    let pid = target.pid().to_string();
    let path = directory.path().join("a.profrec");
    let file = path.to_str().unwrap();
    daemon
        .profiler(&["session", "new", "-p", &pid, "--name", "s"])
        .status(0);
    let recorder = daemon.on("s", &["record", "-o", file, "--waits"]);
    let live = daemon.on("s", &["waits", "--json"]);
    daemon.until_watched_by(2);
    target.run();
    assert_eq!(target.finish().status, Some(0));
    recorder.end().status(0).says("a.profrec written");

    let asked = |more: &[&str]| {
        let arguments = [&["waits", "--json", "--from", file], more].concat();
        waits(run(profiler(&arguments)).status(0).objects())
    };
    let (live, of_live) = waits(live.end().status(0).objects());
    let (recorded, of_recorded) = asked(&[]);
    println!(
        "{of_live}\n{of_recorded}\n{} {} nodes",
        live.len(),
        recorded.len()
    );
    assert!(number(&of_live, "waits") > 50, "{of_live}");
    assert_eq!(of_recorded, of_live);
    assert_eq!(recorded, live);
    let (_, of_part) = asked(&["--time", "..1s"]);
    assert!(number(&of_part, "waits") < number(&of_live, "waits"), "{of_part}");
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
#[ignore = "needs root"]
fn recorded_waits_are_drawn_on_calls_as_they_were_live() {
    let daemon = Daemon::start();
    let directory = tempfile::tempdir().unwrap();
    let mut target = Fixture::start("chain_of_waits", &spec("chain_of_waits").args);
    let pid = target.pid().to_string();
    let path = directory.path().join("a.profrec");
    let file = path.to_str().unwrap();
    daemon
        .profiler(&["session", "new", "-p", &pid, "--name", "s", "ask[>= p10]"])
        .status(0);
    let recorder = daemon.on("s", &["record", "-o", file, "--waits"]);
    let questions: [&[&str]; 5] = [
        &["flame", "--json", "--waits"],
        &["flame", "--json", "--waits", "--off-cpu"],
        &["flame", "--json", "--waits", "--diff"],
        &["flame", "--json", "--waits", "--outside"],
        &["flame", "--json", "--waits", "--by", "thread"],
    ];
    let live: Vec<Running> = questions
        .iter()
        .map(|question| daemon.on("s", question))
        .collect();
    daemon.until_watched_by(6);
    target.run();
    // It is there until then: what it has mapped gives addresses their names.
    daemon.profiler(&["session", "end", "s"]).status(0);
    assert_eq!(target.finish().status, Some(0));
    recorder.end().status(0).says("a.profrec written");

    let ask = |question: &[&str], more: &[&str]| {
        let asked = [question, &["--from", file], more].concat();
        stacks(&run(profiler(&asked)).status(0).objects())
    };
    for (question, live) in questions.iter().zip(live) {
        let live = stacks(&live.end().status(0).objects());
        let recorded = ask(question, &[]);
        println!("{question:?}: {} stacks, {}", recorded.0.len(), recorded.1);
        assert_eq!(recorded, live, "{question:?}");
    }
    // The asker waits for the relayer, who waits for the fetcher, who sleeps.
    let chain = [
        "\"relay\"",
        "\"[sleeping]\"",
        "\"fetch\"",
        "\"[sleeping]\"",
        "hrtimer_wakeup",
    ];
    let has_chain = |stack: &String| {
        let mut rest = stack.as_str();
        chain.iter().all(|frame| match rest.split_once(frame) {
            Some((_, behind)) => {
                rest = behind;
                true
            }
            None => false,
        })
    };
    // Any percentile, with what is drawn on the waits of these very calls.
    for (scope, more) in [
        ("ask", &[][..]),
        ("ask[>= p50]", &[]),
        ("ask[< p50]", &["--outside"]),
    ] {
        let question = ["flame", "--json", "--waits", scope];
        let (drawn, summary) = ask(&question, more);
        println!("{scope} {more:?}: {summary}");
        assert!(drawn.keys().any(has_chain), "{drawn:?}");
        // It divides their time, and adds nothing to it.
        let plain = ask(&["flame", "--json", scope], more).1;
        assert_eq!(summary["times_ns"], plain["times_ns"]);
    }
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
#[ignore = "needs root"]
fn recorded_time_off_the_cpu_is_that_of_all_threads_where_it_is_asked_for() {
    let daemon = Daemon::start();
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (all, calls, in_calls) = (
        file("all.profrec"),
        file("calls.profrec"),
        file("in_calls.profrec"),
    );
    let mut target = Fixture::start("offcpu", &["60".to_owned()]);
    let pid = target.pid().to_string();
    for (name, scope) in [("all", None), ("calls", Some("nap"))] {
        let new = ["session", "new", "-p", &pid, "--name", name];
        daemon.profiler(&[&new[..], scope.as_slice()].concat()).status(0);
    }
    let recorders = [
        daemon.on("all", &["record", "-o", &all, "--off-cpu"]),
        daemon.on("calls", &["record", "-o", &calls, "--off-cpu"]),
        daemon.on("calls", &["record", "-o", &in_calls]),
    ];
    let questions: [&[&str]; 6] = [
        &["--on-cpu", "--off-cpu"],
        &["--off-cpu"],
        &["--off-cpu", "--by", "line"],
        &["--off-cpu", "--by", "module"],
        &["--on-cpu", "--off-cpu", "--by", "thread"],
        &["--on-cpu", "--off-cpu", "--by", "process"],
    ];
    let flame = |more: &[&'static str]| [&["flame", "--json"], more].concat();
    let live = questions.map(|question| daemon.on("all", &flame(question)));
    let of_calls = daemon.on("calls", &flame(&[]));
    daemon.until_each_is_watched_by(&[7, 3]);
    target.run();
    assert_eq!(target.finish().status, Some(0));
    for recorder in recorders {
        recorder.end().status(0).says(".profrec written");
    }

    let ask = |file: &str, more: &[&str]| {
        let asked = [&["flame", "--json", "--from", file], more].concat();
        stacks(&run(profiler(&asked)).status(0).objects())
    };
    for (question, live) in questions.iter().zip(live) {
        let (live, of_live) = stacks(&live.end().status(0).objects());
        println!("{question:?}: {of_live}");
        assert!(number(&of_live, "inside") > 100, "{of_live}");
        assert_eq!(ask(&all, question), (live.clone(), of_live), "{question:?}");
        // Steps may be left out afterwards.
        let (without_steps, _) = ask(&calls, &[&[""], *question].concat());
        if question.contains(&"--on-cpu") {
            let is_off_cpu = |(stack, _): &(&String, &String)| stack.contains("[off-cpu]");
            let off_cpu = |stacks: &BTreeMap<String, String>| {
                let off_cpu = stacks.iter().filter(is_off_cpu);
                let off_cpu = off_cpu.map(|(stack, weights)| (stack.clone(), weights.clone()));
                off_cpu.collect::<Vec<_>>()
            };
            assert_eq!(off_cpu(&without_steps), off_cpu(&live), "{question:?}");
        } else {
            assert_eq!(without_steps, live, "{question:?}");
        }
    }
    let (live, of_live) = stacks(&of_calls.end().status(0).objects());
    assert!(number(&of_live, "inside") > 50, "{of_live}");
    assert_eq!(ask(&calls, &[]), (live, of_live));

    // In calls it is recorded in any case.
    let off_cpu = |file: &str| ask(file, &["--off-cpu"]).0;
    assert_eq!(off_cpu(&in_calls), off_cpu(&calls));
    run(profiler(&["flame", "--from", &in_calls, "", "--off-cpu"]))
        .status(2)
        .says("record with --off-cpu");
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
#[ignore = "needs root"]
fn time_off_the_cpu_of_all_threads_goes_on_while_the_scope_of_a_recorded_session_is_edited() {
    let daemon = Daemon::start();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.profrec");
    let file = path.to_str().unwrap();
    let mut target = Fixture::start("offcpu", &["120".to_owned()]);
    let pid = target.pid().to_string();
    for name in ["all", "edited"] {
        daemon
            .profiler(&["session", "new", "-p", &pid, "--name", name])
            .status(0);
    }
    let recorder = daemon.on("edited", &["record", "-o", file, "--off-cpu"]);
    let questions: [&[&str]; 2] = [&["--off-cpu"], &["--off-cpu", "--by", "thread"]];
    let live = questions.map(|question| daemon.on("all", &[&["flame", "--json"], question].concat()));
    daemon.until_each_is_watched_by(&[2, 1]);
    target.say("go");
    for scope in ["nap", ""] {
        daemon.profiler(&["scope", "set", "edited", scope]).status(0);
    }
    target.truth();
    assert_eq!(target.finish().status, Some(0));
    recorder.end().status(0).says("a.profrec written");

    let ask = |more: &[&str]| {
        let asked = [&["flame", "--json", "--from", file, ""], more].concat();
        run(profiler(&asked)).status(0).objects()
    };
    for (question, live) in questions.iter().zip(live) {
        let (live, of_live) = stacks(&live.end().status(0).objects());
        println!("{question:?}: {of_live}");
        assert!(number(&of_live, "inside") > 100, "{of_live}");
        assert_eq!(stacks(&ask(question)).0, live, "{question:?}");
    }

    // Numbers begin anew where the scope is edited. Parts that meet there, or have edits amid them, are the whole together.
    let reader = Reader::open(File::open(&path).unwrap()).unwrap();
    let chunks = reader.chunks().filter(|chunk| chunk.kind == Kind::Records);
    let chunks: Vec<Chunk> = chunks.copied().collect();
    let since_begin = |chunk: &Chunk| chunk.from_ns - chunks[0].from_ns;
    let all: Vec<u64> = chunks[1..].iter().map(since_begin).collect();
    let edits = chunks[1..].iter().filter(|chunk| chunk.begins_anew);
    let edits: Vec<u64> = edits.map(since_begin).collect();
    println!("edited after {edits:?} ns");
    let (first, last) = (edits[0], edits[edits.len() - 1]);
    assert!(edits.len() >= 2);
    let before = all.iter().copied().filter(|at| *at < first);
    let around = before.chain(all.iter().copied().filter(|at| *at > last));
    let around: Vec<u64> = around.collect();
    let whole = off_the_cpu(&ask(&["--off-cpu"]));
    for cuts in [&edits[..], &edits[..1], &around, &all] {
        let begins = std::iter::once(0).chain(cuts.iter().copied());
        let ends = cuts.iter().map(|end_ns| format!("{end_ns}ns"));
        let mut together: BTreeMap<String, [u64; 2]> = BTreeMap::new();
        for (begin_ns, end) in begins.zip(ends.chain([String::new()])) {
            let time = format!("{begin_ns}ns..{end}");
            let time = time.strip_prefix("0ns").unwrap_or(&time);
            for (stack, [weight_ns, intervals]) in off_the_cpu(&ask(&["--off-cpu", "--time", time])) {
                let sum = together.entry(stack).or_default();
                *sum = [sum[0] + weight_ns, sum[1] + intervals];
            }
        }
        assert_eq!(together, whole, "cut after {cuts:?} ns");
    }
    assert_eq!(daemon.stop(), Some(0));
}

/// This very process is the target. What the thread did is told once it has ended, of both.
#[test]
#[ignore = "needs root"]
fn a_thread_that_ends_before_its_stack_is_named_has_its_name() {
    let daemon = Daemon::start();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.profrec");
    let file = path.to_str().unwrap();
    let (end, is_to_end) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::Builder::new().name("ends early".to_owned());
    let thread = thread.spawn(move || {
        is_to_end.recv().unwrap();
        std::thread::sleep(Duration::from_millis(1));
    });
    let pid = std::process::id().to_string();
    daemon
        .profiler(&["session", "new", "-p", &pid, "--name", "s"])
        .status(0);
    let recorder = daemon.on("s", &["record", "-o", file, "--off-cpu"]);
    let live = daemon.on("s", &["flame", "--json", "--off-cpu", "--by", "thread"]);
    daemon.until_watched_by(2);
    // Threads are asked for their names when a view opens, one view after the other: this one's has them when it ends.
    let last = ["flame", "--session", "s", "--off-cpu", "--by", "thread"];
    daemon
        .profiler(&[&last[..], &["--json", "--duration", "0.1"]].concat())
        .status(0);
    end.send(()).unwrap();
    thread.unwrap().join().unwrap();
    daemon.profiler(&["session", "end", "s"]).status(0);
    recorder.end().status(0).says("a.profrec written");
    let live = live.end().status(0).objects();
    let asked = ["flame", "--json", "--from", file, "--off-cpu", "--by", "thread"];
    let recorded = run(profiler(&asked)).status(0).objects();
    for objects in [live, recorded] {
        let (stacks, summary) = stacks(&objects);
        let is_named = |stack: &&String| stack.contains("\"ends early (");
        let of_thread = stacks.keys().filter(is_named).count();
        println!("{of_thread} stacks of the thread: {summary}");
        assert!(of_thread > 0, "{:?}", stacks.keys());
    }
    assert_eq!(daemon.stop(), Some(0));
}

/// Time and intervals by stack, be it that they go on.
fn off_the_cpu(objects: &[Value]) -> BTreeMap<String, [u64; 2]> {
    let mut sums: BTreeMap<String, [u64; 2]> = BTreeMap::new();
    for stack in objects.iter().filter(|object| object["type"] == "stack") {
        let frames = stack["frames"].as_array().unwrap().iter();
        let frames = frames.map(|frame| &frame["function"]);
        let frames: Vec<&Value> = frames.filter(|function| *function != "[goes on]").collect();
        let sum = sums.entry(format!("{frames:?}")).or_default();
        *sum = [
            sum[0] + number(stack, "weight_ns"),
            sum[1] + number(stack, "samples"),
        ];
    }
    sums
}

#[test]
#[ignore = "needs root"]
fn recorded_events_are_those_that_were_drawn() {
    const FIXTURE: &str = "costs_by_function";
    let daemon = Daemon::start();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.profrec");
    let file = path.to_str().unwrap();
    let mut target = Fixture::start(FIXTURE, &spec(FIXTURE).args);
    let pid = target.pid().to_string();
    for (name, scope) in [("all", None), ("calls", Some("work[>= p50]"))] {
        let new = ["session", "new", "-p", &pid, "--name", name];
        daemon.profiler(&[&new[..], scope.as_slice()].concat()).status(0);
    }
    let recorder = daemon.on("calls", &["record", "-o", file, "--costs", "faults,cs"]);
    let path = directory.path().join("some.profrec");
    let some = path.to_str().unwrap();
    let recorder_of_some = daemon.on("calls", &["record", "-o", some, "--costs", "faults/period=16/"]);
    let live_some = daemon.on("calls", &["flame", "--json", "-e", "faults", "-c", "16"]);
    let of_calls: [&[&str]; 5] = [
        &["-e", "faults"],
        &["-e", "faults", "--diff"],
        &["-e", "faults", "--by", "line"],
        &["-e", "context-switches", "--by", "thread"],
        &["-e", "context-switches", "--outside"],
    ];
    let of_all: [&[&str]; 2] = [&["-e", "faults", "--unique"], &["-e", "cs", "--by", "module"]];
    let flame = |more: &[&'static str]| [&["flame", "--json"], more].concat();
    let calls = of_calls.map(|question| daemon.on("calls", &flame(question)));
    let all = of_all.map(|question| daemon.on("all", &flame(question)));
    daemon.until_each_is_watched_by(&[2, 8]);
    target.run();
    assert_eq!(target.finish().status, Some(0));
    recorder.end().status(0).says("a.profrec written");
    recorder_of_some.end().status(0).says("some.profrec written");

    let ask_of = |file: &str, more: &[&str]| {
        let asked = [&["flame", "--json", "--from", file], more].concat();
        stacks(&run(profiler(&asked)).status(0).objects())
    };
    let ask = |more: &[&str]| ask_of(file, more);
    let ended = live_some.end().status(0).says("a stack at one of 16 events");
    let (live, of_live) = stacks(&ended.objects());
    println!("one of 16: {of_live}");
    assert_eq!(number(&of_live, "period"), 16);
    assert!(number(&of_live, "samples") > 20, "{of_live}");
    for question in [&["-e", "faults"][..], &["-e", "faults", "-c", "16"]] {
        assert_eq!(
            ask_of(some, question),
            (live.clone(), of_live.clone()),
            "{question:?}"
        );
    }
    let refuse = |more: &[&str]| {
        run(profiler(
            &[&["flame", "--from", some, "-e", "faults"], more].concat(),
        ))
    };
    refuse(&["-c", "5"]).status(2).says("(-c 16)");
    refuse(&["--unique", ""])
        .status(2)
        .says("--unique needs each one");
    for (question, live) in of_calls.iter().zip(calls) {
        let (live, of_live) = stacks(&live.end().status(0).objects());
        println!("{question:?}: {of_live}");
        assert!(number(&of_live, "samples") > 20, "{of_live}");
        assert_eq!(ask(question), (live, of_live), "{question:?}");
    }
    for (question, live) in of_all.iter().zip(all) {
        let (live, of_live) = stacks(&live.end().status(0).objects());
        println!("{question:?}: {of_live}");
        assert!(number(&of_live, "samples") > 20, "{of_live}");
        assert_eq!(ask(&[&[""], *question].concat()).0, live, "{question:?}");
    }
    run(profiler(&["flame", "--from", file, "-e", "cpu-migrations"]))
        .status(3)
        .says("was not recorded. There are: context-switches, page-faults");

    compared_by_events(file, some);
    assert_eq!(daemon.stop(), Some(0));
}

/// Compares a recording of two events with itself, and with one that has a stack at one of 16 faults.
fn compared_by_events(file: &str, some: &str) {
    let diff = |more: &[&str]| run(profiler(&[&["diff", "-e", "faults", "--json"], more].concat()));
    let (same, of_same) = stacks(&diff(&[file, file]).status(0).objects());
    println!("{of_same}");
    assert!(!same.is_empty());
    let text = run(profiler(&["diff", "-e", "faults", file, file])).status(0);
    let lines = text.stdout().lines().skip(1);
    assert!(
        lines.clone().count() > 3 && lines.clone().all(|line| line.contains("+0.0 [-")),
        "{}",
        text.stdout()
    );
    diff(&[some, file, "work"])
        .status(0)
        .says("and before with a stack at one of 16 events");
    run(profiler(&["diff", "-e", "cs", file, some]))
        .status(3)
        .says("`context-switches` was not recorded. There are: page-faults");
    run(profiler(&["diff", "-e", "cs", some, file]))
        .status(3)
        .says("before: `context-switches` was not recorded.");
}

#[test]
#[ignore = "needs root"]
fn a_redacted_recording_has_functions_and_not_whose_they_are() {
    let target = busy();
    let pid = target.pid().to_string();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.profrec");
    let file = file.to_str().unwrap();
    let record = |scope: &str, more: &[&str]| {
        let arguments = [
            "record",
            "-p",
            &pid,
            scope,
            "-F",
            "999",
            "--duration",
            "2",
            "--force",
            "-o",
            file,
        ];
        run(profiler(&[&arguments[..], more].concat()))
    };
    // All that any verb shows of it.
    let shown = || {
        let mut shown = String::new();
        for by in ["function", "line", "module", "thread", "process"] {
            let ended = run(profiler(&["flame", "--from", file, "--by", by, "--json"])).status(0);
            shown.push_str(ended.stdout());
        }
        let ended = run(profiler(&["latency", "--from", file, "--json"])).status(0);
        shown + ended.stdout() + ended.stderr()
    };
    record("f", &[]).status(0);
    let open = shown();
    record("f", &["--redact"]).status(0);
    let redacted = shown();
    for secret in ["fixtures/", "engine/"] {
        assert!(open.contains(secret), "{secret}");
        assert!(!redacted.contains(secret), "{secret}: {redacted}");
    }
    for kept in [
        "\"slow_inner",
        "slowpath.c",
        "recorded with --redact",
        "process #",
        "thread (",
    ] {
        assert!(redacted.contains(kept), "{kept}: {redacted}");
    }
    // What the recorder waits for is named as before its folder was taken out.
    let on = "f@\"engine/slowpath.c\":46[> 15ms]";
    record(
        "f@\"engine/slowpath.c\":46",
        &["--redact", "--on", on, "--after", "0.2"],
    )
    .status(0)
    .says(&format!("{on} happened"));
    assert!(!shown().contains("engine/"));
    let before = fs::read(file).unwrap();
    record("f[i >= 0]", &["--redact"])
        .status(2)
        .says("without the condition");
    assert_eq!(fs::read(file).unwrap(), before, "it is as it was");
    unharmed(target);
}

/// Waits until there is a file.
pub fn until_there_is(file: &str) {
    let begin = Instant::now();
    while !fs::exists(file).unwrap() {
        assert!(begin.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
#[ignore = "needs root"]
fn a_signal_to_the_daemon_reaches_all_recordings_that_wait_for_one() {
    let daemon = Daemon::start();
    let target = busy();
    let pid = target.pid().to_string();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let record = |name: &str, on: &str| {
        let file = file(name);
        let arguments = [
            "record", "-p", &pid, "f", "-o", &file, "--on", on, "--after", "0.2",
        ];
        Running::start(through(&daemon.socket, &arguments))
    };
    let recorders = [record("a", "signal"), record("b", "signal")];
    let other = record("c", "f[>= 100s]");
    // From its first message on, a signal is one.
    let bytes = |name: &str| fs::metadata(file(name)).unwrap().len();
    for name in ["a", "b", "c"] {
        until_there_is(&file(name));
        let (begin, before) = (Instant::now(), bytes(name));
        while bytes(name) == before {
            assert!(begin.elapsed() < PATIENCE);
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    daemon.signal(Signal::USR1);
    for recorder in recorders {
        recorder.end().status(0).says("SIGUSR1 happened");
    }
    other.interrupt();
    other.end().status(0).says("no condition of --on has held");
    assert!(daemon.stop() == Some(0));
    unharmed(target);
}

#[test]
#[ignore = "needs root"]
fn the_daemon_is_recorded_like_any_process() {
    let daemon = Daemon::start();
    let target = busy();
    let pid = target.pid().to_string();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("own.profrec");
    let file = file.to_str().unwrap();
    // It has something to do: each sample's stack is named.
    let busy = Running::start(through(
        &daemon.socket,
        &["flame", "-p", &pid, "-F", "2000", "--json"],
    ));
    daemon.until_watched();
    run(through(
        &daemon.socket,
        &["self", "-o", file, "--duration", "2", "-F", "999"],
    ))
    .status(0)
    .says("own.profrec written: ");
    daemon.end(busy);
    let (stacks, _) = stacks(
        &run(profiler(&["flame", "--from", file, "--json"]))
            .status(0)
            .objects(),
    );
    assert!(
        stacks.keys().any(|stack| stack.contains("profilerd")),
        "{stacks:?}"
    );
    run(profiler(&[
        "self",
        "--host",
        "/nonexistent/socket",
        "-o",
        file,
        "--force",
    ]))
    .status(1)
    .says("Cannot reach a daemon at /nonexistent/socket");
    unharmed(target);
}

#[test]
#[ignore = "needs root"]
fn a_running_session_can_be_redacted_and_refuses_calls() {
    let daemon = Daemon::start();
    let target = busy();
    let pid = target.pid().to_string();
    daemon
        .profiler(&["session", "new", "-p", &pid, "--name", "s", "f"])
        .status(0);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.profrec");
    let file = file.to_str().unwrap();
    let record = |more: &str| {
        let arguments = ["record", "--session", "s", "-o", file, "--duration", "1", more];
        run(through(&daemon.socket, &arguments))
    };
    record("--calls").status(2).says("condition [>= 0ns]");
    assert!(!fs::exists(file).unwrap());
    record("--redact").status(0);
    run(profiler(&["flame", "--from", file, "--json"]))
        .status(0)
        .says("recorded with --redact");
    // The daemon by itself, likewise.
    let own = |more: &[&str]| {
        let arguments = ["self", "-o", file, "--force", "--duration", "1"];
        run(through(&daemon.socket, &[&arguments, more].concat()))
    };
    own(&["--redact"]).status(0);
    run(profiler(&["flame", "--from", file, "--json"]))
        .status(0)
        .says("recorded with --redact");
    own(&["--calls"])
        .status(2)
        .says("--calls is for calls inside of others");
    assert_eq!(daemon.stop(), Some(0));
    unharmed(target);
}

#[test]
#[ignore = "needs root"]
fn a_recording_of_a_program_without_names_has_addresses() {
    let folder = tempfile::tempdir().unwrap();
    let (program, debug) = split_off::stripped(&folder, "slowpath");
    fs::remove_file(folder.path().join(debug)).unwrap();
    let mut target = Fixture::start(&program, &[]);
    target.say("go");
    let pid = target.pid().to_string();
    let file = folder.path().join("a.profrec");
    let file = file.to_str().unwrap();
    let record = ["record", "-p", &pid, "-F", "499", "--duration", "2", "-o", file];
    run(profiler(&record)).status(0);
    for by in ["function", "line"] {
        let ended = run(profiler(&["flame", "--from", file, "--by", by, "--json"])).status(0);
        let (stacks, summary) = stacks(&ended.objects());
        assert!(number(&summary, "inside") > 0, "{summary}");
        let has_address = stacks.keys().any(|stack| stack.contains("slowpath+0x"));
        assert!(has_address, "by {by}: {stacks:?}");
    }
    target.end();
}

/// What is recorded, and how.
struct Measured {
    name: &'static str,
    scope: Option<&'static str>,
    flags: &'static [&'static str],
}

/// A process that ends with the test.
struct Ending(std::process::Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Samples a minute of 8 threads that are never idle.
const BUSY_SAMPLES: f64 = 8.0 * 99.0 * 60.0;

#[test]
#[ignore = "needs root; a measurement of some minutes: run it with --nocapture, after `cargo build --bins`"]
fn what_a_minute_takes() {
    // More of them give a steadier figure; whoever waits longer than a minute for a command gives up.
    let seconds = std::env::var("PROFILER_MEASURED_SECONDS").unwrap_or("3".to_owned());
    let cpus = std::thread::available_parallelism().unwrap().get();
    // As many samples as eight CPUs give in a minute, or less where others take the CPUs: names then weigh more than they do.
    let hz = (2000 / cpus).to_string();
    let demo = Path::new(env!("CARGO_BIN_EXE_profiler")).with_file_name("demo");
    let target = std::process::Command::new(demo)
        .args(["blocking", "--pairs", "8", "--load", "--rate", "1000000"])
        .stdout(std::process::Stdio::null())
        .spawn();
    let target = Ending(target.unwrap());
    let pid = target.0.id().to_string();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.profrec");
    let file = path.to_str().unwrap();
    println!("| recorded | samples | bytes | bytes a sample | MB a minute of 8 busy threads |");
    println!("|---|---|---|---|---|");
    for Measured { name, scope, flags } in [
        Measured {
            name: "samples alone",
            scope: None,
            flags: &[],
        },
        Measured {
            name: "with time off the CPU of all threads",
            scope: None,
            flags: &["--off-cpu"],
        },
        Measured {
            name: "with page faults and context switches",
            scope: None,
            flags: &["--costs", "page-faults,context-switches"],
        },
        Measured {
            name: "with calls and time off the CPU in them",
            scope: Some("handle_request"),
            flags: &[],
        },
        Measured {
            name: "the same, with waits and who ended them",
            scope: Some("handle_request"),
            flags: &["--waits"],
        },
        Measured {
            name: "with system calls and who made them",
            scope: Some("handle_request"),
            flags: &["--syscalls"],
        },
        Measured {
            name: "with calls inside of those",
            scope: Some("handle_request/lookup"),
            flags: &[],
        },
        Measured {
            name: "with `--calls`, each of those",
            scope: Some("handle_request/lookup"),
            flags: &["--calls"],
        },
    ] {
        let begin = [
            "record",
            "-p",
            &pid,
            "-F",
            &hz,
            "--duration",
            &seconds,
            "--force",
            "-o",
            file,
        ];
        let arguments = [&begin[..], flags, scope.as_slice()].concat();
        run(profiler(&arguments)).status(0);
        let bytes = fs::metadata(&path).unwrap().len();
        // Samples of all of the time, whatever the scope is.
        let ended = run(profiler(&["flame", "--from", file, "", "--json"])).status(0);
        let objects = ended.objects();
        let summary = objects.last().unwrap();
        let samples = number(summary, "samples") as f64;
        assert!(samples > 0.0, "{name}");
        println!(
            "| {name} | {samples} | {bytes} | {:.1} | {:.2} |",
            bytes as f64 / samples,
            bytes as f64 / samples * BUSY_SAMPLES / 1e6,
        );
    }
}
