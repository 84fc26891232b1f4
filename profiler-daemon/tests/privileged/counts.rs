//! Calls counted against calls made by the target.

use profiler_daemon::{
    kernel,
    session::{CHILDREN as CHILDREN_NOT_COUNTED, NewSession, TargetSpec},
};

use super::{
    fixture::{Fixture, small_scale, spec},
    service::{ROOT, Service, ended, function, session_of},
};

fn counted(fixture: &str, threads: u32, calls: u64, name: &str) {
    let service = Service::start();
    let args = ["run", &threads.to_string(), &calls.to_string(), name].map(str::to_owned);
    let mut target = Fixture::start(fixture, &args);
    let session = service.attach(target.pid(), name).unwrap();
    let truth = target.run()[name];
    assert_eq!(truth.calls, u64::from(threads) * calls);
    let picture = service.last_latency(&session);
    let seen = function(&picture, name);
    assert_eq!(ended(seen), truth.calls, "{:?}", session.sites);
    assert_eq!(
        (seen.open, seen.abandoned, seen.lost.len()),
        (0, 0, 0),
        "{seen:?}"
    );
    assert_eq!(target.finish().status, Some(0));
}

fn calls() -> u64 {
    if small_scale() { 10_000 } else { 1_000_000 }
}

#[test]
#[ignore = "needs root"]
fn one_thread_is_counted_to_the_call() {
    counted("calls", 1, calls(), "target_fn");
}

#[test]
#[ignore = "needs root"]
fn eight_threads_are_counted_to_the_call() {
    counted("calls", 8, calls(), "target_fn");
}

#[test]
#[ignore = "needs root"]
fn sixty_four_threads_are_counted_to_the_call() {
    // Natively as many in all as with eight threads: a million each takes minutes, and shows no more.
    let calls = if small_scale() { calls() } else { calls() / 8 };
    counted("calls", 64, calls, "target_fn");
}

#[test]
#[ignore = "needs root"]
fn every_kind_of_entry_is_counted_to_the_call() {
    for fixture in ["calls", "calls_cet"] {
        let service = Service::start();
        let spec = spec(fixture);
        let mut target = Fixture::start(fixture, &spec.args);
        let session = service.attach(target.pid(), "fn_*").unwrap();
        let truth = target.run();
        let picture = service.last_latency(&session);
        for name in spec.probe.iter().filter(|name| name.starts_with("fn_")) {
            assert_eq!(
                ended(function(&picture, name)),
                truth[name].calls,
                "{name} of {fixture}"
            );
        }
        assert_eq!(target.finish().status, Some(0));
    }
}

#[test]
#[ignore = "needs root"]
fn an_ifunc_is_counted_where_its_choice_is() {
    for (ifunc, other) in [("dispatched", "every_fourth"), ("every_fourth", "dispatched")] {
        let service = Service::start();
        let mut target = Fixture::start("ifunc", &["100".to_owned()]);
        let session = service.attach(target.pid(), ifunc).unwrap();
        let said = format!(
            "{ifunc} is an ifunc: in this process it stands for chosen; so does {other}, whose calls"
        );
        let warns = |warning: &String| warning.starts_with(&said);
        assert!(session.warnings.iter().any(warns), "{:?}", session.warnings);
        assert_eq!(target.run()["chosen"].calls, 100);
        assert_eq!(ended(function(&service.last_latency(&session), "chosen")), 100);
        assert_eq!(target.finish().status, Some(0));
    }
}

#[test]
#[ignore = "needs root"]
fn children_that_pay_for_probes_are_said() {
    for (fixture, function, has_child) in [("parent", "work", true), ("ifunc", "chosen", false)] {
        let service = Service::start();
        let mut target = Fixture::start(fixture, &["100".to_owned()]);
        let session = service.attach(target.pid(), function).unwrap();
        let said = format!(
            "{} ({fixture}) has a child process: those that it begins from now on pay",
            target.pid()
        );
        let is_said = session.warnings.iter().any(|warning| warning.starts_with(&said));
        assert_eq!(is_said, has_child, "{:?}", session.warnings);
        assert_eq!(target.run()[function].calls, 100);
        assert_eq!(target.finish().status, Some(0));
    }
}

#[test]
#[ignore = "needs root"]
fn children_that_begin_before_it_is_probed_are_said_with_their_rate() {
    let service = Service::start();
    // It begins one after another, for longer than this takes.
    let mut target = Fixture::start("fork", &["1000000000".to_owned()]);
    target.say("go");
    let before = began_by(
        &service.attach(target.pid(), "forking").unwrap().warnings,
        target.pid(),
    );
    let (begun, ms) = before.expect("it began children");
    let least = if small_scale() { 1 } else { 5 };
    assert!(begun >= least, "{begun} in {ms} ms");
    assert!(ms >= 100, "counted for {ms} ms");
}

/// How many processes one began, and in how many milliseconds, as warnings of a session say it.
fn began_by(warnings: &[String], pid: u32) -> Option<(u64, u64)> {
    let said = warnings
        .iter()
        .find_map(|warning| warning.strip_prefix(&format!("{pid} (fork) began ")));
    let mut words = said?.split(' ');
    let begun = words.next()?.parse().ok()?;
    Some((begun, words.nth(2)?.parse().ok()?))
}

#[test]
#[ignore = "needs root"]
fn children_that_began_while_it_ran_are_counted() {
    const CHILDREN: u64 = 3;
    // Of two processes; a place of the kernel leaves no breakpoints in a process.
    for (scope, counted) in [("work", 2 * CHILDREN), ("syscall:write", 0)] {
        let service = Service::start();
        let start = || Fixture::start("parent", &["100".to_owned(), CHILDREN.to_string()]);
        let mut targets = [start(), start()];
        let request = NewSession {
            target: TargetSpec::Pids(targets.iter().map(Fixture::pid).collect()),
            ..session_of(0, scope)
        };
        let session = service.create_for(ROOT, request).unwrap();
        for target in &mut targets {
            assert_eq!(target.run()["work"].calls, 100);
        }
        let picture = service.last_latency(&session);
        // Those that shared the memory, and those that began before, are none of them.
        let lost = picture.lost.get(CHILDREN_NOT_COUNTED).copied().unwrap_or(0);
        assert_eq!(lost, counted, "{scope}: {:?}", picture.lost);
        for target in targets {
            assert_eq!(target.finish().status, Some(0));
        }
    }
}

/// The running kernel's first two numbers.
pub fn kernel_release() -> (u32, u32) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release
        .split(['.', '-'])
        .map(|number| number.parse::<u32>().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

#[test]
#[ignore = "needs root"]
fn probes_are_attached_at_once_where_the_kernel_can() {
    let engine = kernel::Engine::load(&kernel::Config::default()).unwrap();
    // Since then the PID filter of such links covers all threads of a process.
    let expected = if kernel_release() >= (6, 10) {
        kernel::AttachKind::Multi
    } else {
        kernel::AttachKind::Perf
    };
    assert_eq!(engine.ability().attach, expected);
}
