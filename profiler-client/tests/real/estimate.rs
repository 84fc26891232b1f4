//! `--dry-run` on real targets, with and without a daemon.

use super::{
    bpf,
    command::{profiler, run},
    daemon::Daemon,
    fixture::Fixture,
    verbs::{busy, unharmed},
};

#[test]
#[ignore = "needs root"]
fn what_would_be_attached_is_said_and_nothing_is() {
    let target = busy();
    let pid = target.pid().to_string();
    let said = run(profiler(&["latency", "-p", &pid, "*s*_path", "--dry-run"])).status(0);
    println!("{}", said.stdout());
    assert_eq!(bpf::changed_code(target.pid()), 0);
    let first = format!("nothing is attached; 2 places would be probed in process {pid}");
    assert_eq!(said.stdout().lines().next(), Some(first.as_str()));
    for words in [
        "fast_path",
        "slow_path",
        "slowpath+0x",
        "sampled for ",
        "--measure counts it",
    ] {
        assert!(said.stdout().contains(words), "{words}");
    }

    let line = [
        "spans",
        "-p",
        &pid,
        "f/slow_path",
        "--dry-run",
        "--measure",
        "--json",
    ];
    let objects = run(profiler(&line)).status(0).objects();
    let [outer, inner, summary] = objects.as_slice() else {
        panic!("{objects:?}");
    };
    println!("{outer}\n{inner}\n{summary}");
    assert_eq!(
        (&outer["function"], &inner["function"]),
        (&"f".into(), &"slow_path".into())
    );
    assert_eq!((&outer["number"], &inner["number"]), (&0.into(), &1.into()));
    assert!(outer["hits"].as_u64().unwrap() >= inner["hits"].as_u64().unwrap());
    let rate = outer["hits"].as_f64().unwrap() * 1e9 / summary["counted_ns"].as_f64().unwrap();
    assert!((outer["hits_per_s"].as_f64().unwrap() - rate).abs() < 1e-3 * rate.max(1.0));
    assert!(outer["hit_cost_ns"].as_u64().unwrap() > 0);
    assert!(summary["cpu_share"].as_f64().unwrap() < 1.0);

    run(profiler(&["flame", "-p", &pid, "slow_pat", "--dry-run"]))
        .status(3)
        .says("slow_path");
    run(profiler(&["flame", "-p", &pid, "--dry-run"])).status(0);
    unharmed(target);
}

#[test]
#[ignore = "needs root"]
fn an_edit_of_a_daemons_session_is_estimated_and_not_done() {
    let target = busy();
    let daemon = Daemon::start();
    let pid = target.pid().to_string();
    daemon
        .profiler(&["session", "new", "-p", &pid, "f", "--name", "web"])
        .status(0);
    let said = daemon
        .profiler(&["scope", "append", "web", "slow_path", "--dry-run", "--json"])
        .status(0);
    assert_eq!(said.objects().last().unwrap()["scope"], "f/slow_path");
    let sessions = daemon.sessions();
    assert_eq!((sessions.len(), &sessions[0]["scope"]), (1, &"f".into()));
    daemon
        .profiler(&["latency", "--session", "web", "--dry-run"])
        .status(2)
        .says("attached already");
    daemon.profiler(&["session", "end", "web"]).status(0);
    bpf::wait_until_unchanged(target.pid());
    unharmed(target);
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
#[ignore = "needs root"]
fn what_is_looked_at_to_explain_is_said_before() {
    let target = Fixture::start("explain", &["1".to_owned()]);
    let pid = target.pid().to_string();
    let said = run(profiler(&["explain", "-p", &pid, "handle[> 1ms]", "--dry-run"])).status(0);
    println!("{}", said.stdout());
    assert!(
        said.stdout()
            .contains("branches, calls and values would be looked at")
    );
    assert_eq!(target.finish().status, Some(0));
}
