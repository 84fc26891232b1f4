//! The system calls of a session on their way into recordings: what was counted in each turn, once it is known who made them.
//!
//! See `docs/internals/recordings.md` for how a recording is made and queried.

use std::collections::{BTreeMap, VecDeque};

use profiler_aggregate::system_calls::{Counted, NO_STACK};
use profiler_symbolize::Stacks;

use super::{picture::Losses, system_calls::STACKS_FULL};
use crate::kernel::{CallNumber, CallResult, CountedCalls};

/// Longest wait for the names of a turn's stacks; it is then told without those that are missing.
pub const NAMED_WITHIN_NS: u64 = 5_000_000_000;

/// Calls, results and stacks of the turns that wait; beyond it the oldest are told without names.
const MAX_ROWS: usize = 1 << 16;

/// What calls are counted by whose stack had no name when their turn was told.
pub const UNNAMED: &str = "syscall_stacks_unnamed";

/// What the calls of turns that were lost are counted by.
pub const CALLS_DROPPED: &str = "recorded_syscalls_dropped";

/// System calls of one kind, with one result, from one stack.
#[derive(Clone, Debug)]
pub struct RecordedCalls {
    /// Which.
    pub call: CallNumber,
    /// What they returned; `None` where they did not fail.
    pub error: Option<u32>,
    /// In each of the recorded groupings; in none where it was not taken.
    pub stacks: Stacks,
    /// How many, and how long they took.
    pub counted: Counted,
}

/// The system calls that returned in a time.
#[derive(Clone, Default, Debug)]
pub struct RecordedTurn {
    /// `CLOCK_MONOTONIC`.
    pub from_ns: u64,
    /// The same.
    pub to_ns: u64,
    /// Each kind, result and stack once.
    pub calls: Vec<RecordedCalls>,
    /// Those that had not returned by its end.
    pub open: BTreeMap<CallNumber, u64>,
    /// Calls that had begun before they were watched.
    pub begun_before: u64,
    /// What was left out.
    pub lost: Losses,
}

impl RecordedTurn {
    /// How much memory it takes, but for stacks.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(self) + size_of_val(self.calls.as_slice())
    }

    /// How many calls returned, or never do.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.calls.iter().map(|calls| calls.counted.calls).sum()
    }
}

/// What is counted together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Row {
    call: CallNumber,
    error: Option<u32>,
    stack: u64,
}

/// What was counted in a turn.
#[derive(Debug)]
pub struct CountedTurn {
    from_ns: u64,
    to_ns: u64,
    rows: BTreeMap<Row, Counted>,
    open: BTreeMap<CallNumber, u64>,
    begun_before: u64,
    /// Calls whose stacks found no room.
    without_room: u64,
}

impl CountedTurn {
    /// Nothing yet, in a time, with the calls that had not returned at its end.
    pub fn new(from_ns: u64, to_ns: u64, open: BTreeMap<CallNumber, u64>) -> Self {
        Self {
            from_ns,
            to_ns,
            rows: BTreeMap::new(),
            open,
            begun_before: 0,
            without_room: 0,
        }
    }

    /// Adds calls, of a stack that is their own, or [`NO_STACK`] where that found no room.
    pub fn add(&mut self, counted: &CountedCalls, stack: u64) {
        let error = match counted.result {
            CallResult::Done => None,
            CallResult::Failed(error) => Some(error),
            CallResult::BegunBefore => {
                self.begun_before += counted.calls;
                return;
            }
        };
        if stack != counted.stack {
            self.without_room += counted.calls;
        }
        let row = Row {
            call: counted.call,
            error,
            stack,
        };
        self.rows.entry(row).or_default().add(Counted {
            calls: counted.calls,
            failed: if error.is_some() { counted.calls } else { 0 },
            time_ns: counted.time_ns,
            longest_ns: counted.longest_ns,
        });
    }

    fn is_named(&self, name_of: &impl Fn(u64) -> Option<Stacks>) -> bool {
        let stacks = self.rows.keys().map(|row| row.stack);
        stacks
            .into_iter()
            .all(|id| id == NO_STACK || name_of(id).is_some())
    }
}

/// What comes of the turns of a session.
#[derive(Debug)]
pub struct CallsToRecord {
    /// Those that wait for names, in the order of their times.
    turns: VecDeque<(CountedTurn, Losses)>,
    /// Of all of them.
    rows: usize,
    /// Losses that were told, since the programs were loaded.
    told: Losses,
}

impl CallsToRecord {
    /// None yet, after these losses.
    pub fn new(lost: Losses) -> Self {
        Self {
            turns: VecDeque::new(),
            rows: 0,
            told: lost,
        }
    }

    /// Takes a turn, with the losses up to now.
    pub fn take(&mut self, turn: CountedTurn, lost: &Losses) {
        let told = std::mem::replace(&mut self.told, lost.clone());
        let since = lost.iter().map(|(reason, count)| {
            let before = told.get(reason).copied().unwrap_or(0);
            (*reason, count.saturating_sub(before))
        });
        let lost = since.filter(|(_, count)| *count > 0).collect();
        self.rows += turn.rows.len();
        self.turns.push_back((turn, lost));
    }

    /// Gives the turns whose stacks have names, and those that have waited for too long or find no room; all of them where none comes
    /// after these. They stay in order.
    pub fn give(
        &mut self,
        now_ns: u64,
        all: bool,
        name_of: impl Fn(u64) -> Option<Stacks>,
    ) -> Vec<RecordedTurn> {
        let mut given = Vec::new();
        while let Some((turn, _)) = self.turns.front() {
            let waits_no_more = all
                || self.rows > MAX_ROWS
                || now_ns >= turn.to_ns.saturating_add(NAMED_WITHIN_NS)
                || turn.is_named(&name_of);
            if !waits_no_more {
                break;
            }
            let Some((turn, mut lost)) = self.turns.pop_front() else {
                break;
            };
            self.rows -= turn.rows.len();
            let mut unnamed = 0;
            let mut calls = Vec::with_capacity(turn.rows.len());
            for (row, counted) in turn.rows {
                let stacks = name_of(row.stack);
                if stacks.is_none() && row.stack != NO_STACK {
                    unnamed += counted.calls;
                }
                calls.push(RecordedCalls {
                    call: row.call,
                    error: row.error,
                    stacks: stacks.unwrap_or_default(),
                    counted,
                });
            }
            for (reason, count) in [(STACKS_FULL, turn.without_room), (UNNAMED, unnamed)] {
                if count > 0 {
                    lost.insert(reason, count);
                }
            }
            given.push(RecordedTurn {
                from_ns: turn.from_ns,
                to_ns: turn.to_ns,
                calls,
                open: turn.open,
                begun_before: turn.begun_before,
                lost,
            });
        }
        given
    }
}

#[cfg(test)]
mod tests {
    use profiler_symbolize::{FrameId, Grouping};

    use super::*;

    const MS: u64 = 1_000_000;

    /// Calls of one kind that did not fail, from a stack.
    fn counted(stack: u64, calls: u64) -> CountedCalls {
        CountedCalls {
            tgid: 1,
            views: 1,
            call: CallNumber {
                number: 0,
                is_32_bit: false,
            },
            result: CallResult::Done,
            stack,
            calls,
            time_ns: 7,
            longest_ns: 5,
        }
    }

    fn turn(number: u64, stacks: &[u64]) -> CountedTurn {
        let mut turn = CountedTurn::new(number * 250 * MS, (number + 1) * 250 * MS, BTreeMap::new());
        for stack in stacks {
            turn.add(&counted(*stack, 2), *stack);
        }
        turn
    }

    fn named(id: u64) -> Option<Stacks> {
        let frame = FrameId(u32::try_from(id).ok()?);
        Some(Stacks::make([Grouping::Function].into_iter().collect(), |_| {
            vec![frame]
        }))
    }

    #[test]
    fn turns_wait_for_the_names_of_their_stacks_in_order_and_not_forever() {
        let mut calls = CallsToRecord::new(Losses::new());
        calls.take(turn(0, &[NO_STACK]), &Losses::new());
        calls.take(turn(1, &[1, 2, 2]), &Losses::new());
        calls.take(turn(2, &[1]), &Losses::new());
        let without_2 = |id| named(id).filter(|_| id != 2);
        let given = calls.give(1000 * MS, false, without_2);
        assert_eq!(given.len(), 1, "the others wait for stack 2");
        assert_eq!(given[0].total(), 2);

        let late_ns = 500 * MS + NAMED_WITHIN_NS;
        let given = calls.give(late_ns, false, without_2);
        assert_eq!(given.len(), 2);
        assert_eq!((given[0].total(), given[1].total()), (6, 2));
        let stacks = |turn: &RecordedTurn| -> Vec<usize> {
            let of = |calls: &RecordedCalls| calls.stacks.of(Grouping::Function).map_or(0, <[_]>::len);
            turn.calls.iter().map(of).collect()
        };
        assert_eq!(stacks(&given[0]), [1, 0], "one was not named in time");
        assert_eq!(given[0].lost, Losses::from([(UNNAMED, 4)]));
        assert_eq!(calls.rows, 0);
    }

    #[test]
    fn the_last_turns_and_those_without_room_are_given_at_once() {
        let unnamed = |_| None;
        let mut calls = CallsToRecord::new(Losses::new());
        calls.take(turn(0, &[1]), &Losses::new());
        assert!(calls.give(0, false, unnamed).is_empty());
        assert_eq!(calls.give(0, true, unnamed).len(), 1);
        let many: Vec<u64> = (1..=MAX_ROWS as u64 / 2).collect();
        for number in 0..3 {
            calls.take(turn(number, &many), &Losses::new());
        }
        assert_eq!(calls.give(0, false, unnamed).len(), 1, "the oldest makes room");
    }

    #[test]
    fn calls_whose_stack_found_no_room_are_counted() {
        let mut calls = CallsToRecord::new(Losses::new());
        let mut without = turn(0, &[1]);
        without.add(&counted(2, 3), NO_STACK);
        calls.take(without, &Losses::new());
        let given = calls.give(0, false, named);
        assert_eq!(given[0].total(), 5);
        assert_eq!(given[0].lost, Losses::from([(STACKS_FULL, 3)]));
    }

    #[test]
    fn losses_are_those_of_each_turn() {
        let lost = |count| Losses::from([("syscall_limit", count), ("syscall_missed", 4)]);
        let mut calls = CallsToRecord::new(lost(1));
        calls.take(turn(0, &[]), &lost(1));
        calls.take(turn(1, &[]), &lost(6));
        let given = calls.give(0, true, named);
        assert!(given[0].lost.is_empty());
        assert_eq!(given[1].lost, Losses::from([("syscall_limit", 5)]));
    }
}
