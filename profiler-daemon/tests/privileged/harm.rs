//! What return probes are known to break: the target behaves as if nothing were attached, and every call is
//! timed, abandoned or too deep; none is invented.

use profiler_daemon::session::{
    ExitMethod, NewSession, OffCause, Reason, ScopeEdit, SessionInfo, TargetSpec,
};
use profiler_testkit::skipped;
use serde_json::Value;

use super::{
    fixture::{self, Fixture, spec},
    service::{ROOT, Service, ended, function, session_of},
};

/// Runs a fixture unprobed and probed, and compares.
fn unharmed(name: &str) {
    unharmed_beside(name, None);
}

/// The same, with a function of a library probed as well.
fn unharmed_beside(name: &str, library_function: Option<&str>) {
    let spec = spec(name);
    let mut plain = Fixture::start(name, &spec.args);
    plain.run();
    let plain = plain.finish();

    let service = Service::start();
    let mut target = Fixture::start(name, &spec.args);
    let sessions: Vec<_> = spec
        .probe
        .iter()
        .map(|function| {
            (
                function,
                service.attach(target.pid(), &format!("\"{function}\"")).unwrap(),
            )
        })
        .collect();
    let beside = library_function.map(|name| service.attach(target.pid(), name).unwrap());
    let truth = target.run();
    assert_eq!(truth, spec.truth, "the fixture's own counts");
    if let Some(session) = beside {
        let picture = service.last_latency(&session);
        let seen = &picture.functions[0];
        println!(
            "{}: ended {}, abandoned {}, by {:?}",
            seen.function.name,
            ended(seen),
            seen.abandoned,
            session.sites[0].exit_method
        );
        assert!(ended(seen) + seen.abandoned + seen.open > 0, "it was not called");
    }
    let mut shown = Vec::new();
    for (name, session) in &sessions {
        let picture = service.last_latency(session);
        let seen = function(&picture, name);
        let truth = truth[*name];
        let too_deep = seen.lost.get("too_deep").copied().unwrap_or(0);
        let figures = format!(
            "{name}: {truth:?}, ended {}, abandoned {}, too_deep {too_deep}, open {}, lost {:?}, by {:?}",
            ended(seen),
            seen.abandoned,
            seen.open,
            seen.lost,
            session.sites[0].exit_method,
        );
        shown.push((figures, ended(seen), seen.abandoned + too_deep + seen.open, truth));
    }
    let ended = target.finish();
    assert_eq!(ended.output, plain.output, "the target's output");
    assert_eq!(ended.status, plain.status, "the target's exit status");
    for (figures, ended, given_up, truth) in shown {
        println!("{figures}");
        assert!(ended <= truth.returned, "a span is invented: {figures}");
        assert_eq!(ended + given_up, truth.calls, "a call is missing: {figures}");
    }
}

macro_rules! unharmed {
    ($($name:ident),+ $(,)?) => {
        $(
            #[test]
            #[ignore = "needs root"]
            fn $name() {
                unharmed(stringify!($name));
            }
        )+
    };
}

unharmed!(
    recursion,
    tailcall,
    longjmp,
    exceptions,
    panics,
    pthread_exit,
    pthread_exit_cxx,
    coroutines,
    own_switch,
    altstack,
    thread_exit,
    fork,
    exec,
    churn,
    twice,
    no_return,
    loops,
    misread,
    return_address,
    own_stack,
    goroutines,
);

#[test]
#[ignore = "needs root"]
fn a_function_that_throws_is_counted_and_does_not_end_its_target() {
    unharmed_beside("no_return", Some("__cxa_throw"));
}

#[test]
#[ignore = "needs root"]
fn a_function_that_keeps_its_return_address_leads_back_there() {
    unharmed_beside("return_address", Some("_setjmp"));
}

/// Of what each of two functions jumps to is probed where it returns, and so are the callers of that by itself; a session of its own
/// looks at it as well.
#[test]
#[ignore = "needs root"]
fn a_call_that_ends_in_a_jump_lasts_until_what_it_jumps_to_returns() {
    let spec = spec("tail_times");
    let service = Service::start();
    let mut target = Fixture::start("tail_times", &spec.args);
    let attach = |scope| {
        service
            .attach_by(target.pid(), scope, Some(ExitMethod::Ret))
            .unwrap()
    };
    let (all, outer) = (attach("tail_*"), attach("tail_outer"));
    for words in [
        "(and 1 more) ends in a jump to tail_inner: its calls last until that returns",
        "tail_outer ends in a jump to tail_inner",
    ] {
        let mut warnings = all.warnings.iter().chain(&outer.warnings);
        assert!(warnings.any(|warning| warning.contains(words)), "{words}");
    }
    let truth = target.run();
    assert_eq!(truth, spec.truth, "the fixture's own counts");
    let took = target.output.lines().find_map(|line| line.strip_prefix("took "));
    let took: Value = serde_json::from_str(took.unwrap()).unwrap();
    for session in [&all, &outer] {
        let picture = service.last_latency(session);
        for seen in &picture.functions {
            let name = &*seen.function.name;
            let calls = truth[name].calls;
            assert_eq!((ended(seen), seen.abandoned, seen.open), (calls, 0, 0), "{name}");
            let Some(took_ns) = took[name].as_u64() else {
                continue;
            };
            // Each call computes for so long at least; without what is jumped to, a third would be left, or nothing. The probes at
            // either end are its callers' time.
            let at_least_ns = if name == "tail_outer" {
                calls * 300_000
            } else {
                calls / 2 * 200_000
            };
            let ours_ns = seen.summaries.since_start.times.unwrap().mean_ns * calls as f64;
            println!("{name}: {ours_ns} ns, its callers: {took_ns}");
            assert!(
                ours_ns >= 0.98 * at_least_ns as f64 && ours_ns < 1.02 * took_ns as f64,
                "{name}: {ours_ns} of {took_ns}"
            );
        }
    }
    assert_eq!(target.finish().status, Some(0));
}

/// A call that was left before its jump stays open until something shows that it is over. The return of another caller's call, at the
/// same stack pointer, is not its end.
#[test]
#[ignore = "needs root"]
fn the_return_of_another_callers_call_does_not_end_a_call_that_was_left() {
    let spec = spec("tail_stale");
    let service = Service::start();
    let mut target = Fixture::start("tail_stale", &spec.args);
    let sessions: Vec<_> = (0..2)
        .map(|_| {
            let session = service.attach_by(target.pid(), "leaves", Some(ExitMethod::Ret));
            session.unwrap()
        })
        .collect();
    let truth = target.run();
    assert_eq!(truth, spec.truth, "the fixture's own counts");
    let truth = truth["leaves"];
    for session in &sessions {
        let picture = service.last_latency(session);
        let seen = function(&picture, "leaves");
        assert_eq!(
            (ended(seen), seen.abandoned, seen.open),
            (truth.returned, truth.abandoned, 0),
            "{:?}",
            seen.lost
        );
    }
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn turns_of_a_loop_are_no_calls_whoever_else_looks() {
    let spec = spec("loops");
    let service = Service::start();
    let mut target = Fixture::start("loops", &spec.args);
    let sessions: Vec<_> = (0..2)
        .map(|_| service.attach(target.pid(), "walk").unwrap())
        .collect();
    let truth = target.run()["walk"];
    for session in &sessions {
        let picture = service.last_latency(session);
        let seen = function(&picture, "walk");
        assert_eq!((ended(seen), seen.abandoned), (truth.calls, 0), "{:?}", seen.lost);
    }
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn hooked_functions_and_code_that_can_be_written_to_are_left_out() {
    let spec = spec("hooked");
    let mut plain = Fixture::start("hooked", &spec.args);
    plain.run();
    let plain = plain.finish();

    let service = Service::start();
    let mut target = Fixture::start("hooked", &spec.args);
    for (function, why) in [
        (
            "step_hooked",
            "step_hooked is not probed: its code was changed after it was loaded",
        ),
        (
            "step_open",
            "step_open is not probed: its code is mapped writable",
        ),
    ] {
        let error = service.attach(target.pid(), function).unwrap_err();
        println!("{error}");
        assert_eq!(error.reason, Reason::FunctionNotProbeable);
        assert!(error.message.starts_with(why), "{error}");
    }
    let session = service.attach(target.pid(), "step_*").unwrap();
    println!("{:#?}", session.warnings);
    for function in ["step_hooked", "step_open"] {
        let said = format!("{function} is not probed: ");
        assert!(session.warnings.iter().any(|warning| warning.starts_with(&said)));
    }
    // What is probed already counts as unchanged.
    let again = service.attach(target.pid(), "step_plain").unwrap();
    assert_eq!(target.run(), spec.truth);
    let picture = service.last_latency(&session);
    for seen in ["step_plain", "step_instead"] {
        assert_eq!(ended(function(&picture, seen)), 10);
    }
    assert_eq!(picture.functions.len(), 3);
    assert_eq!(ended(function(&service.last_latency(&again), "step_plain")), 10);
    let ended = target.finish();
    assert_eq!((ended.output, ended.status), (plain.output, plain.status));
}

/// A program that has yet to load a library that throws exceptions through its functions.
fn before_the_library() -> Fixture {
    let library = fixture::directory().join("plugin_library").display().to_string();
    Fixture::start("plugin", &[library])
}

/// Has it load that.
fn load(target: &mut Fixture) {
    target.say("go");
    assert_eq!(target.line(), "loaded");
}

/// Attaches return probes; `None` where this kernel needs none.
fn by_returns(service: &Service, target: &Fixture, scope: &str) -> Option<SessionInfo> {
    let session = service.attach(target.pid(), scope).unwrap();
    let mut sites = session.sites.iter();
    if sites.all(|site| site.exit_method == ExitMethod::Return) {
        return Some(session);
    }
    skipped("programs do the returns themselves here");
    None
}

/// Has the library throw, and holds what the program says and ends with against a run without probes; gives the truth of `through`.
fn unharmed_by_the_library(mut target: Fixture) -> profiler_testkit::fixture::Truth {
    let mut plain = before_the_library();
    load(&mut plain);
    plain.say("throw");
    plain.truth();
    let plain = plain.finish();
    target.say("throw");
    let truth = target.truth()["through"];
    let ended = target.finish();
    assert_eq!(ended.output, plain.output, "the target's output");
    assert_eq!(ended.status, plain.status, "the target's exit status");
    assert_eq!((truth.returned, truth.abandoned), (10, 10));
    truth
}

#[test]
#[ignore = "needs root"]
fn an_edit_behind_the_loading_of_a_library_that_throws_gives_return_probes_up() {
    let service = Service::start();
    let mut target = before_the_library();
    let Some(session) = by_returns(&service, &target, "through") else {
        return;
    };
    load(&mut target);
    // Before anybody has looked at what was loaded, or after: what the scope had before stays attached by the same probes or others.
    let edit = ScopeEdit::Set("through*".to_owned());
    let edited = service.handle.edit_scope(ROOT, session.name.clone(), edit);
    let edited = service.runtime.block_on(edited).unwrap();
    let methods: Vec<ExitMethod> = edited.sites.iter().map(|site| site.exit_method).collect();
    assert_eq!(methods, [ExitMethod::Ret]);
    let picture = service.until(&mut service.watch_latency(&session), |_| true);
    assert_eq!(
        ended(function(&picture, "through")),
        10,
        "what was counted before is lost"
    );
    unharmed_by_the_library(target);
}

#[test]
#[ignore = "needs root"]
fn of_functions_that_only_return_probes_time_none_stays_beside_a_library_that_throws() {
    let service = Service::start();
    let mut target = before_the_library();
    let Some(both) = by_returns(&service, &target, "through*") else {
        return;
    };
    let Some(only) = by_returns(&service, &target, "through_either") else {
        return;
    };
    let (mut pictures, mut last) = (service.watch_latency(&both), service.watch_latency(&only));
    load(&mut target);
    let last = service.until(&mut last, |picture| picture.ended.is_some());
    let reason = last.ended.as_deref().unwrap();
    println!("{reason}");
    assert!(
        reason.starts_with("newly mapped code makes return probes unsafe, and no other probes were found"),
        "{reason}"
    );
    let picture = service.until(&mut pictures, |picture| picture.functions.len() == 1);
    assert_eq!(ended(function(&picture, "through")), 10);
    unharmed_by_the_library(target);
}

#[test]
#[ignore = "needs root"]
fn what_slow_calls_do_is_not_looked_for_by_return_probes_beside_a_library_that_throws() {
    let service = Service::start();
    let mut target = before_the_library();
    let request = NewSession {
        explain: true,
        ..session_of(target.pid(), "through[>= p95]")
    };
    let session = service
        .runtime
        .block_on(service.handle.create(ROOT, request))
        .unwrap();
    if session.sites[0].exit_method != ExitMethod::Return {
        skipped("programs do the returns themselves here");
        return;
    }
    let mut last = service.watch_latency(&session);
    load(&mut target);
    let last = service.until(&mut last, |picture| picture.ended.is_some());
    assert_eq!(
        last.ended.as_deref(),
        Some("newly mapped code makes return probes unsafe")
    );
    unharmed_by_the_library(target);
}

#[test]
#[ignore = "needs root"]
fn return_probes_are_given_up_where_a_library_that_throws_is_loaded() {
    let service = Service::start();
    let mut target = before_the_library();
    let Some(session) = by_returns(&service, &target, "through") else {
        return;
    };
    load(&mut target);
    let mut pictures = service.watch_latency(&session);
    loop {
        service.until(&mut pictures, |_| true);
        let sessions = service.runtime.block_on(service.handle.list(ROOT)).unwrap();
        let known = sessions.iter().find(|known| known.name == session.name).unwrap();
        if known.sites[0].exit_method == ExitMethod::Ret {
            let warning = "return probes were detached, ";
            assert!(known.warnings[0].starts_with(warning), "{:?}", known.warnings);
            break;
        }
    }
    let mut pictures = service.watch_latency(&session);
    let truth = unharmed_by_the_library(target);
    let picture = service.until(&mut pictures, |picture| picture.ended.is_some());
    let seen = function(&picture, "through");
    println!("{truth:?}: ended {}, abandoned {}", ended(seen), seen.abandoned);
    assert_eq!(
        (ended(seen), seen.abandoned + seen.open),
        (10, 10),
        "what was counted before is lost, or what came after"
    );
}

/// A program that calls functions until it is told otherwise, and changes its own code when it is told to.
fn that_changes_its_code() -> Fixture {
    Fixture::start("hooked", &["later".to_owned()])
}

#[test]
#[ignore = "needs root"]
fn a_function_that_is_hooked_while_it_is_probed_is_taken_off_and_the_others_count_on() {
    let service = Service::start();
    let mut target = that_changes_its_code();
    let session = service.attach(target.pid(), "step_*").unwrap();
    let mut pictures = service.watch_latency(&session);
    target.say("go");
    service.until(&mut pictures, |picture| {
        ended(function(picture, "step_later")) >= 10
    });
    target.say("hook");
    assert_eq!(target.line(), "hooked");
    let picture = service.until(&mut pictures, |picture| {
        function(picture, "step_later").taken_off.is_some()
    });
    let why = function(&picture, "step_later").taken_off.clone().unwrap();
    println!("{}", why.reason);
    assert_eq!(why.cause, OffCause::ChangedCode, "{}", why.reason);
    assert_eq!(picture.lost.get("code_changed"), Some(&1), "{:?}", picture.lost);
    assert_eq!(picture.lost.get("over_budget"), None);
    let counted = ended(function(&picture, "step_plain"));
    service.until(&mut pictures, |picture| {
        ended(function(picture, "step_plain")) >= counted + 100
    });
    drop(pictures);
    target.say("end");
    let truth = target.truth();
    let picture = service.last_latency(&session);
    assert_eq!(ended(function(&picture, "step_later")), truth["step_later"].calls);
    assert!(function(&picture, "step_plain").taken_off.is_none());
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn a_function_whose_breakpoint_is_written_over_ends_a_session_of_nothing_else() {
    let service = Service::start();
    let mut target = that_changes_its_code();
    let session = service.attach(target.pid(), "step_later").unwrap();
    let mut pictures = service.watch_latency(&session);
    target.say("go");
    service.until(&mut pictures, |picture| {
        ended(function(picture, "step_later")) >= 10
    });
    target.say("restore");
    assert_eq!(target.line(), "restored");
    let last = service.until(&mut pictures, |picture| picture.ended.is_some());
    let reason = last.ended.clone().unwrap();
    println!("{reason}");
    assert!(
        reason.starts_with("`step_later` was taken off: its code was changed"),
        "{reason}"
    );
    assert!(target.end()["step_later"].calls > ended(function(&last, "step_later")));
}

#[test]
#[ignore = "needs root"]
fn a_process_that_ends_takes_no_function_from_the_other_one_and_a_change_in_that_one_is_seen() {
    let service = Service::start();
    let (mut ends, mut stays) = (that_changes_its_code(), that_changes_its_code());
    let pids = vec![ends.pid(), stays.pid()];
    let request = NewSession {
        target: TargetSpec::Pids(pids),
        ..session_of(stays.pid(), "step_*")
    };
    let session = service.create_for(ROOT, request).unwrap();
    let mut pictures = service.watch_latency(&session);
    ends.say("go");
    stays.say("go");
    service.until(&mut pictures, |picture| {
        ended(function(picture, "step_later")) >= 100
    });
    ends.end();
    // About three seconds: what is changed is told within two.
    let picture = service.until(&mut pictures, |_| true);
    let counted = ended(function(&picture, "step_plain"));
    let picture = service.until(&mut pictures, |picture| {
        ended(function(picture, "step_plain")) >= counted + 2500
    });
    assert!(function(&picture, "step_later").taken_off.is_none());
    stays.say("hook");
    assert_eq!(stays.line(), "hooked");
    service.until(&mut pictures, |picture| {
        function(picture, "step_later").taken_off.is_some()
    });
    stays.end();
}
