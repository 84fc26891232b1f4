//! Go programs: their runtime walks and moves stacks, and puts a goroutine on whichever thread is free.

use profiler_daemon::session::{Capture, NewSession, Purpose};

use super::{
    fixture::{Fixture, spec},
    service::{ROOT, Service, session_of},
};

const SOURCE: &str = include_str!("../fixtures/engine/goroutines.go");

fn bottom() -> String {
    let line = SOURCE
        .lines()
        .position(|line| line.contains("// bottom"))
        .unwrap()
        + 1;
    format!("goroutines.go:{line}")
}

#[test]
#[ignore = "needs root"]
fn durations_of_calls_are_refused_and_lines_are_counted() {
    let spec = spec("goroutines");
    let plain = {
        let mut target = Fixture::start("goroutines", &spec.args);
        target.run();
        target.finish()
    };
    let service = Service::start();
    let mut target = Fixture::start("goroutines", &spec.args);
    for scope in ["main.deep", "*deep", "main.deep/c_work", "runtime.mallocgc"] {
        let refused = service.attach(target.pid(), scope).unwrap_err();
        assert!(
            refused.message.contains("goroutines move"),
            "{scope}: {}",
            refused.message
        );
    }
    let request = NewSession {
        capture: Some(Capture {
            print: Vec::new(),
            hits_per_second: 1_000_000,
            stack: true,
            purpose: Purpose::Shown,
        }),
        ..session_of(target.pid(), &bottom())
    };
    let session = service
        .runtime
        .block_on(service.handle.create(ROOT, request))
        .unwrap();
    let watching = service.handle.watch_trace(ROOT, session.name.clone());
    let mut batches = service.runtime.block_on(watching).unwrap();
    let truth = target.run()["c_work"];
    service.end(&session);
    let last = loop {
        let batch = batches.blocking_recv().unwrap();
        if batch.ended.is_some() {
            break batch;
        }
    };
    assert_eq!(last.reached, truth.calls, "{:?}", last.lost);
    let ended = target.finish();
    assert_eq!((ended.output, ended.status), (plain.output, plain.status));
}
