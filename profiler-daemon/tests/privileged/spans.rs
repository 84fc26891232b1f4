//! The slowest calls against what the target's own clock says, and against what it did in each.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use profiler_daemon::session::{Capture, NewSession, Numbered, Purpose, SessionInfo, SlowSpan, SpansPicture};
use profiler_plan::values::Reading;
use serde_json::Value;

use super::{
    fixture::{Fixture, small_scale, spec},
    service::{Ends, ROOT, Service, session_of, slowest},
};

impl Ends for SpansPicture {
    fn ended(&self) -> Option<&str> {
        self.ended.as_deref()
    }
}

type Pictures = profiler_daemon::session::Pictures<SpansPicture>;

/// Attaches a scope, with a value read where each call begins.
fn watch_at(
    service: &Service,
    pid: u32,
    scope: &str,
    print: &str,
    (wanted, frequency_hz): (usize, u32),
) -> (SessionInfo, Pictures) {
    let request = NewSession {
        frequency_hz,
        window_ns: 600_000_000_000,
        capture: Some(Capture {
            print: vec![profiler_scope::expression::parse(print).unwrap()],
            hits_per_second: 100_000,
            stack: false,
            purpose: Purpose::Shown,
        }),
        ..session_of(pid, scope)
    };
    let session = service
        .runtime
        .block_on(service.handle.create(ROOT, request))
        .unwrap();
    let pictures = service.watch_spans(&session, wanted);
    (session, pictures)
}

fn watch(service: &Service, pid: u32, scope: &str, print: &str, wanted: usize) -> (SessionInfo, Pictures) {
    // Where everything is slow, so are samples, and what they take is not in a duration.
    let frequency_hz = if small_scale() { 99 } else { 999 };
    watch_at(service, pid, scope, print, (wanted, frequency_hz))
}

/// Ends a session and gives the last picture.
fn last(service: &Service, (session, mut pictures): (SessionInfo, Pictures)) -> Numbered<SpansPicture> {
    service.end(&session);
    service.until(&mut pictures, |picture| picture.ended.is_some())
}

/// The value that was read where a call began.
fn value(span: &SlowSpan) -> u64 {
    match &span.values.as_ref().unwrap()[0].reading {
        Reading::Ok(value) => value.to_string().parse().unwrap(),
        other => panic!("it is {other}"),
    }
}

/// The functions of a call's stack, root first.
fn functions(picture: &SpansPicture, span: &SlowSpan) -> Vec<String> {
    let frames = span.stack.iter();
    frames
        .map(|frame| picture.frames[frame.0 as usize].function.to_string())
        .collect()
}

/// The durations that `latencies` asks for: as it draws them.
fn asked_ns(calls: usize, seed: u64) -> Vec<u64> {
    let exponential = |x: f64| {
        let y = x / 64.0;
        let sum = 1.0 + y * (1.0 + y / 2.0 * (1.0 + y / 3.0 * (1.0 + y / 4.0 * (1.0 + y / 5.0))));
        (0..6).fold(sum, |sum, _| sum * sum)
    };
    let mut state = seed;
    (0..calls)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let uniform = (state >> 11) as f64 / 9_007_199_254_740_992.0;
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "as it is there"
            )]
            let ns = (100_000.0 * exponential(6.907_755_278_982_137 * uniform)) as u64;
            ns
        })
        .collect()
}

#[test]
#[ignore = "needs root"]
fn the_slowest_calls_are_those_of_the_targets_own_clock() {
    let service = Service::start();
    let (calls, wanted): (usize, usize) = if small_scale() { (50, 1) } else { (400, 5) };
    let mut target = Fixture::start("latencies", &[calls.to_string(), "7".into(), "mixed".into()]);
    target.prefer();
    let watched = watch_at(&service, target.pid(), "work", "ns", (wanted, 49));
    target.say("go");
    let mut latencies = None;
    loop {
        let line = target.line();
        assert!(!line.is_empty(), "it ended early:\n{}", target.output);
        if let Some(json) = line.strip_prefix("latencies ") {
            latencies = Some(serde_json::from_str::<Value>(json).unwrap());
        }
        if line.starts_with("truth ") {
            break;
        }
    }
    let picture = last(&service, watched);
    assert_eq!(target.finish().status, Some(0));
    println!(
        "{} calls, recorded from {} ns, {:?}",
        picture.calls, picture.threshold_ns, picture.lost
    );
    let seen: Vec<(u64, u64)> = picture
        .spans
        .iter()
        .map(|span| (span.duration_ns, value(span)))
        .collect();
    println!("{seen:?}");
    assert_eq!((picture.calls, seen.len()), (calls as u64, wanted));
    assert!(seen.is_sorted_by(|one, other| one.0 >= other.0), "{seen:?}");
    // A call takes at least as long as it is asked to, less what samples take of it.
    let at_least = |took_ns: u64, ns: u64| took_ns + took_ns / 50 >= ns;
    let mut asked = asked_ns(calls, 7);
    asked.sort_unstable();
    let fastest = seen[wanted - 1].0;
    assert!(at_least(fastest, asked[calls - wanted]), "{seen:?}");
    let shown: BTreeSet<u64> = seen.iter().map(|(_, asked)| *asked).collect();
    for (took_ns, asked_ns) in &seen {
        assert!(
            at_least(*took_ns, *asked_ns) && asked.contains(asked_ns),
            "{seen:?}"
        );
    }
    for asked_ns in asked.iter().filter(|ns| !at_least(fastest, **ns)) {
        assert!(shown.contains(asked_ns), "{asked_ns} is not shown: {seen:?}");
    }
    // The slowest, and the one that is p99 by its rank.
    let latencies = latencies.unwrap();
    let truth = |clock: &str, what: &str| latencies[clock][what].as_u64().unwrap();
    let ranks: &[(usize, &str)] = if small_scale() {
        &[(0, "max_ns")]
    } else {
        &[(0, "max_ns"), (4, "p99_ns")]
    };
    for (rank, what) in ranks {
        let (ours, inside, outside) = (seen[*rank].0, truth("inside", what), truth("outside", what));
        println!("{what}: ours {ours}, the target's {inside} inside and {outside} around the call");
        // What samples took of a call is not in ours.
        assert!(
            ours + ours / 100 >= inside && ours <= outside,
            "{what}: {ours} {latencies}"
        );
    }
    // Not each call was recorded.
    assert!(small_scale() || picture.threshold_ns > 100_000);
}

#[test]
#[ignore = "needs root"]
fn a_slow_call_has_what_was_inside_and_the_stack_that_it_was_in() {
    let service = Service::start();
    let mut target = Fixture::start("slowpath", &spec("slowpath").args);
    target.prefer();
    let watched = watch(&service, target.pid(), "f[> 15ms]/slow_inner", "i", 100);
    let truth = target.run();
    let picture = last(&service, watched);
    assert_eq!(target.finish().status, Some(0));
    println!("{} calls, {:?}", picture.calls, picture.lost);
    assert_eq!(picture.lost.values().sum::<u64>(), 0);
    let is_slow = |span: &&Arc<SlowSpan>| [16, 33, 49].contains(&(value(span) % 50));
    let slow: Vec<_> = picture.spans.iter().filter(is_slow).collect();
    // Others had to wait for a CPU, if there are any.
    assert_eq!(slow.len() as u64, truth["slow_path"].calls);
    let numbers: BTreeSet<u64> = slow.iter().map(|span| value(span)).collect();
    assert_eq!(numbers.len(), slow.len());
    let mut stacks = 0;
    for span in &picture.spans {
        let is_slow = is_slow(&span);
        assert_eq!(span.children.len(), usize::from(is_slow), "{span:?}");
        for child in &span.children {
            let took_ns = child.duration_ns.unwrap();
            assert_eq!(&*child.place, "slow_inner");
            assert!(
                took_ns >= 15_000_000
                    && child.offset_ns + took_ns <= span.duration_ns + span.duration_ns / 10,
                "{span:?}"
            );
        }
        assert!(span.sampled && span.stack_samples <= span.samples, "{span:?}");
        let functions = functions(&picture, span);
        if is_slow && span.samples > 2 {
            let position = |name: &str| functions.iter().position(|known| known == name);
            assert!(
                position("f") < position("slow_path") && position("slow_path") < position("slow_inner"),
                "{functions:?}"
            );
            assert!(position("f").is_some(), "{functions:?}");
            stacks += 1;
        }
    }
    assert!(
        small_scale() || stacks * 2 > slow.len(),
        "{stacks} of {} have stacks",
        slow.len()
    );
}

/// The number of the source line that has this comment.
fn line(comment: &str) -> String {
    let source = include_str!("../fixtures/engine/paths.c");
    let at = source
        .lines()
        .position(|line| line.contains(&format!("/* {comment} */")));
    format!("paths.c:{}", at.unwrap() + 1)
}

#[test]
#[ignore = "needs root"]
fn what_was_inside_is_told_to_the_call() {
    let service = Service::start();
    let mut target = Fixture::start("paths", &spec("paths").args);
    target.prefer();
    let marked = line("the marked line");
    let of_line = format!("outer/{marked}");
    let both = format!("outer[> 1500us]/{marked}/inner");
    let scopes = ["outer[> 1500us]/inner", &of_line, &both];
    let watched = scopes.map(|scope| watch(&service, target.pid(), scope, "n", 100));
    target.run();
    let [inner, lines, behind] = watched.map(|watched| last(&service, watched));
    assert_eq!(target.finish().status, Some(0));
    for picture in [&inner, &lines, &behind] {
        println!(
            "{}: {} of {} calls, from {} ns, {:?}",
            picture.scope,
            picture.spans.len(),
            picture.calls,
            picture.threshold_ns,
            picture.lost
        );
        // Those that were left by longjmp are nobody's.
        assert!(picture.spans.iter().all(|span| value(span) % 7 != 6));
    }
    let count = |span: &SlowSpan, place: &str| {
        let of_place = span.children.iter().filter(|child| &*child.place == place);
        of_place.count() as u64
    };
    assert!(inner.spans.len() > 5);
    for span in &inner.spans {
        let n = value(span);
        let called = 1 + u64::from(n % 4 == 1) + u64::from(n % 10 == 3);
        assert_eq!(
            (count(span, "inner"), span.children.len() as u64),
            (called, called),
            "{span:?}"
        );
        assert!(span.children.is_sorted_by_key(|child| child.offset_ns));
    }
    // Only calls in which the line was reached, each with when it was.
    assert!(lines.spans.len() > 5);
    for span in &lines.spans {
        assert_eq!(
            (value(span) % 4, count(span, &marked), span.children.len()),
            (1, 1, 1),
            "{span:?}"
        );
        assert_eq!(span.children[0].duration_ns, None);
        // What samples and probes took is not in a duration: on a slow machine, that is most of a call.
        assert!(small_scale() || span.children[0].offset_ns <= span.duration_ns + 1_000_000);
    }
    assert!(!behind.spans.is_empty());
    for span in &behind.spans {
        let n = value(span);
        let called = 1 + u64::from(n % 10 == 3);
        assert_eq!(n % 4, 1, "{span:?}");
        assert_eq!(
            (count(span, &marked), count(span, "inner")),
            (1, called),
            "{span:?}"
        );
        assert_eq!(&*span.children[0].place, marked);
    }
}

#[test]
#[ignore = "needs root"]
fn an_edit_of_the_scope_goes_on_with_what_it_shows() {
    let service = Service::start();
    let mut target = Fixture::start("slowpath", &[]);
    target.prefer();
    let (session, mut pictures) = watch(&service, target.pid(), "f", "i", 3);
    target.say("go");
    let three = service.until(&mut pictures, |picture| picture.spans.len() == 3);
    let edit = |scope: &str| {
        let editing = service
            .handle
            .set_scope(ROOT, session.name.clone(), scope.to_owned());
        service.runtime.block_on(editing).unwrap();
    };
    // The same calls: none is forgotten.
    edit("f[> 10us]");
    let same = service.until(&mut pictures, |picture| &*picture.scope == "f[> 10us]");
    assert_eq!(same.spans.len(), 3);
    for (now, before) in same.spans.iter().zip(&three.spans) {
        assert!(now.duration_ns >= before.duration_ns, "{same:?} {three:?}");
    }
    assert!(same.watched_ns > three.watched_ns);
    let before = Instant::now();
    edit("slow_inner");
    let others = service.until(&mut pictures, |picture| {
        &*picture.scope == "slow_inner" && !picture.spans.is_empty()
    });
    assert!(others.spans.iter().all(|span| span.function.name == "slow_inner"));
    assert!(Duration::from_nanos(others.watched_ns) <= before.elapsed());
    assert!(others.watched_ns > 0 && others.calls > 0);
    let line = "slowpath.c:34".to_owned();
    assert!(
        service
            .runtime
            .block_on(service.handle.set_scope(ROOT, session.name.clone(), line))
            .is_ok()
    );
    let empty = service.until(&mut pictures, |picture| picture.spans.is_empty());
    assert_eq!((empty.watched_ns, empty.calls), (0, 0));
    let watching = service
        .handle
        .watch_spans(ROOT, session.name.clone(), 100_000_000, slowest(1));
    let refused = service.runtime.block_on(watching).unwrap_err();
    assert!(refused.message.contains("has no calls"), "{refused}");
    // The target has been sampled all the while.
    edit("f");
    let again = service.until(&mut pictures, |picture| {
        &*picture.scope == "f" && picture.spans.len() == 3 && picture.spans.iter().all(|span| span.sampled)
    });
    assert!(again.sampled);
    service.end(&session);
}
