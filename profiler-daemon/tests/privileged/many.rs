//! As many functions as one glob may mean, and more.

use std::{collections::BTreeSet, time::Instant};

use profiler_daemon::session::{LatencyPicture, Reason, SessionInfo};

use super::{
    bpf,
    fixture::{Fixture, small_scale},
    service::{Service, ended, function},
};

/// Functions of the target, of which the scope means so many. Without links of many probes the kernel takes a
/// perf event for each, and an emulated machine takes long for each function.
fn scope(service: &Service, pid: u32) -> (&'static str, usize) {
    let without_function = service.attach(pid, "").unwrap();
    service.end(&without_function);
    if without_function.perf_links {
        ("many_000?", 10)
    } else if small_scale() {
        ("many_01??", 100)
    } else {
        ("many_*", 2000)
    }
}

/// Attaches; says how long it took, and what is now held in the kernel.
fn attach(service: &Service, target: &Fixture) -> (SessionInfo, BTreeSet<bpf::Held>) {
    let (scope, functions) = scope(service, target.pid());
    let start = Instant::now();
    let session = service.attach(target.pid(), scope).unwrap();
    println!(
        "`{scope}`: {functions} functions attached in {:?}",
        start.elapsed()
    );
    assert_eq!(session.sites.len(), functions);
    assert!(bpf::changed_code(target.pid()) >= functions, "it has no probes");
    (session, service.held())
}

/// Ends a session; says how long it took until nothing was left of it.
fn detach(service: &Service, session: &SessionInfo, target: &Fixture, held: &BTreeSet<bpf::Held>) {
    let start = Instant::now();
    service.end(session);
    let answered = start.elapsed();
    bpf::wait_until_gone(held);
    bpf::wait_until_unchanged(target.pid());
    println!(
        "detached in {answered:?}, nothing left after {:?}",
        start.elapsed()
    );
}

fn nothing_is_lost(picture: &LatencyPicture) {
    assert!(picture.lost.is_empty(), "{:?}", picture.lost);
    for seen in &picture.functions {
        assert_eq!((seen.open, seen.abandoned), (0, 0), "{seen:?}");
        assert!(seen.lost.is_empty(), "{seen:?}");
    }
}

#[test]
#[ignore = "needs root"]
fn two_thousand_functions_are_each_counted_to_the_call() {
    let service = Service::own();
    let rounds = if small_scale() { 20 } else { 200 };
    let mut target = Fixture::start("many_2000", &[rounds.to_string()]);
    let (session, held) = attach(&service, &target);
    let mut pictures = service.watch_latency(&session);
    assert_eq!(target.run()["many_*"].calls, 2000 * rounds);
    detach(&service, &session, &target, &held);
    let last = service.until(&mut pictures, |picture| picture.ended.is_some());
    assert_eq!(last.functions.len(), session.sites.len());
    for site in &session.sites {
        let name = &site.function.name;
        assert_eq!(ended(function(&last, name)), rounds, "{name}");
    }
    nothing_is_lost(&last);
    // Its exit status says whether it called each of them equally often.
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn two_thousand_functions_come_and_go_while_they_are_called() {
    let service = Service::own();
    let mut target = Fixture::start("many_2000", &[]);
    target.say("go");
    let mut counted = 0;
    for _ in 0..2 {
        let (session, held) = attach(&service, &target);
        let mut pictures = service.watch_latency(&session);
        service.until(&mut pictures, |picture| {
            picture.functions.len() == session.sites.len()
                && picture.functions.iter().all(|function| ended(function) > 1)
        });
        detach(&service, &session, &target, &held);
        let last = service.until(&mut pictures, |picture| picture.ended.is_some());
        let seen = last.functions.iter().map(ended);
        let (least, most) = (seen.clone().min().unwrap(), seen.clone().max().unwrap());
        println!("each called {least} to {most} times");
        for function in &last.functions {
            // The one thread may be in it when the counters are read.
            assert!(function.open <= 1 && function.abandoned == 0, "{function:?}");
            assert!(
                function.lost.keys().all(|reason| *reason == "open_at_attach"),
                "{function:?}"
            );
        }
        let open_at_attach: u64 = last
            .functions
            .iter()
            .flat_map(|function| function.lost.values())
            .sum();
        assert!(open_at_attach <= 1, "{open_at_attach} of one thread's calls");
        assert!(last.lost.is_empty(), "{:?}", last.lost);
        counted += seen.sum::<u64>();
    }
    target.say("exit");
    let calls = target.truth()["many_*"].calls;
    assert!(
        counted <= calls,
        "{counted} calls seen of {calls}: some are invented"
    );
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn ten_thousand_functions_are_refused_with_the_limit() {
    let service = Service::start();
    let mut target = Fixture::start("many", &["1".to_owned()]);
    let start = Instant::now();
    let error = service.attach(target.pid(), "many_*").unwrap_err();
    println!("refused in {:?}: {error}", start.elapsed());
    assert_eq!(error.reason, Reason::TooManyFunctions);
    let detail = |name| {
        let found = error.metadata.iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| value.as_str())
    };
    assert_eq!(
        (detail("matched"), detail("limit")),
        (Some("10000"), Some("2500"))
    );
    for words in ["many_* matches 10000 functions", "at most 2500", "narrow it down"] {
        assert!(error.message.contains(words), "{error}");
    }
    assert_eq!(bpf::changed_code(target.pid()), 0);
    assert_eq!(target.run()["many_*"].calls, 10_000);
    assert_eq!(target.finish().status, Some(0));
}
