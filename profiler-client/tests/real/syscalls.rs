//! `profiler syscalls` on a real target that counts its own.

use serde_json::Value;

use super::{
    command::{Ended, Running, profiler, run, through},
    daemon::Daemon,
    fixture::{Fixture, small_scale, spec},
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
    // Its calls are counted once there are the tables to walk its stacks by.
    let session = daemon.sessions()[0]["name"].as_str().unwrap().to_owned();
    let look = || {
        let look = ["syscalls", "--session", &session, "--duration", "0.1", "--json"];
        let mut objects = run(through(&daemon.socket, &look)).status(0).objects();
        objects.pop().unwrap()
    };
    while look()["watched_ns"] == 0 {}
    target.run();
    let before = look();
    let ended = daemon.end(command);
    let said = target.output.lines().find_map(|line| line.strip_prefix("calls "));
    let said: Value = serde_json::from_str(said.unwrap()).unwrap();
    // Who joins sees all that there is as well.
    assert!(before["calls"].as_u64() >= said["asked"].as_u64().filter(|_| arguments.contains(&"ask")));
    assert_eq!(target.finish().status, Some(0));
    assert_eq!(daemon.stop(), Some(0));
    (ended, said)
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
