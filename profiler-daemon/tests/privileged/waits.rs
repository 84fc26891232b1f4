//! Who is waited for, against a target that says for how long.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
};

use profiler_aggregate::waits::{Kind, Locks, MAX_LOCKS, Node, Waiting, Waker};
use profiler_daemon::session::{NewSession, Reason, SessionInfo, SpansRequest, WaitsPicture};
use profiler_symbolize::FrameId;
use serde_json::Value;

use super::{
    fixture::{Fixture, small_scale, spec},
    service::{ROOT, Service, session_of},
};

/// Where the calls of one function spent their time, by the target's clocks.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_field_names, reason = "units stand last")]
struct Truth {
    /// Not on the CPU.
    off_ns: u64,
    /// The part of it in which it could run, and had no CPU.
    queued_ns: u64,
    /// What was asked for of its waits.
    least_ns: u64,
}

/// Lets it run to its end; what it says of its functions.
fn finish(target: &mut Fixture) -> BTreeMap<String, Truth> {
    let mut truths = BTreeMap::new();
    loop {
        let line = target.line();
        assert!(!line.is_empty(), "it ended early:\n{}", target.output);
        if line.starts_with("truth ") {
            return truths;
        }
        if let Some((name, json)) = line.split_once(' ')
            && let Ok(said) = serde_json::from_str::<Value>(json)
        {
            let number = |name: &str| said[name].as_u64().unwrap();
            let truth = Truth {
                off_ns: number("wall_ns").saturating_sub(number("cpu_ns")),
                queued_ns: number("queued_ns"),
                least_ns: number("least_ns"),
            };
            truths.insert(name.to_owned(), truth);
        }
    }
}

/// A tree that can be looked through by names.
struct Tree<'a>(&'a WaitsPicture);

impl<'a> Tree<'a> {
    fn name(&self, frame: profiler_symbolize::FrameId) -> &'a str {
        &self.0.frames[frame.0 as usize].function
    }

    /// What a node is, by the thread's name and whether a function is on its stack.
    fn is(&self, node: &Node, wanted: &str, thread: &str, function: &str) -> bool {
        let (what, place) = match &node.kind {
            Kind::Waited(place, Waiting::Sleeping, _) => ("waited", place),
            Kind::Woken(place, true) => ("woken", place),
            _ => return false,
        };
        let on_stack = place.stack.iter().any(|frame| self.name(*frame) == function);
        what == wanted && self.name(place.thread) == thread && on_stack
    }

    /// The children of some nodes that are so; none of no nodes.
    fn below(&self, parents: &[usize], is: impl Fn(&Node) -> bool) -> Vec<usize> {
        let nodes = self.0.nodes.iter().enumerate();
        nodes
            .filter(|(_, node)| node.parent.is_some_and(|parent| parents.contains(&parent)) && is(node))
            .map(|(at, _)| at)
            .collect()
    }

    fn roots(&self, is: impl Fn(&Node) -> bool) -> Vec<usize> {
        let nodes = self.0.nodes.iter().enumerate();
        nodes
            .filter(|(_, node)| node.parent.is_none() && is(node))
            .map(|(at, _)| at)
            .collect()
    }

    fn time(&self, nodes: &[usize]) -> u64 {
        nodes.iter().map(|at| self.0.nodes[*at].time_ns).sum()
    }

    /// Every time is that of its parts.
    fn assert_adds_up(&self) {
        let nodes = &self.0.nodes;
        for (at, node) in nodes.iter().enumerate() {
            let parts: u64 = self.time(&self.below(&[at], |_| true));
            assert_eq!(parts + node.own_ns, node.time_ns, "{node:?}");
        }
        assert_eq!(self.time(&self.roots(|_| true)), self.0.total.waited_ns);
    }

    fn print(&self, parent: Option<usize>, depth: usize) {
        for (at, node) in self.0.nodes.iter().enumerate() {
            if node.parent != parent || node.time_ns * 200 < self.0.total.waited_ns {
                continue;
            }
            let of = |place: &profiler_aggregate::waits::Place| {
                let stack: Vec<&str> = place.stack.iter().rev().map(|frame| self.name(*frame)).collect();
                format!("{} {}", self.name(place.thread), stack.join(" < "))
            };
            let what = match &node.kind {
                Kind::Waited(place, waiting, Locks::One(lock)) => {
                    let name = lock.name.map(|name| self.name(name));
                    format!("{waiting:?} {name:?} {:#x} {}", lock.address, of(place))
                }
                Kind::Waited(place, waiting, locks) => {
                    format!("{waiting:?} {locks:?} {} {}", node.other_locks, of(place))
                }
                Kind::Woken(place, own) => format!("by (own: {own}) {}", of(place)),
                Kind::Interrupt(function) => format!("interrupt {}", self.name(*function)),
                other => format!("{other:?}"),
            };
            println!(
                "{}{:.2} ms ({:.2} own, {} times, {} threads) {what}",
                "  ".repeat(depth),
                node.time_ns as f64 / 1e6,
                node.own_ns as f64 / 1e6,
                node.count,
                node.threads
            );
            self.print(Some(at), depth + 1);
        }
    }
}

#[test]
#[ignore = "needs root"]
fn a_chain_and_a_queue_lead_to_who_is_waited_for() {
    let service = Service::start();
    let mut target = Fixture::start("chain_of_waits", &spec("chain_of_waits").args);
    let mut views: Vec<_> = ["", "ask"]
        .into_iter()
        .map(|scope| {
            let session = service.attach(target.pid(), scope).unwrap();
            let pictures = service.watch_waits(&session);
            (session, pictures)
        })
        .collect();
    target.say("go");
    let truth = finish(&mut target);
    println!("{truth:#?}");
    let mut last = Vec::new();
    for (session, pictures) in &mut views {
        service.end(session);
        last.push(service.until(pictures, |picture| picture.ended.is_some()));
    }
    let [all, of_calls] = &*last else { unreachable!() };
    println!("lost: {:?}", all.lost);
    // A slow machine may not have the time for all stacks, and says so; the kernel hides the end of a few intervals.
    let is_behind = small_scale() && !all.lost.is_empty();
    let is_hidden = all.lost.keys().all(|reason| *reason == "off_cpu_unseen");
    assert!(is_hidden || is_behind);
    let tree = Tree(all);
    tree.print(None, 0);
    tree.assert_adds_up();
    Tree(of_calls).assert_adds_up();

    // The asker waits for the relayer, which waits for the fetcher, which sleeps.
    for tree in [&tree, &Tree(of_calls)] {
        let ask = tree.roots(|node| tree.is(node, "waited", "asker", "ask"));
        let by_relayer = tree.below(&ask, |node| tree.is(node, "woken", "relayer", "relayer"));
        let relay = tree.below(&by_relayer, |node| tree.is(node, "waited", "relayer", "relay"));
        let by_fetcher = tree.below(&relay, |node| tree.is(node, "woken", "fetcher", "fetcher"));
        let fetch = tree.below(&by_fetcher, |node| tree.is(node, "waited", "fetcher", "fetch"));
        let timer = tree.below(
            &fetch,
            |node| matches!(node.kind, Kind::Interrupt(function) if tree.name(function) == "hrtimer_wakeup"),
        );
        let [asked_ns, slept_ns, timer_ns] = [&ask, &fetch, &timer].map(|nodes| tree.time(nodes));
        println!("asked for {asked_ns} ns, of which the fetcher slept {slept_ns}, by the timer {timer_ns}");
        let Truth {
            off_ns, queued_ns, ..
        } = truth["ask"];
        let waited_ns = off_ns.saturating_sub(queued_ns);
        assert!(
            (asked_ns > 0 || is_behind) && asked_ns <= off_ns + off_ns / 50,
            "{off_ns}"
        );
        assert!(slept_ns > 0 && timer_ns > 0 || is_behind);
        if !small_scale() {
            assert!(asked_ns >= waited_ns / 10 * 8, "{asked_ns} of {waited_ns}");
            assert!(slept_ns >= truth["fetch"].least_ns / 10 * 9, "{slept_ns}");
            assert!(timer_ns >= slept_ns / 10 * 9, "{timer_ns} of {slept_ns}");
        }
    }
    let tree_of_calls = Tree(of_calls);
    let others = tree_of_calls.roots(|node| !tree_of_calls.is(node, "waited", "asker", "ask"));
    assert!(
        others.is_empty() || is_behind,
        "no other thread waits in `ask`: {others:?}"
    );

    // Twenty clerks wait for the keeper, and for those before them.
    let enter = tree.roots(|node| tree.is(node, "waited", "clerk-*", "enter"));
    let threads: usize = enter.iter().map(|at| all.nodes[*at].threads).max().unwrap_or(0);
    let by_keeper = tree.below(&enter, |node| tree.is(node, "woken", "keeper", "keeper"));
    let keep = tree.below(&by_keeper, |node| tree.is(node, "waited", "keeper", "keep"));
    let by_clerks = tree.below(&enter, |node| tree.is(node, "woken", "clerk-*", "clerk"));
    let [queued_ns, keeper_ns, kept_ns, clerks_ns] =
        [&enter, &by_keeper, &keep, &by_clerks].map(|nodes| tree.time(nodes));
    println!(
        "{threads} clerks queued {queued_ns} ns: {keeper_ns} for the keeper, who slept {kept_ns}; {clerks_ns} for clerks"
    );
    let Truth {
        off_ns,
        queued_ns: without_cpu_ns,
        ..
    } = truth["enter"];
    let waited_ns = off_ns.saturating_sub(without_cpu_ns);
    assert!(
        (queued_ns > 0 || is_behind) && queued_ns <= off_ns + off_ns / 50,
        "{off_ns}"
    );
    assert!(kept_ns > 0 && clerks_ns > 0 || is_behind);
    if !small_scale() {
        assert_eq!(threads, 20);
        assert!(queued_ns >= waited_ns / 10 * 8, "{queued_ns} of {waited_ns}");
        assert!(
            kept_ns >= truth["keep"].least_ns * 20 / 10 * 7,
            "each of twenty waits for the keeper"
        );
        assert!(keeper_ns + clerks_ns >= queued_ns / 10 * 9);
    }
    assert_eq!(target.finish().status, Some(0));
}

/// What the target says of a lock.
struct LockTruth {
    name: String,
    address: u64,
    /// How long it was waited for, at most.
    off_ns: u64,
    /// The part of it in which the waiter could run, and had no CPU.
    queued_ns: u64,
}

impl LockTruth {
    /// On an emulated CPU that stands still, a lock that is held for milliseconds may be free before it is waited for: it is one of the
    /// many others then.
    fn was_hardly_waited_for(&self) -> bool {
        small_scale() && self.off_ns < 1_000_000
    }
}

/// Lets it run until it waits for its last lock; what it says of the others.
fn lock_truths(target: &mut Fixture) -> Vec<LockTruth> {
    let mut truths = Vec::new();
    loop {
        let line = target.line();
        assert!(!line.is_empty(), "it ended early:\n{}", target.output);
        if line.starts_with("truth ") {
            return truths;
        }
        if let Some((name, json)) = line.split_once(' ')
            && let Ok(said) = serde_json::from_str::<Value>(json)
        {
            let number = |name: &str| said[name].as_u64().unwrap();
            truths.push(LockTruth {
                name: name.to_owned(),
                address: number("address"),
                off_ns: number("wall_ns").saturating_sub(number("cpu_ns")),
                queued_ns: number("queued_ns"),
            });
        }
    }
}

#[test]
#[ignore = "needs root"]
fn locks_are_told_apart_by_their_address() {
    // Whose stack a lock lies on is not known where that thread ran whenever it was asked for.
    assert!((0..3).any(|_| tell_locks_apart()) || small_scale());
}

/// Until a thread waits for a lock at this address, which is that of the table, and goes on doing so: it sleeps in a call of `futex`.
fn wait_until_one_waits_for(pid: u32, address: u64) {
    let sleeps = |task: std::fs::DirEntry| {
        let call = std::fs::read_to_string(task.path().join("syscall")).unwrap_or_default();
        call.starts_with(&format!("202 {address:#x} "))
    };
    let tasks = || std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    while !tasks().any(|task| sleeps(task.unwrap())) {
        std::thread::yield_now();
    }
}

/// Holds the locks of a target against what it says of them; returns whether that which lies on the stack of a thread other than
/// the first was told to.
fn tell_locks_apart() -> bool {
    let mut is_kept_known = false;
    let service = Service::start();
    let mut target = Fixture::start("locks", &spec("locks").args);
    let session = service.attach(target.pid(), "").unwrap();
    let mut pictures = service.watch_waits(&session);
    target.say("go");
    let truths = lock_truths(&mut target);
    wait_until_one_waits_for(target.pid(), truths[0].address);
    service.end(&session);
    let picture = service.until(&mut pictures, |picture| picture.ended.is_some());
    println!("lost: {:?}", picture.lost);
    let tree = Tree(&picture);
    tree.print(None, 0);
    tree.assert_adds_up();
    // A slow machine may not have the time for all stacks.
    let is_behind = small_scale() && !picture.lost.is_empty();
    let enter = tree.roots(|node| tree.is(node, "waited", "waiter", "waiter"));
    let of_lock = |address: u64| -> Vec<usize> {
        let is = |at: &&usize| match picture.nodes[**at].kind {
            Kind::Waited(_, _, Locks::One(lock)) => lock.address == address,
            _ => false,
        };
        enter.iter().filter(is).copied().collect()
    };
    let pid = target.pid();
    for truth in &truths {
        let nodes = of_lock(truth.address);
        let waited_ns = tree.time(&nodes);
        println!("{}: waited for {waited_ns} ns of {}", truth.name, truth.off_ns);
        assert!(
            waited_ns > 0 || is_behind || truth.was_hardly_waited_for(),
            "{}",
            truth.name
        );
        for at in &nodes {
            let Kind::Waited(_, _, Locks::One(lock)) = picture.nodes[*at].kind else {
                unreachable!()
            };
            assert_eq!(lock.process, pid);
            let name = lock.name.map(|name| tree.name(name));
            let expected = match &*truth.name {
                "table" => Some("table_lock"),
                // Behind the first row, and the number in the second.
                "row" => Some("rows+56"),
                "pi" => Some("pi_lock"),
                _ => None,
            };
            assert_eq!(name, expected);
            let memory = lock.memory.map(|memory| tree.name(memory));
            println!("{}: in {memory:?}", truth.name);
            match &*truth.name {
                "heap" => assert_eq!(memory, Some("[heap]")),
                "first" => assert_eq!(memory, Some(&*format!("stack of locks ({pid})"))),
                "kept" => {
                    assert!(memory.is_none_or(|memory| memory.starts_with("stack of keeper (")));
                    is_kept_known |= memory.is_some();
                }
                _ => assert_eq!(memory, None),
            }
        }
        let by_keeper = tree.below(&nodes, |node| tree.is(node, "woken", "keeper", "keeper"));
        let goes_on = tree.below(&nodes, |node| matches!(node.kind, Kind::GoesOn(_)));
        let (kept_ns, open_ns) = (tree.time(&by_keeper), tree.time(&goes_on));
        assert!((truth.name == "table") != goes_on.is_empty() || is_behind);
        let over_ns = waited_ns - open_ns;
        assert!(
            over_ns <= truth.off_ns + truth.off_ns / 50,
            "{over_ns} of {}",
            truth.off_ns
        );
        // An interval whose end the kernel did not tell may be one of these.
        if !small_scale() && picture.lost.is_empty() {
            let least_ns = truth.off_ns.saturating_sub(truth.queued_ns);
            assert!(over_ns >= least_ns / 10 * 8, "{over_ns} of {least_ns}");
            assert!(kept_ns >= over_ns / 10 * 9, "{kept_ns} of {over_ns}");
        }
        for at in goes_on {
            let Kind::GoesOn(held_by) = picture.nodes[at].kind else {
                unreachable!()
            };
            let name = held_by.map_or("", |thread| tree.name(thread));
            assert!(name.starts_with("keeper ("), "held by {name:?}");
        }
    }
    // The kernel may come to the wait in more than one way.
    let mut shown: BTreeMap<&[FrameId], usize> = BTreeMap::new();
    let mut others = 0;
    for node in enter.iter().map(|at| &picture.nodes[*at]) {
        match &node.kind {
            Kind::Waited(place, _, Locks::One(_)) => *shown.entry(&place.stack).or_default() += 1,
            _ => others += node.other_locks,
        }
    }
    assert!(shown.values().all(|locks| *locks <= MAX_LOCKS[0]), "{shown:?}");
    println!("{others} other locks");
    assert!(others > 20 || small_scale(), "{others}");
    assert_eq!(target.finish().status, Some(0));
    is_kept_known
}

/// A session of all waits, which remembers who allocates memory.
fn remembering(service: &Service, pid: u32) -> SessionInfo {
    let request = NewSession {
        allocations: true,
        ..session_of(pid, "")
    };
    let created = service.handle.create(ROOT, request);
    service.runtime.block_on(created).unwrap()
}

#[test]
#[ignore = "needs root"]
fn locks_on_a_heap_tell_who_allocated_them() {
    let service = Service::start();
    let mut target = Fixture::start("heap_locks", &spec("heap_locks").args);
    // One that goes before the other does takes nothing with it.
    let goes = remembering(&service, target.pid());
    let session = remembering(&service, target.pid());
    let mut pictures = service.watch_waits(&session);
    target.say("go");
    let mut goes = Some(goes);
    let mut truths = BTreeMap::new();
    loop {
        let line = target.line();
        assert!(!line.is_empty(), "it ended early:\n{}", target.output);
        if line.starts_with("truth ") {
            break;
        }
        if line.trim_end() == "allocated"
            && let Some(goes) = goes.take()
        {
            service.end(&goes);
        }
        if let Some((name, json)) = line.split_once(' ')
            && let Ok(said) = serde_json::from_str::<Value>(json)
        {
            let number = |name: &str| said[name].as_u64().unwrap();
            let memory = format!("+{} in {} bytes of {name} ", number("offset"), number("size"));
            truths.insert(number("address"), (name.to_owned(), memory));
        }
    }
    assert_eq!(truths.len(), 8, "{truths:?}");
    service.end(&session);
    let picture = service.until(&mut pictures, |picture| picture.ended.is_some());
    println!("lost: {:?}", picture.lost);
    let tree = Tree(&picture);
    tree.print(None, 0);
    let mut told = BTreeMap::new();
    for node in &picture.nodes {
        if let Kind::Waited(_, _, Locks::One(lock)) = node.kind
            && let Some((name, _)) = truths.get(&lock.address)
        {
            let allocated = lock.allocated.map(|allocated| tree.name(allocated));
            println!("{name}: {allocated:?}");
            told.entry(lock.address).or_insert_with(Vec::new).push(allocated);
        }
    }
    // A slow machine may not have the time for all stacks; and before 7.0 the kernel may refuse memory for a thread's.
    let is_behind = small_scale() && !picture.lost.is_empty();
    for (address, (name, memory)) in &truths {
        let told = told.get(address).map_or(&[][..], |told| told);
        assert!(!told.is_empty() || is_behind, "{name}: not waited for");
        for allocated in told {
            match (&**name, allocated) {
                ("by_nobody", told) => assert_eq!(*told, None),
                (_, Some(told)) => {
                    assert!(told.starts_with(memory), "{name}: {told}");
                    assert!(
                        told.contains(" at heap_locks.c:") && told.contains(" < main"),
                        "{told}"
                    );
                }
                (_, None) => assert!(is_behind, "{name}"),
            }
        }
    }
    assert!(
        !picture.lost.contains_key("allocation_limit"),
        "{:?}",
        picture.lost
    );
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn slow_calls_name_the_lock_that_they_waited_for() {
    let service = Service::start();
    let mut target = Fixture::start("locks", &spec("locks").args);
    let session = service.attach(target.pid(), "enter").unwrap();
    let mut pictures = service.watch_spans(&session, 50);
    target.say("go");
    let truths = lock_truths(&mut target);
    service.end(&session);
    let picture = service.until(&mut pictures, |picture| picture.ended.is_some());
    let name = |frame: FrameId| &*picture.frames[frame.0 as usize].function;
    let mut seen = BTreeMap::new();
    for span in &picture.spans {
        let Some(wait) = span.longest_wait.as_ref() else {
            continue;
        };
        if let Some(lock) = wait.lock {
            let truth = truths.iter().find(|truth| truth.address == lock.address);
            let truth = truth.map_or("many", |truth| &*truth.name);
            let said = lock.name.or(lock.memory).map(name);
            *seen.entry((truth, said)).or_insert(0) += 1;
            match truth {
                "table" => assert_eq!(said, Some("table_lock")),
                "row" => assert_eq!(said, Some("rows+56")),
                "heap" | "many" => assert_eq!(said, Some("[heap]")),
                _ => {}
            }
        }
    }
    println!(
        "of {} calls: {seen:?}; lost: {:?}",
        picture.spans.len(),
        picture.lost
    );
    let named: usize = seen.values().sum();
    // On a busy machine calls are slow that waited for a CPU.
    assert!(named * 2 >= picture.spans.len() || small_scale() && named > 0);
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn slow_calls_tell_who_ended_their_longest_wait() {
    let service = Service::start();
    let mut target = Fixture::start("chain_of_waits", &spec("chain_of_waits").args);
    let mut views: Vec<_> = ["ask", "fetch"]
        .into_iter()
        .map(|scope| {
            let session = service.attach(target.pid(), scope).unwrap();
            let request = SpansRequest {
                number: 20,
                waits: true,
                system_calls: false,
            };
            let pictures = service.watch_spans_as(&session, request);
            (session, pictures)
        })
        .collect();
    target.say("go");
    finish(&mut target);
    let mut seen = [BTreeMap::new(), BTreeMap::new()];
    for ((session, pictures), seen) in views.iter_mut().zip(&mut seen) {
        service.end(session);
        let picture = service.until(pictures, |picture| picture.ended.is_some());
        let name = |frame: FrameId| picture.frames[frame.0 as usize].function.to_string();
        for wait in picture.spans.iter().filter_map(|span| span.longest_wait.as_ref()) {
            let by = match &wait.ended_by {
                Some(Waker::Thread { place, is_own, .. }) => {
                    let ran = place.stack.iter().map(|frame| name(*frame));
                    let ran = ran.filter(|function| function == "relayer").count();
                    format!("{} in relayer: {ran}, own: {is_own}", name(place.thread))
                }
                Some(Waker::Interrupt(function)) => name(*function),
                other => format!("{other:?}"),
            };
            *seen.entry(by).or_insert(0) += 1;
        }
    }
    println!("{seen:#?}");
    for (seen, expected) in seen
        .iter()
        .zip(["relayer in relayer: 1, own: true", "hrtimer_wakeup"])
    {
        let right = seen.get(expected).copied().unwrap_or(0);
        let all: usize = seen.values().sum();
        // A call may have waited for a CPU for longest.
        assert!(right * 2 > all || small_scale() && right > 0, "{seen:?}");
    }
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn what_no_signal_ends_holds_up_while_nobody_runs() {
    let service = Service::start();
    let mut target = Fixture::start("held_up", &spec("held_up").args);
    let everywhere = service.attach(target.pid(), "").unwrap();
    let mut pictures = service.watch_waits(&everywhere);
    let inside = service.attach(target.pid(), "beside").unwrap();
    let mut in_calls = service.watch_waits(&inside);
    target.say("go");
    let ran: Value = serde_json::from_str(target.line().strip_prefix("ran ").unwrap()).unwrap();
    let ran_ns = ran["ran_ns"].as_u64().unwrap();
    assert_eq!(target.truth(), spec("held_up").truth);
    service.end(&everywhere);
    let picture = service.until(&mut pictures, |picture| picture.ended.is_some());
    println!("lost: {:?}", picture.lost);
    let tree = Tree(&picture);
    let of = |function: &str| -> (u64, u64) {
        let nodes = picture.nodes.iter().filter(|node| {
            node.parent.is_none()
                && matches!(&node.kind, Kind::Waited(place, Waiting::Uninterruptible, _)
                if place.stack.iter().any(|frame| tree.name(*frame) == function))
        });
        let times = nodes.map(|node| (node.time_ns, node.held_up_ns.unwrap()));
        times.fold((0, 0), |(time_ns, held_ns), (time, held)| {
            (time_ns + time, held_ns + held)
        })
    };
    let (alone, beside) = (of("alone"), of("beside"));
    println!("alone: held up {} of {} ns", alone.1, alone.0);
    println!("beside: held up {} of {} ns", beside.1, beside.0);
    for (time_ns, held_ns) in [alone, beside] {
        assert!(time_ns > 0 && held_ns <= time_ns);
    }
    assert!(alone.1 >= alone.0 / 10 * 9);
    // By its own clock, in which that of interrupts may be.
    let by_clock_ns = beside.0.saturating_sub(ran_ns);
    println!("the other thread ran for {ran_ns} ns, and not for {by_clock_ns}");
    assert!(ran_ns > 0);
    assert!(beside.1.abs_diff(by_clock_ns) <= beside.0 / 10 || small_scale());
    // Others hold nothing up, and nor do waits inside of calls say so.
    let is_uninterruptible = |node: &&Node| matches!(node.kind, Kind::Waited(_, Waiting::Uninterruptible, _));
    let others = picture.nodes.iter().filter(|node| !is_uninterruptible(node));
    assert!(others.into_iter().all(|node| node.held_up_ns.is_none()));
    service.end(&inside);
    let picture = service.until(&mut in_calls, |picture| picture.ended.is_some());
    assert!(picture.nodes.iter().any(|node| is_uninterruptible(&node)));
    assert!(picture.nodes.iter().all(|node| node.held_up_ns.is_none()));
    assert_eq!(target.finish().status, Some(0));
}

/// Memory of this process that is in no file.
fn own_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kilobytes: u64 = line.unwrap().trim().trim_end_matches(" kB").parse().unwrap();
    kilobytes << 10
}

#[test]
#[ignore = "needs root"]
fn many_threads_that_hand_over_take_bounded_memory() {
    const MOST: u64 = 400 << 20;
    let service = Service::start();
    let (pairs, rounds) = if small_scale() { (100, 100) } else { (5000, 800) };
    let args = [pairs, rounds, pairs.min(200), 5].map(|number: u32| number.to_string());
    let mut target = Fixture::start("switches", &args);
    let session = service.attach(target.pid(), "").unwrap();
    let mut pictures = service.watch_waits(&session);
    let before = own_memory();
    target.say("go");
    let has_finished = AtomicBool::new(false);
    let mut most = 0;
    std::thread::scope(|threads| {
        threads.spawn(|| {
            target.truth();
            has_finished.store(true, Ordering::Relaxed);
        });
        while !has_finished.load(Ordering::Relaxed) {
            service.until(&mut pictures, |_| true);
            most = most.max(own_memory().saturating_sub(before));
        }
    });
    service.end(&session);
    let picture = service.until(&mut pictures, |picture| picture.ended.is_some());
    let said: Vec<&str> = target.output.lines().collect();
    println!(
        "{said:?}: {} MiB at most, {} waits, lost {:?}",
        most >> 20,
        picture.total.waits,
        picture.lost
    );
    assert!(picture.total.waits > 0);
    Tree(&picture).assert_adds_up();
    assert!(most < MOST, "{most}");
    assert_eq!(target.finish().status, Some(0));
}

#[test]
#[ignore = "needs root"]
fn waits_by_duration_are_refused() {
    let service = Service::start();
    let target = Fixture::start("chain_of_waits", &spec("chain_of_waits").args);
    let watch = |scope: &str| {
        let session = service.attach(target.pid(), scope).unwrap();
        let name = session.name.clone();
        let watch = service
            .runtime
            .block_on(service.handle.watch_waits(ROOT, name, 100_000_000));
        (session, watch)
    };
    let (_, refused) = watch("ask[> 1ms]");
    let error = refused.unwrap_err();
    assert_eq!(error.reason, Reason::ArgumentInvalid);
    assert!(error.message.contains("remove the condition on it"), "{error}");
    let (session, watched) = watch("ask");
    let _pictures = watched.unwrap();
    let edit = |scope: &str| {
        let edit = service
            .handle
            .set_scope(ROOT, session.name.clone(), scope.to_owned());
        service.runtime.block_on(edit)
    };
    for scope in ["ask[> 1ms]", "chain_of_waits.c:55"] {
        assert_eq!(
            edit(scope).unwrap_err().reason,
            Reason::ArgumentInvalid,
            "{scope}"
        );
    }
    assert_eq!(edit("relay").unwrap().scope, "relay");
}
