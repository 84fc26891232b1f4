//! What slow calls do that others do not, against a target that says why its calls are slow.

use std::time::Instant;

use profiler_aggregate::explain::Means;
use profiler_daemon::session::{
    ExplainPicture, Explained, NewSession, NotLookedAt, Pictures, SessionError, SessionInfo, What,
};

use super::{
    fixture::{Fixture, small_scale, spec},
    service::{Ends, ROOT, Service, session_of},
    skipped,
};

impl Ends for ExplainPicture {
    fn ended(&self) -> Option<&str> {
        self.ended.as_deref()
    }
}

/// The number of the source line that has this comment.
fn line(comment: &str) -> usize {
    let source = include_str!("../fixtures/engine/explain.c");
    let at = source
        .lines()
        .position(|line| line.contains(&format!("/* {comment} */")));
    at.unwrap() + 1
}

fn explain(service: &Service, pid: u32, scope: &str) -> Result<SessionInfo, SessionError> {
    let request = NewSession {
        explain: true,
        ..session_of(pid, scope)
    };
    service.runtime.block_on(service.handle.create(ROOT, request))
}

/// Pictures of what is found, in effect that at the session's end.
fn watch(service: &Service, session: &SessionInfo) -> Pictures<ExplainPicture> {
    watch_each(service, session, 3_600_000_000_000)
}

/// Pictures of what is found, one after each such time.
fn watch_each(service: &Service, session: &SessionInfo, interval_ns: u64) -> Pictures<ExplainPicture> {
    let watching = service
        .handle
        .watch_explain(ROOT, session.name.clone(), interval_ns);
    service.runtime.block_on(watching).unwrap()
}

/// The finding that begins so.
fn find<'p>(picture: &'p ExplainPicture, text: &str) -> &'p Explained {
    let found = picture
        .findings
        .iter()
        .find(|finding| finding.text.starts_with(text));
    found.unwrap_or_else(|| panic!("nothing is said of {text}: {:#?}", picture.findings))
}

#[test]
#[ignore = "needs root"]
fn the_reason_is_found_and_chance_is_not() {
    let service = Service::start();
    let spec = spec("explain");
    let mut target = Fixture::start("explain", &spec.args);
    target.prefer();
    let session = explain(&service, target.pid(), "handle[> 1500us]").unwrap();
    let mut pictures = watch(&service, &session);
    let began = Instant::now();
    target.say("go");
    let (large, checked) = loop {
        let line = target.line();
        if let Some(counts) = line.strip_prefix("large ") {
            let (large, checked) = counts.trim().split_once(" checked ").unwrap();
            break (large.parse::<u64>().unwrap(), checked.parse::<u64>().unwrap());
        }
        assert!(!line.is_empty(), "it ended early:\n{}", target.output);
    };
    service.end(&session);
    let picture = service.until(&mut pictures, |picture| picture.ended.is_some());
    println!("{picture:#?}");
    let calls = spec.truth["handle"].calls;
    assert_eq!(picture.calls, calls);
    // Of time off the CPU a slow machine may miss some, and kernels hide the end of a few intervals.
    let of_calls = picture
        .lost
        .iter()
        .filter(|(reason, _)| !reason.starts_with("off_cpu_"));
    assert_eq!(
        of_calls.map(|(_, count)| count).sum::<u64>(),
        0,
        "{:?}",
        picture.lost
    );
    // Fewer calls come in a second than are looked at.
    assert_eq!(picture.looked_at, calls);
    assert_eq!(picture.slow.calls + picture.other.calls, calls);

    // Either way at a branch is counted to the call.
    let counted = |comment: &str, count: u64| {
        let both = ["taken", "else"].map(|way| {
            let place = format!("explain.c:{}!{way}", line(comment));
            let found = picture.findings.iter().find(|finding| finding.text == place);
            found.map(|finding| {
                assert_eq!(finding.slow.of + finding.other.of, calls, "{place}");
                finding.slow.have + finding.other.have
            })
        });
        let counts: Vec<u64> = both.into_iter().flatten().collect();
        assert!(!counts.is_empty(), "{comment}");
        assert!(
            counts.iter().all(|ours| *ours == count || *ours == calls - count),
            "{comment}: {counts:?} of {calls}, the target's own {count}"
        );
    };
    counted("the branch", large);
    counted("the check", checked);

    // The reason, in all of its forms. Of a few hundred calls on a slow machine, a number are slow for its own reasons.
    let (certain, chance_at_most, least_bound) = if small_scale() {
        (0.25, 0.2, 40_000)
    } else {
        (0.5, 0.1, 45_000)
    };
    let branch = find(&picture, &format!("explain.c:{}!", line("the branch")));
    assert!(branch.difference.low > certain, "{branch:?}");
    let next = branch.next.clone().unwrap();
    // Each call reaches the branch once.
    let cost = branch.cost.unwrap();
    println!("{cost:?}");
    let calls_per_s = calls as f64 / began.elapsed().as_secs_f64();
    let idle = if small_scale() { 20.0 } else { 4.0 };
    assert!(
        cost.hits_per_s > calls_per_s / idle && cost.hits_per_s < calls_per_s * 4.0,
        "{cost:?} of {calls_per_s} calls a second"
    );
    assert!(cost.cpu_share > 0.0 && cost.cpu_share < 1.0, "{cost:?}");
    let size = find(&picture, "request->size");
    assert!(size.difference.low > certain, "{size:?}");
    let bound: u32 = size
        .text
        .strip_prefix("request->size > ")
        .unwrap()
        .parse()
        .unwrap();
    assert!((least_bound..=50_000).contains(&bound), "{size:?}");
    if !session.perf_links {
        let call = find(&picture, &format!("compress@explain.c:{}", line("the call")));
        assert!(call.difference.low > certain, "{call:?}");
        let Means {
            slow: slow_ns,
            other: other_ns,
        } = call.means.unwrap();
        assert!(slow_ns > 2_000_000.0 && other_ns < slow_ns / 2.0, "{call:?}");
    }
    // Chance.
    for text in ["request->kind", "retry"] {
        let chance = find(&picture, text);
        assert!(chance.difference.low < chance_at_most, "{chance:?}");
    }
    // What is offered can be looked at.
    let attached = service.attach(target.pid(), &next).unwrap();
    assert_eq!(attached.scope, next);
    service.end(&attached);
    target.say("exit");
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn a_reason_two_calls_down_is_found_by_its_samples() {
    let service = Service::start();
    let mut target = Fixture::start("deep", &spec("deep").args);
    target.prefer();
    let request = NewSession {
        explain: true,
        frequency_hz: 999,
        ..session_of(target.pid(), "handle[> 1500us]")
    };
    let created = service.handle.create(ROOT, request);
    let session = service.runtime.block_on(created).unwrap();
    let mut pictures = watch(&service, &session);
    target.run();
    service.end(&session);
    let picture = service.until(&mut pictures, |picture| picture.ended.is_some());
    for finding in picture.findings.iter().take(8) {
        println!(
            "{}: {:?} against {:?}, {:?} -> {:?}",
            finding.text, finding.slow, finding.other, finding.difference, finding.next
        );
    }
    let is_frame = |finding: &&Explained| matches!(finding.what, What::Frame(_));
    let frames: Vec<&Explained> = picture.findings.iter().filter(is_frame).collect();
    let names: Vec<&str> = frames.iter().map(|frame| frame.text.as_str()).collect();
    let cause = frames.first().expect("frames are ranked");
    assert_eq!(cause.text, "samples in bottom", "{names:?}");
    // In a slow call bottom has ten parts in eleven of the time, in others it is not called.
    let certain = if small_scale() { 0.3 } else { 0.6 };
    assert!(cause.difference.low > certain, "{cause:?}");
    // An emulated machine that has to wait for its CPU makes calls slow for no reason of their own.
    let most = if small_scale() { 5 } else { 8 };
    assert!(cause.slow.have * 10 > cause.slow.of * most, "{cause:?}");
    if !small_scale() {
        assert!(cause.other.have * 20 < cause.other.of, "{cause:?}");
    }
    // Who calls the function has nothing to do with it, and that others have more samples elsewhere is no news.
    for name in ["main", "handle", "usual"] {
        assert!(
            !names.contains(&format!("samples in {name}").as_str()),
            "{names:?}"
        );
    }
    let next = cause.next.as_deref();
    assert_eq!(next, Some("handle[> 1.5ms]/bottom"));
    let attached = service.attach(target.pid(), next.unwrap()).unwrap();
    service.end(&attached);
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn slow_are_the_slowest_of_the_calls_that_are_compared() {
    let service = Service::start();
    let calls = if small_scale() { 20_000 } else { 200_000 };
    let mut target = Fixture::start("brief", &[calls.to_string()]);
    target.prefer();
    let session = explain(&service, target.pid(), "brief[>= p90]").unwrap();
    let mut pictures = watch(&service, &session);
    target.run();
    service.end(&session);
    let picture = service.until(&mut pictures, |picture| picture.ended.is_some());
    assert_eq!(target.finish().status, Some(0));
    let (slow, others) = (picture.slow.calls as f64, picture.other.calls as f64);
    let (threshold_ns, of_all_ns) = (
        picture.threshold_ns.unwrap(),
        picture.threshold_of_all_ns.unwrap(),
    );
    println!("{slow} slow, {others} others; from {threshold_ns} ns, of all from {of_all_ns} ns");
    let share = slow / (slow + others);
    assert!((0.05..0.15).contains(&share), "{share}");
    // What is looked at makes calls longer; by how much is a matter of two samples of calls.
    assert!(threshold_ns * 10 > of_all_ns * 9, "{threshold_ns} {of_all_ns}");
}

#[test]
#[ignore = "needs root"]
fn more_calls_than_are_timed_are_a_reason() {
    let service = Service::start();
    let mut target = Fixture::start("deep", &spec("deep").args);
    target.prefer();
    let session = explain(&service, target.pid(), "often[> 1500us]").unwrap();
    let mut pictures = watch(&service, &session);
    let truth = target.run();
    service.end(&session);
    let picture = service.until(&mut pictures, |picture| picture.ended.is_some());
    for finding in picture.findings.iter().take(5) {
        println!("{}: {:?} against {:?}", finding.text, finding.slow, finding.other);
    }
    assert_eq!(target.finish().status, Some(0));
    if session.perf_links {
        return skipped("calls made at a line cannot be timed before Linux 6.10");
    }
    let source = include_str!("../fixtures/engine/deep.c");
    let step = source.lines().position(|line| line.contains("/* the step */"));
    let place = format!("step@deep.c:{}", step.unwrap() + 1);
    let many = find(&picture, "more than 63 calls");
    assert_eq!(many.text, format!("more than 63 calls, most of them {place}"));
    let next = many.next.as_deref();
    assert_eq!(next, Some(format!("often[> 1.5ms]/{place}").as_str()));
    // As often as bottom was called.
    let slow = truth["bottom"].calls;
    println!("{slow} calls made many: {many:?}, {:?}", picture.lost);
    assert_eq!(many.slow.have + many.other.have, slow);
    assert_eq!(picture.lost["join_limit"], slow);
    let certain = if small_scale() { 0.3 } else { 0.8 };
    assert!(many.difference.low > certain, "{many:?}");
}

/// The number of the source line of `reasons` that has this comment.
fn reason_line(comment: &str) -> usize {
    let source = include_str!("../fixtures/engine/reasons.c");
    let at = source
        .lines()
        .position(|line| line.contains(&format!("/* {comment} */")));
    at.unwrap() + 1
}

#[test]
#[ignore = "needs root"]
fn the_one_reason_comes_first() {
    let service = Service::start();
    let [_, calls] = spec("reasons").args.try_into().unwrap();
    for reason in ["branch", "value", "callee", "lock", "cases"] {
        let mut target = Fixture::start("reasons", &[reason.to_owned(), calls.clone()]);
        target.prefer();
        let session = explain(&service, target.pid(), &format!("{reason}[> 1500us]")).unwrap();
        let mut pictures = watch(&service, &session);
        target.run();
        service.end(&session);
        let picture = service.until(&mut pictures, |picture| picture.ended.is_some());
        println!(
            "{reason}: {} slow, {} others",
            picture.slow.calls, picture.other.calls
        );
        for finding in picture.findings.iter().take(4) {
            println!("  {} from {}", finding.text, finding.difference.low);
        }
        assert_eq!(target.finish().status, Some(0));
        // What a call takes at its line is not seen before Linux 6.10.
        if session.perf_links && matches!(reason, "callee" | "lock") {
            continue;
        }
        let line = reason_line(reason);
        let texts: &[String] = &match reason {
            "branch" => vec![format!("reasons.c:{line}!"), format!("work@reasons.c:{line}")],
            "value" => vec![format!("work@reasons.c:{line}"), "request->size > ".to_owned()],
            "callee" => vec![format!("other@reasons.c:{line}")],
            "cases" => vec![format!("reasons.c:{line}"), format!("work@reasons.c:{line}")],
            _ => vec![
                format!("pthread_mutex_lock@reasons.c:{line}"),
                // Or `waits[> 42us] in`, where others wait for it too, for less.
                "waits".to_owned(),
            ],
        };
        // All ways to put it come before anything else. What goes along with it may come out as sure: who waited for a lock
        // and was woken waits for a CPU, and gives the lock back by a system call.
        let follows = |text: &&str| {
            let waits_for_a_cpu = text.starts_with("waits") && text.ends_with("for a CPU");
            reason == "lock" && (waits_for_a_cpu || text.starts_with("pthread_mutex_unlock"))
        };
        let first: Vec<&str> = picture
            .findings
            .iter()
            .map(|finding| finding.text.as_str())
            .filter(|text| !follows(text))
            .take(texts.len() + usize::from(small_scale()))
            .collect();
        let are_said = texts
            .iter()
            .filter(|text| first.iter().any(|first| first.starts_with(text.as_str())));
        let seen = are_said.count();
        let wanted = if session.perf_links { 1 } else { texts.len() };
        assert!(seen >= wanted, "{reason}: {first:?}");
        if reason == "lock" {
            let is_wait = |text: &str| text.starts_with("waits") && text.contains("pthread_mutex_lock");
            let wait = picture.findings.iter().find(|finding| is_wait(&finding.text));
            let wait = wait.expect("it waits for the lock");
            let words = ["pthread_mutex_lock", " < lock ", "[lock mutex] for ", " at "];
            assert!(
                words.iter().all(|words| wait.text.contains(words)),
                "{}",
                wait.text
            );
            let Means {
                slow: slow_ns,
                other: other_ns,
            } = wait.means.unwrap();
            let few = if small_scale() { 2.0 } else { 4.0 };
            assert!(slow_ns > 1_000_000.0 && other_ns < slow_ns / few, "{wait:?}");
        }
    }
}

#[test]
#[ignore = "needs root"]
fn places_that_cost_more_than_the_budget_are_not_looked_at_any_more() {
    let service = Service::start();
    let mut target = Fixture::start("busy_inside", &[]);
    let request = NewSession {
        explain: true,
        budget: Some(0.03),
        ..session_of(target.pid(), "handle[>= p90]")
    };
    let session = service
        .runtime
        .block_on(service.handle.create(ROOT, request))
        .unwrap();
    let mut pictures = watch_each(&service, &session, 100_000_000);
    target.say("go");
    let began = Instant::now();
    let over = |not: &NotLookedAt| not.reason.contains("over the budget of 3%");
    let left = service.until(&mut pictures, |picture| picture.left_out.iter().any(over));
    println!("after {:?}: {:?}", began.elapsed(), left.left_out);
    // The function goes on, and what else is looked at.
    let last = service.until(&mut pictures, |picture| picture.looked_at >= left.looked_at + 20);
    assert_eq!(last.ended, None);
    let branches: Vec<_> = last.left_out.iter().filter(|left| over(left)).collect();
    assert!(
        !branches.is_empty() && branches.len() < last.features,
        "{branches:?} of {}",
        last.features
    );
    drop(target.end());
}

#[test]
#[ignore = "needs root"]
fn only_calls_of_a_function_with_a_duration_are_explained() {
    let service = Service::start();
    let target = Fixture::start("explain", &["1".to_owned()]);
    for (scope, words) in [
        ("handle", "which calls are slow"),
        ("", "name a function"),
        ("explain.c:30", "only calls of a function"),
        ("handle[> 1ms]/compress[> 1ms]", "only the last step"),
        ("handel[> 1ms]", "handel"),
    ] {
        let error = explain(&service, target.pid(), scope).unwrap_err();
        assert!(error.message.contains(words), "{scope}: {}", error.message);
    }
    let session = explain(&service, target.pid(), "handle[> 1ms]").unwrap();
    let edit = service
        .handle
        .set_scope(ROOT, session.name.clone(), "handle[> 2ms]".to_owned());
    let refused = service.runtime.block_on(edit).unwrap_err();
    assert!(
        refused.message.contains("start a new session"),
        "{}",
        refused.message
    );
    service.end(&session);
    assert_eq!(target.finish().status, Some(0));
}
