//! Calls divided by a value against what the target says of each call.

use std::collections::BTreeMap;

use profiler_daemon::session::{
    CallsByValue, Capture, LatencyPicture, NewSession, Numbered, Purpose, Reason, ScopeEdit, SessionError,
    SessionInfo, TargetSpec, ValueCalls,
};
use profiler_plan::values::Reading;
use serde_json::Value;

use super::{
    fixture::{Fixture, spec},
    service::{ROOT, Service, ended, session_of},
    skipped,
};

/// Beyond everything that is mapped.
const BEYOND: &str = "request[100000000000].kind";

fn attach(service: &Service, pid: u32, scope: &str, by: &str) -> Result<SessionInfo, SessionError> {
    attach_limited(service, pid, scope, by, 100_000)
}

fn attach_limited(
    service: &Service,
    pid: u32,
    scope: &str,
    by: &str,
    hits_per_second: u32,
) -> Result<SessionInfo, SessionError> {
    attach_all(service, &[pid], scope, by, hits_per_second)
}

fn attach_all(
    service: &Service,
    pids: &[u32],
    scope: &str,
    by: &str,
    hits_per_second: u32,
) -> Result<SessionInfo, SessionError> {
    let request = NewSession {
        capture: Some(Capture {
            print: vec![profiler_scope::expression::parse(by).unwrap()],
            hits_per_second,
            stack: false,
            purpose: Purpose::Divided,
        }),
        target: TargetSpec::Pids(pids.to_vec()),
        ..session_of(0, scope)
    };
    service.runtime.block_on(service.handle.create(ROOT, request))
}

fn total(calls: &ValueCalls) -> u64 {
    calls.counts.iter().map(|(_, count)| count).sum()
}

/// The only function's calls, which are accounted for: by the text of the value.
fn accounted(picture: &LatencyPicture) -> (BTreeMap<String, ValueCalls>, &CallsByValue) {
    let [by] = picture.by.as_slice() else {
        panic!("{:?}", picture.by)
    };
    let rows: u64 = by.values.iter().map(|(_, calls)| total(calls)).sum();
    let not_divided: u64 = by.not_divided.values().sum();
    println!(
        "{} by {}: {} calls, {} values, {rows} in rows, {} other, not divided {:?}",
        picture.scope,
        by.expression,
        by.calls,
        by.values.len(),
        total(&by.other),
        by.not_divided
    );
    assert_eq!(by.calls, rows + total(&by.other) + not_divided);
    assert!(by.values.len() <= 64);
    let time = |calls: &ValueCalls| calls.summary.count * calls.summary.times.unwrap().mean_ns;
    assert!(
        by.values
            .is_sorted_by(|(_, a), (_, b)| time(a) >= time(b) * 0.999_999)
    );
    let rows = by
        .values
        .iter()
        .map(|(reading, calls)| (reading.to_string(), calls.clone()));
    (rows.collect(), by)
}

/// A member of what the target tells of a call, as a value is shown.
fn shown(hit: &Value, member: &str) -> String {
    hit[member].to_string()
}

/// What the target tells of each call of `serve`.
fn told(target: &Fixture) -> Vec<Value> {
    let lines = target.output.lines().filter_map(|line| line.strip_prefix("hit "));
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
#[ignore = "needs root"]
fn each_value_has_the_calls_that_the_target_made_with_it() {
    for level in ["hits_o0", "hits_o1", "hits_o2"] {
        let service = Service::start();
        let mut target = Fixture::start(level, &["2000".to_owned(), "tell".to_owned()]);
        let pid = target.pid();
        let [kind, name, n, unreadable] = ["request->kind", "request->name", "n", BEYOND]
            .map(|by| attach(&service, pid, "serve", by).unwrap());
        target.run();
        let told = told(&target);
        assert_eq!(told.len(), 2000);

        let picture = service.last_latency(&kind);
        let (rows, by) = accounted(&picture);
        assert_eq!((by.calls, &*by.type_name, rows.len()), (2000, "int", 7));
        assert!(by.not_divided.is_empty());
        let clock = |hit: &Value, key: &str| hit[key].as_u64().unwrap();
        for (value, calls) in &rows {
            let own: Vec<&Value> = told.iter().filter(|hit| shown(hit, "kind") == *value).collect();
            assert_eq!(total(calls), own.len() as u64, "{level}: {value}");
            // What the target's clock says within and around: less than a bucket off.
            let times = calls.summary.times.unwrap();
            let within = own
                .iter()
                .map(|hit| clock(hit, "ended_ns") - clock(hit, "began_ns"));
            let around = own
                .iter()
                .map(|hit| clock(hit, "after_ns") - clock(hit, "before_ns"));
            let (least, most) = (within.min().unwrap(), around.max().unwrap());
            assert!(times.min_ns >= least - least / 100 - 1, "{times:?} {least}");
            assert!(times.max_ns <= most + most / 100 + 1, "{times:?} {most}");
        }

        let picture = service.last_latency(&name);
        let (rows, _) = accounted(&picture);
        assert_eq!(rows.len(), 3);
        for (value, calls) in &rows {
            let own = told.iter().filter(|hit| shown(hit, "name") == *value).count();
            assert_eq!(total(calls), own as u64, "{level}: {value}");
        }

        // Of more values than have a histogram, those that came first.
        let picture = service.last_latency(&n);
        let (rows, by) = accounted(&picture);
        assert_eq!(rows.len(), 64);
        assert!((0..64).all(|n: u64| total(&rows[&n.to_string()]) == 1));
        assert_eq!(total(&by.other), 2000 - 64);

        let picture = service.last_latency(&unreadable);
        let (rows, by) = accounted(&picture);
        assert_eq!(total(&rows["<unreadable>"]), 2000, "{by:?}");
        assert!(matches!(by.values.as_slice(), [(Reading::Unreadable(_), _)]));
        assert_eq!(target.finish().status, Some(0));
    }
}

#[test]
#[ignore = "needs root"]
fn processes_that_run_one_function_have_its_rows_in_common() {
    let service = Service::start();
    let mut targets = ["700", "1400"].map(|calls| Fixture::start("hits_o2", &[calls.to_owned()]));
    let pids = targets.each_ref().map(Fixture::pid);
    let session = attach_all(&service, &pids, "serve", "request->kind", 100_000).unwrap();
    for target in &mut targets {
        target.run();
    }
    let picture = service.last_latency(&session);
    let (rows, by) = accounted(&picture);
    assert_eq!((by.calls, rows.len()), (2100, 7));
    assert!(rows.values().all(|calls| total(calls) == 300), "{rows:?}");
    for target in targets {
        assert_eq!(target.finish().status, Some(0));
    }
}

#[test]
#[ignore = "needs root"]
fn a_function_without_the_value_says_so() {
    let service = Service::start();
    let mut targets = ["longjmp", "paths"].map(|name| Fixture::start(name, &spec(name).args));
    let pids = targets.each_ref().map(Fixture::pid);
    let session = attach_all(&service, &pids, "outer", "n", 100_000).unwrap();
    for target in &mut targets {
        target.run();
    }
    let picture = service.last_latency(&session);
    let of = |module: &str| {
        let mut functions = picture.functions.iter();
        let function = functions.find(|function| function.function.module.ends_with(module));
        let id = function.unwrap().id;
        picture.by.iter().find(|by| by.function == id).unwrap()
    };
    let [(Reading::Unsupported(reason), calls)] = of("longjmp").values.as_slice() else {
        panic!("{:?}", of("longjmp"))
    };
    println!("{} calls: {reason}", total(calls));
    assert!(reason.contains("no variable n is visible here"), "{reason}");
    assert_eq!(total(calls), spec("longjmp").truth["outer"].returned);
    let rows = &of("paths").values;
    assert!(rows.iter().all(|(reading, _)| matches!(reading, Reading::Ok(_))));
    assert_eq!(
        (rows.len(), of("paths").calls),
        (64, spec("paths").truth["outer"].calls)
    );
    for target in targets {
        assert_eq!(target.finish().status, Some(0));
    }
}

#[test]
#[ignore = "needs root"]
fn what_is_not_divided_has_a_reason() {
    let service = Service::start();
    let mut target = Fixture::start("hits_o2", &spec("hits_o2").args);
    let calls = spec("hits_o2").truth["serve"].calls;
    let limited = attach_limited(&service, target.pid(), "serve", "request->kind", 100).unwrap();
    let conditional = attach(&service, target.pid(), "serve[request->kind == 3]", "n").unwrap();
    target.run();
    let picture = service.last_latency(&limited);
    let (rows, by) = accounted(&picture);
    assert_eq!((by.calls, ended(&picture.functions[0])), (calls, calls));
    let divided: u64 = rows.values().map(total).sum();
    assert!(divided >= 10 && divided < calls / 2, "{divided}");
    assert_eq!(by.not_divided.keys().copied().collect::<Vec<_>>(), ["rate_limit"]);
    let picture = service.last_latency(&conditional);
    let (rows, by) = accounted(&picture);
    assert_eq!(
        (by.calls, total(&by.other)),
        (
            calls.div_ceil(7) - u64::from((1..=3).contains(&(calls % 7))),
            by.calls - 64
        )
    );
    assert!(
        rows.keys().all(|n| n.parse::<u64>().unwrap() % 7 == 3),
        "{:?}",
        rows.keys()
    );
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn calls_that_are_jumped_over_are_not_divided() {
    let service = Service::start();
    let mut target = Fixture::start("paths", &spec("paths").args);
    target.prefer();
    let outer = attach(&service, target.pid(), "outer", "n").unwrap();
    let of_slow = attach(&service, target.pid(), "outer[> 1500us]/inner", "n").unwrap();
    let of_all = attach(&service, target.pid(), "outer/inner", "n").unwrap();
    target.run();
    let truth = &spec("paths").truth["outer"];

    let picture = service.last_latency(&outer);
    let (_, by) = accounted(&picture);
    assert_eq!(by.calls, truth.calls);
    assert_eq!(by.not_divided, [("abandoned", truth.abandoned)].into());

    // Divided are those that the histogram of all has.
    let picture = service.last_latency(&of_slow);
    let (rows, by) = accounted(&picture);
    assert_eq!(
        (by.calls, by.not_divided.len()),
        (ended(&picture.functions[0]), 0)
    );
    // In calls with n % 10 = 3, which are slow for certain.
    let is_of_slow = |n: u64| [3, 4, 5].contains(&(n % 10));
    let of_slow = rows.iter().filter(|(n, _)| is_of_slow(n.parse().unwrap()));
    let calls: u64 = of_slow.map(|(_, calls)| total(calls)).sum();
    println!(
        "{calls} of {} in rows are of calls that were made slow",
        by.calls - total(&by.other)
    );
    assert!(calls > 32 && by.calls >= truth.calls / 10);

    let picture = service.last_latency(&of_all);
    let (_, by) = accounted(&picture);
    assert_eq!(by.calls, ended(&picture.functions[0]));
    assert!(by.not_divided.is_empty());
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn an_edit_and_its_undoing_keep_what_was_divided() {
    let service = Service::start();
    let mut target = Fixture::start("paths", &["until-told".to_owned()]);
    let session = attach(&service, target.pid(), "outer", "n").unwrap();
    let mut pictures = service.watch_latency(&session);
    let edit = |edit: ScopeEdit| {
        let editing = service.handle.edit_scope(ROOT, session.name.clone(), edit);
        service.runtime.block_on(editing).map(|info| info.scope)
    };
    target.say("go");
    let ends = |picture: &LatencyPicture| picture.by.first().map_or(0, |by| by.calls);
    service.until(&mut pictures, |picture| ends(picture) > 50);
    edit(ScopeEdit::Append("inner".into())).unwrap();
    service.until(&mut pictures, |picture| {
        *picture.scope == *"outer/inner" && ends(picture) > 50
    });
    let refused = edit(ScopeEdit::Set("paths.c:30".into())).unwrap_err();
    assert_eq!(refused.reason, Reason::ArgumentInvalid);
    assert!(
        refused.message.contains("is a line, which has no duration"),
        "{refused}"
    );
    edit(ScopeEdit::Undo(1)).unwrap();
    target.say("enough");
    let truth = target.truth()["outer"];
    let picture = service.last_latency(&session);
    let (_, by) = accounted(&picture);
    assert_eq!(by.calls, truth.calls);
    assert!(
        by.not_divided.contains_key("not_recorded"),
        "{:?}",
        by.not_divided
    );
    assert!(!by.not_divided.contains_key("end_lost"), "{:?}", by.not_divided);
    assert_eq!(target.finish().status, Some(0));
}

/// The calls of a target that runs while a session's scope is edited, by a global variable, which can be read anywhere:
/// the last picture, and the number of calls of `outer`.
fn edited(scope: &str, edit: ScopeEdit) -> (Numbered<LatencyPicture>, u64) {
    let service = Service::start();
    let mut target = Fixture::start("paths", &["until-told".to_owned()]);
    let session = attach(&service, target.pid(), scope, "marked").unwrap();
    let mut pictures = service.watch_latency(&session);
    target.say("go");
    let calls = |picture: &LatencyPicture| picture.by.first().map_or(0, |by| by.calls);
    service.until(&mut pictures, |picture| calls(picture) > 20);
    let editing = service.handle.edit_scope(ROOT, session.name.clone(), edit);
    let scope = service.runtime.block_on(editing).unwrap().scope;
    // Among the calls are those from before the edit.
    let divided = |picture: &LatencyPicture| {
        let values = picture.by.iter().flat_map(|by| &by.values);
        values.map(|(_, calls)| total(calls)).sum::<u64>()
    };
    service.until(&mut pictures, |picture| {
        *picture.scope == *scope && divided(picture) > 20
    });
    target.say("enough");
    let outer = target.truth()["outer"].calls;
    let picture = service.last_latency(&session);
    assert_eq!(target.finish().status, Some(0));
    (picture, outer)
}

/// Whether some calls began before their step became the last one, and none of what came later is lost. A call that ends just when the
/// step does may be taken for one whose record is lost: the program had not been told yet, and the count was read.
fn assert_not_recorded(by: &CallsByValue) {
    let count = |reason: &str| by.not_divided.get(reason).copied().unwrap_or(0);
    assert!(count("not_recorded") > 0, "{:?}", by.not_divided);
    assert!(count("end_lost") <= 1, "{:?}", by.not_divided);
    assert_eq!(count("under_way"), 0, "{:?}", by.not_divided);
}

#[test]
#[ignore = "needs root"]
fn a_step_that_is_appended_is_divided_from_its_first_call() {
    let (picture, _) = edited("outer", ScopeEdit::Append("inner".into()));
    assert_eq!(&*picture.scope, "outer/inner");
    let (_, by) = accounted(&picture);
    assert_eq!(by.calls, ended(&picture.functions[0]));
    assert!(by.not_divided.is_empty(), "{:?}", by.not_divided);
}

#[test]
#[ignore = "needs root"]
fn calls_from_before_their_step_was_the_last_one_are_not_recorded() {
    let (picture, outer) = edited("outer/inner", ScopeEdit::Drop(1));
    assert_eq!(&*picture.scope, "outer");
    let (_, by) = accounted(&picture);
    assert_eq!(by.calls, outer);
    assert_not_recorded(by);
}

#[test]
#[ignore = "needs root"]
fn so_are_those_that_waited_for_a_duration() {
    let target = Fixture::start("paths", &["1".to_owned()]);
    if Service::start().attach(target.pid(), "").unwrap().perf_links {
        return skipped("calls made at a line cannot be timed before Linux 6.10");
    }
    let header = include_str!("../fixtures/engine/fixture.h");
    let at = header
        .lines()
        .position(|line| line.contains("clock_gettime("))
        .unwrap()
        + 1;
    let scope = format!("outer[> 1us]/inner/clock_gettime@fixture.h:{at}");
    let (picture, _) = edited(&scope, ScopeEdit::Drop(1));
    assert_eq!(&*picture.scope, "outer[> 1us]/inner");
    let (rows, by) = accounted(&picture);
    assert_eq!(by.calls, ended(&picture.functions[0]));
    assert!(rows.values().map(total).sum::<u64>() > 20);
    assert_not_recorded(by);
}

#[test]
#[ignore = "needs root"]
fn what_cannot_be_divided_is_refused_with_a_reason() {
    let service = Service::start();
    let target = Fixture::start("hits_o2", &["1".to_owned()]);
    let pid = target.pid();
    for (scope, by, reason, words) in [
        (
            "serve",
            "nosuch",
            Reason::ExpressionRefused,
            "no variable nosuch is visible here",
        ),
        (
            "serve",
            "request->nosuch",
            Reason::ExpressionRefused,
            "no member nosuch",
        ),
        (
            "hits.c:20",
            "n",
            Reason::ArgumentInvalid,
            "is a line, which has no duration",
        ),
        ("", "n", Reason::ArgumentInvalid, "the scope is empty"),
    ] {
        let error = attach(&service, pid, scope, by).unwrap_err();
        println!("{scope} by {by}: {error}");
        assert_eq!(error.reason, reason, "{error}");
        assert!(error.message.contains(words), "{error}");
    }
    // Its hits are not shown.
    let session = attach(&service, pid, "serve", "n").unwrap();
    let watching = service.handle.watch_trace(ROOT, session.name.clone());
    assert!(service.runtime.block_on(watching).is_err());
    let picture: Numbered<LatencyPicture> = service.last_latency(&session);
    assert_eq!(picture.by[0].calls, 0);
    assert_eq!(target.finish().status, Some(0));
}
