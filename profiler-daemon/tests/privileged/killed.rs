//! A daemon that is killed leaves nothing behind, neither in the kernel nor in the target.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
    time::Duration,
};

use super::{
    bpf,
    fixture::{Fixture, long_scale, small_scale},
    service::{Service, ended},
    skipped,
};

/// In the environment of a process that is to be a daemon: PID, space, scope.
const DAEMON: &str = "PROFILER_TEST_DAEMON";

/// Not a test of its own: this program as a daemon in a process that can be killed. It says when it is attached,
/// and when it has counted something, and then stays as it is.
#[test]
#[ignore = "needs root"]
fn as_a_daemon() {
    let Ok(order) = std::env::var(DAEMON) else {
        return skipped("a process of other tests, not a test of its own");
    };
    let (pid, scope) = order.split_once(' ').unwrap();
    let service = Service::own();
    let session = service.attach(pid.parse().unwrap(), scope).unwrap();
    let _flame = service.watch_flame(&session);
    let mut pictures = service.watch_latency(&session);
    println!("\nattached {}", session.sites.len());
    service.until(&mut pictures, |picture| {
        picture.functions.iter().any(|function| ended(function) > 0)
    });
    println!("\ncounted");
    // Until it is killed; or until whoever would kill it is gone.
    service.until(&mut pictures, |picture| picture.ended.is_some());
}

struct Daemon {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Daemon {
    fn start(target: &Fixture, scope: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "killed::as_a_daemon", "--nocapture"])
            .env(DAEMON, format!("{} {scope}", target.pid()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    /// Waits for a line that begins so, and gives the rest of it.
    fn says(&mut self, what: &str) -> String {
        let mut line = String::new();
        while self.output.read_line(&mut line).unwrap() > 0 {
            if let Some(rest) = line.trim_end().strip_prefix(what) {
                return rest.trim().to_owned();
            }
            line.clear();
        }
        panic!("the daemon ended before it had {what}");
    }

    /// Kills it; gives the time until the kernel was rid of what it had held.
    fn kill(&mut self) -> Duration {
        let held = bpf::held_by(self.child.id());
        assert!(bpf::links(&held) > 0, "it held no links: {held:?}");
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        bpf::wait_until_gone(&held)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // A test that failed half-way must not leave it behind; one that finished has reaped it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "needs root"]
fn a_killed_daemon_leaves_nothing_behind() {
    // Calls of each of nine batches: long enough to be under way when the daemon is killed.
    let (times, calls) = match (small_scale(), long_scale()) {
        (true, _) => (2, 4_000),
        (_, true) => (100, 60_000),
        _ => (12, 60_000),
    };
    let mut target = Fixture::start("calls", &["bench".to_owned()]);
    let mut slowest = Duration::ZERO;
    for _ in 0..times {
        let mut daemon = Daemon::start(&target, "fn_*");
        assert_eq!(daemon.says("attached"), "9");
        assert!(bpf::changed_code(target.pid()) >= 9, "it has no probes");
        target.say(&format!("go {calls} fn_push"));
        daemon.says("counted");
        slowest = slowest.max(daemon.kill());
        bpf::wait_until_unchanged(target.pid());
        // It goes on as if nothing had been.
        assert!(
            target.line().starts_with("bench {\"function\": \"fn_push\""),
            "{}",
            target.output
        );
    }
    println!("killed {times} times; the slowest was gone after {slowest:?}");
    target.say("exit");
    let truth = target.truth();
    let expected = 9 * times * calls;
    assert_eq!(
        (truth["fn_push"].calls, truth["fn_push"].returned),
        (expected, expected)
    );
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn a_daemon_killed_with_many_probes_leaves_nothing_behind() {
    let mut target = Fixture::start("many", &["1".to_owned()]);
    // One perf event after the other takes the kernel far longer to be rid of than one link of many probes.
    let (scope, functions) = if Service::start().attach(target.pid(), "").unwrap().perf_links {
        ("many_000?", 10)
    } else {
        ("many_?*5?*", 1900)
    };
    let mut daemon = Daemon::start(&target, scope);
    assert_eq!(daemon.says("attached"), functions.to_string());
    assert!(bpf::changed_code(target.pid()) >= functions, "it has no probes");
    println!("gone after {:?}", daemon.kill());
    bpf::wait_until_unchanged(target.pid());
    assert_eq!(target.run()["many_*"].calls, 10_000);
    assert_eq!(target.finish().status, Some(0));
}
