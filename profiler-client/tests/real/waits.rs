//! `profiler waits` on a real target, whose threads wait for one another.

use serde_json::Value;

use super::{
    command::{Ended, Running, profiler, run, through},
    daemon::Daemon,
    fixture::{Fixture, small_scale, spec},
};

/// Looks at a target from before its first wait to after its last one.
fn watched(arguments: &[&str]) -> Ended {
    let mut target = Fixture::start("chain_of_waits", &spec("chain_of_waits").args);
    let daemon = Daemon::start();
    let number = target.pid().to_string();
    let command = Running::start(through(
        &daemon.socket,
        &[&["waits", "-p", &number], arguments].concat(),
    ));
    daemon.until_watched();
    // Its waits are recorded once there are the tables to walk its stacks by.
    let session = daemon.sessions()[0]["name"].as_str().unwrap().to_owned();
    let is_recorded = || {
        let look = ["waits", "--session", &session, "--duration", "0.1", "--json"];
        let mut objects = run(through(&daemon.socket, &look)).status(0).objects();
        objects.pop().unwrap()["watched_ns"] != 0
    };
    while !is_recorded() {}
    target.run();
    let ended = daemon.end(command);
    assert_eq!(target.finish().status, Some(0));
    assert_eq!(daemon.stop(), Some(0));
    ended
}

/// The objects of a kind below some, of a thread in a function; either may be empty.
fn below<'a>(
    objects: &'a [Value],
    parents: &[&Value],
    kind: &str,
    (thread, function): (&str, &str),
) -> Vec<&'a Value> {
    let is = |object: &&Value| {
        parents.iter().any(|parent| object["parent"] == parent["id"])
            && object["kind"] == kind
            && (thread.is_empty() || object["thread"] == thread)
            && object["frames"].to_string().contains(&format!("\"{function}\""))
    };
    objects.iter().filter(is).collect()
}

fn time_ns(objects: &[&Value]) -> u64 {
    objects
        .iter()
        .map(|object| object["time_ns"].as_u64().unwrap())
        .sum()
}

#[test]
#[ignore = "needs root"]
fn chains_and_queues_are_objects_that_add_up() {
    let mut objects = watched(&["--json"]).objects();
    let summary = objects.pop().unwrap();
    println!("{summary}");
    assert_eq!(summary["type"], "summary");
    // The root of all.
    let everything = serde_json::json!({"id": null});
    let find = |parents: &[&Value], kind: &str, place: (&str, &str)| {
        let found = below(&objects, parents, kind, place);
        println!("{kind} {place:?}: {} ns", time_ns(&found));
        assert!(time_ns(&found) > 0, "none {kind} {place:?}: {objects:#?}");
        found
    };
    let ask = find(&[&everything], "waited", ("asker", "ask"));
    let by_relayer = find(&ask, "woken", ("relayer", "relayer"));
    let relay = find(&by_relayer, "waited", ("relayer", "relay"));
    let by_fetcher = find(&relay, "woken", ("fetcher", "fetcher"));
    let fetch = find(&by_fetcher, "waited", ("fetcher", "fetch"));
    let timer = find(&fetch, "interrupt", ("", "hrtimer_wakeup"));
    let enter = find(&[&everything], "waited", ("clerk-*", "enter"));
    let by_keeper = find(&enter, "woken", ("keeper", "keeper"));
    let keep = find(&by_keeper, "waited", ("keeper", "keep"));
    if !small_scale() {
        assert!(time_ns(&timer) >= time_ns(&ask) / 2);
        assert!(time_ns(&keep) >= time_ns(&enter) / 3);
        assert_eq!(enter[0]["threads"], 20);
    }
    for object in &objects {
        let own_ns = object["not_followed_ns"].as_u64().unwrap();
        let parts: Vec<&Value> = objects
            .iter()
            .filter(|part| part["parent"] == object["id"])
            .collect();
        assert!(
            parts.is_empty() || time_ns(&parts) + own_ns == time_ns(&[object]),
            "{object}"
        );
    }
    let roots: Vec<&Value> = objects
        .iter()
        .filter(|object| object["parent"].is_null())
        .collect();
    assert_eq!(summary["waited_ns"], time_ns(&roots));
}

#[test]
#[ignore = "needs root"]
fn the_tree_leads_to_the_culprit() {
    let ended = watched(&["enter"]);
    let text = ended.stdout();
    println!("{text}\n{}", ended.stderr());
    let lines: Vec<&str> = text.lines().collect();
    let at = |words: &str| {
        lines
            .iter()
            .position(|line| line.contains(words))
            .unwrap_or_else(|| panic!("no line has {words}"))
    };
    let queue = at("clerk-* (");
    assert!(
        lines[queue].contains("[sleeping] [lock till] ")
            && lines[queue].contains("pthread_mutex_lock < enter < "),
        "{text}"
    );
    // Nothing else waits in these calls.
    assert_eq!(queue, 1, "{text}");
    let keeper = at("    for keeper: woken at ");
    let kept = at("keeper [sleeping] ");
    assert!(
        queue < keeper && keeper < kept && lines[kept].contains(" < keep < "),
        "{text}"
    );
    assert!(
        lines[kept + 1].ends_with("for [interrupt] hrtimer_wakeup"),
        "{text}"
    );
}

#[test]
#[ignore = "needs root"]
fn conditions_on_durations_are_refused() {
    let target = Fixture::start("chain_of_waits", &spec("chain_of_waits").args);
    let pid = target.pid().to_string();
    let refused = run(profiler(&["waits", "-p", &pid, "ask[> 1ms]", "--duration", "1"])).status(2);
    assert_eq!(refused.stdout(), "");
    refused.says("remove the condition on it");
}
