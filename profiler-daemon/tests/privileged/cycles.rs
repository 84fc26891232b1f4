//! Probes come and go on a live target: nothing adds up, nothing is invented, and profilers do not disturb
//! one another.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use profiler_daemon::session::ExitMethod;

use super::{
    bpf,
    fixture::{Fixture, long_scale, small_scale},
    memory,
    service::{Service, ended, function},
};

/// What this process holds.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Holdings {
    /// What each leads to, and how many lead there; but for the target's files, which are cached: a rare sample can open one
    /// more.
    descriptors: BTreeMap<String, usize>,
    kernel: BTreeSet<bpf::Held>,
    memory_kib: usize,
}

fn descriptors(target: u32) -> BTreeMap<String, usize> {
    let maps = std::fs::read_to_string(format!("/proc/{target}/maps")).unwrap();
    let entries = std::fs::read_dir("/proc/self/fd").unwrap();
    let links = entries.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    // Sockets and pipes are numbered.
    let kind = |link: std::path::PathBuf| link.to_string_lossy().split(":[").next().unwrap().to_owned();
    let mut kinds = BTreeMap::new();
    for kind in links.map(kind) {
        // The copy that the vDSO is read from is such a file.
        let cached =
            kind.starts_with('/') && (maps.contains(kind.as_str()) || kind.starts_with("/memfd:vdso"));
        if !cached {
            *kinds.entry(kind).or_default() += 1;
        }
    }
    kinds
}

impl Holdings {
    fn now(target: u32) -> Self {
        Self {
            descriptors: descriptors(target),
            kernel: bpf::held_by(std::process::id()),
            memory_kib: memory::allocated_kib(),
        }
    }
}

impl Holdings {
    /// Descriptors and what the kernel keeps that were not held before.
    fn more_than(&self, before: &Self) -> (Vec<String>, Vec<bpf::Held>) {
        let had = |kind: &String| before.descriptors.get(kind).copied().unwrap_or(0);
        let descriptors = self.descriptors.iter().filter(|(kind, count)| {
            // A rare sample may lead to one more file of debug information, which is read for several purposes.
            let cached = kind.starts_with("/usr/lib/debug/") && **count <= 3;
            **count > had(kind) && !cached
        });
        let descriptors =
            descriptors.map(|(kind, count)| format!("{kind}: {} before, {count} now", had(kind)));
        let kernel = self.kernel.difference(&before.kernel);
        (descriptors.collect(), kernel.copied().collect())
    }

    /// What is held once the threads beside the session task are done with what they were last asked for: no more than
    /// before, if it ever becomes that. It may be less: threads may not have been done before.
    fn settled(before: &Self, target: u32) -> Self {
        let give_up = Instant::now() + Duration::from_secs(20);
        loop {
            let now = Self::now(target);
            if now.more_than(before) == (vec![], vec![]) || Instant::now() > give_up {
                return now;
            }
            std::thread::yield_now();
        }
    }
}

/// Adds and removes a session with both views as often as is asked for; gives what was held at some time.
fn cycle(service: &Service, pid: u32, times: u32) -> BTreeSet<bpf::Held> {
    let mut held = BTreeSet::new();
    for _ in 0..times {
        let session = service.attach(pid, "f[>= p95]").unwrap();
        let flame = service.watch_flame(&session);
        let latency = service.watch_latency(&session);
        held.append(&mut service.held());
        service.end(&session);
        drop((flame, latency));
    }
    held
}

/// What may come and go in the heap without being a leak.
const MEMORY_SLACK_KIB: usize = 512;

#[test]
#[ignore = "needs root"]
fn cycles_leave_everything_where_it_was() {
    let times = match (small_scale(), long_scale()) {
        (true, _) => 20,
        (_, true) => 1_000,
        _ => 100,
    };
    let mut target = Fixture::start("slowpath", &[]);
    target.say("go");
    let service = Service::own();
    // A session that stays, so that it is the probes alone that come and go.
    let stays = service.attach(target.pid(), "").unwrap();
    let warm_up = times / 10;
    cycle(&service, target.pid(), warm_up);
    let before = Holdings::now(target.pid());
    let start = Instant::now();
    let mut held = cycle(&service, target.pid(), times / 2);
    let middle = Holdings::settled(&before, target.pid());
    held.append(&mut cycle(&service, target.pid(), times / 2));
    let took = start.elapsed() / times;
    let after = Holdings::settled(&before, target.pid());
    println!(
        "{times} cycles of {took:?}: {} descriptors, {} in the kernel, {} KiB before, {} halfway, {} after",
        before.descriptors.values().sum::<usize>(),
        before.kernel.len(),
        before.memory_kib,
        middle.memory_kib,
        after.memory_kib
    );
    assert_eq!(after.more_than(&before), (vec![], vec![]));
    // What leaks grows in both halves; the debug information of a library that a rare sample lies in is read once.
    let grown = [(&before, &middle), (&middle, &after)]
        .map(|(before, after)| after.memory_kib.saturating_sub(before.memory_kib));
    assert!(
        grown.iter().any(|kib| *kib <= MEMORY_SLACK_KIB / 2),
        "{grown:?} KiB"
    );
    bpf::wait_until_gone(&held.difference(&after.kernel).copied().collect());
    service.end(&stays);
    bpf::wait_until_gone(&held);
    bpf::wait_until_unchanged(target.pid());
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn two_profilers_on_one_target_count_both() {
    let calls = if small_scale() { 2_000 } else { 50_000 };
    let (one, other) = (Service::start(), Service::own());
    let mut target = Fixture::start("calls", &["bench".to_owned()]);
    let first = one.attach(target.pid(), "fn_*").unwrap();
    let second = other.attach(target.pid(), "fn_push").unwrap();
    let go = format!("go {calls} fn_push");
    let run = |target: &mut Fixture| {
        target.say(&go);
        assert!(target.line().starts_with("bench "), "{}", target.output);
    };
    run(&mut target);
    let seen = other.last_latency(&second);
    assert_eq!(ended(function(&seen, "fn_push")), 9 * calls);
    // The other one goes, this one counts on.
    run(&mut target);
    let seen = one.last_latency(&first);
    let seen = function(&seen, "fn_push");
    assert_eq!((ended(seen), seen.open, seen.abandoned), (2 * 9 * calls, 0, 0));
    run(&mut target);
    target.say("exit");
    assert_eq!(target.truth()["fn_push"].calls, 3 * 9 * calls);
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn a_call_that_was_open_when_the_probes_came_has_no_duration() {
    let service = Service::start();
    let target = Fixture::start("idle", &[]);
    // It has been in `main` for a while, and returns from there at its end.
    let session = service
        .attach_by(target.pid(), "main", Some(ExitMethod::Ret))
        .unwrap();
    let mut pictures = service.watch_latency(&session);
    assert_eq!(target.finish().status, Some(0));
    let picture = service.until(&mut pictures, |picture| picture.ended.is_some());
    let seen = function(&picture, "main");
    assert_eq!((ended(seen), seen.open, seen.abandoned), (0, 0, 0), "{seen:?}");
    assert_eq!(seen.lost.get("open_at_attach"), Some(&1), "{:?}", seen.lost);
}
