//! `profiler flame -e` on a real target, which knows what it costs.

use serde_json::Value;

use super::{
    command::{Ended, Running, profiler, run, through},
    daemon::Daemon,
    fixture::{Fixture, spec},
};

const FIXTURE: &str = "costs_by_function";

/// Looks at a target from before its first call to after its last one; its own account.
fn drawn(arguments: &[&str]) -> (Ended, Value) {
    let mut target = Fixture::start(FIXTURE, &spec(FIXTURE).args);
    let daemon = Daemon::start();
    let number = target.pid().to_string();
    let command = Running::start(through(
        &daemon.socket,
        &[&["flame", "-p", &number], arguments].concat(),
    ));
    daemon.until_watched();
    // A stream opens once there are the tables to walk stacks by; then they are taken for the one before as well.
    let session = daemon.sessions()[0]["name"].as_str().unwrap().to_owned();
    let look = ["flame", "--session", &session, "-e", "cs", "--duration", "0.1"];
    run(through(&daemon.socket, &look)).status(0);
    target.say("go");
    let costs = serde_json::from_str(target.line().strip_prefix("costs ").unwrap()).unwrap();
    println!("the target: {costs}");
    let ended = daemon.end(command);
    target.truth();
    assert_eq!(target.finish().status, Some(0));
    assert_eq!(daemon.stop(), Some(0));
    (ended, costs)
}

#[test]
#[ignore = "needs root"]
fn faults_are_objects_that_add_up() {
    let (ended, costs) = drawn(&["work", "-e", "faults", "--json"]);
    let mut objects = ended.objects();
    let summary = objects.pop().unwrap();
    println!("{summary}");
    assert_eq!(
        (&summary["event"], &summary["unit"]),
        (&"page-faults".into(), &"faults".into())
    );
    let count = |value: &Value| value.as_u64().unwrap();
    let in_touch = objects.iter().filter(|stack| {
        let frames = stack["frames"].as_array().unwrap();
        frames.iter().any(|frame| frame["function"] == "touch")
    });
    let drawn: u64 = in_touch.map(|stack| count(&stack["weight"])).sum();
    let touched = ["wandered", "second", "stormed"]
        .iter()
        .fold(count(&costs["touched"]), |touched, other| {
            touched - count(&costs[other])
        });
    let unseen = summary["lost"]["event_unseen"].as_u64().unwrap_or(0);
    assert!(
        drawn <= touched && touched <= drawn + unseen,
        "{drawn} of {touched}"
    );
    assert!(
        objects
            .iter()
            .all(|stack| stack["unit"] == "faults" && stack["weight"] == stack["samples"])
    );
}

#[test]
#[ignore = "needs root"]
fn pages_that_come_again_count_once() {
    let (ended, costs) = drawn(&["-e", "faults", "--unique", "--json"]);
    let mut objects = ended.objects();
    let summary = objects.pop().unwrap();
    let count = |value: &Value| value.as_u64().unwrap();
    let pages: u64 = objects.iter().map(|stack| count(&stack["weight"])).sum();
    let touched = count(&costs["touched"]);
    println!("{pages} pages, touched {touched} times; {summary}");
    // Most of its memory is mapped, touched and given back over and over, mostly at the same addresses.
    assert_eq!(summary["unit"], "faults");
    assert!(pages > 0 && pages < touched / 2);
    assert!(count(&summary["samples"]) > pages);
}

#[test]
#[ignore = "needs root"]
fn switches_are_folded_into_the_kernel() {
    let (ended, costs) = drawn(&["-e", "context-switches", "-f"]);
    let text = ended.stdout();
    println!("{text}");
    let at_rest = text.lines().filter(|line| line.contains(";rest;"));
    let folded: u64 = at_rest
        .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
        .sum();
    let truth = costs["switches_at_rest"].as_u64().unwrap();
    assert!(
        folded + truth / 10 >= truth && folded <= 2 * truth,
        "{folded}, the target: {truth}"
    );
    assert!(ended.stderr().contains(" switches drawn, "), "{}", ended.stderr());
}

#[test]
#[ignore = "needs root"]
fn what_is_no_event_is_refused_with_those_there_are() {
    let target = Fixture::start(FIXTURE, &spec(FIXTURE).args);
    let number = target.pid().to_string();
    for (name, words) in [
        ("nothing", "stacks cannot be sampled at `nothing`"),
        ("task-clock", "draw without an event"),
        ("syscalls", "profiler syscalls"),
        ("tracepoint:sched:sched_switch", "profiler trace"),
    ] {
        let ended = run(profiler(&[
            "flame",
            "-p",
            &number,
            "-e",
            name,
            "--duration",
            "0.1",
        ]))
        .status(3);
        let said = ended.stderr();
        assert!(
            said.contains(words) && said.contains("context-switches, cpu-migrations"),
            "{said}"
        );
    }
    assert_eq!(target.finish().status, Some(0));
}
