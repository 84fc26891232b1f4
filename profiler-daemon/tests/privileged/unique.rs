//! What is touched counts once: pages and blocks, against what the target itself knows.

use profiler_aggregate::Over;
use profiler_daemon::{
    kernel::{Event, Pace},
    session::{
        FlamePicture, FlameRequest, FlameTimes, Numbered, Reason, ScopeEdit, SessionError, SessionInfo,
    },
};
use profiler_symbolize::Grouping;
use serde_json::Value;

use super::{
    disk::{Disk, NO_DIRECT_IO},
    fixture::{Fixture, spec},
    service::{ROOT, Service, Side, time_under},
    skipped,
};

const FIXTURE: &str = "unique";

fn request(event: Event) -> FlameRequest {
    FlameRequest {
        unique: true,
        ..FlameRequest::of(Grouping::Function, Some(FlameTimes::Event(event)))
    }
}

fn faults() -> Event {
    Event::parse("page-faults", None, 99).unwrap()
}

type Pictures = profiler_daemon::session::Pictures<FlamePicture>;

fn watch(service: &Service, session: &SessionInfo, request: FlameRequest) -> Result<Pictures, SessionError> {
    let name = session.name.clone();
    let watch = service.handle.watch_flame(ROOT, name, 1_000_000_000, request);
    service.runtime.block_on(watch)
}

fn end(service: &Service, session: &SessionInfo, mut pictures: Pictures) -> Numbered<FlamePicture> {
    service.end(session);
    let picture = service.until(&mut pictures, |picture| picture.ended.is_some());
    let summary = &picture.picture.summary;
    println!("`{}`: {summary:?}, lost {:?}", picture.scope, picture.lost);
    let lost: u64 = picture.lost.values().sum();
    assert_eq!(
        picture.attempted,
        summary.samples + lost,
        "nothing is lost unsaid"
    );
    assert_eq!(summary.samples, summary.inside + summary.elsewhere);
    picture
}

#[test]
#[ignore = "needs root"]
fn a_page_counts_once_at_what_its_stacks_have_in_common() {
    let service = Service::start();
    let mut target = Fixture::start(FIXTURE, &spec(FIXTURE).args);
    let views: Vec<_> = ["", "left", "either/right"]
        .into_iter()
        .map(|scope| {
            let session = service.attach(target.pid(), scope).unwrap();
            let pictures = watch(&service, &session, request(faults())).unwrap();
            (scope, session, pictures)
        })
        .collect();
    target.say("go");
    let pages: Value = serde_json::from_str(target.line().strip_prefix("pages ").unwrap()).unwrap();
    println!("the target: {pages}");
    assert_eq!(target.truth(), spec(FIXTURE).truth);
    let truth = |name: &str| pages[name].as_u64().unwrap();
    for (scope, session, pictures) in views {
        let picture = end(&service, &session, pictures);
        // What is lost is not the same page each time.
        let under = |name: &str| time_under(&picture, Side::Inside, name).0;
        let [left, right, either] = ["left", "right", "either"].map(under);
        println!("`{scope}`: left {left}, right {right}, either {either}");
        match scope {
            "" => {
                assert_eq!((left, right), (truth("left"), truth("right")));
                assert_eq!(either, truth("left") + truth("right") + truth("both"));
                // A busy machine takes fewer of a burst, and says so.
                let lost: u64 = picture.lost.values().sum();
                assert!(picture.picture.summary.inside + lost >= truth("touched"));
            }
            "left" => assert_eq!((left, right), (truth("left") + truth("both"), 0)),
            _ => assert_eq!((left, right), (0, truth("right") + truth("both"))),
        }
    }
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn a_block_counts_once_whoever_reads_or_writes_it() {
    const BLOCK: u64 = 65_536;
    let event = Event::parse("block-bytes", None, 99).unwrap();
    if let Some(why) = event.missing() {
        return skipped(why);
    }
    let service = Service::start();
    let mut disk = Disk::start("unique");
    let session = service.attach(disk.fixture.pid(), "").unwrap();
    let once = watch(&service, &session, request(event)).unwrap();
    let mut each = service.watch_flame_of(&session, Grouping::Function, FlameTimes::Event(event));
    if disk.go() != "disk direct" {
        return skipped(NO_DIRECT_IO);
    }
    for _ in ["put", "get", "save"] {
        println!("{}", disk.fixture.line());
    }
    let _ = disk.fixture.truth();
    let once = end(&service, &session, once);
    let each = service.until(&mut each, |picture| picture.ended.is_some());
    assert_eq!(once.picture.summary.samples, each.picture.summary.samples);
    let (in_once, _) = time_under(&once, Side::Inside, "main");
    let (in_each, _) = time_under(&each, Side::Inside, "main");
    // The blocks of its rounds, and the one that it keeps in the cache; what the file system keeps comes on top.
    let least = BLOCK * (disk.rounds.min(16) + 1);
    println!("each once: {in_once} of {in_each} bytes, the file's {least}");
    assert!(least <= in_once && in_once <= in_each);
    // Those that are written and read again stand above both.
    let (put, _) = time_under(&once, Side::Inside, "put");
    let (get, _) = time_under(&once, Side::Inside, "get");
    println!("put {put}, get {get}");
    assert!(put + get < BLOCK * disk.rounds.min(16));
    assert_eq!(disk.fixture.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn what_cannot_count_once_is_refused() {
    let service = Service::start();
    let target = Fixture::start(FIXTURE, &spec(FIXTURE).args);
    let session = service.attach(target.pid(), "left").unwrap();
    let of = |name: &str, pace| Event::parse(name, pace, 99).unwrap();
    for request in [
        request(of("context-switches", None)),
        request(of("block-latency", None)),
        request(of("page-faults", Some(Pace::Period(4)))),
        FlameRequest {
            difference: true,
            ..request(faults())
        },
        FlameRequest {
            over: Over::Window,
            ..request(faults())
        },
        FlameRequest {
            times: Some(FlameTimes::OnCpu),
            ..request(faults())
        },
    ] {
        let error = watch(&service, &session, request).unwrap_err();
        println!("{error}");
        assert_eq!(error.reason, Reason::ArgumentInvalid);
        assert!(error.message.contains("--unique"));
    }
    let slow = service.attach(target.pid(), "left[> 1ms]").unwrap();
    let error = watch(&service, &slow, request(faults())).unwrap_err();
    println!("{error}");
    assert!(error.reason == Reason::ArgumentInvalid && error.message.contains("count once"));

    // Nor is a scope that asks for a duration put in the place of another while somebody looks.
    let _pictures = watch(&service, &session, request(faults())).unwrap();
    let edit = ScopeEdit::Set("left[> 1ms]".to_owned());
    let edited = service.handle.edit_scope(ROOT, session.name.clone(), edit);
    let error = service.runtime.block_on(edited).unwrap_err();
    println!("{error}");
    assert!(error.reason == Reason::ArgumentInvalid && error.message.contains("count once"));
    for session in [session, slow] {
        service.end(&session);
    }
    assert_eq!(target.finish().status, Some(0));
}
