//! What all sessions share, and how much of it one user may have.

use std::{
    fmt::Write as _,
    fs,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use profiler_daemon::{
    kernel::{Event, Pace},
    session::{Caller, FlamePicture, FlameRequest, FlameTimes, Pictures, Reason, SessionError, SessionInfo},
};
use profiler_symbolize::Grouping;
use profiler_testkit::has_program;

use super::{
    admission::{Programs, USER, start},
    fixture::{Fixture, spec},
    service::{ROOT, Service, session_of},
    skipped,
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

/// Libraries, and rules of each: all together more than there is room for.
const LIBRARIES: usize = 18;
const RULES: usize = 3_640;

/// A library each of whose functions has a rule that no other has.
fn made_up_library(folder: &Path, number: usize) -> PathBuf {
    let mut text = ".text\n".to_owned();
    for rule in 0..RULES {
        let offset = 8 * (number * RULES + rule + 1_000);
        let function = format!(".cfi_startproc\n.cfi_def_cfa_offset {offset}\nret\n.cfi_endproc\n");
        text.write_str(&function).unwrap();
    }
    text.push_str(".section .note.GNU-stack,\"\",@progbits\n");
    let [source, library] = ["s", "so"].map(|kind| folder.join(format!("made_up_{number}.{kind}")));
    fs::write(&source, text).unwrap();
    let mut compiler = Command::new("gcc");
    compiler
        .args(["-shared", "-nostdlib", "-o"])
        .arg(&library)
        .arg(&source);
    assert!(compiler.status().unwrap().success());
    library
}

#[test]
#[ignore = "needs root"]
fn made_up_libraries_of_a_user_leave_stacks_of_others_complete() {
    if !has_program("gcc") || !has_program("python3") {
        skipped("made-up libraries: there is no gcc, or no python3");
        return;
    }
    let service = Service::start();
    let programs = Programs::new("made-up-libraries");
    let folder = programs.own().parent().unwrap().to_owned();
    let script = "import ctypes, sys\n\
                  kept = [ctypes.CDLL(path) for path in sys.argv[1:]]\n\
                  print('ready', flush=True)\n\
                  sys.stdin.readline()\n";
    let mut command = Command::new("python3");
    command.arg("-c").arg(script).uid(USER.uid).gid(USER.gid);
    command.args((0..LIBRARIES).map(|number| made_up_library(&folder, number)));
    let of_user = Fixture::start_by(&mut command);
    let session = service.attach(of_user.pid(), "").unwrap();
    let mut pictures = service.watch_flame(&session);
    let without = |lost: &std::collections::BTreeMap<&'static str, u64>| lost.get("no_unwind_table").copied();
    let picture = service.until(&mut pictures, |picture| without(&picture.lost).is_some());
    // A quarter of the rules is that of four of these libraries; python's own have some of them.
    let refused = without(&picture.lost).unwrap_or(0);
    println!("{refused} files have no table");
    assert!((14..=17).contains(&refused), "{:?}", picture.lost);

    let mut of_root = Fixture::start("costs_by_function", &spec("costs_by_function").args);
    let other = service.attach(of_root.pid(), "").unwrap();
    let mut faults = watch_faults(&service, ROOT, &other, 1).unwrap();
    of_root.say("go");
    let _ = (of_root.line(), of_root.truth());
    service.end(&other);
    let picture = service.until(&mut faults, |picture| picture.ended.is_some());
    let summary = &picture.picture.summary;
    assert!(summary.samples > 0 && summary.incomplete == 0, "{summary:?}");
    assert_eq!(without(&picture.lost), None);
    service.end(&session);
    for target in [of_user, of_root] {
        assert_eq!(target.finish().status, Some(0));
    }
}
