//! Values in memory that is not there: it is brought in where the kernel lets programs wait for that.

use profiler_plan::values::Reading;

use super::{
    fixture::{Fixture, spec},
    places::{Traced, value},
    service::{Service, ended, function},
};

const PRINT: [&str; 2] = ["entry->number", "entry->text"];

/// The number of the first entry, as the target has it.
const FIRST: u64 = 1000;

/// Whether this kernel has no links of many probes: its programs may not wait.
fn perf_links(service: &Service, target: &Fixture) -> bool {
    let session = service.attach(target.pid(), "").unwrap();
    service.end(&session);
    session.perf_links
}

#[test]
#[ignore = "needs root"]
fn values_in_pages_that_are_not_there_are_read() {
    let service = Service::start();
    let mut target = Fixture::start("paged", &spec("paged").args);
    let source = include_str!("../fixtures/engine/paged.c");
    let line = source.lines().position(|line| line.contains("/* the line */"));
    let line = format!("paged.c:{}", line.unwrap() + 1);
    let perf_links = perf_links(&service, &target);
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

/// A pointer is shown with the text that it leads to, if it is any, and is worth a page for that.
#[test]
#[ignore = "needs root"]
fn text_behind_a_pointer_is_read() {
    let service = Service::start();
    let mut target = Fixture::start("paged", &spec("paged").args);
    let perf_links = perf_links(&service, &target);
    let traced = Traced::start(&service, &target, "point", &["text"]);
    let calls = target.run()["point"].calls;
    let (hits, last) = traced.end(&service);
    assert_eq!((hits.len() as u64, last.reached), (calls, calls));
    for (number, hit) in (0..).zip(&hits) {
        let shown = value(hit, 0);
        if perf_links {
            assert!(shown.starts_with("0x"), "{shown}");
        } else {
            assert_eq!(shown, format!("\"entry {number}\""));
        }
    }
    assert_eq!(target.finish().status, Some(0));
}

/// What the program itself would bring in is not waited for: it may be the thread that waits. Nor is a device.
#[test]
#[ignore = "needs root"]
fn what_others_bring_in_is_not_waited_for() {
    let service = Service::start();
    let mut target = Fixture::start("paged", &spec("paged").args);
    let functions = ["guard", "device"];
    let traced = functions.map(|function| Traced::start(&service, &target, function, &["entry->number"]));
    let calls = target.run()["guard"].calls;
    for (traced, function) in traced.into_iter().zip(functions) {
        let (hits, _) = traced.end(&service);
        assert_eq!(hits.len() as u64, calls, "{function}");
        for hit in &hits {
            let reading = &hit.values[0].reading;
            assert!(matches!(reading, Reading::Unreadable(_)), "{function}: {hit:?}");
        }
    }
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
