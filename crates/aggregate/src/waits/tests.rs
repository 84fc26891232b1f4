use proptest::prelude::*;

use super::*;

const MAIN: u32 = 1;

fn place(tid: u32, function: u32) -> Place {
    Place {
        thread: FrameId(1000 + tid),
        stack: Arc::new([FrameId(1), FrameId(function)]),
    }
}

fn woken_by(tid: u32, function: u32) -> Waker {
    Waker::Thread {
        thread: ThreadId { tgid: MAIN, tid },
        place: place(tid, function),
        is_own: true,
    }
}

/// A wait of a thread in a function.
fn wait(tid: u32, function: u32, times: [u64; 3], waker: Waker) -> Wait {
    Wait {
        thread: ThreadId { tgid: MAIN, tid },
        place: place(tid, function),
        waiting: Some(Waiting::Sleeping),
        lock: None,
        times,
        waker,
        still_ns: None,
    }
}

/// The same for a lock.
fn wait_for(address: u64, wait: Wait) -> Wait {
    let lock = Lock {
        memory: None,
        process: MAIN,
        address,
        name: None,
        allocated: None,
    };
    Wait {
        lock: Some(lock),
        ..wait
    }
}

/// The tree in lines, each behind as many spaces as it has parents.
fn lines(waits: &Waits) -> Vec<String> {
    fn below(waits: &Waits, parent: Option<usize>, depth: usize, lines: &mut Vec<String>) {
        for (at, node) in waits.nodes().iter().enumerate() {
            if node.parent != parent {
                continue;
            }
            let of = |place: &Place| {
                format!(
                    "{} in {}",
                    place.thread.0 - 1000,
                    place.stack[place.stack.len() - 1].0
                )
            };
            let what = match &node.kind {
                Kind::Waited(place, _, Locks::None) => format!("{} waited", of(place)),
                Kind::Waited(place, _, Locks::One(lock)) => {
                    format!("{} waited for {}", of(place), lock.address)
                }
                Kind::Waited(place, _, Locks::Others) => {
                    format!("{} waited for {} others", of(place), node.other_locks)
                }
                Kind::Woken(place, true) => format!("by {}", of(place)),
                Kind::Woken(place, false) => format!("by another, {}", of(place)),
                Kind::Interrupt(function) => format!("interrupt {}", function.0),
                Kind::Unseen => "unseen".to_owned(),
                Kind::GoesOn(_) => "goes on".to_owned(),
                Kind::Ran => "ran".to_owned(),
                Kind::Runnable => "runnable".to_owned(),
            };
            let own = if node.own_ns > 0 && matches!(node.kind, Kind::Waited(..) | Kind::Woken(..)) {
                format!(" ({} not followed)", node.own_ns)
            } else {
                String::new()
            };
            lines.push(format!("{}{what} {}{own}", " ".repeat(depth), node.time_ns));
            below(waits, Some(at), depth + 1, lines);
        }
    }
    let mut lines = Vec::new();
    below(waits, None, 0, &mut lines);
    lines
}

#[test]
fn a_chain_is_followed_to_its_end() {
    let mut waits = Waits::default();
    // 3 sleeps for 60 of the 100 that 1 waits, and 2 runs before and after it has waited for 3.
    waits.take(&wait(3, 30, [20, 80, 82], Waker::Interrupt(FrameId(99))), false);
    waits.take(&wait(2, 20, [10, 85, 88], woken_by(3, 31)), false);
    waits.take(&wait(1, 10, [0, 100, 105], woken_by(2, 21)), true);
    assert_eq!(
        lines(&waits),
        [
            "1 in 10 waited 100",
            " by 2 in 21 100",
            "  ran 22",
            "  runnable 3",
            "  2 in 20 waited 75",
            "   by 3 in 31 75",
            "    ran 13",
            "    runnable 2",
            "    3 in 30 waited 60",
            "     interrupt 99 60",
        ]
    );
    let total = Total {
        waits: 1,
        waited_ns: 100,
        runnable_ns: 5,
    };
    assert_eq!(waits.total(), total);
}

#[test]
fn a_queue_is_one_wait_for_those_at_its_head() {
    let mut waits = Waits::default();
    // They have one name, and one place where they wait; each has the lock for 10, asleep.
    let worker = |tid: u32, function: u32| Place {
        thread: FrameId(1007),
        stack: place(tid, function).stack,
    };
    let waker = |tid: u32| Waker::Thread {
        thread: ThreadId { tgid: MAIN, tid },
        place: worker(tid, 60),
        is_own: true,
    };
    let hold = |waits: &mut Waits, tid: u32| {
        let held = Wait {
            place: worker(tid, 70),
            ..wait(
                tid,
                70,
                [
                    u64::from(tid) * 10 + 1,
                    u64::from(tid) * 10 + 9,
                    u64::from(tid) * 10 + 9,
                ],
                Waker::Interrupt(FrameId(99)),
            )
        };
        waits.take(&held, false);
    };
    hold(&mut waits, 0);
    for tid in 1..=20 {
        let queued = Wait {
            place: worker(tid, 50),
            ..wait(
                tid,
                50,
                [0, u64::from(tid) * 10, u64::from(tid) * 10],
                waker(tid - 1),
            )
        };
        waits.take(&queued, true);
        hold(&mut waits, tid);
    }
    let all: u64 = (1..=20).map(|tid| tid * 10).sum();
    let held = all / 10 * 8;
    assert_eq!(
        lines(&waits),
        [
            format!("7 in 50 waited {all}"),
            format!(" by 7 in 60 {all}"),
            format!("  ran {}", all - held),
            format!("  7 in 70 waited {held}"),
            format!("   interrupt 99 {held}"),
        ]
    );
    assert_eq!(waits.nodes()[0].threads, 20);
    assert_eq!((waits.nodes()[0].count, waits.nodes()[0].longest_ns), (20, 200));
}

#[test]
fn a_queue_is_behind_one_lock() {
    let mut waits = Waits::default();
    // 1 waits for the lock 7 behind 2, who waited for it elsewhere, behind 3, who had it.
    waits.take(&wait_for(7, wait(2, 21, [0, 60, 60], woken_by(3, 30))), false);
    waits.take(&wait_for(7, wait(1, 10, [0, 100, 100], woken_by(2, 20))), true);
    // 4 waits at the same place for the lock 8 behind 2, who waited for another.
    waits.take(&wait_for(8, wait(4, 10, [10, 90, 90], woken_by(2, 20))), true);
    assert_eq!(
        lines(&waits),
        [
            "1 in 10 waited for 7 100",
            " by 2 in 20 40",
            "  ran 40",
            " by 3 in 30 60",
            "  ran 60",
            "4 in 10 waited for 8 80",
            " by 2 in 20 80",
            "  ran 30",
            "  2 in 21 waited for 7 50",
            "   by 3 in 30 50",
            "    ran 50",
        ]
    );
}

#[test]
fn bounds_the_number_of_distinct_locks() {
    let mut waits = Waits::default();
    for round in 0..2 {
        for address in 0..1000 {
            let at = (round * 1000 + address) * 10;
            let of_same = wait(1, 10, [at, at + 5, at + 5], Waker::Unseen);
            waits.take(&wait_for(address, of_same), true);
        }
    }
    let nodes = waits.nodes();
    let (locks, others): (Vec<&Node>, Vec<&Node>) = nodes
        .iter()
        .filter(|node| node.parent.is_none())
        .partition(|node| matches!(node.kind, Kind::Waited(_, _, Locks::One(_))));
    assert_eq!(locks.len(), MAX_LOCKS[0]);
    assert!(locks.iter().all(|lock| lock.time_ns == 10));
    assert_eq!(others.len(), 1);
    let rest = 1000 - MAX_LOCKS[0] as u64;
    assert_eq!(
        (others[0].time_ns, others[0].other_locks),
        (rest * 10, MAX_COUNTED)
    );
    assert_eq!(waits.total().waited_ns, 10_000);
}

#[test]
fn unknown_time_of_wakers_is_not_followed() {
    // 2 was off the CPU when it began, and is first seen to leave it at 60.
    let mut waits = Waits::new(HashSet::from([2, 4].map(|tid| ThreadId { tgid: MAIN, tid })));
    waits.take(&wait(2, 20, [60, 70, 70], Waker::Unseen), false);
    waits.take(&wait(1, 10, [0, 100, 100], woken_by(2, 21)), true);
    waits.take(&wait(1, 10, [100, 110, 110], woken_by(4, 41)), true);
    // 3 was there and ran; of others' threads nothing is known.
    waits.take(&wait(1, 10, [120, 130, 130], woken_by(3, 31)), true);
    let other = Waker::Thread {
        thread: ThreadId { tgid: 9, tid: 9 },
        place: place(9, 91),
        is_own: false,
    };
    waits.take(&wait(1, 10, [140, 150, 150], other), true);
    assert_eq!(
        lines(&waits),
        [
            "1 in 10 waited 130",
            " by 2 in 21 100 (60 not followed)",
            "  ran 30",
            "  2 in 20 waited 10",
            "   unseen 10",
            " by 4 in 41 10 (10 not followed)",
            " by 3 in 31 10",
            "  ran 10",
            " by another, 9 in 91 10 (10 not followed)",
        ]
    );
}

#[test]
fn forgets_the_oldest_waits_of_a_thread() {
    let mut waits = Waits::default();
    for at in 0..MAX_REMEMBERED as u64 + 10 {
        waits.take(
            &wait(2, 20, [at * 10, at * 10 + 4, at * 10 + 4], Waker::Unseen),
            false,
        );
    }
    let end = (MAX_REMEMBERED as u64 + 10) * 10;
    waits.take(&wait(1, 10, [0, end, end], woken_by(2, 21)), true);
    let woken = waits.nodes().swap_remove(1);
    assert_eq!((woken.time_ns, woken.own_ns), (end, 94));
    for tid in (10..).take(MAX_THREADS) {
        let at = end + u64::from(tid);
        waits.take(&wait(tid, 20, [at, at + 1, at + 1], Waker::Unseen), false);
    }
    assert!(waits.threads.len() <= MAX_THREADS);
    assert!(
        !waits.threads.contains_key(&ThreadId { tgid: MAIN, tid: 2 }),
        "it was seen before all others"
    );
}

#[test]
fn there_is_a_bound_to_what_is_looked_at() {
    let mut waits = Waits::default();
    for at in 0..200 {
        waits.take(
            &wait(2, 20, [at * 10, at * 10 + 4, at * 10 + 4], Waker::Unseen),
            false,
        );
    }
    // Each looks at all of them; there is no time in which more would be allowed.
    let mut look = |end_ns| {
        waits.take(&wait(1, 10, [0, 2000, end_ns], woken_by(2, 21)), true);
        // The second is who woke it.
        (waits.nodes().swap_remove(1).own_ns, waits.steps.left)
    };
    for _ in 0..STEPS_AT_ONCE / 200 {
        assert_eq!(look(2000).0, 0);
    }
    let (unfollowed_ns, left) = look(2000);
    assert!(unfollowed_ns > 1500 && left == 0, "{unfollowed_ns}, {left}");
    // A second later there is more.
    assert_eq!(look(2_000_000_000), (unfollowed_ns, STEPS_AT_ONCE - 200));
}

proptest! {
    #[test]
    fn the_parts_add_up(
        intervals in prop::collection::vec((0_u32..6, 0_u32..6, 0_u32..3, 1_u64..50, 0_u64..50, 0_u64..9), 0..300),
    ) {
        let mut waits = Waits::new(HashSet::from([ThreadId { tgid: MAIN, tid: 5 }]));
        let mut clocks = [0_u64; 6];
        let mut all = 0;
        for (tid, waker, function, ran, waited, queued) in intervals {
            let clock = &mut clocks[tid as usize];
            let start = *clock + ran;
            let times = [start, start + waited, start + waited + queued];
            *clock = times[2];
            let waker = match waker {
                0 => Waker::Unseen,
                1 => Waker::Interrupt(FrameId(99)),
                other => woken_by(other, 40),
            };
            waits.take(&wait(tid, function, times, waker), true);
            all += waited;
        }
        let nodes = waits.nodes();
        let roots = nodes.iter().filter(|node| node.parent.is_none());
        prop_assert_eq!(roots.map(|node| node.time_ns).sum::<u64>(), all);
        prop_assert_eq!(waits.total().waited_ns, all);
        for (at, node) in nodes.iter().enumerate() {
            let children = nodes.iter().filter(|child| child.parent == Some(at));
            prop_assert_eq!(children.map(|child| child.time_ns).sum::<u64>() + node.own_ns, node.time_ns);
            prop_assert!(node.parent.is_none_or(|parent| parent < at));
        }
    }
}

#[test]
fn an_uninterruptible_wait_shows_the_time_it_held_up() {
    let mut waits = Waits::default();
    let disk = |still_ns, times| Wait {
        waiting: Some(Waiting::Uninterruptible),
        still_ns,
        ..wait(1, 7, times, Waker::Unseen)
    };
    waits.take(&disk(Some(30), [0, 100, 110]), true);
    // Clocks of two CPUs may differ, and all of one that goes on counts.
    waits.take(&disk(Some(u64::MAX), [200, 250, 260]), true);
    waits.take(&disk(Some(9), [300, 350, 360]), false);
    let asleep = Wait {
        still_ns: Some(40),
        ..wait(1, 8, [400, 450, 460], Waker::Unseen)
    };
    waits.take(&asleep, true);
    let nodes = waits.nodes();
    let held_up: Vec<_> = nodes
        .iter()
        .filter(|node| node.parent.is_none())
        .map(|node| node.held_up_ns)
        .collect();
    assert_eq!(held_up, [Some(80), None]);
}

#[test]
fn time_whose_waits_are_missing_is_not_taken_for_time_in_which_a_thread_ran() {
    let mut waits = Waits::default();
    // What 2 did until 60 is not known; then it waited from 70 to 80.
    waits.forget_until(60);
    waits.take(&wait(2, 20, [70, 80, 82], Waker::Interrupt(FrameId(99))), false);
    waits.take(&wait(1, 10, [0, 100, 105], woken_by(2, 21)), true);
    assert_eq!(
        lines(&waits),
        [
            "1 in 10 waited 100",
            " by 2 in 21 100 (60 not followed)",
            "  ran 28",
            "  runnable 2",
            "  2 in 20 waited 10",
            "   interrupt 99 10",
        ]
    );
}
