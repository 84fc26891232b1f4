//! Flame graphs of other things than time, against the target's own account of each.

use profiler_aggregate::ThreadId;
use profiler_daemon::{
    kernel::{Counter, Counting, Event, Pace},
    session::{FlamePicture, FlameTimes, Numbered, Pictures, Reason, SessionInfo},
};
use profiler_symbolize::Grouping;
use serde_json::Value;

use super::{
    disk::{Disk, NO_DIRECT_IO},
    fixture::{Fixture, small_scale, spec},
    service::{Service, Side, time_under},
    skipped,
};

const FIXTURE: &str = "costs_by_function";

fn of(name: &str, pace: Option<Pace>) -> FlameTimes {
    FlameTimes::Event(Event::parse(name, pace, 99).unwrap())
}

/// The fixture with as many calls as in the manifest, and a storm of so many pages.
fn target(storm: u64) -> Fixture {
    let calls = spec(FIXTURE).args[0].clone();
    Fixture::start(FIXTURE, &[calls, storm.to_string()])
}

/// Waits until the target has done its work; its own account.
fn account(target: &mut Fixture) -> impl Fn(&str) -> u64 + use<> {
    let costs: Value = serde_json::from_str(target.line().strip_prefix("costs ").unwrap()).unwrap();
    println!("the target: {costs}");
    assert_eq!(target.truth(), spec(FIXTURE).truth);
    move |name| costs[name].as_u64().unwrap()
}

fn end(
    service: &Service,
    session: &SessionInfo,
    mut pictures: Pictures<FlamePicture>,
) -> Numbered<FlamePicture> {
    service.end(session);
    let picture = service.until(&mut pictures, |picture| picture.ended.is_some());
    let summary = &picture.picture.summary;
    println!("{:?}: {summary:?}, lost {:?}", picture.times, picture.lost);
    let lost: u64 = picture
        .lost
        .iter()
        .filter_map(|(reason, count)| reason.starts_with("event_").then_some(count))
        .sum();
    assert_eq!(
        picture.attempted,
        summary.samples + lost,
        "nothing is lost unsaid"
    );
    assert_eq!(
        summary.samples,
        summary.inside + summary.outside + summary.elsewhere + summary.open
    );
    picture
}

#[test]
#[ignore = "needs root"]
fn faults_are_those_of_the_pages_that_each_function_touched() {
    let service = Service::start();
    let mut target = target(0);
    let mut bystander = self::target(0);
    let session = service.attach(target.pid(), "").unwrap();
    let pictures = service.watch_flame_of(&session, Grouping::Function, of("page-faults", None));
    let counters = [Counter::parse("page-faults").unwrap()];
    let (pid, tid) = (target.pid(), target.pid());
    let mut counting = Counting::start(&counters, &[ThreadId { tgid: pid, tid }], true).unwrap();
    bystander.say("go");
    target.say("go");
    let truth = account(&mut target);
    let picture = end(&service, &session, pictures);
    let counted = counting.read()[0][0].count;

    let under = |name: &str| time_under(&picture, Side::Inside, name).0;
    let (_, all) = time_under(&picture, Side::Inside, "touch");
    for (name, key) in [("touch", "touched"), ("wander", "wandered"), ("second", "second")] {
        assert_all(name, &picture, under(name), truth(key));
    }
    // The target is at rest: what is left to be counted is how it waits for the end.
    assert_all("all, of the kernel's own count", &picture, all, counted.max(all));
    assert!(counted <= all + picture.lost.values().sum::<u64>() + 2);
    assert!(picture.picture.summary.incomplete == 0);
    let _ = account(&mut bystander);
    for fixture in [target, bystander] {
        assert_eq!(fixture.finish().status, Some(0));
    }
}

/// Whether all is drawn that there was. A kernel that can be preempted leaves programs out now and then, and counts: of
/// memory it does not, nor do those that can be stopped amid the writing of a map, as emulated ones are.
fn assert_all(what: &str, picture: &FlamePicture, drawn: u64, truth: u64) {
    println!("{what}: {drawn}, the target: {truth}");
    let unseen = picture.lost.get("event_unseen").copied().unwrap_or(0);
    let untold = if small_scale() { truth / 2 } else { 0 };
    assert_eq!(picture.lost.len(), usize::from(unseen > 0), "{:?}", picture.lost);
    assert!(
        drawn <= truth && truth <= drawn + unseen + untold,
        "{what}: {drawn} and {unseen} unseen, the target: {truth}"
    );
}

#[test]
#[ignore = "needs root"]
fn faults_are_told_apart_by_how_long_a_call_took() {
    let service = Service::start();
    let mut target = target(0);
    let views: Vec<_> = ["work[> 30ms]", "work", "wander"]
        .into_iter()
        .map(|scope| {
            let session = service.attach(target.pid(), scope).unwrap();
            let pictures = service.watch_flame_of(&session, Grouping::Function, of("faults", None));
            (session, pictures)
        })
        .collect();
    target.say("go");
    let truth = account(&mut target);
    let mut pictures = views
        .into_iter()
        .map(|(session, pictures)| end(&service, &session, pictures));
    let (slow, all, wander) = (
        pictures.next().unwrap(),
        pictures.next().unwrap(),
        pictures.next().unwrap(),
    );
    let in_work = truth("touched") - truth("wandered") - truth("second") - truth("stormed");
    let touched = |picture: &FlamePicture, side| time_under(picture, side, "touch").0;
    assert_all("work", &all, touched(&all, Side::Inside), in_work);
    assert_all(
        "wander",
        &wander,
        touched(&wander, Side::Inside),
        truth("wandered"),
    );
    let (inside, outside) = (touched(&slow, Side::Inside), touched(&slow, Side::Outside));
    assert_all("work, slow or not", &slow, inside + outside, in_work);
    // A busy machine may make others slow too.
    let slowly = inside.min(truth("touched_slowly"));
    assert_all("slow calls of work", &slow, slowly, truth("touched_slowly"));
    assert!(small_scale() || inside <= truth("touched_slowly") + in_work / 10);
    assert!(!slow.picture.differences.is_empty());
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn switches_are_where_threads_sleep() {
    let service = Service::start();
    let mut target = target(0);
    let session = service.attach(target.pid(), "").unwrap();
    let pictures = service.watch_flame_of(&session, Grouping::Function, of("cs", None));
    target.say("go");
    let truth = account(&mut target);
    let picture = end(&service, &session, pictures);
    let (at_rest, all) = time_under(&picture, Side::Inside, "rest");
    // Between its two looks at its own switches, and a little around them.
    let calls = spec(FIXTURE).truth["rest"].calls;
    let around = if small_scale() { calls } else { calls / 10 };
    let least = at_rest.min(truth("switches_at_rest"));
    assert_all("switches in rest", &picture, least, truth("switches_at_rest"));
    assert!(at_rest <= truth("switches_at_rest") + around);
    assert!(all >= at_rest && all <= truth("switches") + 20);
    // They go on into the kernel.
    let in_kernel = |weight: &&profiler_aggregate::picture::NodeWeight| {
        let frame = picture.nodes[weight.node.0 as usize - 1].frame.0;
        picture.frames[frame as usize].kernel
    };
    let weights = picture.picture.weights.iter();
    let in_kernel: u64 = weights.filter(in_kernel).map(|weight| weight.inside_ns).sum();
    assert_eq!(in_kernel, all);
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn several_events_and_time_go_beside_each_other() {
    let service = Service::start();
    let mut target = target(0);
    let session = service.attach(target.pid(), "").unwrap();
    let watch = |times| service.watch_flame_of(&session, Grouping::Function, times);
    let views: Vec<_> = [
        FlameTimes::OnCpu,
        of("faults", None),
        of("cs", None),
        of("faults", Some(Pace::Period(4))),
        of("migrations", None),
    ]
    .into_iter()
    .map(|times| (times, watch(times)))
    .collect();
    target.say("go");
    let truth = account(&mut target);
    service.end(&session);
    let mut sums = Vec::new();
    for (times, mut pictures) in views {
        let picture = service.until(&mut pictures, |picture| picture.ended.is_some());
        assert_eq!(picture.times, times);
        let summary = &picture.picture.summary;
        let (in_touch, all) = time_under(&picture, Side::Inside, "touch");
        println!(
            "{times:?}: {all}, in touch {in_touch}, {} samples, lost {:?}",
            summary.samples, picture.lost
        );
        sums.push((in_touch, all, summary.samples));
        if times == of("faults", None) {
            assert_all("faults", &picture, in_touch, truth("touched"));
        }
    }
    assert_eq!((sums[1].1, sums[2].1), (sums[1].2, sums[2].2), "one by one");
    // What is left of each thread's last four is not sampled.
    assert_eq!(sums[3].1, sums[3].2 * 4);
    let unseen = if small_scale() { truth("touched") / 2 } else { 0 };
    assert!(sums[3].1 <= sums[1].1 + unseen && sums[3].1 + 2 * 4 + unseen >= sums[1].1);
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn a_storm_is_bounded_and_said() {
    let storm = if small_scale() { 60_000 } else { 300_000 };
    let service = Service::start();
    let mut target = target(storm);
    let session = service.attach(target.pid(), "").unwrap();
    let pictures = service.watch_flame_of(&session, Grouping::Function, of("faults", None));
    target.say("go");
    let truth = account(&mut target);
    let picture = end(&service, &session, pictures);
    let (_, all) = time_under(&picture, Side::Inside, "storm");
    let lost: u64 = picture.lost.values().sum();
    println!("drawn: {all}, lost: {:?}", picture.lost);
    assert!(all + lost >= truth("touched") && all + lost <= truth("touched") + 500);
    // It comes to far more than is taken in the time that it lasts, unless that is long.
    assert!(small_scale() || picture.lost["event_rate_limit"] > storm / 10);
    assert_eq!(target.finish().status, Some(0));

    // Thinned out, it is drawn in full.
    let mut target = self::target(storm);
    let session = service.attach(target.pid(), "").unwrap();
    let thinned = of("faults", Some(Pace::Period(64)));
    let pictures = service.watch_flame_of(&session, Grouping::Function, thinned);
    target.say("go");
    let truth = account(&mut target);
    let picture = end(&service, &session, pictures);
    let (in_storm, _) = time_under(&picture, Side::Inside, "storm");
    println!("drawn in storm: {in_storm} of {}", truth("stormed"));
    assert!(picture.lost.is_empty());
    let unseen = if small_scale() { storm / 2 } else { 0 };
    assert!(in_storm.abs_diff(truth("stormed")) <= 64 + unseen);
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn an_edit_of_the_scope_goes_on_with_the_event() {
    use profiler_daemon::session::ScopeEdit;

    let service = Service::start();
    let mut target = target(0);
    let session = service.attach(target.pid(), "wander").unwrap();
    let pictures = service.watch_flame_of(&session, Grouping::Function, of("faults", None));
    let edit = ScopeEdit::Set("work".to_owned());
    let edited = service
        .handle
        .edit_scope(super::service::ROOT, session.name.clone(), edit);
    service.runtime.block_on(edited).unwrap();
    target.say("go");
    let truth = account(&mut target);
    let picture = end(&service, &session, pictures);
    let (touched, _) = time_under(&picture, Side::Inside, "touch");
    let in_work = truth("touched") - truth("wandered") - truth("second") - truth("stormed");
    assert_all("work", &picture, touched, in_work);
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn memory_grows_where_it_is_asked_for() {
    const PAGE: u64 = 4096;
    let service = Service::start();
    let mut target = target(0);
    let mut bystander = self::target(0);
    let views: Vec<_> = ["", "work[> 30ms]"]
        .into_iter()
        .map(|scope| {
            let session = service.attach(target.pid(), scope).unwrap();
            let pictures = service.watch_flame_of(&session, Grouping::Function, of("memory-growth", None));
            (session, pictures)
        })
        .collect();
    bystander.say("go");
    target.say("go");
    let truth = account(&mut target);
    let _ = account(&mut bystander);
    // Both are of one process, and both of all that is taken.
    let mut pictures = views.into_iter().map(|(session, mut pictures)| {
        service.end(&session);
        service.until(&mut pictures, |picture| picture.ended.is_some())
    });
    let (all, slow) = (pictures.next().unwrap(), pictures.next().unwrap());
    println!("{:?}, lost {:?}", all.picture.summary, all.lost);
    let under = |picture: &FlamePicture, side, name: &str| time_under(picture, side, name).0;
    let in_work = truth("touched") - truth("wandered") - truth("second") - truth("stormed");
    for (name, pages) in [
        ("work", in_work),
        ("wander", truth("wandered")),
        ("grow", truth("grown")),
    ] {
        assert_all(name, &all, under(&all, Side::Inside, name), pages * PAGE);
    }
    let (_, total) = time_under(&all, Side::Inside, "main");
    // Its second thread takes a stack, and the C library memory for itself.
    assert!(total > (in_work + truth("wandered") + truth("grown") + truth("second")) * PAGE);
    let (inside, outside) = (
        under(&slow, Side::Inside, "work"),
        under(&slow, Side::Outside, "work"),
    );
    println!("in slow calls {inside}, in others {outside}");
    assert_all("work, slow or not", &slow, inside + outside, in_work * PAGE);
    assert!(small_scale() || inside >= truth("touched_slowly") * PAGE && outside > 0);
    for fixture in [target, bystander] {
        assert_eq!(fixture.finish().status, Some(0));
    }
}

#[test]
#[ignore = "needs root"]
fn bytes_are_those_that_each_function_gives_to_the_disk() {
    const BLOCK: u64 = 65_536;
    let event = Event::parse("block-bytes", None, 99).unwrap();
    if let Some(why) = event.missing() {
        return skipped(why);
    }
    let service = Service::start();
    let mut disk = Disk::start("bytes");
    let session = service.attach(disk.fixture.pid(), "").unwrap();
    let mut pictures = service.watch_flame_of(&session, Grouping::Function, FlameTimes::Event(event));
    if disk.go() != "disk direct" {
        return skipped(NO_DIRECT_IO);
    }
    for _ in ["put", "get", "save"] {
        println!("{}", disk.fixture.line());
    }
    let _ = disk.fixture.truth();
    service.end(&session);
    let picture = service.until(&mut pictures, |picture| picture.ended.is_some());
    let summary = &picture.picture.summary;
    println!("{summary:?}, lost {:?}", picture.lost);
    assert_eq!(picture.attempted, summary.samples);
    for name in ["put", "get", "save"] {
        let (bytes, all) = time_under(&picture, Side::Inside, name);
        println!(
            "{name}: {bytes} of {all} bytes, the target: {}",
            disk.rounds * BLOCK
        );
        // What the file system has to look up, or to keep, comes on top.
        assert!(bytes >= disk.rounds * BLOCK && bytes <= disk.rounds * BLOCK * 11 / 10 + (4 << 20));
    }
    assert_eq!(disk.fixture.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn requests_take_what_their_function_waited_for_the_disk() {
    let event = Event::parse("block-latency", None, 99).unwrap();
    if let Some(why) = event.missing() {
        return skipped(why);
    }
    let service = Service::start();
    let mut disk = Disk::start("latency");
    let mut views: Vec<_> = ["", "get", "put", "get[> 1000s]"]
        .into_iter()
        .map(|scope| {
            let session = service.attach(disk.fixture.pid(), scope).unwrap();
            let pictures = service.watch_flame_of(&session, Grouping::Function, FlameTimes::Event(event));
            (scope, session, pictures)
        })
        .collect();
    if disk.go() != "disk direct" {
        return skipped(NO_DIRECT_IO);
    }
    let walls: Vec<(&str, u64)> = ["put", "get", "save"]
        .into_iter()
        .map(|name| {
            let line = disk.fixture.line();
            let times: Value = serde_json::from_str(line.strip_prefix(name).unwrap()).unwrap();
            (name, times["wall_ns"].as_u64().unwrap())
        })
        .collect();
    let wall_ns = |name: &str| walls.iter().find(|(known, _)| *known == name).unwrap().1;
    let _ = disk.fixture.truth();
    for (scope, session, pictures) in &mut views {
        service.end(session);
        let picture = service.until(pictures, |picture| picture.ended.is_some());
        let summary = &picture.picture.summary;
        println!("`{scope}`: {summary:?}, lost {:?}", picture.lost);
        // A file system may look ahead for free space, which nobody waits for, to the end of the run and beyond.
        let unfinished = picture.lost.get("event_unfinished").copied().unwrap_or(0);
        assert_eq!(picture.lost.len(), usize::from(unfinished > 0));
        assert!(unfinished <= summary.samples / 10);
        assert_eq!(
            picture.attempted,
            summary.samples + unfinished,
            "nothing is lost unsaid"
        );
        assert_eq!(summary.open, 0);
        let (_, all_ns) = time_under(&picture, Side::Inside, "get");
        match *scope {
            "" => {
                for name in ["get", "put"] {
                    let (time_ns, _) = time_under(&picture, Side::Inside, name);
                    println!(
                        "{name}: {time_ns} ns of {all_ns}, around the calls {}",
                        wall_ns(name)
                    );
                    // The target waits for each, and then until it is woken and has a CPU.
                    assert!(time_ns <= wall_ns(name) && (small_scale() || time_ns >= wall_ns(name) / 10));
                }
            }
            "get" | "put" => {
                let requests = summary.inside;
                println!(
                    "{requests} requests, {all_ns} ns, around the calls {}",
                    wall_ns(scope)
                );
                // What is asked for lies together, or in a few pieces; a file system may have to look up where.
                // Beside one that the disk is busy with for others, the end of a request can be missed, and is counted then.
                assert!(requests + unfinished >= disk.rounds && requests <= 2 * disk.rounds);
                assert!(all_ns <= wall_ns(scope));
            }
            _ => assert_eq!((summary.inside, all_ns), (0, 0)),
        }
    }
    assert_eq!(disk.fixture.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn events_that_are_not_here_are_refused() {
    let service = Service::start();
    let target = target(0);
    let session = service.attach(target.pid(), "").unwrap();
    let event = Event::parse("cycles", None, 99).unwrap();
    if let Some(why) = event.missing() {
        let request =
            profiler_daemon::session::FlameRequest::of(Grouping::Function, Some(FlameTimes::Event(event)));
        let watch =
            service
                .handle
                .watch_flame(super::service::ROOT, session.name.clone(), 1_000_000_000, request);
        let error = service.runtime.block_on(watch).unwrap_err();
        println!("{error}");
        assert_eq!(error.reason, Reason::CounterNotFound);
        assert!(error.message.contains("`cycles`") && error.message.contains(&why));
        assert!(error.message.contains("page-faults") && !error.message.contains("task-clock"));
    }
    service.end(&session);
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn so_many_events_at_once_and_no_more() {
    let service = Service::start();
    let target = target(0);
    let session = service.attach(target.pid(), "").unwrap();
    let paces = (1..).map(|period| Some(Pace::Period(period)));
    let watch = |pace| {
        let request =
            profiler_daemon::session::FlameRequest::of(Grouping::Function, Some(of("faults", pace)));
        let name = session.name.clone();
        let watch = service
            .handle
            .watch_flame(super::service::ROOT, name, 1_000_000_000, request);
        service.runtime.block_on(watch)
    };
    let mut views = Vec::new();
    let error = paces.map(watch).find_map(|view| match view {
        Ok(view) => {
            views.push(view);
            None
        }
        Err(error) => Some(error),
    });
    let error = error.unwrap();
    println!("{error}");
    assert_eq!((views.len(), error.reason), (8, Reason::LimitReached));
    service.end(&session);
    // Their places are free again.
    let session = service.attach(target.pid(), "").unwrap();
    let mut view = service.watch_flame_of(&session, Grouping::Function, of("faults", None));
    service.end(&session);
    service.until(&mut view, |picture| picture.ended.is_some());
    assert_eq!(target.finish().status, Some(0));
}
