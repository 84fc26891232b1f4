//! Scopes that ask what calls return, against what the target says its calls returned.

use std::collections::BTreeMap;

use profiler_daemon::session::{
    Capture, ExitMethod, FlamePicture, NewSession, Numbered, Pictures, Purpose, SessionError, SessionInfo,
    TimelineRequest,
};
use profiler_plan::values::Reading;
use profiler_symbolize::Grouping;
use serde_json::Value;

use super::{
    fixture::{Fixture, small_scale, spec},
    off_cpu::assert_seen,
    service::{ROOT, Service, Side, ended, function, session_of, time_under},
};

/// What the target says of calls of `handle`: how many there were, and of `inner` in them.
#[derive(Clone, Copy, Default, Debug)]
struct Inside {
    calls: u64,
    inner: u64,
}

#[derive(Clone, Copy, Default, Debug)]
struct Truth {
    all: Inside,
    failed: Inside,
    /// Of those that failed.
    slow: Inside,
    /// Too close to the threshold to be told, of those that failed.
    unsure: Inside,
}

/// Lets it run to its end.
fn finish(target: &mut Fixture) -> Truth {
    target.say("go");
    let mut said: BTreeMap<String, Inside> = BTreeMap::new();
    loop {
        let line = target.line();
        assert!(!line.is_empty(), "it ended early:\n{}", target.output);
        if line.starts_with("truth ") {
            break;
        }
        if let Some((name, json)) = line.split_once(' ')
            && let Ok(json) = serde_json::from_str::<Value>(json)
        {
            let count = |key: &str| json[key].as_u64().unwrap();
            let inside = Inside {
                calls: count("calls"),
                inner: count("inner"),
            };
            said.insert(name.to_owned(), inside);
        }
    }
    let truth = Truth {
        all: said["all"],
        failed: said["failed"],
        slow: said["slow"],
        unsure: said["unsure"],
    };
    println!("the target: {truth:?}");
    truth
}

/// Calls that a session has counted, none of them lost or open.
fn calls(service: &Service, session: &SessionInfo, name: &str) -> u64 {
    let picture = service.last_latency(session);
    assert_seen(&picture.lost);
    let function = function(&picture, name);
    assert!(function.lost.is_empty(), "{}: {:?}", session.scope, function.lost);
    assert_eq!((function.open, function.abandoned), (0, 0), "{}", session.scope);
    ended(function)
}

#[test]
#[ignore = "needs root"]
fn calls_are_counted_by_what_they_return() {
    let service = Service::start();
    for exit in [ExitMethod::Return, ExitMethod::Ret] {
        let mut target = Fixture::start("outcomes", &spec("outcomes").args);
        target.prefer();
        let sessions: Vec<(&str, SessionInfo)> = [
            "handle[return < 0]",
            "handle[return >= 0]",
            "handle[n >= 600][return == -5]",
            "handle[> 1500us][return < 0]",
            "handle[return < 0]/inner",
            "handle[return < 0]/on_success",
            "handle[return < 0]/on_failure",
            "handle[> 1500us][return < 0]/inner",
            "handle[return < 0]/inner[> 1s]/inner",
        ]
        .into_iter()
        .map(|text| {
            let session = service.attach_by(target.pid(), text, Some(exit));
            (text, session.unwrap_or_else(|error| panic!("{text}: {error}")))
        })
        .collect();
        let Truth {
            all,
            failed,
            slow,
            unsure,
        } = finish(&mut target);
        let seen: BTreeMap<&str, u64> = sessions
            .iter()
            .map(|(text, session)| {
                let place = text.rsplit('/').next().unwrap();
                let name = place.split('[').next().unwrap();
                (*text, calls(&service, session, name))
            })
            .collect();
        println!("{exit:?}: {seen:?}");
        assert_eq!(seen["handle[return < 0]"], failed.calls);
        assert_eq!(seen["handle[return >= 0]"], all.calls - failed.calls);
        let late = (600..all.calls.max(600)).filter(|n| n % 3 == 1).count() as u64;
        assert_eq!(seen["handle[n >= 600][return == -5]"], late);
        // A duration that the last step asks for divides samples, and leaves histograms whole.
        assert_eq!(seen["handle[> 1500us][return < 0]"], failed.calls);
        assert_eq!(seen["handle[return < 0]/inner"], failed.inner);
        assert_eq!(seen["handle[return < 0]/on_success"], 0);
        assert_eq!(seen["handle[return < 0]/on_failure"], failed.calls);
        let of_slow = seen["handle[> 1500us][return < 0]/inner"];
        assert!(
            (slow.inner..=slow.inner + unsure.inner).contains(&of_slow),
            "{of_slow} of {slow:?} and {unsure:?}"
        );
        assert_eq!(seen["handle[return < 0]/inner[> 1s]/inner"], 0);
        assert_eq!(target.finish().status, Some(0));
    }
}

/// The last flame graph of a session.
fn drawn(
    service: &Service,
    (session, mut pictures): (SessionInfo, Pictures<FlamePicture>),
) -> Numbered<FlamePicture> {
    service.end(&session);
    let picture = service.until(&mut pictures, |picture| picture.ended.is_some());
    let summary = picture.picture.summary;
    println!("{}: {summary:?}", session.scope);
    assert_eq!(
        summary.samples,
        summary.inside + summary.outside + summary.elsewhere + summary.open
    );
    picture
}

#[test]
#[ignore = "needs root"]
fn samples_are_drawn_by_what_calls_return() {
    let service = Service::start();
    let mut target = Fixture::start("outcomes", &spec("outcomes").args);
    target.prefer();
    let watched: Vec<_> = [
        "handle[return < 0]",
        "handle[> 1500us][return < 0]",
        "handle[return < 0]/on_failure[> 1us]",
        "handle[return >= 0]/on_failure",
    ]
    .into_iter()
    .map(|text| {
        let session = service.attach(target.pid(), text).unwrap();
        let pictures = service.watch_flame(&session);
        (session, pictures)
    })
    .collect();
    let truth = finish(&mut target);
    let pictures: Vec<_> = watched
        .into_iter()
        .map(|watched| drawn(&service, watched))
        .collect();
    let [failed, slow, on_failure, nothing] = &pictures[..] else {
        panic!("there are {}", pictures.len());
    };
    let of = |picture: &FlamePicture, side, name: &str| time_under(picture, side, name).0;
    for picture in &pictures {
        for side in [Side::Inside, Side::Outside] {
            assert_eq!(of(picture, side, "on_success"), 0);
        }
    }
    assert!(of(failed, Side::Inside, "on_failure") > 0);
    assert!(failed.picture.summary.elsewhere > failed.picture.summary.inside);
    assert_eq!(failed.picture.summary.outside, 0);
    // Both sides are calls that failed.
    let both = |name: &str| of(slow, Side::Inside, name) + of(slow, Side::Outside, name);
    assert!(of(slow, Side::Inside, "handle") > of(slow, Side::Outside, "handle"));
    assert!(both("on_failure") > 0);
    let (under, all) = time_under(on_failure, Side::Inside, "on_failure");
    // While the kernel sees to the return probe, the function is left, and its span is open.
    assert!(under > 0 && under * 10 >= all * 9, "{under} of {all}");
    assert_eq!(nothing.picture.summary.inside, 0);
    if !small_scale() {
        // By its clock a call that fails takes 200 µs, and 8 ms more where it is slow; those of a probe's too.
        let asked_ns = (truth.failed.calls * 200_000 + truth.slow.calls * 8_000_000) as f64;
        let inside_ns = of(failed, Side::Inside, "handle") as f64;
        println!("{inside_ns} ns drawn, {asked_ns} ns computed");
        assert!(
            (inside_ns / asked_ns - 1.0).abs() < 0.15,
            "{inside_ns} of {asked_ns}"
        );
    }
    assert_eq!(target.finish().status, Some(0));
}

fn create(service: &Service, pid: u32, scope: &str, print: &str) -> Result<SessionInfo, SessionError> {
    let request = NewSession {
        window_ns: 600_000_000_000,
        capture: Some(Capture {
            print: vec![profiler_scope::expression::parse(print).unwrap()],
            hits_per_second: 100_000,
            stack: false,
            purpose: Purpose::Shown,
        }),
        ..session_of(pid, scope)
    };
    service.runtime.block_on(service.handle.create(ROOT, request))
}

#[test]
#[ignore = "needs root"]
fn the_slowest_are_those_that_return_so() {
    let service = Service::start();
    let mut target = Fixture::start("outcomes", &spec("outcomes").args);
    target.prefer();
    let session = create(&service, target.pid(), "handle[return < 0]", "return").unwrap();
    let mut pictures = service.watch_spans(&session, 100);
    let truth = finish(&mut target);
    service.end(&session);
    let picture = service.until(&mut pictures, |picture| picture.ended.is_some());
    assert_eq!(picture.calls, truth.failed.calls, "{:?}", picture.lost);
    let wanted = truth.failed.calls.min(100);
    assert_eq!(picture.spans.len() as u64, wanted, "{:?}", picture.lost);
    for span in &picture.spans {
        let value = &span.values.as_ref().unwrap()[0].reading;
        let Reading::Ok(value) = value else {
            panic!("it is {value}");
        };
        assert_eq!(value.to_string(), "-5");
    }
    let slow = picture.spans.iter().filter(|span| span.duration_ns > 1_500_000);
    let slow = slow.count() as u64;
    let (least, most) = (truth.slow.calls, truth.slow.calls + truth.unsure.calls);
    let durations_ns: Vec<u64> = picture.spans.iter().map(|span| span.duration_ns).collect();
    assert!(
        (least.min(100)..=most).contains(&slow),
        "{slow} of {truth:?}: {durations_ns:?}"
    );
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn what_a_return_value_leads_to_is_asked_for() {
    let service = Service::start();
    for level in ["returns_o0", "returns_o2"] {
        let mut target = Fixture::start(level, &["200".to_owned()]);
        let attach = |scope, exit| service.attach_by(target.pid(), scope, Some(exit)).unwrap();
        // Null at every fifth call, and `n - 2` at others.
        let long = attach("get_node[return->length > 3]", ExitMethod::Ret);
        let named = attach("get_node[return->name == \"second\"]", ExitMethod::Return);
        // It ends by a jump where the compiler has made one: what that leads to returns in its place.
        let jumps = attach("jumps[return < 0]", ExitMethod::Ret);
        target.run();
        let counted = |is_asked: &dyn Fn(i64) -> bool| (0..200).filter(|n| is_asked(*n)).count() as u64;
        assert_eq!(
            calls(&service, &long, "get_node"),
            counted(&|n| n % 5 != 4 && n - 2 > 3)
        );
        assert_eq!(
            calls(&service, &named, "get_node"),
            counted(&|n| n % 5 != 4 && n % 3 == 1)
        );
        assert_eq!(
            known_and_unknown(&service, &jumps, "jumps"),
            (counted(&|n| (n + 1) % 5 < 2), 0),
            "{level}"
        );
        assert_eq!(target.finish().status, Some(0));
    }
    // What a jump through a pointer leads to is not looked at.
    let spec = spec("tailcall");
    let mut target = Fixture::start("tailcall", &spec.args);
    let either = service.attach_by(target.pid(), "either[return >= 0]", Some(ExitMethod::Ret));
    let either = either.unwrap();
    target.run();
    let all = spec.truth["either"].calls;
    assert_eq!(known_and_unknown(&service, &either, "either"), (0, all));
    assert_eq!(target.finish().status, Some(0));
}

/// Calls of a function that return what is asked for, and those of which that is not known; none is open.
fn known_and_unknown(service: &Service, session: &SessionInfo, name: &str) -> (u64, u64) {
    let picture = service.last_latency(session);
    let seen = function(&picture, name);
    assert_eq!(seen.open, 0);
    (ended(seen), seen.lost.get("return_unknown").copied().unwrap_or(0))
}

#[test]
#[ignore = "needs root"]
fn what_cannot_be_known_by_return_is_refused() {
    let service = Service::start();
    let mut target = Fixture::start("outcomes", &["1".to_owned()]);
    let nothing = service.attach(target.pid(), "inner[return < 0]").unwrap_err();
    assert!(nothing.message.contains("returns nothing"), "{}", nothing.message);
    let session = service.attach(target.pid(), "handle[return < 0]/inner").unwrap();
    let refused = |error: SessionError, words: &str| {
        println!("{error}");
        assert!(error.message.contains(words), "{error}");
    };
    let name = || session.name.clone();
    let waits = service.handle.watch_waits(ROOT, name(), 1_000_000_000);
    refused(
        service.runtime.block_on(waits).unwrap_err(),
        "waits cannot be filtered by return value",
    );
    let syscalls = service
        .handle
        .watch_syscalls(ROOT, name(), 1_000_000_000, Grouping::Function);
    refused(
        service.runtime.block_on(syscalls).unwrap_err(),
        "system calls cannot be filtered by what the call around them returns",
    );
    let last = service.attach(target.pid(), "handle[return < 0]").unwrap();
    let request = TimelineRequest {
        counters: Vec::new(),
        step_ns: 100_000_000,
        threads: false,
    };
    refused(
        service.watch_timeline(&last, request).unwrap_err(),
        "calls on a timeline cannot be filtered by return value",
    );
    target.run();
    assert_eq!(target.finish().status, Some(0));
}
