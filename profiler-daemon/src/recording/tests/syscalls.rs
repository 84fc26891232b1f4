//! System calls of a recording that was made up.

use std::collections::{BTreeMap, HashMap};

use profiler_aggregate::system_calls::{Counted, SystemCalls};

use super::*;
use crate::{
    kernel::CallNumber,
    session::{Numbered, RecordedCalls, RecordedTurn, SyscallsPicture, UNNAMED},
};

const READ: CallNumber = CallNumber {
    number: 0,
    is_32_bit: false,
};

/// Calls of a turn that are counted together: which, their error, who made them, how many, how long.
#[derive(Clone, Debug)]
struct Made {
    number: u32,
    error: Option<u32>,
    /// 0 for a stack that was not taken, 1 and 2 for two others.
    stack: u64,
    calls: u64,
    time_ns: u64,
}

impl Made {
    fn call(&self) -> CallNumber {
        CallNumber {
            number: self.number,
            is_32_bit: self.number == 3,
        }
    }

    fn counted(&self) -> Counted {
        Counted {
            calls: self.calls,
            failed: if self.error.is_some() { self.calls } else { 0 },
            time_ns: self.time_ns,
            longest_ns: self.time_ns / self.calls,
        }
    }
}

fn recorded(target: &Target, made: &[Made]) -> Vec<RecordedCalls> {
    let calls = made.iter().map(|made| RecordedCalls {
        call: made.call(),
        error: made.error,
        stacks: match made.stack {
            0 => Stacks::default(),
            stack => Stacks::make(RECORDED_GROUPINGS.into_iter().collect(), |_| {
                if stack == 1 {
                    target.fast.clone()
                } else {
                    target.slow.clone()
                }
            }),
        },
        counted: made.counted(),
    });
    calls.collect()
}

/// A turn of a time: two calls from one stack, one of them failed.
pub fn turn(target: &Target, from_ns: u64, to_ns: u64) -> RecordedTurn {
    let made = |error| Made {
        number: 0,
        error,
        stack: 1,
        calls: 1,
        time_ns: MS,
    };
    RecordedTurn {
        from_ns,
        to_ns,
        calls: recorded(target, &[made(None), made(Some(2))]),
        open: BTreeMap::from([(READ, 1)]),
        begun_before: 1,
        lost: BTreeMap::from([("syscall_limit", 3), (UNNAMED, 2)]),
    }
}

impl Replay {
    pub fn syscalls(&self, session: &str, by: Grouping) -> Result<Numbered<SyscallsPicture>, String> {
        let watch = self.handle.watch_syscalls(ROOT, session.to_owned(), 1, by);
        let pictures = self.runtime.block_on(watch).map_err(|error| error.to_string())?;
        let picture = pictures.borrow().clone();
        Ok(picture.unwrap())
    }

    fn syscalls_of(&self, begin_ns: u64, end_ns: u64) -> Result<Numbered<SyscallsPicture>, String> {
        let session = self.session("", begin_ns, end_ns)?;
        self.syscalls(&session, Grouping::Function)
    }
}

/// Calls by kind and caller, who is the last function of a stack.
fn by_caller(picture: &SyscallsPicture) -> BTreeMap<(CallNumber, String), Counted> {
    let calls = picture.calls.iter().flat_map(|total| {
        let callers = total.callers.iter();
        callers.map(|(stack, counted)| {
            let last = stack
                .last()
                .map(|frame| picture.frames[frame.0 as usize].function.to_string());
            ((total.call, last.unwrap_or_default()), *counted)
        })
    });
    calls.collect()
}

/// Writes turns, each told `late` batches after its own.
fn write_turns(path: &Path, turns: &[Vec<Made>], late: usize) {
    let mut target = Target::new();
    let mut batches = vec![target.first()];
    for number in 0..turns.len() + late {
        let batch = target.next();
        let from_ns = BEGIN_NS + number.saturating_sub(late) as u64 * BATCH_NS;
        let turn = number.checked_sub(late).and_then(|number| turns.get(number));
        let turn = turn.map(|made| {
            Arc::new(RecordedTurn {
                from_ns,
                to_ns: from_ns + BATCH_NS,
                calls: recorded(&target, made),
                open: BTreeMap::from([(READ, number as u64)]),
                begun_before: 2,
                lost: BTreeMap::new(),
            })
        });
        batches.push(RecordBatch {
            turns: turn.into_iter().collect(),
            ..batch
        });
    }
    write(path, &batches);
}

fn made() -> impl Strategy<Value = Made> {
    let what = (
        0_u32..4,
        prop_oneof![Just(None), (1_u32..4).prop_map(Some)],
        0_u64..3,
    );
    (what, 1_u64..1000, 0_u64..1_000_000).prop_map(|((number, error, stack), calls, time_ns)| Made {
        number,
        error,
        stack,
        calls,
        time_ns,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// What comes out is what went in; and parts behind one another have together what the whole has, wherever it is cut.
    #[test]
    fn turns_add_up_and_so_do_parts_of_the_time(
        turns in proptest::collection::vec(proptest::collection::vec(made(), 0..6), 2..8),
        late in 0_usize..4,
        cut_percent in 10_u64..90,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        write_turns(&path, &turns, late);
        let replay = Replay::of(&path);
        let whole = replay.syscalls_of(0, u64::MAX).unwrap();

        let mut expected = SystemCalls::default();
        for made in turns.iter().flatten() {
            expected.take(made.call(), made.error, made.stack, made.counted());
        }
        let numbers = ["", "fast", "slow"];
        let caller = |stack: &Vec<FrameId>| {
            let last = stack.last().map_or("", |frame| &whole.frames[frame.0 as usize].function);
            numbers.iter().position(|name| *name == last).unwrap() as u64
        };
        let expected = expected.table(&whole.calls.iter().map(|total| (total.call, total.open)).filter(|(_, open)| *open > 0).collect(), |stack| stack);
        prop_assert_eq!(whole.calls.len(), expected.len());
        for (shown, expected) in whole.calls.iter().zip(&expected) {
            prop_assert_eq!((shown.call, shown.all, &shown.errors), (expected.call, expected.all, &expected.errors));
            let shown: HashMap<u64, Counted> = shown.callers.iter().map(|(stack, counted)| (caller(stack), *counted)).collect();
            prop_assert_eq!(shown, expected.callers.iter().copied().collect());
        }
        let count = turns.len() as u64;
        prop_assert_eq!(whole.watched_ns, count * BATCH_NS);
        prop_assert_eq!(whole.begun_before, 2 * count);
        // Where turns were told late, the recording goes on behind the last of them, and that is said.
        let ended = whole.ended.as_deref().unwrap_or_default();
        prop_assert!(ended.starts_with("the end of the recording"), "{}", ended);

        let length_ns = count * BATCH_NS;
        let cut_ns = length_ns / 100 * cut_percent;
        let parts = [replay.syscalls_of(0, cut_ns), replay.syscalls_of(cut_ns, u64::MAX)];
        let mut sum: BTreeMap<(CallNumber, String), Counted> = BTreeMap::new();
        let mut watched_ns = 0;
        // A part may have no turn: that is refused.
        for part in parts.into_iter().flatten() {
            watched_ns += part.watched_ns;
            for (key, counted) in by_caller(&part) {
                sum.entry(key).or_default().add(counted);
            }
        }
        prop_assert_eq!(sum, by_caller(&whole));
        prop_assert_eq!(watched_ns, whole.watched_ns);
    }
}

#[test]
fn a_part_has_its_own_calls_and_says_from_when_to_when() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let made = |calls| {
        vec![Made {
            number: 0,
            error: None,
            stack: 1,
            calls,
            time_ns: calls * MS,
        }]
    };
    write_turns(&path, &[made(1), made(2), made(4), made(8)], 0);
    let replay = Replay::of(&path);
    let part = replay.syscalls_of(BATCH_NS, 2 * BATCH_NS + MS).unwrap();
    assert_eq!(part.calls[0].all.calls, 6, "the turns that begin in it");
    assert_eq!(part.calls[0].open, 2, "those at its end");
    assert_eq!(part.watched_ns, 2 * BATCH_NS);
    let ended = part.ended.as_deref().unwrap();
    assert!(ended.contains("returned from 0.250 s to 0.750 s"), "{ended}");
    let refused = replay.syscalls_of(BATCH_NS + 1, BATCH_NS + MS).unwrap_err();
    assert!(refused.contains("four times a second"), "{refused}");
}

#[test]
fn callers_are_shown_by_what_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let mut target = Target::new();
    let first = target.first();
    let batch = target.next();
    let turns = vec![Arc::new(turn(&target, batch.from_ns, batch.to_ns))];
    write(&path, &[first, RecordBatch { turns, ..batch }]);
    let replay = Replay::of(&path);
    let session = replay.session("f", 0, u64::MAX).unwrap();
    for (by, depth) in [
        (Grouping::Function, 3),
        (Grouping::Line, 3),
        (Grouping::Module, 1),
    ] {
        let picture = replay.syscalls(&session, by).unwrap();
        let [total] = &picture.calls[..] else {
            panic!("one kind: {picture:?}")
        };
        assert_eq!((total.all.calls, total.all.failed), (2, 1));
        assert_eq!(total.errors, BTreeMap::from([(2, 1)]));
        let [(stack, counted)] = &total.callers[..] else {
            panic!("one caller: {picture:?}")
        };
        assert_eq!((stack.len(), counted.time_ns), (depth, 2 * MS), "{by:?}");
        assert_eq!(picture.lost, BTreeMap::from([("syscall_limit", 3), (UNNAMED, 2)]));
    }
}

#[test]
fn what_was_not_counted_by_itself_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let mut batches = calls_inside("a[>= 0ns]/b", &[3, 5]);
    let target = Target::new();
    for batch in &mut batches {
        batch.turns = vec![Arc::new(turn(&target, batch.from_ns, batch.to_ns))];
    }
    write(&path, &batches);
    let replay = Replay::of(&path);
    let ask = |scope: &str| {
        let session = replay.session(scope, 0, u64::MAX).unwrap();
        replay.syscalls(&session, Grouping::Function)
    };
    ask("a/b").unwrap();
    for (scope, words) in [
        ("", "remove the condition on it"),
        ("a[>= 1ms]/b", "remove the condition on it"),
        ("a", "in calls of its last step alone, `a[>= 0ns]/b`"),
    ] {
        let refused = ask(scope).unwrap_err();
        assert!(refused.contains(words), "{scope}: {refused}");
    }
}

#[test]
fn turns_that_are_missing_and_probes_that_were_taken_off_are_said() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let mut target = Target::new();
    let mut batches = vec![target.first()];
    for number in 0..4 {
        let batch = target.next();
        let turns = vec![Arc::new(turn(&target, batch.from_ns, batch.to_ns))];
        batches.push(RecordBatch {
            turns: if number == 2 { Vec::new() } else { turns },
            calls_dropped: if number < 2 { 0 } else { 7 },
            own: OwnLosses {
                over_budget: u64::from(number > 0),
                ..OwnLosses::default()
            },
            ..batch
        });
    }
    write(&path, &batches);
    let picture = Replay::of(&path).syscalls_of(0, u64::MAX).unwrap();
    assert_eq!(picture.calls[0].all.calls, 6);
    assert_eq!(picture.watched_ns, 3 * BATCH_NS);
    assert_eq!(picture.lost["recording_behind"], 7);
    assert_eq!(picture.lost["over_budget"], 1);
    let ended = picture.ended.as_deref().unwrap();
    assert!(ended.contains("without 0.250 s that are missing"), "{ended}");
}
