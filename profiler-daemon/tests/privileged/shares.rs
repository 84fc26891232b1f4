//! What all sessions share, and how much of it one user may have.

use profiler_daemon::{
    kernel::{Event, Pace},
    session::{Caller, FlamePicture, FlameRequest, FlameTimes, Pictures, Reason, SessionError, SessionInfo},
};
use profiler_symbolize::Grouping;

use super::{
    admission::{Programs, USER, start},
    fixture::{Fixture, spec},
    service::{ROOT, Service, session_of},
};

/// A flame graph of page faults, of which others are taken at another pace.
fn watch_faults(
    service: &Service,
    caller: Caller,
    session: &SessionInfo,
    period: u64,
) -> Result<Pictures<FlamePicture>, SessionError> {
    let event = Event::parse("faults", Some(Pace::Period(period)), 99).unwrap();
    let request = FlameRequest::of(Grouping::Function, Some(FlameTimes::Event(event)));
    let name = session.name.clone();
    let watch = service.handle.watch_flame(caller, name, 1_000_000_000, request);
    service.runtime.block_on(watch)
}

#[test]
#[ignore = "needs root"]
fn an_event_too_many_is_refused_also_of_a_process_whose_tables_are_still_being_made() {
    let service = Service::start();
    let target = || Fixture::start("costs_by_function", &spec("costs_by_function").args);
    let (first, second) = (target(), target());
    let session = service.attach(first.pid(), "").unwrap();
    let views: Vec<_> = (1..=8)
        .map(|period| watch_faults(&service, ROOT, &session, period).unwrap())
        .collect();
    // Nobody has looked at this one before.
    let late = service.attach(second.pid(), "").unwrap();
    let refused = watch_faults(&service, ROOT, &late, 9).map(drop).unwrap_err();
    assert_eq!(refused.reason, Reason::LimitReached);
    assert_eq!(
        refused.message,
        "all sessions together may have stacks taken at 8 of the 8 events at once, this would make 9: end a flame graph or recording of an event first"
    );
    // What was refused keeps nobody from what is there.
    drop(service.watch_flame(&late));
    for session in [&session, &late] {
        service.end(session);
    }
    drop(views);
    for target in [first, second] {
        assert_eq!(target.finish().status, Some(0));
    }
}

#[test]
#[ignore = "needs root"]
fn a_user_leaves_events_to_others() {
    let service = Service::start();
    let programs = Programs::new("events-of-a-user");
    let own = programs.own();
    let target = start(&own, "exec", &own);
    let created = service
        .runtime
        .block_on(service.handle.create(USER, session_of(target.pid(), "")))
        .unwrap();
    let views: Vec<_> = (1..=2)
        .map(|period| watch_faults(&service, USER, &created, period).unwrap())
        .collect();
    let refused = watch_faults(&service, USER, &created, 3).map(drop).unwrap_err();
    assert_eq!(refused.reason, Reason::LimitReached);
    assert_eq!(
        refused.message,
        "user 61234 may have stacks taken at 2 of the 8 events at once, this would make 3: end a flame graph or recording of an event first"
    );
    let of_root = service.attach(target.pid(), "").unwrap();
    let of_root_too: Vec<_> = (1..=6)
        .map(|period| watch_faults(&service, ROOT, &of_root, period).unwrap())
        .collect();
    service.end(&of_root);
    drop((views, of_root_too));
    service
        .runtime
        .block_on(service.handle.end(USER, created.name))
        .unwrap();
    target.finish();
}
