//! Values in memory that is not there: it is brought in where the kernel lets programs wait for that.

use super::{
    fixture::{Fixture, spec},
    places::{Traced, value},
    service::{Service, ended, function},
};
use profiler_daemon::plan::values::Reading;

const PRINT: [&str; 2] = ["entry->number", "entry->text"];

/// The number of the first entry, as the target has it.
const FIRST: u64 = 1000;

#[test]
#[ignore = "needs root"]
fn values_in_pages_that_are_not_there_are_read() {
    let service = Service::start();
    let mut target = Fixture::start("paged", &spec("paged").args);
    let source = include_str!("../fixtures/engine/paged.c");
    let line = source.lines().position(|line| line.contains("/* the line */"));
    let line = format!("paged.c:{}", line.unwrap() + 1);
    let perf_links = {
        let session = service.attach(target.pid(), "").unwrap();
        service.end(&session);
        session.perf_links
    };
    let traced = ["look", &line].map(|scope| Traced::start(&service, &target, scope, &PRINT));
    let chosen = format!("choose[entry->number >= {}]", FIRST + 5);
    let chosen = service.attach(target.pid(), &chosen).unwrap();
    let calls = target.run()["look"].calls;
    for traced in traced {
        let (hits, last) = traced.end(&service);
        assert_eq!((hits.len() as u64, last.reached), (calls, calls));
        for (number, hit) in (0..).zip(&hits) {
            if perf_links {
                let readings = hit.values.iter().map(|value| &value.reading);
                let unreadable = readings.filter(|reading| matches!(reading, Reading::Unreadable(_)));
                assert_eq!(unreadable.count(), 2, "{hit:?}");
            } else {
                assert_eq!(value(hit, 0), (FIRST + number).to_string());
                assert_eq!(value(hit, 1), format!("\"entry {number}\""));
            }
        }
    }
    let picture = service.last_latency(&chosen);
    let expected = if perf_links { 0 } else { calls - 5 };
    assert_eq!(ended(function(&picture, "choose")), expected);
    assert_eq!(target.finish().status, Some(0));
}

/// A page that is nowhere is not waited for, and the target goes on.
#[test]
#[ignore = "needs root"]
fn what_is_nowhere_is_unreadable() {
    let service = Service::start();
    let mut target = Fixture::start("paged", &spec("paged").args);
    let expression = "entry[4294967296].number";
    let traced = Traced::start(&service, &target, "look", &[expression]);
    let calls = target.run()["look"].calls;
    let (hits, _) = traced.end(&service);
    assert_eq!(hits.len() as u64, calls);
    for hit in &hits {
        assert!(matches!(hit.values[0].reading, Reading::Unreadable(_)), "{hit:?}");
    }
    assert_eq!(target.finish().status, Some(0));
}
