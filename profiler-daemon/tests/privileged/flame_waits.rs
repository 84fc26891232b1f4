//! What flame graphs draw on waits.

use profiler_daemon::session::{FlamePicture, FlameTimes, Reason};
use profiler_symbolize::Grouping;

use super::{
    fixture::{Fixture, small_scale, spec},
    off_cpu::stacks,
    service::{Service, Side, time_under},
};

/// Inside time of the stacks that have these frames, in this order.
fn time_along(picture: &FlamePicture, frames: &[&str]) -> u64 {
    let stacks = stacks(picture);
    let has_all = |stack: &str| {
        let mut functions = stack.split(';');
        frames
            .iter()
            .all(|wanted| functions.any(|function| function == *wanted))
    };
    let along = stacks.iter().filter(|(stack, _)| has_all(stack));
    along.map(|(_, time_ns)| time_ns).sum()
}

#[test]
#[ignore = "needs root"]
fn slow_calls_show_whom_they_waited_for() {
    let service = Service::start();
    let mut target = Fixture::start("chain_of_waits", &spec("chain_of_waits").args);
    let session = service.attach(target.pid(), "ask[> 1ms]").unwrap();
    let mut plain = service.watch_flame_of(&session, Grouping::Function, FlameTimes::OffCpu);
    let mut drawn = service
        .watch_flame_with_waits(&session, FlameTimes::OffCpu)
        .unwrap();
    // It is there until the end: what it has mapped gives addresses their names.
    target.run();
    service.end(&session);
    let plain = service.until(&mut plain, |picture| picture.ended.is_some());
    let drawn = service.until(&mut drawn, |picture| picture.ended.is_some());
    for (stack, time_ns) in stacks(&drawn) {
        println!("{:.2} ms {stack}", time_ns as f64 / 1e6);
    }
    let under = |picture| time_under(picture, Side::Inside, "ask").0;
    let asked_ns = under(&plain);
    let chain = [
        "asker",
        "ask",
        "[sleeping]",
        "relayer",
        "relay",
        "[sleeping]",
        "fetcher",
        "fetch",
        "[sleeping]",
        "[interrupt]",
        "hrtimer_wakeup",
    ];
    let followed_ns = time_along(&drawn, &chain);
    println!(
        "asked for {asked_ns} ns, {followed_ns} of it for the fetcher's timer; lost {:?}",
        drawn.lost
    );
    // What is drawn on waits takes nothing from them, and adds nothing.
    assert_eq!(under(&drawn), asked_ns);
    assert_eq!(drawn.picture.summary.samples, plain.picture.summary.samples);
    assert!(asked_ns > 0 && followed_ns <= asked_ns);
    let is_behind = small_scale() && !drawn.lost.is_empty();
    assert!(followed_ns > 0 || is_behind);
    if !small_scale() {
        assert!(followed_ns >= asked_ns / 2);
    }
    assert_eq!(target.finish().status, Some(0));
    let stack_of_plain = stacks(&plain);
    assert!(stack_of_plain.iter().all(|(stack, _)| !stack.contains("fetcher")));
}

#[test]
#[ignore = "needs root"]
fn waits_are_drawn_where_there_are_any() {
    let service = Service::start();
    let target = Fixture::start("chain_of_waits", &spec("chain_of_waits").args);
    let session = service.attach(target.pid(), "ask").unwrap();
    let error = service
        .watch_flame_with_waits(&session, FlameTimes::OnCpu)
        .unwrap_err();
    assert_eq!(error.reason, Reason::ArgumentInvalid);
}
