//! Calls of functions that are inlined, against what the target counts of them.

use std::collections::BTreeMap;

use profiler_daemon::session::{
    Capture, LatencyPicture, NewSession, Numbered, Purpose, Reason, ScopeEdit, SessionInfo, TargetSpec,
};

use super::{
    fixture::{Fixture, Truth, small_scale, spec},
    service::{ROOT, Service, ended, function},
};

/// The number of the source line with a text, and `below` it.
fn line(text: &str, below: usize) -> String {
    let source = include_str!("../fixtures/engine/inlines.c");
    let at = source.lines().position(|line| line.contains(text)).unwrap();
    format!("inlines.c:{}", at + 1 + below)
}

const BUILDS: [&str; 3] = ["inlines_o1", "inlines_o2", "inlines_o3"];

/// What a picture counts of all of a name's functions and instances: ended, left by a jump or open, mean in nanoseconds.
fn seen(picture: &LatencyPicture) -> (u64, u64, f64) {
    let lost = picture
        .functions
        .iter()
        .flat_map(|function| &function.lost)
        .chain(&picture.lost);
    let lost: BTreeMap<_, _> = lost.filter(|(_, count)| **count > 0).collect();
    assert!(lost.is_empty(), "{}: {lost:?}", picture.scope);
    let functions = || picture.functions.iter();
    let count: u64 = functions().map(ended).sum();
    let left: u64 = functions()
        .map(|function| function.abandoned + function.open)
        .sum();
    let sum = |function: &profiler_daemon::session::FunctionLatency| {
        let times = function.summaries.since_start.times;
        times.map_or(0.0, |times| times.mean_ns * ended(function) as f64)
    };
    (
        count,
        left,
        functions().map(sum).sum::<f64>() / count.max(1) as f64,
    )
}

/// Runs a target with sessions on all of these scopes; gives what they saw, and the target's truth and output.
fn run(
    service: &Service,
    build: &str,
    scopes: &[&str],
) -> (
    BTreeMap<String, Numbered<LatencyPicture>>,
    BTreeMap<String, Truth>,
    String,
) {
    let mut target = Fixture::start(build, &spec(build).args);
    target.prefer();
    let sessions: Vec<(&str, SessionInfo)> = scopes
        .iter()
        .map(|&scope| {
            let session = service.attach(target.pid(), scope);
            (scope, session.unwrap_or_else(|error| panic!("{scope}: {error}")))
        })
        .collect();
    let truth = target.run();
    let pictures = sessions
        .iter()
        .map(|(scope, session)| ((*scope).to_owned(), service.last_latency(session)))
        .collect();
    let ended = target.finish();
    assert_eq!(ended.status, Some(0));
    (pictures, truth, ended.output)
}

/// Whether calls made at a line are timed on this kernel.
fn sees_calls(service: &Service, build: &str, scope: &str) -> bool {
    let target = Fixture::start(build, &spec(build).args);
    let seen = service.attach(target.pid(), scope);
    if let Err(error) = &seen {
        assert!(error.message.contains("before Linux 6.10"), "{error}");
    }
    seen.is_ok()
}

fn check_counts(service: &Service, build: &str) {
    let names = [
        "plain", "calling", "around", "within", "rare", "deep", "jumped", "timed",
    ];
    let scopes: Vec<String> = names.iter().map(|name| format!("{name}@inlined")).collect();
    let mut scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
    // What is called from inside, and what holds it.
    scopes.extend(["callee", "holder", "jumper", "outer"]);
    let (pictures, truth, output) = run(service, build, &scopes);
    for (scope, picture) in &pictures {
        let truth = truth[scope.trim_end_matches("@inlined")];
        let (count, left, mean_ns) = seen(picture);
        let instances = picture.functions.len();
        println!(
            "{build} {scope}: {count} ended, {left} left, {mean_ns:.0} ns, {instances} places; {truth:?}"
        );
        assert_eq!(
            (count, left),
            (truth.returned, truth.abandoned),
            "{build} {scope}"
        );
    }
    let timed = output
        .lines()
        .find_map(|line| line.strip_prefix("timed "))
        .unwrap();
    let timed: serde_json::Value = serde_json::from_str(timed).unwrap();
    let theirs = timed["mean_ns"].as_f64().unwrap();
    let (_, _, ours) = seen(&pictures["timed@inlined"]);
    println!("{build} timed: ours {ours:.0} ns, the target's {theirs:.0} ns");
    // It looks at the clock within what is timed.
    assert!(ours >= 0.98 * theirs, "ours {ours}, the target's {theirs}");
    if !small_scale() {
        assert!(ours <= 1.25 * theirs, "ours {ours}, the target's {theirs}");
    }
}

#[test]
#[ignore = "needs root"]
fn inlined_calls_are_counted_and_timed() {
    let service = Service::start();
    for build in BUILDS {
        check_counts(&service, build);
    }
}

#[test]
#[ignore = "needs root"]
fn inlined_calls_that_exceptions_leave_are_left() {
    let service = Service::start();
    for build in ["throws_o1", "throws_o2"] {
        check_inlined(
            &service,
            build,
            &["risky@inlined", "wraps@inlined", "thrower", "catches", "passes"],
        );
    }
}

#[test]
#[ignore = "needs root"]
fn inlined_calls_around_and_beside_a_switch_are_counted() {
    let service = Service::start();
    for build in ["switched_o1", "switched_o2"] {
        let names = ["chosen@inlined", "beside@inlined", "holder", "chooser", "callee"];
        check_inlined(&service, build, &names);
    }
}

/// Holds what these scopes count against what the target says of each, also of what is inlined.
fn check_inlined(service: &Service, build: &str, scopes: &[&str]) {
    let (pictures, mut truth, output) = run(service, build, scopes);
    let said = output.lines().find_map(|line| line.strip_prefix("inlined "));
    let said: BTreeMap<String, serde_json::Value> = serde_json::from_str(said.unwrap()).unwrap();
    for (name, counts) in said {
        let count = |what: &str| counts[what].as_u64().unwrap();
        let counted = Truth {
            calls: count("calls"),
            returned: count("returned"),
            abandoned: count("abandoned"),
        };
        truth.insert(name, counted);
    }
    for (scope, picture) in &pictures {
        let truth = &truth[scope.trim_end_matches("@inlined")];
        let ends: Vec<(u64, u64, u64)> = picture
            .functions
            .iter()
            .map(|function| (ended(function), function.abandoned, function.open))
            .collect();
        println!("{build} {scope}: {ends:?} ended, left and open; {truth:?}");
        let sum = |of: fn(&(u64, u64, u64)) -> u64| ends.iter().map(of).sum::<u64>();
        assert_eq!(
            (sum(|ends| ends.0), sum(|ends| ends.1), sum(|ends| ends.2)),
            (truth.returned, truth.abandoned, 0),
            "{build} {scope}"
        );
    }
}

#[test]
#[ignore = "needs root"]
fn inlined_calls_are_counted_by_perf_events() {
    let service = Service::start_by_perf();
    check_counts(&service, "inlines_o2");
}

#[test]
#[ignore = "needs root"]
fn inlined_calls_are_steps() {
    let service = Service::start();
    // The first lines of what is inlined, and a call.
    let first = line("INLINED long rare(", 1);
    let behind_first = format!("rare@inlined/{first}/unusual");
    let call = format!("callee@{}", line("INLINED long calling(", 2));
    let called = format!("calling@inlined/{call}");
    let called_joined = format!("calling@inlined[< 1s]/{call}");
    for build in BUILDS {
        let scopes = [
            behind_first.as_str(),
            "once/plain@inlined",
            "outer/calling@inlined",
            "outer[> 1s]/calling@inlined",
            "calling@inlined/callee",
            "calling@inlined[> 1s]/callee",
            "calling@inlined[< 1s]/callee",
            "around@inlined/within@inlined",
            "around@inlined[< 1s]/within@inlined",
            "holder/deep@inlined",
            "deep@inlined/holder",
            "rare@inlined/unusual",
        ];
        let with_calls = [called.as_str(), called_joined.as_str()];
        let sees_calls = sees_calls(&service, build, &called);
        let scopes = scopes
            .into_iter()
            .chain(with_calls.into_iter().filter(|_| sees_calls));
        let scopes: Vec<&str> = scopes.collect();
        let (pictures, truth, _) = run(&service, build, &scopes);
        for scope in with_calls.iter().filter_map(|scope| pictures.get(*scope)) {
            let (count, left, _) = seen(scope);
            println!("{build} {}: {count}, {left} left", scope.scope);
            assert_eq!((count, left), (truth["calling"].calls, 0));
        }
        let calls = |name: &str| truth[name].calls;
        let top = calls("top");
        for (scope, expected) in [
            ("outer/calling@inlined", calls("outer")),
            ("outer[> 1s]/calling@inlined", 0),
            (behind_first.as_str(), calls("unusual")),
            ("once/plain@inlined", calls("outer")),
            ("calling@inlined/callee", calls("callee") - calls("within") - top),
            ("calling@inlined[> 1s]/callee", 0),
            (
                "calling@inlined[< 1s]/callee",
                calls("callee") - calls("within") - top,
            ),
            // Once it is called beside.
            ("around@inlined/within@inlined", calls("within") - calls("outer")),
            (
                "around@inlined[< 1s]/within@inlined",
                calls("within") - calls("outer"),
            ),
            ("holder/deep@inlined", calls("deep")),
            // The outermost is called by none.
            ("deep@inlined/holder", calls("holder") - calls("outer")),
            ("rare@inlined/unusual", calls("unusual")),
        ] {
            let (count, left, _) = seen(&pictures[scope]);
            println!("{build} {scope}: {count}, {left} left, of {expected}");
            assert_eq!((count, left), (expected, 0), "{build} {scope}");
        }
    }
}

#[test]
#[ignore = "needs root"]
fn an_instance_of_several_calls_is_left_out() {
    let service = Service::start();
    let target = Fixture::start("inlines_o3", &spec("inlines_o3").args);
    let error = service.attach(target.pid(), "unrolled@inlined").unwrap_err();
    println!("{error}");
    assert_eq!(error.reason, Reason::FunctionOnlyInlined);
    assert!(
        error
            .message
            .contains("1 of 1 inlined instances of unrolled cannot be timed: 1 copied by the compiler, as in an unrolled loop"),
        "{error}"
    );
    let error = service.attach(target.pid(), "nowhere@inlined").unwrap_err();
    assert_eq!(error.reason, Reason::FunctionNotFound, "{error}");
    // It has code of its own, and no instance.
    let session = service.attach(target.pid(), "callee@inlined").unwrap();
    assert_eq!(session.sites.len(), 1);
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn beginnings_are_traced_with_their_values() {
    let service = Service::start();
    let mut target = Fixture::start("inlines_o1", &spec("inlines_o1").args);
    target.prefer();
    let request = NewSession {
        name: String::new(),
        target: TargetSpec::Pid(target.pid()),
        scope: "rare@inlined".to_owned(),
        frequency_hz: 99,
        window_ns: 10_000_000_000,
        half_life_ns: 30_000_000_000,
        lease_ns: 900_000_000_000,
        exit_method: None,
        explain: false,
        allocations: false,
        capture: Some(Capture {
            print: vec![profiler_scope::expression::parse("x").unwrap()],
            hits_per_second: 1_000_000,
            stack: false,
            purpose: Purpose::Shown,
        }),
        budget: None,
    };
    let session = service
        .runtime
        .block_on(service.handle.create(ROOT, request))
        .unwrap();
    let watching = service.handle.watch_trace(ROOT, session.name.clone());
    let mut batches = service.runtime.block_on(watching).unwrap();
    let truth = target.run();
    service.end(&session);
    let mut values = Vec::new();
    loop {
        let batch = batches.blocking_recv().unwrap();
        for hit in batch.hits.iter() {
            assert!(hit.duration_ns.is_some());
            values.push(match &hit.values[0].reading {
                profiler_plan::values::Reading::Ok(value) => value.to_string(),
                other => panic!("x is {other}"),
            });
        }
        if batch.ended.is_some() {
            break;
        }
    }
    let expected: Vec<String> = (0..truth["rare"].calls).map(|x| x.to_string()).collect();
    println!("{} hits of {}", values.len(), expected.len());
    assert_eq!(values, expected);
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn a_line_is_put_behind_an_instance_that_runs() {
    let service = Service::start();
    let mut target = Fixture::start("inlines_o2", &spec("inlines_o2").args);
    let session = service.attach(target.pid(), "rare@inlined").unwrap();
    let first = line("INLINED long rare(", 1);
    let edit = ScopeEdit::Append(format!("{first}/unusual"));
    let editing = service.handle.edit_scope(ROOT, session.name.clone(), edit);
    println!("{}", service.runtime.block_on(editing).unwrap().scope);
    let truth = target.run();
    let (count, left, _) = seen(&service.last_latency(&session));
    assert_eq!((count, left), (truth["unusual"].calls, 0));
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn what_stays_attached_when_a_step_goes_is_not_taken_for_changed_code() {
    let service = Service::start();
    let mut target = Fixture::start("inlines_o2", &spec("inlines_o2").args);
    // Where something inlined may begin at once, the step around it begins at its first instruction.
    let session = service.attach(target.pid(), "outer/calling@inlined").unwrap();
    for scope in ["outer", "outer/calling@inlined", "calling@inlined", "outer"] {
        let edit = ScopeEdit::Set(scope.to_owned());
        let editing = service.handle.edit_scope(ROOT, session.name.clone(), edit);
        service.runtime.block_on(editing).unwrap();
    }
    let mut pictures = service.watch_latency(&session);
    let began = std::time::Instant::now();
    // Changed code is told of within less.
    let picture = service.until(&mut pictures, |_| {
        began.elapsed() > std::time::Duration::from_secs(4)
    });
    assert_eq!(picture.ended, None);
    assert!(function(&picture, "outer").taken_off.is_none());
    let truth = target.run();
    let picture = service.last_latency(&session);
    assert_eq!(ended(function(&picture, "outer")), truth["outer"].calls);
    assert_eq!(target.finish().status, Some(0));
}
