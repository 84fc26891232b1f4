//! A process that is starting a program for as long as it likes holds up nobody but who asks about it.

use profiler_daemon::{
    kernel::Event,
    session::{FlameRequest, FlameTimes},
};
use profiler_symbolize::Grouping;

use super::{
    service::{PATIENCE, ROOT, Service},
    skipped,
    starting::Starting,
};

#[test]
#[ignore = "needs root"]
fn a_process_that_is_starting_a_program_holds_up_nobody_but_who_asks_for_stacks_at_its_events() {
    let Some(mut target) = Starting::begin() else {
        return skipped("this kernel has no file systems of programs (FUSE)");
    };
    let service = Service::start();
    let session = service.attach(target.pid(), "").unwrap();
    // Its stacks can be walked from here on: nobody waits for that any more.
    let _plain = service.watch_flame_of(&session, Grouping::Function, FlameTimes::OnCpu);
    target.go();
    // The kernel opens no events for it now.
    let faults = FlameTimes::Event(Event::parse("page-faults", None, 99).unwrap());
    let request = FlameRequest::of(Grouping::Function, Some(faults));
    let watching = service
        .handle
        .watch_flame(ROOT, session.name, 100_000_000, request);
    let others = async {
        let listed = tokio::time::timeout(PATIENCE, service.handle.list(ROOT)).await;
        target.answer();
        listed
    };
    // In this order: others come later.
    let both = async { tokio::join!(watching, others) };
    let (watched, listed) = service.runtime.block_on(both);
    listed.expect("others wait for the process").unwrap();
    // It runs another program by now, which ends the session.
    println!("watched: {}", watched.is_ok());
}
