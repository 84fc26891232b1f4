//! The target ends, or becomes something else, while it is looked at.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use profiler_daemon::session::{NewSession, Reason, SessionInfo, TargetSpec};

use super::{
    bpf,
    fixture::{self, Fixture},
    service::{ROOT, Service, ended, function, session_of},
    skipped,
};

/// Nothing of a session is left: neither its name nor what it held in the kernel.
fn nothing_left(service: &Service, session: &SessionInfo, held: &std::collections::BTreeSet<bpf::Held>) {
    let renewed = service
        .runtime
        .block_on(service.handle.renew(ROOT, session.name.clone()));
    assert_eq!(renewed.unwrap_err().reason, Reason::SessionNotFound);
    assert!(bpf::links(held) > 0);
    bpf::wait_until_gone(held);
}

#[test]
#[ignore = "needs root"]
fn a_target_that_ends_ends_its_session() {
    let service = Service::own();
    let mut target = Fixture::start("calls", &["run", "1", "1000", "fn_push"].map(str::to_owned));
    let pid = target.pid();
    let session = service.attach(pid, "fn_push").unwrap();
    let (mut latency, mut flame) = (service.watch_latency(&session), service.watch_flame(&session));
    let held = service.held();
    target.run();
    assert_eq!(target.finish().status, Some(0));
    let last = service.until(&mut latency, |picture| picture.ended.is_some());
    // What was counted is shown all the same.
    assert_eq!(ended(function(&last, "fn_push")), 1000);
    let reason = format!("process {pid} (calls) ended");
    assert_eq!(last.ended.as_deref(), Some(reason.as_str()));
    let last = service.until(&mut flame, |picture| picture.ended.is_some());
    assert_eq!(last.ended.as_deref(), Some(reason.as_str()));
    nothing_left(&service, &session, &held);
}

/// A way in which a target ends, and what is said of it after its name.
struct Way {
    arguments: &'static [&'static str],
    signal: Option<u32>,
    said: &'static str,
}

#[test]
#[ignore = "needs root"]
fn a_signal_that_ends_a_target_is_told_from_its_exit() {
    let ways = [
        Way {
            arguments: &["exit", "3"],
            signal: None,
            said: "ended",
        },
        Way {
            arguments: &["signal", "15"],
            signal: Some(15),
            said: "was ended by signal 15 (SIGTERM)",
        },
        Way {
            arguments: &["signal", "9"],
            signal: Some(9),
            said: "was ended by signal 9 (SIGKILL)",
        },
        Way {
            arguments: &["signal", "40"],
            signal: Some(40),
            said: "was ended by signal 40",
        },
        // By another thread than its first one.
        Way {
            arguments: &["crash"],
            signal: Some(11),
            said: "was ended by signal 11 (SIGSEGV)",
        },
        // It goes on when a signal has ended one of its threads.
        Way {
            arguments: &["thread"],
            signal: None,
            said: "ended",
        },
    ];
    let service = Service::start();
    for way in ways {
        let arguments: Vec<String> = way.arguments.iter().map(|&text| text.to_owned()).collect();
        let mut target = Fixture::start("endings", &arguments);
        let pid = target.pid();
        let sessions = ["work", ""].map(|scope| service.attach(pid, scope).unwrap());
        let mut latency = service.watch_latency(&sessions[0]);
        // Its samples alone are taken.
        let mut flame = service.watch_flame(&sessions[1]);
        target.run();
        let status = target.finish().status;
        assert_eq!(status, way.signal.is_none().then_some(3), "{arguments:?}");
        let reason = format!("process {pid} (endings) {}", way.said);
        let last = service.until(&mut latency, |picture| picture.ended.is_some());
        assert_eq!(ended(function(&last, "work")), 100);
        let last_flame = service.until(&mut flame, |picture| picture.ended.is_some());
        for ending in [&last.ended, &last_flame.ended] {
            let ending = ending.as_ref().unwrap();
            assert_eq!((&*ending.reason, ending.signal), (&*reason, way.signal));
        }
    }
}

#[test]
#[ignore = "needs root"]
fn processes_that_end_while_they_are_attached_to_are_left_out() {
    let service = Service::start();
    let arguments = ["run", "1", "1000", "fn_push"].map(str::to_owned);
    let mut stays = Fixture::start("calls", &arguments);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // There are always some, and each ends before long.
        scope.spawn(|| {
            let mut few = VecDeque::new();
            while !is_over.load(Relaxed) {
                few.push_back(Fixture::start("calls", &arguments));
                if few.len() > 4 {
                    few.pop_front();
                }
            }
        });
        for _ in 0..5 {
            let target = TargetSpec::Executable(fixture::directory().join("calls").display().to_string());
            let new = NewSession {
                target,
                ..session_of(stays.pid(), "fn_push")
            };
            let session = service.runtime.block_on(service.handle.create(ROOT, new));
            match session {
                Ok(session) => {
                    assert!(session.pids.contains(&stays.pid()));
                    service.end(&session);
                }
                Err(error) => {
                    is_over.store(true, Relaxed);
                    panic!("{error}");
                }
            }
        }
        is_over.store(true, Relaxed);
    });
    stays.run();
    assert_eq!(stays.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn a_target_that_becomes_another_program_ends_its_session() {
    const CALLS: u64 = 100;
    let service = Service::own();
    let other = fixture::directory().join("idle").display().to_string();
    let mut target = Fixture::start("exec_other", &[CALLS.to_string(), other]);
    let pid = target.pid();
    let session = service.attach(pid, "target_fn").unwrap();
    let mut latency = service.watch_latency(&session);
    let held = service.held();
    target.say("go");
    assert!(target.line().starts_with("sum "), "{}", target.output);
    // The other program is there.
    assert_eq!(target.line(), "ready");
    let last = service.until(&mut latency, |picture| picture.ended.is_some());
    let seen = function(&last, "target_fn");
    assert_eq!((ended(seen), seen.open), (CALLS, 0));
    let reason = last.ended.clone().unwrap();
    assert!(reason.contains("runs another program now"), "{reason}");
    nothing_left(&service, &session, &held);
    bpf::wait_until_unchanged(pid);
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn another_process_of_the_same_number_is_not_looked_at() {
    let service = Service::start();
    let mut target = Fixture::start("calls", &["run", "1", "10", "fn_push"].map(str::to_owned));
    let pid = target.pid();
    let session = service.attach(pid, "fn_push").unwrap();
    let mut latency = service.watch_latency(&session);
    target.run();
    assert_eq!(target.finish().status, Some(0));
    let Some(mut another) =
        Fixture::start_as(pid, "calls", &["run", "1", "5000", "fn_push"].map(str::to_owned))
    else {
        return skipped("this kernel gives no process a number of choice");
    };
    assert_eq!(another.run()["fn_push"].calls, 5000);
    let last = service.until(&mut latency, |picture| picture.ended.is_some());
    assert_eq!(
        ended(function(&last, "fn_push")),
        10,
        "calls of another process were counted"
    );
    let reason = last.ended.as_deref();
    assert_eq!(reason, Some(format!("process {pid} (calls) ended").as_str()));
    bpf::wait_until_unchanged(pid);
    assert_eq!(another.finish().status, Some(0));
}
