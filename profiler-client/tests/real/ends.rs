//! How a run ends: by Ctrl-C once and twice, by its reader, by its target, by SIGKILL; and how two go together.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    pipe::fcntl_setpipe_size,
    process::{Pid, Signal, kill_process},
};

use super::{
    bpf,
    command::{Running, objects, profiler, through},
    daemon::Daemon,
    fixture::Fixture,
    verbs::{busy, unharmed},
};

#[test]
#[ignore = "needs root"]
fn ctrl_c_prints_the_result() {
    let target = busy();
    let pid = target.pid().to_string();
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut run = Running::start(profiler(&["latency", "-p", &pid, "f", "--interval", "0.1"]));
        run.line();
        run.signal(signal);
        let ended = run.end().status(0);
        assert!(ended.stdout().contains("p99.9"), "{}", ended.stdout());
    }
    unharmed(target);
}

#[test]
#[ignore = "needs root"]
fn ctrl_c_writes_the_flame_graph() {
    let target = busy();
    let daemon = Daemon::start();
    let pid = target.pid().to_string();
    // It prints nothing before its end, and says on a terminal what it has. Others, on its session, say when there is something.
    let run = Running::on_a_terminal(through(
        &daemon.socket,
        &["flame", "-p", &pid, "f[> 5ms]", "-f", "-F", "999"],
    ));
    let name = session_of(&daemon);
    let mut watching = Running::start(through(
        &daemon.socket,
        &["latency", "--session", &name, "--json", "--interval", "0.1"],
    ));
    let mut calls = || {
        let object = &objects(&watching.line())[0];
        object["since_start"]["count"].as_u64().unwrap()
    };
    // Three in fifty are slow.
    let before = calls();
    while calls() < before + 100 {}
    run.interrupt();
    let ended = run.end().status(0);
    assert!(ended.stdout().contains("slow_inner;"), "{}", ended.stdout());
    // Its session ended with it, and so did the other one, with a result.
    let other = watching.end().status(0).says("The run ended by itself: ");
    assert_eq!(other.objects().last().unwrap()["final"], true);
    assert_eq!(daemon.sessions().len(), 0);
    unharmed(target);
    assert_eq!(daemon.stop(), Some(0));
}

/// The name of the only session that a daemon has or will have, once somebody watches it.
fn session_of(daemon: &Daemon) -> String {
    loop {
        let sessions = daemon.sessions();
        if let [session] = sessions.as_slice()
            && session["watchers"] == 1
        {
            return session["name"].as_str().unwrap().to_owned();
        }
    }
}

#[test]
#[ignore = "needs root"]
fn ctrl_c_twice_ends_at_once() {
    let mut target = Fixture::start("calls", &["bench".to_owned()]);
    let pid = target.pid().to_string();
    let mut run = Running::start(profiler(&["latency", "-p", &pid, "fn_*", "--json"]));
    // The first update is larger than this pipe: as soon as there is something in it, the writer is stuck.
    let mut stdout = run.take_stdout();
    fcntl_setpipe_size(&stdout, 4096).unwrap();
    poll(&mut [PollFd::new(&stdout, PollFlags::IN)], None).unwrap();
    run.interrupt();
    let since = Instant::now();
    // Two that come at once are one, as `timeout` sends them; so the second is sent until it counts.
    while run.child.try_wait().unwrap().is_none() {
        let _ = kill_process(Pid::from_child(&run.child), Signal::INT);
        std::thread::sleep(Duration::from_millis(5));
    }
    let took = since.elapsed();
    println!("gone after {took:?}");
    run.end().status(1).says("Aborted.");
    // A command that waits for its reader does so for ever.
    assert!(took < Duration::from_secs(10), "{took:?}");
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert!(
        rest.starts_with("{\"type\":\"latency\""),
        "what was shown is lost: {rest}"
    );
    bpf::wait_until_unchanged(target.pid());
    target.say("exit");
    target.truth();
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn a_reader_that_leaves_ends_the_run() {
    let target = busy();
    let pid = target.pid().to_string();
    for arguments in [
        &["latency", "-p", &pid, "f", "--json", "--interval", "0.1"][..],
        &["functions", "-p", &pid],
    ] {
        let mut run = Running::start(profiler(arguments));
        let mut stdout = BufReader::new(run.take_stdout());
        stdout.read_line(&mut String::new()).unwrap();
        drop(stdout);
        let ended = run.end().status(0);
        assert!(!ended.stderr().contains("ipe"), "{}", ended.stderr());
    }
    unharmed(target);
}

#[test]
#[ignore = "needs root"]
fn a_target_that_exits_ends_the_run_with_its_result() {
    let calls = 1000;
    let mut target = Fixture::start(
        "calls",
        &["run", "1", &calls.to_string(), "fn_push"].map(str::to_owned),
    );
    let pid = target.pid().to_string();
    let mut run = Running::start(profiler(&["latency", "-p", &pid, "fn_push", "--json"]));
    run.line();
    target.run();
    assert_eq!(target.finish().status, Some(0));
    let ended = run.end().status(0).says(&format!("process {pid} (calls) ended"));
    let objects = ended.objects();
    let last = objects.last().unwrap();
    assert_eq!(
        (&last["final"], &last["since_start"]["count"]),
        (&true.into(), &calls.into())
    );

    let target = busy();
    let daemon = Daemon::start();
    let pid = target.pid().to_string();
    let run = Running::start(through(
        &daemon.socket,
        &["flame", "-p", &pid, "f[> 5ms]", "-f", "-F", "999"],
    ));
    session_of(&daemon);
    unprobed_end(target);
    let ended = run
        .end()
        .status(0)
        .says(&format!("process {pid} (slowpath) ended"));
    assert!(
        ended.stdout().lines().all(|line| line.contains(';')),
        "{}",
        ended.stdout()
    );
    assert_eq!(daemon.sessions().len(), 0);
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
#[ignore = "needs root"]
fn a_signal_that_ends_the_target_is_said_and_is_a_status_of_its_own() {
    let views: [&[&str]; 3] = [
        &["latency", "work", "--json"],
        &["flame", "--json"],
        &["trace", "work", "--json"],
    ];
    for view in views {
        for (how, status, said) in [
            (["signal", "11"], 5, "was ended by signal 11 (SIGSEGV)"),
            (["exit", "3"], 0, "ended"),
        ] {
            let mut target = Fixture::start("endings", &how.map(str::to_owned));
            let pid = target.pid().to_string();
            let daemon = Daemon::start();
            let run = Running::start(through(&daemon.socket, &[view, &["-p", &pid]].concat()));
            session_of(&daemon);
            target.run();
            target.finish();
            let ended = run.end().status(status);
            let said = format!("The run ended by itself: process {pid} (endings) {said}.");
            ended.says(&said);
            assert_eq!(daemon.stop(), Some(0));
        }
    }
}

/// Lets a target end while probes are in it.
fn unprobed_end(mut target: Fixture) {
    target.say("exit");
    target.truth();
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn two_profilers_on_one_target_count_both() {
    let calls = 3000;
    let mut target = Fixture::start(
        "calls",
        &["run", "2", &calls.to_string(), "fn_push", "fn_mov"].map(str::to_owned),
    );
    let pid = target.pid().to_string();
    let mut one = Running::start(profiler(&["latency", "-p", &pid, "fn_*", "--json"]));
    let mut other = Running::start(profiler(&["latency", "-p", &pid, "fn_push", "--json"]));
    one.line();
    other.line();
    target.run();
    for run in [other, one] {
        run.interrupt();
        let objects = run.end().status(0).objects();
        let push = objects
            .iter()
            .rfind(|object| object["function"] == "fn_push")
            .unwrap();
        assert_eq!(
            (&push["final"], &push["since_start"]["count"]),
            (&true.into(), &(2 * calls).into())
        );
    }
    bpf::wait_until_unchanged(target.pid());
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn a_killed_command_leaves_nothing_after_its_lease() {
    let target = busy();
    let pid = target.pid().to_string();
    // Within its own process everything ends with it.
    let mut run = Running::start(profiler(&["latency", "-p", &pid, "f"]));
    run.line();
    assert!(bpf::changed_code(target.pid()) > 0, "it has no probes");
    run.signal(Signal::KILL);
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&run.child.wait().unwrap()),
        Some(9)
    );
    bpf::wait_until_unchanged(target.pid());
    // A daemon keeps the session for ten seconds.
    let daemon = Daemon::start();
    let mut run = Running::start(through(&daemon.socket, &["latency", "-p", &pid, "f"]));
    run.line();
    run.signal(Signal::KILL);
    run.child.wait().unwrap();
    let since = Instant::now();
    assert_eq!(daemon.sessions().len(), 1);
    // Nothing can be awaited: a stream of the session would keep it.
    while !daemon.sessions().is_empty() {
        assert!(since.elapsed() < Duration::from_secs(20), "it is still there");
        std::thread::sleep(Duration::from_millis(100));
    }
    println!("gone after {:?}", since.elapsed());
    // That is said once its probes are off.
    while !daemon.log().contains("its lease ran out") {
        assert!(since.elapsed() < Duration::from_secs(20), "{}", daemon.log());
        std::thread::sleep(Duration::from_millis(10));
    }
    bpf::wait_until_unchanged(target.pid());
    bpf::wait_until_gone(&bpf::held_by(daemon.child.id()));
    unharmed(target);
    assert_eq!(daemon.stop(), Some(0));
}

/// A thread of another process that stands still until this is dropped.
struct StandsStill(libc::pid_t);

impl StandsStill {
    /// The thread of a name.
    fn new(process: u32, name: &str) -> Self {
        let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
        let mut threads = threads.map(|thread| thread.unwrap().path());
        let is_called = |path: &std::path::PathBuf| {
            std::fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim() == name)
        };
        let thread = threads.find(is_called).unwrap();
        let tid: libc::pid_t = thread.file_name().unwrap().to_str().unwrap().parse().unwrap();
        let none = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: neither request reads or writes memory of this process.
        unsafe {
            assert_eq!(libc::ptrace(libc::PTRACE_SEIZE, tid, none, none), 0);
            assert_eq!(libc::ptrace(libc::PTRACE_INTERRUPT, tid, none, none), 0);
            assert_eq!(libc::waitpid(tid, std::ptr::null_mut(), libc::__WALL), tid);
        }
        Self(tid)
    }
}

impl Drop for StandsStill {
    fn drop(&mut self) {
        let none = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: as above.
        unsafe { libc::ptrace(libc::PTRACE_DETACH, self.0, none, none) };
    }
}

#[test]
#[ignore = "needs root"]
fn an_end_is_answered_before_the_last_stacks_have_names() {
    let target = busy();
    let daemon = Daemon::start();
    let pid = target.pid().to_string();
    let mut trace = Running::start(through(
        &daemon.socket,
        &["trace", "-p", &pid, "f", "--stack", "--json"],
    ));
    trace.line();
    let sessions = daemon.sessions();
    let names = StandsStill::new(daemon.child.id(), "symbols");
    let since = Instant::now();
    let name = sessions[0]["name"].as_str().unwrap();
    daemon.profiler(&["session", "end", name]).status(0);
    let took = since.elapsed();
    println!("answered after {took:?}");
    // Names would be waited for for 15 s.
    assert!(took < Duration::from_secs(7), "{took:?}");
    drop(names);
    let trace = trace.end().status(0).says("the session was ended");
    // What was recorded until the end has its names nevertheless.
    let hits = trace.objects();
    assert!(
        hits.iter().any(|hit| hit["stack"].is_array()),
        "{}",
        trace.stdout()
    );
    unharmed(target);
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
#[ignore = "needs root"]
fn names_that_take_long_hold_up_no_other_session() {
    let target = busy();
    let daemon = Daemon::start();
    let pid = target.pid().to_string();
    let mut watching = Running::start(through(
        &daemon.socket,
        &["latency", "-p", &pid, "f", "--json", "--interval", "0.05"],
    ));
    watching.line();
    let flame = Running::on_a_terminal(through(
        &daemon.socket,
        &["flame", "-p", &pid, "-f", "-F", "999", "--by", "line"],
    ));
    // Until there are samples.
    for _ in 0..10 {
        watching.line();
    }
    let names = StandsStill::new(daemon.child.id(), "symbols");
    flame.interrupt();
    let mut longest = Duration::ZERO;
    for _ in 0..40 {
        let since = Instant::now();
        watching.line();
        longest = longest.max(since.elapsed());
    }
    println!("longest time between two pictures of each 50 ms: {longest:?}");
    assert_eq!(
        daemon.sessions().len(),
        1,
        "the other session is over for its users"
    );
    // Names came after 15 s, if nobody waited less.
    assert!(longest < Duration::from_secs(7), "{longest:?}");
    drop(names);
    let flame = flame.end().status(0);
    assert!(flame.stdout().contains("slowpath.c:"), "{}", flame.stdout());
    watching.interrupt();
    watching.end().status(0);
    unharmed(target);
    assert_eq!(daemon.stop(), Some(0));
}
