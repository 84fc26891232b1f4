//! `profiler syscalls` on a real target that counts its own.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    command::{Ended, Running, profiler, run, through},
    daemon::Daemon,
    fixture::{Fixture, small_scale, spec},
    record::until_there_is,
};

/// Looks at a target from before its first counted call to after its last one; what it says of them.
fn watched(arguments: &[&str]) -> (Ended, Value) {
    let mut target = Fixture::start("system_calls", &spec("system_calls").args);
    let daemon = Daemon::start();
    let number = target.pid().to_string();
    let command = Running::start(through(
        &daemon.socket,
        &[&["syscalls", "-p", &number], arguments].concat(),
    ));
    daemon.until_watched();
    until_counted(&daemon);
    target.run();
    let before = look(&daemon, "syscalls");
    let ended = daemon.end(command);
    let said = counted(&target);
    // Who joins sees all that there is as well.
    assert!(before["calls"].as_u64() >= said["asked"].as_u64().filter(|_| arguments.contains(&"ask")));
    assert_eq!(target.finish().status, Some(0));
    assert_eq!(daemon.stop(), Some(0));
    (ended, said)
}

/// The summary of a short look at the first session.
fn look(daemon: &Daemon, verb: &str) -> Value {
    let session = daemon.sessions()[0]["name"].as_str().unwrap().to_owned();
    let look = |duration: &str| {
        let look = [verb, "--session", &session, "--duration", duration, "--json"];
        run(through(&daemon.socket, &look))
    };
    let ended = look("0.1");
    // On a busy machine nothing may come by then.
    let is_early = ended.code() == Some(1) && ended.stderr().contains("sent nothing");
    let ended = if is_early { look("10") } else { ended };
    ended.status(0).objects().pop().unwrap()
}

/// Waits until the system calls of the first session are counted: once there are the tables to walk its target's stacks by.
fn until_counted(daemon: &Daemon) {
    while look(daemon, "syscalls")["watched_ns"] == 0 {}
}

/// The objects of a type and system call.
fn of<'a>(objects: &'a [Value], kind: &str, name: &str) -> Vec<&'a Value> {
    let is =
        |object: &&Value| object["type"] == kind && object["name"] == name && object["is_32_bit"] == false;
    objects.iter().filter(is).collect()
}

fn sum(objects: &[&Value], key: &str) -> u64 {
    objects.iter().map(|object| object[key].as_u64().unwrap()).sum()
}

#[test]
#[ignore = "needs root"]
fn objects_add_up_to_what_the_target_counts() {
    let (ended, said) = watched(&["--json"]);
    let mut objects = ended.objects();
    let summary = objects.pop().unwrap();
    println!("{summary}");
    assert_eq!(
        (&summary["type"], &summary["lost"]),
        (&"summary".into(), &serde_json::json!({}))
    );
    for (name, counted) in [
        ("getppid", "asked"),
        ("clock_nanosleep", "rested"),
        ("pread64", "fetched"),
        ("rt_sigsuspend", "interrupted"),
    ] {
        let total = of(&objects, "syscall", name);
        assert_eq!(total.len(), 1, "{name}");
        assert_eq!(total[0]["calls"], said[counted], "{name}");
        let callers = of(&objects, "syscall_caller", name);
        for key in ["calls", "failed", "time_ns"] {
            assert_eq!(sum(&callers, key), sum(&total, key), "{name}: {key}");
        }
    }
    assert_eq!(
        of(&objects, "syscall", "openat")[0]["errors"]["ENOENT"],
        said["looked"]
    );
    let slept = of(&objects, "syscall", "clock_nanosleep")[0];
    assert!(slept["time_ns"].as_u64() >= said["least_ns"].as_u64());
    assert!(slept["time_ns"].as_u64() <= said["rested_ns"].as_u64());
    let totals: Vec<&Value> = objects
        .iter()
        .filter(|object| object["type"] == "syscall")
        .collect();
    for key in ["calls", "failed", "time_ns"] {
        assert_eq!(summary[key], sum(&totals, key));
    }
    assert!(summary["begun_before"].as_u64().unwrap() >= 1);
    let fetched = of(&objects, "syscall_caller", "pread64");
    let named = fetched
        .iter()
        .filter(|caller| caller["frames"].to_string().contains("system_calls_library"));
    assert!(small_scale() || named.count() == fetched.len());
}

#[test]
#[ignore = "needs root"]
fn only_calls_inside_the_scope_are_shown_with_who_made_them() {
    let (ended, said) = watched(&["ask", "--by", "line"]);
    let text = ended.stdout();
    println!("{text}\n{}", ended.stderr());
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[1].ends_with("  getppid"), "{text}");
    let callers = lines.get(2..).unwrap_or_default();
    assert!(
        small_scale() || callers.iter().all(|line| line.contains("ask system_calls.c:")),
        "nothing else is inside: {text}"
    );
    for who in ["first system_calls.c:", "second system_calls.c:"] {
        assert!(
            small_scale() || callers.iter().any(|line| line.contains(who)),
            "{text}"
        );
    }
    let asked = said["asked"].as_u64().unwrap();
    let said = ended.stderr();
    let digits = |text: &str| text.replace(',', "");
    assert!(
        digits(said).contains(&format!(" s {asked} system calls of ")),
        "{said}"
    );
}

#[test]
#[ignore = "needs root"]
fn conditions_on_durations_are_refused() {
    let target = Fixture::start("system_calls", &spec("system_calls").args);
    let pid = target.pid().to_string();
    let refused = run(profiler(&[
        "syscalls",
        "-p",
        &pid,
        "rest[> 1ms]",
        "--duration",
        "1",
    ]))
    .status(2);
    assert_eq!(refused.stdout(), "");
    refused.says("remove the condition on it");
}

/// What the target itself has counted.
fn counted(target: &Fixture) -> Value {
    let said = target.output.lines().find_map(|line| line.strip_prefix("calls "));
    serde_json::from_str(said.unwrap()).unwrap()
}

/// Objects but for the numbers of frames, and their summary without how long that was.
fn comparable(ended: &Ended) -> (BTreeSet<String>, Value) {
    let mut objects = ended.objects();
    let mut summary = objects.pop().unwrap();
    summary.as_object_mut().unwrap().remove("watched_ns");
    (objects.iter().map(Value::to_string).collect(), summary)
}

/// Seconds as they are written for people: `980 ms`, `12.3 s`, `1 m 45 s`.
fn seconds(text: &str) -> f64 {
    let words: Vec<&str> = text.split(' ').collect();
    let parts = words.chunks_exact(2).map(|part| {
        let number: f64 = part[0].parse().unwrap();
        number
            * match part[1] {
                "ms" => 0.001,
                "s" => 1.0,
                "m" => 60.0,
                unit => panic!("{unit}"),
            }
    });
    parts.sum()
}

fn from(file: &str, arguments: &[&str]) -> Ended {
    run(profiler(
        &[&["syscalls", "--json", "--from", file], arguments].concat(),
    ))
}

#[test]
#[ignore = "needs root"]
fn a_recording_has_the_system_calls_that_were_watched() {
    let mut target = Fixture::start("system_calls", &spec("system_calls").args);
    let daemon = Daemon::start();
    let pid = target.pid().to_string();
    daemon
        .profiler(&["session", "new", "-p", &pid, "--name", "s"])
        .status(0);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.profrec");
    let file = path.to_str().unwrap();
    let recorder = daemon.on("s", &["record", "--syscalls", "-o", file]);
    until_there_is(file);
    let groupings = ["function", "line", "module"];
    let live = groupings.map(|by| daemon.on("s", &["syscalls", "--json", "--by", by]));
    daemon.until_watched_by(4);
    until_counted(&daemon);
    target.run();
    let said = counted(&target);
    assert_eq!(target.finish().status, Some(0));
    let ended = recorder.end().status(0);
    println!("{}", ended.stderr().trim_end());

    for (by, live) in groupings.into_iter().zip(live) {
        let (live, of_live) = comparable(&live.end().status(0));
        let (recorded, of_recorded) = comparable(&from(file, &["--by", by]).status(0));
        println!("{by}: {of_recorded}");
        assert!(live.len() > 10, "{live:?}");
        assert_eq!(recorded, live, "{by}");
        assert_eq!(of_recorded, of_live, "{by}");
    }
    let whole = from(file, &[]).status(0).objects();
    for (name, key) in [
        ("getppid", "asked"),
        ("clock_nanosleep", "rested"),
        ("pread64", "fetched"),
        ("openat", "looked"),
    ] {
        assert_eq!(of(&whole, "syscall", name)[0]["calls"], said[key], "{name}");
    }
    // Wherever it is cut, both parts have together what the whole has. Amid the time that calls were counted in, there are two.
    let written = ended.stderr().split_once("written: ").unwrap().1;
    let recorded_s = seconds(written.split_once(", ").unwrap().0);
    let counted_ns = sum(&[whole.last().unwrap()], "watched_ns");
    let cut = format!("{:.3}s", recorded_s - counted_ns as f64 / 2e9);
    let parts = [format!("..{cut}"), format!("{cut}..")].map(|time| from(file, &["--time", &time]));
    let parts = parts.map(|part| match part.code() {
        // None of the quarters of a second begins in it: a busy machine may make them longer.
        Some(2) => part.says("recorded four times a second").objects(),
        _ => part.status(0).objects(),
    });
    for key in ["calls", "failed", "time_ns", "watched_ns", "begun_before"] {
        let summaries: Vec<&Value> = parts.iter().filter_map(|part| part.last()).collect();
        println!(
            "{cut}, {key}: {:?}",
            summaries.iter().map(|part| &part[key]).collect::<Vec<_>>()
        );
        assert_eq!(sum(&summaries, key), sum(&[whole.last().unwrap()], key), "{key}");
    }
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
#[ignore = "needs root"]
fn recorded_system_calls_are_those_inside_of_the_recorded_scope() {
    let mut target = Fixture::start("system_calls", &spec("system_calls").args);
    let daemon = Daemon::start();
    let pid = target.pid().to_string();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.profrec");
    let file = path.to_str().unwrap();
    let record = ["record", "-p", &pid, "rest[>= p90]", "--syscalls", "-o", file];
    let recorder = Running::start(through(&daemon.socket, &record));
    until_there_is(file);
    // The system calls of a scope with a duration are not shown live; they are counted from when it is sampled.
    while look(&daemon, "spans")["sampled"] != true {}
    target.run();
    let said = counted(&target);
    assert_eq!(target.finish().status, Some(0));
    recorder.end().status(0).says("a.profrec written");

    let objects = from(file, &["rest"]).status(0).objects();
    println!("{}", objects.last().unwrap());
    let slept = of(&objects, "syscall", "clock_nanosleep")[0];
    assert_eq!(slept["calls"], said["rested"]);
    assert!(
        of(&objects, "syscall", "getppid").is_empty(),
        "nothing else is inside"
    );
    // Which of them were slow was not known when they slept.
    from(file, &[]).status(2).says("remove the condition on it");
    from(file, &["ask"])
        .status(3)
        .says("`ask` was not recorded there");
    // They are those of all calls together.
    run(profiler(&["spans", "--from", file, "--syscalls"]))
        .status(2)
        .says("not which call made them: leave --syscalls out");
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
#[ignore = "needs root"]
fn an_edit_of_the_scope_leaves_all_that_was_counted_before_in_the_recording() {
    let mut target = Fixture::start("system_calls", &spec("system_calls").args);
    let daemon = Daemon::start();
    let pid = target.pid().to_string();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.profrec");
    let file = path.to_str().unwrap();
    daemon
        .profiler(&["session", "new", "-p", &pid, "--name", "s", "rest"])
        .status(0);
    let record = ["record", "--session", "s", "--syscalls", "-o", file];
    let recorder = Running::start(through(&daemon.socket, &record));
    until_there_is(file);
    until_counted(&daemon);
    target.run();
    daemon.profiler(&["scope", "set", "s", "ask"]).status(0);
    let said = counted(&target);
    assert_eq!(target.finish().status, Some(0));
    recorder.end().status(0);

    let ended = from(file, &["rest"]).status(0).says("the scope was changed");
    let objects = ended.objects();
    println!("{}", objects.last().unwrap());
    assert_eq!(
        of(&objects, "syscall", "clock_nanosleep")[0]["calls"],
        said["rested"]
    );
    assert_eq!(daemon.stop(), Some(0));
}
