//! Sessions of a daemon: made, shared, edited, ended.

use super::{
    bpf,
    command::{Running, objects, profiler, run, through},
    daemon::Daemon,
    fixture::Fixture,
    verbs::{busy, unharmed},
};

#[test]
#[ignore = "needs root"]
fn a_session_is_made_shared_edited_and_ended() {
    let target = busy();
    let daemon = Daemon::start();
    let pid = target.pid().to_string();
    let made = daemon.profiler(&[
        "session",
        "new",
        "-p",
        &pid,
        "f[>= p95]",
        "--name",
        "web",
        "-F",
        "999",
    ]);
    assert_eq!(made.status(0).quietly().stdout(), "web\n");
    daemon
        .profiler(&["session", "new", "-p", &pid, "f", "--name", "web"])
        .status(1)
        .says("a session `web` exists already");
    let listed = daemon.profiler(&["session", "list"]).status(0).quietly();
    let row = listed.stdout().lines().nth(1).unwrap();
    assert!(
        row.starts_with("web ") && row.ends_with(" f[>= p95]"),
        "{}",
        listed.stdout()
    );

    // Two look at it at once, and one of them stays.
    let mut stays = Running::start(through(
        &daemon.socket,
        &["latency", "--session", "web", "--json", "--interval", "0.1"],
    ));
    stays.line();
    // A busy machine may leave the target no time for slow calls in a second.
    let seen = (0..30).any(|_| {
        let flame = daemon.profiler(&["flame", "--session", "web", "-f", "--duration", "1"]);
        flame.status(0).stdout().contains("slow_inner;")
    });
    assert!(seen);
    // The daemon notices within a quarter of a second that the other one has gone.
    let session = loop {
        let mut sessions = daemon.sessions();
        if sessions[0]["watchers"] == 1 {
            break sessions.remove(0);
        }
    };
    assert_eq!(
        (&session["name"], &session["functions"]),
        (&"web".into(), &1.into())
    );

    // Another percentile of the same calls: nothing is counted anew.
    let before = objects(&stays.line())[0]["since_start"]["count"]
        .as_u64()
        .unwrap();
    let set = daemon.profiler(&["scope", "set", "web", "f[> p99]"]);
    assert_eq!(set.status(0).quietly().stdout(), "f[> p99]\n");
    let after = loop {
        let update = &objects(&stays.line())[0];
        if update["scope"] == "f[> p99]" {
            break update["since_start"]["count"].as_u64().unwrap();
        }
    };
    println!("{before} calls before the edit, {after} after it");
    assert!(after >= before && before > 0);
    // An edit that is none leaves it as it was.
    daemon
        .profiler(&["scope", "set", "web", "f[>= p195]"])
        .status(2)
        .says("\n  f[>= p195]\n       ^");
    daemon
        .profiler(&["scope", "set", "web", "slow_pat"])
        .status(3)
        .says("slow_path");
    assert_eq!(daemon.sessions()[0]["scope"], "f[> p99]");
    assert_eq!(objects(&stays.line())[0]["scope"], "f[> p99]");

    daemon.profiler(&["session", "end", "web"]).status(0).quietly();
    let stayed = stays.end().status(0).says("the session was ended");
    assert_eq!(stayed.objects().last().unwrap()["final"], true);
    assert_eq!(daemon.sessions().len(), 0);
    for arguments in [
        &["session", "end", "web"][..],
        &["scope", "set", "web", "f"],
        &["latency", "--session", "web"],
        &["flame", "--session", "web"],
    ] {
        let gone = daemon.profiler(arguments).status(3);
        println!("{}", gone.stderr().trim_end());
    }
    let gone = daemon.profiler(&["scope", "set", "web", "f"]).status(3);
    gone.says("session `web` has ended: the session was ended");
    bpf::wait_until_unchanged(target.pid());
    bpf::wait_until_gone(&bpf::held_by(daemon.child.id()));
    unharmed(target);
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
#[ignore = "needs root"]
fn a_session_counts_while_nobody_looks() {
    let calls = 2000;
    let mut target = Fixture::start(
        "calls",
        &["run", "1", &calls.to_string(), "fn_push"].map(str::to_owned),
    );
    let daemon = Daemon::start();
    let pid = target.pid().to_string();
    let made = daemon
        .profiler(&["session", "new", "-p", &pid, "fn_push"])
        .status(0);
    let name = made.stdout().trim_end().to_owned();
    target.run();
    let seen = daemon
        .profiler(&["latency", "--session", &name, "--json", "--duration", "0.2"])
        .status(0)
        .objects();
    assert_eq!(seen.last().unwrap()["since_start"]["count"], calls);
    daemon.profiler(&["session", "end", &name]).status(0).quietly();
    bpf::wait_until_unchanged(target.pid());
    assert_eq!(target.finish().status, Some(0));
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
#[ignore = "needs root"]
fn sessions_need_a_daemon() {
    for arguments in [
        &["session", "list"][..],
        &["session", "new", "-p", "1", "f"],
        &["session", "end", "web"],
        &["scope", "set", "web", "f"],
        &["flame", "--session", "web"],
        &["latency", "--session", "web"],
    ] {
        run(profiler(arguments)).status(1).says("start profilerd");
    }
}
