//! Probes that cost the target more than is allowed are taken off it, and no others.

use std::{sync::Arc, time::Instant};

use profiler_daemon::session::{
    Capture, ExitMethod, FunctionLatency, LatencyPicture, NewSession, Numbered, Purpose, ScopeEdit,
    SessionInfo,
};

use super::{
    bpf,
    fixture::Fixture,
    service::{PATIENCE, ROOT, Service, Side, ended, function, session_of, time_under},
};

/// More than a function costs that is called each five milliseconds, on the slowest machine.
const BUDGET: f64 = 0.25;

fn waiting() -> Fixture {
    Fixture::start("hot", &[])
}

fn attach(service: &Service, target: &Fixture, scope: &str, budget: f64) -> SessionInfo {
    let request = NewSession {
        budget: Some(budget),
        ..session_of(target.pid(), scope)
    };
    service
        .runtime
        .block_on(service.handle.create(ROOT, request))
        .unwrap()
}

fn edit(service: &Service, session: &SessionInfo, edit: ScopeEdit) -> SessionInfo {
    let done = service.handle.edit_scope(ROOT, session.name.clone(), edit);
    service.runtime.block_on(done).unwrap()
}

/// Hits are counted, and hardly any is shown.
fn few_hits() -> Capture {
    Capture {
        print: Vec::new(),
        hits_per_second: 1,
        stack: false,
        purpose: Purpose::Shown,
    }
}

/// Waits for a picture of which this holds.
fn until(
    service: &Service,
    session: &SessionInfo,
    holds: impl Fn(&LatencyPicture) -> bool,
) -> Numbered<LatencyPicture> {
    service.until(&mut service.watch_latency(session), holds)
}

#[test]
#[ignore = "needs root"]
fn a_function_that_costs_too_much_is_let_go_of_and_the_run_says_why() {
    let service = Service::start();
    let mut target = waiting();
    let session = attach(&service, &target, "step_hot", 0.03);
    let mut pictures = service.watch_latency(&session);
    let began = Instant::now();
    target.say("go");
    let last = service.until(&mut pictures, |picture| picture.ended.is_some());
    let reason = last.ended.clone().unwrap();
    println!("after {:?}: {reason}", began.elapsed());
    assert!(reason.starts_with("`step_hot` was taken off: "), "{reason}");
    assert!(
        reason.ends_with("of the target's CPU time, over the budget of 3%"),
        "{reason}"
    );
    bpf::wait_until_unchanged(target.pid());
    let truth = target.end()["step_hot"];
    assert!(truth.calls > ended(function(&last, "step_hot")));
}

#[test]
#[ignore = "needs root"]
fn the_costliest_function_goes_and_the_others_count_on() {
    let service = Service::start();
    // Where one link holds all places, the others are attached anew.
    let missed = count_on(&service);
    println!("{missed} calls were missed meanwhile");
}

#[test]
#[ignore = "needs root"]
fn by_perf_events_the_others_miss_nothing_meanwhile() {
    assert_eq!(count_on(&Service::start_by_perf()), 0);
}

#[test]
#[ignore = "needs root"]
fn an_allocator_that_is_called_too_often_is_let_go_of_and_the_rest_goes_on() {
    let service = Service::start();
    let mut target = Fixture::start("allocates", &[]);
    let pid = target.pid();
    let remembering = |budget| {
        let request = NewSession {
            allocations: true,
            budget,
            ..session_of(pid, "step_cold")
        };
        let created = service.handle.create(ROOT, request);
        service.runtime.block_on(created).unwrap()
    };
    let bounded = remembering(Some(0.03));
    let mut waits = service.watch_waits(&bounded);
    target.say("go");
    let seen = service.until(&mut waits, |picture| picture.lost.contains_key("over_budget"));
    assert_eq!(seen.lost["over_budget"], 1);
    let off = until(&service, &bounded, |picture| {
        picture.lost.contains_key("over_budget")
    });
    assert_eq!(off.lost["over_budget"], 1);
    let warnings = || {
        let sessions = service.runtime.block_on(service.handle.list(ROOT)).unwrap();
        let mut sessions = sessions.into_iter();
        sessions.find(|of| of.name == bounded.name).unwrap().warnings
    };
    let warning = warnings()
        .into_iter()
        .find(|warning| warning.starts_with("`--allocations` was taken off: "));
    let warning = warning.unwrap_or_else(|| panic!("{:?}", warnings()));
    println!("{warning}");
    assert!(
        warning.contains(" calls of the allocator a second took ")
            && warning.ends_with("over the budget of 3%"),
        "{warning}"
    );
    // The function is called a hundred times a second and more, and goes on being counted.
    let cold = ended(function(&off, "step_cold"));
    until(&service, &bounded, |picture| {
        ended(function(picture, "step_cold")) >= cold + 100
    });
    service.end(&bounded);
    bpf::wait_until_unchanged(pid);

    // Who allows it has it.
    let unbounded = remembering(Some(1.0));
    let mut pictures = service.watch_latency(&unbounded);
    let on = service.until(&mut pictures, |picture| {
        picture.functions.first().is_some_and(|of| ended(of) >= 200)
    });
    assert!(!on.lost.contains_key("over_budget"), "{:?}", on.lost);
    service.end(&unbounded);
    target.end();
}

/// Gives how many calls of the function that stays were not seen.
fn count_on(service: &Service) -> u64 {
    let mut target = waiting();
    let session = attach(service, &target, "step_*", BUDGET);
    target.say("go");
    let gone = |picture: &LatencyPicture| -> Option<FunctionLatency> {
        Some(function(picture, "step_hot").clone()).filter(|hot| hot.taken_off.is_some())
    };
    let picture = until(service, &session, |picture| gone(picture).is_some());
    let hot = gone(&picture).unwrap();
    println!("{}", hot.taken_off.as_ref().unwrap().reason);
    assert_eq!(hot.open, 0, "nobody sees it end");
    let cold = ended(function(&picture, "step_cold"));
    let picture = until(service, &session, |picture| {
        ended(function(picture, "step_cold")) >= cold + 100
    });
    assert_eq!(
        gone(&picture).map(|hot| ended(&hot)),
        Some(ended(&hot)),
        "it is counted still"
    );
    assert_eq!(picture.lost.get("over_budget"), Some(&1));
    assert!(function(&picture, "step_cold").taken_off.is_none());
    let sessions = service.runtime.block_on(service.handle.list(ROOT)).unwrap();
    let warnings = &sessions
        .iter()
        .find(|of| of.name == session.name)
        .unwrap()
        .warnings;
    assert!(
        warnings
            .iter()
            .any(|warning| warning.starts_with("`step_hot` was taken off: ")),
        "{warnings:?}"
    );
    // The session ends with the target.
    let mut pictures = service.watch_latency(&session);
    target.say("exit");
    let truth = target.truth()["step_cold"];
    let last = service.until(&mut pictures, |picture| picture.ended.is_some());
    assert_eq!(target.finish().status, Some(0));
    truth
        .calls
        .checked_sub(ended(function(&last, "step_cold")))
        .unwrap()
}

#[test]
#[ignore = "needs root"]
fn a_line_that_costs_too_much_is_let_go_of_too() {
    let service = Service::start();
    let mut target = waiting();
    let request = NewSession {
        budget: Some(0.03),
        capture: Some(few_hits()),
        ..session_of(target.pid(), "hot.c:21")
    };
    let handle = &service.handle;
    let reason = service.runtime.block_on(async {
        let session = handle.create(ROOT, request).await.unwrap();
        let mut hits = handle.watch_trace(ROOT, session.name).await.unwrap();
        target.say("go");
        loop {
            let batch = hits.recv().await.unwrap();
            if let Some(reason) = batch.ended {
                break reason;
            }
        }
    });
    assert!(reason.starts_with("`hot.c:21` was taken off: "), "{reason}");
    assert!(reason.contains("hits a second"), "{reason}");
    target.end();
}

#[test]
#[ignore = "needs root"]
fn calls_that_a_condition_rejects_cost_too() {
    let service = Service::start();
    let mut target = waiting();
    let session = attach(&service, &target, "step_hot[n > 1000000]", 0.03);
    let mut pictures = service.watch_latency(&session);
    target.say("go");
    let last = service.until(&mut pictures, |picture| picture.ended.is_some());
    let reason = last.ended.as_deref().unwrap();
    assert!(reason.starts_with("`step_hot` was taken off: "), "{reason}");
    target.end();
}

#[test]
#[ignore = "needs root"]
fn what_was_taken_off_does_not_come_back_with_a_line_at_its_entry() {
    let service = Service::start();
    let mut target = waiting();
    let session = attach(&service, &target, "step_cold", BUDGET);
    target.say("go");
    let edit = |edit: ScopeEdit| self::edit(&service, &session, edit);
    edit(ScopeEdit::Set("step_hot".to_owned()));
    let gone = |picture: &LatencyPicture| {
        let hot = picture.functions.iter().find(|of| of.function.name == "step_hot");
        hot.is_some_and(|hot| hot.taken_off.is_some())
    };
    until(&service, &session, gone);
    edit(ScopeEdit::Append("hot.c:7".to_owned()));
    // The line costs too much as well, and goes as the function did.
    bpf::wait_until_unchanged(target.pid());
    target.end();
}

#[test]
#[ignore = "needs root"]
fn a_line_at_the_end_of_a_function_stays_inside_of_it_when_another_goes() {
    let service = Service::start();
    let mut target = waiting();
    let cold = attach(&service, &target, "step_cold", BUDGET);
    let function = Arc::clone(&cold.sites[0].function);
    service.end(&cold);
    let line = format!("step_*/hot+{:#x}", function.address + function.size - 1);
    let request = NewSession {
        budget: Some(BUDGET),
        // What sees the function end is at the same instruction then.
        exit_method: Some(ExitMethod::Ret),
        capture: Some(few_hits()),
        ..session_of(target.pid(), &line)
    };
    let handle = &service.handle;
    let is_seen = async {
        let session = handle.create(ROOT, request).await.unwrap();
        let mut hits = handle.watch_trace(ROOT, session.name.clone()).await.unwrap();
        target.say("go");
        let mut reached_before = None;
        loop {
            let batch = hits.recv().await.unwrap();
            if let Some(before) = reached_before {
                if batch.reached >= before + 50 {
                    break;
                }
                continue;
            }
            let sessions = handle.list(ROOT).await.unwrap();
            let known = sessions.iter().find(|known| known.name == session.name).unwrap();
            if known
                .warnings
                .iter()
                .any(|warning| warning.starts_with("`step_hot` was taken off"))
            {
                reached_before = Some(batch.reached);
            }
        }
    };
    let is_seen = async { tokio::time::timeout(PATIENCE, is_seen).await };
    service
        .runtime
        .block_on(is_seen)
        .expect("no hit is inside of the function any more");
    target.end();
}

#[test]
#[ignore = "needs root"]
fn a_function_within_the_budget_stays() {
    let service = Service::start();
    let mut target = waiting();
    let session = attach(&service, &target, "step_cold", BUDGET);
    target.say("go");
    let picture = until(&service, &session, |picture| {
        ended(function(picture, "step_cold")) >= 400
    });
    assert!(
        picture.ended.is_none() && picture.lost.is_empty(),
        "{:?}",
        picture.lost
    );
    target.end();
}

#[test]
#[ignore = "needs root"]
fn an_edit_that_costs_too_much_can_be_taken_back() {
    let service = Service::start();
    let mut target = waiting();
    let session = attach(&service, &target, "step_cold", BUDGET);
    target.say("go");
    let edit = |edit: ScopeEdit| self::edit(&service, &session, edit);
    edit(ScopeEdit::Set("step_hot".to_owned()));
    let picture = until(&service, &session, |picture| {
        picture
            .functions
            .iter()
            .any(|function| function.taken_off.is_some())
    });
    assert_eq!(picture.lost.get("over_budget"), Some(&1));
    bpf::wait_until_unchanged(target.pid());
    edit(ScopeEdit::Undo(1));
    let picture = until(&service, &session, |picture| {
        picture.functions.iter().any(|function| ended(function) >= 20)
    });
    assert!(function(&picture, "step_cold").taken_off.is_none());
    assert!(picture.lost.is_empty(), "{:?}", picture.lost);
    target.end();
}

#[test]
#[ignore = "needs root"]
fn no_sample_lies_in_a_call_that_was_open_when_its_function_was_taken_off() {
    let service = Service::start();
    let mut target = Fixture::start("taken_off", &[]);
    // A session whose scope was edited goes on.
    let session = attach(&service, &target, "after", BUDGET);
    edit(&service, &session, ScopeEdit::Set("step_hot".to_owned()));
    let mut flame = service.watch_flame(&session);
    target.say("go");
    until(&service, &session, |picture| {
        let mut functions = picture.functions.iter();
        functions.any(|function| function.taken_off.is_some())
    });
    // The other thread's call returns, which nobody sees.
    target.say("over");
    let before = service.until(&mut flame, |_| true).picture.summary.elsewhere;
    let picture = service.until(&mut flame, |picture| {
        assert_eq!(time_under(picture, Side::Inside, "after").0, 0);
        picture.picture.summary.elsewhere >= before + 50
    });
    println!("{:?}", picture.picture.summary);
    service.end(&session);
    target.end();
}

#[test]
#[ignore = "needs root"]
fn a_function_that_is_called_all_the_while_from_within_itself_is_let_go_of() {
    let service = Service::start();
    let mut target = Fixture::start("taken_off", &["within".to_owned()]);
    let session = attach(&service, &target, "step_hot", BUDGET);
    let mut pictures = service.watch_latency(&session);
    target.say("go");
    service.until(&mut pictures, |picture| picture.ended.is_some());
    // The outer call is still open, and the inner ones go on.
    bpf::wait_until_unchanged(target.pid());
    target.say("over");
    target.end();
}
