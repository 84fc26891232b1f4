//! Counters over time against the target's own account.

use profiler_daemon::{
    kernel::Counter,
    session::{Reason, TimelineBucket, TimelineRequest},
};
use serde_json::Value;

use super::{
    fixture::{Fixture, small_scale, spec},
    service::{PATIENCE, ROOT, Service},
    skipped,
    starting::Starting,
};

const STEP_NS: u64 = 20_000_000;

fn request(counters: &[&str]) -> TimelineRequest {
    TimelineRequest {
        counters: counters
            .iter()
            .map(|name| Counter::parse(name).unwrap())
            .collect(),
        step_ns: STEP_NS,
        threads: true,
    }
}

/// The sum of a counter over all buckets; each has a value.
fn total(buckets: &[TimelineBucket], at: usize) -> u64 {
    buckets
        .iter()
        .map(|bucket| bucket.counted[at].count.unwrap())
        .sum()
}

/// Whether a count is another, but for a share of it and a few.
fn assert_near(what: &str, counted: u64, truth: u64, few: u64) {
    println!("{what}: {counted}, the target: {truth}");
    assert!(
        counted.abs_diff(truth) <= truth / 50 + few,
        "{what}: {counted}, the target: {truth}"
    );
}

#[test]
#[ignore = "needs root"]
fn counters_are_those_of_the_targets_own_account() {
    let service = Service::start();
    let spec = spec("costs");
    let mut target = Fixture::start("costs", &spec.args);
    let session = service.attach(target.pid(), "work").unwrap();
    let asked = request(&["task-clock", "page-faults", "context-switches", "syscalls"]);
    let mut stream = service.watch_timeline(&session, asked).unwrap();
    target.say("go");
    let costs: Value = serde_json::from_str(target.line().strip_prefix("costs ").unwrap()).unwrap();
    assert_eq!(target.truth(), spec.truth);
    service.end(&session);
    let mut buckets: Vec<TimelineBucket> = Vec::new();
    while buckets.last().is_none_or(|last| last.ended.is_none()) {
        let next = async { tokio::time::timeout(PATIENCE, stream.recv()).await };
        buckets.push(service.runtime.block_on(next).expect("no bucket came").unwrap());
    }
    assert_eq!(target.finish().status, Some(0));

    let calls = spec.truth["work"].calls;
    let truth = |name: &str| costs[name].as_u64().unwrap();
    // It also reads the word to go, and writes its account.
    // The kernel charges a thread with its switches, which the counter stands still for: some microseconds each.
    let few_ns = 5_000_000 + truth("switches") * 10_000;
    assert_near("on a CPU", total(&buckets, 0), truth("cpu_ns"), few_ns);
    assert_near("faults", total(&buckets, 1), truth("faults"), 20);
    assert_near("switches", total(&buckets, 2), truth("switches"), 20);
    // A call makes thirty and four more; and one where its return goes through the kernel. Where the clock cannot be read
    // without the kernel, it is asked for that too.
    let asked = total(&buckets, 3);
    println!("system calls: {asked} of {calls} calls");
    assert!(asked >= calls * 34 && (asked <= calls * 35 + 60 || small_scale()));
    let began: u64 = buckets.iter().map(|bucket| bucket.calls.unwrap()).sum();
    assert_eq!(began, calls);
    for (before, bucket) in buckets.iter().zip(&buckets[1..]) {
        assert_eq!((bucket.from_ns, bucket.seq), (before.to_ns, before.seq + 1));
        // One that ended late makes the next one short.
        assert!(bucket.to_ns > bucket.from_ns);
    }
    assert!(buckets.len() >= 5 && buckets.iter().all(|bucket| bucket.slow == 0));

    // The second thread has come, under the name that it gave itself, with work of its own.
    let of_threads = |at: usize| -> u64 {
        let threads = buckets.iter().flat_map(|bucket| &bucket.threads);
        threads.map(|thread| thread.counted[at].count.unwrap()).sum()
    };
    let threads = buckets.iter().flat_map(|bucket| &bucket.threads);
    let second: u64 = threads
        .filter(|thread| thread.tid != target_thread(&buckets))
        .map(|thread| thread.counted[1].count.unwrap())
        .sum();
    println!(
        "faults of the second thread: {second}, of both: {}",
        of_threads(1)
    );
    // What it did before it was found is not its own.
    assert!(of_threads(1) <= total(&buckets, 1));
    assert!(second >= truth("faults") / 4, "most of its half");
}

/// The target's first thread, which is there from the beginning.
fn target_thread(buckets: &[TimelineBucket]) -> u32 {
    buckets[0].threads[0].tid
}

#[test]
#[ignore = "needs root"]
fn counters_that_are_not_here_are_refused() {
    let service = Service::start();
    let target = Fixture::start("costs", &spec("costs").args);
    let session = service.attach(target.pid(), "work").unwrap();
    for name in ["tracepoint:sched:no_such_thing", "cycles"] {
        let counter = Counter::parse(name).unwrap();
        let Some(why) = counter.missing() else {
            // A machine that counts in hardware.
            continue;
        };
        let error = service.watch_timeline(&session, request(&[name])).unwrap_err();
        println!("{error}");
        assert_eq!(error.reason, Reason::CounterNotFound);
        assert!(
            error.message.contains(name) && error.message.contains(&why),
            "{error}"
        );
        assert!(error.metadata[0].1.contains("task-clock"), "those that there are");
    }
    service.end(&session);
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn a_process_that_is_starting_a_program_holds_up_nobody_but_who_counts_for_it() {
    let Some(mut target) = Starting::begin() else {
        return skipped("this kernel has no file systems of programs (FUSE)");
    };
    let service = Service::start();
    let session = service.attach(target.pid(), "").unwrap();
    target.go();
    // The kernel lets nobody begin to count for it now.
    let watching = service
        .handle
        .watch_timeline(ROOT, session.name, request(&["task-clock"]));
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
    println!("counted: {}", watched.is_ok());
}
