//! A process that keeps whoever looks at it waiting, for as long as its user likes, costs others nothing.

use std::{
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use profiler_daemon::{kernel, session::ExitMethod};
use profiler_symbolize::{Reason, Symbolizer};

use super::{
    fixture::Fixture,
    service::{PATIENCE, ROOT, Service},
    skipped, stacks,
    stacks_target::{COMPLETE, Target, enough},
    starting::Starting,
};

/// A user that this machine has not.
const USER: u32 = 61_238;

const NO_FUSE: &str = "this kernel has no file systems of programs (FUSE)";
const NOT_SILENT: &str = "this kernel closes files before it locks a program that starts";

#[test]
#[ignore = "needs root"]
fn stacks_of_others_are_walked_by_their_tables_beside_a_process_that_does_not_answer() {
    let Some(mut silent) = Starting::begin_as(USER) else {
        return skipped(NO_FUSE);
    };
    let service = Service::start();
    let session = service.attach(silent.pid(), "").unwrap();
    let mut pictures = service.watch_flame(&session);
    if !silent.go_silent() {
        return skipped(NOT_SILENT);
    }
    // What it has mapped is looked at each second.
    let begun = Instant::now();
    service.until(&mut pictures, |_| begun.elapsed() > Duration::from_secs(3));
    let args = [stacks::FEW, "tower"].map(str::to_owned);
    let mut target = Target::start_on(service, "stacks", &args, &[], ExitMethod::Ret);
    let judged = target.judge(
        &stacks::truth(),
        enough() / 4,
        "beside a process that does not answer",
    );
    silent.answer();
    target.finish();
    judged.assert(COMPLETE);
}

#[test]
#[ignore = "needs root"]
fn names_are_looked_up_beside_a_process_that_does_not_answer() {
    let Some(mut silent) = Starting::begin_as(USER) else {
        return skipped(NO_FUSE);
    };
    if !silent.go_silent() {
        return skipped(NOT_SILENT);
    }
    let pid = silent.pid();
    let (named, answer) = mpsc::channel();
    thread::spawn(move || {
        let mut symbolizer = Symbolizer::new();
        let mut frames = Vec::new();
        symbolizer.meet(pid, 0);
        symbolizer.resolve_user(pid, 0x40_0000, 0, &mut frames);
        frames.push(symbolizer.process(pid, 0));
        symbolizer.memory(pid, 0x40_0000, 0);
        symbolizer.resolve_user(
            std::process::id(),
            stacks::truth as *const () as u64,
            0,
            &mut frames,
        );
        let table = symbolizer.frames();
        let frames = frames.iter().map(|frame| table[frame.0 as usize].clone());
        named.send(frames.collect::<Vec<_>>()).unwrap();
    });
    let frames = answer.recv_timeout(PATIENCE);
    silent.answer();
    let frames = frames.expect("names are looked up in time");
    assert_eq!(frames[0].unresolved, Some(Reason::NotAnswering), "{frames:?}");
    // Its name, which it is about to change.
    assert_ne!(&*frames[1].function, "[unknown]");
    let own = frames.last().unwrap();
    assert!(own.function.ends_with("stacks::truth"), "{own:?}");
}

#[test]
#[ignore = "needs root"]
fn attaching_waits_a_bounded_time_for_a_process_whose_memory_is_locked() {
    attaching_beside_locked_memory(false);
}

#[test]
#[ignore = "needs root"]
fn perf_events_are_waited_for_a_bounded_time_beside_a_process_whose_memory_is_locked() {
    attaching_beside_locked_memory(true);
}

fn attaching_beside_locked_memory(force_perf: bool) {
    const ATTACH_PATIENCE: Duration = Duration::from_secs(1);
    let Some(mut locked) = Starting::begin_locked() else {
        return skipped(NO_FUSE);
    };
    let service = Service::with(kernel::Config {
        attach_patience: ATTACH_PATIENCE,
        force_perf,
        ..kernel::Config::default()
    });
    let target = Fixture::start("calls", &["run", "1", "1000", "fn_push"].map(str::to_owned));
    let before = service.attach(target.pid(), "fn_push").unwrap();
    locked.go();
    // Both have mapped the C library.
    let refused = service.attach(target.pid(), "getenv");
    // Whoever ends a session, or attaches once more, meanwhile holds up nobody else.
    let (handle, name) = (service.handle.clone(), before.name);
    let ending = service.runtime.spawn(async move { handle.end(ROOT, name).await });
    let again = service.attach(target.pid(), "getenv");
    let others = async { tokio::time::timeout(PATIENCE, service.handle.list(ROOT)).await };
    let listed = service.runtime.block_on(others);
    locked.answer();
    for refused in [refused, again] {
        let refused = refused.unwrap_err();
        assert!(
            refused
                .message
                .contains("keeps the kernel from placing the probe"),
            "{refused:?}"
        );
    }
    listed.expect("others wait for the process").unwrap();
    service.runtime.block_on(ending).unwrap().unwrap();
    // Once that has gone on, nothing is left of what was given up.
    let begun = Instant::now();
    let attached = loop {
        match service.attach(target.pid(), "getenv") {
            Err(_) if begun.elapsed() < PATIENCE => {}
            attached => break attached,
        }
    };
    service.end(&attached.unwrap());
}
